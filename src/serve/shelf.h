/* shelf.h - texts outside of a server's memory: a directory of saved prompts, for a server that begins again where one before it
 * ended or was killed, and a store that several servers share. */
#pragma once
#include "kvik.h"
#include "kvik_shared.h"

#include <stdbool.h>
#include <stddef.h>

struct shelf;
/* dir and address NULL: *out is NULL, and the functions below do nothing with it.  So it is where rows depend on turns, unless that
 * is an error (`demanded`). */
int shelf_open(kvik_cache *c, const char *dir, const char *address, bool demanded,
               struct shelf **out);
/* Reads the longest prefix of ids that the directory has, with this cache_salt, into the cache's index, if it has more than `have`
 * tokens.  Returns its tokens, or 0: nothing was read. */
size_t shelf_load(struct shelf *s, const int32_t *ids, size_t n, const char *salt, size_t have);
/* Begins to read in the store, if that may beat computing: token_seconds is what a token of a prompt takes; 0: not known.
 * NULL: it may not. */
kvik_fetch *shelf_seek(struct shelf *s, const int32_t *ids, size_t n, const char *salt, size_t have,
                       double token_seconds);
/* Takes the sequence of a text that is over, to be saved when there is time.  Of many the oldest is not saved. */
void shelf_put(struct shelf *s, kvik_seq seq);
/* Hands rows of the sequences that wait to the store's thread, a few MiB.  False: there are none, or the store is slow. */
bool shelf_share(struct shelf *s);
/* Shares or saves one sequence; false: none waits, or the store is slow. */
bool shelf_save(struct shelf *s);
bool shelf_waits(const struct shelf *s);
/* What the store did; false: there is none. */
bool shelf_state(const struct shelf *s, kvik_shared_state *out);
/* Gives up what waits, because its memory is needed. */
void shelf_drop(struct shelf *s);
void shelf_close(struct shelf *s);
