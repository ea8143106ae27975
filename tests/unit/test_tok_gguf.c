/* test_tok_gguf.c - tokenizers from GGUF metadata: the same ids as from the tokenizer.json they
 * were converted from; files with wrong ids, types and lengths. */
#include "test_tok.h"

#include "fmt/fmt.h"

/* A GGUF file of metadata under construction. */
struct meta {
    struct buf b;
    uint64_t n;
    size_t at_count;
};

static void le(struct meta *m, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf_putc(&m->b, (char)(v >> (8 * i))), 0);
}

static void str(struct meta *m, const char *s, size_t n)
{
    le(m, n, 8);
    assert_int_equal(buf_append(&m->b, s, n), 0);
}

static void begin(struct meta *m)
{
    m->n = 0;
    buf_init(&m->b, 1 << 26);
    assert_int_equal(buf_append(&m->b, "GGUF", 4), 0);
    le(m, 3, 4);
    le(m, 0, 8);
    m->at_count = m->b.len;
    le(m, 0, 8);
}

static void key(struct meta *m, const char *k, uint32_t type)
{
    m->n++;
    str(m, k, strlen(k));
    le(m, type, 4);
}

static void key_str(struct meta *m, const char *k, const char *v)
{
    key(m, k, GGUF_STRING);
    str(m, v, strlen(v));
}

static void key_u32(struct meta *m, const char *k, uint32_t v)
{
    key(m, k, GGUF_U32);
    le(m, v, 4);
}

static void key_bool(struct meta *m, const char *k, bool v)
{
    key(m, k, GGUF_BOOL);
    le(m, v, 1);
}

static void array(struct meta *m, const char *k, uint32_t item, uint64_t n)
{
    key(m, k, GGUF_ARRAY);
    le(m, item, 4);
    le(m, n, 8);
}

static void strings(struct meta *m, const char *k, const char *const *v)
{
    uint64_t n = 0;
    while (v[n])
        n++;
    array(m, k, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        str(m, v[i], strlen(v[i]));
}

static void numbers(struct meta *m, const char *k, const int *v, uint64_t n)
{
    array(m, k, GGUF_I32, n);
    for (uint64_t i = 0; i < n; i++)
        le(m, (uint32_t)v[i], 4);
}

static void floats(struct meta *m, const char *k, const float *v, uint64_t n)
{
    array(m, k, GGUF_F32, n);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], 4);
        le(m, bits, 4);
    }
}

/* Opens the tokenizer and drops the file. Returns the code of tok_open_gguf. */
static int open_meta(struct meta *m, struct tok **out)
{
    struct gguf *g;
    for (int i = 0; i < 8; i++)
        m->b.data[m->at_count + (size_t)i] = (char)(m->n >> (8 * i));
    char *data = mem_strndup(m->b.data, m->b.len);
    *out = NULL;
    if (gguf_parse(data, m->b.len, "test.gguf", &g) < 0) fail_msg("%s", err_last());
    int e = tok_open_gguf(g, out);
    gguf_close(g);
    memset(data, 0xAA, m->b.len); /* the tokenizer keeps no pointer into the file */
    mem_free(data);
    buf_done(&m->b);
    return e;
}

#define K "tokenizer.ggml."
static const char *const tiny[] = {"<|a|>",
                                   "a",
                                   "b",
                                   "ab",
                                   "\xC4\xA0",
                                   "\xC4\xA0"
                                   "a",
                                   "1",
                                   "\xC4\x8A",
                                   "<u>",
                                   NULL};
static const char *const tiny_merges[] = {"a b", "\xC4\xA0 a", NULL};
static const int tiny_types[] = {3, 1, 1, 1, 1, 1, 1, 1, 4};

static void begin_tiny(struct meta *m, const char *pre)
{
    begin(m);
    key_str(m, K "model", "gpt2");
    if (pre) key_str(m, K "pre", pre);
    strings(m, K "tokens", tiny);
    strings(m, K "merges", tiny_merges);
    numbers(m, K "token_type", tiny_types, countof(tiny_types));
}

static void expect_ids(const struct tok *t, const char *text, unsigned flags, const int32_t *want,
                       size_t n)
{
    struct ids v = {0};
    if (tok_encode(t, text, strlen(text), flags, NULL, 0, &v) < 0)
        fail_msg("%s: %s", text, err_last());
    assert_int_equal(v.n, n);
    if (n) assert_memory_equal(v.id, want, n * sizeof *want);
    ids_done(&v);
}
#define EXPECT(t, text, flags, ...)                                                                \
    expect_ids(t, text, flags, (const int32_t[]){__VA_ARGS__},                                     \
               countof(((const int32_t[]){__VA_ARGS__})))

static void test_byte_level(void **state)
{
    (void)state;
    struct meta m;
    struct tok *t;
    begin_tiny(&m, "smollm");
    key_u32(&m, K "bos_token_id", 0);
    key_u32(&m, K "eos_token_id", 3);
    key_bool(&m, K "add_bos_token", true);
    key_bool(&m, K "add_eos_token", true);
    key_str(&m, "tokenizer.chat_template", "{{ x }}");
    if (open_meta(&m, &t) < 0) fail_msg("%s", err_last());
    EXPECT(t, "ab a11<|a|>ab<u>\nb", 0, 3, 5, 6, 6, 0, 3, 8, 7, 2);
    EXPECT(t, "ab", TOK_SPECIAL, 0, 3, 3);
    EXPECT(t, "a<|a|>b<u>", TOK_PLAIN, 1, 1, 2, 8); /* user-defined tokens are not special */
    assert_string_equal(tok_kind(t), "BPE (byte-level, smollm)");
    assert_string_equal(tok_chat_template(t), "{{ x }}");
    assert_int_equal(tok_special_id(t, "bos_token"), 0);
    assert_int_equal(tok_special_id(t, "eos_token"), 3);
    assert_int_equal(tok_special_id(t, "pad_token"), -1);
    assert_true(tok_is_special(t, 0) && !tok_is_special(t, 8));
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(tok_decode(t, (const int32_t[]){0, 3, 5, 7}, 4, true, &b), 0);
    assert_string_equal(b.data, "ab a\n");
    buf_done(&b);
    tok_close(t);
}

/* Every name in the table opens, so its patterns compile; other names are refused by name. */
static void test_pre_names(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2",     "smollm", "llama-bpe",   "qwen2",  "default",
                                        "gpt-4o",    "tekken", "deepseek-v3", "falcon", "bloom",
                                        "starcoder", "dbrx",   "command-r",   "olmo",   "stablelm2",
                                        "llama4",    "refact"};
    struct meta m;
    struct tok *t;
    for (size_t i = 0; i < countof(names); i++) {
        begin_tiny(&m, names[i]);
        key_u32(&m, K "bos_token_id", 0);
        if (open_meta(&m, &t) < 0) fail_msg("%s: %s", names[i], err_last());
        EXPECT(t, " a ab", 0, 5, 4, 3); /* no merge joins a space with ab */
        tok_close(t);
    }
    begin_tiny(&m, NULL);
    assert_int_equal(open_meta(&m, &t), 0);
    assert_string_equal(tok_kind(t), "BPE (byte-level, assumed gpt-2)");
    tok_close(t);
    static const char *const unknown[] = {"plamo2", "", "gpt-2 smollm", "gpt"};
    for (size_t i = 0; i < countof(unknown); i++) {
        begin_tiny(&m, unknown[i]);
        assert_int_equal(open_meta(&m, &t), ERR_UNSUPPORTED);
        assert_non_null(strstr(err_last(), "tokenizer.ggml.pre"));
    }
    begin(&m);
    key_str(&m, K "model", "rwkv");
    strings(&m, K "tokens", tiny);
    assert_int_equal(open_meta(&m, &t), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "rwkv"));
}

static size_t from_base64(const char *s, uint8_t *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t v = 0;
    size_t n = 0;
    for (size_t i = 0; s[i] && s[i] != '='; i++) {
        v = v << 6 | (uint32_t)(strchr(digits, s[i]) - digits);
        if (i % 4) out[n++] = (uint8_t)(v >> (6 - i % 4 * 2));
    }
    return n;
}

/* Writes the metadata of a T5 tokenizer.json as a converter does. The list of pieces ends with unused ones of a very low
 * score, as the converter pads it. */
static void write_t5(struct meta *m, const json_t *root)
{
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    size_t size = json_array_size(vocab), n;
    const json_t *norms = json_object_get(json_object_get(root, "normalizer"), "normalizers");
    const char *map =
        json_string_value(json_object_get(json_array_get(norms, 0), "precompiled_charsmap"));
    begin(m);
    key_str(m, K "model", "t5");
    array(m, K "tokens", GGUF_STRING, size + 1);
    for (size_t i = 0; i < size; i++) {
        const json_t *piece = json_array_get(json_array_get(vocab, i), 0);
        str(m, json_string_value(piece), json_string_length(piece));
    }
    str(m, "[PAD]", 5);
    float *score = mem_array(size + 1, sizeof *score);
    int *type = mem_array(size + 1, sizeof *type);
    for (size_t i = 0; i < size; i++) {
        score[i] = (float)json_number_value(json_array_get(json_array_get(vocab, i), 1));
        type[i] = i < 2 ? 3 : i == 2 ? 2 : 1;
    }
    score[size] = -10000;
    type[size] = 5;
    floats(m, K "scores", score, size + 1);
    numbers(m, K "token_type", type, size + 1);
    uint8_t *bytes = mem_alloc(strlen(map));
    n = from_base64(map, bytes);
    array(m, K "precompiled_charsmap", GGUF_U8, n);
    assert_int_equal(buf_append(&m->b, bytes, n), 0);
    mem_free(bytes);
    mem_free(score);
    mem_free(type);
}

/* Compares the ids and the decoded text of one recorded text with what was recorded. Returns false
 * for a line without a text. */
static bool as_recorded(const struct tok *t, const json_t *line)
{
    const json_t *x = json_object_get(line, "text"), *want = json_object_get(line, "ids_special"),
                 *skip = json_object_get(line, "decode_skip");
    struct ids ids = {0};
    struct buf b;
    if (!x) return false;
    assert_int_equal(
        tok_encode(t, json_string_value(x), json_string_length(x), TOK_SPECIAL, NULL, 0, &ids), 0);
    assert_int_equal(ids.n, json_array_size(want));
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(ids.id[i], json_integer_value(json_array_get(want, i)));
    buf_init(&b, 1 << 24);
    assert_int_equal(tok_decode(t, ids.id, ids.n, true, &b), 0);
    assert_int_equal(b.len, json_string_length(skip));
    if (b.len) assert_memory_equal(b.data, json_string_value(skip), b.len);
    buf_done(&b);
    ids_done(&ids);
    return true;
}

/* A T5 tokenizer, given as pieces, scores and the map, gives the ids of its tokenizer.json. */
static void test_t5(void **state)
{
    (void)state;
    size_t n, len, n_lines = 0;
    char *text = unpack("tests/fixtures/tok/unigram.jsonl.xz", &n);
    const char *s = text;
    struct meta m;
    struct tok *t;
    json_t *o;
    len = strcspn(s, "\n");
    assert_int_equal(json_parse(s, len, "t5", &o), 0);
    write_t5(&m, o);
    json_decref(o);
    if (open_meta(&m, &t) < 0) fail_msg("%s", err_last());
    assert_string_equal(tok_kind(t), "Unigram");
    assert_int_equal(tok_special_id(t, "eos_token"), 1);
    assert_int_equal(tok_special_id(t, "pad_token"), 0);
    uint32_t n_parts;
    const struct tok_part *part = tok_layout(t, true, &n_parts);
    assert_int_equal(n_parts, 4); /* two texts, and the end token behind each */
    for (uint32_t i = 0; i < n_parts; i++)
        assert_int_equal(part[i].type, 0); /* T5 has one type */
    for (s += len + 1; strncmp(s, "{\"version\"", 10) != 0; s += len + 1, n_lines++) {
        len = strcspn(s, "\n");
        assert_int_equal(json_parse(s, len, "t5", &o), 0);
        assert_true(as_recorded(t, o));
        json_decref(o);
    }
    assert_true(n_lines > 300);
    tok_close(t);
    mem_free(text);
}

/* T5 metadata with parts that are missing or wrong, and its two switches. */
static void test_t5_parts(void **state)
{
    (void)state;
    static const char *const pieces[] = {"<pad>", "</s>", "<unk>", "\xE2\x96\x81", "a", "b", NULL};
    static const float scores[] = {0, 0, 0, -1, -2, -3};
    static const int types[] = {3, 3, 2, 1, 1, 1};
    for (int row = 0; row < 8; row++) {
        struct meta m;
        struct tok *t;
        begin(&m);
        key_str(&m, K "model", "t5");
        strings(&m, K "tokens", pieces);
        numbers(&m, K "token_type", types, 6);
        if (row != 1) floats(&m, K "scores", scores, row == 2 ? 5 : 6);
        if (row == 3) floats(&m, K "precompiled_charsmap", scores, 6);
        if (row == 4) key_str(&m, K "precompiled_charsmap", "abc");
        if (row == 5) key_u32(&m, K "unknown_token_id", 6);
        if (row == 6) key_bool(&m, K "add_space_prefix", false);
        if (row == 7) key_bool(&m, K "remove_extra_whitespaces", false);
        int e = open_meta(&m, &t);
        assert_int_equal(e, row >= 1 && row <= 5 ? ERR_FORMAT : 0);
        if (e < 0) continue;
        if (row == 0) EXPECT(t, "a  bxy ", TOK_SPECIAL, 3, 4, 3, 5, 2, 1);
        if (row == 6) EXPECT(t, "a  bxy ", 0, 4, 3, 5, 2);
        if (row == 7) EXPECT(t, "a  bxy ", 0, 3, 4, 3, 3, 5, 2, 3);
        tok_close(t);
    }
}

/* The golden Llama 2 tokenizer, given as pieces with scores, gives the ids of its merge list. */
static void test_scores(void **state)
{
    (void)state;
    size_t n, i, cap = 0;
    char *text = unpack(TOK_DIR "llama2/tokenizer.json.xz", &n), *line = NULL;
    json_t *root, *one;
    assert_int_equal(json_parse(text, n, "llama2", &root), 0);
    mem_free(text);
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    size_t size = json_object_size(vocab);
    const char **piece = mem_array(size + 1, sizeof *piece);
    float *score = mem_array(size, sizeof *score);
    int *type = mem_array(size, sizeof *type);
    const char *k;
    json_t *v;
    json_object_foreach(vocab, k, v) piece[json_integer_value(v)] = k;
    for (i = 0; i < size; i++) {
        score[i] = -1e6f;
        type[i] = i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1;
    }
    json_array_foreach(json_object_get(model, "merges"), i, one)
    {
        char joined[512] = "";
        const char *s = json_string_value(one), *gap = strchr(s, ' ');
        snprintf(joined, sizeof joined, "%.*s%s", (int)(gap - s), s, gap + 1);
        size_t id = (size_t)json_integer_value(json_object_get(vocab, joined));
        if (score[id] == -1e6f) score[id] = -(float)i;
    }
    struct meta m;
    struct tok *t;
    begin(&m);
    key_str(&m, K "model", "llama");
    strings(&m, K "tokens", piece);
    floats(&m, K "scores", score, size);
    numbers(&m, K "token_type", type, size);
    if (open_meta(&m, &t) < 0) fail_msg("%s", err_last());
    FILE *f = fopen(TOK_DIR "llama2.jsonl", "r");
    size_t n_lines = 0;
    assert_non_null(f);
    for (ssize_t len; (len = getline(&line, &cap, f)) > 0;) {
        json_t *o;
        assert_int_equal(json_parse(line, (size_t)len, "llama2.jsonl", &o), 0);
        n_lines += as_recorded(t, o);
        json_decref(o);
    }
    assert_true(n_lines > 300);
    free(line);
    fclose(f);
    tok_close(t);
    mem_free(piece);
    mem_free(score);
    mem_free(type);
    json_decref(root);
}

/* Looking for the merges of a piece takes the square of its length: a piece of 16 KiB opens, longer ones and many of them
 * are refused before the search. */
static void test_long_pieces(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        size_t len;
        int code;
    } rows[] = {{1, 16384, 0}, {1, 1 << 20, ERR_LIMIT}, {2000, 1024, ERR_LIMIT}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct meta m;
        struct tok *t;
        char *s = mem_alloc(rows[i].len);
        memset(s, 'a', rows[i].len);
        begin(&m);
        key_str(&m, K "model", "llama");
        key_bool(&m, K "add_bos_token", false);
        array(&m, K "tokens", GGUF_STRING, rows[i].n + 2);
        str(&m, "<s>", 3);
        str(&m, "a", 1);
        for (uint64_t k = 0; k < rows[i].n; k++) {
            snprintf(s, 9, "%08u", (unsigned)k);
            s[8] = 'a';
            str(&m, s, rows[i].len);
        }
        array(&m, K "scores", GGUF_F32, rows[i].n + 2);
        for (uint64_t k = 0; k < rows[i].n + 2; k++)
            le(&m, 0, 4);
        int e = open_meta(&m, &t);
        if (e != rows[i].code) fail_msg("row %zu: %d %s", i, e, e < 0 ? err_last() : "");
        if (e < 0) assert_non_null(strstr(err_last(), "too long"));
        tok_close(t);
        mem_free(s);
    }
}

/* class: GHSA-g4cc-763q-h9h6 */
static void test_special_ids(void **state)
{
    (void)state;
    static const char *const two[] = {"a", "b", NULL};
    static const float zero[2] = {0, 0};
    static const struct {
        const char *key;
        uint32_t id;
        int code;
    } rows[] = {
        {K "bos_token_id", 2, ERR_FORMAT},
        {K "eos_token_id", 9, ERR_FORMAT},
        {K "unknown_token_id", 1u << 31, ERR_FORMAT},
        {K "padding_token_id", 0x7FFFFFFF, ERR_FORMAT},
        {K "padding_token_id", UINT32_MAX, 0},
        {K "eos_token_id", 1, 0},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct meta m;
        struct tok *t;
        begin(&m);
        key_str(&m, K "model", "llama");
        strings(&m, K "tokens", two);
        floats(&m, K "scores", zero, 2);
        key_u32(&m, rows[i].key, rows[i].id);
        key_bool(&m, K "add_bos_token", false);
        int e = open_meta(&m, &t);
        if (e != rows[i].code) fail_msg("row %zu: %d %s", i, e, e < 0 ? err_last() : "");
        if (e < 0) assert_non_null(strstr(err_last(), rows[i].key));
        tok_close(t);
    }
    /* The defaults of the model type (bos 1, eos 2, unknown 0) on a vocabulary of one and two
     * tokens. */
    static const char *const one[] = {"a", NULL};
    struct meta m;
    struct tok *t;
    begin(&m);
    key_str(&m, K "model", "llama");
    strings(&m, K "tokens", one);
    floats(&m, K "scores", zero, 1);
    /* add_bos is the default, and the vocabulary has no such token */
    assert_int_equal(open_meta(&m, &t), ERR_FORMAT);
    begin(&m);
    key_str(&m, K "model", "llama");
    strings(&m, K "tokens", two);
    floats(&m, K "scores", zero, 2);
    assert_int_equal(open_meta(&m, &t), 0);
    assert_int_equal(tok_special_id(t, "bos_token"), 1);
    assert_int_equal(tok_special_id(t, "eos_token"), -1);
    EXPECT(t, "ab", TOK_SPECIAL, 1, 0, 0, 1); /* the prefix mark is not in the vocabulary: id 0 */
    tok_close(t);
}

/* class: #25969 */
static void test_byte_pieces(void **state)
{
    (void)state;
    static const char *const v[] = {"<unk>",  "<s>",    "</s>",         "<0x-1>",
                                    "<0x41>", "<0xzz>", "<0x4>",        "<0x041>",
                                    "<0x+1>", "<0xe9>", "\xE2\x96\x81", NULL};
    static const float score[11] = {0};
    static const int type[] = {2, 3, 3, 6, 6, 6, 6, 6, 6, 6, 1};
    struct meta m;
    struct tok *t;
    struct buf b;
    begin(&m);
    key_str(&m, K "model", "llama");
    strings(&m, K "tokens", v);
    floats(&m, K "scores", score, 11);
    numbers(&m, K "token_type", type, 11);
    assert_int_equal(open_meta(&m, &t), 0);
    EXPECT(t, "A", 0, 10, 4);
    buf_init(&b, 100);
    assert_int_equal(tok_decode(t, (const int32_t[]){10, 3, 4, 5, 6, 7, 8, 4, 9}, 9, false, &b), 0);
    /* Only two hexadecimal digits make a byte token; the last run is not UTF-8. */
    assert_string_equal(b.data, "<0x-1>A<0xzz><0x4><0x041><0x+1>\xEF\xBF\xBD\xEF\xBF\xBD");
    buf_done(&b);
    tok_close(t);
}

/* class: CVE-2025-49847 */
static void test_long_piece(void **state)
{
    (void)state;
    size_t n = (size_t)3 << 20; /* longer than a 16-bit or small fixed field can hold */
    char *big = mem_alloc(n + 1);
    memset(big, 'x', n);
    const char *const v[] = {"a", big, NULL};
    const char *const merges[] = {NULL};
    struct meta m;
    struct tok *t;
    size_t len;
    begin(&m);
    key_str(&m, K "model", "gpt2");
    strings(&m, K "tokens", v);
    strings(&m, K "merges", merges);
    assert_int_equal(open_meta(&m, &t), 0);
    assert_non_null(tok_piece(t, 1, &len));
    assert_int_equal(len, n);
    struct buf b;
    buf_init(&b, n);
    assert_int_equal(tok_decode(t, (const int32_t[]){1}, 1, false, &b), 0);
    assert_int_equal(b.len, n);
    buf_clear(&b);
    assert_int_equal(tok_decode(t, (const int32_t[]){1, 1}, 2, false, &b), ERR_LIMIT);
    assert_int_equal(b.len, 0);
    buf_done(&b);
    tok_close(t);
    mem_free(big);
}

static void test_malformed(void **state)
{
    (void)state;
    static const char *const bad_utf8[] = {"a", "\xFF", NULL}, *const twice[] = {"a", "b", "a",
                                                                                 NULL};
    static const char *const lone[] = {"ab", NULL}, *const far[] = {"a z", NULL},
                             *const none[] = {NULL};
    static const int three[] = {1, 1, 1};
    struct meta m;
    struct tok *t;
    begin(&m);
    key_str(&m, K "model", "gpt2");
    assert_int_equal(open_meta(&m, &t), ERR_FORMAT); /* no tokens */
    begin(&m);
    strings(&m, K "tokens", twice);
    assert_int_equal(open_meta(&m, &t), ERR_UNSUPPORTED); /* no model */
    begin(&m);
    key_str(&m, K "model", "gpt2");
    strings(&m, K "tokens", bad_utf8);
    strings(&m, K "merges", none);
    assert_int_equal(open_meta(&m, &t), ERR_FORMAT);
    for (int k = 0; k < 2; k++) {
        begin(&m);
        key_str(&m, K "model", "gpt2");
        strings(&m, K "tokens", twice);
        strings(&m, K "merges", k ? lone : far);
        assert_int_equal(open_meta(&m, &t), ERR_FORMAT);
        assert_non_null(strstr(err_last(), "merge"));
    }
    begin(&m);
    key_str(&m, K "model", "gpt2");
    strings(&m, K "tokens", bad_utf8);
    numbers(&m, K "token_type", three, 3); /* three types for two tokens */
    strings(&m, K "merges", none);
    assert_int_equal(open_meta(&m, &t), ERR_FORMAT);
    begin(&m);
    key_str(&m, K "model", "gpt2");
    numbers(&m, K "tokens", three, 3);
    assert_int_equal(open_meta(&m, &t), ERR_FORMAT);
    begin(&m); /* padding tokens with the same text: the first id wins */
    key_str(&m, K "model", "gpt2");
    strings(&m, K "tokens", twice);
    strings(&m, K "merges", none);
    assert_int_equal(open_meta(&m, &t), 0);
    EXPECT(t, "aba", 0, 0, 1, 0);
    assert_int_equal(tok_size(t), 3);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level),  cmocka_unit_test(test_pre_names),
        cmocka_unit_test(test_scores),      cmocka_unit_test(test_t5),
        cmocka_unit_test(test_t5_parts),    cmocka_unit_test(test_long_pieces),
        cmocka_unit_test(test_special_ids), cmocka_unit_test(test_byte_pieces),
        cmocka_unit_test(test_long_piece),  cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
