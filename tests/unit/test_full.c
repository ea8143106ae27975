/* test_full.c - a cache without room: every call that can be KVIK_FULL says what helps, also that rows can move to disk, and
 * changes nothing.  In a cache that moves rows to disk the same call works. */
#include "base/base.h"
#include "kvik_compat.h"
#include "testing.h"

#define TINY "tests/golden/models/llama-gqa-l3"
enum { MOST = 512 };

static kvik_model *model;
static int32_t ids[MOST];

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < MOST; i++)
        ids[i] = 5 + i * 37 % 250;
    if (kvik_model_open(TINY, &model) < 0) fail_msg("%s", kvik_last_error());
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    kvik_model_close(model);
    return 0;
}

static kvik_cache *cache_of(const char *on_full)
{
    kvik_cache_config k = {.size = sizeof k,
                           .on_full = on_full,
                           .max_sequences = 3,
                           .max_cache_len = MOST,
                           .cache_memory = 300 << 10,
                           .no_prefix_cache = true,
                           .step_tokens = 32};
    kvik_cache *c;
    if (kvik_cache_open(model, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static void append(kvik_cache *c, kvik_seq s, uint32_t n)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    if (kvik_forward(c, &span, 1, false, NULL) < 0) fail_msg("%s", kvik_last_error());
}

static int fork_of(kvik_cache *c, kvik_seq *s)
{
    kvik_seq out;
    return kvik_cache_fork(c, s[0], &out);
}
static int crop_of(kvik_cache *c, kvik_seq *s)
{
    return kvik_cache_crop(c, s[0], 40);
}
static int reorder_of(kvik_cache *c, kvik_seq *s)
{
    static const uint32_t from[] = {0, 0};
    return kvik_cache_reorder(c, s, from, 2);
}
static int reset_of(kvik_cache *c, kvik_seq *s)
{
    return kvik_cache_reset(c, s[0]);
}
static int export_of(kvik_cache *c, kvik_seq *s)
{
    kvik_export *p;
    int e = kvik_cache_export(c, s[0], &p);
    if (e >= 0) kvik_export_free(p);
    return e;
}

/* A call, and the sequence before it: n tokens, a reserve that a fork makes dearer. */
struct scene {
    const char *name;
    int (*call)(kvik_cache *c, kvik_seq *s);
    uint32_t n, reserve;
    bool forked;
};

/* Makes the scene, and a third sequence of at most `more` tokens that fills the cache.  Returns its length. */
static uint32_t stage(kvik_cache *c, const struct scene *t, uint32_t more, kvik_seq *s)
{
    kvik_seq filler;
    uint32_t n = 0;
    assert_int_equal(kvik_cache_new(c, &s[0]), 0);
    append(c, s[0], t->n);
    if (t->forked) assert_int_equal(kvik_cache_fork(c, s[0], &s[1]), 0);
    if (!t->forked) assert_int_equal(kvik_cache_new(c, &s[1]), 0);
    if (t->reserve) assert_int_equal(kvik_cache_reserve(c, s[0], t->reserve), 0);
    assert_int_equal(kvik_cache_new(c, &filler), 0);
    kvik_span span = {.size = sizeof span, .seq = filler, .ids = ids, .n = 1};
    while (n < more && kvik_forward(c, &span, 1, false, NULL) >= 0)
        n++;
    assert_true(n < MOST);
    return n;
}

static void says_what_helps(void **state)
{
    (void)state;
    static const struct scene scenes[] = {{"fork", fork_of, 100, 120, false},
                                          {"crop", crop_of, 100, 120, true},
                                          {"reorder", reorder_of, 100, 120, false},
                                          {"reset", reset_of, 100, 120, true},
                                          {"export", export_of, 64, 0, false}};
    for (size_t i = 0; i < countof(scenes); i++) {
        const struct scene *t = &scenes[i];
        kvik_seq s[2];
        kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
        kvik_cache *c = cache_of(NULL);
        uint32_t most = stage(c, t, MOST, s);
        assert_int_equal(kvik_cache_usage(c, &before), 0);
        int e = t->call(c, s);
        if (e != KVIK_FULL ||
            !strstr(kvik_last_error(), "; or continue on disk with on_full=offload"))
            fail_msg("%s: %d %s", t->name, e, e < 0 ? kvik_last_error() : "");
        assert_int_equal(kvik_cache_usage(c, &after), 0);
        assert_int_equal(after.bytes, before.bytes);
        assert_int_equal(kvik_cache_length(c, s[0]), t->n);
        kvik_cache_close(c);
        c = cache_of("offload");
        assert_int_equal(stage(c, t, most, s), most);
        if ((e = t->call(c, s)) < 0) fail_msg("%s: %d %s", t->name, e, kvik_last_error());
        kvik_cache_close(c);
    }
}

/* A static cache whose sequences are all at its end has room for no further token; they can be exported still. */
static void exports_a_full_one(void **state)
{
    (void)state;
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = "static",
                           .max_sequences = 2,
                           .max_cache_len = 64,
                           .no_prefix_cache = true};
    kvik_cache *c;
    kvik_seq s[2];
    assert_int_equal(kvik_cache_open(model, &k, &c), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvik_cache_new(c, &s[i]), 0);
        append(c, s[i], 64);
    }
    for (int i = 0; i < 2; i++)
        if (export_of(c, &s[i]) < 0) fail_msg("%s", kvik_last_error());
    kvik_cache_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_what_helps),
                                       cmocka_unit_test(exports_a_full_one)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
