/* line.c - line editing with libedit: history, cursor keys, UTF-8.  Ctrl-C must end the line, but libedit's reader restarts
 * a read that a signal interrupted; so this file reads the characters itself.  The prompt goes to standard error, so
 * standard output has replies only. */
#include "cli/line.h"
#include "base/utf8.h"

#include <errno.h>
#include <histedit.h>
#include <string.h>
#include <unistd.h>

struct line_editor {
    EditLine *el; /* NULL: standard input is not a terminal */
    History *history;
    const char *prompt;
    struct buf line;
};

static char *show_prompt(EditLine *el)
{
    struct line_editor *e = NULL;
    el_get(el, EL_CLIENTDATA, &e);
    return (char *)(uintptr_t)e->prompt;
}

/* Reads one character of UTF-8; a malformed byte becomes U+FFFD. */
static int read_character(EditLine *el, wchar_t *out)
{
    char s[4];
    size_t n = 0, len;
    (void)el;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, s + n, 1);
        if (got < 0 && errno == EINTR && !interrupt_seen()) continue;
        if (got <= 0) return got < 0 ? -1 : 0;
        n++;
        uint32_t cp = utf8_decode(s, n, &len);
        if (cp == UTF8_BAD && utf8_pending(s, n) == n && n < 4) continue;
        *out = cp == UTF8_BAD ? 0xFFFD : (wchar_t)cp;
        return 1;
    }
}

static void open_editor(struct line_editor *e)
{
    HistEvent ev;
    e->el = el_init("kvik", stdin, stderr, stderr);
    e->history = e->el ? history_init() : NULL;
    if (!e->el) return;
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT, show_prompt);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_SIGNAL, 0);
    el_set(e->el, EL_GETCFN, read_character);
    if (!e->history) return;
    history(e->history, &ev, H_SETSIZE, 1000);
    history(e->history, &ev, H_SETUNIQUE, 1);
    el_set(e->el, EL_HIST, history, e->history);
}

int line_open(struct line_editor **out)
{
    struct line_editor *e = mem_alloc(sizeof *e);
    if (!e) return ERR_NOMEM;
    buf_init(&e->line, 16u << 20);
    if (isatty(STDIN_FILENO)) open_editor(e);
    *out = e;
    return 0;
}

void line_close(struct line_editor *e)
{
    if (!e) return;
    if (e->history) history_end(e->history);
    if (e->el) el_end(e->el);
    buf_done(&e->line);
    mem_free(e);
}

bool line_is_terminal(const struct line_editor *e)
{
    return e->el != NULL;
}

static int read_plain(struct line_editor *e, const char **text, size_t *n)
{
    int got = read_line(stdin, &e->line);
    if (interrupt_seen()) return -1;
    if (got <= 0) return 0;
    *text = e->line.data ? e->line.data : "";
    *n = e->line.len;
    return 1;
}

int line_read(struct line_editor *e, const char *prompt, const char **text, size_t *n)
{
    HistEvent ev;
    int count = 0;
    if (!e->el) return read_plain(e, text, n);
    e->prompt = prompt;
    const char *s = el_gets(e->el, &count);
    if (interrupt_seen()) {
        el_reset(e->el);
        return -1;
    }
    if (!s || count <= 0) return 0;
    size_t len = (size_t)count;
    if (len && s[len - 1] == '\n') len--;
    if (len && e->history) history(e->history, &ev, H_ENTER, s);
    *text = s;
    *n = len;
    return 1;
}
