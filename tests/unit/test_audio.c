/* test_audio.c - recordings: the features agree with those of Transformers (fixtures/audio), however the recording is read;
 * WAV, FLAC, Ogg and MP3 files are decoded; files that lie, that were cut, or that hold no numbers are refused with a
 * sentence. */
#include "audio/audio.h"
#include "cpu_limit.h"
#include "fmt/fmt.h"
#include "test_sound.h"
#include "testing.h"

#include <math.h>
#include <sys/stat.h>

/* libsndfile 1.2 loses memory when it refuses a Vorbis or Opus stream. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libsndfile\nleak:libvorbis\nleak:libogg\nleak:libopus";
}

enum { N = 48077 };
static float sound[N];
static char dir[64] = "/tmp/kvik-audio-XXXXXX", path[128];

static int make_sound(void **state)
{
    (void)state;
    test_sound(sound, N);
    snprintf(path, sizeof path, "%s/sound", mkdtemp(dir) ? dir : "?");
    return 0;
}
static int clean(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

/* Returns the largest difference between frames [first, first + n) and every `step`-th column of a tensor. */
static double distance(const float *got, uint32_t bands, uint32_t columns, const char *name,
                       uint32_t step)
{
    struct safetensors *s;
    double most = 0;
    assert_int_equal(safetensors_open("tests/fixtures/audio/features.safetensors", &s), 0);
    const struct tensor *t = safetensors_find(s, name);
    assert_non_null(t);
    assert_int_equal(t->dim[0], bands);
    assert_true((t->dim[1] - 1) * step < columns);
    for (uint32_t b = 0; b < bands; b++)
        for (uint32_t i = 0; i < t->dim[1]; i++) {
            float want;
            memcpy(&want, (const char *)t->data + (b * t->dim[1] + i) * sizeof want, sizeof want);
            most = fmax(most, fabs((double)got[b * columns + i * step] - (double)want));
        }
    safetensors_close(s);
    return most;
}

static void features_of(const float *x, uint64_t n, uint32_t bands, uint64_t least,
                        struct audio **a, struct features **f)
{
    assert_int_equal(audio_samples(x, n, "sound", a), 0);
    assert_int_equal(features_open(*a, bands, least, NULL, NULL, f), 0);
}

static void padded(void **state)
{
    (void)state;
    static float out[128 * 3000];
    static const struct {
        uint32_t bands, step;
        const char *name;
    } kind[] = {{80, 1, "padded80"}, {128, 5, "padded128"}};
    for (size_t i = 0; i < countof(kind); i++) {
        struct audio *a;
        struct features *f;
        features_of(sound, N, kind[i].bands, 30 * AUDIO_RATE, &a, &f);
        assert_int_equal(f->frames, 3000);
        assert_int_equal(f->samples, N);
        assert_int_equal(features_window(f, 0, 3000, 3000, out), 0);
        double d = distance(out, kind[i].bands, 3000, kind[i].name, kind[i].step);
        printf("%s: largest difference %.2g\n", kind[i].name, d);
        assert_true(d < 1e-4);
        features_close(f);
        audio_close(a);
    }
}

/* Energy is how far samples are from their mean: an offset and silence have none, and a window knows its own frames. */
static void loudness(void **state)
{
    (void)state;
    static float x[16000 * 3], out[80 * 300];
    struct audio *a;
    struct features *f;
    for (size_t i = 0; i < countof(x); i++)
        x[i] = i < 16000 ? 0 : i < 32000 ? 0.25f : 0.5f * sinf((float)i * 0.2f);
    features_of(x, countof(x), 80, 0, &a, &f);
    assert_true(features_loudest(f, 0, 300) == 0); /* nothing is read yet */
    assert_int_equal(features_window(f, 0, 100, 150, out), 0);
    assert_true(features_loudest(f, 0, 98) == 0);
    assert_int_equal(features_window(f, 50, 150, 150, out), 0);
    assert_true(features_loudest(f, 104, 90) == 0);
    assert_true(features_loudest(f, 90, 20) == 0); /* the step, which three frames see */
    assert_int_equal(features_window(f, 150, 150, 150, out), 0);
    /* Half the square of the amplitude; a frame has no whole number of waves. */
    assert_true(fabsf(features_loudest(f, 210, 80) - 0.125f) < 5e-3f);
    assert_true(features_loudest(f, 0, 140) == 0); /* no longer known */
    features_close(f);
    audio_close(a);
}

/* A recording that is not filled up ends in a mirrored frame.  Windows may overlap and end in zeros. */
static void windows(void **state)
{
    (void)state;
    static float whole[80 * 300], part[80 * 100];
    struct audio *a;
    struct features *f;
    features_of(sound, N, 80, 0, &a, &f);
    assert_int_equal(f->frames, N / 160);
    assert_int_equal(features_window(f, 0, 300, 300, whole), 0);
    float last[80 * 20];
    for (int b = 0; b < 80; b++)
        memcpy(last + b * 20, whole + b * 300 + 280, 20 * sizeof(float));
    double d = distance(last, 80, 20, "whole80", 1);
    printf("whole80: largest difference %.2g\n", d);
    assert_true(d < 1e-4);
    features_close(f);
    assert_int_equal(features_open(a, 80, 0, NULL, NULL, &f), 0);
    static const uint32_t at[] = {0, 0, 37, 37, 110, 111, 210, 260};
    for (size_t i = 0; i < countof(at); i++) {
        uint32_t n = MIN(100, 300 - at[i]);
        assert_int_equal(features_window(f, at[i], n, 100, part), 0);
        for (uint32_t b = 0; b < 80; b++) {
            assert_memory_equal(part + b * 100, whole + b * 300 + at[i], n * sizeof(float));
            for (uint32_t t = n; t < 100; t++)
                assert_true(part[b * 100 + t] == 0);
        }
    }
    assert_int_equal(features_window(f, 250, 51, 100, part), ERR_ARG);
    assert_int_equal(features_window(f, 100, 10, 100, part), ERR_ARG);
    features_close(f);
    audio_close(a);
}

static bool stop(void *ctx, double seconds, double total)
{
    (void)seconds, (void)total;
    return ++*(int *)ctx < 2;
}

static void ends(void **state)
{
    (void)state;
    struct audio *a;
    struct features *f;
    float one = 0.5f, odd[3] = {0, NAN, 0};
    int told = 0;
    features_of(&one, 1, 80, 0, &a, &f);
    assert_int_equal(f->frames, 2); /* filled up to the length of a frame */
    features_close(f);
    audio_close(a);
    assert_int_equal(audio_samples(&one, 0, "nothing", &a), 0);
    assert_int_equal(features_open(a, 80, 1000, NULL, NULL, &f), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "nothing: the recording has no samples"));
    audio_close(a);
    odd[1] = NAN;
    assert_int_equal(audio_samples(odd, 3, "odd", &a), 0);
    assert_int_equal(features_open(a, 80, 1000, NULL, NULL, &f), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "not a finite number"));
    audio_close(a);
    assert_int_equal(audio_samples(sound, N, "sound", &a), 0);
    assert_int_equal(features_open(a, 0, 0, NULL, NULL, &f), ERR_UNSUPPORTED);
    assert_int_equal(features_open(a, 80, 30 * 8 * AUDIO_RATE, stop, &told, &f), ERR_CANCELLED);
    audio_close(a);
}

#ifdef KVIK_AUDIO
/* Writes a file and returns what opening and reading it says. */
static int reading(const void *data, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    fclose(file);
    struct audio *a;
    struct features *f;
    TRY(audio_open(path, &a));
    int e = features_open(a, 80, 0, NULL, NULL, &f);
    if (!e) features_close(f);
    audio_close(a);
    return e;
}

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}
/* Makes the header of a WAV file: float samples or 16 bits. */
static size_t wav(uint8_t *out, bool floats, uint32_t rate, uint32_t channels, uint32_t bytes)
{
    uint32_t width = floats ? 4 : 2;
    memcpy(out, "RIFF....WAVEfmt ", 16);
    put32(out + 4, 36 + bytes);
    put32(out + 16, 16);
    put32(out + 20, (floats ? 3 : 1) | channels << 16);
    put32(out + 24, rate);
    put32(out + 28, rate * width * channels);
    put32(out + 32, (width * channels & 0xffff) | width * 8 << 16);
    memcpy(out + 36, "data", 4);
    put32(out + 40, bytes);
    return 44;
}

static void hostile(void **state)
{
    (void)state;
    static uint8_t file[44 + 4 * 2000];
    float x[1000] = {0};
    size_t n;
    struct {
        const char *what, *says;
        bool floats;
        uint32_t rate, channels, bytes, kept;
        float odd;
    } c[] = {
        {"plain", NULL, true, 16000, 1, 4000, 4000, 0},
        {"two channels at 44.1 kHz", NULL, false, 44100, 2, 4000, 4000, 0},
        {"unknown length", NULL, false, 8000, 1, 0xffffffff, 4000, 0},
        {"length of 0", NULL, false, 16000, 1, 0, 4000, 0},
        {"length of a pipe of sox", NULL, false, 16000, 1, 0x7ffff000, 4000, 0},
        {"10 hours in 1 KB", NULL, false, 16000, 1, 1152000000, 980, 0},
        {"0 Hz", "sampling rate of 0 Hz", false, 0, 1, 4000, 4000, 0},
        {"1 Hz", "sampling rate of 1 Hz", false, 1, 1, 4000, 4000, 0},
        {"2^31 Hz", "sampling rate of 2147483648 Hz", false, 1u << 31, 1, 4000, 4000, 0},
        {"no channels", "0 channels", false, 16000, 0, 4000, 4000, 0},
        {"65535 channels", "65535 channels", false, 16000, 65535, 4000, 4000, 0},
        {"33 channels", "33 channels", false, 16000, 33, 3960, 3960, 0},
        {"NaN", "not a finite number", true, 16000, 1, 4000, 4000, NAN},
        {"NaN, resampled", "not a finite number", true, 48000, 1, 4000, 4000, NAN},
        {"infinity", "not a finite number", true, 16000, 1, 4000, 4000, INFINITY},
        {"huge", NULL, true, 16000, 1, 4000, 4000, 3e38f},
        {"no samples", "has no samples", false, 16000, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < countof(c); i++) {
        n = wav(file, c[i].floats, c[i].rate, c[i].channels, c[i].bytes);
        x[500] = c[i].odd;
        memcpy(file + n, x, c[i].floats ? sizeof x : 2000);
        int e = reading(file, n + c[i].kept);
        printf("%-26s %s\n", c[i].what, e ? err_last() : "read");
        assert_int_equal(e == 0, c[i].says == NULL);
        if (c[i].says) assert_non_null(strstr(err_last(), c[i].says));
    }
    /* 2^31 channels fit no WAV header; another format may claim them. */
    assert_int_equal(container_sound("file", INT64_C(1) << 31, 16000), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "2147483648 channels"));
    /* Every cut and every byte of the header, inverted. */
    for (size_t k = 0; k < 60; k++) {
        n = wav(file, false, 16000, 1, 2000);
        assert_int_equal(reading(file, k) == 0, k >= n + 2); /* a sample is there */
        if (k >= n) continue;
        file[k] ^= 0xff;
        (void)reading(file, n + 2000);
    }
    assert_int_equal(reading("FORM....AIFFCOMM", 16), ERR_UNSUPPORTED);
    struct audio *a;
    /* A file without blocks on the disk, which is all empty chunks: without a limit 2^31 of them are read. */
    assert_true(reading("RIFF....WAVE", 12) < 0);
    assert_int_equal(truncate(path, (off_t)1 << 34), 0);
    cpu_limit(60);
    assert_int_equal(audio_open(path, &a), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "more than 4096 chunks"));
    assert_int_equal(audio_open("/dev/zero", &a), ERR_IO);
    assert_non_null(strstr(err_last(), "not a regular file"));
    assert_int_equal(audio_open(dir, &a), ERR_IO);
}

/* The four formats hold the same 0.7 s.  When its end is missing, a WAV file gives the samples that are there, and the
 * others are refused. */
static void formats(void **state)
{
    (void)state;
    static const char *const name[] = {"tone.wav",  "tone.flac", "tone.ogg",
                                       "tone.opus", "tone.mp3",  "tone-plain.mp3"};
    static uint8_t file[1 << 16];
    for (size_t i = 0; i < countof(name); i++) {
        char from[128];
        snprintf(from, sizeof from, "tests/fixtures/audio/%s", name[i]);
        struct audio *a;
        static float x[20000], again[20000];
        assert_int_equal(audio_open(from, &a), 0);
        int got = 0, more = 0, e;
        double power = 0;
        while ((e = audio_read(a, x + got, 997)) > 0)
            got += e;
        assert_int_equal(e, 0);
        for (int k = 4000; k < 8000; k++)
            power += (double)x[k] * (double)x[k] / 4000;
        printf("%-16s %d samples, power %.4f\n", name[i], got, power);
        assert_in_range(got, 11200 - 100, 11200 + 3000); /* MP3 adds frames */
        assert_true(fabs(power - 0.125) < 0.02);
        assert_int_equal(audio_rewind(a), 0);
        while ((e = audio_read(a, again + more, 4096)) > 0)
            more += e;
        assert_int_equal(got, more);
        assert_memory_equal(x, again, (size_t)got * sizeof *x);
        audio_close(a);
        FILE *f = fopen(from, "rb");
        size_t n = fread(file, 1, sizeof file, f);
        fclose(f);
        for (size_t cut = 1; cut < 8; cut++) {
            int r = reading(file, n * cut / 8 - 3);
            if (!r) printf("%s: %zu of %zu bytes are read\n", name[i], n * cut / 8 - 3, n);
            assert_true(i == 0 ? r == 0 : r < 0); /* of a WAV file what is there */
        }
    }
}
/* Reads a WAV file of 16 bits whose header claims `bytes` bytes of sound and that has 1001 of them: the samples of those
 * that are whole, and the note. */
static void lacking(uint32_t bytes, const char *note)
{
    uint8_t file[44 + 1001];
    float x[1000];
    struct audio *a;
    size_t n = wav(file, false, 16000, 1, bytes);
    for (size_t i = 0; i < 1001; i++)
        file[n + i] = (uint8_t)(i * 37);
    assert_int_equal(reading(file, sizeof file), 0);
    assert_int_equal(audio_open(path, &a), 0);
    assert_int_equal(audio_read(a, x, 1000), 500);
    for (size_t i = 0; i < 500; i++) {
        const uint8_t *p = file + n + 2 * i;
        assert_true(x[i] == (float)(int16_t)(p[0] | p[1] << 8) / 32768);
    }
    if (!strstr(audio_note(a), note) || (!*note && *audio_note(a)))
        fail_msg("%u bytes: \"%s\"", bytes, audio_note(a));
    audio_close(a);
}

static void cut(void **state)
{
    (void)state;
    lacking(1000, "");
    lacking(32000, "promises 31.3 KiB, the file has 1.0 KiB");
    lacking(0, "does not say how long");
    lacking(0xffffffff, "does not say how long");
    lacking(0x7ffff000, "does not say how long");
    lacking(0x80000000, "does not say how long"); /* of arecord */
    lacking(0x80000001, "the end of the file is missing");
}
#else
static void cut(void **state)
{
    (void)state;
    skip();
}
static void hostile(void **state)
{
    (void)state;
    struct audio *a;
    assert_int_equal(audio_open("tests/fixtures/audio/tone.wav", &a), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "libsndfile1-dev"));
}
static void formats(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(padded),   cmocka_unit_test(windows),
                                       cmocka_unit_test(loudness), cmocka_unit_test(ends),
                                       cmocka_unit_test(hostile),  cmocka_unit_test(formats),
                                       cmocka_unit_test(cut)};
    return cmocka_run_group_tests(tests, make_sound, clean);
}
