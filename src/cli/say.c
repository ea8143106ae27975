/* say.c - messages go to stderr and begin with "kvik: "; data goes to stdout.  At the end stdout is flushed and checked, so
 * a full disk is an error and not a truncated file. */
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/screen.h"
#include "cli/terminal.h"
#include "cli/wrap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints a message of any length. */
static void print_line(const char *text)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    if (buf_puts(&b, "kvik: ") >= 0 && buf_puts(&b, text) >= 0)
        wrap_line(stderr, b.data);
    else
        fprintf(stderr, "kvik: %s\n", text);
    buf_done(&b);
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_-./", c));
}

/* Returns the option whose name in the library begins at `at` and is a whole word.  The command spells it with
 * dashes. */
static const char *option_at(const char *text, const char *at)
{
    static const char *const name[] = {"cache_memory", "spill_dir"};
    for (size_t i = 0; i < countof(name); i++) {
        size_t n = strlen(name[i]);
        if (!strncmp(at, name[i], n) && !in_word(at[n]) && (at == text || !in_word(at[-1])))
            return name[i];
    }
    return NULL;
}

/* Appends a message of the library.  Names of options that the command has are spelled as on the command line. */
static int put_spelled(struct buf *b, const char *text)
{
    for (const char *s = text; *s;) {
        const char *name = option_at(text, s);
        char dashed[64];
        if (name) {
            args_dashed(name, dashed);
            TRY(buf_printf(b, "--%s", dashed));
            s += strlen(name);
        } else {
            TRY(buf_putc(b, *s++));
        }
    }
    return 0;
}

int say_error(int code)
{
    const char *s = kvik_last_error();
    struct buf b;
    fflush(stdout);
    buf_init(&b, SIZE_MAX / 2);
    if (!*s) s = kvik_error_name(code);
    print_line(put_spelled(&b, s) >= 0 && b.data ? b.data : s);
    buf_done(&b);
    return EXIT_FAILED;
}

static void print_sentence(const char *fmt, va_list ap)
{
    char line[1024];
    vsnprintf(line, sizeof line, fmt, ap);
    /* words of the command line may hold control characters, which must not reach the terminal */
    for (char *p = line; *p; p++)
        *p = screen_one_line(*p);
    fflush(stdout);
    print_line(line);
}

void say_line(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_sentence(fmt, ap);
    va_end(ap);
}

int say_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_sentence(fmt, ap);
    va_end(ap);
    return EXIT_USAGE;
}

int say_failed(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_sentence(fmt, ap);
    va_end(ap);
    return EXIT_FAILED;
}

bool say_colour(FILE *to)
{
    const char *no = getenv("NO_COLOR");
    return screen_is_terminal(to) && !(no && *no) && terminal_moves();
}

void say_notice(void *ctx, const char *text)
{
    (void)ctx;
    wrap_line(stderr, text);
}

int say_flush(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    int why = screen_error();
    return say_failed("standard output cannot be written: %s", strerror(why ? why : EIO));
}

json_t *say_json(const char *s, size_t n)
{
    if (utf8_valid(s, n)) return json_stringn_nocheck(s, n);
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = utf8_decode(s + i, n - i, &len);
        if (buf_utf8(&b, cp == UTF8_BAD ? 0xFFFD : cp) < 0) break;
    }
    json_t *j = json_stringn_nocheck(b.data ? b.data : "", b.len);
    buf_done(&b);
    return j;
}

json_t *say_message(const char *role, const char *content, size_t n)
{
    return json_pack("{s:s, s:o}", "role", role, "content", say_json(content, n));
}

int say_json_line(json_t *o)
{
    char *text;
    int e = o ? json_text(o, &text) : ERR(NOMEM, "out of memory");
    json_decref(o);
    if (e < 0) return say_error(e);
    puts(text);
    mem_free(text);
    return 0;
}

int read_line(FILE *from, struct buf *line)
{
    int c, e = 0;
    buf_clear(line);
    while ((c = getc(from)) != EOF && c != '\n')
        /* a line that is too long is still read to its end */
        if (e >= 0) e = buf_putc(line, (char)c);
    if (e < 0) return e;
    if (c == EOF && ferror(from)) return ERR(IO, "the input cannot be read: %s", strerror(errno));
    if (c == EOF && !line->len) return 0;
    if (line->len && line->data[line->len - 1] == '\r') line->data[--line->len] = 0;
    return 1;
}

int read_all(FILE *from, const char *what, char **text, size_t *n)
{
    struct buf b;
    char piece[16384];
    size_t got;
    int e = 0;
    buf_init(&b, (size_t)256 << 20);
    /* After the end of input another read would wait for a second Ctrl-D on a terminal. */
    while (e >= 0 && !feof(from) && (got = fread(piece, 1, sizeof piece, from)) > 0)
        e = buf_append(&b, piece, got);
    if (e >= 0 && ferror(from)) e = ERR(IO, "%s cannot be read: %s", what, strerror(errno));
    size_t len = b.len;
    char *s = e < 0 ? NULL : buf_take(&b);
    if (!s) {
        buf_done(&b);
        return e < 0 ? e : ERR_NOMEM;
    }
    *text = s;
    *n = len;
    return 0;
}
