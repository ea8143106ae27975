/* uncomputed.h - long texts for benchmarks whose rows and states are not computed: they are filled with one value, which
 * costs a reader what other values cost. */
#pragma once
#include "generate/handle.h"

/* Fills the pages that a step writes at one site, on whatever device.  The pattern is a small number in f32, f16 and bf16. */
static void fill(const struct kv_view *v, uint32_t n)
{
    static uint16_t pattern[1u << 15];
    uint32_t before = 0;
    for (size_t i = pattern[0] ? countof(pattern) : 0; i < countof(pattern); i++)
        pattern[i] = 0x1c23;
    for (uint32_t t = 0; t < n; t++) {
        uint32_t page = v->dst[t] / MAX(v->raw.rows, 1u);
        if (!page || page == before) continue;
        unsigned char *at = v->raw.base + page * v->raw.grain;
        for (size_t done = 0, part; done < v->raw.grain; done += part) {
            part = MIN(v->raw.grain - done, sizeof pattern);
            dev_put(v->queue, at + done, pattern, part);
        }
        before = page;
    }
}

/* Appends a turn up to `len` tokens whose rows are not computed, at most `most` (512) tokens a step. */
static int grow(struct exec *x, kv_seq s, uint32_t len, uint32_t most)
{
    static int32_t ids[512];
    struct kv *kv = x->kv;
    while (kv_len(kv, s) < len) {
        uint32_t n = MIN(len - kv_len(kv, s), MIN(most, countof(ids)));
        struct kv_step *st;
        struct kv_view v;
        struct kv_span span = {
            .seq = s, .n = n, .tok = ids, .turn = true, .last = kv_len(kv, s) + n == len};
        TRY(kv_begin(kv, &span, 1, &st));
        for (uint32_t site = 0; site < x->m->n_sites; site++)
            while (kv_next(st, site, &v) > 0)
                if (v.first) fill(&v, n);
        TRY(kv_commit(st, NULL));
        TRY(dev_finish(x->queue));
    }
    return 0;
}
