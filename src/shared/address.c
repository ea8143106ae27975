/* address.c - reads the address of a store; its options have the names that redis-py gives them.  Errors quote
 * nothing of a wrong address, because a password may stand anywhere in it. */
#include "base/buf.h"
#include "base/file.h"
#include "shared/keeper.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { PASSWORD_MOST = 4096, DATABASE_MOST = 1 << 20 };
#define SIZE_LEAST ((uint64_t)1 << 20)
#define SIZE_MOST  ((uint64_t)1 << 50)

/* Decodes %XX in n bytes.  A NUL is refused, because the texts of an address end with one. */
static int decode_percent(const char *s, size_t n, char **out)
{
    char *to = mem_alloc(n + 1);
    size_t k = 0;
    if (!to) return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '%') {
            char hex[3] = {0};
            if (n - i > 2) memcpy(hex, s + i + 1, 2);
            if (!isxdigit((unsigned char)hex[0]) || !isxdigit((unsigned char)hex[1])) break;
            c = (unsigned char)strtoul(hex, NULL, 16);
            i += 2;
        }
        if (!c) break;
        to[k++] = (char)c;
        if (i + 1 == n) {
            mem_free(*out);
            *out = to;
            return 0;
        }
    }
    mem_free(to);
    return n ? ERR(ARG, "the address of a store has a wrong %%-sequence") : 0;
}

static int read_u64(const char *text, size_t n, uint64_t most, const char *what, uint64_t *out)
{
    uint64_t v = 0;
    size_t i = 0;
    for (; i < n && isdigit((unsigned char)text[i]) && v <= most; i++)
        v = 10 * v + (uint64_t)(text[i] - '0');
    if (!n || i < n || v > most)
        return ERR(ARG, "the address of a store has no number as its %s", what);
    *out = v;
    return 0;
}

/* Reads user:password of n bytes. */
static int read_login(const char *s, size_t n, struct address *a)
{
    const char *colon = memchr(s, ':', n);
    size_t user = colon ? (size_t)(colon - s) : n;
    TRY(decode_percent(s, user, &a->user));
    return colon ? decode_percent(colon + 1, n - user - 1, &a->password) : 0;
}

static int read_password(const char *path, char **out)
{
    char *text;
    size_t n;
    TRY(file_read(path, PASSWORD_MOST, &text, &n));
    text[strcspn(text, "\r\n")] = 0;
    mem_free(*out);
    *out = text;
    return *text ? 0 : ERR(ARG, "%s has no password", path);
}

/* Reads the one option of a directory: how many bytes it may have, as in 8G. */
static int read_size(const char *s, size_t n, struct address *a)
{
    static const char unit[] = "KMGT";
    const char *found = n > 6 ? memchr(unit, s[n - 1], sizeof unit - 1) : NULL;
    const unsigned shift = found ? 10 * ((unsigned)(found - unit) + 1) : 0;
    if (n < 6 || memcmp(s, "size=", 5) != 0)
        return ERR(ARG, "the address of a store has an unknown option; a directory may have size");
    TRY(read_u64(s + 5, n - 5 - (found != NULL), SIZE_MOST >> shift, "size, as 8G", &a->limit));
    a->limit <<= shift;
    return a->limit >= SIZE_LEAST
               ? 0
               : ERR(ARG, "a store with a size of %llu bytes: the least is %llu, as size=1M",
                     (unsigned long long)a->limit, (unsigned long long)SIZE_LEAST);
}

static int read_option(const char *s, size_t n, struct address *a)
{
    if (!a->redis) return read_size(s, n, a);
    const char *equals = memchr(s, '=', n);
    size_t name = equals ? (size_t)(equals - s) : n, rest = equals ? n - name - 1 : 0;
    const struct {
        const char *name;
        char **to;
    } text[] = {{"ssl_ca_certs", &a->ca}, {"ssl_certfile", &a->cert}, {"ssl_keyfile", &a->key}};
    uint64_t v;
    if (!rest) return ERR(ARG, "the address of a store has an option without a value");
    for (size_t i = 0; i < countof(text); i++)
        if (name == strlen(text[i].name) && !memcmp(s, text[i].name, name))
            return decode_percent(equals + 1, rest, text[i].to);
    if (name == 3 && !memcmp(s, "ttl", 3))
        return read_u64(equals + 1, rest, UINT32_MAX, "ttl, which is in seconds", &a->ttl);
    if (name == 2 && !memcmp(s, "db", 2)) {
        TRY(read_u64(equals + 1, rest, DATABASE_MOST, "database", &v));
        a->database = (uint32_t)v;
        return 0;
    }
    if (name == 13 && !memcmp(s, "password_file", 13)) {
        char *path = NULL;
        TRY(decode_percent(equals + 1, rest, &path));
        int e = read_password(path, &a->password);
        mem_free(path);
        return e;
    }
    return ERR(ARG,
               "the address of a store has an unknown option; it may have db, ttl, password_file, "
               "ssl_ca_certs, ssl_certfile and ssl_keyfile");
}

static int read_options(const char *s, struct address *a)
{
    while (*s) {
        size_t n = strcspn(s, "&");
        TRY(read_option(s, n, a));
        s += n + (s[n] == '&');
    }
    return 0;
}

/* Reads host, port and database: n bytes of [user:password@]host[:port][/database]. */
static int read_place(const char *s, size_t n, struct address *a)
{
    size_t whole = n, at = n;
    while (at && s[at - 1] != '@')
        at--; /* the last '@', because a password may contain others */
    if (at) TRY(read_login(s, at - 1, a));
    s += at;
    n = whole - at;
    const char *slash = memchr(s, '/', n);
    size_t host = slash ? (size_t)(slash - s) : n, name = 0;
    bool v6 = host && *s == '[';
    while (name < host && s[name] != (v6 ? ']' : ':'))
        name++;
    size_t rest = name + v6;
    uint64_t v;
    if (name == 0 || rest > host) return ERR(ARG, "the address of a store has no host");
    TRY(decode_percent(s + v6, name - v6, &a->host));
    if (rest < host) {
        if (s[rest] != ':') return ERR(ARG, "the address of a store has a wrong port");
        TRY(read_u64(s + rest + 1, host - rest - 1, 65535, "port", &v));
        if (!(a->port = mem_strndup(s + rest + 1, host - rest - 1))) return ERR_NOMEM;
    }
    if (slash && n - host > 1) {
        TRY(read_u64(slash + 1, n - host - 1, DATABASE_MOST, "database", &v));
        a->database = (uint32_t)v;
    }
    if (!a->port && !(a->port = mem_strdup("6379"))) return ERR_NOMEM;
    return a->host ? 0 : ERR(ARG, "the address of a store has no host");
}

/* Takes the password from the environment if the address has none, from the variable that redis-cli reads. */
static int take_password(struct address *a)
{
    const char *given = getenv("REDISCLI_AUTH");
    if (a->password || !given || !*given) return 0;
    return (a->password = mem_strdup(given)) ? 0 : ERR_NOMEM;
}

static int write_shown(struct address *a)
{
    struct buf b;
    buf_init(&b, 4096);
    int e;
    if (!a->redis)
        e = buf_printf(&b, "file://%s", a->path);
    else if (a->path)
        e = buf_printf(&b, "unix://%s", a->path);
    else
        e = buf_printf(&b, "%s://%s:%s/%u", a->tls ? "rediss" : "redis", a->host, a->port,
                       a->database);
    if (e >= 0 && !(a->shown = buf_take(&b))) e = ERR_NOMEM;
    buf_done(&b);
    return MIN(e, 0);
}

static int read_all(const char *text, struct address *a)
{
    const char *colon = strstr(text, "://");
    size_t scheme = colon ? (size_t)(colon - text) : 0;
    const char *s = colon ? colon + 3 : text;
    size_t n = strcspn(s, "?");
    bool local = scheme == 4 && !memcmp(text, "unix", 4),
         files = scheme == 4 && !memcmp(text, "file", 4);
    a->tls = scheme == 6 && !memcmp(text, "rediss", 6);
    a->redis = a->tls || local || (scheme == 5 && !memcmp(text, "redis", 5));
    if (!a->redis && !files)
        return ERR(ARG,
                   "the address of a store begins with redis://, rediss://, unix:// or file://");
    TRY(s[n] == '?' ? read_options(s + n + 1, a) : 0);
    if (!local && !files) TRY(read_place(s, n, a));
    if (local || files) {
        size_t at = 0;
        while (at < n && s[at] != '@')
            at++;
        if (local && at < n) {
            TRY(read_login(s, at, a));
            s += at + 1;
            n -= at + 1;
        }
        if (!n || *s != '/')
            return ERR(ARG, "the address of a store needs a path from the root: %s:///path",
                       files ? "file" : "unix");
        TRY(decode_percent(s, n, &a->path));
    }
    if (a->redis) TRY(take_password(a));
    if (!a->tls && (a->ca || a->cert || a->key))
        return ERR(ARG, "the address of a store has options of TLS, which are for rediss://");
    return write_shown(a);
}

int address_read(const char *text, struct address *out)
{
    struct address a = {0};
    int e = read_all(text, &a);
    if (e >= 0)
        *out = a;
    else
        address_done(&a);
    return MIN(e, 0);
}

static void wipe(char *secret)
{
    if (secret) explicit_bzero(secret, strlen(secret));
    mem_free(secret);
}

void address_done(struct address *a)
{
    mem_free(a->host);
    mem_free(a->port);
    mem_free(a->path);
    mem_free(a->user);
    wipe(a->password);
    mem_free(a->ca);
    mem_free(a->cert);
    mem_free(a->key);
    mem_free(a->shown);
    *a = (struct address){0};
}
