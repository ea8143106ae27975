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

/* A connection.  It lives as long as libevent's, which it is told of by the callback for its end. */
struct wire {
    struct net *net;
    struct bufferevent *b; /* counted */
    struct evhttp_connection *c;
    evutil_socket_t fd;
    /* Of those that are new, or whose page of libevent is replaced before it goes out. */
    struct wire *next;
    struct exchange *x; /* whose request came last, until its answer is complete; or NULL */
    bool ours;          /* what goes out is an answer of ours, from the request to its last byte */
    bool sending;       /* that answer is complete, and has not gone out */
    bool listed;        /* in the list of net.page */
    bool denied;        /* without a known key: its body is not stored */
    bool dropped;       /* its body is longer than it may be: it is not stored */
    bool heading;       /* the head of a request is awaited */
    bool chunked;       /* then its body comes in chunks */
    bool crowded;       /* there is no memory for its body now: it is not stored */
    bool crooked;       /* head or chunks could be read in two ways */
    size_t body;        /* bytes that are reserved for its body, until its exchange has them */
    double since;       /* when the head began, or has ended; 0: not yet */
    struct buf head;    /* as far as it has come */
    struct chunks chunks;
    const struct protocol *protocol; /* of its path, or NULL */
};

struct net {
    struct net_options o;
    struct event_base *base;
    struct evhttp *http;
    struct listeners at;
    struct event *wake, *tick, *drain, *meet, *mend;
    struct wire **wire; /* [n_wires], by descriptor; NULL: none */
    size_t n_wires;
    struct wire *met, *page; /* those of net.meet and net.mend */
    int bell;                /* eventfd: letters have come, or net_stop was called */
    atomic_bool stopping;
    double stop_at, grace; /* stop_at: 0 until it is asked to stop */
    double arrived;        /* when the newest connection or request came */
    struct exchange *open; /* those with a request */
    atomic_uint n_open;
    atomic_size_t bodies; /* bytes that are reserved */
    uint32_t sending;     /* answers that are complete and have not gone out */
    uint64_t ids;
    struct hash_key secret;
    char started[24]; /* Unix time */
    pthread_mutex_t lock;
    struct letter *first, **last; /* the mailbox */
};

/* Gives reserved bytes back. */
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
/* Returns the connection of a request, or NULL. */
struct wire *wire_of(const struct net *n, struct evhttp_connection *c);
/* Closes connections whose head, or whose body that is not stored, takes too long. */
void wires_check(struct net *n, double now);
/* Closes connections that wait for their next request, no byte of which is there: a proxy that keeps them then asks another
 * server. */
void wires_hang_up(struct net *n);
/* The answer of a request has gone out: waits for the head of the next one, some of which may be there. */
void wire_rest(struct wire *l);

/* --- net.c */
/* The client of an exchange has left. */
void exchange_lost(struct exchange *x);
