/* test_tok_hostile.c - tokenizer files and texts meant to do harm. Each test names the class of
 * defect it covers (tests/fixtures/classes.txt). The program may use only a minute of CPU time, and
 * each text would take minutes without the limit that it tests. */
#include "cpu_limit.h"
#include "test_tok.h"
#include "testing.h"

#define VOCAB  "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"!\":3,\" \":4}"
#define MODEL  "\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\"]}"
#define TOK(x) "{" MODEL "," x "}"

static int open_len(const char *json, size_t n)
{
    struct tok *t = NULL;
    int e = tok_open_json(json, n, NULL, 0, &t);
    assert_true((e < 0) == (t == NULL));
    tok_close(t);
    return e;
}

static int open_code(const char *json)
{
    return open_len(json, strlen(json));
}

/* class: CVE-2025-52566, GHSA-7rxv-5jhh-j6xx */
static void test_many_tokens(void **state)
{
    (void)state;
    struct tok *t = open_golden("llama2");
    /* Every byte is a token of its own, so there are more ids than any small buffer holds. */
    size_t n = (size_t)3 << 20;
    char *s = repeat("\xE2\x80\x8B", n / 3);
    struct ids v = {0};
    assert_int_equal(tok_encode(t, s, n, TOK_SPECIAL, NULL, 0, &v), 0);
    assert_true(v.n > n / 4 && v.n <= v.cap && v.n < SIZE_MAX / 8);
    ids_done(&v);
    mem_free(s);
    tok_close(t);
}

/* class: llamafile#835 */
static void test_huge_text(void **state)
{
    (void)state;
    struct tok *t = open_text(TOK("\"decoder\":null"));
    struct ids v = {0};
    static const size_t sizes[] = {((size_t)1 << 30) + 1, (size_t)1 << 31, ((size_t)1 << 32) + 5,
                                   SIZE_MAX};
    for (size_t i = 0; i < countof(sizes); i++) /* the size alone is refused: nothing is read */
        assert_int_equal(tok_encode(t, "a", sizes[i], 0, NULL, 0, &v), ERR_LIMIT);
    assert_int_equal(v.n, 0);
    assert_int_equal(open_len("{", SIZE_MAX), ERR_LIMIT);
    tok_close(t);
}

/* class: tokenizers#2094, tokenizers#2198, tokenizers#2151 */
static void test_crafted(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int code;
    } rows[] = {
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a bbbbbbbbbbbbbbbbbbbbbbbbbbbb\"]}}",
         ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"ab\",\"ab\"]]}}",
         ERR_FORMAT}, /* "abab" is not a token */
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"ab\"]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b a\"]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"a\"]]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"a\",1]]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"\"]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"\",\"ab\"]]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":{}}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB
         ",\"continuing_subword_prefix\":\"#####\",\"merges\":[\"a b\"]}}",
         ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4294967296},\"merges\":[]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999999999999999},\"merges\":[]}}",
         ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4194304},\"merges\":[]}}", ERR_LIMIT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", ERR_FORMAT},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{}}"),
         ERR_FORMAT},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[5]}}}"),
         ERR_FORMAT},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[-1]}}}"),
         ERR_FORMAT},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[],\"special_tokens\":{}}"),
         ERR_UNSUPPORTED},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{}}"),
         ERR_UNSUPPORTED},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}],\"pair\":{}}"),
         0},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}],\"pair\":[{\"SpecialToken\":{\"id\":\"x\"}}]}"),
         0},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":-1}}]}"),
         ERR_FORMAT},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":7}}]}"),
         ERR_FORMAT},
        {TOK("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}],\"pair\":[{\"Sequence\":{\"id\":\"A\"}}]}"),
         0}, /* these three are good for single texts */
        {TOK("\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"x\",77],\"sep\":[\"y\",0]}"),
         ERR_FORMAT},
        {TOK("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":4000000000,\"stop\":0}"),
         ERR_FORMAT},
        {TOK("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"),
         ERR_FORMAT},
        {TOK("\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}"),
         ERR_UNSUPPORTED},
        {TOK("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{},\"content\":\"x\"}"), ERR_FORMAT},
        {TOK("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////\"}"),
         ERR_FORMAT},
        {TOK("\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":0}"), ERR_UNSUPPORTED},
        {TOK("\"added_tokens\":[{\"id\":5}]"), ERR_FORMAT},
        {TOK("\"added_tokens\":[{\"content\":\"x\",\"special\":\"yes\"}]"), ERR_FORMAT},
        {TOK("\"added_tokens\":[{\"content\":\"\",\"special\":true}],\"truncation\":{\"max_length\":0,\"stride\":9}"),
         0},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        int e = open_code(rows[i].json);
        if (e != rows[i].code) fail_msg("row %zu: %d, %s", i, e, e < 0 ? err_last() : "accepted");
    }
}

static int encode_code(const struct tok *t, const char *s)
{
    struct ids v = {0};
    int e = tok_encode(t, s, strlen(s), 0, NULL, 0, &v);
    ids_done(&v);
    return e;
}

/* class: tokenizers#2060 */
static void test_bombs(void **state)
{
    (void)state;
    static const char *const bombs[] = {
        "(a+)+$",
        "(a|aa)+$",
        "(a|a?)+$",
        "(?:a*)*!b",
        "((a+)+)+$",
        "(.*a){12}c",
        "(\\\\w+\\\\s?)+$",
        "(a*)*(a*)*(a*)*c",
        "(?:a+a+)+c",
        "a*a*a*a*a*a*a*c",
        "(?=(a+)+c)a",
        "(?<!c)(a+)+c",
        "^(?:(?:a)+.)+[A-Z]",
        "(?i:(a+)+)$",
        "(?:(?:a{1,9}){1,9}){1,9}c",
    };
    static const size_t lengths[] = {28, 60, 2000};
    for (size_t i = 0; i < countof(bombs); i++)
        for (int where = 0; where < 3; where++) {
            char json[1024];
            snprintf(
                json, sizeof json,
                where == 0
                    ? TOK("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"%s\"}}")
                : where == 1
                    ? TOK("\"normalizer\":{\"type\":\"Replace\",\"content\":\"b\",\"pattern\":{\"Regex\":\"%s\"}}")
                    : TOK("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"content\":\"b\",\"pattern\":{\"Regex\":\"%s\"}}]}"),
                bombs[i]);
            struct tok *t = open_text(json);
            for (size_t k = 0; k < countof(lengths); k++) {
                char *s = repeat("a", lengths[k] + 1);
                s[lengths[k]] = '!';
                int e = 0;
                if (where < 2) {
                    e = encode_code(t, s);
                } else {
                    struct buf b;
                    int32_t *id = mem_array(lengths[k] + 1, sizeof *id);
                    id[lengths[k]] = 3;
                    buf_init(&b, 1 << 20);
                    e = tok_decode(t, id, lengths[k] + 1, false, &b);
                    buf_done(&b);
                    mem_free(id);
                }
                if (e != 0 && e != ERR_LIMIT)
                    fail_msg("%s, %zu characters, place %d: code %d", bombs[i], lengths[k], where,
                             e);
                if (i == 0 && k > 0) assert_int_equal(e, ERR_LIMIT); /* this one is a bomb */
                mem_free(s);
            }
            tok_close(t);
        }
}

/* class: tokenizers#2060 (a pattern that is quadratic over a long text ends with the CPU budget) */
static void test_slow_patterns(void **state)
{
    (void)state;
    static const char *const slow[] = {".*[cd]",      "a*?[cd]", "(?:a|b)+[cd]",
                                       "(?=.*[cd])a", "[^!]+!",  "(?=a*a*b)?a"};
    char *s = repeat("a", 400000);
    for (size_t i = 0; i < countof(slow); i++) {
        char json[512];
        snprintf(
            json, sizeof json,
            TOK("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"%s\"}}"),
            slow[i]);
        struct tok *t = open_text(json);
        bool matches = i == 5; /* at every letter, each time after a search of the whole rest */
        int e = encode_code(t, matches ? s + 390000 : s);
        assert_true(e == 0 || e == ERR_LIMIT); /* PCRE2 optimizes some of them to linear time */
        if (i == 0 || i == 2 || matches) assert_int_equal(e, ERR_LIMIT);
        tok_close(t);
    }
    mem_free(s);
}

static void test_pattern_limits(void **state)
{
    (void)state;
    struct {
        char *unit, *end;
        size_t n;
    } rows[] = {{"a", "", 16385}, {"(", "", 65},     {"(?:", "", 64},
                {"[a", "", 20},   {"(?:a", "", 200}, {"(a{1,999}", "", 60}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct buf b;
        char *mid = repeat(rows[i].unit, rows[i].n);
        buf_init(&b, 1 << 20);
        assert_int_equal(
            buf_printf(
                &b,
                TOK("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"%s\"}}"),
                mid),
            0);
        assert_true(open_code(b.data) < 0);
        buf_done(&b);
        mem_free(mid);
    }
    /* Nested counts multiply. Such patterns are refused or compiled small. */
    open_code(TOK(
        "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"(?:(?:(?:a{1,999}){1,999}){1,999}){1,999}\"}}"));
}

static void test_structure_limits(void **state)
{
    (void)state;
    static const char one[] = "{\"type\":\"NFC\"}";
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int deep = 0; deep < 2; deep++) { /* many steps, then deeply nested sequences */
        buf_clear(&b);
        int n = deep ? 12 : 80;
        assert_int_equal(buf_puts(&b, "{" MODEL ",\"normalizer\":"), 0);
        if (!deep) buf_puts(&b, "{\"type\":\"Sequence\",\"normalizers\":[");
        for (int i = 0; i < n; i++)
            buf_puts(&b, deep ? "{\"type\":\"Sequence\",\"normalizers\":["
                         : i  ? ",{\"type\":\"NFC\"}"
                              : one);
        if (deep) buf_puts(&b, one);
        for (int i = 0; i < (deep ? n : 1); i++)
            buf_puts(&b, "]}");
        buf_puts(&b, "}");
        assert_int_equal(open_code(b.data), ERR_LIMIT);
    }
    buf_done(&b);
    char *deep = repeat("[", 100000);
    assert_int_equal(open_code(deep), ERR_FORMAT);
    mem_free(deep);
    char *big = repeat("x", 1025), json[2048];
    snprintf(json, sizeof json, TOK("\"added_tokens\":[{\"content\":\"%s\"}]"), big);
    assert_int_equal(open_code(json), ERR_LIMIT);
    mem_free(big);
    /* An item with a list that nobody reads: its tree would take twenty times the bytes. */
    char *zeros = repeat("0,", 40000);
    const char *const around[][2] = {
        {"{" MODEL ",\"added_tokens\":[{\"content\":\"x\",\"more\":[", "0]}]}"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",[", "0]]]}}"}};
    for (size_t i = 0; i < countof(around); i++) {
        buf_init(&b, 1 << 20);
        assert_int_equal(buf_puts(&b, around[i][0]) | buf_puts(&b, zeros), 0);
        assert_int_equal(buf_puts(&b, around[i][1]), 0);
        assert_int_equal(open_code(b.data), ERR_LIMIT);
        buf_done(&b);
    }
    mem_free(zeros);
}

/* Replacements that double the text: an error at the limit, before memory is exhausted. */
static void test_growth(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_int_equal(
        buf_puts(&b, "{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["), 0);
    for (int i = 0; i < 60; i++)
        buf_printf(&b, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}",
                   i ? "," : "");
    buf_puts(&b, "]}}");
    struct tok *t = open_text(b.data);
    assert_int_equal(encode_code(t, "a"), ERR_LIMIT);
    tok_close(t);
    buf_done(&b);
}

#define PIECES "[[\"<unk>\",0],[\"a\",-1],[\"ab\",-3.5]]"
#define UNI(x) "{\"model\":{\"type\":\"Unigram\"," x "}}"
/* A trie of one unit that refers to itself, and a replacement. */
#define SELF_MAP "BAAAAAAAAABhAA=="

/* Unigram files whose parts are missing, of the wrong type or too long. */
static void test_unigram_crafted(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int code;
    } rows[] = {
        {UNI("\"vocab\":" PIECES ",\"unk_id\":0"), 0},
        {UNI("\"vocab\":" PIECES ",\"unk_id\":null"), 0},
        {UNI("\"vocab\":" PIECES), 0},
        {UNI("\"vocab\":" PIECES ",\"unk_id\":3"), ERR_FORMAT},
        {UNI("\"vocab\":" PIECES ",\"unk_id\":-1"), ERR_FORMAT},
        {UNI("\"vocab\":" PIECES ",\"unk_id\":\"<unk>\""), ERR_FORMAT},
        {UNI("\"vocab\":" PIECES ",\"byte_fallback\":7"), ERR_FORMAT},
        {UNI("\"vocab\":[]"), ERR_FORMAT},
        {UNI("\"vocab\":{\"a\":0}"), ERR_FORMAT},
        {UNI("\"unk_id\":0"), ERR_FORMAT},
        {UNI("\"vocab\":[\"a\",-1]"), ERR_FORMAT},
        {UNI("\"vocab\":[[\"a\"]]"), ERR_FORMAT},
        {UNI("\"vocab\":[[\"a\",-1,0]]"), ERR_FORMAT},
        {UNI("\"vocab\":[[0,-1]]"), ERR_FORMAT},
        {UNI("\"vocab\":[[\"a\",\"b\"]]"), ERR_FORMAT},
        {UNI("\"vocab\":[[\"a\",1e999]]"), ERR_FORMAT},
        {UNI("\"vocab\":[[\"a\",-1],[\"a\",-2]]"), ERR_FORMAT},
        {UNI("\"vocab\":[[\"\",-1],[\"a\",-1e308],[\"b\",1e308]],\"unk_id\":0"), 0},
        {TOK("\"normalizer\":{\"type\":\"Precompiled\"}"), ERR_FORMAT},
        {TOK("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}"),
         ERR_FORMAT},
        {TOK("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"*\"}"),
         ERR_FORMAT},
        {TOK("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAAAAAAAAA=\"}"),
         ERR_FORMAT}, /* no trie */
        {TOK("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////wAAAAA=\"}"),
         ERR_FORMAT}, /* a trie of 4 GiB */
        {TOK("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAAD/AA==\"}"),
         ERR_FORMAT}, /* no UTF-8 */
        {TOK("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" SELF_MAP "\"}"),
         0},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        int e = open_code(rows[i].json);
        if (e != rows[i].code) fail_msg("row %zu: %d, %s", i, e, e < 0 ? err_last() : "accepted");
    }
    char *big = repeat("a", 1025);
    struct buf b;
    buf_init(&b, 1 << 16);
    assert_int_equal(buf_printf(&b, UNI("\"vocab\":[[\"%s\",0]]"), big), 0);
    assert_int_equal(open_code(b.data), ERR_LIMIT);
    buf_done(&b);
    mem_free(big);
    struct tok *t = open_text(UNI("\"vocab\":" PIECES));
    /* "b" is no token, and there is no unknown token. */
    assert_int_equal(encode_code(t, "abb"), ERR_FORMAT);
    assert_int_equal(encode_code(t, "aba"), 0);
    tok_close(t);
}

/* Any units of a map: bounds hold, and a search ends. The replacement grows the text to its limit at most. */
static void test_charsmaps(void **state)
{
    (void)state;
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t seed = 1;
    int codes[3] = {0};
    for (int round = 0; round < 3000; round++) {
        uint8_t raw[4 + 4 * 300 + 8] = {0xB0, 0x04}; /* 300 units */
        char text[2 * sizeof raw], json[4096], *p = text;
        for (size_t i = 4; i < sizeof raw - 8; i++) {
            seed = seed * 1664525 + 1013904223;
            raw[i] = (uint8_t)(seed >> 24);
            /* small offsets, and labels and leaves that hit */
            if (i % 4 == 0) raw[i] = round % 3 ? (uint8_t)((i - 4) / 4 ^ (raw[7] & 3)) : raw[i];
            if (i % 4 == 1) raw[i] &= 0x0D;
            if (i % 4 > 1 && round % 2) raw[i] = 0;
        }
        memcpy(raw + sizeof raw - 8, "ab\0\xC3\xA9\0c", 8);
        for (size_t i = 0; i < sizeof raw; i += 3) {
            uint32_t v = (uint32_t)raw[i] << 16 |
                         (uint32_t)(i + 1 < sizeof raw ? raw[i + 1] : 0) << 8 |
                         (i + 2 < sizeof raw ? raw[i + 2] : 0);
            for (size_t k = 0; k < 4; k++)
                *p++ = i + k > sizeof raw ? '=' : digits[v >> (18 - 6 * k) & 63];
        }
        *p = 0;
        snprintf(json, sizeof json,
                 TOK("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}"),
                 text);
        struct tok *t = open_text(json);
        int e = encode_code(t, "ab \xC3\xA9\xEF\xAC\x81 xyz\x7F\x01 aaaaaaaaaaaa\r\n");
        if (e != 0 && e != ERR_FORMAT && e != ERR_LIMIT) fail_msg("%d: %s", e, err_last());
        codes[e == 0 ? 0 : e == ERR_FORMAT ? 1 : 2]++;
        tok_close(t);
    }
    assert_true(codes[0] > 100 && codes[1] > 100);
}

/* The time of a text is linear in its bytes, also where each character begins many long pieces. */
static void test_unigram_long(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0]");
    for (int i = 1; i <= 400; i++) {
        char *piece = repeat("a", (size_t)i);
        buf_printf(&b, ",[\"%s\",-%d.5]", piece, i);
        mem_free(piece);
    }
    buf_puts(&b, "]}}");
    struct tok *t = open_text(b.data);
    buf_done(&b);
    for (int unknown = 0; unknown < 2; unknown++) {
        char *s = repeat(unknown ? "\xE2\x98\x83" : "a", 1 << 19);
        struct ids v = {0};
        assert_int_equal(tok_encode(t, s, strlen(s), 0, NULL, 0, &v), 0);
        assert_int_equal(v.n, unknown ? 1 : ((1 << 19) + 399) / 400);
        ids_done(&v);
        mem_free(s);
    }
    tok_close(t);
}

static const char everything_uni[] =
    "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" SELF_MAP "\"},"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"always\"},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"s\"}}],\"special_tokens\":{\"s\":{\"ids\":[0]}}},"
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0],[\"\\u2581\",-2.5],[\"ab\",-3],[\"a\",-4.25]]}}";

static const char everything[] =
    "{\"added_tokens\":[{\"content\":\"<x>\",\"special\":true,\"lstrip\":true},{\"content\":\"Y\",\"normalized\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\" \"},{\"type\":\"Lowercase\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[ab]+|\\\\p{N}\"},\"behavior\":\"MergedWithNext\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"s\":{\"ids\":[0]}}},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"c\"}]},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u00e9\":4},\"merges\":[\"a b\"],\"unk_token\":\"a\"}}";

static void use(const struct tok *t)
{
    struct ids v = {0};
    struct buf b;
    const char *s = "ab <x> \xEF\xAC\x81Y aab\xC3\xA9";
    buf_init(&b, 1 << 16);
    if (tok_encode(t, s, strlen(s), TOK_SPECIAL, NULL, 0, &v) == 0)
        tok_decode(t, v.id, v.n, true, &b);
    ids_done(&v);
    buf_done(&b);
}

static void check_truncated_file(const char *file)
{
    size_t n = strlen(file);
    assert_int_equal(open_len(file, n), 0);
    for (size_t k = 0; k < n; k++) {
        char *exact = mem_alloc(k);
        memcpy(exact, file, k);
        assert_true(open_len(exact, k) < 0);
        mem_free(exact);
    }
}

static void test_truncated(void **state)
{
    (void)state;
    check_truncated_file(everything);
    check_truncated_file(everything_uni);
}

static void check_flipped_file(const char *file)
{
    size_t n = strlen(file), opened = 0;
    char *copy = mem_alloc(n);
    static const uint8_t flips[] = {0x01, 0x20, 0x80};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < countof(flips); k++) {
            struct tok *t = NULL;
            memcpy(copy, file, n);
            copy[i] = (char)(copy[i] ^ flips[k]);
            if (tok_open_json(copy, n, NULL, 0, &t) < 0) continue;
            use(t);
            tok_close(t);
            opened++;
        }
    assert_true(opened > 50); /* some are valid tokenizers and work */
    mem_free(copy);
}

static void test_flipped(void **state)
{
    (void)state;
    check_flipped_file(everything);
    check_flipped_file(everything_uni);
}

static void check_out_of_memory(const char *file)
{
    size_t n = strlen(file);
    int failed = 0, worked = 0;
    for (int64_t k = 0; worked < 12; k++) {
        struct tok *t = NULL;
        struct ids v = {0};
        struct buf b;
        buf_init(&b, 1 << 16);
        mem_fail_at(k, false);
        int e = tok_open_json(file, n, NULL, 0, &t);
        if (e == 0) e = tok_encode(t, "ab <x> Y\xC3\xA9 aab", 14, TOK_SPECIAL, NULL, 0, &v);
        if (e == 0) e = tok_decode(t, v.id, v.n, true, &b);
        mem_fail_at(-1, false);
        assert_true(e == 0 || e == ERR_NOMEM);
        failed += e < 0;
        /* Consecutive successes: a failed JIT compilation only costs speed. */
        worked = e == 0 ? worked + 1 : 0;
        if (e == 0) assert_true(v.n > 4 && b.len > 4);
        ids_done(&v);
        buf_done(&b);
        tok_close(t);
        assert_true(k < 5000);
    }
    if (failed < 30) fail_msg("only %d allocations", failed);
}

/* class: CVE-2024-32878 */
static void test_out_of_memory(void **state)
{
    (void)state;
    check_out_of_memory(everything);
    check_out_of_memory(everything_uni);
}

/* One pre-token of a megabyte takes n log n; the square would take hours. */
static void test_long_words(void **state)
{
    (void)state;
    static const char *const units[] = {"a",  " ", "ab", "\xCC\x81\xCC\x96", "\xE5\xA5\xBD",
                                        "<|", "\n"};
    static const char *const names[] = {"llama2", "qwen3"};
    for (size_t k = 0; k < 2; k++) {
        struct tok *t = open_golden(names[k]);
        for (size_t i = 0; i < countof(units); i++) {
            char *s = repeat(units[i], ((size_t)1 << 20) / test_share() / strlen(units[i]));
            assert_int_equal(encode_code(t, s), 0);
            mem_free(s);
        }
        tok_close(t);
    }
}

int main(void)
{
    cpu_limit(60);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_tokens),      cmocka_unit_test(test_huge_text),
        cmocka_unit_test(test_crafted),          cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_slow_patterns),    cmocka_unit_test(test_pattern_limits),
        cmocka_unit_test(test_structure_limits), cmocka_unit_test(test_growth),
        cmocka_unit_test(test_truncated),        cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_out_of_memory),    cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_unigram_crafted),  cmocka_unit_test(test_charsmaps),
        cmocka_unit_test(test_unigram_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
