/* test_speech_stream.c - recordings that are transcribed as they come: the segments are those of the whole recording if its
 * loudest part comes first, each is there before the next window is asked for, and every failure leaves the cache as it was. */
#include "share.h"
#include "speech/speech.h"
#include "test_sound.h"
#include "testing.h"

#include <math.h>

#ifdef KVIK_AUDIO
#define TINY "tests/fixtures/speech/tiny"
enum { N = 48077, WINDOW = 16000, AHEAD = 200 };
static float sound[N];
static uint8_t wav[44 + 2 * N];
static kvik_model *model;
static kvik_cache *cache;

static int setup(void **state)
{
    (void)state;
    static const uint8_t header[44] =
        "RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0data";
    test_sound(sound, N);
    memcpy(wav, header, 44);
    for (int i = 0; i < N; i++) {
        int x = (int)lrintf(sound[i] * (i < WINDOW / 2 ? 32767.0f : 3000.0f));
        sound[i] = (float)x / 32768;
        wav[44 + 2 * i] = (uint8_t)x;
        wav[45 + 2 * i] = (uint8_t)(x >> 8);
    }
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

struct live {
    size_t n, at, portion;
    int64_t end; /* what is returned in place of more bytes */
    size_t segments;
    double last; /* seconds where the last segment ends */
    enum kvik_hearing what;
    bool stops;
};
static int64_t give(void *ctx, void *bytes, size_t n)
{
    struct live *l = ctx;
    n = MIN(MIN(n, l->portion), l->n - l->at);
    /* The sound of a window is asked for when all that was heard before is known. */
    if (l->at > 44 + 2 * (2 * WINDOW + AHEAD)) assert_true(l->segments > 0);
    memcpy(bytes, wav + l->at, n);
    l->at += n;
    return n ? (int64_t)n : l->end;
}
static bool on_segment(void *ctx, const kvik_segment *s)
{
    struct live *l = ctx;
    /* A random model also begins segments with other tokens, whose times mean nothing. */
    double begun = l->what == KVIK_HEARING_TRANSCRIBE && s->start >= 0 ? s->start : INFINITY;
    l->segments++;
    l->last = s->end;
    /* Nothing behind the window and its margin was asked for. */
    if ((double)(l->at - 44) / 2 > (begun + 1) * WINDOW + AHEAD + (double)l->portion)
        fail_msg("%g s: %zu samples were asked for", s->start, (l->at - 44) / 2);
    return !l->stops;
}
static bool on_hearing(void *ctx, enum kvik_hearing what, double seconds, double total)
{
    struct live *l = ctx;
    l->what = what;
    assert_true(seconds >= 0 && (total == 0 || seconds == total));
    return true;
}

static kvik_speech options(struct live *l)
{
    static const double greedy[] = {0};
    kvik_speech o;
    assert_int_equal(kvik_speech_init(&o), 0);
    o.ctx = l;
    o.temperatures = greedy;
    o.n_temperatures = 1;
    o.no_speech_threshold = 0;
    return o;
}

static void compare(const kvik_transcript *a, const kvik_transcript *b)
{
    assert_string_equal(a->text, b->text);
    assert_string_equal(a->language, b->language);
    assert_true(a->seconds == b->seconds);
    assert_int_equal(a->windows, b->windows);
    assert_int_equal(a->n_segments, b->n_segments);
    for (size_t i = 0; i < a->n_segments; i++) {
        const kvik_segment *x = a->segment[i], *y = b->segment[i];
        assert_string_equal(x->text, y->text);
        assert_true(x->start == y->start && x->end == y->end && x->n == y->n);
        assert_memory_equal(x->ids, y->ids, x->n * sizeof *x->ids);
        assert_true(x->avg_logprob == y->avg_logprob && x->no_speech_prob == y->no_speech_prob);
        assert_int_equal(x->n_words, y->n_words);
    }
}

/* Whole windows, parts of them, and less than one window. */
static void same(void **state)
{
    (void)state;
    static const size_t n[] = {
        N,   3 * WINDOW, 2 * WINDOW + 1, 2 * WINDOW + 159, WINDOW + AHEAD, WINDOW, WINDOW - 1,
        400, 1};
    static const size_t portion[] = {3, 999, 1 << 16};
    for (size_t i = 0; i < countof(n); i++)
        for (size_t p = 0; p < countof(portion); p++)
            for (int plain = 0; plain < (n[i] <= WINDOW ? 2 : 1); plain++) {
                struct live l = {.n = 44 + 2 * n[i], .portion = portion[p]};
                kvik_speech o = options(&l);
                kvik_transcript *a, *b;
                o.word_timestamps = p == 1;
                o.return_timestamps = !plain;
                if (kvik_transcribe_samples(cache, sound, n[i], &o, &a) < 0)
                    fail_msg("%s", kvik_last_error());
                o.on_segment = plain ? NULL : on_segment;
                o.on_hearing = on_hearing;
                if (kvik_transcribe_stream(cache, give, NULL, &o, &b) < 0)
                    fail_msg("%s", kvik_last_error());
                compare(a, b);
                if (!plain) assert_int_equal(l.segments, b->n_segments);
                if (n[i] == N && p == 0) {
                    printf("%zu segments in %u windows\n", b->n_segments, b->windows);
                    assert_true(b->n_segments > 4 && b->windows > 3);
                }
                kvik_transcript_free(a);
                kvik_transcript_free(b);
            }
}

static void refusals(void **state)
{
    (void)state;
    kvik_transcript *t = NULL;
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    struct live l = {.n = sizeof wav, .portion = 100};
    kvik_speech o = options(&l);
    assert_int_equal(kvik_cache_usage(cache, &before), 0);
    assert_int_equal(kvik_transcribe_stream(cache, NULL, NULL, &o, &t), KVIK_ARG);
    assert_int_equal(kvik_transcribe_stream(cache, give, NULL, &o, NULL), KVIK_ARG);
    assert_int_equal(l.at, 0);
    /* More than a window without timestamps is refused as soon as that is known. */
    o.return_timestamps = false;
    l.segments = 1;
    assert_int_equal(kvik_transcribe_stream(cache, give, "speech", &o, &t), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "speech: the recording has 1.0"));
    assert_non_null(strstr(kvik_last_error(), "s or more and a window 1.00; longer"));
    assert_true(l.at < 44 + 2 * (WINDOW + 160 + AHEAD) + 200);
    static const struct {
        int64_t end;
        int code;
        const char *says;
    } c[] = {{KVIK_CANCELLED, KVIK_CANCELLED, "the recording: cancelled"},
             {KVIK_IO, KVIK_IO, "the recording: reading the recording failed"},
             {1 << 20, KVIK_ARG, "the callback returned 1048576"}};
    for (size_t i = 0; i < countof(c); i++)
        for (size_t n = 0; n < 44 + 2 * WINDOW; n += 43 * test_share() + i * 9000) {
            l = (struct live){.n = n, .portion = 3000, .end = c[i].end};
            o = options(&l);
            assert_int_equal(kvik_transcribe_stream(cache, give, NULL, &o, &t), c[i].code);
            if (!strstr(kvik_last_error(), c[i].says)) fail_msg("%s", kvik_last_error());
        }
    l = (struct live){.n = sizeof wav, .portion = 3000, .stops = true};
    o = options(&l);
    o.on_segment = on_segment;
    o.on_hearing = on_hearing;
    assert_int_equal(kvik_transcribe_stream(cache, give, NULL, &o, &t), KVIK_CANCELLED);
    assert_int_equal(l.segments, 1);
    assert_null(t);
    assert_int_equal(kvik_cache_usage(cache, &after), 0);
    assert_int_equal(after.live, before.live);
}

/* A callback that uses the cache, and then closes it: the call goes on. */
static kvik_cache *used;
static int64_t give_busily(void *ctx, void *bytes, size_t n)
{
    struct live *l = ctx;
    kvik_speech o = options(NULL);
    kvik_transcript *t = NULL;
    if (used && l->at > 44) {
        int e = kvik_transcribe_samples(used, sound, 9000, &o, &t);
        assert_true(e == 0 || e == KVIK_BUSY);
        kvik_transcript_free(t);
    }
    if (used && l->at > 44 + 3 * WINDOW) {
        kvik_cache_close(used);
        used = NULL;
    }
    l->segments = 1;
    return give(ctx, bytes, n);
}

static void nested(void **state)
{
    (void)state;
    kvik_cache_config c = {.size = sizeof c, .max_sequences = 4, .max_cache_len = 48};
    struct live l = {.n = sizeof wav, .portion = WINDOW};
    kvik_speech o = options(&l);
    kvik_transcript *a, *b;
    assert_int_equal(kvik_transcribe_samples(cache, sound, N, &o, &a), 0);
    assert_int_equal(kvik_cache_open(model, &c, &used), 0);
    if (kvik_transcribe_stream(used, give_busily, NULL, &o, &b) < 0)
        fail_msg("%s", kvik_last_error());
    assert_null(used);
    compare(a, b);
    kvik_transcript_free(a);
    kvik_transcript_free(b);
}

static void no_memory(void **state)
{
    (void)state;
    kvik_transcript *t = NULL;
    int failures = 0;
    for (;; failures++) {
        struct live l = {.n = 44 + 9000, .portion = 5000};
        kvik_speech o = options(&l);
        mem_fail_at(failures, false);
        int e = kvik_transcribe_stream(cache, give, NULL, &o, &t);
        mem_fail_at(-1, false);
        if (e == 0) break;
        if (e != KVIK_NOMEM) fail_msg("%d: %s", e, kvik_last_error());
        assert_null(t);
    }
    assert_true(failures > 20);
    kvik_transcript_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same), cmocka_unit_test(refusals),
                                       cmocka_unit_test(nested), cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
#else
int main(void)
{
    puts("[  PASSED  ] 0 test(s).");
    return 0;
}
#endif
