/* k_tensor.cu - products on tensor cores: weights of bf16, and quantized ones.
 *
 * A tile is 16 rows of the weight and 8 tokens.  The result of a tile does not depend on the other tokens of the
 * call.  The order of its sums is the same in both forms of a kernel.  In the form for few tokens the warps of a
 * block share the columns.  In the form for many (wide) each warp has rows of its own.  So decoding, and prefill in
 * any chunks, give the same bits.
 *
 * A step is 32 columns.  A thread has 8 adjacent columns of a step: 16 bytes of bf16, which are one load, or 8
 * codes.  The tensor cores may see the columns in any order, if weight and input agree on it.
 *
 * bf16       The input is rounded to bf16.  The columns are divided into 8 parts of whole steps.  A part is a chain
 * of
 *             steps from +0, and the parts are added in ascending order from +0.  A step is two products of the tensor
 *             cores, which have an order of their own.
 * quantized  Codes of a weight are bytes.  Activations have 16 bits: q = 256 * hi + lo.  So two products of bytes
 * give
 *             the exact sum of a block of columns, and the bits are those of THE CANONICAL ORDER (dev.h).  The sums of
 *             q that formats with an offset need are products with ones. */
#include "dev/cuda/k_weight.h"

enum { PARTS = 8, TILES = K_FEW / 8, WIDE_TILES = K_MANY / 8, STEP = 32, STAGED = 4 };

/* --- bf16 */
/* Returns the number of steps of a part. */
K_FN uint32_t steps_of(uint32_t k)
{
    return ((k + STEP - 1) / STEP + PARTS - 1) / PARTS;
}

/* Returns columns k and k + 1 of a row of the weight; zeros beyond its end. */
K_FN uint32_t two_weights(const struct k_tensor_args *a, uint32_t row, uint32_t k)
{
    if (row >= a->rows || k >= a->k) return 0;
    const unsigned char *p = a->w.data + (size_t)row * a->w.row_bytes + 2 * (size_t)k;
    return half_load(p) | (k + 1 == a->k ? 0 : (uint32_t)half_load(p + 2) << 16);
}
/* Returns the same columns of a token's input, rounded. */
K_FN uint32_t two_inputs(const struct k_tensor_args *a, uint32_t token, uint32_t k)
{
    if (token >= a->n || k >= a->k) return 0;
    const float *x = a->x + token * a->ldx + k;
    return k_two_bf16(x[0], k + 1 == a->k ? 0 : x[1]);
}

/* True if one load of 16 bytes can take 8 columns of any row and of any token: the number of columns is a multiple
 * of 8, and addresses are aligned. */
K_FN bool all_whole(const struct k_tensor_args *a)
{
    return a->k % 8 == 0 && a->w.row_bytes % 16 == 0 && (size_t)a->w.data % 16 == 0 &&
           a->ldx % 4 == 0 && (size_t)a->x % 16 == 0;
}

/* Reads columns k to k + 7 of a row of the weight. */
K_FN void eight_weights(const struct k_tensor_args *a, bool whole, uint32_t row, uint32_t k,
                        uint32_t *out)
{
    for (uint32_t i = 0; i < 4; i++)
        out[i] = whole ? 0 : two_weights(a, row, k + 2 * i);
    if (whole && row < a->rows && k < a->k)
        k_load16(a->w.data + (size_t)row * a->w.row_bytes + 2 * (size_t)k, out);
}

K_FN void eight_inputs(const struct k_tensor_args *a, bool whole, uint32_t token, uint32_t k,
                       uint32_t *out)
{
    uint32_t x[8];
    for (uint32_t i = 0; i < 4; i++)
        out[i] = whole ? 0 : two_inputs(a, token, k + 2 * i);
    if (!whole || token >= a->n || k >= a->k) return;
    k_load16(a->x + token * a->ldx + k, x);
    k_load16(a->x + token * a->ldx + k + 4, x + 4);
    for (uint32_t i = 0; i < 4; i++)
        out[i] = k_two_bf16(half_from_bits(x[2 * i]), half_from_bits(x[2 * i + 1]));
}

/* Reads a thread's words of 16 rows for a step: those of the first product, then those of the second. */
K_FN void step_weights(const struct k_tensor_args *a, bool whole, uint32_t row0, uint32_t step,
                       uint32_t lane, uint32_t *first, uint32_t *second)
{
    uint32_t w[2][4], k = step * STEP + lane % 4 * 8;
    eight_weights(a, whole, row0 + lane / 4, k, w[0]);
    eight_weights(a, whole, row0 + lane / 4 + 8, k, w[1]);
    for (uint32_t i = 0; i < 2; i++) {
        first[2 * i] = w[0][i];
        first[2 * i + 1] = w[1][i];
        second[2 * i] = w[0][2 + i];
        second[2 * i + 1] = w[1][2 + i];
    }
}

/* Declares the words of a step: weights of its two products, and inputs. */
#define STEP_WORDS                                                                                 \
    MINE_ARRAY(uint32_t, w0, 4);                                                                   \
    MINE_ARRAY(uint32_t, w1, 4);                                                                   \
    MINE_ARRAY(uint32_t, x0, 2);                                                                   \
    MINE_ARRAY(uint32_t, x1, 2)
/* Adds a step for 8 tokens from TOKEN on to acc[at ...]. */
#define STEP_TILE(in, whole, TOKEN, step, wa, wb, at)                                              \
    do {                                                                                           \
        EACH_LANE                                                                                  \
        {                                                                                          \
            uint32_t k_x[4];                                                                       \
            eight_inputs(in, whole, (TOKEN) + t % 32 / 4, (step)*STEP + t % 4 * 8, k_x);           \
            MY(x0)[0] = k_x[0], MY(x0)[1] = k_x[1];                                                \
            MY(x1)[0] = k_x[2], MY(x1)[1] = k_x[3];                                                \
        }                                                                                          \
        MMA_BF16(acc, at, wa, x0);                                                                 \
        MMA_BF16(acc, at, wb, x1);                                                                 \
    } while (0)

/* Computes the steps of a part, two at a time, so that more loads run at once. */
#define FEW_STEPS(in, whole)                                                                       \
    for (uint32_t s = 0; s < steps; s += 2) {                                                      \
        EACH_LANE                                                                                  \
        {                                                                                          \
            uint32_t k_s = t / 32 * steps + s;                                                     \
            step_weights(in, whole, row0, k_s, t % 32, MY(w0), MY(w1));                            \
            if (s + 1 < steps) step_weights(in, whole, row0, k_s + 1, t % 32, MY(w2), MY(w3));     \
        }                                                                                          \
        for (uint32_t j = 0; j < TILES; j++) {                                                     \
            if (t0 + 8 * j >= (in)->n) continue;                                                   \
            STEP_TILE(in, whole, t0 + 8 * j, t / 32 * steps + s, w0, w1, 4 * j);                   \
            if (s + 1 < steps)                                                                     \
                STEP_TILE(in, whole, t0 + 8 * j, t / 32 * steps + s + 1, w2, w3, 4 * j);           \
        }                                                                                          \
    }

KERNEL_OF(k_tensor, 3)
{
    SHARED(float, part, PARTS * 16 * K_FEW);
    MINE_ARRAY(float, acc, 4 * TILES);
    STEP_WORDS;
    MINE_ARRAY(uint32_t, w2, 4); /* words of the next step */
    MINE_ARRAY(uint32_t, w3, 4);
    struct k_tensor_args in = a;
    uint32_t row0 = BLOCK_X * 16, t0 = BLOCK_Y * K_FEW, steps = steps_of(a.k);
    PICK_SLOT(in, t0, a.ldx);
    EACH_LANE
    {
        for (uint32_t i = 0; i < 4 * TILES; i++)
            MY(acc)[i] = 0;
    }
    if (all_whole(&in))
        FEW_STEPS(&in, true)
    else
        FEW_STEPS(&in, false)
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
            if (row >= a.rows || token >= in.n) continue;
            for (uint32_t p = 0; p < PARTS; p++)
                y += part[p * 16 * K_FEW + i];
            in.y[token * a.ldy + row] = in.bias ? y + in.bias[row] : y;
        }
    }
}

/* Returns where 8 columns of a token are staged.  Threads that load together use different banks of shared memory. */
K_FN uint32_t staged_at(uint32_t token, uint32_t eighth)
{
    return (token * (STAGED * 4) + (eighth ^ token % 2 * 4)) * 4;
}

#define MANY_STEPS(in, whole)                                                                      \
    for (uint32_t s0 = 0; s0 < PARTS * steps; s0 += STAGED) {                                      \
        EACH_THREAD /* all threads are past what was staged before */                              \
        {                                                                                          \
        }                                                                                          \
        EACH_THREAD                                                                                \
        {                                                                                          \
            for (uint32_t i = 0; i < K_MANY * STAGED * 4 / K_THREADS; i++) {                       \
                uint32_t k_p = t + i * K_THREADS, token = k_p / (STAGED * 4), k_x[4];              \
                uint32_t eighth = k_p % (STAGED * 4);                                              \
                eight_inputs(in, whole, t0 + token, s0 * STEP + eighth * 8, k_x);                  \
                k_stage16(&staged[staged_at(token, eighth)], k_x);                                 \
            }                                                                                      \
        }                                                                                          \
        for (uint32_t s = 0; s < STAGED && s0 + s < PARTS * steps; s++) {                          \
            EACH_LANE step_weights(in, whole, (BLOCK_X * 8 + t / 32) * 16, s0 + s, t % 32, MY(w0), \
                                   MY(w1));                                                        \
            for (uint32_t j = 0; j < WIDE_TILES; j++) {                                            \
                EACH_LANE                                                                          \
                {                                                                                  \
                    uint32_t k_x[4];                                                               \
                    k_staged16(&staged[staged_at(j * 8 + t % 32 / 4, s * 4 + t % 4)], k_x);          \
                    MY(x0)[0] = k_x[0], MY(x0)[1] = k_x[1];                                        \
                    MY(x1)[0] = k_x[2], MY(x1)[1] = k_x[3];                                        \
                }                                                                                  \
                MMA_BF16(acc, 4 * j, w0, x0);                                                      \
                MMA_BF16(acc, 4 * j, w1, x1);                                                      \
            }                                                                                      \
            if (--left) continue;                                                                  \
            left = steps;                                                                          \
            EACH_LANE /* a part ends */                                                            \
            {                                                                                      \
                for (uint32_t i = 0; i < 4 * WIDE_TILES; i++) {                                    \
                    MY(sum)[i] += MY(acc)[i];                                                      \
                    MY(acc)[i] = 0;                                                                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

KERNEL_OF(k_tensor_wide, 2)
{
    const struct k_tensor_args *in = &a.a;
    SHARED(uint32_t, staged, K_MANY *STAGED * 16); /* [token][4 words of 8 columns] */
    MINE_ARRAY(float, acc, 4 * WIDE_TILES);
    MINE_ARRAY(float, sum, 4 * WIDE_TILES);
    STEP_WORDS;
    uint32_t t0 = BLOCK_Y * K_MANY, steps = steps_of(in->k), left = steps;
    EACH_LANE
    {
        for (uint32_t i = 0; i < 4 * WIDE_TILES; i++)
            MY(acc)[i] = MY(sum)[i] = 0;
    }
    if (all_whole(in))
        MANY_STEPS(in, true)
    else
        MANY_STEPS(in, false)
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

/* --- quantized: a block of columns has one scale, and is a step or half a step */
/* True if the weight has column k of group g. */
K_FN bool has_block(const struct k_product_q_args *a, uint32_t type, uint32_t g, uint32_t k)
{
    return g < a->groups && (weight_is_k(type) || g * K_GROUP + k < a->k);
}

/* Returns the columns of group g of a row. */
K_FN const unsigned char *group_at(const struct k_product_q_args *a, uint32_t type, uint32_t row,
                                   uint32_t g)
{
    return weight_block(type, a->w.data + (size_t)row * a->w.row_bytes, g * K_GROUP);
}

/* Reads a thread's codes of two rows from column k of a group on: 8 of each row, or 4 if a block is half a step. */
K_FN void two_codes(const struct k_product_q_args *a, uint32_t type, uint32_t row0, uint32_t g,
                    uint32_t k, uint32_t lane, uint32_t *out)
{
    bool half = weight_scaled(type) < STEP;
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t row = row0 + lane / 4 + r * 8, c[2] = {0, 0};
        const unsigned char *w = group_at(a, type, row, g);
        if (row < a->rows && has_block(a, type, g, k)) {
            if (half)
                c[0] = weight_four(type, w, k + lane % 4 * 4);
            else
                weight_eight(type, w, k + lane % 4 * 8, c);
        }
        out[r] = c[0];
        out[2 + r] = c[1];
    }
}

/* Reads the same columns of a token: the high bytes, and the low bytes. */
K_FN void token_codes(const struct k_product_q_args *a, uint32_t type, uint32_t token, uint32_t g,
                      uint32_t k, uint32_t lane, uint32_t *hi, uint32_t *lo)
{
    bool half = weight_scaled(type) < STEP;
    hi[0] = hi[1] = lo[0] = lo[1] = 0;
    if (token >= a->n || !has_block(a, type, g, k)) return;
    const struct k_group *x = &a->x[(size_t)token * a->groups + g];
    if (half) {
        hi[0] = k_load4(x->hi + k + lane % 4 * 4);
        lo[0] = k_load4(x->lo + k + lane % 4 * 4);
    } else {
        k_load8(x->hi + k + lane % 4 * 8, hi);
        k_load8(x->lo + k + lane % 4 * 8, lo);
    }
}

/* Reads the first 16 bytes of the 256 columns of two rows. */
K_FN void two_heads(const struct k_product_q_args *a, uint32_t type, uint32_t row0, uint32_t g,
                    uint32_t lane, uint32_t *out)
{
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t row = row0 + lane / 4 + r * 8;
        const unsigned char *w = group_at(a, type, row, g);
        out[4 * r] = out[4 * r + 1] = out[4 * r + 2] = out[4 * r + 3] = 0;
        if (row < a->rows && g < a->groups) k_load16(w, out + 4 * r);
    }
}

/* Reads the scales of a block of columns of these rows. */
K_FN void two_scales(const struct k_product_q_args *a, uint32_t type, uint32_t row0, uint32_t g,
                     uint32_t k, uint32_t lane, const uint32_t *head, float *d, float *m)
{
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t row = row0 + lane / 4 + r * 8;
        d[r] = m[r] = 0;
        const unsigned char *w = group_at(a, type, row, g);
        if (weight_headed(type)) /* rows beyond the end have zeros */
            weight_head_scale(head + 4 * r, k / 32, &d[r], &m[r]);
        else if (row < a->rows && has_block(a, type, g, k))
            weight_scale(type, w, k, &d[r], &m[r]);
    }
}

/* Adds a finished block of columns to the thread's sums of a group. */
K_FN void block_ends(float *s, const int32_t *hi, const int32_t *lo, const int32_t *xhi,
                     const int32_t *xlo, const float *d, const float *m, bool offset)
{
    /* xhi and xlo are products with ones, so they are the same for all rows */
    for (uint32_t i = 0; i < 4; i++) {
        s[i] = k_fma(d[i / 2], (float)(hi[i] * 256 + lo[i]), s[i]);
        if (offset) s[i] = k_fma(m[i / 2], (float)(xhi[i % 2] * 256 + xlo[i % 2]), s[i]);
    }
}

/* Declares the words of a block of columns: heads of 256 columns, codes, bytes, sums, scales. */
#define BLOCK_STATE                                                                                \
    MINE_ARRAY(uint32_t, head, 8);                                                                 \
    MINE_ARRAY(uint32_t, w, 4);                                                                    \
    MINE_ARRAY(uint32_t, ones, 4);                                                                 \
    MINE_ARRAY(uint32_t, x, 2);                                                                    \
    MINE_ARRAY(uint32_t, x_lo, 2);                                                                 \
    MINE_ARRAY(int32_t, hi, 4);                                                                    \
    MINE_ARRAY(int32_t, lo, 4);                                                                    \
    MINE_ARRAY(int32_t, xhi, 4);                                                                   \
    MINE_ARRAY(int32_t, xlo, 4);                                                                   \
    MINE_ARRAY(float, d, 2);                                                                       \
    MINE_ARRAY(float, m, 2)
/* Begins group GROUP for rows from ROW on. */
#define GROUP_BEGINS(in, GROUP, ROW)                                                               \
    EACH_LANE                                                                                      \
    {                                                                                              \
        for (uint32_t k_r = 0; k_r < 4; k_r++)                                                     \
            MY(ones)[k_r] = 0x01010101u;                                                           \
        if (weight_headed(type)) two_heads(in, type, ROW, GROUP, t % 32, MY(head));                \
    }
#define BLOCK_BEGINS(in, GROUP, i, ROW)                                                            \
    EACH_LANE                                                                                      \
    {                                                                                              \
        two_codes(in, type, ROW, GROUP, i, t % 32, MY(w));                                         \
        two_scales(in, type, ROW, GROUP, i, t % 32, MY(head), MY(d), MY(m));                       \
    }
/* Computes a block of columns, from column i of group GROUP on, for 8 tokens from TOKEN on, and adds it to s[at
 * ...]. */
#define BLOCK_TILE(in, GROUP, i, TOKEN, at)                                                        \
    do {                                                                                           \
        EACH_LANE token_codes(in, type, (TOKEN) + t % 32 / 4, GROUP, i, t % 32, MY(x), MY(x_lo));  \
        if (half) {                                                                                \
            MMA_S8_HALF(hi, w, x);                                                                 \
            MMA_U8_HALF(lo, w, x_lo);                                                              \
            if (offset) MMA_S8_HALF(xhi, ones, x);                                                 \
            if (offset) MMA_U8_HALF(xlo, ones, x_lo);                                              \
        } else {                                                                                   \
            MMA_S8(hi, w, x);                                                                      \
            MMA_U8(lo, w, x_lo);                                                                   \
            if (offset) MMA_S8(xhi, ones, x);                                                      \
            if (offset) MMA_U8(xlo, ones, x_lo);                                                   \
        }                                                                                          \
        EACH_LANE                                                                                  \
        {                                                                                          \
            if (has_block(in, type, GROUP, i))                                                     \
                block_ends(&MY(s)[at], MY(hi), MY(lo), MY(xhi), MY(xlo), MY(d), MY(m), offset);    \
        }                                                                                          \
    } while (0)

/* The loop over the groups of a kernel: once for each usual type, which is then a constant, and once for all other
 * types. */
#define BY_TYPE(loop, in, rounds)                                                                  \
    switch ((in)->w.type) {                                                                        \
    case DT_Q4_K:                                                                                  \
        loop(in, DT_Q4_K, rounds) break;                                                           \
    case DT_Q6_K:                                                                                  \
        loop(in, DT_Q6_K, rounds) break;                                                           \
    case DT_Q8_0:                                                                                  \
        loop(in, DT_Q8_0, rounds) break;                                                           \
    default:                                                                                       \
        loop(in, (in)->w.type, K_ROLL)                                                             \
    }

#define FEW_GROUPS(in, TYPE, rounds)                                                                       \
    for (uint32_t g0 = 0; g0 < (in)->groups; g0 += PARTS) {                                        \
        const uint32_t type = TYPE, scaled = weight_scaled(type);                                  \
        const bool offset = weight_has_min(type), half = scaled < STEP;                            \
        EACH_LANE                                                                                  \
        {                                                                                          \
            for (uint32_t i = 0; i < 4 * TILES; i++)                                               \
                MY(s)[i] = 0;                                                                      \
        }                                                                                          \
        GROUP_BEGINS(in, g0 + t / 32, row0);                                                       \
        rounds for (uint32_t i = 0; i < K_GROUP; i += scaled)                                      \
        {                                                                                          \
            BLOCK_BEGINS(in, g0 + t / 32, i, row0);                                                \
            for (uint32_t j = 0; j < TILES; j++)                                                   \
                if (t0 + 8 * j < (in)->n) BLOCK_TILE(in, g0 + t / 32, i, t0 + 8 * j, 4 * j);       \
        }                                                                                          \
        EACH_THREAD                                                                                \
        {                                                                                          \
            for (uint32_t i = 0; i < 4 * TILES; i++) {                                             \
                uint32_t row = t % 32 / 4 + i / 2 % 2 * 8, token = i / 4 * 8 + t % 4 * 2 + i % 2;  \
                part[(t / 32 * 16 + row) * K_FEW + token] = MY(s)[i];                              \
            }                                                                                      \
        }                                                                                          \
        EACH_THREAD                                                                                \
        {                                                                                          \
            for (uint32_t j = 0; j < 16 * K_FEW / K_THREADS; j++) {                                \
                uint32_t i = t + j * K_THREADS, token = t0 + i % K_FEW;                            \
                for (uint32_t p = 0; p < PARTS && g0 + p < (in)->groups && token < (in)->n; p++)   \
                    MY(y)[j] = k_fma((in)->x[(size_t)token * (in)->groups + g0 + p].d,             \
                                     part[p * 16 * K_FEW + i], MY(y)[j]);                          \
            }                                                                                      \
        }                                                                                          \
    }

KERNEL_OF(k_tensor_q, 3)
{
    SHARED(float, part, PARTS * 16 * K_FEW); /* sums of a group, for each warp */
    MINE_ARRAY(float, s, 4 * TILES);
    MINE_ARRAY(float, y, 16 * K_FEW / K_THREADS);
    BLOCK_STATE;
    struct k_product_q_args own = a.a;
    const struct k_product_q_args *in = &own;
    uint32_t row0 = BLOCK_X * 16, t0 = BLOCK_Y * K_FEW;
    PICK_SLOT(own, t0, own.groups);
    EACH_LANE
    {
        for (uint32_t i = 0; i < 16 * K_FEW / K_THREADS; i++)
            MY(y)[i] = 0;
    }
    BY_TYPE(FEW_GROUPS, in, K_UNROLL)
    EACH_LANE
    {
        for (uint32_t j = 0; j < 16 * K_FEW / K_THREADS; j++) {
            uint32_t i = t + j * K_THREADS, row = row0 + i / K_FEW, token = t0 + i % K_FEW;
            if (row < in->rows && token < in->n)
                in->y[token * in->ldy + row] = in->bias ? MY(y)[j] + in->bias[row] : MY(y)[j];
        }
    }
}

#define MANY_GROUPS(in, TYPE, rounds)                                                                      \
    for (uint32_t g = 0; g < (in)->groups; g++) {                                                  \
        const uint32_t type = TYPE, scaled = weight_scaled(type);                                  \
        const bool offset = weight_has_min(type), half = scaled < STEP;                            \
        EACH_LANE                                                                                  \
        {                                                                                          \
            for (uint32_t i = 0; i < 4 * WIDE_TILES; i++)                                          \
                MY(s)[i] = 0;                                                                      \
        }                                                                                          \
        GROUP_BEGINS(in, g, (BLOCK_X * 8 + t / 32) * 16);                                          \
        rounds for (uint32_t i = 0; i < K_GROUP; i += scaled)                                      \
        {                                                                                          \
            BLOCK_BEGINS(in, g, i, (BLOCK_X * 8 + t / 32) * 16);                                   \
            for (uint32_t j = 0; j < WIDE_TILES; j++)                                              \
                BLOCK_TILE(in, g, i, t0 + 8 * j, 4 * j);                                           \
        }                                                                                          \
        EACH_LANE                                                                                  \
        {                                                                                          \
            for (uint32_t i = 0; i < 4 * WIDE_TILES; i++) {                                        \
                uint32_t token = t0 + i / 4 * 8 + t % 4 * 2 + i % 2;                               \
                if (token < (in)->n)                                                               \
                    MY(y)[i] =                                                                     \
                        k_fma((in)->x[(size_t)token * (in)->groups + g].d, MY(s)[i], MY(y)[i]);    \
            }                                                                                      \
        }                                                                                          \
    }

KERNEL(k_tensor_q_wide)
{
    const struct k_product_q_args *in = &a.a;
    MINE_ARRAY(float, s, 4 * WIDE_TILES);
    MINE_ARRAY(float, y, 4 * WIDE_TILES);
    BLOCK_STATE;
    uint32_t t0 = BLOCK_Y * K_MANY;
    EACH_LANE
    {
        for (uint32_t i = 0; i < 4 * WIDE_TILES; i++)
            MY(y)[i] = 0;
    }
    BY_TYPE(MANY_GROUPS, in, K_ROLL)
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
