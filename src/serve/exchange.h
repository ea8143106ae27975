/* exchange.h - one HTTP request and its answer, as every thread of the server sees it.
 *
 * The network thread owns sockets; nobody else calls libevent.  What another thread sends is a letter in the mailbox of
 * the network thread, so sending never waits for a client.  An exchange is counted: the network holds it until the
 * answer is complete or the client has left, and whoever answers holds it until it calls exchange_release. */
#pragma once
#include "base/base.h"
#include "base/json.h"

#include <stdatomic.h>

struct net;
struct protocol;

enum exchange_method { EXCHANGE_GET = 1, EXCHANGE_POST = 2, EXCHANGE_ASK = 4, EXCHANGE_OTHER = 8 };

struct exchange {
    atomic_uint refs;
    struct net *net;
    enum exchange_method method;
    char *path, *query, *key; /* owned; query and key (the API key that was sent) may be NULL */
    char *type;               /* owned: Content-Type of the body, or NULL */
    char *origin;             /* owned: of the page that a browser shows, or NULL */
    char *body;               /* owned, [n_body], ends with a NUL that does not count */
    size_t n_body;
    size_t reserved;                 /* bytes of the network's that it gives back */
    const struct protocol *protocol; /* whose shape errors have */
    const char *allow;   /* static: the methods of its path, where its own is none of them */
    uint64_t id, client; /* number of the request; who sent it: of its key, else of its address */
    double begun;        /* seconds of now_seconds() */
    atomic_bool gone;    /* the client has left: what is sent is dropped */
    atomic_bool full;    /* the client does not read: more than NET_BACKLOG bytes wait */
    /* Of the network thread alone. */
    void *request; /* struct evhttp_request, NULL once the answer is complete */
    bool streams, waits;
    bool refused; /* its headers are not plain, so its connection is closed behind the answer */
    double sent;  /* when the stream had its last bytes */
    struct exchange *next, **at;
};

/* Sends a whole answer.  `text` becomes the network's (mem_free), NULL: an empty one.  The exchange stays the
 * caller's. */
void exchange_answer(struct exchange *x, int status, const char *type, char *text, size_t n);
/* Sends a value as JSON and releases it. */
void exchange_json(struct exchange *x, int status, json_t *o);
/* Begins an answer in parts; then come exchange_send, once for each part, and exchange_finish.  `comments`: an idle
 * stream is kept alive by lines that begin with a colon, which its format takes as comments. */
void exchange_begin(struct exchange *x, const char *type, bool comments);
void exchange_send(struct exchange *x, const char *text, size_t n);
void exchange_finish(struct exchange *x);
static inline bool exchange_gone(const struct exchange *x)
{
    return atomic_load_explicit(&x->gone, memory_order_relaxed);
}
struct exchange *exchange_hold(struct exchange *x);
void exchange_release(struct exchange *x);
