/* shared_block.h - rows of some tokens as a value of a shared store: what a keeper (src/shared) keeps.
 *
 * A text is cut into blocks of as many tokens each.  The key of a block follows from the key of the block before and its
 * tokens; the chain begins with what rows depend on, and the salt.  So whoever has a text knows the keys of all its blocks, and equal
 * keys mean equal rows.
 *
 * Two kinds of values.  BLOCK_ROWS are the rows of the block's tokens, of groups that keep all rows.  BLOCK_END is what a text that
 * ends with the block resumes from, of groups that forget: the rows of a window, or a state.
 *
 * Bytes, little-endian:
 *   "KVIKROWS"  u32 version, kind, first row, rows, parts, 0  key[32]
 *   the bytes of the parts, which are chunks (kv/image.h), one behind the other
 *   for each part: u32 group, form, row, rows  u64 bytes
 *   SHA-256 of all before */
#pragma once
#include "base/buf.h"
#include "base/digest.h"
#include "kv/image.h"

#define BLOCK_MAGIC   "KVIKROWS"
#define BLOCK_VERSION 1u
#define BLOCK_HEAD    64u
#define BLOCK_PART    24u
#define BLOCK_TOKENS  128u                /* or the least multiple of it that has whole tiles */
#define BLOCK_MOST    ((size_t)256 << 20) /* bytes of a value */
enum { BLOCK_ROWS, BLOCK_END };

/* Computes the key of the next block from that of the block before. */
void block_key(const uint8_t before[DIGEST_BYTES], const int32_t *tok, uint32_t n,
               uint8_t out[DIGEST_BYTES]);
/* Computes the key of the value of kind BLOCK_END of a block. */
void block_end_key(const uint8_t block[DIGEST_BYTES], uint8_t out[DIGEST_BYTES]);

/* A value that was checked. */
struct block {
    uint32_t kind, first, rows, n_parts;
    const unsigned char *data, *part; /* borrowed */
};
/* Checks any bytes: ERR_FORMAT, or a block of that key and kind whose parts are in order and within its rows. */
int block_read(const void *data, size_t n, const uint8_t key[DIGEST_BYTES], uint32_t kind,
               struct block *out);
/* Returns the bytes of a chunk, all `bytes` of them, or NULL. */
const void *block_find(const struct block *b, const struct kv_chunk *c, size_t bytes);

/* A value that is being made. */
struct block_build {
    struct buf data, part;
    uint32_t kind, first, rows, n_parts;
    uint8_t key[DIGEST_BYTES];
};
void block_begin(struct block_build *b, uint32_t kind, uint32_t first, uint32_t rows,
                 const uint8_t key[DIGEST_BYTES]);
int block_add(struct block_build *b, const struct kv_chunk *c, const void *data, size_t n);
/* Completes the value, which is then b->data. */
int block_finish(struct block_build *b);
void block_done(struct block_build *b);

/* For fuzzing: digests are not checked, so that the code behind the check is reached. */
extern bool block_trust;
