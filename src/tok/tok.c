/* tok.c - the object, and encoding.  The text is cut at added tokens (first the ones matched in the
 * raw text, then, after normalizing what lies between, the ones matched in normalized text); the
 * rest is pre-tokenized and given to the model.  This file starts at tok_encode, at its end. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that one step may make out of a text, over all parts of the text: NFKC makes 11 bytes out of one. */
#define WORK_MAX(n) ((size_t)(n)*32 + 65536)

void ids_done(struct ids *v)
{
    mem_free(v->id);
    *v = (struct ids){0};
}

int ids_push(struct ids *v, int32_t id)
{
    if (v->n == v->cap) {
        size_t cap = MAX(v->cap * 2, (size_t)64);
        int32_t *p = mem_grow(v->id, cap, sizeof *p);
        if (!p) return ERR_NOMEM;
        v->id = p;
        v->cap = cap;
    }
    v->id[v->n++] = id;
    return 0;
}

struct tok *tok_new(void)
{
    struct tok *t = mem_alloc(sizeof *t);
    if (!t) return NULL;
    t->bpe.unk = t->uni.unk = -1;
    t->uni.least = INFINITY;
    return t;
}

void tok_close(struct tok *t)
{
    if (!t) return;
    compiled_drop(t);
    for (uint32_t i = 0; i < t->n_norm; i++) {
        pattern_drop(t->norm[i].pattern);
        charsmap_drop(t->norm[i].map);
        mem_free(t->norm[i].text);
    }
    for (uint32_t i = 0; i < t->n_pre; i++)
        pattern_drop(t->pre[i].pattern);
    for (uint32_t i = 0; i < t->n_dec; i++) {
        pattern_drop(t->dec[i].pattern);
        mem_free(t->dec[i].text);
    }
    for (uint32_t i = 0; i < t->n_named; i++) {
        mem_free(t->named[i].name);
        mem_free(t->named[i].text);
    }
    for (uint32_t i = 0; i < t->n_added; i++)
        mem_free(t->added[i].shown);
    mem_free(t->norm);
    mem_free(t->pre);
    mem_free(t->dec);
    mem_free(t->named);
    mem_free(t->added);
    layout_done(&t->one);
    layout_done(&t->two);
    mem_free(t->chat_template);
    trie_done(&t->raw);
    trie_done(&t->normal);
    bpe_done(&t->bpe);
    unigram_done(&t->uni);
    vocab_done(&t->vocab);
    mem_free(t);
}

/* --- building: used by the loaders only */

/* One more zeroed element of a small owned array. */
static void *grow_one(void **v, uint32_t *n, size_t size, uint32_t max, const char *what)
{
    if (*n >= max) {
        ERR(LIMIT, "tokenizer: more than %u %s", max, what);
        return NULL;
    }
    if (*n == 0 || (*n & (*n - 1)) == 0) {
        void *p = mem_grow(*v, *n ? (size_t)*n * 2 : 1, size);
        if (!p) return NULL;
        *v = p;
    }
    void *one = (char *)*v + (size_t)*n * size;
    memset(one, 0, size);
    ++*n;
    return one;
}

static int full(uint32_t n, uint32_t max)
{
    return n >= max ? ERR_LIMIT : ERR_NOMEM;
}

int tok_add_norm(struct tok *t, struct norm **out)
{
    *out = grow_one((void **)&t->norm, &t->n_norm, sizeof **out, TOK_MAX_STEPS, "normalizers");
    return *out ? 0 : full(t->n_norm, TOK_MAX_STEPS);
}

int tok_add_pre(struct tok *t, struct pre **out)
{
    *out = grow_one((void **)&t->pre, &t->n_pre, sizeof **out, TOK_MAX_STEPS, "pre-tokenizers");
    return *out ? 0 : full(t->n_pre, TOK_MAX_STEPS);
}

int tok_add_dec(struct tok *t, struct dec **out)
{
    *out = grow_one((void **)&t->dec, &t->n_dec, sizeof **out, TOK_MAX_STEPS, "decoders");
    return *out ? 0 : full(t->n_dec, TOK_MAX_STEPS);
}

int tok_add_replace(struct tok *t, const char *from, const char *to)
{
    struct dec *d;
    TRY(tok_add_dec(t, &d));
    d->kind = DEC_REPLACE;
    d->n_text = strlen(to);
    if (!(d->text = mem_strdup(to))) return ERR_NOMEM;
    return pattern_new(from, strlen(from), false, &d->pattern);
}

/* The reference's clean_up_tokenization, replacement by replacement. */
int tok_clean_up(struct tok *t)
{
    static const char *const steps[][2] = {
        {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
        {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    struct dec *d;
    TRY(tok_add_dec(t, &d));
    d->kind = DEC_FUSE;
    for (size_t i = 0; i < countof(steps); i++)
        TRY(tok_add_replace(t, steps[i][0], steps[i][1]));
    return 0;
}

int tok_add_named(struct tok *t, const char *name, const char *text, size_t n)
{
    for (uint32_t i = 0; i < t->n_named; i++)
        if (strcmp(t->named[i].name, name) == 0) return 0; /* the first source wins */
    struct named *m = grow_one((void **)&t->named, &t->n_named, sizeof *m, 1024, "named tokens");
    if (!m) return full(t->n_named, 1024);
    m->id = -1;
    m->name = mem_strdup(name);
    m->text = mem_strndup(text, n);
    return m->name && m->text ? 0 : ERR_NOMEM;
}

/* As in the reference, a text of the vocabulary keeps its id, and a new text gets the next id after all others. */
int tok_add_token(struct tok *t, const char *s, size_t n, struct added a)
{
    if (n == 0) return 0;
    if (n > TOK_MAX_ADDED)
        return ERR(LIMIT, "tokenizer: an added token of %zu bytes; at most %u", n, TOK_MAX_ADDED);
    int32_t id = vocab_find(&t->vocab, s, n);
    if (id < 0) {
        uint32_t next = MAX(t->vocab.n_model, t->next_added);
        while (next < t->vocab.size && t->vocab.piece[next].flags)
            next++; /* the model's ids have holes */
        TRY(vocab_put(&t->vocab, s, n, next, VOC_ADDED));
        id = (int32_t)next;
    }
    a.id = id;
    t->next_added = MAX(t->next_added, (uint32_t)id + 1);
    t->vocab.piece[id].flags |= VOC_ADDED | (a.special ? VOC_SPECIAL : 0);
    struct added *p =
        grow_one((void **)&t->added, &t->n_added, sizeof *p, TOK_MAX_ID, "added tokens");
    if (!p) return full(t->n_added, TOK_MAX_ID);
    a.turn = t->n_added;
    *p = a;
    return 0;
}

int tok_add_merge(struct tok *t, const char *l, size_t n_l, const char *r, size_t n_r,
                  uint32_t rank)
{
    const struct bpe *b = &t->bpe;
    int32_t left = vocab_find_model(&t->vocab, l, n_l), right = vocab_find_model(&t->vocab, r, n_r);
    if (left < 0 || right < 0)
        return ERR(FORMAT, "tokenizer: merge %u: \"%.*s\" is not in the vocabulary", rank,
                   (int)MIN(left < 0 ? n_l : n_r, 60), left < 0 ? l : r);
    if (b->n_prefix && n_r < b->n_prefix)
        return ERR(FORMAT, "tokenizer: merge %u: \"%.*s\" lacks the prefix", rank, (int)n_r, r);
    size_t n = n_l + n_r - b->n_prefix;
    char small[256], *joined = n <= sizeof small ? small : mem_alloc(n);
    if (!joined) return ERR_NOMEM;
    memcpy(joined, l, n_l);
    memcpy(joined + n_l, r + b->n_prefix, n_r - b->n_prefix);
    int32_t id = vocab_find_model(&t->vocab, joined, n);
    if (joined != small) mem_free(joined);
    if (id < 0)
        return ERR(FORMAT, "tokenizer: merge %u: \"%.*s\" + \"%.*s\" is not in the vocabulary",
                   rank, (int)MIN(n_l, 60), l, (int)MIN(n_r, 60), r);
    bpe_merge_put(&t->bpe, (uint32_t)left, (uint32_t)right, rank, (uint32_t)id);
    return 0;
}

void tok_resolve_named(struct tok *t)
{
    for (uint32_t i = 0; i < t->n_named; i++)
        t->named[i].id = vocab_find(&t->vocab, t->named[i].text, strlen(t->named[i].text));
}

static void work_init(struct work *w, size_t n)
{
    *w = (struct work){.most = WORK_MAX(n)};
    buf_init(&w->text, WORK_MAX(n));
    buf_init(&w->next, WORK_MAX(n));
    buf_init(&w->shadow, WORK_MAX(n));
}

static void work_done(struct work *w)
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
    matcher_done(&w->matcher);
}

static int by_id(const void *a, const void *b)
{
    int32_t x = ((const struct added *)a)->id, y = ((const struct added *)b)->id;
    return x < y ? -1 : x > y;
}

static int by_id_and_turn(const void *a, const void *b)
{
    uint32_t x = ((const struct added *)a)->turn, y = ((const struct added *)b)->turn;
    int order = by_id(a, b);
    return order ? order : x < y ? -1 : x > y;
}

/* Sorts the added tokens by id.  Of several entries for one id, the last one in the file stays. */
static void sort_added(struct tok *t)
{
    uint32_t n = 0;
    if (t->n_added) qsort(t->added, t->n_added, sizeof *t->added, by_id_and_turn);
    for (uint32_t i = 0; i < t->n_added; i++) {
        n -= n && t->added[n - 1].id == t->added[i].id;
        t->added[n++] = t->added[i];
    }
    t->n_added = n;
}

/* A normalized added token is matched in, and decoded as, its normalized form. */
static int index_normal(struct tok *t, uint32_t i, const char *s, size_t n, struct work *w)
{
    struct added *a = &t->added[i];
    buf_clear(&w->text);
    TRY(buf_append(&w->text, s, n));
    TRY(normalize_run(t->norm, t->n_norm, w));
    if (w->text.len > 16 * TOK_MAX_ADDED)
        return ERR(LIMIT, "tokenizer: the normalizer makes an added token %zu bytes long",
                   w->text.len);
    if (w->text.len != n || memcmp(w->text.data, s, n) != 0) {
        a->shown = mem_strndup(w->text.data, w->text.len);
        if (!a->shown) return ERR_NOMEM;
        a->n_shown = w->text.len;
        t->vocab.piece[a->id].flags |= VOC_SHOWN;
    }
    return trie_put(&t->normal, w->text.data, w->text.len, i);
}

static int index_added(struct tok *t, struct work *w)
{
    sort_added(t);
    for (uint32_t i = 0; i < t->n_added; i++) {
        const struct added *a = &t->added[i];
        const char *s = vocab_text(&t->vocab, (uint32_t)a->id);
        size_t n = t->vocab.piece[a->id].len;
        if (a->normalized)
            TRY(index_normal(t, i, s, n, w));
        else
            TRY(trie_put(&t->raw, s, n, i));
    }
    return 0;
}

static int build_tables(struct tok *t)
{
    struct work w;
    work_init(&w, TOK_MAX_ADDED);
    w.most = WORK_MAX(t->vocab.blob_len);
    int e = index_added(t, &w);
    work_done(&w);
    if (e < 0) return e;
    if (t->vocab.size == 0) return ERR(FORMAT, "tokenizer: the vocabulary is empty");
    return t->uni.on ? unigram_index(&t->uni, &t->vocab) : bpe_index(&t->bpe, &t->vocab);
}

int tok_finish(struct tok *t)
{
    if (!t->compiled) TRY(build_tables(t));
    tok_resolve_named(t);
    return t->one.n ? 0 : layout_frame(t, -1, -1, 1);
}

/* --- encoding */
struct encoder {
    const struct tok *t;
    struct work w;
    struct ids *out;
    const char *text;
    bool plain_all; /* TOK_PLAIN */
    uint64_t left;  /* of TOK_SCAN_MOST */
    const struct tok_span *plain;
    size_t n_plain;
};

/* Cuts w->text into pre-tokens and gives each to the model. */
static int encode_model(struct encoder *e)
{
    struct work *w = &e->w;
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

/* from: the origins of a text, in which s begins at byte `at`. */
static int encode_text(struct encoder *e, const char *s, size_t n, const struct tok_places *from,
                       size_t at, bool at_start)
{
    struct work *w = &e->w;
    if (n == 0) return 0;
    TRY(work_load(w, s, n, from->v ? from->v + at : NULL, at));
    w->at_start = at_start;
    return encode_model(e);
}

/* The plain spans that overlap the section are plain[first .. last). */
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

/* Appends an id that does not come from the model, and has the bytes [at, end) of the user's text. */
static int put_id(struct encoder *e, int32_t id, size_t at, size_t end, bool word)
{
    TRY(ids_push(e->out, id));
    TRY(work_place(&e->w, (uint32_t)at));
    return work_end(&e->w, (uint32_t)end, word ? e->w.word++ : TOK_NO_WORD);
}

/* Appends an added token that was found in normalized text, whose bytes came from `own`. */
static int put_hit(struct encoder *e, const struct added_hit *hit, const struct tok_places *own)
{
    size_t end = 0;
    if (!e->w.placed) return put_id(e, hit->id, 0, 0, true);
    if (e->w.ends) end = work_end_of(&e->w, own->v[hit->to - 1]);
    return put_id(e, hit->id, own->v[hit->from], end, true);
}

/* Encodes the text between raw matches: normalizes it, then cuts it at the tokens that match normalized text.
 * If it holds a plain span and normalizing moved bytes, no special token is recognised in it: missing a
 * token is safer than making one out of content. */
static int encode_section(struct encoder *e, size_t from, size_t to)
{
    struct work *w = &e->w;
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
    struct tok_places own = w->from; /* of the bytes of s; work.from serves its sections */
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
        for (size_t i = first; i < last; i++) { /* the spans, clipped and shifted to the section */
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

/* end and word: both NULL, or both wanted with `at`. */
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

/* --- looking things up */
uint32_t tok_size(const struct tok *t)
{
    return t->vocab.size;
}

int32_t tok_find(const struct tok *t, const char *piece, size_t n)
{
    return vocab_find(&t->vocab, piece, n);
}

const char *tok_piece(const struct tok *t, int32_t id, size_t *n)
{
    if (id < 0 || (uint32_t)id >= t->vocab.size || !t->vocab.piece[id].flags) return NULL;
    *n = t->vocab.piece[id].len;
    return vocab_text(&t->vocab, (uint32_t)id);
}

static bool has_flag(const struct tok *t, int32_t id, unsigned flag)
{
    return id >= 0 && (uint32_t)id < t->vocab.size && t->vocab.piece[id].flags & flag;
}

bool tok_is_special(const struct tok *t, int32_t id)
{
    return has_flag(t, id, VOC_SPECIAL);
}

bool tok_is_added(const struct tok *t, int32_t id)
{
    return has_flag(t, id, VOC_ADDED);
}

bool tok_is_model(const struct tok *t, int32_t id)
{
    return has_flag(t, id, VOC_MODEL);
}

const char *tok_shown(const struct tok *t, int32_t id, size_t *n, bool *special)
{
    const char *p = tok_piece(t, id, n);
    *special = p && t->vocab.piece[id].flags & VOC_SPECIAL;
    if (!p || !(t->vocab.piece[id].flags & VOC_SHOWN)) return p;
    const struct added key = {.id = id};
    const struct added *a = bsearch(&key, t->added, t->n_added, sizeof key, by_id);
    int32_t as = vocab_find(&t->vocab, a->shown, a->n_shown);
    *special = as >= 0 && t->vocab.piece[as].flags & VOC_SPECIAL;
    *n = a->n_shown;
    return a->shown;
}

uint32_t tok_n_added(const struct tok *t)
{
    return t->n_added;
}

const char *tok_added(const struct tok *t, uint32_t i, size_t *n, int32_t *id, bool *special)
{
    if (i >= t->n_added) return NULL;
    *id = t->added[i].id;
    *special = t->added[i].special;
    return tok_piece(t, *id, n);
}

static const struct named *find_named(const struct tok *t, const char *name)
{
    for (uint32_t i = 0; i < t->n_named; i++)
        if (strcmp(t->named[i].name, name) == 0) return &t->named[i];
    return NULL;
}

int32_t tok_special_id(const struct tok *t, const char *name)
{
    const struct named *m = find_named(t, name);
    return m ? m->id : -1;
}

const char *tok_special_text(const struct tok *t, const char *name)
{
    const struct named *m =
        t ? find_named(t, name) : NULL; /* a template may come without a tokenizer */
    return m ? m->text : NULL;
}

const char *tok_chat_template(const struct tok *t)
{
    return t->chat_template;
}

int tok_set_chat_template(struct tok *t, const char *text)
{
    char *copy = mem_strdup(text);
    if (!copy) return ERR_NOMEM;
    mem_free(t->chat_template);
    t->chat_template = copy;
    return 0;
}

const char *tok_kind(const struct tok *t)
{
    return t->kind;
}
