/* sync.h - reuses the cached tokens of a caller's sequence: finds how many of the given tokens are cached and
 * which must be computed, and undoes everything if the call fails.  Only sync.c compares a conversation with the
 * cache. */
#pragma once
#include "kvik.h"
#include "model/model.h"
#include "tok/tok.h"

struct sync {
    kv_seq seq;          /* 0: no sync is open */
    struct kv_mark mark; /* undoes the crop */
    uint32_t have;       /* ids[have, n) must be computed */
    /* rows that the sequence kept: `have`, and for a crop the rows before the ids */
    uint32_t kept;
    uint32_t len;      /* rows of the sequence before the call */
    bool regime;       /* the rotary frequencies change, so no row can stay */
    kvik_sync *report; /* owned; the caller may take it */
};
struct sync_ids {
    const int32_t *id;
    uint32_t n;
    /* most tokens that the caller appends after the ids until sync_end */
    uint32_t more;
    uint32_t pad; /* masked columns before the ids */
    bool whole;   /* all ids may be reused; else the last id is always computed */
    bool append;  /* the ids follow the cached tokens instead of repeating them */
};
/* Crops `seq` to the cached tokens that the ids begin with.  An empty sequence gets a cached prefix from the
 * index.  tok: for the texts of the report, or NULL.  After an error the sequence is unchanged, and no sync is
 * open. */
int sync_begin(struct exec *x, const struct tok *tok, kv_seq seq, const struct sync_ids *ids,
               struct sync *out);
/* Notes that a sequence that was empty has got the first `have` of n ids by reference. */
void sync_match(struct sync *s, uint32_t n, uint32_t have);
/* Counts the tokens, at most n, that are equal at the start of both arrays. */
uint32_t sync_common(const int32_t *a, const int32_t *b, uint32_t n);
/* Ends a sync after the tokens were computed, and frees everything that `s` owns.  failed: restores the sequence. */
void sync_end(struct exec *x, struct sync *s, bool failed);
/* Notes the last generated token, which is not yet appended.  If the ids of a crop can continue the sequence at
 * several places, this token decides. */
void sync_said(struct exec *x, kv_seq s, int32_t token);
/* Frees the texts of a report. */
void sync_report_done(kvik_sync *r);
/* Frees a report, which may be NULL. */
void sync_report_free(kvik_sync *r);
