/* foreign.c - recognizes, by their first bytes, the formats that only other programs read.  The name of a file
 * says nothing.  The program is told the format, so that it does not guess another one, such as a playlist that
 * names files. */
#include "cli/convert.h"

#include <string.h>
#include <unistd.h>

#define AT(at, text)  at, sizeof text - 1, text
#define ISO(type)     "MP4 or QuickTime", "mov", AT(4, type), 0, 0, NULL
#define PLAIN(text)   AT(0, text), 0, 0, NULL
#define RIFF(a, kind) AT(0, a), AT(8, kind)

static const struct foreign formats[] = {
    {ISO("ftyp")},
    {ISO("moov")},
    {ISO("mdat")},
    {ISO("wide")},
    {ISO("free")},
    {ISO("skip")},
    {"Matroska or WebM", "matroska", PLAIN("\x1a\x45\xdf\xa3")},
    {"AVI", "avi", RIFF("RIFF", "AVI ")},
    {"WAV of 64 bits", "wav", RIFF("RF64", "WAVE")},
    {"AIFF", "aiff", RIFF("FORM", "AIFF")},
    {"AIFF", "aiff", RIFF("FORM", "AIFC")},
    {"an MPEG transport stream", "mpegts", AT(0, "G"), AT(188, "G")},
    {"an MPEG program stream", "mpeg", PLAIN("\0\0\1\xba")},
    {"WMA or WMV", "asf", PLAIN("\x30\x26\xb2\x75\x8e\x66\xcf\x11")},
    {"CAF", "caf", PLAIN("caff")},
    {"AMR", "amr", PLAIN("#!AMR")},
    {"AAC", "aac", PLAIN("\xff\xf1")},
    {"AAC", "aac", PLAIN("\xff\xf9")},
    {"AC-3", "ac3", PLAIN("\x0b\x77")},
    {"FLV", "flv", PLAIN("FLV\1")},
    {"WavPack", "wv", PLAIN("wvpk")},
    {"AU", "au", PLAIN(".snd")},
};

/* Returns the format of a recording that begins with these n bytes. */
static const struct foreign *foreign_of(const char *head, ssize_t n)
{
    for (size_t i = 0; i < countof(formats); i++) {
        const struct foreign *f = &formats[i];
        if (n < f->at + f->n || memcmp(head + f->at, f->bytes, f->n) != 0) continue;
        if (!f->n_more) return f;
        if (n >= f->at_more + f->n_more && !memcmp(head + f->at_more, f->more, f->n_more)) return f;
    }
    return NULL;
}

const struct foreign *foreign_find(int fd)
{
    char head[FOREIGN_HEAD];
    return foreign_of(head, pread(fd, head, sizeof head, 0));
}

bool foreign_recording(const uint8_t *head, size_t n)
{
    static const char *const own[] = {"RIFF", "fLaC", "OggS", "ID3"};
    if (n < FOREIGN_HEAD || (head[0] == 0xff && head[1] >= 0xe0)) return true; /* 0xffe: MP3 */
    for (size_t i = 0; i < countof(own); i++)
        if (!memcmp(head, own[i], strlen(own[i]))) return true;
    return foreign_of((const char *)head, FOREIGN_HEAD);
}
