/* tok_build.c - makes a tokenizer: steps, tokens and merges one by one, then its indexes.  Used by the loaders only. */
#include "tok/tok_int.h"

#include <stdlib.h>
#include <string.h>

/* Appends a zeroed element to a small owned array and returns the element.  NULL: an error, which is set. */
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

int tok_add_norm(struct tok *t, struct normalizer **out)
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

/* Adds the replacements of the reference's clean_up_tokenization, in its order. */
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

/* Adds a token.  As in the reference, a text that is in the vocabulary keeps its id; a new text gets the id behind
 * all others. */
int tok_add_token(struct tok *t, const char *s, size_t n, struct added a)
{
    if (n == 0) return 0;
    if (n > TOK_MAX_ADDED)
        return ERR(LIMIT, "tokenizer: an added token of %zu bytes; at most %u", n, TOK_MAX_ADDED);
    int32_t id = vocab_find(&t->vocab, s, n);
    if (id < 0) {
        uint32_t next = MAX(t->vocab.n_model, t->next_added);
        while (next < t->vocab.size && t->vocab.piece[next].flags)
            next++; /* the model's ids may have gaps */
        TRY(vocab_put(&t->vocab, s, n, next, VOC_ADDED));
        id = (int32_t)next;
    }
    a.id = id;
    t->next_added = MAX(t->next_added, (uint32_t)id + 1);
    t->vocab.piece[id].flags |= VOC_ADDED | (a.special ? VOC_SPECIAL : 0);
    struct added *p =
        grow_one((void **)&t->added, &t->n_added, sizeof *p, TOK_MAX_ID, "added tokens");
    if (!p) return full(t->n_added, TOK_MAX_ID);
    a.order = t->n_added;
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

static int by_id_and_order(const void *a, const void *b)
{
    uint32_t x = ((const struct added *)a)->order, y = ((const struct added *)b)->order;
    int order = added_by_id(a, b);
    return order ? order : x < y ? -1 : x > y;
}

/* Sorts the added tokens by id.  Of several entries for one id, the last one in the file stays. */
static void sort_added(struct tok *t)
{
    uint32_t n = 0;
    if (t->n_added) qsort(t->added, t->n_added, sizeof *t->added, by_id_and_order);
    for (uint32_t i = 0; i < t->n_added; i++) {
        n -= n && t->added[n - 1].id == t->added[i].id;
        t->added[n++] = t->added[i];
    }
    t->n_added = n;
}

/* Indexes a token with `normalized`, which is matched in normalized text and decoded as its normalized form. */
static int index_normal(struct tok *t, uint32_t i, const char *s, size_t n,
                        struct encode_scratch *w)
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

static int index_added(struct tok *t, struct encode_scratch *w)
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
    struct encode_scratch w;
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
