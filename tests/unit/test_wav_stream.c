/* test_wav_stream.c - WAV recordings that are read once, as their bytes come: the samples are those of the file, whatever the
 * form, the length in the header and the portions; what cannot be read so is refused early; the features are those of the
 * file from the loudest frame on. */
#include "audio/audio.h"
#include "test_sound.h"
#include "testing.h"

#include <math.h>
#include <unistd.h>

#ifdef KVIK_AUDIO
enum { N = 20011, ROOM = 1 << 20 };
static char path[] = "/tmp/kvik-wav-XXXXXX";
static uint8_t file[ROOM];
static uint8_t many[300000];

static int make(void **state)
{
    (void)state;
    return mkstemp(path) < 0;
}
static int clean(void **state)
{
    (void)state;
    return unlink(path);
}

/* A recording in portions of at most `portion` bytes. */
struct source {
    const uint8_t *bytes;
    size_t n, at, portion, asked;
    int64_t fails; /* what the callback returns in place of the end */
};
static int64_t give(void *ctx, void *out, size_t n)
{
    struct source *s = ctx;
    size_t got = MIN(MIN(n, s->portion), s->n - s->at);
    memcpy(out, s->bytes + s->at, got);
    s->at += got;
    s->asked += n;
    return got ? (int64_t)got : s->fails;
}

static void put(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* The form of a WAV file.  Widths above 100: float samples of width - 100 bytes. */
struct form {
    uint32_t width, channels, rate;
    bool extensible;
};

/* Writes a header whose data chunk claims `claim` bytes. */
static size_t header(const struct form *f, uint32_t claim)
{
    static const uint8_t guid[14] = {0, 0, 0, 0, 16, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71};
    uint32_t tag = f->width > 100 ? 3 : 1, width = f->width % 100, n = f->extensible ? 40 : 16;
    uint8_t *p = file;
    memcpy(p, "RIFF....WAVEfmt ", 16);
    put(p + 4, 20 + n + claim, 4);
    put(p + 16, n, 4);
    put(p + 20, f->extensible ? 0xfffe : tag, 2);
    put(p + 22, f->channels, 2);
    put(p + 24, f->rate, 4);
    put(p + 28, (uint64_t)f->rate * width * f->channels, 4);
    put(p + 32, width * f->channels, 2);
    put(p + 34, width * 8, 2);
    if (f->extensible) {
        put(p + 36, 22, 2);
        put(p + 38, width * 8, 2);
        put(p + 40, 0, 4);
        put(p + 44, tag, 2);
        memcpy(p + 46, guid, sizeof guid);
    }
    p += 20 + n;
    memcpy(p, "data", 4);
    put(p + 4, claim, 4);
    return 28 + n;
}

/* Writes n frames behind the header and returns the size of the whole. */
static size_t wav(const struct form *f, uint32_t n)
{
    static float sound[N * 3];
    uint32_t width = f->width % 100, samples = n * f->channels;
    size_t at = header(f, samples * width), size = at + (size_t)samples * width;
    assert_true(size <= ROOM && samples <= countof(sound));
    test_sound(sound, samples);
    for (uint32_t i = 0; i < samples; i++, at += width) {
        double x = (double)sound[i];
        float single = (float)(x * 1.25);
        uint64_t bits;
        if (f->width == 108) {
            x *= 1.1;
            memcpy(&bits, &x, 8);
        } else if (f->width == 104) {
            bits = 0;
            memcpy(&bits, &single, 4);
        } else {
            bits = (uint64_t)llround(x * 2147483647.0) >> (32 - 8 * width);
            if (width == 1) bits ^= 0x80;
        }
        put(file + at, bits, (int)width);
    }
    return size;
}

static void save(size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(file, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Reads all samples, or returns the error. */
static int all(struct audio *a, float *out, uint32_t room)
{
    int got, n = 0;
    while ((got = audio_read(a, out + n, MIN(room - (uint32_t)n, 5000))) > 0)
        n += got;
    return got < 0 ? got : n;
}

/* Compares the samples of the file and of the stream; returns their number, or an error that both have. */
static int compare(size_t size, size_t portion, const char *what)
{
    static float x[N * 3], y[N * 3];
    struct audio *a = NULL;
    struct source s = {.bytes = file, .n = size, .portion = portion};
    save(size);
    int e = audio_open(path, &a), n = e;
    if (!e) n = all(a, x, countof(x));
    audio_close(a);
    if ((e = audio_stream(give, &s, "stream", &a)) < 0) return e;
    int m = all(a, y, countof(y));
    if (m > 0 && audio_rewind(a) != ERR_ARG) fail_msg("%s: it is read twice", what);
    audio_close(a);
    if (m < 0 && n < 0) return m;
    if (n != m) fail_msg("%s: %d samples, %d of the file", what, m, n);
    if (memcmp(x, y, (size_t)MAX(n, 0) * sizeof *x) != 0) fail_msg("%s: other samples", what);
    return n;
}

static void forms(void **state)
{
    (void)state;
    static const uint32_t width[] = {1, 2, 3, 4, 104, 108}, rate[] = {16000, 8000, 44100, 48000};
    static const size_t portion[] = {1, 7, 320, 65536};
    for (size_t w = 0; w < countof(width); w++)
        for (size_t r = 0; r < countof(rate); r++)
            for (uint32_t k = 1; k <= 3; k++) {
                struct form f = {width[w], k, rate[r], (w + r + k) % 2};
                char what[64];
                uint32_t n = r ? 6007 : N;
                snprintf(what, sizeof what, "width %u, %u Hz, %u channels", f.width, f.rate, k);
                size_t size = wav(&f, n);
                for (size_t p = 0; p < countof(portion); p++) {
                    int got = compare(size, portion[p], what);
                    if (got <= 0) fail_msg("%s: %d: %s", what, got, err_last());
                    if (!r) assert_int_equal(got, n);
                }
            }
}

/* Reads a stream whose header claims `claim` bytes, and that has 1001: the samples that are whole, and the note. */
static void lacking(uint32_t claim, const char *note)
{
    static const struct form f = {2, 1, 16000, false};
    static float x[1000];
    struct audio *a;
    size_t size = header(&f, claim) + 1001;
    memset(file + 44, 5, 1001);
    struct source s = {.bytes = file, .n = size, .portion = 100};
    assert_int_equal(compare(size, 100, "a length"), MIN(claim ? claim : 1001, 1001) / 2);
    assert_int_equal(audio_stream(give, &s, "stream", &a), 0);
    assert_int_equal(all(a, x, 1000), 500);
    if (!strstr(audio_note(a), note) || (!*note && *audio_note(a)))
        fail_msg("%u bytes: \"%s\"", claim, audio_note(a));
    audio_close(a);
}

static void lengths(void **state)
{
    (void)state;
    static const struct form f = {2, 2, 16000, true};
    lacking(1000, "");
    lacking(1001, "");
    lacking(0, "");
    lacking(0xffffffff, "");
    lacking(0x7ffff000, "");
    lacking(32000, "its header promises 31.2 KiB of sound, 1000 B came");
    lacking(0x80000000, ""); /* of arecord */
    lacking(0x80000002, "the end of the recording is missing");
    /* Without sound, with another chunk behind it. */
    size_t n = header(&f, 0);
    memcpy(file + n, "LIST\4\0\0\0INFO", 12);
    put(file + 4, n + 4, 4);
    struct source s = {.bytes = file, .n = n + 12, .portion = 9};
    struct audio *a;
    float x[10];
    assert_int_equal(compare(n + 12, 9, "no sound"), 0);
    assert_int_equal(audio_stream(give, &s, "stream", &a), 0);
    assert_int_equal(all(a, x, 10), 0);
    audio_close(a);
    /* Chunks around the sound are not sound. */
    size_t size = wav(&f, 300);
    memmove(file + 68 + 100010, file + 60, size - 60);
    memcpy(file + 60, "LIST", 4);
    put(file + 64, 100010, 4);
    memcpy(file + size + 100018, "LIST\4\0\0\0INFO", 12);
    assert_int_equal(compare(size + 100030, 1000, "a chunk before the sound"), 300);
}

static void refused(const char *what, size_t n, int code, const char *says)
{
    struct source s = {.bytes = file, .n = n, .portion = 999};
    struct audio *a = NULL;
    int e = audio_stream(give, &s, "it", &a);
    if (!e) {
        static float x[ROOM];
        e = all(a, x, ROOM);
        audio_close(a);
    }
    if (e != code || !strstr(err_last(), says)) fail_msg("%s: %d, %s", what, e, err_last());
    if (code == ERR_UNSUPPORTED) assert_true(s.at <= WAV_STREAM_HEAD);
}

static void hostile(void **state)
{
    (void)state;
    struct form f = {2, 1, 16000, false};
    struct audio *a;
    size_t n;
    refused("nothing", 0, ERR_FORMAT, "it is empty: no recording came");
    memset(file, 0, ROOM);
    refused("zeros", ROOM, ERR_UNSUPPORTED, "can be read as it comes; give a file");
    refused("three bytes", 3, ERR_UNSUPPORTED, "give a file");
    static const struct {
        const char *what, *says;
        int at, bytes, code;
        uint32_t value;
    } c[] = {{"0 Hz", "a sampling rate of 0 Hz", 24, 4, ERR_FORMAT, 0},
             {"no channels", "0 channels", 22, 2, ERR_FORMAT, 0},
             {"ADPCM", "give a file", 20, 2, ERR_UNSUPPORTED, 17},
             {"20 bits", "give a file", 34, 2, ERR_UNSUPPORTED, 20},
             {"odd frames", "give a file", 32, 2, ERR_UNSUPPORTED, 5},
             {"an extension that is not there", "give a file", 20, 2, ERR_UNSUPPORTED, 0xfffe},
             {"no format", "give a file", 12, 4, ERR_UNSUPPORTED, 0x20202020},
             {"a short format", "give a file", 16, 4, ERR_UNSUPPORTED, 15},
             {"a long format", "give a file", 16, 4, ERR_UNSUPPORTED, 1 << 16},
             {"no sound", "without a data chunk", 36, 4, ERR_FORMAT, 0x20202020}};
    for (size_t i = 0; i < countof(c); i++) {
        n = wav(&f, 1000);
        put(file + c[i].at, c[i].value, c[i].bytes);
        refused(c[i].what, n, c[i].code, c[i].says);
    }
    f.width = 104;
    n = wav(&f, 1000);
    put(file + 44 + 800, 0x7fc00000, 4);
    refused("NaN", n, ERR_FORMAT, "it: the sound at 0.01 s is not a finite number");
    /* Chunks without end are refused, one after the other. */
    n = header(&f, 0) - 8;
    for (size_t at = n; at + 8 <= ROOM; at += 8)
        memcpy(file + at, "JUNK\0\0\0\0", 8);
    refused("chunks", ROOM, ERR_FORMAT, "more than 4096 chunks");
    /* Every cut, and every byte of the header inverted: an end, not a crash, and never other samples than of the file. */
    f = (struct form){2, 1, 16000, true};
    for (size_t k = 0; k < 70; k++) {
        n = wav(&f, 500);
        (void)compare(k, 5, "a cut");
        file[k] ^= 0xff;
        (void)compare(n, 500, "another byte");
    }
    /* What the callback says is passed on. */
    static const struct {
        int64_t says;
        int code;
        const char *text;
    } back[] = {{ERR_CANCELLED, ERR_CANCELLED, "it: cancelled"},
                {ERR_IO, ERR_IO, "it: reading the recording failed"},
                {-1000, ERR_IO, "it: reading the recording failed"},
                {INT64_MAX, ERR_ARG, "the callback returned"}};
    for (size_t i = 0; i < countof(back); i++)
        for (size_t k = 0; k < 3; k++) {
            n = wav(&f, 500);
            struct source s = {.bytes = file, .n = k * 67, .portion = 50, .fails = back[i].says};
            int e = audio_stream(give, &s, "it", &a);
            if (!e) {
                static float x[1000];
                e = all(a, x, 1000);
                audio_close(a);
            }
            assert_int_equal(e, back[i].code);
            assert_non_null(strstr(err_last(), back[i].text));
        }
}

/* The features of windows that overlap, as a recording comes and of the file: equal if the loudest frame was before them. */
static void features(void **state)
{
    (void)state;
    static const struct form form = {2, 1, 16000, false};
    static float x[80 * 50], y[80 * 50];
    size_t size = wav(&form, N);
    for (size_t i = 44 + 2 * 3000; i < size; i += 2) /* quieter */
        put(file + i, (uint64_t)(int64_t)((int16_t)(file[i] | file[i + 1] << 8) / 64), 2);
    save(size);
    struct source s = {.bytes = file, .n = size, .portion = 500};
    struct audio *a, *b;
    struct features *f, *g;
    assert_int_equal(audio_open(path, &a), 0);
    assert_int_equal(features_open(a, 80, 0, NULL, NULL, &f), 0);
    assert_int_equal(audio_stream(give, &s, "stream", &b), 0);
    assert_int_equal(features_begin(b, 80, 0, &g), 0);
    assert_int_equal(g->frames, 0);
    for (uint64_t at = 0; at < N / 160; at += 37) {
        uint32_t n = (uint32_t)MIN(50, N / 160 - at);
        assert_int_equal(features_reach(g, at, at + 50), 0);
        assert_int_equal(g->frames, at + n);
        assert_int_equal(features_window(f, at, n, 50, x), 0);
        assert_int_equal(features_window(g, at, n, 50, y), 0);
        assert_memory_equal(x, y, sizeof x);
        if (n == 50) assert_true(s.at < 44 + 2 * ((at + 50) * 160 + 200) + 500);
    }
    assert_int_equal(g->samples, N);
    assert_int_equal(features_reach(g, 0, 50), 0); /* the end is known */
    assert_int_equal(features_window(g, 0, 50, 50, y), ERR_ARG);
    features_close(f);
    features_close(g);
    audio_close(a);
    audio_close(b);
    /* Before the loudest frame, and of a recording without samples. */
    s = (struct source){.bytes = many, .n = sizeof many, .portion = 5000};
    memcpy(many, file, header(&form, 0));
    memcpy(many, file, 44);
    put(many + 200000, 0x7fff, 2);
    assert_int_equal(audio_stream(give, &s, "stream", &b), 0);
    assert_int_equal(features_begin(b, 80, 0, &g), 0);
    assert_int_equal(features_reach(g, 0, 50), 0);
    assert_int_equal(features_window(g, 0, 50, 50, y), 0);
    assert_true(y[0] == (-10.0f + 4) / 4); /* silence alone is not 8 below something */
    assert_int_equal(features_reach(g, 620, 670), 0);
    assert_int_equal(features_window(g, 620, 1, 50, y), 0);
    assert_true(y[0] >= -1.5f + 0.1f);
    assert_int_equal(features_reach(g, 600, 650), ERR_ARG);
    features_close(g);
    audio_close(b);
    s = (struct source){.bytes = many, .n = 44, .portion = 5000};
    assert_int_equal(audio_stream(give, &s, "stream", &b), 0);
    assert_int_equal(features_begin(b, 80, 0, &g), 0);
    assert_int_equal(features_reach(g, 0, 50), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "has no samples"));
    features_close(g);
    audio_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(lengths),
                                       cmocka_unit_test(hostile), cmocka_unit_test(features)};
    return cmocka_run_group_tests(tests, make, clean);
}
#else
static void none(void **state)
{
    (void)state;
    struct audio *a;
    assert_int_equal(audio_stream(NULL, NULL, "it", &a), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "libsndfile1-dev"));
}
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
