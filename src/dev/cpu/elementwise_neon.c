/* elementwise_neon.c - norms, sums, gates and rotations with NEON (elementwise_vec.h has the kernels). */
#if defined(__aarch64__)
#include "dev/cpu/vec_neon.h"

#include "dev/cpu/elementwise_vec.h"
#else
typedef int elementwise_neon_unused;
#endif
