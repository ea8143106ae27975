/* fuzz_audio.c - any bytes as an audio file. A file that opens gives at most the samples that its header promises, all
 * finite, and the same ones after a rewind; or reading it ends with a sentence. */
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
        return 0;
    }
    MUST(audio_promised(a) >= 0 && audio_promised(a) <= AUDIO_SECONDS + 1);
    int first = listen(a, x);
    if (first < 0) MUST(err_last()[0]);
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
