/* sound.c - a recording that comes through a pipe.  Ctrl-C ends the wait for a writer, or the recording of a
 * microphone.  What is in the pipe already is still read, so no sound is lost. */
#include "cli/sound.h"
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int sound_open(const char *name, bool standard_input, struct sound *out)
{
    struct stat st;
    *out = (struct sound){.fd = -1, .name = standard_input ? "standard input" : name};
    if (standard_input) {
        out->fd = STDIN_FILENO;
    } else {
        if (stat(name, &st) < 0 || !S_ISFIFO(st.st_mode)) return 0;
        /* without O_NONBLOCK opening would wait for a writer */
        out->fd = fd_open(name, O_RDONLY | O_NONBLOCK, 0);
        if (out->fd < 0) return say_failed("%s: %s", name, fd_error(errno));
        out->owned = true;
    }
    out->head = mem_alloc(SOUND_HEAD);
    int e = out->head ? backlog_open(out->fd, &out->backlog) : KVIK_NOMEM;
    return e < 0 ? say_error(e) : 0;
}

void sound_close(struct sound *s)
{
    backlog_close(s->backlog);
    if (s->owned) close(s->fd);
    mem_free(s->head);
    *s = (struct sound){.fd = -1};
}

int64_t sound_read(struct sound *s, void *bytes, size_t n)
{
    int64_t got = s->cut ? 0 : backlog_read(s->backlog, bytes, n);
    s->cut |= got == -EINTR;
    if (s->cut) got = backlog_rest(s->backlog, bytes, n);
    if (got < 0) {
        s->failed = (int)-got;
        return KVIK_IO;
    }
    if (s->cut && !got && !s->n) return KVIK_CANCELLED;
    if (s->n < SOUND_HEAD)
        memcpy(s->head + s->n, bytes, MIN((size_t)got, SOUND_HEAD - (size_t)s->n));
    s->n += (uint64_t)got;
    return got;
}
