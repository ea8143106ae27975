/* dispatch.c - the functions of dev.h: each calls the operation in the table of its device; and which kind dev_open opens. */
#include "dev/ops.h"

#include <stdlib.h>
#include <string.h>

extern const struct dev_kind *const __start_kvik_dev[] __attribute__((visibility("hidden")));
extern const struct dev_kind *const __stop_kvik_dev[] __attribute__((visibility("hidden")));

/* The struct dev of each kind begins with its table. */
static inline const struct dev_ops *ops(const struct dev *d)
{
    const struct dev_ops *op = &dev_cpu;
    if (d) memcpy(&op, d, sizeof op);
    return op;
}

int dev_open_kind(const char *name, const struct dev_config *c, struct dev **out)
{
    for (const struct dev_kind *const *k = __start_kvik_dev; k < __stop_kvik_dev; k++)
        if (strcmp((*k)->name, name) == 0) return (*k)->open(c, out);
    return ERR(UNSUPPORTED, "there is no device '%.40s' ($KVIK_DEVICE)", name);
}

int dev_open(const struct dev_config *c, struct dev **out)
{
    const char *name = getenv("KVIK_DEVICE");
    return dev_open_kind(name && *name ? name : "cpu", c, out);
}

void dev_close(struct dev *d)
{
    if (d) ops(d)->close(d);
}

const char *dev_isa_name(const struct dev *d)
{
    return ops(d)->isa(d);
}

uint32_t dev_threads(const struct dev *d)
{
    return ops(d)->threads(d);
}

void dev_each(struct dev *d, uint32_t n, pool_fn fn, void *ctx)
{
    ops(d)->each(d, n, fn, ctx);
}

int dev_reserve(struct dev *d, const struct dev_limits *lim)
{
    return ops(d)->reserve(d, lim);
}

void *dev_alloc(struct dev *d, size_t n)
{
    return ops(d)->alloc(d, n);
}

void *dev_weights(struct dev *d, const void *host, size_t n)
{
    return ops(d)->weights(d, host, n);
}

void *dev_mirror(struct dev *d, const void *host, size_t n)
{
    return ops(d)->mirror(d, host, n);
}

void dev_mirror_close(struct dev *d, void *at, size_t n)
{
    if (at) ops(d)->mirror_close(d, at, n);
}

void *dev_lend(struct dev *d, const void *host, size_t n)
{
    return ops(d)->lend(d, host, n);
}

bool dev_is_host(const struct dev *d)
{
    return ops(d)->is_host;
}

void dev_put(struct dev *d, void *at, const void *host, size_t n)
{
    ops(d)->put(d, at, host, n);
}

void dev_get(struct dev *d, void *host, const void *at, size_t n)
{
    ops(d)->get(d, host, at, n);
}

void *dev_range(struct dev *d, size_t n)
{
    return ops(d)->range(d, n);
}

void dev_range_close(struct dev *d, void *at, size_t n)
{
    ops(d)->range_close(d, at, n);
}

int dev_range_set(struct dev *d, void *at, size_t n, enum dev_range_as as)
{
    return ops(d)->range_set(d, at, n, as);
}

const void *dev_look(struct dev *d, const void *at, size_t n, void *room)
{
    return ops(d)->look(d, at, n, room);
}

void dev_move(struct dev *d, void *to, const void *from, size_t n, size_t parts, size_t stride)
{
    ops(d)->move(d, to, from, n, parts, stride);
}

void dev_matmul(struct dev *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n,
                const struct dev_mm *mm, uint32_t n_mm)
{
    ops(d)->matmul(d, mode, x, ldx, n, mm, n_mm);
}

void dev_embed(struct dev *d, const struct dev_weight *w, const int32_t *id, uint32_t n, float *out)
{
    ops(d)->embed(d, w, id, n, out);
}

void dev_rmsnorm(struct dev *d, const float *x, const float *w, float eps, uint32_t n, uint32_t dim,
                 float *out)
{
    ops(d)->norm(d, DEV_RMSNORM, x, w, NULL, eps, n, dim, out);
}

void dev_layernorm(struct dev *d, const float *x, const float *w, const float *b, float eps,
                   uint32_t n, uint32_t dim, float *out)
{
    ops(d)->norm(d, DEV_LAYERNORM, x, w, b, eps, n, dim, out);
}

void dev_softmax(struct dev *d, float *x, uint32_t n, uint32_t dim)
{
    ops(d)->norm(d, DEV_SOFTMAX, x, NULL, NULL, 0, n, dim, x);
}

void dev_add(struct dev *d, float *x, const float *y, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_ADD, x, y, false, 0, 0, n, dim);
}

void dev_mul(struct dev *d, float *x, const float *y, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_MUL, x, y, false, 0, 0, n, dim);
}

void dev_silu_mul(struct dev *d, float *gate, const float *up, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_SILU_MUL, gate, up, false, 0, 0, n, dim);
}

void dev_gelu_mul(struct dev *d, float *gate, const float *up, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_GELU_MUL, gate, up, false, 0, 0, n, dim);
}

void dev_gelu_erf_mul(struct dev *d, float *gate, const float *up, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_GELU_ERF_MUL, gate, up, false, 0, 0, n, dim);
}

void dev_gelu(struct dev *d, float *x, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_GELU, x, NULL, false, 0, 0, n, dim);
}

void dev_gelu_erf(struct dev *d, float *x, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_GELU_ERF, x, NULL, false, 0, 0, n, dim);
}

void dev_relu(struct dev *d, float *x, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_RELU, x, NULL, false, 0, 0, n, dim);
}

void dev_sigmoid(struct dev *d, float *x, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_SIGMOID, x, NULL, false, 0, 0, n, dim);
}

void dev_mul_row(struct dev *d, float *x, const float *w, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_MUL, x, w, true, 0, 0, n, dim);
}

void dev_softplus(struct dev *d, float *x, const float *bias, float lo, float hi, uint32_t n,
                  uint32_t dim)
{
    ops(d)->map(d, DEV_SOFTPLUS, x, bias, true, lo, hi, n, dim);
}

void dev_swiglu_clamped(struct dev *d, float *gate, const float *up, float alpha, float limit,
                        uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_SWIGLU, gate, up, false, alpha, limit, n, dim);
}

void dev_scale(struct dev *d, float *x, float by, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_SCALE, x, NULL, false, by, 0, n, dim);
}

void dev_softcap(struct dev *d, float *x, float cap, uint32_t n, uint32_t dim)
{
    ops(d)->map(d, DEV_SOFTCAP, x, NULL, false, cap, 0, n, dim);
}

void dev_scale_rows(struct dev *d, float *x, const float *by, uint32_t n, uint32_t dim)
{
    ops(d)->scale_rows(d, x, by, n, dim);
}

void dev_rope(struct dev *d, float *x, size_t ldx, uint32_t n, uint32_t heads, uint32_t dim,
              uint32_t rot, bool interleaved, const float *cos, const float *sin)
{
    ops(d)->rope(d, x, ldx, n, heads, dim, rot, interleaved, cos, sin);
}

void dev_cut(struct dev *d, const struct dev_cut *a, uint32_t n)
{
    ops(d)->cut(d, a, n);
}

void dev_rows(struct dev *d, const float *x, const uint32_t *id, uint32_t n, uint32_t dim,
              float *out)
{
    ops(d)->rows(d, x, id, n, dim, out);
}

void dev_unfold(struct dev *d, const float *x, uint32_t n_x, uint32_t channels, uint32_t taps,
                uint32_t step, uint32_t n, float *out)
{
    ops(d)->unfold(d, x, n_x, channels, taps, step, n, out);
}

void dev_choose(struct dev *d, const float *score, uint32_t n, uint32_t n_experts, uint32_t top,
                bool share, uint32_t *chosen, float *weight)
{
    ops(d)->choose(d, score, n, n_experts, top, share, chosen, weight);
}

void dev_experts(struct dev *d, enum dev_compute mode, const struct dev_experts *a, const float *x,
                 uint32_t n, float *out)
{
    ops(d)->experts(d, mode, a, x, n, out);
}

void dev_kv_write(struct dev *d, const struct kv_view *v, uint32_t plane, const float *x,
                  size_t ldx)
{
    ops(d)->kv_write(d, v, plane, x, ldx);
}

void dev_kv_seal(struct dev *d, const struct kv_view *v)
{
    ops(d)->kv_seal(d, v);
}

void dev_attention(struct dev *d, const struct kv_view *v, const struct dev_attn *a)
{
    ops(d)->attention(d, v, a);
}

void dev_attention_probe(struct dev *d, const struct kv_view *v, const struct dev_attn *a,
                         const struct dev_probe *lane)
{
    ops(d)->attention_probe(d, v, a, lane);
}

void dev_conv(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_conv *a)
{
    ops(d)->conv(d, v, plane, a);
}

void dev_scan(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_scan *a)
{
    ops(d)->scan(d, v, plane, a);
}

void dev_delta(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_delta *a)
{
    ops(d)->delta(d, v, plane, a);
}
