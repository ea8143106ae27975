/* history.c - the file of messages has one message on each line; "\n" and "\\" stand for line ends and backslashes
 * inside a message.  A message is appended with one write, so chats that run at the same time do not mix their
 * lines.  A file that has grown too long is shortened when a chat begins. */
#include "cli/history.h"
#include "base/beside.h"
#include "base/descriptor.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    KEPT = 1000,           /* most messages that a chat recalls: the newest ones */
    KEPT_BYTES = 4 << 20,  /* most bytes of these in the file */
    READ_BYTES = 16 << 20, /* bytes at the end of the file that are searched for them */
    LONGEST = 128 << 10,   /* most bytes of a line: 64 KiB of a message, all escaped */
};

/* Writes the path of the file.  *kept: length of the part that is never created, which is HOME.  Returns false if
 * the user wants no history. */
static bool find_path(char out[HISTORY_PATH], size_t *kept)
{
    const char *named = getenv("KVIK_HISTORY"), *state = getenv("XDG_STATE_HOME"),
               *home = getenv("HOME");
    int n;
    *kept = 0;
    if (named) {
        n = snprintf(out, HISTORY_PATH, "%s", named);
    } else if (state && *state == '/') {
        n = snprintf(out, HISTORY_PATH, "%s/kvik/history", state);
    } else if (home && *home) {
        n = snprintf(out, HISTORY_PATH, "%s/.local/state/kvik/history", home);
        *kept = strlen(home);
    } else {
        return false;
    }
    return n > 0 && n < HISTORY_PATH;
}

bool history_path(char out[HISTORY_PATH])
{
    size_t kept;
    return find_path(out, &kept);
}

/* Returns 0 or an errno.  O_NONBLOCK: opening a FIFO that nobody reads must not block the chat. */
static int append_line(const char *path, const char *data, size_t n)
{
    struct stat st;
    int fd = fd_open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0600), e = 0;
    if (fd < 0) return errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        e = ENXIO;
    else
        e = fd_room(fd, (uint64_t)st.st_size + n);
    ssize_t k = e ? 0 : write(fd, data, n);
    if (!e && k != (ssize_t)n) e = k < 0 ? errno : ENOSPC;
    if (close(fd) < 0 && !e) e = errno;
    return e;
}

static int escape(struct buf *b, const char *text)
{
    for (const char *s = text; *s; s++) {
        if (*s == '\n' || *s == '\\') TRY(buf_putc(b, '\\'));
        TRY(buf_putc(b, *s == '\n' ? 'n' : *s));
    }
    return buf_putc(b, '\n');
}

void history_add(const char *text)
{
    static bool told;
    char path[HISTORY_PATH];
    struct buf line;
    size_t kept;
    if (!find_path(path, &kept)) return;
    buf_init(&line, LONGEST);
    if (escape(&line, text) >= 0) {
        int e = append_line(path, line.data, line.len);
        if (e == ENOENT) {
            char dir[PATH_MAX];
            if (path_dir(path, dir) >= 0) path_make_dirs(dir, kept);
            e = append_line(path, line.data, line.len);
        }
        if (e && !told)
            say_line("the history cannot be kept in %s: %s", path,
                     e == ENXIO ? "not a regular file" : fd_error(e));
        told |= e != 0;
    }
    buf_done(&line);
}

/* Reads the last READ_BYTES of a file at most into *out (mem_free).  *n: number of bytes that were read; *size:
 * bytes of the whole file. */
static bool read_end(const char *path, char **out, size_t *n, size_t *size)
{
    struct stat st;
    int fd = fd_open(path, O_RDONLY | O_NONBLOCK, 0);
    char *p = NULL;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *size = (size_t)st.st_size;
        *n = MIN(*size, READ_BYTES);
        p = mem_alloc(*n + 1);
    }
    size_t got = 0;
    for (ssize_t k = 1; p && got < *n && k > 0; got += k > 0 ? (size_t)k : 0)
        k = pread(fd, p + got, *n - got, (off_t)(*size - *n + got));
    if (fd >= 0) close(fd);
    if (p) *n = got;
    *out = p;
    return p != NULL;
}

/* Removes lines that are too long or incomplete.  whole: the text begins at the beginning of a line.  Returns the
 * remaining length.  *lines: number of lines. */
static size_t clean(char *all, size_t n, bool whole, size_t *lines)
{
    char *to = all, *end;
    *lines = 0;
    for (char *line = all; (end = memchr(line, '\n', (size_t)(all + n - line))); line = end + 1) {
        size_t k = (size_t)(end + 1 - line);
        if (whole && k <= LONGEST) {
            memmove(to, line, k);
            to += k;
            ++*lines;
        }
        whole = true;
    }
    *to = 0;
    return (size_t)(to - all);
}

void history_load(void (*fn)(void *ctx, const char *text), void *ctx)
{
    char path[HISTORY_PATH], *all;
    size_t n, size, lines, kept;
    if (!find_path(path, &kept) || !read_end(path, &all, &n, &size)) return;
    n = clean(all, n, n == size, &lines);
    char *from = all, *behind = all + n;
    for (size_t skip = lines > KEPT ? lines - KEPT : 0; skip || behind - from > KEPT_BYTES;
         skip -= skip > 0)
        from = (char *)memchr(from, '\n', (size_t)(behind - from)) + 1;
    if (lines > 2 * KEPT || size > 2 * KEPT_BYTES) /* if this fails, only disk space is lost */
        (void)file_write(path, from, (size_t)(behind - from));
    for (char *line = from, *end; (end = memchr(line, '\n', (size_t)(behind - line)));
         line = end + 1) {
        char *to = line;
        for (char *s = line; s < end; s++) {
            bool coded = *s == '\\' && s + 1 < end;
            if (coded) s++;
            *to++ = coded && *s == 'n' ? '\n' : *s;
        }
        *to = 0;
        if (*line) fn(ctx, line);
    }
    mem_free(all);
}
