/* k_block.h - the language of the kernels in this folder, which CUDA compiles for a GPU and a C compiler for tests.
 *
 * A kernel is written for a block of K_THREADS threads, as phases.  Every thread t does EACH_THREAD { ... }, and a
 * phase begins when all threads have ended the phase before.  On a GPU that is a barrier.  In a test it is a loop
 * over the threads, which runs in either direction, so that a phase whose threads depend on each other gives two
 * results.
 *
 *     KERNEL(k_sum)
 *     {
 *         SHARED(float, part, K_THREADS);
 *         EACH_THREAD part[t] = a.x[BLOCK_X * K_THREADS + t];
 *         EACH_THREAD if (t == 0) ...
 *     }
 *
 * KERNEL_OF(name, n): the compiler shall limit registers so that n blocks fit one processor of the GPU.
 *
 * Code between phases must be the same for all threads of a block.  A value that a thread keeps from phase to phase
 * is declared by MINE(type, name) and used as MY(name).  Arguments are one struct, `a`, passed by value.
 *
 * EACH_LANE { ... } is a phase without a barrier behind it.  It may use what the thread itself keeps, and what was
 * written before the last barrier.  MMA_BF16, MMA_S8 and the like stand between phases.  The 32 threads of a warp do
 * them together: on a GPU by one instruction of the tensor cores, in a test by the same product of what the threads
 * hold.
 *
 * The bits are those of THE CANONICAL ORDER (dev.h).  Both compilers round each operation by itself: products and
 * sums are fused only where the code says so, division and roots are those of IEEE, and subnormal numbers are kept. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { K_THREADS = 256 };

#ifdef __CUDACC__
#define K_FN static __device__ __forceinline__
#define KERNEL_OF(name, blocks)                                                                    \
    extern "C" __global__ void __launch_bounds__(K_THREADS, blocks) name(const struct name##_args a)
#define KERNEL(name)              KERNEL_OF(name, 1)
#define BLOCK_X                   blockIdx.x
#define BLOCK_Y                   blockIdx.y
#define SHARED(type, name, n)     __shared__ type name[n]
#define MINE(type, name)          type name
#define MINE_ARRAY(type, name, n) type name[n]
#define MY(name)                  name
#define EACH_THREAD               for (uint32_t t = threadIdx.x, k_once = 1; k_once; k_once = 0, __syncthreads())
#define EACH_LANE                 for (uint32_t t = threadIdx.x, k_once = 1; k_once; k_once = 0)
/* Products of tiles: 16 rows of a by 8 tokens of b.  Each thread holds 4 values of c, from `at` on.
 *
 *   MMA_BF16                  c += a * b: 16 columns of bf16, sums in f32 (PTX: m16n8k16); 4 words of a, 2 of b
 *   MMA_S8, MMA_U8            c = a * b: 32 columns of bytes, sums in 32 bits (m16n8k32); 4 words of a, 2 of b
 *   MMA_S8_HALF, MMA_U8_HALF  the same for 16 columns (m16n8k16); the first 2 words of a, 1 of b
 *
 * U8: the bytes of b are unsigned. */
#define MMA_BF16(c, at, a, b) mma_bf16(&c[at], a, b)
#define MMA_S8(c, a, b)       mma_s8(c, a, b)
#define MMA_U8(c, a, b)       mma_u8(c, a, b)
#define MMA_S8_HALF(c, a, b)  mma_s8_half(c, a, b)
#define MMA_U8_HALF(c, a, b)  mma_u8_half(c, a, b)
static __device__ __forceinline__ void mma_bf16(float *c, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#define K_MMA_BYTES(name, types)                                                                   \
    static __device__ __forceinline__ void name(int32_t *c, const uint32_t *a, const uint32_t *b)  \
    {                                                                                              \
        asm("mma.sync.aligned.m16n8k32.row.col.s32." types                                         \
            ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"                       \
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])                                       \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(0));           \
    }                                                                                              \
    static __device__ __forceinline__ void name##_half(int32_t *c, const uint32_t *a,              \
                                                       const uint32_t *b)                          \
    {                                                                                              \
        asm("mma.sync.aligned.m16n8k16.row.col.s32." types                                         \
            ".s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"                                    \
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])                                       \
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(0));                                            \
    }
K_MMA_BYTES(mma_s8, "s8.s8")
K_MMA_BYTES(mma_u8, "s8.u8")
/* Lane 0 of every 16 threads gets tree16 of their values (dev.h); what the others get is undefined. */
#define TREE16(name)                                                                               \
    do {                                                                                           \
        for (int k_step = 8; k_step; k_step /= 2)                                                  \
            name += __shfl_down_sync(0xffffffffu, name, k_step, 16);                               \
    } while (0)
/* The files of the CPU use these names of gcc. */
#define __builtin_fmaf fmaf
#define inline __device__ __forceinline__
/* half.h reads bytes and converts in integers.  The device has an instruction for each of these three functions. */
#define half_load       half_load_bytes
#define half_load_f16   half_load_f16_bytes
#define half_f16_to_f32 half_f16_in_integers
#include "dev/cpu/half.h"
#undef half_load
#undef half_load_f16
#undef half_f16_to_f32
K_FN uint16_t half_load(const void *p) /* at an even address */
{
    return *(const uint16_t *)p;
}
K_FN float half_f16_to_f32(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
K_FN float half_load_f16(const void *p)
{
    return half_f16_to_f32(half_load(p));
}
#include "dev/cpu/mathfn.h"
#include "dev/float8_code.h"
#undef inline
/* Load 4, 8 and 16 bytes that no thread of the grid writes.  The address must be a multiple of that size; arrays of
 * the device begin at multiples of 256. */
K_FN uint32_t k_load4(const void *p)
{
    return __ldg((const uint32_t *)p);
}
K_FN void k_load8(const void *p, uint32_t *out)
{
    uint2 v = __ldg((const uint2 *)p);
    out[0] = v.x, out[1] = v.y;
}
K_FN void k_load16(const void *p, uint32_t *out)
{
    uint4 v = __ldg((const uint4 *)p);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}
/* Store and load 16 bytes of shared memory. */
K_FN void k_stage16(void *p, const uint32_t *in)
{
    *(uint4 *)p = make_uint4(in[0], in[1], in[2], in[3]);
}
K_FN void k_staged16(const void *p, uint32_t *out)
{
    uint4 v = *(const uint4 *)p;
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}
/* Stand before a loop: unroll it wholly, unroll it 16 times, or do not unroll it. */
#define K_UNROLL    _Pragma("unroll")
#define K_UNROLL_16 _Pragma("unroll 16")
#define K_ROLL      _Pragma("unroll 1")
/* Rounds two values to bf16; x is in the low half of the word. */
K_FN uint32_t k_two_bf16(float x, float y)
{
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(y), "f"(x));
    return w;
}
#else
#include "dev/cpu/half.h"
#include "dev/cpu/mathfn.h"
#include "dev/float8_code.h"
struct k_block {
    uint32_t x, y;
    bool backwards;
};
#define K_FN static inline
#define KERNEL_OF(name, blocks)                                                                    \
    void name(const struct name##_args a, const struct k_block k_at);                              \
    void name(const struct name##_args a, const struct k_block k_at)
#define KERNEL(name)              KERNEL_OF(name, 1)
#define BLOCK_X                   k_at.x
#define BLOCK_Y                   k_at.y
#define SHARED(type, name, n)     type name[n]
#define MINE(type, name)          type name[K_THREADS]
#define MINE_ARRAY(type, name, n) type name[K_THREADS][n]
#define MY(name)                  name[t]
#define EACH_THREAD                                                                                \
    for (uint32_t k_i = 0, t = k_at.backwards ? K_THREADS - 1 : 0; k_i < K_THREADS;                \
         k_i++, t = k_at.backwards ? t - 1 : t + 1)
#define EACH_LANE EACH_THREAD
#define TREE16(name)                                                                               \
    do {                                                                                           \
        for (uint32_t k_first = 0; k_first < K_THREADS; k_first += 16)                             \
            for (uint32_t k_step = 8; k_step; k_step /= 2)                                         \
                for (uint32_t k_l = k_first; k_l < k_first + k_step; k_l++)                        \
                    name[k_l] += name[k_l + k_step];                                               \
    } while (0)
#define K_MMA(of, c, at, a, b, words)                                                              \
    do {                                                                                           \
        for (uint32_t k_w = 0; k_w < K_THREADS; k_w += 32)                                         \
            of(&c[k_w][at], sizeof c[0] / sizeof c[0][0], a[k_w], sizeof a[0] / sizeof a[0][0],    \
               b[k_w], sizeof b[0] / sizeof b[0][0], words);                                       \
    } while (0)
#define MMA_BF16(c, at, a, b) K_MMA(mma_bf16, c, at, a, b, 2)
#define MMA_S8(c, a, b)       K_MMA(mma_s8, c, 0, a, b, 2)
#define MMA_U8(c, a, b)       K_MMA(mma_u8, c, 0, a, b, 2)
#define MMA_S8_HALF(c, a, b)  K_MMA(mma_s8, c, 0, a, b, 1)
#define MMA_U8_HALF(c, a, b)  K_MMA(mma_u8, c, 0, a, b, 1)
static inline uint32_t k_load4(const void *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}
static inline void k_load8(const void *p, uint32_t *out)
{
    memcpy(out, p, 8);
}
static inline void k_load16(const void *p, uint32_t *out)
{
    memcpy(out, p, 16);
}
static inline void k_stage16(void *p, const uint32_t *in)
{
    memcpy(p, in, 16);
}
static inline void k_staged16(const void *p, uint32_t *out)
{
    memcpy(out, p, 16);
}
#define K_UNROLL
#define K_UNROLL_16
#define K_ROLL
static inline uint32_t k_two_bf16(float x, float y)
{
    return half_f32_to_bf16(x) | (uint32_t)half_f32_to_bf16(y) << 16;
}

/* A product of the 32 threads' words, which lie ldc, lda and ldb words apart.  It sums over k in ascending order;
 * tensor cores have an order of their own. */
static inline void mma_bf16(float *c, size_t ldc, const uint32_t *a, size_t lda, const uint32_t *b,
                            size_t ldb, uint32_t words)
{
    float m[16][16], n[16][8];
    (void)words;
    for (uint32_t t = 0; t < 32; t++) {
        for (uint32_t r = 0; r < 8; r++)
            m[t / 4 + r / 2 % 2 * 8][t % 4 * 2 + r / 4 * 8 + r % 2] =
                half_bf16_to_f32((uint16_t)(a[t * lda + r / 2] >> r % 2 * 16));
        for (uint32_t r = 0; r < 4; r++)
            n[t % 4 * 2 + r / 2 * 8 + r % 2][t / 4] =
                half_bf16_to_f32((uint16_t)(b[t * ldb + r / 2] >> r % 2 * 16));
    }
    for (uint32_t t = 0; t < 32; t++)
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t k = 0; k < 16; k++)
                c[t * ldc + r] = __builtin_fmaf(m[t / 4 + r / 2 * 8][k], n[k][t % 4 * 2 + r % 2],
                                                c[t * ldc + r]);
}
/* Multiplies bytes as mma_bf16 multiplies bf16: 16 columns for each word of b. */
static inline void mma_bytes(int32_t *c, size_t ldc, const uint32_t *a, size_t lda,
                             const uint32_t *b, size_t ldb, uint32_t words, int32_t sign)
{
    int32_t m[16][32], n[32][8];
    for (uint32_t t = 0; t < 32; t++) {
        for (uint32_t r = 0; r < 8 * words; r++)
            m[t / 4 + r / 4 % 2 * 8][t % 4 * 4 + r / 8 * 16 + r % 4] =
                (int8_t)(a[t * lda + r / 4] >> r % 4 * 8);
        for (uint32_t r = 0; r < 4 * words; r++)
            n[t % 4 * 4 + r / 4 * 16 + r % 4][t / 4] =
                (int32_t)((b[t * ldb + r / 4] >> r % 4 * 8 & 255) ^ (uint32_t)sign) - sign;
    }
    for (uint32_t t = 0; t < 32; t++)
        for (uint32_t r = 0; r < 4; r++) {
            int32_t sum = 0;
            for (uint32_t k = 0; k < 16 * words; k++)
                sum += m[t / 4 + r / 2 * 8][k] * n[k][t % 4 * 2 + r % 2];
            c[t * ldc + r] = sum;
        }
}
static inline void mma_s8(int32_t *c, size_t ldc, const uint32_t *a, size_t lda, const uint32_t *b,
                          size_t ldb, uint32_t words)
{
    mma_bytes(c, ldc, a, lda, b, ldb, words, 128);
}
static inline void mma_u8(int32_t *c, size_t ldc, const uint32_t *a, size_t lda, const uint32_t *b,
                          size_t ldb, uint32_t words)
{
    mma_bytes(c, ldc, a, lda, b, ldb, words, 0);
}
#endif

/* A loop over n values, shared by all threads of a grid: i is the value of this thread. */
#define EACH_VALUE(i, n)                                                                           \
    EACH_THREAD for (size_t i = (size_t)BLOCK_X * K_THREADS + t; i < (n); i = (n))

/* Finds the largest of top[K_THREADS]; all threads then find it in top[0]. */
#define LARGEST(top)                                                                               \
    do {                                                                                           \
        for (uint32_t k_step = K_THREADS / 2; k_step; k_step /= 2)                                 \
            EACH_THREAD                                                                            \
            {                                                                                      \
                if (t < k_step && (top)[t + k_step] > (top)[t]) (top)[t] = (top)[t + k_step];      \
            }                                                                                      \
    } while (0)

K_FN float k_fma(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}

/* Reads value i of an array of rows of the cache: f32, f16 or bf16, by their numbers in enum dtype. */
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
