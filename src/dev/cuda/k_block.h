/* k_block.h - the language of the kernels in this folder, which CUDA compiles for a GPU and a C compiler for tests.
 *
 * A kernel is written for a block of K_THREADS threads, as phases: EACH_THREAD { ... } is done by every thread t, and
 * when the next phase begins all threads have ended the one before.  On a GPU that is a barrier; in a test it is a
 * loop over the threads, which runs in either direction, so that a phase whose threads depend on each other gives two
 * results.
 *
 *     KERNEL(k_sum)
 *     {
 *         SHARED(float, part, K_THREADS);
 *         EACH_THREAD part[t] = a.x[BLOCK_X * K_THREADS + t];
 *         EACH_THREAD if (t == 0) ...
 *     }
 *
 * Between phases stands what is the same for all threads of a block.  A value that a thread keeps from phase to phase
 * is MINE(type, name), and is called MY(name).  Arguments are one struct, `a`, passed by value.
 *
 * The bits are those of THE CANONICAL ORDER (dev.h).  Both compilers round each operation by itself: no fused
 * multiplication but where the code says so, IEEE division and roots, subnormal numbers kept. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { K_THREADS = 256 };

#ifdef __CUDACC__
#define K_FN static __device__ __forceinline__
#define KERNEL(name)                                                                               \
    extern "C" __global__ void __launch_bounds__(K_THREADS) name(const struct name##_args a)
#define BLOCK_X                   blockIdx.x
#define BLOCK_Y                   blockIdx.y
#define SHARED(type, name, n)     __shared__ type name[n]
#define MINE(type, name)          type name
#define MINE_ARRAY(type, name, n) type name[n]
#define MY(name)                  name
#define EACH_THREAD               for (uint32_t t = threadIdx.x, k_once = 1; k_once; k_once = 0, __syncthreads())
/* Lane 0 of every 16 threads gets tree16 of their values (dev.h); the others get anything. */
#define TREE16(name)                                                                               \
    do {                                                                                           \
        for (int k_step = 8; k_step; k_step /= 2)                                                  \
            name += __shfl_down_sync(0xffffffffu, name, k_step, 16);                               \
    } while (0)
/* What the CPU's files say with a builtin of gcc. */
#define __builtin_fmaf fmaf
#define inline __device__ __forceinline__
#include "dev/cpu/half.h"
#include "dev/cpu/mathfn.h"
#undef inline
#else
#include "dev/cpu/half.h"
#include "dev/cpu/mathfn.h"
struct k_block {
    uint32_t x, y;
    bool backwards;
};
#define K_FN static inline
#define KERNEL(name)                                                                               \
    void name(const struct name##_args a, const struct k_block k_at);                              \
    void name(const struct name##_args a, const struct k_block k_at)
#define BLOCK_X                   k_at.x
#define BLOCK_Y                   k_at.y
#define SHARED(type, name, n)     type name[n]
#define MINE(type, name)          type name[K_THREADS]
#define MINE_ARRAY(type, name, n) type name[K_THREADS][n]
#define MY(name)                  name[t]
#define EACH_THREAD                                                                                \
    for (uint32_t k_i = 0, t = k_at.backwards ? K_THREADS - 1 : 0; k_i < K_THREADS;                \
         k_i++, t = k_at.backwards ? t - 1 : t + 1)
#define TREE16(name)                                                                               \
    do {                                                                                           \
        for (uint32_t k_first = 0; k_first < K_THREADS; k_first += 16)                             \
            for (uint32_t k_step = 8; k_step; k_step /= 2)                                         \
                for (uint32_t k_l = k_first; k_l < k_first + k_step; k_l++)                        \
                    name[k_l] += name[k_l + k_step];                                               \
    } while (0)
#endif

/* A walk of all threads of a grid over n values: i is the next of this thread's. */
#define EACH_VALUE(i, n)                                                                           \
    EACH_THREAD for (size_t i = (size_t)BLOCK_X * K_THREADS + t; i < (n); i = (n))

K_FN float k_fma(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}

/* A value of a type of cache rows: f32, f16 or bf16, by their numbers in enum dtype. */
K_FN float k_load(uint32_t type, const void *p, size_t i)
{
    if (type == 0) return ((const float *)p)[i];
    uint16_t h = half_load((const unsigned char *)p + 2 * i);
    return type == 1 ? half_f16_to_f32(h) : half_bf16_to_f32(h);
}

K_FN float k_round(uint32_t type, float x)
{
    if (type == 0) return x;
    return type == 1 ? half_f16_to_f32(half_f32_to_f16(x)) : half_bf16_to_f32(half_f32_to_bf16(x));
}
