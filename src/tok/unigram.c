/* unigram.c - the Unigram model: a text is cut into the pieces with the highest sum of scores (Viterbi). A character that
 * is no piece costs the lowest score less UNK_PENALTY. As in the reference, adjacent unknown characters become one
 * unknown token or, with byte fallback, their bytes. The pieces are a trie, so a text takes at most its bytes times
 * UNI_MAX_PIECE steps. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNK_PENALTY 10.0

/* The best way to cut the text up to this byte: its score, and the id and bytes of its last piece (0: no way yet). */
struct uni_step {
    double score;
    int32_t id;
    uint32_t len;
};

void unigram_done(struct unigram *u)
{
    mem_free(u->score);
    mem_free(u->node);
}

int unigram_put(struct unigram *u, uint32_t id, double score, bool normal)
{
    if (!isfinite(score))
        return ERR(FORMAT, "tokenizer: the score of token %u is not a finite number", id);
    if (id >= u->cap) {
        uint32_t cap = MAX(MAX(u->cap * 2, id + 1), 1024u);
        double *p = mem_grow(u->score, cap, sizeof *p);
        if (!p) return ERR_NOMEM;
        memset(p + u->cap, 0, (cap - u->cap) * sizeof *p);
        u->score = p;
        u->cap = cap;
    }
    u->score[id] = score;
    if (normal) u->least = MIN(u->least, score);
    return 0;
}

/* --- the trie */
struct uni_piece {
    const char *s;
    size_t n;
    int32_t id;
};

static int by_text(const void *a, const void *b)
{
    const struct uni_piece *x = a, *y = b;
    int order = memcmp(x->s, y->s, MIN(x->n, y->n));
    return order ? order : x->n < y->n ? -1 : x->n > y->n;
}

static int64_t sort_pieces(const struct vocab *v, struct uni_piece *p)
{
    int64_t n = 0;
    for (uint32_t id = 0; id < v->size; id++) {
        size_t len = v->piece[id].len;
        if (!(v->piece[id].flags & VOC_MODEL) || len == 0) continue;
        if (len > UNI_MAX_PIECE)
            return ERR(LIMIT, "tokenizer: token %u has %zu bytes; a piece has at most %u", id, len,
                       UNI_MAX_PIECE);
        p[n++] = (struct uni_piece){vocab_text(v, id), len, (int32_t)id};
    }
    if (n) qsort(p, (size_t)n, sizeof *p, by_text);
    return n;
}

/* Adds a node for the pieces [from, to), which share its bytes.  split_node gives it children later. */
static int add_node(struct unigram *u, uint32_t *cap, uint8_t label, uint32_t from, uint32_t to)
{
    if (u->n_node == UNI_MAX_NODES)
        return ERR(LIMIT,
                   "tokenizer: the pieces of the vocabulary are too long; their trie has "
                   "more than %u nodes",
                   UNI_MAX_NODES);
    if (u->n_node == *cap) {
        uint32_t more = MAX(*cap * 2, 1024u);
        struct uni_node *p = mem_grow(u->node, more, sizeof *p);
        if (!p) return ERR_NOMEM;
        u->node = p;
        *cap = more;
    }
    u->node[u->n_node++] = (struct uni_node){.first = from, .id = (int32_t)to, .label = label};
    return 0;
}

/* Ends the piece of `depth` bytes at the node, if there is one, and makes a child for each next byte of the
 * others. */
static int split_node(struct unigram *u, uint32_t *cap, const struct uni_piece *p, uint32_t at,
                      size_t depth)
{
    uint32_t from = u->node[at].first, to = (uint32_t)u->node[at].id, end;
    int32_t id = -1;
    if (from < to && p[from].n == depth) id = p[from++].id;
    u->node[at].first = u->n_node;
    u->node[at].id = id;
    for (; from < to; from = end) {
        uint8_t label = (uint8_t)p[from].s[depth];
        for (end = from + 1; end < to && (uint8_t)p[end].s[depth] == label;)
            end++;
        TRY(add_node(u, cap, label, from, end));
        u->node[at].n++;
    }
    return 0;
}

static int build(struct unigram *u, const struct uni_piece *p, uint32_t n)
{
    uint32_t cap = 0, at = 0;
    TRY(add_node(u, &cap, 0, 0, n));
    for (size_t depth = 0; at < u->n_node; depth++) /* one level of the trie after another */
        for (uint32_t end = u->n_node; at < end; at++)
            TRY(split_node(u, &cap, p, at, depth));
    return 0;
}

int unigram_index(struct unigram *u, const struct vocab *v)
{
    static const char digits[] = "0123456789ABCDEF";
    struct uni_piece *p = mem_array(v->size, sizeof *p);
    if (!p) return ERR_NOMEM;
    int64_t n = sort_pieces(v, p);
    int e = n < 0 ? (int)n : build(u, p, (uint32_t)n);
    mem_free(p);
    if (!isfinite(u->least)) u->least = 0; /* no normal piece */
    for (unsigned i = 0; i < 256; i++) {
        char s[6] = {'<', '0', 'x', digits[i >> 4], digits[i & 15], '>'};
        u->byte_id[i] = vocab_find_model(v, s, 6);
    }
    return e;
}

static const struct uni_node *child(const struct unigram *u, const struct uni_node *n,
                                    uint8_t label)
{
    uint32_t lo = n->first, hi = n->first + n->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (u->node[mid].label < label)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n->first + n->n && u->node[lo].label == label ? &u->node[lo] : NULL;
}

/* --- encoding */
static bool better(struct uni_step *at, double score)
{
    return at->len == 0 || score > at->score;
}

/* Tries every piece that begins at s[from]; true if one of them is the whole character of `len` bytes. */
static bool try_pieces(const struct unigram *u, struct uni_step *path, const char *s, size_t n,
                       size_t from, size_t len)
{
    bool whole = false;
    const struct uni_node *at = u->node;
    for (size_t i = from; i < n && (at = child(u, at, (uint8_t)s[i])); i++) {
        if (at->id < 0) continue;
        double score = path[from].score + u->score[at->id];
        uint32_t n_piece = (uint32_t)(i + 1 - from);
        if (better(&path[i + 1], score)) path[i + 1] = (struct uni_step){score, at->id, n_piece};
        whole |= n_piece == len;
    }
    return whole;
}

static int find_path(const struct unigram *u, struct uni_step *path, const char *s, size_t n)
{
    memset(path, 0, (n + 1) * sizeof *path);
    for (size_t i = 0, len; i < n; i += len) {
        utf8_decode(s + i, n - i, &len);
        if (try_pieces(u, path, s, n, i, len)) continue;
        double score = path[i].score + (u->least - UNK_PENALTY);
        if (!better(&path[i + len], score)) continue;
        if (u->unk < 0)
            return ERR(FORMAT,
                       "tokenizer: \"%.*s\" is no token, and the tokenizer has no token "
                       "for unknown characters",
                       (int)len, s + i);
        path[i + len] = (struct uni_step){score, u->unk, (uint32_t)len};
    }
    return 0;
}

/* Moves each step of the best path from the end of its piece to the beginning, so that the path can be read
 * forwards. */
static void turn_path(struct uni_step *path, size_t n)
{
    struct uni_step now = path[n];
    for (size_t at = n; at > 0;) {
        at -= now.len;
        struct uni_step before = path[at];
        path[at] = now;
        now = before;
    }
}

static int put_unknown(const struct unigram *u, const struct vocab *v, struct encode_scratch *w,
                       const char *s, size_t n, struct ids *out)
{
    size_t at = (size_t)(s - w->text.data);
    if (n == 0) return 0;
    int32_t id = vocab_find_model(v, s, n);
    bool bytes = id < 0 && u->byte_fallback;
    for (size_t i = 0; bytes && i < n; i++)
        bytes = u->byte_id[(uint8_t)s[i]] >= 0;
    for (size_t i = 0; bytes && i < n; i++)
        TRY(work_id(w, out, u->byte_id[(uint8_t)s[i]], at + i));
    return bytes ? 0 : work_id(w, out, id >= 0 ? id : u->unk, at);
}

int unigram_encode(const struct unigram *u, const struct vocab *v, struct encode_scratch *w,
                   const char *s, size_t n, struct ids *out)
{
    if (n == 0) return 0;
    if (n >= w->n_path) {
        size_t cap = MAX(n + 1, w->n_path * 2);
        struct uni_step *p = mem_grow(w->path, cap, sizeof *p);
        if (!p) return ERR_NOMEM;
        w->path = p;
        w->n_path = cap;
    }
    TRY(find_path(u, w->path, s, n));
    turn_path(w->path, n);
    size_t unknown = 0; /* where the run of unknown characters before `at` begins */
    for (size_t at = 0; at < n; at += w->path[at].len) {
        if (w->path[at].id == u->unk) continue;
        TRY(put_unknown(u, v, w, s + unknown, at - unknown, out));
        TRY(work_id(w, out, w->path[at].id, (size_t)(s - w->text.data) + at));
        unknown = at + w->path[at].len;
    }
    return put_unknown(u, v, w, s + unknown, n - unknown, out);
}
