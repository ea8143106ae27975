/* link.c - a socket that never blocks: each wait ends at the deadline, or soon after `stop` was set.  With TLS,
 * GnuTLS uses the same socket.  The certificate must be valid for the host, and must lead to a certificate that the
 * system trusts or the address names. */
#include "shared/link.h"
#include "base/built.h"
#include "base/descriptor.h"
#include "shared/lookup.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#ifdef KVIK_TLS
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#endif

#define SLICE 0.05 /* seconds between two looks at `stop` */

struct link {
    int fd;
    const atomic_bool *stop;
    const char *shown;
#ifdef KVIK_TLS
    gnutls_session_t tls;
    gnutls_certificate_credentials_t trust;
#endif
};

/* Waits until the socket is ready.  ERR_BUSY at the deadline. */
static int wait_for(const struct link *l, short events, double until)
{
    for (;;) {
        double left = until - now_seconds();
        if (left <= 0 || atomic_load(l->stop))
            return ERR(BUSY, "%s does not answer in time", l->shown);
        struct pollfd p = {.fd = l->fd, .events = events};
        int n = poll(&p, 1, 1 + (int)(1000 * MIN(left, SLICE)));
        if (n > 0) return 0;
        if (n < 0 && errno != EINTR) return ERR(IO, "%s: %s", l->shown, strerror(errno));
    }
}

/* --- Connecting. */

static int connect_to(struct link *l, int family, const struct sockaddr *to, socklen_t n,
                      double until)
{
    int one = 1, failed = 0;
    socklen_t size = sizeof failed;
    l->fd = fd_take(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (l->fd < 0) return ERR(IO, "%s: %s", l->shown, strerror(errno));
    if (family != AF_UNIX) (void)setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int e = connect(l->fd, to, n) == 0 ? 0 : errno;
    if (e == EINPROGRESS || e == EINTR) {
        TRY(wait_for(l, POLLOUT, until));
        e = getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 ? failed : errno;
    }
    return e ? ERR(IO, "%s: %s", l->shown, strerror(e)) : 0;
}

static int connect_local(struct link *l, const char *path, double until)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path)
        return ERR(ARG,
                   "%s: the path of a socket has %zu bytes, the limit is %zu; use a shorter path",
                   l->shown, strlen(path), sizeof to.sun_path - 1);
    memcpy(to.sun_path, path, strlen(path) + 1);
    return connect_to(l, AF_UNIX, (const struct sockaddr *)&to, sizeof to, until);
}

static int connect_host(struct link *l, const struct address *a, double until)
{
    struct addrinfo *list, *at;
    TRY(lookup(a->host, a->port, l->shown, l->stop, until, &list));
    int e = ERR_IO;
    uint32_t left = 0;
    for (at = list; at; at = at->ai_next)
        left++;
    for (at = list; at && e < 0; at = at->ai_next, left--) {
        /* an address that never answers must leave time for the next one */
        double now = now_seconds();
        if (l->fd >= 0) close(l->fd);
        l->fd = -1;
        e = connect_to(l, at->ai_family, at->ai_addr, at->ai_addrlen, now + (until - now) / left);
    }
    freeaddrinfo(list);
    return e;
}

/* --- TLS. */

#ifdef KVIK_TLS
bool link_has_tls(void)
{
    return true;
}

static int name(struct buf *b)
{
    return buf_printf(b, "GnuTLS %.20s", gnutls_check_version(NULL));
}
BUILT(gnutls, BUILT_LIBRARIES, name);

static int tls_failed(const struct link *l, int e)
{
    return ERR(IO, "%s: %s", l->shown, gnutls_strerror(e));
}

static int load_trust(struct link *l, const struct address *a)
{
    int e = gnutls_certificate_allocate_credentials(&l->trust);
    if (e < 0) return tls_failed(l, e);
    struct fd_low low;
    fd_low_take(&low); /* GnuTLS opens files here */
    e = a->ca ? gnutls_certificate_set_x509_trust_file(l->trust, a->ca, GNUTLS_X509_FMT_PEM)
              : gnutls_certificate_set_x509_system_trust(l->trust);
    if (e >= 0 && a->cert)
        e = gnutls_certificate_set_x509_key_file(l->trust, a->cert, a->key ? a->key : a->cert,
                                                 GNUTLS_X509_FMT_PEM);
    fd_low_drop(&low);
    if (e < 0) return tls_failed(l, e);
    return a->ca && !e ? ERR(ARG, "%s has no certificate", a->ca) : 0;
}

/* Says why a certificate was not accepted. */
static int not_verified(const struct link *l)
{
    gnutls_datum_t why = {0};
    unsigned status = gnutls_session_get_verify_cert_status(l->tls);
    if (!status || gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &why, 0))
        return ERR(ARG, "%s: the certificate is not valid for this host", l->shown);
    int e = ERR(ARG, "%s: %s", l->shown, (const char *)why.data);
    gnutls_free(why.data);
    return e;
}

static bool is_name(const char *host)
{
    return !strchr(host, ':') && strspn(host, "0123456789.") < strlen(host);
}

static int shake(struct link *l, const struct address *a, double until)
{
    TRY(load_trust(l, a));
    int e = gnutls_init(&l->tls, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
    if (e >= 0) e = gnutls_set_default_priority(l->tls);
    if (e >= 0) e = gnutls_credentials_set(l->tls, GNUTLS_CRD_CERTIFICATE, l->trust);
    if (e >= 0 && is_name(a->host))
        e = gnutls_server_name_set(l->tls, GNUTLS_NAME_DNS, a->host, strlen(a->host));
    if (e < 0) return tls_failed(l, e);
    gnutls_session_set_verify_cert(l->tls, a->host, 0);
    gnutls_transport_set_int(l->tls, l->fd);
    for (;;) {
        e = gnutls_handshake(l->tls);
        if (e == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR) return not_verified(l);
        if (e < 0 && gnutls_error_is_fatal(e)) return tls_failed(l, e);
        if (e >= 0) return 0;
        TRY(wait_for(l, gnutls_record_get_direction(l->tls) ? POLLOUT : POLLIN, until));
    }
}

static int64_t tls_move(struct link *l, void *in, const void *out, size_t n, double until)
{
    for (;;) {
        ssize_t got = in ? gnutls_record_recv(l->tls, in, n) : gnutls_record_send(l->tls, out, n);
        if (got > 0) return got;
        if (got == 0) return ERR(IO, "%s has closed the connection", l->shown);
        if (got != GNUTLS_E_AGAIN && got != GNUTLS_E_INTERRUPTED && gnutls_error_is_fatal((int)got))
            return tls_failed(l, (int)got);
        TRY(wait_for(l, gnutls_record_get_direction(l->tls) ? POLLOUT : POLLIN, until));
    }
}

static void tls_done(struct link *l)
{
    if (l->tls) gnutls_deinit(l->tls);
    if (l->trust) gnutls_certificate_free_credentials(l->trust);
}
#define HAS_TLS(l) ((l)->tls != NULL)
#else
#define HAS_TLS(l) false
bool link_has_tls(void)
{
    return false;
}

static int shake(struct link *l, const struct address *a, double until)
{
    (void)a, (void)until;
    return ERR(UNSUPPORTED, "%s: this build has no TLS: install libgnutls28-dev and build again",
               l->shown);
}

static int64_t tls_move(struct link *l, void *in, const void *out, size_t n, double until)
{
    (void)l, (void)in, (void)out, (void)n, (void)until;
    return ERR_UNSUPPORTED;
}

static void tls_done(struct link *l)
{
    (void)l;
}
#endif

/* --- The calls. */

static int64_t move(struct link *l, void *in, const void *out, size_t n, double until)
{
    if (HAS_TLS(l)) return tls_move(l, in, out, n, until);
    for (;;) {
        ssize_t got = in ? recv(l->fd, in, n, 0) : send(l->fd, out, n, MSG_NOSIGNAL);
        if (got > 0) return got;
        if (got == 0) return ERR(IO, "%s has closed the connection", l->shown);
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return ERR(IO, "%s: %s", l->shown, strerror(errno));
        TRY(wait_for(l, in ? POLLIN : POLLOUT, until));
    }
}

int link_open(const struct address *a, const atomic_bool *stop, double until, struct link **out)
{
    struct link *l = mem_alloc(sizeof *l);
    if (!l) return ERR_NOMEM;
    l->fd = -1;
    l->stop = stop;
    l->shown = a->shown;
    int e = a->path ? connect_local(l, a->path, until) : connect_host(l, a, until);
    if (e >= 0 && a->tls) e = shake(l, a, until);
    if (e < 0) {
        link_close(l);
        return e;
    }
    *out = l;
    return 0;
}

int link_send(struct link *l, const void *data, size_t n, double until)
{
    for (size_t at = 0; at < n;) {
        int64_t sent = move(l, NULL, (const char *)data + at, n - at, until);
        if (sent < 0) return (int)sent;
        at += (size_t)sent;
    }
    return 0;
}

int64_t link_receive(struct link *l, void *out, size_t n, double until)
{
    return move(l, out, NULL, n, until);
}

void link_close(struct link *l)
{
    if (!l) return;
    tls_done(l);
    if (l->fd >= 0) close(l->fd);
    mem_free(l);
}
