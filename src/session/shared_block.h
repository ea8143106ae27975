/* shared_block.h - rows of some tokens as a value of a shared store, which a keeper (src/shared) holds.
 *
 * A text is cut into blocks with the same number of tokens.  The key of a block is computed from the key of the
 * block before it and from its tokens.  The first key is computed from all that the rows depend on (model, compute
 * mode, groups) and from the salt.  So the keys of all blocks follow from the text, and equal keys mean equal rows.
 *
 * There are two kinds of values.  BLOCK_ROWS has the rows of the block's tokens, of the groups that keep all rows.
 * BLOCK_END has what a text that ends with the block resumes from, of the groups that forget rows: the rows of a
 * window, or a state.
 *
 * Bytes, little-endian:
 *   "KVIKROWS"  u32 version, kind, first row, rows, parts, 0  key[32]
 *   the bytes of the parts, which are chunks (kv/image.h), one after the other
 *   for each part: u32 group, form, row, rows  u64 bytes
 *   SHA-256 of all bytes before it */
#pragma once
#include "base/buf.h"
#include "base/digest.h"
#include "kv/image.h"

#define BLOCK_MAGIC   "KVIKROWS"
#define BLOCK_VERSION 1u
#define BLOCK_HEAD    64u
#define BLOCK_PART    24u
/* or its least multiple that is a whole number of tiles */
#define BLOCK_TOKENS 128u
#define BLOCK_MOST   ((size_t)256 << 20) /* most bytes of a value */
enum { BLOCK_ROWS, BLOCK_END };

/* Computes the key of the next block from that of the block before. */
void block_key(const uint8_t before[DIGEST_BYTES], const int32_t *tok, uint32_t n,
               uint8_t out[DIGEST_BYTES]);
/* Computes the key of the BLOCK_END value from the key of its block. */
void block_end_key(const uint8_t block[DIGEST_BYTES], uint8_t out[DIGEST_BYTES]);

/* A value that was read and checked. */
struct block {
    uint32_t kind, first, rows, n_parts;
    const unsigned char *data, *part; /* borrowed */
};
/* Checks a value, which may be any bytes.  Returns 0 if it is a block with that key and kind whose parts are in
 * order and inside its rows, else ERR_FORMAT. */
int block_read(const void *data, size_t n, const uint8_t key[DIGEST_BYTES], uint32_t kind,
               struct block *out);
/* Returns the bytes of a chunk, or NULL if the value does not have exactly this chunk with `bytes` bytes. */
const void *block_find(const struct block *b, const struct kv_chunk *c, size_t bytes);

/* A value that is being built. */
struct block_build {
    struct buf data, part;
    uint32_t kind, first, rows, n_parts;
    uint8_t key[DIGEST_BYTES];
};
void block_begin(struct block_build *b, uint32_t kind, uint32_t first, uint32_t rows,
                 const uint8_t key[DIGEST_BYTES]);
int block_add(struct block_build *b, const struct kv_chunk *c, const void *data, size_t n);
/* Completes the value; its bytes are then in b->data. */
int block_finish(struct block_build *b);
void block_done(struct block_build *b);

/* For fuzzing: digests are not checked, so that the code behind the check is reached. */
extern bool block_trust;
