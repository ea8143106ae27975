/* fuzz_audio.c - any bytes as an audio file, and as a recording that comes through a pipe. A file that opens gives at most the
 * samples that its header promises, all finite, and the same ones after a rewind; or reading it ends with a sentence. What
 * comes through a pipe gives the samples of the file, or has another end where the header does not agree with the file. */
#include "fuzz.h"

#include "audio/audio.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

/* libsndfile 1.2 loses memory when it refuses a Vorbis or Opus stream. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libsndfile\nleak:libvorbis\nleak:libogg\nleak:libopus";
}

/* A few bytes can be hours of silence in FLAC; the first two seconds show what there is to see. */
enum { MOST = 2 * AUDIO_RATE };

static bool soon(void *ctx, double seconds, double total)
{
    (void)ctx, (void)total;
    return seconds < 30;
}

/* Reads the first samples in odd portions and returns their number, or an error. */
static int listen(struct audio *a, float *x)
{
    int got = 0, e;
    for (uint32_t n = 1; got + (int)n <= MOST; n = n * 3 % 5003) {
        if ((e = audio_read(a, x + got, n)) < 0) return e;
        if (!e) break;
        for (int i = 0; i < e; i++)
            MUST(isfinite(x[got + i]));
        got += e;
    }
    return got;
}

/* The bytes in portions of different sizes. */
struct bytes {
    const uint8_t *data;
    size_t size, at;
};
static int64_t give(void *ctx, void *out, size_t n)
{
    struct bytes *b = ctx;
    size_t got = MIN(MIN(n, 1 + b->at * 7 % 301), b->size - b->at);
    MUST(n > 0 && n <= WAV_STREAM_HEAD);
    memcpy(out, b->data + b->at, got);
    b->at += got;
    return (int64_t)got;
}

/* Reads the recording as it comes, and compares it with the n samples of the file; n < 0: the file gives none. */
static void stream(const uint8_t *data, size_t size, const float *file, int n)
{
    static float x[MOST];
    struct bytes b = {.data = data, .size = size};
    struct audio *a = NULL;
    struct features *f = NULL;
    int e = audio_stream(give, &b, "stream", &a);
    if (e) {
        MUST(e < 0 && !a && err_last()[0]);
        MUST(e != ERR_UNSUPPORTED || b.at <= WAV_STREAM_HEAD);
        return;
    }
    MUST(audio_promised(a) >= 0);
    int got = listen(a, x);
    MUST(got >= 0 || err_last()[0]);
    if (got > 0 && n > 0) MUST(!memcmp(x, file, (size_t)MIN(got, n) * sizeof *x));
    MUST(got <= 0 || audio_rewind(a) == ERR_ARG);
    audio_close(a);
    b.at = 0;
    MUST(audio_stream(give, &b, "stream", &a) == 0);
    MUST(features_begin(a, 8, 0, &f) == 0);
    for (uint64_t at = 0; at < 100; at += 9) {
        e = features_reach(f, at, at + 13);
        MUST(e ? err_last()[0] != 0 : f->samples > 0);
        if (e || f->frames <= at) break;
        MUST(features_window(f, at, (uint32_t)MIN(13, f->frames - at), 13, x) == 0);
    }
    features_close(f);
    audio_close(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float x[MOST], again[MOST];
    char path[48];
    struct audio *a = NULL;
    struct features *f = NULL;
    int fd = memfd_create("audio", 0);
    MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int e = audio_open(path, &a);
    if (e) {
        MUST(e < 0 && !a && err_last()[0]);
        close(fd);
        stream(data, size, NULL, -1);
        return 0;
    }
    MUST(audio_promised(a) >= 0 && audio_promised(a) <= AUDIO_SECONDS + 1);
    int first = listen(a, x);
    if (first < 0) MUST(err_last()[0]);
    stream(data, size, x, first);
    if (audio_rewind(a) == 0) {
        int second = listen(a, again);
        MUST((first < 0) == (second < 0));
        if (first > 0) MUST(first == second && !memcmp(x, again, (size_t)first * sizeof *x));
    }
    e = features_open(a, 8, 0, soon, NULL, &f);
    MUST(e ? err_last()[0] != 0 : f->frames > 0);
    if (!e) MUST(features_window(f, 0, 1, 2, x) == 0);
    features_close(f);
    audio_close(a);
    close(fd);
    return 0;
}
