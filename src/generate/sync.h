/* sync.h - reuses the cached tokens of a caller's sequence: how many of the given tokens are
 * cached, which must be computed, and the undo if the call fails.  Only sync.c compares a
 * conversation with the cache. */
#pragma once
#include "kvik.h"
#include "model/model.h"
#include "tok/tok.h"

struct sync {
    kv_seq seq;          /* 0: no open sync */
    struct kv_mark mark; /* undoes the cut */
    uint32_t have;       /* ids[have, n) must be computed */
    /* rows that the sequence kept: `have`, and the rows before the ids of a crop */
    uint32_t kept;
    uint32_t len;      /* rows before */
    kvik_sync *report; /* owned; the caller may take it */
};
struct sync_ids {
    const int32_t *id;
    uint32_t n;
    /* most tokens that the caller appends after the ids before the end of the sync */
    uint32_t more;
    uint32_t pad; /* masked columns before the ids */
    bool whole;   /* all ids may be reused; else the last one is always computed */
    bool append;  /* the ids follow the cached tokens */
};
/* Cuts `seq` to the cached tokens of the ids that it may keep.  An empty sequence gets its prefix
 * from the index.  tok: for the texts of the report, or NULL.  After an error the sequence is
 * unchanged, and there is nothing to end. */
int sync_begin(struct exec *x, const struct tok *tok, kv_seq seq, const struct sync_ids *ids,
               struct sync *out);
/* Notes that a sequence that was empty has the first `have` of n ids by reference. */
void sync_match(struct sync *s, uint32_t n, uint32_t have);
/* Counts the tokens, at most n, that are equal at the start of both arrays. */
uint32_t sync_common(const int32_t *a, const int32_t *b, uint32_t n);
/* Ends a sync after the tokens were computed, and frees what `s` owns.  failed: restores the
 * sequence. */
void sync_end(struct exec *x, struct sync *s, bool failed);
/* Notes the last generated token, which is not yet appended.  Where the ids of a crop could
 * continue the sequence in several ways, they continue it with this token. */
void sync_said(struct exec *x, kv_seq s, int32_t token);
/* Frees the texts of a report. */
void sync_report_done(kvik_sync *r);
/* Frees a report, which may be NULL. */
void sync_report_free(kvik_sync *r);
