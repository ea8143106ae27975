/* attend.c - attention among the tokens of one step, for encoders: every token sees all tokens of its span.  The
 * KV rows live until the end of the step, in a buffer (a room) that layers of the same shape share.  Kernels read
 * them through a view, as they read the rows of the store.  So there is one implementation of attention, with one
 * order of sums. */
#include "model/graph.h"

#include <string.h>

struct attend_room {
    struct attend_room *next;
    uint32_t heads, dim, dim_v;
    uint32_t stride, lanes; /* stride: blocks in a row of the table; lanes: rows of the table */
    unsigned char *base; /* [stride + lanes] blocks of KV_STRIP rows: every span begins a block */
    struct graph_table arrays; /* holds the arrays below */
    size_t n_arrays;
    uint32_t *table;                             /* [lanes][stride] */
    uint32_t *slot, *len;                        /* [lanes] */
    uint32_t *lane, *pos, *lo, *hi, *edge, *dst; /* [tokens] */
    uint32_t *counts;                            /* [3] */
    struct kv_view view;
};

static bool rows_of(struct graph *g, struct attend_room *r)
{
    size_t tokens = g->tokens, k = (size_t)KV_STRIP * r->heads * r->dim * sizeof(float),
           v = (size_t)KV_STRIP * r->heads * r->dim_v * sizeof(float), width;
    r->lanes = MIN(2 * g->x->max_seqs, g->tokens);
    r->stride = (g->tokens + KV_STRIP - 1) / KV_STRIP;
    /* a buffer has a row for each token; this width makes it hold all blocks */
    width = ((k + v) * ((size_t)r->stride + r->lanes) + tokens * sizeof(float) - 1) /
            (tokens * sizeof(float));
    r->base = (unsigned char *)graph_buffer(g, width);
    size_t cells = (size_t)r->lanes * r->stride;
    r->n_arrays = cells + 2 * (size_t)r->lanes + 6 * tokens + 3;
    r->arrays = graph_table(g, r->n_arrays * sizeof *r->table);
    if (!r->base || !r->arrays.at) return false;
    uint32_t **each[] = {&r->lane, &r->pos, &r->lo, &r->hi, &r->edge, &r->dst};
    r->table = r->arrays.host;
    r->slot = r->table + cells;
    r->len = r->slot + r->lanes;
    r->counts = r->len + r->lanes;
    for (size_t i = 0; i < countof(each); i++)
        *each[i] = r->counts + 3 + i * tokens;
    r->view = (struct kv_view){
        .queue = g->x->queue,
        .block = {{r->arrays.host, r->arrays.at, r->n_arrays}},
        .raw = {.base = r->base,
                .grain = k + v,
                .rows = KV_STRIP,
                .stride = r->stride,
                .table = r->table,
                .offset = {0, k}},
        .n_planes = 2,
        .shape = {{r->heads, r->dim, DT_F32, KV_STRIPS}, {r->heads, r->dim_v, DT_F32, KV_ROWMAJOR}},
        .row1 = (r->stride * KV_STRIP + KV_ATOM - 1) / KV_ATOM * KV_ATOM,
        .raw1 = (r->stride * KV_STRIP + KV_ATOM - 1) / KV_ATOM * KV_ATOM,
        .first = true,
        .last = true,
        .counts = r->counts,
        .slot = r->slot,
        .len = r->len,
        .lane = r->lane,
        .pos = r->pos,
        .lo = r->lo,
        .hi = r->hi,
        .edge = r->edge,
        .dst = r->dst,
    };
    return true;
}

static struct attend_room *room_of(struct graph *g, uint32_t heads, uint32_t dim, uint32_t dim_v)
{
    struct attend_room *r = g->room;
    while (r && (r->heads != heads || r->dim != dim || r->dim_v != dim_v))
        r = r->next;
    if (r) return r;
    r = graph_own(g, 1, sizeof *r);
    if (!r) return NULL;
    *r = (struct attend_room){.next = g->room, .heads = heads, .dim = dim, .dim_v = dim_v};
    if (!rows_of(g, r)) return NULL;
    return g->room = r;
}

/* Writes the tables for the spans of the step, one after another. */
static void place_spans(struct attend_room *r, const struct pass *p)
{
    uint32_t t = 0, block = 0;
    r->counts[0] = p->n_fed;
    r->counts[1] = p->n;
    for (uint32_t i = 0; i < p->n_fed; i++) {
        uint32_t n = p->fed[i].rows.n;
        r->slot[i] = i;
        r->len[i] = n;
        for (uint32_t k = 0; k < n; k += KV_STRIP)
            r->table[(size_t)i * r->stride + k / KV_STRIP] = block + k / KV_STRIP;
        for (uint32_t k = 0; k < n; k++, t++) {
            r->lane[t] = i;
            r->pos[t] = k;
            r->hi[t] = n;
            r->dst[t] = block * KV_STRIP + k;
        }
        block += (n + KV_STRIP - 1) / KV_STRIP;
    }
}

struct attend {
    uint32_t layer;
    struct attend_room *room;
    const float *k, *v;
    struct dev_attn at;
};

static int attend_run(struct pass *p, const void *arg)
{
    const struct attend *a = arg;
    struct attend_room *r = a->room;
    place_spans(r, p);
    dev_put(p->queue, r->arrays.at, r->arrays.host, r->n_arrays * sizeof *r->table);
    dev_kv_write(p->queue, &r->view, 0, a->k, (size_t)r->heads * r->dim);
    dev_kv_write(p->queue, &r->view, 1, a->v, (size_t)r->heads * r->dim_v);
    dev_attention(p->queue, &r->view, &a->at);
    if (p->probed) probe_attention(p, a->layer, false, &r->view, &a->at);
    return 0;
}

void mod_attend(struct graph *g, const struct mod_attend *a)
{
    uint32_t heads = a->kv_heads ? a->kv_heads : a->heads, dim_v = a->dim_v ? a->dim_v : a->dim;
    struct attend *w = graph_own(g, 1, sizeof *w);
    struct attend_room *room = room_of(g, heads, a->dim, dim_v);
    if (!w || !room) return;
    *w = (struct attend){.layer = a->layer,
                         .room = room,
                         .k = a->k,
                         .v = a->v,
                         .at = {.q = a->q,
                                .ldq = (size_t)a->heads * a->dim,
                                .out = a->out,
                                .ldo = (size_t)a->heads * dim_v,
                                .n_heads = a->heads,
                                .scale = a->scale,
                                .bias = graph_bias(g, a->bias, a->heads)}};
    g->max_heads = MAX(g->max_heads, a->heads);
    g->max_dim = MAX(g->max_dim, MAX(a->dim, dim_v));
    graph_op(g, attend_run, w);
}
