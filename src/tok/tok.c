/* tok.c - the object: its life, and what its ids and named tokens are.  tok_build.c makes it, tok_encode.c encodes with it,
 * detokenize.c decodes. */
#include "tok/tok_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    if (t->side) t->drop_side(t->side);
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

int added_by_id(const void *a, const void *b)
{
    int32_t x = ((const struct added *)a)->id, y = ((const struct added *)b)->id;
    return x < y ? -1 : x > y;
}

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
    const struct added *a = bsearch(&key, t->added, t->n_added, sizeof key, added_by_id);
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
