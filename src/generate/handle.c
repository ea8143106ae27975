/* handle.c - what every call on a public cache begins and ends with, and generating with a cache. */
#include "generate/handle.h"

#include <stdio.h>

int model_check(const kvik_model *m)
{
    if (!m) return ERR(ARG, "the model is NULL");
    TRY(refs_check(&m->refs, "model"));
    if (!guard_foreign(&m->guard)) return 0;
    return ERR(BUSY,
               "this model was opened by process %ld, of which this process is a fork; open the "
               "model in the child (its weights are shared with the parent)",
               (long)m->guard.pid);
}

int tokenizer_check(const kvik_tokenizer *t)
{
    return t ? refs_check(&t->refs, "tokenizer") : ERR(ARG, "the tokenizer is NULL");
}

int cache_enter(const kvik_cache *c, kvik_cache **used)
{
    if (!c) return ERR(ARG, "the cache is NULL");
    TRY(refs_check(&c->refs, "cache"));
    return cache_use((kvik_cache *)(uintptr_t)c, used);
}

int cache_use(kvik_cache *c, kvik_cache **used)
{
    TRY(guard_enter(&c->guard, "cache"));
    if (c->telling) {
        guard_leave(&c->guard);
        return ERR(BUSY, "the cache tells of its blocks; no call with it is possible meanwhile");
    }
    *used = cache_hold(c);
    return 0;
}

bool cache_try(kvik_cache *c, kvik_cache **used)
{
    if (!guard_try(&c->guard)) return false;
    *used = cache_hold(c);
    return true;
}

/* Runs the closes that wait.  If another thread is in a call, that call runs them when it returns. */
static void run_late(kvik_cache *c)
{
    while (atomic_load(&c->late) && guard_try(&c->guard)) {
        struct late_close *l = atomic_exchange(&c->late, NULL);
        while (l) {
            struct late_close *next = l->next;
            l->run(l);
            l = next;
        }
        guard_leave(&c->guard);
    }
}

void cache_leave(kvik_cache **used)
{
    kvik_cache *c = *used;
    if (!c) return;
    if (guard_leave(&c->guard)) run_late(c);
    cache_drop(c);
}

void cache_close_late(kvik_cache *c, struct late_close *close)
{
    cache_hold(c);
    if (guard_try(&c->guard)) {
        close->run(close);
        if (guard_leave(&c->guard)) run_late(c);
    } else {
        close->next = atomic_load(&c->late);
        while (!atomic_compare_exchange_weak(&c->late, &close->next, close))
            ;
        run_late(c);
    }
    cache_drop(c);
}

int cache_step(int e)
{
    return e != ERR_BUSY
               ? e
               : ERR(BUSY, "draft tokens of this cache are being checked; this call needs "
                           "the end of that step: make it when the generating call has "
                           "returned, or generate without drafts");
}

int cache_free(const kvik_cache *c, const kv_seq *s, uint32_t n)
{
    for (uint32_t i = 0; s && i < n; i++) {
        TRY(driver_owns(c->driver, s[i]));
        if (draft_model_owns(&c->assistant, s[i]))
            return ERR(BUSY,
                       "a request that has not ended drafts in this sequence (%#x); end it first",
                       s[i]);
    }
    return 0;
}

int cache_clear(const kvik_cache *c, kv_seq s)
{
    struct kv *kv = c->x->kv;
    uint32_t have;
    kv_seq was = 0;
    if (kv_reserved(kv, s) || kv_fork(kv, s, &was) < 0) was = 0;
    int e = kv_trim(kv, s, 0, &have);
    if (e >= 0 && kv_cross(kv, s)) e = kv_thaw(kv, s);
    if (was) (void)kv_keep(kv, was);
    return e;
}

int cache_full(const kvik_cache *c, int e)
{
    struct kv_usage u;
    char why[768];
    if (e != ERR_FULL || c->x->streaming != KV_RESIDENT) return e;
    kv_usage(c->x->kv, &u);
    if (!u.need) return e;
    snprintf(why, sizeof why, "%s", err_last());
    return ERR(FULL, "%s; or continue on disk with on_full=offload (--on-full offload)", why);
}

int cache_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt, uint32_t n,
                   const kvik_hooks *hooks, const struct gen_finish *finish, kvik_result **out)
{
    kvik_result *r;
    const struct tok *tok = c->model->tok ? c->model->tok->tok : NULL;
    struct gen_assist assist = {0};
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;
    if (hooks && hooks->assistant_model) {
        TRY(cache_enter(hooks->assistant_model, &in_use));
        assist.assistant = &hooks->assistant_model->assistant;
        assist.assistant->x = hooks->assistant_model->x;
    }
    struct gen_call call = {.tok = tok,
                            .g = g,
                            .prompt = prompt,
                            .n = n,
                            .hooks = hooks,
                            .assist = assist.assistant ? &assist : NULL,
                            .finish = finish};
    TRY(cache_full(c, gen_run(c->driver, &call, &r)));
    c->reused = 0;
    for (uint32_t i = 0; i < r->n_rows; i++)
        c->reused += r->row[i]->reused;
    *out = r;
    return 0;
}
