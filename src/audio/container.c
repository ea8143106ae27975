/* container.c - checks the structure of an audio file, mainly whether the end of the file is missing.  libsndfile
 * reads a WAV or MP3 file that was cut without any error, so the chunks and frames are counted here.  A recorder
 * that was stopped leaves a WAV file without its end; its sound is read, with a note.  In other formats a missing
 * end is an error.  Only the formats that kvik documents are passed on: the library knows many more, some of them
 * little tested. */
#include "audio/audio.h"
#include "base/bytes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHANNELS  32   /* most channels */
#define RATE_LOW  1000 /* Hz */
#define RATE_HIGH 768000
#define CHUNKS    4096 /* most chunks of a WAV file before its sound; each costs a read */

struct input {
    int fd;
    uint64_t size;
    const char *what;
};

/* Reads n bytes at `at`; false if the file does not have them. */
static bool bytes_at(const struct input *in, uint64_t at, void *out, size_t n)
{
    return at <= in->size && n <= in->size - at && pread(in->fd, out, n, (off_t)at) == (ssize_t)n;
}

static uint32_t big(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static uint32_t little(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static int cut_short(const struct input *in, uint64_t promised)
{
    char a[16], b[16];
    return ERR(FORMAT,
               "%s: the end of the file is missing: its header promises %s, the file has %s",
               in->what, bytes_text(promised, a), bytes_text(in->size, b));
}

int container_sound(const char *what, int64_t channels, int64_t rate)
{
    if (rate < RATE_LOW || rate > RATE_HIGH)
        return ERR(FORMAT, "%s: a sampling rate of %lld Hz; %d to %d are supported", what,
                   (long long)rate, RATE_LOW, RATE_HIGH);
    if (channels < 1 || channels > CHANNELS)
        return ERR(FORMAT, "%s: %lld channels; 1 to %d are supported", what, (long long)channels,
                   CHANNELS);
    return 0;
}

bool container_length_known(uint32_t n)
{
    return n != 0 && (n < 0x7ffff000u || n > 0x80000000u) && n < 0xfffff000u;
}

/* Writes the note of a WAV file whose data chunk, at byte `at`, should have n bytes. */
static void check_length(const struct input *in, uint64_t at, uint64_t n, struct container *out)
{
    char a[16], b[16];
    bool known = container_length_known((uint32_t)n);
    bool zero = n == 0 && in->size > at;
    uint8_t riff[4];
    /* If the header states the true size of the file, the sound is really empty: other chunks follow. */
    bool empty = zero && bytes_at(in, 4, riff, 4) && little(riff) + 8 == in->size;
    out->counted = empty || (known && n <= in->size - at);
    if (out->counted) return;
    if (zero) out->zero = at - 4;
    if (!known)
        snprintf(
            out->note, sizeof out->note,
            "its header does not say how long it is, as when the writer was stopped or wrote to a "
            "pipe; the sound up to the end of the file is read");
    else
        snprintf(
            out->note, sizeof out->note,
            "the end of the file is missing: its header promises %s, the file has %s; the sound "
            "that is there is read",
            bytes_text(at + n, a), bytes_text(in->size, b));
}

/* Finds the data chunk of a WAV file. */
static int check_wav(const struct input *in, struct container *out)
{
    uint8_t h[8], fmt[8];
    uint32_t chunks = 0;
    for (uint64_t at = 12; bytes_at(in, at, h, 8);) {
        uint64_t n = little(h + 4);
        if (chunks++ == CHUNKS)
            return ERR(FORMAT, "%s: a WAV file with more than %d chunks before its sound", in->what,
                       CHUNKS);
        if (!memcmp(h, "fmt ", 4) && bytes_at(in, at + 8, fmt, 8))
            TRY(container_sound(in->what, fmt[2] | fmt[3] << 8, little(fmt + 4)));
        if (memcmp(h, "data", 4) != 0) {
            at += 8 + n + (n & 1);
            continue;
        }
        check_length(in, at + 8, n, out);
        return 0;
    }
    return ERR(FORMAT, "%s: a WAV file without a data chunk", in->what);
}

/* Returns the bytes of the frame of an MP3 file that begins with this header.  0: the header begins no frame, or
 * does not state the length (free format).  *side: bytes between the header and the main data. */
static uint32_t mp3_frame(const uint8_t *h, uint32_t *side)
{
    static const uint16_t kbit[2][16] = {
        {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0},
        {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0}};
    static const uint16_t rates[4] = {44100, 48000, 32000, 0};
    /* version 3: MPEG 1; layer 1: layer III */
    uint32_t version = h[1] >> 3 & 3, layer = h[1] >> 1 & 3;
    if (h[0] != 0xff || (h[1] & 0xe0) != 0xe0 || version == 1 || layer != 1) return 0;
    uint32_t low = version != 3, rate = rates[h[2] >> 2 & 3] >> (version == 3 ? 0 : 3 - version);
    if (version == 2) rate = rates[h[2] >> 2 & 3] / 2;
    if (version == 0) rate = rates[h[2] >> 2 & 3] / 4;
    uint32_t bits = kbit[low][h[2] >> 4] * 1000u;
    if (!rate || !bits) return 0;
    bool mono = (h[3] >> 6) == 3;
    *side = 4 + (low ? (mono ? 9 : 17) : (mono ? 17 : 32));
    return (low ? 72 : 144) * bits / rate + (h[2] >> 1 & 1);
}

/* Follows the frames of an MP3 file.  The first frame may hold a table (Xing, Info) with the length of the whole
 * file. */
static int check_mp3(const struct input *in, bool *counted)
{
    uint8_t h[10], x[12];
    uint64_t at = 0;
    uint32_t side = 0, n;
    if (bytes_at(in, 0, h, 10) && !memcmp(h, "ID3", 3))
        at = 10 + ((uint64_t)(h[6] & 127) << 21 | (uint32_t)(h[7] & 127) << 14 |
                   (uint32_t)(h[8] & 127) << 7 | (h[9] & 127));
    if (!bytes_at(in, at, h, 4) || !(n = mp3_frame(h, &side))) return 0;
    if (bytes_at(in, at + side, x, 12) && (!memcmp(x, "Xing", 4) || !memcmp(x, "Info", 4)))
        *counted = big(x + 4) & 1;
    while (bytes_at(in, at, h, 4) && (n = mp3_frame(h, &side)) != 0)
        at += n;
    return at > in->size ? cut_short(in, at) : 0;
}

/* Follows the pages of an Ogg file.  The last page must be marked as the last. */
static int check_ogg(const struct input *in)
{
    uint8_t h[27], lacing[255];
    uint64_t at = 0;
    bool last = false;
    while (bytes_at(in, at, h, sizeof h) && !memcmp(h, "OggS", 4) &&
           bytes_at(in, at + sizeof h, lacing, h[26])) {
        at += sizeof h + h[26];
        for (uint32_t i = 0; i < h[26]; i++)
            at += lacing[i];
        last = h[5] & 4;
    }
    if (at > in->size) return cut_short(in, at);
    return last
               ? 0
               : ERR(FORMAT, "%s: the end of the file is missing: no page says that it is the last",
                     in->what);
}

int container_check(int fd, uint64_t size, const char *what, struct container *out)
{
    struct input in = {.fd = fd, .size = size, .what = what};
    uint8_t h[12] = {0};
    uint32_t side;
    *out = (struct container){.counted = true};
    if (!bytes_at(&in, 0, h, 12))
        return ERR(FORMAT, "%s: %llu bytes are no audio file", what, (unsigned long long)size);
    if (!memcmp(h, "RIFF", 4) && !memcmp(h + 8, "WAVE", 4)) return check_wav(&in, out);
    if (!memcmp(h, "fLaC", 4)) return 0;
    if (!memcmp(h, "OggS", 4)) return check_ogg(&in);
    if (!memcmp(h, "ID3", 3) || mp3_frame(h, &side)) {
        out->counted = false;
        return check_mp3(&in, &out->counted);
    }
    return ERR(UNSUPPORTED, "%s: not a WAV, FLAC, Ogg or MP3 file", what);
}
