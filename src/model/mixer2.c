/* mixer2.c - the mixer of Mamba 2; see mixer.h.  The result is normalized over the channels of a group, after the
 * gate. */
#include "model/mixer.h"

static uint32_t conv_width(const struct mixer2_shape *s)
{
    return s->inner + 2 * s->groups * s->states;
}

/* Checks that the sizes divide each other.  heads: name of the key for the number of heads, for errors. */
static int check_sizes(const struct model *m, const struct mixer2_shape *s, const char *heads)
{
    if (s->inner % s->heads || s->heads % s->groups)
        return ERR(FORMAT,
                   "%s: %u channels, %s of %u and %u groups: heads must divide the channels, and "
                   "groups the heads",
                   m->config_file, s->inner, heads, s->heads, s->groups);
    if ((uint64_t)s->groups * s->states > 1u << 20)
        return ERR(FORMAT, "%s: %u groups of %u states; the limit is %u together", m->what,
                   s->groups, s->states, 1u << 20);
    if (!(s->dt_min >= 0 && s->dt_max >= s->dt_min))
        return ERR(FORMAT, "%s: a time step from %g to %g is no range", m->what, (double)s->dt_min,
                   (double)s->dt_max);
    return 0;
}

int mixer2_read(struct model *m, const struct mixer2_keys *k, struct mixer2_shape *s)
{
    TRY(mixer_inner(m, k->expand, &s->inner));
    TRY(model_u32(m, k->heads, "ssm.time_step_rank", 1, 1u << 16, &s->heads));
    TRY(model_u32(m, k->groups, "ssm.group_count", 1, 1u << 12, &s->groups));
    TRY(model_u32(m, k->states, "ssm.state_size", 1, DEV_SCAN_STATES, &s->states));
    TRY(model_u32(m, k->taps, "ssm.conv_kernel", 1, DEV_CONV_TAPS, &s->taps));
    return check_sizes(m, s, k->heads);
}

void mixer2_site(const struct mixer2_shape *s, uint32_t layer, struct kv_site *site)
{
    *site = (struct kv_site){
        .kind = KV_STATE,
        .layer = layer,
        .n_planes = 2,
        .plane = {{"conv", s->taps, conv_width(s), .turned = true},
                  {"ssm", s->states, s->inner, .turned = true, .parts = s->heads}},
    };
}

/* Binds one value for each head.  GGUF files store them as a matrix of one column, except for biases. */
static int bind_heads(struct model *m, uint32_t layer, struct mixer_names n, bool column,
                      uint32_t heads, float **out)
{
    const uint32_t dim[] = {heads, 1};
    return model_array(m, n.hf, n.gguf, layer, dim, column && model_is_gguf(m) ? 2 : 1, out);
}

/* Repeats the value of each head for all channels of the head. */
static int spread_heads(struct model *m, const struct mixer2_shape *s, const float *by_head,
                        float **out)
{
    *out = model_own(m, s->inner, sizeof **out);
    for (uint32_t i = 0; *out && i < s->inner; i++)
        (*out)[i] = by_head[i / (s->inner / s->heads)];
    return *out ? 0 : ERR_NOMEM;
}

static int bind_scan(struct model *m, uint32_t layer, const char *hf, struct mixer2 *w)
{
    const struct mixer2_shape *s = &w->s;
    const uint32_t rows[] = {s->groups, s->inner / s->groups};
    struct mixer_names n = mixer_name(hf, "norm.weight", "norm.weight");
    float *a, *d;
    TRY(bind_heads(m, layer, mixer_name(hf, "A_log", "a"), true, s->heads, &a));
    TRY(bind_heads(m, layer, mixer_name(hf, "D", "d"), true, s->heads, &d));
    TRY(bind_heads(m, layer, mixer_name(hf, "dt_bias", "dt.bias"), false, s->heads, &w->b_dt));
    mixer_decays(m, a, s->heads);
    TRY(spread_heads(m, s, a, &w->a));
    TRY(spread_heads(m, s, d, &w->d));
    if (model_is_gguf(m)) return model_array(m, n.hf, n.gguf, layer, rows, 2, &w->norm);
    return model_vector(m, n.hf, NULL, layer, s->inner, false, &w->norm);
}

int mixer2_bind(struct model *m, uint32_t layer, const char *hf, const struct mixer2_shape *s,
                struct mixer2 *out)
{
    struct mixer2 *w = out;
    struct dev_weight in;
    float *b_in;
    uint32_t conv = conv_width(s);
    struct mixer_names n_in = mixer_name(hf, "in_proj", "in"),
                       n_out = mixer_name(hf, "out_proj", "out");
    w->s = *s;
    const struct model_proj p[] = {
        {n_in.hf, n_in.gguf, s->inner + conv + s->heads, m->hidden, &in, &b_in},
        {n_out.hf, n_out.gguf, m->hidden, s->inner, &w->out, &w->b_out},
        {NULL, NULL, 0, 0, NULL, NULL},
    };
    TRY(model_bind_projs(m, layer, p));
    w->gate = model_rows(&in, 0, s->inner);
    w->conv_in = model_rows(&in, s->inner, conv);
    w->dt = model_rows(&in, s->inner + conv, s->heads);
    w->b_gate = b_in;
    w->b_conv_in = b_in ? b_in + s->inner : NULL;
    w->b_dt_in = b_in ? b_in + s->inner + conv : NULL;
    TRY(mixer_conv(m, layer, hf, conv, s->taps, &w->conv, &w->b_conv));
    return bind_scan(m, layer, hf, w);
}

struct mixer2_buffers mixer2_buffers_new(struct graph *g, const struct mixer2_shape *s)
{
    return (struct mixer2_buffers){
        .gate = graph_buffer(g, s->inner),
        .conv_in = graph_buffer(g, conv_width(s)),
        .conv = graph_buffer(g, conv_width(s)),
        .dt = graph_buffer(g, s->heads),
        .y = graph_buffer(g, s->inner),
    };
}

static void scan(struct graph *g, uint32_t site, const struct mixer2 *w,
                 const struct mixer2_buffers *b)
{
    const struct mixer2_shape *s = &w->s;
    mod_scan(g, &(struct mod_scan){.site = site,
                                   .plane = 1,
                                   .scan = {.x = b->conv,
                                            .ldx = conv_width(s),
                                            .dt = b->dt,
                                            .b = b->conv + s->inner,
                                            .c = b->conv + s->inner + s->groups * s->states,
                                            .ldb = conv_width(s),
                                            .a = w->a,
                                            .one_decay = true,
                                            .d = w->d,
                                            .out = b->y,
                                            .channels = s->inner,
                                            .heads = s->heads,
                                            .groups = s->groups,
                                            .n = s->states}});
}

void mixer2_graph(struct graph *g, uint32_t site, const struct mixer2 *w,
                  const struct mixer2_buffers *b, const float *x, float *out)
{
    const struct mixer2_shape *s = &w->s;
    const struct mod_norm norm = {.kind = NORM_RMS, .eps = s->eps};
    mod_linear(g, x,
               (struct mod_out[]){{&w->gate, w->b_gate, b->gate},
                                  {&w->conv_in, w->b_conv_in, b->conv_in},
                                  {&w->dt, w->b_dt_in, b->dt}},
               3);
    mod_conv(g, &(struct mod_conv){.site = site,
                                   .plane = 0,
                                   .conv = {.x = b->conv_in,
                                            .w = w->conv,
                                            .bias = w->b_conv,
                                            .out = b->conv,
                                            .taps = s->taps,
                                            .channels = conv_width(s)}});
    mod_softplus(g, b->dt, w->b_dt, s->dt_min, s->dt_max, s->heads);
    scan(g, site, w, b);
    mod_silu_mul(g, b->gate, b->y, s->inner);
    mod_norm(g, &norm, b->gate, s->groups, s->inner / s->groups, b->gate);
    mod_mul_row(g, b->gate, w->norm, s->inner);
    mod_linear(g, b->gate, (struct mod_out[]){{&w->out, w->b_out, out}}, 1);
}
