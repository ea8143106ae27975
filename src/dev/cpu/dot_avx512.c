/* dot_avx512.c - products with AVX-512 and VNNI (dot_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx512.h"

#include "dev/cpu/dot_vec.h"
#else
typedef int dot_avx512_unused;
#endif
