/* mixer.c - the mixer of Mamba, and what all mixers bind; see mixer.h. */
#include "model/mixer.h"

#include <math.h>
#include <stdio.h>

struct mixer_names mixer_name(const char *hf, const char *part, const char *gguf)
{
    struct mixer_names n;
    snprintf(n.hf, sizeof n.hf, "%s.%s", hf, part);
    snprintf(n.gguf, sizeof n.gguf, "blk.%%u.ssm_%s", gguf);
    return n;
}

int mixer_read_stack(struct model *m)
{
    TRY(model_need_u32(m, "num_hidden_layers", "block_count", 1, MODEL_LAYERS, &m->n_layers));
    TRY(model_need_u32(m, "hidden_size", "embedding_length", 1, 1u << 17, &m->hidden));
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_eps(m, "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", 1e-5f));
    /* A state has no longest text, and the length in GGUF files has no meaning. */
    m->context = 1u << 20;
    m->no_sinks = "its layers have no attention";
    return model_new_sites(m, m->n_layers);
}

int mixer_inner(struct model *m, const char *key, uint32_t *inner)
{
    float expand = 2;
    if (model_is_gguf(m)) return model_need_u32(m, NULL, "ssm.inner_size", 1, 1u << 20, inner);
    TRY(model_f32(m, key, NULL, &expand));
    double n = floor((double)expand * m->hidden);
    if (!(n >= 1 && n <= 1 << 20))
        return ERR(FORMAT, "%s: %s is %g; a mixer has 1 to %u channels", m->what, key,
                   (double)expand, 1u << 20);
    *inner = (uint32_t)n;
    return 0;
}

/* Reads the rank, of which "auto" means a sixteenth of the hidden size. */
static int read_rank(struct model *m, const char *key, uint32_t *rank)
{
    const json_t *v = model_is_gguf(m) ? NULL : json_object_get(m->config, key);
    *rank = (m->hidden + 15) / 16;
    if (json_is_string(v)) return model_expect_str(m, key, "auto");
    return model_u32(m, key, "ssm.time_step_rank", 1, 1u << 16, rank);
}

int mixer1_read(struct model *m, const struct mixer1_keys *k, struct mixer1_shape *s)
{
    *s = (struct mixer1_shape){.states = 16, .taps = 4};
    TRY(mixer_inner(m, k->expand, &s->inner));
    TRY(model_u32(m, k->states, "ssm.state_size", 1, DEV_SCAN_STATES, &s->states));
    TRY(model_u32(m, k->taps, "ssm.conv_kernel", 1, DEV_CONV_TAPS, &s->taps));
    return read_rank(m, k->rank, &s->rank);
}

void mixer1_site(const struct mixer1_shape *s, uint32_t layer, struct kv_site *site)
{
    *site = (struct kv_site){
        .kind = KV_STATE,
        .layer = layer,
        .n_planes = 2,
        .plane = {{"conv", s->taps, s->inner, .turned = true},
                  {"ssm", s->states, s->inner, .turned = true}},
    };
}

/* Returns a copy of src [cols][rows] as [rows][cols], which the model owns. */
static float *transposed(struct model *m, const float *src, uint32_t rows, uint32_t cols)
{
    float *dst = model_own(m, (size_t)rows * cols, sizeof *dst);
    for (size_t r = 0; dst && r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            dst[r * cols + c] = src[c * rows + r];
    return dst;
}

/* Files hold the taps as [channels][1][taps], GGUF files as [channels][taps]. */
int mixer_conv(struct model *m, uint32_t layer, const char *hf, uint32_t channels, uint32_t taps,
               float **w, float **bias)
{
    struct mixer_names n = mixer_name(hf, "conv1d.weight", "conv1d.weight");
    const uint32_t dim[] = {channels, 1, taps}, flat[] = {channels, taps};
    float *f;
    bool gguf = model_is_gguf(m);
    TRY(model_array(m, n.hf, n.gguf, layer, gguf ? flat : dim, gguf ? 2 : 3, &f));
    *w = transposed(m, f, taps, channels);
    n = mixer_name(hf, "conv1d.bias", "conv1d.bias");
    TRY(model_vector(m, n.hf, n.gguf, layer, channels, true, bias));
    if (!*bias) *bias = model_own(m, channels, sizeof **bias);
    return *w && *bias ? 0 : ERR_NOMEM;
}

void mixer_decays(const struct model *m, float *a, size_t n)
{
    for (size_t i = 0; !model_is_gguf(m) && i < n; i++)
        a[i] = (float)-exp((double)a[i]);
}

static int bind_scan(struct model *m, uint32_t layer, const char *hf, struct mixer1 *w)
{
    const struct mixer1_shape *s = &w->s;
    const uint32_t dim[] = {s->inner, s->states};
    struct mixer_names n = mixer_name(hf, "A_log", "a");
    float *f;
    TRY(model_array(m, n.hf, n.gguf, layer, dim, 2, &f));
    mixer_decays(m, f, (size_t)s->inner * s->states);
    w->a = transposed(m, f, s->states, s->inner);
    if (!w->a) return ERR_NOMEM;
    n = mixer_name(hf, "D", "d");
    TRY(model_vector(m, n.hf, n.gguf, layer, s->inner, false, &w->d));
    n = mixer_name(hf, "dt_proj.bias", "dt.bias");
    return model_vector(m, n.hf, n.gguf, layer, s->inner, false, &w->b_dt);
}

int mixer1_bind(struct model *m, uint32_t layer, const char *hf, const struct mixer1_shape *s,
                struct mixer1 *out)
{
    struct mixer1 *w = out;
    struct dev_weight in, params;
    float *b_in;
    struct mixer_names n_in = mixer_name(hf, "in_proj", "in"), n_x = mixer_name(hf, "x_proj", "x"),
                       n_dt = mixer_name(hf, "dt_proj", "dt"),
                       n_out = mixer_name(hf, "out_proj", "out");
    w->s = *s;
    const struct model_proj p[] = {
        {n_in.hf, n_in.gguf, 2 * s->inner, m->hidden, &in, &b_in},
        {n_x.hf, n_x.gguf, s->rank + 2 * s->states, s->inner, &params, NULL},
        {n_dt.hf, n_dt.gguf, s->inner, s->rank, &w->dt, NULL},
        {n_out.hf, n_out.gguf, m->hidden, s->inner, &w->out, &w->b_out},
        {NULL, NULL, 0, 0, NULL, NULL},
    };
    TRY(model_bind_projs(m, layer, p));
    w->x = model_rows(&in, 0, s->inner);
    w->gate = model_rows(&in, s->inner, s->inner);
    w->b_x = b_in;
    w->b_gate = b_in ? b_in + s->inner : NULL;
    w->dt_in = model_rows(&params, 0, s->rank);
    w->b = model_rows(&params, s->rank, s->states);
    w->c = model_rows(&params, s->rank + s->states, s->states);
    TRY(mixer_conv(m, layer, hf, s->inner, s->taps, &w->conv, &w->b_conv));
    return bind_scan(m, layer, hf, w);
}

struct mixer1_buffers mixer1_buffers_new(struct graph *g, const struct mixer1_shape *s)
{
    return (struct mixer1_buffers){
        .x = graph_buffer(g, s->inner),
        .gate = graph_buffer(g, s->inner),
        .conv = graph_buffer(g, s->inner),
        .dt_in = graph_buffer(g, s->rank),
        .b = graph_buffer(g, s->states),
        .c = graph_buffer(g, s->states),
        .dt = graph_buffer(g, s->inner),
        .y = graph_buffer(g, s->inner),
    };
}

/* Norms the parameters of the scan (Falcon Mamba, Jamba). */
static void norm_params(struct graph *g, const struct mixer1 *w, const struct mixer1_buffers *b)
{
    if (w->dt_norm.kind) mod_norm(g, &w->dt_norm, b->dt_in, 1, w->s.rank, b->dt_in);
    if (w->b_norm.kind) mod_norm(g, &w->b_norm, b->b, 1, w->s.states, b->b);
    if (w->c_norm.kind) mod_norm(g, &w->c_norm, b->c, 1, w->s.states, b->c);
}

void mixer1_graph(struct graph *g, uint32_t site, const struct mixer1 *w,
                  const struct mixer1_buffers *b, const float *x, float *out)
{
    const struct mixer1_shape *s = &w->s;
    mod_linear(g, x, (struct mod_out[]){{&w->x, w->b_x, b->x}, {&w->gate, w->b_gate, b->gate}}, 2);
    mod_conv(g, &(struct mod_conv){.site = site,
                                   .plane = 0,
                                   .conv = {.x = b->x,
                                            .w = w->conv,
                                            .bias = w->b_conv,
                                            .out = b->conv,
                                            .taps = s->taps,
                                            .channels = s->inner}});
    mod_linear(
        g, b->conv,
        (struct mod_out[]){{&w->dt_in, NULL, b->dt_in}, {&w->b, NULL, b->b}, {&w->c, NULL, b->c}},
        3);
    norm_params(g, w, b);
    mod_linear(g, b->dt_in, (struct mod_out[]){{&w->dt, NULL, b->dt}}, 1);
    mod_softplus(g, b->dt, w->b_dt, 0, INFINITY, s->inner);
    mod_scan(g, &(struct mod_scan){.site = site,
                                   .plane = 1,
                                   .scan = {.x = b->conv,
                                            .ldx = s->inner,
                                            .dt = b->dt,
                                            .b = b->b,
                                            .c = b->c,
                                            .ldb = s->states,
                                            .a = w->a,
                                            .d = w->d,
                                            .out = b->y,
                                            .channels = s->inner,
                                            .heads = s->inner,
                                            .groups = 1,
                                            .n = s->states}});
    mod_silu_mul(g, b->gate, b->y, s->inner);
    mod_linear(g, b->gate, (struct mod_out[]){{&w->out, w->b_out, out}}, 1);
}
