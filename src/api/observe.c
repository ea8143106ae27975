/* observe.c - tells a program which blocks later prompts can reuse; see kvik_cache_observe. */
#include "generate/handle.h"
#include "kvik_loop.h"

static void tell_block(void *ctx, const struct kv_prefix_block *b)
{
    kvik_cache *c = ctx;
    const kvik_block told = {.size = sizeof told,
                             .key = b->key,
                             .before = b->before,
                             .ids = b->tok,
                             .n = KV_STRIP,
                             .number = b->number,
                             .stored = b->stored};
    c->telling = true;
    c->on_block(c->block_ctx, &told);
    c->telling = false;
}

KVIK_API int kvik_cache_observe(kvik_cache *c, kvik_on_block on_block, void *ctx)
{
    USE_CACHE(c);
    /* kv_watch returns the error that says why */
    if (!kv_indexes(c->x->kv)) return kv_watch(c->x->kv, NULL, NULL);
    c->on_block = on_block;
    c->block_ctx = ctx;
    return kv_watch(c->x->kv, on_block ? tell_block : NULL, c);
}
