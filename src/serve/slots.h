/* slots.h - the newest texts of the server under numbers, so that a client can save one as a file, and have it again.
 *
 * A slot of llama-server is a place where one text is computed.  Here texts are computed wherever there is room, and a
 * slot only remembers which tokens its newest text has: their rows are in the cache like all others. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slots;
int slots_open(uint32_t n, struct slots **out);
void slots_close(struct slots *s);
/* Remembers a text in slot `wish`, or where wish is -1 in the one that the text continues furthest, else in one that is empty, else
 * in the one whose text is the oldest.  shared: any request may reuse its rows, so they can be saved.  Returns the number of
 * the slot, or -1 if memory is short. */
int slots_put(struct slots *s, int wish, const int32_t *ids, size_t n, bool shared);
