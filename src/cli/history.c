/* history.c - the file has one message on each line; "\n" and "\\" stand for line ends and backslashes inside a message.
 * A message is appended with one write, so chats that run side by side do not mix their lines. */
#include "cli/history.h"
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT = 1000, PATH = 4096, MOST_BYTES = 16 << 20 };

/* Returns false if no history is kept. */
static bool find_path(char out[PATH])
{
    const char *named = getenv("KVIK_HISTORY"), *state = getenv("XDG_STATE_HOME"),
               *home = getenv("HOME");
    int n;
    if (named)
        n = snprintf(out, PATH, "%s", named);
    else if (state && *state == '/')
        n = snprintf(out, PATH, "%s/kvik/history", state);
    else if (home && *home)
        n = snprintf(out, PATH, "%s/.local/state/kvik/history", home);
    else
        return false;
    return n > 0 && n < PATH;
}

/* Makes the directories of a path, for this user alone. */
static void make_directories(const char *path)
{
    char dir[PATH];
    snprintf(dir, sizeof dir, "%s", path);
    for (char *s = strchr(dir + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = 0;
        mkdir(dir, 0700);
        *s = '/';
    }
}

static int append(const char *path, const char *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    bool good = write(fd, data, n) == (ssize_t)n;
    return close(fd) == 0 && good ? 0 : -1;
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
    char path[PATH];
    struct buf line;
    if (!find_path(path)) return;
    buf_init(&line, MOST_BYTES);
    if (escape(&line, text) >= 0) {
        int e = append(path, line.data, line.len);
        if (e < 0 && errno == ENOENT) {
            make_directories(path);
            e = append(path, line.data, line.len);
        }
        if (e < 0 && !told)
            fprintf(stderr, "kvik: the history cannot be kept in %s: %s\n", path, strerror(errno));
        told |= e < 0;
    }
    buf_done(&line);
}

/* Keeps the newest messages of a file that has grown long. */
static void shorten(const char *path, const char *from)
{
    char tmp[PATH + 8];
    snprintf(tmp, sizeof tmp, "%s.new", path);
    unlink(tmp);
    if (append(tmp, from, strlen(from)) == 0)
        (void)!rename(tmp, path);
    else
        unlink(tmp);
}

void history_load(void (*fn)(void *ctx, const char *text), void *ctx)
{
    char path[PATH], *all;
    size_t n, lines = 0;
    if (!find_path(path) || file_read(path, MOST_BYTES, &all, &n) < 0) return;
    for (const char *s = all; (s = strchr(s, '\n')); s++)
        lines++;
    char *from = all;
    for (size_t skip = lines > KEPT ? lines - KEPT : 0; skip; skip--)
        from = strchr(from, '\n') + 1;
    if (lines > 2 * KEPT) shorten(path, from);
    for (char *line = from, *end; (end = strchr(line, '\n')); line = end + 1) {
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
