/* chat_pause.c - the length of a reply if the user has set none, because a model that repeats itself would
 * otherwise fill its context.  On a terminal the chat asks at this length whether to continue, again and again.
 * Elsewhere, and with beams, the reply ends. */
#include "cli/cmd_chat.h"

#include <string.h>
#include <unistd.h>

/* Asks below the text whether to continue.  If the user types a message instead, even before the question, the
 * reply ends and the message is read next. */
static bool ask_to_continue(void *ctx, uint32_t tokens)
{
    struct chat *c = ctx;
    char question[96];
    const char *text;
    size_t n = 0;
    double begun = now_seconds();
    fflush(stdout);
    if (!c->stream.ends_line) fputc('\n', stderr);
    snprintf(question, sizeof question, "(%u tokens; Enter goes on, Ctrl-C ends the reply) ",
             tokens);
    int got = line_read(c->editor, question, &text, &n);
    if (got == 1 && n) {
        buf_clear(&c->next);
        c->waits = buf_append(&c->next, text, n) >= 0;
    }
    if (got != 1) fputc('\n', stderr);
    if (got < 0) say_error(got);
    if (c->stream.wrap) wrap_begin(c->stream.wrap, stdout);
    c->stream.ends_line |= isatty(STDOUT_FILENO);
    c->asked += now_seconds() - begun;
    return got == 1 && !n;
}

uint32_t chat_pause(struct chat *c, const kvik_generation *g)
{
    bool limited = c->open_ended && c->o->reply_tokens;
    bool asks = line_is_terminal(c->editor) && g->num_beams <= 1;
    uint32_t most = limited ? MAX(c->o->reply_tokens, g->min_new_tokens) : 0;
    c->asked = 0;
    c->stream.pause = asks ? most : 0;
    c->stream.goes_on = ask_to_continue;
    c->stream.ctx = c;
    return most && !asks ? most : UINT32_MAX;
}

void chat_pause_tell(const struct chat *c, const kvik_result *r)
{
    const kvik_row *row = r->row[0];
    if (!c->open_ended || !c->o->reply_tokens || row->finish != KVIK_FINISH_LENGTH ||
        row->n >= chat_limit(c).tokens)
        return;
    say_line("the reply ended after %zu tokens; --reply-tokens N allows more",
             row->n - row->n_prompt);
}

bool chat_pause_take(struct chat *c, const char **text, size_t *n)
{
    if (!c->waits) return false;
    c->waits = false;
    *text = c->next.data;
    *n = c->next.len;
    return true;
}
