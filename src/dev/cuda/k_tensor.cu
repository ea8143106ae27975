/* k_tensor.cu - products on tensor cores: weights of bf16, and quantized ones.
 *
 * A tile is 16 rows of the weight and 8 tokens.  What a tile gives does not depend on the other tokens of the call, and the
 * order of its sums is the same in both forms of a kernel: for few tokens, where the warps of a block share the columns,
 * and for many (wide), where each warp has rows of its own.  So decoding and prefill in any chunks give the same bits.
 *
 *  bf16       The input is rounded to bf16.  The columns are 8 parts of whole steps of 16; a part is a chain of steps from
 *             +0, and the parts are added ascending from +0.  Inside of a step the tensor cores have their own order.
 *  quantized  Codes of a weight are bytes.  Activations have 16 bits: q = 256 * hi + lo, so two products of bytes give the exact sum
 *             of a block of columns, and the bits are those of THE CANONICAL ORDER (dev.h).  The sums of q that formats with
 *             an offset need are products with ones. */
#include "dev/cuda/k_weight.h"

enum { PARTS = 8, TILES = K_FEW / 8, WIDE_TILES = K_MANY / 8, STAGED = 4, STAGED_WORDS = 36 };

/* --- bf16 */
/* Steps of a part. */
K_FN uint32_t steps_of(uint32_t k)
{
    return ((k + 15) / 16 + PARTS - 1) / PARTS;
}

/* Columns k and k + 1 of a row of the weight; zeros beyond its end. */
K_FN uint32_t two_weights(const struct k_tensor_args *a, uint32_t row, uint32_t k)
{
    if (row >= a->rows || k >= a->k) return 0;
    const unsigned char *p = a->w.data + (size_t)row * a->w.row_bytes + 2 * (size_t)k;
    if (k + 1 == a->k) return half_load(p);
    if ((size_t)p % 4 == 0) return *(const uint32_t *)(const void *)p;
    return half_load(p) | (uint32_t)half_load(p + 2) << 16;
}

/* The same of a token's input, rounded. */
K_FN uint32_t two_inputs(const struct k_tensor_args *a, uint32_t token, uint32_t k)
{
    if (token >= a->n || k >= a->k) return 0;
    const float *x = a->x + token * a->ldx + k;
    return half_f32_to_bf16(x[0]) |
           (k + 1 == a->k ? 0 : (uint32_t)half_f32_to_bf16(x[1]) << 16);
}

K_FN void four_weights(const struct k_tensor_args *a, uint32_t row0, uint32_t step, uint32_t lane,
                       uint32_t *out)
{
    for (uint32_t r = 0; r < 4; r++)
        out[r] = two_weights(a, row0 + lane / 4 + r % 2 * 8, step * 16 + lane % 4 * 2 + r / 2 * 8);
}

KERNEL(k_tensor)
{
    SHARED(float, part, PARTS * 16 * K_FEW);
    MINE_ARRAY(float, acc, 4 * TILES);
    MINE_ARRAY(uint32_t, w, 4);
    MINE_ARRAY(uint32_t, x, 2 * TILES);
    struct k_tensor_args in = a;
    uint32_t row0 = BLOCK_X * 16, t0 = BLOCK_Y * K_FEW, steps = steps_of(a.k);
    PICK_SLOT(in, t0, a.ldx);
    EACH_LANE
    {
        for (uint32_t i = 0; i < 4 * TILES; i++)
            MY(acc)[i] = 0;
    }
    for (uint32_t s = 0; s < steps; s++) {
        EACH_LANE
        {
            uint32_t lane = t % 32, step = t / 32 * steps + s, k = step * 16 + lane % 4 * 2;
            four_weights(&in, row0, step, lane, MY(w));
            for (uint32_t j = 0; j < 2 * TILES; j++)
                if (t0 + j / 2 * 8 < in.n)
                    MY(x)[j] = two_inputs(&in, t0 + j / 2 * 8 + lane / 4, k + j % 2 * 8);
        }
        for (uint32_t j = 0; j < TILES; j++)
            if (t0 + 8 * j < in.n) MMA_BF16(acc, 4 * j, w, x, 2 * j);
    }
    EACH_THREAD
    {
        for (uint32_t i = 0; i < 4 * TILES; i++) {
            uint32_t row = t % 32 / 4 + i / 2 % 2 * 8, token = i / 4 * 8 + t % 4 * 2 + i % 2;
            part[(t / 32 * 16 + row) * K_FEW + token] = MY(acc)[i];
        }
    }
    EACH_LANE
    {
        for (uint32_t i = t; i < 16 * K_FEW; i += K_THREADS) {
            uint32_t row = row0 + i / K_FEW, token = t0 + i % K_FEW;
            float y = 0;
            for (uint32_t p = 0; p < PARTS; p++)
                y += part[p * 16 * K_FEW + i];
            if (row < a.rows && token < in.n)
                in.y[token * a.ldy + row] = in.bias ? y + in.bias[row] : y;
        }
    }
}

KERNEL(k_tensor_wide)
{
    const struct k_tensor_args *in = &a.a;
    SHARED(uint32_t, staged, K_MANY * STAGED_WORDS); /* [token][8 words of each step] */
    MINE_ARRAY(float, acc, 4 * WIDE_TILES);
    MINE_ARRAY(float, sum, 4 * WIDE_TILES);
    MINE_ARRAY(uint32_t, w, 4);
    MINE_ARRAY(uint32_t, x, 2);
    uint32_t t0 = BLOCK_Y * K_MANY, steps = steps_of(in->k);
    EACH_LANE
    {
        for (uint32_t i = 0; i < 4 * WIDE_TILES; i++)
            MY(acc)[i] = MY(sum)[i] = 0;
    }
    for (uint32_t s = 0; s < PARTS * steps; s++) {
        if (s % STAGED == 0) {
            EACH_THREAD /* all threads are past what was staged before */
            {
            }
            EACH_THREAD
            {
                for (uint32_t i = t; i < K_MANY * 8 * STAGED; i += K_THREADS) {
                    uint32_t token = i / (8 * STAGED), c = i % (8 * STAGED);
                    staged[token * STAGED_WORDS + c] = two_inputs(in, t0 + token, s * 16 + 2 * c);
                }
            }
        }
        EACH_LANE four_weights(in, (BLOCK_X * 8 + t / 32) * 16, s, t % 32, MY(w));
        for (uint32_t j = 0; j < WIDE_TILES; j++) {
            EACH_LANE
            {
                const uint32_t *from =
                    &staged[(j * 8 + t % 32 / 4) * STAGED_WORDS + s % STAGED * 8 + t % 4];
                MY(x)[0] = from[0];
                MY(x)[1] = from[4];
            }
            MMA_BF16(acc, 4 * j, w, x, 0);
        }
        if ((s + 1) % steps) continue;
        EACH_LANE /* a part ends */
        {
            for (uint32_t i = 0; i < 4 * WIDE_TILES; i++) {
                MY(sum)[i] += MY(acc)[i];
                MY(acc)[i] = 0;
            }
        }
    }
    EACH_LANE
    {
        for (uint32_t i = 0; i < 4 * WIDE_TILES; i++) {
            uint32_t row = (BLOCK_X * 8 + t / 32) * 16 + t % 32 / 4 + i / 2 % 2 * 8;
            uint32_t token = t0 + i / 4 * 8 + t % 4 * 2 + i % 2;
            if (row < in->rows && token < in->n)
                in->y[token * in->ldy + row] =
                    in->bias ? MY(sum)[i] + in->bias[row] : MY(sum)[i];
        }
    }
}

/* --- quantized */
/* Codes of columns k to k + 3 of rows row0 + lane / 4 and 8 further, as bytes. */
K_FN void eight_codes(const struct k_product_q_args *a, uint32_t row0, uint32_t k, uint32_t lane,
                      uint32_t *out)
{
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t row = row0 + lane / 4 + r * 8, c = k + lane % 4 * 4;
        const unsigned char *w = a->w.data + (size_t)row * a->w.row_bytes;
        out[r] = 0;
        for (uint32_t i = 0; i < 4 && row < a->rows && k < a->k; i++)
            out[r] |= (uint32_t)(weight_code(a->w.type, w, c + i) & 255) << 8 * i;
    }
}

/* Columns k to k + 3 of a token in a group: the high bytes, and the low ones. */
K_FN void eight_bytes(const struct k_product_q_args *a, uint32_t token, uint32_t g, uint32_t k,
                      uint32_t *out)
{
    out[0] = out[1] = 0;
    if (token >= a->n || g >= a->groups || g * K_GROUP + k >= a->k) return;
    const int16_t *q = a->x[(size_t)token * a->groups + g].q + k;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t x = (uint16_t)q[i];
        out[0] |= (x >> 8) << 8 * i;
        out[1] |= (x & 255) << 8 * i;
    }
}

/* Scales of a block of columns: of rows row0 + lane / 4 and 8 further. */
K_FN void two_scales(const struct k_product_q_args *a, uint32_t row0, uint32_t k, uint32_t lane,
                     float *d, float *m)
{
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t row = row0 + lane / 4 + r * 8;
        d[r] = m[r] = 0;
        if (row < a->rows && k < a->k)
            weight_scale(a->w.type, a->w.data + (size_t)row * a->w.row_bytes, k, &d[r], &m[r]);
    }
}

/* What a thread adds to its sums of a group when a block of columns is done. */
K_FN void block_ends(float *s, const int32_t *hi, const int32_t *lo, const int32_t *xhi,
                     const int32_t *xlo, const float *d, const float *m, bool offset)
{
    for (uint32_t i = 0; i < 4; i++) {
        s[i] = k_fma(d[i / 2], (float)(hi[i] * 256 + lo[i]), s[i]);
        if (offset) s[i] = k_fma(m[i / 2], (float)(xhi[i] * 256 + xlo[i]), s[i]);
    }
}

/* The words of a block of columns: codes of two steps, bytes of a step, sums, scales. */
#define BLOCK_STATE                                                                                \
    MINE_ARRAY(uint32_t, w, 2);                                                                    \
    MINE_ARRAY(uint32_t, w2, 2);                                                                   \
    MINE_ARRAY(uint32_t, ones, 2);                                                                 \
    MINE_ARRAY(uint32_t, x, 2);                                                                    \
    MINE_ARRAY(int32_t, hi, 4);                                                                    \
    MINE_ARRAY(int32_t, lo, 4);                                                                    \
    MINE_ARRAY(int32_t, xhi, 4);                                                                   \
    MINE_ARRAY(int32_t, xlo, 4);                                                                   \
    MINE_ARRAY(float, d, 2);                                                                       \
    MINE_ARRAY(float, m, 2)
/* A block of columns from column i of group GROUP on, for rows from ROW on and tokens from TOKEN on, into s from `at` on. */
#define BLOCK_TILE(in, GROUP, i, TOKEN, at)                                                        \
    do {                                                                                           \
        EACH_LANE                                                                                  \
        {                                                                                          \
            for (uint32_t k_r = 0; k_r < 4; k_r++)                                                 \
                MY(hi)[k_r] = MY(lo)[k_r] = MY(xhi)[k_r] = MY(xlo)[k_r] = 0;                       \
            eight_bytes(in, (TOKEN) + t % 32 / 4, GROUP, (i) + t % 4 * 4, MY(x));                  \
        }                                                                                          \
        STEP_TILE(w);                                                                              \
        if (scaled > 16) {                                                                         \
            EACH_LANE eight_bytes(in, (TOKEN) + t % 32 / 4, GROUP, (i) + 16 + t % 4 * 4, MY(x));   \
            STEP_TILE(w2);                                                                         \
        }                                                                                          \
        EACH_LANE                                                                                  \
        {                                                                                          \
            if ((GROUP) * K_GROUP + (i) < (in)->k)                                                 \
                block_ends(&MY(s)[at], MY(hi), MY(lo), MY(xhi), MY(xlo), MY(d), MY(m), offset);    \
        }                                                                                          \
    } while (0)
#define STEP_TILE(codes)                                                                           \
    do {                                                                                           \
        MMA_S8(hi, 0, codes, x, 0);                                                                \
        MMA_U8(lo, 0, codes, x, 1);                                                                \
        if (offset) {                                                                              \
            MMA_S8(xhi, 0, ones, x, 0);                                                            \
            MMA_U8(xlo, 0, ones, x, 1);                                                            \
        }                                                                                          \
    } while (0)
#define BLOCK_BEGINS(in, GROUP, i, ROW)                                                            \
    EACH_LANE                                                                                      \
    {                                                                                              \
        uint32_t k_c = (GROUP) * K_GROUP + (i);                                                    \
        MY(ones)[0] = MY(ones)[1] = 0x01010101u;                                                   \
        eight_codes(in, ROW, k_c, t % 32, MY(w));                                                  \
        if (scaled > 16) eight_codes(in, ROW, k_c + 16, t % 32, MY(w2));                           \
        two_scales(in, ROW, k_c, t % 32, MY(d), MY(m));                                            \
    }

KERNEL(k_tensor_q)
{
    const struct k_product_q_args *in = &a.a;
    SHARED(float, part, PARTS * 16 * K_FEW); /* sums of a group for each warp */
    MINE_ARRAY(float, s, 4 * TILES);
    MINE_ARRAY(float, y, 16 * K_FEW / K_THREADS);
    BLOCK_STATE;
    uint32_t row0 = BLOCK_X * 16, t0 = BLOCK_Y * K_FEW, scaled = weight_scaled(in->w.type);
    bool offset = weight_has_min(in->w.type);
    EACH_LANE
    {
        for (uint32_t i = 0; i < 16 * K_FEW / K_THREADS; i++)
            MY(y)[i] = 0;
    }
    for (uint32_t g0 = 0; g0 < in->groups; g0 += PARTS) {
        EACH_LANE
        {
            for (uint32_t i = 0; i < 4 * TILES; i++)
                MY(s)[i] = 0;
        }
        for (uint32_t i = 0; i < K_GROUP; i += scaled) {
            BLOCK_BEGINS(in, g0 + t / 32, i, row0);
            for (uint32_t j = 0; j < TILES; j++)
                if (t0 + 8 * j < in->n) BLOCK_TILE(in, g0 + t / 32, i, t0 + 8 * j, 4 * j);
        }
        EACH_THREAD
        {
            for (uint32_t i = 0; i < 4 * TILES; i++) {
                uint32_t row = t % 32 / 4 + i / 2 % 2 * 8, token = i / 4 * 8 + t % 4 * 2 + i % 2;
                part[(t / 32 * 16 + row) * K_FEW + token] = MY(s)[i];
            }
        }
        EACH_THREAD
        {
            for (uint32_t i = t, j = 0; i < 16 * K_FEW; i += K_THREADS, j++) {
                uint32_t token = t0 + i % K_FEW;
                for (uint32_t p = 0; p < PARTS && g0 + p < in->groups && token < in->n; p++)
                    MY(y)[j] = k_fma(in->x[(size_t)token * in->groups + g0 + p].d,
                                     part[p * 16 * K_FEW + i], MY(y)[j]);
            }
        }
    }
    EACH_LANE
    {
        for (uint32_t i = t, j = 0; i < 16 * K_FEW; i += K_THREADS, j++) {
            uint32_t row = row0 + i / K_FEW, token = t0 + i % K_FEW;
            if (row < in->rows && token < in->n)
                in->y[token * in->ldy + row] = in->bias ? MY(y)[j] + in->bias[row] : MY(y)[j];
        }
    }
}

KERNEL(k_tensor_q_wide)
{
    const struct k_product_q_args *in = &a.a;
    MINE_ARRAY(float, s, 4 * WIDE_TILES);
    MINE_ARRAY(float, y, 4 * WIDE_TILES);
    BLOCK_STATE;
    uint32_t t0 = BLOCK_Y * K_MANY, scaled = weight_scaled(in->w.type);
    bool offset = weight_has_min(in->w.type);
    EACH_LANE
    {
        for (uint32_t i = 0; i < 4 * WIDE_TILES; i++)
            MY(y)[i] = 0;
    }
    for (uint32_t g = 0; g < in->groups; g++) {
        EACH_LANE
        {
            for (uint32_t i = 0; i < 4 * WIDE_TILES; i++)
                MY(s)[i] = 0;
        }
        for (uint32_t i = 0; i < K_GROUP; i += scaled) {
            BLOCK_BEGINS(in, g, i, (BLOCK_X * 8 + t / 32) * 16);
            for (uint32_t j = 0; j < WIDE_TILES; j++)
                BLOCK_TILE(in, g, i, t0 + 8 * j, 4 * j);
        }
        EACH_LANE
        {
            for (uint32_t i = 0; i < 4 * WIDE_TILES; i++) {
                uint32_t token = t0 + i / 4 * 8 + t % 4 * 2 + i % 2;
                if (token < in->n)
                    MY(y)[i] = k_fma(in->x[(size_t)token * in->groups + g].d, MY(s)[i], MY(y)[i]);
            }
        }
    }
    EACH_LANE
    {
        for (uint32_t i = 0; i < 4 * WIDE_TILES; i++) {
            uint32_t row = (BLOCK_X * 8 + t / 32) * 16 + t % 32 / 4 + i / 2 % 2 * 8;
            uint32_t token = t0 + i / 4 * 8 + t % 4 * 2 + i % 2;
            if (row < in->rows && token < in->n)
                in->y[token * in->ldy + row] = in->bias ? MY(y)[i] + in->bias[row] : MY(y)[i];
        }
    }
}
