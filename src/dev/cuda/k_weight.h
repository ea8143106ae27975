/* k_weight.h - weights as they lie in the file, a code or a value at a time.  The formats are those of
 * dev/cpu/unpack.c: value = d * code, then + m where the format has an offset, two roundings. */
#pragma once
#include "base/dtype.h"
#include "dev/cuda/k_block.h"
#include "dev/cuda/kernels.h"

K_FN bool weight_is_k(uint32_t type) /* blocks of 256 columns */
{
    return type == DT_Q2_K || type == DT_Q3_K || type == DT_Q4_K || type == DT_Q5_K ||
           type == DT_Q6_K;
}
K_FN bool weight_has_min(uint32_t type)
{
    return type == DT_Q4_1 || type == DT_Q5_1 || type == DT_Q2_K || type == DT_Q4_K ||
           type == DT_Q5_K;
}
/* Returns the number of columns under one scale. */
K_FN uint32_t weight_scaled(uint32_t type)
{
    return type == DT_Q2_K || type == DT_Q3_K || type == DT_Q6_K ? 16 : 32;
}
K_FN const unsigned char *weight_block(uint32_t type, const unsigned char *row, uint32_t k)
{
    switch (type) {
    case DT_Q4_0:
        return row + (size_t)(k / 32) * 18;
    case DT_Q4_1:
        return row + (size_t)(k / 32) * 20;
    case DT_Q5_0:
        return row + (size_t)(k / 32) * 22;
    case DT_Q5_1:
        return row + (size_t)(k / 32) * 24;
    case DT_Q8_0:
        return row + (size_t)(k / 32) * 34;
    case DT_MXFP4:
        return row + (size_t)(k / 32) * 17;
    case DT_Q2_K:
        return row + (size_t)(k / 256) * 84;
    case DT_Q3_K:
        return row + (size_t)(k / 256) * 110;
    case DT_Q4_K:
        return row + (size_t)(k / 256) * 144;
    case DT_Q5_K:
        return row + (size_t)(k / 256) * 176;
    default:
        return row + (size_t)(k / 256) * 210;
    }
}

/* Returns twice an E2M1 value. */
K_FN int weight_e2m1(uint32_t q)
{
    int m = q & 1, e = q >> 1 & 3, v = e ? (2 + m) << (e - 1) : m;
    return q & 8 ? -v : v;
}

/* Returns the signed code of column k. */
K_FN int weight_code(uint32_t type, const unsigned char *row, uint32_t k)
{
    const unsigned char *b = weight_block(type, row, k);
    if (!weight_is_k(type)) {
        uint32_t i = k % 32, high = i / 16 * 4, fifth;
        switch (type) {
        case DT_Q4_0:
            return (b[2 + i % 16] >> high & 15) - 8;
        case DT_Q4_1:
            return b[4 + i % 16] >> high & 15;
        case DT_Q5_0:
            fifth = b[2 + i / 8] >> i % 8 & 1;
            return (int)((b[6 + i % 16] >> high & 15) | fifth << 4) - 16;
        case DT_Q5_1:
            fifth = b[4 + i / 8] >> i % 8 & 1;
            return (int)((b[8 + i % 16] >> high & 15) | fifth << 4);
        case DT_Q8_0:
            return (int8_t)b[2 + i];
        default:
            return weight_e2m1(b[1 + i % 16] >> high & 15);
        }
    }
    uint32_t c = k % 256 / 64, i = k % 64, two = 4 * (c % 2) + 2 * (i / 32);
    switch (type) {
    case DT_Q2_K:
        return b[16 + 32 * (c / 2) + i % 32] >> two & 3;
    case DT_Q3_K:
        return ((b[32 + 32 * (c / 2) + i % 32] >> two & 3) | (b[i % 32] >> (2 * c + i / 32) & 1)
                                                                 << 2) -
               4;
    case DT_Q4_K:
        return b[16 + 32 * c + i % 32] >> 4 * (i / 32) & 15;
    case DT_Q5_K:
        return (b[48 + 32 * c + i % 32] >> 4 * (i / 32) & 15) |
               (b[16 + i % 32] >> (2 * c + i / 32) & 1) << 4;
    default:
        return ((b[64 * (c / 2) + i] >> 4 * (c % 2) & 15) |
                (b[128 + 32 * (c / 2) + i % 32] >> two & 3) << 4) -
               32;
    }
}

/* Reads 4 bytes at an even address, or at any address. */
K_FN uint32_t weight_word_even(const unsigned char *p)
{
    return half_load(p) | (uint32_t)half_load(p + 2) << 16;
}
K_FN uint32_t weight_word_any(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
/* Subtracts n from each byte.  Bytes are below 128, and n is at most 128. */
K_FN uint32_t weight_less(uint32_t x, uint32_t n)
{
    return ((x | 0x80808080u) - n * 0x01010101u) ^ 0x80808080u;
}
/* Moves bit i of 4 to byte i. */
K_FN uint32_t weight_spread(uint32_t bits)
{
    return (bits & 15) * 0x00204081u & 0x01010101u;
}

/* Returns the codes of columns k to k + 3 (k % 4 == 0) as the bytes of a word. */
K_FN uint32_t weight_four(uint32_t type, const unsigned char *row, uint32_t k)
{
    const unsigned char *b = weight_block(type, row, k);
    const uint32_t nibbles = 0x0f0f0f0fu, ones = 0x01010101u, pairs = 0x03030303u;
    if (!weight_is_k(type)) {
        uint32_t i = k % 32, high = i / 16 * 4, out = 0;
        switch (type) {
        case DT_Q4_0:
            return weight_less(weight_word_even(b + 2 + i % 16) >> high & nibbles, 8);
        case DT_Q4_1:
            return k_load4(b + 4 + i % 16) >> high & nibbles;
        case DT_Q5_0:
            out = weight_spread((uint32_t)b[2 + i / 8] >> i % 8) << 4;
            return weight_less((weight_word_even(b + 6 + i % 16) >> high & nibbles) | out, 16);
        case DT_Q5_1:
            out = weight_spread((uint32_t)b[4 + i / 8] >> i % 8) << 4;
            return (k_load4(b + 8 + i % 16) >> high & nibbles) | out;
        case DT_Q8_0:
            return weight_word_even(b + 2 + i);
        default:
            for (uint32_t j = 0, q = weight_word_any(b + 1 + i % 16) >> high; j < 32; j += 8)
                out |= ((uint32_t)weight_e2m1(q >> j & 15) & 255) << j;
            return out;
        }
    }
    uint32_t c = k % 256 / 64, i = k % 64, two = 4 * (c % 2) + 2 * (i / 32), bit = 2 * c + i / 32;
    switch (type) {
    case DT_Q2_K:
        return k_load4(b + 16 + 32 * (c / 2) + i % 32) >> two & pairs;
    case DT_Q3_K:
        return weight_less((weight_word_even(b + 32 + 32 * (c / 2) + i % 32) >> two & pairs) |
                               (weight_word_even(b + i % 32) >> bit & ones) << 2,
                           4);
    case DT_Q4_K:
        return k_load4(b + 16 + 32 * c + i % 32) >> 4 * (i / 32) & nibbles;
    case DT_Q5_K:
        return (k_load4(b + 48 + 32 * c + i % 32) >> 4 * (i / 32) & nibbles) |
               (k_load4(b + 16 + i % 32) >> bit & ones) << 4;
    default:
        return weight_less((weight_word_even(b + 64 * (c / 2) + i) >> 4 * (c % 2) & nibbles) |
                               (weight_word_even(b + 128 + 32 * (c / 2) + i % 32) >> two & pairs)
                                   << 4,
                           32);
    }
}

/* Writes the codes of columns k to k + 7 (k % 8 == 0). */
K_FN void weight_eight(uint32_t type, const unsigned char *row, uint32_t k, uint32_t *out)
{
    if (type == DT_Q4_K) {
        uint32_t i = k % 64, high = 4 * (i / 32);
        k_load8(row + (size_t)(k / 256) * 144 + 16 + 32 * (k % 256 / 64) + i % 32, out);
        out[0] = out[0] >> high & 0x0f0f0f0fu;
        out[1] = out[1] >> high & 0x0f0f0f0fu;
        return;
    }
    out[0] = weight_four(type, row, k);
    out[1] = weight_four(type, row, k + 4);
}

/* True for Q4_K and Q5_K, whose blocks of 256 columns begin with 16 bytes of scales and offsets. */
K_FN bool weight_headed(uint32_t type)
{
    return type == DT_Q4_K || type == DT_Q5_K;
}
K_FN void weight_head_scale(const uint32_t *head, uint32_t i, float *d, float *m)
{
    uint32_t at = i % 4 * 8, x = head[1] >> at, y = head[2] >> at, z = head[3] >> at;
    uint32_t sc = i < 4 ? x & 63 : (z & 15) | (x >> 2 & 48);
    uint32_t mn = i < 4 ? y & 63 : (z >> 4 & 15) | (y >> 2 & 48);
    *d = half_f16_to_f32((uint16_t)head[0]) * (float)sc;
    *m = -(half_f16_to_f32((uint16_t)(head[0] >> 16)) * (float)mn);
}

/* Reads the scale and offset of the block of column k; *m is 0 where the format has no offset. */
K_FN void weight_scale(uint32_t type, const unsigned char *row, uint32_t k, float *d, float *m)
{
    const unsigned char *b = weight_block(type, row, k);
    uint32_t i = k % 256 / weight_scaled(type), sc, head[4];
    *m = 0;
    switch (type) {
    case DT_MXFP4: /* codes are twice the values */
        *d = half_from_bits(b[0] < 2 ? 0x200000u << b[0] : (uint32_t)(b[0] - 1) << 23);
        return;
    case DT_Q4_1:
    case DT_Q5_1:
        *d = half_load_f16(b);
        *m = half_load_f16(b + 2);
        return;
    case DT_Q2_K:
        *d = half_load_f16(b + 80) * (float)(b[i] & 15);
        *m = -(half_load_f16(b + 82) * (float)(b[i] >> 4));
        return;
    case DT_Q3_K:
        sc = (b[96 + i % 8] >> 4 * (i / 8) & 15) | (b[104 + i % 4] >> 2 * (i / 4) & 3) << 4;
        *d = half_load_f16(b + 108) * (float)((int)sc - 32);
        return;
    case DT_Q4_K:
    case DT_Q5_K:
        k_load16(b, head);
        weight_head_scale(head, i, d, m);
        return;
    case DT_Q6_K:
        *d = half_load_f16(b + 208) * (float)(int8_t)b[192 + i];
        return;
    default:
        *d = half_load_f16(b);
    }
}

/* Returns column k as f32, exactly. */
K_FN float weight_value(uint32_t type, const unsigned char *row, uint32_t k)
{
    float d, m, v;
    if (type == DT_F32) return half_from_bits(k_load4(row + 4 * (size_t)k));
    if (type == DT_F16) return half_load_f16(row + 2 * (size_t)k);
    if (type == DT_BF16) return half_bf16_to_f32(half_load(row + 2 * (size_t)k));
    weight_scale(type, row, k, &d, &m);
    v = d * (float)weight_code(type, row, k);
    return weight_has_min(type) ? v + m : v;
}

/* Finds the weight and the bias of a slot. */
K_FN void pick(const struct k_pick *p, uint32_t slot, struct k_weight *w, const float **bias)
{
    const struct k_expert *e = &p->expert[p->chosen[slot]];
    w->data = e->w[p->which];
    *bias = e->bias[p->which];
}
/* Replaces the arguments of a product by those of this block's slot, if slots are used: one token, and the weight of
 * its expert.  ld: values or groups of a token in x. */
#define PICK_SLOT(in, t0, ld)                                                                      \
    do {                                                                                           \
        if (!(in).pick.expert) break;                                                              \
        pick(&(in).pick, BLOCK_Y, &(in).w, &(in).bias);                                            \
        (in).x += (size_t)(BLOCK_Y / (in).pick.share) * (ld);                                      \
        (in).y += BLOCK_Y * (in).ldy;                                                              \
        (in).n = 1;                                                                                \
        (t0) = 0;                                                                                  \
    } while (0)
