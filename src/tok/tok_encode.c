/* tok_encode.c - encoding.  The text is cut at added tokens that match the raw text.  What lies between is
 * normalized and cut at added tokens that match normalized text.  The rest is pre-tokenized and given to the
 * model.  Begin to read at tok_encode, at the end of the file. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <string.h>

void work_init(struct encode_scratch *w, size_t n)
{
    *w = (struct encode_scratch){.most = WORK_MAX(n)};
    buf_init(&w->text, WORK_MAX(n));
    buf_init(&w->next, WORK_MAX(n));
    buf_init(&w->shadow, WORK_MAX(n));
}

void work_done(struct encode_scratch *w)
{
    buf_done(&w->text);
    buf_done(&w->next);
    buf_done(&w->shadow);
    mem_free(w->parts.v);
    mem_free(w->cut.v);
    mem_free(w->sym);
    mem_free(w->heap);
    mem_free(w->path);
    tok_places_done(&w->from);
    tok_places_done(&w->from_next);
    tok_places_done(&w->begun);
    pattern_scratch_done(&w->matcher);
}

struct encoder {
    const struct tok *t;
    struct encode_scratch w;
    struct ids *out;
    const char *text;
    bool plain_all; /* TOK_PLAIN */
    uint64_t left;  /* bytes that searches for added tokens may still compare (TOK_SCAN_MOST) */
    const struct tok_span *plain;
    size_t n_plain;
};

/* Cuts w->text into pre-tokens and gives each to the model. */
static int encode_model(struct encoder *e)
{
    struct encode_scratch *w = &e->w;
    const struct tok *t = e->t;
    TRY(pretokenize_run(t->pre, t->n_pre, w));
    for (size_t i = 0; i < w->parts.n; i++) {
        const char *s = w->text.data + w->parts.v[i].from;
        size_t n = w->parts.v[i].to - w->parts.v[i].from;
        TRY(t->uni.on ? unigram_encode(&t->uni, &t->vocab, w, s, n, e->out)
                      : bpe_encode(&t->bpe, &t->vocab, w, s, n, e->out));
        if (w->ends) TRY(work_ends(w, w->parts.v[i].to));
    }
    return 0;
}

/* Encodes a text.  from: the places of a text in which s begins at byte `at`. */
static int encode_text(struct encoder *e, const char *s, size_t n, const struct tok_places *from,
                       size_t at, bool at_start)
{
    struct encode_scratch *w = &e->w;
    if (n == 0) return 0;
    TRY(work_load(w, s, n, from->v ? from->v + at : NULL, at));
    w->at_start = at_start;
    return encode_model(e);
}

/* Finds the plain spans that overlap the section: plain[*first .. *last). */
static void find_plain(const struct encoder *e, size_t from, size_t to, size_t *first, size_t *last)
{
    size_t lo = 0, hi = e->n_plain;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (e->plain[mid].to <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    *first = lo;
    while (lo < e->n_plain && e->plain[lo].from < to)
        lo++;
    *last = lo;
}

/* Appends an id that does not come from the model.  It stands for bytes [at, end) of the user's text. */
static int put_id(struct encoder *e, int32_t id, size_t at, size_t end, bool word)
{
    TRY(ids_push(e->out, id));
    TRY(work_place(&e->w, (uint32_t)at));
    return work_end(&e->w, (uint32_t)end, word ? e->w.word++ : TOK_NO_WORD);
}

/* Appends an added token that was found in normalized text.  own: the places of that text's bytes. */
static int put_hit(struct encoder *e, const struct added_hit *hit, const struct tok_places *own)
{
    size_t end = 0;
    if (!e->w.placed) return put_id(e, hit->id, 0, 0, true);
    if (e->w.ends) end = work_end_of(&e->w, own->v[hit->to - 1]);
    return put_id(e, hit->id, own->v[hit->from], end, true);
}

/* Encodes the text between two raw matches: normalizes it, then cuts it at the tokens that match normalized text.
 * If it holds a plain span and normalizing moved bytes, no special token is recognised in it.  Missing a token is
 * safer than making one out of content. */
static int encode_section(struct encoder *e, size_t from, size_t to)
{
    struct encode_scratch *w = &e->w;
    const struct tok *t = e->t;
    if (from >= to) return 0;
    TRY(work_load(w, e->text + from, to - from, NULL, from));
    w->section = (uint32_t)from;
    w->at_start = from == 0;
    TRY(normalize_run(t->norm, t->n_norm, w));
    bool at_start = w->at_start;
    if (w->text.len == 0) return 0;
    if (t->normal.n_node == 0) return encode_model(e);
    size_t n = w->text.len, done = 0;
    char *s = mem_strndup(w->text.data, n);
    if (!s) return ERR_NOMEM;
    /* places of the bytes of s; work.from is overwritten for each section */
    struct tok_places own = w->from;
    w->from = (struct tok_places){0};
    struct added_scan c = {
        .t = t, .trie = &t->normal, .s = s, .n = n, .no_special = e->plain_all, .left = &e->left};
    struct tok_span *moved = NULL;
    int err = ERR_NOMEM;
    size_t first, last;
    find_plain(e, from, to, &first, &last);
    if (first < last) {
        bool same = n == to - from && memcmp(s, e->text + from, n) == 0;
        moved = mem_array(last - first, sizeof *moved);
        if (!moved) goto out;
        for (size_t i = first; i < last; i++) { /* clips the spans to the section and shifts them */
            struct tok_span p = e->plain[i];
            moved[c.n_plain++] = (struct tok_span){p.from > from ? p.from - from : 0, p.to - from};
        }
        if (!same) {
            moved[0] = (struct tok_span){0, n};
            c.n_plain = 1;
        }
        c.plain = moved;
    }
    struct added_hit hit;
    while ((err = added_next(&c, &hit)) > 0) {
        if (hit.from > done)
            err = encode_text(e, s + done, hit.from - done, &own, done, at_start && done == 0);
        if (err >= 0) err = put_hit(e, &hit, &own);
        if (err < 0) break;
        done = hit.to;
    }
    if (err >= 0) err = encode_text(e, s + done, n - done, &own, done, at_start && done == 0);
out:
    tok_places_done(&own);
    mem_free(moved);
    mem_free(s);
    return err;
}

static int encode_all(struct encoder *e, size_t n, unsigned flags)
{
    const struct tok *t = e->t;
    struct added_scan c = {.t = t,
                           .trie = &t->raw,
                           .s = e->text,
                           .n = n,
                           .plain = e->plain,
                           .n_plain = e->n_plain,
                           .no_special = e->plain_all,
                           .left = &e->left};
    struct added_hit hit;
    size_t done = 0;
    int found;
    const struct tok_part *part = t->one.part, *last = part + t->one.n;
    for (; part->id != TOK_FIRST; part++)
        if (flags & TOK_SPECIAL) TRY(put_id(e, part->id, 0, 0, false));
    for (; (found = added_next(&c, &hit)) > 0; done = hit.to) {
        TRY(encode_section(e, done, hit.from));
        TRY(put_id(e, hit.id, hit.from, hit.to, true));
    }
    TRY(found);
    TRY(encode_section(e, done, n));
    while (++part < last)
        if (flags & TOK_SPECIAL) TRY(put_id(e, part->id, n, n, false));
    return 0;
}

static int check_text(const char *text, size_t n, const struct tok_span *plain, size_t n_plain)
{
    if (n > TOK_MAX_TEXT)
        return ERR(LIMIT, "text of %zu bytes; at most %zu can be tokenized at once", n,
                   TOK_MAX_TEXT);
    for (size_t i = 0, len; i < n; i += len)
        if (utf8_decode(text + i, n - i, &len) == UTF8_BAD)
            return ERR(FORMAT, "text is not UTF-8 at byte %zu (0x%02x)", i, (uint8_t)text[i]);
    for (size_t i = 0; i < n_plain; i++)
        if (plain[i].from > plain[i].to || plain[i].to > n ||
            (i && plain[i].from < plain[i - 1].to))
            return ERR(ARG, "plain span %zu: spans must be ascending, disjoint and inside the text",
                       i);
    return 0;
}

int tok_encode(const struct tok *t, const char *text, size_t n, unsigned flags,
               const struct tok_span *plain, size_t n_plain, struct ids *out)
{
    return tok_encode_placed(t, text, n, flags, plain, n_plain, out, NULL);
}

/* Encodes a text.  `end` and `word` are both NULL, or both given together with `at`. */
static int run_encoder(const struct tok *t, const char *text, size_t n, unsigned flags,
                       const struct tok_span *plain, size_t n_plain, struct ids *out,
                       struct tok_places *at, struct tok_places *end, struct tok_places *word)
{
    TRY(check_text(text, n, plain, n_plain));
    size_t before = out->n, placed = at ? at->n : 0, ended = end ? end->n : 0;
    struct encoder e = {.t = t,
                        .out = out,
                        .text = text,
                        .plain_all = (flags & TOK_PLAIN) != 0,
                        .left = TOK_SCAN_MOST(n),
                        .plain = plain,
                        .n_plain = n_plain};
    work_init(&e.w, n);
    e.w.placed = at;
    e.w.ends = end;
    e.w.words = word;
    e.w.user = text;
    e.w.n_user = n;
    int err = encode_all(&e, n, flags);
    work_done(&e.w);
    if (err < 0) out->n = before;
    if (err < 0 && at) at->n = placed;
    if (err < 0 && end) end->n = word->n = ended;
    return err;
}

int tok_encode_placed(const struct tok *t, const char *text, size_t n, unsigned flags,
                      const struct tok_span *plain, size_t n_plain, struct ids *out,
                      struct tok_places *at)
{
    return run_encoder(t, text, n, flags, plain, n_plain, out, at, NULL, NULL);
}

int tok_encode_words(const struct tok *t, const char *text, size_t n, unsigned flags,
                     struct ids *out, struct tok_places *at, struct tok_places *end,
                     struct tok_places *word)
{
    return run_encoder(t, text, n, flags, NULL, 0, out, at, end, word);
}
