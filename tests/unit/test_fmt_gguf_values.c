/* test_fmt_gguf_values.c - correct GGUF files give callers what they contain: metadata of every
 * type through the getters and as JSON, tensors of every type, and the real model when it is
 * present. */
#include "base/map.h"
#include "test_fmt_gguf.h"

#include <fcntl.h>
#include <math.h>

#define FIXTURE "tests/fixtures/fmt/all_types.gguf" /* made by make_gguf.py beside it */

/* A hyperparameter is an integer inside the range its reader names, in whatever type the file
 * stores it. A divisor of 0 or a layer count beyond the limit never gets past the getter. */
/* class: #25821, #26051, CVE-2025-0317, CVE-2024-8063 */
static void test_u32_range(void **state)
{
    static const struct {
        uint32_t type;
        uint64_t bits;
        size_t bytes;
        int want;
        uint32_t value;
    } rows[] = {
        {GGUF_U8, 1, 1, 1, 1},
        {GGUF_U8, 255, 1, 1, 255},
        {GGUF_I8, 100, 1, 1, 100},
        {GGUF_U16, 512, 2, 1, 512},
        {GGUF_I16, 512, 2, 1, 512},
        {GGUF_U32, 512, 4, 1, 512},
        {GGUF_I32, 30, 4, 1, 30},
        {GGUF_U64, 512, 8, 1, 512},
        {GGUF_I64, 1, 8, 1, 1},
        {GGUF_U8, 0, 1, ERR_FORMAT, 0},
        {GGUF_I8, 0x80, 1, ERR_FORMAT, 0},
        {GGUF_I8, 0xFF, 1, ERR_FORMAT, 0},
        {GGUF_U16, 513, 2, ERR_FORMAT, 0},
        {GGUF_I16, 0xFFFF, 2, ERR_FORMAT, 0},
        {GGUF_U32, 0, 4, ERR_FORMAT, 0},
        {GGUF_U32, 513, 4, ERR_FORMAT, 0},
        {GGUF_U32, UINT32_MAX, 4, ERR_FORMAT, 0},
        {GGUF_I32, 0x80000001u, 4, ERR_FORMAT, 0},
        {GGUF_U64, (1ull << 32) + 5, 8, ERR_FORMAT, 0}, /* becomes 5 if cut to 32 bits */
        {GGUF_I64, (1ull << 63) + 5, 8, ERR_FORMAT, 0},
        {GGUF_U64, UINT64_MAX, 8, ERR_FORMAT, 0},
        {GGUF_F32, 0x3f800000, 4, ERR_FORMAT, 0},
        {GGUF_BOOL, 1, 1, ERR_FORMAT, 0},
        {GGUF_STRING, 0, 8, ERR_FORMAT, 0},
    };
    (void)state;
    struct file f;
    struct gguf *g;
    for (size_t i = 0; i < countof(rows); i++) {
        uint32_t u = 77;
        gguf_begin(&f, 3, 0, 1);
        gguf_key(&f, "llama.block_count", rows[i].type);
        put_le(&f, rows[i].bits, rows[i].bytes);
        assert_int_equal(gguf_parse(f.b, f.n, "t", &g), 0);
        assert_error(gguf_get_u32(g, "llama.block_count", 1, 512, &u), rows[i].want,
                     rows[i].want < 0 ? "from 1 to 512" : "", "block_count");
        assert_int_equal(u, rows[i].want == 1 ? rows[i].value : 77);
        assert_int_equal(gguf_get_u32(g, "llama.block", 1, 512, &u), 0);
        gguf_close(g);
    }
}

static struct gguf *fixture(void)
{
    struct gguf *g = NULL;
    if (gguf_open(FIXTURE, &g) < 0) print_error("%s\n", err_last());
    assert_non_null(g);
    return g;
}

static void test_getters(void **state)
{
    (void)state;
    struct gguf *g = fixture();
    uint32_t u = 7;
    double d = 7;
    bool b = false;
    const char *s;
    size_t n;
    assert_int_equal(gguf_get_u32(g, "v.u32", 0, UINT32_MAX, &u), 1);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(gguf_get_u32(g, "v.u64", 0, UINT32_MAX, &u), ERR_FORMAT);
    static const struct {
        const char *key;
        double value;
    } numbers[] = {{"v.u8", 200},          {"v.i8", -100},     {"v.u16", 60000},
                   {"v.i16", -30000},      {"v.f32", 0.5},     {"v.i32", -2000000000},
                   {"v.u64", 0x1p63 + 5.}, {"v.i64", -0x1p62}, {"v.f64", 1e300}};
    for (size_t i = 0; i < countof(numbers); i++) {
        assert_int_equal(gguf_get_f64(g, numbers[i].key, &d), 1);
        assert_true(d == numbers[i].value);
    }
    assert_int_equal(gguf_get_f64(g, "v.true", &d), ERR_FORMAT);
    assert_int_equal(gguf_get_f64(g, "v.text", &d), ERR_FORMAT);
    assert_int_equal(gguf_get_f64(g, "v.array.f32", &d), ERR_FORMAT);
    assert_int_equal(gguf_get_f64(g, "absent", &d), 0);
    assert_int_equal(gguf_get_bool(g, "v.true", &b), 1);
    assert_true(b);
    assert_int_equal(gguf_get_bool(g, "v.false", &b), 1);
    assert_false(b);
    assert_int_equal(gguf_get_bool(g, "v.u8", &b), ERR_FORMAT);
    assert_int_equal(gguf_get_bool(g, "absent", &b), 0);
    assert_int_equal(gguf_get_str(g, "v.text", &s, &n), 1);
    assert_int_equal(n, 11);
    assert_memory_equal(s, "gr\xC3\xBC\xC3\x9F dich", 11);
    assert_int_equal(gguf_get_str(g, "v.u8", &s, &n), ERR_FORMAT);
    assert_int_equal(gguf_get_str(g, "absent", &s, &n), 0);
    gguf_close(g);
}

static void test_arrays(void **state)
{
    (void)state;
    static const double want[3][3] = {{1, -2, 3}, {0.25, -1.5, 0}, {1, 0, 1}};
    static const char *const key[3] = {"v.array.i32", "v.array.f32", "v.array.bool"};
    struct gguf *g = fixture();
    const char *s = "x";
    size_t n = 9;
    for (int a = 0; a < 3; a++) {
        const struct gguf_value *v = gguf_get(g, key[a]);
        assert_int_equal(v->type, GGUF_ARRAY);
        assert_int_equal(v->n, a == 1 ? 2 : 3);
        for (uint64_t i = 0; i < v->n; i++)
            assert_true(gguf_number_at(v, i) == want[a][i]);
        assert_true(isnan(gguf_number_at(v, v->n)));
        assert_true(isnan(gguf_number_at(v, UINT64_MAX)));
        assert_int_equal(gguf_string_at(v, g, 0, &s, &n), ERR_FORMAT);
    }
    const struct gguf_value *v = gguf_get(g, "v.array.str");
    static const char *const text[] = {"one", "", "thr\xC3\xA9\xC3\xA9"};
    assert_int_equal(v->n, 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(gguf_string_at(v, g, i, &s, &n), 0);
        assert_int_equal(n, strlen(text[i]));
        assert_memory_equal(s, text[i], n);
    }
    assert_int_equal(gguf_string_at(v, g, 3, &s, &n), ERR_ARG);
    assert_int_equal(gguf_string_at(v, g, UINT64_MAX, &s, &n), ERR_ARG);
    assert_true(isnan(gguf_number_at(v, 0)));
    assert_null(gguf_value_at(g, gguf_n_values(g)));
    gguf_close(g);
}

static void test_json(void **state)
{
    (void)state;
    static const char want[] =
        "{\"general.architecture\": \"test\", \"v.u8\": 200, \"v.i8\": -100, \"v.u16\": 60000, "
        "\"v.i16\": -30000, \"v.u32\": 4000000000, \"v.i32\": -2000000000, "
        "\"v.u64\": 9.2233720368547758e18, \"v.i64\": -4611686018427387904, \"v.f32\": 0.5, "
        "\"v.f64\": 1e300, \"v.true\": true, \"v.false\": false, "
        "\"v.text\": \"gr\\u00fc\\u00df dich\", \"v.array.i32\": [1, -2, 3], "
        "\"v.array.f32\": [0.25, -1.5], \"v.array.bool\": [true, false, true], "
        "\"v.array.str\": [\"one\", \"\", \"thr\\u00e9\\u00e9\"]}";
    struct gguf *g = fixture();
    json_t *got, *expected;
    assert_int_equal(gguf_json(g, &got), 0);
    assert_int_equal(json_parse(want, strlen(want), "want", &expected), 0);
    if (!json_equal(got, expected)) {
        char *text = json_dumps(got, 0);
        print_error("%s\n", text);
        fail();
    }
    json_decref(got);
    json_decref(expected);
    gguf_close(g);
}

/* A number that is not finite would become a default, so the file is refused and the error names the key. */
static void test_numbers_that_are_not_finite(void **state)
{
    (void)state;
    static const struct {
        enum gguf_type type;
        uint64_t bits;
        bool ok;
    } number[] = {
        {GGUF_F32, 0x7fc00000, false},         {GGUF_F32, 0x7f800000, false},
        {GGUF_F32, 0xff800000, false},         {GGUF_F32, 0x7f7fffff, true},
        {GGUF_F64, 0x7ff8000000000000, false}, {GGUF_F64, 0x7ff0000000000000, false},
        {GGUF_F64, 0xfff0000000000000, false}, {GGUF_F64, 0x7fefffffffffffff, true},
        {GGUF_U32, 0x7fc00000, true},          {GGUF_U64, 0x7ff0000000000000, true},
    };
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++)
        for (int array = 0; array < 2; array++) {
            struct file f;
            struct gguf *g;
            unsigned bytes = number[i].type == GGUF_F32 || number[i].type == GGUF_U32 ? 4 : 8;
            gguf_begin(&f, 3, 0, 1);
            gguf_key(&f, "a.number", array ? GGUF_ARRAY : number[i].type);
            if (array) {
                put_u32(&f, number[i].type);
                put_u64(&f, 2);
                put_le(&f, 0, bytes);
            }
            put_le(&f, number[i].bits, bytes);
            int e = gguf_parse(f.b, f.n, "t", &g);
            assert_int_equal(e, number[i].ok ? 0 : ERR_FORMAT);
            if (e < 0) assert_non_null(strstr(err_last(), "a.number"));
            if (e == 0) gguf_close(g);
        }
}

/* Values that JSON cannot express become null and do not affect the other values. */
static void test_json_of_odd_values(void **state)
{
    (void)state;
    struct file f;
    struct gguf *g;
    json_t *j;
    gguf_begin(&f, 3, 0, 2);
    gguf_key(&f, "bytes", GGUF_STRING);
    put_str(&f, "\xff\xfe");
    gguf_key(&f, "bool", GGUF_BOOL);
    put_le(&f, 0x80, 1);
    assert_int_equal(gguf_parse(f.b, f.n, "t", &g), 0);
    assert_int_equal(gguf_json(g, &j), 0);
    assert_true(json_is_null(json_object_get(j, "bytes")));
    assert_true(json_is_true(json_object_get(j, "bool")));
    json_decref(j);
    gguf_close(g);
}

/* Arrays of up to 64 items are shown, longer ones are not, and arrays of the tokenizer never are. */
static void test_json_of_arrays(void **state)
{
    (void)state;
    struct file f;
    struct gguf *g;
    json_t *j;
    static const char *const keys[] = {"llama.feed_forward_length", "tokenizer.ggml.scores"};
    for (uint64_t n = 63; n <= 65; n++)
        for (int k = 0; k < 2; k++) {
            gguf_begin(&f, 3, 0, 1);
            gguf_array(&f, keys[k], GGUF_U16, n);
            put_fill(&f, 2 * n);
            assert_int_equal(gguf_parse(f.b, f.n, "t", &g), 0);
            assert_int_equal(gguf_json(g, &j), 0);
            json_t *a = json_object_get(j, keys[k]);
            assert_int_equal(json_array_size(a), k == 0 && n <= 64 ? n : 0);
            assert_true((a != NULL) == (k == 0 && n <= 64));
            json_decref(j);
            gguf_close(g);
        }
}

static void test_tensors(void **state)
{
    static const struct {
        const char *name;
        enum dtype dtype;
        uint32_t number; /* the number of the type in the file */
        uint32_t n_dims;
        uint64_t dim[FMT_MAX_DIMS]; /* outermost first */
        size_t bytes;
    } want[] = {
        {"f32", DT_F32, 0, 4, {2, 3, 5, 1}, 120},
        {"f16", DT_F16, 1, 2, {3, 2}, 12},
        {"bf16", DT_BF16, 30, 1, {4}, 8},
        {"q4_0", DT_Q4_0, 2, 2, {2, 32}, 36},
        {"q4_1", DT_Q4_1, 3, 2, {1, 64}, 40},
        {"q5_0", DT_Q5_0, 6, 2, {2, 32}, 44},
        {"q5_1", DT_Q5_1, 7, 2, {2, 32}, 48},
        {"q8_0", DT_Q8_0, 8, 2, {3, 32}, 102},
        {"q2_k", DT_Q2_K, 10, 2, {1, 256}, 84},
        {"q3_k", DT_Q3_K, 11, 2, {1, 256}, 110},
        {"q4_k", DT_Q4_K, 12, 2, {1, 256}, 144},
        {"q5_k", DT_Q5_K, 13, 2, {2, 256}, 352},
        {"q6_k", DT_Q6_K, 14, 2, {1, 512}, 420},
        {"mxfp4", DT_MXFP4, 39, 2, {2, 64}, 68},
        {"i32", DT_I32, 26, 1, {3}, 12},
        {"i64", DT_I64, 27, 1, {2}, 16},
        {"i8", DT_I8, 24, 1, {5}, 5},
        {"f64", DT_F64, 28, 2, {1, 2}, 16},
    };
    (void)state;
    struct gguf *g = fixture();
    assert_int_equal(gguf_n_tensors(g), countof(want));
    for (size_t i = 0; i < countof(want); i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.weight", want[i].name);
        const struct tensor *t = gguf_find(g, name);
        assert_non_null(t);
        assert_ptr_equal(t, gguf_tensor_at(g, (uint32_t)i)); /* in the order of the file */
        assert_int_equal(t->dtype, want[i].dtype);
        assert_int_equal(t->n_dims, want[i].n_dims);
        assert_memory_equal(t->dim, want[i].dim, sizeof t->dim);
        assert_int_equal(t->bytes, want[i].bytes);
        for (size_t k = 0; k < t->bytes; k++)
            assert_int_equal(((const uint8_t *)t->data)[k], (7 * k + want[i].number) & 255);
    }
    assert_null(gguf_find(g, "f32"));
    assert_null(gguf_tensor_at(g, countof(want)));
    gguf_close(g);
}

/* Strings of more than 4 GiB keep their length: no variable on the way is 32 bits wide. The file is
 * sparse, so it needs no disk space and its pages are never read. */
/* class: CVE-2025-49847, GHSA-8wwf-w4qm-gpqr */
static void test_long_strings(void **state)
{
    const uint64_t want = (1ull << 32) + 3;
    (void)state;
    struct dir d;
    struct file f;
    struct gguf *g = NULL;
    gguf_begin(&f, 3, 0, 1);
    gguf_array(&f, "tokens", GGUF_STRING, 2);
    put_u64(&f, want);
    dir_make(&d);
    int fd = open(dir_file(&d, "long.gguf"), O_RDWR | O_CREAT, 0600);
    const uint8_t tail[] = {2, 0, 0, 0, 0, 0, 0, 0, 'o', 'k'};
    bool sparse = fd >= 0 && write(fd, f.b, f.n) == (ssize_t)f.n &&
                  pwrite(fd, tail, sizeof tail, (off_t)(f.n + want)) == (ssize_t)sizeof tail;
    if (fd >= 0) close(fd);
    if (!sparse || gguf_open(d.file, &g) == ERR_IO) {
        dir_remove(&d);
        print_message("skipped: no sparse file of 4 GiB here\n");
        skip();
    }
    assert_non_null(g);
    const struct gguf_value *v = gguf_get(g, "tokens");
    const char *s;
    size_t n;
    assert_int_equal(gguf_string_at(v, g, 0, &s, &n), 0);
    assert_int_equal(n, want);
    assert_int_equal(gguf_string_at(v, g, 1, &s, &n), 0);
    assert_int_equal(n, 2);
    assert_memory_equal(s, "ok", 2);
    gguf_close(g);
    dir_remove(&d);
}

/* Checks every prefix of the fixture that cuts its last tensor or more. */
static void test_fixture_truncated(void **state)
{
    (void)state;
    struct map m;
    struct gguf *g = fixture();
    const struct tensor *last = gguf_find(g, "f64.weight");
    assert_int_equal(map_open(&m, FIXTURE), 0);
    size_t end = m.size;
    while (end > 0 && memcmp(m.data + end - last->bytes, last->data, last->bytes) != 0)
        end--;
    for (size_t n = 0; n < end; n++)
        assert_int_equal(parse_gguf(m.data, n), ERR_FORMAT);
    assert_int_equal(parse_gguf(m.data, end), 0);
    map_close(&m);
    gguf_close(g);
}

static const char *real_model(void)
{
    static char path[1024];
    const char *env = getenv("KVIK_TEST_MODEL"), *home = getenv("HOME");
    snprintf(path, sizeof path, "%s/.cache/kvik/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");
    const char *p = env && env[0] ? env : path;
    return file_exists(p) ? p : NULL;
}

/* The counts and sums were taken with the gguf package from the published file. */
static void test_real_model(void **state)
{
    static const struct {
        const char *name;
        enum dtype dtype;
        uint64_t rows, cols;
        size_t bytes;
        unsigned sum; /* the sum of the first 4096 bytes, or of all bytes if fewer */
    } want[] = {
        {"token_embd.weight", DT_Q8_0, 49152, 576, 30081024, 483831},
        {"blk.0.attn_k.weight", DT_Q4_1, 192, 576, 69120, 513914},
        {"blk.29.ffn_down.weight", DT_Q4_1, 576, 1536, 552960, 509217},
        {"output_norm.weight", DT_F32, 576, 0, 2304, 156277},
    };
    (void)state;
    const char *path = real_model(), *s;
    uint32_t n[DT_COUNT] = {0}, u;
    size_t total = 0, len;
    struct gguf *g;
    if (!path) {
        print_message("skipped: no SmolLM2 here (set KVIK_TEST_MODEL to the .gguf file)\n");
        skip();
    }
    assert_int_equal(gguf_open(path, &g), 0);
    assert_int_equal(gguf_n_tensors(g), 272);
    for (uint32_t i = 0; i < 272; i++) {
        n[gguf_tensor_at(g, i)->dtype]++;
        total += gguf_tensor_at(g, i)->bytes;
    }
    assert_int_equal(n[DT_Q4_1], 210);
    assert_int_equal(n[DT_F32], 61);
    assert_int_equal(n[DT_Q8_0], 1);
    assert_int_equal(total, 96576768);
    for (size_t i = 0; i < countof(want); i++) {
        const struct tensor *t = gguf_find(g, want[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, want[i].dtype);
        assert_int_equal(t->dim[0], want[i].rows);
        assert_int_equal(t->dim[1], want[i].cols);
        assert_int_equal(t->bytes, want[i].bytes);
        unsigned sum = 0;
        for (size_t k = 0; k < MIN(t->bytes, 4096u); k++)
            sum += ((const uint8_t *)t->data)[k];
        assert_int_equal(sum, want[i].sum);
    }
    const struct gguf_value *v = gguf_get(g, "tokenizer.ggml.tokens");
    assert_int_equal(v->n, 49152);
    assert_int_equal(gguf_string_at(v, g, 49151, &s, &len), 0);
    assert_int_equal(len, 7);
    assert_memory_equal(s, "ectable", 7);
    assert_int_equal(gguf_get(g, "tokenizer.ggml.merges")->n, 48900);
    assert_int_equal(gguf_get_u32(g, "llama.block_count", 1, 512, &u), 1);
    assert_int_equal(u, 30);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_u32_range),
        cmocka_unit_test(test_getters),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_numbers_that_are_not_finite),
        cmocka_unit_test(test_json_of_odd_values),
        cmocka_unit_test(test_json_of_arrays),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_long_strings),
        cmocka_unit_test(test_fixture_truncated),
        cmocka_unit_test(test_real_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
