/* describe_cache.c - describes each cache strategy for one model: the properties that the guide compares, and
 * bytes.  Both come from the groups with which such a cache would be opened. */
#include "generate/cache_config.h"
#include "generate/describe.h"
#include "model/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of one group: per token while all rows are held, and at most with `len` tokens. */
struct cost {
    size_t token, most;
};

static struct cost cost_of(const struct kv_group *g, uint32_t len)
{
    size_t raw = 0, sealed = 0;
    for (uint32_t i = 0; i < g->n_planes; i++) {
        const struct kv_shape *s = &g->plane[i].shape;
        const struct kv_codec *c = g->plane[i].codec;
        raw += (size_t)s->heads * s->dim * dtype_size(s->dtype) * g->n_sites;
        if (c) sealed += c->bytes(c, s) * g->n_sites / c->tile;
    }
    size_t rows = len, open = 0; /* raw rows that are not quantized yet */
    if (g->policy.kind == KV_STATE) return (struct cost){0, raw};
    if (g->policy.window) rows = MIN(rows, (size_t)g->policy.sinks + g->policy.window + g->rows);
    if (g->policy.chunk) rows = MIN(rows, (size_t)g->policy.chunk + g->rows);
    if (g->seal.tile)
        open = MIN(rows, (size_t)g->seal.lead + g->seal.resid + g->seal.tile + g->rows);
    if (!g->seal.tile) return (struct cost){raw, rows * raw};
    return (struct cost){sealed, (rows - open) * sealed + open * raw};
}

/* Says why the machine or the model cannot have a strategy.  Returns NULL if only memory is missing. */
static json_t *unavailable(json_t *o, int e)
{
    if (e == ERR_NOMEM) {
        json_decref(o);
        return NULL;
    }
    json_object_set_new(o, "available", json_false());
    json_object_set_new(o, "reason", json_string(err_last()));
    return o;
}

static void set_bytes(json_t *o, const char *key, size_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

/* Sets the configuration with which a strategy is described.  Some strategies need a key. */
static void example_config(const struct preset *p, const struct model *m, char out[96])
{
    uint32_t window = MIN(1024u, m->context / 2);
    bool any = preset_for(p, &kv_keys_none, m->site, m->n_sites) != p;
    for (uint32_t i = 0; i < m->n_sites; i++)
        any |= m->site[i].window || m->site[i].chunk;
    out[0] = 0;
    if (p->sink)
        snprintf(out, 96, "{\"window_length\": %u, \"num_sink_tokens\": 4}", MAX(window, 8));
    else if (p->windowed && !any)
        snprintf(out, 96, "{\"sliding_window\": %u}", MAX(window, 1));
}

static int groups_of(const struct model *m, const struct exec_config *e, struct kv_group *g)
{
    uint32_t *number = mem_array(m->n_sites, sizeof *number);
    if (!number) return ERR_NOMEM;
    int n = preset_groups(m->site, m->n_sites, &e->preset, g, number);
    mem_free(number);
    return n;
}

/* Adds up the bytes of all groups.  *streamed: bytes of the groups on disk. */
static struct cost cost_all(const struct kv_group *g, int n, uint32_t len, size_t *streamed)
{
    struct cost sum = {0}, c;
    *streamed = 0;
    for (int i = 0; i < n; i++) {
        c = cost_of(&g[i], len);
        sum.token += c.token;
        sum.most += c.most;
        if (g[i].stream) *streamed += c.most;
    }
    return sum;
}

int settings_most(const struct model *m, enum dtype rows, size_t *out)
{
    static const kvik_cache_config none = {.max_sequences = 1};
    struct preset_choice s = {0};
    struct exec_config e = {0};
    size_t streamed;
    TRY(settings_read(&none, &s));
    TRY(settings_exec(&s, m, &none, &e));
    e.preset.dtype = rows;
    struct kv_group *g = mem_array(m->n_sites, sizeof *g);
    int n = g ? groups_of(m, &e, g) : ERR_NOMEM;
    if (n >= 0) {
        *out = cost_all(g, n, m->context, &streamed).most;
        preset_close(g, (uint32_t)n);
    }
    mem_free(g);
    return n < 0 ? n : 0;
}

static json_t *strategy(const struct model *m, const struct preset *p, size_t dense,
                        struct kv_group *g)
{
    char example[96];
    struct preset_choice s = {0};
    struct exec_config e = {0};
    size_t streamed;
    example_config(p, m, example);
    kvik_cache_config k = {.cache_implementation = p->name,
                           .cache_config = *example ? example : NULL,
                           .max_sequences = 1};
    json_t *o = json_pack("{s:s, s:s, s:s?}", "cache_implementation", p->name, "brief", p->brief,
                          "cache_config", *example ? example : NULL);
    if (!o) return NULL;
    int n = settings_read(&k, &s);
    if (n >= 0) n = settings_exec(&s, m, &k, &e);
    if (n >= 0 && p->sink && m->no_sinks)
        n = ERR(UNSUPPORTED, "a sink cache cannot be exact: %s", m->no_sinks);
    if (n >= 0) n = groups_of(m, &e, g);
    if (n < 0) return unavailable(o, n);
    struct cost sum = cost_all(g, n, m->context, &streamed);
    preset_close(g, (uint32_t)n);
    size_t memory = streamed ? sum.most - streamed + MIN(streamed, e.pool_bytes) : sum.most;
    json_object_set_new(o, "available", json_true());
    json_object_set_new(o, "memory_efficient", json_boolean(memory < dense));
    json_object_set_new(o, "long_context", json_boolean(p->sink || memory < dense || !sum.token));
    json_object_set_new(o, "sliding_layers", json_true());
    json_object_set_new(o, "offloading", json_true());
    json_object_set_new(o, "offloaded", json_boolean(streamed > 0));
    json_object_set_new(o, "compiled_decode", json_true());
    json_object_set_new(o, "initialization_needed", json_false());
    json_object_set_new(o, "reserves", json_boolean(e.reserve));
    json_object_set_new(o, "lossy", json_boolean(p->quantized));
    set_bytes(o, "bytes_per_token", sum.token);
    set_bytes(o, "max_bytes", memory);
    set_bytes(o, "max_disk_bytes", streamed);
    return o;
}

int describe_caches(const struct model *m, json_t **out)
{
    struct preset_choice s = {0};
    struct exec_config e = {0};
    static const kvik_cache_config none;
    size_t row;
    TRY(settings_read(&none, &s));
    TRY(settings_exec(&s, m, &none, &e));
    row = budget_row(m->site, m->n_sites, e.preset.dtype);
    size_t dense = row * m->context;
    for (uint32_t i = 0; i < m->n_sites; i++)
        if (m->site[i].kind == KV_STATE) dense += kv_site_bytes(&m->site[i], DT_F32);
    struct kv_group *g = mem_array(m->n_sites, sizeof *g);
    json_t *o = json_object(), *list = json_array(), *codecs = NULL;
    int err = g && o && list ? 0 : ERR(NOMEM, "out of memory");
    if (!err) err = describe_codecs(&codecs);
    for (uint32_t i = 0; !err && preset_at(i); i++)
        if (json_array_append_new(list, strategy(m, preset_at(i), dense, g)) < 0)
            err = ERR(NOMEM, "out of memory");
    if (!err) {
        json_object_set_new(o, "context", json_integer(m->context));
        json_object_set_new(o, "rows", json_string(dtype_name(e.preset.dtype)));
        set_bytes(o, "dense_bytes", dense);
        json_object_set(o, "caches", list);
        json_object_set(o, "codecs", codecs);
    }
    json_decref(list);
    json_decref(codecs);
    mem_free(g);
    if (err)
        json_decref(o);
    else
        *out = o;
    return err;
}
