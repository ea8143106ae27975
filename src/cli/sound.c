/* sound.c - a recording that comes through a pipe.  Ctrl-C ends the wait for a writer, and the recording of a microphone: what
 * the pipe has already is still read, so no sound is lost that was there before. */
#include "cli/sound.h"
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pipe that holds half a minute of 16 000 samples a second: a recorder does not wait while a window is computed. */
#define PIPE (1 << 20)

int sound_open(const char *name, bool standard_input, struct sound *out)
{
    struct stat st;
    *out = (struct sound){.fd = -1, .name = standard_input ? "standard input" : name};
    if (standard_input) {
        out->fd = STDIN_FILENO;
    } else {
        if (stat(name, &st) < 0 || !S_ISFIFO(st.st_mode)) return 0;
        out->fd = fd_open(name, O_RDONLY | O_NONBLOCK, 0); /* or the open would wait for a writer */
        if (out->fd < 0) return say_failed("%s: %s", name, fd_error(errno));
        out->owned = true;
    }
    (void)fcntl(out->fd, F_SETPIPE_SZ, PIPE); /* of a pipe, and where the system allows it */
    out->head = mem_alloc(SOUND_HEAD);
    return out->head ? 0 : say_error(KVIK_NOMEM);
}

void sound_close(struct sound *s)
{
    if (s->owned) close(s->fd);
    mem_free(s->head);
    *s = (struct sound){.fd = -1};
}

/* Waits until there is something to read, the writers have gone, or a signal has come. */
static void wait_for(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    (void)interrupt_poll(&p, 1, -1);
}

/* Ends the recording behind the bytes that the pipe has now. */
static void cut(struct sound *s)
{
    s->cut = true;
    if (ioctl(s->fd, FIONREAD, &s->left) < 0) s->left = 0;
}

int64_t sound_read(struct sound *s, void *bytes, size_t n)
{
    for (;;) {
        if (!s->cut) wait_for(s->fd);
        if (!s->cut && interrupt_seen()) cut(s);
        if (s->cut) n = MIN(n, (size_t)MAX(s->left, 0));
        if (!n) return s->n ? 0 : KVIK_CANCELLED;
        ssize_t got = read(s->fd, bytes, n);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) {
            s->failed = errno;
            return KVIK_IO;
        }
        s->left -= s->cut ? (int)got : 0;
        if (s->n < SOUND_HEAD)
            memcpy(s->head + s->n, bytes, MIN((size_t)got, SOUND_HEAD - (size_t)s->n));
        s->n += (uint64_t)got;
        return got;
    }
}
