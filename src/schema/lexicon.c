/* lexicon.c - the bytes of a vocabulary as a trie, stored in the order of a depth-first walk.  A walk is then one
 * pass over an array, and one jump skips a subtree that cannot follow. */
#include "base/buf.h"
#include "base/utf8.h"
#include "schema/schema_int.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN_MOST = 4096 }; /* bytes; longer tokens are left out, so they are never allowed */
#define TEXT_MOST ((size_t)1 << 30)

static void drop_trie(struct trie_of_tokens *t)
{
    mem_free(t->node);
    mem_free(t->end);
}

void lexicon_drop(struct lexicon *l)
{
    if (!l) return;
    drop_trie(&l->all);
    drop_trie(&l->rest);
    mem_free(l->plain);
    mem_free(l->text);
    mem_free(l->at);
    mem_free(l);
}

bool lexicon_has(const struct lexicon *l, int32_t id)
{
    return id >= 0 && (uint32_t)id < l->n_tokens && l->at[id + 1] > l->at[id];
}

static int read_texts(struct lexicon *l, lexicon_bytes bytes, void *ctx)
{
    struct buf text;
    int e = 0;
    l->at = mem_array((size_t)l->n_tokens + 1, sizeof *l->at);
    if (!l->at) return ERR_NOMEM;
    buf_init(&text, TEXT_MOST);
    for (uint32_t i = 0; e >= 0 && i < l->n_tokens; i++) {
        const char *s = "";
        size_t n = 0;
        e = bytes(ctx, (int32_t)i, &s, &n);
        if (e >= 0 && n <= TOKEN_MOST) e = buf_append(&text, s, n);
        l->at[i + 1] = (uint32_t)text.len;
    }
    l->text = text.data;
    return e;
}

struct entry {
    const char *s;
    uint32_t n;
    int32_t id;
};

static int by_text(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = memcmp(x->s, y->s, MIN(x->n, y->n));
    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static uint32_t common_bytes(const struct entry *a, const struct entry *b)
{
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->s[n] == b->s[n])
        n++;
    return n;
}

/* Returns the number of characters of a token if it is plain, else 0. */
static uint32_t plain(const struct entry *v)
{
    uint32_t n = 0;
    size_t k;
    for (uint32_t at = 0; at < v->n; at += (uint32_t)k, n++) {
        uint8_t c = (uint8_t)v->s[at];
        if (c < 0x20 || c == '"' || c == '\\' || utf8_decode(v->s + at, v->n - at, &k) == UTF8_BAD)
            return 0;
    }
    return n <= PLAIN_MOST ? n : 0;
}

/* Makes the nodes of the sorted entries.  open[d]: the node of depth d on the way to the current entry. */
static void make_nodes(struct trie_of_tokens *t, const struct entry *v, uint32_t n, uint32_t *open)
{
    uint32_t depth = 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = i ? common_bytes(&v[i - 1], &v[i]) : 0;
        for (; depth > same; depth--)
            t->node[open[depth]].skip = at;
        for (; depth < v[i].n; at++) {
            t->node[at] = (struct lexeme){
                .first = i, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)v[i].s[depth]};
            open[++depth] = at;
        }
        if (t->node[open[depth]].ends < UINT8_MAX) t->node[open[depth]].ends++;
        t->end[i] = v[i].id;
    }
    for (; depth > 0; depth--)
        t->node[open[depth]].skip = at;
    t->n = at;
    t->node[at] = (struct lexeme){.skip = at, .first = n};
}

static int make_trie(struct trie_of_tokens *t, const struct entry *v, uint32_t n, uint32_t *open)
{
    size_t nodes = 1;
    for (uint32_t i = 0; i < n; i++)
        nodes += v[i].n - (i ? common_bytes(&v[i - 1], &v[i]) : 0);
    t->node = mem_array(nodes, sizeof *t->node);
    t->end = mem_array(MAX(n, 1u), sizeof *t->end);
    if (!t->node || !t->end) return ERR_NOMEM;
    make_nodes(t, v, n, open);
    return 0;
}

static int make(struct lexicon *l, struct entry *v, uint32_t *open)
{
    uint32_t n = 0, rest = 0;
    for (uint32_t i = 0; i < l->n_tokens; i++)
        if (lexicon_has(l, (int32_t)i))
            v[n++] = (struct entry){l->text + l->at[i], l->at[i + 1] - l->at[i], (int32_t)i};
    if (n) qsort(v, n, sizeof *v, by_text);
    TRY(make_trie(&l->all, v, n, open));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = plain(&v[i]), id = (uint32_t)v[i].id;
        l->longest = MAX(l->longest, v[i].n);
        if (k)
            l->plain[(k - 1) * l->words + id / 64] |= (uint64_t)1 << (id % 64);
        else
            v[rest++] = v[i];
    }
    for (uint32_t i = l->words; i < PLAIN_MOST * l->words; i++)
        l->plain[i] |= l->plain[i - l->words];
    return make_trie(&l->rest, v, rest, open);
}

int lexicon_new(uint32_t n_tokens, lexicon_bytes bytes, void *ctx, struct lexicon **out)
{
    struct lexicon *l = mem_alloc(sizeof *l);
    if (!l) return ERR_NOMEM;
    l->n_tokens = n_tokens;
    l->words = n_tokens / 64 + 1;
    struct entry *v = mem_array(MAX(n_tokens, 1u), sizeof *v);
    uint32_t *open = mem_array(TOKEN_MOST + 1, sizeof *open);
    l->plain = mem_array((size_t)PLAIN_MOST * l->words, sizeof *l->plain);
    int e = v && open && l->plain ? read_texts(l, bytes, ctx) : ERR_NOMEM;
    if (e >= 0) e = make(l, v, open);
    mem_free(v);
    mem_free(open);
    if (e < 0)
        lexicon_drop(l);
    else
        *out = l;
    return e;
}
