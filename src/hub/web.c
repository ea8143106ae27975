/* web.c - requests to the hub.  Redirections are followed here and not by libcurl, so that every hop is checked: its
 * protocol, who may see the token, and how many there are. */
#include "hub/web.h"
#include "base/built.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

int web_quote(struct buf *b, const char *s, bool path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    for (; *s; s++) {
        if (strchr(plain, *s) || (path && *s == '/'))
            TRY(buf_putc(b, *s));
        else
            TRY(buf_printf(b, "%%%02X", (unsigned char)*s));
    }
    return 0;
}

#ifndef KVIK_CURL
int web_open(const struct hub_home *home, const struct hub_name *name,
             const struct hub_watch *watch, struct web **out)
{
    (void)home, (void)name, (void)watch, (void)out;
    return ERR(UNSUPPORTED, "this kvik was built without libcurl, so it downloads nothing: install "
                            "libcurl4-openssl-dev or libcurl4-gnutls-dev, and build it again");
}
void web_close(struct web *w)
{
    (void)w;
}
int web_refuse(const struct web *w, const struct response *a)
{
    (void)w, (void)a;
    return ERR(UNSUPPORTED, "no libcurl");
}
int web_try(struct web *w, const char *url, uint64_t from, const struct web_sink *sink,
            struct response *a)
{
    (void)w, (void)url, (void)from, (void)sink, (void)a;
    return ERR(UNSUPPORTED, "no libcurl");
}
int web_text(struct web *w, const char *url, size_t most, struct buf *out, struct response *a)
{
    (void)w, (void)url, (void)most, (void)out, (void)a;
    return ERR(UNSUPPORTED, "no libcurl");
}
int web_wait(struct web *w, const struct response *a, unsigned tries)
{
    (void)w, (void)a, (void)tries;
    return 0;
}
#else
#include "hub/curl.h"

enum {
    HOPS = 10,
    TRIES = 5,
    WAIT_MOST = 300, /* seconds; if a server asks for more, the call fails instead of waiting */
    HEADERS_MOST = 1 << 18, /* bytes of all headers of a hop */
    SHORT_SECONDS = 60,     /* seconds that a request for a short text may take */
    REST_MOST = 1 << 16,    /* bytes of the body of an error or a redirection that are read */
};

struct web {
    CURL *easy;
    const struct hub_home *home;
    const struct hub_name *name;
    const struct hub_watch *watch;
    struct curl_slist *bearer; /* owned; the header with the token, or NULL */
    char said[CURL_ERROR_SIZE];
    /* the fields of the running request */
    const struct web_sink *sink;
    struct response *answer;
    size_t headers, rest;
    int error; /* the error of a callback */
    bool begun;
};

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
    struct web *w = ctx;
    w->headers += size * n;
    if (w->headers > HEADERS_MOST) {
        w->error = ERR(LIMIT, "the server sends over %d bytes of headers", HEADERS_MOST);
        return 0;
    }
    response_header(w->answer, p, size * n);
    return size * n;
}

/* Gives the bodies of the statuses 200 and 206 to the sink.  Other bodies are read and dropped; one of more than
 * REST_MOST bytes ends the request. */
static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    struct web *w = ctx;
    curl_easy_getinfo(w->easy, CURLINFO_RESPONSE_CODE, &w->answer->status);
    if (w->answer->status != 200 && w->answer->status != 206) {
        w->rest += size * n;
        return w->rest > REST_MOST ? 0 : size * n;
    }
    if (!w->begun && w->sink->begins) w->error = w->sink->begins(w->sink->ctx, w->answer);
    w->begun = true;
    if (w->error >= 0) w->error = w->sink->takes(w->sink->ctx, p, size * n);
    return w->error < 0 ? 0 : size * n;
}

static bool stops(const struct web *w)
{
    return w->watch && w->watch->stops && w->watch->stops(w->watch->ctx);
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    return stops(ctx);
}

static int set_up(struct web *w)
{
    static const char *const bundle[] = {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    char header[600];
    CURL *c = w->easy;
    bool good = curl_easy_setopt(c, CURLOPT_ERRORBUFFER, w->said) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_USERAGENT, "kvik") == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 20L) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)w->home->patience) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_HEADERDATA, w) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_WRITEDATA, w) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_XFERINFODATA, w) == CURLE_OK &&
                curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L) == CURLE_OK;
    for (size_t i = 0; good && i < countof(bundle); i++) {
        const char *v = getenv(bundle[i]);
        if (!v || !*v) continue;
        bool dir = dir_exists(v);
        /* if the variable names a file, libcurl's built-in directory is not trusted as well, and vice versa */
        good = curl_easy_setopt(c, CURLOPT_CAINFO, dir ? NULL : v) == CURLE_OK &&
               curl_easy_setopt(c, CURLOPT_CAPATH, dir ? v : NULL) == CURLE_OK;
        break;
    }
    if (good && *w->home->token) {
        snprintf(header, sizeof header, "Authorization: Bearer %s", w->home->token);
        good = (w->bearer = curl_slist_append(NULL, header)) != NULL;
    }
    return good ? 0 : ERR(NOMEM, "libcurl cannot be set up");
}

int web_open(const struct hub_home *home, const struct hub_name *name,
             const struct hub_watch *watch, struct web **out)
{
    TRY(curl_load());
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return ERR(NOMEM, "libcurl does not start");
    struct web *w = mem_alloc(sizeof *w);
    if (!w) return ERR_NOMEM;
    *w = (struct web){.home = home, .name = name, .watch = watch, .easy = curl_easy_init()};
    int e = w->easy ? set_up(w) : ERR(NOMEM, "libcurl does not start");
    if (e < 0) {
        web_close(w);
        return e;
    }
    *out = w;
    return 0;
}

void web_close(struct web *w)
{
    if (!w) return;
    if (w->easy) curl_easy_cleanup(w->easy);
    curl_slist_free_all(w->bearer);
    mem_free(w);
}

int web_refuse(const struct web *w, const struct response *a)
{
    return response_refuse(a, w->name, w->home->endpoint, *w->home->token != 0);
}

/* True if two URLs have the same protocol, host and port. */
static bool same_origin(const char *a, const char *b)
{
    static const CURLUPart part[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    CURLU *x = curl_url(), *y = curl_url();
    bool same = x && y && curl_url_set(x, CURLUPART_URL, a, 0) == CURLUE_OK &&
                curl_url_set(y, CURLUPART_URL, b, 0) == CURLUE_OK;
    for (size_t i = 0; same && i < countof(part); i++) {
        char *p = NULL, *q = NULL;
        same = curl_url_get(x, part[i], &p, CURLU_DEFAULT_PORT) == CURLUE_OK &&
               curl_url_get(y, part[i], &q, CURLU_DEFAULT_PORT) == CURLUE_OK && !strcasecmp(p, q);
        curl_free(p);
        curl_free(q);
    }
    curl_url_cleanup(x);
    curl_url_cleanup(y);
    return same;
}

/* True for failures of a connection that another try cannot mend. */
static bool is_final(CURLcode c)
{
    return c == CURLE_URL_MALFORMAT || c == CURLE_UNSUPPORTED_PROTOCOL ||
           c == CURLE_OUT_OF_MEMORY || c == CURLE_PEER_FAILED_VERIFICATION ||
           c == CURLE_SSL_CACERT_BADFILE || c == CURLE_SSL_CERTPROBLEM ||
           c == CURLE_WEIRD_SERVER_REPLY;
}

/* Writes "https://host" of a URL for messages, because the rest of a signed address can hold keys. */
static void host_of(const char *url, char out[128])
{
    const char *at = strstr(url, "://");
    size_t n = at ? (size_t)(at - url) + 3 : 0;
    size_t end = n + strcspn(url + n, "/?#"), host = n;
    for (size_t i = n; i < end; i++) /* leaves out the user and the password */
        if (url[i] == '@') host = i + 1;
    snprintf(out, 128, "%.*s%.*s", (int)MIN(n, 16), url, (int)MIN(end - host, 100), url + host);
}

/* Makes a request without following a redirection.  Returns as web_try. */
static int one_hop(struct web *w, const char *url, uint64_t from, bool brief)
{
    char range[32], host[128];
    snprintf(range, sizeof range, "%llu-", (unsigned long long)from);
    host_of(url, host);
    w->headers = w->rest = 0;
    w->error = 0;
    w->begun = false;
    w->said[0] = 0;
    w->answer->status = 0;
    if (curl_easy_setopt(w->easy, CURLOPT_URL, url) != CURLE_OK)
        return ERR(NOMEM, "libcurl takes no URL");
    curl_easy_setopt(w->easy, CURLOPT_HTTPHEADER,
                     same_origin(url, w->home->endpoint) ? w->bearer : NULL);
    curl_easy_setopt(w->easy, CURLOPT_RANGE, from ? range : NULL);
    curl_easy_setopt(w->easy, CURLOPT_TIMEOUT, brief ? (long)SHORT_SECONDS : 0L);
    CURLcode c = curl_easy_perform(w->easy);
    curl_easy_getinfo(w->easy, CURLINFO_RESPONSE_CODE, &w->answer->status);
    if (w->error < 0) return w->error;
    if (c == CURLE_ABORTED_BY_CALLBACK) return ERR(CANCELLED, "stopped");
    if (c == CURLE_OK && w->answer->status) return 1;
    if (w->rest > REST_MOST && w->answer->status)
        return 1; /* the status suffices; the rest of a long error page is not read */
    err_set(ERR_IO, "%s: %.300s", host, *w->said ? w->said : curl_easy_strerror(c));
    return is_final(c) ? ERR_IO : 0;
}

static bool is_secure(const char *url)
{
    return !strncasecmp(url, "https:", 6);
}

/* Writes the address that a redirection leads to, if it may be followed. */
static int next_hop(const struct web *w, const char *from, char *to, size_t room)
{
    char host[128];
    char *url = NULL;
    curl_easy_getinfo(w->easy, CURLINFO_REDIRECT_URL, &url);
    host_of(from, host);
    if (!url)
        return ERR(FORMAT, "%s sends on (status %ld) and does not say where to", host,
                   w->answer->status);
    if (strlen(url) >= room)
        return ERR(LIMIT, "%s sends on to an address of %zu bytes", host, strlen(url));
    if (strncasecmp(url, "http://", 7) != 0 && !is_secure(url))
        return ERR(FORMAT, "%s sends on to %.100s, which is neither http nor https", host, url);
    if (is_secure(from) && !is_secure(url))
        return ERR(FORMAT,
                   "%s sends on from https to http, where anyone between could change the file",
                   host);
    memcpy(to, url, strlen(url) + 1);
    return 0;
}

static bool sends_on(long status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static int follow(struct web *w, const char *url, uint64_t from, const struct web_sink *sink,
                  struct response *a, bool brief)
{
    char at[8192], to[8192], host[128];
    *a = (struct response){0};
    w->answer = a;
    w->sink = sink;
    if (strlen(url) >= sizeof at) return ERR(LIMIT, "a URL of %zu bytes", strlen(url));
    if (is_secure(w->home->endpoint) && !is_secure(url))
        return ERR(FORMAT,
                   "the hub's list of files goes on with http or another protocol, not https");
    memcpy(at, url, strlen(url) + 1);
    for (int hop = 0; hop <= HOPS; hop++) {
        int e = one_hop(w, at, from, brief);
        if (e <= 0 || !sends_on(a->status)) return e;
        TRY(next_hop(w, at, to, sizeof to));
        memcpy(at, to, strlen(to) + 1);
    }
    host_of(url, host);
    return ERR(FORMAT, "%s sends on in a circle: over %d redirections", host, HOPS);
}

int web_try(struct web *w, const char *url, uint64_t from, const struct web_sink *sink,
            struct response *a)
{
    return follow(w, url, from, sink, a, false);
}

int web_wait(struct web *w, const struct response *a, unsigned tries)
{
    char text[128];
    bool asked = a->waits && response_is_passing(a);
    double seconds = asked ? a->wait : 0.25 * (1u << MIN(tries, 5));
    if (tries >= TRIES || seconds > WAIT_MOST) return 0;
    snprintf(text, sizeof text, "the hub asks to wait %.0f s", seconds);
    if (asked && a->wait && w->watch && w->watch->says) w->watch->says(w->watch->ctx, text);
    for (double until = now_seconds() + seconds; now_seconds() < until;) {
        if (stops(w)) return ERR(CANCELLED, "stopped");
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return 1;
}

static int append_text(void *ctx, const char *data, size_t n)
{
    struct buf *b = ctx;
    if (b->len + n > b->max) return ERR(LIMIT, "the hub's answer is longer than %zu bytes", b->max);
    return buf_append(b, data, n);
}

int web_text(struct web *w, const char *url, size_t most, struct buf *out, struct response *a)
{
    const struct web_sink sink = {.ctx = out, .takes = append_text};
    for (unsigned tries = 1;; tries++) {
        buf_done(out);
        buf_init(out, most);
        int e = follow(w, url, 0, &sink, a, true), again;
        if (e < 0) return e;
        if (e && !response_is_passing(a)) return 0;
        if (!e) a->status = 0;
        again = web_wait(w, a, tries);
        if (again < 0) return again;
        if (!again) return e ? 0 : ERR_IO; /* the message of the failed connection is already set */
    }
}

/* Appends "libcurl 7.88.1", from the library's own text "libcurl/7.88.1 ...". */
static int name(struct buf *b)
{
    if (curl_load() < 0) return buf_puts(b, "libcurl (looked for and not found)");
    const char *said = curl_version(), *number = strchr(said, '/');
    return buf_printf(b, "libcurl %.*s", number ? (int)strcspn(number + 1, " ") : 20,
                      number ? number + 1 : said);
}
BUILT(curl, BUILT_LIBRARIES, name);
#endif
