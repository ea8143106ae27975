/* matrix_cell.h - what the cells of test_matrix do with a cache: the walks of walk_cells.h, and operations that the public interface
 * alone has. */
#pragma once
#include "hearing.h"
#include "kvik_compat.h"
#include "planes.h"
#include "walk_cells.h"

#include <stdlib.h>
#include <unistd.h>

/* Numbers of tokens of the parts: long, so that pages of several atoms stream, or within 128 or 64
 * positions. */
struct lengths {
    uint32_t prompt, a, b;
};
static const struct lengths longer = {523, 70, 61}, shorter = {43, 9, 13}, shortest = {23, 6, 9};
enum { DECODE = 7, MOST = 700 };

/* The data of one cell. */
struct cell {
    kvik_model *model;
    kvik_cache *cache;
    struct lengths n;
    uint32_t vocab, most;
    bool turns;                   /* dynamic NTK, where a row has the frequencies of its turn */
    const struct hearing *input;  /* [2] */
    const char *cross;            /* cross_cache_config, or NULL */
    uint64_t peak;                /* peak bytes of the resident reference */
    uint64_t rows;                /* digest of the reference's exported rows */
    bool native;                  /* no codec */
    const char *says;             /* the model's description */
    const float *want_a, *want_b; /* logits [1 + DECODE][vocab] after PROMPT+A and PROMPT+B */
    const int32_t *beams;         /* result of beam search on the resident cache */
    const int32_t *greedy;
    int32_t ids[MOST];
    float *got;
    kvik_seq seq[CELL_SEQS];
    uint32_t seed; /* of a drawn walk */
};
static int n_found;                       /* the number of runs with a prefix hit */
typedef int (*operation)(struct cell *c); /* 0 same, 1 differs, <0 an error of the library */

static const int32_t *part_a(const struct cell *c)
{
    return c->ids + c->n.prompt;
}
static const int32_t *part_b(const struct cell *c)
{
    return c->ids + c->n.prompt + c->n.a;
}
static const int32_t *part_decode(const struct cell *c)
{
    return c->ids + c->n.prompt + c->n.a + c->n.b;
}

/* Input 0 or 1 of the encoder, with the tokens that begin the decoder's text. */
static kvik_prompt heard(const struct cell *c, int i, const int32_t *ids, uint32_t n)
{
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = n};
    hearing_prompt(&c->input[i], &p);
    return p;
}

static int hear(const struct cell *c, kvik_seq s, int i)
{
    return hearing_begin(&c->input[i], c->cache, s);
}

static int feed(struct cell *c, kvik_seq s, const int32_t *ids, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    return kvik_forward(c->cache, &span, 1, false, logits);
}

static int decode(struct cell *c, kvik_seq s, float *logits)
{
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < DECODE; i++)
        e = feed(c, s, part_decode(c) + i, 1, logits + (size_t)(i + 1) * c->vocab);
    return e;
}

/* Appends a part and decodes; compares the logits with `want`, or writes them there. */
static int go_on(struct cell *c, kvik_seq s, const int32_t *ids, uint32_t n, const float *want,
                 float *out)
{
    float *logits = out ? out : c->got;
    int e = feed(c, s, ids, n, logits);
    if (e >= 0) e = decode(c, s, logits);
    if (e < 0 || out) return e;
    return memcmp(logits, want, (size_t)(1 + DECODE) * c->vocab * sizeof *want) != 0;
}

static int go_a(struct cell *c, kvik_seq s)
{
    return go_on(c, s, part_a(c), c->n.a, c->want_a, NULL);
}
static int go_b(struct cell *c, kvik_seq s)
{
    return go_on(c, s, part_b(c), c->n.b, c->want_b, NULL);
}

#define DO(x)                                                                                      \
    do {                                                                                           \
        int e_ = (x);                                                                              \
        if (e_ != 0) return e_;                                                                    \
    } while (0)

static int begin(struct cell *c, kvik_seq *s)
{
    int e = kvik_cache_new(c->cache, s);
    if (e >= 0) e = hear(c, *s, 0);
    return e < 0 ? e : feed(c, *s, c->ids, c->n.prompt, NULL);
}

/* A step of the walks that the store of test_matrix_kv takes, too. */
static inline int step_cell(void *ctx, enum cell_step op, uint32_t x, uint32_t n)
{
    enum { REST = 5 };
    struct cell *c = ctx;
    kvik_seq *s = &c->seq[op == FORK ? x / 10 : op == REORDER ? 0 : x];
    uint32_t from[CELL_SEQS], kept = 0;
    switch (op) {
    case BEGIN:
        return begin(c, s);
    case FORK:
        return kvik_cache_fork(c->cache, c->seq[x % 10], s);
    case GO_A:
        return go_a(c, *s);
    case GO_B:
        return go_b(c, *s);
    case FEED:
        return feed(c, *s, part_a(c), c->n.a, NULL);
    case CROP:
        if (x % 2) return kvik_cache_crop(c->cache, *s, c->n.prompt);
        kept = (uint32_t)kvik_cache_length(c->cache, *s) - c->n.prompt;
        return kept ? kvik_cache_crop(c->cache, *s, -(int64_t)kept) : 0;
    case CUT: /* a turn that is cut is another turn, to codecs and frequencies */
        if (c->native && !c->turns) kept = c->n.prompt - REST;
        DO(kvik_cache_crop(c->cache, *s, kept));
        return feed(c, *s, c->ids + kept, c->n.prompt - kept, NULL);
    case RESET:
        DO(kvik_cache_crop(c->cache, *s, 0));
        return feed(c, *s, c->ids, c->n.prompt, NULL);
    case REORDER:
        cell_order(x, n, from);
        return kvik_cache_reorder(c->cache, s, from, n);
    default:
        return kvik_cache_drop(c->cache, *s);
    }
}

/* Two rows as a batch, repeated; the third and first of the result are selected. The batch's rows
 * 1, 0 continue as they would alone. */
static int op_batch(struct cell *c)
{
    kvik_batch *b = NULL;
    uint32_t n = c->n.prompt;
    size_t bytes = (size_t)c->vocab * sizeof(float);
    int32_t *ids = malloc(2 * n * sizeof *ids);
    float *l = malloc(2 * bytes);
    memcpy(ids, c->ids, n * sizeof *ids);
    memcpy(ids + n, c->ids, n * sizeof *ids);
    ids[n] = ids[0] + 1; /* row 1 has another text; row 0 has the cell's text */
    kvik_inputs in = {.size = sizeof in, .ids = ids, .n = n, .logits_to_keep = 1};
    kvik_outputs out = {.size = sizeof out, .logits = l};
    int e = kvik_batch_open(c->cache, 2, &b);
    for (uint32_t i = 0; e >= 0 && i < 2; i++)
        e = hear(c, kvik_batch_seq(b, i), (int)i);
    if (e >= 0) e = kvik_batch_forward(b, &in, NULL);
    if (e >= 0) e = kvik_batch_repeat(b, 2); /* rows 0 0 1 1 */
    if (e >= 0) e = kvik_batch_select(b, (uint32_t[]){1, 0}, 2);
    if (e >= 0) {
        in = (kvik_inputs){
            .size = sizeof(kvik_inputs), .ids = ids, .n = c->n.a, .logits_to_keep = 1};
        memcpy(ids, part_a(c), c->n.a * sizeof *ids);
        memcpy(ids + c->n.a, part_a(c), c->n.a * sizeof *ids);
        e = kvik_batch_forward(b, &in, &out);
    }
    for (uint32_t i = 0; e == 0 && i < 1 + DECODE; i++) {
        e = memcmp(l, c->want_a + (size_t)i * c->vocab, bytes) ||
            memcmp(l, (char *)l + bytes, bytes);
        if (e || i == DECODE) break;
        ids[0] = ids[1] = part_decode(c)[i];
        in.n = 1;
        e = kvik_batch_forward(b, &in, &out);
    }
    if (b) kvik_batch_close(b);
    free(ids);
    free(l);
    return e;
}

/* Computes the logits of PROMPT+A in a fresh sequence whose tokens from `first` on are one turn. */
static int one_turn(struct cell *c, uint32_t first, float *out)
{
    kvik_seq s;
    DO(kvik_cache_new(c->cache, &s));
    DO(hear(c, s, 0));
    if (first) DO(feed(c, s, c->ids, first, NULL));
    DO(feed(c, s, c->ids + first, c->n.prompt + c->n.a - first, out));
    DO(decode(c, s, out));
    return kvik_cache_drop(c->cache, s);
}

/* A text that continued with B is changed into one that continues with A. Under dynamic NTK a row has the frequencies of
 * its turn. There a cache that seals by turns recomputes rows in their turns; another recomputes them as part of the new
 * turn. */
static int op_sync(struct cell *c)
{
    kvik_seq s;
    kvik_sync r = {.size = sizeof r};
    uint32_t differ = c->n.prompt, n = c->n.prompt + c->n.a;
    DO(begin(c, &s));
    DO(go_b(c, s));
    while (c->ids[differ] == part_b(c)[differ - c->n.prompt])
        differ++;
    DO(kvik_cache_sync(c->cache, s, c->ids, n, c->got, &r));
    int e = r.divergence != differ || r.reused + r.computed != n || r.offset;
    uint32_t reused = (uint32_t)r.reused, recomputed = (uint32_t)r.recomputed;
    kvik_sync_done(&r);
    DO(e);
    DO(decode(c, s, c->got));
    DO(kvik_cache_drop(c->cache, s));
    size_t bytes = (size_t)(1 + DECODE) * c->vocab * sizeof *c->got;
    if (memcmp(c->got, c->want_a, bytes) == 0) return 0;
    if (!c->turns || !recomputed) return 1;
    float *want = malloc(bytes);
    e = one_turn(c, reused, want);
    if (e == 0) e = memcmp(c->got, want, bytes) != 0;
    free(want);
    return e;
}

/* Two branches are saved, a third is added to the file, all are dropped, loaded and continued. */
static int op_save(struct cell *c)
{
    char path[64];
    kvik_seq s[3], t[3];
    snprintf(path, sizeof path, "build/matrix-%d.session", (int)getpid());
    /* A cell that was refused leaves its file, and a save replaces no session that its cache has not seen. */
    remove(path);
    DO(begin(c, &s[0]));
    DO(kvik_cache_fork(c->cache, s[0], &s[1]));
    DO(kvik_cache_save(c->cache, path, s, 2, NULL));
    DO(go_b(c, s[1]));
    DO(kvik_cache_fork(c->cache, s[0], &s[2]));
    DO(kvik_cache_save(c->cache, path, s, 3, "a note"));
    for (int i = 0; i < 3; i++)
        DO(kvik_cache_drop(c->cache, s[i]));
    char *note = NULL;
    int e = kvik_cache_load(c->cache, path, 3, t, &note);
    remove(path);
    if (e >= 0) e = e != 3 || strcmp(note, "a note");
    kvik_free(note);
    DO(e);
    DO(go_a(c, t[0]));
    DO(go_b(c, t[2]));
    DO(kvik_cache_drop(c->cache, t[0]));
    DO(kvik_cache_crop(c->cache, t[1], c->n.prompt));
    DO(go_a(c, t[1]));
    DO(kvik_cache_drop(c->cache, t[1]));
    return kvik_cache_drop(c->cache, t[2]);
}

static int generate(struct cell *c, const char *options, const int32_t *want, int32_t *out)
{
    kvik_generation g;
    kvik_result *r = NULL;
    kvik_prompt p[2] = {heard(c, 0, c->ids, c->n.prompt), heard(c, 1, c->ids + 7, 11)};
    int e = kvik_generation_init(&g, NULL);
    if (e >= 0) e = kvik_generation_set(&g, options);
    if (e >= 0) e = kvik_generate(c->cache, &g, p, 2, NULL, &r);
    for (uint32_t i = 0, k = 0; e >= 0 && i < r->n_rows; i++)
        for (size_t j = r->row[i]->n_prompt; e >= 0 && j < r->row[i]->n; j++, k++) {
            if (out)
                out[k] = r->row[i]->ids[j];
            else
                e = want[k] != r->row[i]->ids[j];
        }
    kvik_result_free(r);
    kvik_generation_done(&g);
    return e;
}

/* Returns a digest of the rows and positions of an export, in their order. */
static uint64_t digest(const kvik_export *p)
{
    uint64_t h = 1469598103934665603u;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const kvik_layer_rows *r = &p->layer[l];
        for (uint32_t i = 0; i <= r->n_planes; i++) {
            const kvik_plane *q = i < r->n_planes ? &r->plane[i] : NULL;
            const unsigned char *data = q ? q->data : (const void *)r->position;
            for (size_t k = 0; k < 4 * (q ? plane_values(q) : r->rows); k++)
                h = (h ^ data[k]) * 1099511628211u;
        }
    }
    return h;
}

/* The exported rows are those of the resident cache. Unquantized rows, imported again, continue
 * with the same bits; quantized rows can be continued. */
static int op_export(struct cell *c)
{
    kvik_seq s, t;
    kvik_export *p = NULL;
    DO(begin(c, &s));
    DO(kvik_cache_export(c->cache, s, &p));
    uint64_t got = digest(p);
    int e = kvik_cache_drop(c->cache, s);
    if (e >= 0) e = kvik_cache_import(c->cache, p, &t);
    kvik_export_free(p);
    DO(e);
    if (!c->rows) c->rows = got; /* the run of the reference itself */
    if (got != c->rows) return 1;
    e = go_a(c, t);
    if (e < 0 || (e > 0 && c->native)) return e;
    return kvik_cache_drop(c->cache, t);
}

static const char beam_options[] = "{\"num_beams\":3,\"max_new_tokens\":8}";
static const char greedy_options[] = "{\"max_new_tokens\":12}";
static const char speculative_options[] =
    "{\"max_new_tokens\":12,\"prompt_lookup_num_tokens\":4,\"max_matching_ngram_size\":1}";

static int op_beam(struct cell *c)
{
    return generate(c, beam_options, c->beams, NULL);
}

static int op_generate(struct cell *c)
{
    return generate(c, greedy_options, c->greedy, NULL);
}

static int op_speculative(struct cell *c)
{
    return generate(c, speculative_options, c->greedy, NULL);
}

/* Runs the same prompts twice: prefix hits in the second run change nothing. */
static int op_prefix(struct cell *c)
{
    DO(generate(c, greedy_options, c->greedy, NULL));
    DO(generate(c, greedy_options, c->greedy, NULL));
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c->cache, &u);
    n_found += u.reused > 0;
    return 0;
}
