/* hadamard.h - a rotation that spreads the large channels of a row over all of them.
 *
 * The rotation changes the signs of some channels, then takes a Hadamard transform of each run of 2^k channels,
 * where 2^k is the largest power of two that divides the size of heads.  It is orthogonal, so q . k = (R q) . (R k).
 * It is computed in f32 and in one order: every value is a sum or a difference of two, so vectors of any width give
 * the same bits. */
#pragma once
#include "base/base.h"

#define HADAMARD_MOST 1024u /* values of a row */

struct hadamard {
    uint32_t dim, run, seed;
    float scale, sign[HADAMARD_MOST];
};

/* Signs follow from the seed alone.  dim: 1 to HADAMARD_MOST. */
void hadamard_choose(struct hadamard *h, uint32_t seed, uint32_t dim);
/* hadamard_turn rotates x[dim], and hadamard_back rotates it back. */
void hadamard_turn(const struct hadamard *h, float *x);
void hadamard_back(const struct hadamard *h, float *x);
