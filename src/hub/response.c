/* response.c - reads headers, and turns a status into a sentence that says what to do. */
#include "hub/response.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Copies text[0, n) without the white space around it.  Control characters become blanks; a text that is too long is cut. */
static void copy(const char *text, size_t n, char *out, size_t room)
{
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    while (n && strchr(" \t", *text))
        text++, n--;
    n = MIN(n, room - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
    out[n] = 0;
    if (utf8_valid(out, n)) return; /* readers of messages expect UTF-8 */
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)out[i] >= 0x80) out[i] = '?';
}

/* As copy, without the "W/" and the quotes of an ETag. */
static void copy_etag(const char *text, size_t n, char *out, size_t room)
{
    char s[256];
    copy(text, n, s, sizeof s);
    const char *from = s + (s[0] == 'W' && s[1] == '/' ? 2 : 0);
    from += *from == '"';
    snprintf(out, room, "%.*s", (int)MIN(strcspn(from, "\""), room - 1), from);
}

/* Reads a number without a sign.  Returns a pointer behind its digits, or NULL. */
static const char *read_u64(const char *s, uint64_t *out)
{
    uint64_t v = 0;
    if (*s < '0' || *s > '9') return NULL;
    for (; *s >= '0' && *s <= '9'; s++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return NULL;
    *out = v;
    return s;
}

/* Reads "bytes 5-9/10". */
static void take_range(struct response *a, const char *s)
{
    uint64_t from, to, total;
    if (strncasecmp(s, "bytes ", 6) != 0) return;
    s = read_u64(s + 6, &from);
    if (s && *s == '-')
        s = read_u64(s + 1, &to);
    else
        return;
    if (s && *s == '/')
        s = read_u64(s + 1, &total);
    else
        return;
    if (!s || *s || to < from || to >= total) return;
    a->from = from;
    a->total = total;
    a->has_range = true;
}

/* Reads the URL of rel="next" from a list of links: <URL>; rel="next", <URL>; rel="last" */
static void take_link(struct response *a, const char *s)
{
    while ((s = strchr(s, '<'))) {
        const char *url = s + 1, *end = strchr(url, '>');
        if (!end) {
            a->lost_next = true; /* the line was cut */
            return;
        }
        size_t n = (size_t)(end - url), rest = strcspn(end, "<");
        if (memmem(end, rest, "rel=\"next\"", 10) || memmem(end, rest, "rel=next", 8)) {
            a->lost_next = n >= sizeof a->next;
            if (!a->lost_next) copy(url, n, a->next, sizeof a->next);
            return;
        }
        s = end;
    }
}

static void take_header(struct response *a, const char *name, const char *v, size_t n)
{
    char text[4096];
    uint64_t value = 0;
    copy(v, n, text, sizeof text);
    const char *end = read_u64(text, &value);
    bool counts = end && !*end;
    if (!strcasecmp(name, "x-repo-commit")) {
        if (!*a->commit && hub_is_commit(text)) memcpy(a->commit, text, sizeof a->commit);
    } else if (!strcasecmp(name, "x-linked-etag")) {
        if (!*a->linked) copy_etag(v, n, a->linked, sizeof a->linked);
    } else if (!strcasecmp(name, "x-linked-size")) {
        if (counts && !a->has_linked_size) a->linked_size = value, a->has_linked_size = true;
    } else if (!strcasecmp(name, "x-error-code")) {
        if (!*a->code) copy(v, n, a->code, sizeof a->code);
    } else if (!strcasecmp(name, "x-error-message")) {
        if (!*a->message) copy(v, n, a->message, sizeof a->message);
    } else if (!strcasecmp(name, "link")) {
        take_link(a, text);
    } else if (!strcasecmp(name, "content-type")) {
        copy(v, n, a->type, sizeof a->type);
    } else if (!strcasecmp(name, "content-length")) {
        if (counts) a->length = value, a->has_length = true;
    } else if (!strcasecmp(name, "content-range")) {
        take_range(a, text);
    } else if (!strcasecmp(name, "retry-after")) {
        a->waits = counts;
        a->wait = counts ? (uint32_t)MIN(value, UINT32_MAX) : 0;
    }
}

void response_header(struct response *a, const char *line, size_t n)
{
    char name[32];
    if (n >= 5 && !strncasecmp(line, "HTTP/", 5)) {
        a->has_range = a->has_length = a->waits = a->lost_next = false;
        a->from = a->total = a->length = a->wait = 0;
        a->type[0] = a->next[0] = 0;
        return;
    }
    const char *colon = memchr(line, ':', n);
    if (!colon || !n || (size_t)(colon - line) >= sizeof name) return;
    copy(line, (size_t)(colon - line), name, sizeof name);
    take_header(a, name, colon + 1, n - (size_t)(colon - line) - 1);
}

bool response_is_passing(const struct response *a)
{
    return a->status == 408 || a->status == 429 || a->status == 500 || a->status == 502 ||
           a->status == 503 || a->status == 504;
}

static const char how[] =
    "set HF_TOKEN to a token that may read the model (from the settings of your account on the hub), "
    "or sign in with: hf auth login";

static int refuse_gated(const struct hub_name *name, const char *endpoint, bool token)
{
    if (token)
        return ERR(
            ARG,
            "%s is gated, and the account of your token may not read it; accept its conditions at %s/%s",
            name->repo, endpoint, name->repo);
    return ERR(ARG, "%s is gated: accept its conditions at %s/%s, then %s", name->repo, endpoint,
               name->repo, how);
}

int response_refuse(const struct response *a, const struct hub_name *name, const char *endpoint,
                    bool token)
{
    const char *said = *a->message ? a->message : *a->code ? a->code : "no reason is given";
    if (!strcmp(a->code, "GatedRepo")) return refuse_gated(name, endpoint, token);
    if (!strcmp(a->code, "RevisionNotFound"))
        return ERR(NOTFOUND, "%s has no revision \"%s\"", name->repo,
                   *name->revision ? name->revision : "main");
    if (!strcmp(a->code, "EntryNotFound"))
        return ERR(NOTFOUND, "%s has lost a file that it lists: %.200s", name->repo, said);
    if (a->status == 401 && token && strcmp(a->code, "RepoNotFound") != 0)
        return ERR(ARG, "%s does not accept the token: %.200s; %s", endpoint, said, how);
    if (a->status == 401 || a->status == 404) {
        if (token)
            return ERR(NOTFOUND,
                       "%s has no repository %s that your token may read; look at the spelling",
                       endpoint, name->repo);
        return ERR(NOTFOUND,
                   "%s has no repository %s, or it is private; look at the spelling, or %s",
                   endpoint, name->repo, how);
    }
    if (a->status == 403)
        return ERR(ARG, "%s forbids reading %s: %.200s%s%s", endpoint, name->repo, said,
                   token ? "" : "; ", token ? "" : how);
    if (a->status == 429)
        return ERR(
            BUSY,
            "%s has had too many requests from here (status 429), and asks to wait %u s; try again later%s%s",
            endpoint, a->wait, token ? "" : ", or ", token ? "" : how);
    if (a->status >= 500)
        return ERR(
            IO,
            "%s fails at the moment (status %ld: %.200s); try again later, the same command goes on",
            endpoint, a->status, said);
    return ERR(IO, "%s answers with status %ld: %.200s", endpoint, a->status, said);
}
