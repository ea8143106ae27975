/* interchange.c - rows and states of a sequence as arrays in memory, f32, and a new sequence from such arrays.  A layer of
 * the model can have a site of rows, a site with a state, or one of each.
 *
 * Export reads through kv/rows.h like every other reader, so quantized rows and pages on disk need no code here.  Import
 * appends the given rows where a forward would have computed them, as one turn.  f32 holds every row exactly, so rows
 * that were exported raw come back with the same bits. */
#include "generate/handle.h"
#include "kv/rows.h"

#include <string.h>

KVIK_API void kvik_snapshot_free(kvik_snapshot *s)
{
    if (!s) return;
    for (uint32_t i = 0; s->layer && i < s->n_layers; i++) {
        mem_free(s->layer[i].keys);
        mem_free(s->layer[i].values);
        mem_free(s->layer[i].position);
        mem_free(s->layer[i].conv);
        mem_free(s->layer[i].ssm);
    }
    mem_free(s->layer);
    mem_free(s->ids);
    mem_free(s);
}

static int rows_new(kvik_layer_rows *l, const struct kv_group *g, uint32_t len)
{
    uint32_t sinks, lo, n = rows_seen(g, len, &sinks, &lo);
    l->rows = n;
    l->heads = g->plane[0].shape.heads;
    l->dim_k = g->plane[0].shape.dim;
    l->dim_v = g->plane[1].shape.dim;
    l->keys = mem_array(MAX(n, 1), (size_t)l->heads * l->dim_k * sizeof(float));
    l->values = mem_array(MAX(n, 1), (size_t)l->heads * l->dim_v * sizeof(float));
    l->position = mem_array(MAX(n, 1), sizeof *l->position);
    if (!l->keys || !l->values || !l->position) return ERR_NOMEM;
    for (uint32_t i = 0; i < l->rows; i++)
        l->position[i] = (int32_t)(i < sinks ? i : lo + i - sinks);
    return 0;
}

static int state_new(kvik_layer_rows *l, const struct kv_group *g)
{
    l->taps = g->plane[0].shape.heads;
    l->conv_channels = g->plane[0].shape.dim;
    l->states = g->plane[1].shape.heads;
    l->channels = g->plane[1].shape.dim;
    l->conv = mem_array((size_t)l->conv_channels * l->taps, sizeof *l->conv);
    l->ssm = mem_array((size_t)l->channels * l->states, sizeof *l->ssm);
    return l->conv && l->ssm ? 0 : ERR_NOMEM;
}

/* Refuses sites that a snapshot has no place for. */
static int site_check(const struct exec *x, uint32_t site)
{
    const struct kv_group *g = exec_group(x, site);
    if (g->policy.kind == KV_FROZEN)
        return ERR(UNSUPPORTED, "rows of an encoder cannot be exported or imported");
    if (g->n_planes != 2)
        return ERR(UNSUPPORTED, "layer %u keeps %u arrays; two can be exported or imported",
                   x->m->site[site].layer, g->n_planes);
    return 0;
}

static int layer_new(const struct exec *x, uint32_t site, uint32_t len, kvik_snapshot *p)
{
    const struct kv_group *g = exec_group(x, site);
    kvik_layer_rows *l = &p->layer[x->m->site[site].layer];
    TRY(site_check(x, site));
    return g->policy.kind == KV_STATE ? state_new(l, g) : rows_new(l, g, len);
}

static int snapshot_new(const struct exec *x, kv_seq s, kvik_snapshot **out)
{
    uint32_t len = kv_len(x->kv, s);
    kvik_snapshot *p = mem_alloc(sizeof *p);
    if (!p) return ERR_NOMEM;
    p->size = sizeof *p;
    p->n_layers = x->m->n_layers;
    p->length = len;
    p->regime = kv_salt(x->kv, s).regime;
    p->pad = kv_salt(x->kv, s).pad;
    p->ids = mem_array(MAX(len, 1), sizeof *p->ids);
    p->layer = mem_array(p->n_layers, sizeof *p->layer);
    int e = p->ids && p->layer ? 0 : ERR_NOMEM;
    if (e >= 0) memcpy(p->ids, kv_tokens(x->kv, s), len * sizeof *p->ids);
    for (uint32_t i = 0; e >= 0 && i < x->m->n_sites; i++)
        e = layer_new(x, i, len, p);
    if (e < 0) {
        kvik_snapshot_free(p);
        return e;
    }
    *out = p;
    return 0;
}

static int site_out(const struct exec *x, struct rows_reader *r, uint32_t site, kvik_snapshot *p)
{
    const struct kv_group *g = exec_group(x, site);
    kvik_layer_rows *l = &p->layer[x->m->site[site].layer];
    if (g->policy.kind == KV_STATE) return rows_state(r, x->site[site], l->conv, l->ssm);
    return rows_site(r, g, x->site[site], l->keys, l->values);
}

KVIK_API int kvik_cache_export(kvik_cache *c, kvik_seq s, kvik_snapshot **out)
{
    USE_CACHE(c);
    TRY(cache_bound(c));
    struct exec *x = c->x;
    struct rows_reader r;
    kvik_snapshot *p;
    if (!out) return ERR(ARG, "a pointer for the snapshot is needed, and NULL was given");
    if (!kv_tokens(x->kv, s)) return ERR(STALE, "the sequence was dropped");
    if (regime_changes(x, s, 0))
        return ERR(
            UNSUPPORTED,
            "the sequence was cropped from a longer text, and its rows still have the rotary "
            "frequencies of that text; the next forward recomputes them, export after it");
    TRY(snapshot_new(x, s, &p));
    int e = cache_full(c, rows_open(x->kv, s, &r));
    if (e >= 0) {
        for (uint32_t i = 0; e >= 0 && i < x->m->n_sites; i++)
            e = site_out(x, &r, i, p);
        rows_close(&r);
    }
    if (e < 0) {
        kvik_snapshot_free(p);
        return e;
    }
    *out = p;
    return 0;
}

static int check_state(const kvik_layer_rows *l, const struct kv_group *g, uint32_t i)
{
    const struct kv_shape *c = &g->plane[0].shape, *s = &g->plane[1].shape;
    if (!l->conv || !l->ssm) return ERR(ARG, "layer %u: the state is missing", i);
    if (l->taps != c->heads || l->conv_channels != c->dim || l->states != s->heads ||
        l->channels != s->dim)
        return ERR(ARG,
                   "layer %u: a state of %u x %u and %u x %u values, the model has %u x %u and "
                   "%u x %u",
                   i, l->conv_channels, l->taps, l->channels, l->states, c->dim, c->heads, s->dim,
                   s->heads);
    return 0;
}

static int check_site(const struct exec *x, const kvik_snapshot *in, uint32_t site)
{
    uint32_t i = x->m->site[site].layer;
    const kvik_layer_rows *l = &in->layer[i];
    const struct kv_group *g = exec_group(x, site);
    TRY(site_check(x, site));
    if (g->policy.kind == KV_STATE) return check_state(l, g, i);
    const struct kv_shape *k = &g->plane[0].shape, *v = &g->plane[1].shape;
    struct kv_reach r = kv_reach(&g->policy, in->length, 0);
    uint32_t held = 0;
    if (l->heads != k->heads || l->dim_k != k->dim || l->dim_v != v->dim)
        return ERR(ARG,
                   "layer %u: rows of %u heads of %u and %u values, the model has %u of %u and %u",
                   i, l->heads, l->dim_k, l->dim_v, k->heads, k->dim, v->dim);
    if (l->rows && (!l->keys || !l->values || !l->position))
        return ERR(ARG, "layer %u: keys, values or positions are missing", i);
    for (uint32_t j = 0; j < l->rows; j++) {
        int32_t at = l->position[j];
        if (at < 0 || (uint32_t)at >= in->length || (j && at <= l->position[j - 1]))
            return ERR(ARG,
                       "layer %u: position %d; the %u rows must ascend within a sequence of %u", i,
                       at, l->rows, in->length);
        held += (uint32_t)at < r.sinks || (uint32_t)at >= r.lo;
    }
    if (held != r.sinks + in->length - r.lo)
        return ERR(
            ARG,
            "layer %u: the snapshot has %u of the %u rows that the next token sees; positions "
            "%u to %u and the first %u are needed",
            i, held, r.sinks + in->length - r.lo, r.lo, in->length, r.sinks);
    return 0;
}

static int import_check(const struct exec *x, const kvik_snapshot *in)
{
    if (in->n_layers != x->m->n_layers || !in->layer)
        return ERR(ARG, "the snapshot has %u layers, the model has %u", in->n_layers,
                   x->m->n_layers);
    if (!in->length) return ERR(ARG, "the snapshot has no rows");
    if (in->length > x->max_len)
        return ERR(LIMIT, "%u rows do not fit in max_cache_len %u", in->length, x->max_len);
    for (uint32_t i = 0; in->ids && i < in->length; i++)
        if (in->ids[i] < -1 || (in->ids[i] >= 0 && (uint32_t)in->ids[i] >= x->m->vocab))
            return ERR(ARG, "token id %d is outside the vocabulary of %u", in->ids[i], x->m->vocab);
    if (in->regime && regime_of(x->m, in->regime) != in->regime)
        return ERR(ARG, "the model's rotary frequencies do not change at %u tokens", in->regime);
    for (uint32_t i = 0; i < x->m->n_sites; i++)
        TRY(check_site(x, in, i));
    return 0;
}

/* Packs rows [done, done + n) of one plane for dev_kv_write; rows that no later token sees are zero. */
static void pack(const kvik_layer_rows *l, bool values, uint32_t done, uint32_t n, float *out)
{
    uint32_t dim = values ? l->dim_v : l->dim_k;
    size_t width = (size_t)l->heads * dim;
    memset(out, 0, n * width * sizeof *out);
    for (uint32_t j = 0; j < l->rows; j++) {
        uint32_t at = (uint32_t)l->position[j];
        if (at >= done && at - done < n)
            rows_pack(values ? l->values : l->keys, l->rows, j, 1, l->heads, dim,
                      out + (at - done) * width);
    }
}

/* Writes what one view takes of rows [done, done + n). */
static void site_in(struct exec *x, const struct kv_view *v, const kvik_layer_rows *l,
                    uint32_t done, uint32_t n, float *buffer)
{
    for (uint32_t plane = 0; plane < 2; plane++) {
        pack(l, plane, done, n, buffer);
        dev_kv_write(x->dev, v, plane, buffer, (size_t)v->shape[plane].heads * v->shape[plane].dim);
    }
    dev_kv_seal(x->dev, v);
}

static int import_step(struct exec *x, const kvik_snapshot *in, kv_seq s, uint32_t done, uint32_t n,
                       float *buffer)
{
    struct kv_step *st;
    struct kv_view v;
    bool last = done + n == in->length;
    struct kv_span span = {.seq = s,
                           .n = n,
                           .tok = in->ids ? in->ids + done : NULL,
                           .turn = in->length > 1,
                           .last = last};
    TRY(kv_begin(x->kv, &span, 1, &st));
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < x->m->n_sites; i++) {
        const kvik_layer_rows *l = &in->layer[x->m->site[i].layer];
        bool state = exec_group(x, i)->policy.kind == KV_STATE;
        while ((e = kv_next(st, x->site[i], &v)) > 0)
            if (state)
                rows_state_put(&v, n - 1, last ? l->conv : NULL, last ? l->ssm : NULL);
            else if (v.first)
                site_in(x, &v, l, done, n, buffer);
    }
    if (e < 0) {
        kv_abort(st);
        return e;
    }
    return kv_commit(st, NULL);
}

KVIK_API int kvik_cache_import(kvik_cache *c, const kvik_snapshot *given, kvik_seq *out)
{
    kvik_snapshot full = {0}, *in = &full;
    USE_CACHE(c);
    TRY(cache_bound(c));
    struct exec *x = c->x;
    size_t widest = 0;
    kv_seq s;
    TRY(exec_idle(x));
    if (!given || !out) return ERR(ARG, "an import needs a snapshot");
    TRY(SIZED_IN(&full, given, kvik_snapshot));
    TRY(import_check(x, in));
    for (uint32_t i = 0; i < in->n_layers; i++)
        widest =
            MAX(widest, (size_t)in->layer[i].heads * MAX(in->layer[i].dim_k, in->layer[i].dim_v));
    uint32_t most = MIN(x->step_tokens, in->length);
    float *buffer = mem_array(most, MAX(widest, 1) * sizeof *buffer);
    if (!buffer) return ERR_NOMEM;
    int e = exec_new(x, &s);
    struct kv_salt salt = {.regime = MAX(in->regime, regime_of(x->m, in->length)),
                           .pad = x->m->counts_padding ? in->pad : 0};
    if (e >= 0) e = kv_resalt(x->kv, s, &salt);
    if (e >= 0) {
        for (uint32_t done = 0, n; e >= 0 && done < in->length; done += n) {
            n = MIN(most, in->length - done);
            if ((e = import_step(x, in, s, done, n, buffer)) < 0) break;
        }
        if (e >= 0) e = kv_unseen(x->kv, s);
        if (e < 0) (void)kv_drop(x->kv, s);
    }
    mem_free(buffer);
    if (e < 0) return cache_full(c, e);
    *out = s;
    return 0;
}
