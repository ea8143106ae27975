/* near.c - nearest name for "did you mean": restricted Damerau-Levenshtein distance over short ASCII names.
 * A candidate is near if it needs at most 2/5 of the word's length plus one edits, or if it begins with the word
 * (three characters or more).  Of equally near candidates the first in the table wins. */
#include "base/near.h"

#include <string.h>

enum { WORD_MAX = 63 };

static char fold(char c)
{
    if (c == '-') return '_';
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

size_t near_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    if (na > WORD_MAX || nb > WORD_MAX) return SIZE_MAX;
    uint8_t row[3][WORD_MAX + 1]; /* two rows back, one back, this one */
    uint8_t *before = row[0], *above = row[1], *here = row[2];
    for (size_t j = 0; j <= nb; j++)
        above[j] = (uint8_t)j;
    for (size_t i = 1; i <= na; i++) {
        here[0] = (uint8_t)i;
        for (size_t j = 1; j <= nb; j++) {
            char x = fold(a[i - 1]), y = fold(b[j - 1]);
            uint8_t d = (uint8_t)(above[j - 1] + (x != y));
            d = MIN(d, (uint8_t)(above[j] + 1));
            d = MIN(d, (uint8_t)(here[j - 1] + 1));
            if (i > 1 && j > 1 && x == fold(b[j - 2]) && y == fold(a[i - 2]))
                d = MIN(d, (uint8_t)(before[j - 2] + 1));
            here[j] = d;
        }
        uint8_t *oldest = before;
        before = above;
        above = here;
        here = oldest;
    }
    return above[nb];
}

static bool begins(const char *word, const char *candidate)
{
    size_t n = strlen(word);
    if (n < 3) return false;
    for (size_t i = 0; i < n; i++)
        if (fold(word[i]) != fold(candidate[i])) return false; /* stops at the candidate's end */
    return true;
}

void near_begin(struct near *n, const char *word)
{
    *n = (struct near){.word = word, .cost = SIZE_MAX};
}

void near_try(struct near *n, const char *candidate)
{
    size_t d = near_distance(n->word, candidate);
    if (d > strlen(n->word) * 2 / 5 + 1) {
        if (!begins(n->word, candidate)) return;
        d = strlen(n->word) * 2 / 5 + 1;
    }
    if (d < n->cost) {
        n->cost = d;
        n->best = candidate;
    }
}
