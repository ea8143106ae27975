/* kv_toy.h - a toy model over the store alone, for test_matrix_kv.  The row that it writes for a token is a function of all tokens
 * before, so a row or a state of another text shows.  Its answer is a hash of everything the token may see, read through the view
 * of an open step as a kernel reads it. */
#pragma once
#include "codecs.h"
#include "dev/dev.h"
#include "kv/codec.h"
#include "kv/image.h"
#include "kv/kv.h"
#include "kv/rows.h"
#include "walk_cells.h"

#include <stddef.h>

enum { HEADS = 2, STATE = 32, CROSS = 37, PROMPT = 523, PART = 61, DECODE = 7, MOST = 640 };
enum { CHUNK = 64, SEQS = 6, SITES = 2 };

struct policy {
    const char *name;
    struct kv_policy group[2];
    uint32_t n;
};

struct toy {
    struct dev_queue *dev;
    struct kv *kv;
    struct kv_group group[2];
    uint32_t n_groups;
    bool frozen;
    bool later;   /* the codec is a rung, which is reached once a sequence has its prompt */
    uint32_t dim; /* values of a head: the codec's choice */
    int32_t ids[MOST];
    uint64_t want_a[1 + DECODE], want_b[1 + DECODE];
    kv_seq seq[CELL_SEQS];
    void *scratch;
    float *rows; /* [CHUNK][HEADS * dim] to write */
};

static inline uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* n: a multiple of 32.  Four lanes, because one waits for every product. */
static uint64_t mix_bytes(uint64_t h, const void *p, size_t n)
{
    uint64_t a = h, b = ~h, c = h >> 1, d = h << 1, x[4];
    for (size_t i = 0; i < n; i += sizeof x) {
        memcpy(x, (const char *)p + i, sizeof x);
        a = mix(a, x[0]);
        b = mix(b, x[1]);
        c = mix(c, x[2]);
        d = mix(d, x[3]);
    }
    return mix(mix(a, b), mix(c, d));
}

/* Computes the values of a row from the hash of the tokens up to it. */
static void row_values(uint64_t h, uint32_t site, uint32_t plane, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        h = mix(h, (site * 2 + plane) * 1000 + i);
        out[i] = (float)(int32_t)(h >> 40) / 8388608.0f - 1.0f;
    }
}

/* The open step: one sequence, n tokens. */
struct toy_step {
    struct toy *t;
    struct kv_step *st;
    bool cross, reads; /* reads: somebody wants the answer */
    const int32_t *tok;
    uint32_t n;
    uint64_t before; /* hash of the tokens before the step */
    uint64_t answer;
};

static void write_rows(struct toy_step *s, const struct kv_view *v, uint32_t site)
{
    struct toy *t = s->t;
    uint32_t ld = HEADS * t->dim;
    for (uint32_t plane = 0; plane < 2; plane++) {
        uint64_t h = s->before;
        for (uint32_t i = 0; i < s->n; i++) {
            h = mix(h, s->cross ? i : (uint64_t)s->tok[i]);
            row_values(h, site, plane, ld, t->rows + (size_t)i * ld);
        }
        dev_kv_write(t->dev, v, plane, t->rows, ld);
    }
    dev_kv_seal(t->dev, v);
}

/* Reads what the last token sees of one plane, piece by piece into `rows`: lo..hi and the sinks. */
static void read_rows(struct toy *t, const struct kv_view *v, float *keys, float *values)
{
    uint32_t last = v->counts[1] - 1;
    struct rows_ask a = {.token = last,
                         .sinks = MIN(v->sinks, v->lo[last]),
                         .lo = v->lo[last],
                         .to = v->hi[last],
                         .plane = {keys, values},
                         .ld = MOST,
                         .scratch = t->scratch};
    rows_read(v, &a);
}

static int row_site(struct toy_step *s, uint32_t site, bool writes)
{
    struct toy *t = s->t;
    size_t plane = (size_t)HEADS * MOST * t->dim;
    float *rows = s->reads ? calloc(2 * plane, sizeof *rows) : NULL;
    struct kv_view v;
    int e;
    while ((e = kv_next(s->st, site, &v)) > 0) {
        if (v.first && writes) write_rows(s, &v, site);
        if (rows) read_rows(t, &v, rows, rows + plane);
    }
    if (rows) s->answer = mix_bytes(s->answer, rows, 2 * plane * sizeof *rows);
    free(rows);
    return e;
}

static int state_site(struct toy_step *s, uint32_t site)
{
    struct kv_view v;
    int e;
    while ((e = kv_next(s->st, site, &v)) > 0) {
        uint64_t h = 0;
        const unsigned char *base = v.raw.base + v.raw.offset[0];
        if (v.from[0]) memcpy(&h, base + v.from[0] * v.raw.grain, sizeof h);
        for (uint32_t i = 0; i < s->n; i++) {
            h = mix(mix(h, site), (uint64_t)s->tok[i]);
            if (v.dst[i])
                memcpy(v.raw.base + v.raw.offset[0] + v.dst[i] * v.raw.grain, &h, sizeof h);
        }
        s->answer = mix(s->answer, h);
    }
    return e;
}

/* Runs one step: `undo` of its tokens may be rejected, `keep` of them are kept. */
static int step(struct toy *t, kv_seq seq, const int32_t *tok, uint32_t n, struct kv_span span,
                uint32_t keep, uint64_t *answer)
{
    struct toy_step s = {.t = t, .cross = span.cross, .reads = answer, .tok = tok, .n = n};
    uint32_t len = kv_len(t->kv, seq);
    const int32_t *known = kv_tokens(t->kv, seq);
    for (uint32_t i = 0; i < len && !span.cross; i++)
        s.before = mix(s.before, (uint64_t)known[i]);
    span.seq = seq;
    span.n = n;
    span.tok = tok;
    int e = kv_begin(t->kv, &span, 1, &s.st);
    if (e < 0) return e;
    for (uint32_t g = 0; e >= 0 && g < t->n_groups; g++)
        for (uint32_t i = 0; e >= 0 && i < SITES; i++) {
            enum kv_kind kind = t->group[g].policy.kind;
            if (span.cross && kind != KV_FROZEN) continue;
            uint32_t site = t->group[g].site0 + i;
            e = kind == KV_STATE ? state_site(&s, site)
                                 : row_site(&s, site, (kind == KV_FROZEN) == span.cross);
        }
    if (e < 0) {
        kv_abort(s.st);
        return e;
    }
    if (answer) *answer = s.answer;
    return kv_commit(s.st, span.undo ? &keep : NULL);
}

/* Appends a turn in chunks; returns the answer to its last token. */
static int feed(struct toy *t, kv_seq seq, const int32_t *tok, uint32_t n, uint64_t *answer)
{
    int e = 0;
    for (uint32_t at = 0, m; e >= 0 && at < n; at += m) {
        m = MIN(n - at, MIN((uint32_t)CHUNK, kv_max_tokens(t->kv)));
        struct kv_span span = {.turn = n > 1, .last = at + m == n};
        e = step(t, seq, tok + at, m, span, 0, span.last ? answer : NULL);
    }
    return e;
}

static int begin(struct toy *t, kv_seq *s)
{
    int e = kv_new(t->kv, NULL, s);
    if (e >= 0 && t->frozen) e = step(t, *s, NULL, CROSS, (struct kv_span){.cross = true}, 0, NULL);
    if (e >= 0) e = feed(t, *s, t->ids, PROMPT, NULL);
    return e < 0 || !t->later ? e : kv_encode(t->kv, 1);
}

static int go_on(struct toy *t, kv_seq s, const int32_t *part, const uint64_t *want, uint64_t *out)
{
    uint64_t got[1 + DECODE];
    int e = feed(t, s, part, PART - DECODE, got);
    for (uint32_t i = 0; e >= 0 && i < DECODE; i++)
        e = feed(t, s, part + PART - DECODE + i, 1, &got[1 + i]);
    if (e < 0) return e;
    if (out) memcpy(out, got, sizeof got);
    return !out && memcmp(got, want, sizeof got) != 0;
}

static int go_a(struct toy *t, kv_seq s)
{
    return go_on(t, s, t->ids + PROMPT, t->want_a, NULL);
}
static int go_b(struct toy *t, kv_seq s)
{
    return go_on(t, s, t->ids + PROMPT - 31, t->want_b, NULL);
}

/* Crops to the first `len` tokens. Rows that the store cannot restore exactly are recomputed as one
 * turn. */
static int crop(struct toy *t, kv_seq s, uint32_t len)
{
    uint32_t have;
    int e = kv_trim(t->kv, s, len, &have);
    return e < 0 || have == len ? e : feed(t, s, t->ids + have, len - have, NULL);
}

#define DO(x)                                                                                      \
    do {                                                                                           \
        int e_ = (x);                                                                              \
        if (e_ != 0) return e_;                                                                    \
    } while (0)

/* --- stores */
static int plane_codecs(struct kv_group *g, const struct codec_variant *v)
{
    struct kv_codec *c[2];
    TRY(kv_codec_pair_open(&v->pair, &g->plane[0].shape, &g->plane[1].shape, &c[0], &c[1],
                           &g->seal));
    g->plane[0].codec = c[0];
    g->plane[1].codec = c[1];
    g->seal.lead = MAX(g->seal.lead, g->policy.sinks);
    return 0;
}

static int groups(struct toy *t, const struct policy *p, const struct codec_variant *codec)
{
    for (uint32_t i = 0; i < p->n; i++) {
        struct kv_group *g = &t->group[i];
        *g = (struct kv_group){
            .policy = p->group[i], .site0 = i * SITES, .n_sites = SITES, .rows = 16};
        t->frozen |= g->policy.kind == KV_FROZEN;
        if (g->policy.kind == KV_STATE) {
            g->n_planes = 1;
            g->plane[0] = (struct kv_plane){"state", {1, STATE, DT_F32, KV_FLAT}, NULL};
            continue;
        }
        g->n_planes = 2;
        g->plane[0] = (struct kv_plane){"k", {HEADS, t->dim, DT_F32, KV_STRIPS}, NULL};
        g->plane[1] = (struct kv_plane){"v", {HEADS, t->dim, DT_F32, KV_ROWMAJOR}, NULL};
        TRY(plane_codecs(g, codec));
        if (t->later) {
            g->n_rungs = 1;
            g->rung[0].seal = g->seal;
            g->seal = (struct kv_seal){0};
        }
        for (uint32_t k = 0; k < g->n_rungs * g->n_planes; k++) {
            g->rung[0].codec[k] = g->plane[k].codec;
            g->plane[k].codec = NULL;
        }
        g->stream = true;
    }
    t->n_groups = p->n;
    return 0;
}

static void codecs_close(struct toy *t)
{
    for (uint32_t i = 0; i < t->n_groups; i++)
        for (uint32_t p = 0; p < t->group[i].n_planes; p++)
            kv_codec_close(t->group[i].n_rungs ? t->group[i].rung[0].codec[p]
                                               : t->group[i].plane[p].codec);
}

static int store_open(struct toy *t, const struct policy *p, const struct codec_variant *codec,
                      enum kv_streaming streaming, size_t pool)
{
    t->frozen = false;
    memset(t->group, 0, sizeof t->group);
    int e = groups(t, p, codec);
    struct kv_config c = {.group = t->group,
                          .n_groups = t->n_groups,
                          .max_seqs = SEQS,
                          .max_tokens = CHUNK,
                          .max_len = MOST,
                          .index = true,
                          .pool_bytes = pool,
                          .streaming = streaming};
    if (e >= 0 && streaming != KV_RESIDENT) e = kv_tier_memory_open(NULL, (size_t)1 << 36, &c.tier);
    if (e >= 0) e = kv_open(&t->kv, &c);
    if (e < 0 && c.tier) c.tier->close(c.tier);
    if (e < 0) codecs_close(t);
    return e;
}

static void store_close(struct toy *t, int e)
{
    if (e == 0 && !kv_check(t->kv)) abort();
    kv_close(t->kv);
    codecs_close(t);
}
