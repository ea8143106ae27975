/* test_request_fails.c - requests that a callback, a budget, a limit, a wrong call or missing memory ends: only that
 * request fails, and the others give what they give alone. */
#include "kvik_compat.h"
#include "kvik_loop.h"
#include "requests.h"

/* --- Failing. */

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
        kvik_request_free(a[1]->request);
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
            kvik_request_free(a[i]->request);
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
        kvik_request_free(r);
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
    kvik_request_free(r);
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
        kvik_export *out;
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
                kvik_export_free(out);
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
    assert_int_equal(kvik_request_start(s.c, &a->g, &bad, 1, NULL, &r), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "outside the vocabulary"));
    /* Options that were filled in by hand are checked before they are copied. */
    kvik_generation by_hand = a->g;
    by_hand.stop_strings = (char *[]){NULL};
    by_hand.n_stop_strings = 1;
    assert_int_equal(kvik_request_start(s.c, &by_hand, a->prompt, 1, NULL, &r), KVIK_ARG);
    by_hand = a->g;
    by_hand.bad_words_ids = &(kvik_bias){.n = 2};
    by_hand.n_bad_words_ids = 1;
    assert_int_equal(kvik_request_start(s.c, &by_hand, a->prompt, 1, NULL, &r), KVIK_ARG);
    assert_null(r);
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
        kvik_request_free(r[i]);
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
            if (begun) kvik_request_free(a->request);
            if (e < 0) assert_int_equal(e, KVIK_NOMEM);
            assert_int_equal(kvik_request_state(other->request), KVIK_RUNNING);
        }
        kvik_request_free(other->request);
        stage_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusing),
        cmocka_unit_test(budgets),
        cmocka_unit_test(limits),
        cmocka_unit_test(own_sequence),
        cmocka_unit_test(guessed),
        cmocka_unit_test(undisturbed),
        cmocka_unit_test(handles),
        cmocka_unit_test(wrong),
        cmocka_unit_test(owned),
        cmocka_unit_test(no_allocations),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
