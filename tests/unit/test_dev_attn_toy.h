/* test_dev_attn_toy.h - a toy store for the attention tests.  Random K and V rows are kept flat; these are the
 * truth.  Code that shares nothing with the kernels fills pages of any geometry from them.  Two oracles read only
 * the flat rows.  Every byte that no query may read is NaN. */
#pragma once
#include "dev/cpu/half.h"
#include "dev/cpu/mathfn.h"
#include "dev/dev.h"
#include "dev/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TOY_TOKENS 1024u /* the greatest number of tokens of a step */
#define TOY_LANES  8u
#define TOY_ROWS   2048u /* the greatest number of rows of a lane */

struct toy_config {
    uint32_t n_lanes, n_heads, n_kv, dim;
    enum dtype dtype;
    uint32_t rows;                /* rows of a raw page */
    const struct kv_codec *codec; /* NULL: native */
    bool keys_only;               /* V has no tiles: all its rows stay raw */
    uint32_t sinks, lead, window, chunk;
    uint32_t max_len;
    bool turned, logits; /* sinks have their own queries; heads have a sink logit */
};
struct toy {
    struct toy_config c;
    float *flat[2][2]; /* [plane][raw, sealed] -> [lane][row][kv head][dim], as a reader sees it */
    unsigned char *raw, *sealed;
    uint32_t *table, *tile_table; /* [lane][stride] */
    uint32_t counts[3], slot[TOY_LANES], len[TOY_LANES], enc[2];
    uint32_t lane[TOY_TOKENS], pos[TOY_TOKENS], lo[TOY_TOKENS], hi[TOY_TOKENS], edge[TOY_TOKENS];
    uint32_t dst[TOY_TOKENS];
    float *q, *out; /* [token][n_heads][dim] */
    float *q_all;   /* [lane][row][n_heads][dim]: a row's query is the same in every step */
    float *q_sink, *q_sink_all, *logit; /* NULL, or as q, as q_all, and [n_heads] */
    struct kv_view view;
};

static uint32_t toy_state = 1;
static inline uint32_t toy_random(void)
{
    toy_state ^= toy_state << 13;
    toy_state ^= toy_state >> 17;
    return toy_state ^= toy_state << 5;
}
static inline float toy_uniform(void)
{
    return (float)(int32_t)toy_random() * 0x1p-31f;
}

static inline float toy_load(enum dtype t, const void *p, size_t i)
{
    if (t == DT_F32) return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return t == DT_F16 ? half_f16_to_f32(h) : half_bf16_to_f32(h);
}
static inline void toy_store(enum dtype t, void *p, size_t i, float x)
{
    if (t == DT_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = t == DT_F16 ? half_f32_to_f16(x) : half_f32_to_bf16(x);
}
static inline float toy_round(enum dtype t, float x)
{
    float y;
    toy_store(t, &y, 0, x);
    return toy_load(t, &y, 0);
}
static inline size_t toy_size(enum dtype t)
{
    return t == DT_F32 ? 4 : 2;
}

/* Place of (head, row, d) inside a page or tile of `rows` rows. */
static inline size_t toy_at(const struct kv_shape *s, uint32_t rows, uint32_t head, uint32_t row,
                            uint32_t d)
{
    if (s->layout == KV_STRIPS)
        return (((size_t)head * (rows / 16) + row / 16) * s->dim + d) * 16 + row % 16;
    return ((size_t)head * rows + row) * s->dim + d;
}

/* Codecs. Both keep elements in the order [row][dim][head]. The lossy codec drops the low half of
 * the bytes (f32) or the low 5 bits (16-bit types). */
/* Not inlined: gcc 12 at -O2 was seen to drop the f32 mask inside toy_encode. */
__attribute__((noinline, unused)) static float toy_lose(enum dtype t, float x)
{
    if (t == DT_F32) return half_from_bits(half_bits(x) & 0xffff0000u);
    if (t == DT_F16) return half_f16_to_f32(half_f32_to_f16(x) & 0xffe0u);
    return half_bf16_to_f32(half_f32_to_bf16(x) & 0xffe0u);
}
static inline size_t toy_codec_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return (size_t)c->tile * s->heads * s->dim * toy_size(s->dtype);
}
static inline void toy_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                              void *dst, const void *const *raw, uint32_t block_rows,
                              uint32_t first, uint32_t lead)
{
    for (uint32_t r = 0; r < c->tile; r++)
        for (uint32_t d = 0; d < s->dim; d++) {
            uint32_t row = first + r;
            float x = toy_load(s->dtype, raw[row / block_rows],
                               toy_at(s, block_rows, 0, row % block_rows, d));
            if (r < lead) x = NAN; /* never read */
            toy_store(s->dtype, dst, ((size_t)r * s->dim + d) * s->heads + head,
                      c->lossless ? x : toy_lose(s->dtype, x));
        }
}
static inline void toy_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                              void *dst, uint32_t first, const void *src)
{
    for (uint32_t r = 0; r < c->tile; r++)
        for (uint32_t d = 0; d < s->dim; d++)
            toy_store(s->dtype, dst, toy_at(s, c->tile, 0, first + r, d),
                      toy_load(s->dtype, src, ((size_t)r * s->dim + d) * s->heads + head));
}
#define TOY_CODEC(what, n, keeps)                                                                  \
    {                                                                                              \
        .name = what, .tile = n, .lossless = keeps, .bytes = toy_codec_bytes,                      \
        .encode = toy_encode, .decode = toy_decode                                                 \
    }
static const struct kv_codec toy_lossless = TOY_CODEC("toy", 128, true);
static const struct kv_codec toy_lossy = TOY_CODEC("lossy", 128, false);
static const struct kv_codec toy_lossy48 = TOY_CODEC("lossy48", 48, false);
static const struct kv_codec toy_lossy16 = TOY_CODEC("lossy16", 16, false);
static const struct kv_codec toy_lossy512 = TOY_CODEC("lossy512", 512, false);
static const struct kv_codec toy_lossy1 = TOY_CODEC("lossy1", 1, false);
static const struct kv_codec toy_lossy4 = TOY_CODEC("lossy4", 4, false);

static inline size_t toy_row(const struct toy *t, uint32_t lane, uint32_t row, uint32_t head)
{
    return (((size_t)lane * t->c.max_len + row) * t->c.n_kv + head) * t->c.dim;
}
/* Opens a queue for toy stores with at most so many query heads of `dim` values, unless *d is one.  An instruction set that is not
 * here leaves *d NULL.  Returns an error code. */
static inline int toy_device(struct dev_queue **d, enum dev_isa isa, uint32_t threads,
                             uint32_t n_heads, uint32_t dim)
{
    const struct dev_config c = {threads, dev_isa_names()[isa]};
    const struct dev_limits lim = {TOY_TOKENS, 64, 64, n_heads, dim, TOY_ROWS, 512};
    if (*d || !dev_isa_supported(isa)) return 0;
    TRY(dev_queue_open(&dev_host, &c, d));
    return dev_reserve(*d, &lim);
}

static inline void *toy_alloc(size_t n)
{
    void *p = malloc(n ? n : 1);
    if (!p) abort();
    memset(p, 0xff, n); /* NaN in every type */
    return p;
}

/* The same, of bytes that end where an unreadable page begins: the sanitizer builds leave the vector kernels uninstrumented.
 * The page before holds the size of the mapping. */
static inline void *toy_fenced(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (n + page - 1) / page * page;
    size_t total = body + 2 * page;
    unsigned char *map =
        mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!n || map == MAP_FAILED || mprotect(map + page + body, page, PROT_NONE)) abort();
    memcpy(map, &total, sizeof total);
    return memset(map + page + body - n, 0xff, n);
}
static inline void toy_unfence(void *p)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    size_t total;
    if (!p) return;
    unsigned char *map = (unsigned char *)p - (uintptr_t)p % page - page;
    memcpy(&total, map, sizeof total);
    munmap(map, total);
}

/* Returns a table of distinct shuffled pages, 1 + i of [0, n_lanes * stride). */
static inline uint32_t *toy_table(uint32_t n)
{
    uint32_t *table = toy_alloc(n * sizeof *table);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = toy_random() % (i + 1);
        table[i] = table[at];
        table[at] = i + 1;
    }
    return table;
}

static inline void toy_form(struct kv_form *f, unsigned char **mem, uint32_t **table, uint32_t rows,
                            const struct toy *t, size_t plane_bytes)
{
    f->rows = rows;
    f->stride = (t->c.max_len + rows - 1) / rows + 1;
    f->offset[0] = 64;
    f->offset[1] = (64 + plane_bytes + 63) & ~(size_t)63;
    f->grain = (f->offset[1] + plane_bytes + 64 + 63) & ~(size_t)63;
    uint32_t n = f->stride * t->c.n_lanes;
    *table = toy_table(n);
    f->table = *table;
    size_t used =
        (f->offset[1] + plane_bytes + 63) & ~(size_t)63; /* of the last page: the fence follows */
    *mem = toy_fenced(n * f->grain + used);
    f->base = *mem;
}

static inline void toy_open(struct toy *t, const struct toy_config *c)
{
    memset(t, 0, sizeof *t);
    t->c = *c;
    struct kv_view *v = &t->view;
    size_t values = (size_t)c->n_lanes * c->max_len * c->n_kv * c->dim;
    for (int p = 0; p < 2; p++) {
        v->codec[p] = p && c->keys_only ? NULL : c->codec;
        for (int s = 0; s < 2; s++)
            t->flat[p][s] = toy_alloc(values * sizeof(float));
        for (size_t i = 0; i < values; i++) {
            float x = toy_round(c->dtype, toy_uniform() * (p ? 1.0f : 2.0f));
            t->flat[p][0][i] = x;
            bool lossy = v->codec[p] && !v->codec[p]->lossless;
            t->flat[p][1][i] = lossy ? toy_lose(c->dtype, x) : x;
        }
        v->shape[p] = (struct kv_shape){c->n_kv, c->dim, c->dtype, p ? KV_ROWMAJOR : KV_STRIPS};
    }
    size_t q = (size_t)c->n_heads * c->dim;
    t->q_all = toy_alloc(c->n_lanes * c->max_len * q * sizeof(float));
    for (size_t i = 0; i < c->n_lanes * c->max_len * q; i++)
        t->q_all[i] = toy_uniform() * 2;
    t->q = toy_fenced(TOY_TOKENS * q * sizeof(float));
    t->out = toy_fenced(TOY_TOKENS * q * sizeof(float));
    if (c->turned) {
        t->q_sink = toy_fenced(TOY_TOKENS * q * sizeof(float));
        t->q_sink_all = toy_alloc(c->n_lanes * c->max_len * q * sizeof(float));
        for (size_t i = 0; i < c->n_lanes * c->max_len * q; i++)
            t->q_sink_all[i] = toy_uniform() * 2;
    }
    if (c->logits) {
        t->logit = toy_fenced(c->n_heads * sizeof(float));
        /* The sink logit of the last head is far above all scores. */
        for (uint32_t i = 0; i < c->n_heads; i++)
            t->logit[i] = i + 1 < c->n_heads ? toy_uniform() * 6 : 30;
    }
    toy_form(&v->raw, &t->raw, &t->table, c->rows, t,
             (size_t)c->rows * c->n_kv * c->dim * toy_size(c->dtype));
    if (c->codec)
        toy_form(&v->sealed, &t->sealed, &t->tile_table, c->codec->tile, t,
                 c->codec->bytes(c->codec, &v->shape[0]));
    v->n_planes = 2;
    v->row1 = v->raw1 = UINT32_MAX;
    v->first = v->last = true;
    v->sinks = c->sinks;
    v->lead = c->lead;
    v->counts = t->counts;
    v->slot = t->slot;
    v->len = t->len;
    v->lane = t->lane;
    v->pos = t->pos;
    v->lo = t->lo;
    v->hi = t->hi;
    v->edge = t->edge;
    v->dst = t->dst;
    v->enc = t->enc;
    for (uint32_t i = 0; i < TOY_LANES; i++)
        t->slot[i] = i;
}

static inline void toy_close(struct toy *t)
{
    for (int i = 0; i < 4; i++)
        free(t->flat[i / 2][i % 2]);
    toy_unfence(t->raw);
    toy_unfence(t->sealed);
    free(t->table);
    free(t->tile_table);
    toy_unfence(t->q);
    toy_unfence(t->out);
    free(t->q_all);
    toy_unfence(t->q_sink);
    free(t->q_sink_all);
    toy_unfence(t->logit);
}

/* Makes lane `to` a fork of `from` that diverged at `rows`, a multiple of all page sizes. */
static inline void toy_fork(struct toy *t, uint32_t from, uint32_t to, uint32_t rows)
{
    const struct kv_form *form[2] = {&t->view.raw, &t->view.sealed};
    uint32_t *table[2] = {t->table, t->tile_table};
    for (int f = 0; f < (t->c.codec ? 2 : 1); f++)
        memcpy(table[f] + to * form[f]->stride, table[f] + from * form[f]->stride,
               rows / form[f]->rows * sizeof(uint32_t));
    for (int i = 0; i < 4; i++)
        memcpy(t->flat[i / 2][i % 2] + toy_row(t, to, 0, 0),
               t->flat[i / 2][i % 2] + toy_row(t, from, 0, 0),
               rows * t->c.n_kv * t->c.dim * sizeof(float));
}

static inline void toy_begin(struct toy *t)
{
    memset(t->counts, 0, sizeof t->counts);
    memset(t->len, 0, sizeof t->len);
    t->counts[0] = t->c.n_lanes;
}

static inline unsigned char *toy_page(const struct kv_form *f, uint32_t lane, uint32_t row,
                                      uint32_t plane)
{
    return f->base + f->table[lane * f->stride + row / f->rows] * f->grain + f->offset[plane];
}

/* Fills the pages of a lane that holds `len` rows and answers queries from row `from` on.  Three kinds of rows are
 * NaN: raw rows that the owner of a codec would have freed, rows before every reach, and rows that are not written
 * yet. */
static inline void toy_fill(struct toy *t, uint32_t lane, uint32_t from_edge, uint32_t from_lo,
                            uint32_t len)
{
    struct kv_view *v = &t->view;
    for (uint32_t p = 0; p < 2; p++) {
        const struct kv_codec *c = v->codec[p];
        const struct kv_shape *s = &v->shape[p];
        for (uint32_t row = 0; row < t->c.max_len; row++) {
            uint32_t block = row - row % t->c.rows;
            bool gone = row >= len || (row >= t->c.sinks && row < from_lo);
            if (c && block >= t->c.lead && block + t->c.rows <= from_edge) gone = true;
            for (uint32_t h = 0; h < t->c.n_kv; h++)
                for (uint32_t d = 0; d < t->c.dim; d++)
                    toy_store(s->dtype, toy_page(&v->raw, lane, row, p),
                              toy_at(s, t->c.rows, h, row % t->c.rows, d),
                              gone ? NAN : t->flat[p][0][toy_row(t, lane, row, h) + d]);
        }
        for (uint32_t row = 0; c && row + c->tile <= t->c.max_len; row += c->tile) {
            /* One raw block of the tile's size, or a block that contains the tile; layouts are
             * tested elsewhere. */
            uint32_t rows = c->tile < 16 ? 16 : c->tile, row0 = row - row % rows;
            size_t n = (size_t)rows * t->c.n_kv * t->c.dim;
            unsigned char *block = toy_alloc(n * toy_size(s->dtype));
            for (uint32_t i = 0; i < n; i++) {
                uint32_t r = i / (t->c.n_kv * t->c.dim), h = i / t->c.dim % t->c.n_kv,
                         d = i % t->c.dim;
                bool there = row + c->tile <= len && row0 + r < len;
                toy_store(s->dtype, block, toy_at(s, rows, h, r, d),
                          there ? t->flat[p][0][toy_row(t, lane, row0 + r, h) + d] : NAN);
            }
            const void *raw = block;
            uint32_t lead = t->c.lead > row ? MIN(t->c.lead - row, c->tile) : 0;
            kv_tile_encode(c, s, toy_page(&v->sealed, lane, row, p), &raw, rows, row - row0, lead);
            free(block);
        }
    }
}

static inline void toy_reach(const struct toy *t, uint32_t pos, uint32_t *lo, uint32_t *edge)
{
    *lo = 0;
    if (t->c.window && pos + 1 > t->c.window) *lo = pos + 1 - t->c.window;
    if (t->c.chunk) *lo = pos - pos % t->c.chunk;
    *edge = t->c.codec ? pos - pos % t->c.codec->tile : 0;
}

static inline void toy_token(struct toy *t, uint32_t lane, uint32_t pos, uint32_t lo, uint32_t hi,
                             uint32_t edge)
{
    uint32_t n = t->counts[1]++;
    size_t q = (size_t)t->c.n_heads * t->c.dim;
    t->lane[n] = lane;
    t->pos[n] = pos;
    t->lo[n] = lo;
    t->hi[n] = hi;
    t->edge[n] = edge;
    t->dst[n] = 0;
    size_t row = ((size_t)lane * t->c.max_len + pos) * q;
    memcpy(t->q + n * q, t->q_all + row, q * sizeof(float));
    if (t->q_sink) memcpy(t->q_sink + n * q, t->q_sink_all + row, q * sizeof(float));
}

/* Adds rows [pos, pos + n) of a lane to the step. Earlier rows are present, later rows are NaN. */
static inline void toy_feed(struct toy *t, uint32_t lane, uint32_t pos, uint32_t n)
{
    uint32_t lo, edge, lo0, edge0;
    toy_reach(t, pos, &lo0, &edge0);
    toy_fill(t, lane, edge0, lo0, pos + n);
    t->len[lane] = pos + n;
    for (uint32_t i = pos; i < pos + n; i++) {
        toy_reach(t, i, &lo, &edge);
        toy_token(t, lane, i, lo, i + 1, edge);
    }
}
static inline void toy_idle(struct toy *t, uint32_t lane)
{
    toy_token(t, lane, 0, 0, 0, 0);
}

/* How a query sees one row: not at all, or as part of a run. */
enum toy_kind { TOY_UNSEEN, TOY_SEALED, TOY_SINK, TOY_RAW };
static inline enum toy_kind toy_kind(const struct toy *t, uint32_t token, uint32_t j)
{
    bool codec = t->c.codec && !t->c.codec->lossless;
    if (j >= t->hi[token]) return TOY_UNSEEN;
    if (j < t->c.sinks && t->lo[token] > t->c.sinks) return TOY_SINK;
    if (j >= t->c.sinks && j < t->lo[token]) return TOY_UNSEEN;
    return codec && j >= t->c.lead && j < t->edge[token] ? TOY_SEALED : TOY_RAW;
}

/* Returns the query for rows of a kind. */
static inline const float *toy_query(const struct toy *t, uint32_t token, uint32_t head,
                                     enum toy_kind kind)
{
    const float *q = kind == TOY_SINK && t->q_sink ? t->q_sink : t->q;
    return q + ((size_t)token * t->c.n_heads + head) * t->c.dim;
}

struct toy_atom {
    float m, l, *acc;
};

/* Computes one atom of the canonical order (dev.h): rows [a, b) of form `sealed`, all visible. */
static inline void toy_one_atom(const struct toy *t, uint32_t token, uint32_t head, uint32_t a,
                                uint32_t b, enum toy_kind kind, float scale, float softcap,
                                struct toy_atom *out)
{
    uint32_t dim = t->c.dim, kvh = head / (t->c.n_heads / t->c.n_kv), lane = t->lane[token];
    const float *q = toy_query(t, token, head, kind);
    bool sealed = kind == TOY_SEALED;
    float s[KV_ATOM], l[16] = {0};
    out->m = -INFINITY;
    for (uint32_t j = a; j < b; j++) {
        const float *k = t->flat[0][sealed] + toy_row(t, lane, j, kvh);
        float x = 0;
        for (uint32_t d = 0; d < dim; d++)
            x = fmaf(q[d], k[d], x);
        x *= scale;
        if (softcap != 0) x = softcap * math_tanh(x / softcap);
        s[j - a] = x;
        out->m = fmaxf(out->m, x);
    }
    memset(out->acc, 0, dim * sizeof(float));
    for (uint32_t j = a; j < b; j++) {
        const float *v = t->flat[1][sealed] + toy_row(t, lane, j, kvh);
        float p = math_exp(s[j - a] - out->m);
        l[j % 16] += p;
        for (uint32_t d = 0; d < dim; d++)
            out->acc[d] = fmaf(p, v[d], out->acc[d]);
    }
    for (uint32_t i = 0; i < 8; i++)
        l[i] += l[i + 8];
    for (uint32_t i = 0; i < 4; i++)
        l[i] += l[i + 4];
    out->l = (l[0] + l[2]) + (l[1] + l[3]);
}

static inline void toy_merge(const struct toy_atom *at, uint32_t dim, struct toy_atom *big)
{
    if (big->l == 0) {
        big->m = at->m;
        big->l = at->l;
        memcpy(big->acc, at->acc, dim * sizeof(float));
        return;
    }
    float m = fmaxf(big->m, at->m), ea = math_exp(big->m - m), eb = math_exp(at->m - m);
    big->l = fmaf(big->l, ea, at->l * eb);
    for (uint32_t d = 0; d < dim; d++)
        big->acc[d] = fmaf(big->acc[d], ea, at->acc[d] * eb);
    big->m = m;
}

/* Computes the canonical order of dev.h, step by step, for one token and head. */
static inline void toy_essay(const struct toy *t, uint32_t token, uint32_t head, float scale,
                             float softcap, float *out)
{
    uint32_t dim = t->c.dim;
    struct toy_atom big = {0, 0, out}, at = {0, 0, toy_alloc(dim * sizeof(float))};
    for (int sealed = 1; sealed >= 0; sealed--)
        for (uint32_t a = 0, b; a < t->hi[token]; a = b) {
            enum toy_kind kind = toy_kind(t, token, a);
            for (b = a + 1; b % KV_ATOM && toy_kind(t, token, b) == kind;)
                b++;
            if (kind == TOY_UNSEEN || (kind == TOY_SEALED) != sealed) continue;
            toy_one_atom(t, token, head, a, b, kind, scale, softcap, &at);
            toy_merge(&at, dim, &big);
        }
    if (t->logit) {
        at.m = t->logit[head];
        at.l = 1;
        memset(at.acc, 0, dim * sizeof(float));
        toy_merge(&at, dim, &big);
    }
    float inv = 1 / big.l;
    for (uint32_t d = 0; d < dim; d++)
        out[d] = big.l != 0 ? out[d] * inv : 0;
    free(at.acc);
}

/* Computes plain softmax in double. */
static inline void toy_softmax(const struct toy *t, uint32_t token, uint32_t head, double scale,
                               double softcap, double *out)
{
    uint32_t dim = t->c.dim, kvh = head / (t->c.n_heads / t->c.n_kv), lane = t->lane[token];
    double s[TOY_ROWS], m = t->logit ? (double)t->logit[head] : -INFINITY, l;
    for (uint32_t j = 0; j < t->hi[token]; j++) {
        enum toy_kind kind = toy_kind(t, token, j);
        if (kind == TOY_UNSEEN) continue;
        const float *k = t->flat[0][kind == TOY_SEALED] + toy_row(t, lane, j, kvh);
        const float *q = toy_query(t, token, head, kind);
        s[j] = 0;
        for (uint32_t d = 0; d < dim; d++)
            s[j] += (double)q[d] * (double)k[d];
        s[j] *= scale;
        if (softcap != 0) s[j] = softcap * tanh(s[j] / softcap);
        m = fmax(m, s[j]);
    }
    l = t->logit ? exp((double)t->logit[head] - m) : 0;
    for (uint32_t d = 0; d < dim; d++)
        out[d] = 0;
    for (uint32_t j = 0; j < t->hi[token]; j++) {
        enum toy_kind kind = toy_kind(t, token, j);
        if (kind == TOY_UNSEEN) continue;
        const float *v = t->flat[1][kind == TOY_SEALED] + toy_row(t, lane, j, kvh);
        double p = exp(s[j] - m);
        l += p;
        for (uint32_t d = 0; d < dim; d++)
            out[d] += p * (double)v[d];
    }
    for (uint32_t d = 0; d < dim && l > 0; d++)
        out[d] /= l;
}
