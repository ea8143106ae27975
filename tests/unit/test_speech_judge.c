/* test_speech_judge.c - which try of a window is taken, against what Transformers decided in fixtures/speech/fallback.json:
 * its figures, its loop over the temperatures, and whole recordings. */
#include "speech/speech.h"
#include "test_sound.h"
#include "testing.h"

#include <math.h>

enum { MOST = 512 };
static json_t *stored;

static int setup(void **state)
{
    (void)state;
    if (json_read("tests/fixtures/speech/fallback.json", 16u << 20, &stored) < 0)
        fail_msg("%s", kvik_last_error());
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    json_decref(stored);
    return 0;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}
static uint32_t read_temperatures(const json_t *list, double out[8])
{
    uint32_t n = (uint32_t)json_array_size(list);
    assert_true(n > 0 && n <= 8);
    for (uint32_t i = 0; i < n; i++)
        out[i] = json_number_value(json_array_get(list, i));
    return n;
}
static void near(double got, double want, double within, const char *what, size_t i)
{
    if (!(fabs(got - want) <= within)) fail_msg("%s %zu: %.9g, expected %.9g", what, i, got, want);
}

static void ratios(void **state)
{
    (void)state;
    size_t i;
    json_t *c;
    int32_t ids[MOST];
    json_array_foreach(json_object_get(stored, "ratios"), i, c)
    {
        double got;
        size_t n = recorded_ids(json_object_get(c, "ids"), ids, MOST);
        assert_int_equal(judge_compression(ids, n, (uint32_t)number(c, "vocab"), &got), 0);
        near(got, number(c, "ratio"), 1e-12, "ratio", i);
    }
    assert_true(i >= 30);
}

/* --- the loop */

struct invented { /* the tries of a window */
    const kvik_speech *w;
    const json_t *list;
    uint32_t vocab, asked;
    int32_t ids[MOST];
};

/* Does what decode() of window.c does with a model. */
static int attempt(void *ctx, uint32_t i, struct speech_said *out)
{
    struct invented *v = ctx;
    const json_t *t = json_array_get(v->list, i);
    double temperature = v->w->temperatures[i], by = temperature > 0 ? temperature : 1, sum = 0;
    uint32_t x = (uint32_t)number(t, "seed");
    float scores[64];
    assert_non_null(t); /* Transformers did not ask for this one */
    assert_int_equal(v->asked++, i);
    out->n = recorded_ids(json_object_get(t, "ids"), v->ids, MOST);
    out->ids = v->ids;
    for (size_t k = 0; k < out->n; k++) {
        for (uint32_t j = 0; j < v->vocab; j++) {
            x = (x * 1103515245u + 12345u) & 0x7fffffffu;
            scores[j] = (float)((double)((int)((x >> 16) % 2001) - 1000) / 400);
            if ((int32_t)j == v->ids[k]) scores[j] += (float)number(t, "sharp");
            scores[j] = (float)((double)scores[j] / by);
        }
        sum += judge_logprob(scores, v->vocab, v->ids[k], by);
    }
    out->avg_logprob = sum / (double)out->n;
    near(out->avg_logprob, number(t, "logprob"), 1e-4, "log-probability of try", i);
    TRY(judge_compression(v->ids, out->n, v->vocab, &out->compression_ratio));
    near(out->compression_ratio, number(t, "ratio"), 1e-12, "ratio of try", i);
    return 0;
}

static void windows(void **state)
{
    (void)state;
    size_t i, failed = 0, dropped = 0, forgotten = 0;
    json_t *c;
    json_array_foreach(json_object_get(stored, "windows"), i, c)
    {
        double temperature[8];
        int32_t text[MOST];
        kvik_speech w;
        assert_int_equal(kvik_speech_init(&w), 0);
        w.n_temperatures = read_temperatures(json_object_get(c, "temperatures"), temperature);
        w.temperatures = temperature;
        w.compression_ratio_threshold = number(c, "ratio"); /* null is 0 is never */
        w.logprob_threshold = number(c, "logprob");
        w.no_speech_threshold = number(c, "no_speech");
        w.condition_on_prev_tokens = json_is_true(json_object_get(c, "condition"));
        struct invented v = {.w = &w,
                             .list = json_object_get(c, "tries"),
                             .vocab = (uint32_t)number(stored, "vocab")};
        struct speech_said said = {.no_speech_prob = number(c, "no_speech_prob")};
        assert_int_equal(judge_tries(&w, attempt, &v, &said), 0);
        size_t tries = json_array_size(v.list),
               n = recorded_ids(json_object_get(c, "text"), text, MOST);
        if (v.asked != tries) fail_msg("window %zu: %u tries, expected %zu", i, v.asked, tries);
        assert_true(said.temperature == temperature[tries - 1]);
        assert_true(said.skip == json_is_true(json_object_get(c, "skip")));
        assert_true(said.keep == json_is_true(json_object_get(c, "keep")));
        /* The stored text has no end token. */
        assert_true(said.n == n || said.n == n + 1);
        assert_memory_equal(said.ids, text, n * sizeof *text);
        failed += json_is_true(json_object_get(json_array_get(v.list, tries - 1), "again"));
        dropped += said.skip;
        forgotten += w.condition_on_prev_tokens && !said.keep;
    }
    /* Each kind of decision was made. */
    assert_true(i >= 100 && failed >= 10 && dropped >= 10 && forgotten >= 5);
}

/* --- whole recordings */

static void compare(const kvik_segment *s, const json_t *want, size_t i)
{
    int32_t ids[MOST];
    size_t n = recorded_ids(json_object_get(want, "tokens"), ids, MOST);
    assert_int_equal(s->n, n);
    assert_memory_equal(s->ids, ids, n * sizeof *ids);
    assert_true(s->temperature == number(want, "temperature"));
    near(s->avg_logprob, number(want, "logprob"), 1e-3, "log-probability of segment", i);
    near(s->compression_ratio, number(want, "ratio"), 1e-12, "ratio of segment", i);
    /* Transformers finds it only where there is a threshold for it. */
    const json_t *prob = json_object_get(want, "no_speech_prob");
    if (!json_is_null(prob))
        near(s->no_speech_prob, json_number_value(prob), 1e-5, "no speech in segment", i);
}

/* Sets the options of a search with beams. */
static void read_beams(const json_t *c, kvik_speech *o)
{
    const json_t *early = json_object_get(c, "early_stopping"),
                 *penalty = json_object_get(c, "length_penalty");
    o->num_beams = (uint32_t)number(c, "num_beams");
    if (penalty) o->length_penalty = json_number_value(penalty);
    o->max_new_tokens = (uint32_t)number(c, "max_new_tokens");
    o->early_stopping = json_is_true(early)     ? KVIK_EARLY_TRUE
                        : json_is_string(early) ? KVIK_EARLY_NEVER
                                                : KVIK_EARLY_FALSE;
}

static void runs(void **state)
{
    (void)state;
    enum { N = 48077 };
    static float sound[N];
    kvik_model *model;
    kvik_cache *cache;
    size_t i, segments = 0;
    json_t *c;
    test_sound(sound, N);
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 5, .max_cache_len = 48, .threads = 2};
    assert_int_equal(kvik_model_open("tests/fixtures/speech/tiny", &model), 0);
    assert_int_equal(kvik_cache_open(model, &config, &cache), 0);
    json_array_foreach(json_object_get(stored, "runs"), i, c)
    {
        const json_t *list = json_object_get(c, "segments");
        double temperature[8];
        kvik_speech o;
        kvik_transcript *t;
        assert_int_equal(kvik_speech_init(&o), 0);
        const char *language = json_string_value(json_object_get(c, "language"));
        o.language = language ? language : "en";
        o.task = json_string_value(json_object_get(c, "task"));
        o.n_temperatures = read_temperatures(json_object_get(c, "temperature"), temperature);
        o.temperatures = temperature;
        o.compression_ratio_threshold = number(c, "compression_ratio_threshold");
        o.logprob_threshold = number(c, "logprob_threshold");
        o.no_speech_threshold = number(c, "no_speech_threshold");
        o.condition_on_prev_tokens = json_is_true(json_object_get(c, "condition_on_prev_tokens"));
        read_beams(c, &o);
        if (kvik_transcribe_samples(cache, sound, N, &o, &t) < 0)
            fail_msg("run %zu: %s", i, kvik_last_error());
        if (t->n_segments != json_array_size(list))
            fail_msg("run %zu: %zu segments, expected %zu", i, t->n_segments,
                     json_array_size(list));
        for (size_t s = 0; s < t->n_segments; s++)
            compare(t->segment[s], json_array_get(list, s), s);
        segments += t->n_segments;
        kvik_transcript_free(t);
    }
    assert_true(i >= 11 && segments >= 40);
    kvik_cache_close(cache);
    kvik_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ratios), cmocka_unit_test(windows),
                                       cmocka_unit_test(runs)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
