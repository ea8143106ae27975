/* test_sampler.c - kvik_sample against kvik_generate: over many sets of options, rows, masks and callbacks it chooses the
 * same tokens from the same logits, with the same processed scores, bit for bit. Then a loop of a program's own, hostile
 * arguments, allocation failures, and no allocation for a token. */
#include "base/base.h"
#include "kvik_compat.h"
#include "kvik_loop.h"
#include "models.h"
#include "testing.h"

#include <math.h>

enum { VOCAB = 384, PROMPT = 10, NEW = 12 };
static const char path[] = "tests/golden/models/llama-mha";
static const int32_t ids[PROMPT] = {42, 43, 44, 45, 42, 43, 48, 57, 14, 62};
static kvik_model *m;
static kvik_cache *c;

static int need(int e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
    return e;
}

static int setup(void **state)
{
    (void)state;
    kvik_cache_config config = {.size = sizeof config, .max_sequences = 8, .max_cache_len = 64};
    need(kvik_model_open(path, &m));
    need(kvik_cache_open(m, &config, &c));
    assert_int_equal(kvik_model_vocab(m), VOCAB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kvik_cache_close(c);
    kvik_model_close(m);
    return 0;
}

static const char *const sets[] = {
    "{}",
    "{\"do_sample\": true}",
    "{\"do_sample\": true, \"seed\": 7}",
    "{\"do_sample\": true, \"seed\": 9223372036854775807}",
    "{\"do_sample\": true, \"temperature\": 0.3}",
    "{\"do_sample\": true, \"temperature\": 3.5, \"top_k\": 0}",
    "{\"do_sample\": true, \"top_k\": 1}",
    "{\"do_sample\": true, \"top_k\": 5}",
    "{\"do_sample\": true, \"top_k\": 0, \"top_p\": 0.4}",
    "{\"do_sample\": true, \"top_k\": 0, \"min_p\": 0.3}",
    "{\"do_sample\": true, \"top_k\": 0, \"typical_p\": 0.6}",
    "{\"do_sample\": true, \"top_k\": 0, \"top_h\": 0.5}",
    "{\"do_sample\": true, \"top_k\": 0, \"epsilon_cutoff\": 0.004}",
    "{\"do_sample\": true, \"top_k\": 0, \"eta_cutoff\": 0.004}",
    "{\"do_sample\": true, \"top_k\": 0, \"top_n_sigma\": 1.5}",
    "{\"do_sample\": true, \"xtc_probability\": 0.5, \"xtc_threshold\": 0.02, \"seed\": 5}",
    "{\"repetition_penalty\": 1.7}",
    "{\"repetition_penalty\": 0.6}",
    "{\"encoder_repetition_penalty\": 1.4}",
    "{\"no_repeat_ngram_size\": 2}",
    "{\"encoder_no_repeat_ngram_size\": 2}",
    "{\"bad_words_ids\": [[5], [7, 8], [48, 57]]}",
    "{\"sequence_bias\": [[[9], 4.0], [[62, 11], 30.0], [[11, 12], -3.0]]}",
    "{\"suppress_tokens\": [1, 2, 3], \"begin_suppress_tokens\": [4, 5]}",
    "{\"min_new_tokens\": 6, \"eos_token_id\": [3, 4, 5, 6, 7, 8]}",
    "{\"min_length\": 15, \"eos_token_id\": 3}",
    "{\"forced_bos_token_id\": 17}",
    "{\"forced_eos_token_id\": 23}",
    "{\"exponential_decay_length_penalty\": [4, 1.5], \"eos_token_id\": 3}",
    "{\"renormalize_logits\": true, \"remove_invalid_values\": true, \"top_p\": 0.8, \"do_sample\": true}",
    "{\"do_sample\": true, \"temperature\": 0.7, \"top_p\": 0.9, \"repetition_penalty\": 1.1, \"seed\": 3}",
    "{\"do_sample\": true, \"temperature\": 1.3, \"top_k\": 40, \"top_p\": 0.95, \"min_p\": 0.02, \"typical_p\": 0.9, "
    "\"repetition_penalty\": 1.2, \"no_repeat_ngram_size\": 3, \"bad_words_ids\": [[9, 10]], \"seed\": 99}",
};

static void options(kvik_generation *g, const char *set)
{
    need(kvik_generation_init(g, m));
    need(kvik_generation_set(g, "{\"output_logits\": true, \"output_scores\": true, "
                                "\"max_new_tokens\": 12, \"eos_token_id\": 1}"));
    need(kvik_generation_set(g, set));
}

/* A processor of the program: halves what the text has already. */
static bool halve(void *ctx, uint32_t row, const int32_t *text, size_t n, float *scores,
                  uint32_t vocab)
{
    uint32_t *calls = ctx;
    assert_true(n >= PROMPT - 2 && vocab == VOCAB);
    ++*calls;
    scores[text[n - 1]] -= 1 + (float)row;
    return true;
}

/* Compares every choice of a call, over all rows, with the sampler's. */
static void compare(kvik_cache *of, uint32_t vocab, const kvik_generation *g, uint32_t n_prompts,
                    bool masked, const kvik_hooks *hooks)
{
    static const uint8_t mask[PROMPT] = {0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    kvik_prompt p[3];
    kvik_result *r;
    kvik_sampler *s;
    float *scores = malloc(vocab * sizeof *scores);
    assert_non_null(scores);
    for (uint32_t i = 0; i < n_prompts; i++)
        p[i] = (kvik_prompt){
            .size = sizeof *p, .ids = ids, .n = PROMPT - i, .attention_mask = masked ? mask : NULL};
    need(kvik_generate(of, g, p, n_prompts, hooks, &r));
    need(kvik_sampler_open(g, vocab, hooks, &s));
    uint64_t calls = mem_calls();
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const kvik_row *row = r->row[i];
        size_t skip = masked ? 2 : 0;
        /* The ids of a result include masked columns; a text has none. */
        int32_t text[PROMPT + NEW];
        size_t n_prompt = row->n_prompt - skip;
        memcpy(text, row->ids + skip, (row->n - skip) * sizeof *text);
        for (size_t at = 0; at < row->n - row->n_prompt; at++) {
            size_t place = (at * r->logit_rows + i) * vocab;
            int32_t id = -1;
            kvik_choice choice = {.size = sizeof choice,
                                  .logits = r->logits + place,
                                  .ids = text,
                                  .n = n_prompt + at,
                                  .n_prompt = n_prompt,
                                  .masked = skip,
                                  .row = i,
                                  .scores = scores};
            int end = need(kvik_sample(s, &choice, &id));
            assert_int_equal(id, row->ids[row->n_prompt + at]);
            assert_memory_equal(scores, r->scores + place, vocab * sizeof *scores);
            bool last = row->n_prompt + at + 1 == row->n;
            assert_int_equal(end, last && row->finish == KVIK_FINISH_EOS);
        }
    }
    assert_int_equal(mem_calls(), calls);
    kvik_sampler_close(s);
    kvik_result_free(r);
    free(scores);
}

static void test_equal(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(sets); i++) {
        kvik_generation g;
        options(&g, sets[i]);
        for (uint32_t n = 1; n <= 3; n++)
            compare(c, VOCAB, &g, n, false, NULL);
        compare(c, VOCAB, &g, 1, true, NULL);
        g.num_return_sequences = g.do_sample ? 3 : 1;
        compare(c, VOCAB, &g, 1, false, NULL);
        kvik_generation_done(&g);
    }
}

/* Every golden model, with the options that look at the text and at the whole vocabulary. */
static void test_models(void **state)
{
    (void)state;
    const char *name[GOLDEN_MOST];
    uint32_t n = golden_models(name);
    assert_true(n > 20);
    for (uint32_t i = 0; i < n; i++) {
        char where[256];
        kvik_model *model;
        kvik_cache *cache;
        kvik_generation g;
        kvik_cache_config config = {.size = sizeof config, .max_sequences = 4, .max_cache_len = 40};
        snprintf(where, sizeof where, GOLDEN_MODELS "/%s", name[i]);
        need(kvik_model_open(where, &model));
        need(kvik_cache_open(model, &config, &cache));
        for (size_t k = 0; k < 2; k++) {
            options(&g, sets[k ? countof(sets) - 1 : 14]);
            compare(cache, kvik_model_vocab(model), &g, 2, false, NULL);
            kvik_generation_done(&g);
        }
        kvik_cache_close(cache);
        kvik_model_close(model);
    }
}

static void test_hook(void **state)
{
    (void)state;
    uint32_t calls = 0;
    kvik_hooks hooks = {.size = sizeof hooks, .logits_processor = halve, .ctx = &calls};
    for (size_t i = 0; i < countof(sets); i++) {
        kvik_generation g;
        options(&g, sets[i]);
        compare(c, VOCAB, &g, 2, false, &hooks);
        kvik_generation_done(&g);
    }
    assert_true(calls > 2 * 2 * 12);
}

/* The longest length: by max_length of the options, by the choice, and by the library's default of new tokens. */
static void test_length(void **state)
{
    (void)state;
    float logits[VOCAB] = {0};
    const struct {
        uint32_t max_new, max_length;
        size_t own, forced_at;
    } row[] = {{12, 0, 0, 11}, {0, 14, 0, 3}, {0, 0, 0, 19}, {12, 0, 13, 2}, {12, 14, 0, 11}};
    for (size_t i = 0; i < countof(row); i++) {
        kvik_generation g;
        kvik_sampler *s;
        int32_t text[PROMPT + 32];
        options(&g, "{\"forced_eos_token_id\": 23}");
        g.max_new_tokens = row[i].max_new;
        g.max_length = row[i].max_length;
        need(kvik_sampler_open(&g, VOCAB, NULL, &s));
        memcpy(text, ids, sizeof ids);
        for (size_t at = 0; at <= row[i].forced_at; at++) {
            kvik_choice choice = {.size = sizeof choice,
                                  .logits = logits,
                                  .ids = text,
                                  .n = PROMPT + at,
                                  .n_prompt = PROMPT,
                                  .max_length = row[i].own};
            need(kvik_sample(s, &choice, &text[PROMPT + at]));
            assert_int_equal(text[PROMPT + at], at == row[i].forced_at ? 23 : 0);
        }
        kvik_sampler_close(s);
        kvik_generation_done(&g);
    }
}

/* A loop of a program's own: forward, sample, forward; the text is that of kvik_generate. */
static void test_loop(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(sets); i++) {
        kvik_generation g;
        kvik_result *r;
        kvik_sampler *s;
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = PROMPT};
        int32_t text[PROMPT + NEW];
        float logits[VOCAB];
        size_t n = PROMPT, read = 0;
        int end = 0;
        options(&g, sets[i]);
        need(kvik_generate(c, &g, &p, 1, NULL, &r));
        need(kvik_sampler_open(&g, VOCAB, NULL, &s));
        kvik_seq seq;
        need(kvik_cache_new(c, &seq));
        memcpy(text, ids, sizeof ids);
        while (!end && n < PROMPT + NEW) {
            kvik_span span = {
                .size = sizeof span, .seq = seq, .n = (uint32_t)(n - read), .ids = text + read};
            need(kvik_forward(c, &span, 1, false, logits));
            read = n;
            kvik_choice choice = {
                .size = sizeof choice, .logits = logits, .ids = text, .n = n, .n_prompt = PROMPT};
            end = need(kvik_sample(s, &choice, &text[n]));
            n++;
        }
        assert_int_equal(n, r->row[0]->n);
        assert_memory_equal(text, r->row[0]->ids, n * sizeof *text);
        need(kvik_cache_drop(c, seq));
        kvik_sampler_close(s);
        kvik_result_free(r);
        kvik_generation_done(&g);
    }
}

static void refused(int e, int code, const char *word)
{
    if (e != code || !strstr(kvik_last_error(), word))
        fail_msg("%d, %s, not %d and \"%s\"", e, kvik_last_error(), code, word);
}

static void test_open_refused(void **state)
{
    (void)state;
    static const struct {
        const char *set, *word;
        int code;
    } bad[] = {
        {"{\"num_beams\": 3}", "num_beams=3", KVIK_UNSUPPORTED},
        {"{\"penalty_alpha\": 0.5, \"top_k\": 4}", "penalty_alpha", KVIK_UNSUPPORTED},
        {"{\"guidance_scale\": 2.0}", "guidance_scale", KVIK_UNSUPPORTED},
        {"{\"do_sample\": true, \"temperature\": 0.0}", "temperature", KVIK_ARG},
        {"{\"bad_words_ids\": [[384]]}", "384", KVIK_ARG},
    };
    kvik_sampler *s = (kvik_sampler *)(uintptr_t)1;
    kvik_generation g;
    for (size_t i = 0; i < countof(bad); i++) {
        options(&g, bad[i].set);
        refused(kvik_sampler_open(&g, VOCAB, NULL, &s), bad[i].code, bad[i].word);
        kvik_generation_done(&g);
    }
    options(&g, "{}");
    refused(kvik_sampler_open(NULL, VOCAB, NULL, &s), KVIK_ARG, "options");
    refused(kvik_sampler_open(&g, VOCAB, NULL, NULL), KVIK_ARG, "options");
    refused(kvik_sampler_open(&g, 0, NULL, &s), KVIK_ARG, "vocabulary of 0");
    refused(kvik_sampler_open(&g, UINT32_MAX, NULL, &s), KVIK_ARG, "vocabulary of");
    refused(kvik_sampler_open(&g, VOCAB, &(kvik_hooks){0}, &s), KVIK_ARG, "kvik_hooks.size");
    refused(kvik_sampler_open(&(kvik_generation){0}, VOCAB, NULL, &s), KVIK_ARG,
            "kvik_generation.size");
    assert_ptr_equal(s, (kvik_sampler *)(uintptr_t)1);
    need(kvik_sampler_open(&g, 1, NULL, &s));
    kvik_sampler_close(s);
    kvik_sampler_close(NULL);
    kvik_generation_done(&g);
}

static bool refuse(void *ctx, uint32_t row, const int32_t *text, size_t n, float *scores,
                   uint32_t vocab)
{
    (void)ctx, (void)row, (void)text, (void)n, (void)scores, (void)vocab;
    return false;
}

static void test_sample_refused(void **state)
{
    (void)state;
    float logits[VOCAB] = {0};
    int32_t id = 77, text[PROMPT];
    kvik_generation g;
    kvik_sampler *s;
    options(&g, "{\"repetition_penalty\": 1.2, \"no_repeat_ngram_size\": 2}");
    need(kvik_sampler_open(&g, VOCAB, NULL, &s));
    memcpy(text, ids, sizeof ids);
    const kvik_choice good = {
        .size = sizeof good, .logits = logits, .ids = text, .n = PROMPT, .n_prompt = PROMPT};
    kvik_choice bad = good;
    refused(kvik_sample(NULL, &good, &id), KVIK_ARG, "sampler");
    refused(kvik_sample(s, NULL, &id), KVIK_ARG, "kvik_choice");
    refused(kvik_sample(s, &good, NULL), KVIK_ARG, "token");
    bad.logits = NULL;
    refused(kvik_sample(s, &bad, &id), KVIK_ARG, "logits");
    bad = good, bad.ids = NULL;
    refused(kvik_sample(s, &bad, &id), KVIK_ARG, "ids");
    bad = good, bad.n_prompt = PROMPT + 1;
    refused(kvik_sample(s, &bad, &id), KVIK_ARG, "n_prompt");
    bad = good, bad.masked = SIZE_MAX;
    refused(kvik_sample(s, &bad, &id), KVIK_ARG, "masked");
    static const size_t sizes[] = {0, sizeof(size_t), (size_t)1 << 40, SIZE_MAX};
    for (size_t i = 0; i < countof(sizes); i++) {
        bad = good, bad.size = sizes[i];
        refused(kvik_sample(s, &bad, &id), KVIK_ARG, "kvik_choice.size");
    }
    static const int32_t wrong[] = {-1, VOCAB, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < countof(wrong); i++) {
        text[4] = wrong[i];
        refused(kvik_sample(s, &good, &id), KVIK_ARG, "outside the vocabulary");
    }
    assert_int_equal(id, 77);
    kvik_sampler_close(s);
    g.max_new_tokens = 0;
    g.max_length = PROMPT;
    text[4] = 3;
    need(kvik_sampler_open(&g, VOCAB, NULL, &s));
    refused(kvik_sample(s, &good, &id), KVIK_ARG, "max_length");
    kvik_sampler_close(s);
    g.max_length = PROMPT + 9;
    kvik_hooks hooks = {.size = sizeof hooks, .logits_processor = refuse};
    need(kvik_sampler_open(&g, VOCAB, &hooks, &s));
    refused(kvik_sample(s, &good, &id), KVIK_CANCELLED, "logits_processor");
    kvik_sampler_close(s);
    assert_int_equal(id, 77);
    kvik_generation_done(&g);
}

/* Logits that no model should give: a token is chosen all the same, inside the vocabulary, and never one that is NaN
 * where another is left. */
static void test_hostile_logits(void **state)
{
    (void)state;
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f, 0.0f};
    for (size_t i = 0; i < countof(sets); i++) {
        kvik_generation g;
        kvik_sampler *s;
        options(&g, sets[i]);
        need(kvik_sampler_open(&g, VOCAB, NULL, &s));
        for (uint32_t k = 0; k < 2 * countof(odd); k++) {
            float logits[VOCAB];
            int32_t id = -1;
            for (uint32_t t = 0; t < VOCAB; t++)
                logits[t] = k < countof(odd) ? odd[k] : odd[(t * 7 + k) % countof(odd)];
            kvik_choice choice = {
                .size = sizeof choice, .logits = logits, .ids = ids, .n = PROMPT, .n_prompt = 4};
            need(kvik_sample(s, &choice, &id));
            assert_true(id >= 0 && id < VOCAB);
        }
        /* Nothing at all: an empty text, and one logit that is a number. */
        float logits[VOCAB];
        int32_t id = -1;
        for (uint32_t t = 0; t < VOCAB; t++)
            logits[t] = NAN;
        logits[300] = -5;
        kvik_choice choice = {.size = sizeof choice, .logits = logits};
        need(kvik_sample(s, &choice, &id));
        if (!strstr(sets[i], "forced") && !strstr(sets[i], "remove_invalid") &&
            !strstr(sets[i], "decay"))
            assert_int_equal(id, 300);
        kvik_sampler_close(s);
        kvik_generation_done(&g);
    }
}

/* Filters leave as many tokens as a choice says, and never more than there are. */
static void test_kept(void **state)
{
    (void)state;
    static const char *const filters[] = {
        "{\"do_sample\": true, \"top_k\": 1}", "{\"do_sample\": true, \"top_k\": 0, \"top_p\": 0}",
        "{\"do_sample\": true, \"top_k\": 0, \"min_p\": 1}",
        "{\"do_sample\": true, \"top_k\": 0, \"epsilon_cutoff\": 0.9}"};
    static const size_t least[] = {0, 1, 3, VOCAB, SIZE_MAX};
    for (size_t i = 0; i < countof(filters); i++) {
        kvik_generation g;
        kvik_sampler *s;
        options(&g, filters[i]);
        need(kvik_sampler_open(&g, VOCAB, NULL, &s));
        for (size_t k = 0; k < countof(least); k++) {
            float logits[VOCAB], scores[VOCAB];
            size_t kept = 0;
            int32_t id;
            for (uint32_t t = 0; t < VOCAB; t++)
                logits[t] = (float)t * 0.01f;
            kvik_choice choice = {.size = sizeof choice,
                                  .logits = logits,
                                  .scores = scores,
                                  .min_tokens_to_keep = least[k]};
            need(kvik_sample(s, &choice, &id));
            for (uint32_t t = 0; t < VOCAB; t++)
                kept += scores[t] > -INFINITY;
            assert_int_equal(kept, least[k] ? MIN(least[k], (size_t)VOCAB) : 1);
        }
        kvik_sampler_close(s);
        kvik_generation_done(&g);
    }
}

static void test_allocations(void **state)
{
    (void)state;
    kvik_generation g;
    kvik_sampler *s;
    options(&g, sets[countof(sets) - 1]);
    for (int64_t k = 0;; k++) {
        s = NULL;
        mem_fail_at(k, false);
        int e = kvik_sampler_open(&g, VOCAB, NULL, &s);
        mem_fail_at(-1, false);
        if (e >= 0) break;
        assert_int_equal(e, KVIK_NOMEM);
        assert_null(s);
        assert_true(k < 50);
    }
    kvik_sampler_close(s);
    kvik_generation_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),          cmocka_unit_test(test_hook),
        cmocka_unit_test(test_models),         cmocka_unit_test(test_length),
        cmocka_unit_test(test_loop),           cmocka_unit_test(test_open_refused),
        cmocka_unit_test(test_sample_refused), cmocka_unit_test(test_hostile_logits),
        cmocka_unit_test(test_kept),           cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
