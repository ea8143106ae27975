/* codec_rotated.c - a rotation around any codec.
 *
 * The rotation R (hadamard.h) is orthogonal: q . k = (R q) . (R k), and the sum of p * v is R' (the sum of p * (R v)).  So
 * attention turns queries and sums, never rows.  Turned rows are rounded to the type of the plane before `inner` encodes
 * them. */
#include "kv/codec_rotated.h"
#include "dev/hadamard.h"
#include "dev/reader.h"
#include "dev/row.h"

#include <stdio.h>
#include <string.h>

enum {
    DIM_MOST = HADAMARD_MOST,
    HEAD_MOST = 1 << 16
}; /* values of a row; bytes of one head in a tile */

struct rotated {
    struct kv_codec c;
    struct kv_codec *inner;
    struct kv_reader reader; /* reader of all instruction sets; it calls the reader of `inner` */
    const struct kv_reader *table[DEV_ISAS];
    uint32_t seed;
    struct hadamard turn;
};

static const struct rotated *of(const struct kv_codec *c)
{
    return (const struct rotated *)c;
}

/* --- the reader */
static struct kv_reading inner_of(const struct kv_reading *r)
{
    return kv_reading(of(r->codec)->inner, r->shape, r->isa);
}

static void query(const struct kv_reading *r, const float *q, float *out)
{
    struct kv_reading in = inner_of(r);
    float x[DIM_MOST];
    memcpy(x, q, r->shape->dim * sizeof *x);
    hadamard_turn(&of(r->codec)->turn, x);
    if (in.reader->query)
        in.reader->query(&in, x, out);
    else
        memcpy(out, x, r->shape->dim * sizeof *x);
}

static const void *strips(const struct kv_reading *r, const struct kv_piece *at, void *room)
{
    struct kv_reading in = inner_of(r);
    return in.reader->strips(&in, at, room);
}

static const unsigned char *opened(const struct kv_reading *r, const struct kv_piece *at,
                                   void *room)
{
    struct kv_reading in = inner_of(r);
    return in.reader->open ? in.reader->open(&in, at, room) : NULL;
}

static void rest(const struct kv_reading *r)
{
    struct kv_reading in = inner_of(r);
    if (in.reader->rest) in.reader->rest(&in);
}

static void score(const struct kv_reading *r, const struct kv_piece *at, const float *q, uint32_t n,
                  float scale, float *p, size_t ldp)
{
    struct kv_reading in = inner_of(r);
    in.reader->score(&in, at, q, n, scale, p, ldp);
}

static void add(const struct kv_reading *r, const struct kv_piece *at, const float *p, size_t ldp,
                uint32_t n, float *o, size_t ldo)
{
    struct kv_reading in = inner_of(r);
    in.reader->add(&in, at, p, ldp, n, o, ldo);
}

static void end(const struct kv_reading *r, float *o)
{
    struct kv_reading in = inner_of(r);
    if (in.reader->end) in.reader->end(&in, o);
    hadamard_back(&of(r->codec)->turn, o);
}

/* --- tiles */
static size_t rotated_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return of(c)->inner->bytes(of(c)->inner, s);
}

static void rotated_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                           void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                           uint32_t lead)
{
    unsigned char block[HEAD_MOST] __attribute__((aligned(64)));
    const void *turned = block;
    float x[DIM_MOST];
    for (uint32_t r = 0; r < c->tile; r++) {
        uint32_t row = first + r;
        memset(x, 0, s->dim * sizeof *x);
        if (r >= lead) kv_row_load(s, raw[row / block_rows], row % block_rows, x);
        hadamard_turn(&of(c)->turn, x);
        kv_row_store(s, block, r, x);
    }
    of(c)->inner->encode(of(c)->inner, s, head, dst, &turned, MAX(c->tile, KV_STRIP), 0, lead);
}

static void rotated_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                           void *dst, uint32_t first, const void *src)
{
    float x[DIM_MOST];
    of(c)->inner->decode(of(c)->inner, s, head, dst, first, src);
    for (uint32_t r = first; r < first + c->tile; r++) {
        kv_row_load(s, dst, r, x);
        hadamard_back(&of(c)->turn, x);
        kv_row_store(s, dst, r, x);
    }
}

static int rotated_describe(const struct kv_codec *c, char *out, size_t n)
{
    int at = snprintf(out, n, "rotation %u, ", of(c)->seed);
    if (at < 0 || (size_t)at >= n) return at;
    int inner = of(c)->inner->describe(of(c)->inner, out + at, n - (size_t)at);
    return inner < 0 ? inner : at + inner;
}

static int check_inner(const struct kv_codec *inner, const struct kv_shape *s)
{
    size_t bytes = (size_t)MAX(inner->tile, KV_STRIP) * s->dim * dtype_size(s->dtype);
    if (s->dim > DIM_MOST || bytes > HEAD_MOST)
        return ERR(ARG,
                   "a rotation of tiles of %u rows of %u values: heads have at most %d values, and "
                   "a head of a tile %d bytes",
                   inner->tile, s->dim, DIM_MOST, HEAD_MOST);
    return 0;
}

int rotated_open(struct kv_codec *inner, uint32_t seed, const struct kv_shape *s,
                 struct kv_codec **out)
{
    const struct kv_reader *r = kv_reading(inner, s, DEV_REF).reader;
    struct rotated *c = NULL;
    int e = check_inner(inner, s);
    if (e >= 0 && !(c = mem_alloc(sizeof *c))) e = ERR_NOMEM;
    if (e < 0) {
        kv_codec_close(inner);
        return e;
    }
    c->inner = inner;
    c->reader = (struct kv_reader){.rows = r->rows,
                                   .query = query,
                                   .strips = r->strips ? strips : NULL,
                                   .score = r->score ? score : NULL,
                                   .add = r->add ? add : NULL,
                                   .open = r->score || r->add ? opened : NULL,
                                   .end = end,
                                   .rest = rest};
    c->table[DEV_REF] = &c->reader;
    c->seed = seed;
    hadamard_choose(&c->turn, seed, s->dim);
    c->c = (struct kv_codec){.name = inner->name,
                             .tile = inner->tile,
                             .lead = inner->lead,
                             .describe = rotated_describe,
                             .bytes = rotated_bytes,
                             .encode = rotated_encode,
                             .decode = rotated_decode,
                             .reader = c->table};
    *out = &c->c;
    return 0;
}

void rotated_close(struct kv_codec *c)
{
    kv_codec_close(of(c)->inner);
}
