/* fused_vec.h - what the files of fused.h share: the most queries, the rows of a call, prefetching.  A file includes it after
 * affine_avx2.h or affine_avx512.h. */
#pragma once
#include "dev/cpu/fused.h"

#define FUSED_MOST 4u /* queries */
/* Expands to X(.., number of queries) for each number. */
#define FUSED_QUERIES(X, ...)                                                                      \
    X(__VA_ARGS__, 1) X(__VA_ARGS__, 2) X(__VA_ARGS__, 3) X(__VA_ARGS__, 4)
/* Expands to X(type of rows, zero_first) for each pair of them.  Functions of these tables are not inlined: their registers and
 * constants do not fit where they are called. */
#define FUSED_KINDS(X) X(DT_F16, false) X(DT_F16, true) X(DT_BF16, false) X(DT_BF16, true)

/* The rows of a call: those of strip s are at base[s][0 .. 15].  A head's numbers are `numbers` bytes behind, its codes `codes`. */
struct rows {
    const unsigned char *const *base[FUSED_STRIPS];
    uint32_t strips;
    size_t numbers, codes;
};

/* Prefetches at most n of the tiles that are read next. */
INLINE void prefetch_tiles(struct kv_next *next, uint32_t n)
{
    for (uint32_t i = 0; i < n && next->first < next->end; i++, next->first++) {
        const unsigned char *p = next->piece[next->first / next->per].tile[next->first % next->per];
        for (uint32_t k = 0; k < next->bytes; k += 64)
            __builtin_prefetch(p + k, 0, 2);
    }
}
