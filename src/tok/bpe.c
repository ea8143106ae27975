/* bpe.c - byte pair encoding of one pre-token.  Characters become symbols (unknown ones bytes, the
 * unknown token, or nothing, as the model says), then the adjacent pair of the lowest rank merges,
 * leftmost first, until none is left.  A word is cut between two characters that no merge can join; a text
 * without a pre-tokenizer is cut this way almost everywhere.  Short runs scan an array.  Long runs use a linked
 * list and a heap, so a megabyte without a cut costs n log n.  A heap entry is stale, and skipped, when one of its
 * two symbols has changed since the entry was made. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <string.h>

#define SHORT_WORD 40u
#define NO_SYM     UINT32_MAX

struct sym {
    int32_t id;
    uint32_t at;         /* byte of the pre-token at which the symbol begins */
    uint32_t prev, next; /* NO_SYM at the ends */
};
struct pair {
    uint32_t rank, at; /* at: the left symbol */
    int32_t left, right;
};

static uint32_t hash_pair(const struct bpe *b, uint64_t key)
{
    return (uint32_t)hash_u64(&b->key, key);
}

int bpe_init(struct bpe *b, uint32_t n_merges)
{
    uint32_t n = 64;
    if (n_merges > TOK_MAX_MERGES)
        return ERR(LIMIT, "tokenizer: %u merges are too many; at most %u", n_merges,
                   TOK_MAX_MERGES);
    while (n < n_merges + n_merges / 2)
        n *= 2;
    b->merge = mem_array(n, sizeof *b->merge);
    if (!b->merge) return ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        b->merge[i].key = UINT64_MAX;
    b->mask = n - 1;
    b->key = hash_key_new();
    b->unk = -1;
    return 0;
}

void bpe_done(struct bpe *b)
{
    mem_free(b->merge);
    mem_free(b->edge);
    mem_free(b->prefix);
    mem_free(b->suffix);
}

void bpe_merge_put(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    uint64_t key = (uint64_t)left << 32 | right;
    uint32_t i = hash_pair(b, key) & b->mask;
    while (b->merge[i].key != UINT64_MAX && b->merge[i].key != key)
        i = (i + 1) & b->mask;
    b->used += b->merge[i].key == UINT64_MAX;
    b->merge[i] = (struct bpe_merge){key, rank, id};
}

static const struct bpe_merge *merge_find(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (uint32_t i = hash_pair(b, key) & b->mask; b->merge[i].key != UINT64_MAX;
         i = (i + 1) & b->mask)
        if (b->merge[i].key == key) return &b->merge[i];
    return NULL;
}

static bool edge_find(const struct bpe *b, int32_t left, int32_t right, uint32_t *slot)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = hash_pair(b, key) & b->edge_mask;
    while (b->edge[i] != UINT64_MAX && b->edge[i] != key)
        i = (i + 1) & b->edge_mask;
    *slot = i;
    return b->edge[i] == key;
}

static int32_t char_symbol(const struct vocab *v, uint32_t id, bool last)
{
    const char *s = vocab_text(v, id);
    size_t n = v->piece[id].len, from = 0, len;
    if (n == 0) return -1;
    for (from = last ? n - 1 : 0; from > 0 && ((uint8_t)s[from] & 0xC0) == 0x80;)
        from--;
    utf8_decode(s + from, n - from, &len);
    return vocab_find_model(v, s + from, len);
}

/* Makes the table of edges.  Every merge joins the last character of its left side to the first of its right side.  This table lists these
 * pairs, and words are cut where no pair joins.  A symbol that is not a character (affixes, merges over byte
 * tokens or the unknown token) makes the table impossible; words then stay whole. */
static int index_edges(struct bpe *b, const struct vocab *v)
{
    uint32_t n = 64, slot;
    if (b->n_prefix || b->n_suffix) return 0;
    while (n < b->used * 2)
        n *= 2;
    if (!(b->edge = mem_array(n, sizeof *b->edge))) return ERR_NOMEM;
    memset(b->edge, 0xFF, n * sizeof *b->edge);
    b->edge_mask = n - 1;
    for (uint32_t i = 0; i <= b->mask; i++) {
        if (b->merge[i].key == UINT64_MAX) continue;
        uint32_t side[2] = {(uint32_t)(b->merge[i].key >> 32), (uint32_t)b->merge[i].key};
        int32_t left = char_symbol(v, side[0], true), right = char_symbol(v, side[1], false);
        bool odd = left < 0 || right < 0;
        for (int k = 0; k < 2; k++)
            odd |= (v->piece[side[k]].flags & VOC_BYTE) || (int32_t)side[k] == b->unk;
        if (odd) {
            mem_free(b->edge);
            b->edge = NULL;
            return 0;
        }
        if (!edge_find(b, left, right, &slot))
            b->edge[slot] = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    }
    return 0;
}

int bpe_index(struct bpe *b, struct vocab *v)
{
    static const char digits[] = "0123456789ABCDEF";
    for (uint32_t cp = 0; cp < BPE_CHARS; cp++) {
        char s[4];
        b->char_id[cp] = vocab_find_model(v, s, utf8_encode(cp, s));
    }
    for (unsigned i = 0; i < 256; i++) {
        char s[6] = {'<', '0', 'x', digits[i >> 4], digits[i & 15], '>'};
        b->byte_id[i] = vocab_find_model(v, s, 6);
    }
    for (uint32_t id = 0; id < v->size;
         id++) { /* decoding takes hexadecimal digits of either case */
        struct voc_piece *p = &v->piece[id];
        if (!p->flags || p->len != 6) continue;
        const char *s = vocab_text(v, id);
        int hi = hex_digit(s[3]), lo = hex_digit(s[4]);
        if (memcmp(s, "<0x", 3) != 0 || s[5] != '>' || hi < 0 || lo < 0) continue;
        p->flags |= VOC_BYTE;
        p->byte = (uint8_t)(hi << 4 | lo);
    }
    return index_edges(b, v);
}

static int reserve_syms(struct encode_scratch *w, size_t n)
{
    if (n <= w->n_sym) return 0;
    n = MAX(n, w->n_sym * 2);
    struct sym *p = mem_grow(w->sym, n, sizeof *p);
    if (!p) return ERR_NOMEM;
    w->sym = p;
    w->n_sym = n;
    return 0;
}

/* Returns the id of one character with the model's prefix and suffix around it. */
static int32_t find_affixed(const struct bpe *b, const struct vocab *v, const char *s, size_t n,
                            bool first, bool last, struct encode_scratch *w)
{
    struct buf *t = &w->shadow;
    buf_clear(t);
    if (!first && b->n_prefix && buf_append(t, b->prefix, b->n_prefix) < 0) return ERR_NOMEM;
    if (buf_append(t, s, n) < 0) return ERR_NOMEM;
    if (last && b->n_suffix && buf_append(t, b->suffix, b->n_suffix) < 0) return ERR_NOMEM;
    int32_t id = vocab_find_model(v, t->data, t->len);
    return id < 0 ? INT32_MAX : id;
}

/* Appends a symbol that begins at byte `at`.  An unknown character can be appended after symbols of later bytes.
 * It then gets the place of the last of them, so that places never descend. */
static void put_symbol(struct encode_scratch *w, size_t *n, int32_t id, size_t at)
{
    w->sym[*n].id = id;
    w->sym[*n].at = *n ? MAX((uint32_t)at, w->sym[*n - 1].at) : (uint32_t)at;
    (*n)++;
}

/* Writes the symbols of s to w->sym.  Returns their number or an error. */
static int64_t start_symbols(const struct bpe *b, const struct vocab *v, struct encode_scratch *w,
                             const char *s, size_t n)
{
    bool affixes = b->n_prefix || b->n_suffix, unknown = false;
    size_t n_sym = 0, len, unknown_at = 0;
    TRY(reserve_syms(w, n + 1 + (affixes ? b->n_prefix * n + b->n_suffix : 0)));
    for (size_t i = 0; i < n; i += len) {
        uint32_t cp = utf8_decode(s + i, n - i, &len);
        const char *c = s + i;
        size_t n_c = len;
        int32_t id;
        if (affixes) {
            id = find_affixed(b, v, s + i, len, i == 0, i + len == n, w);
            if (id < 0) return id;
            if (id == INT32_MAX) id = -1;
            c = w->shadow.data;
            n_c = w->shadow.len;
        } else {
            id = cp < BPE_CHARS ? b->char_id[cp] : vocab_find_model(v, s + i, len);
        }
        if (id >= 0) {
            if (unknown) put_symbol(w, &n_sym, b->unk, unknown_at);
            unknown = false;
            put_symbol(w, &n_sym, id, i);
            continue;
        }
        bool bytes = b->byte_fallback;
        for (size_t k = 0; bytes && k < n_c; k++)
            bytes = b->byte_id[(uint8_t)c[k]] >= 0;
        /* as in the reference, an unknown symbol that is pending comes after the bytes */
        if (bytes) {
            for (size_t k = 0; k < n_c; k++)
                put_symbol(w, &n_sym, b->byte_id[(uint8_t)c[k]], i + MIN(k, len - 1));
        } else if (b->unk >= 0) {
            if (unknown && !b->fuse_unk) put_symbol(w, &n_sym, b->unk, unknown_at);
            if (!unknown || !b->fuse_unk) unknown_at = i;
            unknown = true;
        }
    }
    if (unknown) put_symbol(w, &n_sym, b->unk, unknown_at);
    return (int64_t)n_sym;
}

static size_t merge_short(const struct bpe *b, struct sym *sym, size_t n)
{
    const struct bpe_merge *m[SHORT_WORD]; /* m[i]: what symbols i and i + 1 merge to */
    for (size_t i = 0; i + 1 < n; i++)
        m[i] = merge_find(b, sym[i].id, sym[i + 1].id);
    while (n > 1) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            if (!m[i] || m[i]->rank >= rank) continue;
            rank = m[i]->rank;
            best = i;
        }
        if (best == n) break;
        sym[best].id = (int32_t)m[best]->id;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            sym[i].id = sym[i + 1].id;
            sym[i].at = sym[i + 1].at;
            m[i - 1] = m[i];
        }
        if (best > 0) m[best - 1] = merge_find(b, sym[best - 1].id, sym[best].id);
        if (best + 1 < n) m[best] = merge_find(b, sym[best].id, sym[best + 1].id);
    }
    return n;
}

static bool pair_less(const struct pair *a, const struct pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_down(struct pair *h, size_t n, size_t i)
{
    struct pair x = h[i];
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && pair_less(&h[k + 1], &h[k])) k++;
        if (!pair_less(&h[k], &x)) break;
        h[i] = h[k];
    }
    h[i] = x;
}

static void heap_up(struct pair *h, size_t i)
{
    struct pair x = h[i];
    for (; i > 0 && pair_less(&x, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = x;
}

/* Finds the merge of the pair that begins at symbol `at`.  Returns false if that pair does not merge. */
static bool pair_at(const struct bpe *b, const struct sym *sym, uint32_t at, struct pair *out)
{
    if (at == NO_SYM || sym[at].next == NO_SYM) return false;
    const struct bpe_merge *m = merge_find(b, sym[at].id, sym[sym[at].next].id);
    if (!m) return false;
    *out = (struct pair){m->rank, at, sym[at].id, sym[sym[at].next].id};
    return true;
}

/* Merges with a linked list and a heap.  A merge removes one symbol and adds at most two pairs, so the heap needs
 * at most 3 n entries. */
static int merge_long(const struct bpe *b, struct encode_scratch *w, struct sym *sym, size_t n)
{
    size_t n_heap = 0;
    if (n >= NO_SYM / 4) return ERR(LIMIT, "text: a word of %zu characters", n);
    if (3 * n > w->n_heap) {
        struct pair *p = mem_grow(w->heap, 3 * n, sizeof *p);
        if (!p) return ERR_NOMEM;
        w->heap = p;
        w->n_heap = 3 * n;
    }
    struct pair *heap = w->heap, p;
    for (uint32_t i = 0; i < n; i++) {
        sym[i].prev = i ? i - 1 : NO_SYM;
        sym[i].next = i + 1 < n ? i + 1 : NO_SYM;
    }
    for (uint32_t i = 0; i < n; i++)
        if (pair_at(b, sym, i, &p)) heap[n_heap++] = p;
    for (size_t i = n_heap / 2; i-- > 0;)
        heap_down(heap, n_heap, i);
    while (n_heap > 0) {
        struct pair top = heap[0], now;
        heap[0] = heap[--n_heap];
        if (n_heap) heap_down(heap, n_heap, 0);
        if (!pair_at(b, sym, top.at, &now) || now.left != top.left || now.right != top.right)
            continue;
        uint32_t right = sym[top.at].next;
        sym[top.at].id = (int32_t)merge_find(b, top.left, top.right)->id;
        sym[top.at].next = sym[right].next;
        if (sym[right].next != NO_SYM) sym[sym[right].next].prev = top.at;
        /* the merged symbol has no id: heap entries that begin here are stale */
        sym[right].id = -1;
        sym[right].next = NO_SYM;
        uint32_t near[2] = {sym[top.at].prev, top.at};
        for (int k = 0; k < 2; k++) {
            if (!pair_at(b, sym, near[k], &p)) continue;
            heap[n_heap] = p;
            heap_up(heap, n_heap++);
        }
    }
    return 0;
}

/* Appends the symbols of a stretch of a pre-token, from byte `at` of the text on, merged as far as merges go. */
static int encode_run(const struct bpe *b, struct encode_scratch *w, size_t at, struct sym *sym,
                      size_t n, struct ids *out)
{
    if (n <= SHORT_WORD) {
        if (n > 1) n = merge_short(b, sym, n);
        for (size_t i = 0; i < n; i++)
            TRY(work_id(w, out, sym[i].id, at + sym[i].at));
        return 0;
    }
    TRY(merge_long(b, w, sym, n));
    for (uint32_t i = 0; i != NO_SYM; i = sym[i].next)
        TRY(work_id(w, out, sym[i].id, at + sym[i].at));
    return 0;
}

int bpe_encode(const struct bpe *b, const struct vocab *v, struct encode_scratch *w, const char *s,
               size_t n, struct ids *out)
{
    uint32_t slot;
    size_t at = (size_t)(s - w->text.data);
    if (n == 0) return 0;
    if (b->ignore_merges) {
        int32_t id = vocab_find_model(v, s, n);
        if (id >= 0) return work_id(w, out, id, at);
    }
    int64_t n_sym = start_symbols(b, v, w, s, n);
    if (n_sym <= 0) return (int)n_sym;
    for (size_t from = 0, to; from < (size_t)n_sym; from = to) {
        for (to = from + 1; to < (size_t)n_sym; to++)
            if (b->edge && !edge_find(b, w->sym[to - 1].id, w->sym[to].id, &slot)) break;
        TRY(encode_run(b, w, at, w->sym + from, to - from, out));
    }
    return 0;
}
