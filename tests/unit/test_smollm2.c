/* test_smollm2.c - the real model against Transformers with the same weights
 * (tests/fixtures/smollm2, made by scripts/make-fixtures.py): greedy tokens in exact compute,
 * logits, and the distance of fast compute (KLD over the evaluation text, at most 5e-4 by design). */
#include "base/file.h"
#include "base/json.h"
#include "fmt/fmt.h"
#include "kvik.h"
#include "testing.h"

#include <math.h>

#define DIR "tests/fixtures/smollm2/"

static kvik_model *m;
static uint32_t vocab;

static kvik_cache *open_cache(const char *compute, uint32_t len)
{
    kvik_cache *c;
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 1, .max_cache_len = len, .compute = compute};
    if (kvik_cache_open(m, &config, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static uint32_t read_ids(const json_t *a, int32_t *out, uint32_t cap)
{
    uint32_t n = (uint32_t)json_array_size(a);
    assert_true(n <= cap);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(a, i));
    return n;
}

static void near_logits(const char *file, const char *key, const float *got)
{
    char path[300];
    struct safetensors *s;
    snprintf(path, sizeof path, DIR "%s", file);
    assert_int_equal(safetensors_open(path, &s), 0);
    const struct tensor *t = safetensors_find(s, key);
    assert_non_null(t);
    double worst = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        float want;
        memcpy(&want, (const char *)t->data + 4 * (size_t)i, 4);
        worst = fmax(worst, fabs(got[i] - want) / (1 + fabs(want)));
    }
    printf("  %s %s: off by %.2e\n", file, key, worst);
    assert_true(worst <= 1e-4);
    safetensors_close(s);
}

enum { CASES = 32, NEW = 64, DEEP = 2048 };
/* One prompt of prompts.json with the tokens and the file of logits of the reference. */
struct reference {
    const char *name, *logits;
    int32_t in[DEEP], want[NEW];
    uint32_t n, k;
};

/* Generates all cases in one batch and compares each row with the reference. */
static void compare(const struct reference *c, uint32_t rows)
{
    kvik_prompt p[CASES];
    kvik_generation g;
    kvik_result *r;
    kvik_cache *cache;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < rows; i++) {
        p[i] = (kvik_prompt){.size = sizeof *p, .ids = c[i].in, .n = c[i].n};
        longest = MAX(longest, c[i].n);
    }
    kvik_cache_config config = {.size = sizeof config,
                                .max_sequences = rows,
                                .max_cache_len = longest + NEW,
                                .compute = "exact"};
    if (kvik_cache_open(m, &config, &cache) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    g.max_new_tokens = NEW;
    g.n_eos = 0;
    g.output_logits = true;
    if (kvik_generate(cache, &g, p, rows, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < c[i].k; j++)
            if (r->row[i]->ids[c[i].n + j] != c[i].want[j])
                fail_msg("%s: token %u is %d, the reference has %d", c[i].name, j,
                         r->row[i]->ids[c[i].n + j], c[i].want[j]);
        if (c[i].logits) {
            near_logits(c[i].logits, "prefill", r->logits + (size_t)i * vocab);
            near_logits(c[i].logits, "last", r->logits + ((size_t)(c[i].k - 1) * rows + i) * vocab);
        }
    }
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_cache_close(cache);
}

/* The short prompts are one batch: the weights are read once a step, and a row's logits do not
 * depend on the rows beside it (test_identity). The long prompt runs alone. */
static void greedy_equals_reference(void **state)
{
    (void)state;
    if (!m) skip();
    static struct reference row[CASES];
    json_t *d;
    const json_t *c;
    size_t i;
    uint32_t n = 0, runs = 0;
    assert_int_equal(json_read(DIR "prompts.json", 16 << 20, &d), 0);
    json_array_foreach(json_object_get(d, "cases"), i, c)
    {
        struct reference *x = &row[n];
        assert_true(n < CASES);
        x->n = read_ids(json_object_get(c, "input_ids"), x->in, countof(x->in));
        x->k = read_ids(json_object_get(c, "output_ids"), x->want, countof(x->want));
        x->name = json_string_value(json_object_get(c, "name"));
        x->logits = json_string_value(json_object_get(c, "logits"));
        runs += x->k == NEW;
        if (x->n > 200)
            compare(x, 1);
        else
            n++;
    }
    compare(row, n);
    printf("  %u prompts x %d greedy tokens equal the reference\n", runs, NEW);
    assert_true(runs >= 5);
    json_decref(d);
}

/* Measures KLD(exact || fast) at every position of windows of 512 tokens: every third window of the
 * evaluation text, with KVIK_TEST_LONG=1 every window. */
static void fast_stays_near_exact(void **state)
{
    (void)state;
    if (!m) skip();
    enum { WINDOW = 512 };
    bool all = getenv("KVIK_TEST_LONG") != NULL;
    char *text;
    size_t n_text, n;
    int32_t *ids;
    assert_int_equal(file_read("tests/fixtures/eval.txt", 1 << 20, &text, &n_text), 0);
    assert_int_equal(kvik_tokenizer_encode(kvik_model_tokenizer(m), text, n_text, false, &ids, &n),
                     0);
    assert_true(n >= 4096);
    float *x[2] = {malloc((size_t)WINDOW * vocab * 4), malloc((size_t)WINDOW * vocab * 4)};
    kvik_cache *c[2] = {open_cache("exact", WINDOW), open_cache("fast", WINDOW)};
    double sum = 0;
    size_t count = 0;
    for (size_t at = 0; at + WINDOW <= n; at += all ? WINDOW : 3 * WINDOW) {
        for (int k = 0; k < 2; k++) {
            kvik_seq s;
            assert_int_equal(kvik_cache_new(c[k], &s), 0);
            kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + at, .n = WINDOW};
            assert_int_equal(kvik_forward(c[k], &span, 1, true, x[k]), 0);
            kvik_cache_drop(c[k], s);
        }
        for (size_t t = 0; t < WINDOW; t++, count++) {
            const float *p = x[0] + t * vocab, *q = x[1] + t * vocab;
            double zp = 0, zq = 0, mp = -INFINITY, mq = -INFINITY, kld = 0;
            for (uint32_t i = 0; i < vocab; i++) {
                mp = fmax(mp, p[i]);
                mq = fmax(mq, q[i]);
            }
            for (uint32_t i = 0; i < vocab; i++) {
                zp += expf(p[i] - (float)mp);
                zq += expf(q[i] - (float)mq);
            }
            double shift = (mq + log(zq)) - (mp + log(zp));
            for (uint32_t i = 0; i < vocab; i++)
                kld += expf(p[i] - (float)mp) / zp * ((double)p[i] - q[i] + shift);
            sum += kld;
        }
    }
    printf("  mean KLD of fast against exact over %zu tokens: %.2e (bound 5e-4)\n", count,
           sum / (double)count);
    assert_true(count >= (all ? 4096 : 2048));
    assert_true(sum / (double)count <= 5e-4);
    assert_true(sum / (double)count > 0); /* the two modes do differ */
    for (int k = 0; k < 2; k++) {
        free(x[k]);
        kvik_cache_close(c[k]);
    }
    kvik_free(ids);
    mem_free(text);
}

/* A stop string may begin in the prompt. A stop string that lies wholly in the prompt stops
 * nothing. */
static void stop_strings(void **state)
{
    (void)state;
    if (!m) skip();
    static const struct {
        const char *json, *text;
        enum kvik_finish finish;
    } row[] = {
        {"{\"max_new_tokens\": 5}", " a place of endless wonder", KVIK_FINISH_LENGTH},
        {"{\"max_new_tokens\": 5, \"stop_strings\": \"sea\"}", " a place of endless wonder",
         KVIK_FINISH_LENGTH},
        {"{\"max_new_tokens\": 5, \"stop_strings\": [\"never\", \"is a pl\"]}", " a place",
         KVIK_FINISH_STOP},
        {"{\"max_new_tokens\": 5, \"stop_strings\": \"less\"}", " a place of endless",
         KVIK_FINISH_STOP},
    };
    for (size_t i = 0; i < countof(row); i++) {
        kvik_cache *c = open_cache("exact", 64);
        kvik_generation g;
        kvik_result *r;
        assert_int_equal(kvik_generation_init(&g, m), 0);
        assert_int_equal(kvik_generation_set(&g, row[i].json), 0);
        if (kvik_generate_text(c, &g, "The sea is", &r) < 0) fail_msg("%s", kvik_last_error());
        assert_string_equal(r->row[0]->text, row[i].text);
        assert_int_equal(r->row[0]->finish, row[i].finish);
        kvik_result_free(r);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

int main(void)
{
    const char *path = getenv("KVIK_TEST_SHORT") ? NULL : test_model();
    if (path && kvik_model_open(path, &m) < 0) {
        fprintf(stderr, "%s\n", kvik_last_error());
        return 1;
    }
    if (m) vocab = kvik_model_vocab(m);
    const struct CMUnitTest tests[] = {cmocka_unit_test(stop_strings),
                                       cmocka_unit_test(greedy_equals_reference),
                                       cmocka_unit_test(fast_stays_near_exact)};
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    kvik_model_close(m);
    return e;
}
