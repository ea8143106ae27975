/* ssm_avx2.c - the convolution and the selective scan with AVX2 (ssm_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx2.h"

#include "dev/cpu/ssm_vec.h"
#else
typedef int ssm_avx2_unused;
#endif
