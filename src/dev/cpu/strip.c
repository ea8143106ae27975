/* strip.c - gives attention the 16 rows of a strip: a pointer into a raw page, or rows decoded from tiles.
 *
 * Tiles that are as affine.h says are decoded a strip at a time by a kernel (CPU_KV_STRIP), so that a thread never holds
 * more than one decoded strip per plane while decoding, and one atom in prefill.  Other codecs decode one
 * head of a whole tile. */
#include "base/base.h"
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"

#include <assert.h>

void strip_decode_ref(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile,
                      uint32_t head, const unsigned char *const *src, uint32_t at, uint32_t r0,
                      uint32_t r1, void *dst)
{
    if (tile >= KV_STRIP) { /* rows at + r of one tile are rows r of the strip */
        affine_decode(f, s, tile, head, src[0], at + r0, at + r1, dst, 0 - at);
        return;
    }
    for (uint32_t r = r0; r < r1;) {
        uint32_t in = r % tile, n = MIN(tile - in, r1 - r);
        affine_decode(f, s, tile, head, src[r / tile], in, in + n, dst, r - in);
        r += n;
    }
}
CPU_KERNEL(DEV_REF, CPU_KV_STRIP, CPU_ANY, strip_decode_ref);

const void *strip_raw(const struct strip_from *w, uint32_t row, uint32_t head)
{
    const struct kv_form *f = &w->v->raw;
    const struct kv_shape *s = &w->v->shape[w->plane];
    const uint32_t *table = f->table + (size_t)w->v->slot[w->lane] * f->stride;
    const unsigned char *page = f->base + table[row / f->rows] * f->grain + f->offset[w->plane];
    size_t strip = head * (f->rows / KV_STRIP) + row % f->rows / KV_STRIP;
    return page + strip * KV_STRIP * s->dim * dtype_size(s->dtype);
}

/* The plane's part of the tile that holds `row`. */
static const unsigned char *tile_of(const struct strip_from *w, uint32_t row)
{
    const struct kv_form *f = &w->v->sealed;
    const uint32_t *table = f->table + (size_t)w->v->slot[w->lane] * f->stride;
    return f->base + table[row / f->rows] * f->grain + f->offset[w->plane];
}

/* A tile that holds none of the rows gets the pointer of another tile, so that a kernel may read all 16. */
void strip_find(const struct strip_from *w, uint32_t row, uint32_t a, uint32_t b,
                struct strip_tiles *out)
{
    const struct kv_form *f = &w->v->sealed;
    const uint32_t *table = f->table + (size_t)w->v->slot[w->lane] * f->stride;
    const unsigned char *base = f->base + f->offset[w->plane];
    out->row = row;
    out->a = MAX(a, row);
    out->b = MIN(b, row + KV_STRIP);
    if (f->rows >= KV_STRIP) {
        out->tile[0] = base + table[row / f->rows] * f->grain;
        return;
    }
    uint32_t n = KV_STRIP / f->rows, i0 = (out->a - row) / f->rows,
             i1 = (out->b - 1 - row) / f->rows;
    table += row / f->rows;
    for (uint32_t i = 0; i < n; i++)
        out->tile[i] = base + table[MIN(MAX(i, i0), i1)] * f->grain;
}

const void *strip_affine(const struct strip_from *w, const struct strip_tiles *t, uint32_t head,
                         void *buf)
{
    const struct kv_codec *c = w->v->codec[w->plane];
    w->decode(c->affine, &w->v->shape[w->plane], c->tile, head, t->tile, t->row % c->tile,
              t->a - t->row, t->b - t->row, buf);
    return buf;
}

void strip_fetch(const struct strip_from *w, const struct strip_tiles *t)
{
    const struct kv_codec *c = w->v->codec[w->plane];
    if (c->tile >= KV_STRIP) return; /* long runs: the processor foresees them */
    size_t bytes = c->bytes(c, &w->v->shape[w->plane]);
    for (uint32_t i = 0; i < KV_STRIP / c->tile; i++)
        for (size_t k = 0; k < bytes; k += 64)
            __builtin_prefetch(t->tile[i] + k, 0, 2);
}

/* Rows [a, b) of a codec that decodes whole tiles. */
static const void *strip_tiles(const struct strip_from *w, uint32_t row, uint32_t a, uint32_t b,
                               uint32_t head, unsigned char *buf)
{
    const struct kv_codec *c = w->v->codec[w->plane];
    const struct kv_shape *s = &w->v->shape[w->plane];
    a = MAX(a, row) / c->tile * c->tile;
    for (b = MIN(b, row + KV_STRIP); a < b; a += c->tile)
        c->decode(c, s, head, buf, a - row, tile_of(w, a));
    return buf;
}

/* Strips [s0, s1) from row0 on; rows in [seal0, seal1) come from tiles, decoded into `buf` (an atom and two tiles of rows).
 * With a lossless codec a strip that is sealed only in part is read raw: it lies in a block that touches
 * [0, lead), which stays raw.  Otherwise [seal0, seal1) are exactly the rows to decode. */
void strip_span(const struct strip_from *w, uint32_t row0, uint32_t s0, uint32_t s1, uint32_t seal0,
                uint32_t seal1, uint32_t head, unsigned char *buf, const void **strip)
{
    const struct kv_codec *c = w->v->codec[w->plane];
    const struct kv_shape *shape = &w->v->shape[w->plane];
    size_t bytes = (size_t)KV_STRIP * shape->dim * dtype_size(shape->dtype);
    uint32_t have = UINT32_MAX; /* tile in the buffer's current place */
    unsigned char *at = buf;
    for (uint32_t s = s0; s < s1; s++) {
        uint32_t row = row0 + s * KV_STRIP;
        if (!c || row + KV_STRIP <= seal0 || row >= seal1 ||
            (c->lossless && (row < seal0 || row + KV_STRIP > seal1))) {
            strip[s] = strip_raw(w, row, head);
        } else if (c->in_place) {
            uint32_t of_tile = head * (c->tile / KV_STRIP) + row % c->tile / KV_STRIP;
            strip[s] = tile_of(w, row) + of_tile * bytes;
        } else if (c->affine) {
            struct strip_tiles t;
            strip_find(w, row, seal0, seal1, &t);
            strip[s] = strip_affine(w, &t, head, at);
            at += bytes;
        } else if (c->tile < KV_STRIP) {
            strip[s] = strip_tiles(w, row, seal0, seal1, head, at);
            at += bytes;
        } else {
            uint32_t tile = row / c->tile;
            if (tile != have) {
                if (have != UINT32_MAX) at += c->tile / KV_STRIP * bytes;
                c->decode(c, shape, head, at, 0, tile_of(w, row));
                have = tile;
            }
            strip[s] = at + (row % c->tile) / KV_STRIP * bytes;
        }
    }
}
