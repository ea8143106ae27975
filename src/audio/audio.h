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
/* Gives at most n bytes of a recording as it comes, and waits for the first of them.  Returns their number, 0 at the end, or an
 * error; ERR_CANCELLED is passed on. */
typedef int64_t (*audio_bytes)(void *ctx, void *out, size_t n);
#define WAV_STREAM_HEAD (1u << 16)
/* Opens a WAV recording with integer or float samples as its bytes come.  It can be read once.  ERR_UNSUPPORTED: all else,
 * known before more than WAV_STREAM_HEAD bytes were asked for, or any WAV recording as in audio_open. */
int audio_stream(audio_bytes read, void *ctx, const char *name, struct audio **out);
void audio_close(struct audio *a);
/* Reads at most n samples and returns their number; 0 at the end.  All are finite: ERR_FORMAT otherwise. */
int audio_read(struct audio *a, float *out, uint32_t n);
/* ERR_ARG: a recording as it comes, of which samples were read. */
int audio_rewind(struct audio *a);
/* Returns the seconds that the header promises, or 0 if the header does not say. */
double audio_promised(const struct audio *a);
const char *audio_name(const struct audio *a); /* for errors */
/* Returns what the caller should know about the file, in words that follow its name; "" for most files. */
const char *audio_note(const struct audio *a);

/* --- decode.c: an audio file as samples; private to source.c */
struct decoder;
/* Says that this build has no decoder. */
int decoder_missing(const char *name);
int decoder_open(const char *path, struct decoder **out);
void decoder_close(struct decoder *d);
int decoder_read(struct decoder *d, float *out, uint32_t n);
int decoder_rewind(struct decoder *d);
double decoder_promised(const struct decoder *d);
const char *decoder_name(const struct decoder *d);
const char *decoder_note(const struct decoder *d);

/* --- wav_stream.c: a WAV recording as it comes; private to source.c */
struct wav_stream;
int wav_stream_open(audio_bytes read, void *ctx, const char *name, struct wav_stream **out);
void wav_stream_close(struct wav_stream *s);
/* Returns as soon as there are samples. */
int wav_stream_read(struct wav_stream *s, float *out, uint32_t n);
int wav_stream_rewind(const struct wav_stream *s);
double wav_stream_promised(const struct wav_stream *s);
const char *wav_stream_name(const struct wav_stream *s);
const char *wav_stream_note(const struct wav_stream *s);

/* --- resample.c: blocks of samples as one channel at AUDIO_RATE; private to decode.c and wav_stream.c */
#define RESAMPLE_BLOCK 4096 /* most frames of a block */
struct resample;
/* `name` names the recording in errors, and must live as long. */
int resample_open(const char *name, uint32_t channels, uint32_t rate, struct resample **out);
void resample_close(struct resample *r);
/* Forgets all samples. */
void resample_restart(struct resample *r);
/* True if nothing more can be taken before the next block comes. */
bool resample_wants(const struct resample *r);
/* Returns the place for the next block, [RESAMPLE_BLOCK][channels]. */
float *resample_block(struct resample *r);
/* Mixes the n frames of that block; 0: the end. */
void resample_put(struct resample *r, uint32_t n);
/* True if all was taken and the end has come. */
bool resample_drained(const struct resample *r);
/* Writes at most n samples and returns their number. */
int resample_take(struct resample *r, float *out, uint32_t n);

/* --- container.c: what a file's own structure says, before a library parses the file */
/* Refuses a number of channels or a sampling rate that no recording has. */
int container_sound(const char *what, int64_t channels, int64_t rate);
struct container {
    bool counted; /* the file says exactly how long its sound is, and has all of it */
    /* The place of a length of 0 in a WAV file that has sound behind it; 0: there is none. */
    uint64_t zero;
    char note[192]; /* as audio_note */
};
/* False if a length in a WAV header, 0 or nearly 2 or 4 GiB, means that the writer did not know the length. */
bool container_length_known(uint32_t n);
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
struct features {     /* after features_begin: of the recording so far */
    uint64_t frames;  /* of the recording, a frame for each MEL_HOP samples */
    uint64_t samples; /* of the recording, as read */
    uint32_t bands;
};
/* Returns false to stop; the call then fails with ERR_CANCELLED.  total is 0 if it is not known. */
typedef bool (*features_progress)(void *ctx, double seconds, double total);
/* Reads the recording once, for its length and its loudest band: features are not less than 8 powers of ten below it.  A recording of less than min_samples is filled up with
 * silence.  The source is the caller's, and must live as long. */
int features_open(struct audio *a, uint32_t bands, uint64_t min_samples, features_progress progress,
                  void *ctx, struct features **out);
/* Does not read ahead: frames and samples are those that features_reach has read, and the loudest band is the loudest so
 * far. */
int features_begin(struct audio *a, uint32_t bands, uint64_t min_samples, struct features **out);
void features_close(struct features *f);
/* Reads on until the frames before `end` are known, or the recording has ended and has fewer.  Frames before `first` are not
 * needed any more, and `first` never decreases. */
int features_reach(struct features *f, uint64_t first, uint64_t end);
/* Writes frames [first, first + n) as [bands][columns], and zeros in the columns behind them.  n <= columns.  `first`
 * never decreases from call to call.  ERR_IO if the recording has changed since features_open. */
int features_window(struct features *f, uint64_t first, uint32_t n, uint32_t columns, float *out);
/* Returns the variance of the samples of the fifth loudest frame among [first, first + n), so that a click is no sound; of
 * fewer frames that of the softest.  Frames count as far as they are among those that the last features_window has read, and
 * samples as far as they are the recording's. */
float features_loudest(const struct features *f, uint64_t first, uint64_t n);
