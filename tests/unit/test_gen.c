/* test_gen.c - logits processors against vectors recorded from the reference (tests/golden/processors.*): the same
 * tokens removed, the rest within 1e-6.  Classes this version does not have are counted, not hidden.  Then
 * properties the vectors cannot show: large vocabularies against a sorting oracle, ties, NaN, no allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "generate/chain.h"

static json_t *vectors, *header;
static struct map tensors;
static const uint8_t *payload;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(json_read("tests/golden/processors.json", 64u << 20, &vectors), 0);
    assert_int_equal(map_open(&tensors, "tests/golden/processors.safetensors"), 0);
    uint64_t n;
    memcpy(&n, tensors.data, 8);
    assert_true(n < tensors.size - 8);
    assert_int_equal(json_parse((const char *)tensors.data + 8, n, "header", &header), 0);
    payload = tensors.data + 8 + n;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(vectors);
    json_decref(header);
    map_close(&tensors);
    return 0;
}

/* [rows][vocab] f32, unaligned in the file. */
static const uint8_t *tensor(const char *name, size_t *rows, size_t *vocab)
{
    json_t *t = json_object_get(header, name), *shape = json_object_get(t, "shape");
    assert_string_equal(json_string_value(json_object_get(t, "dtype")), "F32");
    *rows = (size_t)json_integer_value(json_array_get(shape, 0));
    *vocab = (size_t)json_integer_value(json_array_get(shape, 1));
    return payload + json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
}

static double number(const json_t *args, const char *key, double otherwise)
{
    json_t *v = json_object_get(args, key);
    return v ? json_number_value(v) : otherwise;
}

static void take_eos(kvik_generation *g, const json_t *args)
{
    json_t *list = json_object_get(args, "eos_token_id");
    g->n_eos = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < g->n_eos; i++)
        g->eos_token_id[i] = (int32_t)json_integer_value(json_array_get(list, i));
}

/* A config in which only this processor does anything; false: not one of ours. */
static bool configure(const char *class, const json_t *args, kvik_generation *g, size_t *skip,
                      size_t *prompt)
{
    gen_defaults(g);
    g->do_sample = true;
    g->top_k = 0;
    *skip = *prompt = 0;
    if (json_object_get(args, "filter_value")) return false; /* always -inf here */
    if (!strcmp(class, "TemperatureLogitsWarper")) {
        g->temperature = number(args, "temperature", 0);
    } else if (!strcmp(class, "TopKLogitsWarper")) {
        g->top_k = (uint32_t)number(args, "top_k", 0);
    } else if (!strcmp(class, "TopPLogitsWarper")) {
        g->top_p = number(args, "top_p", -1);
    } else if (!strcmp(class, "MinPLogitsWarper")) {
        g->min_p = number(args, "min_p", -1);
    } else if (!strcmp(class, "RepetitionPenaltyLogitsProcessor")) {
        g->repetition_penalty = number(args, "penalty", 0);
        *skip = (size_t)number(args, "prompt_ignore_length", 0);
    } else if (!strcmp(class, "MinLengthLogitsProcessor")) {
        g->min_length = (uint32_t)number(args, "min_length", 0);
        take_eos(g, args);
    } else if (!strcmp(class, "MinNewTokensLengthLogitsProcessor")) {
        g->min_new_tokens = (uint32_t)number(args, "min_new_tokens", 0);
        *prompt = (size_t)number(args, "prompt_length_to_skip", 0);
        take_eos(g, args);
    } else {
        return false;
    }
    return true;
}

static void check_row(const char *name, const float *got, const float *want, size_t vocab)
{
    for (size_t i = 0; i < vocab; i++) {
        if (isinf(want[i]) && want[i] < 0 ? got[i] == want[i]
                                          : fabsf(got[i] - want[i]) <= 1e-6f * (1 + fabsf(want[i])))
            continue;
        fail_msg("%s: score %zu is %g, want %g", name, i, (double)got[i], (double)want[i]);
    }
}

static void check_vector(const json_t *v, const kvik_generation *g, size_t skip, size_t prompt)
{
    const char *name = json_string_value(json_object_get(v, "name"));
    const json_t *lists =
        json_object_get(vectors, json_string_value(json_object_get(v, "input_ids")));
    size_t rows, vocab, want_rows, want_vocab;
    const uint8_t *in = tensor(json_string_value(json_object_get(v, "scores")), &rows, &vocab);
    const uint8_t *want =
        tensor(json_string_value(json_object_get(v, "output")), &want_rows, &want_vocab);
    assert_int_equal(rows, want_rows);
    assert_int_equal(vocab, want_vocab);
    struct gen_chain *c;
    assert_int_equal(gen_chain_new(g, (uint32_t)vocab, &c), 0);
    assert_true(c->n == 1 || (c->n == 0 && !strncmp(name + 4, "Min", 3)));
    json_t *keep = json_object_get(json_object_get(v, "args"), "min_tokens_to_keep");
    if (keep) c->keep = (uint32_t)json_integer_value(keep);
    float *got = malloc(vocab * sizeof *got), *expect = malloc(vocab * sizeof *expect);
    for (size_t r = 0; r < rows; r++) {
        int32_t ids[64];
        const json_t *row = json_array_get(lists, r);
        size_t n = json_array_size(row);
        for (size_t i = 0; i < n; i++)
            ids[i] = (int32_t)json_integer_value(json_array_get(row, i));
        struct gen_row at = {.ids = ids + skip, .n = n - skip, .n_prompt = prompt};
        memcpy(got, in + r * vocab * sizeof *got, vocab * sizeof *got);
        memcpy(expect, want + r * vocab * sizeof *got, vocab * sizeof *got);
        gen_chain_apply(c, &at, got);
        check_row(name, got, expect, vocab);
    }
    free(got);
    free(expect);
    gen_chain_drop(c);
}

static void test_golden(void **state)
{
    (void)state;
    size_t i, checked = 0, others = 0;
    json_t *v;
    json_array_foreach(json_object_get(vectors, "vectors"), i, v)
    {
        kvik_generation g;
        size_t skip, prompt;
        if (!configure(json_string_value(json_object_get(v, "class")), json_object_get(v, "args"),
                       &g, &skip, &prompt)) {
            others++;
            continue;
        }
        check_vector(v, &g, skip, prompt);
        checked++;
    }
    printf("processors: %zu vectors checked, %zu of classes not in this version\n", checked,
           others);
    assert_int_equal(checked, 53);
}

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
            assert_int_equal(gen_chain_new(&g, BIG, &c), 0);
            memcpy(out, big, sizeof out);
            gen_chain_apply(c, &(struct gen_row){0}, out);
            for (int i = 0; i < BIG; i++)
                assert_true(out[i] == (big[i] >= sorted[k - 1] ? big[i] : -INFINITY));
            gen_chain_drop(c);
        }
    }
}

/* The kept set is the smallest set of most likely tokens that exceeds top_p, up to f32 rounding at its edge. */
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
            assert_int_equal(gen_chain_new(&g, BIG, &c), 0);
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

/* Orders made to defeat a fixed pivot choice would cost seconds in a quadratic selection. */
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
    assert_int_equal(gen_chain_new(&g, 6, &c), 0);
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

static void test_repetition_ignores_foreign_ids(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    g.repetition_penalty = 2;
    struct gen_chain *c;
    assert_int_equal(gen_chain_new(&g, 4, &c), 0);
    for (int again = 0; again < 2; again++) { /* scratch is clean after each call */
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
    assert_int_equal(gen_chain_new(&g, 8, &c), 0);
    assert_int_equal(c->n, 2); /* greedy: no warpers */
    gen_chain_drop(c);
    g.do_sample = true;
    assert_int_equal(gen_chain_new(&g, 8, &c), 0);
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
    assert_int_equal(gen_chain_new(&g, BIG, &c), 0);
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
        assert_int_equal(gen_chain_new(&g, 100, &c), ERR_NOMEM);
        assert_null(c);
    }
    mem_fail_at(-1, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_topk_large),
        cmocka_unit_test(test_topp_large),
        cmocka_unit_test(test_select_hostile),
        cmocka_unit_test(test_nan_and_inf),
        cmocka_unit_test(test_repetition_ignores_foreign_ids),
        cmocka_unit_test(test_order_and_modes),
        cmocka_unit_test(test_no_allocation_per_token),
        cmocka_unit_test(test_allocation_failure),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
