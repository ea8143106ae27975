/* texts.c - the texts of a command line: its words, and standard input for the word "-" or if there are no words.
 * Words behind "--" are always texts, so a text can be a dash. */
#include "base/utf8.h"
#include "cli/cli.h"

#include <string.h>
#include <unistd.h>

bool args_is_stdin(const struct args *a, size_t i)
{
    return i < a->plain && !strcmp(a->word[i], "-");
}

int args_twice(void)
{
    return say_usage("standard input can be read once; give - once");
}

/* Refuses bytes that are not UTF-8, which no tokenizer takes as text, and names their place. */
static int check_text(const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len)
        if (!s[i] || utf8_decode(s + i, n - i, &len) == UTF8_BAD)
            return say_failed(
                "standard input is not a text in UTF-8: byte %zu is 0x%02x; for another "
                "encoding see iconv --to utf-8",
                i, (unsigned char)s[i]);
    return 0;
}

static int read_piped(struct texts *t, bool prompt, struct text *out)
{
    size_t n;
    if (isatty(STDIN_FILENO)) say_line("type the text; Ctrl-D on a line of its own ends it");
    int e = read_all(stdin, "standard input", &t->piped, &n);
    if (e < 0) return say_error(e);
    int status = check_text(t->piped, n);
    if (status) return status;
    if (prompt && n && t->piped[n - 1] == '\n') t->piped[--n] = 0;
    if (!n && prompt) return say_usage("the text on standard input is empty");
    if (!n) say_line("standard input is empty");
    *out = (struct text){t->piped, n};
    return 0;
}

int texts_read(const struct args *a, size_t first, bool prompt, struct texts *out)
{
    size_t words = a->n - first;
    int status = 0;
    *out = (struct texts){.n = MAX(words, 1)};
    out->text = mem_array(out->n, sizeof *out->text);
    if (!out->text) return say_error(ERR_NOMEM);
    for (size_t i = 0; i < out->n && !status; i++) {
        const char *word = i < words ? a->word[first + i] : NULL;
        if (word && !args_is_stdin(a, first + i))
            out->text[i] = (struct text){word, strlen(word)};
        else if (out->piped)
            status = args_twice();
        else
            status = read_piped(out, prompt, &out->text[i]);
    }
    return status;
}

void texts_done(struct texts *t)
{
    mem_free(t->text);
    mem_free(t->piped);
    *t = (struct texts){0};
}
