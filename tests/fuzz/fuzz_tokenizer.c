/* fuzz_tokenizer.c - a tokenizer.json, a NUL byte, and text; or a compiled vocabulary. The target opens the tokenizer,
 * encodes the text in every mode, and decodes the ids whole and as a stream.
 * Besides not crashing: valid UTF-8 is encoded or refused with a message, and ids come from the
 * vocabulary. A stream never emits half a character and equals the whole decode. A second tokenizer
 * of the same file, whose hash tables have other keys, gives the same ids, each with its place in the text.  The layout
 * of one text is what encoding puts around it. */
#include "base/utf8.h"
#include "fuzz.h"
#include "tok/tok.h"

#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)
#define MAX_OUT ((size_t)1 << 26)

static void decode_both(const struct tok *t, const struct ids *v, bool skip)
{
    struct buf whole, flow;
    struct tok_stream *s;
    buf_init(&whole, MAX_OUT);
    buf_init(&flow, MAX_OUT);
    int e = tok_decode(t, v->id, v->n, skip, &whole);
    MUST(tok_stream_new(t, skip, &s) == 0);
    int f = 0;
    for (size_t i = 0; i < v->n && f == 0; i++) {
        size_t before = flow.len;
        f = tok_stream_put(s, v->id[i], &flow);
        if (f == 0 && flow.len > before) MUST(utf8_valid(flow.data + before, flow.len - before));
    }
    if (f == 0) f = tok_stream_end(s, &flow);
    tok_stream_drop(s);
    MUST((e < 0) == (f < 0));
    if (e == 0) {
        MUST(whole.len == flow.len);
        MUST(whole.len == 0 || memcmp(whole.data, flow.data, whole.len) == 0);
        MUST(whole.len == 0 || utf8_valid(whole.data, whole.len));
    }
    buf_done(&whole);
    buf_done(&flow);
}

static void same_ids(const struct tok *t, const char *text, size_t n, unsigned flags,
                     const struct tok_span *spans, size_t n_spans, int code, const struct ids *want)
{
    struct ids v = {0};
    struct tok_places at = {0};
    int e = tok_encode_placed(t, text, n, flags, spans, n_spans, &v, &at);
    MUST(at.n == v.n);
    for (size_t i = 0; i < at.n; i++)
        MUST(at.v[i] <= n && (!i || at.v[i] >= at.v[i - 1]));
    tok_places_done(&at);
    /* Only limits of time may differ, and a text whose clusters a normalizer joins has no places. */
    if (e != code && (e == ERR_LIMIT || code == ERR_LIMIT || e == ERR_UNSUPPORTED))
        e = code;
    else
        MUST(v.n == want->n && (v.n == 0 || memcmp(v.id, want->id, v.n * sizeof *v.id) == 0));
    MUST(e == code);
    ids_done(&v);
}

/* Ends and words change no id, and an id without characters ends where it begins. */
static void same_words(const struct tok *t, const char *text, size_t n, unsigned flags, int code,
                       const struct ids *want)
{
    struct ids v = {0};
    struct tok_places at = {0}, end = {0}, word = {0};
    int e = tok_encode_words(t, text, n, flags, &v, &at, &end, &word);
    MUST(at.n == v.n && end.n == v.n && word.n == v.n);
    for (size_t i = 0; i < v.n; i++)
        MUST(end.v[i] <= n &&
             (word.v[i] == TOK_NO_WORD ? end.v[i] == at.v[i] : end.v[i] > at.v[i]));
    if (e == code)
        MUST(v.n == want->n && (v.n == 0 || memcmp(v.id, want->id, v.n * sizeof *v.id) == 0));
    else
        MUST(e == ERR_LIMIT || code == ERR_LIMIT || e == ERR_UNSUPPORTED);
    ids_done(&v);
    tok_places_done(&at);
    tok_places_done(&end);
    tok_places_done(&word);
}

static void encode(const struct tok *t, const struct tok *again, const char *text, size_t n)
{
    size_t mid = n / 2;
    const struct tok_span spans[] = {{n / 4, mid}, {mid, n - n / 8}};
    for (unsigned flags = 0; flags < 4; flags++) {
        struct ids v = {0};
        size_t len;
        int e = tok_encode(t, text, n, flags, spans, flags & 1 ? 2 : 0, &v);
        MUST(e <= 0 && (e == 0 || (err_last()[0] && v.n == 0)));
        MUST(e == 0 || utf8_valid(text, n) || e == ERR_FORMAT);
        for (size_t i = 0; i < v.n; i++)
            MUST(tok_piece(t, v.id[i], &len) != NULL);
        same_ids(again, text, n, flags, spans, flags & 1 ? 2 : 0, e, &v);
        if (!(flags & 1)) same_words(again, text, n, flags, e, &v);
        decode_both(t, &v, flags & 2);
        ids_done(&v);
    }
}

/* A layout has each of its texts once, and tokens of the vocabulary; that of one text is what encoding puts around it. */
static void layouts(const struct tok *t, const char *text, size_t len)
{
    for (int pair = 0; pair < 2; pair++) {
        uint32_t n, texts[2] = {0};
        const struct tok_part *part = tok_layout(t, pair, &n);
        size_t bytes;
        for (uint32_t i = 0; i < n; i++)
            if (part[i].id == TOK_FIRST || part[i].id == TOK_SECOND)
                texts[-1 - part[i].id]++;
            else
                MUST(tok_piece(t, part[i].id, &bytes) != NULL);
        MUST((pair && !n) || (texts[0] == 1 && texts[1] == (uint32_t)pair));
    }
    uint32_t n, at = 0;
    const struct tok_part *part = tok_layout(t, false, &n);
    struct ids plain = {0}, whole = {0};
    if (tok_encode(t, text, len, 0, NULL, 0, &plain) == 0 &&
        tok_encode(t, text, len, TOK_SPECIAL, NULL, 0, &whole) == 0) {
        MUST(whole.n == plain.n + n - 1);
        while (part[at].id != TOK_FIRST)
            at++;
        for (size_t i = 0; i < whole.n; i++)
            MUST(whole.id[i] == (i < at             ? part[i].id
                                 : i < at + plain.n ? plain.id[i - at]
                                                    : part[i - plain.n + 1].id));
    }
    ids_done(&plain);
    ids_done(&whole);
}

/* Compiled vocabularies may say anything that ends: what is encoded with them comes from their tables. */
static void run_compiled(const uint8_t *data, size_t n)
{
    static const char text[] = "abab <X> ba BA a b A\xC3\xA9 <s>ab";
    uint8_t *copy = mem_aligned(n);
    struct tok *t = NULL;
    MUST(copy);
    memcpy(copy, data, n);
    if (tok_open_compiled(copy, n, &t) < 0)
        MUST(t == NULL && err_last()[0]);
    else
        encode(t, t, text, sizeof text - 1);
    tok_close(t);
    mem_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 10 && memcmp(data, "kvik vocab", 10) == 0) {
        run_compiled(data, size);
        return 0;
    }
    const char *json = (const char *)data;
    size_t n = strnlen(json, size);
    struct tok *t = NULL, *again = NULL;
    if (tok_open_json(json, n, NULL, 0, &t) < 0) {
        MUST(t == NULL && err_last()[0]);
        return 0;
    }
    MUST(tok_open_json(json, n, NULL, 0, &again) == 0);
    if (n < size) encode(t, again, json + n + 1, size - n - 1);
    layouts(t, json, MIN(n, 64));
    encode(t, again, json, n); /* the tokenizer's own file is a text too */
    struct ids all = {0};
    for (uint32_t id = 0; id < tok_size(t) && id < 512; id++) {
        size_t len;
        if (tok_piece(t, (int32_t)id, &len)) MUST(ids_push(&all, (int32_t)id) == 0);
    }
    MUST(ids_push(&all, INT32_MAX) == 0); /* no token: empty text */
    decode_both(t, &all, false);
    ids_done(&all);
    tok_close(t);
    tok_close(again);
    return 0;
}
