/* mamba2.c - Mamba 2 (Dao and Gu 2024): layers of one mixer, whose channels form heads. */
#include "model/mixer.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct layer {
    struct mod_norm norm;
    struct mixer2 mixer;
};

/* Reads a bound of the time steps.  JSON has no infinity: Transformers writes a word, which config_parse reads as the
 * largest double, and newer releases write an object of one string. */
static int bound(const struct model *m, const json_t *v, float *out)
{
    const char *word = json_string_value(json_object_get(v, "__float__"));
    double x = json_number_value(v);
    bool infinite = word ? strcmp(word, "Infinity") == 0 : x > (double)FLT_MAX;
    if (!infinite && !json_is_number(v))
        return ERR(FORMAT, "%s: time_step_limit must be two numbers", m->what);
    *out = infinite ? INFINITY : (float)MAX(x, (double)-FLT_MAX);
    return 0;
}

static int read_limit(struct model *m, struct mixer2_shape *s)
{
    const json_t *v = model_is_gguf(m) ? NULL : json_object_get(m->config, "time_step_limit");
    s->dt_min = 0;
    s->dt_max = INFINITY;
    if (!v || json_is_null(v)) return 0;
    TRY(bound(m, json_array_get(v, 0), &s->dt_min));
    return bound(m, json_array_get(v, 1), &s->dt_max);
}

static int read_mixer(struct model *m, struct mixer2_shape *s)
{
    *s = (struct mixer2_shape){.heads = 128, .groups = 8, .states = 128, .taps = 4};
    TRY(mixer_inner(m, "expand", &s->inner));
    TRY(model_u32(m, "num_heads", "ssm.time_step_rank", 1, 1u << 16, &s->heads));
    TRY(model_u32(m, "n_groups", "ssm.group_count", 1, 1u << 12, &s->groups));
    TRY(model_u32(m, "state_size", "ssm.state_size", 1, DEV_SCAN_STATES, &s->states));
    TRY(model_u32(m, "conv_kernel", "ssm.conv_kernel", 1, DEV_CONV_TAPS, &s->taps));
    s->eps = m->norm_eps;
    TRY(read_limit(m, s));
    return mixer2_check(m, s, "num_heads");
}

static int read_config(struct model *m, struct mixer2_shape *s)
{
    TRY(model_need_u32(m, "num_hidden_layers", "block_count", 1, 512, &m->n_layers));
    TRY(model_need_u32(m, "hidden_size", "embedding_length", 1, 1u << 17, &m->hidden));
    TRY(model_expect_str(m, "hidden_act", "silu"));
    m->norm_eps = 1e-5f;
    TRY(model_f32(m, "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", &m->norm_eps));
    if (!(m->norm_eps >= 0))
        return ERR(FORMAT, "%s: layer_norm_epsilon must not be negative", m->what);
    /* A state has no end, and GGUF files name a length of no meaning.  Tables of a cache grow with the default length. */
    m->context = 1u << 16;
    TRY(read_mixer(m, s));
    m->ffn = s->inner;
    m->no_sinks = "its layers have no attention";
    TRY(model_new_sites(m, m->n_layers));
    for (uint32_t i = 0; i < m->n_layers; i++)
        mixer2_site(s, i, &m->site[i]);
    return 0;
}

static int mamba2_open(struct model *m)
{
    struct mixer2_shape s;
    TRY(read_config(m, &s));
    TRY(model_bind_named_ends(m, "backbone.embeddings.weight", "backbone.norm_f"));
    struct layer *l = model_own(m, m->n_layers, sizeof *l);
    if (!l) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        TRY(model_norm(m, NORM_RMS, "backbone.layers.%u.norm", "blk.%u.attn_norm", i, m->hidden,
                       false, &l[i].norm));
        TRY(mixer2_bind(m, i, "backbone.layers.%u.mixer", &s, &l[i].mixer));
    }
    return 0;
}

static int mamba2_graph(const struct model *m, struct graph *g)
{
    const struct layer *l = m->arch_weights;
    struct mixer2_buffers b = mixer2_buffers_new(g, &l[0].mixer.s);
    float *h = graph_h(g), *x = graph_buffer(g, m->hidden);
    mod_embed(g, &m->embed, 1);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        mod_mark(g, i);
        mod_norm(g, &l[i].norm, h, 1, m->hidden, x);
        mixer2_graph(g, i, &l[i].mixer, &b, x, x);
        mod_add(g, h, x, m->hidden);
    }
    return 0;
}

static const char *const names[] = {"mamba2", NULL};
static const struct arch mamba2_arch = {.names = names, .open = mamba2_open, .graph = mamba2_graph};
MODEL_ARCH(mamba2, &mamba2_arch);
