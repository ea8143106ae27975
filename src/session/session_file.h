/* session_file.h - the format of saved sessions (docs/SESSION-FORMAT.md), over any source of bytes.  A head of
 * SESSION_DATA bytes has two equal slots that point to the manifest.  Behind it are chunks and manifests in the
 * order of the saves.  The newest manifest names the live chunks.  SHA-256 covers all live bytes. */
#pragma once
#include "base/digest.h"
#include "base/json.h"
#include "kv/image.h"

#define SESSION_MAGIC   "KVIKSESS"
#define SESSION_VERSION 2u    /* version 1 has no snapshots */
#define SESSION_DIGESTS 4u    /* flag of a sequence: its salt has digests */
#define SESSION_KEEPS   8u    /* flag of a sequence: it has snapshots */
#define SESSION_OWNER   16u   /* flag of a sequence: its salt has an owner */
#define SESSION_DATA    1024u /* place of the first chunk */
#define SESSION_SLOT    128u  /* bytes of a slot */
/* Place of the first slot, and distance of the second, which is in another sector. */
#define SESSION_SLOT_AT   64u
#define SESSION_SLOT_STEP 512u

/* Limits for every file, whoever wrote it. */
#define SESSION_META_MOST     ((uint32_t)1 << 20) /* bytes of the description */
#define SESSION_NOTE_MOST     ((uint32_t)64 << 20)
#define SESSION_SEQS_MOST     65536u
#define SESSION_MANIFEST_MOST ((uint64_t)256 << 20)
/* A manifest above SESSION_SPARSE_FREE bytes must take at least one byte on the disk for every SESSION_SPARSE
 * bytes of its length.  A save writes all of a manifest.  A sparse copy (cp --sparse) only loses pages of zeros,
 * and lists of digests have none. */
#define SESSION_SPARSE      16u
#define SESSION_SPARSE_FREE ((uint64_t)4 << 20)

/* Limits of the reader; a file with more is refused before its arrays are read */
struct session_need {
    uint32_t len, seqs; /* tokens of a sequence; sequences */
};
struct session_io {
    int (*read)(struct session_io *io, uint64_t at, void *out, size_t n);
    uint64_t size;
    const char *what; /* name of the source in errors */
    /* NULL: no limits, as for a description */
    const struct session_need *need;
    /* returns how many of n bytes take space on the disk; NULL: all do */
    uint64_t (*held)(struct session_io *io, uint64_t at, uint64_t n);
};
struct session_part { /* a chunk: its place in the file and its digest */
    struct kv_chunk c;
    uint64_t at, bytes;
    uint8_t digest[DIGEST_BYTES];
};
struct session_seq {
    struct kv_image im; /* points to the arrays below */
    int32_t *tok;       /* owned, like all arrays here */
    struct kv_turn *turn;
    uint32_t *unseen;
    uint32_t *keep;            /* [n_groups] numbers of snapshots, then their lengths */
    struct session_part *part; /* [n_parts] ascending */
    uint32_t n_parts, cap_parts;
};
struct session {
    json_t *meta; /* owned; an object */
    char *note;   /* owned; ends in NUL */
    size_t n_note;
    uint32_t n_groups, n_seqs;
    struct session_seq *seq;
    uint64_t saves, manifest_at, manifest_bytes, end; /* end: of the live bytes */
    uint64_t live;   /* number of live bytes; a chunk that sequences share counts once */
    uint32_t blocks; /* live chunks */
    uint32_t version;
    int slot;                     /* the slot that points to this state */
    bool both;                    /* both slots point to this state */
    bool interrupted;             /* a later save has begun and did not finish */
    uint8_t digest[DIGEST_BYTES]; /* digest of the manifest, which covers all live bytes */
};
/* Reads head and manifest, but no chunks.  ERR_FORMAT: damaged, or not a session; ERR_UNSUPPORTED: of a newer
 * version; ERR_LIMIT: more than io->need allows. */
int session_read(struct session_io *io, struct session *out);
void session_done(struct session *s);
/* Returns 1 if the bytes begin like a session, 0 if not. */
int session_is(struct session_io *io);
/* Returns the part that begins at the row of the chunk, or that contains all its tiles; NULL: there is none. */
const struct session_part *session_find(const struct session_seq *s, const struct kv_chunk *c);
/* Cuts the image to its first `len` rows.  The load tells whether the chunks are enough for that length. */
void session_cut(struct session_seq *q, uint32_t n_groups, uint32_t len);
/* Lists the live chunks in the order of the file, each once even if several sequences name it.  The caller frees
 * the array. */
int session_blocks(const struct session *s, const struct session_part ***out, size_t *n);
/* Reads the bytes of a part and checks its digest. */
int session_part_read(struct session_io *io, const struct session_part *p, void *data);
/* Reads a part of any size piece by piece and calls fn (or NULL) with each piece.  The digest is checked after the
 * last piece. */
int session_part_each(struct session_io *io, const struct session_part *p,
                      int (*fn)(void *ctx, uint64_t at, const void *data, size_t n), void *ctx);

/* Lets the image of a sequence point to the sequence's own arrays. */
static inline void session_point(const struct session *s, struct session_seq *q)
{
    q->im.n_keeps = q->keep;
    q->im.keep = q->keep + s->n_groups;
    q->im.tok = q->tok;
    q->im.turn = q->turn;
    q->im.unseen = q->unseen;
}
/* Copies the image into a new sequence of s, whose n_groups is set. */
int session_add_seq(struct session *s, const struct kv_image *im);
int session_add_part(struct session_seq *q, const struct session_part *p);
/* Removes the last sequence. */
void session_drop_seq(struct session *s);
/* Encodes the manifest (mem_free). */
int session_encode(const struct session *s, char **out, size_t *n);
void session_head(uint8_t out[SESSION_DATA]); /* without slots */
void session_slot(const struct session *s, const uint8_t digest[DIGEST_BYTES],
                  uint8_t out[SESSION_SLOT]);

/* For fuzzing: digests are not checked, so that the code behind the check is reached. */
extern bool session_trust;
