/* test_fmt_gguf.c - GGUF files with wrong contents: each class of defect that was found in other
 * readers, the two mechanical attacks, and failing allocations. */
#include "test_fmt_gguf.h"
#include "fmt/fmt_int.h"

/* Lengths that are wrong for a file of a few hundred bytes, each for another reason. */
static const uint64_t lengths[] = {
    UINT64_MAX,       UINT64_MAX - 1,   UINT64_MAX - 7, UINT64_MAX - 31,
    1ull << 63,       (1ull << 63) - 1, 1ull << 62,     1ull << 61,
    (1ull << 61) + 1, 1ull << 48,       1ull << 32,     (1ull << 32) + 4,
    UINT32_MAX,       1u << 31,         1u << 20,       600};

/* A string length is at most the number of bytes left, wherever the string stands. */
/* class: CVE-2024-23496, TALOS-2024-1913, CVE-2024-21802, #19003 */
static void test_string_lengths(void **state)
{
    (void)state;
    struct file f;
    for (size_t i = 0; i < countof(lengths); i++) {
        gguf_begin(&f, 3, 0, 1); /* the key */
        put_u64(&f, lengths[i]);
        put_fill(&f, 64);
        assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);

        gguf_begin(&f, 3, 0, 1); /* a value */
        gguf_key(&f, "k", GGUF_STRING);
        put_u64(&f, lengths[i]);
        put_fill(&f, 64);
        assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);

        gguf_begin(&f, 3, 0, 1); /* the second item of an array */
        gguf_array(&f, "k", GGUF_STRING, 2);
        put_str(&f, "one");
        put_u64(&f, lengths[i]);
        put_fill(&f, 64);
        assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);

        gguf_begin(&f, 3, 1, 0); /* the name of a tensor */
        put_u64(&f, lengths[i]);
        put_fill(&f, 64);
        assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);
    }
}

/* A count is at most the number of items that fit into the bytes left, for items of every size. */
/* class: CVE-2024-23496, #19856 */
static void test_counts(void **state)
{
    (void)state;
    struct file f;
    for (size_t i = 0; i < countof(lengths); i++) {
        for (uint32_t item = GGUF_U8; item <= GGUF_F64; item++) {
            if (item == GGUF_ARRAY) continue;
            gguf_begin(&f, 3, 0, 1);
            gguf_array(&f, "k", item, lengths[i]);
            put_fill(&f, 64);
            assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);
        }
        gguf_begin(&f, 3, lengths[i], 0);
        put_fill(&f, 64);
        assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);
        gguf_begin(&f, 3, 0, lengths[i]);
        put_fill(&f, 64);
        assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);
    }
}

/* A file that claims much and holds little is refused before memory is allocated for the claim. An
 * attempt would show as ERR_NOMEM here, since every large block fails. */
/* class: #19003 */
static void test_claims_allocate_nothing(void **state)
{
    (void)state;
    struct file f;
    gguf_begin(&f, 3, 0, 1);
    gguf_array(&f, "k", GGUF_STRING, 1u << 30);
    put_fill(&f, 64);
    struct gguf *g;
    uint64_t before = mem_calls();
    assert_int_equal(gguf_parse(f.b, f.n, "t", &g), ERR_FORMAT);
    assert_in_range(mem_calls() - before, 1,
                    5); /* the struct, its name, two tables of one entry, and the key */
    gguf_begin(&f, 3, 1u << 30, 1u << 30);
    before = mem_calls();
    assert_int_equal(gguf_parse(f.b, f.n, "t", &g), ERR_FORMAT);
    assert_in_range(mem_calls() - before, 1, 2);
}

/* More metadata than any model has is refused, although the file could hold it. */
static void test_too_many_values(void **state)
{
    (void)state;
    struct file f;
    const size_t n = 1 << 20;
    uint8_t *q = calloc(1, n);
    assert_non_null(q);
    gguf_begin(&f, 3, 0, 65537);
    memcpy(q, f.b, f.n);
    assert_error(parse_gguf(q, n), ERR_LIMIT, "65537 metadata values and 0 tensors; at most 65536",
                 "65537 values");
    q[16] = 0; /* 65536: the first key is empty */
    assert_error(parse_gguf(q, n), ERR_FORMAT, "a metadata key", "65536 values");
    free(q);
}

static const struct {
    const char *name;
    uint32_t n_dims;
    uint64_t dim[FMT_MAX_DIMS]; /* innermost first */
    uint32_t type;
    uint64_t offset;
    int want;
    const char *part;
} shapes[] = {
    {"fits", 2, {4, 16}, 0, 0, 0, ""},
    {"scalar", 0, {0}, 0, 0, 0, ""},
    {"four dimensions", 4, {2, 2, 2, 2}, 0, 0, 0, ""},
    {"no elements", 2, {0, 7}, 0, 0, 0, ""},
    {"ends with the file", 1, {32}, 0, 128, 0, ""},
    {"empty at the end", 1, {0}, 0, 256, 0, ""},

    {"product wraps to 0", 2, {1ull << 32, 1ull << 32}, 0, 0, ERR_FORMAT, "overflow"},
    {"product wraps to 0 with three",
     3,
     {1ull << 22, 1ull << 21, 1ull << 21},
     0,
     0,
     ERR_FORMAT,
     "overflow"},
    {"product wraps to 64", 2, {(1ull << 60) + 1, 16}, 0, 0, ERR_FORMAT, "overflow"},
    {"bytes wrap to 4", 1, {(1ull << 62) + 1}, 0, 0, ERR_FORMAT, "overflow"},
    {"bytes wrap by rows", 2, {4, (1ull << 60) + 1}, 0, 0, ERR_FORMAT, "overflow"},
    {"overflow hidden by a zero", 3, {4, 0, 1ull << 62}, 0, 0, ERR_FORMAT, "overflow"},
    {"overflow behind a zero", 3, {4, 1ull << 62, 0}, 0, 0, ERR_FORMAT, "overflow"},
    {"zero row of many", 4, {0, 1ull << 32, 1ull << 31, 4}, 0, 0, ERR_FORMAT, "overflow"},
    {"negative dimension", 1, {UINT64_MAX}, 24, 0, ERR_FORMAT, "past the end"},
    {"negative dimension, 4 bytes", 1, {(uint64_t)-4}, 0, 0, ERR_FORMAT, "overflow"},
    {"one row too many", 2, {4, 17}, 0, 0, ERR_FORMAT, "past the end"},
    {"larger than the file", 1, {1ull << 40}, 0, 0, ERR_FORMAT, "past the end"},
    {"2^32 bytes and a few", 1, {(1ull << 30) + 1}, 0, 0, ERR_FORMAT, "past the end"},
    {"offset at the end", 1, {8}, 0, 256, ERR_FORMAT, "past the end"},
    {"offset near the end", 1, {40}, 0, 128, ERR_FORMAT, "past the end"},
    {"offset far away", 1, {8}, 0, 1ull << 40, ERR_FORMAT, "past the end"},
    {"offset plus size wraps", 1, {16}, 0, UINT64_MAX - 31, ERR_FORMAT, "past the end"},
    {"offset negative", 1, {8}, 0, (uint64_t)-64, ERR_FORMAT, "past the end"},
    {"offset 2^63", 1, {8}, 0, 1ull << 63, ERR_FORMAT, "past the end"},
    {"offset not aligned", 1, {8}, 0, 8, ERR_FORMAT, "multiple of 32"},
    {"half a block", 2, {16, 2}, 2, 0, ERR_FORMAT, "whole blocks"},
    {"block and a half", 1, {48}, 8, 0, ERR_FORMAT, "whole blocks"},
    {"half a superblock", 1, {128}, 12, 0, ERR_FORMAT, "whole blocks"},
};

/* Every tensor lies inside the file, whatever its numbers are, before its first use. */
/* class: CVE-2026-7482, GHSA-x8qc-fggm-mpqg, CVE-2025-53630, CVE-2026-27940, GHSA-3p4r-fq3f-q74v */
static void test_shapes(void **state)
{
    (void)state;
    struct file f;
    for (size_t i = 0; i < countof(shapes); i++) {
        int e = gguf_with_tensor(&f, shapes[i].n_dims, shapes[i].dim, shapes[i].type,
                                 shapes[i].offset, 256);
        assert_error(e, shapes[i].want, shapes[i].want ? shapes[i].part : "", shapes[i].name);
    }
    for (uint32_t n_dims = 5; n_dims; n_dims *= 2) { /* 5, 10, ... 0x80000000 and above */
        gguf_begin(&f, 3, 1, 0);
        put_str(&f, "t");
        put_u32(&f, n_dims);
        put_fill(&f, 200);
        assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);
        assert_non_null(strstr(err_last(), "dimensions"));
    }
}

/* A check of each sum is not enough: no sum over several tensors may wrap either. */
/* class: CVE-2025-53630, CVE-2026-27940 */
static void test_sums(void **state)
{
    (void)state;
    struct file f;
    static const uint64_t size[] = {1ull << 63, (1ull << 63) - 32, 1ull << 62, 256};
    for (size_t i = 0; i < countof(size); i++) {
        gguf_begin(&f, 3, 3, 0);
        for (int t = 0; t < 3; t++)
            gguf_info(&f, &"abc"[2 - t], 1, &size[i], 24, (uint64_t)t * size[i]);
        put_pad(&f, 32);
        put_fill(&f, 256);
        assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);
    }
}

/* class: #19856 */
static void test_types(void **state)
{
    static const uint32_t value_types[] = {13, 14, 255, 256, 0x80000000u, UINT32_MAX, 0x10000u};
    (void)state;
    struct file f;
    uint8_t zero[64] = {0};
    for (size_t i = 0; i < countof(value_types); i++) {
        assert_int_equal(gguf_with(&f, "k", value_types[i], zero, sizeof zero), ERR_FORMAT);
        gguf_begin(&f, 3, 0, 1);
        gguf_array(&f, "k", value_types[i], 1);
        put_fill(&f, 64);
        assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);
    }
    /* All types that exist, and the unused numbers between them. */
    for (uint32_t t = 0; t < 300; t++) {
        uint32_t type = t < 256 ? t : 0u - (t - 255);
        int e = gguf_with_tensor(&f, 1, (uint64_t[]){256}, type, 0, 2048);
        int want = dtype_from_gguf(type) >= 0 ? 0 : ERR_FORMAT;
        assert_true(e == want || (want && e == ERR_UNSUPPORTED && t < 64));
    }
    assert_int_equal(gguf_with_tensor(&f, 1, (uint64_t[]){256}, 23, 0, 2048), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "IQ4_XS"));
}

static void test_nested_arrays(void **state)
{
    (void)state;
    struct file f;
    gguf_begin(&f, 3, 0, 1);
    gguf_array(&f, "k", GGUF_ARRAY, 1);
    for (int i = 0; i < 10000; i++) {
        put_u32(&f, GGUF_ARRAY);
        put_u64(&f, 1);
    }
    assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "array of arrays"));
}

/* class: #26318, CVE-2025-0317 */
static void test_alignment(void **state)
{
    static const struct {
        uint32_t type;
        uint64_t value;
        size_t bytes;
        int want;
    } rows[] = {
        {GGUF_U32, 1, 4, 0},
        {GGUF_U32, 8, 4, 0},
        {GGUF_U32, 64, 4, 0},
        {GGUF_U32, 1u << 20, 4, ERR_FORMAT}, /* the data begins past the end of the file */
        {GGUF_U32, 0, 4, ERR_FORMAT},
        {GGUF_U32, 3, 4, ERR_FORMAT},
        {GGUF_U32, 33, 4, ERR_FORMAT},
        {GGUF_U32, 1u << 21, 4, ERR_FORMAT},
        {GGUF_U32, 1u << 31, 4, ERR_FORMAT},
        {GGUF_U32, UINT32_MAX, 4, ERR_FORMAT},
        {GGUF_I32, 32, 4, ERR_FORMAT},
        {GGUF_U64, 32, 8, ERR_FORMAT},
        {GGUF_U64, 1ull << 32, 8, ERR_FORMAT},
        {GGUF_F32, 32, 4, ERR_FORMAT},
        {GGUF_BOOL, 1, 1, ERR_FORMAT},
        {GGUF_STRING, 0, 8, ERR_FORMAT},
    };
    (void)state;
    struct file f;
    for (size_t i = 0; i < countof(rows); i++) {
        gguf_begin(&f, 3, 1, 1);
        gguf_key(&f, "general.alignment", rows[i].type);
        put_le(&f, rows[i].value, rows[i].bytes);
        gguf_info(&f, "t", 1, (uint64_t[]){8}, 0, 0);
        put_pad(&f, 64);
        put_fill(&f, 128);
        assert_error(parse_gguf(f.b, f.n), rows[i].want, "", "alignment");
    }
    /* A file without tensors needs no data section, whatever the alignment. */
    gguf_begin(&f, 3, 0, 1);
    gguf_key(&f, "general.alignment", GGUF_U32);
    put_u32(&f, 1u << 20);
    assert_int_equal(parse_gguf(f.b, f.n), 0);
    f.b[f.n - 2] = 0x20; /* 2 MiB */
    assert_error(parse_gguf(f.b, f.n), ERR_FORMAT, "power of two up to", "2 MiB");
}

static void test_duplicates_and_overlap(void **state)
{
    (void)state;
    struct file f;
    gguf_begin(&f, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        gguf_key(&f, "k", GGUF_U8);
        put_le(&f, 1, 1);
    }
    assert_error(parse_gguf(f.b, f.n), ERR_FORMAT, "occurs twice", "key");
    static const struct {
        const char *second;
        uint64_t offset;
        uint64_t n;
        int want;
        const char *part;
    } rows[] = {
        {"b", 64, 8, 0, ""},
        {"b", 64, 0, 0, ""},
        {"b", 0, 0, 0, ""},
        {"a", 64, 8, ERR_FORMAT, "occurs twice"},
        {"b", 0, 16, ERR_FORMAT, "overlap"},
        {"b", 0, 4, ERR_FORMAT, "overlap"},
        {"b", 32, 4, ERR_FORMAT, "overlap"},
        {"b", 32, 32, ERR_FORMAT, "overlap"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        gguf_begin(&f, 3, 2, 0);
        gguf_info(&f, "a", 1, (uint64_t[]){16}, 0, 0);
        gguf_info(&f, rows[i].second, 1, &rows[i].n, 0, rows[i].offset);
        put_pad(&f, 32);
        put_fill(&f, 256);
        assert_error(parse_gguf(f.b, f.n), rows[i].want, rows[i].part, rows[i].second);
    }
}

static void test_names(void **state)
{
    static const struct {
        const char *name;
        size_t n;
        int want;
    } rows[] = {
        {"k", 1, 0},
        {"gr\xC3\xBC\xC3\x9F", 6, 0},
        {"", 0, ERR_FORMAT},
        {"a\0b", 3, ERR_FORMAT},
        {"\xff", 1, ERR_FORMAT},
        {"\xC3", 1, ERR_FORMAT},
        {"\xED\xA0\x80", 3, ERR_FORMAT},
    };
    (void)state;
    struct file f;
    for (size_t i = 0; i < countof(rows); i++) {
        gguf_begin(&f, 3, 0, 1);
        put_u64(&f, rows[i].n);
        put(&f, rows[i].name, rows[i].n);
        put_u32(&f, GGUF_U8);
        put_le(&f, 0, 1);
        assert_int_equal(parse_gguf(f.b, f.n), rows[i].want);
        gguf_begin(&f, 3, 1, 0);
        put_u64(&f, rows[i].n);
        put(&f, rows[i].name, rows[i].n);
        put_u32(&f, 0);
        put_u32(&f, 0);
        put_u64(&f, 0);
        put_pad(&f, 32);
        put_fill(&f, 4);
        assert_int_equal(parse_gguf(f.b, f.n), rows[i].want);
    }
    for (size_t n = 65535; n <= 65536; n++) { /* the longest allowed key, and one byte more */
        gguf_begin(&f, 3, 0, 1);
        put_u64(&f, n);
        for (size_t i = 0; i < n; i++)
            put(&f, "x", 1);
        put_u32(&f, GGUF_U8);
        put_le(&f, 0, 1);
        assert_int_equal(parse_gguf(f.b, f.n), n == 65535 ? 0 : ERR_FORMAT);
    }
    /* A name in an error message cannot send control codes to a terminal. */
    gguf_begin(&f, 3, 0, 1);
    gguf_key(&f, "\x1b[2Jk\r\n", 99);
    assert_int_equal(parse_gguf(f.b, f.n), ERR_FORMAT);
    for (const char *p = err_last(); *p; p++)
        assert_true((unsigned char)*p >= 0x20 && *p != 0x7F);
}

static void test_versions(void **state)
{
    static const struct {
        uint32_t version;
        int want;
        const char *part;
    } rows[] = {{2, 0, ""},
                {3, 0, ""},
                {0, ERR_UNSUPPORTED, "version 0"},
                {1, ERR_UNSUPPORTED, "version 1"},
                {4, ERR_UNSUPPORTED, "version 4"},
                {0x03000000, ERR_UNSUPPORTED, "big-endian"},
                {UINT32_MAX, ERR_UNSUPPORTED, "version"}};
    (void)state;
    struct file f;
    for (size_t i = 0; i < countof(rows); i++) {
        gguf_begin(&f, rows[i].version, 0, 0);
        assert_error(parse_gguf(f.b, f.n), rows[i].want, rows[i].part, "version");
    }
    assert_error(parse_gguf((const uint8_t *)"<!DOCTYPE html>", 15), ERR_FORMAT, "web page",
                 "html");
}

/* class: CVE-2024-39720 */
static void test_truncated(void **state)
{
    (void)state;
    struct file f;
    gguf_small(&f);
    attack_truncate(parse_gguf, &f);
    for (uint32_t type = GGUF_U8; type <= GGUF_F64; type++) { /* no byte follows the last value */
        gguf_begin(&f, 3, 0, 2);
        gguf_key(&f, "first", GGUF_STRING);
        put_str(&f, "value");
        gguf_key(&f, "last", type);
        if (type == GGUF_ARRAY) {
            put_u32(&f, GGUF_I16);
            put_u64(&f, 2);
            put_u32(&f, 0);
        } else if (type == GGUF_STRING) {
            put_str(&f, "end");
        } else {
            put_le(&f, 1, (const uint8_t[]){1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}[type]);
        }
        attack_truncate(parse_gguf, &f);
    }
}

/* The cursor below the parser: a failing read names the place and does not move. */
static void test_reader(void **state)
{
    (void)state;
    uint8_t *q = exact("\x03\0\0\0\0\0\0\0abcdefgh", 16);
    struct rd r = {.data = q, .size = 16, .what = "t"};
    const uint8_t *p;
    const char *s;
    uint64_t n;
    uint32_t u;
    size_t len;
    assert_int_equal(rd_count(&r, "items", 3, &n), ERR_FORMAT); /* 8 bytes cannot hold 3 times 3 */
    assert_int_equal(r.pos, 0);
    assert_int_equal(rd_count(&r, "items", 2, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(rd_left(&r), 8);
    assert_int_equal(rd_take(&r, 9, "field", &p), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "t: byte 8: field needs 9 bytes, the file has 8 left"));
    assert_int_equal(rd_take(&r, UINT64_MAX, "field", &p), ERR_FORMAT);
    assert_int_equal(rd_take(&r, 8, "field", &p), 0);
    assert_ptr_equal(p, q + 8);
    assert_int_equal(rd_take(&r, 0, "field", &p), 0);
    assert_int_equal(rd_u32(&r, "field", &u), ERR_FORMAT);
    r.pos = 0;
    assert_int_equal(rd_str(&r, "field", &s, &len), 0);
    assert_int_equal(len, 3);
    assert_memory_equal(s, "abc", 3);
    /* 5 bytes are too few for a length. */
    assert_int_equal(rd_str(&r, "field", &s, &len), ERR_FORMAT);
    assert_int_equal(r.pos, 11);
    r.pos = 12;
    assert_int_equal(rd_u32(&r, "field", &u), 0);
    assert_int_equal(u, 0x68676665);
    free(q);
}

/* class: CVE-2024-12055, #19856 */
static void test_flipped(void **state)
{
    (void)state;
    struct file f;
    size_t start = gguf_small(&f);
    attack_flip(parse_gguf, &f, start);
}

/* Counts that disagree with the contents: the reader interprets other bytes but never reads past
 * the end. */
/* class: CVE-2024-12055 */
static void test_shifted_counts(void **state)
{
    (void)state;
    struct file f;
    for (uint64_t n_tensors = 0; n_tensors < 8; n_tensors++)
        for (uint64_t n_values = 0; n_values < 16; n_values++) {
            gguf_small(&f);
            f.b[8] = (uint8_t)n_tensors;
            f.b[16] = (uint8_t)n_values;
            int e = parse_gguf(f.b, f.n);
            bool honest = n_tensors == 3 && n_values == 8;
            assert_true(honest ? e == 0 : e == 0 || e == ERR_FORMAT);
            if (n_tensors > 3 && n_values == 8) assert_int_equal(e, ERR_FORMAT);
        }
}

/* Every allocation of a load fails once: a clean error, and nothing is leaked or freed twice
 * (ASan). */
/* class: CVE-2024-32878 */
static void test_faults(void **state)
{
    (void)state;
    struct file f;
    int k, e;
    gguf_small(&f);
    for (int persistent = 0; persistent < 2; persistent++) {
        for (k = 0, e = ERR_NOMEM; e < 0; k++) {
            mem_fail_at(k, persistent);
            e = parse_gguf(f.b, f.n);
            mem_fail_at(-1, false);
            assert_true(e == 0 || e == ERR_NOMEM);
        }
        assert_in_range(k, 15, 200);
    }
    print_message("%d allocations, each failed once and from then on\n", k - 1);
}

/* Paths that are not readable files give an error, never a size. */
/* class: llamafile#1038 */
static void test_open_errors(void **state)
{
    (void)state;
    struct dir d;
    struct gguf *g = (void *)16;
    dir_make(&d);
    assert_int_equal(gguf_open(dir_file(&d, "missing.gguf"), &g), ERR_NOTFOUND);
    assert_int_equal(gguf_open(d.path, &g), ERR_IO);
    dir_text(&d, "empty.gguf", "");
    assert_int_equal(gguf_open(dir_file(&d, "empty.gguf"), &g), ERR_FORMAT);
    dir_text(&d, "magic.gguf", "GGUF");
    assert_int_equal(gguf_open(dir_file(&d, "magic.gguf"), &g), ERR_FORMAT);
    assert_int_equal(mkfifo(dir_file(&d, "fifo.gguf"), 0600), 0);
    assert_int_equal(gguf_open(d.file, &g), ERR_IO);
    assert_ptr_equal(g, (void *)16);
    dir_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader),
        cmocka_unit_test(test_string_lengths),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_claims_allocate_nothing),
        cmocka_unit_test(test_too_many_values),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_nested_arrays),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_duplicates_and_overlap),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_shifted_counts),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_open_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
