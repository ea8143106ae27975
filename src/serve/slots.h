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
/* A text of a slot: its tokens, the salt of its request (KEYS_SALT), and whether any request may reuse its rows, so
 * that they can be saved. */
struct slot_text {
    const int32_t *ids; /* [n] */
    size_t n;
    const char *salt;
    bool shared;
};
/* Begins a text with this prompt, and returns the number of its slot: `wish`, or if wish is -1 the slot of the same salt
 * whose text it continues furthest, else an empty slot, else the one with the oldest text.  A slot in which another
 * text is being written is taken only if all are. */
uint32_t slots_begin(struct slots *s, int wish, const struct slot_text *prompt);
/* Ends a text that has begun in slot i; NULL: after an error. */
void slots_end(struct slots *s, uint32_t i, const struct slot_text *text);
/* Remembers a text in slot i. */
void slots_put(struct slots *s, uint32_t i, const struct slot_text *text);
/* Copies the text of slot i, to be saved (mem_free its ids). */
int slots_get(struct slots *s, uint32_t i, struct ask_text *out);
