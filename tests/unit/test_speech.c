/* test_speech.c - recordings to text, against what Transformers recorded in fixtures/speech: whole recordings with a tiny
 * random model in every mode, and single rules on random inputs. Hostile model files are refused. */
#include "speech/speech.h"
#include "test_sound.h"
#include "testing.h"

#include <math.h>
#include <sys/stat.h>

#define TINY "tests/fixtures/speech/tiny"
enum { N = 48077, MOST = 512 };
static float sound[N];
static json_t *cases;
static kvik_model *model;
static kvik_cache *cache;

static int setup(void **state)
{
    (void)state;
    test_sound(sound, N);
    kvik_cache_config c = {.size = sizeof c, .max_sequences = 2, .max_cache_len = 48, .threads = 2};
    if (json_read("tests/fixtures/speech/cases.json", 16u << 20, &cases) < 0 ||
        kvik_model_open(TINY, &model) < 0 || kvik_cache_open(model, &c, &cache) < 0)
        fail_msg("%s", kvik_last_error());
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    kvik_cache_close(cache);
    kvik_model_close(model);
    json_decref(cases);
    return 0;
}

static struct speech_marks marks(void)
{
    return (struct speech_marks){
        .eos = (int32_t)json_integer_value(json_object_get(cases, "end")),
        .no_timestamps = (int32_t)json_integer_value(json_object_get(cases, "no_timestamps")),
        .first_timestamp = (int32_t)json_integer_value(json_object_get(cases, "first_timestamp")),
        .max_initial = (int32_t)json_integer_value(json_object_get(cases, "max_initial"))};
}

static void rules(void **state)
{
    (void)state;
    struct speech_marks k = marks();
    uint32_t vocab = (uint32_t)json_integer_value(json_object_get(cases, "vocab"));
    int32_t ids[MOST];
    size_t i;
    json_t *c;
    float scores[1024];
    json_array_foreach(json_object_get(cases, "rules"), i, c)
    {
        const char *kept = json_string_value(json_object_get(c, "kept"));
        size_t n = recorded_ids(json_object_get(c, "ids"), ids, MOST);
        for (uint32_t t = 0; t < vocab; t++)
            scores[t] = (float)json_number_value(json_array_get(json_object_get(c, "scores"), t));
        timestamp_rules(&k, ids, n, scores, vocab);
        for (uint32_t t = 0; t < vocab; t++)
            if (isfinite(scores[t]) != (kept[t] == '1'))
                fail_msg("rule %zu, token %u: expected %c", i, t, kept[t]);
    }
    assert_true(i >= 60);
}

static void cuts(void **state)
{
    (void)state;
    struct speech_marks k = marks();
    struct speech_part part[MOST + 1];
    int32_t ids[MOST];
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(cases, "cuts"), i, c)
    {
        uint32_t advance, frames = (uint32_t)json_integer_value(json_object_get(c, "frames"));
        json_int_t want = json_integer_value(json_object_get(c, "advance"));
        size_t n = recorded_ids(json_object_get(c, "ids"), ids, MOST);
        const json_t *parts = json_object_get(c, "parts");
        assert_int_equal(segments_cut(&k, ids, n, frames, part, &advance), json_array_size(parts));
        /* The recorded run would stay where it is for ever. */
        assert_int_equal(advance, want ? want : frames);
        for (size_t p = 0; p < json_array_size(parts); p++) {
            const json_t *w = json_array_get(parts, p);
            assert_int_equal(part[p].from, json_integer_value(json_array_get(w, 0)));
            assert_int_equal(part[p].to, json_integer_value(json_array_get(w, 1)));
            assert_true(fabs(part[p].start - json_number_value(json_array_get(w, 2))) < 1e-9);
            assert_true(fabs(part[p].end - json_number_value(json_array_get(w, 3))) < 1e-9);
        }
    }
    assert_true(i >= 80);
}

static void alignment(void **state)
{
    (void)state;
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(cases, "aligned"), i, c)
    {
        uint32_t n = (uint32_t)json_integer_value(json_object_get(c, "n")),
                 columns = (uint32_t)json_integer_value(json_object_get(c, "columns")),
                 used = (uint32_t)json_integer_value(json_object_get(c, "used"));
        const json_t *w = json_object_get(c, "weight"), *times = json_object_get(c, "times");
        float *weight = calloc(json_array_size(w), sizeof *weight);
        double time[MOST];
        for (size_t k = 0; k < json_array_size(w); k++)
            weight[k] = (float)json_number_value(json_array_get(w, k));
        assert_int_equal(alignment_times(weight, 3, n, columns, used, 7, time), 0);
        for (uint32_t k = 0; k < n; k++)
            if (fabs(time[k] - json_number_value(json_array_get(times, k))) > 1e-6)
                fail_msg("alignment %zu, token %u: %g, expected %g", i, k, time[k],
                         json_number_value(json_array_get(times, k)));
        assert_int_equal(alignment_times(weight, 3, n, columns, used, 8, time), ERR_UNSUPPORTED);
        free(weight);
    }
}

static void grouping(void **state)
{
    (void)state;
    const struct tok *t = model->tok->tok;
    int32_t ids[MOST];
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(cases, "words"), i, c)
    {
        struct speech_word *w;
        size_t n = recorded_ids(json_object_get(c, "ids"), ids, MOST), n_words;
        const json_t *want = json_object_get(c, "words");
        assert_int_equal(
            words_group(t, ids, n, json_is_true(json_object_get(c, "unspaced")), &w, &n_words), 0);
        assert_int_equal(n_words, json_array_size(want));
        for (size_t k = 0; k < n_words; k++) {
            assert_string_equal(w[k].text, json_string_value(json_array_get(want, k)));
            assert_int_equal(w[k].from,
                             json_integer_value(json_array_get(json_object_get(c, "from"), k)));
            assert_int_equal(w[k].to,
                             json_integer_value(json_array_get(json_object_get(c, "to"), k)));
        }
        words_done(w, n_words);
    }
}

static void compression(void **state)
{
    (void)state;
    int32_t ids[MOST];
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(cases, "compression"), i, c)
    {
        double got;
        size_t n = recorded_ids(json_array_get(c, 0), ids, MOST);
        int e = judge_compression(ids, n, 397, &got);
        if (e == ERR_UNSUPPORTED) skip();
        assert_int_equal(e, 0);
        assert_true(fabs(got - json_number_value(json_array_get(c, 1))) < 1e-12);
    }
}

/* Sets the options of a recorded run: one temperature, and only its own thresholds. */
static kvik_speech options_of(const json_t *o)
{
    static const double zero = 0;
    kvik_speech s;
    assert_int_equal(kvik_speech_init(&s), 0);
    s.temperatures = &zero;
    s.n_temperatures = 1;
    s.compression_ratio_threshold = 0;
    s.logprob_threshold = json_number_value(json_object_get(o, "logprob_threshold"));
    s.no_speech_threshold = json_number_value(json_object_get(o, "no_speech_threshold"));
    s.language = json_string_value(json_object_get(o, "language"));
    s.task = json_string_value(json_object_get(o, "task"));
    s.prompt = json_string_value(json_object_get(o, "prompt"));
    s.condition_on_prev_tokens = json_is_true(json_object_get(o, "condition_on_prev_tokens"));
    s.return_timestamps = !json_is_false(json_object_get(o, "return_timestamps"));
    return s;
}

static void compare_segment(const kvik_segment *s, const json_t *want)
{
    const json_t *ids = json_object_get(want, "tokens");
    assert_int_equal(s->n, json_array_size(ids));
    for (size_t k = 0; k < s->n; k++)
        assert_int_equal(s->ids[k], json_integer_value(json_array_get(ids, k)));
    assert_true(fabs(s->start - json_number_value(json_object_get(want, "start"))) < 1e-6);
    assert_true(fabs(s->end - json_number_value(json_object_get(want, "end"))) < 1e-6);
}

/* The time of a word's end is that of its last token. */
static void compare_words(const kvik_segment *s, const json_t *want)
{
    const struct tok *t = model->tok->tok;
    const json_t *times = json_object_get(want, "times");
    struct speech_marks k = marks();
    int32_t id[MOST];
    size_t at[MOST], n = 0, n_words;
    struct speech_word *w;
    for (size_t i = 0; i < s->n; i++)
        if (s->ids[i] < k.first_timestamp && !tok_is_special(t, s->ids[i])) {
            at[n] = i;
            id[n++] = s->ids[i];
        }
    assert_int_equal(words_group(t, id, n, false, &w, &n_words), 0);
    assert_int_equal(s->n_words, n_words);
    for (size_t i = 0; i < n_words; i++) {
        size_t first = at[w[i].from], last = at[w[i].to - 1];
        assert_string_equal(s->word[i]->text, w[i].text);
        assert_true(fabs(s->word[i]->end - json_number_value(json_array_get(times, last))) < 1e-5);
        if (first)
            assert_true(fabs(s->word[i]->start -
                             json_number_value(json_array_get(times, first - 1))) < 1e-5);
    }
    words_done(w, n_words);
}

/* Features of the same recording give the same transcript. */
static void compare_features(const kvik_speech *o, size_t n, const kvik_transcript *want)
{
    enum { WINDOW = 16000, BINS = 8 };
    static float padded[N], features[BINS * (N / 160 + 1)];
    kvik_transcript *t;
    size_t whole = n > WINDOW ? n : WINDOW;
    memset(padded, 0, sizeof padded);
    memcpy(padded, sound, n * sizeof *sound);
    int64_t frames = kvik_speech_features(padded, whole, BINS, NULL);
    assert_int_equal(frames, whole / 160);
    assert_int_equal(kvik_speech_features(padded, whole, BINS, features), frames);
    if (kvik_transcribe_features(cache, features, (size_t)frames,
                                 MIN((n + 159) / 160, (size_t)frames), o, &t) < 0)
        fail_msg("%s", kvik_last_error());
    assert_string_equal(t->text, want->text);
    assert_int_equal(t->n_segments, want->n_segments);
    for (size_t s = 0; s < t->n_segments; s++) {
        const kvik_segment *a = t->segment[s], *b = want->segment[s];
        assert_int_equal(a->n, b->n);
        assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
        assert_int_equal(a->n_words, b->n_words);
        assert_true((a->time != NULL) == o->word_timestamps);
        if (a->time) assert_memory_equal(a->time, b->time, a->n * sizeof *a->time);
    }
    kvik_transcript_free(t);
}

static bool count(void *ctx, const kvik_segment *s)
{
    ++*(int *)ctx;
    return s->n > 0;
}

static void runs(void **state)
{
    (void)state;
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(cases, "runs"), i, c)
    {
        const json_t *list = json_object_get(c, "segments"), *tokens = json_object_get(c, "tokens");
        size_t n = (size_t)json_integer_value(json_object_get(c, "samples"));
        kvik_speech o = options_of(json_object_get(c, "options"));
        kvik_transcript *t;
        int told = 0;
        o.ctx = &told;
        o.on_segment = count;
        o.word_timestamps = json_array_size(json_object_get(json_array_get(list, 0), "times")) > 0;
        if (kvik_transcribe_samples(cache, sound, n, &o, &t) < 0)
            fail_msg("run %zu: %s", i, kvik_last_error());
        assert_int_equal(told, t->n_segments);
        assert_true(fabs(t->seconds - (double)n / 16000) < 1e-9);
        o.on_segment = NULL;
        compare_features(&o, n, t);
        if (list) {
            assert_int_equal(t->n_segments, json_array_size(list));
            for (size_t s = 0; s < t->n_segments; s++) {
                compare_segment(t->segment[s], json_array_get(list, s));
                const json_t *times = json_object_get(json_array_get(list, s), "times");
                for (size_t k = 0; o.word_timestamps && k < t->segment[s]->n; k++)
                    assert_true(fabs(t->segment[s]->time[k] -
                                     json_number_value(json_array_get(times, k))) < 1e-5);
                if (o.word_timestamps) compare_words(t->segment[s], json_array_get(list, s));
            }
        } else {
            size_t at = 0;
            for (size_t s = 0; s < t->n_segments; s++)
                for (size_t k = 0; k < t->segment[s]->n; k++, at++)
                    assert_int_equal(t->segment[s]->ids[k],
                                     json_integer_value(json_array_get(tokens, at)));
            assert_int_equal(at, json_array_size(tokens));
        }
        kvik_transcript_free(t);
    }
}

/* max_new_tokens is the limit of a window, and features that are no window's are refused. */
static void limits(void **state)
{
    (void)state;
    kvik_speech o;
    kvik_transcript *t;
    static float features[8 * 120];
    assert_int_equal(kvik_speech_init(&o), 0);
    o.return_timestamps = false;
    o.max_new_tokens = 3;
    assert_int_equal(kvik_transcribe_features(cache, features, 100, 40, &o, &t), 0);
    assert_true(t->n_segments > 0 && t->segment[0]->n <= 3);
    kvik_transcript_free(t);
    static const size_t wrong[][2] = {{99, 40}, {100, 101}, {120, 0}, {0, 0}, {SIZE_MAX, 5}};
    for (size_t i = 0; i < countof(wrong); i++)
        assert_int_equal(
            kvik_transcribe_features(cache, features, wrong[i][0], wrong[i][1], &o, &t), KVIK_ARG);
    assert_int_equal(kvik_transcribe_features(cache, NULL, 100, 100, &o, &t), KVIK_ARG);
    assert_int_equal(kvik_transcribe_features(cache, features, 120, 120, &o, &t), KVIK_ARG);
    assert_int_equal(kvik_speech_features(features, 960, 0, NULL), KVIK_ARG);
    assert_int_equal(kvik_speech_features(features, 960, 513, NULL), KVIK_ARG);
    assert_int_equal(kvik_speech_features(NULL, 960, 8, NULL), KVIK_ARG);
    assert_int_equal(kvik_speech_features(features, 10, 8, NULL), 2);
    assert_int_equal(kvik_speech_features(features, 10, 8, features), 2);
}

/* Every name that is listed is one that a transcript takes, with its code. */
static void languages(void **state)
{
    (void)state;
    const char *code, *name;
    uint32_t n = 0;
    for (; (name = kvik_speech_language(n, &code)); n++) {
        char token[32];
        int32_t id = -1;
        snprintf(token, sizeof token, "<|%s|>", code);
        json_t *map = json_pack("{s:i}", token, 7);
        struct speech_marks k = {.languages = map};
        assert_int_equal(language_find(&k, name, &id), 0);
        assert_int_equal(id, 7);
        json_decref(map);
    }
    assert_true(n > 100);
    assert_null(code);
    assert_null(kvik_speech_language(n, NULL));
}

/* Draws at temperatures above 0 depend on the seed alone, and only they differ. */
static void draws(void **state)
{
    (void)state;
    kvik_speech o;
    kvik_transcript *t[3];
    assert_int_equal(kvik_speech_init(&o), 0);
    o.logprob_threshold = -1e-9; /* no text is good enough */
    o.no_speech_threshold = 0;
    o.compression_ratio_threshold = 0;
    for (int i = 0; i < 3; i++) {
        o.seed = i == 2;
        assert_int_equal(kvik_transcribe_samples(cache, sound, 16000, &o, &t[i]), 0);
        assert_true(t[i]->segment[0]->temperature == 1);
    }
    assert_string_equal(t[0]->text, t[1]->text);
    assert_string_not_equal(t[0]->text, t[2]->text);
    for (int i = 0; i < 3; i++)
        kvik_transcript_free(t[i]);
}

/* Lets every allocation of a transcript with beams fail in turn; nothing of it stays in the cache. */
static void no_memory(void **state)
{
    (void)state;
    const double zero = 0;
    kvik_speech o;
    kvik_transcript *t = NULL;
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    int64_t failures = 0;
    assert_int_equal(kvik_speech_init(&o), 0);
    o.temperatures = &zero;
    o.n_temperatures = 1;
    o.num_beams = 2;
    o.max_new_tokens = 3;
    o.language = "en";
    assert_int_equal(kvik_transcribe_samples(cache, sound, 9000, &o, &t), 0);
    assert_int_equal(kvik_cache_usage(cache, &before), 0);
    kvik_transcript_free(t);
    for (t = NULL;; failures++) {
        mem_fail_at(failures, false);
        int e = kvik_transcribe_samples(cache, sound, 9000, &o, &t);
        mem_fail_at(-1, false);
        if (e == 0) break;
        if (e != KVIK_NOMEM) fail_msg("%d: %s", e, kvik_last_error());
        assert_null(t);
        assert_int_equal(kvik_cache_usage(cache, &after), 0);
        assert_int_equal(after.live, before.live);
    }
    assert_true(failures > 20);
    kvik_transcript_free(t);
}

/* Scores divided by a power of the length far below 0 are out of range, so a search finds no text.  That is no empty window:
 * the next temperature is tried. */
static void no_text_found(void **state)
{
    (void)state;
    kvik_speech o;
    kvik_transcript *t = NULL;
    assert_int_equal(kvik_speech_init(&o), 0);
    o.num_beams = 2;
    o.length_penalty = -100;
    o.max_new_tokens = 20;
    o.language = "en";
    assert_int_equal(kvik_transcribe_samples(cache, sound, 16000, &o, &t), 0);
    assert_true(t->n_segments > 0);
    assert_true(t->segment[0]->temperature > 0);
    kvik_transcript_free(t);
}

static bool never(void *ctx, enum kvik_hearing what, double seconds, double total)
{
    (void)ctx, (void)what, (void)seconds, (void)total;
    return false;
}

static void refusals(void **state)
{
    (void)state;
    kvik_speech o;
    kvik_transcript *t = NULL;
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    struct {
        const char *language, *task, *prompt, *says;
        bool plain;
        double no_speech;
    } c[] = {{"Klingon", NULL, NULL, "the model does not know it", false, 0},
             {NULL, "sing", NULL, "\"transcribe\" and \"translate\" are supported", false, 0},
             {NULL, NULL, NULL, "longer recordings need return_timestamps", true, 0},
             {NULL, NULL, "a b c d e f g h i j k l m n o p q r s t u v w x y z", "the prompt has",
              false, 0},
             {NULL, NULL, NULL, "only used together with logprob_threshold", false, 0.5}};
    assert_int_equal(kvik_cache_usage(cache, &before), 0);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        assert_int_equal(kvik_speech_init(&o), 0);
        o.language = c[i].language;
        o.task = c[i].task;
        o.prompt = c[i].prompt;
        o.return_timestamps = !c[i].plain;
        o.no_speech_threshold = c[i].no_speech;
        if (c[i].no_speech > 0) o.logprob_threshold = 0;
        assert_true(kvik_transcribe_samples(cache, sound, N, &o, &t) < 0);
        if (!strstr(kvik_last_error(), c[i].says)) fail_msg("%s", kvik_last_error());
    }
    struct {
        double penalty;
        uint32_t beams, early;
        int code;
        const char *says;
    } b[] = {{1, 3, 0, KVIK_LIMIT, "raise max_sequences"},
             {NAN, 2, 0, KVIK_ARG, "length_penalty"},
             {-1001, 2, 0, KVIK_ARG, "length_penalty"},
             {1, 2, 9, KVIK_ARG, "early_stopping is 9"}};
    for (size_t i = 0; i < countof(b); i++) {
        assert_int_equal(kvik_speech_init(&o), 0);
        assert_true(o.num_beams == 1 && o.length_penalty == 1);
        o.num_beams = b[i].beams;
        o.length_penalty = b[i].penalty;
        memcpy(&o.early_stopping, &b[i].early, sizeof b[i].early);
        assert_int_equal(kvik_transcribe_samples(cache, sound, N, &o, &t), b[i].code);
        if (!strstr(kvik_last_error(), b[i].says)) fail_msg("%s", kvik_last_error());
    }
    assert_int_equal(kvik_speech_init(&o), 0);
    o.on_hearing = never;
    assert_int_equal(kvik_transcribe_samples(cache, sound, N, &o, &t), KVIK_CANCELLED);
    assert_int_equal(kvik_transcribe_samples(cache, sound, 0, NULL, &t), KVIK_FORMAT);
    assert_int_equal(kvik_transcribe_samples(cache, sound, N, NULL, NULL), KVIK_ARG);
    assert_int_equal(kvik_transcribe(cache, TINY "/config.json", NULL, &t) < 0, 1);
    assert_null(t);
    assert_int_equal(kvik_cache_usage(cache, &after), 0);
    kvik_model *other;
    kvik_cache *text;
    assert_int_equal(kvik_model_open("tests/golden/models/gpt2", &other), 0);
    assert_int_equal(kvik_cache_open(other, NULL, &text), 0);
    assert_int_equal(kvik_transcribe_samples(text, sound, N, NULL, &t), KVIK_UNSUPPORTED);
    assert_non_null(strstr(kvik_last_error(), "does not transcribe"));
    kvik_cache_close(text);
    kvik_model_close(other);
    assert_int_equal(kvik_model_open(TINY, &other), 0);
    kvik_cache_config small = {.size = sizeof small, .max_cache_len = 8};
    assert_int_equal(kvik_cache_open(other, &small, &text), 0);
    assert_int_equal(kvik_transcribe_samples(text, sound, N, NULL, &t), KVIK_LIMIT);
    assert_non_null(strstr(kvik_last_error(), "max_cache_len is 8"));
    kvik_cache_close(text);
    kvik_model_close(other);
}

/* Files of a model whose numbers cannot be true are refused by name. */
static void hostile(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } c[] = {{"no_timestamps_token_id", "1000000", "no_timestamps_token_id"},
             {"no_timestamps_token_id", "-5", "no_timestamps_token_id"},
             {"eos_token_id", "[]", "eos_token_id"},
             {"alignment_heads", "[[9, 0]]", "alignment_heads[0]"},
             {"alignment_heads", "{}", "not a list of heads"},
             {"lang_to_id", "{\"<|en|>\": 99999}", "lang_to_id"},
             {"lang_to_id", "[1]", "lang_to_id"},
             {"lang_to_id", "null", "no lang_to_id"},
             {"max_length", "1", "max_length of 1"}};
    char dir[] = "/tmp/kvik-speech-XXXXXX", path[512], from[512];
    static const char *const file[] = {"config.json", "model.safetensors", "tokenizer.json",
                                       "preprocessor_config.json"};
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        char *whole = realpath(TINY, NULL);
        snprintf(from, sizeof from, "%s/%s", whole, file[i]);
        snprintf(path, sizeof path, "%s/%s", dir, file[i]);
        assert_int_equal(symlink(from, path), 0);
        free(whole);
    }
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        json_t *g, *v;
        kvik_model *m;
        kvik_cache *k;
        kvik_transcript *t;
        kvik_speech o;
        assert_int_equal(json_read(TINY "/generation_config.json", 1 << 20, &g), 0);
        v = json_loads(c[i].value, JSON_DECODE_ANY, NULL);
        json_object_set_new(g, c[i].key, v);
        snprintf(path, sizeof path, "%s/generation_config.json", dir);
        assert_int_equal(json_dump_file(g, path, 0), 0);
        json_decref(g);
        assert_int_equal(kvik_speech_init(&o), 0);
        o.word_timestamps = true;
        o.language = "en";
        o.prompt = "a b c d";
        int e = kvik_model_open(dir, &m);
        if (e >= 0) {
            if ((e = kvik_cache_open(m, NULL, &k)) >= 0) {
                e = kvik_transcribe_samples(k, sound, 16000, &o, &t);
                kvik_cache_close(k);
            }
            kvik_model_close(m);
        }
        if (e >= 0 || !strstr(kvik_last_error(), c[i].says))
            fail_msg("%s %s: %s", c[i].key, c[i].value, e >= 0 ? "accepted" : kvik_last_error());
        unlink(path);
    }
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, file[i]);
        unlink(path);
    }
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules),        cmocka_unit_test(cuts),        cmocka_unit_test(alignment),
        cmocka_unit_test(grouping),     cmocka_unit_test(compression), cmocka_unit_test(runs),
        cmocka_unit_test(limits),       cmocka_unit_test(languages),   cmocka_unit_test(draws),
        cmocka_unit_test(refusals),     cmocka_unit_test(hostile),     cmocka_unit_test(no_memory),
        cmocka_unit_test(no_text_found)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
