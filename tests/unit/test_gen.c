/* test_gen.c - properties of logits processors that the vectors of test_processors.c cannot show:
 * large vocabularies against an oracle that sorts, ties, NaN, no allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generate/chain.h"

static uint64_t lcg = 1;
static float noise(void)
{
    lcg = lcg * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(lcg >> 11) * 0x1p-53);
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

enum { BIG = 50000 };
static float big[BIG], sorted[BIG], out[BIG];

/* shape 0: smooth, 1: many ties, 2: ascending, 3: descending, 4: all equal, 5: a few finite ones */
static void fill(int shape)
{
    for (int i = 0; i < BIG; i++) {
        float x = noise() * 12;
        if (shape == 1) x = floorf(x);
        if (shape == 2) x = (float)i * 1e-3f;
        if (shape == 3) x = (float)(BIG - i) * 1e-3f;
        if (shape == 4) x = 1;
        if (shape == 5 && i % 997) x = -INFINITY;
        big[i] = sorted[i] = x;
    }
    qsort(sorted, BIG, sizeof *sorted, descending);
}

static uint32_t count_finite(const float *v)
{
    uint32_t n = 0;
    for (int i = 0; i < BIG; i++)
        n += v[i] > -INFINITY;
    return n;
}

static void test_topk_large(void **state)
{
    (void)state;
    for (int shape = 0; shape < 6; shape++) {
        fill(shape);
        for (uint32_t k = 1; k < 40000; k = k * 3 + 1) {
            kvik_generation g;
            gen_defaults(&g);
            g.do_sample = true;
            g.top_k = k;
            struct gen_chain *c;
            assert_int_equal(gen_chain_new(&g, BIG, NULL, &c), 0);
            memcpy(out, big, sizeof out);
            gen_chain_apply(c, &(struct gen_row){0}, out);
            for (int i = 0; i < BIG; i++)
                assert_true(out[i] == (big[i] >= sorted[k - 1] ? big[i] : -INFINITY));
            gen_chain_drop(c);
        }
    }
}

/* The kept set is the smallest set of most likely tokens whose probability exceeds top_p, up to f32
 * rounding at its edge. */
static void test_topp_large(void **state)
{
    (void)state;
    const double p[] = {0.0, 0.01, 0.3, 0.9, 0.999};
    for (int shape = 0; shape < 6; shape++) {
        fill(shape);
        double total = 0;
        for (int i = 0; i < BIG; i++)
            total += exp((double)sorted[i] - sorted[0]);
        for (size_t k = 0; k < countof(p); k++) {
            kvik_generation g;
            gen_defaults(&g);
            g.do_sample = true;
            g.top_k = 0;
            g.top_p = p[k];
            struct gen_chain *c;
            assert_int_equal(gen_chain_new(&g, BIG, NULL, &c), 0);
            memcpy(out, big, sizeof out);
            gen_chain_apply(c, &(struct gen_row){0}, out);
            uint32_t kept = count_finite(out);
            assert_true(kept >= 1);
            double mass = 0;
            for (uint32_t i = 0; i < kept; i++)
                mass += exp((double)sorted[i] - sorted[0]) / total;
            double least = exp((double)sorted[kept - 1] - sorted[0]) / total;
            assert_true(mass >= p[k] - 1e-5);
            assert_true(kept == 1 || mass - least <= p[k] + 1e-5);
            for (int i = 0; i < BIG; i++) {
                assert_true(out[i] == big[i] || out[i] == -INFINITY);
                if (out[i] == -INFINITY) assert_true(big[i] <= sorted[kept - 1]);
                if (out[i] > -INFINITY) assert_true(big[i] >= sorted[kept - 1]);
            }
            gen_chain_drop(c);
        }
    }
}

/* Orders that defeat a fixed choice of the pivot; a quadratic selection would take seconds on them. */
static void test_select_hostile(void **state)
{
    (void)state;
    static float v[BIG];
    for (int trial = 0; trial < 50; trial++) {
        for (int i = 0; i < BIG; i++)
            v[i] = trial & 1 ? (float)(i % (trial + 1))
                             : (float)((i * (trial + 7)) ^ (i >> trial % 16));
        memcpy(sorted, v, sizeof v);
        qsort(sorted, BIG, sizeof *sorted, descending);
        uint32_t k = 1 + (uint32_t)(noise() * (BIG - 1));
        assert_true(gen_select(v, BIG, k) == sorted[k - 1]);
    }
    float one = 3;
    assert_true(gen_select(&one, 1, 1) == 3);
}

static void test_nan_and_inf(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    g.do_sample = true;
    g.top_k = 3;
    g.top_p = 0.9;
    g.min_p = 0.01;
    g.temperature = 0.5;
    struct gen_chain *c;
    assert_int_equal(gen_chain_new(&g, 6, NULL, &c), 0);
    float s[6] = {NAN, 1, 2, -INFINITY, 3, NAN};
    gen_chain_apply(c, &(struct gen_row){0}, s);
    for (uint32_t step = 0; step < 100; step++) {
        int32_t id = gen_sample(c, s, 7, 0, step);
        assert_true(id == 1 || id == 2 || id == 4);
    }
    float none[6] = {NAN, NAN, -INFINITY, NAN, NAN, NAN};
    gen_chain_apply(c, &(struct gen_row){0}, none);
    assert_int_equal(gen_sample(c, none, 7, 0, 0), 0);
    assert_int_equal(gen_argmax(none, 6), 0);
    float inf[6] = {0, 1, INFINITY, 2, NAN, 3};
    assert_int_equal(gen_sample(c, inf, 7, 0, 0), 2);
    assert_int_equal(gen_argmax((float[]){1, 3, 3, NAN}, 4), 1);
    gen_chain_drop(c);
}

/* Of lengths around those of vectors and blocks, with many equal scores. */
static void test_argmax(void **state)
{
    (void)state;
    static float s[5000];
    uint32_t x = 1;
    for (uint32_t k = 0; k < 400; k++) {
        uint32_t n = k < 80 ? k : 1000 + k * 10, best = 0;
        float max = -INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u;
            s[i] = x >> 28 == 0 ? NAN : x >> 28 == 1 ? -INFINITY : (float)(x >> 8 & 255) - 128;
            if (!(s[i] > max)) continue;
            max = s[i];
            best = i;
        }
        assert_int_equal(gen_argmax(s, n), best);
    }
}

static void test_repetition_ignores_foreign_ids(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    g.repetition_penalty = 2;
    struct gen_chain *c;
    assert_int_equal(gen_chain_new(&g, 4, NULL, &c), 0);
    for (int again = 0; again < 2; again++) { /* the scratch is clean after each call */
        float s[4] = {4, -4, 8, 1};
        gen_chain_apply(
            c, &(struct gen_row){.ids = (int32_t[]){0, 1, 0, -1, 99, INT32_MAX}, .n = 6}, s);
        assert_true(s[0] == 2 && s[1] == -8 && s[2] == 8 && s[3] == 1);
    }
    gen_chain_drop(c);
}

static void test_order_and_modes(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    g.repetition_penalty = 1.1;
    g.min_new_tokens = 2;
    g.n_eos = 1;
    g.temperature = 0.7;
    g.top_p = 0.9;
    g.min_p = 0.1;
    struct gen_chain *c;
    assert_int_equal(gen_chain_new(&g, 8, NULL, &c), 0);
    assert_int_equal(c->n, 2); /* greedy decoding has no warpers */
    gen_chain_drop(c);
    g.do_sample = true;
    assert_int_equal(gen_chain_new(&g, 8, NULL, &c), 0);
    const char *want[] = {"repetition", "minlength", "temperature", "topk", "topp", "minp"};
    assert_int_equal(c->n, countof(want));
    for (size_t i = 0; i < countof(want); i++)
        assert_string_equal(c->processor[i]->name, want[i]);
    gen_chain_drop(c);
}

static void test_no_allocation_per_token(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    g.do_sample = true;
    g.top_k = 400;
    g.top_p = 0.95;
    g.min_p = 0.001;
    g.repetition_penalty = 1.2;
    g.temperature = 0.8;
    struct gen_chain *c;
    assert_int_equal(gen_chain_new(&g, BIG, NULL, &c), 0);
    fill(0);
    int32_t ids[64];
    for (int i = 0; i < 64; i++)
        ids[i] = i * 31;
    uint64_t before = mem_calls();
    for (uint32_t step = 0; step < 20; step++) {
        memcpy(out, big, sizeof out);
        gen_chain_apply(c, &(struct gen_row){.ids = ids, .n = 64, .n_prompt = 8}, out);
        assert_in_range(gen_sample(c, out, 1, 0, step), 0, BIG - 1);
    }
    assert_int_equal(mem_calls() - before, 0);
    gen_chain_drop(c);
}

static void test_allocation_failure(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    for (int k = 0; k < 3; k++) {
        struct gen_chain *c = NULL;
        mem_fail_at(k, false);
        assert_int_equal(gen_chain_new(&g, 100, NULL, &c), ERR_NOMEM);
        assert_null(c);
    }
    mem_fail_at(-1, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topk_large),
        cmocka_unit_test(test_topp_large),
        cmocka_unit_test(test_select_hostile),
        cmocka_unit_test(test_nan_and_inf),
        cmocka_unit_test(test_argmax),
        cmocka_unit_test(test_repetition_ignores_foreign_ids),
        cmocka_unit_test(test_order_and_modes),
        cmocka_unit_test(test_no_allocation_per_token),
        cmocka_unit_test(test_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
