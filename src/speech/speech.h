/* speech.h - floor 6: recordings to text with a Whisper model.  transcribe.c goes through a recording in windows.
 * window.c decodes one window, once or at several temperatures, under the rules of timestamp_rules.c, and judges
 * the result; beams.c searches with beams.  segments.c cuts the tokens of a window at their timestamps;
 * alignment.c and words.c give words their times; transcript.c collects the segments.  extractor.c computes
 * features for callers. */
#pragma once
#include "audio/audio.h"
#include "base/json.h"
#include "generate/generate.h"
#include "generate/handle.h"
#include "kvik_speech.h"

enum { SIZED_LEAST(kvik_speech, ctx) };

#define SPEECH_FRAME 0.01 /* seconds of a frame of features */
#define SPEECH_TICK  0.02 /* seconds from one timestamp token to the next */

/* --- marks.c: special tokens and the shape of a window, as the files of the model define them */
struct speech_pick {
    uint32_t layer, head;
};
struct speech_marks {
    int32_t eos, start, no_timestamps, previous; /* -1: the model has none */
    int32_t transcribe, translate;               /* -1: none */
    int32_t first_timestamp;                     /* no_timestamps + 1, or INT32_MAX */
    int32_t no_speech;                           /* -1: none */
    int32_t max_initial;                         /* max_initial_timestamp_index; -1: no limit */
    bool multilingual;
    const json_t *languages;   /* "<|en|>": id; borrowed from the model; NULL: none */
    struct speech_pick *align; /* owned: heads of cross attention that follow the sound */
    uint32_t n_align;
    uint32_t median;        /* median_filter_width */
    uint32_t max_length;    /* most tokens of a decoder's text */
    uint32_t bands, frames; /* shape of the features of a window */
    uint64_t samples;       /* samples of a window */
};
/* Checks a model; ERR_UNSUPPORTED if it is no speech model. */
int marks_check_model(const kvik_model *m);
/* Reads the marks of a model.  ERR_UNSUPPORTED: it is not a speech model. */
int marks_read(const kvik_model *m, struct speech_marks *out);
void marks_done(struct speech_marks *k);

/* --- language.c */
/* Returns the token of a language that is given by code ("en"), name ("English") or token ("<|en|>"). */
int language_find(const struct speech_marks *k, const char *name, int32_t *id);
/* Writes the code of a language's token: "en". */
void language_code(const struct speech_marks *k, int32_t id, char out[16]);
/* True if words of the language are not separated by spaces. */
bool language_unspaced(const char *code);

/* --- timestamp_rules.c */
/* Sets the scores of tokens to -inf that may not follow ids[n], the new tokens of the window. */
void timestamp_rules(const struct speech_marks *k, const int32_t *ids, size_t n, float *scores,
                     uint32_t vocab);

/* --- segments.c */
struct speech_part { /* a range of the new tokens of a window */
    size_t from, to;
    double start, end; /* seconds from the beginning of the window */
};
/* Cuts n tokens of a window of `frames` frames at pairs of timestamps, and writes at most n + 1 parts.  *advance:
 * frames from this window to the next. */
size_t segments_cut(const struct speech_marks *k, const int32_t *ids, size_t n, uint32_t frames,
                    struct speech_part *part, uint32_t *advance);

/* --- alignment.c */
/* Finds the time of each of n tokens from weight[heads][n][columns], the attention of `heads` heads; only the
 * first `used` columns count.  Overwrites the weights.  time: [n], in seconds from the beginning of the window. */
int alignment_times(float *weight, uint32_t heads, uint32_t n, uint32_t columns, uint32_t used,
                    uint32_t median, double *time);

/* --- words.c */
struct speech_word {
    char *text;      /* owned */
    size_t from, to; /* tokens */
};
/* Groups n tokens of text into words, *out and *n_out, which words_done frees. */
int words_group(const struct tok *t, const int32_t *ids, size_t n, bool unspaced,
                struct speech_word **out, size_t *n_out);
void words_done(struct speech_word *w, size_t n);

/* --- judge.c */
/* Computes by which factor zlib shortens the ids, each written in as many bytes as the vocabulary needs. */
int judge_compression(const int32_t *ids, size_t n, uint32_t vocab, double *out);
/* Returns the natural logarithm of the sum of e^(score * by); -INFINITY if no score is finite. */
double judge_norm(const float *scores, uint32_t vocab, double by);
/* Returns the natural logarithm of the probability of an id among scores, each multiplied by `by`. */
double judge_logprob(const float *scores, uint32_t vocab, int32_t id, double by);
struct speech_said { /* the text of a window, and what judging it has found */
    int32_t *ids;    /* owned by the listener: the prompt, then the new tokens */
    size_t n_prompt, n;
    bool skip; /* the window has no speech */
    bool keep; /* the next window sees this text */
    double temperature, avg_logprob, compression_ratio, no_speech_prob;
    /* owned by the listener: [n - n_prompt] with word_timestamps; seconds from the beginning of the window */
    double *time;
};
/* Decodes the window at temperature i.  Writes the text and its figures to *out. */
typedef int judge_try(void *ctx, uint32_t i, struct speech_said *out);
/* Tries the temperatures in turn until a text is good enough or has no speech.  If no text is good enough, the
 * last one counts.  Sets out->temperature, skip and keep. */
int judge_tries(const kvik_speech *w, judge_try *decode, void *ctx, struct speech_said *out);

/* --- window.c */
struct listener {
    kvik_cache *cache;
    struct exec *x;
    uint32_t vocab;
    struct speech_marks marks;
    kvik_speech want;   /* options of the caller */
    bool timestamps;    /* segments have timestamps */
    kvik_generation *g; /* [want.n_temperatures] owned */
    struct gen_chain **chain;
    kvik_hooks hooks;
    float *logits, *scores; /* [2][vocab], [vocab] */
    float *features;        /* [bands][frames] of the window */
    kv_seq heard;           /* sequence with the encoder's rows of the window; 0: none */
    int32_t *ids;           /* [max_length] */
    size_t n_prompt, most;  /* of ids in this window: tokens of the prompt; most tokens */
    double *time;           /* [max_length] */
    uint32_t windows;
};
/* listener_done frees the listener, also after a failure. */
int listener_open(kvik_cache *c, const kvik_speech *o, struct listener *l);
void listener_done(struct listener *l);
/* Runs the encoder on the window's features, l->features. */
int listener_hear(struct listener *l);
/* Finds the language that is spoken in the window. */
int listener_language(struct listener *l, int32_t *id);
/* Decodes the window.  l->ids[0, n) is the prompt; its token `start` is <|startoftranscript|>.  frames: frames of
 * the window that are sound. */
int listener_decode(struct listener *l, size_t n, size_t start, uint32_t frames,
                    struct speech_said *out);

/* --- beams.c */
/* Decodes the window with beams under the options l->g[i].  `seq` has the prompt, and l->logits has the logits
 * after it, which stay there.  Writes the best text to l->ids and out->n, and the sum of the natural logarithms of
 * its tokens' probabilities. */
int beams_decode(struct listener *l, kv_seq seq, uint32_t i, struct speech_said *out, double *sum);

/* --- transcript.c */
struct transcript;
int transcript_new(struct transcript **out);
void transcript_drop(struct transcript *t);
/* Sets the language of the transcript by its token. */
int transcript_speaks(struct transcript *t, const struct speech_marks *k, int32_t language);
/* Adds a segment whose times count from `offset` seconds.  *out belongs to the transcript. */
int transcript_add(struct transcript *t, const struct listener *l, const struct speech_said *said,
                   const struct speech_part *part, double offset, kvik_segment **out);
/* Frees the segments so far, and their text. */
void transcript_forget(struct transcript *t);
/* Gives the whole transcript to the caller. */
int transcript_take(struct transcript *t, double seconds, uint32_t windows, kvik_transcript **out);
