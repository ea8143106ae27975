/* search.h - finds every occurrence of a word of tokens in a text, in a time that is linear in the length of both and
 * without memory of its own. */
#pragma once
#include "base/base.h"

struct gen_search {
    const int32_t *text, *word; /* borrowed */
    size_t n, m;                /* their lengths */
    size_t cut, period; /* where the word is split, and the shift after its right part was found */
    bool periodic;      /* the period is that of the whole word */
    size_t at,
        known; /* the next window, and how many of its leading tokens are known to be the word's */
};
/* Begins a search for the word of m > 0 tokens. */
void gen_search_begin(struct gen_search *s, const int32_t *text, size_t n, const int32_t *word,
                      size_t m);
/* Finds the next occurrence; occurrences may overlap.  Returns false after the last one. */
bool gen_search_next(struct gen_search *s, size_t *at);
