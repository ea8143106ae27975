/* layers.c - updates of a cache without a model.  The caller computes keys and values.  An update appends them and
 * returns the rows that attention must see, like Cache.update of Transformers, under every strategy.
 *
 * The KV rows lie in a store like any other; each batch row is a sequence.  An update is one turn: its rows are
 * written, quantized where a codec says so, and read back through the view of that step, in the form that
 * attention would read.  So a quantized cache returns the rows of its first update unquantized, and a sliding
 * layer returns the whole of a prompt that is longer than its window. */
#include "compat/layers.h"
#include "kv/rows.h"
#include "model/budget.h"

#include <string.h>

enum { MAX_ROWS = 65536, STEP = 4096, STREAM_STEP = 256 };

static int dtype_of(const char *name, enum dtype *out)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    for (size_t i = 0; i < countof(types); i++)
        if (!name || !strcmp(name, dtype_name(types[i]))) {
            *out = types[i];
            return 0;
        }
    return ERR(ARG, "dtype \"%s\": rows are stored as f32, f16 or bf16", name);
}

static int store_open(kvik_layers *all, struct layer *l)
{
    /* No snapshots: kvik cannot recompute rows of the caller's model, so it never resumes at a snapshot. */
    struct preset_options o = {.dtype = l->dtype, .every = PRESET_NEVER};
    struct kv_site as = kv_site_rows(l->heads, l->dim_k, l->dim_v);
    uint32_t site = 0, max = all->set.max_cache_len;
    as.layer = (uint32_t)(l - all->layer);
    TRY(preset_settle(all->set.preset, &all->set.keys, NULL, 0, &o));
    TRY(kv_layers_settle(&all->set.keys.layers, all->n_layers, &o.layers));
    if (!l->slides) o.window = 0;
    if (layers_static(all) && o.window > max) o.window = max;
    if (all->set.streaming == KV_STREAM_ON_FULL) o.stream = true;
    TRY(preset_groups(&as, 1, &o, &l->group, &site));
    struct kv_config k = {
        .dev = all->dev,
        .queue = all->queue,
        .group = &l->group,
        .n_groups = 1,
        .max_seqs = 2 * all->max_batch, /* a batch, and the batch that a selection makes of it */
        .marks = all->max_batch,
        .max_tokens = MAX(all->set.streaming == KV_RESIDENT ? STEP : STREAM_STEP, all->max_batch),
        /* One more than the limit of a row: reading a layer begins a step for one row and aborts it. */
        .max_len = (max && !(layers_static(all) && o.window) ? max : MAX(max, MAX_ROWS)) + 1,
        .streaming = all->set.streaming,
    };
    size_t staging = 0, half = budget_half() / all->n_layers;
    const struct budget b = {.site = &as,
                             .n_sites = 1,
                             .preset = &o,
                             .store = k,
                             .reserve = layers_static(all),
                             .max_seqs = k.max_seqs};
    uint64_t failures = mem_failures();
    k.pool_bytes = all->memory ? all->memory : budget_bytes(&b, half, &staging);
    k.stage_bytes = staging;
    if (k.streaming != KV_RESIDENT)
        k.max_tokens = MAX(budget_step(&b, k.pool_bytes, staging, STREAM_STEP), all->max_batch);
    if (mem_failures() != failures) return ERR_NOMEM;
    if (k.streaming != KV_RESIDENT) TRY(exec_tier_open(all->queue, all->spill_dir, &k.tier));
    int e = kv_open(&l->kv, &k);
    if (e < 0 && k.tier) k.tier->close(k.tier);
    return e;
}

static int row_new(kvik_layers *all, struct layer *l, kv_seq *out)
{
    kv_seq s;
    TRY(kv_new(l->kv, NULL, &s));
    int e = layers_static(all) ? kv_reserve(l->kv, s, layer_most(l)) : 0;
    if (e < 0) {
        kv_drop(l->kv, s);
        return e;
    }
    *out = s;
    return 0;
}

static int layer_open(kvik_layers *all, struct layer *l, const kvik_shape *s)
{
    if (s->batch > all->max_batch)
        return ERR(LIMIT, "a batch of %u, the cache was opened for max_sequences %u", s->batch,
                   all->max_batch);
    TRY(dtype_of(s->dtype, &l->dtype));
    l->heads = s->heads;
    l->dim_k = s->dim_k;
    l->dim_v = s->dim_v;
    l->seq = mem_array(all->max_batch, sizeof *l->seq);
    int e = l->seq ? store_open(all, l) : ERR_NOMEM;
    for (; e >= 0 && l->batch < s->batch; l->batch++)
        e = row_new(all, l, &l->seq[l->batch]);
    if (e < 0) {
        layer_close(l);
        return e;
    }
    l->open = true;
    return 0;
}

struct layers_shape layers_shape(const kvik_layers *all, const struct layer *l, uint32_t n)
{
    struct layers_shape s = {.len = l->open ? kv_len(l->kv, l->seq[0]) : 0};
    const struct kv_keys *k = &all->set.keys;
    struct kv_policy p = l->group.policy;
    if (!l->open && l->slides) { /* the policy that the store will have */
        p.sinks = k->num_sink_tokens;
        p.window = k->window_length ? k->window_length - p.sinks : k->sliding_window;
        if (layers_static(all)) p.window = MIN(p.window, all->set.max_cache_len);
    }
    struct kv_reach r = kv_reach(&p, s.len, 0);
    s.sinks = r.sinks;
    s.lo = r.lo;
    s.rows = r.sinks + s.len - r.lo + n;
    if (layers_static(all)) {
        uint32_t slots = p.window ? p.sinks + p.window : all->set.max_cache_len;
        if (!r.lo) s.rows = MAX(s.rows, slots);
    }
    return s;
}

static int grow_array(void *at, size_t *have, size_t n, size_t size)
{
    void *p;
    if (n <= *have) return 0;
    size_t want = MAX(n, *have + *have / 2);
    memcpy(&p, at, sizeof p);
    if (!(p = mem_grow(p, want, size))) return ERR_NOMEM;
    memcpy(at, &p, sizeof p);
    *have = want;
    return 0;
}

/* One update in progress. */
struct update {
    kvik_layers *all;
    struct layer *l;
    const float *in[2]; /* keys, values: [batch][heads][n][dim] */
    float *out[2];      /* [batch][heads][rows][dim] */
    uint32_t n;
    struct layers_shape shape;
};

static uint32_t dim_of(const struct layer *l, uint32_t plane)
{
    return plane ? l->dim_v : l->dim_k;
}

/* Reads the new KV rows [done, done + take) of batch row b.  The first step also reads the earlier rows before them. */
static void read_back(const struct update *p, const struct kv_view *v, uint32_t b, uint32_t done,
                      uint32_t take)
{
    const struct layers_shape *s = &p->shape;
    size_t first = (size_t)b * p->l->heads * s->rows;
    struct rows_ask a = {.lane = b,
                         .token = b * take,
                         .to = s->len + done + take,
                         .ld = s->rows,
                         .scratch = p->all->scratch};
    for (uint32_t plane = 0; plane < 2; plane++)
        a.plane[plane] = p->out[plane] + first * dim_of(p->l, plane);
    a.sinks = done ? 0 : s->sinks;
    a.lo = done ? s->len + done : s->lo;
    a.at = done ? s->sinks + s->len - s->lo + done : 0;
    rows_read(v, &a);
}

/* Writes, seals and reads back the new KV rows [done, done + take) of every batch row. */
static int update_step(const struct update *p, struct kv_step *st, uint32_t done, uint32_t take)
{
    const struct layer *l = p->l;
    struct kv_view v;
    int e;
    while ((e = kv_next(st, 0, &v)) > 0) {
        for (uint32_t plane = 0; plane < 2 && v.first; plane++) {
            size_t width = (size_t)l->heads * dim_of(l, plane);
            for (uint32_t b = 0; b < l->batch; b++)
                rows_pack(p->in[plane] + b * width * p->n, p->n, done, take, l->heads,
                          dim_of(l, plane), p->all->packed + (size_t)b * take * width);
            size_t bytes = (size_t)l->batch * take * width * sizeof(float);
            float *at = dev_lend(p->all->queue, p->all->packed, bytes);
            if (!at) return ERR_NOMEM;
            dev_put(p->all->queue, at, p->all->packed, bytes);
            dev_kv_write(p->all->queue, &v, plane, at, width);
        }
        if (v.first) dev_kv_seal(p->all->queue, &v);
        for (uint32_t b = 0; b < l->batch; b++)
            read_back(p, &v, b, done, take);
    }
    return e;
}

static int update_feed(const struct update *p, uint32_t done, uint32_t take)
{
    struct kv_span *span = mem_array(p->l->batch, sizeof *span);
    struct kv_step *st;
    if (!span) return ERR_NOMEM;
    for (uint32_t b = 0; b < p->l->batch; b++)
        span[b] = (struct kv_span){
            .seq = p->l->seq[b], .n = take, .turn = p->n > 1, .last = done + take == p->n};
    int e = kv_begin(p->l->kv, span, p->l->batch, &st);
    mem_free(span);
    if (e < 0) return e;
    e = update_step(p, st, done, take);
    if (e < 0) {
        kv_abort(st);
        return e;
    }
    return kv_commit(st, NULL);
}

/* An update of several steps: marks each sequence first, and rolls all back if a later step fails. */
static int update_run(const struct update *p)
{
    struct layer *l = p->l;
    uint32_t most = MAX(kv_max_tokens(l->kv) / l->batch, 1), done = 0;
    struct kv_mark *mark = mem_array(l->batch, sizeof *mark);
    int e = mark ? 0 : ERR_NOMEM;
    for (uint32_t b = 0; p->n > most && e >= 0 && b < l->batch; b++)
        e = kv_mark(l->kv, l->seq[b], &mark[b]);
    for (uint32_t take; e >= 0 && done < p->n; done += take) {
        take = MIN(most, p->n - done);
        if ((e = update_feed(p, done, take)) < 0) break;
    }
    for (uint32_t b = 0; mark && b < l->batch; b++)
        kv_settle(l->kv, &mark[b], e < 0);
    mem_free(mark);
    return e;
}

static int check_shape(const struct layer *l, uint32_t layer, const kvik_shape *s)
{
    if (!s->batch || !s->heads || !s->n || !s->dim_k || !s->dim_v || s->heads > 65536 ||
        s->dim_k > 65536 || s->dim_v > 65536)
        return ERR(ARG,
                   "layer %u: batch %u, heads %u, n %u, dim_k %u and dim_v %u must be at least 1 "
                   "(heads and dims at most 65536)",
                   layer, s->batch, s->heads, s->n, s->dim_k, s->dim_v);
    if (!l->open) return 0;
    if (s->batch != l->batch)
        return ERR(ARG, "layer %u: a batch of %u, the cache holds %u rows", layer, s->batch,
                   l->batch);
    if (s->heads != l->heads || s->dim_k != l->dim_k || s->dim_v != l->dim_v)
        return ERR(ARG,
                   "layer %u: %u heads of %u and %u values; its first update had %u of %u and %u",
                   layer, s->heads, s->dim_k, s->dim_v, l->heads, l->dim_k, l->dim_v);
    return 0;
}

static int check_room(const struct layer *l, uint32_t n)
{
    uint32_t len = kv_len(l->kv, l->seq[0]), max = layer_most(l);
    if (n <= max - MIN(len, max)) return 0;
    return ERR(LIMIT, "%u rows after the %u already cached do not fit in max_cache_len %u", n, len,
               max);
}

/* Makes room in the buffers of results for `rows` rows of a layer. */
static int rows_room(kvik_layers *all, const struct layer *l, uint32_t rows)
{
    size_t heads = (size_t)l->batch * l->heads;
    TRY(grow_array(&all->keys, &all->n_keys, heads * rows * l->dim_k, sizeof *all->keys));
    TRY(grow_array(&all->values, &all->n_values, heads * rows * l->dim_v, sizeof *all->values));
    return grow_array(&all->position, &all->n_position, rows, sizeof *all->position);
}

/* Grows the buffers for the results of this update. */
static int update_buffers(struct update *p)
{
    kvik_layers *all = p->all;
    const struct layer *l = p->l;
    size_t step = MIN((size_t)p->n * l->batch, MAX(kv_max_tokens(l->kv), l->batch));
    TRY(rows_room(all, l, p->shape.rows));
    TRY(grow_array(&all->packed, &all->n_packed, step * l->heads * MAX(l->dim_k, l->dim_v),
                   sizeof *all->packed));
    TRY(grow_array(&all->scratch, &all->n_scratch, rows_scratch(&l->group), 1));
    p->out[0] = all->keys;
    p->out[1] = all->values;
    return 0;
}

/* Writes positions, and clears padding: rows of padding are zeros and have position -1. */
static void update_pad(const struct update *p)
{
    const struct layers_shape *s = &p->shape;
    uint32_t used = s->sinks + s->len - s->lo + p->n;
    for (uint32_t i = 0; i < s->rows; i++)
        p->all->position[i] = i < s->sinks ? (int32_t)i
                              : i < used   ? (int32_t)(s->lo + i - s->sinks)
                                           : -1;
    for (uint32_t plane = 0; plane < 2; plane++) {
        size_t dim = dim_of(p->l, plane), heads = (size_t)p->l->batch * p->l->heads;
        for (size_t h = 0; h < heads && used < s->rows; h++)
            memset(p->out[plane] + (h * s->rows + used) * dim, 0,
                   (s->rows - used) * dim * sizeof(float));
    }
}

KVIK_API int kvik_layers_update(kvik_layers *layers, uint32_t layer, const float *keys,
                                const float *values, const kvik_shape *shape, kvik_rows *out)
{
    kvik_shape full = {0}, *s = &full;
    USE_LAYERS(layers);
    if (layer >= all->n_layers) return ERR(ARG, "layer %u of %u", layer, all->n_layers);
    if (!keys || !values || !shape || !out)
        return ERR(ARG, "an update needs keys, values and their shape");
    TRY(SIZED_IN(&full, shape, kvik_shape));
    TRY(SIZED_CHECK(out, kvik_rows));
    struct layer *l = &all->layer[layer];
    TRY(check_shape(l, layer, s));
    bool fresh = !l->open;
    if (fresh) TRY(layer_open(all, l, s));
    struct update p = {all, l, {keys, values}, {NULL, NULL}, s->n, layers_shape(all, l, s->n)};
    int e = check_room(l, s->n);
    if (e >= 0) e = update_buffers(&p);
    if (e >= 0) e = update_run(&p);
    if (e < 0) {
        if (fresh) layer_close(l);
        return e;
    }
    update_pad(&p);
    const kvik_rows rows = {.batch = l->batch,
                            .heads = l->heads,
                            .rows = p.shape.rows,
                            .dim_k = l->dim_k,
                            .dim_v = l->dim_v,
                            .keys = all->keys,
                            .values = all->values,
                            .position = all->position};
    return SIZED_OUT(out, &rows, kvik_rows);
}

static int layer_read(kvik_layers *all, struct layer *l, kvik_rows *out)
{
    uint32_t sinks, lo, n = rows_seen(&l->group, kv_len(l->kv, l->seq[0]), &sinks, &lo);
    TRY(rows_room(all, l, MAX(n, 1)));
    for (uint32_t b = 0; n && b < l->batch; b++) {
        struct rows_reader r;
        size_t first = (size_t)b * l->heads * n;
        TRY(rows_open(l->kv, l->seq[b], &r));
        int e = rows_site(&r, &l->group, 0, all->keys + first * l->dim_k,
                          all->values + first * l->dim_v);
        int failed = rows_close(&r);
        if (e < 0 || failed < 0) return MIN(e, failed);
    }
    for (uint32_t i = 0; i < n; i++)
        all->position[i] = (int32_t)(i < sinks ? i : lo + i - sinks);
    *out = (kvik_rows){.batch = l->batch,
                       .heads = l->heads,
                       .rows = n,
                       .dim_k = l->dim_k,
                       .dim_v = l->dim_v,
                       .keys = all->keys,
                       .values = all->values,
                       .position = all->position};
    return 0;
}

KVIK_API int kvik_layers_rows(kvik_layers *layers, uint32_t layer, kvik_rows *out)
{
    kvik_rows rows = {0};
    USE_LAYERS(layers);
    if (layer >= all->n_layers) return ERR(ARG, "layer %u of %u", layer, all->n_layers);
    if (!out) return ERR(ARG, "reading a layer needs a place for its rows");
    TRY(SIZED_CHECK(out, kvik_rows));
    if (all->layer[layer].open) TRY(layer_read(all, &all->layer[layer], &rows));
    return SIZED_OUT(out, &rows, kvik_rows);
}
