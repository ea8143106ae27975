/* test_request.c - requests that start, join, pause, leave and fail next to each other. Each gives,
 * bit for bit, the ids, scores and logits that kvik_generate gives for it alone, for every
 * combination of ways of decoding. */
#include "budgets.h"

/* The greatest number of requests at once; the greatest number of tokens of a prompt. */
enum { MOST = 8, TEXT = 56 };

static uint32_t seed = 1;
static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(seed >> 8) * n >> 24);
}

/* --- Ways of decoding, and the result of kvik_generate for each of them. */

static const struct way {
    const char *name, *json;
    bool assisted;
} ways[] = {
    {"greedy", "{}", false},
    {"sample", "{\"do_sample\": true, \"temperature\": 0.9, \"top_k\": 40, \"top_p\": 0.9}", false},
    {"samples", "{\"do_sample\": true, \"num_return_sequences\": 2, \"repetition_penalty\": 1.2}",
     false},
    {"penalties", "{\"no_repeat_ngram_size\": 2, \"min_new_tokens\": 3}", false},
    {"beams", "{\"num_beams\": 3, \"num_return_sequences\": 2}", false},
    {"groups", "{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 0.4}", false},
    {"drawn beams", "{\"num_beams\": 2, \"do_sample\": true, \"top_k\": 50}", false},
    {"contrastive", "{\"penalty_alpha\": 0.5, \"top_k\": 3}", false},
    {"guided", "{\"guidance_scale\": 1.6, \"negative_prompt_ids\": [7, 8, 9]}", false},
    {"guided beams", "{\"guidance_scale\": 1.4, \"num_beams\": 2}", false},
    {"guided contrast", "{\"guidance_scale\": 1.3, \"penalty_alpha\": 0.4, \"top_k\": 2}", false},
    {"lookup", "{\"prompt_lookup_num_tokens\": 4}", false},
    {"sampled lookup", "{\"prompt_lookup_num_tokens\": 3, \"do_sample\": true, \"top_k\": 5}",
     false},
    {"assisted", "{\"num_assistant_tokens\": 4}", true},
    {"sampled, assisted", "{\"num_assistant_tokens\": 3, \"do_sample\": true, \"top_k\": 4}", true},
    {"oracle", "{\"use_cache\": false}", false},
    {"oracle beams", "{\"use_cache\": false, \"num_beams\": 2}", false},
};

struct asked { /* one request, and its result alone */
    const struct way *way;
    kvik_generation g;
    kvik_hooks hooks;
    int32_t ids[2][TEXT];
    kvik_prompt prompt[2];
    uint32_t n;
    kvik_result *want;
    kvik_request *request;
    bool paused;
};

static kvik_generation options(const kvik_model *m, const char *json)
{
    kvik_generation g;
    if (kvik_generation_init(&g, m) < 0) fail_msg("%s", kvik_last_error());
    g.n_eos = 0;
    if (kvik_generation_set(&g, json) < 0) fail_msg("%s", kvik_last_error());
    return g;
}

static void draw(struct asked *a, const kvik_model *m, const struct way *w, kvik_cache *assistant)
{
    *a = (struct asked){.way = w,
                        .hooks.size = sizeof(kvik_hooks),
                        .g = options(m, w->json),
                        .n = 1 + random_below(2)};
    a->g.max_new_tokens = 1 + random_below(14);
    a->g.seed = random_below(1000);
    a->g.output_logits = a->g.output_scores = true;
    a->g.prefill_chunk_size = random_below(3) * 5;
    a->g.eos_token_id[a->g.n_eos++] = (int32_t)random_below(kvik_model_vocab(m));
    a->g.pad_token_id = 0;
    if (w->assisted) a->hooks.assistant_model = assistant;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t n = 1 + random_below(TEXT), period = 2 + random_below(9);
        for (uint32_t t = 0; t < n; t++)
            a->ids[i][t] = t >= period && random_below(8)
                               ? a->ids[i][t - period]
                               : (int32_t)(3 + random_below(kvik_model_vocab(m) - 3));
        a->prompt[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = a->ids[i], .n = n};
    }
}

static void same(const struct asked *a, const kvik_result *r)
{
    const kvik_result *w = a->want;
    size_t rows = (size_t)w->logit_steps * w->logit_rows * w->vocab * sizeof(float);
    assert_int_equal(r->n_rows, w->n_rows);
    for (uint32_t i = 0; i < w->n_rows; i++) {
        if (r->row[i]->n != w->row[i]->n ||
            memcmp(r->row[i]->ids, w->row[i]->ids, w->row[i]->n * sizeof(int32_t)) != 0)
            fail_msg("%s: row %u has other tokens", a->way->name, i);
        assert_int_equal(r->row[i]->n_prompt, w->row[i]->n_prompt);
        assert_int_equal(r->row[i]->finish, w->row[i]->finish);
        assert_memory_equal(&r->row[i]->score, &w->row[i]->score, sizeof(double));
        assert_int_equal(!r->row[i]->beam_indices, !w->row[i]->beam_indices);
        if (w->row[i]->beam_indices)
            assert_memory_equal(r->row[i]->beam_indices, w->row[i]->beam_indices,
                                (w->row[i]->n - w->row[i]->n_prompt) * sizeof(int32_t));
        if (w->row[i]->text) assert_string_equal(r->row[i]->text, w->row[i]->text);
    }
    assert_int_equal(r->logit_steps, w->logit_steps);
    assert_int_equal(r->logit_rows, w->logit_rows);
    if (memcmp(r->logits, w->logits, rows) != 0) fail_msg("%s: other logits", a->way->name);
    if (memcmp(r->scores, w->scores, rows) != 0) fail_msg("%s: other scores", a->way->name);
}

static void start(struct asked *a, kvik_cache *c)
{
    if (kvik_request_start(c, &a->g, a->prompt, a->n, &a->hooks, &a->request) < 0)
        fail_msg("%s: %s", a->way->name, kvik_last_error());
}

static void alone(struct asked *a, kvik_cache *c)
{
    if (kvik_generate(c, &a->g, a->prompt, a->n, &a->hooks, &a->want) < 0)
        fail_msg("%s: %s", a->way->name, kvik_last_error());
}

static void end(struct asked *a)
{
    kvik_result *r;
    assert_int_equal(kvik_request_state(a->request), KVIK_OVER);
    if (kvik_request_end(a->request, &r) < 0) fail_msg("%s: %s", a->way->name, kvik_last_error());
    same(a, r);
    kvik_result_free(r);
    assert_int_equal(kvik_request_free(a->request), 0);
    a->request = NULL;
}

static void forget(struct asked *a)
{
    kvik_result_free(a->want);
    kvik_generation_done(&a->g);
}

static kvik_cache *open_cache(kvik_model *m, const kvik_cache_config *k)
{
    kvik_cache *c;
    if (kvik_cache_open(m, k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static kvik_model *open_model(const char *path)
{
    kvik_model *m;
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    return m;
}

/* --- Requests that join, pause and leave. */

static const struct scene {
    const char *model, *assistant;
    kvik_cache_config config;
} scenes[] = {
    {"llama-mha", "llama-mha", {.cache_implementation = "dynamic", .step_tokens = 16}},
    {"llama-mha", "llama-mha", {.cache_implementation = "static", .step_tokens = 64}},
    {"gemma2", "gemma2", {.cache_implementation = "hybrid", .step_tokens = 24}},
    {"phi3", "phi3", {.cache_implementation = "dynamic", .step_tokens = 32}},
    {"mistral",
     "mistral",
     {.cache_implementation = "sliding_window",
      .cache_config = "{\"sliding_window\": 9}",
      .step_tokens = 16}},
    {"llama-mha",
     "llama-mha",
     {.cache_implementation = "quantized",
      .cache_config = "{\"nbits\": 4, \"residual_length\": 8, \"q_group_size\": 16}",
      .step_tokens = 20}},
    {"llama-mha", "llama-mha", {.cache_implementation = "offloaded", .step_tokens = 16}},
    {"llama-dynamic", "llama-dynamic", {.cache_implementation = "dynamic", .step_tokens = 16}},
    {"mamba", "mamba2", {.cache_implementation = "dynamic", .step_tokens = 16}},
    {"mamba2", "llama-mha", {.cache_implementation = "static", .step_tokens = 24}},
    {"jamba", "jamba", {.cache_implementation = "dynamic", .step_tokens = 20, .checkpoints = 8}},
    {"zamba2", "mamba", {.cache_implementation = "offloaded", .step_tokens = 16}},
};

/* Runs one step of a random part of the started requests, in random order. */
static void step(struct asked *a)
{
    kvik_request *r[MOST];
    uint32_t n = 0, running = 0;
    for (uint32_t i = 0; i < MOST; i++) {
        if (!a[i].request || !random_below(5)) continue;
        uint32_t at = random_below(n + 1);
        r[n++] = r[at];
        r[at] = a[i].request;
        running += kvik_request_state(a[i].request) == KVIK_RUNNING;
    }
    int left = kvik_request_step(r, n);
    assert_in_range(left, 0, running);
}

static void play(const struct scene *s, uint32_t round)
{
    char path[2][256];
    snprintf(path[0], sizeof *path, "tests/golden/models/%s", s->model);
    snprintf(path[1], sizeof *path, "tests/golden/models/%s", s->assistant);
    kvik_model *m = open_model(path[0]), *small = open_model(path[1]);
    kvik_cache_config k = s->config;
    k.size = sizeof k;
    k.max_cache_len = TEXT + 16;
    k.max_sequences = 64;
    k.compute = "exact";
    k.no_prefix_cache = round % 2;
    kvik_cache *c = open_cache(m, &k), *plain = open_cache(m, &k);
    kvik_cache_config h = {
        .size = sizeof h, .max_cache_len = TEXT + 16, .max_sequences = 6, .compute = "exact"};
    kvik_cache *helper = open_cache(small, &h);
    struct asked a[MOST];
    uint32_t started = 0, ended = 0;
    for (uint32_t i = 0; i < MOST; i++) {
        draw(&a[i], m, &ways[random_below(countof(ways))], helper);
        alone(&a[i], plain);
    }
    while (ended < MOST) {
        if (started < MOST && !random_below(3)) start(&a[started++], c);
        for (uint32_t i = 0; i < started; i++) {
            if (!a[i].request) continue;
            if (!random_below(6)) {
                a[i].paused = !a[i].paused;
                (a[i].paused ? kvik_request_pause : kvik_request_resume)(a[i].request);
            }
            if (kvik_request_state(a[i].request) == KVIK_FAILED) {
                const char *why;
                kvik_request_error(a[i].request, &why);
                fail_msg("%s: %s", a[i].way->name, why);
            }
            if (kvik_request_state(a[i].request) != KVIK_OVER) continue;
            end(&a[i]);
            ended++;
        }
        step(a);
    }
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c, &u);
    assert_int_equal(u.tokens, 0);
    assert_true(kv_check(c->x->kv));
    for (uint32_t i = 0; i < MOST; i++)
        forget(&a[i]);
    kvik_cache_close(helper);
    kvik_cache_close(plain);
    kvik_cache_close(c);
    kvik_model_close(small);
    kvik_model_close(m);
}

static void beside(void **state)
{
    (void)state;
    uint32_t rounds = getenv("KVIK_TEST_LONG") ? 8
                      : test_share() > 4       ? 1
                      : test_share() > 1       ? 2
                                               : 4;
    for (uint32_t i = 0; i < rounds * countof(scenes); i++) {
        seed = 77 + i;
        play(&scenes[i % countof(scenes)], i / countof(scenes));
    }
}

/* --- The setting of the other tests: a tiny model, five requests of different kinds. */

struct stage {
    kvik_model *m;
    kvik_cache *c, *plain, *helper;
    struct asked a[countof(ways)];
};

static void stage_open(struct stage *s, kvik_cache_config k)
{
    *s = (struct stage){.m = open_model("tests/golden/models/llama-mha")};
    seed = 4;
    k.size = sizeof k;
    k.max_cache_len = k.max_cache_len ? k.max_cache_len : TEXT + 40;
    k.compute = "exact";
    k.step_tokens = 16;
    kvik_cache_config h = {
        .size = sizeof h, .max_cache_len = TEXT + 40, .max_sequences = 16, .compute = "exact"};
    if (k.cache_memory) k.cache_memory = budget_for(s->m, k, k.cache_memory, 4, TEXT + 40);
    s->c = open_cache(s->m, &k);
    k.cache_memory = 0;
    k.max_sequences = 64;
    s->plain = open_cache(s->m, &k);
    s->helper = open_cache(s->m, &h);
}

/* Makes a request of one way of decoding and computes its result alone. */
static struct asked *ask(struct stage *s, uint32_t way, uint32_t new_tokens)
{
    struct asked *a = &s->a[way];
    if (a->way) forget(a);
    draw(a, s->m, &ways[way], s->helper);
    a->g.max_new_tokens = new_tokens;
    a->g.n_eos = 0;
    alone(a, s->plain);
    return a;
}

static void stage_close(struct stage *s)
{
    kvik_usage u = {.size = sizeof u};
    for (size_t i = 0; i < countof(ways); i++)
        if (s->a[i].way) forget(&s->a[i]);
    kvik_cache_usage(s->c, &u);
    assert_int_equal(u.tokens, 0);
    assert_true(kv_check(s->c->x->kv));
    kvik_cache_close(s->c);
    kvik_cache_close(s->plain);
    kvik_cache_close(s->helper);
    kvik_model_close(s->m);
}

static void finish(struct asked *const *a, uint32_t n)
{
    kvik_request *r[MOST];
    for (uint32_t i = 0; i < n; i++)
        r[i] = a[i]->request;
    int left;
    while ((left = kvik_request_step(r, n)) > 0)
        ;
    assert_int_equal(left, 0);
}

/* All ways of decoding in one batch share the model's steps: a request that joins adds no steps to
 * the others. */
static void shared_steps(void **state)
{
    (void)state;
    struct stage s;
    struct asked *a[4];
    static const uint32_t way[] = {0, 1, 4, 11};
    stage_open(&s, (kvik_cache_config){.max_sequences = 32});
    kvik_request *r[4];
    for (uint32_t i = 0; i < 4; i++) {
        a[i] = ask(&s, way[i], 12);
        start(a[i], s.c);
        r[i] = a[i]->request;
    }
    int steps = 0;
    while (kvik_request_step(r, 4) > 0)
        steps++;
    /* 4 requests of at most 2 prompts of TEXT tokens are computed while others decode. */
    assert_in_range(steps, 11, 12 + 4 * 2 * TEXT / 12);
    for (uint32_t i = 0; i < 4; i++)
        end(a[i]);
    stage_close(&s);
}

/* Requests share one assistant, whose cache has fewer sequences than the requests have rows. A row
 * without a sequence makes no draft tokens. */
static void shared_assistant(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, (kvik_cache_config){.max_sequences = 32});
    kvik_cache_config h = {
        .size = sizeof h, .max_cache_len = TEXT + 40, .max_sequences = 2, .compute = "exact"};
    kvik_cache *narrow = open_cache(s.m, &h);
    kvik_request *r[5];
    struct asked *a = ask(&s, 13, 16);
    a->hooks.assistant_model = narrow;
    for (uint32_t i = 0; i < 5; i++) {
        start(a, s.c);
        r[i] = a->request;
    }
    while (kvik_request_step(r, 5) > 0)
        ;
    for (uint32_t i = 0; i < 5; i++) {
        a->request = r[i];
        end(a);
    }
    kvik_cache_close(narrow);
    stage_close(&s);
}

/* --- Failing. */

struct trap {
    uint32_t left;
    kvik_request **self;
    kvik_cache *c;
};

static bool refuse(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                   uint32_t vocab)
{
    struct trap *t = ctx;
    (void)row, (void)ids, (void)n, (void)scores, (void)vocab;
    return !t->left || --t->left;
}

/* A callback refuses, also inside the step that verifies draft tokens: only its own request fails. */
static void refusing(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < countof(ways); way++) {
        struct stage s;
        struct trap t = {.left = 5};
        stage_open(&s, (kvik_cache_config){.max_sequences = 32});
        uint32_t first = way ? 0 : 1, second = way == 11 ? 13 : 11;
        struct asked *a[3] = {ask(&s, first, 10), ask(&s, way, 10), ask(&s, second, 10)};
        a[1]->hooks.logits_processor = refuse;
        a[1]->hooks.ctx = &t;
        kvik_seq held;
        assert_int_equal(kvik_cache_new(s.c, &held), 0);
        if (a[1]->g.use_cache) a[1]->prompt[0].seq = held;
        for (uint32_t i = 0; i < 3; i++)
            start(a[i], s.c);
        finish(a, 3);
        const char *why;
        kvik_result *r = NULL;
        assert_int_equal(kvik_request_state(a[1]->request), KVIK_FAILED);
        assert_int_equal(kvik_request_error(a[1]->request, &why), KVIK_CANCELLED);
        assert_non_null(strstr(why, "logits_processor"));
        assert_int_equal(kvik_request_end(a[1]->request, &r), KVIK_CANCELLED);
        assert_non_null(strstr(kvik_last_error(), "logits_processor"));
        assert_null(r);
        assert_int_equal(kvik_cache_length(s.c, held), 0); /* the length before the request */
        assert_int_equal(kvik_request_free(a[1]->request), 0);
        end(a[0]);
        end(a[2]);
        assert_int_equal(kvik_cache_drop(s.c, held), 0);
        stage_close(&s);
    }
}

/* The memory is not enough for all requests: those given first continue, the last one fails and
 * frees its rows. */
static void budgets(void **state)
{
    (void)state;
    uint32_t failed = 0, whole = 0;
    for (uint64_t memory = 624; memory < 1000; memory += 24) {
        struct stage s;

        stage_open(&s, (kvik_cache_config){.max_sequences = 12, .cache_memory = memory << 10});
        struct asked *a[4];
        static const uint32_t way[] = {0, 12, 1, 4};
        uint32_t n = 0;
        for (uint32_t i = 0; i < 4; i++) {
            struct asked *q = ask(&s, way[i], 36);
            int e = kvik_request_start(s.c, &q->g, q->prompt, q->n, &q->hooks, &q->request);
            if (e >= 0) a[n++] = q;
            if (e < 0) assert_int_equal(e, KVIK_FULL);
        }
        finish(a, n);
        for (uint32_t i = 0; i < n; i++) {
            if (kvik_request_state(a[i]->request) == KVIK_OVER) {
                end(a[i]);
                whole++;
                continue;
            }
            assert_int_equal(kvik_request_error(a[i]->request, NULL), KVIK_FULL);
            assert_int_equal(kvik_request_free(a[i]->request), 0);
            failed++;
        }
        stage_close(&s);
    }
    printf("%u failed, %u whole\n", failed, whole);
    assert_true(failed > 4 && whole > 20);
}

static void limits(void **state)
{
    (void)state;
    struct stage s;
    kvik_request *r = NULL;
    stage_open(&s, (kvik_cache_config){.max_sequences = 5});
    struct asked *beams = ask(&s, 4, 6), *greedy = ask(&s, 0, 6), *sample = ask(&s, 1, 6);
    beams->n = 1;
    greedy->n = sample->n = 1;
    for (int again = 0; again < 2; again++) {
        struct asked *a[] = {beams, greedy, sample};
        for (uint32_t i = 0; i < 3; i++) {
            kvik_result_free(a[i]->want);
            alone(a[i], s.plain);
            start(a[i], s.c);
        }
        assert_int_equal(kvik_request_start(s.c, &greedy->g, greedy->prompt, 1, NULL, &r),
                         KVIK_LIMIT);
        assert_non_null(strstr(kvik_last_error(), "max_sequences"));
        assert_null(r);
        kvik_result *none = NULL;
        assert_int_equal(kvik_generate(s.c, &greedy->g, greedy->prompt, 1, NULL, &none),
                         KVIK_LIMIT);
        assert_null(none);
        finish(a, 3);
        end(sample);
        /* The place of a request that has ended is free. */
        assert_int_equal(kvik_request_start(s.c, &greedy->g, greedy->prompt, 1, NULL, &r), 0);
        assert_int_equal(kvik_request_free(r), 0);
        r = NULL;
        end(greedy);
        end(beams);
    }
    stage_close(&s);
}

/* A sequence of the caller is used by one request at a time, and ends as kvik_generate leaves it. */
static void own_sequence(void **state)
{
    (void)state;
    struct stage s;
    kvik_seq mine;
    kvik_request *r = NULL;
    stage_open(&s, (kvik_cache_config){.max_sequences = 12});
    struct asked *a = ask(&s, 0, 6), *other = ask(&s, 1, 9);
    a->n = 1;
    kvik_result_free(a->want);
    alone(a, s.plain);
    assert_int_equal(kvik_cache_new(s.c, &mine), 0);
    a->prompt[0].seq = mine;
    start(other, s.c);
    start(a, s.c);
    assert_int_equal(kvik_request_start(s.c, &a->g, a->prompt, 1, NULL, &r), KVIK_BUSY);
    assert_non_null(strstr(kvik_last_error(), "continues this sequence"));
    kvik_result *none = NULL;
    assert_int_equal(kvik_generate(s.c, &a->g, a->prompt, 1, NULL, &none), KVIK_BUSY);
    struct asked *both[] = {a, other};
    finish(both, 2);
    end(a);
    assert_int_equal(kvik_cache_length(s.c, mine), a->prompt[0].n + 5);
    /* The sequence is free again. */
    assert_int_equal(kvik_request_start(s.c, &a->g, a->prompt, 1, NULL, &r), 0);
    assert_int_equal(kvik_request_step(&r, 1), 1);
    assert_int_equal(kvik_request_free(r), 0);
    assert_int_equal(kvik_cache_length(s.c, mine), a->prompt[0].n + 5); /* rolled back */
    end(other);
    assert_int_equal(kvik_cache_drop(s.c, mine), 0);
    stage_close(&s);
}

/* Makes every call that changes `mine`, or the batch b over it: each is KVIK_BUSY. */
static void disturb(kvik_cache *c, kvik_seq mine, kvik_seq other, kvik_batch *b,
                    const struct asked *a)
{
    kvik_seq pair[] = {other, mine};
    int32_t id = 5;
    kvik_span span[] = {{.size = sizeof *span, .seq = other, .ids = &id, .n = 1},
                        {.size = sizeof *span, .seq = mine, .ids = &id, .n = 1}};
    kvik_inputs in = {.size = sizeof in, .ids = &id, .n = 1};
    kvik_result *r = NULL;
    kvik_request *q = NULL;
    float *logits = calloc(2 * (size_t)kvik_model_vocab(c->model), sizeof *logits);
    assert_non_null(logits);
    const int got[] = {
        kvik_cache_crop(c, mine, 0),
        kvik_cache_crop(c, mine, 1),
        kvik_cache_reset(c, mine),
        kvik_cache_reorder(c, pair, (uint32_t[]){1, 0}, 2),
        kvik_cache_reserve(c, mine, 32),
        kvik_forward(c, span, 2, false, logits),
        kvik_cache_sync(c, mine, &id, 1, NULL, NULL),
        kvik_generate(c, &a->g, a->prompt, 1, NULL, &r),
        kvik_request_start(c, &a->g, a->prompt, 1, NULL, &q),
        kvik_batch_crop(b, 0),
        kvik_batch_reset(b),
        kvik_batch_select(b, (uint32_t[]){0, 0}, 2),
        kvik_batch_reorder(b, (uint32_t[]){0}),
        kvik_batch_repeat(b, 2),
        kvik_batch_forward(b, &in, NULL),
        kvik_batch_generate(b, &a->g, &in, NULL, &r),
        kvik_cache_drop(c, mine),
    };
    for (size_t i = 0; i < countof(got); i++)
        if (got[i] != KVIK_BUSY)
            fail_msg("call %zu of a running request's sequence: %d", i, got[i]);
    assert_null(r);
    assert_null(q);
    assert_non_null(strstr(kvik_last_error(), "end it first"));
    free(logits);
}

/* Tries to change every sequence of a cache whose number can be guessed. */
static void guess(kvik_cache *c, const struct way *way, const char *when)
{
    for (kvik_seq s = 1; s < 1024; s++) {
        if (kvik_cache_length(c, s) < 0) continue;
        int e = kvik_cache_crop(c, s, 0);
        if (e != KVIK_BUSY) fail_msg("%s, %s: sequence %#x was changed: %d", way->name, when, s, e);
    }
}

struct guesser {
    const struct asked *a;
    kvik_cache *c;
};

static bool guess_inside(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                         uint32_t vocab)
{
    const struct guesser *g = ctx;
    (void)row, (void)ids, (void)n, (void)scores, (void)vocab;
    guess(g->c, g->a->way, "in a callback");
    if (g->a->hooks.assistant_model)
        guess(g->a->hooks.assistant_model, g->a->way, "of the assistant, in a callback");
    return true;
}

/* Beams, candidates, negative texts and an assistant have sequences of their own, which nobody was given. */
static void guessed(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < countof(ways); way++) {
        struct stage s;
        stage_open(&s, (kvik_cache_config){.max_sequences = 12});
        struct asked *a = ask(&s, way, 6);
        struct guesser g = {a, s.c};
        a->hooks.ctx = &g;
        a->hooks.logits_processor = guess_inside;
        start(a, s.c);
        int left;
        do {
            left = kvik_request_step(&a->request, 1);
            assert_true(left >= 0);
            if (left) guess(s.c, a->way, "between steps");
            if (left && a->hooks.assistant_model)
                guess(a->hooks.assistant_model, a->way, "of the assistant, between steps");
        } while (left);
        end(a);
        stage_close(&s);
    }
}

/* Whoever changes the sequence of a running request is refused, and the request gives its tokens.  Reading is allowed. */
static void undisturbed(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 6; way++) {
        struct stage s;
        kvik_batch *b;
        kvik_seq other, fork;
        kvik_snapshot *out;
        stage_open(&s, (kvik_cache_config){.max_sequences = 12});
        struct asked *a = ask(&s, way, 6);
        a->n = 1;
        kvik_result_free(a->want);
        alone(a, s.plain);
        assert_int_equal(kvik_cache_new(s.c, &other), 0);
        assert_int_equal(kvik_batch_open(s.c, 1, &b), 0);
        kvik_seq mine = kvik_batch_seq(b, 0);
        a->prompt[0].seq = mine;
        start(a, s.c);
        int left;
        do {
            disturb(s.c, mine, other, b, a);
            assert_int_equal(kvik_cache_length(s.c, other), 0);
            assert_true(kvik_cache_length(s.c, mine) >= 0);
            assert_int_equal(kvik_cache_fork(s.c, mine, &fork), 0);
            assert_int_equal(kvik_cache_drop(s.c, fork), 0);
            if (kvik_cache_length(s.c, mine)) {
                assert_int_equal(kvik_cache_export(s.c, mine, &out), 0);
                kvik_snapshot_free(out);
            }
            left = kvik_request_step(&a->request, 1);
            assert_true(left >= 0);
        } while (left);
        disturb(s.c, mine, other, b, a); /* it has not ended */
        end(a);
        assert_int_equal(kvik_cache_crop(s.c, mine, 1), 0);
        assert_int_equal(kvik_cache_drop(s.c, other), 0);
        kvik_batch_close(b);
        stage_close(&s);
    }
}

/* The caller may hold max_sequences sequences, and a call takes what it needs beside them: as many to feed, and as many
 * again to return. */
static void handles(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "{\"penalty_alpha\": 0.5, \"top_k\": 4, \"max_new_tokens\": 5}",
        "{\"num_beams\": 4, \"num_return_sequences\": 4, \"return_dict_in_generate\": true,"
        " \"max_new_tokens\": 5}",
        "{\"num_beams\": 2, \"num_return_sequences\": 2, \"return_dict_in_generate\": true,"
        " \"guidance_scale\": 1.4, \"max_new_tokens\": 5}",
        "{\"num_return_sequences\": 4, \"do_sample\": true, \"return_dict_in_generate\": true,"
        " \"max_new_tokens\": 5}",
    };
    enum { MINE = 4 };
    struct stage s;
    kvik_seq mine[MINE], more[64];
    int32_t ids[] = {5, 6, 7, 8, 9, 10};
    stage_open(&s, (kvik_cache_config){.max_sequences = MINE});
    float *logits = calloc(kvik_model_vocab(s.m), sizeof *logits);
    assert_non_null(logits);
    for (uint32_t i = 0; i < MINE; i++) {
        kvik_span span = {.size = sizeof span, .ids = ids + i % 3, .n = 3};
        assert_int_equal(kvik_cache_new(s.c, &mine[i]), 0);
        span.seq = mine[i];
        assert_int_equal(kvik_forward(s.c, &span, 1, false, logits), 0);
    }
    for (size_t k = 0; k < countof(calls); k++) {
        kvik_generation g = options(s.m, calls[k]);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
        kvik_result *r, *want;
        if (kvik_generate(s.c, &g, &p, 1, NULL, &r) < 0)
            fail_msg("%s: %s", calls[k], kvik_last_error());
        assert_int_equal(kvik_generate(s.plain, &g, &p, 1, NULL, &want), 0);
        assert_int_equal(r->n_rows, want->n_rows);
        for (uint32_t i = 0; i < r->n_rows; i++) {
            assert_int_equal(r->row[i]->n, want->row[i]->n);
            assert_memory_equal(r->row[i]->ids, want->row[i]->ids, r->row[i]->n * sizeof *ids);
            if (r->row[i]->seq) assert_int_equal(kvik_cache_drop(s.c, r->row[i]->seq), 0);
            if (want->row[i]->seq) assert_int_equal(kvik_cache_drop(s.plain, want->row[i]->seq), 0);
        }
        kvik_result_free(r);
        kvik_result_free(want);
        kvik_generation_done(&g);
    }
    uint32_t n = 0;
    int e = 0;
    while (n < countof(more) && (e = kvik_cache_new(s.c, &more[n])) >= 0)
        n++;
    assert_int_equal(e, KVIK_LIMIT);
    assert_non_null(strstr(kvik_last_error(), "raise max_sequences"));
    while (n)
        assert_int_equal(kvik_cache_drop(s.c, more[--n]), 0);
    for (uint32_t i = 0; i < MINE; i++)
        assert_int_equal(kvik_cache_drop(s.c, mine[i]), 0);
    free(logits);
    stage_close(&s);
}

/* --- Ending early. */

/* Stops every way of decoding after every number of steps: the chosen tokens are a prefix of the
 * whole text. */
static void early(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < countof(ways); way++) {
        struct stage s;
        stage_open(&s, (kvik_cache_config){.max_sequences = 24});
        for (uint32_t after = 0; after < 14; after += 1 + after / 4) {
            struct asked *a = ask(&s, way, 7), *other = ask(&s, way ? 0 : 1, 20);
            kvik_seq held;
            assert_int_equal(kvik_cache_new(s.c, &held), 0);
            if (a->g.use_cache) a->prompt[0].seq = held;
            a->g.return_dict_in_generate = true;
            start(other, s.c);
            start(a, s.c);
            for (uint32_t i = 0; i < after; i++) {
                kvik_request *both[] = {a->request, other->request};
                assert_in_range(kvik_request_step(both, 2), 0, 2);
            }
            enum kvik_state was = kvik_request_state(a->request);
            kvik_result *r, *again;
            if (kvik_request_end(a->request, &r) < 0) fail_msg("%s", kvik_last_error());
            assert_int_equal(kvik_request_state(a->request), KVIK_OVER);
            assert_int_equal(kvik_request_end(a->request, &again), KVIK_ARG);
            bool chosen = false, beams = a->g.num_beams > 1;
            for (uint32_t i = 0; i < r->n_rows; i++) {
                const kvik_row *got = r->row[i], *want = a->want->row[i];
                bool more = got->n > got->n_prompt;
                chosen |= more;
                assert_int_equal(got->n_prompt, want->n_prompt);
                if (!beams) assert_in_range(got->n, want->n_prompt, want->n);
                if (!beams) assert_memory_equal(got->ids, want->ids, got->n * sizeof *got->ids);
                if (was == KVIK_RUNNING && got->n < want->n && !beams)
                    assert_int_equal(got->finish, KVIK_FINISH_CANCELLED);
                assert_int_equal(got->seq != 0, more && a->g.use_cache);
                if (got->seq) assert_int_equal(kvik_cache_length(s.c, got->seq), got->n - 1);
                if (got->seq && got->seq != held)
                    assert_int_equal(kvik_cache_drop(s.c, got->seq), 0);
            }
            if (!chosen) assert_int_equal(kvik_cache_length(s.c, held), 0);
            if (was == KVIK_OVER) same(a, r);
            kvik_result_free(r);
            assert_int_equal(kvik_request_free(a->request), 0);
            finish(&other, 1);
            end(other);
            assert_int_equal(kvik_cache_drop(s.c, held), 0);
        }
        stage_close(&s);
    }
}

/* Frees a request in any state: the cache keeps nothing of it, and the other requests do not
 * change. */
static void freed(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < countof(ways); way++) {
        struct stage s;
        stage_open(&s, (kvik_cache_config){.max_sequences = 24});
        for (uint32_t after = 0; after < 12; after += 1 + after / 3) {
            struct asked *a = ask(&s, way, 4), *other = ask(&s, way == 11 ? 0 : 11, 16);
            start(a, s.c);
            start(other, s.c);
            for (uint32_t i = 0; i < after; i++) {
                kvik_request *both[] = {other->request, a->request};
                assert_in_range(kvik_request_step(both, 2), 0, 2);
            }
            if (after % 2) kvik_request_pause(a->request);
            assert_int_equal(kvik_request_free(a->request), 0);
            finish(&other, 1);
            end(other);
            kvik_usage u = {.size = sizeof u};
            kvik_cache_usage(s.c, &u);
            assert_int_equal(u.tokens, 0);
        }
        stage_close(&s);
    }
    assert_int_equal(kvik_request_free(NULL), 0);
}

/* --- Callbacks. */

static bool meddle(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct trap *t = ctx;
    kvik_result *r = NULL;
    (void)row, (void)id, (void)text;
    assert_int_equal(kvik_request_step(t->self, 1), KVIK_BUSY);
    assert_int_equal(kvik_request_end(*t->self, &r), KVIK_BUSY);
    assert_int_equal(kvik_request_free(*t->self), KVIK_BUSY);
    assert_null(r);
    t->left++;
    return true;
}

static bool looks_on(void *ctx, uint64_t done, uint64_t total)
{
    struct trap *t = ctx;
    kvik_request *r = NULL;
    int32_t id = 5;
    kvik_generation g = options(t->c->model, "{\"max_new_tokens\": 2}");
    kvik_prompt p = {.size = sizeof p, .ids = &id, .n = 1};
    assert_true(done <= total);
    assert_int_equal(kvik_request_start(t->c, &g, &p, 1, NULL, &r), KVIK_BUSY);
    assert_int_equal(kvik_request_step(t->self, 1), KVIK_BUSY);
    assert_null(r);
    kvik_generation_done(&g);
    t->left++;
    return true;
}

/* The callback of a token runs between steps, so it may generate on the same cache. */
static bool nested(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct trap *t = ctx;
    kvik_result *r;
    (void)row, (void)text;
    if (id < 0) return true;
    kvik_generation g = options(t->c->model, "{\"max_new_tokens\": 3, \"num_beams\": 2}");
    kvik_prompt p = {.size = sizeof p, .ids = &id, .n = 1};
    if (kvik_generate(t->c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(r->row[0]->n, 4);
    kvik_result_free(r);
    kvik_generation_done(&g);
    t->left++;
    return true;
}

/* The last text of a row comes while its request ends, which the callback cannot end or free. */
static bool ends_itself(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct trap *t = ctx;
    kvik_result *r = NULL;
    (void)row, (void)text;
    if (id >= 0) {
        t->left = 1;
        return true;
    }
    assert_int_equal(kvik_request_end(*t->self, &r), KVIK_BUSY);
    assert_int_equal(kvik_request_free(*t->self), KVIK_BUSY);
    t->left = 2;
    return true;
}

static void ended_early(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, (kvik_cache_config){.max_sequences = 8});
    struct asked *a = ask(&s, 0, 8);
    struct trap t = {.self = &a->request, .c = s.c};
    kvik_result *r;
    a->hooks = (kvik_hooks){.size = sizeof(kvik_hooks), .on_token = ends_itself, .ctx = &t};
    start(a, s.c);
    while (t.left == 0) /* the prompt, in as many steps as it takes */
        assert_int_equal(kvik_request_step(&a->request, 1), 1);
    assert_int_equal(kvik_request_end(a->request, &r), 0);
    assert_int_equal(t.left, 2);
    kvik_result_free(r);
    assert_int_equal(kvik_request_free(a->request), 0);
    a->request = NULL;
    stage_close(&s);
}

static void callbacks(void **state)
{
    (void)state;
    static const uint32_t way[] = {0, 11, 7};
    for (uint32_t i = 0; i < 2 * countof(way); i++) {
        struct stage s;
        stage_open(&s, (kvik_cache_config){.max_sequences = 24});
        uint32_t first = way[i % countof(way)];
        struct asked *a[] = {ask(&s, first, 8), ask(&s, 1, 8), ask(&s, 4, 8)};
        bool drafts = first == 11;
        struct trap t = {.self = &a[0]->request, .c = s.c};
        a[0]->hooks = (kvik_hooks){.size = sizeof(kvik_hooks),
                                   .on_token = i < countof(way) || drafts ? meddle : nested,
                                   .on_progress = looks_on,
                                   .ctx = &t};
        for (uint32_t k = 0; k < 3; k++)
            start(a[k], s.c);
        finish(a, 3);
        for (uint32_t k = 0; k < 3; k++)
            end(a[k]);
        assert_true(t.left > 8);
        stage_close(&s);
    }
}

/* --- Wrong calls, and failing allocations. */

static void wrong(void **state)
{
    (void)state;
    struct stage s, other;
    stage_open(&s, (kvik_cache_config){.max_sequences = 8});
    stage_open(&other, (kvik_cache_config){.max_sequences = 8});
    struct asked *a = ask(&s, 0, 4), *b = ask(&other, 1, 4);
    start(a, s.c);
    start(b, other.c);
    kvik_request *r = NULL, *pair[] = {a->request, b->request}, *twice[] = {a->request, a->request},
                 *none[] = {a->request, NULL};
    assert_int_equal(kvik_request_step(pair, 2), KVIK_ARG);
    assert_int_equal(kvik_request_step(twice, 2), KVIK_BUSY);
    assert_int_equal(kvik_request_step(none, 2), KVIK_ARG);
    assert_int_equal(kvik_request_step(pair, 0), 0);
    assert_int_equal(kvik_request_start(s.c, &a->g, a->prompt, 0, NULL, &r), KVIK_ARG);
    kvik_prompt bad = {.size = sizeof bad, .ids = (int32_t[]){1 << 30}, .n = 1};
    assert_int_equal(kvik_request_start(s.c, &a->g, &bad, 1, NULL, &r), 0);
    /* The first step computes the prompt and refuses the id. */
    assert_int_equal(kvik_request_step(&r, 1), 0);
    assert_int_equal(kvik_request_error(r, NULL), KVIK_ARG);
    assert_int_equal(kvik_request_free(r), 0);
    a->g.return_legacy_cache = true;
    assert_int_equal(kvik_request_start(s.c, &a->g, a->prompt, 1, NULL, &r), KVIK_UNSUPPORTED);
    finish(&a, 1);
    finish(&b, 1);
    end(a);
    end(b);
    stage_close(&s);
    stage_close(&other);
}

/* A request owns its inputs: configuration, prompts and hooks may be freed as soon as it has
 * started. */
static void owned(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, (kvik_cache_config){.max_sequences = 8});
    struct asked *a = ask(&s, 0, 9);
    kvik_generation g = options(
        s.m, "{\"suppress_tokens\": [5, 6], \"sequence_bias\": [[[7, 8], -2.5], [[9], 1.0]], "
             "\"bad_words_ids\": [[11, 12]], \"negative_prompt_ids\": [4, 5], "
             "\"guidance_scale\": 1.2, \"begin_suppress_tokens\": [13]}");
    g.max_new_tokens = 9;
    g.output_logits = g.output_scores = true;
    kvik_result_free(a->want);
    kvik_generation_done(&a->g);
    a->g = g;
    alone(a, s.plain);
    start(a, s.c);
    kvik_generation_done(&a->g);
    memset(a->ids, 0, sizeof a->ids);
    a->hooks = (kvik_hooks){.size = sizeof(kvik_hooks)};
    a->prompt[0].n = 0;
    finish(&a, 1);
    end(a);
    stage_close(&s);
}

/* No decoding step allocates, whatever other requests do. */
static void no_allocations(void **state)
{
    (void)state;
    struct stage s;
    static const uint32_t way[] = {0, 1, 4, 7, 8, 11};
    stage_open(&s, (kvik_cache_config){.max_sequences = 40});
    kvik_request *r[countof(way)];
    struct asked *a[countof(way)];
    for (uint32_t i = 0; i < countof(way); i++) {
        a[i] = ask(&s, way[i], 30);
        a[i]->g.output_logits = a[i]->g.output_scores = false;
        start(a[i], s.c);
        r[i] = a[i]->request;
    }
    for (uint32_t i = 0; i < 20; i++) /* prompts, and the first tokens */
        assert_true(kvik_request_step(r, countof(way)) > 0);
    uint64_t calls = mem_calls();
    for (uint32_t i = 0; i < 6; i++)
        assert_true(kvik_request_step(r, countof(way)) > 0);
    assert_int_equal(mem_calls(), calls);
    for (uint32_t i = 0; i < countof(way); i++)
        assert_int_equal(kvik_request_free(r[i]), 0);
    stage_close(&s);
}

/* Every allocation fails once (in a short form some of them): in the start, or in a step, where only the request that needed the
 * memory fails. */
static void failing_allocations(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < countof(ways); way++) {
        struct stage s;
        stage_open(&s, (kvik_cache_config){.max_sequences = 24});
        struct asked *a = ask(&s, way, 5), *other = ask(&s, way == 1 ? 0 : 1, 60);
        other->g.output_logits = other->g.output_scores = false;
        start(other, s.c);
        int e = -1;
        for (int k = 0; e < 0; k += (int)test_share()) {
            kvik_result *r;
            mem_fail_at(k, false);
            e = kvik_request_start(s.c, &a->g, a->prompt, a->n, &a->hooks, &a->request);
            while (e >= 0 && kvik_request_step(&a->request, 1) > 0)
                ;
            bool begun = e >= 0;
            if (e >= 0 && (e = kvik_request_end(a->request, &r)) >= 0) {
                mem_fail_at(-1, false);
                same(a, r);
                kvik_result_free(r);
            }
            mem_fail_at(-1, false);
            if (begun) assert_int_equal(kvik_request_free(a->request), 0);
            if (e < 0) assert_int_equal(e, KVIK_NOMEM);
            assert_int_equal(kvik_request_state(other->request), KVIK_RUNNING);
        }
        assert_int_equal(kvik_request_free(other->request), 0);
        stage_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside),
        cmocka_unit_test(shared_steps),
        cmocka_unit_test(shared_assistant),
        cmocka_unit_test(refusing),
        cmocka_unit_test(budgets),
        cmocka_unit_test(limits),
        cmocka_unit_test(own_sequence),
        cmocka_unit_test(guessed),
        cmocka_unit_test(undisturbed),
        cmocka_unit_test(handles),
        cmocka_unit_test(early),
        cmocka_unit_test(freed),
        cmocka_unit_test(callbacks),
        cmocka_unit_test(ended_early),
        cmocka_unit_test(wrong),
        cmocka_unit_test(owned),
        cmocka_unit_test(no_allocations),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
