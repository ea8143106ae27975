/* convert.c - decodes recordings in formats that the library does not read, such as m4a, webm and video.  ffmpeg
 * decodes them, or if it is missing GStreamer's gst-launch-1.0, into a file without a name.  The other program
 * gets the recording as its standard input, and no file name.  So no name can become an option or an address.
 * ffmpeg may open only this descriptor, and may read it only in the format that was found. */
#include "cli/convert.h"
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RATE = 16000, HEADER = 44, WORDS = 40 };

/* No codec for speech makes a file smaller than a thousandth of its sound.  If the sound grows beyond that, the
 * file is no recording. */
#define GROWS ((uint64_t)1024)
#define LEAST ((uint64_t)64 << 20)            /* half an hour */
#define MOST  ((uint64_t)0xfffff000 - HEADER) /* the limit of a WAV header: 37 hours */

static const char *const ffmpeg[] = {"ffmpeg",
                                     "-nostdin",
                                     "-hide_banner",
                                     "-nostats",
                                     "-loglevel",
                                     "error",
                                     "-protocol_whitelist",
                                     "file",
                                     "-format_whitelist",
                                     "%",
                                     "-f",
                                     "%",
                                     "-i",
                                     "file:/dev/fd/0",
                                     "-vn",
                                     "-sn",
                                     "-dn",
                                     "-map_metadata",
                                     "-1",
                                     "-ac",
                                     "1",
                                     "-ar",
                                     "16000",
                                     "-c:a",
                                     "pcm_s16le",
                                     "-f",
                                     "s16le",
                                     "pipe:1",
                                     NULL};
static const char *const gst[] = {"gst-launch-1.0",
                                  "-q",
                                  "fdsrc",
                                  "fd=0",
                                  "!",
                                  "decodebin",
                                  "caps=audio/x-raw",
                                  "expose-all-streams=false",
                                  "!",
                                  "audioconvert",
                                  "!",
                                  "audioresample",
                                  "!",
                                  "audio/x-raw,format=S16LE,rate=16000,channels=1",
                                  "!",
                                  "fdsink",
                                  "fd=1",
                                  NULL};

/* Finds a program in the directories of $PATH.  Relative directories are skipped, since they depend on where the
 * user happens to be. */
static bool find_program(const char *program, char *out, size_t size)
{
    const char *path = getenv("PATH");
    for (size_t n; path && *path; path += n + (path[n] == ':')) {
        struct stat st;
        n = strcspn(path, ":");
        if (*path != '/' || snprintf(out, size, "%.*s/%s", (int)n, path, program) >= (int)size)
            continue;
        if (stat(out, &st) == 0 && S_ISREG(st.st_mode) && access(out, X_OK) == 0) return true;
    }
    return false;
}

/* Writes a name as a word for a shell, in a form that no program takes for an option or an address. */
static void quote(const char *name, char *out, size_t size)
{
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    bool quoted = name[strspn(name, plain)] != 0;
    size_t n = 0;
    if (quoted) out[n++] = '\'';
    if (name[0] != '/')
        n += (size_t)snprintf(out + n, size - n, "%s",
                              strpbrk(name, ":") || *name == '-' ? "./" : "");
    for (; *name && n + 6 < size; name++) {
        if (*name == '\'')
            n += (size_t)snprintf(out + n, size - n, "'\\''");
        else
            out[n++] = *name;
    }
    if (quoted) out[n++] = '\'';
    out[n] = 0;
}

static int missing(const char *name, const char *file, const struct foreign *f)
{
    char from[400], to[400], with[360];
    if (file) snprintf(with, sizeof with, "%.350s.wav", file);
    quote(file ? file : "FILE", from, sizeof from);
    quote(file ? with : "FILE.wav", to, sizeof to);
    return say_failed("%s is %s, which kvik needs ffmpeg or gst-launch-1.0 for, and neither is "
                      "installed; convert it elsewhere: ffmpeg -i %s -ar 16000 -ac 1 %s",
                      name, f->name, from, to);
}

static void put_u32(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> 8 * i);
}

/* Writes the header of a WAV file of n bytes of sound. */
static bool write_head(int fd, uint64_t n)
{
    uint8_t h[HEADER] = "RIFF....WAVEfmt ....\1\0\1\0........\2\0\20\0data";
    put_u32(h + 4, (uint32_t)(n + HEADER - 8));
    put_u32(h + 16, 16);
    put_u32(h + 24, RATE);
    put_u32(h + 28, RATE * 2);
    put_u32(h + 40, (uint32_t)n);
    return pwrite(fd, h, HEADER, 0) == HEADER;
}

struct decoding {
    const char *name, *program, *dir;
    struct child child;
    /* bytes of the recording; most bytes of sound; most seconds of processor time */
    uint64_t size, most, seconds;
    uint64_t n;
    int to;
};

/* Copies the sound.  Returns 0, or an exit status after a sentence. */
static int copy_sound(struct decoding *d)
{
    static uint8_t room[1 << 16];
    char a[16], b[16];
    struct progress p;
    int64_t got;
    bool written = true;
    progress_begin(&p, "seconds decoded");
    while ((got = child_read(&d->child, room, sizeof room)) > 0) {
        progress_show(&p, d->n / (RATE * 2), 0);
        written = d->n + (uint64_t)got <= d->most &&
                  spool_append(d->to, d->n + HEADER, room, (size_t)got);
        if (!written) break;
        d->n += (uint64_t)got;
    }
    int e = errno;
    progress_end(&p);
    if (got == -EINTR) return EXIT_INTERRUPTED;
    if (got == -ETIMEDOUT)
        return say_failed("%s: %s has written nothing for a minute and was stopped", d->name,
                          d->program);
    if (got < 0) return say_failed("%s: %s: %s", d->name, d->program, strerror((int)-got));
    if (!written && d->n + (uint64_t)got > d->most)
        return say_failed("%s: %s makes more than %s of sound of %s and was stopped", d->name,
                          d->program, bytes_text(d->most, a), bytes_text(d->size, b));
    if (!written)
        return say_failed("%s: writing its sound to a file in %s: %s; TMPDIR names another place",
                          d->name, d->dir, fd_error(e));
    return 0;
}

/* Returns what the program has printed, without its name for the recording. */
static const char *said(const struct decoding *d)
{
    static const char own[] = "file:/dev/fd/0: ";
    const char *text = d->child.said;
    return strncmp(text, own, sizeof own - 1) != 0 ? text : text + sizeof own - 1;
}

/* Decides by its status whether the program has succeeded.  Returns an exit status. */
static int judge_status(const struct decoding *d, int status)
{
    const char *words = said(d);
    if (interrupt_seen()) return EXIT_INTERRUPTED;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        return say_failed("%s: %s took more than %llu s of processor time and was stopped", d->name,
                          d->program, (unsigned long long)d->seconds);
    if (WIFSIGNALED(status))
        return say_failed("%s: %s was ended by signal %d (%s)", d->name, d->program,
                          WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) && *words)
        return say_failed("%s: %s cannot decode it: %s", d->name, d->program, words);
    if (WEXITSTATUS(status))
        return say_failed("%s: %s cannot decode it (exit status %d)", d->name, d->program,
                          WEXITSTATUS(status));
    if (!d->n)
        return say_failed("%s: %s finds no sound in it%s%s", d->name, d->program,
                          *words ? ": " : "", words);
    if (*words)
        say_line("%s: %s has decoded it, but not without a fault: %s", d->name, d->program, words);
    else
        say_line("%s: decoded by %s", d->name, d->program);
    return 0;
}

/* Runs the program over a recording, and writes its sound to d->to. */
static int decode_recording(struct decoding *d, const char *path, const struct foreign *f, int in)
{
    const char *argv[WORDS];
    const char *const *words = d->program == gst[0] ? gst : ffmpeg;
    size_t n = 0;
    do
        argv[n] = words[n] && !strcmp(words[n], "%") ? f->demuxer : words[n];
    while (words[n++]);
    d->child.first = words == gst; /* gst-launch explains its first line in further lines */
    int e = child_start(&d->child, path, argv, in, d->seconds);
    if (e) return say_failed("%s: %s cannot be started: %s", d->name, path, strerror(e));
    int stopped = copy_sound(d);
    int status = child_end(&d->child, stopped != 0);
    return stopped ? stopped : judge_status(d, status);
}

static int decode_file(const char *name, const char *file, int in, uint64_t size, struct spool *via)
{
    char path[4096];
    const struct foreign *f = foreign_find(in);
    struct decoding d = {.name = name,
                         .size = size,
                         .most = MIN(MAX(LEAST, MIN(size, MOST) * GROWS), MOST),
                         .seconds = 600 + size / 100000};
    if (!f) return 0;
    for (size_t i = 0; i < 2 && !d.program; i++) {
        const char *one = i ? gst[0] : ffmpeg[0];
        if (find_program(one, path, sizeof path)) d.program = one;
    }
    if (!d.program) return missing(name, file, f);
    d.to = spool_make(&d.dir);
    if (d.to < 0)
        return say_failed("%s: its sound is written to a file in %s first: %s; set TMPDIR", name,
                          d.dir, fd_error(errno));
    uint8_t none[HEADER] = {0};
    bool room = spool_append(d.to, 0, none, HEADER);
    int status = room ? decode_recording(&d, path, f, in) : 0;
    if (!room || (!status && !write_head(d.to, d.n)))
        status = say_failed("%s: writing its sound to a file in %s: %s; TMPDIR names another place",
                            name, d.dir, fd_error(errno));
    if (status) {
        close(d.to);
        return status;
    }
    spool_drop(via);
    spool_use(d.to, via);
    return 0;
}

int convert_take(const char *name, const char *path, struct spool *via)
{
    struct stat st;
    int in = fd_open(via->fd ? via->path : path, O_RDONLY | O_NONBLOCK, 0);
    if (in < 0) return 0; /* the library then tells why */
    bool regular = fstat(in, &st) == 0 && S_ISREG(st.st_mode);
    int status =
        regular ? decode_file(name, via->fd ? NULL : path, in, (uint64_t)st.st_size, via) : 0;
    close(in);
    return status;
}
