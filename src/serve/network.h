/* network.h - what the files of the network thread share: its letters (mailbox.c), its connections (wire.c), and its loop,
 * requests and answers (net.c). */
#pragma once
#include "base/buf.h"
#include "base/hash.h"
#include "serve/chunks.h"
#include "serve/listen.h"
#include "serve/net.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <pthread.h>

enum letter_kind { LETTER_WHOLE, LETTER_BEGIN, LETTER_PART, LETTER_FINISH };
struct letter {
    struct letter *next;
    struct exchange *x; /* held */
    enum letter_kind kind;
    int status;
    bool comments;
    const char *type;
    char *text; /* owned */
    size_t n;
};

/* A connection.  It lives as long as libevent's connection, whose end a callback reports. */
struct wire {
    struct net *net;
    struct bufferevent *b; /* counted */
    struct evhttp_connection *c;
    evutil_socket_t fd;
    /* The next in the list net.met or net.page. */
    struct wire *next;
    /* The exchange of the newest request, until its answer is complete; or NULL. */
    struct exchange *x;
    /* an answer of the server goes out: true from the request to the last byte of the answer */
    bool ours;
    bool sending;    /* that answer is complete but has not gone out */
    bool listed;     /* in the list of net.page */
    bool denied;     /* the request has no known key, so its body is not stored */
    bool dropped;    /* the body is longer than allowed, so it is not stored */
    bool heading;    /* waits for the head of a request */
    bool chunked;    /* the body comes in chunks */
    bool crowded;    /* there is no memory for the body now, so it is not stored */
    bool crooked;    /* head or chunks could be read in two ways */
    size_t body;     /* bytes that are reserved for the body, until its exchange takes them */
    double since;    /* when the head began, or when it ended; 0: there is no head yet */
    struct buf head; /* the part of the head that has come */
    struct chunks chunks;
    const struct protocol *protocol; /* the protocol of the request's path, or NULL */
};

struct net {
    struct net_options o;
    struct event_base *base;
    struct evhttp *http;
    struct listeners at;
    struct event *wake, *tick, *drain, *meet, *mend;
    struct wire **wire; /* [n_wires], by descriptor; NULL: none */
    size_t n_wires;
    struct wire *met, *page; /* the lists of net.meet and net.mend */
    int bell;                /* eventfd: letters have come, or net_stop was called */
    atomic_bool stopping;
    double stop_at, grace; /* stop_at: 0 until somebody asks the loop to stop */
    double arrived;        /* when the newest connection or request came */
    struct exchange *open; /* exchanges that have a request */
    atomic_uint n_open;
    atomic_size_t bodies; /* bytes that are reserved for bodies */
    uint32_t sending;     /* answers that are complete and have not gone out */
    uint64_t ids;
    struct hash_key secret;
    char started[24]; /* Unix time */
    pthread_mutex_t lock;
    struct letter *first, **last; /* the mailbox */
};

/* Gives back bytes that were reserved for a body. */
static inline void bodies_give(struct net *n, size_t *bytes)
{
    atomic_fetch_sub(&n->bodies, *bytes);
    *bytes = 0;
}

/* --- mailbox.c */
/* Wakes the network thread. */
void mailbox_ring(struct net *n);
/* Takes all letters out of the mailbox, in order. */
struct letter *mailbox_take(struct net *n);
void letter_free(struct letter *l);

/* --- wire.c */
/* Makes the events that connections need. */
int wires_open(struct net *n);
void wires_close(struct net *n);
/* Makes the bufferevent of a connection that was accepted; the callback of evhttp_set_bevcb. */
struct bufferevent *wire_accept(struct event_base *base, void *net);
/* Returns the connection that a request came by, or NULL. */
struct wire *wire_of(const struct net *n, struct evhttp_connection *c);
/* Closes connections that take too long to send a head, or a body that is not stored. */
void wires_check(struct net *n, double now);
/* Closes connections that wait for their next request and have sent no byte of it.  A proxy that keeps such
 * connections then asks another server. */
void wires_hang_up(struct net *n);
/* Makes a connection wait for the head of its next request, because the last answer has gone out.  Parts of that
 * head may be there. */
void wire_rest(struct wire *l);

/* --- net.c */
/* Ends an exchange whose client has left. */
void exchange_lost(struct exchange *x);
