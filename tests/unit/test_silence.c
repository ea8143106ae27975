/* test_silence.c - how loud segments are: silence, offsets, their edges, dither, faint noise and clicks are told from quiet speech, and the
 * text stays what it is without that. */
#include "speech/speech.h"
#include "test_sound.h"
#include "testing.h"

#include <math.h>

#define TINY "tests/fixtures/speech/tiny"
enum { SPEECH = 48000, TAIL = 20 * AUDIO_RATE };
static float sound[SPEECH + TAIL];
static kvik_model *model;
static kvik_cache *cache;

static int setup(void **state)
{
    (void)state;
    kvik_cache_config c = {.size = sizeof c, .max_sequences = 2, .max_cache_len = 48, .threads = 2};
    if (kvik_model_open(TINY, &model) < 0 || kvik_cache_open(model, &c, &cache) < 0)
        fail_msg("%s", kvik_last_error());
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    kvik_cache_close(cache);
    kvik_model_close(model);
    return 0;
}

/* Draws from [-1, 1). */
static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (1 << 23) - 1;
}

/* Writes n samples of white noise with a level in dB, over an offset. */
static void hiss(size_t n, double db, float offset)
{
    uint32_t seed = 7;
    float by = (float)(sqrt(3) * pow(10, db / 20));
    for (size_t i = 0; i < n; i++)
        sound[i] = noise(&seed) * by + offset;
}

/* Opens the first n samples, and reads all frames of the recording, which has at least `frames`. */
static struct features *heard(size_t n, uint32_t frames, struct audio **a)
{
    static float out[8 * 3000];
    struct features *f;
    assert_int_equal(audio_samples(sound, n, "sound", a), 0);
    assert_int_equal(features_open(*a, 8, (uint64_t)frames * MEL_HOP, NULL, NULL, &f), 0);
    assert_int_equal(f->frames, frames);
    assert_int_equal(features_window(f, 0, frames, frames, out), 0);
    return f;
}

static void forget(struct features *f, struct audio *a)
{
    features_close(f);
    audio_close(a);
}

/* The energy of a frame is its variance: an offset adds nothing, not even where a short recording was filled up. */
static void energy(void **state)
{
    (void)state;
    struct audio *a;
    for (size_t i = 0; i < AUDIO_RATE; i++)
        sound[i] = (float)sin((double)i * 6.283185307179586 * 400 / AUDIO_RATE) / 2 + 0.3f;
    struct features *f = heard(AUDIO_RATE, 100, &a);
    for (uint32_t t = 0; t < 100; t++)
        assert_true(fabs((double)features_loudest(f, t, 1) - 0.125) <
                    (t < 2 || t > 97 ? 0.02 : 1e-6));
    assert_true(features_loudest(f, 100, 1) == 0);
    forget(f, a);
    for (size_t i = 0; i < AUDIO_RATE; i++)
        sound[i] = 0.3f;
    f = heard(AUDIO_RATE, 300, &a);
    for (uint32_t t = 0; t < 300; t++)
        assert_true(features_loudest(f, t, 1) == 0);
    forget(f, a);
}

/* Windows that overlap and grow keep the energies of their frames. */
static void overlaps(void **state)
{
    (void)state;
    static float out[8 * 200];
    struct audio *a;
    test_sound(sound, SPEECH);
    struct features *f = heard(SPEECH, 300, &a), *g;
    assert_int_equal(features_open(a, 8, 0, NULL, NULL, &g), 0);
    static const uint32_t at[] = {0, 37, 37, 90, 100}, n[] = {100, 100, 100, 100, 200};
    for (size_t i = 0; i < countof(at); i++) {
        assert_int_equal(features_window(g, at[i], n[i], n[i], out), 0);
        for (uint32_t t = at[i]; t < at[i] + n[i]; t++)
            assert_true(features_loudest(g, t, 1) == features_loudest(f, t, 1));
    }
    features_close(g);
    forget(f, a);
}

/* A click, and the step at the edge of an offset, are no speech; a syllable is. */
static void clicks(void **state)
{
    (void)state;
    struct audio *a;
    memset(sound, 0, sizeof sound);
    for (size_t i = 16000; i < 32000; i++)
        sound[i] = 0.3f;
    sound[8000] = 1;
    for (size_t i = 40000; i < 40800; i++)
        sound[i] = i % 20 < 10 ? 0.1f : -0.1f;
    struct features *f = heard(SPEECH, 300, &a);
    assert_true(features_loudest(f, 0, 90) == 0);
    assert_true(features_loudest(f, 90, 20) == 0);
    assert_true(features_loudest(f, 190, 20) == 0);
    assert_true(fabsf(features_loudest(f, 210, 90) - 0.01f) < 0.005f);
    assert_true(features_loudest(f, 251, 3) > 0.005f); /* fewer frames than a syllable has */
    forget(f, a);
}

static kvik_transcript *transcript(size_t n)
{
    kvik_speech o;
    kvik_transcript *t;
    static const double greedy = 0;
    assert_int_equal(kvik_speech_init(&o), 0);
    o.temperatures = &greedy;
    o.n_temperatures = 1;
    o.no_speech_threshold = 0;
    if (kvik_transcribe_samples(cache, sound, n, &o, &t) < 0) fail_msg("%s", kvik_last_error());
    assert_true(t->n_segments > 0);
    return t;
}

/* Text for n samples of silence is there, as that of Transformers is, and every segment says what it is. */
static void expect(size_t n, bool silent, double level)
{
    kvik_transcript *t = transcript(n);
    for (size_t i = 0; i < t->n_segments; i++) {
        const kvik_segment *s = t->segment[i];
        if (s->no_speech != silent ||
            (isfinite(level) ? fabs(s->level - level) > 2 : s->level != level))
            fail_msg("segment %zu: %.2f dB, no_speech %d; expected %.0f and %d", i, s->level,
                     s->no_speech, level, silent);
    }
    kvik_transcript_free(t);
}

static void kinds_of_silence(void **state)
{
    (void)state;
    size_t n = 2 * AUDIO_RATE;
    memset(sound, 0, sizeof sound);
    expect(n, true, -INFINITY);
    expect(100, true, -INFINITY);
    for (size_t i = 0; i < n; i++)
        sound[i] = -0.25f;
    expect(n, true, -INFINITY);
    expect(9600, true, -INFINITY); /* less than a window, which is filled up */
    uint32_t seed = 3;
    for (size_t i = 0; i < n; i++) /* dither of 16 bits, of one step, and their rounding */
        sound[i] = (float)lround((double)(noise(&seed) + noise(&seed)) / 2) / 32768;
    expect(n, true, -96);
    hiss(n, -70, 0);
    expect(n, true, -70);
    hiss(n, -70, 0.4f);
    expect(n, true, -70);
    hiss(n, -45, 0);
    expect(n, false, -45);
}

/* The sound of the fixtures, which has 4 000 samples of silence and is as quiet as `by` makes it, then 20 seconds of silence. */
static void speech_then_silence(float by)
{
    size_t speech = 0, silent = 0;
    memset(sound, 0, sizeof sound);
    test_sound(sound, SPEECH);
    for (size_t i = 0; i < SPEECH; i++)
        sound[i] *= by;
    kvik_transcript *t = transcript(SPEECH + TAIL);
    for (size_t i = 0; i < t->n_segments; i++) {
        const kvik_segment *s = t->segment[i];
        if (s->end <= 3) {
            assert_false(s->no_speech);
            speech++;
        } else if (s->start >= 4.1) {
            assert_true(s->no_speech);
            assert_true(s->level == -INFINITY);
            silent++;
        }
    }
    assert_true(speech && silent);
    kvik_transcript_free(t);
}

static void speech(void **state)
{
    (void)state;
    speech_then_silence(1);
    speech_then_silence(0.02f);
}

/* Features have no samples.  Their transcript is the same but for the level. */
static void unknown(void **state)
{
    (void)state;
    static float features[8 * 300];
    kvik_speech o;
    kvik_transcript *t;
    static const double greedy = 0;
    memset(sound, 0, sizeof sound);
    kvik_transcript *want = transcript(SPEECH);
    assert_int_equal(kvik_speech_features(sound, SPEECH, 8, features), 300);
    assert_int_equal(kvik_speech_init(&o), 0);
    o.temperatures = &greedy;
    o.n_temperatures = 1;
    o.no_speech_threshold = 0;
    if (kvik_transcribe_features(cache, features, 300, 300, &o, &t) < 0)
        fail_msg("%s", kvik_last_error());
    assert_string_equal(t->text, want->text);
    assert_int_equal(t->n_segments, want->n_segments);
    for (size_t i = 0; i < t->n_segments; i++) {
        assert_true(isnan(t->segment[i]->level));
        assert_false(t->segment[i]->no_speech);
        assert_true(want->segment[i]->no_speech);
    }
    kvik_transcript_free(t);
    kvik_transcript_free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(energy), cmocka_unit_test(overlaps),
                                       cmocka_unit_test(clicks), cmocka_unit_test(kinds_of_silence),
                                       cmocka_unit_test(speech), cmocka_unit_test(unknown)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
