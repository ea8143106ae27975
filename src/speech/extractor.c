/* extractor.c - the features of samples in memory, for callers that give features to a model themselves. */
#include "speech/speech.h"

static int compute(struct audio *a, uint32_t bins, uint32_t frames, float *out)
{
    struct features *f;
    TRY(features_open(a, bins, 0, NULL, NULL, &f));
    int e = features_window(f, 0, frames, frames, out);
    features_close(f);
    return e;
}

KVIK_API int64_t kvik_speech_features(const float *samples, size_t n, uint32_t bins, float *out)
{
    struct audio *a;
    if (!samples || !n) return ERR(ARG, "features need samples");
    if (!bins || bins > MEL_MOST)
        return ERR(ARG, "features of %u bins; 1 to %u are possible", bins, MEL_MOST);
    if (n / AUDIO_RATE > AUDIO_SECONDS)
        return ERR(LIMIT, "the recording has %.1f hours, the limit is %u; cut it into parts",
                   (double)n / AUDIO_RATE / 3600, AUDIO_SECONDS / 3600);
    uint32_t frames = (uint32_t)(MAX(n, MEL_WINDOW) / MEL_HOP);
    if (!out) return frames;
    TRY(audio_samples(samples, n, "the recording", &a));
    int e = compute(a, bins, frames, out);
    audio_close(a);
    return e < 0 ? e : (int64_t)frames;
}
