/* session_file.h - the format of saved sessions (docs/SESSION-FORMAT.md), over any source of bytes.
 *
 * A head of SESSION_DATA bytes has two equal slots that point to the manifest.  Behind it lie chunks and manifests in the
 * order of the saves.  The newest manifest names the live chunks.  All live bytes are covered by SHA-256. */
#pragma once
#include "base/digest.h"
#include "base/json.h"
#include "kv/image.h"

#define SESSION_MAGIC   "KVIKSESS"
#define SESSION_VERSION 1u
#define SESSION_DIGESTS 4u    /* flag of a sequence: its salt has digests */
#define SESSION_DATA    1024u /* where chunks begin */
#define SESSION_SLOT    128u  /* bytes of a slot */
/* The first slot, and the distance to the second, which lies in another sector. */
#define SESSION_SLOT_AT   64u
#define SESSION_SLOT_STEP 512u

struct session_io {
    int (*read)(struct session_io *io, uint64_t at, void *out, size_t n);
    uint64_t size;
    const char *what; /* the name in errors */
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
    uint64_t live;    /* live bytes; a chunk that sequences share counts once */
    uint32_t blocks;  /* live chunks */
    int slot;         /* the slot that points to this state */
    bool both;        /* both slots do */
    bool interrupted; /* a later save began and did not finish */
};
/* Reads head and manifest, no chunks.  ERR_FORMAT: damaged or not a session; ERR_UNSUPPORTED: of a newer version. */
int session_read(struct session_io *io, struct session *out);
void session_done(struct session *s);
/* Returns 1 if the bytes begin like a session, 0 if not. */
int session_is(struct session_io *io);
/* Returns the part of a chunk that begins at the same row, or NULL. */
const struct session_part *session_find(const struct session_seq *s, const struct kv_chunk *c);
/* Cuts the image to its first `len` rows.  Whether their chunks suffice shows when they are loaded. */
void session_cut(struct session_seq *q, uint32_t n_groups, uint32_t len);
/* Lists the live chunks in the order of the file, each once though several sequences name it.  The caller frees the array. */
int session_blocks(const struct session *s, const struct session_part ***out, size_t *n);
/* Reads the bytes of a part and compares them with its digest. */
int session_part_read(struct session_io *io, const struct session_part *p, void *data);

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

/* For fuzzing: digests are not compared, so that the code behind them is reached. */
extern bool session_trust;
