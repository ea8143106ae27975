/* listen.c - the addresses at which the server takes connections; see listen.h. */
#include "serve/listen.h"
#include "base/descriptor.h"

#include <errno.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* No connection could be taken.  Listening pauses until listeners_resume, because libevent would try again at once
 * and log each failure. */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
    (void)arg; /* libevent's own */
    evconnlistener_disable(l);
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &size);
    return ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                           : ((struct sockaddr_in *)&own)->sin_port);
}

/* alone: this is the only address.  Then an IPv6 address that means all addresses includes those of IPv4, if the
 * system does that.  Returns a socket. */
static int open_socket(const char *host, uint16_t number, bool alone)
{
    char port[8];
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *at;
    snprintf(port, sizeof port, "%u", number);
    int e = getaddrinfo(host, port, &want, &at);
    if (e) return ERR(IO, "the address %s is not known: %s", host, gai_strerror(e));
    int fd = fd_take(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), on = 1;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd >= 0 && at->ai_family == AF_INET6 && !alone)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, 128) < 0) {
        e = ERR(IO, "cannot listen at %s port %u: %s", host, number,
                errno == EADDRINUSE ? "another program uses this port; give another --port"
                                    : strerror(errno));
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(at);
    return e < 0 ? e : fd;
}

static int listen_at(struct listeners *l, struct evhttp *http, const char *host, bool alone)
{
    int fd = open_socket(host, l->port, alone);
    if (fd < 0) return fd;
    l->port = port_of(fd);
    struct evhttp_bound_socket *b = evhttp_accept_socket_with_handle(http, fd);
    if (!b) {
        close(fd);
        return ERR(NOMEM, "libevent cannot accept connections: memory is short");
    }
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(b), on_accept_error);
    l->bound[l->n++] = b;
    return 0;
}

int listeners_open(struct listeners *l, struct evhttp *http, const char *hosts, uint16_t port)
{
    bool alone = !strchr(hosts, ',');
    *l = (struct listeners){.port = port};
    while (*hosts) {
        size_t n = strcspn(hosts, ",");
        char *host = mem_strndup(hosts, n);
        if (l->n == LISTEN_MOST || !host) {
            mem_free(host);
            return ERR(LIMIT, "--host has more than %d addresses", LISTEN_MOST);
        }
        int e = n ? listen_at(l, http, host, alone) : 0;
        mem_free(host);
        TRY(e);
        hosts += n + (hosts[n] == ',');
    }
    return l->n ? 0 : ERR(ARG, "--host names no address");
}

void listeners_resume(const struct listeners *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        evconnlistener_enable(evhttp_bound_socket_get_listener(l->bound[i]));
}

void listeners_close(struct listeners *l, struct evhttp *http)
{
    while (l->n)
        evhttp_del_accept_socket(http, l->bound[--l->n]);
}
