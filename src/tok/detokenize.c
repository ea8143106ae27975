/* detokenize.c - ids back to text.  Every decoder is a stage.  A stage receives tokens in fragments of whole
 * characters, passes them to the next stage, and holds back only bytes that later tokens may still change.  So one
 * code decodes a list and a stream, and both give the same text.  The bytes that a stage holds back are bounded:
 * one token, a partial match, or a run of byte tokens up to MAX_RUN.  (The reference decides about such a run as a
 * whole; here a longer run is passed on at MAX_RUN.) */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <string.h>

#define MAX_RUN   65536u
#define MAX_TOKEN ((size_t)16 << 20)
/* Bytes that the stages of a stream may pass on: CREDIT for the stream, and more for each token and each byte of a
 * token.  Real decoders pass each byte on once per stage.  Without this limit a chain of replacements could
 * multiply a token to gigabytes. */
#define CREDIT       ((int64_t)1 << 20)
#define CREDIT_TOKEN 1024
#define CREDIT_BYTE  256
/* Most bytes that a stream reserves for a buffer; longer tokens and runs are rare. */
#define MAX_RESERVE ((size_t)4096)
#define BAD_CHAR    "\xEF\xBF\xBD"

struct stage {
    const struct dec *d;
    struct buf hold, run; /* owned */
    uint64_t index;       /* tokens finished so far */
    uint32_t lead, tail;  /* DEC_STRIP: marks dropped in front, marks held back */
    bool inside;          /* between the first fragment of a token and its end */
    bool broken;          /* DEC_FALLBACK: the run is not UTF-8 */
};
struct tok_stream {
    const struct tok *t;
    bool skip_special;
    const int32_t *shown; /* [n_shown] borrowed: special tokens that are not skipped */
    size_t n_shown;
    uint32_t n;
    int64_t credit;                 /* how many more bytes the stages may pass on */
    struct pattern_scratch matcher; /* of all stages */
    struct buf *out;                /* borrowed during a call */
    struct stage stage[];
};

static int feed_stage(struct tok_stream *s, uint32_t i, const char *p, size_t n, bool end);

/* Passes bytes on, with U+FFFD in place of bytes that are not UTF-8.  An incomplete character stays in `run`. */
static int feed_lossy(struct tok_stream *s, uint32_t i, const char *p, size_t n)
{
    struct stage *g = &s->stage[i];
    TRY(buf_append(&g->run, p, n));
    const char *b = g->run.data;
    size_t len = g->run.len, from = 0, at = 0, k;
    while (at < len) {
        if (utf8_decode(b + at, len - at, &k) != UTF8_BAD) {
            at += k;
            continue;
        }
        if (len - at <= 3 && utf8_pending(b + at, len - at) == len - at) break;
        if (at > from) TRY(feed_stage(s, i + 1, b + from, at - from, false));
        TRY(feed_stage(s, i + 1, BAD_CHAR, 3, false));
        size_t bad = 1; /* the longest beginning of a character is replaced by one U+FFFD */
        for (k = 2; k <= 3 && k <= len - at; k++)
            if (utf8_pending(b + at, k) == k) bad = k;
        at += bad;
        from = at;
    }
    if (at > from) TRY(feed_stage(s, i + 1, b + from, at - from, false));
    memmove(g->run.data, b + at, len - at);
    g->run.len = len - at;
    return 0;
}

static int put_bytes(struct tok_stream *s, uint32_t i, const char *p, size_t n, bool end)
{
    struct stage *g = &s->stage[i];
    TRY(buf_append(&g->hold, p, n));
    if (!end) return 0;
    const char *t = g->hold.data ? g->hold.data : "";
    size_t len = g->hold.len, n_out = 0, k;
    char *out = g->hold.data; /* a character never maps to more than one byte: in place */
    bool mapped = true;       /* a token with any other character stands for its own bytes */
    for (size_t at = 0; at < len && mapped; at += k)
        mapped = char_to_byte(utf8_decode(t + at, len - at, &k)) >= 0;
    for (size_t at = 0; at < len && mapped; at += k)
        out[n_out++] = (char)char_to_byte(utf8_decode(t + at, len - at, &k));
    TRY(feed_lossy(s, i, t, mapped ? n_out : len));
    buf_clear(&g->hold);
    return 0;
}

static int flush_run(struct tok_stream *s, uint32_t i)
{
    struct stage *g = &s->stage[i];
    bool good = !g->broken && utf8_valid(g->run.data ? g->run.data : "", g->run.len);
    if (good && g->run.len > 0) TRY(feed_stage(s, i + 1, g->run.data, g->run.len, true));
    for (size_t k = 0; !good && k < g->run.len; k++)
        TRY(feed_stage(s, i + 1, BAD_CHAR, 3, true));
    buf_clear(&g->run);
    return 0;
}

static int put_byte(struct tok_stream *s, uint32_t i, uint8_t byte)
{
    struct stage *g = &s->stage[i];
    TRY(buf_append(&g->run, &byte, 1));
    size_t n = g->run.len, k, at = 0;
    if (!g->broken) { /* only the last characters are new */
        at = n > 4 ? n - 4 : 0;
        while (at > 0 && ((uint8_t)g->run.data[at] & 0xC0) == 0x80)
            at--;
        while (at < n && utf8_decode(g->run.data + at, n - at, &k) != UTF8_BAD)
            at += k;
        g->broken = at < n && utf8_pending(g->run.data + at, n - at) != n - at;
    }
    if (g->broken) return flush_run(s, i);
    if (n < MAX_RUN) return 0;
    if (at > 0) TRY(feed_stage(s, i + 1, g->run.data, at, true));
    memmove(g->run.data, g->run.data + at, n - at);
    g->run.len = n - at;
    return 0;
}

static int put_fallback(struct tok_stream *s, uint32_t i, const char *p, size_t n, bool end)
{
    struct stage *g = &s->stage[i];
    /* the fragments before this one were passed on already */
    if (g->inside) return feed_stage(s, i + 1, p, n, end);
    TRY(buf_append(&g->hold, p, n));
    const char *t = g->hold.data;
    size_t len = g->hold.len;
    if (!end && len <= 6) return 0;
    if (end && len == 6 && memcmp(t, "<0x", 3) == 0 && t[5] == '>' && hex_digit(t[3]) >= 0 &&
        hex_digit(t[4]) >= 0) {
        TRY(put_byte(s, i, (uint8_t)(hex_digit(t[3]) << 4 | hex_digit(t[4]))));
        buf_clear(&g->hold);
        return 0;
    }
    TRY(flush_run(s, i));
    g->broken = false;
    TRY(feed_stage(s, i + 1, t ? t : "", len, end));
    buf_clear(&g->hold);
    return 0;
}

static bool is_mark(const struct dec *d, const char *p, size_t n)
{
    return n >= d->n_mark && memcmp(p, d->mark, d->n_mark) == 0;
}

static int put_meta(struct tok_stream *s, uint32_t i, const char *p, size_t n, bool end)
{
    const struct stage *g = &s->stage[i];
    size_t from = 0;
    for (size_t at = 0; at < n;) {
        if (!is_mark(g->d, p + at, n - at)) {
            at++;
            continue;
        }
        if (at > from) TRY(feed_stage(s, i + 1, p + from, at - from, false));
        if (g->index > 0 || !g->d->prefix) TRY(feed_stage(s, i + 1, " ", 1, false));
        at += g->d->n_mark;
        from = at;
    }
    return feed_stage(s, i + 1, p + from, n - from, end);
}

static int put_strip(struct tok_stream *s, uint32_t i, const char *p, size_t n, bool end)
{
    struct stage *g = &s->stage[i];
    const struct dec *d = g->d;
    if (!g->inside) g->lead = g->tail = 0;
    for (size_t at = 0, len; at < n; at += len) {
        bool mark = is_mark(d, p + at, n - at);
        utf8_decode(p + at, n - at, &len);
        if (mark && g->lead < d->start) {
            g->lead++;
            continue;
        }
        g->lead = UINT32_MAX; /* later marks are not in front any more */
        if (mark && g->tail < d->stop) {
            g->tail++;
            continue;
        }
        /* The limit is reached, so one held mark must be passed on.  All marks are the same byte, so it may be
         * this one. */
        for (; !mark && g->tail > 0; g->tail--)
            TRY(feed_stage(s, i + 1, d->mark, d->n_mark, false));
        TRY(feed_stage(s, i + 1, p + at, len, false));
    }
    return end ? feed_stage(s, i + 1, "", 0, true) : 0;
}

/* Returns how many bytes at the end of s could become the literal when more text comes. */
static size_t partial(const char *s, size_t n, const char *lit, size_t n_lit)
{
    for (size_t k = MIN(n, n_lit - 1); k > 0; k--)
        if (memcmp(s + n - k, lit, k) == 0) return k;
    return 0;
}

static int put_literal(struct tok_stream *s, uint32_t i, const char *lit, size_t n_lit, bool end)
{
    struct stage *g = &s->stage[i];
    const char *t = g->hold.data ? g->hold.data : "";
    size_t n = g->hold.len, at = 0;
    const char *hit;
    while (n_lit <= n - at && (hit = find_bytes(t + at, n - at, lit, n_lit))) {
        TRY(feed_stage(s, i + 1, t + at, (size_t)(hit - t) - at, false));
        TRY(feed_stage(s, i + 1, g->d->text, g->d->n_text, false));
        at = (size_t)(hit - t) + n_lit;
    }
    size_t keep = end ? 0 : partial(t + at, n - at, lit, n_lit);
    TRY(feed_stage(s, i + 1, t + at, n - at - keep, end));
    if (g->hold.data) memmove(g->hold.data, t + n - keep, keep);
    g->hold.len = keep;
    return 0;
}

static int put_regex(struct tok_stream *s, uint32_t i)
{
    struct stage *g = &s->stage[i];
    struct hit hit;
    bool changed;
    size_t done = 0;
    int e = uni_shadow(g->hold.data ? g->hold.data : "", g->hold.len, &g->run, &changed);
    const char *t = g->hold.data ? g->hold.data : "";
    struct hits h = {
        .p = g->d->pattern, .s = t, .shadow = changed ? g->run.data : t, .n = g->hold.len};
    while (e >= 0 && (e = hits_next(&h, &s->matcher, &hit)) > 0) {
        e = feed_stage(s, i + 1, t + done, hit.from - done, false);
        if (e >= 0) e = feed_stage(s, i + 1, g->d->text, g->d->n_text, false);
        done = hit.to;
    }
    if (e >= 0) e = feed_stage(s, i + 1, t + done, g->hold.len - done, true);
    buf_clear(&g->hold);
    buf_clear(&g->run);
    return e;
}

static int put_replace(struct tok_stream *s, uint32_t i, const char *p, size_t n, bool end)
{
    struct stage *g = &s->stage[i];
    size_t n_lit;
    const char *lit = pattern_literal(g->d->pattern, &n_lit);
    TRY(buf_append(&g->hold, p, n));
    if (lit) return put_literal(s, i, lit, n_lit, end);
    return end ? put_regex(s, i) : 0;
}

/* Passes the held token on with `as` in place of each suffix.  As in the reference's BPEDecoder, `as` is a space, and
 * nothing in the very last token. */
static int flush_suffix(struct tok_stream *s, uint32_t i, const char *as)
{
    struct stage *g = &s->stage[i];
    const char *t = g->hold.data ? g->hold.data : "", *hit;
    size_t n = g->hold.len, at = 0;
    while ((hit = find_bytes(t + at, n - at, g->d->text, g->d->n_text))) {
        TRY(feed_stage(s, i + 1, t + at, (size_t)(hit - t) - at, false));
        TRY(feed_stage(s, i + 1, as, strlen(as), false));
        at = (size_t)(hit - t) + g->d->n_text;
    }
    TRY(feed_stage(s, i + 1, t + at, n - at, true));
    buf_clear(&g->hold);
    return 0;
}

static int put_suffix(struct tok_stream *s, uint32_t i, const char *p, size_t n)
{
    struct stage *g = &s->stage[i];
    if (!g->inside && g->index > 0) TRY(flush_suffix(s, i, " "));
    return buf_append(&g->hold, p, n);
}

static int put_one(struct tok_stream *s, uint32_t i, const char *p, size_t n, bool end)
{
    struct stage *g = &s->stage[i];
    switch (g->d->kind) {
    case DEC_BYTES:
        return put_bytes(s, i, p, n, end);
    case DEC_FALLBACK:
        return put_fallback(s, i, p, n, end);
    case DEC_META:
        return put_meta(s, i, p, n, end);
    case DEC_FUSE:
        return feed_stage(s, i + 1, p, n, false);
    case DEC_STRIP:
        return put_strip(s, i, p, n, end);
    case DEC_REPLACE:
        return put_replace(s, i, p, n, end);
    case DEC_JOIN:
        if (!g->inside && g->index > 0) TRY(feed_stage(s, i + 1, " ", 1, false));
        return feed_stage(s, i + 1, p, n, end);
    case DEC_SUFFIX:
        return put_suffix(s, i, p, n);
    }
    return 0;
}

/* Takes a fragment of whole characters of the current token; `end`: the last fragment. */
static int feed_stage(struct tok_stream *s, uint32_t i, const char *p, size_t n, bool end)
{
    if (n >= (uint64_t)MAX(s->credit, 0))
        return ERR(LIMIT, "tokenizer: the decoder makes too much text of its tokens; the tokenizer "
                          "file is broken or hostile");
    s->credit -= (int64_t)n + 1;
    if (i == s->n) return n ? buf_append(s->out, p, n) : 0;
    if (n == 0 && !end) return 0;
    struct stage *g = &s->stage[i];
    TRY(put_one(s, i, p, n, end));
    /* the held bytes may still become a byte token */
    bool held = g->d->kind == DEC_FALLBACK && g->hold.len > 0;
    g->inside = !end && !held;
    if (end) g->index++;
    return 0;
}

static int finish_token(struct tok_stream *s, uint32_t i)
{
    struct stage *g = &s->stage[i];
    switch (g->d->kind) {
    case DEC_BYTES:
        if (g->run.len > 0) TRY(feed_stage(s, i + 1, BAD_CHAR, 3, false));
        return feed_stage(s, i + 1, "", 0, true);
    case DEC_FALLBACK:
        return flush_run(s, i);
    case DEC_FUSE:
        return feed_stage(s, i + 1, "", 0, true);
    case DEC_SUFFIX:
        return g->index > 0 ? flush_suffix(s, i, "") : 0;
    default:
        return 0;
    }
}

static void rewind_stages(struct tok_stream *s)
{
    s->credit = CREDIT;
    s->matcher.spent = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        struct stage *g = &s->stage[i];
        buf_clear(&g->hold);
        buf_clear(&g->run);
        g->index = g->lead = g->tail = 0;
        g->inside = g->broken = false;
    }
}

int tok_stream_new(const struct tok *t, bool skip_special, struct tok_stream **out)
{
    struct tok_stream *s = mem_alloc(sizeof *s + t->n_dec * sizeof s->stage[0]);
    if (!s) return ERR_NOMEM;
    s->t = t;
    s->skip_special = skip_special;
    s->n = t->n_dec;
    s->credit = CREDIT;
    for (uint32_t i = 0; i < s->n; i++) {
        s->stage[i].d = &t->dec[i];
        buf_init(&s->stage[i].hold, MAX_TOKEN);
        buf_init(&s->stage[i].run, MAX_TOKEN);
    }
    *out = s;
    return 0;
}

int tok_stream_reserve(struct tok_stream *s)
{
    size_t longest = 0, n;
    bool special;
    for (uint32_t id = 0; id < tok_size(s->t); id++)
        if (tok_shown(s->t, (int32_t)id, &n, &special)) longest = MAX(longest, n);
    for (uint32_t i = 0; i < s->n; i++) {
        struct stage *g = &s->stage[i];
        TRY(buf_reserve(&g->hold, MIN(longest, MAX_RESERVE)));
        TRY(buf_reserve(&g->run,
                        g->d->kind == DEC_FALLBACK ? MAX_RESERVE : MIN(longest, MAX_RESERVE)));
    }
    return 0;
}

void tok_stream_drop(struct tok_stream *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->n; i++) {
        buf_done(&s->stage[i].hold);
        buf_done(&s->stage[i].run);
    }
    pattern_scratch_done(&s->matcher);
    mem_free(s);
}

int tok_stream_copy(struct tok_stream *to, const struct tok_stream *from)
{
    to->credit = from->credit;
    to->matcher.spent = from->matcher.spent;
    for (uint32_t i = 0; i < from->n; i++) {
        struct stage *a = &to->stage[i];
        const struct stage *b = &from->stage[i];
        buf_clear(&a->hold);
        buf_clear(&a->run);
        TRY(buf_append(&a->hold, b->hold.data, b->hold.len));
        TRY(buf_append(&a->run, b->run.data, b->run.len));
        a->index = b->index;
        a->lead = b->lead;
        a->tail = b->tail;
        a->inside = b->inside;
        a->broken = b->broken;
    }
    return 0;
}

void tok_stream_show(struct tok_stream *s, const int32_t *id, size_t n)
{
    s->shown = id;
    s->n_shown = n;
}

static bool skips(const struct tok_stream *s, int32_t id)
{
    for (size_t i = 0; i < s->n_shown; i++)
        if (s->shown[i] == id) return false;
    return s->skip_special;
}

static int put_id(struct tok_stream *s, int32_t id)
{
    size_t n;
    bool special;
    if (id < 0) return ERR(ARG, "%d is not a token id", id);
    const char *p = tok_shown(s->t, id, &n, &special);
    if (!p || (special && skips(s, id))) return 0;
    s->credit += CREDIT_TOKEN + CREDIT_BYTE * (int64_t)n;
    return feed_stage(s, 0, p, n, true);
}

static int guarded(struct tok_stream *s, int e, struct buf *out, size_t before)
{
    s->out = NULL;
    pattern_scratch_pause(&s->matcher);
    if (e >= 0) return 0;
    if (out->data) out->data[out->len = before] = 0;
    return e;
}

int tok_stream_put(struct tok_stream *s, int32_t id, struct buf *piece)
{
    size_t before = piece->len;
    s->out = piece;
    return guarded(s, put_id(s, id), piece, before);
}

int tok_stream_end(struct tok_stream *s, struct buf *piece)
{
    size_t before = piece->len;
    int e = 0;
    s->out = piece;
    for (uint32_t i = 0; i < s->n && e >= 0; i++)
        e = finish_token(s, i);
    e = guarded(s, e, piece, before);
    rewind_stages(s);
    return e;
}

int tok_decode(const struct tok *t, const int32_t *id, size_t n, bool skip_special, struct buf *out)
{
    struct tok_stream *s;
    size_t before = out->len;
    int e = 0;
    TRY(tok_stream_new(t, skip_special, &s));
    for (size_t i = 0; i < n && e >= 0; i++)
        e = tok_stream_put(s, id[i], out);
    if (e >= 0) e = tok_stream_end(s, out);
    tok_stream_drop(s);
    if (e < 0 && out->data) out->data[out->len = before] = 0;
    return e;
}
