/* sync.h - a sequence of the caller's and the tokens it is to hold: what of them it holds already, and its way back if the
 * call fails.  The only place that compares a conversation with what is cached. */
#pragma once
#include "model/model.h"

struct sync {
    kv_seq seq,
        backup; /* seq 0: nothing to settle; backup 0: the sequence was empty, or has a reserve */
    uint32_t same; /* leading tokens that agree, of those that may be reused */
    uint32_t have; /* rows it was left with, at most `same`; [have, n) are to be fed */
};
/* Cuts `seq` to what it may keep of ids[n].  whole: of all of them; else the last one is always left to be fed. */
int sync_begin(struct exec *x, kv_seq seq, const int32_t *ids, uint32_t n, bool whole,
               struct sync *out);
/* After the feed.  Failed: the sequence becomes what it was; a static one, whose reserve cannot be forked, keeps what
 * it had in common with the tokens. */
void sync_end(struct exec *x, const struct sync *s, bool failed);
