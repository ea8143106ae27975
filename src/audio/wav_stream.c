/* wav_stream.c - reads a WAV recording once, while its bytes arrive from a pipe or a microphone.  Only integer and
 * float samples can be read without a library.  Other formats need a file; the caller learns this within the first
 * WAV_STREAM_HEAD bytes.  Lengths in the header follow the rules of container.c: a recorder that writes to a pipe
 * does not know them. */
#include "audio/audio.h"

#ifdef KVIK_AUDIO
#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

#define CHUNKS 4096 /* most chunks before the sound */

struct wav_stream {
    audio_bytes read;
    void *ctx;
    char *name;
    uint8_t room[WAV_STREAM_HEAD]; /* bytes [at, n) are not used yet */
    uint32_t at, n;
    uint64_t base; /* position of room[0] in the recording */
    bool over;     /* no more bytes will come */
    uint32_t riff; /* length of all chunks behind byte 8, as the header states it */
    bool floats;
    uint32_t width, channels, rate; /* width: bytes of a sample */
    bool known;                     /* the header states how many bytes of sound there are */
    uint64_t promised, left;        /* bytes of sound: as stated, and not read yet */
    struct resample *resample;
    bool begun;
    char note[192];
};

static uint16_t little16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static uint32_t little32(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* Reads more bytes behind those in the room, once. */
static int more(struct wav_stream *s)
{
    int64_t room = (int64_t)(sizeof s->room - s->n);
    int64_t got = s->read(s->ctx, s->room + s->n, (size_t)room);
    if (got < 0)
        return got == ERR_CANCELLED ? ERR(CANCELLED, "%s: cancelled", s->name)
                                    : ERR(IO, "%s: reading the recording failed", s->name);
    if (got > room)
        return ERR(ARG, "%s: the callback returned %lld for at most %lld bytes", s->name,
                   (long long)got, (long long)room);
    s->n += (uint32_t)got;
    s->over = got == 0;
    return 0;
}

/* Moves the unused bytes to the beginning of the room. */
static void shift_room(struct wav_stream *s)
{
    memmove(s->room, s->room + s->at, s->n - s->at);
    s->base += s->at;
    s->n -= s->at;
    s->at = 0;
}

/* Waits until the room has n bytes.  Returns 1, or 0 if the recording ends before. */
static int await(struct wav_stream *s, uint32_t n)
{
    while (s->n - s->at < n && !s->over)
        TRY(more(s));
    return s->n - s->at >= n;
}

static int no_stream(const struct wav_stream *s)
{
    return ERR(UNSUPPORTED,
               "%s: only a WAV recording with integer or float samples can be read as it comes; "
               "give a file",
               s->name);
}

/* Reads the description of the samples from a chunk "fmt " of n bytes. */
static int take_format(struct wav_stream *s, const uint8_t *p, uint32_t n)
{
    static const uint8_t guid[14] = {0, 0, 0, 0, 16, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71};
    uint32_t tag = little16(p), bits = little16(p + 14);
    s->channels = little16(p + 2);
    s->rate = little32(p + 4);
    s->width = bits / 8;
    TRY(container_sound(s->name, s->channels, s->rate));
    if (tag == 0xfffe) { /* an extensible format has the same number in a longer form */
        if (n < 40 || little16(p + 18) != bits || memcmp(p + 26, guid, sizeof guid) != 0)
            return no_stream(s);
        tag = little16(p + 24);
    }
    s->floats = tag == 3;
    bool has = s->floats ? bits == 32 || bits == 64
                         : tag == 1 && (bits == 8 || bits == 16 || bits == 24 || bits == 32);
    return has && little16(p + 12) == s->width * s->channels ? 0 : no_stream(s);
}

/* Finds the chunk "fmt " in the head. */
static int find_format(struct wav_stream *s)
{
    int e = await(s, 12);
    if (e < 0) return e;
    if (!s->n) return ERR(FORMAT, "%s is empty: no recording came", s->name);
    if (!e || memcmp(s->room, "RIFF", 4) != 0 || memcmp(s->room + 8, "WAVE", 4) != 0)
        return no_stream(s);
    s->riff = little32(s->room + 4);
    s->at = 12;
    for (;;) {
        if (sizeof s->room - s->at < 8) return no_stream(s);
        if ((e = await(s, 8)) <= 0) break;
        uint64_t n = little32(s->room + s->at + 4), whole = n + (n & 1);
        bool format = !memcmp(s->room + s->at, "fmt ", 4);
        if (!memcmp(s->room + s->at, "data", 4) || (format && n < 16)) return no_stream(s);
        s->at += 8;
        if (sizeof s->room - s->at < whole) return no_stream(s);
        if ((e = await(s, (uint32_t)whole)) <= 0) break;
        if (format) TRY(take_format(s, s->room + s->at, (uint32_t)n));
        s->at += (uint32_t)whole;
        if (format) return 0;
    }
    return e < 0 ? e : ERR(FORMAT, "%s: a WAV recording without a data chunk", s->name);
}

static int skip_bytes(struct wav_stream *s, uint64_t n)
{
    while (n) {
        uint32_t part = (uint32_t)MIN(n, s->n - s->at);
        s->at += part;
        n -= part;
        shift_room(s);
        if (n && s->over) return 0;
        if (n) TRY(more(s));
    }
    return 0;
}

/* Finds the chunk with the sound, behind the format. */
static int find_data(struct wav_stream *s)
{
    for (uint32_t chunks = 0;; chunks++) {
        shift_room(s);
        int e = await(s, 8);
        if (e < 0) return e;
        if (!e) return ERR(FORMAT, "%s: a WAV recording without a data chunk", s->name);
        if (chunks == CHUNKS)
            return ERR(FORMAT, "%s: a WAV recording with more than %d chunks before its sound",
                       s->name, CHUNKS);
        uint64_t n = little32(s->room + 4);
        s->at = 8;
        if (memcmp(s->room, "data", 4) != 0) {
            TRY(skip_bytes(s, n + (n & 1)));
            continue;
        }
        /* If the header states a total that is long enough, the sound is really empty: other chunks follow.  A
         * header that was never completed states no total. */
        bool empty = n == 0 && container_length_known(s->riff) && s->riff > s->base;
        s->known = empty || container_length_known((uint32_t)n);
        s->promised = s->left = n;
        return 0;
    }
}

static int open_stream(struct wav_stream *s)
{
    TRY(find_format(s));
    TRY(find_data(s));
    return resample_open(s->name, s->channels, s->rate, &s->resample);
}

int wav_stream_open(audio_bytes read, void *ctx, const char *name, struct wav_stream **out)
{
    struct wav_stream *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    s->read = read;
    s->ctx = ctx;
    s->name = mem_strdup(name);
    int e = s->name ? open_stream(s) : ERR_NOMEM;
    if (e < 0) {
        wav_stream_close(s);
        return e;
    }
    *out = s;
    return 0;
}

void wav_stream_close(struct wav_stream *s)
{
    if (!s) return;
    resample_close(s->resample);
    mem_free(s->name);
    mem_free(s);
}

const char *wav_stream_name(const struct wav_stream *s)
{
    return s->name;
}

const char *wav_stream_note(const struct wav_stream *s)
{
    return s->note;
}

double wav_stream_promised(const struct wav_stream *s)
{
    uint64_t frames = s->promised / ((uint64_t)s->width * s->channels);
    return s->known ? (double)frames / s->rate : 0;
}

int wav_stream_rewind(const struct wav_stream *s)
{
    return s->begun ? ERR(ARG, "%s: the recording can be read once only", s->name) : 0;
}

/* Returns sample p as libsndfile does: full scale is 1. */
static float sample(const struct wav_stream *s, const uint8_t *p)
{
    uint32_t v = 0;
    if (s->floats && s->width == 8) {
        double d;
        uint64_t bits = (uint64_t)little32(p + 4) << 32 | little32(p);
        memcpy(&d, &bits, sizeof d);
        return (float)d;
    }
    if (s->width == 1) return (float)(p[0] - 128) / 128;
    /* the bytes fill the upper end of 32 bits, so the sign is right */
    for (uint32_t i = 0; i < s->width; i++)
        v |= (uint32_t)p[i] << (32 - 8 * s->width + 8 * i);
    if (s->floats) {
        float f;
        memcpy(&f, &v, sizeof f);
        return f;
    }
    return (float)(int32_t)v / 2147483648.0f;
}

static void note_end(struct wav_stream *s)
{
    char a[16], b[16];
    if (!s->known || s->left < (uint64_t)s->width * s->channels) return;
    snprintf(s->note, sizeof s->note,
             "the end of the recording is missing: its header promises %s of sound, %s came; the "
             "sound that came is read",
             bytes_text(s->promised, a), bytes_text(s->promised - s->left, b));
}

/* Waits for samples and decodes those that have come. */
static int next_block(struct wav_stream *s)
{
    uint32_t frame = s->width * s->channels, n = 0;
    s->begun = true;
    if (!s->known || s->left >= frame) {
        if (sizeof s->room - s->at < frame || s->at == s->n) shift_room(s);
        int e = await(s, frame);
        if (e < 0) return e;
        n = MIN((s->n - s->at) / frame, RESAMPLE_BLOCK);
        if (s->known) n = (uint32_t)MIN(n, s->left / frame);
        if (!n) note_end(s);
    }
    float *block = resample_block(s->resample);
    for (uint32_t i = 0; i < n * s->channels; i++)
        block[i] = sample(s, s->room + s->at + i * s->width);
    s->at += n * frame;
    if (s->known) s->left -= n * frame;
    resample_put(s->resample, n);
    return 0;
}

int wav_stream_read(struct wav_stream *s, float *out, uint32_t n)
{
    int made = 0;
    while (n && !made && !resample_drained(s->resample)) {
        if (resample_wants(s->resample)) TRY(next_block(s));
        made = resample_take(s->resample, out, n);
    }
    return made;
}

#else
int wav_stream_open(audio_bytes read, void *ctx, const char *name, struct wav_stream **out)
{
    (void)read, (void)ctx, (void)out;
    return decoder_missing(name);
}
void wav_stream_close(struct wav_stream *s)
{
    (void)s;
}
int wav_stream_read(struct wav_stream *s, float *out, uint32_t n)
{
    (void)s, (void)out, (void)n;
    return ERR_UNSUPPORTED;
}
int wav_stream_rewind(const struct wav_stream *s)
{
    (void)s;
    return ERR_UNSUPPORTED;
}
double wav_stream_promised(const struct wav_stream *s)
{
    (void)s;
    return 0;
}
const char *wav_stream_name(const struct wav_stream *s)
{
    (void)s;
    return "";
}
const char *wav_stream_note(const struct wav_stream *s)
{
    (void)s;
    return "";
}
#endif
