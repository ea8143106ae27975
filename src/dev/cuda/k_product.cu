/* k_product.cu - products with weights in their encoded form, and rows of an embedding table.
 *
 * Half a warp computes an output.  Its 16 lanes are those of sum16 (dev.h), so the order of the sum is that of the
 * CPU, and neither the grid nor the tokens of a call change a bit.  A block has 16 rows of the weight and K_TOKENS
 * tokens.  Activations for quantized weights have 16 bits: a lane computes the integer sums of a group of 256
 * columns, and the first lane adds the groups in order. */
#include "dev/cuda/k_weight.h"

KERNEL(k_embed)
{
    EACH_VALUE(i, a.n)
    {
        size_t token = i / a.cols;
        const unsigned char *row = a.w.data + (size_t)a.id[token] * a.w.row_bytes;
        a.out[i] = weight_value(a.w.type, row, (uint32_t)(i % a.cols));
    }
}

KERNEL(k_quantize)
{
    SHARED(uint32_t, top, K_THREADS);
    const float *x = a.x + BLOCK_Y * a.ldx + (size_t)BLOCK_X * K_GROUP;
    struct k_group *out = a.out + (size_t)BLOCK_Y * a.groups + BLOCK_X;
    uint32_t left = a.k - BLOCK_X * K_GROUP, n = left < K_GROUP ? left : K_GROUP;
    EACH_THREAD top[t] = t < n ? half_bits(x[t]) & 0x7fffffffu : 0;
    LARGEST(top);
    EACH_THREAD
    {
        bool finite = top[0] < 0x7f800000u, none = half_from_bits(top[0]) < 0x1p-100f;
        float amax = half_from_bits(top[0]), by = 32512.0f / amax;
        const float round = 0x1.8p+23f;
        if (t == 0) out->d = !finite ? half_from_bits(0x7fc00000u) : none ? 0 : amax / 32512.0f;
        int q = t < n && finite && !none ? (int)((x[t] * by + round) - round) : 0;
        if (t < n) out->hi[t] = (int8_t)((q - (q & 255)) / 256);
        if (t < n) out->lo[t] = (uint8_t)(q & 255);
    }
}

KERNEL(k_product)
{
    MINE_ARRAY(float, sum, K_TOKENS);
    MINE(float, y);
    struct k_product_args in = a;
    uint32_t t0 = BLOCK_Y * K_TOKENS;
    PICK_SLOT(in, t0, a.ldx);
    uint32_t tokens = in.n - t0 < K_TOKENS ? in.n - t0 : K_TOKENS;
    EACH_THREAD
    {
        uint32_t row = BLOCK_X * K_ROWS + t / 16;
        const unsigned char *w = in.w.data + (size_t)row * in.w.row_bytes;
        for (uint32_t i = 0; i < K_TOKENS; i++)
            MY(sum)[i] = 0;
        for (uint32_t k = t % 16; row < a.rows && k < a.k; k += 16) {
            float v = weight_value(in.w.type, w, k);
            for (uint32_t i = 0; i < tokens; i++) {
                float x = in.x[(t0 + i) * a.ldx + k];
                MY(sum)[i] = k_fma(a.round ? k_round(DT_BF16, x) : x, v, MY(sum)[i]);
            }
        }
    }
    for (uint32_t i = 0; i < tokens; i++) {
        EACH_THREAD MY(y) = MY(sum)[i];
        TREE16(y);
        EACH_THREAD
        {
            uint32_t row = BLOCK_X * K_ROWS + t / 16;
            if (t % 16 == 0 && row < a.rows)
                in.y[(t0 + i) * a.ldy + row] = in.bias ? MY(y) + in.bias[row] : MY(y);
        }
    }
}

/* Returns the sum of a group of n columns from column k on. */
K_FN float group_sum(uint32_t type, const unsigned char *w, const struct k_group *x, uint32_t k,
                     uint32_t n)
{
    float s = 0, d, m;
    uint32_t scaled = weight_scaled(type);
    for (uint32_t i = 0; i < n; i += scaled) {
        int32_t sum = 0, xsum = 0;
        for (uint32_t j = i; j < i + scaled; j++) {
            int32_t q = x->hi[j] * 256 + x->lo[j];
            sum += weight_code(type, w, k + j) * q;
            xsum += q;
        }
        weight_scale(type, w, k + i, &d, &m);
        s = k_fma(d, (float)sum, s);
        if (weight_has_min(type)) s = k_fma(m, (float)xsum, s);
    }
    return s;
}

KERNEL(k_product_q)
{
    SHARED(float, part, K_THREADS);
    MINE(float, y);
    struct k_product_q_args in = a;
    uint32_t t0 = BLOCK_Y * K_TOKENS;
    PICK_SLOT(in, t0, a.groups);
    uint32_t tokens = in.n - t0 < K_TOKENS ? in.n - t0 : K_TOKENS;
    for (uint32_t i = 0; i < tokens; i++) {
        const struct k_group *x = in.x + (size_t)(t0 + i) * a.groups;
        EACH_THREAD MY(y) = 0;
        for (uint32_t g0 = 0; g0 < a.groups; g0 += 16) {
            EACH_THREAD
            {
                uint32_t row = BLOCK_X * K_ROWS + t / 16, g = g0 + t % 16, k = g * K_GROUP;
                const unsigned char *w = in.w.data + (size_t)row * in.w.row_bytes;
                if (row < a.rows && g < a.groups)
                    part[t] =
                        group_sum(in.w.type, w, &x[g], k, a.k - k < K_GROUP ? a.k - k : K_GROUP);
            }
            EACH_THREAD
            {
                for (uint32_t g = g0; t % 16 == 0 && g < g0 + 16 && g < a.groups; g++)
                    MY(y) = k_fma(x[g].d, part[t + g - g0], MY(y));
            }
        }
        EACH_THREAD
        {
            uint32_t row = BLOCK_X * K_ROWS + t / 16;
            if (t % 16 == 0 && row < a.rows)
                in.y[(t0 + i) * a.ldy + row] = in.bias ? MY(y) + in.bias[row] : MY(y);
        }
    }
}
