/* lexicon.c - the bytes of a vocabulary as a trie in the order of a depth-first walk, so that a walk is one pass over an
 * array and a subtree that cannot follow is skipped by one jump. */
#include "base/buf.h"
#include "schema/schema_int.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN_MOST = 4096 }; /* bytes; longer tokens are left out, and so never allowed */
#define TEXT_MOST ((size_t)1 << 30)

void lexicon_drop(struct lexicon *l)
{
    if (!l) return;
    mem_free(l->node);
    mem_free(l->end);
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

static uint32_t common(const struct entry *a, const struct entry *b)
{
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->s[n] == b->s[n])
        n++;
    return n;
}

/* Makes the nodes of sorted entries.  open[d]: the node of depth d that is under way. */
static void make_nodes(struct lexicon *l, const struct entry *v, uint32_t n, uint32_t *open)
{
    uint32_t depth = 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = i ? common(&v[i - 1], &v[i]) : 0;
        for (; depth > same; depth--)
            l->node[open[depth]].skip = at;
        for (; depth < v[i].n; at++) {
            l->node[at] = (struct lexeme){
                .first = i, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)v[i].s[depth]};
            open[++depth] = at;
        }
        if (l->node[open[depth]].ends < UINT8_MAX) l->node[open[depth]].ends++;
        l->end[i] = v[i].id;
    }
    for (; depth > 0; depth--)
        l->node[open[depth]].skip = at;
    l->n = at;
    l->node[at] = (struct lexeme){.skip = at, .first = n};
}

static int make(struct lexicon *l)
{
    uint32_t n = 0, nodes = 0;
    struct entry *v = mem_array(MAX(l->n_tokens, 1u), sizeof *v);
    uint32_t *open = mem_array(TOKEN_MOST + 1, sizeof *open);
    if (v && open) {
        for (uint32_t i = 0; i < l->n_tokens; i++)
            if (lexicon_has(l, (int32_t)i))
                v[n++] = (struct entry){l->text + l->at[i], l->at[i + 1] - l->at[i], (int32_t)i};
        if (n) qsort(v, n, sizeof *v, by_text);
        for (uint32_t i = 0; i < n; i++) {
            nodes += v[i].n - (i ? common(&v[i - 1], &v[i]) : 0);
            l->longest = MAX(l->longest, v[i].n);
        }
        l->node = mem_array((size_t)nodes + 1, sizeof *l->node);
        l->end = mem_array(MAX(n, 1u), sizeof *l->end);
    }
    bool all = l->node && l->end;
    if (all) make_nodes(l, v, n, open);
    mem_free(v);
    mem_free(open);
    return all ? 0 : ERR_NOMEM;
}

int lexicon_new(uint32_t n_tokens, lexicon_bytes bytes, void *ctx, struct lexicon **out)
{
    struct lexicon *l = mem_alloc(sizeof *l);
    if (!l) return ERR_NOMEM;
    l->n_tokens = n_tokens;
    int e = read_texts(l, bytes, ctx);
    if (e >= 0) e = make(l);
    if (e < 0)
        lexicon_drop(l);
    else
        *out = l;
    return e;
}
