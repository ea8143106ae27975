/* legacy.c - the KV rows of a batch as the tuples of Transformers: for each layer a key and a value
 * [batch][heads][tokens][dim].  Here a batch row is one sequence, and a column is one place of the common
 * rectangle: a token of the sequence, or padding.  The mask says which columns are tokens.
 *
 * Each sequence goes through kvik_cache_export or kvik_cache_import; only the shape changes here.  Layers with a
 * window or chunk have only the last columns: at least those that the next token can see, and as many as
 * Transformers returns. */
#include "compat/padded.h"

#include <string.h>

KVIK_API void kvik_legacy_free(kvik_legacy *l)
{
    if (!l) return;
    for (uint32_t i = 0; l->layer && i < l->n_layers; i++) {
        mem_free(l->layer[i].keys);
        mem_free(l->layer[i].values);
    }
    for (uint32_t i = 0; l->cross && i < l->n_layers; i++) {
        mem_free(l->cross[i].keys);
        mem_free(l->cross[i].values);
    }
    mem_free(l->cross);
    mem_free(l->encoder_mask);
    mem_free(l->layer);
    mem_free(l->attention_mask);
    mem_free(l->ids);
    mem_free(l);
}

static int legacy_new(uint32_t n_layers, uint32_t batch, uint32_t length, kvik_legacy **out)
{
    size_t n;
    if (!ck_mul(batch, MAX(length, 1), &n)) return ERR(LIMIT, "%u columns are too many", length);
    kvik_legacy *l = mem_alloc(sizeof *l);
    if (!l) return ERR_NOMEM;
    l->size = sizeof *l;
    l->n_layers = n_layers;
    l->batch = batch;
    l->length = length;
    l->layer = mem_array(MAX(n_layers, 1), sizeof *l->layer);
    l->attention_mask = mem_alloc(n);
    l->ids = mem_array(n, sizeof *l->ids);
    if (!l->layer || !l->attention_mask || !l->ids) {
        kvik_legacy_free(l);
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < n; i++)
        l->ids[i] = -1;
    *out = l;
    return 0;
}

static int plane_new(const kvik_legacy *l, const kvik_legacy_layer *y, uint32_t dim, float **out)
{
    size_t n;
    if (!ck_mul(l->batch, y->heads, &n) || !ck_mul(n, y->tokens, &n) || !ck_mul(n, dim, &n) ||
        !ck_mul(MAX(n, 1), sizeof(float), &n))
        return ERR(
            LIMIT,
            "a layer of %u rows of %u heads of %u tokens of %u values takes more than %zu bytes",
            l->batch, y->heads, y->tokens, dim, (size_t)SIZE_MAX);
    *out = mem_alloc(n);
    return *out ? 0 : ERR_NOMEM;
}

int legacy_layer_new(const kvik_legacy *l, kvik_legacy_layer *layer)
{
    TRY(plane_new(l, layer, layer->dim_k, &layer->keys));
    return plane_new(l, layer, layer->dim_v, &layer->values);
}

/* Returns the column of token `row` of a sequence; n if the sequence is shorter. */
static uint32_t column_of(const uint8_t *mask, uint32_t n, uint32_t row)
{
    uint32_t i = 0;
    for (; i < n; i++)
        if (mask[i] && row-- == 0) break;
    return i;
}

/* Returns how many of the last columns a layer needs, so that the next token of this sequence sees all its rows. */
static uint32_t columns_seen(const struct kv_policy *p, const uint8_t *mask, uint32_t n)
{
    struct kv_reach r = kv_reach(p, padded_ones(mask, n), 0);
    return n - column_of(mask, n, r.lo);
}

static int check_policy(const struct exec *x, uint32_t layer)
{
    const struct kv_policy *p = &exec_group(x, layer)->policy;
    if (p->kind != KV_ROWS)
        return ERR(UNSUPPORTED, "layer %u has a recurrent state, which has no legacy form", layer);
    if (p->sinks) return ERR(UNSUPPORTED, "a sink cache has no legacy form; see kvik_cache_export");
    return 0;
}

static int layers_new(const struct exec *x, kvik_legacy *l)
{
    for (uint32_t i = 0; i < l->n_layers; i++) {
        TRY(check_policy(x, i));
        const struct kv_group *g = exec_group(x, i);
        const struct kv_policy *p = &g->policy;
        uint32_t span = p->window ? p->window : p->chunk, tokens = l->length;
        if (span) tokens = MIN(tokens, span - 1);
        for (uint32_t b = 0; span && b < l->batch; b++)
            tokens =
                MAX(tokens, columns_seen(p, l->attention_mask + (size_t)b * l->length, l->length));
        l->layer[i] = (kvik_legacy_layer){.heads = g->plane[0].shape.heads,
                                          .tokens = tokens,
                                          .dim_k = g->plane[0].shape.dim,
                                          .dim_v = g->plane[1].shape.dim};
        TRY(legacy_layer_new(l, &l->layer[i]));
    }
    return 0;
}

/* A copy between the KV rows of one sequence and the columns of batch row b, in either direction. */
struct passage {
    uint32_t b, rows, tokens, first; /* first: column of the first token that the layer has */
    const uint32_t *column;          /* [kv_len] */
    const int32_t *position;         /* [rows] */
};

static void plane_pass(const struct passage *p, uint32_t heads, uint32_t dim, float *flat,
                       float *columns, bool out)
{
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t j = 0; j < p->rows; j++) {
            size_t at = p->column[p->position[j]] - p->first;
            float *row = flat + ((size_t)h * p->rows + j) * dim,
                  *cell = columns + (((size_t)p->b * heads + h) * p->tokens + at) * dim;
            memcpy(out ? cell : row, out ? row : cell, dim * sizeof *row);
        }
}

static void layer_pass(const kvik_legacy *l, uint32_t b, const kvik_legacy_layer *y,
                       const uint32_t *column, const kvik_layer_rows *r, bool out)
{
    struct passage p = {b, r->rows, y->tokens, l->length - y->tokens, column, r->position};
    plane_pass(&p, y->heads, y->dim_k, kvik_layer_plane(r, "keys")->data, y->keys, out);
    plane_pass(&p, y->heads, y->dim_v, kvik_layer_plane(r, "values")->data, y->values, out);
}

/* Fills column[k] with the column of token k of a sequence; returns the number of tokens. */
static uint32_t columns_of(const uint8_t *mask, uint32_t n, uint32_t *column)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (mask[i]) column[k++] = i;
    return k;
}

static int row_out(kvik_cache *c, kv_seq s, kvik_legacy *l, uint32_t b, uint32_t *column)
{
    kvik_export *snap;
    uint32_t n = columns_of(l->attention_mask + (size_t)b * l->length, l->length, column);
    if (!n) return 0;
    TRY(export_of(c, s, &snap));
    for (uint32_t i = 0; i < l->n_layers; i++)
        layer_pass(l, b, &l->layer[i], column, &snap->layer[i], true);
    for (uint32_t i = 0; l->cross && i < l->n_layers; i++)
        legacy_cross_pass(l, b, &l->cross[i], &snap->layer[i], true);
    for (uint32_t k = 0; k < n; k++)
        l->ids[(size_t)b * l->length + column[k]] = snap->ids[k];
    kvik_export_free(snap);
    return 0;
}

/* Fills the mask.  Checks that every sequence has as many tokens as its mask has ones. */
static int fill_mask(const struct exec *x, const kv_seq *seq, const uint8_t *mask, kvik_legacy *l)
{
    for (uint32_t b = 0; b < l->batch; b++) {
        uint8_t *to = l->attention_mask + (size_t)b * l->length;
        uint32_t len = kv_len(x->kv, seq[b]);
        for (uint32_t i = 0; i < l->length; i++)
            to[i] = mask ? mask[(size_t)b * l->length + i] != 0 : i >= l->length - len;
        if (padded_ones(to, l->length) != len)
            return ERR(ARG, "row %u: the mask shows %u columns, the sequence has %u tokens", b,
                       padded_ones(to, l->length), len);
    }
    return 0;
}

int legacy_of(kvik_cache *c, const kv_seq *seq, uint32_t n, const uint8_t *mask, uint32_t length,
              kvik_legacy **out)
{
    struct exec *x = c->x;
    kvik_legacy *l;
    for (uint32_t i = 0; i < n; i++) {
        if (!kv_tokens(x->kv, seq[i])) return ERR(STALE, "row %u: the sequence was dropped", i);
        if (!mask) length = MAX(i ? length : 0, kv_len(x->kv, seq[i]));
    }
    TRY(legacy_new(legacy_layers(x), n, length, &l));
    uint32_t *column = mem_array(MAX(length, 1), sizeof *column);
    int e = column ? fill_mask(x, seq, mask, l) : ERR_NOMEM;
    if (e >= 0) e = layers_new(x, l);
    if (e >= 0 && x->encode) e = legacy_cross_new(x, seq, l);
    for (uint32_t b = 0; e >= 0 && b < n; b++)
        e = row_out(c, seq[b], l, b, column);
    mem_free(column);
    if (e < 0) {
        kvik_legacy_free(l);
        return e;
    }
    *out = l;
    return 0;
}

KVIK_API int kvik_batch_to_legacy(const kvik_batch *b, kvik_legacy **out)
{
    USE_BATCH(b);
    if (!out) return ERR(ARG, "a pointer for the keys and values is needed, and NULL was given");
    /* while a call is running the mask does not have its tokens yet */
    TRY(cache_free(b->c, b->seq, b->rows));
    uint8_t *mask = mem_array(b->rows, MAX(b->length, 1));
    int e = mask ? kvik_batch_mask(b, mask) : ERR_NOMEM;
    if (e >= 0) e = legacy_of(b->c, b->seq, b->rows, mask, b->length, out);
    mem_free(mask);
    return e;
}

/* Finds the number of columns: as given, or as many as the longest layer has.  If all layers have windows, it must
 * be given. */
static int length_of(const struct exec *x, const kvik_legacy *in, uint32_t *out)
{
    bool all_slide = true;
    *out = in->length;
    if (in->length) return 0;
    for (uint32_t i = 0; i < in->n_layers; i++) {
        const struct kv_policy *p = &exec_group(x, i)->policy;
        uint32_t span = p->window ? p->window : p->chunk;
        *out = MAX(*out, in->layer[i].tokens);
        all_slide &= span && in->layer[i].tokens + 1 == span;
    }
    if (all_slide)
        return ERR(ARG,
                   "every layer has only the last %u tokens of its window; say how many the text "
                   "has (length)",
                   *out);
    return 0;
}

static int check_row(const struct exec *x, const kvik_legacy *in, uint32_t b, uint32_t length)
{
    const uint8_t *mask = in->attention_mask ? in->attention_mask + (size_t)b * length : NULL;
    uint32_t n = mask ? padded_ones(mask, length) : length;
    if (n > x->max_len)
        return ERR(LIMIT,
                   "row %u: %u tokens do not fit in max_cache_len %u; open the cache with more", b,
                   n, x->max_len);
    for (uint32_t i = 0; i < in->n_layers; i++) {
        const struct kv_policy *p = &exec_group(x, i)->policy;
        uint32_t lo = kv_reach(p, n, 0).lo, seen = length - lo;
        if (mask) seen = columns_seen(p, mask, length);
        if (in->layer[i].tokens < seen)
            return ERR(
                ARG,
                "layer %u has the last %u of %u columns; the next token of row %u sees the last "
                "%u",
                i, in->layer[i].tokens, length, b, seen);
    }
    return 0;
}

static int legacy_check(const struct exec *x, const kvik_legacy *in, uint32_t *length)
{
    uint32_t columns;
    if (in->n_layers != legacy_layers(x) || !in->layer)
        return ERR(ARG, "keys and values of %u layers, the model has %u", in->n_layers,
                   legacy_layers(x));
    if (x->encode) TRY(legacy_cross_check(x, in));
    if (!in->batch || in->batch > x->max_seqs)
        return ERR(LIMIT, "a batch of %u rows, the cache was opened for max_sequences %u",
                   in->batch, x->max_seqs);
    for (uint32_t i = 0; i < in->n_layers; i++) {
        const kvik_legacy_layer *y = &in->layer[i];
        const struct kv_group *g = exec_group(x, i);
        TRY(check_policy(x, i));
        const struct kv_shape *k = &g->plane[0].shape, *v = &g->plane[1].shape;
        if (y->heads != k->heads || y->dim_k != k->dim || y->dim_v != v->dim)
            return ERR(ARG,
                       "layer %u: keys and values of %u heads of %u and %u, the model has %u of %u "
                       "and %u",
                       i, y->heads, y->dim_k, y->dim_v, k->heads, k->dim, v->dim);
        if (y->tokens && (!y->keys || !y->values))
            return ERR(ARG, "layer %u: no keys or no values", i);
    }
    TRY(length_of(x, in, &columns));
    for (uint32_t i = 0; i < in->n_layers; i++)
        if (in->layer[i].tokens > columns)
            return ERR(ARG, "layer %u has %u tokens, the batch has %u columns", i,
                       in->layer[i].tokens, columns);
    for (uint32_t b = 0; b < in->batch; b++)
        TRY(check_row(x, in, b, columns));
    *length = columns;
    return 0;
}

/* Makes the KV rows of one layer, at least those that the next token sees. */
static int layer_in(const kvik_legacy *l, uint32_t b, const kvik_legacy_layer *y,
                    const uint32_t *column, uint32_t n, kvik_layer_rows *r)
{
    uint32_t first = l->length - y->tokens, k = 0;
    while (k < n && column[k] < first)
        k++;
    *r = (kvik_layer_rows){.rows = n - k, .plane = mem_array(2, sizeof *r->plane)};
    if (!r->plane) return ERR_NOMEM;
    for (; r->n_planes < 2; r->n_planes++) {
        uint32_t dim = r->n_planes ? y->dim_v : y->dim_k;
        r->plane[r->n_planes] = (kvik_plane){
            .name = r->n_planes ? "values" : "keys",
            .n_dims = 3,
            .dim = {y->heads, r->rows, dim},
            .data = mem_array(MAX(r->rows, 1), (size_t)y->heads * dim * sizeof(float)),
        };
        if (!r->plane[r->n_planes].data) return ERR_NOMEM;
    }
    r->position = mem_array(MAX(r->rows, 1), sizeof *r->position);
    if (!r->position) return ERR_NOMEM;
    for (uint32_t j = 0; j < r->rows; j++)
        r->position[j] = (int32_t)(k + j);
    layer_pass(l, b, y, column, r, false);
    return 0;
}

static int row_in(kvik_cache *c, const kvik_legacy *l, uint32_t b, uint32_t *column, kv_seq *out)
{
    uint32_t n = columns_of(l->attention_mask + (size_t)b * l->length, l->length, column);
    if (!n) return cache_full(c, exec_new(c->x, NULL, out));
    kvik_export *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    s->size = sizeof *s;
    s->n_layers = l->n_layers;
    s->length = n;
    s->pad = column[0];
    s->layer = mem_array(l->n_layers, sizeof *s->layer);
    s->ids = mem_array(n, sizeof *s->ids);
    int e = s->layer && s->ids ? 0 : ERR_NOMEM;
    for (uint32_t k = 0; e >= 0 && k < n; k++)
        s->ids[k] = l->ids ? l->ids[(size_t)b * l->length + column[k]] : -1;
    for (uint32_t i = 0; e >= 0 && i < l->n_layers; i++)
        e = layer_in(l, b, &l->layer[i], column, n, &s->layer[i]);
    for (uint32_t i = 0; l->cross && e >= 0 && i < l->n_layers; i++)
        e = legacy_cross_in(l, b, &l->cross[i], &s->layer[i]);
    if (e >= 0) e = kvik_cache_import(c, s, out);
    kvik_export_free(s);
    return e;
}

KVIK_API int kvik_batch_from_legacy(kvik_cache *c, const kvik_legacy *in, kvik_batch **out)
{
    USE_CACHE(c);
    if (!in || !out) return ERR(ARG, "a batch from the legacy form needs keys and values");
    kvik_legacy full = {0};
    TRY(SIZED_IN(&full, in, kvik_legacy));
    in = &full;
    kvik_legacy l = full;
    TRY(legacy_check(c->x, in, &l.length));
    size_t cells = (size_t)l.batch * MAX(l.length, 1);
    uint8_t *mask = mem_alloc(cells);
    uint32_t *column = mem_array(MAX(l.length, 1), sizeof *column);
    kv_seq *seq = mem_array(l.batch, sizeof *seq);
    int e = mask && column && seq ? 0 : ERR_NOMEM;
    for (size_t i = 0; e >= 0 && i < cells; i++)
        mask[i] = l.length && (!in->attention_mask || in->attention_mask[i]);
    l.attention_mask = mask;
    uint8_t *heard = NULL;
    if (!c->x->encode) {
        l.cross = NULL;
    } else if (e >= 0 && !l.encoder_mask) {
        l.encoder_mask = heard = mem_array(l.batch, l.encoder_length);
        if (heard) memset(heard, 1, l.batch * l.encoder_length);
        e = heard ? 0 : ERR_NOMEM;
    }
    for (uint32_t b = 0; e >= 0 && b < l.batch; b++)
        e = row_in(c, &l, b, column, &seq[b]);
    if (e >= 0) e = padded_of(c, seq, l.batch, mask, l.length, out);
    for (uint32_t b = 0; e < 0 && seq && b < l.batch; b++)
        if (seq[b]) (void)kv_drop(c->x->kv, seq[b]);
    mem_free(heard);
    mem_free(mask);
    mem_free(column);
    mem_free(seq);
    return e;
}
