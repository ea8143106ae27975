/* resample.c - decoded blocks of any number of channels as one channel at AUDIO_RATE.  libsoxr changes the sampling rate; the
 * samples do not depend on the sizes of the blocks. */
#include "audio/audio.h"

#ifdef KVIK_AUDIO
#include "base/built.h"

#include <soxr.h>
#include <string.h>

struct resample {
    const char *name; /* name of the recording for errors; the caller keeps it */
    uint32_t channels;
    soxr_t soxr;    /* NULL: the sound has AUDIO_RATE already */
    float *block;   /* [RESAMPLE_BLOCK][channels] as decoded */
    float *mono;    /* [RESAMPLE_BLOCK] mixed */
    uint32_t at, n; /* mono[at .. n) was not handed on yet */
    bool ended;     /* no more blocks come */
    bool drained;   /* all samples were handed on */
};

static int open_soxr(struct resample *r, uint32_t rate)
{
    if (rate == AUDIO_RATE) return 0;
    soxr_error_t e = NULL;
    soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
    soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
    r->soxr = soxr_create(rate, AUDIO_RATE, 1, &e, &io, &quality, &runtime);
    if (!r->soxr || e)
        return ERR(UNSUPPORTED, "%s: resampling from %u Hz: %s", r->name, rate, e ? e : "failed");
    return 0;
}

int resample_open(const char *name, uint32_t channels, uint32_t rate, struct resample **out)
{
    struct resample *r = mem_alloc(sizeof *r);
    if (!r) return ERR_NOMEM;
    r->name = name;
    r->channels = channels;
    int e = open_soxr(r, rate);
    r->block = mem_array((size_t)RESAMPLE_BLOCK * channels, sizeof *r->block);
    r->mono = mem_array(RESAMPLE_BLOCK, sizeof *r->mono);
    if (e >= 0 && (!r->block || !r->mono)) e = ERR_NOMEM;
    if (e < 0) {
        resample_close(r);
        return e;
    }
    *out = r;
    return 0;
}

void resample_close(struct resample *r)
{
    if (!r) return;
    if (r->soxr) soxr_delete(r->soxr);
    mem_free(r->block);
    mem_free(r->mono);
    mem_free(r);
}

void resample_restart(struct resample *r)
{
    r->at = r->n = 0;
    r->ended = r->drained = false;
    if (r->soxr) soxr_clear(r->soxr);
}

bool resample_wants(const struct resample *r)
{
    return r->at == r->n && !r->ended;
}

float *resample_block(struct resample *r)
{
    return r->block;
}

void resample_put(struct resample *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0;
        for (uint32_t c = 0; c < r->channels; c++)
            sum += r->block[(size_t)i * r->channels + c];
        r->mono[i] = sum / (float)r->channels;
    }
    r->at = 0;
    r->n = n;
    r->ended = n == 0;
}

bool resample_drained(const struct resample *r)
{
    return r->drained;
}

int resample_take(struct resample *r, float *out, uint32_t n)
{
    uint32_t left = r->n - r->at;
    if (!r->soxr) {
        uint32_t take = MIN(left, n);
        if (take) memcpy(out, r->mono + r->at, take * sizeof *out);
        r->at += take;
        r->drained = r->ended;
        return (int)take;
    }
    size_t used = 0, made = 0;
    soxr_error_t e =
        soxr_process(r->soxr, r->ended ? NULL : r->mono + r->at, left, &used, out, n, &made);
    if (e) return ERR(IO, "%s: resampling: %s", r->name, e);
    r->at += (uint32_t)used;
    r->drained = r->ended && !made;
    return (int)made;
}

static int name(struct buf *b)
{
    const char *said = soxr_version(), *number = strchr(said, '-');
    return buf_printf(b, "libsoxr %.20s", number ? number + 1 : said);
}
BUILT(soxr, BUILT_LIBRARIES, name);
#endif
