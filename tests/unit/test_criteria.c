/* test_criteria.c - what ends a text and which reason is reported, and options that steer a whole
 * run rather than one row of scores: max_time, a caller's criteria, several end tokens, a forced
 * end at the length, no end before the least length, lengths given twice. Each with the plain loop,
 * with beams, alone and in a batch. */
#include "base/base.h"
#include "kvik_compat.h"
#include "testing.h"

#include <math.h>

#define TINY "tests/golden/models/llama-mha"

static kvik_model *m;
static kvik_cache *cache;
static const int32_t prompt[] = {120, 153, 322, 296, 223, 146, 269};

static kvik_result *generate_with(const char *json, const kvik_prompt *p, uint32_t n,
                                  const kvik_hooks *hooks)
{
    kvik_generation g;
    kvik_result *r;
    assert_int_equal(kvik_generation_init(&g, m), 0);
    if (kvik_generation_set(&g, json) < 0) fail_msg("%s", kvik_last_error());
    if (kvik_generate(cache, &g, p, n, hooks, &r) < 0) fail_msg("%s: %s", json, kvik_last_error());
    kvik_generation_done(&g);
    return r;
}

static kvik_result *generate(const char *json)
{
    kvik_prompt p = {.size = sizeof p, .ids = prompt, .n = countof(prompt)};
    return generate_with(json, &p, 1, NULL);
}

/* Returns the tokens of a greedy run of 16 tokens without an end. */
static const int32_t *plain(void)
{
    static int32_t ids[16];
    kvik_result *r = generate("{\"max_new_tokens\": 16, \"eos_token_id\": []}");
    assert_int_equal(r->row[0]->n, countof(prompt) + 16);
    memcpy(ids, r->row[0]->ids + countof(prompt), sizeof ids);
    kvik_result_free(r);
    return ids;
}

static void max_time(void **state)
{
    (void)state;
    kvik_result *r = generate("{\"max_new_tokens\": 16, \"eos_token_id\": [], \"max_time\": 1e-9}");
    assert_int_equal(r->row[0]->n, countof(prompt) + 1); /* the time is checked after each token */
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_TIME);
    assert_string_equal(kvik_finish_name(r->row[0]->finish), "time");
    kvik_result_free(r);
    r = generate("{\"max_new_tokens\": 16, \"eos_token_id\": [], \"max_time\": 1000}");
    assert_int_equal(r->row[0]->n, countof(prompt) + 16);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_LENGTH);
    kvik_result_free(r);
    r = generate(
        "{\"max_new_tokens\": 16, \"eos_token_id\": [], \"max_time\": 1e-9, \"num_beams\": 3}");
    assert_int_equal(r->row[0]->n, countof(prompt) + 1);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_TIME);
    kvik_result_free(r);
}

/* The reported reason is the first of: end-of-sequence, stop string, length, the caller, time. */
static bool always(void *ctx, uint32_t row, const int32_t *ids, size_t n)
{
    (void)row, (void)ids, (void)n;
    ++*(int *)ctx;
    return true;
}

static void reasons(void **state)
{
    (void)state;
    const int32_t *ids = plain();
    kvik_prompt p = {.size = sizeof p, .ids = prompt, .n = countof(prompt)};
    int calls = 0;
    kvik_hooks hooks = {.size = sizeof hooks, .stopping_criteria = always, .ctx = &calls};
    char json[160];
    snprintf(json, sizeof json,
             "{\"max_new_tokens\": 1, \"eos_token_id\": [%d, 3], \"max_time\": 1e-9}", ids[0]);
    kvik_result *r = generate_with(json, &p, 1, &hooks);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_EOS);
    kvik_result_free(r);
    r = generate_with("{\"max_new_tokens\": 1, \"eos_token_id\": [], \"max_time\": 1e-9}", &p, 1,
                      &hooks);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_LENGTH);
    kvik_result_free(r);
    r = generate_with("{\"max_new_tokens\": 2, \"eos_token_id\": [], \"max_time\": 1e-9}", &p, 1,
                      &hooks);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_CRITERIA);
    assert_int_equal(r->row[0]->n, countof(prompt) + 1);
    assert_int_equal(calls, 1);
    kvik_result_free(r);
}

struct seen {
    uint32_t rows[8], processed, judged; /* of each call */
    size_t longest;
    int32_t banned;
    bool refuse;
};

/* Bans a token in the last row alone. */
static bool see_scores(void *ctx, const kvik_texts *t, float *scores, uint32_t vocab)
{
    struct seen *s = ctx;
    s->rows[s->processed++ % 8] = t->rows;
    for (uint32_t i = 0; i < t->rows; i++) {
        assert_true(t->over[i] || t->n[i] >= countof(prompt));
        if (t->over[i]) assert_true(scores[(size_t)i * vocab] == 0);
    }
    scores[(size_t)(t->rows - 1) * vocab + (size_t)s->banned] = -INFINITY;
    return !s->refuse;
}

/* Ends the first text behind its second new token. */
static void see_texts(void *ctx, const kvik_texts *t, bool *ends)
{
    struct seen *s = ctx;
    s->judged++;
    for (uint32_t i = 0; i < t->rows; i++) {
        assert_false(ends[i]);
        s->longest = MAX(s->longest, t->n[i]);
    }
    ends[0] = t->n[0] >= countof(prompt) + 2;
    assert_true(t->scores == NULL || t->steps == s->judged);
}

/* Callbacks that see all rows: once in a step, and each row has what they say of it. */
static void together(void **state)
{
    (void)state;
    const int32_t *ids = plain();
    kvik_prompt p[2] = {{.size = sizeof *p, .ids = prompt, .n = countof(prompt)}};
    p[1] = p[0];
    struct seen seen = {.banned = ids[0]};
    kvik_together both = {
        .size = sizeof both, .logits_processor = see_scores, .stopping_criteria = see_texts};
    kvik_hooks hooks = {.size = sizeof hooks, .ctx = &seen, .together = &both};
    kvik_result *r = generate_with(
        "{\"max_new_tokens\": 4, \"eos_token_id\": [], \"output_scores\": true}", p, 2, &hooks);
    assert_int_equal(seen.processed, 4);
    assert_int_equal(seen.judged, 4); /* the last token as well */
    assert_int_equal(seen.rows[3], 2);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_CRITERIA);
    assert_int_equal(r->row[0]->n, countof(prompt) + 2);
    assert_memory_equal(r->row[0]->ids + countof(prompt), ids, 2 * sizeof *ids);
    assert_int_equal(r->row[1]->n, countof(prompt) + 4);
    for (uint32_t i = countof(prompt); i < r->row[1]->n; i++)
        assert_int_not_equal(r->row[1]->ids[i], ids[0]);
    kvik_result_free(r);
    seen = (struct seen){.banned = ids[0]};
    r = generate_with("{\"max_new_tokens\": 3, \"eos_token_id\": [], \"num_beams\": 2}", p, 2,
                      &hooks);
    assert_int_equal(seen.processed, 3);
    assert_int_equal(seen.rows[0], 4); /* prompts times beams */
    assert_int_equal(seen.judged, 3);
    kvik_result_free(r);
    seen = (struct seen){.banned = ids[0]};
    r = generate_with("{\"max_new_tokens\": 3, \"eos_token_id\": [], \"num_beams\": 4, "
                      "\"num_beam_groups\": 2, \"diversity_penalty\": 1.0}",
                      p, 2, &hooks);
    assert_int_equal(seen.processed, 3 * 2 * 2); /* a group of a prompt each */
    assert_int_equal(seen.rows[0], 2);
    kvik_result_free(r);
    seen = (struct seen){.refuse = true};
    kvik_generation g;
    assert_int_equal(kvik_generation_init(&g, m), 0);
    assert_int_equal(kvik_generate(cache, &g, p, 2, &hooks, &r), KVIK_CANCELLED);
    both.size = 0;
    assert_int_equal(kvik_generate(cache, &g, p, 2, &hooks, &r), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "kvik_together"));
    both.size = sizeof both - 4; /* would cut the last callback */
    assert_int_equal(kvik_generate(cache, &g, p, 2, &hooks, &r), KVIK_ARG);
    kvik_generation_done(&g);
}

static void forced_ends(void **state)
{
    (void)state;
    const int32_t *ids = plain();
    kvik_result *r =
        generate("{\"max_new_tokens\": 5, \"eos_token_id\": [], \"forced_eos_token_id\": [9, 8]}");
    assert_int_equal(r->row[0]->n, countof(prompt) + 5);
    assert_memory_equal(r->row[0]->ids + countof(prompt), ids, 4 * sizeof *ids);
    /* Of equal scores the lowest id wins. */
    assert_int_equal(r->row[0]->ids[countof(prompt) + 4], 8);
    kvik_result_free(r);
    r = generate("{\"max_length\": 10, \"eos_token_id\": 9, \"forced_eos_token_id\": 9}");
    assert_int_equal(r->row[0]->n, 10);
    assert_int_equal(r->row[0]->ids[9], 9);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_EOS);
    kvik_result_free(r);
    r = generate("{\"max_new_tokens\": 5, \"eos_token_id\": 9, \"forced_eos_token_id\": 9, "
                 "\"num_beams\": 3, \"num_return_sequences\": 3}");
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(r->row[i]->ids[r->row[i]->n - 1], 9);
    kvik_result_free(r);
}

static void least_lengths(void **state)
{
    (void)state;
    const int32_t *ids = plain();
    static const struct {
        const char *option;
        size_t least; /* the least number of new tokens before the end */
    } rows[] = {{"\"min_new_tokens\": 6", 6}, {"\"min_length\": 12", 5}, {"\"min_length\": 3", 0}};
    for (size_t i = 0; i < countof(rows); i++) {
        char json[160];
        snprintf(json, sizeof json, "{\"max_new_tokens\": 16, \"eos_token_id\": [%d, %d, %d], %s}",
                 ids[0], ids[1], ids[4], rows[i].option);
        kvik_result *r = generate(json);
        size_t n = r->row[0]->n - countof(prompt);
        for (size_t k = 0; k < n; k++) {
            int32_t id = r->row[0]->ids[countof(prompt) + k];
            if (k < rows[i].least) assert_true(id != ids[0] && id != ids[1] && id != ids[4]);
        }
        if (!rows[i].least) assert_int_equal(n, 1);
        kvik_result_free(r);
    }
    /* Masked columns count, as in Transformers: 4 masked columns and 7 tokens are 11. */
    static const int32_t padded[] = {0, 0, 0, 0, 120, 153, 322, 296, 223, 146, 269};
    static const uint8_t mask[] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
    kvik_prompt p = {.size = sizeof p, .ids = padded, .n = countof(padded), .attention_mask = mask};
    char json[160];
    snprintf(json, sizeof json, "{\"max_new_tokens\": 4, \"eos_token_id\": %d, \"min_length\": 11}",
             ids[0]);
    kvik_result *r = generate_with(json, &p, 1, NULL);
    assert_int_equal(r->row[0]->n, countof(padded) + 1);
    kvik_result_free(r);
}

/* With both lengths given, the number of new tokens wins; the model's own file gives neither here. */
static void both_lengths(void **state)
{
    (void)state;
    kvik_result *r = generate("{\"max_length\": 8, \"max_new_tokens\": 4, \"eos_token_id\": []}");
    assert_int_equal(r->row[0]->n, countof(prompt) + 4);
    kvik_result_free(r);
    r = generate("{\"max_length\": 9, \"eos_token_id\": []}");
    assert_int_equal(r->row[0]->n, 9);
    kvik_result_free(r);
}

/* A batch row ends by itself and gives the result it gives alone, under every processor that looks
 * at the text. */
static void batch_mates(void **state)
{
    (void)state;
    static const char *const options =
        "{\"max_new_tokens\": 12, \"eos_token_id\": [], \"repetition_penalty\": 1.3, "
        "\"no_repeat_ngram_size\": 2, \"encoder_repetition_penalty\": 1.1, \"bad_words_ids\": [[5], [7, 8]], "
        "\"encoder_no_repeat_ngram_size\": 3, \"suppress_tokens\": [4], \"begin_suppress_tokens\": [6], "
        "\"sequence_bias\": [[[9], 0.5]], \"forced_eos_token_id\": 3, \"renormalize_logits\": true}";
    static const int32_t other[] = {7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = prompt, .n = countof(prompt)},
                        {.size = sizeof(kvik_prompt), .ids = other, .n = countof(other)}};
    kvik_result *both = generate_with(options, p, 2, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        kvik_result *one = generate_with(options, &p[i], 1, NULL);
        assert_int_equal(one->row[0]->n, both->row[i]->n);
        assert_memory_equal(one->row[0]->ids, both->row[i]->ids,
                            one->row[0]->n * sizeof *one->row[0]->ids);
        assert_int_equal(one->row[0]->ids[one->row[0]->n - 1], 3);
        kvik_result_free(one);
    }
    kvik_result_free(both);
}

/* Speculative decoding applies the same processors and ends: the text is the same for all options. */
static void drafts(void **state)
{
    (void)state;
    static const char *const options[] = {
        "\"repetition_penalty\": 1.3",
        "\"no_repeat_ngram_size\": 2",
        "\"encoder_no_repeat_ngram_size\": 1, \"suppress_tokens\": [1, 2, 3]",
        "\"forced_eos_token_id\": 9, \"eos_token_id\": 9",
        "\"exponential_decay_length_penalty\": [3, 1.5], \"eos_token_id\": 3",
        "\"sequence_bias\": [[[7], 9.0], [[7, 8], 9.0], [[8, 7], 9.0]]",
        "\"bad_words_ids\": [[253], [8]], \"renormalize_logits\": true",
        "\"min_new_tokens\": 9, \"eos_token_id\": [7, 14, 182, 325]",
        "\"begin_suppress_tokens\": [182], \"remove_invalid_values\": true",
        "\"do_sample\": true, \"seed\": 5, \"top_k\": 0, \"typical_p\": 0.7, \"eta_cutoff\": 0.001",
        "\"do_sample\": true, \"seed\": 6, \"top_h\": 0.7, \"epsilon_cutoff\": 0.001",
    };
    static const int32_t again[] = {120, 153, 322, 296, 120, 153, 322, 296, 120, 153, 322};
    kvik_prompt p = {.size = sizeof p, .ids = again, .n = countof(again)};
    uint64_t drafted = 0;
    for (size_t i = 0; i < countof(options); i++) {
        char json[320];
        snprintf(json, sizeof json,
                 "{\"max_new_tokens\": 14, \"prompt_lookup_num_tokens\": %d, %s}", 0, options[i]);
        kvik_result *plain_one = generate_with(json, &p, 1, NULL);
        snprintf(json, sizeof json,
                 "{\"max_new_tokens\": 14, \"prompt_lookup_num_tokens\": %d, %s}", 4, options[i]);
        kvik_result *ahead = generate_with(json, &p, 1, NULL);
        if (ahead->row[0]->n != plain_one->row[0]->n ||
            memcmp(ahead->row[0]->ids, plain_one->row[0]->ids,
                   ahead->row[0]->n * sizeof *ahead->row[0]->ids) != 0)
            fail_msg("%s: another text", options[i]);
        assert_int_equal(ahead->row[0]->finish, plain_one->row[0]->finish);
        drafted += ahead->drafted;
        kvik_result_free(ahead);
        kvik_result_free(plain_one);
    }
    assert_true(drafted > 0);
}

static void vocabulary(void **state)
{
    (void)state;
    kvik_generation g;
    kvik_result *r = NULL;
    kvik_prompt p = {.size = sizeof p, .ids = prompt, .n = countof(prompt)};
    assert_int_equal(kvik_generation_init(&g, m), 0);
    assert_int_equal(kvik_generation_set(&g, "{\"bad_words_ids\": [[100000]]}"), 0);
    assert_int_equal(kvik_generate(cache, &g, &p, 1, NULL, &r), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "bad_words_ids has token id 100000"));
    assert_null(r);
    kvik_generation_done(&g);
}

/* Raw logits of a row that has ended are those of the text followed by padding, whatever other rows
 * run in the batch. The row, its sequence and the reported numbers are the same as without idle
 * logits. */
static void idle_logits(void **state)
{
    (void)state;
    int32_t text[countof(prompt) + 24];
    static const int32_t other[] = {7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    const int32_t *ids = plain();
    char json[160];
    uint32_t k = 1, fed = 0; /* ids[k]: the first token that repeats none before */
    for (bool seen = true; seen; k += seen) {
        seen = false;
        for (uint32_t i = 0; i < k; i++)
            seen |= ids[i] == ids[k];
    }
    for (int cached = 1; cached >= 0; cached--) {
        kvik_seq seq = 0;
        if (cached) assert_int_equal(kvik_cache_new(cache, &seq), 0);
        snprintf(json, sizeof json,
                 "{\"max_new_tokens\": %u, \"eos_token_id\": %d, \"pad_token_id\": 3, "
                 "\"output_logits\": true, \"use_cache\": %s}",
                 k + 4, ids[k], cached ? "true" : "false");
        kvik_prompt p[2] = {
            {.size = sizeof(kvik_prompt), .ids = prompt, .n = countof(prompt), .seq = seq},
            {.size = sizeof(kvik_prompt), .ids = other, .n = countof(other)}};
        kvik_result *r = generate_with(json, p, 2, NULL);
        assert_int_equal(r->row[0]->n, countof(prompt) + k + 1);
        assert_int_equal(r->row[1]->n, countof(other) + k + 4);
        fed = 0; /* idle logits are not counted */
        for (uint32_t i = 0; i < k + 4; i++) {
            if (i <= k) fed += cached && i ? 1 : (uint32_t)countof(prompt) + i;
            fed += cached && i ? 1 : (uint32_t)countof(other) + i;
        }
        assert_int_equal(r->computed_tokens, fed);
        if (cached) assert_int_equal(kvik_cache_length(cache, seq), countof(prompt) + k);
        memcpy(text, r->row[0]->ids, r->row[0]->n * sizeof *text);
        float *want = malloc(r->vocab * sizeof *want);
        for (uint32_t step = k + 1, n = (uint32_t)r->row[0]->n; step < k + 4; step++, n++) {
            kvik_seq s;
            kvik_span span = {.size = sizeof span, .ids = text, .n = n};
            assert_int_equal(kvik_cache_new(cache, &s), 0);
            span.seq = s;
            assert_int_equal(kvik_forward(cache, &span, 1, false, want), 0);
            assert_memory_equal(want, r->logits + (size_t)step * 2 * r->vocab,
                                r->vocab * sizeof *want);
            kvik_cache_drop(cache, s);
            text[n] = 3;
        }
        free(want);
        kvik_result_free(r);
        if (seq) kvik_cache_drop(cache, seq);
    }
}

static int setup(void **state)
{
    (void)state;
    kvik_cache_config c = {.size = sizeof c, .max_sequences = 8};
    if (kvik_model_open(TINY, &m) < 0) return -1;
    return kvik_cache_open(m, &c, &cache);
}

static int teardown(void **state)
{
    (void)state;
    kvik_cache_close(cache);
    kvik_model_close(m);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_time),      cmocka_unit_test(reasons),
        cmocka_unit_test(together),      cmocka_unit_test(forced_ends),
        cmocka_unit_test(least_lengths), cmocka_unit_test(both_lengths),
        cmocka_unit_test(batch_mates),   cmocka_unit_test(vocabulary),
        cmocka_unit_test(drafts),        cmocka_unit_test(idle_logits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
