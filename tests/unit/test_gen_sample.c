/* test_gen_sample.c - sampling and stop strings. Draws have the distribution of the softmax
 * (chi-square), depend on (seed, row, step) only, and reach every token that a filter leaves. A
 * stop string is found wherever the text is split. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "generate/chain.h"

static struct gen_chain *chain_of(uint32_t vocab)
{
    kvik_generation g;
    struct gen_chain *c;
    gen_defaults(&g);
    g.do_sample = true;
    g.top_k = 0;
    assert_int_equal(gen_chain_new(&g, vocab, NULL, &c), 0);
    return c;
}

/* Returns the 99.99 % quantile of chi-square with n - 1 degrees of freedom (Wilson and Hilferty
 * 1931). */
static double chi_limit(double dof)
{
    double t = 1 - 2 / (9 * dof) + 3.719 * sqrt(2 / (9 * dof));
    return dof * t * t * t;
}

static double chi_square(const float *scores, uint32_t vocab, uint64_t seed, bool over_rows)
{
    enum { DRAWS = 60000 };
    struct gen_chain *c = chain_of(vocab);
    double count[64] = {0}, total = 0, chi = 0;
    for (uint32_t i = 0; i < DRAWS; i++)
        count[gen_sample(c, scores, seed, over_rows ? i : 3, over_rows ? 5 : i)]++;
    for (uint32_t i = 0; i < vocab; i++)
        total += exp(scores[i]);
    for (uint32_t i = 0; i < vocab; i++) {
        double expected = exp(scores[i]) / total * DRAWS;
        if (expected > 0) chi += (count[i] - expected) * (count[i] - expected) / expected;
        if (expected == 0) assert_true(count[i] == 0);
    }
    gen_chain_drop(c);
    return chi;
}

static void test_distribution(void **state)
{
    (void)state;
    float flat[64], slope[16], holes[16];
    for (int i = 0; i < 64; i++)
        flat[i] = 0;
    for (int i = 0; i < 16; i++) {
        slope[i] = (float)i * 0.25f;
        holes[i] = i & 1 ? -INFINITY : (float)i * 0.1f;
    }
    for (uint64_t seed = 0; seed < 6; seed++)
        for (int over_rows = 0; over_rows < 2; over_rows++) {
            assert_true(chi_square(flat, 64, seed, over_rows) < chi_limit(63));
            assert_true(chi_square(slope, 16, seed, over_rows) < chi_limit(15));
            assert_true(chi_square(holes, 16, seed, over_rows) < chi_limit(7));
        }
}

/* Neighbouring steps are independent: pairs of draws over 8 equal tokens fill all 64 cells evenly. */
static void test_pairs(void **state)
{
    (void)state;
    struct gen_chain *c = chain_of(8);
    float flat[8] = {0};
    double count[64] = {0}, chi = 0;
    enum { DRAWS = 64000 };
    for (uint32_t i = 0; i < DRAWS; i++)
        count[gen_sample(c, flat, 11, 0, 2 * i) * 8 + gen_sample(c, flat, 11, 0, 2 * i + 1)]++;
    for (int i = 0; i < 64; i++)
        chi += (count[i] - DRAWS / 64.0) * (count[i] - DRAWS / 64.0) / (DRAWS / 64.0);
    assert_true(chi < chi_limit(63));
    gen_chain_drop(c);
}

static void test_depends_on_counter_only(void **state)
{
    (void)state;
    struct gen_chain *a = chain_of(50), *b = chain_of(50);
    float s[50], other[50];
    for (int i = 0; i < 50; i++) {
        s[i] = (float)(i % 7);
        other[i] = (float)(i % 3);
    }
    int differs[3] = {0};
    for (uint32_t step = 0; step < 200; step++) {
        int32_t id = gen_sample(a, s, 42, 1, step);
        gen_sample(b, other, 42, 0, step); /* another row of the batch */
        assert_int_equal(gen_sample(b, s, 42, 1, step), id);
        differs[0] += gen_sample(b, s, 43, 1, step) != id;
        differs[1] += gen_sample(b, s, 42, 2, step) != id;
        differs[2] += gen_sample(b, s, 42 + ((uint64_t)1 << 32), 1, step) != id;
    }
    for (int i = 0; i < 3; i++)
        assert_true(differs[i] > 150);
    gen_chain_drop(a);
    gen_chain_drop(b);
}

/* Every split of every text gives the answer of a plain search in the whole text. */
static void test_stop_cuts(void **state)
{
    (void)state;
    static const struct {
        const char *stop[3];
        uint32_t n;
        const char *text;
        int keep; /* -1: no match */
    } rows[] = {
        {{"\n"}, 1, "one\ntwo", 4},
        {{"END"}, 1, "xENENDx", 6},
        {{"aab"}, 1, "aaab", 4},
        {{"abab", "ba"}, 2, "ababab", 3},
        {{"User:", "<|im_end|>"}, 2, "no stop here", -1},
        {{"User:", "<|im_end|>", "\n\n"}, 3, "a<|im_<|im_end|>b", 16},
        {{"\xC3\xA9"}, 1, "caf\xC3\xA9!", 5},
        {{"x"}, 1, "", -1},
    };
    for (size_t r = 0; r < countof(rows); r++) {
        size_t n = strlen(rows[r].text);
        for (uint32_t cuts = 0; cuts < 1u << (n ? MIN(n - 1, 12) : 0); cuts++) {
            struct gen_stop *s;
            assert_int_equal(gen_stop_new((char *const *)rows[r].stop, rows[r].n, &s), 0);
            size_t from = 0, keep = 0;
            bool hit = false;
            for (size_t i = 0; i < n && !hit; i++)
                if (i + 1 == n || cuts >> i & 1) {
                    hit = gen_stop_put(s, rows[r].text + from, i + 1 - from, &keep);
                    from = i + 1;
                }
            assert_int_equal(hit, rows[r].keep >= 0);
            if (hit) assert_int_equal(keep, rows[r].keep);
            gen_stop_drop(s);
        }
    }
}

static void test_stop_edges(void **state)
{
    (void)state;
    struct gen_stop *s = (struct gen_stop *)1;
    size_t keep = 77;
    assert_int_equal(gen_stop_new(NULL, 0, &s), 0);
    assert_null(s);
    assert_false(gen_stop_put(s, "abc", 3, &keep));
    assert_int_equal(keep, 77);
    assert_int_equal(gen_stop_new((char *[]){"a", ""}, 2, &s), ERR_ARG);
    assert_null(s);
    for (int k = 0; k < 5; k++) {
        mem_fail_at(k, false);
        assert_int_equal(gen_stop_new((char *[]){"ab", "cd"}, 2, &s), ERR_NOMEM);
    }
    mem_fail_at(-1, false);
    assert_int_equal(gen_stop_new((char *[]){"aa"}, 1, &s), 0);
    uint64_t before = mem_calls();
    assert_true(gen_stop_put(s, "baab", 4, &keep));
    assert_int_equal(keep, 3);
    assert_true(gen_stop_put(s, "xaa", 3, &keep)); /* works again after a match */
    assert_int_equal(mem_calls() - before, 0);
    gen_stop_drop(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_depends_on_counter_only),
        cmocka_unit_test(test_stop_cuts),
        cmocka_unit_test(test_stop_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
