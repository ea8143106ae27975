/* lookup.h - finds the addresses of a host by its deadline. */
#pragma once
#include "base/base.h"

#include <netdb.h>
#include <stdatomic.h>

/* Looks up a host and a port for streams.  The caller frees *out with freeaddrinfo.  shown: the host's name in
 * errors.  ERR_BUSY: the deadline has passed, `stop` was set, or LOOKUPS lookups that were given up have not ended.
 * ERR_IO: there is no such host. */
int lookup(const char *host, const char *port, const char *shown, const atomic_bool *stop,
           double until, struct addrinfo **out);
