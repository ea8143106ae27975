/* test_processor_filters.c - filters of sampling over a large vocabulary, against plain oracles that
 * sort everything. Then all processors at once: their order, and no allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generate/chain.h"

enum { BIG = 20000 };
static float big[BIG], out[BIG];
static struct {
    double far, p;
    int id;
} order[BIG];

static uint64_t lcg = 7;
static float noise(void)
{
    lcg = lcg * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(lcg >> 11) * 0x1p-53);
}

/* shape 0: smooth, 1: many ties, 2: one likely token, 3: all equal, 4: few finite ones */
static void fill(int shape)
{
    for (int i = 0; i < BIG; i++) {
        big[i] = noise() * 12;
        if (shape == 1) big[i] = floorf(big[i]);
        if (shape == 2 && i == 777) big[i] = 40;
        if (shape == 3) big[i] = 1;
        if (shape == 4 && i % 997) big[i] = -INFINITY;
    }
}

static int nearer(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void filter(const char *config, uint32_t keep)
{
    kvik_generation g;
    struct gen_chain *c;
    gen_defaults(&g);
    assert_int_equal(kvik_generation_set(&g, "{\"do_sample\": true, \"top_k\": 0}"), 0);
    assert_int_equal(kvik_generation_set(&g, config), 0);
    assert_int_equal(gen_chain_new(&g, BIG, NULL, &c), 0);
    c->keep = keep;
    memcpy(out, big, sizeof out);
    uint64_t before = mem_calls();
    assert_int_equal(gen_chain_apply(c, &(struct gen_row){0}, out), 0);
    assert_int_equal(mem_calls() - before, 0);
    gen_chain_drop(c);
    kvik_generation_done(&g);
}

static double probabilities(double *entropy)
{
    double max = -INFINITY, total = 0;
    for (int i = 0; i < BIG; i++)
        max = fmax(max, big[i]);
    for (int i = 0; i < BIG; i++)
        total += exp(big[i] - max);
    *entropy = 0;
    for (int i = 0; i < BIG; i++) {
        order[i].p = exp(big[i] - max) / total;
        order[i].id = i;
        if (order[i].p > 0) *entropy -= order[i].p * log(order[i].p);
    }
    return max;
}

/* The kept set holds the nearest tokens. Its probability reaches the mass, and would not without
 * its farthest tokens. */
static void test_typical_large(void **state)
{
    (void)state;
    const double mass[] = {0.01, 0.3, 0.9, 0.999};
    for (int shape = 0; shape < 5; shape++) {
        fill(shape);
        for (size_t k = 0; k < countof(mass); k++) {
            char config[48];
            double entropy, kept = 0, edge = 0, least = INFINITY, last = 0;
            snprintf(config, sizeof config, "{\"typical_p\": %g}", mass[k]);
            filter(config, 1);
            probabilities(&entropy);
            for (int i = 0; i < BIG; i++) {
                double far = fabs(-log(order[i].p) - entropy);
                assert_true(out[i] == big[i] || out[i] == -INFINITY);
                if (out[i] > -INFINITY)
                    kept += order[i].p, edge = fmax(edge, far);
                else if (order[i].p > 0)
                    least = fmin(least, far);
            }
            for (int i = 0; i < BIG; i++)
                if (out[i] > -INFINITY && fabs(-log(order[i].p) - entropy) > edge - 2e-5)
                    last += order[i].p;
            assert_true(edge <= least + 2e-5);
            assert_true(kept >= mass[k] - 1e-5);
            assert_true(kept - last <= mass[k] + 1e-5);
        }
        filter("{\"typical_p\": 0.0001}", 40); /* keeps at least the 40 nearest */
        double entropy, edge = 0;
        int n = 0, finite = 0;
        probabilities(&entropy);
        for (int i = 0; i < BIG; i++) {
            order[i].far = order[i].p > 0 ? fabs(-log(order[i].p) - entropy) : INFINITY;
            n += out[i] > -INFINITY;
            finite += big[i] > -INFINITY;
            if (out[i] > -INFINITY) edge = fmax(edge, order[i].far);
        }
        assert_true(n >= MIN(40, finite));
        qsort(order, BIG, sizeof *order, nearer);
        assert_true(fabs(edge - order[n - 1].far) < 2e-5);
    }
}

static void test_cutoffs_large(void **state)
{
    (void)state;
    const double cutoff[] = {1e-5, 3e-4, 0.9};
    for (int shape = 0; shape < 5; shape++) {
        fill(shape);
        for (size_t k = 0; k < 2 * countof(cutoff); k++) {
            bool eta = k >= countof(cutoff);
            double at = cutoff[k % countof(cutoff)], entropy, max = probabilities(&entropy);
            char config[48];
            snprintf(config, sizeof config, "{\"%s_cutoff\": %g}", eta ? "eta" : "epsilon", at);
            filter(config, 1);
            double least = eta ? fmin(at, sqrt(at) * exp(-entropy)) : at;
            for (int i = 0; i < BIG; i++) {
                bool kept = out[i] > -INFINITY;
                if (fabs(order[i].p - least) < 1e-6 * least) continue;
                assert_true(kept == ((order[i].p >= least || big[i] == max) && order[i].p > 0));
            }
        }
    }
}

/* Of scores, whatever their scale, those stay that are near enough to the best. */
static void test_sigma(void **state)
{
    (void)state;
    static const double most[] = {0.25, 1, 3, 40};
    for (int shape = 0; shape < 5; shape++) {
        fill(shape);
        for (size_t k = 0; k < countof(most); k++) {
            char config[64];
            double best = -INFINITY, sum = 0, squares = 0, n = 0;
            for (int i = 0; i < BIG; i++)
                if (big[i] > -INFINITY)
                    best = fmax(best, big[i]), sum += big[i], squares += (double)big[i] * big[i],
                    n++;
            double sigma = sqrt(fmax(squares / n - sum / n * (sum / n), 0));
            snprintf(config, sizeof config, "{\"top_n_sigma\": %g}", most[k]);
            filter(config, 1);
            for (int i = 0; i < BIG; i++) {
                double far = best - big[i] - most[k] * sigma;
                assert_true(out[i] == big[i] || out[i] == -INFINITY);
                if (fabs(far) > 1e-5 * best) assert_true((out[i] > -INFINITY) == (far < 0));
            }
            snprintf(config, sizeof config, "{\"top_n_sigma\": %g, \"temperature\": 3}", most[k]);
            static float plain[BIG];
            memcpy(plain, out, sizeof out);
            filter(config, 1);
            for (int i = 0; i < BIG; i++)
                if (fabs(best - big[i] - most[k] * sigma) > 1e-5 * best)
                    assert_true((out[i] > -INFINITY) == (plain[i] > -INFINITY));
        }
        filter("{\"top_n_sigma\": 1e-9}", 40); /* beams need more than one */
        int left = 0, finite = 0;
        for (int i = 0; i < BIG; i++)
            left += out[i] > -INFINITY, finite += big[i] > -INFINITY;
        assert_true(left >= MIN(40, finite));
    }
    /* The logarithms of 0.1, 0.2, 0.3 and 0.4 have a mean of -1.509 and a deviation of 0.521. */
    kvik_generation g;
    struct gen_chain *c;
    float few[] = {-2.302585f, -1.609438f, -1.203973f, -0.916291f};
    gen_defaults(&g);
    assert_int_equal(
        kvik_generation_set(&g, "{\"do_sample\": true, \"top_k\": 0, \"top_n_sigma\": 1}"), 0);
    assert_int_equal(gen_chain_new(&g, 4, NULL, &c), 0);
    assert_int_equal(gen_chain_apply(c, &(struct gen_row){0}, few), 0);
    assert_true(isinf(few[0]) && isinf(few[1]) && few[2] > -2 && few[3] > -1);
    gen_chain_drop(c);
    kvik_generation_done(&g);
}

/* With probability 1 each step loses what is likelier than the least likely of the likely tokens. */
static void test_xtc(void **state)
{
    (void)state;
    static const double limits[] = {0, 1e-5, 1e-4, 0.02, 0.5};
    for (int shape = 0; shape < 5; shape++) {
        fill(shape);
        double entropy;
        probabilities(&entropy);
        for (size_t k = 0; k < countof(limits); k++) {
            char config[80];
            double least = INFINITY;
            int likely = 0;
            for (int i = 0; i < BIG; i++)
                if (order[i].p > 1e-30 && order[i].p >= limits[k])
                    likely++, least = fmin(least, order[i].p);
            snprintf(config, sizeof config, "{\"xtc_probability\": 1, \"xtc_threshold\": %g}",
                     limits[k]);
            filter(config, 1);
            for (int i = 0; i < BIG; i++) {
                bool stays = likely < 2 || order[i].p <= least;
                assert_true(out[i] == big[i] || out[i] == -INFINITY);
                if (fabs(order[i].p - least) < 1e-5 * least) continue; /* ties, and rounding */
                if (fabs(order[i].p - limits[k]) < 1e-5 * limits[k]) continue;
                if (big[i] > -INFINITY && (out[i] > -INFINITY) != stays)
                    fail_msg("shape %d, threshold %g: token %d of %g, least %g", shape, limits[k],
                             i, order[i].p, least);
            }
        }
        filter("{\"xtc_probability\": 1, \"xtc_threshold\": 0}", BIG); /* too few would be left */
        assert_memory_equal(out, big, sizeof big);
    }
}

/* It happens as often as the probability says, in each row at steps of its own, and draws of tokens do not tell when. */
static void test_xtc_steps(void **state)
{
    (void)state;
    enum { STEPS = 5000 };
    static bool gone[2][STEPS];
    kvik_generation g;
    struct gen_chain *c;
    int n[2] = {0}, both = 0, drawn = 0;
    gen_defaults(&g);
    assert_int_equal(kvik_generation_set(&g, "{\"do_sample\": true, \"top_k\": 0, \"seed\": 8, "
                                             "\"xtc_probability\": 0.3, \"xtc_threshold\": 0.2}"),
                     0);
    assert_int_equal(gen_chain_new(&g, 2, NULL, &c), 0);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t t = 0; t < STEPS; t++) {
            float two[2] = {0, 1e-3f}, plain[2] = {0, 1e-3f};
            const struct gen_row row = {.n = 4 + t, .n_prompt = 4, .row = r};
            assert_int_equal(gen_chain_apply(c, &row, two), 0);
            gone[r][t] = isinf(two[1]);
            n[r] += gone[r][t];
            both += r && gone[0][t] && gone[1][t];
            drawn += gone[r][t] && gen_sample(c, plain, 8, r, t) == 1;
        }
    for (int r = 0; r < 2; r++)
        assert_true(abs(n[r] - 3 * STEPS / 10) < STEPS / 30); /* 5 standard deviations */
    assert_true(abs(both - 9 * STEPS / 100) < STEPS / 40);
    assert_true(abs(2 * drawn - n[0] - n[1]) < (n[0] + n[1]) / 8);
    gen_chain_drop(c);
    kvik_generation_done(&g);
}

static int greater(const void *a, const void *b)
{
    return -nearer(a, b);
}

static void test_toph_large(void **state)
{
    (void)state;
    const double share[] = {0.05, 0.5, 0.95};
    for (int shape = 0; shape < 5; shape++) {
        fill(shape);
        for (size_t k = 0; k < countof(share); k++) {
            char config[48];
            double total = 0, entropy = 0, sum = 0;
            int n = 0, kept = 0, top = 0;
            snprintf(config, sizeof config, "{\"top_h\": %g}", share[k]);
            filter(config, 1);
            for (int i = 0; i < BIG; i++)
                order[i].far = big[i], order[i].id = i;
            qsort(order, BIG, sizeof *order, greater);
            for (; top < 100 && order[top].far > -INFINITY; top++)
                total += exp(order[top].far - order[0].far);
            for (int i = 0; i < top; i++) {
                /* Rounded as in the processor. */
                float p = (float)(exp(order[i].far - order[0].far) / total);
                order[i].p = p > 0 ? -p * logf(p) : 0;
                entropy += order[i].p;
            }
            for (n = 0; n < top; n++)
                if ((sum += order[n].p) > share[k] * entropy * (1 + 1e-6)) break;
            for (int i = 0; i < BIG; i++) {
                kept += out[i] > -INFINITY;
                if (out[i] > -INFINITY) assert_true(big[i] >= order[top - 1].far);
            }
            if (abs(kept - MAX(n, 1)) > 0)
                fail_msg("shape %d, top_h %g: kept %d, want %d", shape, share[k], kept, n);
        }
    }
}

/* All processors at once: the order is that of Transformers, a step allocates nothing, and a failed
 * allocation at the start is reported. */
static const char everything[] =
    "{\"sequence_bias\": [[[3], 0.5], [[1, 3], 0.25]], \"encoder_repetition_penalty\": 1.1, "
    "\"repetition_penalty\": 1.1, \"no_repeat_ngram_size\": 3, \"encoder_no_repeat_ngram_size\": 4, "
    "\"bad_words_ids\": [[5], [6, 7]], \"min_length\": 5, \"eos_token_id\": [2], "
    "\"forced_bos_token_id\": 1, \"forced_eos_token_id\": 2, \"remove_invalid_values\": true, "
    "\"exponential_decay_length_penalty\": [2, 1.1], \"suppress_tokens\": [9], "
    "\"begin_suppress_tokens\": [10], \"do_sample\": true, \"temperature\": 0.7, \"top_h\": 0.9, "
    "\"top_k\": 50, \"top_p\": 0.95, \"min_p\": 0.001, \"typical_p\": 0.99, "
    "\"epsilon_cutoff\": 0.0001, \"eta_cutoff\": 0.0001, \"renormalize_logits\": true}";

static void test_everything(void **state)
{
    (void)state;
    static const char *const names[] = {
        "sequencebias",  "encoderrepetition", "repetition", "ngram",    "encoderngram", "badwords",
        "minlength",     "forcedbos",         "forcedeos",  "invalid",  "decay",        "suppress",
        "suppressbegin", "temperature",       "toph",       "topk",     "topp",         "minp",
        "typical",       "epsilon",           "eta",        "normalize"};
    kvik_generation g;
    struct gen_chain *c = NULL;
    gen_defaults(&g);
    assert_int_equal(kvik_generation_set(&g, everything), 0);
    for (int k = 0; k < 4; k++) {
        mem_fail_at(k, false);
        assert_int_equal(gen_chain_new(&g, BIG, NULL, &c), ERR_NOMEM);
        assert_null(c);
    }
    mem_fail_at(-1, false);
    assert_int_equal(gen_chain_new(&g, BIG, NULL, &c), 0);
    size_t at = 0,
           outside = 0; /* at: a processor that Transformers lacks may stand between two of names */
    for (uint32_t i = 0; i < c->n; i++) {
        at += at < countof(names) && strcmp(c->processor[i]->name, names[at]) == 0;
        outside += !c->processor[i]->sampling;
    }
    if (at < countof(names)) fail_msg("%s is missing or out of order", names[at]);
    fill(0);
    int32_t ids[64];
    for (int i = 0; i < 64; i++)
        ids[i] = i * 31 % 17;
    uint64_t before = mem_calls();
    for (size_t n = 8; n < 64; n++) {
        double sum = 0;
        memcpy(out, big, sizeof out);
        struct gen_row row = {.ids = ids, .n = n, .n_prompt = 8, .max_length = 64};
        assert_int_equal(gen_chain_apply(c, &row, out), 0);
        for (int i = 0; i < BIG; i++)
            sum += exp(out[i]);
        assert_true(fabs(sum - 1) < 1e-4);
        int32_t id = gen_sample(c, out, 1, 0, (uint32_t)n);
        assert_true(id != 5 && id != 9 && (n != 8 || id != 10));
        if (n == 63) assert_int_equal(id, 2);
    }
    assert_int_equal(mem_calls() - before, 0);
    gen_chain_drop(c);
    g.do_sample = false; /* filters belong to sampling */
    assert_int_equal(gen_chain_new(&g, BIG, NULL, &c), 0);
    assert_int_equal(c->n, outside);
    for (uint32_t i = 0; i < c->n; i++)
        assert_false(c->processor[i]->sampling);
    gen_chain_drop(c);
    kvik_generation_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typical_large), cmocka_unit_test(test_cutoffs_large),
        cmocka_unit_test(test_toph_large),    cmocka_unit_test(test_sigma),
        cmocka_unit_test(test_xtc),           cmocka_unit_test(test_xtc_steps),
        cmocka_unit_test(test_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
