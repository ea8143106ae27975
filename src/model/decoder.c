/* decoder.c - what most decoder configurations have in common: sizes, rotary parameters, the embedding, the final
 * norm and the head, and a layer's projections, bound from a table of names. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

/* Reads a size that must be known: the value of the key, or else the default that *out holds before the call. */
static int size_key(const struct model *m, const char *hf, const char *gguf, uint32_t max,
                    uint32_t *out)
{
    if (*out == 0) return model_need_u32(m, hf, gguf, 1, max, out);
    return model_u32(m, hf, gguf, 1, max, out);
}

int model_read_eps(struct model *m, const char *hf, const char *gguf, float usual)
{
    if (m->norm_eps == 0) m->norm_eps = usual;
    TRY(model_f32(m, hf, gguf, &m->norm_eps));
    if (!(m->norm_eps >= 0))
        return ERR(FORMAT, "%s: %s must not be negative, but is %g", m->config_file, hf,
                   (double)m->norm_eps);
    return 0;
}

int model_read_decoder(struct model *m)
{
    TRY(size_key(m, "num_hidden_layers", "block_count", MODEL_LAYERS, &m->n_layers));
    TRY(size_key(m, "hidden_size", "embedding_length", 1u << 17, &m->hidden));
    TRY(size_key(m, "intermediate_size", "feed_forward_length", 1u << 20, &m->ffn));
    TRY(size_key(m, "num_attention_heads", "attention.head_count", 1024, &m->n_heads));
    bool usual = m->n_kv_heads && !model_is_gguf(m) && !model_is_null(m, "num_key_value_heads");
    m->n_kv_heads = usual ? MIN(m->n_kv_heads, m->n_heads) : m->n_heads;
    TRY(model_u32(m, "num_key_value_heads", "attention.head_count_kv", 1, 1024, &m->n_kv_heads));
    if (m->n_heads % m->n_kv_heads)
        return ERR(FORMAT, "%s: %u attention heads are not a multiple of %u key-value heads",
                   m->config_file, m->n_heads, m->n_kv_heads);
    if (m->head_dim == 0) m->head_dim = m->hidden / m->n_heads;
    TRY(model_u32(m, "head_dim", "attention.key_length", 1, 1024, &m->head_dim));
    if (m->head_dim == 0) return ERR(FORMAT, "%s: the head dimension is 0", m->what);
    if (m->context == 0) m->context = 2048;
    TRY(model_u32(m, "max_position_embeddings", "context_length", 1, 1u << 28, &m->context));
    TRY(model_read_eps(m, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6f));
    return model_new_sites(m, m->n_layers);
}

int model_read_window(const struct model *m, uint32_t *window)
{
    if (model_is_null(m, "sliding_window")) *window = 0;
    return model_u32(m, "sliding_window", "attention.sliding_window", model_is_gguf(m) ? 0 : 1,
                     1u << 30, window);
}

int model_layer_types(const struct model *m, const char *other, bool *is)
{
    const json_t *types = model_is_gguf(m) ? NULL : json_object_get(m->config, "layer_types");
    char found[JSON_FOUND];
    if (!types || json_is_null(types)) return 0;
    if (!json_is_array(types) || json_array_size(types) != m->n_layers)
        return ERR(FORMAT,
                   "%s: layer_types must be a list of %u strings, one for each layer, not %s",
                   m->config_file, m->n_layers, json_found(types, found));
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const json_t *one = json_array_get(types, i);
        const char *s = json_string_value(one);
        is[i] = s && strcmp(s, other) == 0;
        if (!is[i] && (!s || strcmp(s, "full_attention") != 0))
            return ERR(UNSUPPORTED, "%s: layer_types[%u] is %s; %s has full_attention and %s",
                       m->config_file, i, json_found(one, found), m->arch_name, other);
    }
    return 1;
}

int model_slide(struct model *m, uint32_t window, uint32_t from, uint32_t period)
{
    bool slides[MODEL_LAYERS];
    int given = model_layer_types(m, "sliding_attention", slides);
    TRY(given);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        if (!given) slides[i] = window && i >= from && (period == 0 || (i + 1) % period != 0);
        if (slides[i] && window == 0)
            return ERR(
                FORMAT,
                "%s: layer_types[%u] is \"sliding_attention\", but there is no sliding_window",
                m->config_file, i);
        m->site[i].window = slides[i] ? window : 0;
    }
    return 0;
}

/* Moves the divisors of longrope, which GGUF files store as a tensor, into an array of the configuration. */
static int gguf_factors(struct model *m, json_t *rope, const char *key, const char *tensor,
                        uint32_t rot)
{
    float *f;
    TRY(model_vector(m, NULL, tensor, 0, rot / 2, false, &f));
    json_t *a = json_array();
    for (uint32_t i = 0; a && i < rot / 2; i++)
        if (json_array_append_new(a, json_real((double)f[i])) < 0)
            return json_decref(a), ERR(FORMAT, "%s: %s must hold finite numbers", m->what, tensor);
    return json_object_set_new(rope, key, a) < 0 ? ERR(NOMEM, "out of memory") : 0;
}

static int gguf_rope(struct model *m, struct rope *r)
{
    const json_t *c = m->config;
    const char *type = NULL;
    char key[128];
    float theta = r->theta > 0 ? (float)r->theta : 10000, factor = 1, attn = 0, *f;
    TRY(model_f32(m, NULL, "rope.freq_base", &theta));
    TRY(model_f32(m, NULL, "rope.scaling.factor", &factor));
    TRY(model_f32(m, NULL, "rope.scaling.attn_factor", &attn));
    uint32_t original = m->context;
    TRY(model_u32(m, NULL, "rope.scaling.original_context_length", 1, 1u << 30, &original));
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch_name);
    TRY(json_get_str(c, m->config_file, key, &type));
    if (!type || strcmp(type, "none") == 0) type = "default";
    uint32_t rot = m->head_dim;
    TRY(model_u32(m, NULL, "rope.dimension_count", 2, m->head_dim, &rot));
    bool longrope = model_find(m, NULL, "rope_factors_long.weight", 0);
    JSON_SCOPE(scope);
    json_t *o = json_pack("{s:{s:s, s:f, s:f, s:i}}", "rope_parameters", "rope_type",
                          longrope ? "longrope" : type, "rope_theta", (double)theta, "factor",
                          longrope ? (double)m->context / original : (double)factor,
                          "original_max_position_embeddings", (int)original);
    if (!o) return ERR(NOMEM, "out of memory");
    json_t *in = json_object_get(o, "rope_parameters");
    int e = longrope ? gguf_factors(m, in, "short_factor", "rope_factors_short.weight", rot) : 0;
    if (longrope && e >= 0) e = gguf_factors(m, in, "long_factor", "rope_factors_long.weight", rot);
    if (longrope && e >= 0 && attn > 0)
        (void)json_object_set_new(in, "attention_factor", json_real((double)attn));
    if (e >= 0) e = json_whole(&scope);
    if (e >= 0) e = rope_read(r, o, m->config_file, m->context);
    json_decref(o);
    if (e < 0) return e;
    if (attn > 0 && !longrope) r->attention_factor *= attn;
    r->rot = rot;
    TRY(model_vector(m, "", "rope_freqs.weight", 0, r->rot / 2, true, &f));
    if (!f) return 0;
    r->freq_factor = mem_array(r->rot / 2, sizeof *f);
    if (!r->freq_factor) return ERR_NOMEM;
    memcpy(r->freq_factor, f, r->rot / 2 * sizeof *f);
    return 0;
}

static int read_rope(struct model *m, uint32_t i, const char *section)
{
    struct rope *r = &m->rope[i];
    const json_t *c = m->config, *o = NULL;
    double partial = 1;
    m->n_ropes = MAX(m->n_ropes, i + 1);
    if (model_is_gguf(m)) return gguf_rope(m, r);
    if (section) o = json_object_get(json_object_get(c, "rope_parameters"), section);
    if (o) {
        json_t *one = json_pack("{s:O, s:O?}", "rope_parameters", (json_t *)(uintptr_t)o,
                                "rope_theta", json_object_get(c, "rope_theta"));
        if (!one) return ERR(NOMEM, "out of memory");
        int e = rope_read(r, one, m->config_file, m->context);
        json_decref(one);
        if (e < 0) return e;
    } else {
        TRY(rope_read(r, c, m->config_file, m->context));
        o = json_object_get(c, "rope_parameters");
    }
    TRY(json_get_f64(c, m->config_file, "partial_rotary_factor", &partial));
    if (json_is_object(o)) TRY(json_get_f64(o, m->config_file, "partial_rotary_factor", &partial));
    if (!(partial > 0 && partial <= 1))
        return ERR(FORMAT, "%s: partial_rotary_factor must be above 0 and at most 1, not %g",
                   m->config_file, partial);
    r->rot = (uint32_t)(m->head_dim * partial);
    return 0;
}

int model_read_rope(struct model *m, uint32_t i, const char *section)
{
    TRY(read_rope(m, i, section));
    if (m->rope[i].type == ROPE_DYNAMIC || m->rope[i].type == ROPE_LONG)
        m->no_sinks = "its rotary frequencies depend on the length of the sequence";
    return 0;
}

int model_embed(const struct model *m, const int32_t *ids, size_t n, float *out)
{
    const struct dev_weight *w = &m->embed;
    size_t row;
    if (m->encoder.n_layers)
        return ERR(UNSUPPORTED, "%s: embeddings of a model with an encoder cannot be given",
                   m->what);
    if (!dtype_bytes(w->dtype, w->cols, &row)) return ERR(FORMAT, "%s: embeddings", m->what);
    TRY(checkpoint_recheck(m->ck)); /* reading a mapped file that shrank would raise SIGBUS */
    for (size_t i = 0; i < n; i++) {
        float *to = out + i * w->cols;
        if (ids[i] < 0 || (uint32_t)ids[i] >= m->vocab)
            return ERR(ARG, "token id %d is outside the vocabulary of %u", ids[i], m->vocab);
        dev_to_f32(w->dtype, (const char *)w->data + (size_t)ids[i] * row, to, w->cols);
        for (uint32_t k = 0; m->embed_scale != 0 && !m->scales_given && k < w->cols; k++)
            to[k] *= m->embed_scale;
    }
    return 0;
}

/* Binds the ends under these names.  The vocabulary is the embedding's first dimension.  config.json must agree with it; GGUF may leave it out. */
int model_bind_named_ends(struct model *m, const char *embed, const char *norm)
{
    static const char gguf[] = "token_embd.weight";
    const struct tensor *t = model_find(m, embed, gguf, 0);
    if (!t || t->n_dims != 2 || t->dim[0] < 1 || t->dim[0] > 1u << 24)
        return ERR(FORMAT, "%s: the token embedding is missing or not a matrix", m->what);
    m->vocab = (uint32_t)t->dim[0];
    TRY(model_u32(m, "vocab_size", "vocab_size", 1, 1u << 24, &m->vocab));
    TRY(model_matrix(m, embed, gguf, 0, m->vocab, m->hidden, &m->embed));
    bool tied = m->tied;
    if (model_is_gguf(m))
        tied = !model_find(m, NULL, "output.weight", 0);
    else
        TRY(json_get_bool(m->config, m->config_file, "tie_word_embeddings", &tied));
    m->tied = tied;
    m->head = m->embed;
    if (!tied)
        TRY(model_matrix(m, "lm_head.weight", "output.weight", 0, m->vocab, m->hidden, &m->head));
    return model_norm(m, NORM_RMS, norm, "output_norm", 0, m->hidden, false, &m->final_norm);
}

int model_bind_ends(struct model *m)
{
    return model_bind_named_ends(m, "model.embed_tokens.weight", "model.norm");
}

int model_bind_projs(struct model *m, uint32_t layer, const struct model_proj *p)
{
    char hf[128], gguf[128];
    for (; p->hf; p++) {
        snprintf(hf, sizeof hf, "%s.weight", p->hf);
        snprintf(gguf, sizeof gguf, "%s.weight", p->gguf);
        TRY(model_matrix(m, hf, gguf, layer, p->rows, p->cols, p->w));
        if (!p->bias) continue;
        snprintf(hf, sizeof hf, "%s.bias", p->hf);
        snprintf(gguf, sizeof gguf, "%s.bias", p->gguf);
        TRY(model_vector(m, hf, gguf, layer, p->rows, true, p->bias));
    }
    return 0;
}
