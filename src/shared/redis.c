/* redis.c - a Redis as a keeper.  hiredis has the protocol; link.c has the connection, with deadlines and TLS.
 *
 * Replies are untrusted.  Only the four kinds of replies that these commands have are read, and a reply may have no
 * more bytes than its caller can use.  After any other reply the connection is closed. */
#include "shared/keeper.h"

#ifdef KVIK_REDIS
#include "base/built.h"
#include "shared/link.h"

#include <hiredis.h>
#include <read.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 64 << 10, HEAD = 1024, KEY_TEXT = KEEPER_HEX + 16 };

struct redis {
    struct keeper keeper; /* first, so that both have one address */
    const struct address *a;
    const atomic_bool *stop;
    struct link *link; /* NULL: not connected */
    redisReader *reader;
    char piece[PIECE];
};

static void disconnect(struct redis *r)
{
    link_close(r->link);
    if (r->reader) redisReaderFree(r->reader);
    r->link = NULL;
    r->reader = NULL;
}

/* Returns the code of an error that Redis sends.  Some errors are temporary: the server is loading, is full, or has
 * lost its writer. */
static int refused(const struct redis *r, const redisReply *reply)
{
    const char *s = reply->str ? reply->str : "";
    static const char *const full[] = {"OOM ", "MISCONF ", "READONLY "};
    for (size_t i = 0; i < countof(full); i++)
        if (!strncmp(s, full[i], strlen(full[i]))) return ERR(FULL, "%s: %.200s", r->a->shown, s);
    if (!strncmp(s, "LOADING ", 8)) return ERR(BUSY, "%s: %.200s", r->a->shown, s);
    return ERR(ARG, "%s: %.200s", r->a->shown, s);
}

/* Reads one reply of at most `most` bytes. */
static int read_reply(struct redis *r, size_t most, double until, redisReply **out)
{
    size_t sum = 0;
    void *reply = NULL;
    for (;;) {
        int64_t n = link_receive(r->link, r->piece, sizeof r->piece, until);
        if (n < 0) return (int)n;
        if (!sum && !strchr("+-:$", *r->piece))
            return ERR(FORMAT, "%s does not answer as Redis does", r->a->shown);
        if ((sum += (size_t)n) > most + HEAD)
            return ERR(LIMIT, "%s sends more than %zu bytes", r->a->shown, most);
        if (redisReaderFeed(r->reader, r->piece, (size_t)n) != REDIS_OK ||
            redisReaderGetReply(r->reader, &reply) != REDIS_OK)
            return ERR(FORMAT, "%s: %s", r->a->shown, r->reader->errstr);
        if (reply) break;
    }
    if (r->reader->pos != r->reader->len) { /* a command has one reply, and here are more */
        freeReplyObject(reply);
        return ERR(FORMAT, "%s answers what was not asked", r->a->shown);
    }
    *out = reply;
    return 0;
}

/* Sends a command on an open connection.  After any failure except an error of Redis the connection is closed,
 * because a reply might still come. */
static int command_on(struct redis *r, int n, const char **word, const size_t *bytes, size_t most,
                      double until, redisReply **out)
{
    char *text;
    int len = redisFormatCommandArgv(&text, n, word, bytes);
    if (len < 0) return ERR(NOMEM, "out of memory");
    int e = link_send(r->link, text, (size_t)len, until);
    redisFreeCommand(text);
    if (e >= 0) e = read_reply(r, most, until, out);
    if (e < 0) {
        disconnect(r);
        return e;
    }
    if ((*out)->type != REDIS_REPLY_ERROR) return 0;
    e = refused(r, *out);
    freeReplyObject(*out);
    return e;
}

static int send_words(struct redis *r, int n, const char **word, double until)
{
    size_t bytes[3];
    redisReply *reply;
    for (int i = 0; i < n; i++)
        bytes[i] = strlen(word[i]);
    TRY(command_on(r, n, word, bytes, 0, until, &reply));
    freeReplyObject(reply);
    return 0;
}

/* A server that does not know AUTH quotes what it was sent, so the error has nothing of its answer. */
static int log_in(struct redis *r, double until)
{
    const struct address *a = r->a;
    const char *with_user[] = {"AUTH", a->user, a->password}, *alone[] = {"AUTH", a->password};
    int e = a->user ? send_words(r, 3, with_user, until) : send_words(r, 2, alone, until);
    return e == ERR_ARG ? ERR(ARG, "%s refuses the password", a->shown) : e;
}

static int greet(struct redis *r, double until)
{
    const struct address *a = r->a;
    char database[16];
    if (a->password) TRY(log_in(r, until));
    if (!a->database) return 0;
    snprintf(database, sizeof database, "%u", a->database);
    return send_words(r, 2, (const char *[]){"SELECT", database}, until);
}

static int connected(struct redis *r, double until)
{
    if (r->link) return 0;
    TRY(link_open(r->a, r->stop, until, &r->link));
    r->reader = redisReaderCreate();
    int e = r->reader ? greet(r, until) : ERR(NOMEM, "out of memory");
    if (e < 0) disconnect(r);
    return e;
}

/* Sends a command with a key, and `more` words behind it. */
static int command(struct redis *r, const char *name, const uint8_t *key, int more,
                   const char **word, const size_t *bytes, size_t most, double until,
                   redisReply **out)
{
    char text[KEY_TEXT], hex[KEEPER_HEX];
    const char *all[5] = {name, text};
    size_t n[5] = {strlen(name)};
    TRY(connected(r, until));
    digest_hex(key, hex);
    n[1] = (size_t)snprintf(text, sizeof text, "kvik:%s", hex);
    for (int i = 0; i < more; i++) {
        all[2 + i] = word[i];
        n[2 + i] = bytes[i];
    }
    return command_on(r, 2 + more, all, n, most, until, out);
}

static int put(struct keeper *k, const uint8_t *key, const void *data, size_t n, double until)
{
    struct redis *r = (struct redis *)k;
    char ttl[24];
    const char *word[3] = {data, "EX", ttl};
    size_t bytes[3] = {n, 2,
                       (size_t)snprintf(ttl, sizeof ttl, "%llu", (unsigned long long)r->a->ttl)};
    redisReply *reply;
    TRY(command(r, "SET", key, r->a->ttl ? 3 : 1, word, bytes, 0, until, &reply));
    freeReplyObject(reply);
    return 0;
}

static int get(struct keeper *k, const uint8_t *key, size_t most, void **data, size_t *n,
               double until)
{
    struct redis *r = (struct redis *)k;
    redisReply *reply;
    TRY(command(r, "GET", key, 0, NULL, NULL, most, until, &reply));
    int e = reply->type == REDIS_REPLY_STRING ? 0
            : reply->type == REDIS_REPLY_NIL
                ? ERR(NOTFOUND, "%s has no such value", r->a->shown)
                : ERR(FORMAT, "%s does not answer as Redis does", r->a->shown);
    if (e == ERR_FORMAT) disconnect(r);
    void *copy = e >= 0 ? mem_alloc((size_t)reply->len + 1) : NULL;
    if (e >= 0 && !copy) e = ERR_NOMEM;
    if (e >= 0) {
        memcpy(copy, reply->str, (size_t)reply->len);
        *data = copy;
        *n = (size_t)reply->len;
    }
    freeReplyObject(reply);
    return e;
}

/* Sends a command that returns a number. */
static int counted(struct keeper *k, const char *name, const uint8_t *key, double until)
{
    struct redis *r = (struct redis *)k;
    redisReply *reply;
    TRY(command(r, name, key, 0, NULL, NULL, 0, until, &reply));
    int e = reply->type == REDIS_REPLY_INTEGER
                ? reply->integer > 0
                : ERR(FORMAT, "%s does not answer as Redis does", r->a->shown);
    if (e == ERR_FORMAT) disconnect(r);
    freeReplyObject(reply);
    return e;
}

static int exists(struct keeper *k, const uint8_t *key, double until)
{
    return counted(k, "EXISTS", key, until);
}

static int remove_value(struct keeper *k, const uint8_t *key, double until)
{
    return MIN(counted(k, "DEL", key, until), 0);
}

static void close_redis(struct keeper *k)
{
    disconnect((struct redis *)k);
    mem_free(k);
}

int redis_open(const struct address *a, const atomic_bool *stop, struct keeper **out)
{
    struct redis *r = mem_alloc(sizeof *r);
    if (!r) return ERR_NOMEM;
    r->keeper = (struct keeper){put, get, exists, remove_value, close_redis};
    r->a = a;
    r->stop = stop;
    *out = &r->keeper;
    return 0;
}

static int name(struct buf *b)
{
    return buf_printf(b, "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}
BUILT(redis, BUILT_LIBRARIES, name);
#else
int redis_open(const struct address *a, const atomic_bool *stop, struct keeper **out)
{
    (void)stop, (void)out;
    return ERR(UNSUPPORTED, "%s: this build has no Redis: install libhiredis-dev and build again",
               a->shown);
}
#endif
