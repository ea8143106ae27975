/* unpack.c - decodes the quantized formats one at a time: codes in order of K, unsigned, with the scale and offset of each lane of four.
 *
 * This is the one readable statement of every format.  Dequantizing, the reference product, and the panels of formats without a faster decoder all
 * use it.  Scales are rounded as the `gguf` package rounds them: each product of two factors once.  An offset is stored as the number that is added.
 * (The K formats subtract a minimum; its negative is exact.) */
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"

#include <string.h>

const struct cpu_format cpu_format[DT_COUNT] = {
    [DT_Q4_0] = {true, false, 8, 32},   [DT_Q4_1] = {true, true, 0, 32},
    [DT_Q5_0] = {true, false, 16, 32},  [DT_Q5_1] = {true, true, 0, 32},
    [DT_Q8_0] = {true, false, 128, 32}, [DT_Q2_K] = {true, true, 0, 16},
    [DT_Q3_K] = {true, false, 4, 16},   [DT_Q4_K] = {true, true, 0, 32},
    [DT_Q5_K] = {true, true, 0, 32},    [DT_Q6_K] = {true, false, 32, 16},
    [DT_MXFP4] = {true, false, 12, 32},
};

static void fill(float *lanes, uint32_t n, float v)
{
    for (uint32_t i = 0; i < n; i++)
        lanes[i] = v;
}

/* Decodes low nibbles first, then high ones: the layout of the 32-code types. */
static void nibbles(const unsigned char *qs, uint8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = qs[i] & 15;
        q[i + 16] = qs[i] >> 4;
    }
}
static void fifth_bits(const unsigned char *qh, uint8_t *q)
{
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)((qh[i / 8] >> (i % 8) & 1) << 4);
}

static void q4_0(const unsigned char *b, uint8_t *q, float *d, float *m)
{
    (void)m;
    fill(d, 8, half_load_f16(b));
    nibbles(b + 2, q);
}
static void q4_1(const unsigned char *b, uint8_t *q, float *d, float *m)
{
    fill(d, 8, half_load_f16(b));
    fill(m, 8, half_load_f16(b + 2));
    nibbles(b + 4, q);
}
static void q5_0(const unsigned char *b, uint8_t *q, float *d, float *m)
{
    (void)m;
    fill(d, 8, half_load_f16(b));
    nibbles(b + 6, q);
    fifth_bits(b + 2, q);
}
static void q5_1(const unsigned char *b, uint8_t *q, float *d, float *m)
{
    fill(d, 8, half_load_f16(b));
    fill(m, 8, half_load_f16(b + 2));
    nibbles(b + 8, q);
    fifth_bits(b + 4, q);
}
static void q8_0(const unsigned char *b, uint8_t *q, float *d, float *m)
{
    (void)m;
    fill(d, 8, half_load_f16(b));
    for (int i = 0; i < 32; i++)
        q[i] = b[2 + i] ^ 0x80;
}
/* Twice the E2M1 values, plus 12; the scale is half of 2^(e-127). */
static const uint8_t e2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
static void mxfp4(const unsigned char *b, uint8_t *q, float *d, float *m)
{
    (void)m;
    uint32_t e = b[0];
    fill(d, 8, half_from_bits(e < 2 ? 0x200000u << e : (e - 1) << 23));
    nibbles(b + 1, q);
    for (int i = 0; i < 32; i++)
        q[i] = e2m1[q[i]];
}

/* The K types decode chunk c (of 4) of a block of 256. */
static void q2_k(const unsigned char *b, uint32_t c, struct cpu_wchunk *o)
{
    float d = half_load_f16(b + 80), dmin = half_load_f16(b + 82);
    const unsigned char *qs = b + 16 + 32 * (c / 2);
    for (uint32_t i = 0; i < 64; i++)
        o->q[i] = qs[i % 32] >> (4 * (c % 2) + 2 * (i / 32)) & 3;
    for (uint32_t s = 0; s < 4; s++) {
        fill(o->d + 4 * s, 4, d * (float)(b[4 * c + s] & 15));
        fill(o->m + 4 * s, 4, -(dmin * (float)(b[4 * c + s] >> 4)));
    }
}
/* Returns one of sixteen 6-bit scales in 12 bytes.  Bytes 0 to 7 have the 4 low bits of two scales each, and bytes 8
 * to 11 the 2 high bits. */
static int q3_k_scale(const unsigned char *s, uint32_t i)
{
    return ((s[i % 8] >> (4 * (i / 8)) & 15) | (s[8 + i % 4] >> (2 * (i / 4)) & 3) << 4) - 32;
}
static void q3_k(const unsigned char *b, uint32_t c, struct cpu_wchunk *o)
{
    float d = half_load_f16(b + 108);
    const unsigned char *qs = b + 32 + 32 * (c / 2);
    for (uint32_t i = 0; i < 64; i++)
        o->q[i] = (uint8_t)((qs[i % 32] >> (4 * (c % 2) + 2 * (i / 32)) & 3) |
                            (b[i % 32] >> (2 * c + i / 32) & 1) << 2);
    for (uint32_t s = 0; s < 4; s++)
        fill(o->d + 4 * s, 4, d * (float)q3_k_scale(b + 96, 4 * c + s));
}
/* Returns one of eight 6-bit scales and minima in 12 bytes. */
static void q4_k_scale(const unsigned char *s, uint32_t i, uint32_t *sc, uint32_t *mn)
{
    if (i < 4) {
        *sc = s[i] & 63;
        *mn = s[i + 4] & 63;
    } else {
        *sc = (s[i + 4] & 15) | (s[i - 4] >> 2 & 48);
        *mn = s[i + 4] >> 4 | (s[i] >> 2 & 48);
    }
}
static void q45_k(const unsigned char *b, uint32_t c, const unsigned char *qs,
                  const unsigned char *qh, struct cpu_wchunk *o)
{
    float d = half_load_f16(b), dmin = half_load_f16(b + 2);
    for (uint32_t i = 0; i < 64; i++) {
        o->q[i] = qs[32 * c + i % 32] >> (4 * (i / 32)) & 15;
        if (qh) o->q[i] |= (uint8_t)((qh[i % 32] >> (2 * c + i / 32) & 1) << 4);
    }
    for (uint32_t s = 0; s < 2; s++) {
        uint32_t sc, mn;
        q4_k_scale(b + 4, 2 * c + s, &sc, &mn);
        fill(o->d + 8 * s, 8, d * (float)sc);
        fill(o->m + 8 * s, 8, -(dmin * (float)mn));
    }
}
static void q4_k(const unsigned char *b, uint32_t c, struct cpu_wchunk *o)
{
    q45_k(b, c, b + 16, NULL, o);
}
static void q5_k(const unsigned char *b, uint32_t c, struct cpu_wchunk *o)
{
    q45_k(b, c, b + 48, b + 16, o);
}
static void q6_k(const unsigned char *b, uint32_t c, struct cpu_wchunk *o)
{
    float d = half_load_f16(b + 208);
    const unsigned char *ql = b + 64 * (c / 2), *qh = b + 128 + 32 * (c / 2);
    for (uint32_t i = 0; i < 64; i++)
        o->q[i] = (uint8_t)((ql[i] >> (4 * (c % 2)) & 15) |
                            (qh[i % 32] >> (4 * (c % 2) + 2 * (i / 32)) & 3) << 4);
    for (uint32_t s = 0; s < 4; s++)
        fill(o->d + 4 * s, 4, d * (float)(int8_t)b[192 + 4 * c + s]);
}

#define UNPACK_32(name, bytes)                                                                     \
    static void unpack_##name(const unsigned char *row, uint32_t k0, uint32_t k,                   \
                              struct cpu_wchunk *dst)                                              \
    {                                                                                              \
        const unsigned char *b = row + (size_t)(k0 / 32) * bytes;                                  \
        for (uint32_t i = 0; i < k / 32; i++, b += bytes) {                                        \
            struct cpu_wchunk *o = dst + i / 2;                                                    \
            name(b, o->q + 32 * (i % 2), o->d + 8 * (i % 2), o->m + 8 * (i % 2));                  \
        }                                                                                          \
    }
#define UNPACK_256(name, bytes)                                                                    \
    static void unpack_##name(const unsigned char *row, uint32_t k0, uint32_t k,                   \
                              struct cpu_wchunk *dst)                                              \
    {                                                                                              \
        const unsigned char *b = row + (size_t)(k0 / 256) * bytes;                                 \
        for (uint32_t c = 0; c < k / 64; c++)                                                      \
            name(b + (size_t)(c / 4) * bytes, c % 4, dst + c);                                     \
    }
/* X(enum name, function, block elements, block bytes) */
#define FORMATS(X)                                                                                 \
    X(Q4_0, q4_0, 32, 18)                                                                          \
    X(Q4_1, q4_1, 32, 20)                                                                          \
    X(Q5_0, q5_0, 32, 22)                                                                          \
    X(Q5_1, q5_1, 32, 24)                                                                          \
    X(Q8_0, q8_0, 32, 34)                                                                          \
    X(MXFP4, mxfp4, 32, 17)                                                                        \
    X(Q2_K, q2_k, 256, 84)                                                                         \
    X(Q3_K, q3_k, 256, 110)                                                                        \
    X(Q4_K, q4_k, 256, 144)                                                                        \
    X(Q5_K, q5_k, 256, 176)                                                                        \
    X(Q6_K, q6_k, 256, 210)
#define DEFINE(type, name, block, bytes)                                                           \
    UNPACK_##block(name, bytes) CPU_KERNEL(DEV_REF, CPU_UNPACK, DT_##type, unpack_##name);
FORMATS(DEFINE)

cpu_unpack_fn cpu_unpack_ref(enum dtype t)
{
    switch (t) {
#define CASE(type, name, block, bytes)                                                             \
    case DT_##type:                                                                                \
        return unpack_##name;
        FORMATS(CASE)
#undef CASE
    default:
        return NULL;
    }
}
