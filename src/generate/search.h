/* search.h - finds every occurrence of a word of tokens in a text.  The time is linear in the length of both, and
 * no memory is needed. */
#pragma once
#include "base/base.h"

struct gen_search {
    const int32_t *text, *word; /* borrowed */
    size_t n, m;                /* their lengths */
    /* index at which the word is split, and the distance to move after the right part was found */
    size_t cut, period;
    bool periodic; /* the whole word has this period, not only its right part */
    /* at: the next window; known: how many of its first tokens are known to equal the word's */
    size_t at, known;
};
/* Begins a search for the word of m > 0 tokens. */
void gen_search_begin(struct gen_search *s, const int32_t *text, size_t n, const int32_t *word,
                      size_t m);
/* Finds the next occurrence; occurrences may overlap.  Returns false after the last one. */
bool gen_search_next(struct gen_search *s, size_t *at);
