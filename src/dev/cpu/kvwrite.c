/* kvwrite.c - the writing half of a cache view: rows of the step go to their raw pages, then tiles
 * whose last row was just written are encoded.  Work is split by head (write) and by tile and plane
 * (seal): two idle lanes may name the same row of the null page, so tokens cannot be shared out. */
#include "base/thread.h"
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"
#include "dev/row.h"

#include <assert.h>
#include <string.h>

#define CHUNK     64u   /* values of a K row rounded at a time, before they are scattered */
#define TILE_MOST 4096u /* rows of a tile */

static void round_f32(const float *x, uint32_t n, void *out)
{
    memcpy(out, x, n * sizeof *x);
}

static void round_f16(const float *x, uint32_t n, void *out)
{
    uint16_t *y = out;
    for (uint32_t i = 0; i < n; i++) {
        float v = 65504.0f < x[i] ? 65504.0f : x[i]; /* saturates; a NaN passes */
        y[i] = half_f32_to_f16(-65504.0f > v ? -65504.0f : v);
    }
}

static void round_bf16(const float *x, uint32_t n, void *out)
{
    uint16_t *y = out;
    for (uint32_t i = 0; i < n; i++)
        y[i] = half_f32_to_bf16(x[i]);
}
CPU_KERNEL(DEV_REF, CPU_KV_ROUND, DT_F32, round_f32);
CPU_KERNEL(DEV_REF, CPU_KV_ROUND, DT_F16, round_f16);
CPU_KERNEL(DEV_REF, CPU_KV_ROUND, DT_BF16, round_bf16);

struct write_job {
    const struct kv_view *v;
    uint32_t plane;
    const float *x;
    size_t ldx;
    kv_round_fn round;
};

/* A row of K goes to one lane of its strip: dim values, 16 apart. */
static void write_lane(const struct write_job *j, const float *x, uint32_t dim, uint32_t size,
                       unsigned char *to)
{
    float wide[CHUNK];
    uint16_t half[CHUNK];
    for (uint32_t d0 = 0; d0 < dim; d0 += CHUNK) {
        uint32_t n = MIN(CHUNK, dim - d0);
        j->round(x + d0, n, size == 4 ? (void *)wide : (void *)half);
        for (uint32_t i = 0; i < n; i++)
            if (size == 4)
                ((float *)to)[(size_t)(d0 + i) * KV_STRIP] = wide[i];
            else
                ((uint16_t *)to)[(size_t)(d0 + i) * KV_STRIP] = half[i];
    }
}

static void write_head(void *ctx, uint32_t head, uint32_t thread)
{
    (void)thread;
    const struct write_job *j = ctx;
    const struct kv_form *f = &j->v->raw;
    const struct kv_shape *s = &j->v->shape[j->plane];
    uint32_t size = dtype_size(s->dtype);
    for (uint32_t t = 0; t < j->v->counts[1]; t++) {
        uint32_t page = j->v->dst[t] / f->rows, row = j->v->dst[t] % f->rows;
        unsigned char *to = f->base + page * f->grain + f->offset[j->plane];
        to += (size_t)head * f->rows * s->dim * size;
        const float *x = j->x + t * j->ldx + (size_t)head * s->dim;
        if (s->layout == KV_STRIPS)
            write_lane(j, x, s->dim, size,
                       to + ((size_t)row / KV_STRIP * KV_STRIP * s->dim + row % KV_STRIP) * size);
        else
            j->round(x, s->dim, to + (size_t)row * s->dim * size);
    }
}

void cpu_kv_write(struct dev_queue *d, const struct kv_view *v, uint32_t plane, const float *x,
                  size_t ldx)
{
    const struct kv_shape *s = &v->shape[plane];
    struct write_job j = {v, plane, x, ldx, NULL};
    if (!v->first) return;
    assert(s->layout != KV_FLAT);
    j.round = (kv_round_fn)cpu_kernel_get(d, CPU_KV_ROUND, s->dtype);
    if (v->counts[1] * s->dim >= 4096) { /* below, a fork costs more than it saves */
        pool_run(d->pool, s->heads, write_head, &j);
        return;
    }
    for (uint32_t h = 0; h < s->heads; h++)
        write_head(&j, h, 0);
}

/* Encodes one plane of one tile.  Codecs count `lead` from the start of the tile: the tile's first rows that stay
 * raw. */
static void seal_tile(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    const struct kv_view *v = ctx;
    uint32_t plane = task % v->n_planes;
    const struct kv_codec *c = v->codec[plane];
    if (!c) return;
    const uint32_t *e = v->enc + (size_t)(task / v->n_planes) * 2;
    uint32_t slot = v->slot[e[0]], tile = e[1], row = tile * c->tile, b = v->raw.rows;
    const void *raw[TILE_MOST / KV_STRIP];
    uint32_t blocks = MAX(1, c->tile / b);
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t page = v->raw.table[(size_t)slot * v->raw.stride + row / b + i];
        raw[i] = v->raw.base + page * v->raw.grain + v->raw.offset[plane];
    }
    uint32_t page = v->sealed.table[(size_t)slot * v->sealed.stride + tile];
    uint32_t lead = v->lead > row ? MIN(v->lead - row, c->tile) : 0;
    kv_tile_encode(c, &v->shape[plane],
                   v->sealed.base + page * v->sealed.grain + v->sealed.offset[plane], raw, b,
                   row % b, lead);
}

void cpu_kv_seal(struct dev_queue *d, const struct kv_view *v)
{
    if (!v->first || !v->sealed.rows) return;
    for (uint32_t i = 0; i < v->n_planes; i++)
        assert(!v->codec[i] ||
               (v->codec[i]->tile == v->sealed.rows && v->codec[i]->tile <= TILE_MOST));
    uint32_t n = v->counts[2] * v->n_planes;
    if ((size_t)n * v->sealed.rows * v->shape[0].heads * v->shape[0].dim >= 4096) {
        pool_run(d->pool, n, seal_tile, (void *)v);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        seal_tile((void *)v, i, 0);
}
