/* spoken_call.h - what the readers of calls share. */
#pragma once
#include "serve/spoken.h"

/* Adds the calls of a text in notations other than JSON, as spoken_read returns them.  False: it is none of these
 * notations; the list may then have some of the calls. */
bool spoken_words(json_t *list, const char *p, size_t n);
