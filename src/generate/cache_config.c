/* cache_config.c - turns a kvik_cache_config into settings: a preset, keys of cache_config, and sizes that follow
 * from the budget.  Nothing is allocated here, so a wrong configuration fails before anything is made. */
#include "generate/cache_config.h"
#include "base/bytes.h"
#include "base/near.h"
#include "generate/options.h"
#include "model/budget.h"

#include <stdio.h>
#include <string.h>

static int find_preset(const char *name, const struct preset **out)
{
    char list[256] = "";
    struct near n;
    if ((*out = preset_find(name))) return 0;
    near_begin(&n, name);
    for (uint32_t i = 0; preset_at(i); i++) {
        size_t k = strlen(list);
        snprintf(list + k, sizeof list - k, "%s%s", i ? ", " : "", preset_at(i)->name);
        near_try(&n, preset_at(i)->name);
    }
    if (n.best)
        return ERR(ARG, "cache_implementation \"%s\" is unknown; did you mean \"%s\"?", name,
                   n.best);
    return ERR(UNSUPPORTED, "cache_implementation \"%s\" is not available; these are: %s", name,
               list);
}

/* Reads keys from a JSON text; NULL: none. */
static int read_keys(const char *text, const char *what, struct kv_keys *k)
{
    json_t *o;
    *k = kv_keys_none;
    if (!text) return 0;
    TRY(json_parse(text, strlen(text), what, &o));
    int e = kv_keys_read(o, what, k);
    json_decref(o);
    return e;
}

/* Adds keys that were given as fields, in an object whose reference is taken over, to those of the JSON text
 * `text`.  e: the error of making the object. */
static int add_fields(struct kv_keys *k, json_t *o, int e, const char *what, const char *text)
{
    struct kv_keys more;
    if (e >= 0) e = kv_keys_read(o, what, &more);
    if (e >= 0) e = kv_keys_add(k, &more, text, what);
    json_decref(o);
    return e;
}

static void put_key(json_t *o, const char *key, int64_t value)
{
    if (value) json_object_set_new(o, key, json_integer(value));
}

static void put_name(json_t *o, const char *key, const char *value)
{
    if (value) json_object_set_new(o, key, json_string_nocheck(value));
}

static int add_policy(struct kv_keys *k, const kvik_policy *given)
{
    kvik_policy p = {0};
    if (!given) return 0;
    JSON_SCOPE(scope);
    TRY(SIZED_IN(&p, given, kvik_policy));
    json_t *o = json_object();
    put_key(o, "sliding_window", (int64_t)p.sliding_window);
    put_key(o, "window_length", p.window_length);
    if (p.window_length || p.num_sink_tokens)
        json_object_set_new(o, "num_sink_tokens", json_integer(p.num_sink_tokens));
    return add_fields(k, o, json_whole(&scope), "kvik_policy", "cache_config");
}

/* Makes the object of "layers" from the fields.  A JSON object cannot have a key twice, so a second entry for a
 * layer gets a wrong name, which the reader of keys refuses. */
static json_t *layers_of(const kvik_codec *c)
{
    json_t *all = json_object();
    for (size_t i = 0; i < c->n_layers && c->layers; i++) {
        const kvik_layer_bits *l = &c->layers[i];
        char name[32];
        json_t *one = json_object();
        snprintf(name, sizeof name, "%d", (int)l->layer);
        if (json_object_get(all, name)) snprintf(name, sizeof name, "%d twice", (int)l->layer);
        put_key(one, c->backend && strcmp(c->backend, "kvik") != 0 ? "nbits_key" : "k_bits",
                l->k_bits);
        put_key(one, c->backend && strcmp(c->backend, "kvik") != 0 ? "nbits_value" : "v_bits",
                l->v_bits);
        json_object_set_new(all, name, one);
    }
    return all;
}

static int add_codec(struct kv_keys *k, const kvik_codec *given, const char *text)
{
    kvik_codec c = {0};
    if (!given) return 0;
    JSON_SCOPE(scope);
    TRY(SIZED_IN(&c, given, kvik_codec));
    json_t *o = json_object();
    put_name(o, "backend", c.backend);
    put_name(o, "backend_key", c.backend_key);
    put_name(o, "backend_value", c.backend_value);
    if (c.nbits == KVIK_AUTO)
        put_name(o, "nbits", "auto");
    else
        put_key(o, "nbits", c.nbits);
    if (c.max_kld != 0) json_object_set_new(o, "max_kld", json_real(c.max_kld));
    put_key(o, "q_group_size", c.q_group_size);
    put_key(o, "axis_key", c.axis_key);
    put_key(o, "axis_value", c.axis_value);
    put_key(o, "residual_length", (int64_t)c.residual_length);
    put_key(o, "k_bits", c.k_bits);
    put_key(o, "v_bits", c.v_bits);
    if (c.n_layers) json_object_set_new(o, "layers", layers_of(&c));
    return add_fields(k, o, json_whole(&scope), "kvik_codec", text);
}

static int add_tier(struct kv_keys *k, enum kvik_tier tier)
{
    if (tier == KVIK_TIER_NAMED) return 0;
    if ((unsigned)tier > KVIK_TIER_DISK_FULL)
        return ERR(ARG, "tier is %d, which is no enum kvik_tier", (int)tier);
    JSON_SCOPE(scope);
    json_t *o = json_object();
    json_object_set_new(o, "offloading", json_boolean(tier != KVIK_TIER_MEMORY));
    if (tier == KVIK_TIER_DISK_FULL)
        json_object_set_new(o, "offload_only_non_sliding", json_true());
    return add_fields(k, o, json_whole(&scope), "kvik_cache_config.tier", "cache_config");
}

static int read_cross(const kvik_cache_config *c, struct preset_choice *s)
{
    s->cross = NULL;
    if (c->cross_cache_implementation) {
        int e = find_preset(c->cross_cache_implementation, &s->cross);
        if (e < 0) return err_prefix(e, "cross_cache_implementation"), e;
    }
    TRY(read_keys(c->cross_cache_config, "cross_cache_config", &s->cross_keys));
    return add_codec(&s->cross_keys, c->cross_codec, "cross_cache_config");
}

int settings_take(const kvik_cache_config *given, kvik_cache_config *full)
{
    kvik_generation g;
    *full = (kvik_cache_config){0};
    if (given) TRY(SIZED_IN(full, given, kvik_cache_config));
    if (!full->options) return 0;
    TRY(SIZED_IN(&g, full->options, kvik_generation));
    if (!full->cache_implementation) full->cache_implementation = g.cache_implementation;
    if (!full->cache_config) full->cache_config = g.cache_config;
    if (!full->max_cache_len) full->max_cache_len = g.max_cache_len;
    if (!full->cross_cache_implementation)
        full->cross_cache_implementation = g.cross_cache_implementation;
    if (!full->cross_cache_config) full->cross_cache_config = g.cross_cache_config;
    if (!full->max_encoder_len) full->max_encoder_len = g.max_encoder_len;
    return 0;
}

/* Refuses on_full "encode" with options that need rows to stay in the form in which they were computed. */
static int encode_check(const struct preset_choice *s)
{
    struct kv_codec_pair o;
    TRY(kv_keys_codecs(&s->keys, s->preset, &o));
    const char *why = s->preset->reserve ? "its memory is set aside for rows as they are"
                      : s->streaming != KV_RESIDENT
                          ? "rows that can go to disk are not encoded later"
                      : o.plane[0].kind || o.plane[1].kind || s->keys.choose
                          ? "its rows are quantized from the first on"
                      : s->keys.moved_chunks ? "chunks cannot move once rows are encoded"
                                             : NULL;
    if (!why) return 0;
    return ERR(ARG,
               "on_full \"encode\" does not go with cache_implementation \"%s\" and this "
               "cache_config: %s; leave out one of them",
               s->preset->name, why);
}

int settings_read(const kvik_cache_config *c, struct preset_choice *s)
{
    const char *name = c->cache_implementation;
    TRY(find_preset(name ? name : option_default("cache_implementation"), &s->preset));
    TRY(read_keys(c->cache_config, "cache_config", &s->keys));
    TRY(add_policy(&s->keys, c->policy));
    TRY(add_codec(&s->keys, c->codec, "cache_config"));
    TRY(add_tier(&s->keys, c->tier));
    TRY(kv_keys_check(&s->keys, s->preset));
    TRY(read_cross(c, s));
    if (c->max_cache_len > KV_LEN_MOST)
        return ERR(LIMIT, "max_cache_len is %u; the limit is %d", c->max_cache_len, KV_LEN_MOST);
    if (s->keys.max_cache_len && c->max_cache_len && s->keys.max_cache_len != c->max_cache_len)
        return ERR(ARG,
                   "max_cache_len is %u in cache_config and %u beside it; give it in one of them",
                   s->keys.max_cache_len, c->max_cache_len);
    s->max_cache_len = s->keys.max_cache_len ? s->keys.max_cache_len : c->max_cache_len;
    bool offload = c->on_full && strcmp(c->on_full, "offload") == 0;
    s->encode = c->on_full && strcmp(c->on_full, "encode") == 0;
    if (c->on_full && !offload && !s->encode && strcmp(c->on_full, "error") != 0)
        return ERR(ARG, "on_full is \"%s\"; it must be error, encode or offload", c->on_full);
    /* offloaded rows of an encoder leave memory when the decoder's rows need it */
    bool cross = s->cross_keys.offloading || (s->cross && s->cross->offload);
    s->streaming = preset_offloads(s->preset, &s->keys) ? KV_STREAM
                   : offload || cross                   ? KV_STREAM_ON_FULL
                                                        : KV_RESIDENT;
    return s->encode ? encode_check(s) : 0;
}

static int compute_of(const struct model *m, const char *name, struct exec_config *e)
{
    enum dtype w = m->weight_dtype;
    if (!name)
        e->compute = w == DT_F32 ? DEV_EXACT : DEV_FAST;
    else if (strcmp(name, "exact") == 0)
        e->compute = DEV_EXACT;
    else if (strcmp(name, "fast") == 0)
        e->compute = DEV_FAST;
    else
        return ERR(ARG, "compute is \"%s\"; it must be exact or fast", name);
    e->preset.dtype = e->compute == DEV_EXACT || w == DT_F32 ? DT_F32
                      : w == DT_BF16                         ? DT_BF16
                                                             : DT_F16;
    return 0;
}

enum { ENDLESS = 1 << 20 }; /* most tokens of a sequence with sinks */

/* Sets the fields that follow from the budget, after everything else is known. */
static void settle_budget(const struct model *m, const kvik_cache_config *c, struct exec_config *e)
{
    const struct budget b = {.site = m->site,
                             .n_sites = m->n_sites,
                             .preset = &e->preset,
                             .store = exec_store(m, e),
                             .max_seqs = e->max_seqs,
                             .frozen_rows = e->encoder_rows,
                             .reserve = e->reserve,
                             .step_given = c->step_tokens != 0};
    e->pool_bytes = c->cache_memory;
    if (!c->cache_memory) /* staging is added to this, so that all sequences fit one step */
        e->pool_bytes = budget_bytes(&b, budget_half(), &e->stage_bytes);
    if (e->streaming != KV_RESIDENT && !c->step_tokens)
        e->step_tokens = budget_step(&b, e->pool_bytes, e->stage_bytes, e->step_tokens);
}

/* Buffers of the encoder are as long as its rows.  So a model's configuration alone cannot ask for more than
 * ENCODER_DEFAULT. */
enum { ENCODER_MOST = 1 << 20, ENCODER_DEFAULT = 1 << 14 };

static int encoder_rows(const struct model *m, const kvik_cache_config *c, struct exec_config *e)
{
    e->encoder_rows = !m->encoder.n_layers ? 0
                      : m->encoder.fixed   ? m->encoder.rows
                                           : MIN(m->encoder.rows, ENCODER_DEFAULT);
    if (!m->encoder.n_layers) {
        if (c->cross_cache_implementation || c->cross_cache_config || c->cross_codec ||
            c->max_encoder_len)
            return ERR(ARG,
                       "%s: cross_cache_implementation, cross_cache_config and "
                       "max_encoder_len are for models with an encoder, and %s has none",
                       m->what, m->arch_name);
        return 0;
    }
    if (!c->max_encoder_len) return 0;
    if (c->max_encoder_len > (m->encoder.fixed ? m->encoder.rows : ENCODER_MOST))
        return ERR(LIMIT, "%s: max_encoder_len is %llu; the limit is %u", m->what,
                   (unsigned long long)c->max_encoder_len,
                   m->encoder.fixed ? m->encoder.rows : (uint32_t)ENCODER_MOST);
    if (m->encoder.whole && c->max_encoder_len < m->encoder.rows)
        return ERR(ARG, "%s: max_encoder_len is %llu, and every input of the encoder has %u rows",
                   m->what, (unsigned long long)c->max_encoder_len, m->encoder.rows);
    e->encoder_rows = (uint32_t)c->max_encoder_len;
    return 0;
}

int settings_exec(const struct preset_choice *s, const struct model *m, const kvik_cache_config *c,
                  struct exec_config *e)
{
    const struct preset *p = preset_for(s->preset, &s->keys, m->site, m->n_sites);
    TRY(compute_of(m, c->compute, e));
    TRY(preset_settle(p, &s->keys, m->site, m->n_sites, &e->preset));
    if (c->snapshots > KVIK_TURN_ENDS)
        return ERR(LIMIT, "snapshots is %u; the limit is KVIK_TURN_ENDS", c->snapshots);
    e->preset.every = c->snapshots;
    e->streaming = s->streaming;
    bool full = c->on_full && strcmp(c->on_full, "offload") == 0;
    if (full) e->preset.stream = true;
    e->preset.rungs = s->encode;
    if (s->encode && !m->dev->kind->is_host)
        return ERR(UNSUPPORTED,
                   "on_full \"encode\" is for caches in memory of the host, and this one is "
                   "on device %s; use on_full \"offload\"",
                   m->dev->kind->name);
    TRY(preset_settle_cross(s->cross, &s->cross_keys, &e->preset));
    if (full) e->preset.cross_stream = true;
    TRY(encoder_rows(m, c, e));
    e->spill_dir = c->spill_dir;
    e->no_index = c->no_prefix_cache;
    e->threads = c->threads;
    e->isa = c->isa;
    e->max_seqs = c->max_sequences ? c->max_sequences : 64;
    if (e->max_seqs > UINT16_MAX / EXEC_HANDLES)
        return ERR(LIMIT, "max_sequences is %u; the limit is %u", e->max_seqs,
                   UINT16_MAX / EXEC_HANDLES);
    e->max_len = s->max_cache_len ? s->max_cache_len
                 : e->preset.sinks
                     ? MAX(m->context, ENDLESS) /* with sinks, distances stay inside the window */
                     : m->context;
    e->step_tokens = MIN(c->step_tokens ? c->step_tokens : 512, e->max_len * (uint64_t)e->max_seqs);
    if (e->step_tokens > 65536)
        return ERR(LIMIT, "step_tokens is %u; the limit is 65536", e->step_tokens);
    e->reserve = p->reserve;
    e->chunks = s->keys.moved_chunks;
    uint64_t failures = mem_failures();
    settle_budget(m, c, e);
    return mem_failures() == failures ? 0 : ERR_NOMEM;
}

/* Tells the user that a model with states alone has nothing to quantize, to move to disk or to forget.  Returns
 * false if there was nothing to tell. */
static bool hint_states(const struct preset_choice *s, const struct model *m,
                        const kvik_cache_config *c, bool encodes)
{
    size_t bytes = 0;
    char line[256], size[16];
    for (uint32_t i = 0; m && i < m->n_sites; i++) {
        if (m->site[i].kind != KV_STATE) return false;
        bytes += kv_site_bytes(&m->site[i], DT_F32);
    }
    if (!m) return false;
    const struct preset *p = preset_for(s->preset, &s->keys, m->site, m->n_sites);
    const char *what = encodes                                 ? "quantized"
                       : s->streaming == KV_STREAM             ? "moved to disk"
                       : p->windowed || s->keys.sliding_window ? "forgotten"
                                                               : NULL;
    if (!what) return false;
    snprintf(line, sizeof line,
             "nothing is %s: the model has no attention, only states, which take %s a sequence "
             "whatever the length of the text",
             what, bytes_text(bytes, size));
    c->on_notice(c->notice_ctx, line);
    return true;
}

/* Tells the user that residual_length changes nothing, unless it has its default: codecs that seal by position
 * gather no rows. */
static void hint_residual(const struct kv_keys *k, const struct kv_codec_pair *o,
                          const kvik_cache_config *c)
{
    char line[128];
    const struct kv_codec_kind *by_place = NULL;
    if (!(k->given & 1u << KV_KEY_RESIDUAL_LENGTH) ||
        k->residual_length == kv_keys_none.residual_length)
        return;
    for (int p = 0; p < 2; p++) {
        if (o->plane[p].kind && o->plane[p].kind->turns) return;
        if (o->plane[p].kind) by_place = o->plane[p].kind;
    }
    if (!by_place) return;
    snprintf(line, sizeof line,
             "residual_length has no effect: backend \"%.40s\" quantizes rows by their position",
             by_place->name);
    c->on_notice(c->notice_ctx, line);
}

void settings_hints(const struct preset_choice *s, const struct model *m,
                    const kvik_cache_config *c)
{
    struct kv_codec_pair o;
    if (!c->on_notice || kv_keys_codecs(&s->keys, s->preset, &o) < 0) return;
    if (hint_states(s, m, c, o.plane[0].kind || o.plane[1].kind)) return;
    hint_residual(&s->keys, &o, c);
    for (int p = 0; p < 2; p++) {
        const struct kv_codec_kind *kind = o.plane[p].kind;
        int axis = kv_codec_option_at(kind, "axis");
        if (axis < 0 || strcmp(kind->name, "hqq") != 0 || o.plane[p].value[axis] != 0) continue;
        c->on_notice(c->notice_ctx, "hqq with axis 0: axis_key and axis_value 1 are recommended");
        return;
    }
}
