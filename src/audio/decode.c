/* decode.c - an audio file as mono samples at AUDIO_RATE: libsndfile decodes, and resample.c changes the sampling rate.
 * A build without these libraries says so when a file is opened. */
#include "audio/audio.h"

#ifdef KVIK_AUDIO
#include "base/built.h"
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sndfile.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct decoder {
    char *path;
    int fd;
    struct container container;
    sf_count_t place; /* position of the virtual file of open_endless */
    SNDFILE *file;
    SF_INFO info;
    uint64_t frames; /* frames decoded since the beginning */
    struct resample *resample;
    bool ended; /* the file has no more frames */
};

/* Checks the values of the header before memory is taken for them. */
static int check_header(const struct decoder *d)
{
    const SF_INFO *i = &d->info;
    TRY(container_sound(d->path, i->channels, i->samplerate));
    bool unknown = i->frames < 0 || i->frames == SF_COUNT_MAX;
    if (!unknown && i->frames / i->samplerate > AUDIO_SECONDS)
        return ERR(LIMIT, "%s: longer than %u hours; cut the recording into parts", d->path,
                   AUDIO_SECONDS / 3600);
    return 0;
}

/* Returns the length of the WAV file that libsndfile sees.  libsndfile believes a length of 0 in a header, so it
 * is shown the length of an endless file there instead. */
static sf_count_t io_length(void *ctx)
{
    const struct decoder *d = ctx;
    struct stat st;
    return fstat(d->fd, &st) ? -1 : st.st_size;
}
static sf_count_t io_seek(sf_count_t by, int from, void *ctx)
{
    struct decoder *d = ctx;
    sf_count_t base = from == SEEK_CUR ? d->place : from == SEEK_END ? io_length(d) : 0;
    sf_count_t to;
    if (!__builtin_add_overflow(base, by, &to) && to >= 0) d->place = to;
    return d->place;
}
static sf_count_t io_read(void *out, sf_count_t n, void *ctx)
{
    struct decoder *d = ctx;
    ssize_t got = pread(d->fd, out, (size_t)n, d->place);
    sf_count_t zero = (sf_count_t)d->container.zero - d->place;
    for (sf_count_t i = MAX(zero, 0); i < MIN(zero + 4, got); i++)
        ((uint8_t *)out)[i] = 0xff;
    if (got > 0) d->place += got;
    return MAX(got, 0);
}
static sf_count_t io_tell(void *ctx)
{
    const struct decoder *d = ctx;
    return d->place;
}

static SNDFILE *open_endless(struct decoder *d)
{
    SF_VIRTUAL_IO io = {
        .get_filelen = io_length, .seek = io_seek, .read = io_read, .tell = io_tell};
    d->place = 0;
    return sf_open_virtual(&io, SFM_READ, &d->info, d);
}

static int open_file(struct decoder *d)
{
    if (lseek(d->fd, 0, SEEK_SET) < 0) return ERR(IO, "%s: %s", d->path, fd_error(errno));
    memset(&d->info, 0, sizeof d->info);
    struct fd_low low;
    fd_low_take(&low);
    d->file = d->container.zero ? open_endless(d) : sf_open_fd(d->fd, SFM_READ, &d->info, false);
    fd_low_drop(&low);
    if (!d->file) return ERR(FORMAT, "%s: %s", d->path, sf_strerror(NULL));
    d->frames = 0;
    d->ended = false;
    return check_header(d);
}

static int open_path(struct decoder *d)
{
    struct stat st;
    d->fd = fd_open(d->path, O_RDONLY | O_NONBLOCK, 0);
    if (d->fd < 0 || fstat(d->fd, &st)) return ERR(IO, "%s: %s", d->path, fd_error(errno));
    /* a pipe or a device has no length, and cannot be read twice */
    if (!S_ISREG(st.st_mode)) return ERR(IO, "%s: not a regular file", d->path);
    TRY(container_check(d->fd, (uint64_t)st.st_size, d->path, &d->container));
    TRY(open_file(d));
    return resample_open(d->path, (uint32_t)d->info.channels, (uint32_t)d->info.samplerate,
                         &d->resample);
}

int decoder_open(const char *path, struct decoder **out)
{
    struct decoder *d = mem_alloc(sizeof *d);
    if (!d) return ERR_NOMEM;
    d->fd = -1;
    d->path = mem_strdup(path);
    int e = d->path ? open_path(d) : ERR_NOMEM;
    if (e) {
        decoder_close(d);
        return e;
    }
    *out = d;
    return 0;
}

void decoder_close(struct decoder *d)
{
    if (!d) return;
    if (d->file) sf_close(d->file);
    resample_close(d->resample);
    if (d->fd >= 0) close(d->fd);
    mem_free(d->path);
    mem_free(d);
}

double decoder_promised(const struct decoder *d)
{
    bool known = d->info.frames > 0 && d->info.frames != SF_COUNT_MAX;
    return known ? (double)d->info.frames / d->info.samplerate : 0;
}

const char *decoder_name(const struct decoder *d)
{
    return d->path;
}

const char *decoder_note(const struct decoder *d)
{
    return d->container.note;
}

/* Opens the file again, because seeking in MP3 and Ogg does not always give the same samples. */
int decoder_rewind(struct decoder *d)
{
    int channels = d->info.channels, rate = d->info.samplerate;
    if (!d->frames && !d->ended) return 0;
    sf_close(d->file);
    d->file = NULL;
    TRY(open_file(d));
    if (d->info.channels != channels || d->info.samplerate != rate)
        return ERR(IO, "%s: the file changed while it was read", d->path);
    resample_restart(d->resample);
    return 0;
}

/* Decodes the next block. */
static int next_block(struct decoder *d)
{
    sf_count_t got = sf_readf_float(d->file, resample_block(d->resample), RESAMPLE_BLOCK);
    resample_put(d->resample, (uint32_t)MAX(got, 0));
    if (got > 0) {
        d->frames += (uint64_t)got;
        return 0;
    }
    d->ended = true;
    uint64_t want = d->info.frames == SF_COUNT_MAX ? 0 : (uint64_t)MAX(d->info.frames, 0);
    if (d->container.counted && d->frames < want)
        return ERR(
            FORMAT, "%s: the end of the file is missing: its header promises %.2f s, it has %.2f s",
            d->path, (double)want / d->info.samplerate, (double)d->frames / d->info.samplerate);
    if (sf_error(d->file)) return ERR(FORMAT, "%s: %s", d->path, sf_strerror(d->file));
    return 0;
}

int decoder_read(struct decoder *d, float *out, uint32_t n)
{
    uint32_t got = 0;
    while (got < n && !resample_drained(d->resample)) {
        if (resample_wants(d->resample)) TRY(next_block(d));
        int made = resample_take(d->resample, out + got, n - got);
        if (made < 0) return made;
        got += (uint32_t)made;
    }
    return (int)got;
}

/* The library calls itself libsndfile-1.2.0. */
static int name(struct buf *b)
{
    const char *said = sf_version_string(), *number = strchr(said, '-');
    return buf_printf(b, "libsndfile %.20s", number ? number + 1 : said);
}
BUILT(sndfile, BUILT_LIBRARIES, name);
#else

int decoder_missing(const char *name)
{
    return ERR(UNSUPPORTED,
               "%s: this build of kvik cannot read recordings, because libsndfile or libsoxr was "
               "missing (Debian: libsndfile1-dev, libsoxr-dev); install them and build again",
               name);
}
int decoder_open(const char *path, struct decoder **out)
{
    (void)out;
    return decoder_missing(path);
}
void decoder_close(struct decoder *d)
{
    (void)d;
}
int decoder_read(struct decoder *d, float *out, uint32_t n)
{
    (void)d, (void)out, (void)n;
    return ERR_UNSUPPORTED;
}
int decoder_rewind(struct decoder *d)
{
    (void)d;
    return ERR_UNSUPPORTED;
}
double decoder_promised(const struct decoder *d)
{
    (void)d;
    return 0;
}
const char *decoder_name(const struct decoder *d)
{
    (void)d;
    return "";
}
const char *decoder_note(const struct decoder *d)
{
    (void)d;
    return "";
}
#endif
