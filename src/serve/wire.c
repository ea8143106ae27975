/* wire.c - connections, below what evhttp shows of them; see network.h.
 *
 * evhttp calls back when a body is complete.  A client without a known key must not make the server store a body.  So the bytes of a connection
 * are looked at before evhttp takes them: when the head of a request is complete, the limit of its body is set.  libevent itself refuses a longer
 * body.  Before that, libevent takes and drops the body, because a client reads no answer before it has sent its request.
 *
 * libevent answers a request that it refuses with a page of HTML.  The page stays in the buffer of the connection until the loop waits for sockets
 * again; until then it is replaced by an error in the shape of the protocol. */
#include "serve/head.h"
#include "serve/keys.h"
#include "serve/network.h"
#include "serve/route.h"

#include <stdlib.h>
#include <string.h>

struct wire *wire_of(const struct net *n, struct evhttp_connection *c)
{
    evutil_socket_t fd = bufferevent_getfd(evhttp_connection_get_bufferevent(c));
    return fd >= 0 && (size_t)fd < n->n_wires ? n->wire[fd] : NULL;
}

static void wire_free(struct wire *l)
{
    for (struct wire **at = &l->net->page; l->listed && *at; at = &(*at)->next)
        if (*at == l) {
            *at = l->next;
            break;
        }
    bodies_give(l->net, &l->body);
    bufferevent_decref(l->b);
    buf_done(&l->head);
    mem_free(l);
}

/* Ends the exchange of a connection that was closed, and forgets the connection. */
static void on_close(struct evhttp_connection *c, void *arg)
{
    struct wire *l = arg;
    (void)c;
    if (l->x) exchange_lost(l->x);
    l->net->sending -= l->sending;
    l->net->wire[l->fd] = NULL;
    wire_free(l);
}

/* --- What comes in. */

/* Reserves memory for a body, or marks the connection as crowded. */
static void reserve(struct wire *l, size_t bytes)
{
    struct net *n = l->net;
    uint64_t all = (uint64_t)n->o.max_body * NET_BODIES;
    l->crowded = atomic_load(&n->bodies) + bytes > all; /* only this thread adds to the sum */
    if (l->crowded) return;
    atomic_fetch_add(&n->bodies, bytes);
    l->body = bytes;
}

/* Decides how long a body may be, from the head before it. */
static void admit(struct wire *l)
{
    const struct net_options *o = &l->net->o;
    struct head h;
    l->crooked = !head_plain(l->head.data, l->head.len);
    head_read(l->head.data, l->head.len, &h);
    l->denied = !o->on_head(o->ctx, h.path, keys_sent(h.authorization, h.key), &l->protocol);
    l->chunked = h.coding && !strcasecmp(h.coding, "chunked");
    uint64_t length = h.length ? strtoull(h.length, NULL, 10) : l->chunked ? o->max_body : 0;
    if (!l->denied && length > NET_HEADERS && length <= o->max_body) reserve(l, (size_t)length);
    size_t most = l->denied || l->crowded ? MIN(NET_HEADERS, o->max_body) : o->max_body;
    evhttp_connection_set_max_body_size(l->c, (ev_ssize_t)most);
    l->dropped = h.length && length > most;
    l->heading = false;
    l->since = now_seconds();
    buf_done(&l->head);
}

/* Takes bytes into the head, and returns how many belong to it.  A head that is too long is not waited for, since
 * libevent refuses it.  Neither is a head for which memory is short; its body then has the limit of a request
 * without a key. */
static size_t take_head(struct wire *l, const char *bytes, size_t n)
{
    size_t had = l->head.len;
    if (!had) l->since = now_seconds();
    if (buf_append(&l->head, bytes, MIN(n, NET_HEADERS - MIN(had, NET_HEADERS))) < 0 ||
        l->head.len == had) {
        l->heading = false;
        return n;
    }
    size_t len = head_length(l->head.data, l->head.len, had);
    if (!len) return n;
    l->head.len = len;
    admit(l);
    return len - had;
}

/* Looks at the last n bytes that have come. */
static void look_at_bytes(struct wire *l, struct evbuffer *in, size_t n)
{
    char bytes[4096];
    struct evbuffer_ptr at;
    evbuffer_ptr_set(in, &at, evbuffer_get_length(in) - n, EVBUFFER_PTR_SET);
    while (n && (l->heading || l->chunked)) {
        size_t some = MIN(n, sizeof bytes), used = 0;
        if (evbuffer_copyout_from(in, &at, bytes, some) != (ev_ssize_t)some) return;
        if (l->heading) used = take_head(l, bytes, some);
        if (l->chunked) chunks_read(&l->chunks, bytes + used, some - used);
        n -= some;
        if (n) evbuffer_ptr_set(in, &at, some, EVBUFFER_PTR_ADD);
    }
    l->crooked |= l->chunks.state == CHUNKS_BAD;
}

static void on_input(struct evbuffer *in, const struct evbuffer_cb_info *info, void *arg)
{
    look_at_bytes(arg, in, MIN(info->n_added, evbuffer_get_length(in)));
}

void wire_rest(struct wire *l)
{
    struct evbuffer *in = bufferevent_get_input(l->b);
    buf_init(&l->head, NET_HEADERS + 1);
    l->heading = true;
    l->ours = l->denied = l->dropped = l->chunked = l->crooked = l->crowded = false;
    bodies_give(l->net, &l->body);
    l->chunks = (struct chunks){0};
    l->since = 0;
    l->protocol = NULL;
    evhttp_connection_set_max_body_size(l->c, NET_HEADERS);
    look_at_bytes(l, in, evbuffer_get_length(in));
}

void wires_check(struct net *n, double now)
{
    for (size_t i = 0; i < n->n_wires; i++) {
        struct wire *l = n->wire[i];
        if (!l || l->ours || l->since == 0 || now - l->since < NET_STALL_SECONDS) continue;
        if (l->heading || l->denied || l->dropped || l->crowded) evhttp_connection_free(l->c);
    }
}

void wires_hang_up(struct net *n)
{
    for (size_t i = 0; i < n->n_wires; i++)
        if (n->wire[i] && !n->wire[i]->ours && n->wire[i]->since == 0)
            evhttp_connection_free(n->wire[i]->c);
}

/* --- What libevent itself sends. */

static const char *sentence_of(int status)
{
    switch (status) {
    case 401:
        return "an API key is needed, and one that is known: Authorization: Bearer KEY";
    case 413:
        return "the body of the request is larger than the server accepts";
    case 417:
        return "header Expect: only 100-continue is supported";
    case 501:
        return "the method of the request is not known";
    case 503:
        return "the server has no memory for the request; try again later";
    default:
        return "this is no request of HTTP, its headers are too long, or its chunks are not plain";
    }
}

/* Writes an error of the server, with a status of at least 400; NULL if memory is short. */
static char *write_error(const struct wire *l, int status)
{
    char *text = NULL;
    json_t *o = route_error(l->protocol, status, sentence_of(status));
    struct buf b;
    buf_init(&b, SIZE_MAX);
    int e = o ? json_text(o, &text) : ERR_NOMEM;
    if (e >= 0)
        e = buf_printf(&b,
                       "HTTP/1.1 %d %s\r\nContent-Type: application/json; charset=utf-8\r\n"
                       "Content-Length: %zu\r\nConnection: close\r\nCache-Control: no-store\r\n"
                       "X-Content-Type-Options: nosniff\r\n%s\r\n%s",
                       status, status == 401 ? "Unauthorized" : "Refused", strlen(text),
                       status == 401 ? "WWW-Authenticate: Bearer\r\n" : "", text);
    mem_free(text);
    json_decref(o);
    char *all = e >= 0 ? buf_take(&b) : NULL;
    buf_done(&b);
    return all;
}

/* Replaces a page of libevent.  A bufferevent freezes its output, so nobody else changes that buffer. */
static void mend(const struct wire *l)
{
    struct evbuffer *out = bufferevent_get_output(l->b);
    char first[16] = "", *text = NULL;
    evbuffer_unfreeze(out, 1);
    evbuffer_copyout(out, first, sizeof first - 1);
    int status = !strncmp(first, "HTTP/1.", 7) ? (int)strtol(first + 9, NULL, 10) : 0;
    if (status == 413 && l->denied) status = 401;
    if (status == 413 && l->crowded) status = 503;
    if (l->crooked)
        status = MIN(status, 400); /* libevent says "too large" of chunks that it cannot read */
    if (status >= 400) text = write_error(l, status); /* the text "100 Continue" is not replaced */
    if (text) {
        evbuffer_drain(out, evbuffer_get_length(out));
        evbuffer_add(out, text, strlen(text));
    }
    evbuffer_freeze(out, 1);
    mem_free(text);
}

static void on_mend(evutil_socket_t fd, short what, void *arg)
{
    struct net *n = arg;
    (void)fd, (void)what;
    for (struct wire *l; (l = n->page);) {
        n->page = l->next;
        mend(l);
        l->listed = false; /* the bytes that mend adds must not list the connection again */
    }
}

static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *arg)
{
    struct wire *l = arg;
    struct net *n = l->net;
    (void)out;
    if (l->ours || l->listed || !info->n_added) return;
    l->listed = true;
    l->next = n->page;
    n->page = l;
    event_active(n->mend, EV_TIMEOUT, 1);
}

/* --- Accepting. */

struct bufferevent *wire_accept(struct event_base *base, void *net)
{
    struct net *n = net;
    struct wire *l = mem_alloc(sizeof *l);
    struct bufferevent *b = l ? bufferevent_socket_new(base, -1, 0) : NULL;
    n->arrived = now_seconds();
    if (!b) { /* libevent makes a bufferevent; its requests are refused, since they have no wire */
        mem_free(l);
        return NULL;
    }
    bufferevent_incref(b);
    *l = (struct wire){.net = n, .b = b, .next = n->met};
    n->met = l;
    event_active(n->meet, EV_TIMEOUT, 1);
    return b;
}

/* Makes room for a descriptor in the table of connections. */
static bool make_room(struct net *n, size_t fd)
{
    if (fd < n->n_wires) return true;
    size_t more = MAX(fd + 1, 2 * n->n_wires);
    struct wire **all = mem_grow(n->wire, more, sizeof *all);
    if (!all) return false;
    memset(all + n->n_wires, 0, (more - n->n_wires) * sizeof *all);
    n->wire = all;
    n->n_wires = more;
    return true;
}

/* Notes a new connection, for which libevent has made its own by now.  No bytes have come from it yet. */
static void meet(struct wire *l)
{
    void *c = NULL;
    bufferevent_getcb(l->b, NULL, NULL, NULL, &c);
    l->fd = bufferevent_getfd(l->b);
    if (!c || l->fd < 0) { /* memory was short for libevent's connection */
        wire_free(l);
        return;
    }
    l->c = c;
    if (!make_room(l->net, (size_t)l->fd) ||
        !evbuffer_add_cb(bufferevent_get_input(l->b), on_input, l) ||
        !evbuffer_add_cb(bufferevent_get_output(l->b), on_output, l)) {
        evhttp_connection_free(l->c);
        wire_free(l);
        return;
    }
    l->net->wire[l->fd] = l;
    evhttp_connection_set_closecb(l->c, on_close, l);
    wire_rest(l);
}

static void on_meet(evutil_socket_t fd, short what, void *arg)
{
    struct net *n = arg;
    (void)fd, (void)what;
    for (struct wire *l; (l = n->met);) {
        n->met = l->next;
        meet(l);
    }
}

int wires_open(struct net *n)
{
    n->meet = event_new(n->base, -1, 0, on_meet, n);
    n->mend = event_new(n->base, -1, 0, on_mend, n);
    return n->meet && n->mend ? 0 : ERR(NOMEM, "the server cannot start: memory is short");
}

void wires_close(struct net *n)
{
    for (struct wire *l; (l = n->met);) {
        n->met = l->next;
        wire_free(l);
    }
    if (n->meet) event_free(n->meet);
    if (n->mend) event_free(n->mend);
    mem_free(n->wire);
}
