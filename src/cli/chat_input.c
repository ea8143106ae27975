/* chat_input.c - messages from lines of input.  A message is a line; a backslash at the end of a line
 * continues it, and """ begins and ends a message of several lines.  A pasted block arrives as one line with line ends in it
 * and is one message. */
#include "cli/cmd_chat.h"

#include <string.h>

static const char quotes[] = "\"\"\"";
enum { QUOTES = 3 };

/* Returns the length of a text without the blanks at its end. */
static size_t trimmed(const char *s, size_t n)
{
    while (n && strchr(" \t\r\n", s[n - 1]))
        n--;
    return n;
}

static bool ends_quoted(const char *s, size_t n)
{
    n = trimmed(s, n);
    return n >= QUOTES && !memcmp(s + n - QUOTES, quotes, QUOTES);
}

/* Removes the quotes at the end, with the line end before them. */
static void cut_quotes(struct buf *b)
{
    b->len = trimmed(b->data, b->len) - QUOTES;
    if (b->len && b->data[b->len - 1] == '\n') b->len--;
    b->data[b->len] = 0;
}

/* Adds a line to a message.  Returns 1 if the message needs more lines, 0 at its end, or an error code. */
static int add_line(struct buf *out, const char *s, size_t n, bool *quoted)
{
    bool first = !out->len && !*quoted;
    if (first && n >= QUOTES && !memcmp(s, quotes, QUOTES)) {
        *quoted = true;
        s += QUOTES;
        n -= QUOTES;
        if (n && *s == '\n') s++, n--;
    }
    TRY(buf_append(out, s, n));
    if (*quoted) {
        if (ends_quoted(s, n)) {
            cut_quotes(out);
            return 0;
        }
        if (!first || n) TRY(buf_putc(out, '\n'));
        return 1;
    }
    if (!n || s[n - 1] != '\\') return 0;
    out->data[out->len - 1] = '\n';
    return 1;
}

/* True if a refused message continues behind this line of it. */
static bool message_continues(const char *s, size_t n, bool quoted)
{
    return quoted ? !ends_quoted(s, n) : n && s[n - 1] == '\\';
}

int chat_read(struct chat *c, struct buf *out, bool *is_message)
{
    char prompt[CHAT_NAME + 4];
    const char *text;
    size_t n;
    bool quoted = false, more = false;
    int bad = 0; /* why the message is refused; its other lines are still read */
    snprintf(prompt, sizeof prompt, "%s> ", c->n > 1 ? chat_here(c)->name : "");
    buf_clear(out);
    do {
        int got = chat_pause_take(c, &text, &n)
                      ? 1
                      : line_read(c->editor, more ? "... " : prompt, &text, &n);
        if (got < 0 && quoted && (got == ERR_LIMIT || got == ERR_NOMEM)) {
            bad = got;
            continue;
        }
        if (got != 1 && (got || !more)) return got;
        if (got == 0) break; /* the end of the input ends the message */
        bool begins = !more;
        int e = bad ? message_continues(text, n, quoted) : add_line(out, text, n, &quoted);
        if (e < 0) {
            bad = e;
            e = message_continues(text, n, quoted);
        }
        more = e > 0;
        if (bad) continue;
        if (begins && !more) line_remember(c->editor, text, n); /* as it was typed */
        if (!begins && !more) line_remember(c->editor, out->data, out->len);
    } while (more);
    if (bad == ERR_LIMIT)
        return ERR(
            LIMIT,
            "the message is longer than the limit of %zu MiB, or has a line above 16 MiB; it is left out",
            out->max >> 20);
    if (bad) return ERR(NOMEM, "out of memory; the message is left out");
    while (out->len && out->data[out->len - 1] == '\n')
        out->data[--out->len] = 0;
    *is_message = quoted || (out->len && memchr(out->data, '\n', out->len));
    return 1;
}
