/* lender.c - a forward of a padded batch whose rows the caller keeps.  The caller has rectangles, with columns of
 * padding; the rows of a step have no padding.  This file converts one form into the other. */
#include "compat/lender.h"

#include <string.h>

void lender_close(struct lender *l)
{
    void *own[] = {l->column, l->end, l->keys, l->values, l->rows, l->pos};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
}

bool lender_grows(const struct kvik_batch *b)
{
    const struct model *m = b->c->x->m;
    for (uint32_t i = 0; i < m->n_sites; i++)
        if (m->site[i].kind == KV_STATE) return true;
    return false;
}

int lender_check(const struct kvik_batch *b, const kvik_inputs *in, const kvik_outputs *out)
{
    if (exec_sinks(b->c->x))
        return ERR(UNSUPPORTED,
                   "a sink cache turns its rows itself, so the caller cannot keep them");
    if (b->length && !lender_grows(b))
        return ERR(ARG, "the batch has %u columns; rows that the caller keeps need an empty one",
                   b->length);
    if (out && (out->attentions || out->cross_attentions))
        return ERR(UNSUPPORTED, "attentions to rows that the caller keeps are not computed");
    uint64_t cells = (uint64_t)b->rows * in->n;
    if (cells > b->c->x->step_tokens)
        return ERR(
            LIMIT,
            "%u rows of %u columns are more than step_tokens (%u); a forward whose rows the caller keeps is one step",
            b->rows, in->n, b->c->x->step_tokens);
    return 0;
}

/* Spreads the rows of the step's tokens, [heads][dim] each, to [rows][heads][n][dim]. */
static void spread(const struct lender *l, const struct kv_shape *s, const float *from, float *to)
{
    uint32_t n = l->in->n;
    memset(to, 0, (size_t)l->b->rows * n * s->heads * s->dim * sizeof *to);
    for (uint32_t i = 0; i < l->b->rows; i++)
        for (uint32_t j = 0; j < n; j++) {
            if (!l->real[(size_t)i * n + j]) continue;
            for (uint32_t h = 0; h < s->heads; h++, from += s->dim)
                memcpy(to + (((size_t)i * s->heads + h) * n + j) * s->dim, from,
                       s->dim * sizeof *to);
        }
}

/* Gathers column c of batch row i from [rows][heads][columns][dim]. */
static void gather(const struct kv_shape *s, const float *from, uint32_t i, uint32_t c,
                   uint32_t columns, float *to)
{
    for (uint32_t h = 0; h < s->heads; h++)
        memcpy(to + (size_t)h * s->dim, from + (((size_t)i * s->heads + h) * columns + c) * s->dim,
               s->dim * sizeof *to);
}

/* Returns which column of the text column c of the seen rows is; -1: no token sees it. */
static int64_t column_of(const struct lender *l, const kvik_seen *seen, uint32_t c)
{
    int64_t all = (int64_t)l->in->past + l->in->n;
    return seen->position ? seen->position[c] : all - seen->columns + c;
}

static int check_seen(const struct lender *l, const kvik_seen *seen)
{
    int64_t all = (int64_t)l->in->past + l->in->n, last = -1;
    if (!seen->columns || !seen->keys || !seen->values)
        return ERR(ARG, "layer %u: on_layer set no keys and values", seen->layer);
    for (uint32_t c = 0; c < seen->columns; c++) {
        int64_t at = column_of(l, seen, c);
        if (at < -1 || at >= all || (at >= 0 && at <= last))
            return ERR(
                ARG,
                "layer %u: column %u of what is seen is column %lld of a text of %lld; they ascend",
                seen->layer, c, (long long)at, (long long)all);
        last = MAX(last, at);
    }
    return 0;
}

/* Copies what the tokens see into rows without padding. */
static int pack_seen(struct lender *l, const struct kv_shape *s, const kvik_seen *seen,
                     struct exec_given *given)
{
    size_t k = (size_t)s[0].heads * s[0].dim, v = (size_t)s[1].heads * s[1].dim, cells, bytes;
    if (!ck_mul(l->b->rows, seen->columns, &cells) ||
        !ck_mul(cells, (k + v) * sizeof(float), &bytes))
        return ERR(LIMIT, "layer %u: %u rows of %u columns are too many", seen->layer, l->b->rows,
                   seen->columns);
    if (cells > l->cells) {
        mem_free(l->rows);
        mem_free(l->pos);
        l->cells = 0;
        l->rows = mem_alloc(bytes);
        l->pos = mem_array(cells, sizeof *l->pos);
        if (!l->rows || !l->pos) return ERR_NOMEM;
        l->cells = cells;
    }
    float *to = l->rows;
    uint32_t *pos = l->pos, width = l->in->past + l->in->n;
    for (uint32_t i = 0, span = 0; i < l->b->rows; i++) {
        const uint8_t *mask =
            l->in->attention_mask ? l->in->attention_mask + (size_t)i * width : NULL;
        uint32_t n = 0;
        if (!l->count[i]) continue;
        float *keys = to, *values = to + seen->columns * k;
        for (uint32_t c = 0; c < seen->columns; c++) {
            int64_t at = column_of(l, seen, c);
            if (at < 0 || (mask && !mask[at])) continue;
            gather(&s[0], seen->keys, i, c, seen->columns, keys + n * k);
            gather(&s[1], seen->values, i, c, seen->columns, values + n * v);
            pos[n++] = (uint32_t)at;
        }
        given[span++] = (struct exec_given){.n = n, .k = keys, .v = values, .pos = pos};
        to += seen->columns * (k + v);
        pos += seen->columns;
    }
    return 0;
}

static int new_rows(struct lender *l, const struct kv_shape *s)
{
    size_t cells = (size_t)l->b->rows * l->in->n, k = cells * s[0].heads * s[0].dim,
           v = cells * s[1].heads * s[1].dim;
    if (k > l->k) {
        mem_free(l->keys);
        l->k = 0;
        if (!(l->keys = mem_array(k, sizeof *l->keys))) return ERR_NOMEM;
        l->k = k;
    }
    if (v > l->v) {
        mem_free(l->values);
        l->v = 0;
        if (!(l->values = mem_array(v, sizeof *l->values))) return ERR_NOMEM;
        l->v = v;
    }
    return 0;
}

static int give_rows(void *ctx, uint32_t layer, const struct kv_shape *s, const float *k,
                     const float *v, struct exec_given *given)
{
    struct lender *l = ctx;
    struct exec *x = l->b->c->x;
    TRY(new_rows(l, s));
    spread(l, &s[0], k, l->keys);
    spread(l, &s[1], v, l->values);
    kvik_seen seen = {
        .size = sizeof seen,
        .layer = layer,
        .rows = l->b->rows,
        .heads = s[0].heads,
        .n = l->in->n,
        .dim_k = s[0].dim,
        .dim_v = s[1].dim,
        .new_keys = l->keys,
        .new_values = l->values,
    };
    x->telling = true;
    int e = l->in->on_layer(l->in->ctx, &seen);
    x->telling = false;
    if (e < 0) return ERR(CANCELLED, "on_layer failed in layer %u", layer);
    TRY(check_seen(l, &seen));
    return pack_seen(l, s, &seen, given);
}

/* Frequencies that depend on the length of the text go by the last position of each feed, as in Transformers. */
static void set_ends(struct lender *l, struct exec_feed *feed, uint32_t k)
{
    uint32_t *end = l->end;
    for (uint32_t i = 0; i < k; end += feed[i++].n) {
        uint32_t last = feed[i].pos ? 0 : feed[i].n - 1;
        for (uint32_t j = 0; feed[i].pos && j < feed[i].n; j++)
            last = MAX(last, feed[i].pos[j]);
        for (uint32_t j = 0; j < feed[i].n; j++)
            end[j] = last;
        feed[i].ends = end;
    }
}

int lender_open(struct lender *l, const struct kvik_batch *b, const kvik_inputs *in,
                const uint8_t *real, const uint32_t *count, struct exec_feed *feed, uint32_t k)
{
    uint32_t t = 0;
    *l = (struct lender){.b = b, .in = in, .real = real, .count = count};
    l->column = mem_array((size_t)b->rows * in->n, sizeof *l->column);
    l->end = mem_array((size_t)b->rows * in->n, sizeof *l->end);
    if (!l->column || !l->end) return ERR_NOMEM;
    set_ends(l, feed, k);
    for (uint32_t i = 0; i < b->rows; i++)
        for (uint32_t j = 0; j < in->n; j++)
            if (real[(size_t)i * in->n + j]) l->column[t++] = in->past + j;
    l->to = (struct exec_lender){.give = give_rows, .ctx = l, .column = l->column};
    return 0;
}
