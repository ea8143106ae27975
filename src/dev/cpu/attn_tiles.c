/* attn_tiles.c - attention over tiles as they are stored, with the kernels of the tiles' own codec (struct kv_kernels).
 *
 * Every atom of sealed rows is cut where a tile begins.  The pieces depend on the positions of the atom's rows alone, so
 * decoding, prefill and the probe give a codec's kernels the same pieces. */
#include "dev/cpu/attn.h"

#include <string.h>

const struct kv_kernels *tiles_kernels(enum dev_isa isa, const struct kv_codec *c)
{
    if (!c || !c->kernels) return NULL;
    while (isa > DEV_REF && !c->kernels[isa])
        isa--;
    return c->kernels[isa];
}

void tiles_query(const struct tiles_from *w, const float *q, float *out)
{
    const struct kv_shape *s = &w->v->shape[w->plane];
    if (w->k->query)
        w->k->query(w->v->codec[w->plane], s, q, out);
    else
        memcpy(out, q, s->dim * sizeof *out);
}

uint32_t tiles_piece(const struct tiles_from *w, uint32_t a, uint32_t b, struct kv_piece *out)
{
    const struct kv_form *f = &w->v->sealed;
    const uint32_t *table = f->table + (size_t)w->v->slot[w->lane] * f->stride;
    uint32_t row0 = a - a % f->rows, end = MIN(b - row0, f->rows);
    out->tile = f->base + table[a / f->rows] * f->grain + f->offset[w->plane];
    out->r0 = a - row0;
    out->r1 = end;
    return row0 + end;
}

void tiles_score(const struct tiles_from *w, uint32_t a, uint32_t b, uint32_t head, const float *q,
                 uint32_t n, float scale, float *p, size_t ldp)
{
    struct kv_piece at = {.head = head};
    for (uint32_t row = a, next; row < b; row = next) {
        next = tiles_piece(w, row, b, &at);
        w->k->score(w->v->codec[w->plane], &w->v->shape[w->plane], &at, q, n, scale, p + (row - a),
                    ldp);
    }
}

void tiles_add(const struct tiles_from *w, uint32_t a, uint32_t b, uint32_t head, const float *p,
               size_t ldp, uint32_t n, float *o, size_t ldo)
{
    struct kv_piece at = {.head = head};
    for (uint32_t row = a, next; row < b; row = next) {
        next = tiles_piece(w, row, b, &at);
        w->k->add(w->v->codec[w->plane], &w->v->shape[w->plane], &at, p + (row - a), ldp, n, o,
                  ldo);
    }
}
