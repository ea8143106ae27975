/* test_quantize.c - weights that are quantized at load: the bytes of the gguf package's quantizers, the same bits from memory and
 * from the kept file for every family, entries that are damaged or cannot be written, and what is refused. */
#include "base/durable.h"
#include "base/file.h"
#include "cache_folder.h"
#include "dev/dev.h"
#include "fmt/fmt.h"
#include "generate/handle.h"
#include "kvik.h"
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

enum { N = 12 };
static char dir[] = "/tmp/kvik-quantize-XXXXXX", told[4096];

static int setup(void **state)
{
    (void)state;
    cache_fresh(dir, "weights", 32);
    return 0;
}

static unsigned entries(char path[2 * PATH])
{
    return count_entries(folder, path, 2 * PATH);
}

static void on_notice(void *ctx, const char *text)
{
    (void)ctx;
    snprintf(told, sizeof told, "%s", text);
}

static kvik_model *open_as(const char *path, const char *type)
{
    kvik_model *m = NULL;
    const kvik_model_options o = {.size = sizeof o, .quantize = type, .on_notice = on_notice};
    told[0] = 0;
    if (kvik_model_open_with(path, &o, &m) < 0) fail_msg("%s: %s", path, kvik_last_error());
    return m;
}

static const struct cache_entry *kept(kvik_model *m)
{
    const struct cache_entry *e;
    assert_true(checkpoint_adopted(m->m->ck, &e) > 0);
    return e;
}

/* The tensors of two models are equal byte for byte. */
static void same_weights(kvik_model *a, kvik_model *b)
{
    uint32_t n = checkpoint_n_tensors(a->m->ck);
    assert_int_equal(n, checkpoint_n_tensors(b->m->ck));
    for (uint32_t i = 0; i < n; i++) {
        const struct tensor *x = checkpoint_tensor_at(a->m->ck, i);
        const struct tensor *y = checkpoint_tensor_at(b->m->ck, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
}

/* Returns the logits of the last of a few tokens (mem_free). */
static float *logits_of(kvik_model *m)
{
    static const int32_t ids[N] = {5, 9, 3, 77, 12, 8, 6, 40, 31, 2, 7, 11};
    kvik_cache_config k = {.size = sizeof k, .max_cache_len = 64, .max_sequences = 1, .threads = 2};
    kvik_cache *c;
    kvik_seq s;
    uint32_t n = kvik_model_vocab(m);
    float *row = mem_array(n, sizeof *row);
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = N};
    if (kvik_forward(c, &span, 1, false, row) < 0) fail_msg("%s", kvik_last_error());
    kvik_cache_close(c);
    return row;
}

/* --- The quantizer ----------------------------------------------------------------------------- */

static double error_of(enum dtype t, const void *q, const float *x, size_t n)
{
    double sum = 0;
    float *back = mem_array(n, sizeof *back);
    dev_to_f32(t, q, back, n);
    for (size_t i = 0; i < n; i++)
        sum += ((double)back[i] - x[i]) * ((double)back[i] - x[i]);
    mem_free(back);
    return sum;
}

static void test_bytes(void **state)
{
    (void)state;
    struct safetensors *f;
    if (safetensors_open("tests/fixtures/quant/encode.safetensors", &f) < 0)
        fail_msg("%s", kvik_last_error());
    const struct tensor *x = safetensors_find(f, "x");
    size_t n = x->bytes / 4;
    float *v = mem_alloc(x->bytes);
    memcpy(v, x->data, x->bytes);
    unsigned char *got = mem_alloc(2 * n);
    for (int i = 0; i < 2; i++) {
        const struct tensor *want = safetensors_find(f, i ? "q4_0" : "q8_0");
        assert_true(dev_encode(i ? DT_Q4_0 : DT_Q8_0, v, got, n));
        assert_memory_equal(got, want->data, want->bytes);
    }
    /* q4_k: less error than q4_0 in every row, and far less in all; a constant costs it the rounding of a scale. */
    double all[2] = {0};
    for (size_t r = 0; r < n / 256; r++) {
        double e[2];
        for (int i = 0; i < 2; i++) {
            enum dtype t = i ? DT_Q4_0 : DT_Q4_K;
            assert_true(dev_encode(t, v + r * 256, got, 256));
            all[i] += e[i] = error_of(t, got, v + r * 256, 256);
        }
        if (e[0] > e[1] + 1e-5) fail_msg("row %zu: q4_k has error %g, q4_0 %g", r, e[0], e[1]);
    }
    assert_true(all[0] < 0.8 * all[1]);
    mem_free(got);
    mem_free(v);
    safetensors_close(f);
}

static void test_extremes(void **state)
{
    (void)state;
    static const enum dtype type[] = {DT_Q8_0, DT_Q4_0, DT_Q4_K};
    unsigned char out[512];
    for (size_t i = 0; i < countof(type); i++) {
        float x[256] = {0};
        assert_true(dev_encode(type[i], x, out, 256));
        assert_true(error_of(type[i], out, x, 256) == 0);
        for (int k = 0; k < 256; k++)
            x[k] = k % 2 ? 1e-42f : -1e-42f;
        assert_true(dev_encode(type[i], x, out, 256));
        assert_true(error_of(type[i], out, x, 256) < 1e-70);
        const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f};
        for (size_t k = 0; k < countof(bad); k++) {
            x[200] = bad[k];
            assert_false(dev_encode(type[i], x, out, 256));
        }
    }
}

/* --- Models ------------------------------------------------------------------------------------ */

/* Weights from memory, from a new file and from a file of an earlier run are the same, and so are logits. */
static void test_families(void **state)
{
    (void)state;
    static const char *const name[] = {
        "llama-d64", "llama-bf16", "gpt2",   "llama4", "gpt-oss", "gemma2",     "phi3",
        "mamba2",    "qwen3-next", "zamba2", "t5",     "whisper", "gemma2.gguf"};
    static const char *const type[] = {"q8_0", "q4_0", "q4_k"};
    for (size_t i = 0; i < countof(name); i++) {
        char path[PATH];
        const char *to = type[i % countof(type)];
        snprintf(path, sizeof path, "tests/golden/models/%s", name[i]);
        kvik_model *a = open_as(path, to);
        assert_non_null(kept(a));
        assert_non_null(strstr(told, "kept in"));
        kvik_model *b = open_as(path, to);
        assert_string_equal(told, "");
        setenv("XDG_CACHE_HOME", "/proc/self", 1);
        kvik_model *c = open_as(path, to);
        setenv("XDG_CACHE_HOME", cache_dir, 1);
        assert_null(kept(c));
        assert_non_null(strstr(told, "in memory"));
        same_weights(a, b);
        same_weights(a, c);
        kvik_encoder e = {.size = sizeof e};
        if (kvik_model_encoder(a, &e) == 0) {
            float *x = logits_of(a), *y = logits_of(b), *z = logits_of(c);
            size_t bytes = kvik_model_vocab(a) * sizeof *x;
            assert_memory_equal(x, y, bytes);
            assert_memory_equal(x, z, bytes);
            for (uint32_t k = 0; k < kvik_model_vocab(a); k++)
                assert_true(isfinite(x[k]));
            mem_free(x);
            mem_free(y);
            mem_free(z);
        }
        kvik_model_close(a);
        kvik_model_close(b);
        kvik_model_close(c);
    }
}

/* q8_0 hardly changes the logits: what is bound transposed, stacked or sliced is quantized rightly. A wrong layout has an
 * error as large as the logits. */
static void test_near(void **state)
{
    (void)state;
    static const char *const name[] = {"llama-d64", "gpt2",   "llama4",
                                       "gpt-oss",   "mamba2", "qwen3-next"};
    for (size_t i = 0; i < countof(name); i++) {
        char path[PATH];
        snprintf(path, sizeof path, "tests/golden/models/%s", name[i]);
        kvik_model *a = open_as(path, NULL), *b = open_as(path, "q8_0");
        float *x = logits_of(a), *y = logits_of(b);
        double error = 0, size = 0;
        for (uint32_t k = 0; k < kvik_model_vocab(a); k++) {
            error += ((double)x[k] - y[k]) * ((double)x[k] - y[k]);
            size += (double)x[k] * x[k];
        }
        if (error > 2e-2 * size) fail_msg("%s: error %g of %g", name[i], error, size);
        mem_free(x);
        mem_free(y);
        kvik_model_close(a);
        kvik_model_close(b);
    }
}

static enum dtype type_in(kvik_model *m, const char *name)
{
    const struct tensor *t = checkpoint_find(m->m->ck, name);
    assert_non_null(t);
    return t->dtype;
}

/* The head, routers, positions and norms, as the rule says. */
static void test_rule(void **state)
{
    (void)state;
    kvik_model *m = open_as("tests/golden/models/qwen3-next", "q4_0");
    assert_int_equal(type_in(m, "lm_head.weight"), DT_Q8_0);
    assert_int_equal(type_in(m, "model.embed_tokens.weight"), DT_Q4_0);
    assert_int_equal(type_in(m, "model.norm.weight"), DT_F32);
    assert_int_equal(type_in(m, "model.layers.0.mlp.gate.weight"), DT_F32); /* the router */
    assert_int_equal(type_in(m, "model.layers.0.mlp.experts.0.gate_proj.weight"), DT_Q4_0);
    kvik_model_close(m);
    m = open_as("tests/golden/models/gpt2", "q4_k");
    assert_int_equal(type_in(m, "transformer.wpe.weight"), DT_F32);
    assert_int_equal(type_in(m, "transformer.h.0.mlp.c_proj.weight"), DT_Q8_0); /* 192 columns */
    assert_int_equal(type_in(m, "transformer.h.0.attn.c_attn.weight"), DT_F32); /* 48 columns */
    assert_non_null(strstr(told, "3 with rows that are no multiple of 256 are q8_0"));
    assert_non_null(strstr(told, "10 with rows that are no multiple of 32 stay"));
    kvik_model_close(m);
    const kvik_model_options q8 = {.size = sizeof q8, .quantize = "q8_0"};
    assert_int_equal(kvik_model_open_with("tests/golden/models/jamba", &q8, &m), KVIK_UNSUPPORTED);
    const kvik_model_options bad = {.size = sizeof bad, .quantize = "q5_1"};
    assert_int_equal(kvik_model_open_with("tests/golden/models/gpt2", &bad, &m), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "q8_0, q4_0 or q4_k"));
}

/* --- Entries ----------------------------------------------------------------------------------- */

static void flip(const char *path, off_t at)
{
    uint8_t b;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &b, 1, at) == 1);
    b ^= 0x10;
    assert_int_equal(pwrite(fd, &b, 1, at), 1);
    close(fd);
    usleep(20000);
}

/* A damaged file is made anew.  A digest that was compared once is believed until the file is touched. */
static void test_damaged(void **state)
{
    (void)state;
    static const char model[] = "tests/golden/models/llama-bf16";
    char path[2 * PATH];
    struct stat st;
    kvik_model *a = open_as(model, "q8_0");
    assert_int_equal(entries(path), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    for (int i = 0; i < 8; i++) {
        usleep(20000);
        kvik_model_close(open_as(model, "q8_0"));
        assert_string_equal(told, "");
        if (i < 6)
            flip(path, i * (st.st_size - 1) / 5);
        else
            assert_int_equal(truncate(path, i == 6 ? st.st_size / 2 : 0), 0);
        kvik_model *b = open_as(model, "q8_0");
        assert_non_null(strstr(told, "kept in"));
        same_weights(a, b);
        kvik_model_close(b);
    }
    assert_int_equal(chmod(path, 0666), 0);
    kvik_model_close(open_as(model, "q8_0"));
    assert_non_null(strstr(told, "kept in")); /* others could have written it */
    kvik_model_close(a);
}

/* A disk that is full or fails leaves the model in memory, and nothing in the directory. */
static void test_faults(void **state)
{
    (void)state;
    static const char model[] = "tests/golden/models/llama-bf16";
    kvik_model *want = open_as(model, "q4_0");
    for (uint64_t at = 1; at < 6; at++) {
        setup(NULL);
        struct durable_fault f = {.at = at, .error = at % 2 ? ENOSPC : EIO, .stays = true};
        durable_fault_set(&f);
        kvik_model *m = open_as(model, "q4_0");
        durable_fault_set(NULL);
        assert_non_null(strstr(told, "in memory"));
        assert_int_equal(entries(NULL), 0);
        same_weights(want, m);
        kvik_model_close(m);
    }
    kvik_model_close(want);
}

/* While another process writes the file, the model is quantized in memory, and the notice says why.  The file of the other
 * process stays as it is. */
static void test_two_processes(void **state)
{
    (void)state;
    static const char model[] = "tests/golden/models/llama-bf16";
    char path[2 * PATH];
    struct durable other;
    kvik_model *want = open_as(model, "q4_0");
    assert_int_equal(entries(path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(durable_create(&other, path, "GGUF"), 0);
    assert_int_equal(durable_write(&other, 0, "GGUF and more", 13), 0);
    kvik_model *m = open_as(model, "q4_0");
    if (!strstr(told, "another process quantizes the same model now")) fail_msg("%s", told);
    if (strstr(told, "could not be kept") || strstr(told, "another file")) fail_msg("%s", told);
    same_weights(want, m);
    kvik_model_close(m);
    assert_int_equal(durable_replace(&other), 0);
    durable_close(&other);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 13);
    /* nobody writes any more, and what is there is no file of weights */
    m = open_as(model, "q4_0");
    assert_non_null(strstr(told, "kept in"));
    same_weights(want, m);
    kvik_model_close(m);
    kvik_model_close(want);
}

/* Sessions belong to the quantized weights. */
static void test_session(void **state)
{
    (void)state;
    static const char model[] = "tests/golden/models/llama-bf16";
    struct model_digests plain, q[2];
    for (int i = 0; i < 3; i++) {
        kvik_model *m = open_as(model, i ? "q8_0" : NULL);
        if (model_digests(m->m, 1, i ? &q[i - 1] : &plain) < 0) fail_msg("%s", kvik_last_error());
        kvik_model_close(m);
    }
    assert_string_equal(q[0].weights, q[1].weights);
    assert_string_equal(q[0].fingerprint, q[1].fingerprint);
    assert_string_not_equal(q[0].weights, plain.weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test_setup(test_families, setup),
        cmocka_unit_test_setup(test_near, setup),
        cmocka_unit_test_setup(test_rule, setup),
        cmocka_unit_test_setup(test_damaged, setup),
        cmocka_unit_test_setup(test_faults, setup),
        cmocka_unit_test_setup(test_two_processes, setup),
        cmocka_unit_test_setup(test_session, setup),
    };
    if (!mkdtemp(dir)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_tree(dir);
    return failed;
}
