/* ops.h - what a kind of device is: the table of its operations.
 *
 * The functions of dev.h go through the table of the device that they are given, one indirect call for each.  So another
 * kind of device is another table, and nothing above this floor knows which one it runs on.  What each operation does, and in
 * which order it sums, is said in dev.h.  The struct dev of every kind begins with the address of its table. */
#pragma once
#include "dev/dev.h"

/* x = op(x, y) for each value: dev_add, dev_scale, ... dev_softplus. */
enum dev_map {
    DEV_ADD,
    DEV_SCALE, /* by p */
    DEV_SILU_MUL,
    DEV_GELU_MUL,
    DEV_GELU_ERF_MUL,
    DEV_GELU,
    DEV_GELU_ERF,
    DEV_RELU,
    DEV_SWIGLU,  /* p: alpha, q: limit */
    DEV_SOFTCAP, /* p: cap */
    DEV_SIGMOID,
    DEV_MUL,
    DEV_SOFTPLUS, /* p, q: bounds */
    DEV_MAPS
};
enum dev_norm { DEV_RMSNORM, DEV_LAYERNORM, DEV_SOFTMAX };

typedef void dev_close_fn(struct dev *d);
typedef const char *dev_isa_fn(const struct dev *d);
typedef uint32_t dev_threads_fn(const struct dev *d);
typedef void dev_each_fn(struct dev *d, uint32_t n, pool_fn fn, void *ctx);
typedef int dev_reserve_fn(struct dev *d, const struct dev_limits *lim);
typedef void *dev_alloc_fn(struct dev *d, size_t n);
typedef void *dev_mirror_fn(struct dev *d, const void *host, size_t n);
typedef void dev_put_fn(struct dev *d, void *at, const void *host, size_t n);
typedef void dev_get_fn(struct dev *d, void *host, const void *at, size_t n);
typedef void *dev_range_fn(struct dev *d, size_t n);
typedef void dev_range_close_fn(struct dev *d, void *at, size_t n);
typedef int dev_range_set_fn(struct dev *d, void *at, size_t n, enum dev_range_as as);
typedef const void *dev_look_fn(struct dev *d, const void *at, size_t n, void *room);
typedef void dev_move_fn(struct dev *d, void *to, const void *from, size_t n, size_t parts,
                         size_t stride);
typedef void dev_matmul_fn(struct dev *d, enum dev_compute mode, const float *x, size_t ldx,
                           uint32_t n, const struct dev_mm *mm, uint32_t n_mm);
typedef void dev_embed_fn(struct dev *d, const struct dev_weight *w, const int32_t *id, uint32_t n,
                          float *out);
typedef void dev_norm_fn(struct dev *d, enum dev_norm kind, const float *x, const float *w,
                         const float *b, float eps, uint32_t n, uint32_t dim, float *out);
/* shared: y is one row for all tokens */
typedef void dev_map_fn(struct dev *d, enum dev_map op, float *x, const float *y, bool shared,
                        float p, float q, uint32_t n, uint32_t dim);
typedef void dev_scale_rows_fn(struct dev *d, float *x, const float *by, uint32_t n, uint32_t dim);
typedef void dev_rope_fn(struct dev *d, float *x, size_t ldx, uint32_t n, uint32_t heads,
                         uint32_t dim, uint32_t rot, bool interleaved, const float *cos,
                         const float *sin);
typedef void dev_cut_fn(struct dev *d, const struct dev_cut *a, uint32_t n);
typedef void dev_rows_fn(struct dev *d, const float *x, const uint32_t *id, uint32_t n,
                         uint32_t dim, float *out);
typedef void dev_unfold_fn(struct dev *d, const float *x, uint32_t n_x, uint32_t channels,
                           uint32_t taps, uint32_t step, uint32_t n, float *out);
typedef void dev_choose_fn(struct dev *d, const float *score, uint32_t n, uint32_t n_experts,
                           uint32_t top, bool share, uint32_t *chosen, float *weight);
typedef void dev_experts_fn(struct dev *d, enum dev_compute mode, const struct dev_experts *a,
                            const float *x, uint32_t n, float *out);
typedef void dev_kv_write_fn(struct dev *d, const struct kv_view *v, uint32_t plane, const float *x,
                             size_t ldx);
typedef void dev_kv_seal_fn(struct dev *d, const struct kv_view *v);
typedef void dev_attention_fn(struct dev *d, const struct kv_view *v, const struct dev_attn *a);
typedef void dev_attention_probe_fn(struct dev *d, const struct kv_view *v,
                                    const struct dev_attn *a, const struct dev_probe *lane);
typedef void dev_conv_fn(struct dev *d, const struct kv_view *v, uint32_t plane,
                         const struct dev_conv *a);
typedef void dev_scan_fn(struct dev *d, const struct kv_view *v, uint32_t plane,
                         const struct dev_scan *a);
typedef void dev_delta_fn(struct dev *d, const struct kv_view *v, uint32_t plane,
                          const struct dev_delta *a);

struct dev_ops {
    bool is_host; /* memory of the device is memory of the host */
    dev_close_fn *close;
    dev_isa_fn *isa;
    dev_threads_fn *threads;
    dev_each_fn *each;
    dev_reserve_fn *reserve;
    dev_alloc_fn *alloc;
    dev_mirror_fn *weights, *mirror, *lend;
    dev_range_close_fn *mirror_close;
    dev_put_fn *put;
    dev_get_fn *get;
    dev_range_fn *range;
    dev_range_close_fn *range_close;
    dev_range_set_fn *range_set;
    dev_look_fn *look;
    dev_move_fn *move;
    dev_matmul_fn *matmul;
    dev_embed_fn *embed;
    dev_norm_fn *norm;
    dev_map_fn *map;
    dev_scale_rows_fn *scale_rows;
    dev_rope_fn *rope;
    dev_cut_fn *cut;
    dev_rows_fn *rows;
    dev_unfold_fn *unfold;
    dev_choose_fn *choose;
    dev_experts_fn *experts;
    dev_kv_write_fn *kv_write;
    dev_kv_seal_fn *kv_seal;
    dev_attention_fn *attention;
    dev_attention_probe_fn *attention_probe;
    dev_conv_fn *conv;
    dev_scan_fn *scan;
    dev_delta_fn *delta;
};
/* The CPU's table, which also serves where no device is given: there it is asked for memory of the host alone. */
extern const struct dev_ops dev_cpu;
/* A kind of device, which registers itself with one line.  dev_open opens the one that $KVIK_DEVICE names, "cpu" if it names
 * none. */
struct dev_kind {
    const char *name;
    int (*open)(const struct dev_config *c, struct dev **out); /* c may be NULL */
};
int dev_open_kind(const char *name, const struct dev_config *c, struct dev **out);
#define DEV_KIND(ident, ptr)                                                                       \
    const struct dev_kind *const kvik_dev_##ident                                                  \
        __attribute__((section("kvik_dev"), used, visibility("hidden"))) = ptr
