/* image.h - a sequence outside of a store: its description, and its rows as chunks.
 *
 * Chunks do not depend on the page ids, the block size or the tier of the store that they come
 * from. A raw chunk has rows [row, row + n) of one group at all its sites.  row is a multiple of 16
 * and n <= 16; n < 16 only at the end of the sequence.  A sealed chunk has whole tiles: 16 rows or
 * one tile, whichever is more.  A state after n rows is one chunk with row n.
 *
 * Bytes, in the dtypes of the planes, little-endian, without gaps:
 *   raw     [site][plane] then KV_STRIPS [head][dim][n], KV_ROWMAJOR [head][n][dim]
 *   sealed  [tile][site][plane] as the codec encodes them
 *   state   [site][plane][head * dim]
 *
 * A sequence has the rows that it keeps forever, those that its next token reads raw or sealed, and
 * those that each of its snapshots keeps for a token at its length.  Of a state it has the newest one
 * and those of its snapshots. */
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
    /* [n_groups][2] first row with contents, first row with raw contents */
    const uint32_t *unseen;
    const uint32_t *n_keeps; /* [n_groups] snapshots of each group */
    const uint32_t *keep;    /* lengths of the snapshots, group after group, ascending */
};
/* Limit of the snapshots of one group. */
#define KV_KEEPS 40u
/* Receives what kv_save writes, in ascending order (group, form, row). */
struct kv_sink {
    /* called first; the image is borrowed */
    int (*image)(struct kv_sink *s, const struct kv_image *im);
    int (*chunk)(struct kv_sink *s, const struct kv_chunk *c, const void *data, size_t bytes);
    /* Returns 1 if the sink already has the chunk, from another sequence that shares this page of
     * the group and form; kv_save then does not read the bytes.  Returns 0 if the sink wants the
     * chunk.  May be NULL.  The answer holds while the store does not change. */
    int (*shared)(struct kv_sink *s, const struct kv_chunk *c, uint32_t page);
};
/* Provides what kv_load asks for. */
struct kv_source {
    /* Fills data with the bytes of the chunk, all of them or an error. */
    int (*chunk)(struct kv_source *s, const struct kv_chunk *c, void *data, size_t bytes);
    /* Returns 1 if *of, loaded before, has the same bytes in this chunk; 0 if no such sequence is
     * known.  May be NULL. */
    int (*same)(struct kv_source *s, const struct kv_chunk *c, kv_seq *of);
};
int kv_save(struct kv *kv, kv_seq s, struct kv_sink *sink);
/* Loads a new sequence.  After an error no sequence exists.  The image may be any bytes; kv_load checks it.  The
 * newest snapshots are loaded, as many as there is room for. */
int kv_load(struct kv *kv, const struct kv_image *im, struct kv_source *src, kv_seq *out);

/* Returns the most rows that a chunk of the group has in this form. */
uint32_t kv_chunk_most(const struct kv *kv, uint32_t group, uint32_t form);
/* Copies the bytes of a chunk out of those of a longer one.  Raw chunks begin at the same row. */
void kv_chunk_cut(const struct kv *kv, const struct kv_chunk *whole, const struct kv_chunk *part,
                  const void *data, void *out);

/* True if the image of s had `foreign` set. */
bool kv_foreign(const struct kv *kv, kv_seq s);
uint32_t kv_n_groups(const struct kv *kv);
/* Describes in one line what must be equal for chunks of a group to have the same meaning: sites,
 * planes, policy and codec. */
#define KV_GROUP_TEXT 768
void kv_group_text(const struct kv *kv, uint32_t group, char out[KV_GROUP_TEXT]);
/* As kv_group_text, for a rung that the store may not have reached. */
void kv_group_text_at(const struct kv *kv, uint32_t group, uint32_t rung, char out[KV_GROUP_TEXT]);
