/* delta_avx512.c - the gated delta rule with AVX-512 (delta_vec.h has the kernel). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx512.h"

#include "dev/cpu/delta_vec.h"
#else
typedef int delta_avx512_unused;
#endif
