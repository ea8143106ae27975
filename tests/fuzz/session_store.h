/* session_store.h - a store with a group of every kind, sequences with contents, and session files
 * in memory. The fuzz target of session files and their unit test share it. */
#pragma once
#include "../codec/shuffle.h"
#include "dev/row.h"
#include "kv/kv_int.h"
#include "session/session_file.h"

#include <string.h>

enum { STORE_LEN = 300, STORE_SEQS = 8, STORE_FILE = 1 << 20 };

static const struct kv_plane store_kv[2] = {{"k", {1, 4, DT_F16, KV_STRIPS}, NULL},
                                            {"v", {2, 2, DT_F32, KV_ROWMAJOR}, NULL}};

static inline struct kv *store_open(uint32_t rows)
{
    struct kv_group g[5] = {
        {.policy = {.kind = KV_ROWS}, .n_sites = 2},
        {.policy = {.kind = KV_ROWS, .window = 21, .sinks = 3, .every = 50}, .n_sites = 1},
        {.policy = {.kind = KV_ROWS}, .seal = {.tile = 128, .lead = 5}, .n_sites = 1},
        {.policy = {.kind = KV_STATE, .every = 16}, .n_sites = 1},
        {.policy = {.kind = KV_FROZEN}, .n_sites = 1},
    };
    struct kv *kv = NULL;
    uint32_t site = 0;
    for (uint32_t i = 0; i < 5; i++) {
        g[i].rows = rows;
        g[i].n_planes = 2;
        g[i].site0 = site;
        site += g[i].n_sites;
        for (uint32_t p = 0; p < 2; p++) {
            g[i].plane[p] = store_kv[p];
            if (g[i].seal.tile) g[i].plane[p].codec = &kv_codec_shuffle;
            if (i == 3) g[i].plane[p].shape.layout = KV_FLAT;
        }
    }
    struct kv_config c = {.group = g,
                          .n_groups = 5,
                          .max_seqs = STORE_SEQS,
                          .max_tokens = STORE_LEN,
                          .max_len = STORE_LEN,
                          .pool_bytes = 4 << 20};
    return kv_open(&kv, &c) < 0 ? NULL : kv;
}

/* Writes the bytes of a KV row: numbers that depend on row, site, plane, head and channel. */
static inline void store_put(const struct kv_view *v, uint32_t site, uint32_t t, uint32_t row)
{
    for (uint32_t p = 0; p < 2; p++) {
        const struct kv_shape *s = &v->shape[p];
        size_t size = dtype_size(s->dtype);
        bool state = s->layout == KV_FLAT;
        uint32_t rows = state ? 1 : v->raw.rows, page = v->dst[t] / rows, r = v->dst[t] % rows;
        unsigned char *base = v->raw.base + page * v->raw.grain + v->raw.offset[p];
        for (uint32_t h = 0; h < s->heads; h++)
            for (uint32_t d = 0; d < s->dim; d++) {
                size_t i = (size_t)h * s->dim + d;
                if (s->layout == KV_ROWMAJOR) i = ((size_t)h * rows + r) * s->dim + d;
                if (s->layout == KV_STRIPS)
                    i = (((size_t)h * (rows / 16) + r / 16) * s->dim + d) * 16 + r % 16;
                uint32_t x = (row * 31 + site) * 31 + p * 7 + h * 3 + d;
                memcpy(base + i * size, &x, size);
            }
    }
}

/* Runs a step of n rows: reads and writes through every site. */
static inline int store_step(struct kv *kv, kv_seq s, uint32_t n, bool cross, bool turn)
{
    static int32_t tok[STORE_LEN];
    struct kv_step *st;
    struct kv_view v;
    uint32_t len = cross ? 0 : kv_len(kv, s);
    for (uint32_t i = 0; i < n; i++)
        tok[i] = (int32_t)(len + i);
    struct kv_span sp = {
        .seq = s, .n = n, .tok = tok, .cross = cross, .turn = turn && !cross, .last = true};
    TRY(kv_begin(kv, &sp, 1, &st));
    for (uint32_t site = cross ? 5 : 0; site < 6; site++)
        while (kv_next(st, site, &v) > 0) {
            for (uint32_t t = 0; t < n; t++)
                if (v.dst[t]) store_put(&v, site, t, len + t);
            for (uint32_t i = 0; i < v.counts[2]; i++) {
                const void *raw[16];
                uint32_t slot = v.slot[v.enc[2 * i]], k = v.enc[2 * i + 1], r = v.raw.rows;
                uint32_t id = v.sealed.table[slot * v.sealed.stride + k], b = MAX(128 / r, 1);
                for (uint32_t p = 0; p < 2; p++) {
                    for (uint32_t j = 0; j < b; j++)
                        raw[j] = v.raw.base +
                                 v.raw.table[slot * v.raw.stride + k * 128 / r + j] * v.raw.grain +
                                 v.raw.offset[p];
                    kv_tile_encode(v.codec[p], &v.shape[p],
                                   v.sealed.base + id * v.sealed.grain + v.sealed.offset[p], raw, r,
                                   k * 128 % r, k ? 0 : v.lead);
                }
            }
        }
    return kv_commit(st, NULL);
}

/* --- A session file in memory */

struct store_file {
    struct session_io io;
    struct kv_sink sink;
    struct session s;
    uint8_t *data; /* [STORE_FILE] */
    size_t n;
};

static inline int store_image(struct kv_sink *sink, const struct kv_image *im)
{
    struct store_file *f = (struct store_file *)((char *)sink - offsetof(struct store_file, sink));
    return session_add_seq(&f->s, im);
}

static inline int store_chunk(struct kv_sink *sink, const struct kv_chunk *c, const void *data,
                              size_t bytes)
{
    struct store_file *f = (struct store_file *)((char *)sink - offsetof(struct store_file, sink));
    struct session_part p = {.c = *c, .at = f->n, .bytes = bytes};
    if (bytes > STORE_FILE / 2 - f->n) return ERR(LIMIT, "too large");
    digest_of(data, bytes, p.digest);
    memcpy(f->data + f->n, data, bytes);
    f->n += bytes;
    return session_add_part(&f->s.seq[f->s.n_seqs - 1], &p);
}

static inline int store_save(struct kv *kv, const kv_seq *s, uint32_t n, struct store_file *f)
{
    uint8_t digest[DIGEST_BYTES];
    char *manifest;
    size_t bytes;
    f->n = SESSION_DATA;
    f->s = (struct session){.n_groups = kv_n_groups(kv), .saves = 1};
    f->sink = (struct kv_sink){.image = store_image, .chunk = store_chunk};
    f->s.meta = json_pack("{s:s}", "model", "none");
    f->s.note = mem_strdup("note");
    f->s.n_note = 4;
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < n; i++)
        e = kv_save(kv, s[i], &f->sink);
    if (e >= 0) e = session_encode(&f->s, &manifest, &bytes);
    if (e >= 0) {
        memcpy(f->data + f->n, manifest, bytes);
        digest_of(manifest, bytes, digest);
        mem_free(manifest);
        f->s.manifest_at = f->n;
        f->s.manifest_bytes = bytes;
        f->s.end = f->n += bytes;
        session_head(f->data);
        session_slot(&f->s, digest, f->data + SESSION_SLOT_AT);
        session_slot(&f->s, digest, f->data + SESSION_SLOT_AT + SESSION_SLOT_STEP);
    }
    session_done(&f->s);
    return e;
}

struct store_source {
    struct kv_source source;
    struct session_io io;
    const uint8_t *data;
    const struct session *s;
    uint32_t at;
    kv_seq *seq;
};

static inline int store_read(struct session_io *io, uint64_t at, void *out, size_t n)
{
    struct store_source *v =
        (struct store_source *)((char *)io - offsetof(struct store_source, io));
    if (at > io->size || n > io->size - at) return ERR(IO, "past the end");
    memcpy(out, v->data + at, n);
    return 0;
}

static inline int store_give(struct kv_source *source, const struct kv_chunk *c, void *data,
                             size_t bytes)
{
    struct store_source *v = (struct store_source *)source;
    const struct session_part *p = session_find(&v->s->seq[v->at], c);
    if (!p || p->c.row != c->row || p->bytes != bytes) return ERR(FORMAT, "not there");
    return session_part_read(&v->io, p, data);
}

/* Loads every sequence that can be loaded, at most STORE_SEQS. Returns their number. */
static inline uint32_t store_load(struct kv *kv, struct store_source *v, kv_seq *out)
{
    uint32_t n = 0;
    v->source = (struct kv_source){store_give, NULL};
    if (v->s->n_groups != kv_n_groups(kv)) return 0;
    for (v->at = 0; v->at < v->s->n_seqs && n < STORE_SEQS; v->at++)
        n += kv_load(kv, &v->s->seq[v->at].im, &v->source, &out[n]) >= 0;
    return n;
}
