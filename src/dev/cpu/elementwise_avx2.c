/* elementwise_avx2.c - norms, sums, gates and rotations with AVX2 (elementwise_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx2.h"

#include "dev/cpu/elementwise_vec.h"
#else
typedef int elementwise_avx2_unused;
#endif
