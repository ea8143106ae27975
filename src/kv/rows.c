/* rows.c - the cache's rows in the layout people keep keys and values in, [head][row][dim] f32.  Raw rows are
 * converted, sealed ones decoded tile by tile; a row is read in the form in which attention would read it. */
#include "kv/rows.h"

#include <string.h>

size_t rows_scratch(const struct kv_group *g)
{
    size_t most = 0;
    for (uint32_t i = 0; i < g->n_planes; i++) {
        const struct kv_shape *s = &g->plane[i].shape;
        size_t rows = MAX(g->seal.tile, KV_STRIP);
        most = MAX(most, (rows + 1) * s->dim * dtype_size(s->dtype));
    }
    return most;
}

/* Row r of one head in raw layout, as f32.  one: room for a row in the plane's type. */
static void row_out(const struct kv_shape *s, const unsigned char *head, uint32_t r,
                    unsigned char *one, float *dst)
{
    size_t size = dtype_size(s->dtype);
    if (s->layout != KV_STRIPS) {
        dev_to_f32(s->dtype, head + (size_t)r * s->dim * size, dst, s->dim);
        return;
    }
    const unsigned char *strip = head + (size_t)(r / KV_STRIP) * s->dim * KV_STRIP * size;
    for (uint32_t d = 0; d < s->dim; d++)
        memcpy(one + d * size, strip + ((size_t)d * KV_STRIP + r % KV_STRIP) * size, size);
    dev_to_f32(s->dtype, one, dst, s->dim);
}

struct reading {
    const struct kv_view *v;
    const struct rows_want *w;
    const struct kv_shape *s;
    uint32_t head;
    float *dst;         /* of this head, row `from` */
    unsigned char *one; /* room for a row, then for a tile */
};

/* Rows [j, *to) of one tile; *to is lowered to its end. */
static void read_sealed(const struct reading *r, uint32_t j, uint32_t *to)
{
    const struct kv_form *f = &r->v->sealed;
    uint32_t tile = j / f->rows, row0 = tile * f->rows, first = row0 % KV_STRIP;
    const struct kv_codec *c = r->v->codec[r->w->plane];
    uint32_t page = f->table[(size_t)r->v->slot[r->w->lane] * f->stride + tile];
    unsigned char *out = r->one + (size_t)r->s->dim * dtype_size(r->s->dtype);
    if (f->rows >= KV_STRIP) first = 0;
    c->decode(c, r->s, r->head, out, first, f->base + page * f->grain + f->offset[r->w->plane]);
    *to = MIN(*to, row0 + f->rows);
    for (; j < *to; j++)
        row_out(r->s, out, first + j - row0, r->one, r->dst + (size_t)(j - r->w->from) * r->s->dim);
}

static void read_raw(const struct reading *r, uint32_t j, uint32_t *to)
{
    const struct kv_form *f = &r->v->raw;
    uint32_t block = j / f->rows;
    uint32_t page = f->table[(size_t)r->v->slot[r->w->lane] * f->stride + block];
    const unsigned char *at = f->base + page * f->grain + f->offset[r->w->plane];
    at += (size_t)r->head * f->rows * r->s->dim * dtype_size(r->s->dtype);
    *to = MIN(*to, (block + 1) * f->rows);
    for (; j < *to; j++)
        row_out(r->s, at, j % f->rows, r->one, r->dst + (size_t)(j - r->w->from) * r->s->dim);
}

void rows_read(const struct kv_view *v, const struct rows_want *w)
{
    const struct kv_shape *s = &v->shape[w->plane];
    for (uint32_t h = 0; h < s->heads; h++) {
        struct reading r = {v, w, s, h, w->dst + ((size_t)h * w->ld + w->at) * s->dim, w->scratch};
        for (uint32_t j = w->from, to; j < w->to; j = to) {
            bool sealed = v->sealed.rows && j >= v->lead && j < w->edge;
            to = sealed                          ? MIN(w->to, w->edge)
                 : v->sealed.rows && j < v->lead ? MIN(w->to, v->lead)
                                                 : w->to;
            uint32_t first = sealed ? v->row0 : v->raw0, end = sealed ? v->row1 : v->raw1;
            if (j < first || j >= end) { /* of another piece */
                if (j < first) to = MIN(to, first);
                continue;
            }
            to = MIN(to, end);
            if (sealed)
                read_sealed(&r, j, &to);
            else
                read_raw(&r, j, &to);
        }
    }
}

void rows_pack(const float *x, size_t ld, size_t at, uint32_t n, uint32_t heads, uint32_t dim,
               float *out)
{
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t h = 0; h < heads; h++)
            memcpy(out + ((size_t)j * heads + h) * dim, x + (h * ld + at + j) * dim,
                   dim * sizeof *x);
}
