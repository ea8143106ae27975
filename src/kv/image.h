/* image.h - a sequence outside of a store: its description, and its rows as chunks.
 *
 * Chunks do not depend on the page ids, the block size or the tier of the store they come from.
 * A raw chunk has rows [row, row + n) of one group at all its sites, with 16 | row and n <= 16, n < 16 only at the end
 * of the sequence; a sealed one has whole tiles, of 16 rows or one tile, whichever is more; a state
 * after n rows is one chunk with row n.
 * Bytes, in the planes' dtypes, little-endian, without gaps:
 *   raw     [site][plane] then KV_STRIPS [head][dim][n], KV_ROWMAJOR [head][n][dim]
 *   sealed  [tile][site][plane] as the codec encodes them
 *   state   [site][plane][head * dim]
 * A sequence of n rows has the raw chunks that rows it keeps for ever lie in, those from the first row that its next
 * token reads raw, and the tiles from the first row that token reads. */
#pragma once
#include "kv/kv.h"

enum { KV_CHUNK_RAW, KV_CHUNK_SEALED };
struct kv_chunk {
    uint32_t group, form, row, n;
};
struct kv_image {
    uint32_t len, cross, n_turns;
    bool turn_open;
    bool foreign; /* rows were not computed from the tokens */
    struct kv_salt salt;
    const int32_t *tok;         /* [len] */
    const struct kv_turn *turn; /* [n_turns] */
    /* [n_groups][2] first row that was given at all, first row that was given raw */
    const uint32_t *unseen;
};
/* What kv_save gives, in ascending order (group, form, row). */
struct kv_sink {
    int (*image)(struct kv_sink *s, const struct kv_image *im); /* first; borrowed */
    int (*chunk)(struct kv_sink *s, const struct kv_chunk *c, const void *data, size_t bytes);
    /* 1: the sink has the chunk already, of another sequence that shares this page of the group and form; its bytes
     * are then not read.  0: give it.  May be NULL; holds while the store is not changed. */
    int (*shared)(struct kv_sink *s, const struct kv_chunk *c, uint32_t page);
};
/* What kv_load asks for. */
struct kv_source {
    /* Fills data with the bytes of the chunk, all of them or an error. */
    int (*chunk)(struct kv_source *s, const struct kv_chunk *c, void *data, size_t bytes);
    /* 1: *of, loaded before, has the same bytes in this chunk; 0: none is known.  May be NULL. */
    int (*same)(struct kv_source *s, const struct kv_chunk *c, kv_seq *of);
};
int kv_save(struct kv *kv, kv_seq s, struct kv_sink *sink);
/* A new sequence, or an error and no sequence.  The image may be any bytes: it is checked.  Checkpoints are not part of
 * an image: a group that forgets can be trimmed to less than what its next token needs only by computing again. */
int kv_load(struct kv *kv, const struct kv_image *im, struct kv_source *src, kv_seq *out);

/* Copies the bytes of the first n rows of a chunk out of the bytes of the whole chunk. */
void kv_chunk_cut(const struct kv *kv, const struct kv_chunk *whole, uint32_t n, const void *data,
                  void *out);

bool kv_foreign(const struct kv *kv, kv_seq s); /* as of its image */
uint32_t kv_n_groups(const struct kv *kv);
/* What must be equal for chunks of a group to mean the same: sites, planes, policy, codec.  One line. */
#define KV_GROUP_TEXT 768
void kv_group_text(const struct kv *kv, uint32_t group, char out[KV_GROUP_TEXT]);
