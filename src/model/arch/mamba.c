/* mamba.c - Mamba (Gu and Dao 2023) and Falcon Mamba (Zuo et al. 2024): layers of one mixer, without attention and without
 * positions.  Falcon Mamba normalizes the parameters of its scans.  GGUF files name both "mamba". */
#include "model/mixer.h"

#include <string.h>

struct layer {
    struct mod_norm norm;
    struct mixer1 mixer;
};

static int mamba_read_config(struct model *m, struct mixer1_shape *s)
{
    static const struct mixer1_keys keys = {"expand", "state_size", "conv_kernel",
                                            "time_step_rank"};
    TRY(mixer_read_stack(m));
    TRY(mixer1_read(m, &keys, s));
    m->ffn = s->inner;
    for (uint32_t i = 0; i < m->n_layers; i++)
        mixer1_site(s, i, &m->site[i]);
    return 0;
}

/* Reads whether the parameters of the scans are normalized, and the epsilon of these norms. */
static int read_norms(struct model *m, struct mod_norm *norm)
{
    bool norms = strcmp(m->arch_name, "falcon_mamba") == 0;
    float eps = 1e-6f;
    if (model_is_gguf(m))
        TRY(json_get_bool(m->config, m->config_file, "mamba.ssm.dt_b_c_rms", &norms));
    TRY(model_f32(m, "mixer_rms_eps", NULL, &eps));
    if (!(eps >= 0)) return ERR(FORMAT, "%s: mixer_rms_eps must not be negative", m->config_file);
    *norm = (struct mod_norm){.kind = norms ? NORM_RMS : NORM_NONE, .eps = eps};
    return 0;
}

static int mamba_open(struct model *m)
{
    struct mixer1_shape s;
    struct mod_norm params;
    TRY(mamba_read_config(m, &s));
    TRY(read_norms(m, &params));
    m->tied = true;
    TRY(model_bind_named_ends(m, "backbone.embeddings.weight", "backbone.norm_f"));
    struct layer *l = model_own(m, m->n_layers, sizeof *l);
    if (!l) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        TRY(model_norm(m, NORM_RMS, "backbone.layers.%u.norm", "blk.%u.attn_norm", i, m->hidden,
                       false, &l[i].norm));
        TRY(mixer1_bind(m, i, "backbone.layers.%u.mixer", &s, &l[i].mixer));
        l[i].mixer.dt_norm = l[i].mixer.b_norm = l[i].mixer.c_norm = params;
    }
    return 0;
}

static int mamba_graph(const struct model *m, struct graph *g)
{
    const struct layer *l = m->arch_weights;
    struct mixer1_buffers b = mixer1_buffers_new(g, &l[0].mixer.s);
    float *h = graph_h(g), *x = graph_buffer(g, m->hidden);
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        mod_mark(g, i);
        mod_norm(g, &l[i].norm, h, 1, m->hidden, x);
        mixer1_graph(g, i, &l[i].mixer, &b, x, x);
        mod_add(g, h, x, m->hidden);
    }
    return 0;
}

static const char *const names[] = {"mamba", "falcon_mamba", NULL};
static const struct arch mamba_arch = {.names = names, .open = mamba_open, .graph = mamba_graph};
MODEL_ARCH(mamba, &mamba_arch);
