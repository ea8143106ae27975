/* tok_lists.c - the long lists of tokenizer.json: vocabulary, merges and added tokens.  A tree of such a list
 * would take twenty times the bytes of its text.  So a scanner finds the lists and reads them in place, item by
 * item.  Only the rest of the file, which is short, becomes a tree. */
#include "fmt/scan.h"
#include "tok/tok_int.h"

#include <string.h>

/* Bytes of the file without its lists; real files have a few kilobytes. */
#define REST_MOST ((size_t)16 << 20)
/* Bytes of an item that becomes a tree: a piece or an added token has at most 1024 bytes, each written with six characters at most. */
#define ITEM_MOST ((size_t)64 << 10)

static int open_scan(struct scan *j, const char *s, size_t n)
{
    TRY(scan_init(j, s, n, TOK_JSON));
    j->nul = true; /* a token may be any text */
    return 0;
}

/* Skips a value without keeping its strings. */
static int skip_value(struct scan *j)
{
    size_t used = j->used;
    int e = scan_skip(j);
    j->used = used;
    return e;
}

/* --- finding the lists */
struct list_cutter {
    struct scan j;
    size_t copied; /* bytes of the file that are copied to the rest, or left out */
    struct buf *rest;
};

static int keep_text(struct list_cutter *c, size_t to)
{
    if (to - c->copied > c->rest->max - c->rest->len)
        return ERR(LIMIT, TOK_JSON ": more than %zu MiB beside the vocabulary and its merges",
                   REST_MOST >> 20);
    return buf_append(c->rest, c->j.s + c->copied, to - c->copied);
}

static int cut_list(struct list_cutter *c, struct tok_list *out)
{
    struct scan *j = &c->j;
    scan_peek(j);
    size_t from = j->pos;
    TRY(skip_value(j));
    TRY(keep_text(c, from));
    TRY(buf_puts(c->rest, "null"));
    *out = (struct tok_list){j->s + from, j->pos - from};
    c->copied = j->pos;
    return 0;
}

static int cut_model(struct list_cutter *c, struct tok_lists *out)
{
    const char *key;
    bool first = true;
    int e;
    TRY(scan_char(&c->j, '{'));
    while ((e = scan_key(&c->j, &first, &key)) == 1) {
        if (strcmp(key, "vocab") == 0)
            TRY(cut_list(c, &out->vocab));
        else if (strcmp(key, "merges") == 0)
            TRY(cut_list(c, &out->merges));
        else
            TRY(skip_value(&c->j));
    }
    return e;
}

static int cut_all(struct list_cutter *c, struct tok_lists *out)
{
    const char *key;
    bool first = true;
    int e;
    if (scan_peek(&c->j) != '{') return ERR(FORMAT, TOK_JSON " is not an object");
    TRY(scan_char(&c->j, '{'));
    while ((e = scan_key(&c->j, &first, &key)) == 1) {
        if (strcmp(key, "model") == 0 && scan_peek(&c->j) == '{')
            TRY(cut_model(c, out));
        else if (strcmp(key, "added_tokens") == 0)
            TRY(cut_list(c, &out->added));
        else
            TRY(skip_value(&c->j));
    }
    if (e < 0) return e;
    TRY(scan_end(&c->j));
    return keep_text(c, c->j.n);
}

int tok_lists_find(const char *json, size_t n, struct tok_lists *out, struct buf *rest)
{
    struct list_cutter c = {.rest = rest};
    *out = (struct tok_lists){0};
    buf_init(rest, REST_MOST);
    TRY(open_scan(&c.j, json, n));
    int e = cut_all(&c, out);
    scan_done(&c.j);
    return e;
}

/* --- reading them */
static int take_piece(struct tok *t, struct scan *j, const char *key, size_t n)
{
    uint64_t id;
    TRY(scan_u64(j, &id));
    if (id > UINT32_MAX)
        return ERR(FORMAT, TOK_JSON ": the id of \"%.60s\" is not a number that fits", key);
    TRY(vocab_put(&t->vocab, key, n, (uint32_t)id, VOC_MODEL));
    j->used = 0;
    return 0;
}

static int take_vocab(struct tok *t, struct scan *j)
{
    const char *key;
    bool first = true;
    int e;
    TRY(scan_char(j, '{'));
    while ((e = scan_key(j, &first, &key)) == 1)
        TRY(take_piece(t, j, key, scan_length(j, key)));
    return e;
}

int tok_lists_vocab(struct tok *t, const struct tok_lists *l)
{
    struct scan j;
    if (!l->vocab.n || l->vocab.s[0] != '{')
        return ERR(FORMAT, TOK_JSON ": \"vocab\" must be an object");
    TRY(open_scan(&j, l->vocab.s, l->vocab.n));
    int e = take_vocab(t, &j);
    scan_done(&j);
    return e;
}

static int take_scored(struct tok *t, const json_t *pair, uint32_t id)
{
    const json_t *piece = json_array_get(pair, 0), *score = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_string(piece) || !json_is_number(score))
        return ERR(FORMAT, TOK_JSON ": piece %u of the vocabulary is not [text, score]", id);
    TRY(vocab_put(&t->vocab, json_string_value(piece), json_string_length(piece), id, VOC_MODEL));
    return unigram_put(&t->uni, id, json_number_value(score), true);
}

/* Reads the next item of a list as a tree of its own (json_decref).  Returns 1, or 0 at the end of the list. */
static int next_tree(struct scan *j, bool *first, const char *what, json_t **out)
{
    int e = scan_item(j, first);
    if (e != 1) return e;
    scan_peek(j);
    size_t from = j->pos;
    TRY(skip_value(j));
    if (j->pos - from > ITEM_MOST)
        return ERR(LIMIT, "%s: an item of %zu bytes; at most %zu", what, j->pos - from, ITEM_MOST);
    TRY(json_parse(j->s + from, j->pos - from, what, out));
    return 1;
}

static int take_pieces(struct tok *t, struct scan *j)
{
    bool first = true;
    json_t *pair;
    int e;
    TRY(scan_char(j, '['));
    for (uint32_t id = 0; (e = next_tree(j, &first, TOK_JSON ", vocab", &pair)) == 1; id++) {
        e = take_scored(t, pair, id);
        json_decref(pair);
        if (e < 0) return e;
    }
    return e;
}

int tok_lists_pieces(struct tok *t, const struct tok_lists *l)
{
    struct scan j;
    if (!l->vocab.n || l->vocab.s[0] != '[')
        return ERR(FORMAT, TOK_JSON ": \"vocab\" of a Unigram model must be a list");
    TRY(open_scan(&j, l->vocab.s, l->vocab.n));
    int e = take_pieces(t, &j);
    scan_done(&j);
    return e;
}

/* Reads "left right" or ["left", "right"]; returns 0 for the line that names a version, otherwise 1. */
static int take_merge(struct scan *j, uint64_t at, const char *s[2], size_t n[2])
{
    if (scan_peek(j) == '[') {
        for (int i = 0; i < 2; i++) {
            TRY(scan_char(j, i ? ',' : '['));
            TRY(scan_string(j, &s[i]));
            n[i] = scan_length(j, s[i]);
        }
        TRY(scan_char(j, ']'));
        return 1;
    }
    TRY(scan_string(j, &s[0]));
    size_t len = scan_length(j, s[0]);
    if (strncmp(s[0], "#version", 8) == 0) return 0;
    const char *gap = memchr(s[0], ' ', len);
    if (gap) {
        n[0] = (size_t)(gap - s[0]);
        s[1] = gap + 1;
        n[1] = len - n[0] - 1;
        if (n[0] && n[1] && !memchr(s[1], ' ', n[1])) return 1;
    }
    return ERR(FORMAT, TOK_JSON ": merge %llu is not a pair of tokens", (unsigned long long)at);
}

static int count_items(struct scan *j, uint64_t *n)
{
    bool first = true;
    int e;
    *n = 0;
    TRY(scan_char(j, '['));
    while ((e = scan_item(j, &first)) == 1) {
        TRY(skip_value(j));
        ++*n;
    }
    return e;
}

static int take_merges(struct tok *t, struct scan *j)
{
    bool first = true;
    uint64_t n;
    int e;
    TRY(count_items(j, &n));
    j->pos = 0;
    TRY(bpe_init(&t->bpe, n > UINT32_MAX ? UINT32_MAX : (uint32_t)n));
    TRY(scan_char(j, '['));
    for (uint64_t i = 0; (e = scan_item(j, &first)) == 1; i++) {
        const char *s[2];
        size_t len[2];
        e = take_merge(j, i, s, len);
        if (e > 0) e = tok_add_merge(t, s[0], len[0], s[1], len[1], (uint32_t)i);
        if (e < 0) return e;
        j->used = 0;
    }
    return e;
}

int tok_lists_merges(struct tok *t, const struct tok_lists *l)
{
    struct scan j;
    if (!l->merges.n || l->merges.s[0] != '[')
        return ERR(FORMAT, TOK_JSON ": \"merges\" must be a list");
    TRY(open_scan(&j, l->merges.s, l->merges.n));
    int e = take_merges(t, &j);
    scan_done(&j);
    return e;
}

static int take_added(struct tok *t, struct scan *j, int (*each)(struct tok *t, const json_t *o))
{
    bool first = true;
    json_t *o;
    int e;
    TRY(scan_char(j, '['));
    while ((e = next_tree(j, &first, TOK_JSON ", added_tokens", &o)) == 1) {
        e = each(t, o);
        json_decref(o);
        if (e < 0) return e;
    }
    return e;
}

int tok_lists_added(struct tok *t, const struct tok_lists *l,
                    int (*each)(struct tok *t, const json_t *o))
{
    struct scan j;
    if (!l->added.n || l->added.s[0] == 'n') return 0; /* null */
    if (l->added.s[0] != '[') return ERR(FORMAT, TOK_JSON ": \"added_tokens\" must be a list");
    TRY(open_scan(&j, l->added.s, l->added.n));
    int e = take_added(t, &j, each);
    scan_done(&j);
    return e;
}
