/* test_processors.c - every logits processor against vectors recorded from Transformers: v5
 * (tests/golden/processors.*) and 4.47 (processors-v4.*). The same tokens must be removed, and the
 * other scores equal within 1e-6; no vector is skipped.
 * Then the properties that the vectors do not show: the first token, padding, ids outside the
 * vocabulary, filters over a large vocabulary against plain oracles that sort, the order of all
 * processors, no allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "generate/chain.h"

static struct file { /* one recorded file */
    json_t *json, *header;
    struct map tensors;
    const uint8_t *payload;
} file;

static void file_open(const char *name)
{
    char path[128];
    uint64_t n;
    snprintf(path, sizeof path, "tests/golden/%s.json", name);
    assert_int_equal(json_read(path, 64u << 20, &file.json), 0);
    snprintf(path, sizeof path, "tests/golden/%s.safetensors", name);
    assert_int_equal(map_open(&file.tensors, path), 0);
    memcpy(&n, file.tensors.data, 8);
    assert_true(n < file.tensors.size - 8);
    assert_int_equal(json_parse((const char *)file.tensors.data + 8, n, "header", &file.header), 0);
    file.payload = file.tensors.data + 8 + n;
}

static void file_close(void)
{
    json_decref(file.json);
    json_decref(file.header);
    map_close(&file.tensors);
}

/* [rows][vocab] f32, unaligned in the file. */
static const uint8_t *tensor(const char *name, size_t *rows, size_t *vocab)
{
    json_t *t = json_object_get(file.header, name), *shape = json_object_get(t, "shape");
    assert_string_equal(json_string_value(json_object_get(t, "dtype")), "F32");
    *rows = (size_t)json_integer_value(json_array_get(shape, 0));
    *vocab = (size_t)json_integer_value(json_array_get(shape, 1));
    return file.payload + json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
}

/* For each class of Transformers: the option that its first argument is, and its other arguments. */
static const struct {
    const char *class, *argument, *option;
} classes[] = {
    {"TemperatureLogitsWarper", "temperature", "temperature"},
    {"TopKLogitsWarper", "top_k", "top_k"},
    {"TopPLogitsWarper", "top_p", "top_p"},
    {"TopHLogitsWarper", "top_h", "top_h"},
    {"MinPLogitsWarper", "min_p", "min_p"},
    {"TypicalLogitsWarper", "mass", "typical_p"},
    {"EpsilonLogitsWarper", "epsilon", "epsilon_cutoff"},
    {"EtaLogitsWarper", "epsilon", "eta_cutoff"},
    {"RepetitionPenaltyLogitsProcessor", "penalty", "repetition_penalty"},
    {"EncoderRepetitionPenaltyLogitsProcessor", "penalty", "encoder_repetition_penalty"},
    {"NoRepeatNGramLogitsProcessor", "ngram_size", "no_repeat_ngram_size"},
    {"EncoderNoRepeatNGramLogitsProcessor", "encoder_ngram_size", "encoder_no_repeat_ngram_size"},
    {"NoBadWordsLogitsProcessor", "bad_words_ids", "bad_words_ids"},
    {"SequenceBiasLogitsProcessor", "sequence_bias", "sequence_bias"},
    {"SuppressTokensLogitsProcessor", "suppress_tokens", "suppress_tokens"},
    {"SuppressTokensAtBeginLogitsProcessor", "begin_suppress_tokens", "begin_suppress_tokens"},
    {"MinLengthLogitsProcessor", "min_length", "min_length"},
    {"MinNewTokensLengthLogitsProcessor", "min_new_tokens", "min_new_tokens"},
    {"ForcedBOSTokenLogitsProcessor", "bos_token_id", "forced_bos_token_id"},
    {"ForcedEOSTokenLogitsProcessor", "eos_token_id", "forced_eos_token_id"},
    {"ExponentialDecayLengthPenalty", "exponential_decay_length_penalty",
     "exponential_decay_length_penalty"},
    {"LogitNormalization", NULL, "renormalize_logits"},
    {"InfNanRemoveLogitsProcessor", NULL, "remove_invalid_values"},
    {"HammingDiversityLogitsProcessor", "diversity_penalty", "diversity_penalty"},
};

/* Makes a configuration in which only this processor does anything. */
static void configure(const char *name, const char *class, const json_t *args, kvik_generation *g)
{
    json_t *o = json_pack("{s:b, s:i}", "do_sample", 1, "top_k", 0), *eos;
    size_t i = 0;
    while (i < countof(classes) && strcmp(classes[i].class, class) != 0)
        i++;
    if (i == countof(classes)) fail_msg("%s: unknown class", name);
    json_t *v = classes[i].argument ? json_object_get(args, classes[i].argument) : json_true();
    json_object_set(o, classes[i].option, v);
    if ((eos = json_object_get(args, "eos_token_id")) && strncmp(class, "Forced", 6) != 0)
        json_object_set(o, "eos_token_id", eos);
    if (json_object_get(args, "num_beam_groups")) {
        json_object_update(o, (json_t *)(uintptr_t)args);
        json_object_set_new(o, "do_sample", json_false());
    }
    gen_defaults(g);
    if (gen_apply(g, o, "vector", true) < 0) fail_msg("%s: %s", name, err_last());
    assert_int_equal(gen_validate(g), 0);
    json_decref(o);
}

static size_t append(const char *list, size_t row, int32_t *ids, size_t n)
{
    const json_t *from = json_array_get(json_object_get(file.json, list), row), *e;
    size_t i;
    json_array_foreach(from, i, e) ids[n++] = (int32_t)json_integer_value(e);
    return n;
}

static size_t whole(const json_t *args, const char *key, size_t otherwise)
{
    const json_t *v = json_object_get(args, key);
    return v ? (size_t)json_integer_value(v) : otherwise;
}

/* Groups of beams: appends the tokens that earlier groups of the same prompt chose in this step. */
static size_t append_chosen(const json_t *v, size_t row, int32_t *ids)
{
    const json_t *args = json_object_get(v, "args"), *all = json_object_get(v, "current_tokens");
    size_t beams = whole(args, "num_beams", 1), each = beams / whole(args, "num_beam_groups", 1);
    size_t n = all ? each * whole(v, "beam_group_idx", 0) : 0;
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(all, row / each * beams + i));
    return n;
}

/* Makes the row that a processor of Transformers saw, in the form the chain takes. */
static struct gen_row make_row(const json_t *v, size_t row, int32_t ids[128])
{
    const json_t *args = json_object_get(v, "args");
    const char *encoder = json_string_value(json_object_get(args, "encoder_input_ids"));
    size_t n_prompt = encoder ? append(encoder, row, ids, 0) : 0;
    const char *list = json_string_value(json_object_get(v, "input_ids"));
    size_t n = list ? append(list, row, ids, n_prompt) : 0;
    size_t skip = whole(args, "prompt_ignore_length", 0); /* columns that are masked */
    n_prompt = whole(args, "prompt_length_to_skip", n_prompt);
    n_prompt = whole(args, "input_ids_seq_length", n_prompt);
    n_prompt = whole(args, "begin_index", n_prompt);
    size_t chosen = append_chosen(v, row, ids + 64);
    return (struct gen_row){.ids = ids + skip,
                            .chosen = ids + 64,
                            .n_chosen = (uint32_t)chosen,
                            .n = n - skip,
                            .n_prompt = n_prompt,
                            .max_length = whole(args, "max_length", 0)};
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

static void check_vector(const json_t *v)
{
    const char *name = json_string_value(json_object_get(v, "name"));
    const json_t *args = json_object_get(v, "args");
    size_t rows, vocab, want_rows, want_vocab;
    const uint8_t *in = tensor(json_string_value(json_object_get(v, "scores")), &rows, &vocab);
    const uint8_t *want =
        tensor(json_string_value(json_object_get(v, "output")), &want_rows, &want_vocab);
    assert_true(rows == want_rows && vocab == want_vocab);
    kvik_generation g;
    struct gen_chain *c;
    configure(name, json_string_value(json_object_get(v, "class")), args, &g);
    assert_int_equal(gen_chain_new(&g, (uint32_t)vocab, NULL, &c), 0);
    if (c->n != 1) fail_msg("%s: %u processors", name, c->n);
    c->keep = (uint32_t)whole(args, "min_tokens_to_keep", 1);
    if (json_object_get(args, "filter_value"))
        c->filter = (float)json_number_value(json_object_get(args, "filter_value"));
    float *got = malloc(vocab * sizeof *got), *expect = malloc(vocab * sizeof *expect);
    for (size_t r = 0; r < rows; r++) {
        int32_t ids[128];
        struct gen_row row = make_row(v, r, ids);
        memcpy(got, in + r * vocab * sizeof *got, vocab * sizeof *got);
        memcpy(expect, want + r * vocab * sizeof *got, vocab * sizeof *got);
        assert_int_equal(gen_chain_apply(c, &row, got), 0);
        check_row(name, got, expect, vocab);
    }
    free(got);
    free(expect);
    gen_chain_drop(c);
    kvik_generation_done(&g);
}

static void check_file(const char *name, size_t expected)
{
    size_t i, n = 0;
    json_t *v;
    file_open(name);
    json_array_foreach(json_object_get(file.json, "vectors"), i, v)
    {
        check_vector(v);
        n++;
    }
    printf("%s: %zu vectors compared, 0 skipped\n",
           json_string_value(json_object_get(file.json, "reference")), n);
    assert_int_equal(n, expected);
    file_close();
}

static void test_v5(void **state)
{
    (void)state;
    check_file("processors", 103);
}

/* The releases differ only in the length at which a long bias begins and in left padding under a
 * penalty. No recorded input depends on either, so all must agree. */
static void test_v4(void **state)
{
    (void)state;
    check_file("processors-v4", 99);
}

/* Random combinations of options through the whole list of processors of Transformers
 * (tests/fixtures/chains). */
static void check_chain(const json_t *o, const char *line)
{
    enum { N = 64 };
    kvik_generation g;
    struct gen_chain *c;
    int32_t ids[N];
    float s[N];
    const json_t *text = json_object_get(o, "ids"), *want = json_object_get(o, "want");
    size_t n = json_array_size(text), number = whole(o, "case", 0);
    gen_defaults(&g);
    if (gen_apply(&g, json_object_get(o, "config"), "case", true) < 0)
        fail_msg("%s: %s", line, err_last());
    assert_int_equal(gen_validate(&g), 0);
    assert_int_equal(gen_chain_new(&g, N, NULL, &c), 0);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(text, i));
    for (size_t i = 0; i < N; i++)
        s[i] = (float)((i * 37 + number * 61) % 127) * 0.0625f - 4;
    struct gen_row row = {.ids = ids,
                          .n = n,
                          .n_prompt = whole(o, "n_prompt", 0),
                          .pad = whole(o, "pad", 0),
                          .max_length = whole(o, "max_length", 0)};
    assert_int_equal(gen_chain_apply(c, &row, s), 0);
    for (size_t i = 0; i < N; i++) {
        const json_t *w = json_array_get(want, i);
        float v = json_is_null(w) ? -INFINITY : (float)json_number_value(w);
        if (s[i] != v && !(fabsf(s[i] - v) <= 1e-5f * (1 + fabsf(v))))
            fail_msg("score %zu is %g, want %g, of %s", i, (double)s[i], (double)v, line);
    }
    gen_chain_drop(c);
    kvik_generation_done(&g);
}

static void test_chains(void **state)
{
    (void)state;
    FILE *f = fopen("tests/fixtures/chains/chains.jsonl", "r");
    char line[4096];
    size_t n = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *o;
        assert_int_equal(json_parse(line, strlen(line), "case", &o), 0);
        check_chain(o, line);
        json_decref(o);
        n++;
    }
    fclose(f);
    assert_int_equal(n, 160);
}

enum { VOCAB = 12 };
/* Applies a configuration once to scores 1, 2, 3, ... */
static void run(const char *config, struct gen_row row, float scores[VOCAB])
{
    kvik_generation g;
    struct gen_chain *c;
    gen_defaults(&g);
    if (kvik_generation_set(&g, config) < 0) fail_msg("%s: %s", config, err_last());
    assert_int_equal(gen_validate(&g), 0);
    assert_int_equal(gen_chain_new(&g, VOCAB, NULL, &c), 0);
    for (int again = 0; again < 2; again++) { /* the scratch is clean after each call */
        for (int i = 0; i < VOCAB; i++)
            scores[i] = (float)(i + 1);
        assert_int_equal(gen_chain_apply(c, &row, scores), 0);
    }
    for (size_t i = 0; i <= VOCAB / 64; i++)
        assert_true(c->seen[i] == 0);
    gen_chain_drop(c);
    kvik_generation_done(&g);
}

/* Compares n-grams of every size with a search by comparing each place, over texts of few tokens. */
static void test_ngrams(void **state)
{
    (void)state;
    int32_t ids[48];
    uint32_t x = 1, banned = 0;
    for (uint32_t k = 0; k < 6000; k++) {
        char config[80];
        float scores[VOCAB];
        uint32_t n = 1 + k % countof(ids), kinds = 1 + k % 3;
        for (uint32_t i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u;
            uint32_t back = 1 + k / 48 % 7; /* most tokens repeat the one `back` places before */
            ids[i] = i >= back && x >> 28 ? ids[i - back] : (int32_t)((x >> 8) % kinds) + 2;
        }
        uint32_t size = 1 + (x >> 8) % (n + 1), prompt = k % 2 ? 0 : 1 + (x >> 16) % n;
        struct gen_row row = {.ids = ids, .n = n, .n_prompt = prompt ? prompt : n};
        snprintf(config, sizeof config, "{\"%sno_repeat_ngram_size\": %u}",
                 prompt ? "encoder_" : "", size);
        run(config, row, scores);
        bool want[VOCAB] = {false};
        for (uint32_t i = size - 1; i < row.n_prompt && size <= n; i++)
            want[ids[i]] |=
                memcmp(ids + i + 1 - size, ids + n + 1 - size, (size - 1) * sizeof *ids) == 0;
        for (uint32_t i = 0; i < VOCAB; i++) {
            if ((scores[i] == -INFINITY) != want[i]) fail_msg("case %u: token %u", k, i);
            banned += want[i] && size > 2;
        }
    }
    assert_true(banned > 1000);
}

/* A huge size on a repetitive text takes a time that is linear in the length.  Comparing the words of all places would
 * take many minutes. */
static void test_ngrams_large(void **state)
{
    (void)state;
    enum { LENGTH = 1200000 };
    static int32_t ids[LENGTH];
    float scores[VOCAB];
    for (uint32_t period = 1; period < 4; period++) {
        for (uint32_t i = 0; i < LENGTH; i++)
            ids[i] = (int32_t)(i % period);
        struct gen_row row = {.ids = ids, .n = LENGTH, .n_prompt = LENGTH - 1};
        run("{\"no_repeat_ngram_size\": 600000, \"encoder_no_repeat_ngram_size\": 500000}", row,
            scores);
        for (uint32_t i = 0; i < VOCAB; i++)
            assert_true((scores[i] == -INFINITY) == (i == LENGTH % period));
    }
}

static const struct {
    const char *config;
    struct gen_row row;
    const char *removed; /* the removed scores, as hex digits of ids */
} removals[] = {
#define ROW(count, prompt, ...)                                                                    \
    {                                                                                              \
        .ids = (const int32_t[]){__VA_ARGS__}, .n = (count), .n_prompt = (prompt)                  \
    }
    {"{\"no_repeat_ngram_size\": 1}", ROW(3, 3, 1, 4, 1), "14"},
    {"{\"no_repeat_ngram_size\": 2}", ROW(5, 3, 1, 4, 1, 5, 1), "45"},
    {"{\"no_repeat_ngram_size\": 3}", ROW(5, 3, 1, 4, 6, 1, 4), "6"},
    {"{\"no_repeat_ngram_size\": 3}", ROW(2, 2, 1, 4), ""},
    {"{\"no_repeat_ngram_size\": 4294967295}", ROW(2, 2, 1, 4), ""},
    {"{\"no_repeat_ngram_size\": 1}", ROW(3, 3, -1, 12, 2147483647), ""},
    {"{\"encoder_no_repeat_ngram_size\": 1}", ROW(4, 2, 1, 4, 5, 6), "14"},
    {"{\"encoder_no_repeat_ngram_size\": 2}", ROW(5, 3, 1, 4, 6, 7, 4), "6"},
    {"{\"encoder_no_repeat_ngram_size\": 2}", ROW(5, 3, 1, 4, 6, 7, 6), ""},
    {"{\"bad_words_ids\": [[2], [3]], \"eos_token_id\": 3}", ROW(1, 1, 1), "2"},
    {"{\"bad_words_ids\": [[1, 2, 5], [2, 6], [7, 2, 7]]}", ROW(2, 1, 1, 2), "56"},
    {"{\"bad_words_ids\": [[1, 3], [1, 1, 3]]}", ROW(1, 1, 1), "3"},
    {"{\"suppress_tokens\": [0, 3, 11, 12, 99]}", ROW(1, 1, 1), "03b"},
    {"{\"begin_suppress_tokens\": [3]}", ROW(1, 1, 1), "3"},
    {"{\"begin_suppress_tokens\": [3]}", ROW(2, 1, 1, 1), ""},
    {"{\"begin_suppress_tokens\": [3], \"forced_bos_token_id\": 2}", ROW(2, 1, 1, 1), "3"},
    {"{\"begin_suppress_tokens\": [3], \"forced_bos_token_id\": 2}", ROW(2, 2, 1, 1), "3"},
    {"{\"begin_suppress_tokens\": [3], \"forced_bos_token_id\": 2}", ROW(1, 1, 1), "013456789ab"},
    {"{\"begin_suppress_tokens\": [3], \"forced_bos_token_id\": 2}",
     {.ids = (const int32_t[]){1}, .n = 1, .n_prompt = 1, .pad = 1},
     "3"},
    {"{\"min_length\": 5, \"eos_token_id\": [2, 99]}", ROW(2, 2, 1, 1), "2"},
    {"{\"min_length\": 5, \"eos_token_id\": 2}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 2, .pad = 3},
     ""},
    {"{\"min_length\": 5, \"min_new_tokens\": 1, \"eos_token_id\": 2}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 2, .pad = 3},
     "2"},
    {"{\"forced_eos_token_id\": [4, 5]}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 1, .max_length = 3},
     "01236789ab"},
    {"{\"forced_eos_token_id\": [4, 5]}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 1, .max_length = 4},
     ""},
    /* A later processor sees the changes of earlier ones. */
    {"{\"forced_eos_token_id\": [4, 5], \"suppress_tokens\": [4]}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 1, .max_length = 3},
     "012346789ab"},
    {"{\"forced_eos_token_id\": 4, \"remove_invalid_values\": true}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 1, .max_length = 3},
     ""},
};

static void test_removals(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(removals); i++) {
        float s[VOCAB];
        char gone[VOCAB + 1] = "", *at = gone;
        run(removals[i].config, removals[i].row, s);
        for (int k = 0; k < VOCAB; k++)
            if (s[k] == -INFINITY) *at++ = "0123456789ab"[k];
        *at = 0;
        if (strcmp(gone, removals[i].removed) != 0)
            fail_msg("row %zu, %s: removed \"%s\", want \"%s\"", i, removals[i].config, gone,
                     removals[i].removed);
    }
}

static const struct {
    const char *config;
    struct gen_row row;
    int id;
    float want; /* of scores 1, 2, 3, ... */
} values[] = {
    {"{\"sequence_bias\": [[[3], 0.5], [[1, 3], 0.25], [[2, 3], 8.0]]}", ROW(1, 1, 1), 3, 4.75f},
    {"{\"sequence_bias\": {\"1, 2, 3\": 0.5}}", ROW(2, 2, 1, 2), 3, 4.5f},
    {"{\"sequence_bias\": {\"1, 2, 3\": 0.5}}", ROW(1, 1, 2), 3, 4},
    {"{\"repetition_penalty\": 2}", ROW(3, 1, 3, 3, 4), 3, 2},
    {"{\"encoder_repetition_penalty\": 2}", ROW(3, 1, 3, 4, 4), 3, 8},
    {"{\"encoder_repetition_penalty\": 2}", ROW(3, 1, 3, 4, 4), 4, 5},
    {"{\"exponential_decay_length_penalty\": [1, 2], \"eos_token_id\": [3, 3]}",
     ROW(4, 1, 0, 0, 0, 0), 3, 16}, /* 4 + 4 * (2^2 - 1) */
    {"{\"exponential_decay_length_penalty\": [3, 2], \"eos_token_id\": 3}", ROW(4, 1, 0, 0, 0, 0),
     3, 4},
    {"{\"exponential_decay_length_penalty\": [1, 2], \"eos_token_id\": 3, \"suppress_tokens\": [4]}",
     ROW(4, 1, 0, 0, 0, 0), 4, -INFINITY},
    {"{\"forced_bos_token_id\": 5}", ROW(1, 1, 3), 5, 0},
    {"{\"renormalize_logits\": true, \"suppress_tokens\": [0,1,2,3,4,5,6,7,8,9,10]}", ROW(1, 1, 3),
     11, 0},
};

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(values); i++) {
        float s[VOCAB];
        run(values[i].config, values[i].row, s);
        if (s[values[i].id] != values[i].want)
            fail_msg("row %zu, %s: %g, want %g", i, values[i].config, (double)s[values[i].id],
                     (double)values[i].want);
    }
}

static void test_foreign_ids(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"sequence_bias\": [[[3, 12], 1]]}", "{\"bad_words_ids\": [[12, 3]]}",
        "{\"forced_bos_token_id\": 12}", "{\"forced_eos_token_id\": [3, 12]}"};
    for (size_t i = 0; i < countof(configs); i++) {
        kvik_generation g;
        struct gen_chain *c = NULL;
        gen_defaults(&g);
        assert_int_equal(kvik_generation_set(&g, configs[i]), 0);
        assert_int_equal(gen_chain_new(&g, VOCAB, NULL, &c), ERR_ARG);
        assert_null(c);
        assert_non_null(strstr(err_last(), "12, outside the vocabulary of 12"));
        kvik_generation_done(&g);
    }
}

static void test_invalid_values(void **state)
{
    (void)state;
    kvik_generation g;
    struct gen_chain *c;
    float s[4] = {NAN, INFINITY, -INFINITY, 3};
    gen_defaults(&g);
    g.remove_invalid_values = true;
    assert_int_equal(gen_chain_new(&g, 4, NULL, &c), 0);
    assert_int_equal(gen_chain_apply(c, &(struct gen_row){0}, s), 0);
    assert_true(s[0] == 0 && s[1] == FLT_MAX && s[2] == -FLT_MAX && s[3] == 3);
    gen_chain_drop(c);
}

/* --- Filters of sampling against oracles that sort everything, over a large vocabulary. */
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
        cmocka_unit_test(test_v5),
        cmocka_unit_test(test_v4),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_removals),
        cmocka_unit_test(test_ngrams),
        cmocka_unit_test(test_ngrams_large),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_foreign_ids),
        cmocka_unit_test(test_invalid_values),
        cmocka_unit_test(test_typical_large),
        cmocka_unit_test(test_cutoffs_large),
        cmocka_unit_test(test_toph_large),
        cmocka_unit_test(test_sigma),
        cmocka_unit_test(test_xtc),
        cmocka_unit_test(test_xtc_steps),
        cmocka_unit_test(test_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
