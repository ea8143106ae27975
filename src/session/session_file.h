/* session_file.h - the format of saved sessions (docs/SESSION-FORMAT.md), over any place with bytes.
 *
 * A head of SESSION_DATA bytes with two equal slots that name the manifest, then chunks and manifests as they were
 * appended; the newest manifest names the chunks that count.  Everything that counts is covered by SHA-256. */
#pragma once
#include "base/digest.h"
#include "base/json.h"
#include "kv/image.h"

#define SESSION_MAGIC   "KVIKSESS"
#define SESSION_VERSION 1u
#define SESSION_DATA    1024u /* where chunks begin */
#define SESSION_SLOT    128u  /* bytes of a slot, */
#define SESSION_SLOT_AT                                                                            \
    64u /* where the first lies; the other SESSION_SLOT_STEP further, in another sector */
#define SESSION_SLOT_STEP 512u

struct session_io {
    int (*read)(struct session_io *io, uint64_t at, void *out, size_t n);
    uint64_t size;
    const char *what; /* for sentences */
};
struct session_part { /* a chunk, where it lies, and what it must hash to */
    struct kv_chunk c;
    uint64_t at, bytes;
    uint8_t digest[DIGEST_BYTES];
};
struct session_seq {
    struct kv_image im; /* points to the arrays below */
    int32_t *tok;       /* owned, as all arrays here */
    struct kv_turn *turn;
    uint32_t *unseen;
    struct session_part *part; /* [n_parts] ascending */
    uint32_t n_parts, cap_parts;
};
struct session {
    json_t *meta; /* owned; an object */
    char *note;   /* owned; NUL behind it */
    size_t n_note;
    uint32_t n_groups, n_seqs;
    struct session_seq *seq;
    uint64_t saves, manifest_at, manifest_bytes, end; /* end: of all that counts */
    uint64_t live;    /* bytes that count, chunks shared by sequences once */
    uint32_t blocks;  /* such chunks */
    int slot;         /* a slot that names this state */
    bool both;        /* the other one does, too */
    bool interrupted; /* a save was begun after this one and did not end */
};
/* ERR_FORMAT: damaged or not a session; ERR_UNSUPPORTED: of a newer version.  Chunks are not read. */
int session_read(struct session_io *io, struct session *out);
void session_done(struct session *s);
int session_is(struct session_io *io); /* 1: begins like one, 0: does not */
const struct session_part *session_find(const struct session_seq *s, const struct kv_chunk *c);
/* As it was when it had `len` rows, as far as what it holds allows that. */
void session_cut(struct session_seq *q, uint32_t n_groups, uint32_t len);
/* The bytes of a part, compared with its digest. */
/* The blocks that count by place, each once though several sequences name it; the caller frees the array. */
int session_blocks(const struct session *s, const struct session_part ***out, size_t *n);
int session_part_read(struct session_io *io, const struct session_part *p, void *data);

/* Copies the image into a new sequence of s; n_groups is set by the caller. */
int session_add_seq(struct session *s, const struct kv_image *im);
int session_add_part(struct session_seq *q, const struct session_part *p);
/* The manifest as bytes (mem_free). */
int session_encode(const struct session *s, char **out, size_t *n);
void session_head(uint8_t out[SESSION_DATA]); /* without slots */
void session_slot(const struct session *s, const uint8_t digest[DIGEST_BYTES],
                  uint8_t out[SESSION_SLOT]);

extern bool session_trust; /* tests: digests are not compared, so that all behind them is reached */
