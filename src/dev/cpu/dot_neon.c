/* dot_neon.c - products with NEON (dot_vec.h has the kernels). */
#if defined(__aarch64__)
#include "dev/cpu/vec_neon.h"

#include "dev/cpu/dot_vec.h"
#else
typedef int dot_neon_unused;
#endif
