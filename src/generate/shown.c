/* shown.c - the text of a run's tokens.  Special tokens are skipped, except for those that the caller wants to
 * see. */
#include "generate/run.h"

int run_stream(const struct run *r, struct tok_stream **out)
{
    const kvik_hooks *h = r->hooks;
    TRY(tok_stream_new(r->tok, true, out));
    if (h) tok_stream_show(*out, h->shown_tokens, (size_t)h->n_shown_tokens);
    return 0;
}

int run_decode(const struct run *r, const int32_t *id, size_t n, struct buf *text)
{
    struct tok_stream *s;
    int e = 0;
    TRY(run_stream(r, &s));
    for (size_t i = 0; i < n && e >= 0; i++)
        e = tok_stream_put(s, id[i], text);
    if (e >= 0) e = tok_stream_end(s, text);
    tok_stream_drop(s);
    return e;
}
