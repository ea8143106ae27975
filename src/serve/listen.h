/* listen.h - the addresses at which the server takes connections. */
#pragma once
#include "base/base.h"

struct evhttp;
struct evhttp_bound_socket;

enum { LISTEN_MOST = 8 };
struct listeners {
    struct evhttp_bound_socket *bound[LISTEN_MOST];
    uint32_t n;
    uint16_t port; /* the port of all addresses */
};
/* Listens at names and addresses with commas between them; port 0: any that is free.  Returns ERR_IO with a sentence that
 * names the address that failed. */
int listeners_open(struct listeners *l, struct evhttp *http, const char *hosts, uint16_t port);
/* Takes connections again after one could not be taken, which mostly happens for lack of descriptors. */
void listeners_resume(const struct listeners *l);
/* Stops taking connections. */
void listeners_close(struct listeners *l, struct evhttp *http);
