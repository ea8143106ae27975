/* link.h - a connection to a store, with deadlines: a socket, with or without TLS. */
#pragma once
#include "shared/keeper.h"

struct link;
/* Connects, and shakes hands where the address says TLS. */
int link_open(const struct address *a, const atomic_bool *stop, double until, struct link **out);
/* Sends all of n bytes. */
int link_send(struct link *l, const void *data, size_t n, double until);
/* Receives between 1 and n bytes.  Returns how many. */
int64_t link_receive(struct link *l, void *out, size_t n, double until);
void link_close(struct link *l);
/* True if this build has TLS. */
bool link_has_tls(void);
