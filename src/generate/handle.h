/* handle.h - the structs behind the public handles.  Handles are counted, so a program can close them in any
 * order.  An object that uses a handle holds a reference; closing drops one reference, and the last one frees the
 * object.
 *
 * Every public call with a cache, or with a batch or a request of one, begins with USE_CACHE.  Until the call
 * returns, the cache is held and its guard is taken.  Another thread and a forked process are refused (KVIK_BUSY).
 * Calls of a callback nest.  cache_free refuses those that would change a sequence of the running call. */
#pragma once
#include "base/base.h"
#include "base/guard.h"
#include "base/refs.h"
#include "generate/draft.h"
#include "generate/driver.h"
#include "generate/sizes.h"
#include "kvik.h"
#include "model/model.h"
#include "tok/tok.h"

struct kvik_tokenizer {
    struct tok *tok;
    struct refs refs;
};
struct kvik_model {
    struct model *m;
    struct kvik_tokenizer *tok; /* held; NULL: the files have none */
    int32_t turn_end;           /* token that ends a reply, besides the model's own; -1: none */
    struct refs refs;
    struct guard guard; /* guards only against forked processes; threads share a model */
};
struct late_close { /* a close that waits until the call of another thread returns */
    struct late_close *next;
    void (*run)(struct late_close *self);
};
struct kvik_cache {
    kvik_model *model; /* held */
    struct refs refs;
    struct guard guard;
    _Atomic(struct late_close *) late;
    struct exec *x;
    struct driver *driver; /* driver of the cache's requests */
    const struct preset *preset;
    uint64_t reused; /* tokens that the last kvik_generate reused */
    /* state for requests of other caches, for which this cache drafts tokens */
    struct gen_assistant assistant;
    struct model_digests digests; /* digests of the model, as the last session computed them */
    struct session_seen *seen;    /* owned; the sessions that were loaded or saved; NULL: none */
    void (*on_notice)(void *ctx, const char *text);
    void *notice_ctx;
    void (*on_block)(void *ctx, const struct kvik_block *block); /* NULL: nobody observes */
    void *block_ctx;
    bool telling;      /* on_block runs, in the middle of a change of the store */
    bool told_private; /* told that files are ignored because other users can write them */
};
/* Take a reference to the handle and return the handle.  The drop function gives the reference back.  NULL is
 * allowed. */
static inline kvik_tokenizer *tokenizer_hold(const kvik_tokenizer *t)
{
    kvik_tokenizer *held = (kvik_tokenizer *)(uintptr_t)t;
    refs_take(&held->refs);
    return held;
}
void tokenizer_drop(kvik_tokenizer *t);
static inline kvik_model *model_hold(kvik_model *m)
{
    refs_take(&m->refs);
    return m;
}
void model_drop(kvik_model *m);
static inline kvik_cache *cache_hold(kvik_cache *c)
{
    refs_take(&c->refs);
    return c;
}
void cache_drop(kvik_cache *c);
/* Begins a public call: checks the handle, takes a reference and the guard.  ERR_ARG for NULL and a closed handle,
 * ERR_BUSY. */
int cache_enter(const kvik_cache *c, kvik_cache **used);
/* As cache_enter, for a handle to which the caller has a reference: the program may have closed its own. */
int cache_use(kvik_cache *c, kvik_cache **used);
/* As cache_use, but returns false instead of an error and sets no sentence. */
bool cache_try(kvik_cache *c, kvik_cache **used);
void cache_leave(kvik_cache **used); /* *used NULL: nothing */
/* Uses a cache until the end of the block.  On failure returns the error from a function of type int; USE_CACHE_OR
 * returns `refused`. */
#define USE_CACHE_OR(c, refused)                                                                   \
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;                               \
    if (cache_enter(c, &in_use) < 0) return refused
#define USE_CACHE(c)                                                                               \
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;                               \
    TRY(cache_enter(c, &in_use))
/* Runs the close of an object that belongs to the cache: now, or when the call of another thread returns. */
void cache_close_late(kvik_cache *c, struct late_close *close);
/* Makes the first check of every public call with a model that can fail.  ERR_ARG for NULL and a closed model, ERR_BUSY
 * in a forked process. */
int model_check(const kvik_model *m);
/* Returns ERR_ARG for a tokenizer that is NULL or closed. */
int tokenizer_check(const kvik_tokenizer *t);
/* Returns e.  If the budget is exhausted, adds to the error sentence what the caller can do. */
int cache_full(const kvik_cache *c, int e);
/* Returns e.  Replaces the store's sentence about an open step, which a program can only meet in callbacks of
 * drafts. */
int cache_step(int e);
/* Makes the first check of every public call that changes sequences.  ERR_BUSY if one of s[n] belongs to a request that
 * has not ended.  Handles of dropped sequences pass. */
int cache_free(const kvik_cache *c, const kv_seq *s, uint32_t n);
/* Returns how many of `have` rows a crop to `len` keeps: the first len, or all if there are no more; for a
 * negative len all but the last -len.  -1: there are fewer than -len. */
static inline int64_t crop_kept(int64_t len, uint32_t have)
{
    if (len >= 0) return MIN(len, (int64_t)have);
    return len < -(int64_t)have ? -1 : have + len;
}
/* Empties a sequence, including frozen rows.  The prefix index keeps the rows, as it does for a dropped sequence. */
int cache_clear(const kvik_cache *c, kv_seq s);

/* Generates.  finish (or NULL) sees the result before the caller gets it. */
int cache_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt, uint32_t n,
                   const kvik_hooks *hooks, const struct gen_finish *finish, kvik_result **out);
