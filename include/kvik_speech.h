/* kvik_speech.h - recordings as text, with a cache of a speech model.
 *
 * The functions are in the same library as those of kvik.h, whose conventions hold here. */
#pragma once
#include "kvik.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Speech: recordings as text ----------------------------------------------------------------------
 *
 * A cache of a speech model (Whisper) turns a recording into text, in windows of 30 seconds, as Transformers does.
 * Memory does not grow with the length of the recording, apart from the transcript.
 *
 *     kvik_speech speech;
 *     kvik_transcript *t;
 *     kvik_speech_init(&speech);
 *     if (kvik_transcribe(cache, "talk.mp3", &speech, &t) == 0) puts(t->text);
 *     kvik_transcript_free(t); */

/* A word of a recording. */
typedef struct kvik_word {
    /* As it is written, with the space before it. */
    char *text;
    /* Seconds from the beginning of the recording. */
    double start, end;
} kvik_word;
/* A few words that belong together. */
typedef struct kvik_segment {
    char *text;
    double start, end;
    /* [n] the tokens of the segment, its timestamps included; and with word_timestamps, else NULL, when each of them
     * ends, in seconds from the beginning of the recording. */
    int32_t *ids;
    double *time;
    size_t n;
    /* With word_timestamps: [n_words]. */
    kvik_word **word;
    size_t n_words;
    /* Of the window that the segment is part of: the temperature of the draw that was accepted, the mean natural
     * logarithm of its tokens' probabilities, how far it can be compressed, and the probability that nobody speaks. */
    double temperature, avg_logprob, compression_ratio, no_speech_prob;
    /* How loud the segment is, with a second of its window on both sides: 10 log10 of the variance of the samples,
     * whose full scale is 1, in the fifth loudest of its frames (25 ms, one each 10 ms).  So a constant offset, its
     * edges and a click are silence; a sine of full scale has -3.  -INFINITY: digital silence; NaN: only features are
     * known. */
    double level;
    /* True if the level is below -60: nobody speaks, and the text is an invention of the model.  kvik transcribe leaves
     * it out of texts and subtitles; text, tokens and kvik_transcript.text are what the model says.  no_speech_prob and
     * kvik_speech.no_speech_threshold are about the model's opinion instead. */
    bool no_speech;
} kvik_segment;
/* The text of a recording; free it with kvik_transcript_free. */
typedef struct kvik_transcript {
    char *text;
    /* "en", ...; "" if the model knows one language only. */
    char *language;
    /* Length of the recording. */
    double seconds;
    kvik_segment **segment;
    size_t n_segments;
    uint32_t windows;
} kvik_transcript;
/* Receives a segment as soon as it is known.  Return false to stop with KVIK_CANCELLED. */
typedef bool (*kvik_on_segment)(void *ctx, const kvik_segment *segment);
/* What is done with a recording at present. */
enum kvik_hearing {
    /* The recording is read once, for its length and its loudness; or, of kvik_transcribe_stream, the sound of the next
     * window is awaited. */
    KVIK_HEARING_READ,
    KVIK_HEARING_TRANSCRIBE
};
/* Tells how many seconds of a recording are done; total 0: not known.  Return false to stop with KVIK_CANCELLED. */
typedef bool (*kvik_on_hearing)(void *ctx, enum kvik_hearing what, double seconds, double total);
/* Gives at most n bytes of a recording as it comes, and waits for the first of them.  Returns their number, 0 at the
 * end of the recording, or less than 0 after an error: KVIK_CANCELLED stops with that, all others with KVIK_IO. */
typedef int64_t (*kvik_on_sound)(void *ctx, void *bytes, size_t n);
/* How to transcribe.  The names are those of Transformers. */
typedef struct kvik_speech {
    size_t size;
    /* A name or a code: "German", "de".  NULL: the language of the first window. */
    const char *language;
    /* "transcribe" (NULL), or "translate": into English. */
    const char *task;
    /* NULL, or text that the recording may continue: names and terms as they are spelled. */
    const char *prompt;
    /* False: one window without timestamps, for recordings of at most one window. */
    bool return_timestamps;
    /* Times of words, for models whose generation_config.json names alignment_heads. */
    bool word_timestamps;
    /* Each window sees the text of those before it. */
    bool condition_on_prev_tokens;
    /* Limit of a window's text in tokens.  0: as many as the model can have. */
    uint32_t max_new_tokens;
    /* [n_temperatures]: tried in turn until the text of a window is good enough.  NULL: 0, 0.2, 0.4, 0.6, 0.8, 1. */
    const double *temperatures;
    uint32_t n_temperatures;
    /* A window whose text compresses better than this is decoded again.  0: any text is accepted. */
    double compression_ratio_threshold;
    /* A window whose text has a lower mean log-probability is decoded again.  0: any text is accepted. */
    double logprob_threshold;
    /* If the model finds that nobody speaks with more than this probability, such a text is dropped instead.  0:
     * never. */
    double no_speech_threshold;
    /* Seed of the draws at temperatures above 0. */
    uint64_t seed;
    /* Beams of each window at temperature 0.  0 or 1: none.  The cache needs max_sequences of at least this number;
     * with static strategies one more. */
    uint32_t num_beams;
    /* When a search with beams ends. */
    enum kvik_early early_stopping;
    /* Scores of beams are divided by the length to this power; -1000 to 1000. */
    double length_penalty;
    /* The first argument of all callbacks. */
    void *ctx;
    kvik_on_segment on_segment;
    kvik_on_hearing on_hearing;
    /* NULL, or receives a sentence about a recording that can only be read in part, such as a WAV file that was cut. */
    kvik_on_notice on_notice;
} kvik_speech;
/* Sets the defaults: timestamps, all temperatures, 1.35, -1 and 0.6 for the three thresholds, no beams, and a
 * length_penalty of 1. */
KVIK_API int kvik_speech_init_sized(kvik_speech *o, size_t size);
#define kvik_speech_init(o) kvik_speech_init_sized((o), sizeof *(o))
/* Transcribes a WAV, FLAC, Ogg (Vorbis, Opus) or MP3 file; options NULL: the defaults.  Of a WAV file whose end is
 * missing, or whose header does not know its length, the sound that is there is transcribed.  out may be NULL if
 * on_segment receives the segments.  KVIK_UNSUPPORTED: the model is no speech model, or this build reads no audio
 * files. */
KVIK_API int kvik_transcribe(kvik_cache *c, const char *path, const kvik_speech *o,
                             kvik_transcript **out);
/* Transcribes a recording as it comes, from a pipe or a microphone: on_segment receives the segments of a window as
 * soon as the sound of the window is there.  `read` is asked for the bytes of a WAV recording with integer or float
 * samples, whose header need not know the length; its ctx is that of o.  KVIK_UNSUPPORTED: any other recording, known
 * before more than 65 536 bytes were asked for, so that a program can copy it to a file instead.  `name` names the
 * recording in errors; NULL: "the recording".
 *
 * The features of a window depend on the loudest part of the recording; here that is the loudest part so far.  So quiet
 * speech before a loud part can get another text than from a file.  If the loudest part is in the first window, the
 * text is that of the file. */
KVIK_API int kvik_transcribe_stream(kvik_cache *c, kvik_on_sound read, const char *name,
                                    const kvik_speech *o, kvik_transcript **out);
/* As kvik_transcribe, for n samples of one channel at 16 000 Hz, full scale 1. */
KVIK_API int kvik_transcribe_samples(kvik_cache *c, const float *samples, size_t n,
                                     const kvik_speech *o, kvik_transcript **out);
/* Computes the features of n samples of one channel at 16 000 Hz, as WhisperFeatureExtractor of Transformers does:
 * out [bins][frames] f32, a frame for each 160 samples.  bins: 1 to 512, those of kvik_model_encoder.  Returns the
 * number of frames; out NULL: only that.  Less than 400 samples are filled up with zeros to 400.  For a window of its
 * own, fill a shorter recording up with zeros. */
KVIK_API int64_t kvik_speech_features(const float *samples, size_t n, uint32_t bins, float *out);
/* Transcribes features [bins][n_frames].  Those of one window must be whole, rows * stride frames of
 * kvik_model_encoder.  n_sound of the n_frames are sound, and what is behind them is silence; 0: not known, all may be
 * sound. */
KVIK_API int kvik_transcribe_features(kvik_cache *c, const float *features, size_t n_frames,
                                      size_t n_sound, const kvik_speech *o, kvik_transcript **out);
/* Returns the name of language i that kvik_speech.language takes, in small letters, or NULL after the last; *code (may
 * be NULL) is its code, "de".  Some languages have several names.  Static texts.  A model knows some of them. */
KVIK_API const char *kvik_speech_language(uint32_t i, const char **code);
/* Frees a transcript. */
KVIK_API void kvik_transcript_free(kvik_transcript *t);

#ifdef __cplusplus
}
#endif
