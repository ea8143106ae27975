/* test_gguf_models.c - a model gives the same logits from GGUF and from safetensors, within 1e-4.
 * tests/fixtures/convert_gguf.py made the .gguf files from the golden models next to them. The
 * weights are the same f32 numbers under other names, with another order of rotary pairs and 1
 * added to norms. */
#include "base/base.h"
#include "base/file.h"
#include "kvik.h"
#include "models.h"
#include "testing.h"

#include <math.h>

enum { STEPS = 6, PROMPT = 120 };

static struct pair {
    char hf[256], gguf[256];
} pairs[GOLDEN_MOST];
static uint32_t n_pairs;

/* Lists every .gguf file among the golden models and the model next to it. */
static void find_pairs(void)
{
    const char *name[GOLDEN_MOST];
    uint32_t n = golden_models(name);
    for (uint32_t i = 0; i < n; i++) {
        size_t len = strlen(name[i]);
        if (len < 6 || strcmp(name[i] + len - 5, ".gguf") != 0) continue;
        struct pair *p = &pairs[n_pairs++];
        snprintf(p->hf, sizeof p->hf, GOLDEN_MODELS "/%.*s", (int)len - 5, name[i]);
        snprintf(p->gguf, sizeof p->gguf, GOLDEN_MODELS "/%s", name[i]);
    }
}

static const uint32_t depths[] = {1, 9, 40, PROMPT}; /* the windows are 8 to 12 tokens */

/* Returns logits of all rows and steps, [STEPS][rows][vocab]; the caller frees the result. */
static kvik_result *run(const char *path, uint32_t *vocab)
{
    static int32_t ids[countof(depths)][PROMPT];
    kvik_prompt p[countof(depths)];
    kvik_generation g;
    kvik_model *m;
    kvik_cache *c;
    kvik_result *r;
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    *vocab = kvik_model_vocab(m);
    uint32_t seed = 5;
    for (uint32_t i = 0; i < countof(depths); i++) {
        for (uint32_t j = 0; j < depths[i]; j++) {
            seed = seed * 1664525u + 1013904223u;
            ids[i][j] = (int32_t)(3 + (seed >> 8) % (*vocab - 3));
        }
        p[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = ids[i], .n = depths[i]};
    }
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    g.max_new_tokens = STEPS;
    g.n_eos = 0;
    g.output_logits = true;
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = countof(depths), .compute = "exact"};
    if (kvik_cache_open(m, &config, &c) < 0 ||
        kvik_generate(c, &g, p, countof(depths), NULL, &r) < 0)
        fail_msg("%s: %s", path, kvik_last_error());
    kvik_cache_close(c);
    kvik_generation_done(&g);
    kvik_model_close(m);
    return r;
}

static void same_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_pairs; i++) {
        uint32_t vocab, other;
        kvik_result *a = run(pairs[i].hf, &vocab), *b = run(pairs[i].gguf, &other);
        assert_int_equal(vocab, other);
        double worst = 0, size = 0;
        for (size_t k = 0; k < (size_t)STEPS * countof(depths) * vocab; k++) {
            double d = fabs((double)a->logits[k] - (double)b->logits[k]);
            if (!(d <= 1e-4 * fmax(1, fabs((double)a->logits[k]))))
                fail_msg("%s: logit %zu is %.9g, from safetensors %.9g", pairs[i].gguf, k,
                         (double)b->logits[k], (double)a->logits[k]);
            worst = fmax(worst, d);
            size = fmax(size, fabs((double)a->logits[k]));
        }
        assert_true(size > 0.1);
        printf("%s: largest difference %.3g of logits up to %.3g\n", pairs[i].gguf, worst, size);
        kvik_result_free(a);
        kvik_result_free(b);
    }
}

/* Opens a file and runs a few tokens if it opens; an error must come with a message. */
static bool survives(const char *path)
{
    static const int32_t ids[] = {5, 9, 7, 5, 30, 31, 32, 33, 34, 35, 36, 37};
    kvik_model *m = NULL;
    kvik_cache *c = NULL;
    kvik_seq s;
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 1, .max_cache_len = 32, .threads = 1};
    int e = kvik_model_open(path, &m);
    bool opened = e >= 0;
    if (e >= 0 && kvik_model_vocab(m) > 37 && kvik_model_vocab(m) < 100000) {
        float *logits = malloc(kvik_model_vocab(m) * sizeof *logits);
        kvik_span span = {.size = sizeof span, .n = countof(ids), .ids = ids};
        e = kvik_cache_open(m, &config, &c);
        if (e >= 0) e = kvik_cache_new(c, &s);
        span.seq = e >= 0 ? s : 0;
        if (e >= 0) e = kvik_forward(c, &span, 1, false, logits);
        free(logits);
    }
    if (e < 0) assert_true(kvik_last_error()[0] != 0);
    kvik_cache_close(c);
    kvik_model_close(m);
    return opened;
}

/* Changes the metadata one byte or one number at a time: each file gives an error or a run, and
 * never a crash. */
static void lies(void **state)
{
    static const uint32_t odd[] = {0, 1, 0x7fffffff, 0xffffffff, 0x7f800000, 0x7fc00000, 512};
    char path[] = "/tmp/kvik-gguf-XXXXXX", *data;
    uint32_t seed = 1, opened = 0, tried = 0;
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t i = 0; i < n_pairs; i++) {
        size_t n, head = 1800; /* the bytes of the keys and of some tensors */
        assert_int_equal(file_read(pairs[i].gguf, 1 << 24, &data, &n), 0);
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, data, n, 0), n);
        for (int k = 0; k < 300; k++) {
            seed = seed * 1664525u + 1013904223u;
            off_t at = 8 + (off_t)((seed >> 8) % head);
            uint32_t word = k % 2 ? odd[(seed >> 24) % countof(odd)] : seed >> 16;
            assert_int_equal(pwrite(fd, &word, k % 2 ? 4 : 1, at), k % 2 ? 4 : 1);
            opened += survives(path);
            tried++;
            assert_int_equal(pwrite(fd, data + at, 4, at), 4);
        }
        assert_true(survives(path));
        mem_free(data);
    }
    close(fd);
    unlink(path);
    printf("%u of %u changed files opened\n", opened, tried);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_logits), cmocka_unit_test(lies)};
    find_pairs();
    if (n_pairs < 8) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
