/* test_matrix.c - policy x codec x tier x operation. Every cell is run and compared, bit for bit,
 * with the same tokens in a fresh sequence of a resident cache with that policy and codec.
 *
 *     build/release/test_matrix [all] [-v]     all: every form of every model with every codec and operation, tiers
 *                                              in turn; else two forms of each model (all of one with an
 *                                              encoder), and every pair of values of two axes at least once
 *
 * The models are those of tests/golden/models (test_gguf_models.c covers a .gguf next to its
 * original), the codecs are the variants of codecs.h. A new file of either is covered without being
 * listed. Prompts are long for an eighth of the policies (a quarter with `all`), elsewhere short.
 * KVIK_TEST_SHORT takes a part of the cells, the codecs in turn.
 *
 * Sequences of a model with an encoder hear an input before their tokens. Every second pair of such a model
 * has its codec for the encoder's rows as well; these rows move to disk when the tier does.
 *
 * A cell passes, or its cache is refused with a reason that is listed for the combination; anything
 * else fails. Streamed cells get the smallest memory (found by doubling) in which they finish, so
 * that pages really leave memory; the last line counts them. */
#include "base/json.h"
#include "codecs.h"
#include "kvik_compat.h"
#include "models.h"
#include "planes.h"
#include "share.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Numbers of tokens of the parts: long, so that pages of several atoms stream, or within 128 or 64
 * positions. */
struct lengths {
    uint32_t prompt, a, b;
};
static const struct lengths longer = {523, 70, 61}, shorter = {43, 9, 13}, shortest = {23, 6, 9};
enum { DECODE = 7, MOST = 700 };

/* The forms that every golden model is run in. config: members of cache_config, or "". The error
 * message of a refusal must contain `refusal`, and the model's description one of the words
 * `if_says` (or none of `unless_says`). */
struct form {
    const char *implementation, *config, *refusal;
    const char *if_says[4], *unless_says[2];
};
static const struct form forms[] = {
    {"dynamic", "", NULL, {NULL}, {NULL}},
    {"static", "", NULL, {NULL}, {NULL}},
    {"sink",
     "\"window_length\":20,\"num_sink_tokens\":3",
     "sink",
     {"\"rope\":null", "\"longrope\"", "\"type\":\"dynamic\"", "chunked_attention"},
     {NULL}},
    {"dynamic", "\"sliding_window\":17", NULL, {NULL}, {NULL}},
    {"hybrid", "", "needs a window", {""}, {"sliding_attention", "chunked_attention"}},
    {"sliding_window", "\"sliding_window\":24", NULL, {NULL}, {NULL}},
};
struct policy { /* one form of one model */
    const char *model, *implementation, *config;
    const struct form *form;
    uint32_t head_dim;
    int n_cells; /* those that ran */
};
enum { POLICIES_MOST = 512, CODECS_MOST = 1 + 5 * CODEC_KINDS };
static struct policy policies[POLICIES_MOST]; /* those of models with an encoder are the last */
/* fit[c][p]: 0: codec c does not store the heads of policy p; else the number of such policies up to p. place[c][p]: the
 * number of such codecs up to c. The totals are n_fit and n_places. */
static uint32_t fit[CODECS_MOST][POLICIES_MOST], n_fit[CODECS_MOST];
static uint32_t place[CODECS_MOST][POLICIES_MOST], n_places[POLICIES_MOST];
static const char *const tiers[] = {"resident", "offloaded", "on_full"};
enum { TIERS = sizeof tiers / sizeof *tiers };
static uint32_t n_policies, n_codecs;

/* The data of one cell. */
struct cell {
    kvik_model *model;
    kvik_cache *cache;
    struct lengths n;
    uint32_t vocab, most;
    kvik_encoder encoder; /* bins and rows 0: the model has none */
    bool hears;
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

enum { HEARD = 37, FEATURES = 8192 };
static float features[2][FEATURES];

/* Input 0 or 1 of the encoder, with the tokens that begin the decoder's text. */
static kvik_prompt heard(const struct cell *c, int i, const int32_t *ids, uint32_t n)
{
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = n};
    if (!c->hears) return p;
    static kvik_source given[2];
    given[i] = (kvik_source){.size = sizeof *given};
    if (c->encoder.bins) {
        given[i].features = features[i];
        given[i].n_frames = (size_t)c->encoder.rows * c->encoder.stride;
    } else {
        given[i].ids = c->ids + 3 * i;
        given[i].n = HEARD - 5 * (uint32_t)i;
    }
    p.source = &given[i];
    return p;
}

static int hear(const struct cell *c, kvik_seq s, int i)
{
    kvik_prompt p = heard(c, i, NULL, 0);
    return c->hears ? kvik_cache_encode(c->cache, s, p.source) : 0;
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

static int op_plain(struct cell *c)
{
    kvik_seq s;
    DO(begin(c, &s));
    DO(go_a(c, s));
    return kvik_cache_drop(c->cache, s);
}

static int op_fork(struct cell *c)
{
    kvik_seq s, f;
    DO(begin(c, &s));
    DO(kvik_cache_fork(c->cache, s, &f));
    DO(go_b(c, f));
    DO(go_a(c, s));
    DO(kvik_cache_drop(c->cache, f));
    return kvik_cache_drop(c->cache, s);
}

static int op_crop(struct cell *c)
{
    kvik_seq s;
    DO(begin(c, &s));
    DO(go_a(c, s));
    DO(kvik_cache_crop(c->cache, s, c->n.prompt));
    DO(go_b(c, s));
    DO(kvik_cache_crop(c->cache, s, -(int64_t)(c->n.b + DECODE)));
    DO(go_a(c, s));
    return kvik_cache_drop(c->cache, s);
}

static int op_reorder(struct cell *c)
{
    kvik_seq s[2];
    DO(begin(c, &s[0]));
    DO(begin(c, &s[1]));
    DO(feed(c, s[1], part_a(c), c->n.a, c->got));
    DO(kvik_cache_reorder(c->cache, s, (uint32_t[]){1, 0}, 2));
    DO(decode(c, s[0], c->got));
    if (memcmp(c->got, c->want_a, (size_t)(1 + DECODE) * c->vocab * sizeof *c->got)) return 1;
    DO(go_b(c, s[1]));
    DO(kvik_cache_drop(c->cache, s[1]));
    return kvik_cache_drop(c->cache, s[0]);
}

/* Batch select and repeat: of three rows the first and third continue, the first twice. */
static int op_select(struct cell *c)
{
    kvik_seq s[4];
    for (uint32_t i = 0; i < 3; i++)
        DO(begin(c, &s[i]));
    DO(kvik_cache_drop(c->cache, s[1]));
    DO(kvik_cache_fork(c->cache, s[0], &s[3]));
    kvik_span span[3] = {{.size = sizeof(kvik_span), .seq = s[0], .ids = part_a(c), .n = c->n.a},
                         {.size = sizeof(kvik_span), .seq = s[2], .ids = part_b(c), .n = c->n.b},
                         {.size = sizeof(kvik_span), .seq = s[3], .ids = part_a(c), .n = c->n.a}};
    float *l = malloc(3 * (size_t)c->vocab * sizeof *l);
    int e = kvik_forward(c->cache, span, 3, false, l);
    if (e >= 0)
        e = memcmp(l, c->want_a, c->vocab * sizeof *l) ||
            memcmp(l + c->vocab, c->want_b, c->vocab * sizeof *l) ||
            memcmp(l + 2 * (size_t)c->vocab, c->want_a, c->vocab * sizeof *l);
    free(l);
    DO(e);
    memcpy(c->got, c->want_a, c->vocab * sizeof *c->got);
    DO(decode(c, s[3], c->got));
    if (memcmp(c->got, c->want_a, (size_t)(1 + DECODE) * c->vocab * sizeof *c->got)) return 1;
    for (uint32_t i = 0; i < 4; i++)
        if (i != 1) DO(kvik_cache_drop(c->cache, s[i]));
    return 0;
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
    bool turns = strstr(c->says, "\"type\":\"dynamic\"") != NULL;
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
    if (!turns || !recomputed) return 1;
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

static int op_reset(struct cell *c)
{
    kvik_seq s;
    DO(begin(c, &s));
    DO(go_a(c, s));
    DO(kvik_cache_crop(c->cache, s, 0));
    DO(feed(c, s, c->ids, c->n.prompt, NULL));
    DO(go_b(c, s));
    return kvik_cache_drop(c->cache, s);
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

enum {
    A = 1,
    B = 2,
    BEAMS = 4,
    GREEDY = 8
}; /* parts of the reference that an operation compares with */
static const struct {
    const char *name;
    operation run;
    uint32_t needs;
} operations[] = {{"forward", op_plain, A},
                  {"generate", op_generate, GREEDY},
                  {"beam", op_beam, BEAMS},
                  {"fork", op_fork, A | B},
                  {"crop", op_crop, A | B},
                  {"reorder", op_reorder, A | B},
                  {"select", op_select, A | B},
                  {"batch", op_batch, A},
                  {"sync", op_sync, A | B},
                  {"save", op_save, A | B},
                  {"speculative", op_speculative, GREEDY},
                  {"prefix", op_prefix, GREEDY},
                  {"reset", op_reset, A | B},
                  {"export", op_export, A}};
enum { OPS = sizeof operations / sizeof *operations };

static int n_cells, n_pass, n_refused, n_failed, n_streamed, verbose;

/* Adds a member to the text of an object. */
static void offloading(char *out, size_t n, const char *config)
{
    snprintf(out, n, "%.*s%s\"offloading\":true}", (int)strlen(config) - 1, config,
             config[1] == '}' ? "" : ",");
}

static int open_cache(struct cell *c, const struct policy *p, const char *config, const char *tier,
                      uint64_t memory)
{
    char merged[400], cross[400];
    bool offload = strcmp(tier, "offloaded") == 0, on_full = strcmp(tier, "on_full") == 0;
    offloading(merged, sizeof merged, config);
    offloading(cross, sizeof cross, c->cross ? c->cross : "{}");
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = p->implementation,
                           .cache_config = offload ? merged : config,
                           .max_cache_len = c->most,
                           .cross_cache_config = !c->hears ? NULL
                                                 : offload ? cross
                                                           : c->cross,
                           .max_encoder_len = c->hears && !c->encoder.bins ? HEARD : 0,
                           .cache_memory = memory,
                           .max_sequences = 6,
                           .step_tokens = 64,
                           .threads = 1,
                           .compute = "exact",
                           .spill_dir = offload || on_full ? "." : NULL,
                           .on_full = on_full ? "offload" : NULL};
    return kvik_cache_open(c->model, &k, &c->cache);
}

static bool full(int e)
{
    return e == KVIK_FULL || e == KVIK_LIMIT;
}

/* Runs one operation on a streamed cache with the smallest memory in which it finishes. */
static int squeeze(struct cell *c, const struct policy *p, const char *config, const char *tier,
                   operation run, bool *streamed)
{
    int e = KVIK_FULL;
    for (uint64_t memory = c->peak / 3; full(e) && memory <= 1u << 26; memory += memory / 2) {
        e = open_cache(c, p, config, tier, memory);
        if (e < 0) continue;
        e = run(c);
        kvik_usage u = {.size = sizeof u};
        kvik_cache_usage(c->cache, &u);
        *streamed = u.tier_written > 0;
        if (u.peak_bytes > memory) {
            printf("     peak %llu of %llu\n", (unsigned long long)u.peak_bytes,
                   (unsigned long long)memory);
            e = 1;
        }
        kvik_cache_close(c->cache);
    }
    return e;
}

static void cell_line(const char *what, const struct policy *p, const struct codec_variant *k,
                      const char *tier, const char *op, const char *why)
{
    printf("%s %s %s {%s} / %s / %s / %s: %s\n", what, p->model, p->implementation, p->config,
           k->name, tier, op, why);
}

/* Computes the reference of a (policy, codec): each part in a fresh sequence of a resident cache. */
static int reference(struct cell *c, const struct policy *p, const char *config, uint32_t needs,
                     float *a, float *b, int32_t *beams, int32_t *greedy)
{
    kvik_seq s;
    int e = open_cache(c, p, config, "resident", 0);
    if (e < 0) return e;
    if ((needs & A) && (e = begin(c, &s)) >= 0) {
        e = go_on(c, s, part_a(c), c->n.a, NULL, a);
        if (e >= 0) e = kvik_cache_drop(c->cache, s);
    }
    if (e >= 0 && (needs & B) && (e = begin(c, &s)) >= 0) {
        e = go_on(c, s, part_b(c), c->n.b, NULL, b);
        if (e >= 0) e = kvik_cache_drop(c->cache, s);
    }
    if (e >= 0 && (needs & BEAMS)) e = generate(c, beam_options, NULL, beams);
    if (e >= 0 && (needs & GREEDY)) e = generate(c, greedy_options, NULL, greedy);
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c->cache, &u);
    c->peak = u.peak_bytes;
    kvik_cache_close(c->cache);
    return e;
}

static void run_cell(struct cell *c, const struct policy *p, const struct codec_variant *k,
                     const char *config, const char *tier, int op)
{
    bool streamed = false;
    int e;
    n_cells++;
    if (strcmp(tier, "resident") == 0) {
        e = open_cache(c, p, config, tier, 0);
        if (e >= 0) {
            e = operations[op].run(c);
            kvik_cache_close(c->cache);
        }
    } else {
        e = squeeze(c, p, config, tier, operations[op].run, &streamed);
    }
    n_streamed += streamed;
    if (e == 0) {
        n_pass++;
        if (verbose)
            cell_line("pass", p, k, tier, operations[op].name, streamed ? "streamed" : "-");
    } else {
        n_failed++;
        cell_line("FAIL", p, k, tier, operations[op].name,
                  e < 0 ? kvik_last_error() : "other logits or tokens");
    }
}

/* Chooses the cells of the quick run: each policy once with each operation and each codec that fits, codecs
 * and tiers in turn, so that every pair of values of two axes occurs; check_axes looks. A codec that fits some
 * models only also meets each operation on one of these. */
static bool paired(uint32_t policy, uint32_t codec, uint32_t tier, uint32_t op)
{
    uint32_t rank = fit[codec][policy], codecs = n_places[policy];
    if (!rank) return false;
    for (uint32_t i = op; i < (codecs > OPS ? codecs : OPS); i += OPS)
        if (place[codec][policy] - 1 == (policy + i) % codecs && tier == (policy / 4 + i) % TIERS)
            return true;
    return n_fit[codec] < n_policies && op % n_fit[codec] == rank - 1 && tier == op % TIERS;
}

static bool chosen(bool all, uint32_t policy, uint32_t codec, uint32_t tier, uint32_t op)
{
    if ((policy + codec) % test_share() || !fit[codec][policy]) return false;
    return all ? tier == (policy + codec + op) % TIERS : paired(policy, codec, tier, op);
}

static bool refusal_expected(const struct cell *c, const struct policy *p, int e)
{
    const struct form *f = p->form;
    if ((e != KVIK_UNSUPPORTED && e != KVIK_ARG) || !f->refusal) return false;
    if (!strstr(kvik_last_error(), f->refusal)) return false;
    bool may = false;
    for (int i = 0; i < 4 && f->if_says[i]; i++)
        may |= strstr(c->says, f->if_says[i]) != NULL;
    for (int i = 0; i < 2 && f->unless_says[i]; i++)
        may &= strstr(c->says, f->unless_says[i]) == NULL;
    return may;
}

static void run_pair(struct cell *c, uint32_t policy, uint32_t codec, bool all)
{
    struct policy *p = &policies[policy];
    struct codec_variant v;
    const struct codec_variant *k = &v;
    char config[900], cross[900];
    size_t n = (size_t)(1 + DECODE) * c->vocab;
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    int32_t beams[64], greedy[64];
    uint32_t cells = 0, needs = 0;
    for (uint32_t t = 0; t < TIERS; t++)
        for (uint32_t op = 0; op < OPS; op++)
            if (chosen(all, policy, codec, t, op)) cells++, needs |= operations[op].needs;
    c->got = malloc(n * sizeof *a);
    if (!codec_variant(codec, p->head_dim, &v)) abort(); /* fit says that it can be made */
    p->n_cells += (int)cells;
    snprintf(config, sizeof config, "{%s%s%s}", p->config, *p->config && *v.config ? "," : "",
             v.config);
    c->rows = 0;
    c->native = v.native;
    snprintf(cross, sizeof cross, "{%s}", v.config);
    c->cross = (policy + codec) % 2 ? cross : NULL;
    int e = reference(c, p, config, needs, a, b, beams, greedy);
    c->want_a = a;
    c->want_b = b;
    c->beams = beams;
    c->greedy = greedy;
    if (e < 0) {
        const char *why = kvik_last_error();
        bool expected = refusal_expected(c, p, e);
        cell_line(expected ? "refused" : "FAIL", p, k, "all", "all", why);
        n_cells += (int)cells;
        *(expected ? &n_refused : &n_failed) += (int)cells;
    } else {
        for (uint32_t t = 0; t < TIERS; t++)
            for (uint32_t op = 0; op < OPS; op++)
                if (chosen(all, policy, codec, t, op)) run_cell(c, p, k, config, tiers[t], op);
    }
    free(a);
    free(b);
    free(c->got);
}

static uint32_t head_dim_of(const char *says)
{
    const char *at = strstr(says, "\"head_dim\":");
    uint32_t dim = at ? (uint32_t)strtoul(at + 11, NULL, 10) : 0;
    return dim ? dim : 16; /* a model without attention has none, and nothing to quantize */
}

/* Reads the size of a model's heads. */
static uint32_t head_dim_in(const char *model)
{
    char path[300], *says = NULL;
    kvik_model *m = NULL;
    snprintf(path, sizeof path, GOLDEN_MODELS "/%s", model);
    if (kvik_model_open(path, &m) < 0 || kvik_model_describe(m, &says) < 0)
        test_stop("%s: %s", path, kvik_last_error());
    uint32_t dim = head_dim_of(says);
    kvik_free(says);
    kvik_model_close(m);
    return dim;
}

/* Lists which codec stores the heads of which policy. */
static void list_fits(void)
{
    struct codec_variant v;
    n_codecs = codec_variants();
    for (uint32_t c = 0; c < n_codecs; c++) {
        for (uint32_t p = 0; p < n_policies; p++)
            if (codec_variant(c, policies[p].head_dim, &v)) {
                fit[c][p] = ++n_fit[c];
                place[c][p] = ++n_places[p];
            }
        if (n_fit[c]) continue;
        printf("FAIL no golden model has heads that %s can store\n", v.name);
        n_failed++;
    }
}

/* Lists all forms of every golden model, or of those without an encoder two: the model's own form, and one of the
 * others in turn. */
static void list_policies(bool all)
{
    static const char *name[GOLDEN_MOST];
    uint32_t n = golden_models(name), count = sizeof forms / sizeof *forms, m = 0;
    uint32_t deaf = n;
    n += golden_list(name + n, true);
    for (uint32_t i = 0; i < n; i++) {
        size_t len = strlen(name[i]);
        if (len > 5 && strcmp(name[i] + len - 5, ".gguf") == 0) continue;
        uint32_t dim = head_dim_in(name[i]);
        for (uint32_t f = 0; f < count; f++) {
            if (!all && i < deaf && f != 0 && f != 1 + m % (count - 1)) continue;
            if (n_policies == POLICIES_MOST) test_stop("more than %d policies", POLICIES_MOST);
            policies[n_policies++] = (struct policy){.model = name[i],
                                                     .implementation = forms[f].implementation,
                                                     .config = forms[f].config,
                                                     .form = &forms[f],
                                                     .head_dim = dim};
        }
        m++;
    }
}

/* Counts the cells that the axes demand, in one loop over all products, and checks that they ran, that every policy
 * and every architecture did, and that every pair of values of two axes that fit has a cell of the quick run. */
static void check_axes(bool all)
{
    const uint32_t size[4] = {n_policies, n_codecs, TIERS, OPS};
    static bool met[4][4][POLICIES_MOST][POLICIES_MOST];
    int missed = 0, demanded = 0;
    for (uint32_t i = 0; i < n_policies * n_codecs * TIERS * OPS; i++) {
        uint32_t v[4] = {i % n_policies, i / n_policies % n_codecs,
                         i / n_policies / n_codecs % TIERS, i / n_policies / n_codecs / TIERS};
        demanded += chosen(all, v[0], v[1], v[2], v[3]);
        for (uint32_t a = 0; a < 4 && paired(v[0], v[1], v[2], v[3]); a++)
            for (uint32_t b = 0; b < a; b++)
                met[a][b][v[a]][v[b]] = true;
    }
    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t b = 0; b < a; b++)
            for (uint32_t i = 0; i < size[a] * size[b]; i++)
                missed += !met[a][b][i / size[b]][i % size[b]] &&
                          !(a == 1 && b == 0 && !fit[i / size[b]][i % size[b]]);
    if (missed) printf("FAIL %d pairs of two axes have no cell\n", missed);
    if (n_cells != demanded) printf("FAIL %d cells ran, of %d\n", n_cells, demanded);
    n_failed += missed + (n_cells != demanded);
    for (uint32_t p = 0; p < n_policies && test_share() == 1; p++)
        if (!policies[p].n_cells) n_failed++, printf("FAIL no cell of %s\n", policies[p].model);
    const char *arch = golden_missed();
    if (arch) n_failed++, printf("FAIL no golden model of architecture %s ran\n", arch);
}

/* Prints the numbers of the axes and of the products that do not fit. */
static void print_axes(void)
{
    uint32_t misfits = 0;
    for (uint32_t c = 0; c < n_codecs; c++)
        misfits += n_policies - n_fit[c];
    printf("%u policies, %u codecs, %u pairs of them do not fit, %d tiers, %d operations\n",
           n_policies, n_codecs, misfits, (int)TIERS, (int)OPS);
}

int main(int argc, char **argv)
{
    bool all = getenv("KVIK_TEST_LONG") != NULL;
    for (int i = 1; i < argc; i++) {
        all |= strcmp(argv[i], "all") == 0;
        verbose |= strcmp(argv[i], "-v") == 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    list_policies(all);
    list_fits();
    for (uint32_t i = 0; i < n_policies; i++) {
        const struct policy *p = &policies[i];
        struct cell c = {0};
        char path[300];
        snprintf(path, sizeof path, "tests/golden/models/%s", p->model);
        if (kvik_model_open(path, &c.model) < 0) {
            printf("FAIL %s: %s\n", p->model, kvik_last_error());
            n_failed++;
            continue;
        }
        c.vocab = kvik_model_vocab(c.model);
        /* Prompts of full length everywhere would take minutes in the gate, and an hour with all cells. */
        bool brief = kvik_model_context(c.model) < 256 || getenv("KVIK_TEST_SHORT") ||
                     (all ? p->form != forms && i % 4 : i % 8);
        c.n = kvik_model_context(c.model) < 128 ? shortest : brief ? shorter : longer;
        c.most = c.n.prompt + c.n.a + c.n.b + DECODE + 16;
        for (uint32_t j = 0, x = 7; j < MOST; j++) {
            x = x * 1664525u + 1013904223u;
            c.ids[j] = (int32_t)(4 + (x >> 8) % (c.vocab - 4));
        }
        c.encoder.size = sizeof c.encoder;
        c.hears = kvik_model_encoder(c.model, &c.encoder) > 0;
        if ((size_t)c.encoder.bins * c.encoder.rows * c.encoder.stride > FEATURES) return 1;
        for (uint32_t j = 0, x = 5; j < FEATURES; j++) {
            x = x * 1664525u + 1013904223u;
            features[0][j] = (float)(x >> 8) / (1 << 23) - 1;
            features[1][FEATURES - 1 - j] = features[0][j];
        }
        char *says = NULL;
        if (kvik_model_describe(c.model, &says) < 0) return 1;
        c.says = says;
        for (uint32_t k = 0; k < n_codecs; k++)
            if ((i + k) % test_share() == 0 && fit[k][i]) run_pair(&c, i, k, all);
        golden_ran(c.model);
        kvik_free(says);
        kvik_model_close(c.model);
    }
    check_axes(all);
    print_axes();
    printf("%d of them streamed, %d found a prefix\n", n_streamed, n_found);
    printf("cells %d pass %d refused %d skip 0\n", n_cells, n_pass, n_refused);
    printf("%d passed, %d failed, 0 skipped\n", n_pass + n_refused, n_failed);
    return n_failed || !n_pass || (test_share() == 1 && (!n_found || !n_streamed));
}
