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
/* Columns under one scale. */
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

/* Twice an E2M1 value. */
K_FN int weight_e2m1(uint32_t q)
{
    int m = q & 1, e = q >> 1 & 3, v = e ? (2 + m) << (e - 1) : m;
    return q & 8 ? -v : v;
}

/* The signed code of column k. */
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

/* Scale and offset of the block of columns that column k lies in; *m is 0 where the format has no offset. */
K_FN void weight_scale(uint32_t type, const unsigned char *row, uint32_t k, float *d, float *m)
{
    const unsigned char *b = weight_block(type, row, k);
    uint32_t i = k % 256 / weight_scaled(type), sc, mn;
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
        b += 4;
        sc = i < 4 ? b[i] & 63 : (b[i + 4] & 15) | (b[i - 4] >> 2 & 48);
        mn = i < 4 ? b[i + 4] & 63 : b[i + 4] >> 4 | (b[i] >> 2 & 48);
        *d = half_load_f16(b - 4) * (float)sc;
        *m = -(half_load_f16(b - 2) * (float)mn);
        return;
    case DT_Q6_K:
        *d = half_load_f16(b + 208) * (float)(int8_t)b[192 + i];
        return;
    default:
        *d = half_load_f16(b);
    }
}

/* Column k as f32, exactly. */
K_FN float weight_value(uint32_t type, const unsigned char *row, uint32_t k)
{
    float d, m, v;
    if (type == DT_F32) {
        memcpy(&v, row + 4 * (size_t)k, 4);
        return v;
    }
    if (type == DT_F16) return half_load_f16(row + 2 * (size_t)k);
    if (type == DT_BF16) return half_bf16_to_f32(half_load(row + 2 * (size_t)k));
    weight_scale(type, row, k, &d, &m);
    v = d * (float)weight_code(type, row, k);
    return weight_has_min(type) ? v + m : v;
}

/* The weight and the bias that a slot has. */
K_FN void pick(const struct k_pick *p, uint32_t slot, struct k_weight *w, const float **bias)
{
    const struct k_expert *e = &p->expert[p->chosen[slot]];
    w->data = e->w[p->which];
    *bias = e->bias[p->which];
}
/* Turns the arguments of a product into those of this block's slot, if it has one: one token, and its expert's weight.
 * ld: what a token has in x. */
#define PICK_SLOT(in, t0, ld)                                                                      \
    do {                                                                                           \
        if (!(in).pick.expert) break;                                                              \
        pick(&(in).pick, BLOCK_Y, &(in).w, &(in).bias);                                            \
        (in).x += (size_t)(BLOCK_Y / (in).pick.share) * (ld);                                      \
        (in).y += BLOCK_Y * (in).ldy;                                                              \
        (in).n = 1;                                                                                \
        (t0) = 0;                                                                                  \
    } while (0)
