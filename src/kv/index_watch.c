/* index_watch.c - tells an observer which blocks later prompts can share, as blocks come and go; see kv_watch.
 *
 * A block exists as long as the table of the index lists its key for some sequence.  The first sequence that is listed with a
 * key stores the block; when the last one is removed, the block is removed.  A sequence lists its leading blocks in ascending
 * order and removes them in descending order.  So the observer hears of a block after the block before it, and of its removal
 * before that of the block before it. */
#include "kv/kv_int.h"

void index_tell(struct kv *kv, const struct seq *s, uint32_t what, bool stored)
{
    const struct index *x = &kv->index;
    if (!x->watch || what >= KV_LIST_BEGIN) return;
    const unsigned char *key = s->key + (size_t)what * KV_KEY;
    const struct kv_prefix_block b = {.key = key,
                                      .before = what ? key - KV_KEY : NULL,
                                      .tok = s->tok + (size_t)what * KV_STRIP,
                                      .number = what,
                                      .stored = stored};
    x->watch(x->watch_ctx, &b);
}

/* Calls the observer for block i of a sequence, if no other sequence has that key. */
static bool tell_first(struct kv *kv, const struct seq *s, uint32_t i)
{
    if (s->n_listed <= i) return false;
    if (!s->node[i].prev) index_tell(kv, s, i, true);
    return true;
}

int kv_watch(struct kv *kv, kv_on_block watch, void *ctx)
{
    struct index *x = &kv->index;
    bool any = watch != NULL;
    if (!x->on)
        return ERR(
            UNSUPPORTED,
            "the cache has no prefix index (no_prefix_cache), so no prompt shares its blocks");
    x->watch = NULL; /* the old observer must not hear of what is listed below */
    index_list_live(kv);
    x->watch = watch;
    x->watch_ctx = ctx;
    for (uint32_t i = 0; any; i++) {
        any = false;
        for (uint32_t k = 0; k < kv->n_contents; k++)
            any |= tell_first(kv, &kv->seq[k], i);
        for (const struct seq *s = x->newest; s; s = s->older)
            any |= tell_first(kv, s, i);
    }
    return 0;
}
