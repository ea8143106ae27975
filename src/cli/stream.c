/* stream.c - the hooks of a running generation.  They print text to standard output as it grows, show the progress of a
 * long prompt on standard error, and obey Ctrl-C between tokens. */
#include "cli/wrap.h"

#include <string.h>
#include <unistd.h>

static bool ends_line(const char *text)
{
    return *text && text[strlen(text) - 1] == '\n';
}

static void print(struct text_stream *s, const char *text)
{
    if (s->wrap)
        wrap_put(s->wrap, text);
    else
        fputs(text, stdout);
    s->spoke = true;
    s->ends_line = ends_line(text);
}

static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct text_stream *s = ctx;
    (void)row;
    (void)id;
    progress_end(&s->progress);
    if (s->prints && *text) {
        print(s, text);
        fflush(stdout);
    }
    s->tokens++;
    if (interrupt_seen() || ferror(stdout)) return false;
    return !s->pause || s->tokens % s->pause || s->goes_on(s->ctx, s->tokens);
}

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct text_stream *s = ctx;
    progress_show(&s->progress, done, total);
    return !interrupt_seen();
}

static void on_notice(void *ctx, const char *text)
{
    struct text_stream *s = ctx;
    progress_end(&s->progress);
    fflush(stdout);
    if (s->spoke && !s->ends_line && isatty(STDERR_FILENO)) fputc('\n', stderr);
    if (s->wrap) wrap_begin(s->wrap, stdout);
    say_notice(NULL, text);
}

int stream_generate(struct text_stream *s, struct engine *engine, const kvik_generation *g,
                    const kvik_prompt *prompt, uint32_t n, kvik_result **out)
{
    bool beams = g->num_beams > 1;
    kvik_hooks hooks = {.size = sizeof hooks,
                        .on_token = beams ? NULL : on_token,
                        .on_progress = on_progress,
                        .on_notice = on_notice,
                        .assistant_model = engine->assistant_cache,
                        .ctx = s};
    s->spoke = s->ends_line = false;
    s->tokens = 0;
    if (s->wrap) wrap_begin(s->wrap, stdout);
    interrupt_clear();
    progress_begin(&s->progress, beams ? "searching" : "reading the prompt");
    int e = kvik_generate(engine->cache, g, prompt, n, &hooks, out);
    progress_end(&s->progress);
    if (e >= 0 && beams && s->prints && (*out)->row[0]->text) print(s, (*out)->row[0]->text);
    if (s->spoke && !s->ends_line) putchar('\n');
    return e;
}
