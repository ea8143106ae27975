/* wrap.c - word wrap for streamed text.  A word is printed as it grows.  If it crosses the edge, it is erased and
 * printed again on the next line, so no text is held back.  The last column stays empty, because terminals differ
 * in where the cursor is behind it.  Code blocks (between lines of ```) and words longer than a line are left to
 * the terminal, so that they can be copied.  A line may be broken before and after wide characters (Chinese,
 * Japanese), but not before closing punctuation. */
#include "cli/wrap.h"
#include "base/utf8.h"
#include "cli/screen.h"
#include "cli/terminal.h"

#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { NARROWEST = 20 };

void wrap_begin(struct wrap *w, FILE *to)
{
    *w = (struct wrap){.to = to};
}

static void end_line(struct wrap *w)
{
    if (w->fence) w->code = !w->code;
    w->fence = false;
    w->col = w->word_cols = 0;
    w->n_word = 0;
    w->ticks = 0;
}

static void end_word(struct wrap *w)
{
    w->n_word = 0;
    w->word_cols = 0;
}

/* Moves the word that ends at the cursor to the next line. */
static void move_word(struct wrap *w)
{
    for (unsigned i = 0; i < w->word_cols; i++)
        screen_code(w->to, "\b");
    if (w->word_cols) screen_code(w->to, "\033[K");
    fputc('\n', w->to);
    fwrite(w->word, 1, w->n_word, w->to);
    w->col = w->word_cols;
}

static void put_space(struct wrap *w, bool tab, unsigned most)
{
    unsigned cols = tab ? 8 - w->col % 8 : 1;
    end_word(w);
    if (w->col + cols > most) return; /* the line can be broken here */
    fputc(tab ? '\t' : ' ', w->to);
    w->col += cols;
}

/* True if a line must not begin with this wide character. */
static bool closes(uint32_t cp)
{
    return wcschr(L"、。，．！？：；」』）】〉》…", (wchar_t)cp) != NULL;
}

static void put_character(struct wrap *w, uint32_t cp, const char *s, size_t n, unsigned most)
{
    int wide = wcwidth((wchar_t)cp);
    unsigned cols = wide > 0 ? (unsigned)wide : 0;
    if (cols == 2 && !closes(cp)) end_word(w);
    if (w->col + cols > most && !w->code && !w->fence) {
        bool fits = w->n_word < WRAP_WORD && w->word_cols < w->col && w->word_cols + cols <= most;
        if (fits)
            move_word(w);
        else
            w->n_word = WRAP_WORD;
    }
    fwrite(s, 1, n, w->to);
    w->col += cols;
    w->word_cols += cols;
    if (w->n_word + n < WRAP_WORD) {
        memcpy(w->word + w->n_word, s, n);
        w->n_word += n;
    } else {
        w->n_word = WRAP_WORD;
    }
    if (w->n_word == WRAP_WORD && w->width) w->col %= w->width; /* the terminal breaks the line */
}

/* Counts backticks at the beginning of a line. */
static void watch_fence(struct wrap *w, uint32_t cp)
{
    if (cp == '`' && w->ticks >= 0)
        w->fence |= ++w->ticks == 3;
    else if (cp != ' ' || w->ticks > 0)
        w->ticks = -1;
}

void wrap_put(struct wrap *w, const char *text)
{
    static const char bad[] = "\xEF\xBF\xBD";
    unsigned width = terminal_columns(w->to);
    size_t n = strlen(text), len;
    if (width != w->width && w->width) { /* the terminal has broken its lines anew */
        w->n_word = WRAP_WORD;
        if (width) w->col %= width;
    }
    w->width = width;
    unsigned most = width >= NARROWEST ? width - 1 : UINT32_MAX / 2;
    for (size_t i = 0; i < n; i += len) {
        uint32_t cp = utf8_decode(text + i, n - i, &len);
        if (cp == '\r') continue;
        if (cp == '\n') {
            fputc('\n', w->to);
            end_line(w);
            continue;
        }
        watch_fence(w, cp);
        if ((cp == ' ' || cp == '\t') && !w->code && !w->fence)
            put_space(w, cp == '\t', most);
        else if (cp == '\t')
            fputc('\t', w->to);
        else if (screen_obeys(cp) || cp == UTF8_BAD) /* a terminal would show U+FFFD */
            put_character(w, 0xFFFD, bad, 3, most);
        else
            put_character(w, cp, text + i, len, most);
    }
}

/* Returns the columns of the first n bytes of s. */
static unsigned columns(const char *s, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0, len; i < n; i += len) {
        int wide = wcwidth((wchar_t)utf8_decode(s + i, n - i, &len));
        sum += wide > 0 ? (unsigned)wide : 0;
    }
    return sum;
}

void wrap_line(FILE *to, const char *text)
{
    unsigned width = terminal_columns(to), col = 0;
    if (width < NARROWEST || !screen_is_terminal(to)) {
        fprintf(to, "%s\n", text);
        return;
    }
    while (*text) {
        size_t blanks = strspn(text, " "), n = blanks + strcspn(text + blanks, " \n");
        unsigned cols = columns(text, n);
        if (col && col + cols > width - 1) {
            fputc('\n', to);
            col = 0;
            text += blanks;
            n -= blanks;
            cols -= (unsigned)blanks;
        }
        fwrite(text, 1, n, to);
        col += cols;
        text += n;
        if (*text == '\n') fputc(*text++, to), col = 0;
    }
    fputc('\n', to);
}
