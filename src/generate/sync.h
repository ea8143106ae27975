/* sync.h - a sequence of the caller's and the tokens it is to hold: what of them it holds already, what has to be fed,
 * and the way back if the call fails.  The only place that compares a conversation with what is cached. */
#pragma once
#include "kvik.h"
#include "model/model.h"
#include "tok/tok.h"

struct sync {
    kv_seq seq;          /* 0: nothing to settle */
    struct kv_mark mark; /* what it was; without a sequence: see `tok` */
    uint32_t have;       /* ids[have, n) are to be fed */
    /* rows the sequence was left with: have, and what lies before the ids of a crop */
    uint32_t kept;
    /* What a sequence with a reserve held, where the budget has no room for rows that it gives up: owned */
    int32_t *tok;
    struct kv_turn *turn;
    uint32_t len, n_turns;
    struct kv_salt salt;
    kvik_sync *report; /* owned; may be taken */
};
struct sync_ids {
    const int32_t *id;
    uint32_t n;
    uint32_t pad; /* masked columns before them */
    bool whole;   /* all of them may be reused; else the last one is always left to be fed */
    bool append;  /* they follow what the sequence holds */
};
/* Cuts `seq` to what it may keep of the ids; an empty one begins with what the prefix index has of them.  tok: for the texts of the report, or NULL.  After an error the sequence
 * is as it was and nothing is left to settle. */
int sync_begin(struct exec *x, const struct tok *tok, kv_seq seq, const struct sync_ids *ids,
               struct sync *out);
/* After the feed.  Failed: the sequence becomes what it was.  Frees what `s` owns. */
void sync_end(struct exec *x, struct sync *s, bool failed);
/* The last token generated, which is not fed: where ids of a crop could continue the sequence in several ways, they
 * continue it with this one. */
void sync_said(struct exec *x, kv_seq s, int32_t token);
void sync_report_done(kvik_sync *r); /* its texts */
void sync_report_free(kvik_sync *r); /* may be NULL */
