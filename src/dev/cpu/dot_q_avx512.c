/* dot_q_avx512.c - products of quantized weights with AVX-512 and VNNI (dot_q_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx512.h"

#include "dev/cpu/dot_q_vec.h"
#else
typedef int dot_q_avx512_unused;
#endif
