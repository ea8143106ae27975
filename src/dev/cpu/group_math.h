/* group_math.h - private to the kernels of group.h: the power that a round of hqq takes, as group.c (one value) and
 * group_vec.h (16 lanes) do it, operation by operation.
 *
 * |d|^-0.3 = exp(-0.3 ln |d|).  |d| = 2^e * m with m in [sqrt(1/2), sqrt(2)), from the bits of |d|; ln m = 2 atanh(s),
 * s = (m - 1) / (m + 1), by the polynomial of softplus, and exp is that of mathfn.h.  What is subtracted from |d| is at
 * most |d|, and the difference is off by less than 2^-22 |d|. */
#pragma once
#include "dev/cpu/mathfn.h"

#define GROUP_HALF   0x3f3504f3     /* the bits of sqrt(1/2) */
#define GROUP_EXP    -0x1.a9deap-3f /* -0.3 ln 2 */
#define GROUP_LOG    -0.6f
#define GROUP_WEIGHT 0.1f
#define GROUP_SMALL  0.17f /* below 0.1701 nothing is left of |d| */
