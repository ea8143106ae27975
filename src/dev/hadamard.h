/* hadamard.h - a rotation that spreads the large channels of a row over all of them.
 *
 * It turns the signs of some channels, then takes a Hadamard transform of each run of 2^k channels, where 2^k is the largest
 * power of two that divides the size of heads.  It is orthogonal, so q . k = (R q) . (R k).  All is done in f32, in one
 * order: every value is a sum or a difference of two, so vectors of any width give the same bits. */
#pragma once
#include "base/base.h"

#define HADAMARD_MOST 1024u /* values of a row */

struct hadamard {
    uint32_t dim, run, seed;
    float scale, sign[HADAMARD_MOST];
};

/* Signs follow from the seed alone.  dim: 1 to HADAMARD_MOST. */
void hadamard_choose(struct hadamard *h, uint32_t seed, uint32_t dim);
/* hadamard_turn rotates x[dim]; hadamard_back undoes that. */
void hadamard_turn(const struct hadamard *h, float *x);
void hadamard_back(const struct hadamard *h, float *x);
