/* rows.c - rows of the cache in the layout of other libraries, [head][row][dim] f32.  Raw rows are
 * converted, sealed rows are dequantized tile by tile. */
#include "kv/rows.h"
#include "dev/dev.h"
#include "dev/row.h"

#include <string.h>

/* Rounds up to a multiple of a cache line, so that the next array begins with a line. */
static size_t line(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

size_t rows_scratch(const struct kv_group *g)
{
    size_t most = 0;
    for (uint32_t i = 0; i < g->n_planes; i++) {
        const struct kv_shape *s = &g->plane[i].shape;
        const struct kv_codec *c = g->plane[i].codec;
        size_t rows = MAX(g->seal.tile, KV_STRIP), row = s->dim * dtype_size(s->dtype);
        size_t page = MAX(g->rows * row, c ? c->bytes(c, s) : 0);
        most = MAX(most, line(rows * row) + page);
    }
    return most;
}

/* Describes a read of rows [from, to) of one head of one plane. */
struct reading {
    const struct kv_view *v;
    const struct kv_shape *s;
    uint32_t plane, slot, head;
    uint32_t from, to, edge; /* rows below `edge` are read sealed */
    float *dst;              /* where row `from` goes */
    unsigned char *tile;     /* room for one head of a decoded tile */
    unsigned char *room;     /* room for a tile, or for a head of a block */
};

static float *row_at(const struct reading *r, uint32_t j)
{
    return r->dst + (size_t)(j - r->from) * r->s->dim;
}

/* Reads rows [j, *to) of one tile; lowers *to to the end of the tile. */
static void read_sealed(const struct reading *r, uint32_t j, uint32_t *to)
{
    const struct kv_form *f = &r->v->sealed;
    uint32_t tile = j / f->rows, row0 = tile * f->rows, first = row0 % KV_STRIP;
    const struct kv_codec *c = r->v->codec[r->plane];
    uint32_t page = f->table[(size_t)r->slot * f->stride + tile];
    if (f->rows >= KV_STRIP) first = 0;
    const unsigned char *at = f->base + page * f->grain + f->offset[r->plane];
    c->decode(c, r->s, r->head, r->tile, first,
              dev_look(r->v->queue, at, c->bytes(c, r->s), r->room));
    *to = MIN(*to, row0 + f->rows);
    for (; j < *to; j++)
        kv_row_load(r->s, r->tile, first + j - row0, row_at(r, j));
}

/* Reads rows [j, *to) of one block; lowers *to to the end of the block. */
static void read_raw(const struct reading *r, uint32_t j, uint32_t *to)
{
    const struct kv_form *f = &r->v->raw;
    uint32_t block = j / f->rows;
    uint32_t page = f->table[(size_t)r->slot * f->stride + block];
    const unsigned char *at = f->base + page * f->grain + f->offset[r->plane];
    size_t head = (size_t)f->rows * r->s->dim * dtype_size(r->s->dtype);
    at = dev_look(r->v->queue, at + r->head * head, head, r->room);
    *to = MIN(*to, (block + 1) * f->rows);
    for (; j < *to; j++)
        kv_row_load(r->s, at, j % f->rows, row_at(r, j));
}

static void read_head(const struct reading *r)
{
    const struct kv_view *v = r->v;
    for (uint32_t j = r->from, to; j < r->to; j = to) {
        bool sealed = v->sealed.rows && j >= v->lead && j < r->edge;
        to = sealed                          ? MIN(r->to, r->edge)
             : v->sealed.rows && j < v->lead ? MIN(r->to, v->lead)
                                             : r->to;
        uint32_t first = sealed ? v->row0 : v->raw0, end = sealed ? v->row1 : v->raw1;
        if (j < first || j >= end) { /* row j belongs to another piece */
            if (j < first) to = MIN(to, first);
            continue;
        }
        to = MIN(to, end);
        if (sealed)
            read_sealed(r, j, &to);
        else
            read_raw(r, j, &to);
    }
}

static void read_range(const struct kv_view *v, const struct rows_ask *a, uint32_t from,
                       uint32_t to, size_t at)
{
    for (uint32_t plane = 0; plane < 2; plane++) {
        const struct kv_shape *s = &v->shape[plane];
        size_t rows = MAX(v->sealed.rows, KV_STRIP);
        struct reading r = {.v = v,
                            .s = s,
                            .plane = plane,
                            .slot = v->slot[a->lane],
                            .from = from,
                            .to = to,
                            .edge = v->edge[a->token],
                            .tile = a->scratch,
                            .room = (unsigned char *)a->scratch +
                                    line(rows * s->dim * dtype_size(s->dtype))};
        for (r.head = 0; r.head < s->heads; r.head++) {
            r.dst = a->plane[plane] + ((size_t)r.head * a->ld + at) * s->dim;
            read_head(&r);
        }
    }
}

void rows_read(const struct kv_view *v, const struct rows_ask *a)
{
    read_range(v, a, 0, a->sinks, a->at);
    read_range(v, a, a->lo, a->to, a->at + a->sinks);
}

uint32_t rows_seen(const struct kv_group *g, uint32_t len, uint32_t *sinks, uint32_t *lo)
{
    struct kv_reach r = kv_reach(&g->policy, len, 0);
    *sinks = r.sinks;
    *lo = r.lo;
    return r.sinks + len - r.lo;
}

int rows_open(struct kv *kv, kv_seq s, struct rows_reader *r)
{
    struct kv_span span = {.seq = s, .n = 1};
    r->len = kv_len(kv, s);
    r->cross = kv_cross(kv, s);
    return kv_begin(kv, &span, 1, &r->step);
}

int rows_site(struct rows_reader *r, const struct kv_group *g, uint32_t site, float *keys,
              float *values)
{
    uint32_t len = g->policy.kind == KV_FROZEN ? r->cross : r->len;
    struct rows_ask a = {.to = len, .plane = {keys, values}};
    struct kv_view v;
    a.ld = rows_seen(g, len, &a.sinks, &a.lo);
    if (!(a.scratch = mem_alloc(rows_scratch(g)))) return ERR_NOMEM;
    int e;
    while ((e = kv_next(r->step, site, &v)) > 0)
        rows_read(&v, &a);
    mem_free(a.scratch);
    return e;
}

static unsigned char *state_at(const struct kv_view *v, uint32_t page, uint32_t plane)
{
    return v->raw.base + page * v->raw.grain + v->raw.offset[plane];
}

static size_t state_bytes(const struct kv_view *v, uint32_t plane)
{
    return (size_t)v->shape[plane].heads * v->shape[plane].dim * sizeof(float);
}

const float *rows_state(const struct kv_view *v, uint32_t page, uint32_t plane, float *room)
{
    return page ? dev_look(v->queue, state_at(v, page, plane), state_bytes(v, plane), room) : NULL;
}

void rows_state_put(const struct kv_view *v, uint32_t page, uint32_t plane, const float *x)
{
    dev_put(v->queue, state_at(v, page, plane), x, state_bytes(v, plane));
}

int rows_close(struct rows_reader *r)
{
    return kv_abort(r->step);
}

void rows_pack(const float *x, size_t ld, size_t at, uint32_t n, uint32_t heads, uint32_t dim,
               float *out)
{
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t h = 0; h < heads; h++)
            memcpy(out + ((size_t)j * heads + h) * dim, x + (h * ld + at + j) * dim,
                   dim * sizeof *x);
}
