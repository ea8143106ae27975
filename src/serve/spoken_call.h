/* spoken_call.h - what the readers of calls share. */
#pragma once
#include "serve/spoken.h"

/* Adds the calls of a text in notations that are not JSON, as spoken_read shows them.  False: it is none of them; then
 * the list may have some of them. */
bool spoken_words(json_t *list, const char *p, size_t n);
