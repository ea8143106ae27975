/* audio.h - floor 1: recordings as mono samples at 16 kHz, and as the log-mel features that speech models read.  A
 * recording is read as a stream, so memory does not grow with its length.  Files are untrusted. */
#pragma once
#include "base/base.h"

#define AUDIO_RATE    16000u
#define AUDIO_SECONDS (100u * 3600u) /* most seconds of one recording */

/* --- source.c: a recording.  A file, and samples in memory, can be read from the beginning again. */
struct audio;
/* Opens a WAV, FLAC, Ogg (Vorbis, Opus) or MP3 file.  ERR_UNSUPPORTED: another format, or a build without
 * libsndfile and libsoxr, which opens no file.  ERR_FORMAT: an impossible header, or a file that is shorter than
 * its header says.  A short WAV file opens with a note (audio_note). */
int audio_open(const char *path, struct audio **out);
/* Opens n samples at AUDIO_RATE in memory, which the caller keeps until audio_close.  `what` names them in errors. */
int audio_samples(const float *samples, uint64_t n, const char *what, struct audio **out);
/* Reads the next bytes of a recording that is still being made: at most n, waiting for the first of them.  Returns
 * their number, 0 at the end, or an error; ERR_CANCELLED is passed on. */
typedef int64_t (*audio_bytes)(void *ctx, void *out, size_t n);
#define WAV_STREAM_HEAD (1u << 16)
/* Opens a WAV recording while its bytes arrive, with integer or float samples.  It can be read once.
 * ERR_UNSUPPORTED: any other format, noticed within the first WAV_STREAM_HEAD bytes; and any recording where
 * audio_open supports none. */
int audio_stream(audio_bytes read, void *ctx, const char *name, struct audio **out);
void audio_close(struct audio *a);
/* Reads at most n samples and returns their number; 0 at the end.  All are finite: ERR_FORMAT otherwise. */
int audio_read(struct audio *a, float *out, uint32_t n);
/* Goes back to the beginning.  ERR_ARG if the recording arrives as bytes and samples were read. */
int audio_rewind(struct audio *a);
/* Returns the length in seconds that the header states, or 0 if it states none. */
double audio_promised(const struct audio *a);
const char *audio_name(const struct audio *a); /* for errors */
/* Returns a remark on the file for the user, in words that follow the file's name; "" for most files. */
const char *audio_note(const struct audio *a);

/* --- decode.c: an audio file as samples; private to source.c */
struct decoder;
/* Returns the error that this build has no decoder. */
int decoder_missing(const char *name);
int decoder_open(const char *path, struct decoder **out);
void decoder_close(struct decoder *d);
int decoder_read(struct decoder *d, float *out, uint32_t n);
int decoder_rewind(struct decoder *d);
double decoder_promised(const struct decoder *d);
const char *decoder_name(const struct decoder *d);
const char *decoder_note(const struct decoder *d);

/* --- wav_stream.c: a WAV recording whose bytes arrive; private to source.c */
struct wav_stream;
int wav_stream_open(audio_bytes read, void *ctx, const char *name, struct wav_stream **out);
void wav_stream_close(struct wav_stream *s);
/* Reads at most n samples, and returns as soon as there is one. */
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
/* Drops all samples, for a new beginning. */
void resample_restart(struct resample *r);
/* True if resample_take can return nothing more before the next block. */
bool resample_wants(const struct resample *r);
/* Returns the place for the next block, [RESAMPLE_BLOCK][channels]. */
float *resample_block(struct resample *r);
/* Mixes the n frames that were written to the block; 0: the recording has ended. */
void resample_put(struct resample *r, uint32_t n);
/* True if the recording has ended and all samples were taken. */
bool resample_drained(const struct resample *r);
/* Writes at most n samples and returns their number. */
int resample_take(struct resample *r, float *out, uint32_t n);

/* --- container.c: checks the structure of a file before a library parses it */
/* Refuses a number of channels or a sampling rate that no recording has. */
int container_sound(const char *what, int64_t channels, int64_t rate);
struct container {
    bool counted; /* the file states the exact length of its sound, and is long enough */
    /* Where a WAV file states a length of 0 although sound follows; 0: nowhere. */
    uint64_t zero;
    char note[192]; /* the text of audio_note */
};
/* True if a WAV header gives a real length.  Writers that did not know the length wrote 0, or nearly 2 or 4 GiB. */
bool container_length_known(uint32_t n);
/* Checks the structure of a file, whose first bytes tell the format.  ERR_UNSUPPORTED: an unknown format.
 * ERR_FORMAT: the end of the file is missing; a WAV file gets a note instead. */
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
struct features {     /* after features_begin the numbers are those of the recording so far */
    uint64_t frames;  /* frames of the recording, one for each MEL_HOP samples */
    uint64_t samples; /* samples of the recording, without the silence that fills it up */
    uint32_t bands;
};
/* Returns false to stop; the call then fails with ERR_CANCELLED.  total is 0 if the length is not known. */
typedef bool (*features_progress)(void *ctx, double seconds, double total);
/* Reads the recording once, for its length and its loudest band: no feature is more than 8 powers of ten below the
 * loudest.  A recording of less than min_samples is filled up with silence.  The caller keeps the source until
 * features_close. */
int features_open(struct audio *a, uint32_t bands, uint64_t min_samples, features_progress progress,
                  void *ctx, struct features **out);
/* As features_open, but does not read ahead.  Frames, samples and the loudest band are those of the part that
 * features_reach has read. */
int features_begin(struct audio *a, uint32_t bands, uint64_t min_samples, struct features **out);
void features_close(struct features *f);
/* Reads on until all frames before `end` are known, or the recording has ended.  Frames before `first` may be
 * dropped; `first` never decreases. */
int features_reach(struct features *f, uint64_t first, uint64_t end);
/* Writes frames [first, first + n) as [bands][columns], and zeros in the remaining columns; n <= columns.  `first`
 * never decreases from call to call.  ERR_IO if the recording has changed since features_open. */
int features_window(struct features *f, uint64_t first, uint32_t n, uint32_t columns, float *out);
/* Returns the variance of the samples of the fifth loudest frame among [first, first + n), so that a click does
 * not count as a sound.  With fewer frames it is that of the softest.  Only frames that the last features_window
 * has read count, and only samples of the recording itself. */
float features_loudest(const struct features *f, uint64_t first, uint64_t n);
