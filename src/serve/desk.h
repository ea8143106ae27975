/* desk.h - the threads that read requests: they parse, render and tokenize, so that the network thread never does. */
#pragma once
#include "serve/route.h"

struct desk;
int desk_open(struct server *s, struct desk **out);
/* Hands over an exchange with its route; takes the reference. */
void desk_put(struct desk *d, struct exchange *x, const struct route *r);
/* Refuses what waits and ends the threads. */
void desk_close(struct desk *d);
