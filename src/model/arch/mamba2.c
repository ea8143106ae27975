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
        return ERR(FORMAT, "%s: time_step_limit must be two numbers", m->config_file);
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

static int mamba2_read_config(struct model *m, struct mixer2_shape *s)
{
    static const struct mixer2_keys keys = {"expand", "num_heads", "n_groups", "state_size",
                                            "conv_kernel"};
    TRY(mixer_read_stack(m));
    *s = (struct mixer2_shape){
        .heads = 128, .groups = 8, .states = 128, .taps = 4, .eps = m->norm_eps};
    TRY(read_limit(m, s));
    TRY(mixer2_read(m, &keys, s));
    m->ffn = s->inner;
    for (uint32_t i = 0; i < m->n_layers; i++)
        mixer2_site(s, i, &m->site[i]);
    return 0;
}

static int mamba2_open(struct model *m)
{
    struct mixer2_shape s;
    TRY(mamba2_read_config(m, &s));
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
    mod_embed(g);
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
