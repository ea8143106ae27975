/* mixer.h - the mixers of Mamba, which stand in a layer in place of attention.  An input is projected and
 * convolved over time, a selective scan runs over it, and the result is gated and projected back (state.h has the
 * words).
 *
 * mixer1 is that of Mamba (Gu and Dao 2023), Falcon Mamba and Jamba: every state of every channel has its own
 * decay.
 * mixer2 is that of Mamba 2 (Dao and Gu 2024) and Zamba 2: channels form heads with one decay each, and the scan's
 * parameters are convolved, too.
 * delta_net is that of Qwen3-Next: heads have memories, which a gated delta rule corrects (Gated DeltaNet, Yang et
 * al. 2024). */
#pragma once
#include "model/state.h"

struct mixer1_shape {
    uint32_t inner, states, taps, rank; /* rank: of the projection of the time steps */
};
struct mixer1 {
    struct mixer1_shape s;
    struct dev_weight x, gate, dt_in, b, c, dt, out;
    float *b_x, *b_gate, *b_out;             /* biases, or NULL */
    float *conv, *b_conv;                    /* [taps][inner], [inner] */
    float *b_dt, *a, *d;                     /* [inner], [states][inner] negative, [inner] */
    struct mod_norm dt_norm, b_norm, c_norm; /* norms of the scan's parameters, or NORM_NONE */
};
struct mixer1_keys { /* of config.json */
    const char *expand, *states, *taps, *rank;
};
/* Reads the shape by these keys, or by GGUF's ssm.* keys.  m->hidden is set. */
int mixer1_read(struct model *m, const struct mixer1_keys *k, struct mixer1_shape *s);
/* Declares the site of a layer with this mixer. */
void mixer1_site(const struct mixer1_shape *s, uint32_t layer, struct kv_site *site);
/* Binds the tensors under `hf` ("backbone.layers.%u.mixer") or GGUF's blk.%u.ssm_*.  Norms are not bound here. */
int mixer1_bind(struct model *m, uint32_t layer, const char *hf, const struct mixer1_shape *s,
                struct mixer1 *out);
struct mixer1_buffers { /* shared by the layers of a graph */
    float *x, *gate, *conv, *dt_in, *b, *c, *dt, *y;
};
struct mixer1_buffers mixer1_buffers_new(struct graph *g, const struct mixer1_shape *s);
/* out = mixer of x, both [hidden] per token; out may be x. */
void mixer1_graph(struct graph *g, uint32_t site, const struct mixer1 *w,
                  const struct mixer1_buffers *b, const float *x, float *out);

struct mixer2_shape {
    uint32_t inner, heads, groups, states, taps; /* inner: channels of all heads together */
    float dt_min, dt_max;                        /* bounds of a time step */
    float eps;                                   /* of the norm of the result */
};
struct mixer2 {
    struct mixer2_shape s;
    struct dev_weight gate, conv_in, dt, out;
    float *b_gate, *b_conv_in, *b_dt_in, *b_out; /* biases, or NULL */
    float *conv, *b_conv; /* [taps][inner + 2 * groups * states], and its bias */
    float *b_dt, *a, *d;  /* [heads], [inner] negative, [inner] */
    float *norm;          /* [inner] */
};
struct mixer2_keys { /* of config.json */
    const char *expand, *heads, *groups, *states, *taps;
};
/* Reads the sizes by these keys, or by GGUF's ssm.* keys, and checks that they divide each other.  Before the call
 * *s holds the defaults of absent keys, and the bounds of a time step. */
int mixer2_read(struct model *m, const struct mixer2_keys *k, struct mixer2_shape *s);
void mixer2_site(const struct mixer2_shape *s, uint32_t layer, struct kv_site *site);
/* Binds the tensors under `hf` and GGUF's blk.%u.ssm_*. */
int mixer2_bind(struct model *m, uint32_t layer, const char *hf, const struct mixer2_shape *s,
                struct mixer2 *out);
struct mixer2_buffers {
    float *gate, *conv_in, *conv, *dt, *y;
};
struct mixer2_buffers mixer2_buffers_new(struct graph *g, const struct mixer2_shape *s);
/* out = mixer of x, both [hidden] per token; out may be x. */
void mixer2_graph(struct graph *g, uint32_t site, const struct mixer2 *w,
                  const struct mixer2_buffers *b, const float *x, float *out);

struct delta_shape {
    uint32_t heads, key_heads, keys, values,
        taps;  /* heads: of the values, a multiple of key_heads */
    float eps; /* of the norm of the result */
};
struct delta_net {
    struct delta_shape s;
    /* in: projection of q, k and v; z: projection of the gate.  If z has no data, `in` projects all four, by key head. */
    struct dev_weight in, z;
    /* b: projection of the shares; a: projection of the time steps.  If a has no data, `b` projects both, by key head. */
    struct dev_weight b, a;
    struct dev_weight out;
    float *conv, *b_conv; /* [taps][channels of q, k and v], and zeros */
    float *b_dt, *decay;  /* [heads]; the decays are negative */
    /* scales q and k to unit length; norm of the values that a head reads */
    struct mod_norm unit, y_norm;
};
/* Reads the shape by the keys linear_*, or by GGUF's ssm.* keys. */
int delta_read(struct model *m, struct delta_shape *s);
void delta_site(const struct delta_shape *s, uint32_t layer, struct kv_site *site);
/* Binds the tensors under `hf` ("model.layers.%u.linear_attn") and GGUF's blk.%u.ssm_*. */
int delta_bind(struct model *m, uint32_t layer, const char *hf, const struct delta_shape *s,
               struct delta_net *out);
struct delta_buffers {
    float *mixed, *qkv, *conv, *qk, *shares, *beta, *dt, *z, *y;
};
struct delta_buffers delta_buffers_new(struct graph *g, const struct delta_shape *s);
/* out = mixer of x, both [hidden] per token; out may be x. */
void delta_graph(struct graph *g, uint32_t site, const struct delta_net *w,
                 const struct delta_buffers *b, const float *x, float *out);

/* --- what the mixers read and bind */
/* Reads the configuration of a stack of Mamba layers without attention (layers, hidden, norm_eps), and sets the
 * fields that follow from it. */
int mixer_read_stack(struct model *m);
/* Reads the channels of a mixer: `key` (default 2) times m->hidden, or GGUF's ssm.inner_size. */
int mixer_inner(struct model *m, const char *key, uint32_t *inner);
struct mixer_names {
    char hf[128], gguf[128];
};
/* Returns the names <hf>.<part> and blk.%u.ssm_<gguf>. */
struct mixer_names mixer_name(const char *hf, const char *part, const char *gguf);
/* Binds the taps as [taps][channels], and the bias, which is zeros if it is absent. */
int mixer_conv(struct model *m, uint32_t layer, const char *hf, uint32_t channels, uint32_t taps,
               float **w, float **bias);
/* Turns n values of A_log into decays.  GGUF files hold the decays already. */
void mixer_decays(const struct model *m, float *a, size_t n);
