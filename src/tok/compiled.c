/* compiled.c - compiled vocabularies: the tables of a tokenizer as they lie in memory, kept in the user's cache
 * directory and mapped by later runs.  Building the tables of 262 144 pieces takes most of a second, checking them
 * takes milliseconds.
 *
 *     head      counts, keys of the hash tables, and small tables
 *     sections  in the order of enum section, each at a multiple of 64 bytes
 *
 * The rest of tokenizer.json (steps, flags, post-processor) is short.  It is kept as text and parsed each time.
 * The tables are those after tok_finish, so nothing is added to them later.  A compiled vocabulary is as untrusted
 * as any file.  Before the tokenizer gets it, every index and length is checked, and every hash table must have a
 * free entry, at which a search ends. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define MARK "kvik vocab 1\n"

enum section {
    S_REST,
    S_BLOB,
    S_PIECES,
    S_SLOTS,
    S_MERGES,
    S_EDGES,
    S_SCORES,
    S_NODES,
    S_ADDED,
    S_SHOWN, /* the texts of struct added_record, one after another */
    S_TRIES, /* for each trie: keys, children, ends */
    S_COUNT = S_TRIES + 6
};
enum { HAS_EDGES = 1, HAS_MERGES = 2, IS_UNIGRAM = 4, BYTE_FALLBACK = 8, ALIGN = 64 };

struct added_record {
    int32_t id;
    uint32_t n_shown, flags; /* 1 single_word, 2 lstrip, 4 rstrip, 8 normalized, 16 special */
};
struct trie_record {
    uint32_t mask, used, n_node, pad;
    struct hash_key secret;
    uint8_t first[256];
};
struct compiled_head {
    char mark[16];
    uint32_t version, piece_bytes, merge_bytes, node_bytes; /* sizes of the structs of this build */
    uint32_t flags, n_added;
    uint32_t vocab_size, n_model, vocab_used, vocab_mask;
    uint32_t bpe_used, bpe_mask, edge_mask, uni_cap, n_node, pad;
    struct hash_key vocab_key, bpe_key;
    double least;
    int32_t char_id[BPE_CHARS], byte_id[256], uni_byte_id[256];
    struct trie_record trie[2];
    uint64_t bytes[S_COUNT];
};

static const struct cache_kind kind = {
    .folder = "vocabularies", .mark = MARK, .suffix = "", .least = (size_t)1 << 20, .most = 32};

static void fill_head(const struct tok *t, size_t n_rest, struct compiled_head *h)
{
    const struct vocab *v = &t->vocab;
    const struct bpe *b = &t->bpe;
    const struct unigram *u = &t->uni;
    *h = (struct compiled_head){.mark = MARK,
                                .version = 1,
                                .piece_bytes = sizeof *v->piece,
                                .merge_bytes = sizeof *b->merge,
                                .node_bytes = sizeof *u->node,
                                .flags = (b->edge ? HAS_EDGES : 0) | (b->merge ? HAS_MERGES : 0) |
                                         (u->on ? IS_UNIGRAM : 0) |
                                         (u->byte_fallback ? BYTE_FALLBACK : 0),
                                .n_added = t->n_added,
                                .vocab_size = v->size,
                                .n_model = v->n_model,
                                .vocab_used = v->used,
                                .vocab_mask = v->mask,
                                .bpe_used = b->used,
                                .bpe_mask = b->mask,
                                .edge_mask = b->edge_mask,
                                .uni_cap = u->cap,
                                .n_node = u->n_node,
                                .vocab_key = v->key,
                                .bpe_key = b->key,
                                .least = u->least};
    memcpy(h->char_id, b->char_id, sizeof h->char_id);
    memcpy(h->byte_id, b->byte_id, sizeof h->byte_id);
    memcpy(h->uni_byte_id, u->byte_id, sizeof h->uni_byte_id);
    h->bytes[S_REST] = n_rest;
    h->bytes[S_BLOB] = v->blob_len;
    for (uint32_t i = 0; i < t->n_added; i++)
        h->bytes[S_SHOWN] += t->added[i].n_shown;
    for (int i = 0; i < 2; i++) {
        const struct trie *r = i ? &t->normal : &t->raw;
        h->trie[i] = (struct trie_record){
            .mask = r->mask, .used = r->used, .n_node = r->n_node, .secret = r->secret};
        for (int k = 0; k < 256; k++)
            h->trie[i].first[k] = r->first[k];
    }
}

/* Writes the bytes of each section that follow from the counts of a head.  The head itself gives the bytes of the
 * other sections. */
static void count_bytes(const struct compiled_head *h, uint64_t out[S_COUNT])
{
    memcpy(out, h->bytes, S_COUNT * sizeof *out);
    out[S_PIECES] = (uint64_t)h->vocab_size * sizeof(struct voc_piece);
    out[S_SLOTS] = ((uint64_t)h->vocab_mask + 1) * sizeof(uint32_t);
    out[S_MERGES] =
        h->flags & HAS_MERGES ? ((uint64_t)h->bpe_mask + 1) * sizeof(struct bpe_merge) : 0;
    out[S_EDGES] = h->flags & HAS_EDGES ? ((uint64_t)h->edge_mask + 1) * sizeof(uint64_t) : 0;
    out[S_SCORES] = h->flags & IS_UNIGRAM ? (uint64_t)h->uni_cap * sizeof(double) : 0;
    out[S_NODES] = h->flags & IS_UNIGRAM ? (uint64_t)h->n_node * sizeof(struct uni_node) : 0;
    out[S_ADDED] = (uint64_t)h->n_added * sizeof(struct added_record);
    for (int i = 0; i < 2; i++) {
        const struct trie_record *r = &h->trie[i];
        uint64_t slots = r->n_node ? (uint64_t)r->mask + 1 : 0;
        out[S_TRIES + 3 * i] = slots * sizeof(uint64_t);
        out[S_TRIES + 3 * i + 1] = slots * sizeof(uint32_t);
        out[S_TRIES + 3 * i + 2] = (uint64_t)r->n_node * sizeof(uint32_t);
    }
}

/* --- Writing ---------------------------------------------------------------------------------- */

static int put_padded(tok_put put, void *ctx, const void *data, size_t n)
{
    static const char zeros[ALIGN];
    if (n) TRY(put(ctx, data, n));
    size_t over = n % ALIGN;
    return over ? put(ctx, zeros, ALIGN - over) : 0;
}

static int put_added(const struct tok *t, struct buf *records, struct buf *shown)
{
    for (uint32_t i = 0; i < t->n_added; i++) {
        const struct added *a = &t->added[i];
        const struct added_record r = {.id = a->id,
                                       .n_shown = (uint32_t)a->n_shown,
                                       .flags = (a->single_word ? 1u : 0) | (a->lstrip ? 2u : 0) |
                                                (a->rstrip ? 4u : 0) | (a->normalized ? 8u : 0) |
                                                (a->special ? 16u : 0)};
        TRY(buf_append(records, (const char *)&r, sizeof r));
        if (a->n_shown) TRY(buf_append(shown, a->shown, a->n_shown));
    }
    return 0;
}

static int put_sections(const struct tok *t, const char *rest, const struct compiled_head *h,
                        const struct buf *records, const struct buf *shown, tok_put put, void *ctx)
{
    const void *data[S_COUNT] = {
        [S_REST] = rest,           [S_BLOB] = t->vocab.blob,  [S_PIECES] = t->vocab.piece,
        [S_SLOTS] = t->vocab.slot, [S_MERGES] = t->bpe.merge, [S_EDGES] = t->bpe.edge,
        [S_SCORES] = t->uni.score, [S_NODES] = t->uni.node,   [S_ADDED] = records->data,
        [S_SHOWN] = shown->data,
    };
    for (int i = 0; i < 2; i++) {
        const struct trie *r = i ? &t->normal : &t->raw;
        data[S_TRIES + 3 * i] = r->key;
        data[S_TRIES + 3 * i + 1] = r->node;
        data[S_TRIES + 3 * i + 2] = r->what;
    }
    TRY(put_padded(put, ctx, h, sizeof *h));
    for (int i = 0; i < S_COUNT; i++)
        TRY(put_padded(put, ctx, data[i], (size_t)h->bytes[i]));
    return 0;
}

int tok_compile(const struct tok *t, const char *rest, size_t n_rest, tok_put put, void *ctx)
{
    struct buf records, shown;
    struct compiled_head h;
    buf_init(&records, SIZE_MAX / 2);
    buf_init(&shown, SIZE_MAX / 2);
    fill_head(t, n_rest, &h);
    count_bytes(&h, h.bytes);
    int e = put_added(t, &records, &shown);
    if (e >= 0) e = put_sections(t, rest, &h, &records, &shown, put, ctx);
    buf_done(&records);
    buf_done(&shown);
    return e;
}

/* --- Checking --------------------------------------------------------------------------------- */

struct image {
    const struct compiled_head *h;
    const void *at[S_COUNT];
};

static int broken_table(const char *what)
{
    return ERR(FORMAT, "a compiled vocabulary is damaged: %s", what);
}

static bool is_mask(uint32_t mask)
{
    return (mask & (mask + 1)) == 0 && mask < UINT32_MAX;
}

static int find_sections(const uint8_t *data, size_t n, struct image *m)
{
    const struct compiled_head *h = (const void *)data;
    uint64_t bytes[S_COUNT];
    size_t at = (sizeof *h + ALIGN - 1) / ALIGN * ALIGN;
    if (n < at || memcmp(h->mark, (char[16]){MARK}, 16) != 0) return broken_table("its head");
    if (h->version != 1 || h->piece_bytes != sizeof(struct voc_piece) ||
        h->merge_bytes != sizeof(struct bpe_merge) || h->node_bytes != sizeof(struct uni_node))
        return broken_table("another version wrote it");
    count_bytes(h, bytes);
    for (int i = 0; i < S_COUNT; i++) {
        if (bytes[i] != h->bytes[i] || bytes[i] > n - at) return broken_table("its sizes");
        m->at[i] = data + at;
        size_t padded = (size_t)(bytes[i] + ALIGN - 1) / ALIGN * ALIGN;
        if (padded > n - at) return broken_table("its sizes");
        at += padded;
    }
    m->h = h;
    return at == n ? 0 : broken_table("its sizes");
}

static bool is_id(const struct image *m, uint32_t id)
{
    const struct voc_piece *p = m->at[S_PIECES];
    return id < m->h->vocab_size && p[id].flags;
}

static int check_ids(const struct image *m, const int32_t *id, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (id[i] != -1 && (id[i] < 0 || !is_id(m, (uint32_t)id[i]))) return broken_table("an id");
    return 0;
}

static int check_vocab(const struct image *m)
{
    const struct compiled_head *h = m->h;
    const struct voc_piece *p = m->at[S_PIECES];
    const uint32_t *slot = m->at[S_SLOTS];
    uint64_t used = 0;
    if (h->vocab_size == 0 || h->vocab_size > TOK_MAX_ID || !is_mask(h->vocab_mask))
        return broken_table("the size of the vocabulary");
    for (uint32_t id = 0; id < h->vocab_size; id++) {
        if (!p[id].flags) continue;
        if (p[id].off > h->bytes[S_BLOB] || p[id].len > h->bytes[S_BLOB] - p[id].off ||
            !utf8_valid((const char *)m->at[S_BLOB] + p[id].off, p[id].len))
            return broken_table("the text of a token");
    }
    for (uint64_t i = 0; i <= h->vocab_mask; i++) {
        used += slot[i] != 0;
        if (slot[i] && !is_id(m, slot[i] - 1)) return broken_table("the index of the vocabulary");
    }
    return used <= h->vocab_mask ? 0 : broken_table("the index of the vocabulary");
}

static int check_bpe(const struct image *m)
{
    const struct compiled_head *h = m->h;
    const struct bpe_merge *merge = m->at[S_MERGES];
    const uint64_t *edge = m->at[S_EDGES];
    uint64_t used = 0;
    if (h->flags & IS_UNIGRAM) return 0;
    TRY(check_ids(m, h->char_id, BPE_CHARS));
    TRY(check_ids(m, h->byte_id, 256));
    if (!(h->flags & HAS_MERGES) || !is_mask(h->bpe_mask)) return broken_table("the merges");
    for (uint64_t i = 0; i <= h->bpe_mask; i++) {
        if (merge[i].key == UINT64_MAX) continue;
        used++;
        if (!is_id(m, merge[i].id)) return broken_table("a merge");
    }
    if (used > h->bpe_mask) return broken_table("the merges");
    if (!(h->flags & HAS_EDGES)) return 0;
    used = 0;
    if (!is_mask(h->edge_mask)) return broken_table("the pairs of characters");
    for (uint64_t i = 0; i <= h->edge_mask; i++)
        used += edge[i] != UINT64_MAX;
    return used <= h->edge_mask ? 0 : broken_table("the pairs of characters");
}

/* Checks the trie of the Unigram model.  Children must come after their parents, so that a walk ends. */
static int check_unigram(const struct image *m)
{
    const struct compiled_head *h = m->h;
    const struct uni_node *node = m->at[S_NODES];
    const double *score = m->at[S_SCORES];
    const struct voc_piece *p = m->at[S_PIECES];
    if (!(h->flags & IS_UNIGRAM)) return 0;
    TRY(check_ids(m, h->uni_byte_id, 256));
    if (h->n_node == 0 || h->n_node > UNI_MAX_NODES || !isfinite(h->least))
        return broken_table("the pieces");
    for (uint32_t i = 0; i < h->uni_cap; i++)
        if (!isfinite(score[i])) return broken_table("a score");
    for (uint32_t i = 0; i < h->n_node; i++) {
        if (node[i].n && (node[i].first <= i || node[i].first > h->n_node ||
                          node[i].n > h->n_node - node[i].first))
            return broken_table("the trie of pieces");
        if (node[i].id == -1) continue;
        if (node[i].id < 0 || !is_id(m, (uint32_t)node[i].id) ||
            (uint32_t)node[i].id >= h->uni_cap || p[node[i].id].len > UNI_MAX_PIECE)
            return broken_table("the trie of pieces");
    }
    return 0;
}

static int check_trie(const struct image *m, int i)
{
    const struct trie_record *r = &m->h->trie[i];
    const uint64_t *key = m->at[S_TRIES + 3 * i];
    const uint32_t *node = m->at[S_TRIES + 3 * i + 1], *what = m->at[S_TRIES + 3 * i + 2];
    uint64_t used = 0;
    if (!r->n_node) return 0;
    if (!is_mask(r->mask)) return broken_table("the added tokens");
    for (uint64_t k = 0; k <= r->mask; k++) {
        if (key[k] == UINT64_MAX) continue;
        used++;
        if (node[k] >= r->n_node) return broken_table("the added tokens");
    }
    for (uint32_t k = 0; k < r->n_node; k++)
        if (what[k] > m->h->n_added) return broken_table("the added tokens");
    return used <= r->mask ? 0 : broken_table("the added tokens");
}

/* Checks that ids ascend, and that each token with VOC_SHOWN has a text. */
static int check_added(const struct image *m)
{
    const struct added_record *a = m->at[S_ADDED];
    const struct voc_piece *p = m->at[S_PIECES];
    uint64_t shown = 0, marked = 0, texts = 0;
    for (uint32_t i = 0; i < m->h->n_added; i++) {
        if (a[i].id < 0 || !is_id(m, (uint32_t)a[i].id) || (i && a[i].id <= a[i - 1].id))
            return broken_table("an added token");
        bool other = p[a[i].id].flags & VOC_SHOWN;
        if (a[i].n_shown > 16 * TOK_MAX_ADDED || (a[i].n_shown && !other))
            return broken_table("an added token");
        shown += a[i].n_shown;
        texts += other;
    }
    for (uint32_t id = 0; id < m->h->vocab_size; id++)
        marked += (p[id].flags & VOC_SHOWN) != 0;
    if (shown != m->h->bytes[S_SHOWN] || texts != marked) return broken_table("an added token");
    TRY(check_trie(m, 0));
    return check_trie(m, 1);
}

/* --- Taking ----------------------------------------------------------------------------------- */

#define BORROW(p) ((void *)(uintptr_t)(p))

static int take_added(struct tok *t, const struct image *m)
{
    const struct added_record *a = m->at[S_ADDED];
    const char *shown = m->at[S_SHOWN];
    const struct voc_piece *p = m->at[S_PIECES];
    if (m->h->n_added && !(t->added = mem_array(m->h->n_added, sizeof *t->added))) return ERR_NOMEM;
    t->n_added = m->h->n_added;
    for (uint32_t i = 0; i < t->n_added; i++) {
        t->added[i] = (struct added){.id = a[i].id,
                                     .order = i,
                                     .single_word = a[i].flags & 1,
                                     .lstrip = a[i].flags & 2,
                                     .rstrip = a[i].flags & 4,
                                     .normalized = a[i].flags & 8,
                                     .special = a[i].flags & 16,
                                     .n_shown = a[i].n_shown};
        if (!(p[a[i].id].flags & VOC_SHOWN)) continue;
        if (!(t->added[i].shown = mem_strndup(shown, a[i].n_shown))) return ERR_NOMEM;
        shown += a[i].n_shown;
    }
    return 0;
}

static void take_tables(struct tok *t, const struct image *m)
{
    const struct compiled_head *h = m->h;
    t->vocab = (struct vocab){.blob = BORROW(m->at[S_BLOB]),
                              .piece = BORROW(m->at[S_PIECES]),
                              .slot = BORROW(m->at[S_SLOTS]),
                              .blob_len = (size_t)h->bytes[S_BLOB],
                              .blob_cap = (size_t)h->bytes[S_BLOB],
                              .size = h->vocab_size,
                              .cap = h->vocab_size,
                              .mask = h->vocab_mask,
                              .used = h->vocab_used,
                              .n_model = h->n_model,
                              .key = h->vocab_key};
    t->bpe.merge = h->flags & HAS_MERGES ? BORROW(m->at[S_MERGES]) : NULL;
    t->bpe.edge = h->flags & HAS_EDGES ? BORROW(m->at[S_EDGES]) : NULL;
    t->bpe.mask = h->bpe_mask;
    t->bpe.used = h->bpe_used;
    t->bpe.edge_mask = h->edge_mask;
    t->bpe.key = h->bpe_key;
    memcpy(t->bpe.char_id, h->char_id, sizeof h->char_id);
    memcpy(t->bpe.byte_id, h->byte_id, sizeof h->byte_id);
    memcpy(t->uni.byte_id, h->uni_byte_id, sizeof h->uni_byte_id);
    for (int i = 0; i < 2; i++) {
        const struct trie_record *r = &h->trie[i];
        struct trie *to = i ? &t->normal : &t->raw;
        *to = (struct trie){.mask = r->mask,
                            .used = r->used,
                            .n_node = r->n_node,
                            .cap_node = r->n_node,
                            .secret = r->secret};
        for (int k = 0; k < 256; k++)
            to->first[k] = r->first[k] != 0;
        if (!r->n_node) continue;
        to->key = BORROW(m->at[S_TRIES + 3 * i]);
        to->node = BORROW(m->at[S_TRIES + 3 * i + 1]);
        to->what = BORROW(m->at[S_TRIES + 3 * i + 2]);
    }
    if (!(h->flags & IS_UNIGRAM)) return;
    t->uni.on = true;
    t->uni.byte_fallback = h->flags & BYTE_FALLBACK;
    t->uni.score = BORROW(m->at[S_SCORES]);
    t->uni.node = BORROW(m->at[S_NODES]);
    t->uni.cap = h->uni_cap;
    t->uni.n_node = h->n_node;
    t->uni.least = h->least;
}

int compiled_take(struct tok *t, const void *data, size_t n)
{
    struct image m = {0};
    TRY(find_sections(data, n, &m));
    TRY(check_vocab(&m));
    TRY(check_bpe(&m));
    TRY(check_unigram(&m));
    TRY(check_added(&m));
    TRY(take_added(t, &m));
    take_tables(t, &m);
    t->compiled = true;
    t->rest = (struct tok_list){m.at[S_REST], (size_t)m.h->bytes[S_REST]};
    return 0;
}

void compiled_drop(struct tok *t)
{
    if (!t->compiled) return;
    t->vocab = (struct vocab){0};
    t->bpe.merge = NULL;
    t->bpe.edge = NULL;
    t->uni.score = NULL;
    t->uni.node = NULL;
    t->raw = t->normal = (struct trie){0};
    cache_entry_close(&t->entry);
    t->compiled = false;
}

/* --- The user's cache directory --------------------------------------------------------------- */

void compiled_source(const char *path, const struct stamp *stamp, struct tok_source *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->begun = nanoseconds(&now);
    cache_sources_begin(&out->of, MARK);
    cache_sources_add(&out->of, path, stamp);
    cache_sources_end(&out->of, &out->key);
}

int compiled_find(struct tok *t, const struct tok_source *s)
{
    struct cache_entry e;
    if (!cache_find(&kind, &s->key, &e)) return 0;
    int err = compiled_take(t, e.map.data, e.size);
    if (err < 0) {
        cache_entry_close(&e);
        return err == ERR_NOMEM ? err : 0;
    }
    t->entry = e;
    return 1;
}

static int put_to_writer(void *ctx, const void *data, size_t n)
{
    return cache_write(ctx, data, n);
}

void compiled_keep(const struct tok *t, const struct tok_source *s, const char *rest, size_t n_rest)
{
    struct cache_writer *w;
    if (!cache_sources_settled(&kind, &s->of, s->begun) ||
        cache_write_begin(&kind, &s->key, t->vocab.blob_len + n_rest, &w) < 0)
        return;
    if (tok_compile(t, rest, n_rest, put_to_writer, w) < 0)
        cache_write_drop(w);
    else
        (void)cache_write_end(w);
}
