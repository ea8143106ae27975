/* framing.h - headers that two servers could read differently, so that one takes for a body what the other takes for the
 * next request. */
#pragma once
#include <event2/keyvalq_struct.h>
#include <stdbool.h>

/* Returns what is wrong with the headers of a request, as a static sentence, or NULL.  bodiless: libevent reads no body of
 * such a request, so what one would be is the next request to it. */
const char *framing_fault(const struct evkeyvalq *headers, bool bodiless);
