/* cuda_seal.c - the tiles that a step seals.  Kernels encode them where a codec has kernels, so that the step stays
 * one graph; else the host does.
 *
 * Kernels write the bytes that the codec writes; kv_codec.encoder names the kernel (view.h).  The host encodes tiles
 * of `hqq`, whose rounds have kernels for the CPU only, and of codecs that a program brings.  It waits for the
 * rows of a tile, encodes them, and copies the tile to the device. */
#include "dev/affine.h"
#include "dev/coded.h"
#include "dev/cuda/cuda.h"
#include "dev/row.h"

#include <string.h>

#define GRID_ROWS 65535u /* most blocks of a grid in y, one for each tile */

/* Describes tiles from `first` on for a kernel. */
static struct k_seal seal_of(const struct kv_view *v, uint32_t plane, uint32_t first)
{
    return (struct k_seal){cuda_plane(v, plane), cuda_seen(v, v->slot),
                           cuda_seen(v, v->enc) + (size_t)first * 2, v->lead};
}

/* Seals tiles that are copies of rows. */
static void seal_rows(struct dev_queue *d, const struct kv_view *v, uint32_t plane, uint32_t first,
                      uint32_t tiles)
{
    const struct kv_shape *s = &v->shape[plane];
    size_t n = (size_t)s->heads * v->sealed.rows * s->dim;
    LAUNCH(d, k_seal_rows, cuda_blocks(n), tiles, seal_of(v, plane, first), n);
}

/* Seals tiles of groups with a range. */
static void seal_ranges(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
                        uint32_t first, uint32_t tiles)
{
    const struct kv_affine *f = v->codec[plane]->param;
    const struct kv_shape *s = &v->shape[plane];
    size_t units = (size_t)s->heads * v->sealed.rows / f->unit, pairs = affine_pairs(f, s->dim);
    size_t codes = affine_unit_bytes(f, s) - 2 * pairs * dtype_size(s->dtype);
    LAUNCH(d, k_seal_ranges, cuda_blocks(units * pairs), tiles, seal_of(v, plane, first),
           units * pairs);
    LAUNCH(d, k_seal_codes, cuda_blocks(units * codes), tiles, seal_of(v, plane, first),
           units * codes);
}

/* Seals tiles of levels. */
static void seal_levels(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
                        uint32_t first, uint32_t tiles)
{
    const struct kv_coded *f = v->codec[plane]->param;
    struct k_seal_levels_args a = {
        .s = seal_of(v, plane, first), .of_rms = f->of_rms, .of_top = f->of_top};
    memcpy(a.edge, f->edge, sizeof a.edge);
    CUDA_CLEAR(&a);
    cuda_launch(d, CUDA_k_seal_levels, v->shape[plane].heads * (v->sealed.rows / CODED_ROWS), tiles,
                &a, sizeof a);
}

/* Seals tiles of floats of 8 bits. */
static void seal_float8(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
                        uint32_t first, uint32_t tiles)
{
    LAUNCH(d, k_seal_float8, (size_t)v->shape[plane].heads * (v->sealed.rows / KV_STRIP), tiles,
           seal_of(v, plane, first));
}

typedef void seal_fn(struct dev_queue *d, const struct kv_view *v, uint32_t plane, uint32_t first,
                     uint32_t tiles);
static seal_fn *const sealers[] = {
    [KV_BY_COPY] = seal_rows,
    [KV_BY_RANGE] = seal_ranges,
    [KV_BY_LEVEL] = seal_levels,
    [KV_BY_FLOAT8] = seal_float8,
};

/* Seals one tile on the host. */
static void seal_by_host(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
                         const uint32_t *e)
{
    const struct kv_codec *c = v->codec[plane];
    const struct kv_shape *s = &v->shape[plane];
    uint32_t slot = v->slot[e[0]], row = e[1] * c->tile, b = v->raw.rows, n = MAX(1, c->tile / b);
    size_t bytes = (size_t)b * s->heads * s->dim * dtype_size(s->dtype), tile = c->bytes(c, s);
    unsigned char *room = mem_aligned(n * bytes + tile + 64);
    const void **raw = mem_array(n, sizeof *raw);
    if (room && raw) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t page = v->raw.table[(size_t)slot * v->raw.stride + row / b + i];
            cuda_get(d, room + i * bytes, v->raw.base + page * v->raw.grain + v->raw.offset[plane],
                     bytes);
            raw[i] = room + i * bytes;
        }
        uint32_t page = v->sealed.table[(size_t)slot * v->sealed.stride + e[1]];
        uint32_t lead = v->lead > row ? MIN(v->lead - row, c->tile) : 0;
        unsigned char *to = room + ((n * bytes + 63) & ~(size_t)63);
        kv_tile_encode(c, s, to, raw, b, row % b, lead);
        cuda_put(d, v->sealed.base + page * v->sealed.grain + v->sealed.offset[plane], to, tile);
    } else {
        cuda_failed(d, ERR_NOMEM);
    }
    mem_free(room);
    mem_free(raw);
}

static void seal_plane(struct dev_queue *d, const struct kv_view *v, uint32_t plane)
{
    const struct kv_codec *c = v->codec[plane];
    seal_fn *seal = c->encoder < countof(sealers) ? sealers[c->encoder] : NULL;
    for (uint32_t i = 0, n; seal && i < v->counts[2]; i += n) {
        n = MIN(v->counts[2] - i, GRID_ROWS);
        seal(d, v, plane, i, n);
    }
    if (seal) return;
    for (uint32_t i = 0; i < v->counts[2]; i++)
        seal_by_host(d, v, plane, v->enc + (size_t)i * 2);
}

void cuda_kv_seal(struct dev_queue *d, const struct kv_view *v)
{
    if (!v->first || !v->sealed.rows) return;
    for (uint32_t plane = 0; plane < v->n_planes; plane++)
        if (v->codec[plane]) seal_plane(d, v, plane);
}
