/* desk.h - the crew that reads requests: it parses, renders and tokenizes, so that the network thread never does. */
#pragma once
#include "serve/route.h"

struct crew;
int desk_open(struct crew **out);
/* Hands an exchange with its route to the desk of the server; takes the reference. */
void desk_put(struct server *s, struct exchange *x, const struct route *r);
