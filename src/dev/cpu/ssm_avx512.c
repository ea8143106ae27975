/* ssm_avx512.c - the convolution and the selective scan with AVX-512 (ssm_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx512.h"

#include "dev/cpu/ssm_vec.h"
#else
typedef int ssm_avx512_unused;
#endif
