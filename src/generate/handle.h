/* handle.h - what the public handles are.
 *
 * Handles are counted, so that a program can close them in any order.  What uses a handle holds it; closing gives up one
 * reference, and the last one frees the thing. */
#pragma once
#include "base/base.h"
#include "base/refs.h"
#include "generate/draft.h"
#include "generate/driver.h"
#include "generate/sizes.h"
#include "kvik.h"
#include "model/model.h"
#include "tok/tok.h"

struct kvik_tokenizer {
    struct tok *tok;
    atomic_uint refs;
};
struct kvik_model {
    struct model *m;
    struct kvik_tokenizer *tok; /* held; NULL: the files hold none */
    int32_t turn_end;           /* ends a reply, beside the model's own tokens; -1: none */
    atomic_uint refs;
};
struct kvik_cache {
    kvik_model *model; /* held */
    atomic_uint refs;
    struct exec *x;
    struct driver *driver;   /* of the requests */
    struct unbound *unbound; /* instead of both, where the cache was opened without a model */
    const struct preset *preset;
    uint64_t reused; /* by the last generate */
    /* for requests of other caches, when this cache drafts tokens for them */
    struct gen_assistant assistant;
    char fingerprint[65]; /* of the model, in hex; "" until a session needs it */
    char weights[65];     /* digest of all weights of the model, in hex, as of the last session */
};
/* Take a reference to the handle and return it; the kvik_*_close of the handle gives it back. */
static inline kvik_tokenizer *tokenizer_hold(const kvik_tokenizer *t)
{
    kvik_tokenizer *held = (kvik_tokenizer *)(uintptr_t)t;
    refs_take(&held->refs);
    return held;
}
static inline kvik_model *model_hold(kvik_model *m)
{
    refs_take(&m->refs);
    return m;
}
static inline kvik_cache *cache_hold(kvik_cache *c)
{
    refs_take(&c->refs);
    return c;
}
/* Returns e.  If the budget is exhausted, adds to the error text what the caller can do. */
int cache_full(const kvik_cache *c, int e);
int cache_bound(const kvik_cache *c); /* an error for a cache without a model */
/* The first check of every public call that changes sequences: as cache_bound, and ERR_BUSY if one of s[n] belongs to a
 * request that has not ended.  Handles of dropped sequences pass. */
int cache_free(const kvik_cache *c, const kv_seq *s, uint32_t n);

/* Generates with a cache that has a model; finish (NULL: nothing) sees the result before it is the caller's. */
int cache_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt, uint32_t n,
                   const kvik_hooks *hooks, const struct gen_finish *finish, kvik_result **out);
