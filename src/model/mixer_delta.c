/* mixer_delta.c - the mixer of a gated delta net; see mixer.h.  Queries, keys and values pass one convolution.
 * Queries and keys are scaled to unit length.  The result is normalized over the values of a head, before the
 * gate. */
#include "model/mixer.h"

#include <math.h>
#include <stdio.h>

static uint32_t key_width(const struct delta_shape *s)
{
    return s->key_heads * s->keys;
}
static uint32_t value_width(const struct delta_shape *s)
{
    return s->heads * s->values;
}
static uint32_t conv_width(const struct delta_shape *s)
{
    return 2 * key_width(s) + value_width(s);
}

int delta_read(struct model *m, struct delta_shape *s)
{
    *s = (struct delta_shape){32, 16, 128, 128, 4, m->norm_eps};
    TRY(model_u32(m, "linear_num_value_heads", "ssm.time_step_rank", 1, 1024, &s->heads));
    TRY(model_u32(m, "linear_num_key_heads", "ssm.group_count", 1, 1024, &s->key_heads));
    TRY(model_u32(m, "linear_key_head_dim", "ssm.state_size", 1, DEV_DELTA_KEYS, &s->keys));
    TRY(model_u32(m, "linear_conv_kernel_dim", "ssm.conv_kernel", 1, DEV_CONV_TAPS, &s->taps));
    if (model_is_gguf(m)) {
        uint32_t inner;
        TRY(model_need_u32(m, NULL, "ssm.inner_size", 1, 1u << 20, &inner));
        s->values = inner / s->heads;
        if (inner % s->heads)
            return ERR(FORMAT, "%s: ssm.inner_size %u is not a multiple of %u heads",
                       m->config_file, inner, s->heads);
    }
    TRY(model_u32(m, "linear_value_head_dim", NULL, 1, 1024, &s->values));
    if (s->heads % s->key_heads)
        return ERR(FORMAT,
                   "%s: linear_num_value_heads %u is not a multiple of linear_num_key_heads %u",
                   m->config_file, s->heads, s->key_heads);
    return 0;
}

void delta_site(const struct delta_shape *s, uint32_t layer, struct kv_site *site)
{
    *site = (struct kv_site){
        .kind = KV_STATE,
        .layer = layer,
        .n_planes = 2,
        .plane = {{"conv", s->taps, conv_width(s), .turned = true},
                  {"delta", s->heads * s->keys, s->values, .parts = s->heads}},
    };
}

/* Binds a projection of the input.  An optional projection may be absent. */
static int bind_in(struct model *m, uint32_t layer, const char *hf, const char *part,
                   const char *gguf, uint32_t rows, bool optional, struct dev_weight *w)
{
    char name[2][128];
    snprintf(name[0], sizeof name[0], "%s.%s.weight", hf, part);
    snprintf(name[1], sizeof name[1], "blk.%%u.%s.weight", gguf);
    if (optional && !model_find(m, name[0], name[1], layer)) return 0;
    return model_matrix(m, name[0], name[1], layer, rows, m->hidden, w);
}

/* Binds the projections.  Files of Qwen3-Next have fused ones, whose rows are ordered by key head.  Newer files have
 * a separate tensor for each projection. */
static int bind_inputs(struct model *m, uint32_t layer, const char *hf, struct delta_net *w)
{
    const struct delta_shape *s = &w->s;
    uint32_t qkv = conv_width(s), v = value_width(s), n = s->heads;
    TRY(bind_in(m, layer, hf, "in_proj_qkvz", "ssm_in", qkv + v, true, &w->in));
    TRY(bind_in(m, layer, hf, "in_proj_ba", "ssm_ba", 2 * n, true, &w->b));
    if (!w->in.data) {
        TRY(bind_in(m, layer, hf, "in_proj_qkv", "attn_qkv", qkv, false, &w->in));
        TRY(bind_in(m, layer, hf, "in_proj_z", "attn_gate", v, false, &w->z));
    }
    if (!w->b.data) {
        TRY(bind_in(m, layer, hf, "in_proj_b", "ssm_beta", n, false, &w->b));
        TRY(bind_in(m, layer, hf, "in_proj_a", "ssm_alpha", n, false, &w->a));
    }
    return 0;
}

int delta_bind(struct model *m, uint32_t layer, const char *hf, const struct delta_shape *s,
               struct delta_net *out)
{
    struct delta_net *w = out;
    struct mixer_names n_out = mixer_name(hf, "out_proj", "out");
    const struct model_proj p[] = {
        {n_out.hf, n_out.gguf, m->hidden, value_width(s), &w->out, NULL},
        {NULL, NULL, 0, 0, NULL, NULL},
    };
    *w = (struct delta_net){.s = *s};
    TRY(bind_inputs(m, layer, hf, w));
    TRY(model_bind_projs(m, layer, p));
    TRY(mixer_conv(m, layer, hf, conv_width(s), s->taps, &w->conv, &w->b_conv));
    struct mixer_names n = mixer_name(hf, "A_log", "a");
    TRY(model_vector(m, n.hf, n.gguf, layer, s->heads, false, &w->decay));
    mixer_decays(m, w->decay, s->heads);
    n = mixer_name(hf, "dt_bias", "dt.bias");
    TRY(model_vector(m, n.hf, n.gguf, layer, s->heads, false, &w->b_dt));
    n = mixer_name(hf, "norm", "norm");
    TRY(model_norm(m, NORM_RMS, n.hf, n.gguf, layer, s->values, false, &w->y_norm));
    w->y_norm.eps = s->eps;
    /* x / sqrt(sum of x * x + 1e-6), as a root mean square */
    float keys = (float)s->keys;
    w->unit = (struct mod_norm){
        .kind = NORM_RMS, .eps = 1e-6f / keys, .w = model_own(m, s->keys, sizeof *w->unit.w)};
    for (uint32_t i = 0; w->unit.w && i < s->keys; i++)
        w->unit.w[i] = 1 / sqrtf(keys);
    return w->unit.w ? 0 : ERR_NOMEM;
}

struct delta_buffers delta_buffers_new(struct graph *g, const struct delta_shape *s)
{
    return (struct delta_buffers){
        .mixed = graph_buffer(g, (size_t)conv_width(s) + value_width(s)),
        .qkv = graph_buffer(g, conv_width(s)),
        .conv = graph_buffer(g, conv_width(s)),
        .qk = graph_buffer(g, (size_t)2 * key_width(s)),
        .shares = graph_buffer(g, (size_t)2 * s->heads),
        .beta = graph_buffer(g, s->heads),
        .dt = graph_buffer(g, s->heads),
        .z = graph_buffer(g, value_width(s)),
        .y = graph_buffer(g, value_width(s)),
    };
}

/* Copies `width` values of each key head's part of x, beginning at value `at` of the part. */
static void cut_heads(struct graph *g, const struct delta_shape *s, const float *x, uint32_t stride,
                      uint32_t at, uint32_t width, float *out, size_t ldo)
{
    mod_cut(g, &(struct mod_cut){.x = x,
                                 .ldx = (size_t)s->key_heads * stride,
                                 .parts = s->key_heads,
                                 .stride = stride,
                                 .at = at,
                                 .width = width,
                                 .out = out,
                                 .ldo = ldo});
}

/* b->qkv, z, beta and dt = the projections of x. */
static void project(struct graph *g, const struct delta_net *w, const struct delta_buffers *b,
                    const float *x)
{
    const struct delta_shape *s = &w->s;
    uint32_t k = s->keys, share = s->heads / s->key_heads, v = share * s->values;
    struct mod_out out[4] = {{&w->in, NULL, w->z.data ? b->qkv : b->mixed},
                             {&w->b, NULL, w->a.data ? b->beta : b->shares}};
    uint32_t n = 2;
    if (w->z.data) out[n++] = (struct mod_out){&w->z, NULL, b->z};
    if (w->a.data) out[n++] = (struct mod_out){&w->a, NULL, b->dt};
    mod_linear(g, x, out, n);
    if (!w->z.data) {
        size_t ldo = conv_width(s);
        cut_heads(g, s, b->mixed, 2 * (k + v), 0, k, b->qkv, ldo);
        cut_heads(g, s, b->mixed, 2 * (k + v), k, k, b->qkv + key_width(s), ldo);
        cut_heads(g, s, b->mixed, 2 * (k + v), 2 * k, v, b->qkv + (size_t)2 * key_width(s), ldo);
        cut_heads(g, s, b->mixed, 2 * (k + v), 2 * k + v, v, b->z, value_width(s));
    }
    if (!w->a.data) {
        cut_heads(g, s, b->shares, 2 * share, 0, share, b->beta, s->heads);
        cut_heads(g, s, b->shares, 2 * share, share, share, b->dt, s->heads);
    }
    mod_sigmoid(g, b->beta, s->heads);
    mod_softplus(g, b->dt, w->b_dt, 0, INFINITY, s->heads);
}

static void memory_graph(struct graph *g, uint32_t site, const struct delta_net *w,
                         const struct delta_buffers *b)
{
    const struct delta_shape *s = &w->s;
    uint32_t wide = conv_width(s), keys = key_width(s);
    mod_conv(g, &(struct mod_conv){.site = site,
                                   .plane = 0,
                                   .conv = {.x = b->qkv,
                                            .w = w->conv,
                                            .bias = w->b_conv,
                                            .out = b->conv,
                                            .taps = s->taps,
                                            .channels = wide}});
    mod_cut(g, &(struct mod_cut){.x = b->conv,
                                 .ldx = wide,
                                 .parts = 1,
                                 .width = 2 * keys,
                                 .out = b->qk,
                                 .ldo = (size_t)2 * keys});
    mod_norm(g, &w->unit, b->qk, 2 * s->key_heads, s->keys, b->qk);
    mod_delta(g, &(struct mod_delta){.site = site,
                                     .plane = 1,
                                     .delta = {.q = b->qk,
                                               .k = b->qk + keys,
                                               .ldq = (size_t)2 * keys,
                                               .v = b->conv + (size_t)2 * keys,
                                               .ldv = wide,
                                               .dt = b->dt,
                                               .beta = b->beta,
                                               .a = w->decay,
                                               .scale = 1 / sqrtf((float)s->keys),
                                               .out = b->y,
                                               .heads = s->heads,
                                               .key_heads = s->key_heads,
                                               .keys = s->keys,
                                               .values = s->values}});
}

void delta_graph(struct graph *g, uint32_t site, const struct delta_net *w,
                 const struct delta_buffers *b, const float *x, float *out)
{
    const struct delta_shape *s = &w->s;
    project(g, w, b, x);
    memory_graph(g, site, w, b);
    mod_norm(g, &w->y_norm, b->y, s->heads, s->values, b->y);
    mod_silu_mul(g, b->z, b->y, value_width(s));
    mod_linear(g, b->z, (struct mod_out[]){{&w->out, NULL, out}}, 1);
}
