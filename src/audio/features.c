/* features.c - the log-mel features of a recording as Whisper's extractor defines them, without holding the
 * recording.
 *
 * Frame t is centred on sample t * MEL_HOP, and the recording is mirrored at both ends.  All values are clamped to
 * at least 8 (powers of ten) below the largest of the whole recording.  So a recording is read twice: first for
 * the largest value, then for the windows that the caller asks for.  A recording that is still being made is read
 * once, and its values are clamped by the largest so far. */
#include "audio/audio.h"

#include <math.h>
#include <string.h>

#define REACH (MEL_WINDOW / 2) /* samples of a frame before and behind its centre */
#define BLOCK 8192u
/* A sound must reach this many frames; a sound of 25 ms does.  Clicks, and the edge of an offset (which resampling
 * blurs), reach fewer. */
#define SUSTAINED 5u

/* A window of samples that slides over the recording. */
struct sample_window {
    struct audio *audio;
    float part[BLOCK + 4 * MEL_WINDOW];
    uint64_t base;  /* the number of the first sample in part */
    uint32_t n;     /* samples in part */
    uint64_t total; /* samples with the silence that fills the recording up; set when `ended` */
    uint64_t heard; /* samples that were read */
    bool ended;
};
struct mel_reader { /* the whole object; callers see its first member */
    struct features open;
    struct mel *mel;
    struct sample_window window;
    uint64_t min_samples;
    bool grows;    /* opened by features_begin: the recording is still being made */
    bool ended;    /* all frames of the recording are known */
    float loudest; /* the largest value before scaling; if `grows`, of the recording so far */
    uint64_t next; /* the frame that comes next */
    /* The last `kept` frames that were read, as a ring: windows overlap. */
    float *ring;
    /* [kept] for each frame the variance of its samples, without the silence that fills up */
    float *energy;
    uint32_t kept;
    float variance; /* variance of the last frame that was read */
};

static struct mel_reader *reader_of(struct features *f)
{
    return (struct mel_reader *)f;
}

static int window_begin(struct sample_window *s)
{
    s->base = s->n = 0;
    s->total = s->heard = 0;
    s->ended = false;
    return audio_rewind(s->audio);
}

/* Reads on until sample `end` - 1 is in the window or the recording has ended.  Samples before `first` may be
 * dropped. */
static int window_reach(struct sample_window *s, uint64_t first, uint64_t end, uint64_t min_samples)
{
    while (!s->ended && s->base + s->n < end) {
        if (s->n + BLOCK > countof(s->part)) {
            uint32_t drop = (uint32_t)MIN(first - s->base, s->n);
            memmove(s->part, s->part + drop, (s->n - drop) * sizeof(float));
            s->base += drop;
            s->n -= drop;
        }
        int got = audio_read(s->audio, s->part + s->n, BLOCK);
        if (got < 0) return got;
        s->heard += (uint32_t)got;
        if (!got && s->heard < min_samples && s->base + s->n < min_samples) {
            got = (int)MIN(BLOCK, min_samples - s->base - s->n);
            memset(s->part + s->n, 0, (uint32_t)got * sizeof(float));
        }
        s->n += (uint32_t)got;
        if (got) continue;
        s->ended = true;
        s->total = s->base + s->n;
    }
    return 0;
}

/* Returns the variance of the samples around their mean: a constant offset of the microphone is not sound. */
static float variance_of(const float *x, uint32_t n)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i];
    double mean = n ? sum / n : 0;
    for (uint32_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return n ? (float)(squares / n) : 0;
}

/* Computes frame t.  Returns 1, or 0 if the recording has no such frame. */
static int frame_at(struct mel_reader *r, uint64_t t, float *out)
{
    struct sample_window *s = &r->window;
    uint64_t centre = t * MEL_HOP, left = centre > REACH ? centre - REACH : 0;
    float x[MEL_WINDOW], sound[MEL_WINDOW];
    /* Only samples of the recording count: the silence behind a short one would turn a constant offset into a
     * step. */
    uint32_t n = 0;
    /* Mirroring at the end needs as many samples before it as a frame reaches beyond it. */
    uint64_t keep = left > MEL_WINDOW ? left - MEL_WINDOW : 0;
    TRY(window_reach(s, keep, centre + REACH, r->min_samples));
    if (s->ended && (t + 1) * MEL_HOP > s->total) return 0;
    for (uint32_t i = 0; i < MEL_WINDOW; i++) {
        int64_t at = (int64_t)centre - REACH + i;
        if (at < 0) at = -at;
        if (s->ended && at >= (int64_t)s->total) at = 2 * (int64_t)s->total - 2 - at;
        x[i] = at < 0 ? 0 : s->part[(uint64_t)at - s->base];
        if (at >= 0 && (uint64_t)at < s->heard) sound[n++] = x[i];
    }
    mel_frame(r->mel, x, out);
    r->variance = variance_of(sound, n);
    return 1;
}

/* Raises the largest value of the recording to that of a frame. */
static void weigh(struct mel_reader *r, const float *frame)
{
    for (uint32_t b = 0; b < r->open.bands; b++)
        r->loudest = fmaxf(r->loudest, frame[b]);
}

static int check_heard(const struct mel_reader *r)
{
    if (r->window.heard) return 0;
    return ERR(FORMAT, "%s: the recording has no samples", audio_name(r->window.audio));
}

/* Reads the whole recording to count its frames and find its largest value. */
static int read_all(struct mel_reader *r, features_progress progress, void *ctx)
{
    float frame[MEL_MOST];
    double promised = audio_promised(r->window.audio);
    uint64_t t = 0;
    TRY(window_begin(&r->window));
    for (;; t++) {
        int e = frame_at(r, t, frame);
        if (e < 0) return e;
        if (!e) break;
        weigh(r, frame);
        if (t / 100 > AUDIO_SECONDS)
            return ERR(LIMIT, "%s: longer than %u hours; cut the recording into parts",
                       audio_name(r->window.audio), AUDIO_SECONDS / 3600);
        if (progress && t % 3000 == 0 && !progress(ctx, (double)t / 100, promised))
            return ERR(CANCELLED, "%s: cancelled", audio_name(r->window.audio));
    }
    TRY(check_heard(r));
    r->open.frames = t;
    r->open.samples = r->window.heard;
    r->ended = true;
    return window_begin(&r->window);
}

static int reader_begin(struct audio *a, uint32_t bands, uint64_t min_samples,
                        struct mel_reader **out)
{
    struct mel_reader *r = mem_alloc(sizeof *r);
    if (!r) return ERR_NOMEM;
    r->open.bands = bands;
    r->window.audio = a;
    r->loudest = -10;
    /* A frame is mirrored at both ends, so the recording must be longer than half a frame. */
    r->min_samples = MAX(min_samples, MEL_WINDOW);
    int e = mel_open(bands, &r->mel);
    if (e < 0)
        features_close(&r->open);
    else
        *out = r;
    return e;
}

int features_open(struct audio *a, uint32_t bands, uint64_t min_samples, features_progress progress,
                  void *ctx, struct features **out)
{
    struct mel_reader *r;
    TRY(reader_begin(a, bands, min_samples, &r));
    int e = read_all(r, progress, ctx);
    if (e) {
        features_close(&r->open);
        return e;
    }
    *out = &r->open;
    return 0;
}

int features_begin(struct audio *a, uint32_t bands, uint64_t min_samples, struct features **out)
{
    struct mel_reader *r;
    TRY(reader_begin(a, bands, min_samples, &r));
    r->grows = true;
    *out = &r->open;
    return 0;
}

void features_close(struct features *f)
{
    if (!f) return;
    struct mel_reader *r = reader_of(f);
    mel_close(r->mel);
    mem_free(r->ring);
    mem_free(r->energy);
    mem_free(r);
}

/* Makes the ring hold at least n frames.  Most callers need no more than their first window. */
static int widen(struct mel_reader *r, uint32_t n)
{
    if (n <= r->kept) return 0;
    float *ring = mem_array((size_t)n * r->open.bands, sizeof *ring);
    float *energy = mem_array(n, sizeof *energy);
    if (!ring || !energy) {
        mem_free(ring);
        mem_free(energy);
        return ERR_NOMEM;
    }
    uint32_t b = r->open.bands;
    for (uint64_t t = r->next > r->kept ? r->next - r->kept : 0; r->kept && t < r->next; t++) {
        memcpy(ring + t % n * b, r->ring + t % r->kept * b, b * sizeof *ring);
        energy[t % n] = r->energy[t % r->kept];
    }
    mem_free(r->ring);
    mem_free(r->energy);
    r->ring = ring;
    r->energy = energy;
    r->kept = n;
    return 0;
}

/* Reads the frames before `end` into the ring, or all frames if the recording has fewer. */
static int read_frames(struct mel_reader *r, uint64_t end)
{
    uint32_t bands = r->open.bands;
    while (r->next < end) {
        float *frame = r->ring + r->next % r->kept * bands;
        int e = frame_at(r, r->next, frame);
        if (e < 0) return e;
        if (!e) {
            r->ended = true;
            return 0;
        }
        if (r->grows) weigh(r, frame);
        r->energy[r->next % r->kept] = r->variance;
        r->next++;
    }
    return 0;
}

int features_reach(struct features *f, uint64_t first, uint64_t end)
{
    struct mel_reader *r = reader_of(f);
    if (r->ended) return 0;
    if (end < first || end - first > UINT32_MAX || first + r->kept < r->next)
        return ERR(ARG, "frames %llu to %llu are not readable now", (unsigned long long)first,
                   (unsigned long long)end);
    TRY(widen(r, (uint32_t)(end - first)));
    TRY(read_frames(r, end));
    if (r->ended) TRY(check_heard(r));
    f->frames = r->next;
    f->samples = r->window.heard;
    return 0;
}

int features_window(struct features *f, uint64_t first, uint32_t n, uint32_t columns, float *out)
{
    struct mel_reader *r = reader_of(f);
    uint32_t bands = f->bands;
    if (n > columns || first + n > f->frames || first + r->kept < r->next)
        return ERR(ARG, "frames %llu to %llu of a recording of %llu are not readable now",
                   (unsigned long long)first, (unsigned long long)(first + n),
                   (unsigned long long)f->frames);
    TRY(widen(r, columns));
    TRY(read_frames(r, first + n));
    if (r->next < first + n)
        return ERR(IO, "%s: the file became shorter while it was read",
                   audio_name(r->window.audio));
    memset(out, 0, (size_t)bands * columns * sizeof *out);
    float least = r->loudest - 8;
    for (uint32_t t = 0; t < n; t++) {
        const float *frame = r->ring + (first + t) % r->kept * bands;
        for (uint32_t b = 0; b < bands; b++)
            out[(size_t)b * columns + t] = (fmaxf(frame[b], least) + 4) / 4;
    }
    return 0;
}

float features_loudest(const struct features *f, uint64_t first, uint64_t n)
{
    const struct mel_reader *r = (const struct mel_reader *)f;
    float most[SUSTAINED] = {0}; /* descending */
    uint64_t from = MAX(first, r->next > r->kept ? r->next - r->kept : 0), seen = 0;
    for (uint64_t t = from; t < MIN(first + n, r->next); t++, seen++) {
        float energy = r->energy[t % r->kept];
        for (uint32_t i = 0; i < SUSTAINED; i++)
            if (energy > most[i]) {
                float less = most[i];
                most[i] = energy;
                energy = less;
            }
    }
    return seen ? most[MIN(seen, SUSTAINED) - 1] : 0;
}
