/* source.c - a recording: an audio file, a WAV recording whose bytes arrive, or samples of the caller. */
#include "audio/audio.h"

#include <math.h>
#include <string.h>

struct audio {
    struct decoder *file;      /* or NULL */
    struct wav_stream *stream; /* or NULL */
    const float *samples;      /* samples of the caller, if both are NULL */
    uint64_t n, at;
    char *name;
};

int audio_open(const char *path, struct audio **out)
{
    struct audio *a = mem_alloc(sizeof *a);
    if (!a) return ERR_NOMEM;
    int e = decoder_open(path, &a->file);
    if (e) {
        mem_free(a);
        return e;
    }
    *out = a;
    return 0;
}

int audio_samples(const float *samples, uint64_t n, const char *what, struct audio **out)
{
    struct audio *a = mem_alloc(sizeof *a);
    if (!a) return ERR_NOMEM;
    a->samples = samples;
    a->n = n;
    a->name = mem_strdup(what);
    if (!a->name) {
        mem_free(a);
        return ERR_NOMEM;
    }
    *out = a;
    return 0;
}

int audio_stream(audio_bytes read, void *ctx, const char *name, struct audio **out)
{
    struct audio *a = mem_alloc(sizeof *a);
    if (!a) return ERR_NOMEM;
    int e = wav_stream_open(read, ctx, name, &a->stream);
    if (e < 0) {
        mem_free(a);
        return e;
    }
    *out = a;
    return 0;
}

void audio_close(struct audio *a)
{
    if (!a) return;
    decoder_close(a->file);
    wav_stream_close(a->stream);
    mem_free(a->name);
    mem_free(a);
}

const char *audio_name(const struct audio *a)
{
    return a->file ? decoder_name(a->file) : a->stream ? wav_stream_name(a->stream) : a->name;
}

const char *audio_note(const struct audio *a)
{
    return a->file ? decoder_note(a->file) : a->stream ? wav_stream_note(a->stream) : "";
}

double audio_promised(const struct audio *a)
{
    if (a->stream) return wav_stream_promised(a->stream);
    return a->file ? decoder_promised(a->file) : (double)a->n / AUDIO_RATE;
}

int audio_rewind(struct audio *a)
{
    if (a->stream) return wav_stream_rewind(a->stream);
    a->at = 0;
    return a->file ? decoder_rewind(a->file) : 0;
}

int audio_read(struct audio *a, float *out, uint32_t n)
{
    int got;
    if (a->file || a->stream) {
        got = a->file ? decoder_read(a->file, out, n) : wav_stream_read(a->stream, out, n);
        if (got < 0) return got;
    } else {
        got = (int)MIN(n, a->n - a->at);
        if (got) memcpy(out, a->samples + a->at, (uint32_t)got * sizeof *out);
    }
    for (int i = 0; i < got; i++)
        if (!isfinite(out[i]))
            return ERR(FORMAT, "%s: the sound at %.2f s is not a finite number", audio_name(a),
                       (double)(a->at + (uint32_t)i) / AUDIO_RATE);
    a->at += (uint32_t)got;
    return got;
}
