/* sync.c - the longest prefix a sequence already holds; see sync.h.
 *
 * The sequence is forked first (references only), so that a failure gives it back unchanged. */
#include "generate/sync.h"

int sync_begin(struct exec *x, kv_seq seq, const int32_t *ids, uint32_t n, bool whole,
               struct sync *out)
{
    struct sync s = {.seq = seq};
    uint32_t len = kv_len(x->kv, seq), most = MIN(len, whole ? n : n - 1);
    const int32_t *known = kv_tokens(x->kv, seq);
    if (!known) return ERR(STALE, "the sequence was dropped");
    while (s.same < most && known[s.same] == ids[s.same])
        s.same++;
    if (len && !x->reserve) TRY(kv_fork(x->kv, seq, &s.backup));
    int e = kv_trim(x->kv, seq, s.same, &s.have);
    if (e < 0) {
        if (s.backup) kv_drop(x->kv, s.backup); /* the trim changed nothing */
        return e;
    }
    *out = s;
    return 0;
}

void sync_end(struct exec *x, const struct sync *s, bool failed)
{
    uint32_t have;
    if (s->backup)
        exec_settle(x, s->seq, s->backup, failed);
    else if (failed && s->seq)
        (void)kv_trim(x->kv, s->seq, s->have, &have);
}
