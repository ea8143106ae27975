/* chunk.c - texts made of chunks whose rows may be cached behind other texts; see kvik_cache_splice. */
#include "generate/cache_usage.h"
#include "generate/handle.h"
#include "generate/prompts.h"
#include "kvik_loop.h"

#include <math.h>
#include <string.h>

/* Returns how many tokens of a chunk are recomputed. */
static uint32_t again(const kvik_splice *how, size_t n)
{
    double part = ceil(how->fraction * (double)n);
    return (uint32_t)MIN((uint64_t)n, MAX(how->recompute, (uint64_t)part));
}

static int read_chunks(const kvik_splice *how, const kvik_chunk *chunk, uint32_t n,
                       struct exec_chunk *out)
{
    for (uint32_t i = 0; i < n; i++) {
        kvik_chunk c = {0};
        TRY(SIZED_NTH(&c, chunk, i, kvik_chunk));
        if (c.n > UINT32_MAX)
            return ERR(LIMIT, "chunk %u has %zu tokens, the limit is %u", i, c.n, UINT32_MAX);
        out[i] =
            (struct exec_chunk){c.ids, (uint32_t)c.n, c.exact ? (uint32_t)c.n : again(how, c.n)};
    }
    return 0;
}

/* Gives an empty sequence the owner of a cache_salt. */
static int take_salt(kvik_cache *c, kvik_seq s, const char *cache_salt)
{
    struct kv_salt salt = kv_salt(c->x->kv, s);
    uint8_t owner[KV_DIGEST];
    if (!cache_salt) return 0;
    gen_owner(cache_salt, owner);
    if (!memcmp(owner, salt.owner, sizeof owner)) return 0;
    if (kv_len(c->x->kv, s)) return ERR(ARG, "the sequence has rows of another cache_salt");
    memcpy(salt.owner, owner, sizeof owner);
    return kv_resalt(c->x->kv, s, &salt);
}

KVIK_API int kvik_cache_splice(kvik_cache *c, kvik_seq s, const kvik_chunk *chunk, uint32_t n,
                               kvik_splice *how)
{
    kvik_splice full = {0};
    struct exec_spliced sum;
    USE_CACHE(c);
    TRY(cache_free(c, &s, 1));
    if (!kv_tokens(c->x->kv, s)) return ERR(STALE, "the sequence was dropped");
    if (how) TRY(SIZED_IN(&full, how, kvik_splice));
    if (!n && full.cache_salt) return take_salt(c, s, full.cache_salt);
    if (!n || !chunk) return ERR(ARG, "no chunks to append: n is 0 or chunk is NULL");
    if (!(full.fraction >= 0 && full.fraction <= 1))
        return ERR(ARG, "fraction is %g; give 0 to 1", full.fraction);
    struct exec_chunk *list = mem_array(n, sizeof *list);
    if (!list) return ERR_NOMEM;
    const struct kv_salt was = kv_salt(c->x->kv, s);
    int e = read_chunks(&full, chunk, n, list);
    if (e >= 0) e = take_salt(c, s, full.cache_salt);
    if (e >= 0) e = exec_splice(c->x, s, list, n, full.taken, full.most, &sum);
    mem_free(list);
    if (e < 0 && !kv_len(c->x->kv, s)) (void)kv_resalt(c->x->kv, s, &was);
    if (e < 0) return cache_full(c, e);
    full.reused = sum.reused;
    full.moved = sum.moved;
    full.computed = sum.computed;
    full.chunks = sum.chunks;
    full.taken = sum.taken;
    return how ? SIZED_OUT(how, &full, kvik_splice) : 0;
}
