/* dot_avx2.c - products with AVX2, FMA and F16C (dot_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx2.h"

#include "dev/cpu/dot_vec.h"
#else
typedef int dot_avx2_unused;
#endif
