/* slots.h - the newest texts of the server under numbers, so that a client can save one as a file and restore it.
 *
 * A slot of llama-server is a place where one text is computed.  Here texts are computed wherever there is room.  A slot only remembers the
 * tokens of its newest text, whose rows are in the cache like all others. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ask_text;
struct slots;
int slots_open(uint32_t n, struct slots **out);
void slots_close(struct slots *s);
/* A text begins with this prompt, in slot `wish`, or where wish is -1 in the one whose text it continues furthest, else in one
 * that is empty, else in the one whose text is the oldest; not in one that another is being written in, if there is a choice.
 * Returns the number of the slot. */
uint32_t slots_begin(struct slots *s, int wish, const int32_t *ids, size_t n);
/* Ends a text that has begun in slot i; ids NULL: after an error. */
void slots_end(struct slots *s, uint32_t i, const int32_t *ids, size_t n, bool shared);
/* Remembers a text in slot i.  shared: any request may reuse its rows, so they can be saved. */
void slots_put(struct slots *s, uint32_t i, const int32_t *ids, size_t n, bool shared);
/* Copies the text of slot i, to be saved (mem_free its ids). */
int slots_get(struct slots *s, uint32_t i, struct ask_text *out);
