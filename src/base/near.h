/* near.h - "did you mean": the candidate nearest to a mistyped word. */
#pragma once
#include "base/base.h"

struct near {
    const char *word, *best; /* borrowed; best NULL: nothing is near enough */
    size_t cost;
};
void near_begin(struct near *n, const char *word);
void near_try(struct near *n, const char *candidate);
/* Returns the least number of edits (insert, delete, replace, swap of neighbours) from a to b; '-' equals '_', case is ignored.
 * Words over 63 bytes are SIZE_MAX away from everything. */
size_t near_distance(const char *a, const char *b);
