/* audio.h - floor 1: recordings as mono samples at 16 kHz, and as the log-mel features that speech models read.
 *
 * Everything is read as a stream, so memory does not grow with the length of a recording.  Files are untrusted. */
#pragma once
#include "base/base.h"

#define AUDIO_RATE    16000u
#define AUDIO_SECONDS (100u * 3600u) /* most seconds of one recording */

/* --- source.c: a recording that can be read from its beginning more than once */
struct audio;
/* Opens a WAV, FLAC, Ogg (Vorbis, Opus) or MP3 file.  ERR_UNSUPPORTED: the format, or all files in a build without
 * libsndfile and libsoxr.  ERR_FORMAT: a header that cannot be true, or a file that is shorter than its header says, unless
 * it is a WAV file (audio_note). */
int audio_open(const char *path, struct audio **out);
/* Reads n samples at AUDIO_RATE from memory that the caller keeps until audio_close.  `what` names them in errors. */
int audio_samples(const float *samples, uint64_t n, const char *what, struct audio **out);
void audio_close(struct audio *a);
/* Reads at most n samples and returns their number; 0 at the end.  All are finite: ERR_FORMAT otherwise. */
int audio_read(struct audio *a, float *out, uint32_t n);
int audio_rewind(struct audio *a);
/* Returns the seconds that the header promises, or 0 if the header does not say. */
double audio_promised(const struct audio *a);
const char *audio_name(const struct audio *a); /* for errors */
/* Returns what the caller should know about the file, in words that follow its name; "" for most files. */
const char *audio_note(const struct audio *a);

/* --- decode.c: an audio file as samples; private to source.c */
struct decoder;
int decoder_open(const char *path, struct decoder **out);
void decoder_close(struct decoder *d);
int decoder_read(struct decoder *d, float *out, uint32_t n);
int decoder_rewind(struct decoder *d);
double decoder_promised(const struct decoder *d);
const char *decoder_name(const struct decoder *d);
const char *decoder_note(const struct decoder *d);

/* --- container.c: what a file's own structure says, before a library parses the file */
/* Refuses a number of channels or a sampling rate that no recording has. */
int container_sound(const char *what, int64_t channels, int64_t rate);
struct container {
    bool counted; /* the file says exactly how long its sound is, and has all of it */
    /* The place of a length of 0 in a WAV file that has sound behind it; 0: there is none. */
    uint64_t zero;
    char note[192]; /* as audio_note */
};
/* Recognizes the file by its first bytes: ERR_UNSUPPORTED if the format is no other's.  ERR_FORMAT if the structure says
 * that the end of the file is missing, unless it is a WAV file, which gets a note. */
int container_check(int fd, uint64_t size, const char *what, struct container *out);

/* --- mel.c: one frame of a log-mel spectrogram */
#define MEL_WINDOW 400u /* samples of a frame, and points of its Fourier transform */
#define MEL_HOP    160u /* samples from one frame to the next */
#define MEL_MOST   512u /* most bands */
struct mel;
int mel_open(uint32_t bands, struct mel **out);
void mel_close(struct mel *m);
/* Writes log10 of the power in each band, at least -10, of a frame of MEL_WINDOW samples. */
void mel_frame(const struct mel *m, const float *samples, float *out);

/* --- features.c: the features of a recording, window by window */
struct features {
    uint64_t frames;  /* of the recording, a frame for each MEL_HOP samples */
    uint64_t samples; /* of the recording, as read */
    uint32_t bands;
};
/* Returns false to stop; the call then fails with ERR_CANCELLED.  total is 0 if it is not known. */
typedef bool (*features_progress)(void *ctx, double seconds, double total);
/* Reads the recording once, for its length and its loudest band.  A recording of less than min_samples is filled up with
 * silence.  The source is the caller's, and must live as long. */
int features_open(struct audio *a, uint32_t bands, uint64_t min_samples, features_progress progress,
                  void *ctx, struct features **out);
void features_close(struct features *f);
/* Writes frames [first, first + n) as [bands][columns], and zeros in the columns behind them.  n <= columns.  `first`
 * never decreases from call to call.  ERR_IO if the recording has changed since features_open. */
int features_window(struct features *f, uint64_t first, uint32_t n, uint32_t columns, float *out);
/* Returns the variance of the samples of the fifth loudest frame among [first, first + n), so that a click is no sound; of
 * fewer frames that of the softest.  Frames count as far as they are among those that the last features_window has read, and
 * samples as far as they are the recording's. */
float features_loudest(const struct features *f, uint64_t first, uint64_t n);
