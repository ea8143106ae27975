/* text_decoder.c - decodes the ids of a running generation as text that a screen can show: whole characters, as
 * soon as they are certain.  The text of all calls together is that of kvik_tokenizer_decode, because both use the
 * same code (tok/detokenize.c). */
#include "generate/handle.h"
#include "kvik_loop.h"

struct kvik_decoder {
    struct guard guard;  /* guards only against other threads */
    struct refs refs;    /* one reference: the caller's */
    kvik_tokenizer *tok; /* held */
    /* owned; `before` saves the state of `stream` before a call, so that a call that fails changes nothing */
    struct tok_stream *stream, *before; /* owned */
    struct buf text;                    /* owned; the text of the last call */
};

enum { ROOM = 4096 }; /* bytes; nearly every token has less text */

KVIK_API int kvik_decoder_open(const kvik_tokenizer *t, bool skip_special_tokens,
                               kvik_decoder **out)
{
    if (!t || !out)
        return ERR(ARG,
                   "a tokenizer and a pointer for the decoder are needed, and one of them is NULL");
    TRY(tokenizer_check(t));
    kvik_decoder *d = mem_alloc(sizeof *d);
    if (!d) return ERR_NOMEM;
    refs_init(&d->refs);
    d->tok = tokenizer_hold(t);
    buf_init(&d->text, SIZE_MAX / 2);
    int e = tok_stream_new(t->tok, skip_special_tokens, &d->stream);
    if (e >= 0) e = tok_stream_new(t->tok, skip_special_tokens, &d->before);
    if (e >= 0) e = tok_stream_reserve(d->stream);
    if (e >= 0) e = tok_stream_reserve(d->before);
    if (e >= 0) e = buf_reserve(&d->text, ROOM);
    if (e < 0) {
        kvik_decoder_close(d);
        return e;
    }
    *out = d;
    return 0;
}

KVIK_API void kvik_decoder_close(kvik_decoder *d)
{
    if (!d || !refs_close(&d->refs)) return;
    tok_stream_drop(d->stream);
    tok_stream_drop(d->before);
    buf_done(&d->text);
    tokenizer_drop(d->tok);
    mem_free(d);
}

/* Returns the text of a call; after an error restores the state before the call. */
static int64_t give_text(kvik_decoder *d, int e, const char **text)
{
    if (e < 0) {
        struct tok_stream *half = d->stream;
        d->stream = d->before;
        d->before = half;
        return e;
    }
    *text = d->text.data;
    return (int64_t)d->text.len;
}

static int64_t decode_ids(kvik_decoder *d, const int32_t *ids, size_t n, const char **text)
{
    int e = 0;
    TRY(tok_stream_copy(d->before, d->stream));
    buf_clear(&d->text);
    for (size_t i = 0; e >= 0 && i < n; i++)
        e = tok_stream_put(d->stream, ids[i], &d->text);
    return give_text(d, e, text);
}

KVIK_API int64_t kvik_decoder_put(kvik_decoder *d, const int32_t *ids, size_t n, const char **text)
{
    if (!d || (!ids && n) || !text)
        return ERR(
            ARG,
            "a decoder, token ids and a pointer for their text are needed, and one of them is NULL");
    TRY(refs_check(&d->refs, "decoder"));
    TRY(guard_enter(&d->guard, "decoder"));
    int64_t e = decode_ids(d, ids, n, text);
    guard_leave(&d->guard);
    return e;
}

static int64_t flush(kvik_decoder *d, const char **text)
{
    TRY(tok_stream_copy(d->before, d->stream));
    buf_clear(&d->text);
    return give_text(d, tok_stream_end(d->stream, &d->text), text);
}

KVIK_API int64_t kvik_decoder_flush(kvik_decoder *d, const char **text)
{
    if (!d || !text)
        return ERR(ARG, "a decoder and a pointer for its text are needed, and one of them is NULL");
    TRY(refs_check(&d->refs, "decoder"));
    TRY(guard_enter(&d->guard, "decoder"));
    int64_t e = flush(d, text);
    guard_leave(&d->guard);
    return e;
}
