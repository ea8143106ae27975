/* added.c - finds added tokens in running text.  The leftmost position wins, and at each position the longest
 * token.  The search walks a trie of bytes; tokens have at most TOK_MAX_ADDED bytes, so a walk is bounded.  A
 * special token that touches a plain span is ignored.  A shorter token that does not touch the span, or one that
 * begins later, is still found.  Under no_special the rule of Hugging Face tokenizers holds instead: the whole
 * match is skipped. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <string.h>

void trie_done(struct trie *t)
{
    mem_free(t->key);
    mem_free(t->node);
    mem_free(t->what);
    *t = (struct trie){0};
}

static uint32_t trie_slot(const struct trie *t, uint64_t key)
{
    uint32_t i = (uint32_t)hash_u64(&t->secret, key) & t->mask;
    while (t->key[i] != UINT64_MAX && t->key[i] != key)
        i = (i + 1) & t->mask;
    return i;
}

static int trie_grow(struct trie *t)
{
    if (t->key && t->used < (t->mask + 1) / 2) return 0;
    uint32_t n = t->key ? (t->mask + 1) * 2 : 256;
    struct trie old = *t;
    uint64_t *key = mem_array(n, sizeof *key);
    uint32_t *node = mem_array(n, sizeof *node);
    if (!key || !node) {
        mem_free(key);
        mem_free(node);
        return ERR_NOMEM;
    }
    if (!old.key) t->secret = hash_key_new();
    memset(key, 0xFF, n * sizeof *key);
    t->key = key;
    t->node = node;
    t->mask = n - 1;
    for (uint32_t i = 0; old.key && i <= old.mask; i++) {
        if (old.key[i] == UINT64_MAX) continue;
        uint32_t k = trie_slot(t, old.key[i]);
        t->key[k] = old.key[i];
        t->node[k] = old.node[i];
    }
    mem_free(old.key);
    mem_free(old.node);
    return 0;
}

static int trie_node(struct trie *t, uint32_t *out)
{
    if (t->n_node == t->cap_node) {
        uint32_t cap = MAX(t->cap_node * 2, 64u);
        uint32_t *p = mem_grow(t->what, cap, sizeof *p);
        if (!p) return ERR_NOMEM;
        t->what = p;
        t->cap_node = cap;
    }
    t->what[t->n_node] = 0;
    *out = t->n_node++;
    return 0;
}

int trie_put(struct trie *t, const char *s, size_t n, uint32_t what)
{
    uint32_t at = 0;
    if (n == 0) return 0; /* an empty token would match everywhere */
    if (t->n_node == 0) TRY(trie_node(t, &at));
    t->first[(uint8_t)s[0]] = true;
    at = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t key = (uint64_t)at << 8 | (uint8_t)s[i];
        TRY(trie_grow(t));
        uint32_t k = trie_slot(t, key);
        if (t->key[k] == UINT64_MAX) {
            TRY(trie_node(t, &at));
            t->key[k] = key;
            t->node[k] = at;
            t->used++;
        } else {
            at = t->node[k];
        }
    }
    if (!t->what[at])
        t->what[at] = what + 1; /* of two tokens with the same normalized text the first counts */
    return 0;
}

static bool touches_plain(struct added_scan *c, size_t from, size_t to)
{
    while (c->i_plain < c->n_plain && c->plain[c->i_plain].to <= from)
        c->i_plain++; /* positions only move forward */
    for (size_t i = c->i_plain; i < c->n_plain && c->plain[i].from < to; i++)
        if (c->plain[i].to > from && c->plain[i].from < c->plain[i].to) return true;
    return false;
}

/* Returns the longest token at c->at as an index into tok.added, or -1, and its bytes in *len.  Counts the bytes
 * that it compares. */
static int64_t longest_added(struct added_scan *c, size_t *len)
{
    const struct trie *t = c->trie;
    uint32_t node = 0;
    int64_t best = -1;
    for (size_t i = c->at; *c->left > 0 && i < c->n; i++) {
        --*c->left;
        uint32_t k = trie_slot(t, (uint64_t)node << 8 | (uint8_t)c->s[i]);
        if (t->key[k] == UINT64_MAX) break;
        node = t->node[k];
        if (!t->what[node]) continue;
        uint32_t what = t->what[node] - 1;
        if (c->t->added[what].special && touches_plain(c, c->at, i + 1)) continue;
        best = what;
        *len = i + 1 - c->at;
    }
    return best;
}

static uint32_t char_before(const char *s, size_t at, size_t *from)
{
    size_t i = at - 1, len;
    while (i > 0 && ((uint8_t)s[i] & 0xC0) == 0x80)
        i--;
    *from = i;
    return utf8_decode(s + i, at - i, &len);
}

static bool is_whole_word(const struct added_scan *c, size_t from, size_t to)
{
    size_t k;
    if (from > 0 && uni_is_word(char_before(c->s, from, &k))) return false;
    return to == c->n || !uni_is_word(utf8_decode(c->s + to, c->n - to, &k));
}

int added_next(struct added_scan *c, struct added_hit *out)
{
    if (c->trie->n_node == 0) return 0;
    while (c->at < c->n) {
        if (!c->trie->first[(uint8_t)c->s[c->at]]) {
            c->at++;
            continue;
        }
        size_t len = 0;
        int64_t what = longest_added(c, &len);
        if (*c->left == 0)
            return ERR(LIMIT, "tokenizer: the added tokens take too many steps on this text; the "
                              "tokenizer file is broken or hostile");
        if (what < 0) {
            c->at++;
            continue;
        }
        const struct added *a = &c->t->added[what];
        size_t from = c->at, to = from + len, k;
        c->at = to;
        if (c->no_special && a->special) continue;
        if (a->single_word && !is_whole_word(c, from, to)) continue;
        while (a->lstrip && from > c->done && uni_is_space(char_before(c->s, from, &k)))
            from = k;
        if (a->lstrip) from = MAX(from, c->done);
        /* the last hit has stripped white space up to `done` */
        if (a->rstrip) to = MAX(to, c->done);
        while (a->rstrip && to < c->n && uni_is_space(utf8_decode(c->s + to, c->n - to, &k)))
            to += k;
        *out = (struct added_hit){from, to, a->id};
        c->done = to;
        return 1;
    }
    return 0;
}
