/* dot_q_few_avx2.c - products of quantized weights with up to four tokens, with AVX2 (dot_q_vec.h has the kernels).  A vector is 8
 * rows, and codes are decoded just before their products, so that of a block nothing waits in memory. */
#if defined(__x86_64__)
#include "dev/cpu/vec_eight_avx2.h"

#define FEW    1
#define PIN(v) __asm__("" : "+x"(v))
#include "dev/cpu/dot_q_vec.h"
#else
typedef int dot_q_few_avx2_unused;
#endif
