/* screen.c - stdout and stderr become streams whose write function is in this file.  On a terminal the function
 * replaces control characters and malformed UTF-8 by U+FFFD, so an escape sequence is visible as text.  A
 * character, and "\r\n", may arrive in pieces; the beginning waits for the rest.  The first error of a stream is
 * kept, since stdio forgets its cause. */
#include "cli/screen.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct screen {
    FILE *stream; /* NULL: the stream of the C library is in use */
    int fd, error;
    bool filters, trusts; /* trusts: a code of the command's own is being written */
    bool wrote;
    char held[4]; /* beginning of a character */
    size_t n_held;
};
static struct screen screens[2] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};
static FILE *editor;
static bool raw;

static bool write_all(struct screen *s, const char *text, size_t n)
{
    while (n) {
        ssize_t done = write(s->fd, text, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            if (!s->error) s->error = errno;
            return false;
        }
        text += done;
        n -= (size_t)done;
    }
    return true;
}

/* Appends the text[0, n) that a terminal may get.  Returns how many bytes were taken; the others wait for more. */
static size_t clean(const char *text, size_t n, char *out, size_t size, size_t *len)
{
    static const char bad[] = "\xEF\xBF\xBD";
    size_t i = 0, k = 0, one;
    while (i < n && k + 4 <= size) {
        uint32_t cp = utf8_decode(text + i, n - i, &one);
        bool begins = cp == UTF8_BAD && utf8_pending(text + i, n - i) == n - i;
        if (begins || (cp == '\r' && i + 1 == n)) break;
        bool line_end = cp == '\r' && text[i + 1] == '\n';
        bool hides = (screen_obeys(cp) && !line_end) || cp == UTF8_BAD;
        memcpy(out + k, hides ? bad : text + i, hides ? 3 : one);
        k += hides ? 3 : one;
        i += one;
    }
    *len = k;
    return i;
}

/* Writes the beginning of a character whose rest never came. */
static bool drop_held(struct screen *s)
{
    bool any = s->n_held > 0;
    s->n_held = 0;
    return !any || write_all(s, "\xEF\xBF\xBD", 3);
}

static bool write_clean(struct screen *s, const char *text, size_t n)
{
    char out[1024], in[256];
    size_t len;
    while (n) {
        size_t more = MIN(n, sizeof in - s->n_held);
        memcpy(in, s->held, s->n_held);
        memcpy(in + s->n_held, text, more);
        size_t all = s->n_held + more, taken = clean(in, all, out, sizeof out, &len);
        text += more;
        n -= more;
        s->n_held = all - taken; /* at most 3: clean stops only at the beginning of a character */
        memcpy(s->held, in + taken, s->n_held);
        if (!write_all(s, out, len)) return false;
    }
    return true;
}

static ssize_t screen_write(void *cookie, const char *text, size_t n)
{
    struct screen *s = cookie;
    s->wrote = true;
    bool exact = !s->filters || s->trusts || raw;
    bool ok = exact ? drop_held(s) && write_all(s, text, n) : write_clean(s, text, n);
    return ok ? (ssize_t)n : 0; /* 0 tells stdio of an error */
}

void screen_open(void)
{
    editor = stderr;
    for (size_t i = 0; i < countof(screens); i++) {
        struct screen *s = &screens[i];
        s->filters = isatty(s->fd);
        s->stream = fopencookie(s, "w", (cookie_io_functions_t){.write = screen_write});
        if (!s->stream) continue;
        setvbuf(s->stream, NULL, i ? _IONBF : s->filters ? _IOLBF : _IOFBF, BUFSIZ);
    }
    if (screens[0].stream) stdout = screens[0].stream;
    if (screens[1].stream) stderr = screens[1].stream;
}

void screen_raw(void)
{
    raw = true;
}

bool screen_is_raw(void)
{
    return raw;
}

static struct screen *screen_of(FILE *f)
{
    for (size_t i = 0; i < countof(screens); i++)
        if (f == screens[i].stream) return &screens[i];
    return NULL;
}

int screen_fd(FILE *f)
{
    const struct screen *s = screen_of(f);
    return s ? s->fd : fileno(f);
}

bool screen_is_terminal(FILE *f)
{
    return isatty(screen_fd(f));
}

bool screen_is_piped(void)
{
    struct stat st;
    const struct screen *s = &screens[0];
    return s->wrote && fstat(s->fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

void screen_code(FILE *to, const char *code)
{
    struct screen *s = screen_of(to);
    flockfile(to);
    if (s) {
        fflush(to);
        s->trusts = true;
    }
    fputs(code, to);
    if (s) {
        fflush(to);
        s->trusts = false;
    }
    funlockfile(to);
}

int screen_error(void)
{
    return screens[0].error;
}

FILE *screen_editor(void)
{
    return editor ? editor : stderr;
}

void screen_clean(const char *text, char *out, size_t size)
{
    size_t n = 0;
    clean(text, strlen(text), out, size - 1, &n);
    out[n] = 0;
}
