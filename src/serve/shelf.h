/* shelf.h - texts outside of a server's memory: a directory of saved prompts, for the server that starts after this
 * one has ended or was killed; and a store that several servers share. */
#pragma once
#include "kvik.h"
#include "kvik_shared.h"

#include <stdbool.h>
#include <stddef.h>

struct shelf;
/* dir and address NULL: *out is NULL, and the functions below do nothing with it.  The same holds if rows depend on
 * turns, unless `demanded` makes that an error. */
int shelf_open(kvik_cache *c, const char *dir, const char *address, bool demanded,
               struct shelf **out);
/* Begins to read the longest prefix of ids with this cache_salt in the directory, if that may have many more tokens than
 * `have`.  False: it may not. */
bool shelf_read(struct shelf *s, const int32_t *ids, size_t n, const char *salt, size_t have,
                kvik_reading **out);
/* True if shelf_read would look for the prompt. */
bool shelf_reads(const struct shelf *s, size_t n, size_t have);
/* Begins to read in the store, if that may be faster than computing.  token_seconds: time for a token of a prompt;
 * 0: not known.  NULL: it would not be faster. */
kvik_fetch *shelf_seek(struct shelf *s, const int32_t *ids, size_t n, const char *salt, size_t have,
                       double token_seconds);
/* Takes the sequence of a text that is over, to be saved when there is time.  If too many wait, the oldest is not
 * saved. */
void shelf_put(struct shelf *s, kvik_seq seq);
/* Hands a few MiB of rows of waiting sequences to the store's thread.  False: none wait, or the store is slow. */
bool shelf_share(struct shelf *s);
/* Shares or saves one sequence.  False: none waits, or the store is slow. */
bool shelf_save(struct shelf *s);
bool shelf_waits(const struct shelf *s);
/* Fills in what the store did; false: there is no store. */
bool shelf_state(const struct shelf *s, kvik_shared_state *out);
/* Says why the directory did not take the last text; "": it did, or there is none. */
const char *shelf_dir_error(const struct shelf *s);
/* Gives up all waiting sequences, because their memory is needed. */
void shelf_drop(struct shelf *s);
void shelf_close(struct shelf *s);
