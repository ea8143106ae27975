/* bench_text.c - the tokens that are measured.  Speed and memory do not depend on them, but the comparison of
 * logits does.  So they are a real text: a file, or text that the model samples with seed 0. */
#include "base/descriptor.h"
#include "cli/bench.h"

#include <string.h>

enum { TRIAL = 128, TRIAL_STEPS = 4 };

/* Feeds a few tokens.  Returns seconds per token of a prompt, or of decoding; below 0 after an error. */
static double pace(kvik_cache *c, kvik_seq s, uint32_t calls, uint32_t n, float *logits)
{
    int32_t ids[TRIAL] = {0};
    double begun = now_seconds();
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    for (uint32_t i = 0; i < calls; i++)
        if (kvik_forward(c, &span, 1, false, logits) < 0) return -1;
    return (now_seconds() - begun) / ((double)calls * n);
}

double bench_estimate(const struct bench *b)
{
    const struct bench_strategy dynamic = {.name = "dynamic", .implementation = "dynamic"};
    kvik_cache *c = NULL;
    kvik_seq s;
    double prompt = -1, step = -1;
    float *logits = mem_array(kvik_model_vocab(b->engine->model), sizeof *logits);
    if (logits && b->n_ids > TRIAL + TRIAL_STEPS + 1 && bench_open(b, &dynamic, &c, &s) >= 0) {
        (void)pace(c, s, 1, 1, logits); /* reads the weights into memory */
        prompt = pace(c, s, 1, TRIAL, logits);
        step = pace(c, s, TRIAL_STEPS, 1, logits);
    }
    kvik_cache_close(c);
    mem_free(logits);
    if (prompt < 0 || step < 0) return 0;
    double longest = bench_longest(b), quality = BENCH_QUALITY;
    double turns = b->n_rows > 1 ? 2 : 1; /* the dynamic cache takes turns */
    double run = longest * prompt + turns * b->n_depths * b->steps * step;
    double once = longest * prompt + quality * step, text = b->text ? 0 : b->n_ids * step;
    enum {
        DEEPER = 125
        /* percent; more than 100, because deep steps and most strategies are slower than the trial */
    };
    return (text + b->n_rows * (b->runs * run + once)) * DEEPER / 100;
}

static int from_file(struct bench *b)
{
    const kvik_tokenizer *t = kvik_model_tokenizer(b->engine->model);
    char *text;
    size_t n_bytes, n;
    int32_t *ids;
    if (!t) return say_failed("--text: %s has no tokenizer", b->machine.model);
    FILE *f = fd_stream(b->text);
    if (!f) return say_failed("--text: %s cannot be read", b->text);
    int e = read_all(f, b->text, &text, &n_bytes);
    fclose(f);
    if (e < 0) return say_error(e);
    e = kvik_tokenizer_encode(t, text, n_bytes, true, &ids, &n);
    mem_free(text);
    if (e < 0) return say_error(e);
    if (n < b->n_ids) {
        kvik_free(ids);
        return say_usage("--text: %s has %zu tokens; these --depths need %u", b->text, n, b->n_ids);
    }
    memcpy(b->ids, ids, b->n_ids * sizeof *ids);
    kvik_free(ids);
    return 0;
}

struct progress_watch {
    struct progress *p;
    uint64_t done, total;
};

static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct progress_watch *w = ctx;
    (void)row, (void)id, (void)text;
    progress_show(w->p, ++w->done, w->total);
    return !interrupt_seen();
}

static int from_model(struct bench *b, struct progress *p)
{
    const struct bench_strategy dynamic = {.name = "dynamic", .implementation = "dynamic"};
    const kvik_tokenizer *t = kvik_model_tokenizer(b->engine->model);
    const char *bos = t ? kvik_tokenizer_special(t, "bos_token") : NULL;
    int32_t first = bos ? kvik_tokenizer_find(t, bos) : 0;
    struct progress_watch watch = {p, 0, b->n_ids};
    kvik_hooks hooks = {.size = sizeof hooks, .on_token = on_token, .ctx = &watch};
    kvik_generation g;
    kvik_cache *c = NULL;
    kvik_seq s;
    kvik_result *r = NULL;
    struct engine free_engine =
        *b->engine; /* --cache-memory limits the measured caches, not this one */
    struct bench writer = *b;
    free_engine.common.cache_memory = 0;
    writer.engine = &free_engine;
    first = MAX(first, 0);
    int e = kvik_generation_init(&g, NULL);
    if (e < 0) return say_error(e);
    g.do_sample = true;
    g.top_k = 0;
    g.n_eos = 0;
    g.max_new_tokens = b->n_ids - 1;
    kvik_prompt prompt = {.size = sizeof prompt, .ids = &first, .n = 1};
    e = bench_open(&writer, &dynamic, &c, &s);
    if (e >= 0) e = kvik_cache_drop(c, s);
    if (e >= 0) e = kvik_generate(c, &g, &prompt, 1, &hooks, &r);
    if (e >= 0 && r->row[0]->n >= b->n_ids)
        memcpy(b->ids, r->row[0]->ids, b->n_ids * sizeof *b->ids);
    kvik_result_free(r);
    kvik_cache_close(c);
    kvik_generation_done(&g);
    return interrupt_seen() ? EXIT_INTERRUPTED : e < 0 ? say_error(e) : 0;
}

int bench_text(struct bench *b, struct progress *p)
{
    b->ids = mem_array(b->n_ids, sizeof *b->ids);
    if (!b->ids) return say_error(ERR_NOMEM);
    return b->text ? from_file(b) : from_model(b, p);
}
