/* test_devices.c - one model on two devices, the CPU and cuda: their logits are close, or equal where docs/CUDA.md says so; a
 * session that one saved continues on the other; and memory of the device that is full fails a call or moves rows, and loses none.
 *
 *     test_devices [real|--dry] [kld|sessions|memory [MODEL]]      real: the library that $KVIK_CUDA_LIBRARY names, on a GPU
 *
 *     what,model,case,tokens,mean divergence,greatest,result */
#include "dev/cuda/cuda.h"
#include "kvik.h"
#include "testing.h"

#include <math.h>

enum { N = 48, MORE = 8, HOG = 4096 };
static const char *model = "tests/golden/models/llama-d64";
static const char *const names[] = {"cpu", "cuda"};
static int32_t ids[4096];
static kvik_model *m[2];
static uint32_t vocab;
static bool real; /* a GPU */

static kvik_cache *cache_of(int device, const char *compute, const char *on_full, uint32_t len)
{
    const kvik_cache_config k = {.size = sizeof k,
                                 .compute = compute,
                                 .on_full = on_full,
                                 .max_cache_len = len,
                                 .max_sequences = 2,
                                 .cache_memory = (uint64_t)64 << 20,
                                 .no_prefix_cache = true};
    kvik_cache *c;
    if (kvik_cache_open(m[device], &k, &c) < 0)
        fail_msg("%s: %s", names[device], kvik_last_error());
    return c;
}

static float *logits_for(uint32_t n)
{
    float *x = malloc((size_t)n * vocab * sizeof *x);
    assert_non_null(x);
    return x;
}

/* The logits after each of n tokens behind those that s has. */
static int feed(kvik_cache *c, kvik_seq s, uint32_t n, float *logits)
{
    const kvik_span span = {
        .size = sizeof span, .seq = s, .ids = ids + kvik_cache_length(c, s), .n = n};
    return kvik_forward(c, &span, 1, true, logits);
}

static void must(int e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
}

/* Kullback-Leibler divergence of a row of logits from another. */
static double divergence(const float *p, const float *q)
{
    double sp = 0, sq = 0, d = 0;
    float mp = p[0], mq = q[0];
    for (uint32_t i = 1; i < vocab; i++) {
        mp = fmaxf(mp, p[i]);
        mq = fmaxf(mq, q[i]);
    }
    for (uint32_t i = 0; i < vocab; i++) {
        sp += exp((double)p[i] - (double)mp);
        sq += exp((double)q[i] - (double)mq);
    }
    for (uint32_t i = 0; i < vocab; i++) {
        double lp = (double)p[i] - (double)mp - log(sp), lq = (double)q[i] - (double)mq - log(sq);
        d += exp(lp) * (lp - lq);
    }
    return d;
}

static void test_kld(void **state)
{
    (void)state;
    static const struct {
        const char *compute;
        double most;
    } way[] = {{"exact", 1e-5}, {"fast", 1e-3}};
    for (size_t w = 0; w < countof(way); w++) {
        float *x[2];
        for (int d = 0; d < 2; d++) {
            kvik_cache *c = cache_of(d, way[w].compute, NULL, 2 * N);
            kvik_seq s;
            must(kvik_cache_new(c, &s));
            x[d] = logits_for(N);
            must(feed(c, s, N, x[d]));
            kvik_cache_close(c);
        }
        double worst = 0, sum = 0;
        for (uint32_t i = 0; i < N; i++) {
            double k = divergence(x[0] + (size_t)i * vocab, x[1] + (size_t)i * vocab);
            assert_true(isfinite(k));
            worst = fmax(worst, k);
            sum += k;
        }
        printf("kld,%s,%s,%u,%.3g,%.3g,%s\n", model, way[w].compute, N, sum / N, worst,
               memcmp(x[0], x[1], (size_t)N * vocab * sizeof **x) ? "close" : "same bits");
        if (!(worst < way[w].most))
            fail_msg("%s: the divergence from the CPU is %g, more than %g", way[w].compute, worst,
                     way[w].most);
        free(x[0]);
        free(x[1]);
    }
}

/* A text begins on one device and ends on the other: exact logits are those of the device that goes on alone. */
static void test_sessions(void **state)
{
    (void)state;
    char path[] = "/tmp/kvik-devices-XXXXXX", file[64];
    assert_non_null(mkdtemp(path));
    for (int from = 0; from < 2; from++) {
        kvik_cache *a = cache_of(from, "exact", NULL, 2 * N),
                   *b = cache_of(!from, "exact", NULL, 2 * N);
        kvik_seq s, t;
        float *whole = logits_for(N), *rest = logits_for(MORE), *other = logits_for(MORE);
        snprintf(file, sizeof file, "%s/%s.kvik", path, names[from]);
        must(kvik_cache_new(a, &s));
        must(feed(a, s, N, whole));
        must(kvik_cache_save(a, file, &s, 1, NULL));
        must(kvik_cache_load(b, file, 1, &t, NULL));
        assert_int_equal(kvik_cache_length(b, t), N);
        must(feed(a, s, MORE, rest));
        must(feed(b, t, MORE, other));
        bool same = memcmp(rest, other, (size_t)MORE * vocab * sizeof *rest) == 0;
        printf("session,%s,%s to %s,%u,0,0,%s\n", model, names[from], names[!from], N,
               same ? "same bits" : "differs");
        assert_true(same);
        kvik_cache_close(a);
        kvik_cache_close(b);
        unlink(file);
        free(whole);
        free(rest);
        free(other);
    }
    rmdir(path);
}

/* --- Memory of the device that others have taken */
static void *hogged[HOG];
static uint32_t n_hogged;
static const struct cuda_rt *rt;
static size_t page; /* of its ranges */

static void hog(void)
{
    size_t least = page;
    for (size_t n = (size_t)1 << 30; n >= least && n_hogged < HOG;) {
        void *at = rt->alloc(CUDA_DEVICE, n);
        if (at)
            hogged[n_hogged++] = at;
        else
            n /= 2;
    }
}

static void let_go(void)
{
    while (n_hogged)
        rt->release(CUDA_DEVICE, hogged[--n_hogged], 0);
}

/* The device is full after N tokens, although cache_memory is not used up.  A text grows until a call fails, which leaves it as it
 * was; it goes on when there is memory again.  In the end the last logits are those of the CPU, and nothing was lost. */
static void full(const char *on_full, const float *want, uint32_t len)
{
    kvik_cache *c = cache_of(1, "exact", on_full, len);
    kvik_seq s;
    float *x = logits_for(N);
    uint32_t refused = 0;
    must(kvik_cache_new(c, &s));
    must(feed(c, s, N, x));
    hog();
    for (uint32_t at = N; at < len; at += N) {
        int e = feed(c, s, N, x);
        if (e >= 0) continue;
        if (!refused++) fprintf(stderr, "at %u: %s\n", at, kvik_last_error());
        assert_true(e == ERR_FULL || e == ERR_NOMEM);
        assert_int_equal(kvik_cache_length(c, s), at);
        let_go();
        must(feed(c, s, N, x));
    }
    let_go();
    printf("memory,%s,%s,%u,0,0,%u refused\n", model, on_full ? on_full : "error", len, refused);
    assert_true(refused || on_full); /* on_full "offload" may find room */
    assert_memory_equal(x, want, (size_t)N * vocab * sizeof *x);
    kvik_cache_close(c);
    free(x);
}

static void test_memory(void **state)
{
    (void)state;
    struct dev *dev;
    /* more rows than one page of the device has for each layer, of 64 KB emulated and of 2 MB on a GPU */
    uint32_t len = 0, whole = (real ? 80 : 11) * N;
    must(dev_open("cuda", &dev));
    rt = ((const struct cuda_dev *)dev)->rt;
    page = dev_page(dev);
    kvik_cache *c = cache_of(0, "exact", NULL, whole);
    kvik_seq s;
    float *x = logits_for(N);
    must(kvik_cache_new(c, &s));
    for (; len < whole; len += N)
        must(feed(c, s, N, x));
    kvik_cache_close(c);
    full(NULL, x, len);
    if (real) full("offload", x, len);
    free(x);
    dev_close(dev);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kld), cmocka_unit_test(test_sessions),
                                       cmocka_unit_test(test_memory)};
    char library[4096];
    real = argc > 1 && !strcmp(argv[1], "real");
    int first = 1 + (real || (argc > 1 && !strcmp(argv[1], "--dry")));
    const char *only = argc > first ? argv[first] : NULL, *slash = strrchr(argv[0], '/');
    if (argc > first + 1) model = argv[first + 1];
    snprintf(library, sizeof library, "%.*s/libkvik-cuda-emulated.so",
             slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
    if (!real) setenv("KVIK_CUDA_LIBRARY", library, 1);
    if (!real) setenv("KVIK_EMULATED_MEMORY", "134217728", 1);
    for (int d = 0; d < 2; d++) {
        const kvik_model_options o = {.size = sizeof o, .device = names[d]};
        if (kvik_model_open_with(model, &o, &m[d]) < 0) {
            fprintf(stderr, "%s: %s\n", names[d], kvik_last_error());
            return 1;
        }
    }
    vocab = kvik_model_vocab(m[0]);
    draw_ids(ids, countof(ids), vocab, 7);
    static char filter[64];
    if (only) {
        snprintf(filter, sizeof filter, "test_%s", only);
        cmocka_set_test_filter(filter);
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kvik_model_close(m[0]);
    kvik_model_close(m[1]);
    return failed;
}
