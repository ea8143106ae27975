/* search.c - the two-way algorithm (Crochemore and Perrin 1991, Two-way string-matching).  The word is split at a
 * position such that a mismatch to the right of the split tells how far the window can move.  The right part is
 * compared first, then the left part.  The split is at the longer of two maximal suffixes of the word: one under
 * the order of token ids, one under the reverse order. */
#include "generate/search.h"

#include <string.h>

/* Returns where the maximal suffix of the word begins, and the period of that suffix. */
static size_t maximal_suffix(const int32_t *word, size_t m, bool reverse, size_t *period)
{
    size_t begin = 0, j = 0, k = 1, p = 1;
    while (j + k < m) {
        int32_t a = word[j + k], b = word[begin + k - 1];
        if (a == b && k != p) {
            k++;
        } else if (a == b) {
            j += p;
            k = 1;
        } else if ((a < b) != reverse) {
            j += k;
            k = 1;
            p = j - begin + 1;
        } else {
            begin = ++j;
            k = p = 1;
        }
    }
    *period = p;
    return begin;
}

void gen_search_begin(struct gen_search *s, const int32_t *text, size_t n, const int32_t *word,
                      size_t m)
{
    size_t p, q, a = maximal_suffix(word, m, false, &p), b = maximal_suffix(word, m, true, &q);
    *s = (struct gen_search){
        .text = text, .word = word, .n = n, .m = m, .cut = MAX(a, b), .period = a > b ? p : q};
    s->periodic = memcmp(word, word + s->period, s->cut * sizeof *word) == 0;
    if (!s->periodic) s->period = MAX(s->cut, m - s->cut) + 1;
}

bool gen_search_next(struct gen_search *s, size_t *at)
{
    while (s->n >= s->m && s->at <= s->n - s->m) {
        const int32_t *window = s->text + s->at;
        size_t i = MAX(s->cut, s->known), known = s->known;
        while (i < s->m && s->word[i] == window[i])
            i++;
        if (i < s->m) {
            s->at += i - s->cut + 1;
            s->known = 0;
            continue;
        }
        for (i = s->cut; i > known && s->word[i - 1] == window[i - 1];)
            i--;
        *at = s->at;
        s->at += s->period;
        s->known = s->periodic ? s->m - s->period : 0;
        if (i <= known) return true;
    }
    return false;
}
