/* delta_neon.c - the gated delta rule with NEON (delta_vec.h has the kernel). */
#if defined(__aarch64__)
#include "dev/cpu/vec_neon.h"

#include "dev/cpu/delta_vec.h"
#else
typedef int delta_neon_unused;
#endif
