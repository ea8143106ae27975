/* framing.h - finds headers that two servers could read differently, so that one of them takes a body for the next
 * request. */
#pragma once
#include <event2/keyvalq_struct.h>
#include <stdbool.h>

/* Returns the fault of a request's headers as a static sentence, or NULL.  bodiless: libevent reads no body of such
 * a request, so it would take a body for the next request. */
const char *framing_fault(const struct evkeyvalq *headers, bool bodiless);
