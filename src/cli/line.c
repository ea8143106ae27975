/* line.c - line editing with libedit: history, cursor keys, UTF-8, pasted blocks, completion.  Ctrl-C must end the
 * line, but libedit's reader restarts a read that a signal interrupted; so this file reads the characters itself.
 * A read never waits: the process waits in terminal_wait, which ends even if Ctrl-C came before the call.  The
 * prompt goes to standard error, so standard output has only replies.
 *
 * The terminal marks pasted text (bracketed paste).  libedit does not know the marks: the first one is bound to a
 * function that reads up to the second one and inserts the text, with its line ends, into the line. */
#include "cli/line.h"
#include "base/utf8.h"
#include "cli/history.h"
#include "cli/screen.h"
#include "cli/terminal.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define PASTE_ENDS "\033[201~"
#define MOST_BYTES (16u << 20) /* most bytes of a line or a pasted block */

struct line_editor {
    EditLine *el; /* NULL: standard input is not a terminal */
    History *history;
    /* without control characters, because libedit prints it without the filter of screen.c */
    char prompt[128];
    struct buf line, paste;
    char early; /* a byte that was typed after Ctrl-C; it belongs to the next line */
    bool has_early;
    line_complete complete;
    void *ctx;
};

static struct line_editor *editor_of(EditLine *el)
{
    struct line_editor *e = NULL;
    el_get(el, EL_CLIENTDATA, &e);
    return e;
}

static char *show_prompt(EditLine *el)
{
    return editor_of(el)->prompt;
}

/* Returns how many screen rows the cursor is below the prompt, in a window of `width` columns. */
static unsigned cursor_row(EditLine *el, unsigned width)
{
    const LineInfo *line = el_line(el);
    unsigned row = 0, col = (unsigned)strlen(editor_of(el)->prompt);
    size_t n = (size_t)(line->cursor - line->buffer), len;
    for (size_t i = 0; i < n; i += len) {
        uint32_t cp = utf8_decode(line->buffer + i, n - i, &len);
        int wide = cp == '\t' ? (int)(8 - col % 8) : wcwidth((wchar_t)cp);
        bool breaks = cp == '\n' || col + (unsigned)MAX(wide, 0) > width;
        row += breaks;
        col = cp == '\n' ? 0 : (breaks ? 0 : col) + (unsigned)MAX(wide, 0);
    }
    return row;
}

/* Draws the edited line again after the terminal has changed. */
static void draw_again(EditLine *el, enum terminal_event event)
{
    unsigned width = terminal_columns(stderr), row = width ? cursor_row(el, width) : 0;
    if (event == TERMINAL_RESIZED && width) {
        char up[16];
        snprintf(up, sizeof up, "\033[%uA", row);
        if (row) screen_code(stderr, up);
        screen_code(stderr, "\r\033[J");
    }
    fflush(stderr);
    el_resize(el);
    el_set(el, EL_REFRESH);
}

/* Reads one byte.  Returns what read returns; -1 only after Ctrl-C or a failure. */
static ssize_t read_byte(EditLine *el, char *out)
{
    struct line_editor *e = editor_of(el);
    if (e->has_early) {
        e->has_early = false;
        *out = e->early;
        return 1;
    }
    for (bool hung_up = false;;) {
        ssize_t got = interrupt_seen() ? -1 : read(STDIN_FILENO, out, 1);
        int why = interrupt_seen() ? EINTR : errno;
        enum terminal_event event = terminal_event();
        if (event != TERMINAL_SAME) draw_again(el, event);
        if (got == 1 && interrupt_seen()) { /* Ctrl-C ends this line although a byte was read */
            e->early = *out;
            e->has_early = true;
            got = -1;
        }
        errno = why;
        if (got == 1 || interrupt_seen() || (got < 0 && why != EINTR)) return got;
        if (!got && hung_up) return 0;
        if (!got) hung_up = !terminal_wait();
    }
}

/* Reads one character of UTF-8; a malformed byte becomes U+FFFD. */
static int read_character(EditLine *el, wchar_t *out)
{
    char s[4];
    size_t n = 0, len;
    terminal_edits();
    for (;;) {
        ssize_t got = read_byte(el, s + n);
        if (got <= 0) return (int)got;
        n++;
        uint32_t cp = utf8_decode(s, n, &len);
        if (cp == UTF8_BAD && utf8_pending(s, n) == n && n < 4) continue;
        *out = cp == UTF8_BAD ? 0xFFFD : (wchar_t)cp;
        return 1;
    }
}

/* Inserts text at the cursor, without control characters except line ends and tabs. */
static int insert_text(EditLine *el, const char *s, size_t n)
{
    size_t k = 0, len;
    bool paired = false; /* the last byte ended a line of two bytes */
    wchar_t *text = mem_array(n + 1, sizeof *text);
    if (!text) return -1;
    for (size_t i = 0; i < n; i += len) {
        uint32_t cp = utf8_decode(s + i, n - i, &len);
        bool pair = k && text[k - 1] == '\n' && i && (cp == '\n' || cp == '\r') &&
                    (unsigned char)s[i - 1] + cp == '\r' + '\n';
        if (pair && !paired) { /* "\r\n", which a terminal may have mapped to "\n\r" */
            paired = true;
            continue;
        }
        paired = false;
        if (cp == '\r') cp = '\n';
        if (cp < 0x20 && cp != '\n' && cp != '\t') continue;
        text[k++] = cp == UTF8_BAD ? 0xFFFD : (wchar_t)cp;
    }
    text[k] = 0;
    int e = k ? el_winsertstr(el, text) : 0;
    mem_free(text);
    return e;
}

static unsigned char paste(EditLine *el, int key)
{
    static const char ends[] = PASTE_ENDS;
    struct line_editor *e = editor_of(el);
    struct buf *b = &e->paste;
    char c;
    bool whole = true;
    (void)key;
    buf_clear(b);
    while (read_byte(el, &c) == 1) {
        /* the rest up to the end mark is dropped, so that it does not become typed lines */
        if (buf_putc(b, c) < 0) {
            whole = false;
            memmove(b->data, b->data + b->len - sizeof ends, sizeof ends);
            b->len = sizeof ends;
            (void)buf_putc(b, c);
        }
        size_t n = sizeof ends - 1;
        if (b->len < n || memcmp(b->data + b->len - n, ends, n) != 0) continue;
        if (whole) return insert_text(el, b->data, b->len - n) < 0 ? CC_ERROR : CC_REFRESH;
        fprintf(stderr, "\r\nkvik: the pasted block is longer than %u MiB and is left out\r\n",
                MOST_BYTES >> 20);
        return CC_REDISPLAY;
    }
    return interrupt_seen() ? CC_REFRESH : CC_EOF;
}

static char plain(char c)
{
    return c == '-' ? '_' : c;
}

void line_offer(struct line_words *w, const char *typed, const char *word)
{
    for (size_t i = 0; typed[i]; i++)
        if (plain(typed[i]) != plain(word[i])) return;
    if (w->n < LINE_WORDS && (w->word[w->n] = mem_strdup(word))) w->n++;
}

/* Returns how many bytes at their beginning all words have in common. */
static size_t common_bytes(const struct line_words *w)
{
    size_t n = strlen(w->word[0]);
    for (size_t i = 1; i < w->n; i++) {
        size_t k = 0;
        while (k < n && w->word[0][k] == w->word[i][k])
            k++;
        n = k;
    }
    return n;
}

static void list(const struct line_words *w)
{
    unsigned width = 0, most = terminal_columns(stderr), at = 0;
    for (size_t i = 0; i < w->n; i++)
        width = MAX(width, (unsigned)strlen(w->word[i]) + 2);
    fputs("\r\n", stderr);
    for (size_t i = 0; i < w->n; i++) {
        if (at && at + width > most) {
            fputs("\r\n", stderr);
            at = 0;
        }
        fprintf(stderr, "%-*s", (int)width, w->word[i]);
        at += width;
    }
    fputs("\r\n", stderr);
    fflush(stderr);
}

static unsigned char complete_word(EditLine *el, int key)
{
    struct line_editor *e = editor_of(el);
    struct line_words w = {0};
    const LineInfo *line = el_line(el);
    unsigned char what = CC_ERROR;
    (void)key;
    buf_clear(&e->paste);
    if (buf_append(&e->paste, line->buffer, (size_t)(line->cursor - line->buffer)) < 0) return what;
    const char *typed = e->paste.data ? e->paste.data : "";
    if (e->complete) e->complete(e->ctx, typed, &w);
    if (w.n) {
        size_t has = strlen(typed) - w.from, n = common_bytes(&w);
        bool whole = w.n == 1 && w.word[0][strlen(w.word[0]) - 1] != '/';
        if (n > has || w.n == 1) {
            w.word[0][n] = 0;
            if (n > has) el_insertstr(el, w.word[0] + has);
            if (whole) el_insertstr(el, " ");
            what = CC_REFRESH;
        } else {
            list(&w);
            what = CC_REDISPLAY;
        }
    }
    for (size_t i = 0; i < w.n; i++)
        mem_free(w.word[i]);
    return what;
}

static void recall(void *ctx, const char *text)
{
    struct line_editor *e = ctx;
    HistEvent ev;
    history(e->history, &ev, H_ENTER, text);
}

static void open_editor(struct line_editor *e)
{
    HistEvent ev;
    terminal_open();
    e->el = el_init("kvik", stdin, screen_editor(), screen_editor());
    e->history = e->el ? history_init() : NULL;
    if (!e->el) return;
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT, show_prompt);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_SIGNAL, 0);
    el_set(e->el, EL_GETCFN, read_character);
    el_set(e->el, EL_SETTY, "-x", "-echo", "-icanon", NULL); /* also between the lines */
    el_set(e->el, EL_ADDFN, "kvik-paste", "insert pasted text", paste);
    el_set(e->el, EL_BIND, "\033[200~", "kvik-paste", NULL);
    el_set(e->el, EL_ADDFN, "kvik-complete", "complete a word", complete_word);
    el_set(e->el, EL_BIND, "^I", "kvik-complete", NULL);
    terminal_quiet();
    if (!e->history) return;
    history(e->history, &ev, H_SETSIZE, 1000);
    history(e->history, &ev, H_SETUNIQUE, 1);
    el_set(e->el, EL_HIST, history, e->history);
    history_load(recall, e);
}

int line_open(line_complete complete_with, void *ctx, struct line_editor **out)
{
    struct line_editor *e = mem_alloc(sizeof *e);
    if (!e) return ERR_NOMEM;
    *e = (struct line_editor){.complete = complete_with, .ctx = ctx};
    buf_init(&e->line, MOST_BYTES);
    buf_init(&e->paste, MOST_BYTES);
    /* models speak UTF-8; a locale without it would show escapes */
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    if (isatty(STDIN_FILENO)) open_editor(e);
    *out = e;
    return 0;
}

void line_close(struct line_editor *e)
{
    if (!e) return;
    if (e->history) history_end(e->history);
    if (e->el) el_end(e->el);
    terminal_close();
    buf_done(&e->line);
    buf_done(&e->paste);
    mem_free(e);
}

bool line_is_terminal(const struct line_editor *e)
{
    return e && e->el;
}

void line_remember(struct line_editor *e, const char *text, size_t n)
{
    enum { LONGEST = 64 << 10 };
    if (!e->history || !n || n > LONGEST) return;
    buf_clear(&e->paste);
    if (buf_append(&e->paste, text, n) < 0) return;
    recall(e, e->paste.data);
    history_add(e->paste.data);
}

static int read_plain(struct line_editor *e, const char **text, size_t *n)
{
    int got = read_line(stdin, &e->line);
    if (interrupt_seen()) return LINE_INTERRUPTED;
    if (got == ERR_LIMIT)
        return ERR(LIMIT, "a line is longer than the limit of %u MiB; its message is left out",
                   MOST_BYTES >> 20);
    if (got <= 0) return got;
    *text = e->line.data ? e->line.data : "";
    *n = e->line.len;
    return 1;
}

int line_read(struct line_editor *e, const char *prompt, const char **text, size_t *n)
{
    int count = 0;
    if (!e->el) return read_plain(e, text, n);
    screen_clean(prompt, e->prompt, sizeof e->prompt);
    if (terminal_event() != TERMINAL_SAME) el_resize(e->el);
    const char *s = el_gets(e->el, &count);
    terminal_quiet();
    if (interrupt_seen()) {
        el_reset(e->el);
        terminal_quiet();
        return LINE_INTERRUPTED;
    }
    if (!s || count <= 0) return 0;
    size_t len = (size_t)count;
    if (len && s[len - 1] == '\n') len--;
    *text = s;
    *n = len;
    return 1;
}
