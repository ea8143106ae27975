/* ssm_neon.c - the convolution and the selective scan with NEON (ssm_vec.h has the kernels). */
#if defined(__aarch64__)
#include "dev/cpu/vec_neon.h"

#include "dev/cpu/ssm_vec.h"
#else
typedef int ssm_neon_unused;
#endif
