/* shelf.h - the directory of saved prompts, for a server that begins again where one before it ended or was killed. */
#pragma once
#include "kvik.h"

#include <stdbool.h>
#include <stddef.h>

struct shelf;
/* dir NULL: *out is NULL, and the functions below do nothing with it.  So it is where rows depend on turns, unless that is an
 * error (`demanded`). */
int shelf_open(kvik_cache *c, const char *dir, bool demanded, struct shelf **out);
/* Reads the longest saved prefix of ids, with this cache_salt, into the cache's index, if it has more than `have` tokens.
 * Returns its tokens, or 0: nothing was read. */
size_t shelf_load(struct shelf *s, const int32_t *ids, size_t n, const char *salt, size_t have);
/* Takes the sequence of a text that is over, to be saved when there is time.  Of many the oldest is not saved. */
void shelf_put(struct shelf *s, kvik_seq seq);
/* Saves one sequence; false: none waits. */
bool shelf_save(struct shelf *s);
bool shelf_waits(const struct shelf *s);
/* Gives up what waits, because its memory is needed. */
void shelf_drop(struct shelf *s);
void shelf_close(struct shelf *s);
