/* spool.c - copies a recording from a pipe to a file without a name, for formats that can only be read from a
 * file.  Ctrl-C ends the copy. */
#include "cli/spool.h"
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int spool_make(const char **dir)
{
    char path[4096];
    const char *given = getenv("TMPDIR");
    *dir = given && *given ? given : "/var/tmp";
    int fd = fd_nameless(*dir);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
    if (snprintf(path, sizeof path, "%s/kvik-XXXXXX", *dir) >= (int)sizeof path) return -1;
    fd = fd_named(path);
    if (fd >= 0) (void)unlink(path);
    return fd;
}

bool spool_append(int to, uint64_t size, const uint8_t *bytes, size_t n)
{
    int e = fd_room(to, size + n);
    if (e) errno = e;
    if (e) return false;
    for (size_t at = 0; at < n;) {
        ssize_t put = write(to, bytes + at, n - at);
        if (put < 0 && errno != EINTR) return false;
        at += (size_t)MAX(put, 0);
    }
    return true;
}

/* Copies everything up to the end of the pipe.  False: a read or write has failed, and errno says why. */
static bool copy_pipe(struct sound *from, int to)
{
    static uint8_t room[1 << 16];
    int64_t got;
    if (!spool_append(to, 0, from->head, (size_t)from->n)) return false;
    for (uint64_t size = from->n; (got = sound_read(from, room, sizeof room)) > 0;
         size += (uint64_t)got)
        if (!spool_append(to, size, room, (size_t)got)) return false;
    errno = from->failed;
    return !from->failed;
}

void spool_use(int fd, struct spool *out)
{
    out->fd = fd;
    snprintf(out->path, sizeof out->path, "/proc/self/fd/%d", fd);
}

bool spool_redirected(struct spool *out)
{
    struct stat st;
    if (fstat(STDIN_FILENO, &st) < 0 || !S_ISREG(st.st_mode)) return false;
    if (lseek(STDIN_FILENO, 0, SEEK_CUR) != 0) return false;
    int fd = fd_open("/proc/self/fd/0", O_RDONLY, 0);
    if (fd >= 0) spool_use(fd, out);
    return fd >= 0;
}

int spool_fill(struct sound *from, struct spool *out)
{
    const char *dir;
    int to = spool_make(&dir);
    if (to < 0)
        return say_failed(
            "%s: a recording from a pipe that is not WAV is copied to a file in %s first: %s; set "
            "TMPDIR",
            from->name, dir, fd_error(errno));
    int status = 0;
    if (!copy_pipe(from, to))
        status =
            say_failed("%s: copying the recording to a file in %s: %s; TMPDIR names another place",
                       from->name, dir, fd_error(errno));
    if (from->cut) status = EXIT_INTERRUPTED;
    if (status)
        close(to);
    else
        spool_use(to, out);
    return status;
}

void spool_drop(struct spool *s)
{
    if (s->fd) close(s->fd);
    *s = (struct spool){0};
}
