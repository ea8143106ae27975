/* test_closed.c - a handle that was closed is refused by every function that takes one, and closing it again does nothing:
 * while something else holds it, and after its memory was freed, as long as that memory serves nothing else. */
#include "api_world.h"
#include "cpu_limit.h"

static const kvik_cache_config plain_config = {
    .size = sizeof plain_config, .max_sequences = 16, .max_cache_len = 64, .threads = 1};

/* Returns the place of a handle in a world; NULL if the argument is no handle. */
static void **handle(struct api_world *w, int kind)
{
    switch (kind & ~A_OPTIONAL) {
    case A_MODEL:
        return (void **)&w->model;
    case A_TOKENIZER:
        return (void **)&w->tokenizer;
    case A_CACHE:
        return (void **)&w->cache;
    case A_LAYERS:
        return (void **)&w->layers;
    case A_BATCH:
        return (void **)&w->batch;
    case A_REQUEST:
    case A_REQUESTS:
        return (void **)&w->request;
    case A_DECODER:
        return (void **)&w->decoder;
    case A_SAMPLER:
        return (void **)&w->sampler;
    case A_SCHEMA:
        return (void **)&w->schema;
    case A_SHARED:
        return (void **)&w->shared;
    case A_FETCH:
        return (void **)&w->fetch;
    default:
        return NULL;
    }
}

/* Calls a function whose argument i is a closed handle: there is an error to read, and nothing happens. */
static void refused(struct api_world *w, const struct api_call *c, int i, void *closed)
{
    uintptr_t v[ARGS];
    api_values(w, c, v);
    v[i] = (c->arg[i] & ~A_OPTIONAL) == A_REQUESTS ? (uintptr_t)&closed : (uintptr_t)closed;
    api_mark_error();
    uintptr_t r = api_invoke(c, v);
    int64_t code = api_code(c, r);
    bool coded = c->returns == R_INT || c->returns == R_I64;
    if (c->returns == R_VOID && c->does == D_CLOSES) return;
    if (!api_error_told() || !strstr(kvik_last_error(), "closed"))
        fail_msg("%s: argument %d closed: %s", c->name, i, kvik_last_error());
    if (coded ? code != KVIK_ARG : !api_none(c, r))
        fail_msg("%s: argument %d closed: %lld", c->name, i, (long long)code);
}

static void each(void (*test)(const struct api_call *c, int i))
{
    size_t n = 0;
    struct api_world none = {0};
    for (size_t k = 0; k < countof(api_calls); k++)
        for (int i = 0; i < api_args(&api_calls[k]); i++)
            if (handle(&none, api_calls[k].arg[i])) {
                test(&api_calls[k], i);
                n++;
            }
    assert_true(n > 80);
}

/* The closed handle belongs to a world all of whose handles were closed, so that its memory is free. */
static void freed(const struct api_call *c, int i)
{
    struct api_world w, old;
    api_open(&w, &plain_config);
    api_open(&old, &plain_config);
    void *closed = *handle(&old, c->arg[i]);
    api_close(&old);
    refused(&w, c, i, closed);
    api_close(&w);
}

static void test_freed(void **state)
{
    (void)state;
    if (CPU_FACTOR > 1) skip(); /* a sanitizer reports the look at freed memory */
    each(freed);
}

/* A model is held by its caches, a cache by its batches, a tokenizer by its decoders.  What holds them goes on. */
static void held(const struct api_call *c, int i)
{
    struct api_world w, old;
    int kind = c->arg[i] & ~A_OPTIONAL;
    const char *text;
    if (kind != A_MODEL && kind != A_CACHE && kind != A_TOKENIZER) return;
    api_open(&w, &plain_config);
    api_open(&old, &plain_config);
    void **at = handle(&old, kind), *closed = *at;
    *at = NULL;
    for (int times = 0; times < 3;
         times++) { /* once for the caller, and more than there are holders */
        if (kind == A_MODEL) kvik_model_close(closed);
        if (kind == A_CACHE) kvik_cache_close(closed);
        if (kind == A_TOKENIZER) kvik_tokenizer_close(closed);
    }
    refused(&w, c, i, closed);
    api_need(kvik_batch_forward(old.batch, &old.inputs, NULL));
    api_need(kvik_request_step(&old.request, 1));
    api_need(kvik_decoder_put(old.decoder, api_ids, 3, &text));
    kvik_legacy_free(old.legacy);
    old.legacy = NULL;
    api_need(kvik_batch_to_legacy(old.batch, &old.legacy));
    api_close(&old);
    api_close(&w);
}

static void test_held(void **state)
{
    (void)state;
    each(held);
}

/* The draft model's cache of a generation and of a request. */
static void test_assistant(void **state)
{
    (void)state;
    struct api_world w, other;
    kvik_result *r;
    kvik_request *q;
    api_open(&w, &plain_config);
    api_open(&other, &plain_config);
    kvik_hooks hooks = {.size = sizeof hooks, .assistant_model = other.cache};
    kvik_cache_close(other.cache);
    other.cache = NULL;
    w.prompt.seq = 0;
    assert_int_equal(kvik_generate(w.cache, &w.g, &w.prompt, 1, &hooks, &r), KVIK_ARG);
    assert_int_equal(kvik_request_start(w.cache, &w.g, &w.prompt, 1, &hooks, &q), KVIK_ARG);
    api_close(&other);
    api_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freed),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_assistant),
    };
    api_files_make();
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    api_files_remove();
    return e;
}
