/* lent.c - attention to rows that the caller keeps.  The rows that the lender gives are written into blocks in the
 * form of the store's rows, and kernels read them through a view.  So a lender that gives back the rows that it got
 * gets the bits of a cache, and there is one implementation of attention. */
#include "model/graph.h"

#include <string.h>

struct lent {
    unsigned char *base; /* blocks of KV_STRIP rows */
    size_t bytes;
    uint32_t *words; /* the arrays of a view */
    size_t n_words;
    struct exec_given *given; /* [2 * max_seqs] */
};

void lent_close(struct lent *l)
{
    if (!l) return;
    mem_free(l->base);
    mem_free(l->words);
    mem_free(l->given);
    mem_free(l);
}

static int lent_open(struct exec *x)
{
    if (x->lent) return 0;
    if (!dev_base(x->queue)->kind->is_host)
        return ERR(UNSUPPORTED,
                   "rows that a caller keeps need a device with the memory of the host");
    struct lent *l = mem_alloc(sizeof *l);
    if (!l) return ERR_NOMEM;
    l->given = mem_array(2 * (size_t)x->max_seqs, sizeof *l->given);
    if (!l->given) {
        lent_close(l);
        return ERR_NOMEM;
    }
    x->lent = l;
    return 0;
}

/* Makes room for this many bytes of blocks and words of arrays. */
static int lent_room(struct lent *l, size_t bytes, size_t words)
{
    if (bytes > l->bytes) {
        mem_free(l->base);
        l->bytes = 0;
        if (!(l->base = mem_aligned(2 * bytes))) return ERR_NOMEM;
        l->bytes = 2 * bytes;
    }
    if (words > l->n_words) {
        uint32_t *more = mem_grow(l->words, 2 * words, sizeof *more);
        if (!more) return ERR_NOMEM;
        l->words = more;
        l->n_words = 2 * words;
    }
    return 0;
}

/* A view while it is filled, and its arrays. */
struct lending {
    struct kv_view view;
    uint32_t counts[3];
    /* blocks: of all spans; stride: blocks of the longest span; rows: of all spans */
    uint32_t blocks, stride, rows, n_spans;
    uint32_t *table, *slot, *len, *lane, *pos, *lo, *hi, *edge, *dst;
};

static size_t plane_bytes(const struct kv_shape *s)
{
    return (size_t)KV_STRIP * s->heads * s->dim * dtype_size(s->dtype);
}

static int check_given(const struct exec *x, uint32_t layer, const struct exec_given *g)
{
    if (!g->n || !g->k || !g->v || !g->pos)
        return ERR(ARG, "layer %u: the caller keeps its rows, and gave none to attend to", layer);
    if (g->n > x->max_len)
        return ERR(LIMIT, "layer %u: %u rows to attend to; max_cache_len is %u", layer, g->n,
                   x->max_len);
    return 0;
}

static int lending_begin(struct pass *p, uint32_t layer, const struct kv_view *own,
                         struct lending *o)
{
    struct exec *x = p->x;
    struct lent *l = x->lent;
    size_t k = plane_bytes(&own->shape[0]), v = plane_bytes(&own->shape[1]);
    *o = (struct lending){.n_spans = p->n_fed};
    for (uint32_t i = 0; i < p->n_fed; i++) {
        TRY(check_given(x, layer, &l->given[i]));
        uint32_t blocks = (l->given[i].n + KV_STRIP - 1) / KV_STRIP;
        o->blocks += blocks;
        o->rows += l->given[i].n;
        o->stride = MAX(o->stride, blocks);
    }
    size_t cells = (size_t)p->n_fed * o->stride, tokens = p->n;
    TRY(lent_room(l, (k + v) * o->blocks, cells + 2 * (size_t)p->n_fed + 5 * tokens + o->rows));
    uint32_t **each[] = {&o->lane, &o->pos, &o->lo, &o->hi, &o->edge};
    o->table = l->words;
    o->slot = o->table + cells;
    o->len = o->slot + p->n_fed;
    for (size_t i = 0; i < countof(each); i++)
        *each[i] = o->len + p->n_fed + i * tokens;
    o->dst = o->edge + tokens;
    uint32_t whole = (o->stride * KV_STRIP + KV_ATOM - 1) / KV_ATOM * KV_ATOM;
    o->view = (struct kv_view){
        .queue = p->queue,
        .raw = {.base = l->base,
                .grain = k + v,
                .rows = KV_STRIP,
                .stride = o->stride,
                .table = o->table,
                .offset = {0, k}},
        .n_planes = 2,
        .shape = {own->shape[0], own->shape[1]},
        .row1 = whole,
        .raw1 = whole,
        .first = true,
        .last = true,
        .counts = o->counts,
        .slot = o->slot,
        .len = o->len,
        .lane = o->lane,
        .pos = o->pos,
        .lo = o->lo,
        .hi = o->hi,
        .edge = o->edge,
    };
    return 0;
}

/* Writes what was given into blocks, span after span. */
static void write_given(struct pass *p, struct lending *o)
{
    uint32_t block = 0, row = 0;
    for (uint32_t i = 0; i < p->n_fed; i++) {
        const struct exec_given *g = &p->x->lent->given[i];
        const struct kv_shape *s = o->view.shape;
        o->slot[i] = i;
        o->len[i] = g->n;
        for (uint32_t j = 0; j < g->n; j += KV_STRIP)
            o->table[(size_t)i * o->stride + j / KV_STRIP] = block + j / KV_STRIP;
        for (uint32_t j = 0; j < g->n; j++)
            o->dst[row + j] = block * KV_STRIP + j;
        o->view.dst = o->dst + row;
        o->counts[0] = p->n_fed;
        o->counts[1] = g->n;
        dev_kv_write(p->queue, &o->view, 0, g->k, (size_t)s[0].heads * s[0].dim);
        dev_kv_write(p->queue, &o->view, 1, g->v, (size_t)s[1].heads * s[1].dim);
        block += (g->n + KV_STRIP - 1) / KV_STRIP;
        row += g->n;
    }
}

/* Returns the index of the first of n ascending columns that is not below `at`, or n. */
static uint32_t first_from(const uint32_t *pos, uint32_t n, uint32_t at)
{
    uint32_t a = 0, b = n;
    while (a < b) {
        uint32_t m = a + (b - a) / 2;
        if (pos[m] < at)
            a = m + 1;
        else
            b = m;
    }
    return a;
}

/* Sets which rows each token sees: those up to its own column, from the begin of its window on. */
static int place_tokens(struct pass *p, uint32_t layer, const struct kv_policy *policy,
                        struct lending *o)
{
    uint32_t t = 0;
    for (uint32_t i = 0; i < p->n_fed; i++) {
        const struct exec_given *g = &p->x->lent->given[i];
        for (uint32_t j = 0; j < p->fed[i].rows.n; j++, t++) {
            uint32_t column = p->x->lender->column[t];
            struct kv_reach r = kv_reach(policy, column, column + 1);
            o->lane[t] = i;
            o->lo[t] = first_from(g->pos, g->n, r.lo);
            o->hi[t] = first_from(g->pos, g->n, r.hi);
            o->edge[t] = 0;
            if (o->lo[t] >= o->hi[t])
                return ERR(ARG,
                           "layer %u: the token of column %u sees no row of those that were given",
                           layer, column);
            o->pos[t] = o->hi[t] - 1;
        }
    }
    o->counts[1] = t;
    return 0;
}

int lent_attend(struct pass *p, uint32_t layer, const struct kv_view *own,
                const struct kv_policy *policy, const float *k, const float *v,
                const struct dev_attn *a)
{
    const struct exec_lender *from = p->x->lender;
    struct lending o;
    if (!k || !a->q || !own->first || own->n_planes != 2 || policy->kind != KV_ROWS || a->q_sink)
        return ERR(UNSUPPORTED,
                   "layer %u has no keys and values of its own that a caller could keep", layer);
    TRY(lent_open(p->x));
    memset(p->x->lent->given, 0, p->n_fed * sizeof *p->x->lent->given);
    TRY(from->give(from->ctx, layer, own->shape, k, v, p->x->lent->given));
    TRY(lending_begin(p, layer, own, &o));
    write_given(p, &o);
    TRY(place_tokens(p, layer, policy, &o));
    dev_attention(p->queue, &o.view, a);
    return 0;
}
