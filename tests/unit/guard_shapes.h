/* guard_shapes.h - shapes with ends that are no whole block, for tests of kernels whose operands end at fences. */
#pragma once
#include "dev/dev.h"

static const enum dtype guard_types[] = {DT_F32,  DT_F16,  DT_BF16, DT_Q4_0, DT_Q4_1,
                                         DT_Q5_0, DT_Q5_1, DT_Q8_0, DT_Q2_K, DT_Q3_K,
                                         DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_MXFP4};
/* columns, tokens and rows of products */
static const uint32_t guard_ks[] = {1, 5, 16, 31, 32, 48, 96, 160, 256, 512},
                      guard_ns[] = {0, 1, 2, 3, 4, 5, 9, 33},
                      guard_outs[] = {0, 1, 3, 4, 7, 17, 40};

/* The widths of rows, and the sizes of the rotated part of heads, one after another. */
static inline uint32_t guard_dim(uint32_t dim)
{
    return dim + (dim < 20 ? 1 : 7);
}
static inline uint32_t guard_rot(uint32_t rot)
{
    return rot + (rot < 20 ? 2 : 14);
}
/* The same weights and inputs for every device: all scales are small, whatever the format. */
static inline unsigned char guard_byte(size_t i)
{
    return (unsigned char)(i * 7 % 61);
}
static inline float guard_input(size_t i)
{
    return (float)(i % 13) - 6;
}
