/* dot_q_neon.c - products of quantized weights with NEON (dot_q_vec.h has the kernels). */
#if defined(__aarch64__)
#include "dev/cpu/vec_neon.h"

#if !defined(__clang__)
/* GCC believes that the sink of a panel could have none, and then sees it read activations of nowhere. */
#pragma GCC diagnostic ignored "-Warray-bounds"
#endif
#include "dev/cpu/dot_q_vec.h"
#else
typedef int dot_q_neon_unused;
#endif
