/* test_speculate_ends.c - speculative decoding together with every other option of a call:
 * sampling, processors, ends, callbacks, batches, memory that is just enough, failing allocations;
 * and which combinations are refused or ignored. */
#include "budgets.h"
#include "generate/driver.h"
#include "toy_tokenizer.h"

static kvik_model *m, *other, *small;
static struct tok *letters; /* a tokenizer of two letters a token */
static const int32_t ids[] = {85, 14, 62,  12, 145, 198, 305, 12, 354, 269, 383, 40,  41,
                              42, 43, 44,  45, 46,  47,  48,  85, 14,  62,  12,  145, 40,
                              41, 42, 305, 12, 85,  14,  62,  7,  9,   40,  41};

static kvik_cache *cache_of(kvik_model *of, kvik_cache_config c)
{
    kvik_cache *out;
    c.size = sizeof c;
    c.threads = 1;
    if (kvik_cache_open(of, &c, &out) < 0) fail_msg("%s", kvik_last_error());
    return out;
}

/* --- the callbacks of the caller */
struct caller {
    uint64_t heard, asked; /* digests of on_token, and of the calls of processor and criteria */
    uint32_t tokens, processed;            /* calls so far */
    uint32_t cancel_at, end_at, refuse_at; /* the call that cancels, ends or refuses; 0: none */
    char notice[200];
    uint64_t at[80]; /* number of allocations at each token */
};

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct caller *c = ctx;
    c->heard = mix(mix(mix(c->heard, &row, sizeof row), &id, sizeof id), text, strlen(text));
    if (c->tokens < countof(c->at)) c->at[c->tokens] = mem_calls();
    return ++c->tokens != c->cancel_at;
}

static bool process(void *ctx, uint32_t row, const int32_t *text, size_t n, float *scores,
                    uint32_t vocab)
{
    struct caller *c = ctx;
    c->asked = mix(mix(mix(c->asked, &row, sizeof row), text, n * sizeof *text), scores,
                   vocab * sizeof *scores);
    scores[(size_t)text[n - 1] * 7 % vocab] += 1.5f;
    return ++c->processed != c->refuse_at;
}

static bool criteria(void *ctx, uint32_t row, const int32_t *text, size_t n)
{
    struct caller *c = ctx;
    c->asked = mix(mix(c->asked, &row, sizeof row), text, n * sizeof *text);
    return c->end_at && text[n - 1] % c->end_at == 0;
}

static void on_notice(void *ctx, const char *text)
{
    struct caller *c = ctx;
    snprintf(c->notice, sizeof c->notice, "%s", text);
}

/* --- one call, with and without draft tokens */
struct call {
    const char *json;
    kvik_cache_config cache;
    uint32_t prompts;
    bool hooks, text;                      /* with processor and criteria; with the tokenizer */
    uint32_t cancel_at, end_at, refuse_at; /* for struct caller */
};
enum who { PLAIN, LOOKUP, SAME, OTHER, WHO };
struct outcome {
    kvik_result *r; /* NULL: it failed with `code` */
    struct caller caller;
    int code;
};

static kvik_generation config(const char *json, enum who who)
{
    kvik_generation g;
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    if (kvik_generation_set(&g, json) < 0) fail_msg("%s", kvik_last_error());
    if (who == LOOKUP) g.prompt_lookup_num_tokens = 4;
    if (who == SAME) g.assistant_confidence_threshold = 0;
    return g;
}

static struct outcome run(const struct call *k, enum who who)
{
    struct outcome o = {
        .caller = {.cancel_at = k->cancel_at, .end_at = k->end_at, .refuse_at = k->refuse_at}};
    kvik_cache_config cc = k->cache;
    if (!cc.max_sequences) cc.max_sequences = 8;
    if (!cc.max_cache_len) cc.max_cache_len = 128;
    kvik_cache *c = cache_of(m, cc), *a = NULL;
    if (who >= SAME)
        a = cache_of(who == SAME ? m : other, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                                  .max_sequences = 8,
                                                                  .max_cache_len = 128});
    kvik_generation g = config(k->json, who);
    kvik_hooks h = {
        .size = sizeof h, .on_token = on_token, .on_notice = on_notice, .ctx = &o.caller};
    if (k->hooks) h.logits_processor = process;
    if (k->hooks || k->end_at) h.stopping_criteria = criteria;
    kvik_prompt p[3] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = 37},
                        {.size = sizeof(kvik_prompt), .ids = ids + 3, .n = 20},
                        {.size = sizeof(kvik_prompt), .ids = ids, .n = 1}};
    struct gen_assist assist = {.assistant = a ? &a->assistant : NULL};
    if (a) a->assistant.x = a->x;
    uint32_t n = k->prompts ? k->prompts : 1;
    o.code = gen_run(c->driver,
                     &(struct gen_call){.tok = k->text ? letters : NULL,
                                        .g = &g,
                                        .prompt = p,
                                        .n = n,
                                        .hooks = &h,
                                        .assist = a ? &assist : NULL},
                     &o.r);
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c, &u);
    assert_int_equal(u.tokens, 0);
    assert_true(kv_check(c->x->kv));
    if (a) kvik_cache_usage(a, &u);
    assert_int_equal(u.tokens, 0);
    kvik_generation_done(&g);
    kvik_cache_close(a);
    kvik_cache_close(c);
    return o;
}

static void same(const struct call *k, const struct outcome *a, const struct outcome *b,
                 enum who who)
{
    const kvik_result *x = a->r, *y = b->r;
    if (a->code != b->code) fail_msg("%s, %d: another error", k->json, who);
    bool one = !k->prompts || k->prompts == 1; /* otherwise rows take turns in another order */
    if (one && (a->caller.heard != b->caller.heard || a->caller.asked != b->caller.asked))
        fail_msg("%s, %d: other calls", k->json, who);
    if (!x || !y) return;
    assert_int_equal(x->n_rows, y->n_rows);
    for (uint32_t i = 0; i < x->n_rows; i++) {
        const kvik_row *v = x->row[i], *w = y->row[i];
        if (v->n != w->n || memcmp(v->ids, w->ids, v->n * sizeof *v->ids))
            fail_msg("%s, %d: other tokens in row %u", k->json, who, i);
        if (v->finish != w->finish) fail_msg("%s, %d: row %u ends differently", k->json, who, i);
        if (v->text && strcmp(v->text, w->text)) fail_msg("%s, %d: other text", k->json, who);
    }
    size_t bytes = (size_t)x->logit_steps * x->logit_rows * x->vocab * sizeof(float);
    assert_int_equal(x->logit_steps, y->logit_steps);
    if (x->logits && memcmp(x->logits, y->logits, bytes))
        fail_msg("%s, %d: other logits", k->json, who);
    if (x->scores && memcmp(x->scores, y->scores, bytes))
        fail_msg("%s, %d: other scores", k->json, who);
}

#define ALL "\"output_logits\":true,\"output_scores\":true,\"max_new_tokens\":50"
static const struct call calls[] = {
    {.json = "{" ALL "}"},
    {.json = "{" ALL "}", .prompts = 3},
    {.json = "{" ALL ",\"do_sample\":true,\"temperature\":1.2,\"top_k\":9,\"seed\":4}"},
    {.json = "{" ALL ",\"do_sample\":true,\"top_p\":0.9,\"num_return_sequences\":2,\"seed\":9}",
     .prompts = 3},
    {.json = "{" ALL ",\"repetition_penalty\":1.4}"},
    {.json = "{" ALL ",\"no_repeat_ngram_size\":2}"},
    {.json = "{" ALL ",\"bad_words_ids\":[[40],[14,62]],\"suppress_tokens\":[5,12]}"},
    {.json = "{" ALL ",\"eos_token_id\":[12,40,269,85,200,201,202,203,204],\"min_new_tokens\":7}",
     .prompts = 3},
    {.json = "{" ALL ",\"eos_token_id\":[7],\"forced_eos_token_id\":7}"},
    {.json = "{\"max_length\":45,\"eos_token_id\":[]}"},
    {.json = "{\"max_new_tokens\":1}"},
    {.json = "{\"max_new_tokens\":2}", .prompts = 2},
    {.json = "{" ALL "}", .hooks = true},
    {.json = "{" ALL "}", .prompts = 2, .end_at = 9},
    {.json = "{" ALL "}", .hooks = true, .end_at = 11},
    {.json = "{" ALL "}", .cancel_at = 17},
    {.json = "{" ALL "}", .cancel_at = 1},
    {.json = "{" ALL "}", .hooks = true, .refuse_at = 13},
    {.json = "{" ALL "}", .hooks = true, .refuse_at = 1},
    {.json = "{" ALL "}", .text = true},
    /* A cache that ends before the text does, and a cache of exactly the length. */
    {.json = "{" ALL "}", .cache = {.max_cache_len = 51}},
    {.json = "{\"max_new_tokens\":15}",
     .cache = {.max_cache_len = 51, .cache_implementation = "static"}},
    {.json = "{" ALL "}", .cache = {.step_tokens = 3}, .prompts = 3},
    {.json = "{" ALL "}", .cache = {.step_tokens = 1}},
};

static void calls_stay_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(calls); i++) {
        struct outcome want = run(&calls[i], PLAIN);
        if (!want.r && !calls[i].refuse_at) fail_msg("%s: %s", calls[i].json, err_last());
        for (enum who w = LOOKUP; w < WHO; w++) {
            struct outcome got = run(&calls[i], w);
            same(&calls[i], &want, &got, w);
            if (got.r) assert_true(got.r->accepted <= got.r->drafted);
            kvik_result_free(got.r);
        }
        kvik_result_free(want.r);
    }
}

/* A stop string that begins in one token and ends in the next, at every place where a step can end. */
static void stop_strings(void **state)
{
    (void)state;
    struct call all = {.json = "{\"max_new_tokens\":40,\"eos_token_id\":[]}", .text = true};
    struct outcome plain = run(&all, PLAIN);
    const char *text = plain.r->row[0]->text;
    for (uint32_t at = 3; at < 40; at += 5) {
        char json[200];
        snprintf(json, sizeof json,
                 "{\"max_new_tokens\":40,\"eos_token_id\":[],\"stop_strings\":\"%.2s\"}",
                 text + 2 * at - 1);
        struct call k = {.json = json, .text = true};
        struct outcome want = run(&k, PLAIN);
        assert_int_equal(want.r->row[0]->finish, KVIK_FINISH_STOP);
        for (enum who w = LOOKUP; w < WHO; w++) {
            struct outcome got = run(&k, w);
            same(&k, &want, &got, w);
            kvik_result_free(got.r);
        }
        kvik_result_free(want.r);
    }
    kvik_result_free(plain.r);
}

/* Memory that is just enough for plain decoding. Draft sources do not know the stop string and
 * continue behind it; a step that does not fit is repeated without draft tokens. */
static void just_enough_memory(void **state)
{
    (void)state;
    enum { END = 59 }; /* 37 + 58 rows fit exactly into 6 blocks */
    char json[200];
    struct call k = {.json = "{\"max_new_tokens\":80,\"eos_token_id\":[]}", .text = true};
    struct outcome want = run(&k, PLAIN), got;
    snprintf(json, sizeof json,
             "{\"max_new_tokens\":80,\"eos_token_id\":[],\"num_assistant_tokens\":10,"
             "\"stop_strings\":\"%.6s\"}",
             want.r->row[0]->text + 2 * END - 6);
    kvik_result_free(want.r);
    k.json = json;
    struct outcome roomy = run(&k, SAME);
    for (uint64_t bytes = 2048; bytes; bytes += 2048) {
        kvik_cache *c;
        k.cache = (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                      .cache_memory = bytes,
                                      .max_sequences = 1,
                                      .max_cache_len = 128,
                                      .threads = 1};
        if (kvik_cache_open(m, &k.cache, &c) < 0) continue;
        kvik_cache_close(c);
        want = run(&k, PLAIN);
        if (want.r) break;
    }
    assert_int_equal(want.r->row[0]->finish, KVIK_FINISH_STOP);
    assert_int_equal(want.r->row[0]->n, 37 + END);
    for (enum who w = LOOKUP; w < WHO; w++) {
        got = run(&k, w);
        if (!got.r) fail_msg("%d: %s", w, err_last());
        same(&k, &want, &got, w);
        if (w == SAME) assert_true(got.r->steps > roomy.r->steps);
        kvik_result_free(got.r);
    }
    kvik_result_free(roomy.r);
    kvik_result_free(want.r);
}

static void no_allocation_per_step(void **state)
{
    (void)state;
    struct call k = {.json = "{\"max_new_tokens\":50,\"eos_token_id\":[]}"};
    for (enum who w = LOOKUP; w < WHO; w++) {
        struct outcome o = run(&k, w);
        assert_true(o.caller.tokens >= 50);
        /* Token 0 comes before the assistant first computes the prompt. */
        assert_int_equal(o.caller.at[1], o.caller.at[49]);
        kvik_result_free(o.r);
    }
}

/* Every allocation fails once: the result is an error, and neither cache holds anything of the
 * call. */
static void failing_allocations(void **state)
{
    (void)state;
    kvik_cache_config cc = {.size = sizeof cc, .max_sequences = 2, .max_cache_len = 64};
    kvik_cache *c = cache_of(m, cc), *a = cache_of(other, cc);
    kvik_generation g = config("{\"max_new_tokens\":5,\"output_logits\":true}", OTHER);
    kvik_hooks h = {.size = sizeof h, .assistant_model = a};
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 37};
    kvik_result *r = NULL;
    kvik_usage u = {.size = sizeof u};
    int k = 0, e;
    do {
        mem_fail_at(k++, false);
        e = kvik_generate(c, &g, &p, 1, &h, &r);
        mem_fail_at(-1, false);
        if (e < 0) assert_int_equal(e, KVIK_NOMEM);
        kvik_cache_usage(c, &u);
        assert_int_equal(u.tokens, 0);
        kvik_cache_usage(a, &u);
        assert_int_equal(u.tokens, 0);
    } while (e < 0 && k < 500);
    assert_int_equal(e, 0);
    assert_true(k > 10);
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_cache_close(a);
    kvik_cache_close(c);
}

/* A call that fails leaves the caller's sequence unchanged; a call that succeeds can continue from
 * it. */
static void a_sequence_of_the_callers(void **state)
{
    (void)state;
    for (int statics = 0; statics < 2; statics++) {
        kvik_cache *c =
            cache_of(m, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                            .max_sequences = 2,
                                            .max_cache_len = 128,
                                            .cache_implementation = statics ? "static" : NULL});
        struct caller caller = {.refuse_at = 7};
        kvik_hooks h = {.size = sizeof h, .logits_processor = process, .ctx = &caller};
        kvik_generation g = config("{\"max_new_tokens\":30,\"eos_token_id\":[]}", LOOKUP);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 37};
        kvik_result *r, *whole;
        assert_int_equal(kvik_cache_new(c, &p.seq), 0);
        assert_int_equal(
            kvik_forward(c,
                         &(kvik_span){.size = sizeof(kvik_span), .seq = p.seq, .ids = ids, .n = 20},
                         1, false, NULL),
            0);
        assert_int_equal(kvik_generate(c, &g, &p, 1, &h, &r), KVIK_CANCELLED);
        assert_int_equal(kvik_cache_length(c, p.seq), 20);
        assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &whole), 0);
        assert_int_equal(kvik_cache_length(c, p.seq), 66);
        g.max_new_tokens = 18; /* once more, from row 48 on */
        kvik_prompt q = {.size = sizeof q, .ids = whole->row[0]->ids, .n = 49, .seq = p.seq};
        assert_int_equal(kvik_generate(c, &g, &q, 1, NULL, &r), 0);
        assert_int_equal(r->row[0]->reused, 48);
        assert_memory_equal(r->row[0]->ids, whole->row[0]->ids, 67 * sizeof *ids);
        kvik_result_free(r);
        kvik_result_free(whole);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* Assistants that run out of rows, memory or sequences. */
static void small_assistants(void **state)
{
    (void)state;
    static const struct {
        kvik_cache_config c;
        bool drafts;
        /* The prompt has 37 tokens, the text 50 more. */
    } row[] = {{{.max_sequences = 2, .max_cache_len = 45}, true},
               {{.max_sequences = 2, .max_cache_len = 20}, false},
               {{.max_sequences = 1, .max_cache_len = 128, .cache_memory = 49152}, true}};
    kvik_cache *c = cache_of(m, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                    .max_sequences = 2,
                                                    .max_cache_len = 128});
    kvik_generation g = config("{\"max_new_tokens\":50,\"eos_token_id\":[]}", SAME);
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 37};
    kvik_result *want, *got;
    assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &want), 0);
    for (size_t i = 0; i < countof(row); i++) {
        kvik_cache_config cc = row[i].c;
        cc.size = sizeof cc;
        if (cc.cache_memory) cc.cache_memory = budget_for(m, cc, cc.cache_memory, 1, 64);
        kvik_cache *a = cache_of(m, cc);
        kvik_hooks h = {.size = sizeof h, .assistant_model = a};
        if (kvik_generate(c, &g, &p, 1, &h, &got) < 0) fail_msg("%s", kvik_last_error());
        assert_memory_equal(got->row[0]->ids, want->row[0]->ids, want->row[0]->n * sizeof *ids);
        assert_int_equal(got->drafted > 0, row[i].drafts);
        assert_int_equal(got->accepted, got->drafted);
        kvik_result_free(got);
        kvik_cache_close(a);
    }
    kvik_result_free(want);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static void schedules(void **state)
{
    (void)state;
    kvik_cache_config cc = {.size = sizeof cc, .max_sequences = 2, .max_cache_len = 256};
    kvik_cache *c = cache_of(m, cc), *right = cache_of(m, cc), *wrong = cache_of(other, cc);
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 37};
    static const struct {
        const char *schedule;
        /* Steps of two calls in a row, when all draft tokens are accepted. */
        uint32_t first, second;
        /* The final number of draft tokens of an assistant that is always wrong. */
        uint32_t wrong;
    } row[] = {{"constant", 26, 26, 3},
               {"heuristic_transient", 10, 10, 3}, /* 1 + 4 + 6 + 8 + ... */
               {"heuristic", 10, 5, 1}};
    for (size_t i = 0; i < countof(row); i++) {
        char json[200];
        snprintf(json, sizeof json,
                 "{\"max_new_tokens\":101,\"eos_token_id\":[],\"num_assistant_tokens\":3,"
                 "\"num_assistant_tokens_schedule\":\"%s\"}",
                 row[i].schedule);
        kvik_generation g = config(json, SAME);
        kvik_hooks h = {.size = sizeof h, .assistant_model = right};
        for (uint32_t k = 0; k < 2; k++) {
            kvik_result *r;
            assert_int_equal(kvik_generate(c, &g, &p, 1, &h, &r), 0);
            assert_int_equal(r->steps, k ? row[i].second : row[i].first);
            assert_int_equal(r->computed_tokens + r->row[0]->reused, 37 + 100);
            kvik_result_free(r);
        }
        kvik_result *r;
        h.assistant_model = wrong;
        assert_int_equal(kvik_generate(c, &g, &p, 1, &h, &r), 0);
        assert_int_equal(wrong->assistant.learned, row[i].wrong);
        kvik_result_free(r);
        kvik_generation_done(&g);
    }
    kvik_cache_close(wrong);
    kvik_cache_close(right);
    kvik_cache_close(c);
}

/* A threshold that no probability reaches leaves one draft token a step; the token below the
 * threshold is still proposed. */
static void confidence(void **state)
{
    (void)state;
    kvik_cache_config cc = {.size = sizeof cc, .max_sequences = 2, .max_cache_len = 256};
    kvik_cache *c = cache_of(m, cc), *a = cache_of(m, cc);
    kvik_generation g = config("{\"max_new_tokens\":21,\"eos_token_id\":[],"
                               "\"assistant_confidence_threshold\":1}",
                               OTHER);
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 37};
    kvik_hooks h = {.size = sizeof h, .assistant_model = a};
    uint64_t read[3] = {0};
    for (int k = 1; k < 3; k++) {
        kvik_result *r;
        assert_int_equal(kvik_generate(c, &g, &p, 1, &h, &r), 0);
        assert_int_equal(r->drafted, 10);
        assert_int_equal(r->accepted, 10);
        assert_int_equal(r->steps, 11);
        kvik_result_free(r);
        read[k] = a->x->computed;
    }
    assert_int_equal(read[1], 37 + 19); /* all tokens but the last and the draft token before it */
    assert_int_equal(read[2] - read[1],
                     read[1] - 37); /* the prompt is still cached, except its last token */
    kvik_generation_done(&g);
    kvik_cache_close(a);
    kvik_cache_close(c);
}

static void refusals(void **state)
{
    (void)state;
    kvik_cache_config cc = {.size = sizeof cc, .max_sequences = 8, .max_cache_len = 64};
    kvik_cache *c = cache_of(m, cc), *a = cache_of(small, cc),
               *one = cache_of(m, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                      .max_sequences = 1,
                                                      .max_cache_len = 64});
    kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = 37},
                        {.size = sizeof(kvik_prompt), .ids = ids, .n = 5}};
    const struct {
        const char *json;
        kvik_cache *assistant;
        uint32_t n;
        int code;
        const char *says[2];
    } row[] = {
        {"{\"prompt_lookup_num_tokens\":3,\"use_cache\":false}",
         NULL,
         1,
         KVIK_ARG,
         {"prompt_lookup_num_tokens needs use_cache", "cached"}},
        {"{\"use_cache\":false}", one, 1, KVIK_ARG, {"assistant_model needs use_cache", "cached"}},
        {"{}", a, 1, KVIK_ARG, {"vocabulary of 64 tokens", "one of 384"}},
        {"{}", c, 1, KVIK_ARG, {"open another", "assistant_model"}},
        {"{}", one, 2, KVIK_LIMIT, {"2 rows", "1 sequences"}},
    };
    for (size_t i = 0; i < countof(row); i++) {
        kvik_generation g = config(row[i].json, PLAIN);
        kvik_hooks h = {.size = sizeof h, .assistant_model = row[i].assistant};
        kvik_result *r = NULL;
        assert_int_equal(kvik_generate(c, &g, p, row[i].n, &h, &r), row[i].code);
        assert_null(r);
        for (int k = 0; k < 2; k++)
            if (!strstr(kvik_last_error(), row[i].says[k]))
                fail_msg("\"%s\" does not say \"%s\"", kvik_last_error(), row[i].says[k]);
        kvik_generation_done(&g);
    }
    kvik_cache_close(one);
    kvik_cache_close(a);
    kvik_cache_close(c);
}

/* Beam search takes no draft tokens: the call gives a notice and the result of plain beam search. */
static void ignored(void **state)
{
    (void)state;
    kvik_cache *c = cache_of(m, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                    .max_sequences = 8,
                                                    .max_cache_len = 64});
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 9};
    struct caller caller = {0};
    kvik_hooks h = {.size = sizeof h, .on_notice = on_notice, .ctx = &caller};
    kvik_generation g = config("{\"num_beams\":3,\"max_new_tokens\":9}", PLAIN);
    kvik_result *want, *got;
    assert_int_equal(kvik_generate(c, &g, &p, 1, &h, &want), 0);
    assert_string_equal(caller.notice, "");
    g.prompt_lookup_num_tokens = 3;
    assert_int_equal(kvik_generate(c, &g, &p, 1, &h, &got), 0);
    assert_non_null(strstr(caller.notice, "ignored"));
    assert_memory_equal(got->row[0]->ids, want->row[0]->ids, want->row[0]->n * sizeof *ids);
    kvik_result_free(want);
    kvik_result_free(got);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static int start(void **state)
{
    (void)state;
    letters = toy_pairs('a', 'A');
    return kvik_model_open("tests/golden/models/llama-gqa-l3", &m) |
           kvik_model_open("tests/golden/models/qwen2", &other) |
           kvik_model_open("tests/golden/models/qwen3-mixed", &small);
}

static int stop(void **state)
{
    (void)state;
    kvik_model_close(m);
    kvik_model_close(other);
    kvik_model_close(small);
    tok_close(letters);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_stay_the_same),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(just_enough_memory),
        cmocka_unit_test(no_allocation_per_step),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(a_sequence_of_the_callers),
        cmocka_unit_test(small_assistants),
        cmocka_unit_test(schedules),
        cmocka_unit_test(confidence),
        cmocka_unit_test(refusals),
        cmocka_unit_test(ignored),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
