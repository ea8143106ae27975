/* dot_q_avx2.c - products of quantized weights with AVX2 and F16C (dot_q_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx2.h"

#define PIN(v) __asm__("" : "+x"((v).a), "+x"((v).b))
#include "dev/cpu/dot_q_vec.h"
#include "dev/cpu/quantize_vec.h"
#else
typedef int dot_q_avx2_unused;
#endif
