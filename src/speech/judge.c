/* judge.c - judges the text of a window: how far it can be compressed, how likely the model finds it, and whether
 * the window is decoded again.  A text that repeats itself compresses well. */
#include "speech/speech.h"

#include <math.h>
#ifdef KVIK_AUDIO
#include <zlib.h>
#endif

int judge_compression(const int32_t *ids, size_t n, uint32_t vocab, double *out)
{
#ifdef KVIK_AUDIO
    uint32_t width = (uint32_t)(log2(vocab) / 8) + 1;
    *out = 0;
    if (!n) return 0;
    uLong raw = (uLong)n * width;
    uLongf packed = compressBound(raw);
    uint8_t *bytes = mem_alloc(raw + packed);
    if (!bytes) return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        for (uint32_t b = 0; b < width; b++)
            bytes[i * width + b] = (uint8_t)((uint32_t)ids[i] >> 8 * b);
    int e = compress(bytes + raw, &packed, bytes, raw);
    if (e == Z_OK) *out = (double)raw / (double)packed;
    mem_free(bytes);
    return e == Z_OK ? 0 : ERR(NOMEM, "out of memory");
#else
    (void)ids, (void)n, (void)vocab, (void)out;
    return ERR(UNSUPPORTED, "this build of kvik has no zlib (Debian: zlib1g-dev), which "
                            "compression_ratio_threshold needs; set it to 0");
#endif
}

double judge_norm(const float *scores, uint32_t vocab, double by)
{
    double most = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        most = fmax(most, (double)scores[i]);
    if (!isfinite(most)) return -INFINITY;
    for (uint32_t i = 0; i < vocab; i++)
        if (scores[i] > -INFINITY) sum += exp(((double)scores[i] - most) * by);
    return most * by + log(sum);
}

double judge_logprob(const float *scores, uint32_t vocab, int32_t id, double by)
{
    double norm = judge_norm(scores, vocab, by);
    return isfinite(norm) ? (double)scores[id] * by - norm : -INFINITY;
}

/* True if the window should be decoded again.  Sets out->skip. */
static bool again(const kvik_speech *w, struct speech_said *out)
{
    bool repeats = w->compression_ratio_threshold > 0 &&
                   out->compression_ratio > w->compression_ratio_threshold;
    bool unlikely = w->logprob_threshold != 0 && out->avg_logprob < w->logprob_threshold;
    out->skip =
        unlikely && w->no_speech_threshold > 0 && out->no_speech_prob > w->no_speech_threshold;
    return (repeats || unlikely) && !out->skip;
}

int judge_tries(const kvik_speech *w, judge_try *decode, void *ctx, struct speech_said *out)
{
    for (uint32_t i = 0; i < w->n_temperatures; i++) {
        TRY(decode(ctx, i, out));
        out->temperature = w->temperatures[i];
        if (!again(w, out)) break;
    }
    /* A text that was drawn at a high temperature would mislead the next window. */
    out->keep = w->condition_on_prev_tokens && out->temperature < 0.5;
    return 0;
}
