/* test_processors.c - every logits processor against vectors recorded from Transformers: v5
 * (tests/golden/processors.*) and 4.47 (processors-v4.*). The same tokens must be removed, and the
 * other scores equal within 1e-6; no vector is skipped. Then random combinations of options through
 * its whole list of processors. test_processor_rules.c and test_processor_filters.c have what the
 * vectors do not show. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v5),
        cmocka_unit_test(test_v4),
        cmocka_unit_test(test_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
