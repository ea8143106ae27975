/* k_coded.h - levels of coded tiles (dev/coded.h), and steps of a whole block that kernels for rows and for queries
 * share. */
#pragma once
#include "dev/cuda/k_block.h"
#include "dev/cuda/k_walk.h"
#ifdef __CUDACC__
#define inline __device__ __forceinline__
#include "dev/hadamard_sign.h"
#undef inline
#else
#include "dev/hadamard_sign.h"
#endif

enum { CODED_ROWS = 128, CODED_DIM = 512, CODED_CODE = 32512 };
#define CODED_BAND 0x1p-6f /* as in dev/cpu/coded_read.h */

/* --- where things lie */
K_FN uint32_t coded_depth(const struct k_plane *p)
{
    return p->levels.key ? (p->dim + 3) / 4 : CODED_ROWS / 4;
}
K_FN uint32_t coded_blocks(const struct k_plane *p)
{
    return p->levels.key ? CODED_ROWS / 16 : (p->dim + 15) / 16;
}
K_FN uint32_t coded_part_bytes(uint32_t bits, uint32_t depth)
{
    return (depth * bits + 7) / 8 * 64;
}
K_FN uint32_t coded_block_bytes(const struct k_plane *p)
{
    uint32_t bits = p->levels.bits, depth = coded_depth(p);
    if (bits == 3) return coded_part_bytes(2, depth) + coded_part_bytes(1, depth);
    return coded_part_bytes(bits, depth);
}
K_FN uint32_t coded_head_bytes(const struct k_plane *p)
{
    return (CODED_ROWS * 2 + (p->levels.mean ? 2 * p->dim : 0) + 63) / 64 * 64;
}
/* Returns the unit of row r of a tile. */
K_FN unsigned char *coded_unit(const struct k_plane *p, const unsigned char *tile, uint32_t head,
                               uint32_t r)
{
    size_t size = coded_head_bytes(p) + (size_t)coded_blocks(p) * coded_block_bytes(p);
    size_t unit = (size_t)head * (p->sealed.rows / CODED_ROWS) + r / CODED_ROWS;
    return (unsigned char *)(size_t)tile + unit * size;
}

/* Returns the byte of a code of `bits` bits in a part of a block; *shift: the place of its bits. */
K_FN size_t coded_place(uint32_t bits, uint32_t lane, uint32_t at, uint32_t *shift)
{
    uint32_t per = 8 / bits, group = at / 4;
    *shift = group % per * bits;
    return (size_t)group / per * 64 + lane * 4 + at % 4;
}

/* Returns the level of value d of row r of a unit. */
K_FN int32_t coded_level(const struct k_plane *p, const unsigned char *unit, uint32_t r, uint32_t d)
{
    const struct k_levels *f = &p->levels;
    uint32_t lane = f->key ? r : d, at = f->key ? d : r, bits = f->bits == 3 ? 2 : f->bits, shift;
    const unsigned char *block =
        unit + coded_head_bytes(p) + (size_t)(lane / 16) * coded_block_bytes(p);
    uint32_t q = block[coded_place(bits, lane % 16, at, &shift)];
    q = q >> shift & ((1u << bits) - 1);
    if (bits == 8) return (int8_t)(f->key ? q ^ 0x80 : q);
    if (f->bits == 3) {
        size_t i = coded_part_bytes(2, coded_depth(p)) + coded_place(1, lane % 16, at, &shift);
        q |= (block[i] >> shift & 1u) << 2;
    }
    return f->level[q];
}

/* The head of a unit: scales of rows, then means. */
K_FN uint32_t coded_scale(const unsigned char *unit, uint32_t r)
{
    return half_load(unit + 2 * r);
}
K_FN float coded_mean(const unsigned char *unit, uint32_t d)
{
    return half_bf16_to_f32(half_load(unit + 2 * (CODED_ROWS + d)));
}

/* --- numbers */
/* As cpu_group_scale (dev/cpu/cpu.h): returns the factor of |x| for codes of 16 bits; *d: the scale that undoes it. */
K_FN float coded_group_scale(uint32_t bits, float *d)
{
    float amax = half_from_bits(bits);
    bool finite = bits < 0x7f800000u;
    if (!finite || amax < 0x1p-100f) {
        *d = finite ? 0.0f : half_from_bits(0x7fc00000u);
        return 0;
    }
    *d = amax / (float)CODED_CODE;
    return (float)CODED_CODE / amax;
}
K_FN int32_t coded_nearest(float x) /* even; |x| < 2^22 */
{
    return (int32_t)((x + 0x1.8p+23f) - 0x1.8p+23f);
}

/* --- steps of a block */
/* Transforms x[dim] (dev/hadamard.c).  Each value is a sum or a difference of two, whichever thread computes it. */
#define TRANSFORM(x, dim, run)                                                                     \
    do {                                                                                           \
        for (uint32_t k_h = 1; k_h < (run); k_h *= 2)                                              \
            EACH_THREAD                                                                            \
            {                                                                                      \
                for (uint32_t k_pair = t; k_pair < (dim) / 2; k_pair += K_THREADS) {               \
                    uint32_t k_d = k_pair / k_h * 2 * k_h + k_pair % k_h;                          \
                    float k_a = (x)[k_d], k_b = (x)[k_d + k_h];                                    \
                    (x)[k_d] = k_a + k_b;                                                          \
                    (x)[k_d + k_h] = k_a - k_b;                                                    \
                }                                                                                  \
            }                                                                                      \
    } while (0)
/* Rotates x[dim] back (hadamard_back) if rows of the plane are rotated. */
#define TURN_BACK(x, p)                                                                            \
    do {                                                                                           \
        TRANSFORM(x, (p)->dim, (p)->levels.run);                                                   \
        EACH_THREAD                                                                                \
        {                                                                                          \
            for (uint32_t k_d = t; (p)->levels.run && k_d < (p)->dim; k_d += K_THREADS)            \
                (x)[k_d] = (x)[k_d] * (p)->levels.turn * hadamard_sign((p)->levels.seed, k_d);     \
        }                                                                                          \
    } while (0)
