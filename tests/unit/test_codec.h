/* test_codec.h - the rows of a tile laid out by hand, for the tests of codecs. */
#pragma once
#include "codecs.h"
#include "dev/affine.h"
#include "dev/cpu/half.h"
#include "dev/row.h"
#include "testing.h"

static inline void put(enum dtype t, void *p, size_t i, float x)
{
    uint16_t h;
    if (t == DT_F32) {
        memcpy((unsigned char *)p + 4 * i, &x, 4);
        return;
    }
    h = t == DT_F16 ? half_f32_to_f16(x) : half_f32_to_bf16(x);
    memcpy((unsigned char *)p + 2 * i, &h, 2);
}

/* Returns the place of (row, d) of a head in a block of `rows` rows. */
static inline size_t at_of(const struct kv_shape *s, uint32_t rows, uint32_t head, uint32_t r,
                           uint32_t d)
{
    size_t i = (size_t)head * rows * s->dim;
    return i + (s->layout == KV_STRIPS ? ((size_t)(r / 16) * s->dim + d) * 16 + r % 16
                                       : (size_t)r * s->dim + d);
}

/* Quantizes a tile of given rows with a codec and dequantizes it to [row][dim] of one head. */
static inline void through(const struct kv_codec *c, const struct kv_shape *s, const float *x,
                           uint32_t lead, float *y)
{
    uint32_t block = MAX(c->tile, 16u), n = c->tile * s->dim;
    void *raw = calloc((size_t)block * s->dim * s->heads, 4), *back = calloc(block * s->dim, 4);
    void *dst = malloc(c->bytes(c, s));
    memset(dst, 0xff, c->bytes(c, s));
    for (uint32_t h = 0; h < s->heads; h++)
        for (uint32_t i = 0; i < n; i++)
            put(s->dtype, raw, at_of(s, block, h, i / s->dim, i % s->dim), x[h * n + i]);
    const void *blocks = raw;
    kv_tile_encode(c, s, dst, &blocks, block, 0, lead);
    for (uint32_t h = 0; h < s->heads; h++) {
        c->decode(c, s, h, back, 0, dst);
        for (uint32_t i = 0; i < n; i++)
            y[h * n + i] = kv_row_get(s->dtype, back, at_of(s, block, 0, i / s->dim, i % s->dim));
    }
    free(raw);
    free(back);
    free(dst);
}

static uint32_t seed = 1;
static inline float uniform(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed * 0x1p-31f;
}
