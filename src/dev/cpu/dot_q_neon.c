/* dot_q_neon.c - products of quantized weights with NEON (dot_q_vec.h has the kernels). */
#if defined(__aarch64__)
#include "dev/cpu/vec_neon.h"

#include "dev/cpu/dot_q_vec.h"
#include "dev/cpu/quantize_vec.h"
#else
typedef int dot_q_neon_unused;
#endif
