/* test_request.c - requests that start, join, pause, leave and end early next to each other. Each gives,
 * bit for bit, the ids, scores and logits that kvik_generate gives for it alone, for every
 * combination of ways of decoding. */
#include "kvik_compat.h"
#include "kvik_loop.h"
#include "requests.h"

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
    {"jamba", "jamba", {.cache_implementation = "dynamic", .step_tokens = 20, .snapshots = 8}},
    {"zamba2", "mamba", {.cache_implementation = "offloaded", .step_tokens = 16}},
};

/* Runs one step of a random part of the started requests, in random order. */
static void step(struct asked *a, uint32_t *seed)
{
    kvik_request *r[MOST];
    uint32_t n = 0, running = 0;
    for (uint32_t i = 0; i < MOST; i++) {
        if (!a[i].request || !random_below(seed, 5)) continue;
        uint32_t at = random_below(seed, n + 1);
        r[n++] = r[at];
        r[at] = a[i].request;
        running += kvik_request_state(a[i].request) == KVIK_RUNNING;
    }
    int left = kvik_request_step(r, n);
    assert_in_range(left, 0, running);
}

static void play(const struct scene *s, uint32_t round, uint32_t *seed)
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
        draw(&a[i], m, &ways[random_below(seed, countof(ways))], helper, seed);
        alone(&a[i], plain);
    }
    while (ended < MOST) {
        if (started < MOST && !random_below(seed, 3)) start(&a[started++], c);
        for (uint32_t i = 0; i < started; i++) {
            if (!a[i].request) continue;
            if (!random_below(seed, 6)) {
                a[i].paused = !a[i].paused;
                (a[i].paused ? kvik_request_pause : kvik_request_resume)(a[i].request);
            }
            if (!random_below(seed, 4))
                kvik_request_set_chunk(a[i].request,
                                       random_below(seed, 3) ? 1 + random_below(seed, 9) : 0);
            if (kvik_request_state(a[i].request) == KVIK_FAILED) {
                const char *why;
                kvik_request_error(a[i].request, &why);
                fail_msg("%s: %s", a[i].way->name, why);
            }
            if (kvik_request_state(a[i].request) != KVIK_OVER) continue;
            end(&a[i]);
            ended++;
        }
        step(a, seed);
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
        uint32_t seed = 77 + i;
        play(&scenes[i % countof(scenes)], i / countof(scenes), &seed);
    }
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

/* --- Who gets room in a step. */

struct line { /* requests, and how many tokens each has chosen */
    struct stage s;
    kvik_generation g;
    kvik_request *r[24];
    uint32_t tokens[24], n;
};

static bool counts(void *ctx, uint32_t row, int32_t id, const char *text)
{
    (void)row, (void)text;
    *(uint32_t *)ctx += id >= 0;
    return true;
}

static void line_open(struct line *l, const char *json)
{
    *l = (struct line){0};
    stage_open(&l->s, (kvik_cache_config){.max_sequences = 32, .no_prefix_cache = true});
    l->g = options(l->s.m, json);
}

static void line_close(struct line *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        kvik_request_free(l->r[i]);
    kvik_generation_done(&l->g);
    stage_close(&l->s);
}

/* Starts request `at` with a prompt of n tokens that no other request begins with. */
static void line_join(struct line *l, uint32_t at, int32_t first, uint32_t n)
{
    int32_t ids[TEXT];
    kvik_hooks h = {.size = sizeof h, .on_token = counts, .ctx = &l->tokens[at]};
    for (uint32_t i = 0; i < n; i++)
        ids[i] = first + (int32_t)i % 5;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = n};
    l->tokens[at] = 0;
    l->n = MAX(l->n, at + 1);
    if (kvik_request_start(l->s.c, &l->g, &p, 1, &h, &l->r[at]) < 0)
        fail_msg("%s", kvik_last_error());
}

/* Advances all requests once and returns how many tokens were computed. */
static uint32_t line_step(struct line *l)
{
    uint64_t before = l->s.c->x->computed;
    if (kvik_request_step(l->r, l->n) < 0) fail_msg("%s", kvik_last_error());
    return (uint32_t)(l->s.c->x->computed - before);
}

/* A call is one step of the model, however many prompts wait beside a request that decodes: it gets a token in each call. */
static void one_step_a_call(void **state)
{
    (void)state;
    for (uint32_t waiting = 1; waiting < MOST; waiting++) {
        struct line l;
        line_open(&l, "{\"max_new_tokens\": 40}");
        line_join(&l, 0, 3, 4);
        line_step(&l);
        assert_int_equal(l.tokens[0], 1);
        for (uint32_t i = 1; i <= waiting; i++)
            line_join(&l, i, 10 + (int32_t)i, TEXT);
        for (uint32_t left = waiting * TEXT, steps = 1; left;) {
            uint32_t decode = 0;
            for (uint32_t i = 0; i < l.n; i++)
                decode += l.tokens[i] > 0;
            assert_int_equal(line_step(&l), decode + MIN(left, 16 - decode));
            assert_int_equal(l.tokens[0], ++steps);
            left -= MIN(left, 16 - decode);
        }
        line_close(&l);
    }
}

/* Prompts take turns: a short one does not wait for the long ones before it, and those that keep coming do not hold up one
 * that waits. */
static void turns(void **state)
{
    (void)state;
    struct line l;
    line_open(&l, "{\"max_new_tokens\": 1}");
    line_join(&l, 0, 3, TEXT);
    line_join(&l, 1, 12, TEXT);
    line_join(&l, 2, 20, 6);
    for (uint32_t i = 0; i < 3; i++)
        line_step(&l);
    assert_true(l.tokens[2] && !l.tokens[0] && !l.tokens[1]);
    for (uint32_t i = 0; !l.tokens[1]; i++) { /* another prompt comes in every step */
        assert_in_range(i, 0, 12);
        if (i) kvik_request_free(l.r[3]);
        line_join(&l, 3, 30 + (int32_t)i, TEXT);
        line_step(&l);
    }
    line_close(&l);
}

/* prefill_chunk_size limits the tokens of all prompts in a step, not of each. */
static void chunks_limit_a_step(void **state)
{
    (void)state;
    struct line l;
    line_open(&l, "{\"max_new_tokens\": 40, \"prefill_chunk_size\": 4}");
    line_join(&l, 0, 3, 3);
    line_step(&l);
    for (uint32_t i = 1; i < 5; i++)
        line_join(&l, i, 10 + (int32_t)i, 14);
    for (uint32_t left = 4 * 14, decode; left; left -= MIN(left, 4)) {
        decode = 0;
        for (uint32_t i = 0; i < l.n; i++)
            decode += l.tokens[i] > 0;
        assert_int_equal(line_step(&l), decode + 4);
    }
    line_close(&l);
    /* The smallest chunk limits all, whoever comes first: one request with chunks of 2 beside one without. */
    line_open(&l, "{\"max_new_tokens\": 3}");
    line_join(&l, 0, 3, 40);
    l.g.prefill_chunk_size = 2;
    line_join(&l, 1, 12, 12);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(line_step(&l), 2);
    line_close(&l);
}

/* More sequences decode than a step has tokens: all of them get on. */
static void more_than_a_step(void **state)
{
    (void)state;
    struct line l;
    line_open(&l, "{\"max_new_tokens\": 9}");
    for (uint32_t i = 0; i < 20; i++)
        line_join(&l, i, 3 + (int32_t)i, 1);
    for (uint32_t steps = 0, least = 0; least < 9; steps++) {
        uint32_t most = 0;
        assert_in_range(steps, 0, 9 * 20 / 16);
        line_step(&l);
        least = 9;
        for (uint32_t i = 0; i < 20; i++) {
            least = MIN(least, l.tokens[i]);
            most = MAX(most, l.tokens[i]);
        }
        assert_in_range(most - least, 0, 1);
    }
    line_close(&l);
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
            kvik_request_free(a->request);
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
            kvik_request_free(a->request);
            finish(&other, 1);
            end(other);
            kvik_usage u = {.size = sizeof u};
            kvik_cache_usage(s.c, &u);
            assert_int_equal(u.tokens, 0);
        }
        stage_close(&s);
    }
    kvik_request_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside),
        cmocka_unit_test(shared_steps),
        cmocka_unit_test(one_step_a_call),
        cmocka_unit_test(turns),
        cmocka_unit_test(chunks_limit_a_step),
        cmocka_unit_test(more_than_a_step),
        cmocka_unit_test(shared_assistant),
        cmocka_unit_test(early),
        cmocka_unit_test(freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
