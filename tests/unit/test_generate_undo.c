/* test_generate_undo.c - a generation that fails leaves the caller's sequence as it was: its length, and the bits of its
 * next logits, whatever stopped the call and whatever the cache sets aside. */
#include "base/base.h"
#include "kvik.h"
#include "share.h"
#include "testing.h"

#include <stdbool.h>

enum { VOCAB = 1024, HELD = 61, PROMPT = 50, SAME = 30, LONGEST = 120 };
static int32_t text[LONGEST], other[PROMPT];
static float want[VOCAB], got[VOCAB];

static const struct {
    const char *model, *impl, *config;
} caches[] = {
    {"llama-mha", "dynamic", NULL},
    {"llama-mha", "static", NULL},
    {"llama-mha", "static", "{\"sliding_window\": 9}"},
    {"gpt-oss", "hybrid", NULL},
    {"llama-mha", "static",
     "{\"backend\": \"quanto\", \"nbits\": 4, \"residual_length\": 8, \"q_group_size\": 16}"},
    {"llama-mha", "offloaded_static", NULL},
};
enum { CACHES = sizeof caches / sizeof *caches };

static kvik_model *open_model(const char *name)
{
    char path[128];
    kvik_model *m;
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    for (uint32_t i = 0; i < LONGEST; i++)
        text[i] = (int32_t)(5 + i * 37 % (kvik_model_vocab(m) - 5));
    for (uint32_t i = 0; i < PROMPT; i++)
        other[i] = text[i < SAME ? i : i + 7];
    return m;
}

static kvik_cache *open_cache(kvik_model *m, size_t i, uint64_t memory)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = caches[i].impl,
                           .cache_config = caches[i].config,
                           .max_cache_len = LONGEST,
                           .max_sequences = 2,
                           .step_tokens = 8,
                           .cache_memory = memory,
                           .threads = 1,
                           .no_prefix_cache = true};
    kvik_cache *c;
    return kvik_cache_open(m, &k, &c) < 0 ? NULL : c;
}

static int append(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t to, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = text + from, .n = to - from};
    return kvik_forward(c, &span, 1, false, logits);
}

/* Makes a sequence that was prefilled and then decoded. */
static int hold(kvik_cache *c, kvik_seq *s)
{
    int e = kvik_cache_new(c, s);
    if (e >= 0) e = append(c, *s, 0, HELD - 3, NULL);
    for (uint32_t n = HELD - 3; e >= 0 && n < HELD; n++)
        e = append(c, *s, n, n + 1, NULL);
    return e;
}

/* The logits of a sequence that no generation has touched. */
static void untouched(kvik_model *m, size_t i, uint32_t held)
{
    kvik_cache *c = open_cache(m, i, 0);
    kvik_seq s;
    assert_non_null(c);
    assert_int_equal(hold(c, &s), 0);
    for (uint32_t n = HELD; n < held; n++)
        assert_int_equal(append(c, s, n, n + 1, NULL), 0);
    assert_int_equal(append(c, s, held, held + 1, want), 0);
    kvik_cache_close(c);
}

static void unchanged(kvik_model *m, kvik_cache *c, kvik_seq s, size_t i, uint32_t held)
{
    if (kvik_cache_length(c, s) != held)
        fail_msg("%s %s: %lld tokens", caches[i].model, caches[i].impl,
                 (long long)kvik_cache_length(c, s));
    if (append(c, s, held, held + 1, got) < 0) fail_msg("%s", kvik_last_error());
    if (memcmp(got, want, kvik_model_vocab(m) * sizeof *got) != 0)
        fail_msg("%s %s: other logits", caches[i].model, caches[i].impl);
}

struct stopper {
    uint32_t calls, stop;
};

static bool stop_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct stopper *x = ctx;
    (void)done, (void)total;
    return ++x->calls < x->stop;
}

static bool stop_processor(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                           uint32_t vocab)
{
    struct stopper *x = ctx;
    (void)row, (void)ids, (void)n, (void)scores, (void)vocab;
    return ++x->calls < x->stop;
}

static int generate(kvik_cache *c, kvik_seq s, const char *json, const kvik_hooks *hooks,
                    kvik_result **r)
{
    kvik_generation g;
    kvik_prompt p = {.size = sizeof p, .ids = other, .n = PROMPT, .seq = s};
    if (kvik_generation_init(&g, NULL) < 0 || kvik_generation_set(&g, json) < 0)
        fail_msg("%s", kvik_last_error());
    int e = kvik_generate(c, &g, &p, 1, hooks, r);
    kvik_generation_done(&g);
    return e;
}

/* The call is cancelled in the prefill, at the first token, and while decoding; greedily and with beams. */
static void cancelled(void **state)
{
    static const char *const settings[] = {
        "{\"max_new_tokens\": 20, \"eos_token_id\": null}",
        "{\"max_new_tokens\": 20, \"eos_token_id\": null, \"num_beams\": 2}"};
    static const uint32_t stops[] = {1, 2, 9};
    (void)state;
    for (size_t i = 0; i < CACHES; i++) {
        kvik_model *m = open_model(caches[i].model);
        untouched(m, i, HELD);
        for (uint32_t k = 0; k < 2 * 2 * 3; k++) {
            kvik_cache *c = open_cache(m, i, 0);
            struct stopper x = {.stop = stops[k / 4]};
            kvik_hooks hooks = {.size = sizeof hooks, .ctx = &x};
            kvik_result *r = NULL;
            kvik_seq s;
            if (k % 2)
                hooks.logits_processor = stop_processor;
            else
                hooks.on_progress = stop_progress, x.stop = stops[k / 4] > 2 ? 2 : stops[k / 4];
            assert_int_equal(hold(c, &s), 0);
            int e = generate(c, s, settings[k / 2 % 2], &hooks, &r);
            if (e != KVIK_CANCELLED)
                fail_msg("%s, k %u: %d %s", caches[i].impl, k, e, kvik_last_error());
            assert_null(r);
            unchanged(m, c, s, i, HELD);
            kvik_cache_close(c);
        }
        kvik_model_close(m);
    }
}

/* Budgets that hold the sequence, but not what the generation would add. */
static void full(void **state)
{
    (void)state;
    for (size_t i = 0; i < CACHES; i++) {
        kvik_model *m = open_model(caches[i].model);
        kvik_usage u = {.size = sizeof u};
        untouched(m, i, HELD);
        kvik_cache *c = open_cache(m, i, 0);
        kvik_seq s;
        uint32_t refused = 0;
        assert_int_equal(hold(c, &s), 0);
        kvik_cache_usage(c, &u);
        kvik_cache_close(c);
        uint64_t one = u.bytes + u.reserved;
        for (uint64_t memory = one / 2; memory < 4 * one; memory += one / 8 + 1) {
            kvik_result *r = NULL;
            if (!(c = open_cache(m, i, memory))) continue;
            if (hold(c, &s) >= 0) {
                int e = generate(
                    c, s, "{\"max_new_tokens\": 60, \"eos_token_id\": null, \"num_beams\": 2}",
                    NULL, &r);
                if (e < 0) {
                    assert_int_equal(e, KVIK_FULL);
                    unchanged(m, c, s, i, HELD);
                    refused++;
                }
                kvik_result_free(r);
            }
            kvik_cache_close(c);
        }
        bool streams =
            strcmp(caches[i].impl, "offloaded_static") == 0; /* full pages leave memory */
        if (!refused && !streams)
            fail_msg("%s %s: nothing was refused", caches[i].model, caches[i].impl);
        kvik_model_close(m);
    }
}

struct forker {
    kvik_cache *c;
    kvik_seq s;
    uint32_t calls, forks;
};

/* Forks the sequence at the first token, and cancels at the third. */
static bool fork_then_stop(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                           uint32_t vocab)
{
    struct forker *x = ctx;
    kvik_seq f;
    (void)row, (void)ids, (void)n, (void)scores, (void)vocab;
    if (x->calls == 0) x->forks += kvik_cache_fork(x->c, x->s, &f) >= 0;
    return ++x->calls < 3;
}

/* The request is refused or cancelled; the sequence of `held` tokens and its reserve are unchanged. */
static int fork_meanwhile(kvik_model *m, kvik_cache *c, kvik_seq s, size_t i, uint32_t held,
                          uint32_t *forks)
{
    struct forker x = {c, s, 0, 0};
    kvik_hooks hooks = {.size = sizeof hooks, .ctx = &x, .logits_processor = fork_then_stop};
    kvik_result *r = NULL;
    for (uint32_t n = HELD; n < held; n++)
        assert_int_equal(append(c, s, n, n + 1, NULL), 0);
    static const char few[] = "{\"max_new_tokens\": 20, \"eos_token_id\": null}",
                      many[] = "{\"max_new_tokens\": 50, \"eos_token_id\": null}";
    int e = generate(c, s, held == HELD ? few : many, &hooks, &r);
    if (e == KVIK_FULL)
        assert_non_null(strstr(kvik_last_error(), "unless the sequence is cropped to"));
    else
        assert_int_equal(e, KVIK_CANCELLED);
    unchanged(m, c, s, i, held);
    for (uint32_t n = held + 1; n < LONGEST; n++)
        if (append(c, s, n, n + 1, NULL) < 0)
            fail_msg("%s, at %u: %s", caches[i].impl, n, kvik_last_error());
    *forks += x.forks;
    return e;
}

/* Static caches from the least budget on.  The prompt parts from the sequence early, and the sequence is forked while the
 * request runs.  8 KiB above the least budget there is room for the metadata of a crop and of a request whose tokens fit
 * beside those that they replace; other requests are refused. */
static void forked_meanwhile(void **state)
{
    (void)state;
    uint32_t forks = 0, refused = 0, done = 0, step = (6 << 10) * MIN(test_share(), 3);
    for (size_t i = 0; i < CACHES; i++) {
        if (!strstr(caches[i].impl, "static") || strstr(caches[i].impl, "offloaded")) continue;
        kvik_model *m = open_model(caches[i].model);
        kvik_cache *c;
        kvik_seq s;
        for (uint32_t held = HELD; held < LONGEST; held += 50) {
            uint64_t least = 0;
            untouched(m, i, held);
            for (uint64_t memory = 8 << 10; memory < 800 << 9; memory += step) {
                if (!(c = open_cache(m, i, memory))) continue;
                bool holds = hold(c, &s) >= 0;
                int e = holds ? fork_meanwhile(m, c, s, i, held, &forks) : 0;
                if (holds && !least) least = memory;
                refused += e == KVIK_FULL;
                done += e == KVIK_CANCELLED;
                if (held == HELD && e == KVIK_FULL && memory >= least + (8 << 10))
                    fail_msg("%s: %s", caches[i].impl, kvik_last_error());
                kvik_cache_close(c);
            }
        }
        kvik_model_close(m);
    }
    if (!forks || !refused || !done)
        fail_msg("%u forks, %u refused, %u cancelled", forks, refused, done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cancelled), cmocka_unit_test(full),
                                       cmocka_unit_test(forked_meanwhile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
