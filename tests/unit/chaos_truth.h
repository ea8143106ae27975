/* chaos_truth.h - the model of truth of test_chaos: what the sequences of a cache under test must hold, and how they are compared
 * with a plain cache. */
#pragma once
#include "drawn_cache.h"
#include "generate/handle.h"
#include "hearing.h"
#include "kvik_compat.h"
#include "walk.h"

#include <stdarg.h>

enum { MOST = 420, SEQS = 6, BEAMS = 3 };

struct golden {
    const char *name;
    kvik_model *opened;
    /* The greatest number of positions, or 0; the length where longrope changes, or 0. */
    uint32_t context, original;
    bool dynamic; /* dynamic NTK: a row keeps the frequencies of its update */
    struct hearing hearing;
};
static struct golden models[GOLDEN_MOST];
static uint32_t n_models, n_deaf; /* those without an encoder are the first */

struct truth { /* one sequence: its tokens, and marks on the tokens that begin an update */
    kvik_seq s;
    uint32_t n;
    bool longer, lost; /* in longrope's long regime; contents no longer known */
    bool begin[MOST];
    int32_t ids[MOST];
};
struct world {
    uint32_t model, vocab, most, lanes, n, at; /* at: the step;  lanes: max_sequences */
    kvik_cache *cache, *plain;
    bool codec, cross_codec, reserves, failed;
    uint64_t budget;
    char text[2400];
    const char *what; /* the name of the operation that runs */
    float *got, *want;
    struct truth seq[SEQS], trial;
};

static int verbose;
static bool quiet; /* a shorter walk is tried */
static uint32_t n_probes, n_fed, n_refused, n_streamed, n_done[16];

__attribute__((format(printf, 2, 3))) static inline void wrong(struct world *w, const char *format,
                                                               ...)
{
    va_list a;
    if (w->failed) return;
    w->failed = true;
    if (quiet) return;
    printf("FAIL step %u %s: ", w->at, w->what);
    va_start(a, format);
    vprintf(format, a);
    va_end(a);
    printf("\n     %s\n", w->text);
}

/* ---- The model of truth ---- */

/* True if rows depend on the updates in which their tokens came. */
static inline bool by_turns(const struct world *w)
{
    return w->codec || models[w->model].dynamic;
}

static inline void truth_crop(const struct world *w, struct truth *t, uint32_t n)
{
    if (models[w->model].dynamic && n < t->n && !t->begin[n]) t->lost = true;
    t->n = n;
    if (!n) t->lost = false;
}

static inline void truth_feed(const struct world *w, struct truth *t, const int32_t *ids,
                              uint32_t n)
{
    uint32_t at = models[w->model].original, end = t->n + n;
    bool longer = at && end > at, again = at && t->n && longer != t->longer;
    if (at && w->codec && t->n && t->n <= at && t->longer && longer) t->lost = true;
    memcpy(t->ids + t->n, ids, n * sizeof *ids);
    memset(t->begin + t->n, 0, n);
    t->begin[t->n] = true;
    if (again) memset(t->begin + 1, 0, end - 1);
    t->longer = longer;
    t->n = end;
}

/* Computes the logits of the last token of a fresh sequence with these updates; with `all`, those
 * of every token of the last update. */
static inline int truth_logits(struct world *w, const struct truth *t, bool all, float *out)
{
    kvik_seq s;
    int e = hearing_new(&models[w->model].hearing, w->plain, &s);
    if (e < 0) return e;
    for (uint32_t i = 0, j; e >= 0 && i < t->n; i = j) {
        for (j = i + 1; j < t->n && !t->begin[j];)
            j++;
        kvik_span span = {.size = sizeof span, .seq = s, .ids = t->ids + i, .n = j - i};
        e = kvik_forward(w->plain, &span, 1, all && j == t->n, j == t->n ? out : NULL);
    }
    kvik_cache_drop(w->plain, s);
    return e;
}

/* Draws tokens that come after `before` others.  A decoder's text begins with its start token, which a generation would
 * add otherwise. */
static inline void draw_ids(const struct world *w, uint32_t before, int32_t *ids, uint32_t n)
{
    const struct hearing *h = &models[w->model].hearing;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)between(4, w->vocab - 1);
    if (!before && h->hears) ids[0] = h->encoder.decoder_start_token_id;
}

/* ---- What must hold after every operation ---- */

static inline void compare(struct world *w, const struct truth *t, const float *got,
                           const char *what)
{
    if (t->lost) return;
    if (truth_logits(w, t, false, w->want) < 0)
        wrong(w, "the plain cache: %s", kvik_last_error());
    else if (memcmp(got, w->want, w->vocab * sizeof *got) != 0)
        wrong(w, "%s: other logits after %u tokens, %g for %g", what, t->n, (double)got[4],
              (double)w->want[4]);
    n_probes++;
}

/* Forks the sequence, appends one token to the fork and compares the logits. */
static inline void probe(struct world *w, const struct truth *t)
{
    kvik_seq f;
    int32_t id;
    if (t->n >= w->most || t->lost) return;
    draw_ids(w, t->n, &id, 1);
    if (kvik_cache_fork(w->cache, t->s, &f) < 0) return;
    kvik_span span = {.size = sizeof span, .seq = f, .ids = &id, .n = 1};
    int e = kvik_forward(w->cache, &span, 1, false, w->got);
    kvik_cache_drop(w->cache, f);
    if (e == KVIK_FULL) return;
    if (e < 0) {
        wrong(w, "probe: %s", kvik_last_error());
        return;
    }
    w->trial = *t;
    truth_feed(w, &w->trial, &id, 1);
    compare(w, &w->trial, w->got, "probe");
}

static inline void check_all(struct world *w)
{
    kvik_usage u = {.size = sizeof u};
    uint64_t rows = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        int64_t len = kvik_cache_length(w->cache, w->seq[i].s);
        if (len != w->seq[i].n)
            wrong(w, "sequence %u has %lld tokens, not %u", i, (long long)len, w->seq[i].n);
        rows += w->seq[i].n;
    }
    kvik_cache_usage(w->cache, &u);
    if (w->budget && u.peak_bytes > w->budget)
        wrong(w, "peak %llu over %llu", (unsigned long long)u.peak_bytes,
              (unsigned long long)w->budget);
    if (u.bytes > u.peak_bytes || u.shared > u.live + u.states ||
        u.bytes != u.live + u.states + u.staging)
        wrong(w, "usage: bytes %llu peak %llu live %llu shared %llu", (unsigned long long)u.bytes,
              (unsigned long long)u.peak_bytes, (unsigned long long)u.live,
              (unsigned long long)u.shared);
    if (u.tokens != rows)
        wrong(w, "usage: %llu tokens, not %llu", (unsigned long long)u.tokens,
              (unsigned long long)rows);
    if (w->n && dice(3) == 0) probe(w, &w->seq[dice(w->n)]);
    uint64_t state = walk_state; /* -vvv: probe all sequences, to find the first wrong one */
    for (uint32_t i = 0; verbose > 2 && i < w->n; i++)
        probe(w, &w->seq[i]);
    walk_state = state;
}

/* A call was refused: checks that the reason is memory, or the reason that is due. */
static inline void refused(struct world *w, int e, int due)
{
    n_refused++;
    if (verbose > 1) printf("    refused: %s\n", kvik_last_error());
    if (due ? e != due : e != KVIK_FULL) wrong(w, "%s: %s", kvik_error_name(e), kvik_last_error());
    if (w->n) probe(w, &w->seq[dice(w->n)]);
}

/* ---- Configurations ---- */

/* Opens the cache with 1 to 2.5 times the least memory that opens and computes 50 tokens. The search
 * for the least memory grows by quarters. */
static inline int open_small(struct world *w, struct drawn_cache *d)
{
    int e = KVIK_FULL;
    uint64_t memory = between(4, 12) << 10;
    static int32_t ids[50];
    draw_ids(w, 0, ids, 50);
    for (; memory < 1u << 27; memory += memory / 4) {
        d->config.cache_memory = memory;
        e = kvik_cache_open(models[w->model].opened, &d->config, &w->cache);
        if (e == KVIK_UNSUPPORTED || e == KVIK_ARG) return e;
        if (e < 0) continue;
        kvik_seq s;
        kvik_span span = {.size = sizeof span, .seq = 0, .ids = ids, .n = 50};
        e = hearing_new(&models[w->model].hearing, w->cache, &s);
        span.seq = s;
        if (e >= 0) e = kvik_forward(w->cache, &span, 1, false, NULL);
        kvik_cache_close(w->cache);
        if (e >= 0) break;
    }
    if (e < 0) return e;
    d->config.cache_memory = memory * between(8, 20) / 8;
    return kvik_cache_open(models[w->model].opened, &d->config, &w->cache);
}

static inline int world_open(struct world *w)
{
    struct drawn_cache d;
    const struct golden *g = &models[w->model];
    const struct drawn_for of = {g->opened, g->hearing.hears, g->context, MOST, SEQS};
    int e = KVIK_ARG;
    for (int i = 0; e < 0 && i < 200; i++) {
        draw_cache(&of, &d);
        kvik_cache_config plain = {.size = sizeof plain,
                                   .cache_config = d.plain,
                                   .cross_cache_config = *d.plain_cross ? d.plain_cross : NULL,
                                   .max_sequences = 2 * BEAMS,
                                   .step_tokens = 128,
                                   .threads = 1,
                                   .compute = "exact"};
        e = kvik_cache_open(models[w->model].opened, &plain, &w->plain);
        if (e < 0) continue;
        bool small = d.config.on_full || dice(2);
        e = small ? open_small(w, &d)
                  : kvik_cache_open(models[w->model].opened, &d.config, &w->cache);
        if (e < 0) kvik_cache_close(w->plain);
    }
    w->most = d.most;
    w->codec = d.codec;
    w->cross_codec = d.cross_codec;
    w->reserves = d.reserves;
    w->budget = d.config.cache_memory;
    w->lanes = d.config.max_sequences;
    snprintf(w->text, sizeof w->text,
             "%s %s %s cross %s on_full %s memory %llu sequences %u step %u threads %u",
             models[w->model].name, d.config.cache_implementation, d.keys, d.cross,
             d.config.on_full ? d.config.on_full : "error",
             (unsigned long long)d.config.cache_memory, d.config.max_sequences,
             d.config.step_tokens, d.config.threads);
    return e;
}

/* Opens every golden model and notes the lengths at which its positions end or change. */
static inline bool open_models(void)
{
    const char *name[GOLDEN_MOST];
    n_models = golden_all(name);
    while (n_deaf + 1 < n_models && !golden_hears(name[n_deaf]))
        n_deaf++;
    for (uint32_t i = 0; i < n_models; i++) {
        struct golden *g = &models[i];
        char path[200];
        g->name = name[i];
        snprintf(path, sizeof path, GOLDEN_MODELS "/%s", g->name);
        if (kvik_model_open(path, &g->opened) < 0) {
            printf("FAIL %s: %s\n", path, kvik_last_error());
            return false;
        }
        hearing_open(&g->hearing, g->opened);
        golden_ran(g->opened);
        const struct model *m = g->opened->m;
        if (m->learned_positions) g->context = m->context;
        g->dynamic = m->rope[0].type == ROPE_DYNAMIC;
        if (m->rope[0].type == ROPE_LONG) g->original = m->rope[0].original;
    }
    const char *arch = golden_missed();
    if (arch) printf("FAIL no golden model of architecture %s\n", arch);
    return !arch;
}
