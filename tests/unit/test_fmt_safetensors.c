/* test_fmt_safetensors.c - the safetensors reader and writer. Files that the safetensors package
 * accepts are accepted, files that it refuses are refused, duplicates are refused too, and no byte
 * sequence does harm.
 *
 * With "--verdicts FILE" the program is the tool behind tests/fixtures/fmt/compare_safetensors.py.
 * FILE holds records of a 32-bit length and that many bytes. The program prints one line per
 * record: "accept" or the error. */
#include "test_fmt.h"

static void make(struct file *f, const char *header, size_t body)
{
    f->n = 0;
    put_u64(f, strlen(header));
    put(f, header, strlen(header));
    put_fill(f, body);
}

#define A4 "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
#define T(dt, shape, from, to)                                                                     \
    "{\"dtype\":\"" dt "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static const struct {
    const char *name, *header;
    size_t body;
    int want;
    const char *part; /* a part of the error message */
} headers[] = {
    {"empty object", "{}", 0, 0, ""},
    {"one tensor", "{" A4 "}", 4, 0, ""},
    {"leading space", " {" A4 "}", 4, 0, ""},
    {"leading line feed and tab", "\n\t{" A4 "}", 4, 0, ""},
    {"trailing spaces", "{" A4 "}     ", 4, 0, ""},
    {"unknown field", "{\"a\":{\"x\":[{}],\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, 0, ""},
    {"scalar", "{\"a\":" T("F32", "[]", 0, 4) "}", 4, 0, ""},
    {"no elements", "{\"a\":" T("F32", "[0]", 0, 0) "}", 0, 0, ""},
    {"no elements between others",
     "{\"b\":" T("U8", "[2]", 2, 4) ",\"z\":" T("F64", "[3,0]", 2, 2) ",\"a\":" T("U8", "[2]", 0,
                                                                                  2) "}",
     4, 0, ""},
    {"four dimensions", "{\"a\":" T("BF16", "[1,2,1,3]", 0, 12) "}", 12, 0, ""},
    {"metadata", "{\"__metadata__\":{\"format\":\"pt\"}," A4 "}", 4, 0, ""},
    {"metadata null", "{\"__metadata__\":null," A4 "}", 4, 0, ""},
    {"empty name", "{\"\":" T("BOOL", "[1]", 0, 1) "}", 1, 0, ""},
    {"escaped name", "{\"\\u00e4\\n\":" T("I8", "[1]", 0, 1) "}", 1, 0, ""},
    {"repeated metadata", "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, 0, ""},
    {"unknown field of every kind",
     "{\"a\":{\"x\":[{},[],true,false,null,-0.5e+7,0,1E2,\"\\\"\",{\"y\":[[1]],\"y\":2}],"
     "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, 0, ""},
    {"every escape",
     "{\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E4\\ud83d\\uDE00\":" T("I8", "[1]", 0, 1) "}", 1, 0, ""},
    {"white space everywhere",
     " { \"a\" :\n{ \"dtype\"\t: \"U8\" , \"shape\" : [ 2 , 2 ] , \"data_offsets\" : [ 0 , 4 ] } } ",
     4, 0, ""},

    {"no object", "[]", 0, ERR_FORMAT, "expected '{'"},
    {"null", "null", 0, ERR_FORMAT, "expected '{'"},
    {"empty text", "", 0, ERR_FORMAT, "t.safetensors"},
    {"not closed", "{" A4, 4, ERR_FORMAT, "t.safetensors"},
    {"text after the object", "{" A4 "}x", 4, ERR_FORMAT, "t.safetensors"},
    {"not UTF-8", "{\"\xff\":" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT, "t.safetensors"},
    {"lone surrogate", "{\"\\ud800\":" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT, "t.safetensors"},
    {"NUL in a name", "{\"a\\u0000b\":" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT, "t.safetensors"},
    {"duplicate name", "{" A4 "," A4 "}", 4, ERR_FORMAT, "occurs twice"},
    {"duplicate field",
     "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     ERR_FORMAT, "occurs twice"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, ERR_FORMAT, "occurs twice"},
    {"metadata not strings", "{\"__metadata__\":{\"k\":1}}", 0, ERR_FORMAT, "JSON byte"},
    {"metadata not an object", "{\"__metadata__\":[]}", 0, ERR_FORMAT, "JSON byte"},
    {"entry is a number", "{\"a\":1}", 0, ERR_FORMAT, "JSON byte"},
    {"entry is an array", "{\"a\":[\"U8\",[1],[0,1]]}", 1, ERR_FORMAT, "JSON byte"},
    {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, ERR_FORMAT, "is missing"},
    {"dtype is a number", "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     ERR_FORMAT, "JSON byte"},
    {"dtype with a NUL", "{\"a\":" T("U8\\u0000", "[1]", 0, 1) "}", 1, ERR_FORMAT,
     "NUL in a string"},
    {"dtype unknown", "{\"a\":" T("F33", "[1]", 0, 4) "}", 4, ERR_FORMAT, "F33"},
    {"dtype lower case", "{\"a\":" T("f32", "[1]", 0, 4) "}", 4, ERR_FORMAT, "f32"},
    {"dtype not read", "{\"a\":" T("F8_E4M3", "[4]", 0, 4) "}", 4, ERR_UNSUPPORTED, "F8_E4M3"},
    {"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, ERR_FORMAT, "is missing"},
    {"shape is a number", "{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4,
     ERR_FORMAT, "JSON byte"},
    {"shape negative", "{\"a\":" T("F32", "[-1]", 0, 4) "}", 4, ERR_FORMAT, "JSON byte"},
    {"shape real", "{\"a\":" T("F32", "[1.0]", 0, 4) "}", 4, ERR_FORMAT, "JSON byte"},
    {"shape string", "{\"a\":" T("F32", "[\"1\"]", 0, 4) "}", 4, ERR_FORMAT, "JSON byte"},
    {"five dimensions", "{\"a\":" T("F32", "[1,1,1,1,1]", 0, 4) "}", 4, ERR_UNSUPPORTED,
     "more than 4 dimensions"},
    {"shape product wraps to 4 bytes", "{\"a\":" T("F32", "[4611686018427387905]", 0, 4) "}", 4,
     ERR_FORMAT, "overflow"},
    {"shape product wraps to 0", "{\"a\":" T("U8", "[4294967296,4294967296]", 0, 0) "}", 0,
     ERR_FORMAT, "overflow"},
    {"overflow hidden by a zero", "{\"a\":" T("U8", "[9223372036854775807,4,0]", 0, 0) "}", 0,
     ERR_FORMAT, "overflow"},
    {"overflow behind a zero", "{\"a\":" T("U8", "[0,9223372036854775807,4]", 0, 0) "}", 0,
     ERR_FORMAT, "overflow"},
    {"number above 2^63", "{\"a\":" T("U8", "[18446744073709551617]", 0, 1) "}", 1, ERR_FORMAT,
     "JSON byte"},
    {"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, ERR_FORMAT, "is missing"},
    {"one offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, ERR_FORMAT,
     "JSON byte"},
    {"three offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
     ERR_FORMAT, "JSON byte"},
    {"offset negative", "{\"a\":" T("F32", "[1]", -4, 0) "}", 4, ERR_FORMAT, "JSON byte"},
    {"offset real", "{\"a\":" T("F32", "[1]", 0, 4.0) "}", 4, ERR_FORMAT, "JSON byte"},
    {"offsets reversed", "{\"a\":" T("F32", "[1]", 4, 0) "}", 4, ERR_FORMAT, "not inside"},
    {"offset past the end", "{\"a\":" T("F32", "[2]", 0, 8) "}", 4, ERR_FORMAT, "not inside"},
    {"offsets far away", "{\"a\":" T("F32", "[1]", 9223372036854775803, 9223372036854775807) "}", 4,
     ERR_FORMAT, "not inside"},
    {"size by shape differs", "{\"a\":" T("F32", "[2]", 0, 4) "}", 4, ERR_FORMAT, "wants 8 bytes"},
    {"hole at the start", "{\"a\":" T("U8", "[2]", 1, 3) "}", 3, ERR_FORMAT, "do not start"},
    {"hole inside", "{\"a\":" T("U8", "[1]", 0, 1) ",\"b\":" T("U8", "[1]", 2, 3) "}", 3,
     ERR_FORMAT, "do not start"},
    {"overlap", "{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 1, 3) "}", 3, ERR_FORMAT,
     "do not start"},
    {"same place", "{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 0, 2) "}", 2, ERR_FORMAT,
     "do not start"},
    {"empty tensor inside another",
     "{\"a\":" T("U8", "[2]", 0, 2) ",\"z\":" T("U8", "[0]", 1, 1) "}", 2, ERR_FORMAT,
     "do not start"},
    {"comma at the end", "{" A4 ",}", 4, ERR_FORMAT, "JSON byte"},
    {"comma at the start", "{," A4 "}", 4, ERR_FORMAT, "JSON byte"},
    {"no comma", "{" A4 "\"b\":" T("U8", "[0]", 4, 4) "}", 4, ERR_FORMAT, "expected ','"},
    {"no colon", "{\"a\" {}}", 0, ERR_FORMAT, "expected ':'"},
    {"shape with a comma at the end", "{\"a\":" T("F32", "[1,]", 0, 4) "}", 4, ERR_FORMAT, "comma"},
    {"shape with a comma at the start", "{\"a\":" T("F32", "[,1]", 0, 4) "}", 4, ERR_FORMAT,
     "JSON byte"},
    {"shape not separated", "{\"a\":" T("F32", "[1 1]", 0, 4) "}", 4, ERR_FORMAT, "JSON byte"},
    {"shape nested", "{\"a\":" T("F32", "[[1]]", 0, 4) "}", 4, ERR_FORMAT, "JSON byte"},
    {"integer with a leading zero", "{\"a\":" T("F32", "[01]", 0, 4) "}", 4, ERR_FORMAT,
     "JSON byte"},
    {"integer with an exponent", "{\"a\":" T("F32", "[1e0]", 0, 4) "}", 4, ERR_FORMAT, "JSON byte"},
    {"integer below zero", "{\"a\":" T("F32", "[-0]", 0, 0) "}", 0, ERR_FORMAT, "JSON byte"},
    {"integer 2^64", "{\"a\":" T("U8", "[18446744073709551616]", 0, 0) "}", 0, ERR_FORMAT,
     "64 bits"},
    {"integer that wraps to 4", "{\"a\":" T("U8", "[18446744073709551620]", 0, 4) "}", 4,
     ERR_FORMAT, "64 bits"},
    {"integer and more", "{\"a\":" T("U8", "[4x]", 0, 4) "}", 4, ERR_FORMAT, "JSON byte"},
    {"number and more", "{\"a\":{\"x\":1.5x}}", 0, ERR_FORMAT, "JSON byte"},
    {"word cut by the end", "{\"a\":{\"x\":nul", 0, ERR_FORMAT, "bad value"},
    {"escape cut by the end", "{\"\\u12", 0, ERR_FORMAT, "bad \\u escape"},
    {"pair cut by the end", "{\"\\ud83d\\u", 0, ERR_FORMAT, "bad \\u escape"},
    {"backslash at the end", "{\"\\", 0, ERR_FORMAT, "bad escape"},
    {"digit G", "{\"\\u00G0\":" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT, "bad \\u escape"},
    {"high surrogate and a character", "{\"\\ud83d\\ue000\":" T("U8", "[1]", 0, 1) "}", 1,
     ERR_FORMAT, "surrogate"},
    {"control character", "{\"a\nb\":" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT, "not closed"},
    {"bad escape", "{\"\\x\":" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT, "bad escape"},
    {"short escape", "{\"\\u00g0\":" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT, "bad \\u escape"},
    {"low surrogate first", "{\"\\udc00\":" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT, "surrogate"},
    {"high surrogate twice", "{\"\\ud83d\\ud83d\":" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT,
     "surrogate"},
    {"single quotes", "{'a':" T("U8", "[1]", 0, 1) "}", 1, ERR_FORMAT, "JSON byte"},
    {"value nul", "{\"a\":{\"x\":nul,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     ERR_FORMAT, "bad value"},
    {"value .5", "{\"a\":{\"x\":.5,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     ERR_FORMAT, "bad value"},
    {"value 1.", "{\"a\":{\"x\":1.,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     ERR_FORMAT, "bad value"},
    {"value 1e", "{\"a\":{\"x\":1e,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     ERR_FORMAT, "bad value"},
    {"value 00", "{\"a\":{\"x\":00,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     ERR_FORMAT, "bad value"},
    {"value -", "{\"a\":{\"x\":-,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     ERR_FORMAT, "bad value"},
    {"value +1", "{\"a\":{\"x\":+1,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     ERR_FORMAT, "bad value"},
    {"value Infinity",
     "{\"a\":{\"x\":Infinity,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     ERR_FORMAT, "bad value"},
    {"value True", "{\"a\":{\"x\":True,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     ERR_FORMAT, "bad value"},
    {"comment", "{/**/}", 0, ERR_FORMAT, "JSON byte"},
    {"byte order mark", "\xEF\xBB\xBF{}", 0, ERR_FORMAT, "JSON byte"},
    {"bytes after the last tensor", "{" A4 "}", 5, ERR_FORMAT, "1 bytes after"},
    {"bytes without tensors", "{}", 1, ERR_FORMAT, "1 bytes after"},
};

static void test_headers(void **state)
{
    (void)state;
    struct file f;
    for (size_t i = 0; i < countof(headers); i++) {
        make(&f, headers[i].header, headers[i].body);
        int e = parse_safetensors(f.b, f.n);
        assert_error(e, headers[i].want, headers[i].want ? headers[i].part : "", headers[i].name);
    }
}

/* The length field itself: every value that is not the number of header bytes that follow. */
static void test_header_length(void **state)
{
    static const uint64_t lengths[] = {5,          100000001,        1u << 31,   UINT32_MAX,
                                       1ull << 32, (1ull << 32) + 2, 1ull << 63, UINT64_MAX - 8,
                                       UINT64_MAX, UINT64_MAX - 7,   100000000,  3};
    (void)state;
    struct file f;
    for (size_t i = 0; i < countof(lengths); i++) {
        f.n = 0;
        put_u64(&f, lengths[i]);
        put(&f, "{}", 2);
        assert_int_equal(parse_safetensors(f.b, f.n), ERR_FORMAT);
    }
    f.n = 0;
    put(&f, "version https://git-lfs.github.com/spec/v1\noid", 46);
    assert_int_equal(parse_safetensors(f.b, f.n), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "git lfs pull"));
}

/* Nesting has a limit, so a header of brackets cannot exhaust the stack; 127 levels in a field are
 * fine. */
static void test_nesting(void **state)
{
    (void)state;
    static const char *const open[] = {"[", "{\"k\":"};
    static const char *const close[] = {"]", "}"};
    for (size_t kind = 0; kind < 2; kind++)
        for (int depth = 120; depth < 20000; depth += depth < 130 ? 1 : 5000) {
            struct file f = {.n = 8};
            const char head[] = "{\"a\":{\"x\":";
            const char tail[] = ",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
            put(&f, head, sizeof head - 1);
            for (int i = 0; i < depth; i++)
                put(&f, open[kind], strlen(open[kind]));
            put(&f, "0", 1);
            for (int i = 0; i < depth; i++)
                put(&f, close[kind], 1);
            put(&f, tail, sizeof tail - 1);
            for (int i = 0; i < 8; i++)
                f.b[i] = (uint8_t)((f.n - 8) >> (8 * i));
            assert_int_equal(parse_safetensors(f.b, f.n), depth <= 126 ? 0 : ERR_FORMAT);
        }
}

/* A raw NUL byte is not white space, wherever it stands. */
static void test_raw_nul(void **state)
{
    (void)state;
    struct file f;
    make(&f, "{" A4 "}", 4);
    for (size_t i = 8; i <= 8 + strlen("{" A4 "}"); i++) {
        struct file g = {.n = 0};
        put_u64(&g, strlen("{" A4 "}") + 1);
        put(&g, f.b + 8, i - 8);
        put(&g, "", 1);
        put(&g, f.b + i, f.n - i);
        assert_int_equal(parse_safetensors(g.b, g.n), ERR_FORMAT);
    }
}

static const char small[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"w.b\":" T("F32", "[2,3]", 0, 24) //
    ",\"w.a\":" T("BF16", "[4]", 24, 32) ",\"e\":" T("I64", "[0]", 32, 32) "}";

/* class: CVE-2024-39720 */
static void test_truncated(void **state)
{
    (void)state;
    struct file f;
    make(&f, small, 32);
    attack_truncate(parse_safetensors, &f);
}

/* class: CVE-2024-12055 */
static void test_flipped(void **state)
{
    (void)state;
    struct file f;
    make(&f, small, 32);
    attack_flip(parse_safetensors, &f, f.n - 32);
}

static void test_order_and_lookup(void **state)
{
    (void)state;
    struct file f;
    struct safetensors *s;
    make(&f, small, 32);
    assert_int_equal(safetensors_parse(f.b, f.n, "t", &s), 0);
    assert_int_equal(safetensors_count(s), 3);
    /* Tensors come in the order of the data. */
    assert_string_equal(safetensors_at(s, 0)->name, "w.b");
    assert_string_equal(safetensors_at(s, 1)->name, "w.a");
    const struct tensor *t = safetensors_find(s, "w.b");
    assert_int_equal(t->dtype, DT_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dim[0], 2);
    assert_int_equal(t->dim[1], 3);
    assert_int_equal(t->bytes, 24);
    assert_ptr_equal(t->data, f.b + f.n - 32);
    assert_null(safetensors_find(s, "w"));
    assert_null(safetensors_find(s, "__metadata__"));
    safetensors_close(s);
    safetensors_close(NULL);
}

/* Names are found by their decoded text, not by their spelling in the file. */
static void test_escaped_names(void **state)
{
    static const struct {
        const char *written, *name;
    } rows[] = {
        {"\\u00e4\\u00C4", "\xC3\xA4\xC3\x84"},
        {"\\ud83d\\uDE00", "\xF0\x9F\x98\x80"},
        {"\\uD800\\uDC00\\uDBFF\\uDFFF", "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"},
        {"\\uFFFF\\uE000\\u0800\\u07ff\\u007F", "\xEF\xBF\xBF\xEE\x80\x80\xE0\xA0\x80\xDF\xBF\x7F"},
        {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
        {"model.layers.0", "model.layers.0"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        char header[256];
        struct file f;
        struct safetensors *s;
        snprintf(header, sizeof header, "{\"%s\":" T("U8", "[1]", 0, 1) "}", rows[i].written);
        make(&f, header, 1);
        assert_int_equal(safetensors_parse(f.b, f.n, "t", &s), 0);
        assert_string_equal(safetensors_at(s, 0)->name, rows[i].name);
        assert_non_null(safetensors_find(s, rows[i].name));
        safetensors_close(s);
    }
}

/* Look-ups in a large file: every name is found and no other. */
static void test_many(void **state)
{
    enum { N = 5000 };
    (void)state;
    static char name[N][16];
    static struct tensor t[N];
    static const uint8_t zero[2];
    struct dir d;
    struct safetensors *s;
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "t.%u", (i * 7919u) % N);
        t[i] = (struct tensor){
            .name = name[i], .dtype = DT_F16, .n_dims = 1, .dim = {1}, .data = zero, .bytes = 2};
    }
    dir_make(&d);
    assert_int_equal(safetensors_write(dir_file(&d, "m.safetensors"), t, N), 0);
    assert_int_equal(safetensors_open(d.file, &s), 0);
    assert_int_equal(safetensors_count(s), N);
    for (uint32_t i = 0; i < N; i++)
        assert_string_equal(safetensors_find(s, name[i])->name, name[i]);
    assert_null(safetensors_find(s, "t.5000"));
    safetensors_close(s);
    dir_remove(&d);
}

/* --- Writer. */
static void test_write_and_read(void **state)
{
    (void)state;
    static const float f32[6] = {1, -2, 3.5f, 0, 1e30f, -0.f};
    static const uint8_t u8[3] = {1, 2, 3};
    static const int64_t i64[1] = {-5};
    const struct tensor t[] = {
        {.name = "bytes", .dtype = DT_U8, .n_dims = 1, .dim = {3}, .data = u8, .bytes = 3},
        {.name = "z \"\\\n\xC3\xA4",
         .dtype = DT_F32,
         .n_dims = 2,
         .dim = {2, 3},
         .data = f32,
         .bytes = 24},
        {.name = "scalar", .dtype = DT_I64, .data = i64, .bytes = 8},
        {.name = "empty", .dtype = DT_F16, .n_dims = 2, .dim = {0, 7}, .data = NULL, .bytes = 0},
    };
    struct dir d;
    struct safetensors *s;
    dir_make(&d);
    assert_int_equal(safetensors_write(dir_file(&d, "w.safetensors"), t, countof(t)), 0);
    assert_int_equal(safetensors_open(d.file, &s), 0);
    assert_int_equal(safetensors_count(s), countof(t));
    for (size_t i = 0; i < countof(t); i++) {
        const struct tensor *r = safetensors_find(s, t[i].name);
        assert_non_null(r);
        assert_int_equal(r->dtype, t[i].dtype);
        assert_int_equal(r->n_dims, t[i].n_dims);
        assert_int_equal(r->bytes, t[i].bytes);
        assert_memory_equal(r->dim, t[i].dim, sizeof r->dim);
        if (r->bytes) assert_memory_equal(r->data, t[i].data, r->bytes);
        /* The data is aligned in the file. */
        assert_int_equal((uintptr_t)r->data % dtype_size(r->dtype), 0);
    }
    safetensors_close(s);
    assert_int_equal(safetensors_write(dir_file(&d, "none.safetensors"), NULL, 0), 0);
    assert_int_equal(safetensors_open(d.file, &s), 0);
    assert_int_equal(safetensors_count(s), 0);
    safetensors_close(s);
    dir_remove(&d);
}

/* A refused write leaves the old file unchanged and creates no other. */
static void test_write_refused(void **state)
{
    (void)state;
    static const float x[2] = {1, 2};
    static const struct tensor good = {
        .name = "a", .dtype = DT_F32, .n_dims = 1, .dim = {2}, .data = x, .bytes = 8};
    struct dir d;
    struct stat st;
    dir_make(&d);
    dir_text(&d, "old.safetensors", "keep me");
    for (int i = 0; i < 6; i++) {
        struct tensor t[2] = {good, good};
        t[1].name = "b";
        if (i == 0) t[1].name = "a";
        if (i == 1) t[1].dtype = DT_Q4_0;
        if (i == 2) t[1].bytes = 4;
        if (i == 3) t[1].n_dims = 5;
        if (i == 4) t[1].name = "__metadata__";
        if (i == 5) t[1].name = "\xff";
        int e = safetensors_write(d.file, t, 2);
        assert_int_equal(e, i == 1 ? ERR_UNSUPPORTED : ERR_ARG);
    }
    assert_int_equal(safetensors_write("/nonexistent-directory/x.safetensors", &good, 1), ERR_IO);
    assert_int_equal(stat(d.file, &st), 0);
    assert_int_equal(st.st_size, 7);
    dir_remove(&d);
}

/* A header that the reader would refuse is not written. */
static void test_write_limit(void **state)
{
    (void)state;
    enum { N = 100000000 };
    static const float x[2] = {1, 2};
    if (getenv("KVIK_TEST_SHORT")) skip();
    struct dir d;
    char *name = malloc(N + 1);
    assert_non_null(name);
    memset(name, 'x', N);
    name[N] = 0;
    dir_make(&d);
    const struct tensor t = {
        .name = name, .dtype = DT_F32, .n_dims = 1, .dim = {2}, .data = x, .bytes = 8};
    assert_int_equal(safetensors_write(dir_file(&d, "w.safetensors"), &t, 1), ERR_LIMIT);
    assert_int_not_equal(access(d.file, F_OK), 0);
    dir_remove(&d);
    free(name);
}

/* Every allocation of a read and of a write fails once: a clean error, and nothing leaks (ASan). */
/* class: CVE-2024-32878 */
static void test_faults(void **state)
{
    (void)state;
    struct file f;
    struct dir d;
    static const float x[2] = {1, 2};
    struct tensor t[3];
    for (size_t i = 0; i < countof(t); i++)
        t[i] = (struct tensor){.dtype = DT_F32, .n_dims = 1, .dim = {2}, .data = x, .bytes = 8};
    t[0].name = "a", t[1].name = "b", t[2].name = "c";
    make(&f, small, 32);
    dir_make(&d);
    dir_file(&d, "w.safetensors");
    for (int persistent = 0; persistent < 2; persistent++) {
        int k, e = ERR_NOMEM;
        for (k = 0; e < 0; k++) {
            mem_fail_at(k, persistent);
            e = parse_safetensors(f.b, f.n);
            mem_fail_at(-1, false);
            assert_true(e == 0 || e == ERR_NOMEM);
        }
        assert_in_range(k, 5, 100);
        for (k = 0, e = ERR_NOMEM; e < 0; k++) {
            mem_fail_at(k, persistent);
            e = safetensors_write(d.file, t, countof(t));
            mem_fail_at(-1, false);
            assert_true(e == 0 || e == ERR_NOMEM);
            assert_int_equal(access(d.file, F_OK) == 0, e == 0);
        }
        assert_in_range(k, 4, 100);
        unlink(d.file);
    }
    dir_remove(&d);
}

/* Paths that are not readable files give an error, never a size. */
/* class: llamafile#1038 */
static void test_open_errors(void **state)
{
    (void)state;
    struct dir d;
    struct safetensors *s = (void *)16;
    dir_make(&d);
    assert_int_equal(safetensors_open(dir_file(&d, "missing"), &s), ERR_NOTFOUND);
    assert_int_equal(safetensors_open(d.path, &s), ERR_IO);
    dir_text(&d, "empty", "");
    assert_int_equal(safetensors_open(dir_file(&d, "empty"), &s), ERR_FORMAT);
    assert_int_equal(mkfifo(dir_file(&d, "fifo"), 0600), 0);
    assert_int_equal(safetensors_open(d.file, &s), ERR_IO); /* and the call does not hang */
    assert_ptr_equal(s, (void *)16);
    dir_remove(&d);
}

static int verdicts(const char *path)
{
    char *text;
    size_t n, i = 0;
    if (file_read(path, (size_t)1 << 31, &text, &n) < 0) return 1;
    while (i + 4 <= n) {
        uint32_t k;
        memcpy(&k, text + i, 4);
        int e = parse_safetensors((const uint8_t *)text + i + 4, k);
        printf("%s\n", e == 0 ? "accept" : err_last());
        i += 4 + (size_t)k;
    }
    mem_free(text);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),          cmocka_unit_test(test_header_length),
        cmocka_unit_test(test_nesting),          cmocka_unit_test(test_raw_nul),
        cmocka_unit_test(test_truncated),        cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_order_and_lookup), cmocka_unit_test(test_many),
        cmocka_unit_test(test_escaped_names),    cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_write_refused),    cmocka_unit_test(test_write_limit),
        cmocka_unit_test(test_faults),           cmocka_unit_test(test_open_errors),
    };
    if (argc == 3 && strcmp(argv[1], "--verdicts") == 0) return verdicts(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
