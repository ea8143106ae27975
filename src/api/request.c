/* request.c - requests: generations that the caller starts, advances together, pauses and ends.  A request owns
 * copies of its configuration and prompts, so that the caller can free its own as soon as the request has started.
 * The driver of the cache (generate/driver.c) does everything else.  A request is counted, and each call with it
 * holds it.  If a callback or another thread frees it meanwhile, the request lives until that call returns. */
#include "generate/generate.h"
#include "generate/handle.h"
#include "generate/prompts.h"

#include <string.h>

struct kvik_request {
    struct refs refs;
    struct late_close close;
    kvik_cache *c;          /* held, as is hooks.assistant_model */
    kvik_generation g;      /* owned copy */
    struct prompts prompts; /* owned copies */
    kvik_hooks hooks;
    struct gen_assist assist;
    struct run *run;
};
struct request_use { /* a call's use of a request, which it holds; NULL: not in use */
    kvik_request *request;
    kvik_cache *cache, *assistant;
};
enum { FEW = 32 }; /* steps of at most this many requests need no memory */

static kvik_cache *assistant_of(const struct kvik_request *q)
{
    return q->assist.assistant ? q->hooks.assistant_model : NULL;
}

static void done(struct kvik_request *q)
{
    prompts_end(&q->prompts);
    gen_done(&q->g);
    cache_drop(assistant_of(q));
    cache_drop(q->c);
    mem_free(q);
}

/* Ends a request that nobody holds, under the guards of both its caches.  If another thread is in a call with one
 * of them, that call ends the request when it returns. */
static void end_late(struct late_close *self)
{
    kvik_request *q = (kvik_request *)((char *)self - offsetof(struct kvik_request, close));
    kvik_cache *c = NULL, *assistant = NULL;
    if (!cache_try(q->c, &c)) {
        cache_close_late(q->c, self);
        return;
    }
    if (assistant_of(q) && !cache_try(assistant_of(q), &assistant)) {
        cache_leave(&c);
        cache_close_late(assistant_of(q), self);
        return;
    }
    run_free(q->run);
    done(q);
    cache_leave(&assistant);
    cache_leave(&c);
}

static void request_drop(struct kvik_request *q)
{
    if (!refs_drop(&q->refs)) return;
    q->close.run = end_late;
    end_late(&q->close);
}

static int copy_call(struct kvik_request *q, const kvik_generation *g, const kvik_prompt *prompt,
                     uint32_t n, const kvik_hooks *hooks)
{
    kvik_generation full;
    TRY(generation_in(g, &full));
    /* checks options before they are copied: the copy follows their pointers */
    TRY(gen_validate(&full));
    TRY(gen_copy(&full, &q->g));
    TRY(prompts_begin(&q->prompts, q->c, prompt, n, true));
    TRY(hooks_in(hooks, &q->hooks, &hooks));
    if (!q->hooks.assistant_model) return 0;
    TRY(refs_check(&q->hooks.assistant_model->refs, "assistant_model"));
    q->assist.assistant = &cache_hold(q->hooks.assistant_model)->assistant;
    q->assist.assistant->x = q->hooks.assistant_model->x;
    return 0;
}

static int start_run(struct kvik_request *q)
{
    struct gen_call call = {.tok = q->c->model->tok ? q->c->model->tok->tok : NULL,
                            .g = &q->g,
                            .prompt = q->prompts.p,
                            .n = q->prompts.n,
                            .hooks = &q->hooks,
                            .assist = q->assist.assistant ? &q->assist : NULL};
    if (q->g.return_legacy_cache)
        return ERR(UNSUPPORTED,
                   "return_legacy_cache is an option of kvik_generate; a request gives "
                   "sequences (return_dict_in_generate), whose rows kvik_cache_export gives");
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;
    if (call.assist) TRY(cache_use(q->hooks.assistant_model, &in_use));
    return cache_full(q->c, run_start(q->c->driver, &call, &q->run));
}

KVIK_API int kvik_request_start(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt,
                                uint32_t n, const kvik_hooks *hooks, kvik_request **out)
{
    USE_CACHE(c);
    if (!g || !out || (n && !prompt))
        return ERR(
            ARG,
            "options, prompts and a pointer for the request are needed, and one of them is NULL");
    kvik_request *q = mem_alloc(sizeof *q);
    if (!q) return ERR_NOMEM;
    refs_init(&q->refs);
    q->c = cache_hold(c);
    int e = copy_call(q, g, prompt, n, hooks);
    if (e >= 0) e = start_run(q);
    if (e < 0) {
        done(q);
        return e;
    }
    *out = q;
    return 0;
}

static void leave_request(struct request_use *use)
{
    if (use->request) request_drop(use->request);
    cache_leave(&use->assistant);
    cache_leave(&use->cache);
}

/* Begins a call with a request.  After an error nothing is held. */
static int enter(const struct kvik_request *q, struct request_use *use)
{
    if (!q) return ERR(ARG, "the request is NULL");
    TRY(refs_check(&q->refs, "request"));
    TRY(cache_use(q->c, &use->cache));
    int e = assistant_of(q) ? cache_use(assistant_of(q), &use->assistant) : 0;
    if (e < 0) {
        cache_leave(&use->cache);
        use->cache = NULL;
        return e;
    }
    use->request = (kvik_request *)(uintptr_t)q;
    refs_take(&use->request->refs);
    return 0;
}

static int step_requests(kvik_request *const *request, uint32_t n)
{
    struct driver_batch b = {0};
    int running = 0;
    struct driver *d = request[0]->c->driver;
    for (uint32_t i = 0; i < n; i++)
        TRY(driver_add(d, &b, request[i]->run));
    TRY(driver_step(d, &b));
    for (uint32_t i = 0; i < n; i++)
        running += refs_is_open(&request[i]->refs) && run_state(request[i]->run) == RUN_ACTIVE;
    return running;
}

KVIK_API int kvik_request_step(kvik_request *const *request, uint32_t n)
{
    kvik_request *few[FEW],
        /* copies the array, because a callback may free requests and change the caller's array */
        **all = few;
    uint32_t k = 0;
    int e = 0;
    if (!n) return 0;
    if (!request || n > INT32_MAX) return ERR(ARG, "an array of requests is needed");
    for (uint32_t i = 0; i < n; i++)
        if (!request[i]) return ERR(ARG, "request %u is NULL", i);
    if (n > FEW && !(all = mem_array(n, sizeof(kvik_request *)))) return ERR_NOMEM;
    memcpy(all, request, n * sizeof(kvik_request *));
    for (struct request_use use = {0}; k < n && (e = enter(all[k], &use)) >= 0;)
        k++;
    if (e >= 0) e = step_requests(all, n);
    while (k-- > 0) {
        struct request_use use = {all[k], all[k]->c, assistant_of(all[k])};
        leave_request(&use);
    }
    if (all != few) mem_free(all);
    return e;
}

/* Uses a request until the end of the block. */
#define USE_REQUEST_OR(q, refused)                                                                 \
    struct request_use in_use __attribute__((cleanup(leave_request))) = {0};                       \
    if (enter(q, &in_use) < 0) return refused
#define USE_REQUEST(q)                                                                             \
    struct request_use in_use __attribute__((cleanup(leave_request))) = {0};                       \
    TRY(enter(q, &in_use))

KVIK_API enum kvik_state kvik_request_state(const kvik_request *q)
{
    USE_REQUEST_OR(q, KVIK_FAILED);
    switch (run_state(q->run)) {
    case RUN_ACTIVE:
        return KVIK_RUNNING;
    case RUN_PAUSED:
        return KVIK_PAUSED;
    case RUN_OVER:
        return KVIK_OVER;
    default:
        return KVIK_FAILED;
    }
}

KVIK_API int kvik_request_error(const kvik_request *q, const char **text)
{
    const char *why;
    USE_REQUEST(q);
    int e = run_error(q->run, &why);
    if (text) *text = e ? why : "";
    return e ? err_set(e, "%s", why) : 0;
}

KVIK_API int kvik_request_progress(const kvik_request *q, kvik_progress *out)
{
    kvik_progress full;
    USE_REQUEST(q);
    if (!out) return ERR(ARG, "a kvik_progress to fill is needed");
    run_progress(q->run, &full);
    return SIZED_OUT(out, &full, kvik_progress);
}

static void pause_or_resume(const kvik_request *q, bool paused)
{
    USE_REQUEST_OR(q, );
    run_pause(q->run, paused);
}

KVIK_API void kvik_request_pause(kvik_request *q)
{
    pause_or_resume(q, true);
}

KVIK_API void kvik_request_resume(kvik_request *q)
{
    pause_or_resume(q, false);
}

KVIK_API void kvik_request_set_chunk(kvik_request *q, uint32_t tokens)
{
    USE_REQUEST_OR(q, );
    run_set_chunk(q->run, tokens);
}

KVIK_API int kvik_request_end(kvik_request *q, kvik_result **out)
{
    kvik_result *r;
    USE_REQUEST(q);
    if (!out) return ERR(ARG, "a pointer for the result is needed, and NULL was given");
    TRY(cache_full(q->c, run_finish(q->run, &r)));
    q->c->reused = 0;
    for (uint32_t i = 0; i < r->n_rows; i++)
        q->c->reused += r->row[i]->reused;
    *out = r;
    return 0;
}

KVIK_API void kvik_request_free(kvik_request *q)
{
    if (!q || !refs_is_open(&q->refs) || guard_foreign(&q->c->guard)) return;
    if (refs_close(&q->refs)) request_drop(q);
}
