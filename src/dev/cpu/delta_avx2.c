/* delta_avx2.c - the gated delta rule with AVX2 (delta_vec.h has the kernel). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx2.h"

#include "dev/cpu/delta_vec.h"
#else
typedef int delta_avx2_unused;
#endif
