/* small_store.h - small stores, and appending rows to them, for the tests of single promises of the store. */
#pragma once
#include "base/bytes.h"
#include "kv/kv_int.h"
#include "testing.h"

static inline struct kv_group rows_group(uint32_t window, uint32_t site0, uint32_t n_sites)
{
    return (struct kv_group){.policy = {.kind = KV_ROWS, .window = window},
                             .site0 = site0,
                             .n_sites = n_sites,
                             .rows = 16,
                             .n_planes = 2,
                             .plane = {{"k", {2, 4, DT_F32, KV_STRIPS}, NULL},
                                       {"v", {2, 4, DT_F32, KV_ROWMAJOR}, NULL}}};
}

#define BLOCK ((size_t)16 * 2 * 4 * 4 * 2) /* bytes of a block at one site */

/* Bytes of metadata that the budget holds for a sequence of so many rows. */
static inline size_t meta(const struct kv_group *g, uint32_t n, uint32_t rows)
{
    return 2 * kv_metadata_bytes(&(struct kv_config){.group = g, .n_groups = n}, rows);
}

/* bytes: of the budget, beside arrays of fixed size */
static inline struct kv *store(const struct kv_group *g, uint32_t n, size_t bytes)
{
    struct kv *kv = NULL;
    struct kv_config c = {
        .group = g, .n_groups = n, .max_seqs = 8, .max_tokens = 256, .max_len = 1024};
    c.pool_bytes = kv_pool_bytes(&c, bytes);
    int e = kv_open(&kv, &c);
    if (e < 0) print_error("%s\n", err_last());
    assert_int_equal(e, 0);
    return kv;
}

static inline float *key(const struct kv_view *v, uint32_t lane, uint32_t row, uint32_t head,
                         uint32_t d)
{
    uint32_t page = v->raw.table[v->slot[lane] * v->raw.stride + row / 16];
    float *k = (float *)(v->raw.base + page * v->raw.grain + v->raw.offset[0]);
    return &k[(head * 4 + d) * 16 + row % 16];
}

static inline void write_keys(const struct kv_view *v, float tag)
{
    for (uint32_t t = 0; t < v->counts[1]; t++)
        for (uint32_t h = 0; h < 2; h++)
            for (uint32_t d = 0; d < 4; d++)
                *key(v, v->lane[t], v->pos[t], h, d) = tag + (float)(v->pos[t] * 8 + h * 4 + d);
}

static inline int append(struct kv *kv, kv_seq s, uint32_t n, float tag)
{
    static const int32_t tok[256];
    struct kv_span sp = {.seq = s, .n = n, .tok = tok};
    struct kv_step *st = NULL;
    int e = kv_begin(kv, &sp, 1, &st);
    if (e < 0) return e;
    struct kv_view v;
    for (uint32_t site = 0; site < kv->n_sites; site++) {
        assert_int_equal(kv_next(st, site, &v), 1);
        write_keys(&v, tag);
        assert_int_equal(kv_next(st, site, &v), 0);
    }
    return kv_commit(st, NULL);
}
