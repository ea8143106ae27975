/* elementwise_avx512.c - norms, sums, gates and rotations with AVX-512 (elementwise_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx512.h"

#include "dev/cpu/elementwise_vec.h"
#else
typedef int elementwise_avx512_unused;
#endif
