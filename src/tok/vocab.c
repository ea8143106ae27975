/* vocab.c - the vocabulary: every token text once in one blob, found by id through an array and by
 * text through an open-addressing table of ids.  Lengths are size_t from end to end. */
#include "tok/tok_int.h"

#include <string.h>

static uint32_t hash_piece(const struct vocab *v, const char *s, size_t n)
{
    return (uint32_t)hash_text(&v->key, s, n);
}

void vocab_done(struct vocab *v)
{
    mem_free(v->blob);
    mem_free(v->piece);
    mem_free(v->slot);
    *v = (struct vocab){0};
}

static int grow_slots(struct vocab *v)
{
    uint32_t n = v->slot ? (v->mask + 1) * 2 : 1024;
    uint32_t *slot = mem_array(n, sizeof *slot);
    if (!slot) return ERR_NOMEM;
    if (!v->slot) v->key = hash_key_new();
    for (uint32_t id = 0; id < v->size; id++) {
        if (!v->piece[id].flags) continue;
        uint32_t i = hash_piece(v, vocab_text(v, id), v->piece[id].len) & (n - 1);
        while (slot[i])
            i = (i + 1) & (n - 1);
        slot[i] = id + 1;
    }
    mem_free(v->slot);
    v->slot = slot;
    v->mask = n - 1;
    return 0;
}

static int grow_pieces(struct vocab *v, uint32_t id)
{
    if (id < v->cap) return 0;
    uint32_t cap = MAX(MAX(v->cap * 2, id + 1), 1024u);
    struct voc_piece *p = mem_grow(v->piece, cap, sizeof *p);
    if (!p) return ERR_NOMEM;
    memset(p + v->cap, 0, (cap - v->cap) * sizeof *p);
    v->piece = p;
    v->cap = cap;
    return 0;
}

static int grow_blob(struct vocab *v, size_t n)
{
    size_t need;
    if (!ck_add(v->blob_len, n, &need))
        return ERR(LIMIT,
                   "tokenizer: the texts of the vocabulary, %zu bytes and %zu more, exceed %zu",
                   v->blob_len, n, (size_t)SIZE_MAX);
    if (v->blob && need <= v->blob_cap) return 0;
    size_t cap = MAX(MAX(v->blob_cap * 2, need), (size_t)65536);
    char *p = mem_grow(v->blob, cap, 1);
    if (!p) return ERR_NOMEM;
    v->blob = p;
    v->blob_cap = cap;
    return 0;
}

int32_t vocab_find(const struct vocab *v, const char *s, size_t n)
{
    if (!v->slot) return -1;
    for (uint32_t i = hash_piece(v, s, n) & v->mask; v->slot[i]; i = (i + 1) & v->mask) {
        uint32_t id = v->slot[i] - 1;
        if (v->piece[id].len == n && memcmp(vocab_text(v, id), s, n) == 0) return (int32_t)id;
    }
    return -1;
}

int32_t vocab_find_model(const struct vocab *v, const char *s, size_t n)
{
    int32_t id = vocab_find(v, s, n);
    return id >= 0 && v->piece[id].flags & VOC_MODEL ? id : -1;
}

int vocab_put(struct vocab *v, const char *s, size_t n, uint32_t id, unsigned flags)
{
    if (id >= TOK_MAX_ID)
        return ERR(LIMIT, "tokenizer: token id %u is over %u", id, TOK_MAX_ID - 1);
    if (id < v->size && v->piece[id].flags)
        return ERR(FORMAT, "tokenizer: token id %u is given twice", id);
    if (vocab_find(v, s, n) >= 0)
        return ERR(FORMAT, "tokenizer: token \"%.*s\" is given twice", (int)MIN(n, 60), s);
    if (!v->slot || v->used >= (v->mask + 1) / 2) TRY(grow_slots(v));
    TRY(grow_pieces(v, id));
    TRY(grow_blob(v, n));
    if (n) memcpy(v->blob + v->blob_len, s, n);
    v->piece[id] = (struct voc_piece){.off = v->blob_len, .len = n, .flags = (uint8_t)flags};
    v->blob_len += n;
    uint32_t i = hash_piece(v, s, n) & v->mask;
    while (v->slot[i])
        i = (i + 1) & v->mask;
    v->slot[i] = id + 1;
    v->used++;
    v->size = MAX(v->size, id + 1);
    if (flags & VOC_MODEL) v->n_model++;
    return 0;
}
