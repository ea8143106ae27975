/* test_encode.c - on_full "encode": a cache whose rows do not fit quantizes them to 8 bits, and then to 4, in place of failing, and
 * moves nothing to disk.  What is encoded is counted, told once, saved, and the same in every run.  With KVIK_TEST_MODEL also how
 * near the predictions stay to those of rows as they are. */
#include "../../src/base/divergence.h"
#include "base/base.h"
#include "kvik_compat.h"
#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define TINY "tests/golden/models/llama-gqa-l3"
enum { MOST = 1024, TILE = 128, LEAD = 4 };

static kvik_model *model;
static int32_t ids[MOST];
static int notices;
static char notice[512];

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

#define OK(x)                                                                                      \
    do {                                                                                           \
        if ((x) < 0) fail_msg("%s: %s", #x, kvik_last_error());                                    \
    } while (0)

static kvik_cache *cache_of(kvik_model *m, const char *on_full, const char *config, uint64_t memory)
{
    kvik_cache_config k = {.size = sizeof k,
                           .on_full = on_full,
                           .cache_config = config,
                           .max_sequences = 2,
                           .max_cache_len = MOST,
                           .cache_memory = memory,
                           .step_tokens = 64};
    kvik_cache *c;
    OK(kvik_cache_open(m, &k, &c));
    return c;
}

/* Appends n tokens from the text at the sequence's end; logits NULL or of the last. */
static int append(kvik_cache *c, kvik_seq s, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + kvik_cache_length(c, s), .n = n};
    return kvik_forward(c, &span, 1, false, logits);
}

static kvik_usage usage_of(const kvik_cache *c)
{
    kvik_usage u = {.size = sizeof u};
    OK(kvik_cache_usage(c, &u));
    assert_int_equal(u.spilled + u.tier_written, 0);
    assert_true(u.bytes + u.reserved + u.metadata <= u.budget && u.peak_bytes <= u.budget);
    return u;
}

/* Bytes that n tokens of one sequence need as they are, with all else that a cache of about that size has. */
static uint64_t native_need(uint32_t n)
{
    uint64_t need = 8 << 20;
    for (int i = 0; i < 3; i++) { /* a larger cache has larger tables */
        kvik_cache *c = cache_of(model, "encode", NULL, need);
        kvik_seq s;
        OK(kvik_cache_new(c, &s));
        OK(append(c, s, n, NULL));
        kvik_usage u = usage_of(c);
        assert_int_equal(u.encoded8, 0);
        kvik_cache_close(c);
        need = u.bytes + u.metadata;
    }
    return need;
}

/* Appends in pieces until a call fails or the text ends, and notes what was encoded when. */
static uint32_t fill(kvik_cache *c, kvik_seq s, uint32_t piece, uint32_t at[2])
{
    uint32_t len = 0;
    at[0] = at[1] = 0;
    while (len + piece <= MOST) {
        int e = append(c, s, piece, NULL);
        kvik_usage u = usage_of(c);
        if (u.encoded8 && !at[0]) at[0] = len;
        if (u.encoded4 && !at[1]) at[1] = len;
        if (e == KVIK_FULL) break;
        OK(e);
        len += piece;
    }
    return len;
}

static uint64_t rows_encoded(uint32_t len)
{
    return len / TILE ? len / TILE * TILE - LEAD : 0;
}

/* A budget between the native bytes of 400 tokens and of all: 8 bits come where native rows end, and 4 where those end. */
static void goes_on(void **state)
{
    (void)state;
    uint64_t budget = native_need(400);
    for (uint32_t piece = 1; piece <= 16; piece += 15) {
        uint32_t at[2], none[2];
        kvik_seq s;
        kvik_cache *c = cache_of(model, "error", NULL, budget);
        OK(kvik_cache_new(c, &s));
        uint32_t plain = fill(c, s, piece, none);
        kvik_cache_close(c);
        c = cache_of(model, "encode", NULL, budget);
        OK(kvik_cache_new(c, &s));
        uint32_t len = fill(c, s, piece, at);
        kvik_usage u = usage_of(c);
        printf("%llu bytes: native %u tokens, encoded %u: 8 bits at %u, 4 at %u\n",
               (unsigned long long)budget, plain, len, at[0], at[1]);
        assert_int_equal(none[0] + none[1], 0);
        assert_true(at[0] && at[0] <= plain && len > plain + plain / 2);
        assert_int_equal(u.encoded8, rows_encoded(at[0]));
        assert_int_equal(u.encoded4, at[1] ? rows_encoded(at[1]) : 0);
        assert_true(u.expected_kld > 0);
        kvik_cache_close(c);
    }
}

/* Rows of forks are encoded once; a crop into encoded rows computes the rest of the tile; the same calls give the same bits. */
static void forks_and_crops(void **state)
{
    (void)state;
    uint32_t vocab = kvik_model_vocab(model);
    float *a = calloc(2 * vocab, sizeof *a);
    uint64_t budget = native_need(700);
    for (int run = 0; run < 2; run++) {
        kvik_cache *c = cache_of(model, "encode", NULL, budget);
        kvik_seq s, t;
        OK(kvik_cache_new(c, &s));
        OK(append(c, s, 300, NULL));
        OK(kvik_cache_fork(c, s, &t));
        OK(append(c, t, 100, NULL)); /* a tile of its own, behind two that are shared */
        OK(append(c, s, 20, NULL));
        kvik_usage was = usage_of(c);
        OK(kvik_cache_set_memory(c, was.bytes + was.metadata - (was.bytes >> 3)));
        kvik_usage u = usage_of(c);
        assert_int_equal(u.encoded8 + u.encoded4, rows_encoded(300) + TILE);
        assert_true(u.bytes < was.bytes);
        OK(kvik_cache_set_memory(c, budget));
        OK(kvik_cache_crop(c, t, 200));
        assert_int_equal(kvik_cache_length(c, t), 200);
        OK(append(c, t, 1, a + run * vocab));
        OK(kvik_cache_drop(c, s));
        kvik_cache_close(c);
    }
    assert_memory_equal(a, a + vocab, vocab * sizeof *a);
    free(a);
}

/* Where 8 bits do not free enough, rows get 4 at once. */
static void goes_to_4_at_once(void **state)
{
    (void)state;
    uint64_t less = 0;
    for (int run = 0; run < 2; run++) { /* the first measures what 8 bits free */
        kvik_cache *c = cache_of(model, "encode", NULL, 4 << 20);
        kvik_seq s;
        OK(kvik_cache_new(c, &s));
        OK(append(c, s, 500, NULL));
        kvik_usage was = usage_of(c);
        OK(kvik_cache_set_memory(c, was.bytes + was.metadata - (run ? less + 64 : 64)));
        kvik_usage u = {.size = sizeof u}; /* its peak was within the larger budget */
        OK(kvik_cache_usage(c, &u));
        assert_true(u.bytes + u.metadata <= u.budget);
        less = was.bytes - u.bytes;
        assert_int_equal(u.encoded8, run ? 0 : rows_encoded(500));
        assert_int_equal(u.encoded4, run ? rows_encoded(500) : 0);
        kvik_cache_close(c);
    }
}

/* While a sequence has a reserve, which was counted for rows as they are, nothing is encoded. */
static void not_under_a_reserve(void **state)
{
    (void)state;
    kvik_cache *c = cache_of(model, "encode", NULL, 4 << 20);
    kvik_seq s, t;
    OK(kvik_cache_new(c, &s));
    OK(kvik_cache_new(c, &t));
    OK(append(c, s, 500, NULL));
    OK(kvik_cache_reserve(c, t, 16));
    kvik_usage was = usage_of(c);
    uint64_t less = was.bytes + was.metadata - (was.bytes >> 3);
    assert_int_equal(kvik_cache_set_memory(c, less), KVIK_FULL);
    assert_int_equal(usage_of(c).encoded8 + usage_of(c).encoded4, 0);
    OK(kvik_cache_reserve(c, t, 0));
    OK(kvik_cache_set_memory(c, less));
    assert_int_equal(usage_of(c).encoded8, rows_encoded(500));
    kvik_cache_close(c);
}

/* Once its rows are encoded, the cache is one of backend kvik: what it saves goes on with the same bits in such a cache, and in another
 * one that can encode. */
static void is_as_kvik(void **state)
{
    (void)state;
    uint32_t vocab = kvik_model_vocab(model);
    float *a = calloc(2 * vocab, sizeof *a);
    char path[] = "/tmp/kvik-encode-XXXXXX";
    kvik_cache *c[3] = {cache_of(model, "encode", NULL, 4 << 20),
                        cache_of(model, NULL, "{\"backend\":\"kvik\",\"nbits\":8}", 4 << 20),
                        cache_of(model, "encode", NULL, 4 << 20)};
    kvik_seq s, t;
    close(mkstemp(path));
    unlink(path);
    OK(kvik_cache_new(c[0], &s));
    OK(append(c[0], s, 500, NULL));
    kvik_usage was = usage_of(c[0]);
    OK(kvik_cache_set_memory(c[0], was.bytes + was.metadata - (was.bytes >> 3)));
    assert_int_equal(usage_of(c[0]).encoded8, rows_encoded(500));
    OK(kvik_cache_set_memory(c[0], 4 << 20));
    OK(kvik_cache_save(c[0], path, &s, 1, NULL));
    OK(append(c[0], s, 30, a));
    for (int i = 1; i < 3; i++) {
        OK(kvik_cache_load(c[i], path, 1, &t, NULL));
        OK(append(c[i], t, 30, a + vocab));
        assert_memory_equal(a, a + vocab, vocab * sizeof *a);
    }
    for (int i = 0; i < 3; i++)
        kvik_cache_close(c[i]);
    unlink(path);
    free(a);
}

static void on_notice(void *ctx, const char *text)
{
    (void)ctx;
    notices++;
    snprintf(notice, sizeof notice, "%s", text);
}

/* Generating tells it once. */
static void tells_once(void **state)
{
    (void)state;
    kvik_cache *c = cache_of(model, "encode", NULL, native_need(400));
    kvik_generation g;
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 380};
    kvik_hooks h = {.size = sizeof h, .on_notice = on_notice};
    OK(kvik_generation_init(&g, model));
    g.max_new_tokens = g.min_new_tokens = 80;
    OK(kvik_generate(c, &g, &p, 1, &h, &r));
    assert_int_equal(notices, 1);
    assert_non_null(strstr(notice, "with 8 bits now"));
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static void refused(const kvik_cache_config *k, int e, const char *why)
{
    kvik_cache *c;
    assert_int_equal(kvik_cache_open(model, k, &c), e);
    if (!strstr(kvik_last_error(), why)) fail_msg("%s", kvik_last_error());
}

static void names_what_does_not_go_with_it(void **state)
{
    (void)state;
    kvik_cache_config k = {.size = sizeof k, .on_full = "encode", .cache_implementation = "static"};
    kvik_layers *l;
    refused(&k, KVIK_ARG, "static");
    k.cache_implementation = "offloaded";
    refused(&k, KVIK_ARG, "disk");
    k.cache_implementation = "quantized";
    refused(&k, KVIK_ARG, "quantized from the first on");
    k.cache_implementation = NULL;
    k.cache_config = "{\"sliding_window\":32}";
    refused(&k, KVIK_UNSUPPORTED, "nothing to encode");
    k.cache_config = NULL;
    assert_int_equal(kvik_layers_open(&k, 2, NULL, &l), KVIK_UNSUPPORTED);
}

/* The real model: a prompt that needs twice the memory, and the divergence of what follows. */
static void stays_near(void **state)
{
    (void)state;
    const char *path = getenv("KVIK_TEST_MODEL");
    kvik_model *m;
    if (!path || access(path, R_OK) != 0) skip();
    OK(kvik_model_open(path, &m));
    uint32_t vocab = kvik_model_vocab(m), n = 64;
    int32_t *text = calloc(MOST, sizeof *text);
    for (int i = 0; i < MOST; i++)
        text[i] = 1000 + (i * 7919 + i / 9 * 31) % 20000;
    float *a = calloc((size_t)n * vocab, sizeof *a), *b = calloc((size_t)n * vocab, sizeof *b);
    double *room = calloc(vocab, sizeof *room), sum = 0;
    uint64_t most = 0;
    for (int run = 0; run < 2; run++) {
        kvik_cache *c = cache_of(m, "encode", NULL, run ? most : 256 << 20);
        kvik_seq s;
        OK(kvik_cache_new(c, &s));
        kvik_span span = {.size = sizeof span, .seq = s, .ids = text, .n = 640};
        OK(kvik_forward(c, &span, 1, false, NULL));
        span.ids = text + 640;
        span.n = n;
        OK(kvik_forward(c, &span, 1, true, run ? b : a));
        kvik_usage u = usage_of(c);
        assert_int_equal(u.encoded8 > 0, run);
        most = u.metadata + u.bytes * 7 / 10;
        kvik_cache_close(c);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct divergence d = {.logits = a + (size_t)i * vocab, .p = room};
        double kld, nll;
        bool same;
        divergence_reference(&d, vocab);
        assert_true(divergence_compare(&d, b + (size_t)i * vocab, vocab, &kld, &nll, &same));
        sum += kld;
    }
    printf("mean KLD %.2g\n", sum / n);
    assert_true(sum / n < 0.002);
    free(a), free(b), free(room), free(text);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(goes_on),
                                       cmocka_unit_test(forks_and_crops),
                                       cmocka_unit_test(goes_to_4_at_once),
                                       cmocka_unit_test(not_under_a_reserve),
                                       cmocka_unit_test(is_as_kvik),
                                       cmocka_unit_test(tells_once),
                                       cmocka_unit_test(names_what_does_not_go_with_it),
                                       cmocka_unit_test(stays_near)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
