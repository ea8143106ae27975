/* group_kernels.h - private to dev/cpu: the kernels of dev/group.h. */
#pragma once
#include "dev/group.h"

extern const struct group_kernels group_avx2, group_avx512, group_neon;
/* The scalar reference, for groups with values that are not finite. */
void group_span_ref(const float *x, uint32_t n, float *lo, float *hi);
