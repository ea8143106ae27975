/* spool.c - a recording that comes through a pipe is copied to a file without a name first: the features of a window depend on
 * the loudest part of the whole recording, so it is read twice.  Ctrl-C ends the wait for a writer and the copy. */
#include "cli/spool.h"
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_target(const char **dir)
{
    char path[4096];
    const char *given = getenv("TMPDIR");
    *dir = given && *given ? given : "/var/tmp";
    int fd = fd_open(*dir, O_TMPFILE | O_EXCL | O_RDWR, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
    if (snprintf(path, sizeof path, "%s/kvik-XXXXXX", *dir) >= (int)sizeof path) return -1;
    fd = fd_take(mkostemp(path, O_CLOEXEC)); /* mode 0600; check-ok: fd_take */
    if (fd >= 0) (void)unlink(path);
    return fd;
}

/* Waits until there is something to read, the writers have gone, or a signal has come. */
static void wait_for(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    sigset_t held, before;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigprocmask(SIG_BLOCK, &held, &before); /* a signal from here on stays for ppoll */
    if (!interrupt_seen()) (void)ppoll(&p, 1, NULL, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Copies all that comes.  Returns the bytes; -1: a read or write has failed, and errno says why. */
static int64_t copy(int from, int to)
{
    static char room[1 << 16];
    int64_t n = 0;
    for (;;) {
        wait_for(from);
        if (interrupt_seen()) return n;
        ssize_t got = read(from, room, sizeof room);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) return got < 0 ? -1 : n;
        int e = fd_room(to, (uint64_t)(n + got));
        if (e) {
            errno = e;
            return -1;
        }
        for (ssize_t at = 0, put; at < got; at += put) {
            put = write(to, room + at, (size_t)(got - at));
            if (put < 0 && errno != EINTR) return -1;
            put = MAX(put, 0);
        }
        n += got;
    }
}

static int fill(const char *name, int from, struct spool *out)
{
    const char *dir;
    int to = open_target(&dir);
    if (to < 0)
        return say_failed(
            "%s: a recording from a pipe is copied to a file in %s first: %s; set TMPDIR", name,
            dir, fd_error(errno));
    int64_t n = copy(from, to);
    int status = 0;
    if (interrupt_seen())
        status = EXIT_INTERRUPTED;
    else if (n < 0)
        status =
            say_failed("%s: copying the recording to a file in %s: %s; TMPDIR names another place",
                       name, dir, fd_error(errno));
    else if (n == 0)
        status = say_failed("%s is empty: no recording came", name);
    if (status) {
        close(to);
        return status;
    }
    out->fd = to;
    snprintf(out->path, sizeof out->path, "/proc/self/fd/%d", to);
    return 0;
}

int spool_take(const char *name, bool standard_input, struct spool *out)
{
    struct stat st;
    *out = (struct spool){0};
    if (standard_input) return fill("standard input", STDIN_FILENO, out);
    if (stat(name, &st) < 0 || !S_ISFIFO(st.st_mode)) return 0;
    int from = fd_open(name, O_RDONLY | O_NONBLOCK, 0); /* or the open would wait for a writer */
    if (from < 0) return say_failed("%s: %s", name, fd_error(errno));
    int status = fill(name, from, out);
    close(from);
    return status;
}

void spool_drop(struct spool *s)
{
    if (s->fd) close(s->fd);
    *s = (struct spool){0};
}
