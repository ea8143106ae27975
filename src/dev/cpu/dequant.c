/* dequant.c - weights to f32, exactly as the formats define, and rows of an embedding table.
 * value = d * (q - zero), then + m where the format has an offset: two roundings, never a fused one. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"
#include "dev/four.h"

#include <string.h>

bool dev_weight_supported(enum dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16 ||
           ((unsigned)t < DT_COUNT && cpu_format[t].quantized);
}

static void f32_to_f32(const void *src, float *dst, size_t n)
{
    memcpy(dst, src, n * 4);
}
typedef uint16_t four_halves __attribute__((vector_size(8)));

/* Converts four values at a time, with the bits of half_f16_to_f32.  An exact product moves the exponent, which
 * serves subnormal values, too.  Then values that are not finite get the largest exponent, and a NaN becomes quiet. */
static void f16_to_f32(const void *src, float *dst, size_t n)
{
    const unsigned char *from = src;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        four_halves h;
        memcpy(&h, from + 2 * i, sizeof h);
        four_words u = __builtin_convertvector(h, four_words), size = u & 0x7fff;
        four_words x = (four_words)((four)(size << 13) * 0x1p112f);
        x |= (four_words)(size >= 0x7c00) & 0x7f800000u;
        x |= (four_words)(size > 0x7c00) & 0x400000u;
        x |= (u & 0x8000) << 16;
        memcpy(dst + i, &x, sizeof x);
    }
    for (; i < n; i++)
        dst[i] = half_load_f16(from + 2 * i);
}
static void bf16_to_f32(const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = half_bf16_to_f32(half_load((const unsigned char *)src + 2 * i));
}

static void quant_to_f32(enum dtype t, const unsigned char *src, float *dst, size_t n)
{
    cpu_unpack_fn unpack = cpu_unpack_ref(t);
    const struct cpu_format *f = &cpu_format[t];
    size_t block_bytes = 256 / dtype_block(t) * dtype_size(t);
    struct cpu_wchunk c[4];
    for (size_t k = 0; k < n; k += 256, src += block_bytes) {
        uint32_t m = (uint32_t)MIN(n - k, 256);
        unpack(src, 0, m, c);
        for (uint32_t i = 0; i < m; i++) {
            const struct cpu_wchunk *w = &c[i / 64];
            float v = w->d[i % 64 / 4] * (float)(w->q[i % 64] - f->zero);
            dst[k + i] = f->has_min ? v + w->m[i % 64 / 4] : v;
        }
    }
}

#define QUANT(type)                                                                                \
    static void type##_to_f32(const void *src, float *dst, size_t n)                               \
    {                                                                                              \
        quant_to_f32(DT_##type, src, dst, n);                                                      \
    }                                                                                              \
    CPU_KERNEL(DEV_REF, CPU_TO_F32, DT_##type, type##_to_f32)
QUANT(Q4_0);
QUANT(Q4_1);
QUANT(Q5_0);
QUANT(Q5_1);
QUANT(Q8_0);
QUANT(Q2_K);
QUANT(Q3_K);
QUANT(Q4_K);
QUANT(Q5_K);
QUANT(Q6_K);
QUANT(MXFP4);
CPU_KERNEL(DEV_REF, CPU_TO_F32, DT_F32, f32_to_f32);
CPU_KERNEL(DEV_REF, CPU_TO_F32, DT_F16, f16_to_f32);
CPU_KERNEL(DEV_REF, CPU_TO_F32, DT_BF16, bf16_to_f32);

void dev_to_f32(enum dtype t, const void *src, float *dst, size_t n)
{
    if (t == DT_F32)
        f32_to_f32(src, dst, n);
    else if (t == DT_F16)
        f16_to_f32(src, dst, n);
    else if (t == DT_BF16)
        bf16_to_f32(src, dst, n);
    else if (dev_weight_supported(t))
        quant_to_f32(t, src, dst, n);
}

struct embed {
    const unsigned char *data;
    size_t row_bytes;
    uint32_t cols;
    const int32_t *id;
    float *out;
    cpu_to_f32_fn to_f32;
};

static void embed_token(void *ctx, uint32_t t, uint32_t thread)
{
    const struct embed *e = ctx;
    (void)thread;
    e->to_f32(e->data + (size_t)e->id[t] * e->row_bytes, e->out + (size_t)t * e->cols, e->cols);
}

void cpu_embed(struct dev_queue *d, const struct dev_weight *w, const int32_t *id, uint32_t n,
               float *out)
{
    struct embed e = {w->data, 0,   w->cols,
                      id,      out, (cpu_to_f32_fn)cpu_kernel_get(d, CPU_TO_F32, w->dtype)};
    dtype_bytes(w->dtype, w->cols, &e.row_bytes);
    pool_run(d->pool, n, embed_token, &e);
}
