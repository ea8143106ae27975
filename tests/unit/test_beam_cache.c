/* test_beam_cache.c - beam search over the cache. Tests: equal to the literal search over logits
 * computed without a cache; every beam's logits bit for bit; memory grows by tails only; failures
 * change nothing; no allocation per step; stop strings; several answers to a prompt. */
#include "test_beam_cache.h"
#include "base/buf.h"
#include "generate/driver.h"
#include "test_beam_plain.h"
#include "toy_tokenizer.h"

#define TINY "tests/golden/models/llama-gqa-l3"

static kvik_model *tiny;

/* --- against the literal search */
struct world {
    kvik_cache *c;
    const kvik_generation *g;
    const kvik_prompt *prompt;
    const char *stop; /* NULL: none; two letters, as tokens are */
};

/* Scores a text without a cache: computes the whole text in a fresh sequence, then applies the
 * penalty, written out. */
static void score(void *ctx, uint32_t item, const int32_t *token, uint32_t n, float *out)
{
    const struct world *w = ctx;
    const kvik_prompt *p = &w->prompt[item];
    uint32_t vocab = kvik_model_vocab(w->c->model), len = (uint32_t)p->n + n;
    int32_t text[64];
    kvik_span span = {.size = sizeof span, .ids = text, .n = len};
    memcpy(text, p->ids, p->n * sizeof *text);
    memcpy(text + p->n, token, n * sizeof *text);
    assert_int_equal(kvik_cache_new(w->c, &span.seq), 0);
    assert_int_equal(kvik_forward(w->c, &span, 1, false, out), 0);
    assert_int_equal(kvik_cache_drop(w->c, span.seq), 0);
    beam_log_softmax(out, vocab);
    for (uint32_t i = 0; i < len; i++) {
        bool before = false;
        for (uint32_t k = 0; k < i; k++)
            before |= text[k] == text[i];
        /* Log-probabilities are below 0. */
        if (!before) out[text[i]] *= (float)w->g->repetition_penalty;
    }
    for (uint32_t i = 0; n < w->g->min_new_tokens && i < w->g->n_eos; i++)
        out[w->g->eos_token_id[i]] = -INFINITY;
}

static char letter(int32_t token, int which)
{
    return (char)('a' + (which ? token / 20 : token % 20));
}

static bool ends(void *ctx, uint32_t item, const int32_t *token, uint32_t n)
{
    const struct world *w = ctx;
    const kvik_prompt *p = &w->prompt[item];
    int32_t last = token[n - 1], before = n > 1 ? token[n - 2] : p->ids[p->n - 1];
    if (w->stop && ((letter(before, 1) == w->stop[0] && letter(last, 0) == w->stop[1]) ||
                    (letter(last, 0) == w->stop[0] && letter(last, 1) == w->stop[1])))
        return true;
    for (uint32_t i = 0; i < w->g->n_eos; i++)
        if (token[n - 1] == w->g->eos_token_id[i]) return true;
    return n >= w->g->max_new_tokens;
}

static const struct {
    const char *json;
    uint32_t prompts;
} searches[] = {
    {"{\"num_beams\": 3, \"num_return_sequences\": 3, \"max_new_tokens\": 12, \"repetition_penalty\": 1.6, "
     "\"eos_token_id\": [12, 60, 100, 200]}",
     2},
    {"{\"num_beams\": 5, \"num_return_sequences\": 2, \"max_new_tokens\": 10, \"repetition_penalty\": 1.2, "
     "\"min_new_tokens\": 4, \"length_penalty\": 2.0, \"early_stopping\": \"never\", "
     "\"eos_token_id\": [3, 14, 41, 250]}",
     1},
    {"{\"num_beams\": 2, \"num_return_sequences\": 2, \"max_new_tokens\": 14, \"early_stopping\": true, "
     "\"eos_token_id\": [1, 22, 73, 85]}",
     3},
};

static void like_the_literal_search(void **state)
{
    (void)state;
    static struct plain plain[3];
    kvik_cache *c = cache_of(tiny, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                       .max_sequences = 8,
                                                       .max_cache_len = 64});
    kvik_prompt p[] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = 9},
                       {.size = sizeof(kvik_prompt), .ids = ids + 4, .n = 9},
                       {.size = sizeof(kvik_prompt), .ids = ids + 7, .n = 9}};
    for (size_t i = 0; i < countof(searches); i++) {
        kvik_generation g = config(tiny, searches[i].json);
        uint32_t n = searches[i].prompts, rows = g.num_return_sequences;
        struct world w = {.c = c, .g = &g, .prompt = p};
        struct plain_rules rules = {.r = {.beams = g.num_beams,
                                          .vocab = kvik_model_vocab(tiny),
                                          .n_eos = g.n_eos,
                                          .limit = g.max_new_tokens,
                                          .length_penalty = g.length_penalty,
                                          .early = g.early_stopping},
                                    .score = score,
                                    .ends = ends,
                                    .ctx = &w};
        uint32_t steps = plain_search(&rules, plain, n);
        kvik_result *r = generate(c, searches[i].json, p, n);
        assert_int_equal(r->steps, steps);
        for (uint32_t k = 0; k < n * rows; k++) {
            const struct plain_line *want = &plain[k / rows].done[k % rows];
            assert_int_equal(r->row[k]->n - 9, want->n);
            assert_memory_equal(r->row[k]->ids + 9, want->token, want->n * sizeof *want->token);
            assert_true(r->row[k]->score == want->score);
            for (uint32_t t = 0; t < want->n; t++)
                assert_int_equal(r->row[k]->beam_indices[t],
                                 want->beam[t] + (int32_t)(k / rows * g.num_beams));
        }
        kvik_result_free(r);
        kvik_generation_done(&g);
    }
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c, &u);
    assert_int_equal(u.bytes, 0); /* the search left nothing behind */
    kvik_cache_close(c);
}

/* --- bits: the logits along each returned row are those of computing that row at once */
static void same_bits(const kvik_result *r, kvik_cache *c)
{
    uint32_t vocab = r->vocab;
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const kvik_row *row = r->row[i];
        size_t fresh = row->n - row->n_prompt;
        kvik_span span = {.size = sizeof span, .ids = row->ids, .n = (uint32_t)row->n - 1};
        float *all = malloc(span.n * vocab * sizeof *all);
        assert_int_equal(kvik_cache_new(c, &span.seq), 0);
        assert_int_equal(kvik_forward(c, &span, 1, true, all), 0);
        assert_int_equal(kvik_cache_drop(c, span.seq), 0);
        for (size_t t = 0; t < fresh; t++)
            assert_memory_equal(r->logits +
                                    (t * r->logit_rows + (size_t)row->beam_indices[t]) * vocab,
                                all + (row->n_prompt - 1 + t) * vocab, vocab * sizeof *all);
        free(all);
    }
}

enum { PROMPT = 1000, BEAMS = 40, NEW = 24, BLOCK = 16 };

/* 40 beams over `length` tokens, in one group, or in 40 groups that each return their beam. The
 * cache holds the prompt once, and per beam an open block and the new blocks. */
static void share(kvik_model *m, const char *compute, uint32_t length, uint32_t new_tokens,
                  uint32_t groups, bool bits)
{
    static int32_t prompt[PROMPT];
    char json[200];
    kvik_usage one = {.size = sizeof one}, all = {.size = sizeof all};
    uint32_t vocab = kvik_model_vocab(m);
    for (uint32_t i = 0, x = 1; i < PROMPT; i++) {
        x = x * 1664525u + 1013904223u;
        prompt[i] = (int32_t)((x >> 8) % vocab);
    }
    kvik_prompt p = {.size = sizeof p, .ids = prompt, .n = length};
    kvik_cache_config config = {.size = sizeof config,
                                .max_sequences = BEAMS,
                                .max_cache_len = length + NEW,
                                .compute = compute};
    snprintf(json, sizeof json, "{\"max_new_tokens\": %u, \"eos_token_id\": []}", new_tokens);
    kvik_cache *c = cache_of(m, config);
    kvik_result *r = generate(c, json, &p, 1);
    kvik_cache_usage(c, &one);
    kvik_result_free(r);
    kvik_cache_close(c);
    snprintf(json, sizeof json,
             "{\"max_new_tokens\": %u, \"eos_token_id\": [], \"num_beams\": %u, "
             "\"num_beam_groups\": %u, \"diversity_penalty\": %d, "
             "\"num_return_sequences\": %u, \"output_logits\": %s}",
             new_tokens, BEAMS, groups, groups > 1,
             groups > 1 ? BEAMS
             : bits     ? 5
                        : 1,
             bits ? "true" : "false");
    c = cache_of(m, config);
    r = generate(c, json, &p, 1);
    kvik_cache_usage(c, &all);
    uint64_t block = one.peak_bytes / ((length + new_tokens - 1 + BLOCK - 1) / BLOCK);
    uint64_t tail = BEAMS * ((length % BLOCK + new_tokens - 1 + BLOCK - 1) / BLOCK) * block;
    printf(
        "one beam %llu bytes, %u beams in %u groups %llu: %.2f of one, bound 1.3 and tails of %llu; rows "
        "copied %llu\n",
        (unsigned long long)one.peak_bytes, BEAMS, groups, (unsigned long long)all.peak_bytes,
        (double)all.peak_bytes / (double)one.peak_bytes, (unsigned long long)tail,
        (unsigned long long)all.rows_copied);
    assert_true((double)all.peak_bytes <= 1.3 * (double)one.peak_bytes + (double)tail);
    /* The blocks that the prompt fills are held once. */
    assert_true(all.peak_bytes <= length / BLOCK * block + tail);
    /* Only rows of open blocks are copied: at most the filled rows, by all beams but one, in each
     * step. */
    uint64_t copies = 0;
    for (uint32_t t = 0; t + 1 < new_tokens; t++)
        copies += (BEAMS - 1) * ((length + t) % BLOCK);
    assert_true(all.rows_copied <= copies);
    if (groups == BEAMS) /* no beam is continued twice */
        assert_int_equal(all.rows_copied, (BEAMS - 1) * (length % BLOCK));
    uint64_t fed = r->prompt_tokens;
    for (uint32_t i = 0; i < r->n_rows; i++)
        fed -= r->row[i]->reused;
    assert_int_equal(fed, length);
    assert_int_equal(r->computed_tokens, length + (r->steps - 1) * BEAMS);
    if (bits) same_bits(r, c);
    kvik_result_free(r);
    kvik_cache_usage(c, &all);
    assert_int_equal(all.bytes, 0);
    kvik_cache_close(c);
}

static void shared_blocks(void **state)
{
    (void)state;
    kvik_model *m;
    assert_int_equal(kvik_model_open(BEAM_LONG, &m), 0);
    share(m, "exact", PROMPT, NEW, 1, true);
    share(m, "exact", PROMPT, NEW, BEAMS, false);
    kvik_model_close(m);
}

static void shared_blocks_smollm2(void **state)
{
    (void)state;
    kvik_model *m;
    const char *path = getenv("KVIK_TEST_SHORT") ? NULL : test_model();
    if (!path) skip();
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    share(m, "fast", getenv("KVIK_TEST_LONG") ? PROMPT : 280, 10, 1, true);
    kvik_model_close(m);
}

/* --- a sequence that the caller owns */
static void continued(void **state)
{
    (void)state;
    static const char beams[] = "{\"num_beams\": 4, \"max_new_tokens\": 10, \"eos_token_id\": []}",
                      more[] = "{\"max_new_tokens\": 5, \"eos_token_id\": []}";
    static const char *const preset[] = {"dynamic", "static"};
    for (int i = 0; i < 2; i++) {
        kvik_cache *c = cache_of(tiny, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                           .max_sequences = 5,
                                                           .max_cache_len = 64,
                                                           .cache_implementation = preset[i]});
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 9}, q;
        kvik_result *fresh = generate(c, beams, &p, 1);
        kvik_span span = {.size = sizeof span, .ids = ids, .n = 6};
        assert_int_equal(kvik_cache_new(c, &p.seq), 0);
        span.seq = p.seq;
        assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
        kvik_result *r = generate(c, beams, &p, 1);
        assert_int_equal(r->row[0]->reused, 6);
        assert_int_equal(r->row[0]->n, fresh->row[0]->n);
        assert_memory_equal(r->row[0]->ids, fresh->row[0]->ids,
                            r->row[0]->n * sizeof *r->row[0]->ids);
        assert_true(r->row[0]->score == fresh->row[0]->score);
        /* The sequence holds the best row, which came from a beam that was still running. */
        assert_int_equal(kvik_cache_length(c, p.seq), r->row[0]->n - 1);
        assert_memory_equal(kv_tokens(c->x->kv, p.seq), r->row[0]->ids,
                            (r->row[0]->n - 1) * sizeof *ids);
        q = (kvik_prompt){
            .size = sizeof(kvik_prompt), .ids = r->row[0]->ids, .n = r->row[0]->n, .seq = p.seq};
        kvik_result *a = generate(c, more, &q, 1);
        q.seq = 0;
        kvik_result *b = generate(c, more, &q, 1);
        assert_int_equal(a->row[0]->reused, q.n - 1);
        assert_memory_equal(a->row[0]->ids, b->row[0]->ids, b->row[0]->n * sizeof *ids);
        kvik_usage u = {.size = sizeof u};
        assert_int_equal(kvik_cache_drop(c, p.seq), 0);
        kvik_cache_usage(c, &u);
        assert_int_equal(u.bytes, 0);
        kvik_result_free(a);
        kvik_result_free(b);
        kvik_result_free(r);
        kvik_result_free(fresh);
        kvik_cache_close(c);
    }
}

/* --- failures in the middle of a search */
struct state { /* the state that must be the same afterwards */
    int64_t len;
    uint64_t bytes, tokens;
    int32_t token[256];
    float logits[512];
};

static void look(kvik_cache *c, kvik_seq s, struct state *out)
{
    kvik_usage u = {.size = sizeof u};
    kvik_seq f;
    memset(out, 0, sizeof *out);
    out->len = kvik_cache_length(c, s);
    memcpy(out->token, kv_tokens(c->x->kv, s), (size_t)out->len * sizeof *out->token);
    kvik_cache_usage(c, &u);
    out->bytes = u.bytes;
    out->tokens = u.tokens;
    assert_int_equal(kvik_cache_fork(c, s, &f), 0);
    kvik_span span = {.size = sizeof span, .seq = f, .ids = ids, .n = 1};
    assert_int_equal(kvik_forward(c, &span, 1, false, out->logits), 0);
    assert_int_equal(kvik_cache_drop(c, f), 0);
    assert_true(kv_check(c->x->kv));
}

struct hook {
    uint32_t calls, stop_at;
    uint64_t allocations[64];
    const kvik_cache *cache; /* NULL: do not look at its bytes */
    uint64_t most;           /* bytes of its rows and tables */
};

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct hook *h = ctx;
    assert_true(done <= total);
    if (h->calls < countof(h->allocations)) h->allocations[h->calls] = mem_calls();
    kvik_usage u = {.size = sizeof u};
    if (h->cache) assert_int_equal(kvik_cache_usage(h->cache, &u), 0);
    h->most = MAX(h->most, u.bytes + u.metadata);
    return h->calls++ != h->stop_at;
}

static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    (void)ctx;
    (void)row;
    (void)id;
    (void)text;
    return true;
}

static const char plan[] = "{\"num_beams\": 4, \"max_new_tokens\": 20, \"eos_token_id\": []}";

/* Two sequences of the caller, one of 170 tokens and one empty. The search fails by a budget that
 * is one byte short, or is cancelled. */
static const struct {
    const char *preset;
    bool tight;       /* the budget is one byte less than a whole search took */
    uint32_t stop_at; /* the call of on_progress that cancels the search */
    int code;
} rounds[] = {{"dynamic", false, UINT32_MAX, 0},
              {"dynamic", true, UINT32_MAX, KVIK_FULL},
              {"dynamic", false, 7, KVIK_CANCELLED},
              {"dynamic", false, 0, KVIK_CANCELLED},
              {"static", false, 7, KVIK_CANCELLED}};

static void unchanged(void **state)
{
    (void)state;
    static struct state before, after;
    kvik_generation g = config(tiny, plan);
    kvik_result *r = NULL;
    /* A long text, because a budget must hold at least one block for each possible sequence. */
    int32_t text[180];
    kvik_span fed = {.size = sizeof fed, .ids = text, .n = 170};
    uint64_t took = 0;
    for (size_t i = 0; i < countof(text); i++)
        text[i] = ids[i * i % 11];
    for (size_t i = 0; i < countof(rounds); i++) {
        struct hook h = {.stop_at = rounds[i].stop_at};
        kvik_hooks hooks = {.size = sizeof hooks, .on_progress = on_progress, .ctx = &h};
        kvik_cache_config cc = {.size = sizeof cc,
                                .max_sequences = 9,
                                .max_cache_len = 256,
                                .cache_implementation = rounds[i].preset};
        if (rounds[i].tight) cc.cache_memory = budget_for(tiny, cc, took - 1, 0, 0);
        kvik_cache *c = cache_of(tiny, cc);
        uint64_t fixed = budget_metadata(c);
        h.cache = c;
        kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = text, .n = 172},
                            {.size = sizeof(kvik_prompt), .ids = ids, .n = 9}};
        kvik_usage u = {.size = sizeof u};
        assert_int_equal(kvik_cache_new(c, &p[0].seq), 0);
        assert_int_equal(kvik_cache_new(c, &p[1].seq), 0);
        fed.seq = p[0].seq;
        assert_int_equal(kvik_forward(c, &fed, 1, false, NULL), 0);
        look(c, p[0].seq, &before);
        int e = kvik_generate(c, &g, p, 2, &hooks, &r);
        assert_int_equal(e, rounds[i].code);
        kvik_cache_usage(c, &u);
        if (e == 0) {
            assert_int_equal(h.calls, 20); /* one call per prompt and one between steps */
            took = h.most - fixed;
            kvik_result_free(r);
        } else {
            assert_int_equal(kvik_cache_length(c, p[1].seq), 0);
            look(c, p[0].seq, &after);
            assert_memory_equal(&before, &after, sizeof before);
        }
        if (e == KVIK_FULL) assert_true(h.calls > 5); /* well into the search */
        kvik_cache_close(c);
    }
    kvik_generation_done(&g);
}

/* Lets every allocation of a search fail in turn. */
static void no_memory(void **state)
{
    (void)state;
    static struct state before, after;
    kvik_generation g =
        config(tiny, "{\"num_beams\": 3, \"max_new_tokens\": 3, \"num_return_sequences\": 2, "
                     "\"output_logits\": true, \"eos_token_id\": []}");
    kvik_cache *c = cache_of(tiny, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                       .max_sequences = 6,
                                                       .max_cache_len = 64});
    kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = 9},
                        {.size = sizeof(kvik_prompt), .ids = ids + 5, .n = 4}};
    kvik_span fed = {.size = sizeof fed, .ids = ids + 3, .n = 5};
    kvik_result *r;
    int64_t failures = 0;
    assert_int_equal(kvik_cache_new(c, &p[0].seq), 0);
    fed.seq = p[0].seq;
    assert_int_equal(kvik_forward(c, &fed, 1, false, NULL), 0);
    look(c, p[0].seq, &before);
    for (;; failures++) {
        mem_fail_at(failures, false);
        int e = kvik_generate(c, &g, p, 2, NULL, &r);
        mem_fail_at(-1, false);
        if (e == 0) break;
        assert_int_equal(e, KVIK_NOMEM);
        look(c, p[0].seq, &after);
        assert_memory_equal(&before, &after, sizeof before);
    }
    assert_true(failures > 20);
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static void no_allocation_per_step(void **state)
{
    (void)state;
    kvik_cache *c = cache_of(tiny, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                       .max_sequences = 8,
                                                       .max_cache_len = 64});
    kvik_generation g = config(tiny, plan);
    struct hook h = {.stop_at = UINT32_MAX};
    kvik_hooks hooks = {.size = sizeof hooks, .on_progress = on_progress, .ctx = &h};
    kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = 9},
                        {.size = sizeof(kvik_prompt), .ids = ids + 5, .n = 4}};
    kvik_result *r;
    assert_int_equal(kvik_generate(c, &g, p, 2, &hooks, &r), 0);
    assert_int_equal(h.calls, 20);
    for (uint32_t i = 1; i < h.calls; i++)
        assert_int_equal(h.allocations[i], h.allocations[0]);
    kvik_result_free(r);
    hooks.on_token = on_token;
    assert_int_equal(kvik_generate(c, &g, p, 2, &hooks, &r), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "num_beams=4"));
    kvik_generation_done(&g);
    g = config(tiny, "{\"num_beams\": 5}");
    assert_int_equal(kvik_generate(c, &g, p, 2, NULL, &r), KVIK_LIMIT);
    assert_non_null(strstr(kvik_last_error(), "2 prompts with 5 beams each need 10 sequences"));
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

/* --- stop strings: a tokenizer of two letters a token */
static void stop_strings(void **state)
{
    (void)state;
    struct tok *t = toy_pairs('a', 'a');
    kvik_cache *c = cache_of(tiny, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                       .max_sequences = 8,
                                                       .max_cache_len = 64});
    kvik_generation all = config(tiny, plan);
    kvik_prompt first = {.size = sizeof first, .ids = ids, .n = 9};
    kvik_result *r;
    assert_int_equal(
        gen_run(c->driver, &(struct gen_call){.tok = t, .g = &all, .prompt = &first, .n = 1}, &r),
        0);
    kvik_generation_done(&all);
    /* The stop string is the second letter of the best text's fifth token and the first letter of
     * its sixth. */
    assert_int_equal(strlen(r->row[0]->text), 40);
    char stop[3] = {r->row[0]->text[9], r->row[0]->text[10], 0}, json[200];
    kvik_result_free(r);
    uint32_t stopped = 0;
    static struct plain plain[2];
    for (int cached = 1; cached >= 0; cached--) {
        snprintf(json, sizeof json,
                 "{\"num_beams\": 4, \"num_return_sequences\": 4, \"max_new_tokens\": 20, "
                 "\"eos_token_id\": [], \"stop_strings\": \"%s\", \"use_cache\": %s}",
                 stop, cached ? "true" : "false");
        kvik_generation g = config(tiny, json);
        kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = 9},
                            {.size = sizeof(kvik_prompt), .ids = ids + 5, .n = 4}};
        struct world w = {.c = c, .g = &g, .prompt = p, .stop = stop};
        struct plain_rules rules = {
            .r = {.beams = 4, .vocab = 384, .limit = 20, .length_penalty = 1},
            .score = score,
            .ends = ends,
            .ctx = &w};
        plain_search(&rules, plain, 2);
        if (gen_run(c->driver, &(struct gen_call){.tok = t, .g = &g, .prompt = p, .n = 2}, &r) < 0)
            fail_msg("%s", err_last());
        for (uint32_t i = 0; i < r->n_rows; i++) {
            const kvik_row *row = r->row[i];
            const struct plain_line *want = &plain[i / 4].done[i % 4];
            assert_int_equal(row->n - row->n_prompt, want->n);
            assert_memory_equal(row->ids + row->n_prompt, want->token, want->n * sizeof *ids);
            assert_int_equal(row->finish == KVIK_FINISH_STOP, want->n < 20);
            assert_int_equal(strlen(row->text), 2 * want->n);
            stopped += row->finish == KVIK_FINISH_STOP;
        }
        kvik_result_free(r);
        kvik_generation_done(&g);
    }
    assert_true(stopped > 0);
    kvik_cache_close(c);
    tok_close(t);
}

/* Diverse beams end by stop strings at the same time, when every running beam has just met one. */
static void stop_strings_of_groups(void **state)
{
    (void)state;
    struct tok *t = toy_pairs('a', 'a');
    kvik_cache *c = cache_of(tiny, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                       .max_sequences = 8,
                                                       .max_cache_len = 64});
    uint32_t stopped = 0, met = 0;
    for (int last = 'c'; last <= 'j'; last++) {
        char json[300];
        int n = snprintf(json, sizeof json,
                         "{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 1, "
                         "\"num_return_sequences\": 4, \"max_new_tokens\": 20, "
                         "\"eos_token_id\": [], \"stop_strings\": [\"a\"");
        for (int k = 'b'; k <= last; k++)
            n += snprintf(json + n, sizeof json - (size_t)n, ", \"%c\"", k);
        snprintf(json + n, sizeof json - (size_t)n, "]}");
        kvik_generation g = config(tiny, json);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 9};
        kvik_result *r;
        if (gen_run(c->driver, &(struct gen_call){.tok = t, .g = &g, .prompt = &p, .n = 1}, &r) < 0)
            fail_msg("%s", err_last());
        for (uint32_t i = 0; i < r->n_rows; i++) {
            const kvik_row *row = r->row[i];
            int32_t token = row->ids[row->n - 1];
            bool ends_so = letter(token, 0) <= last || letter(token, 1) <= last;
            assert_int_equal(row->n, r->row[0]->n);
            assert_int_equal(row->finish, row->n == 29 ? KVIK_FINISH_LENGTH : KVIK_FINISH_STOP);
            if (row->finish == KVIK_FINISH_STOP) assert_true(ends_so);
            stopped += row->finish == KVIK_FINISH_STOP;
            met += ends_so;
        }
        kvik_result_free(r);
        kvik_generation_done(&g);
    }
    assert_true(stopped > 0 && met >= stopped);
    kvik_cache_close(c);
    tok_close(t);
}

/* --- several sampled answers to one prompt: the results of as many equal prompts, from one prefill */
static void samples(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *more;
    } way[] = {{"dynamic", ""}, {"static", ""}, {"dynamic", ", \"use_cache\": false"}};
    kvik_prompt six[6], two[2] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = 9},
                                  {.size = sizeof(kvik_prompt), .ids = ids + 5, .n = 4}};
    for (int i = 0; i < 6; i++)
        six[i] = two[i / 3];
    for (size_t k = 0; k < countof(way); k++) {
        char json[200];
        snprintf(
            json, sizeof json,
            "{\"do_sample\": true, \"seed\": 5, \"max_new_tokens\": 8, \"eos_token_id\": [14, 60, "
            "70, 80, 90, 300]%s",
            way[k].more);
        size_t len = strlen(json);
        kvik_cache *c = cache_of(tiny, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                           .max_sequences = 6,
                                                           .max_cache_len = 64,
                                                           .cache_implementation = way[k].preset});
        snprintf(json + len, sizeof json - len, "}");
        kvik_result *a = generate(c, json, six, 6);
        snprintf(json + len, sizeof json - len, ", \"num_return_sequences\": 3}");
        kvik_result *b = generate(c, json, two, 2);
        assert_int_equal(b->n_rows, 6);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(a->row[i]->n, b->row[i]->n);
            assert_memory_equal(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof *ids);
        }
        assert_true(a->row[0]->n != a->row[1]->n ||
                    memcmp(a->row[0]->ids, a->row[1]->ids, a->row[0]->n * sizeof *ids) != 0);
        if (!*way[k].more) assert_int_equal(a->computed_tokens - b->computed_tokens, 2 * (9 + 4));
        kvik_usage u = {.size = sizeof u};
        kvik_cache_usage(c, &u);
        assert_int_equal(u.bytes, 0);
        kvik_result_free(a);
        kvik_result_free(b);
        kvik_cache_close(c);
    }
}

int main(void)
{
    if (kvik_model_open(TINY, &tiny) < 0) {
        fprintf(stderr, "%s\n", kvik_last_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(like_the_literal_search),
                                       cmocka_unit_test(shared_blocks),
                                       cmocka_unit_test(shared_blocks_smollm2),
                                       cmocka_unit_test(continued),
                                       cmocka_unit_test(unchanged),
                                       cmocka_unit_test(no_memory),
                                       cmocka_unit_test(no_allocation_per_step),
                                       cmocka_unit_test(stop_strings),
                                       cmocka_unit_test(stop_strings_of_groups),
                                       cmocka_unit_test(samples)};
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    kvik_model_close(tiny);
    return e;
}
