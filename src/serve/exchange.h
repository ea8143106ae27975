/* exchange.h - one HTTP request and its answer, as every thread of the server sees it.
 *
 * The network thread owns sockets, and only that thread calls libevent.  What another thread sends is a letter in the mailbox of the
 * network thread, so sending never waits for a client.
 *
 * An exchange counts its holders.  The network holds it until the answer is complete or the client has left.  The thread that answers
 * holds it until that thread calls exchange_release. */
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
    /* Bytes of net.bodies that the exchange gives back at its end. */
    size_t reserved;
    const struct protocol *protocol; /* the protocol in whose shape errors are written */
    /* Static: the methods of the path if the request's method is not among them. */
    const char *allow;
    /* Number of the request; number of its client (its key, else its address), never 0. */
    uint64_t id, client;
    double begun;     /* seconds of now_seconds() */
    atomic_bool gone; /* the client has left, so what is sent is dropped */
    atomic_bool full; /* the client does not read: more than NET_BACKLOG bytes wait */
    /* Of the network thread alone. */
    void *request; /* struct evhttp_request, NULL once the answer is complete */
    bool streams, waits;
    /* The headers could be read in two ways, so the connection closes after the answer. */
    bool refused;
    double sent; /* when bytes of the stream were last sent */
    struct exchange *next, **at;
};

/* Sends a whole answer.  `text` (mem_alloc) now belongs to the network; NULL: an empty answer.  The exchange remains
 * the caller's. */
void exchange_answer(struct exchange *x, int status, const char *type, char *text, size_t n);
/* Sends a value as JSON and releases it. */
void exchange_json(struct exchange *x, int status, json_t *o);
/* Begins an answer in parts.  Then call exchange_send for each part, and exchange_finish.  comments: the format
 * takes lines that begin with a colon as comments, so such lines can keep an idle stream alive. */
void exchange_begin(struct exchange *x, const char *type, bool comments);
void exchange_send(struct exchange *x, const char *text, size_t n);
void exchange_finish(struct exchange *x);
static inline bool exchange_gone(const struct exchange *x)
{
    return atomic_load_explicit(&x->gone, memory_order_relaxed);
}
struct exchange *exchange_hold(struct exchange *x);
void exchange_release(struct exchange *x);
