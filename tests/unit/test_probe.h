/* test_probe.h - caches over the golden models, driven through exec. The tests test_probe*.c share
 * it. */
#pragma once
#include "generate/handle.h"
#include "kvik.h"
#include "testing.h"

#include <math.h>

enum { N = 29, MOST = 100 };
static int32_t ids[MOST];
static kvik_model *km;
static kvik_cache *kc;

struct way {
    const char *impl, *config, *compute, *on_full;
    uint32_t step, chunk, threads, len; /* len: the greatest number of rows; 0: MOST */
    bool tight;                         /* a little more memory than the least that opens */
};

static inline struct exec *open_way(const char *name, const struct way *w)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = w->impl,
                           .cache_config = w->config,
                           .max_cache_len = w->len ? w->len : MOST,
                           .max_sequences = 4,
                           .step_tokens = w->step,
                           .threads = w->threads,
                           .on_full = w->on_full,
                           .cache_memory = w->tight ? 1 << 16 : 0,
                           .compute = w->compute};
    int e = kvik_model_open(path, &km);
    if (e >= 0) e = kvik_cache_open(km, &k, &kc);
    while (e < 0 && w->tight && k.cache_memory < 1 << 26) {
        k.cache_memory += k.cache_memory / 4;
        e = kvik_cache_open(km, &k, &kc);
    }
    if (e < 0) fail_msg("%s: %d %s", name, e, kvik_last_error());
    for (uint32_t i = 0; i < MOST; i++)
        ids[i] = (int32_t)(5 + i * 37 % (km->m->vocab - 5));
    return kc->x;
}

static inline void close_way(void)
{
    kvik_cache_close(kc);
    kvik_model_close(km);
}

static inline kv_seq fresh(struct exec *x)
{
    kv_seq s;
    assert_int_equal(exec_new(x, NULL, &s), 0);
    return s;
}

static inline void feed(struct exec *x, const struct exec_feed *f, uint32_t n, uint32_t chunk,
                        float *logits)
{
    if (exec_feed(x, f, n, chunk, logits, NULL, NULL) < 0) fail_msg("%s", err_last());
}

static inline float *array(size_t n)
{
    float *a = calloc(n, sizeof *a);
    assert_non_null(a);
    return a;
}

static inline float apart(const float *a, const float *b, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = a[i] != a[i] || b[i] != b[i] ? INFINITY : fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}
