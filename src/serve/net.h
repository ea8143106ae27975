/* net.h - the network thread: sockets, HTTP/1.1 by libevent, and the mailbox in which other threads put their answers. */
#pragma once
#include "serve/exchange.h"

#define NET_DRAIN_SECONDS 0.3 /* without a new request, before a server that closes takes no more */
enum {
    NET_BACKLOG = 256 << 10, /* bytes that may wait for a client; then its generation pauses */
    NET_HEADERS = 64 << 10,  /* bytes of the headers of a request */
    /* seconds without a byte of a stream, after which a comment is sent, because proxies close silent connections */
    NET_QUIET_SECONDS = 10,
    NET_STALL_SECONDS =
        60, /* seconds without progress, after which a client that sends or reads is disconnected */
    NET_MOST_EXCHANGES = 1024, /* at once */
    NET_BODIES =
        16 /* bodies of the largest size that the server holds at once; those of NET_HEADERS bytes do not count */
};

struct net_options {
    const char *host;
    uint16_t port; /* 0: any that is free */
    size_t max_body;
    const char *origins; /* see cors_allows */
    /* True: requests have API keys.  Then a client is a known key; without a known key it is an address, since anybody
     * can invent keys. */
    bool keys;
    /* True: requests for names that others could have made are refused; see cors_knows. */
    bool names;
    /* Is called by the network thread with the head of a request: its path, and the key that was sent or NULL.
     * False: the body may have at most NET_HEADERS bytes.  *p: the protocol in whose shape errors are written, or
     * NULL. */
    bool (*on_head)(void *ctx, const char *path, const char *key, const struct protocol **p);
    /* Is called by the network thread with a request whose body is complete.  Takes the reference, and must not
     * wait. */
    void (*on_request)(void *ctx, struct exchange *x);
    void *ctx;
};
/* Listens; returns ERR_IO with a sentence that names the address if that fails. */
int net_open(const struct net_options *o, struct net **out);
uint16_t net_port(const struct net *n);
/* Serves until net_stop, which any thread and a signal handler may call.  Requests that come later are refused.
 * Returns when every exchange has ended, at the latest `seconds` after net_stop. */
void net_run(struct net *n, double seconds);
void net_stop(struct net *n);
void net_close(struct net *n);
