/* describe_model.c - what a model is, as JSON. */
#include "base/user_cache.h"
#include "generate/cache_config.h"
#include "generate/describe.h"
#include "generate/options.h"
#include "model/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *layers(const struct model *m)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < m->n_sites; i++) {
        const struct kv_site *s = &m->site[i];
        const char *kind = s->kind == KV_STATE    ? "recurrent_state"
                           : s->kind == KV_FROZEN ? "cross_attention"
                           : s->window            ? "sliding_attention"
                           : s->chunk             ? "chunked_attention"
                                                  : "full_attention";
        bool state = s->kind == KV_STATE;
        json_t *o = json_pack("{s:i, s:s, s:i, s:i, s:i, s:I}", "layer", (int)s->layer, "kind",
                              kind, "kv_heads", state ? 0 : (int)s->plane[0].heads, "head_dim",
                              state ? 0 : (int)s->plane[0].dim, "window",
                              (int)(s->window ? s->window : s->chunk), "state_bytes",
                              (json_int_t)(state ? kv_site_bytes(s, DT_F32) : 0));
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *tensors(const struct model *m)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < checkpoint_n_tensors(m->ck); i++) {
        const struct tensor *t = checkpoint_tensor_at(m->ck, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dim[d]));
        json_array_append_new(a, json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "dtype",
                                           dtype_name(t->dtype), "shape", shape, "bytes",
                                           (json_int_t)t->bytes));
    }
    return a;
}

static json_t *tokenizer(const kvik_model *k)
{
    if (!k->tok) return json_null();
    const struct tok *t = k->tok->tok;
    static const char *const special[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    json_t *o = json_pack("{s:s, s:i, s:i}", "kind", tok_kind(t), "vocab", (int)tok_size(t),
                          "added_tokens", (int)tok_n_added(t));
    for (size_t i = 0; i < countof(special); i++) {
        const char *s = tok_special_text(t, special[i]);
        if (s)
            json_object_set_new(
                o, special[i],
                json_pack("{s:s, s:i}", "text", s, "id", tok_special_id(t, special[i])));
    }
    return o;
}

/* Adds up the bytes of one token over all layers, for each form that rows may have. */
static json_t *cache_bytes(const struct model *m)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    json_t *o = json_object();
    for (size_t i = 0; i < countof(types); i++) {
        json_object_set_new(o, dtype_name(types[i]),
                            json_integer((json_int_t)budget_row(m->site, m->n_sites, types[i])));
    }
    return o;
}

/* Describes the input of the encoder, and the bytes of each of its rows for each form that rows may have. */
static json_t *encoder(const struct model *m)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    json_t *rows = json_object();
    for (size_t i = 0; i < countof(types); i++) {
        size_t sum = 0;
        for (uint32_t k = 0; k < m->n_sites; k++)
            if (m->site[k].kind == KV_FROZEN) sum += kv_site_bytes(&m->site[k], types[i]);
        json_object_set_new(rows, dtype_name(types[i]), json_integer((json_int_t)sum));
    }
    return json_pack("{s:i, s:i, s:i, s:i, s:o}", "layers", (int)m->encoder.n_layers, "rows",
                     (int)m->encoder.rows, "bins", (int)m->encoder.bins, "stride",
                     (int)m->encoder.stride, "cache_bytes_per_row", rows);
}

/* Computes the bytes of one sequence with the whole context, for each form that rows may have. */
static int cache_most(const struct model *m, json_t *o)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    for (size_t i = 0; i < countof(types); i++) {
        size_t most;
        TRY(settings_most(m, types[i], &most));
        json_object_set_new(o, dtype_name(types[i]), json_integer((json_int_t)most));
    }
    return 0;
}

/* Adds up the bytes of the tensors of each type, largest first. */
static json_t *weight_types(const struct checkpoint *ck)
{
    size_t sum[DT_COUNT] = {0};
    json_t *o = json_object();
    for (uint32_t i = 0; i < checkpoint_n_tensors(ck); i++) {
        const struct tensor *t = checkpoint_tensor_at(ck, i);
        sum[t->dtype] += t->bytes;
    }
    for (;;) {
        int most = 0;
        for (int i = 1; i < DT_COUNT; i++)
            if (sum[i] > sum[most]) most = i;
        if (!sum[most]) return o;
        json_object_set_new(o, dtype_name((enum dtype)most), json_integer((json_int_t)sum[most]));
        sum[most] = 0;
    }
}

int describe_file(const struct checkpoint *ck, json_t *o)
{
    const struct gguf *g = checkpoint_gguf(ck);
    const char *name = NULL, *type = g ? gguf_file_type(g) : NULL;
    size_t n = 0;
    if (g && gguf_get_str(g, "general.name", &name, &n) <= 0) name = NULL;
    json_t *text = name ? json_stringn(name, n) : NULL; /* NULL too if the name is not UTF-8 */
    json_object_set_new(o, "name", text ? text : json_null());
    json_object_set_new(o, "file_type", type ? json_string(type) : json_null());
    return json_object_set_new(o, "weight_types", weight_types(ck)) < 0
               ? ERR(NOMEM, "out of memory")
               : 0;
}

/* Lists the strategies that make a difference for the model.  States cannot be cut, quantized or moved to disk. */
static json_t *presets(const struct model *m)
{
    json_t *a = json_array();
    bool rows = false;
    for (uint32_t i = 0; i < m->n_sites; i++)
        rows |= m->site[i].kind != KV_STATE;
    for (uint32_t i = 0; preset_at(i); i++) {
        const struct preset *p = preset_at(i);
        if (p->sink && m->no_sinks) continue;
        if (!rows && (p->windowed || p->quantized || p->offload)) continue;
        json_array_append_new(a, json_string(p->name));
    }
    return a;
}

/* Returns the sampling values that a GGUF file recommends under general.sampling, by the names of the generation
 * options; null if there are none. */
static json_t *sampling(const struct model *m)
{
    static const struct {
        const char *key, *option;
        bool whole;
    } known[] = {
        {"general.sampling.temp", "temperature", false},
        {"general.sampling.top_k", "top_k", true},
        {"general.sampling.top_p", "top_p", false},
        {"general.sampling.min_p", "min_p", false},
        {"general.sampling.penalty_repeat", "repetition_penalty", false},
    };
    const struct gguf *file = checkpoint_gguf(m->ck);
    json_t *o = json_object();
    double v;
    for (size_t i = 0; file && i < countof(known); i++) {
        const kvik_option *range = kvik_option_at((uint32_t)option_find(known[i].option));
        if (gguf_get_f64(file, known[i].key, &v) != 1 || v < range->min || v > range->max) continue;
        json_object_set_new(o, known[i].option,
                            known[i].whole ? json_integer((json_int_t)v) : json_real(v));
    }
    if (json_object_size(o)) return o;
    json_decref(o);
    return json_null();
}

/* Describes rotary positions; null if the model has none.  Of a scaled type it names what GGUF files and config.json both say. */
static json_t *rope(const struct rope *r)
{
    if (!r->rot) return json_null();
    json_t *o = json_pack("{s:s, s:f, s:i, s:b}", "type", rope_type_name(r->type), "theta",
                          r->theta, "dims", (int)r->rot, "interleaved", r->interleaved);
    if (r->type == ROPE_DEFAULT) return o;
    if (r->type != ROPE_LONG) json_object_set_new(o, "factor", json_real(r->factor));
    if (r->type != ROPE_LINEAR && r->original)
        json_object_set_new(o, "original_context", json_integer(r->original));
    return o;
}

/* Returns a number of 32 bits with the digits that its file has: 1e-05, not 9.99999975e-06. */
static json_t *real(float v)
{
    char s[32];
    snprintf(s, sizeof s, "%.7g", (double)v);
    return json_real(strtod(s, NULL));
}

/* Returns how --quantize has changed the weights, or null. */
static json_t *quantized(const struct model *m)
{
    const struct cache_entry *entry;
    size_t bytes = checkpoint_adopted(m->ck, &entry);
    if (!bytes) return json_null();
    return json_pack("{s:I, s:s?}", "bytes", (json_int_t)bytes, "file", entry ? entry->path : NULL);
}

int describe_model(const kvik_model *k, json_t **out)
{
    const struct model *m = k->m;
    const char *template_text = k->tok ? tok_chat_template(k->tok->tok) : NULL;
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:o, s:o}", "path",
        m->what, "format", model_is_gguf(m) ? "gguf" : "safetensors", "architecture", m->arch_name,
        "parameters", (json_int_t)m->n_params, "bytes", (json_int_t)checkpoint_bytes(m->ck),
        "weights", dtype_name(m->weight_dtype), "hidden_size", (int)m->hidden, "intermediate_size",
        (int)m->ffn, "attention_heads", (int)m->n_heads, "kv_heads", (int)m->n_kv_heads, "head_dim",
        (int)m->head_dim, "vocab", (int)m->vocab, "context", (int)m->context, "tied_head", m->tied,
        "norm_eps", real(m->norm_eps), "rope", rope(&m->rope[0]));
    if (!o) return ERR(NOMEM, "out of memory");
    if (m->n_ropes > 1) json_object_set_new(o, "rope_sliding", rope(&m->rope[1]));
    json_object_set_new(o, "quantized", quantized(m));
    json_object_set_new(o, "layers", layers(m));
    json_object_set_new(o, "cache_bytes_per_token", cache_bytes(m));
    if (m->encoder.n_layers) json_object_set_new(o, "encoder", encoder(m));
    json_t *most = json_object();
    int e = most ? cache_most(m, most) : ERR(NOMEM, "out of memory");
    if (e >= 0) e = describe_file(m->ck, o);
    json_object_set_new(o, "cache_bytes_at_context", most);
    json_object_set_new(o, "cache_implementations", presets(m));
    json_object_set_new(o, "tokenizer", tokenizer(k));
    json_object_set_new(o, "sampling", sampling(m));
    json_object_set_new(o, "chat_template",
                        template_text ? json_string(template_text) : json_null());
    json_object_set_new(o, "tensors", tensors(m));
    if (e < 0)
        json_decref(o);
    else
        *out = o;
    return e;
}
