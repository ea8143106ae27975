/* group.h - the arithmetic of codecs that quantize a group of values at a time, as kernels of every instruction set.
 * The codecs of the kv floor say what the numbers mean (codec_quanto.c, codec_hqq.c).  All kernels give the same bits:
 * those of the scalar reference in cpu/group.c.
 *
 * An array x of n values goes on with copies of the last one up to a multiple of GROUP_LANES; results have room up to
 * there, too. */
#pragma once
#include "dev/dev.h"

#define GROUP_LANES 16u

/* One round of hqq for a group: the numbers that all its values share. */
struct group_round {
    enum dtype dtype;
    float step, zero, top; /* code = round(x * step + zero) in [0, top] */
    float stored, scale; /* value = (code - stored) * scale, in bf16 rounded after each operation */
};
struct group_kernels {
    /* Finds the least and the largest value.  Both are NaN if one value is.  Of zeros the first one counts. */
    void (*span)(const float *x, uint32_t n, float *lo, float *hi);
    /* q = round(x * step + zero) in [0, top]. */
    void (*steps)(const float *x, uint32_t n, float step, float zero, float top, uint8_t *q);
    /* q = round((x + shift) / scale) in [0, top], each operation rounded to t; NaN gives 0. */
    void (*ranges)(enum dtype t, const float *x, uint32_t n, float shift, float scale, float top,
                   uint8_t *q);
    /* With d = x - (code - zero) / step and e = sign(d) * max(|d| - 0.1 * |d|^-0.3, 0), writes code - (x - e) * step to
     * z.  Returns the sum of the squared errors of the values as they will be read, in 16 chains that a tree adds up.
     * d: room of n floats. */
    float (*round)(const struct group_round *r, const float *x, uint32_t n, float *z, float *d);
};
/* [DEV_ISAS]; NULL: there are no kernels for it. */
extern const struct group_kernels *const group_kernels[DEV_ISAS];
/* Returns the best kernels for this processor.  $KVIK_ISA is the most that it takes. */
const struct group_kernels *group_here(void);
