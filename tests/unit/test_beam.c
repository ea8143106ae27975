/* test_beam.c - beam search by itself, against the slow literal search. Random scores with ties,
 * infinities and NaN, random ends, every stopping rule, several prompts; log-softmax; options that
 * contradict each other. */
#include "generate/beam.h"
#include "generate/generate.h"
#include "test_beam_plain.h"
#include "testing.h"

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

struct world { /* a language model whose scores are a hash of the text so far */
    uint64_t seed;
    uint32_t vocab, n_eos;
    uint32_t limit;
    bool coarse;    /* many equal scores */
    bool broken;    /* some scores are infinities or NaN */
    uint32_t stops; /* one text in `stops` ends by itself; 0: no text does */
};

static uint64_t hash(const struct world *w, uint32_t item, const int32_t *token, uint32_t n)
{
    uint64_t h = mix(w->seed + item);
    for (uint32_t i = 0; i < n; i++)
        h = mix(h ^ (uint64_t)(token[i] + 1));
    return h;
}

static void score(void *ctx, uint32_t item, const int32_t *token, uint32_t n, float *out)
{
    const struct world *w = ctx;
    uint64_t h = hash(w, item, token, n);
    for (uint32_t v = 0; v < w->vocab; v++) {
        uint64_t x = mix(h + v);
        out[v] = w->coarse ? -0.5f * (float)(x % 6) : -8 * (float)(x >> 40) / (float)(1 << 24);
        if (w->broken && (x >> 8) % 8 == 0) out[v] = (x >> 12) % 3 ? -INFINITY : NAN;
    }
}

static int why(const struct world *w, uint32_t item, const int32_t *token, uint32_t n)
{
    if ((uint32_t)token[n - 1] < w->n_eos) return KVIK_FINISH_EOS;
    if (n >= w->limit) return KVIK_FINISH_LENGTH;
    if (w->stops && hash(w, item, token, n) % w->stops == 1) return KVIK_FINISH_STOP;
    return -1;
}

static bool ends(void *ctx, uint32_t item, const int32_t *token, uint32_t n)
{
    return why(ctx, item, token, n) >= 0;
}

/* Runs the search of one prompt by itself, as kvik does. */
static struct beam_search *search(const struct world *w, const struct beam_rules *r, uint32_t item)
{
    static const int32_t prompt[3] = {7, 7, 7};
    struct beam_search *b;
    float lp[64];
    int32_t text[PLAIN_NEW + 1];
    bool running = true;
    assert_int_equal(beam_new(r, prompt, countof(prompt), &b), 0);
    while (running) {
        uint32_t len = beam_length(b), n;
        assert_true(len < r->limit);
        for (uint32_t i = 0; i < r->beams; i++) {
            assert_memory_equal(beam_ids(b, i), prompt, sizeof prompt);
            score((void *)(uintptr_t)w, item, beam_ids(b, i) + countof(prompt), len, lp);
            beam_offer(b, i, lp);
        }
        struct beam_candidate *c = beam_rank(b, &n);
        for (uint32_t i = 0; i < n; i++) {
            memcpy(text, beam_ids(b, c[i].beam) + countof(prompt), len * sizeof *text);
            text[len] = c[i].token;
            c[i].ends = why(w, item, text, len + 1);
        }
        running = beam_advance(b);
    }
    return b;
}

static void same(const struct world *w, const struct plain *p, const struct beam_search *b,
                 uint32_t beams, uint32_t item)
{
    for (uint32_t i = 0; i < beams; i++) {
        const struct plain_line *want = &p->done[i];
        const struct beam_done *got = beam_best(b, i);
        assert_int_equal(want->finished, got->real);
        if (!got->real) continue;
        assert_true(want->score == got->score);
        assert_int_equal(want->n, got->n);
        assert_memory_equal(want->token, got->token, got->n * sizeof *got->token);
        assert_memory_equal(want->beam, got->beam, got->n * sizeof *got->beam);
        assert_int_equal(got->ends, why(w, item, got->token, got->n));
    }
}

static void against_plain(void **state)
{
    (void)state;
    static const double penalty[] = {1, 0, -1, 2, 0.5, -0.3};
    static struct plain plain[3];
    uint32_t runs = getenv("KVIK_TEST_SHORT") ? 3000 : 20000, finished = 0, early = 0;
    for (uint32_t run = 0; run < runs; run++) {
        uint64_t x = mix(run + 1);
        struct world w = {.seed = x,
                          .vocab = 5 + (x >> 4) % 20,
                          .n_eos = (x >> 12) % 4,
                          .limit = 1 + (x >> 16) % 10,
                          .coarse = (x >> 20) % 3 == 0,
                          .broken = (x >> 24) % 4 == 0,
                          .stops = (x >> 28) % 3 == 0 ? 9 : 0};
        uint32_t n = 1 + (x >> 32) % countof(plain), longest = 0;
        struct plain_rules rules = {.r = {.beams = 2 + (x >> 36) % 5,
                                          .vocab = w.vocab,
                                          .n_eos = w.n_eos,
                                          .limit = w.limit,
                                          .length_penalty = penalty[(x >> 40) % countof(penalty)],
                                          .early = (enum kvik_early)((x >> 48) % 3)},
                                    .score = score,
                                    .ends = ends,
                                    .ctx = &w};
        uint32_t steps = plain_search(&rules, plain, n);
        for (uint32_t i = 0; i < n; i++) {
            struct beam_search *b = search(&w, &rules.r, i);
            same(&w, &plain[i], b, rules.r.beams, i);
            longest = MAX(longest, beam_length(b));
            early += beam_length(b) < w.limit;
            finished += beam_best(b, 0)->ends != KVIK_FINISH_LENGTH;
            beam_drop(b);
        }
        assert_int_equal(longest, steps);
    }
    printf("%u searches, %u ended before the limit, %u with an end as best\n", runs, early,
           finished);
    assert_true(early > runs / 10 && finished > runs / 10);
}

static void log_softmax(void **state)
{
    (void)state;
    float v[5] = {1, 2, 3, -INFINITY, NAN}, inf[3] = {1, INFINITY, INFINITY}, none[2] = {NAN, NAN};
    double sum = 0;
    beam_log_softmax(v, 5);
    for (int i = 0; i < 3; i++)
        sum += exp((double)v[i]);
    assert_true(fabs(sum - 1) < 1e-6);
    assert_true(fabs((double)v[2] - v[1] - 1) < 1e-6);
    assert_true(v[3] == -INFINITY && v[4] == -INFINITY);
    beam_log_softmax(inf, 3);
    assert_true(inf[0] == -INFINITY && inf[1] == inf[2]);
    assert_true(fabs((double)inf[1] + log(2)) < 1e-6);
    beam_log_softmax(none, 2);
    assert_true(none[0] == -INFINITY && none[1] == -INFINITY);
}

static void settings(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int code;
        const char *says;
    } row[] = {
        {"{\"num_beams\": 4, \"num_return_sequences\": 4}", 0, ""},
        {"{\"num_return_sequences\": 3, \"do_sample\": true}", 0, ""},
        {"{\"num_beams\": 2, \"num_return_sequences\": 3}", ERR_ARG,
         "3, more than num_beams, which is 2"},
        {"{\"num_return_sequences\": 3}", ERR_ARG, "num_return_sequences is 3, and greedy"},
        {"{\"num_beams\": 2, \"do_sample\": true}", 0, ""},
    };
    for (size_t i = 0; i < countof(row); i++) {
        kvik_generation g;
        gen_defaults(&g);
        assert_int_equal(kvik_generation_set(&g, row[i].json), 0);
        assert_int_equal(gen_validate(&g), row[i].code);
        if (row[i].code) assert_non_null(strstr(err_last(), row[i].says));
        kvik_generation_done(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_plain),
                                       cmocka_unit_test(log_softmax), cmocka_unit_test(settings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
