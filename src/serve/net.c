/* net.c - the network thread: its loop, requests and answers; see net.h.  mailbox.c has letters, and wire.c connections.
 *
 * The connection of a request goes on reading while the request is computed, because only a read shows that the client has left.  Bytes
 * that the client sends meanwhile (a pipelined request) wait: at most NET_HEADERS of them are taken from the socket. */
#include "base/built.h"
#include "base/descriptor.h"
#include "serve/cors.h"
#include "serve/framing.h"
#include "serve/keys.h"
#include "serve/network.h"
#include "serve/route.h"

#include <errno.h>
#include <event2/keyvalq_struct.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* --- Sockets. */

static void exchange_open(struct net *n, struct exchange *x)
{
    x->next = n->open;
    x->at = &n->open;
    if (x->next) x->next->at = &x->next;
    n->open = x;
    atomic_fetch_add(&n->n_open, 1);
}

static void unwait(struct exchange *x)
{
    if (!x->waits) return;
    x->waits = false;
    atomic_store(&x->full, false);
    exchange_release(x);
}

/* Takes the request from its exchange, and makes the connection forget it.  The answer that is sent next frees the
 * request, also if the connection is closed. */
static struct evhttp_request *request_take(struct exchange *x)
{
    struct evhttp_request *r = x->request;
    struct evhttp_connection *c = r ? evhttp_request_get_connection(r) : NULL;
    struct wire *l = c ? wire_of(x->net, c) : NULL;
    x->request = NULL;
    if (l) l->x = NULL;
    return r;
}

/* Ends the network's part of an exchange: the answer is complete, or nobody will read it. */
static void exchange_shut(struct exchange *x)
{
    if (!x->at) return;
    struct net *n = x->net;
    unwait(x);
    *x->at = x->next;
    if (x->next) x->next->at = x->at;
    x->at = NULL;
    atomic_store(&x->gone, true);
    atomic_fetch_sub(&n->n_open, 1);
    exchange_release(x);
}

void exchange_lost(struct exchange *x)
{
    atomic_store(&x->gone, true); /* its letters free the request */
    unwait(x);
}

static void set_timeouts(struct evhttp_connection *c, bool computing)
{
    const struct timeval stall = {.tv_sec = NET_STALL_SECONDS};
    struct bufferevent *b = evhttp_connection_get_bufferevent(c);
    bufferevent_set_timeouts(b, computing ? NULL : &stall, &stall);
    bufferevent_setwatermark(b, EV_READ, 0, computing ? NET_HEADERS : 0);
    if (!computing) {
        /* libevent enables reading again after it has looked at new bytes; in the other order it would end the
         * process. */
        bufferevent_disable(b, EV_READ);
        return;
    }
    bufferevent_data_cb write;
    bufferevent_event_cb event;
    void *arg;
    bufferevent_getcb(b, NULL, &write, &event, &arg);
    /* libevent's own reader must get no bytes before the answer is sent; it would end the process. */
    bufferevent_setcb(b, NULL, write, event, arg);
    bufferevent_enable(b, EV_READ);
}

/* Takes the request of an exchange whose answer is complete.  The answer counts as sending until its last byte has
 * gone out. */
static struct evhttp_request *request_last(struct exchange *x)
{
    struct evhttp_request *r = request_take(x);
    struct evhttp_connection *c = evhttp_request_get_connection(r);
    if (!c) return r;
    x->net->sending++;
    wire_of(x->net, c)->sending = true;
    return r;
}

/* Called when the last byte of an answer has gone out: the connection now waits for its next request. */
static void on_complete(struct evhttp_request *r, void *arg)
{
    struct net *n = arg;
    struct evhttp_connection *c = evhttp_request_get_connection(r);
    if (!c) return;
    n->sending--;
    wire_of(n, c)->sending = false;
    set_timeouts(c, false);
    wire_rest(wire_of(n, c));
}

static void header(struct evhttp_request *r, const char *name, const char *value)
{
    evhttp_add_header(evhttp_request_get_output_headers(r), name, value);
}

static void common_headers(const struct exchange *x, struct evhttp_request *r, const char *type)
{
    const struct net *n = x->net;
    if (type) header(r, "Content-Type", type);
    header(r, "Cache-Control", "no-store");
    header(r, "X-Content-Type-Options", "nosniff");
    header(
        r, "Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
    header(r, "Process-Start-Time-Unix", n->started);
    if (atomic_load(&n->stopping)) header(r, "Connection", "close");
    if (!x->origin || !cors_allows(n->o.origins, x->origin)) return;
    header(r, "Access-Control-Allow-Origin", x->origin);
    header(r, "Access-Control-Allow-Credentials", "true");
    header(r, "Vary", "Origin");
    if (x->method != EXCHANGE_ASK) return;
    header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    header(r, "Access-Control-Allow-Headers", "*");
}

static void on_drained(struct evhttp_connection *c, void *arg)
{
    (void)c;
    unwait(arg);
}

static void send_part(struct exchange *x, const char *text, size_t n)
{
    struct evhttp_request *r = x->request;
    struct evhttp_connection *c = evhttp_request_get_connection(r);
    struct evbuffer *part;
    if (!c || exchange_gone(x)) return;
    part = evbuffer_new();
    if (!part || evbuffer_add(part, text, n) < 0) { /* a text with a hole would look whole */
        atomic_store(&x->gone, true);
        if (part) evbuffer_free(part);
        return;
    }
    struct evbuffer *out = bufferevent_get_output(evhttp_connection_get_bufferevent(c));
    if (!x->waits && evbuffer_get_length(out) + n > NET_BACKLOG) {
        atomic_store(&x->full, true);
        x->waits = true;
        evhttp_send_reply_chunk_with_cb(r, part, on_drained, exchange_hold(x));
    } else if (!x->waits)
        evhttp_send_reply_chunk(r, part);
    else /* the callback of the earlier part stays the one that libevent calls */
        evhttp_send_reply_chunk_with_cb(r, part, on_drained, x);
    evbuffer_free(part);
    x->sent = now_seconds();
}

static void send_whole(struct exchange *x, const struct letter *l)
{
    struct evhttp_request *r = request_last(x);
    struct evbuffer *body = evbuffer_new();
    common_headers(x, r, l->type);
    bool head = evhttp_request_get_command(r) == EVHTTP_REQ_HEAD;
    if (head) { /* libevent would send a body in answer to HEAD */
        char length[24];
        snprintf(length, sizeof length, "%zu", l->n);
        header(r, "Content-Length", length);
    } else if (body && l->n)
        evbuffer_add(body, l->text, l->n);
    if (x->refused) header(r, "Connection", "close");
    if (l->status == 401) header(r, "WWW-Authenticate", "Bearer");
    if (l->status == 405 && x->allow) header(r, "Allow", x->allow);
    if (l->status == 503) header(r, "Retry-After", "5");
    evhttp_send_reply(r, l->status, NULL, body);
    if (body) evbuffer_free(body);
}

/* Closes the connection of an exchange that lost a part of its answer for lack of memory.  False: the exchange lost
 * none. */
static bool abandon(struct exchange *x)
{
    struct evhttp_connection *c = evhttp_request_get_connection(x->request);
    if (!c || !exchange_gone(x)) return false;
    request_take(x);
    evhttp_connection_free(c); /* frees the request, too */
    exchange_shut(x);
    return true;
}

static void deliver(struct letter *l)
{
    struct exchange *x = l->x;
    if (!x->request || abandon(x)) return;
    switch (l->kind) {
    case LETTER_WHOLE:
        send_whole(x, l);
        exchange_shut(x);
        break;
    case LETTER_BEGIN:
        common_headers(x, x->request, l->type);
        header(x->request, "X-Accel-Buffering", "no");
        evhttp_send_reply_start(x->request, 200, NULL);
        x->streams = l->comments;
        x->sent = now_seconds();
        break;
    case LETTER_PART:
        send_part(x, l->text, l->n);
        break;
    case LETTER_FINISH:
        evhttp_send_reply_end(request_last(x));
        exchange_shut(x);
        break;
    }
}

/* Ends the loop if that was asked for.  Requests that clients sent before are in sockets, or in the system's queue
 * of connections.  So accepting goes on until nothing has come for NET_DRAIN_SECONDS; requests that come now are
 * refused. */
static void maybe_stop(struct net *n)
{
    double now = now_seconds();
    if (!atomic_load(&n->stopping)) return;
    if (n->stop_at == 0) {
        n->stop_at = now + n->grace;
        n->arrived = now;
        event_add(n->drain, &(struct timeval){.tv_usec = 50000});
    }
    bool drained = now - n->arrived > NET_DRAIN_SECONDS;
    if (n->at.n && (drained || now > n->stop_at)) {
        listeners_close(&n->at, n->http);
        wires_hang_up(n);
    }
    bool idle = !n->at.n && !atomic_load(&n->n_open) && !n->sending;
    if (idle || now > n->stop_at) event_base_loopexit(n->base, NULL);
}

static void on_drain(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    maybe_stop(arg);
}

static void on_bell(evutil_socket_t fd, short what, void *arg)
{
    struct net *n = arg;
    uint64_t count;
    (void)what;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
    for (struct letter *l = mailbox_take(n), *next; l; l = next) {
        next = l->next;
        deliver(l);
        letter_free(l);
    }
    maybe_stop(n);
}

/* Keeps streams alive while they wait for their first token. */
static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct net *n = arg;
    double now = now_seconds();
    (void)fd, (void)what;
    for (struct exchange *x = n->open, *next; x; x = next) {
        next = x->next;
        if (abandon(x)) continue;
        if (x->streams && !x->waits && now - x->sent > NET_QUIET_SECONDS)
            send_part(x, ": still computing\n\n", strlen(": still computing\n\n"));
    }
    /* Tries again where accepting had failed; elsewhere this changes nothing. */
    listeners_resume(&n->at);
    wires_check(n, now);
    maybe_stop(n);
}

/* --- Requests. */

static char *sent_key(const struct evkeyvalq *headers)
{
    const char *key = keys_sent(evhttp_find_header(headers, "Authorization"),
                                evhttp_find_header(headers, "x-api-key"));
    return key ? mem_strdup(key) : NULL;
}

static enum exchange_method method_of(const struct evhttp_request *r)
{
    switch (evhttp_request_get_command(r)) {
    case EVHTTP_REQ_GET:
    case EVHTTP_REQ_HEAD:
        return EXCHANGE_GET;
    case EVHTTP_REQ_POST:
        return EXCHANGE_POST;
    case EVHTTP_REQ_OPTIONS:
        return EXCHANGE_ASK;
    default:
        return EXCHANGE_OTHER;
    }
}

/* True if libevent reads no body of such a request, so that it would take a body for the next request. */
static bool is_bodiless(const struct evhttp_request *r)
{
    enum evhttp_cmd_type command = evhttp_request_get_command(r);
    return !(command & (EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                        EVHTTP_REQ_OPTIONS | EVHTTP_REQ_CONNECT | EVHTTP_REQ_PATCH));
}

/* Numbers the client of a request: one number for each known key, or without a known key for each address. */
static uint64_t client_of(const struct exchange *x, const struct wire *l)
{
    char *address = NULL;
    ev_uint16_t port = 0;
    bool known = x->net->o.keys && x->key && !l->denied;
    if (!known) evhttp_connection_get_peer(l->c, &address, &port);
    const char *who = known ? x->key : address ? address : "";
    return hash_text(&x->net->secret, who, strlen(who));
}

static int fill(struct exchange *x, struct evhttp_request *r, const struct wire *l)
{
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(r);
    const char *path = evhttp_uri_get_path(uri), *query = evhttp_uri_get_query(uri);
    struct evbuffer *in = evhttp_request_get_input_buffer(r);
    x->method = method_of(r);
    x->n_body = evbuffer_get_length(in);
    x->path = mem_strdup(path && *path ? path : "/");
    x->query = query ? mem_strdup(query) : NULL;
    const char *origin = evhttp_find_header(evhttp_request_get_input_headers(r), "Origin");
    const char *type = evhttp_find_header(evhttp_request_get_input_headers(r), "Content-Type");
    if (type && !(x->type = mem_strdup(type))) return ERR_NOMEM;
    x->origin = origin ? mem_strdup(origin) : NULL;
    if (origin && !x->origin) return ERR_NOMEM;
    x->key = sent_key(evhttp_request_get_input_headers(r));
    x->client = client_of(x, l);
    x->body = mem_alloc(x->n_body + 1);
    if (!x->path || !x->body) return ERR_NOMEM;
    evbuffer_remove(in, x->body, x->n_body);
    return 0;
}

/* True if a client has more requests than are left for others.  So there is always room for a new client. */
static bool has_too_many(const struct net *n, uint64_t client)
{
    uint32_t own = 0;
    for (const struct exchange *x = n->open; x; x = x->next)
        own += x->client == client;
    uint32_t open = atomic_load(&n->n_open);
    return own > NET_MOST_EXCHANGES - MIN(open, NET_MOST_EXCHANGES);
}

/* True if the request names this machine by a name that a page may have made. */
static bool is_foreign(const struct net *n, const struct evhttp_request *r)
{
    const char *host = evhttp_find_header(
        evhttp_request_get_input_headers((struct evhttp_request *)(uintptr_t)r), "Host");
    return n->o.names && host && !cors_knows(n->o.origins, host);
}

/* Gives the memory that was reserved for a body to the exchange, as much as the body needs.  The length of a body in
 * chunks was not known before. */
static void take_reserved(struct exchange *x, struct wire *l)
{
    x->reserved = x->n_body > NET_HEADERS ? MIN(x->n_body, l->body) : 0;
    l->body -= x->reserved;
    bodies_give(x->net, &l->body);
}

static void on_http(struct evhttp_request *r, void *arg)
{
    struct net *n = arg;
    struct wire *l = wire_of(n, evhttp_request_get_connection(r));
    struct exchange *x = l ? mem_alloc(sizeof *x) : NULL;
    n->arrived = now_seconds();
    if (!x) {
        evhttp_send_error(r, 503, NULL);
        return;
    }
    atomic_init(&x->refs, 1);
    x->net = n;
    x->id = ++n->ids;
    x->request = r;
    x->begun = n->arrived;
    l->x = x;
    l->ours = true;
    bool ready = fill(x, r, l) == 0;
    take_reserved(x, l);
    exchange_open(n, x);
    evhttp_request_set_on_complete_cb(r, on_complete, n);
    set_timeouts(evhttp_request_get_connection(r), true);
    exchange_hold(x);
    const char *fault =
        l->crooked
            ? "headers and chunks have lines that end with CR and LF, and no NUL; the size of a chunk is a number alone"
            : framing_fault(evhttp_request_get_input_headers(r), is_bodiless(r));
    x->refused = fault != NULL;
    if (fault)
        route_refuse(x, 400, fault);
    else if (atomic_load(&n->stopping))
        route_refuse(x, 503, "the server is closing");
    else if (!ready || atomic_load(&n->n_open) > NET_MOST_EXCHANGES)
        route_refuse(x, 503, "the server has as many requests as it can hold; try again later");
    else if (has_too_many(n, x->client))
        route_refuse(
            x, 503,
            "this client has half of the requests that the server can hold; try again later");
    else if (is_foreign(n, r))
        route_refuse(
            x, 403,
            "the server is for this machine alone, and the header Host has another's name; "
            "--cors-origins http://NAME allows it");
    else if (x->method == EXCHANGE_ASK) {
        exchange_answer(x, 200, NULL, NULL, 0);
        exchange_release(x);
    } else if (x->origin && !cors_allows(n->o.origins, x->origin))
        route_refuse(x, 403,
                     "pages of this origin may not use the server; --cors-origins allows them");
    else
        n->o.on_request(n->o.ctx, x);
}

/* --- Opening and closing. */

static int prepare(struct net *n)
{
    struct fd_low low;
    fd_low_take(&low);
    n->base = event_base_new();
    n->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fd_low_drop(&low);
    n->http = n->base ? evhttp_new(n->base) : NULL;
    n->wake = n->base ? event_new(n->base, n->bell, EV_READ | EV_PERSIST, on_bell, n) : NULL;
    n->tick = n->base ? event_new(n->base, -1, EV_PERSIST, on_tick, n) : NULL;
    n->drain = n->base ? event_new(n->base, -1, EV_PERSIST, on_drain, n) : NULL;
    if (n->bell < 0 || !n->http || !n->wake || !n->tick || !n->drain)
        return ERR(NOMEM, "the server cannot start: libevent or an eventfd is not to be had");
    TRY(wires_open(n));
    evhttp_set_timeout(n->http, NET_STALL_SECONDS);
    evhttp_set_max_headers_size(n->http, NET_HEADERS);
    evhttp_set_flags(n->http, EVHTTP_SERVER_LINGERING_CLOSE);
    evhttp_set_allowed_methods(n->http, UINT16_MAX); /* the table of routes decides */
    evhttp_set_gencb(n->http, on_http, n);
    evhttp_set_bevcb(n->http, wire_accept, n);
    event_add(n->wake, NULL);
    event_add(n->tick, &(struct timeval){.tv_sec = 1});
    return listeners_open(&n->at, n->http, n->o.host, n->o.port);
}

int net_open(const struct net_options *o, struct net **out)
{
    struct net *n = mem_alloc(sizeof *n);
    if (!n) return ERR_NOMEM;
    n->o = *o;
    n->bell = -1;
    n->last = &n->first;
    n->secret = hash_key_new();
    snprintf(n->started, sizeof n->started, "%lld", (long long)time(NULL));
    pthread_mutex_init(&n->lock, NULL);
    int e = prepare(n);
    if (e < 0) {
        net_close(n);
        return e;
    }
    *out = n;
    return 0;
}

uint16_t net_port(const struct net *n)
{
    return n->at.port;
}

void net_run(struct net *n, double seconds)
{
    n->grace = seconds;
    event_base_dispatch(n->base);
}

void net_stop(struct net *n)
{
    atomic_store(&n->stopping, true);
    mailbox_ring(n);
}

void net_close(struct net *n)
{
    if (!n) return;
    while (n->open) {
        struct evhttp_request *r = request_take(n->open);
        if (r && !evhttp_request_get_connection(r)) evhttp_request_free(r);
        exchange_shut(n->open);
    }
    for (struct letter *l = n->first, *next; l; l = next) {
        next = l->next;
        letter_free(l);
    }
    if (n->wake) event_free(n->wake);
    if (n->tick) event_free(n->tick);
    if (n->drain) event_free(n->drain);
    if (n->http) evhttp_free(n->http);
    wires_close(n);
    if (n->base) event_base_free(n->base);
    if (n->bell >= 0) close(n->bell);
    pthread_mutex_destroy(&n->lock);
    mem_free(n);
}

static int name(struct buf *b)
{
    return buf_printf(b, "libevent %.*s", (int)strcspn(event_get_version(), "-"),
                      event_get_version());
}
BUILT(event, BUILT_LIBRARIES, name);
