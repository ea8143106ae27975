/* test_not_finite.c - weights with NaN or infinity: every way of decoding ends the text where the logits stop being finite,
 * with a finish reason and one notice, and never returns a token that such logits gave.  The models are copies of a golden
 * one with one changed weight. */
#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "kvik.h"
#include "testing.h"

#include <math.h>

#define SOUND "tests/golden/models/llama-mha"
enum { PROMPT = 11, NEW = 12 };
static const int32_t ids[PROMPT] = {85, 14, 62, 12, 145, 198, 305, 12, 354, 269, 300};
static char dir[64];

static void copy(const char *name, const char *text, size_t n)
{
    char to[256];
    snprintf(to, sizeof to, "%s/%s", dir, name);
    assert_int_equal(file_write(to, text, n), 0);
}

/* Returns a model whose tensor has `value` at item `at`. */
static kvik_model *model_with(const char *tensor, size_t at, float value)
{
    char *text, from[256];
    size_t n;
    static const char *const file[] = {"config.json", "generation_config.json",
                                       "model.safetensors"};
    for (size_t i = 0; i < countof(file); i++) {
        snprintf(from, sizeof from, SOUND "/%s", file[i]);
        assert_int_equal(file_read(from, 16u << 20, &text, &n), 0);
        if (i == 2) {
            json_t *o;
            uint64_t head;
            memcpy(&head, text, sizeof head);
            assert_int_equal(json_parse(text + 8, (size_t)head, "header", &o), 0);
            json_t *place = json_object_get(json_object_get(o, tensor), "data_offsets");
            assert_non_null(place);
            size_t begin = 8 + (size_t)head + (size_t)json_integer_value(json_array_get(place, 0));
            memcpy(text + begin + at * sizeof value, &value, sizeof value);
            json_decref(o);
        }
        copy(file[i], text, n);
        mem_free(text);
    }
    kvik_model *m;
    if (kvik_model_open(dir, &m) < 0) fail_msg("%s", kvik_last_error());
    return m;
}

static unsigned notices;

static void on_notice(void *ctx, const char *text)
{
    (void)ctx;
    notices += strstr(text, "not finite") != NULL;
}

/* Generates from two prompts, of which the second has other tokens.  Returns what kvik_generate returns. */
static int run(kvik_model *m, const char *json, uint32_t n, kvik_result **out)
{
    kvik_cache *c;
    kvik_generation g;
    int32_t other[PROMPT];
    for (size_t i = 0; i < PROMPT; i++)
        other[i] = 30 + (int32_t)i;
    kvik_prompt p[2] = {{.size = sizeof *p, .ids = ids, .n = PROMPT},
                        {.size = sizeof *p, .ids = other, .n = PROMPT}};
    kvik_hooks hooks = {.size = sizeof hooks, .on_notice = on_notice};
    kvik_cache_config config = {.size = sizeof config, .max_sequences = 16, .compute = "exact"};
    notices = 0;
    assert_int_equal(kvik_cache_open(m, &config, &c), 0);
    assert_int_equal(kvik_generation_init(&g, m), 0);
    assert_int_equal(
        kvik_generation_set(
            &g, "{\"eos_token_id\": null, \"max_new_tokens\": 12, \"output_logits\": true}"),
        0);
    if (kvik_generation_set(&g, json) < 0) fail_msg("%s", kvik_last_error());
    int e = kvik_generate(c, &g, p, n, &hooks, out);
    kvik_generation_done(&g);
    kvik_cache_close(c);
    return e;
}

static const char *const way[] = {
    "{}",
    "{\"do_sample\": true, \"seed\": 5}",
    "{\"use_cache\": false}",
    "{\"prompt_lookup_num_tokens\": 3}",
    "{\"penalty_alpha\": 0.6, \"top_k\": 4}",
    "{\"guidance_scale\": 1.5}",
    "{\"cache_implementation\": \"quantized\"}",
};

static void nothing_is_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < countof(bad); k++) {
        kvik_model *m = model_with("model.norm.weight", 3, bad[k]);
        for (size_t i = 0; i < countof(way); i++) {
            kvik_result *r;
            if (run(m, way[i], 2, &r) < 0) fail_msg("%s: %s", way[i], kvik_last_error());
            for (uint32_t row = 0; row < 2; row++) {
                assert_int_equal(r->row[row]->finish, KVIK_FINISH_NOT_FINITE);
                assert_int_equal(r->row[row]->n, PROMPT);
            }
            assert_int_equal(notices, 1);
            kvik_result_free(r);
        }
        kvik_model_close(m);
    }
    assert_string_equal(kvik_finish_name(KVIK_FINISH_NOT_FINITE), "not_finite");
}

/* The embedding of one token is NaN: a text is right up to that token, and a text without it does not change. */
static void a_token_breaks_its_own_text(void **state)
{
    (void)state;
    kvik_model *sound;
    assert_int_equal(kvik_model_open(SOUND, &sound), 0);
    for (size_t i = 0; i < countof(way); i++) {
        kvik_result *want, *got;
        assert_int_equal(run(sound, way[i], 2, &want), 0);
        assert_int_equal(notices, 0);
        const int32_t *text = want->row[0]->ids, *other = want->row[1]->ids;
        size_t at = PROMPT + 2, first = PROMPT;
        while (text[first] != text[at])
            first++;
        bool apart = true;
        for (size_t k = 0; k < PROMPT + NEW; k++)
            apart &= (k >= PROMPT || text[k] != text[at]) && other[k] != text[at];
        if (apart && strstr(way[i], "penalty_alpha") == NULL) { /* there candidates are fed, too */
            size_t width = 64;
            kvik_model *m = model_with("model.embed_tokens.weight", (size_t)text[at] * width, NAN);
            assert_int_equal(run(m, way[i], 2, &got), 0);
            assert_int_equal(got->row[0]->finish, KVIK_FINISH_NOT_FINITE);
            assert_int_equal(got->row[0]->n, first + 1);
            assert_memory_equal(got->row[0]->ids, text, (first + 1) * sizeof *text);
            assert_int_equal(got->row[1]->finish, KVIK_FINISH_LENGTH);
            assert_int_equal(got->row[1]->n, PROMPT + NEW);
            assert_memory_equal(got->row[1]->ids, other, (PROMPT + NEW) * sizeof *other);
            assert_int_equal(notices, 1);
            kvik_result_free(got);
            kvik_model_close(m);
        } else if (i == 0) {
            fail_msg("choose another prompt");
        }
        kvik_result_free(want);
    }
    kvik_model_close(sound);
}

/* Beams have no order without scores. */
static void beams_fail(void **state)
{
    (void)state;
    kvik_result *r;
    kvik_model *m = model_with("model.norm.weight", 0, NAN);
    assert_int_equal(run(m, "{\"num_beams\": 3}", 1, &r), KVIK_FORMAT);
    assert_non_null(strstr(kvik_last_error(), "not finite"));
    assert_int_equal(
        run(m, "{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 0.5}", 2, &r),
        KVIK_FORMAT);
    kvik_model_close(m);
}

/* As in Transformers, remove_invalid_values makes scores of NaN and infinity finite. */
static void removed(void **state)
{
    (void)state;
    kvik_result *r;
    kvik_model *m = model_with("model.norm.weight", 0, NAN);
    assert_int_equal(run(m, "{\"remove_invalid_values\": true}", 1, &r), 0);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_LENGTH);
    assert_int_equal(r->row[0]->n, PROMPT + NEW);
    assert_int_equal(notices, 0);
    kvik_result_free(r);
    kvik_model_close(m);
}

int main(void)
{
    snprintf(dir, sizeof dir, "/tmp/kvik-not-finite-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_finite),
        cmocka_unit_test(a_token_breaks_its_own_text),
        cmocka_unit_test(beams_fail),
        cmocka_unit_test(removed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const file[] = {"config.json", "generation_config.json",
                                       "model.safetensors"};
    for (size_t i = 0; i < countof(file); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, file[i]);
        unlink(path);
    }
    rmdir(dir);
    return failed;
}
