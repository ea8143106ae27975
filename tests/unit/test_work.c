/* test_work.c - work that must not grow with the square of a file or a list.  Where the work can be counted, the test counts
 * it.  Elsewhere the sizes are such that an algorithm whose time grows with the square needs minutes of CPU time, and the
 * program may use one. */
#include "cpu_limit.h"
#include "test_tok.h"

#include "chat/chat.h"
#include "generate/options.h"
#include "tok/tok_int.h"

enum { MANY = 400000 };

/* --- Keys that collide under a hash without a secret.  The longest run of taken slots bounds the cost of one search. */

#define MULTIPLIER 0x9E3779B97F4A7C15u

static void test_pairs(void **state)
{
    (void)state;
    enum { N = 12000 };
    struct bpe b = {0};
    uint32_t n = 0, run = 0, longest = 0;
    assert_int_equal(bpe_init(&b, 16384), 0);
    for (uint32_t l = 0; l < 8192 && n < N; l++)
        for (uint32_t r = 0; r < 8192 && n < N; r++) {
            uint64_t key = ((uint64_t)l << 32 | r) * MULTIPLIER;
            if (((uint32_t)(key >> 32 ^ key >> 17) & b.mask) < 8) bpe_merge_put(&b, l, r, n++, 7);
        }
    assert_int_equal(n, N);
    assert_int_equal(b.used, N);
    for (uint32_t i = 0; i <= b.mask; i++) {
        run = b.merge[i].key == UINT64_MAX ? 0 : run + 1;
        longest = MAX(longest, run);
    }
    assert_in_range(longest, 2, 1000);
    bpe_done(&b);
}

/* The multiplicative hash of eight bytes and their number. */
static uint32_t open_hash(uint64_t w)
{
    uint64_t h = (MULTIPLIER ^ 8 ^ w) * 0xFF51AFD7ED558CCDu;
    h = (h ^ h >> 32) * 0xC4CEB9FE1A85EC53u;
    return (uint32_t)(h ^ h >> 29);
}

static void test_texts(void **state)
{
    (void)state;
    enum { N = 4000 };
    struct vocab v = {0};
    uint32_t run = 0, longest = 0;
    for (uint64_t w = 0; v.used < N; w++) {
        if ((open_hash(w) & 8191) < 8)
            assert_int_equal(vocab_put(&v, (const char *)&w, 8, v.used, VOC_MODEL), 0);
    }
    for (uint32_t i = 0; i <= v.mask; i++) {
        run = v.slot[i] ? run + 1 : 0;
        longest = MAX(longest, run);
    }
    assert_in_range(longest, 2, 400);
    vocab_done(&v);
}

/* A text whose every next byte leads to the same part of a table of 65536 slots. */
static void test_trie(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct trie t = {0};
    char *s = mem_alloc(N);
    uint32_t run = 0, longest = 0;
    for (uint32_t node = 0; node < N; node++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t c = 0; c < 256; c++) {
            uint32_t at = (uint32_t)((((uint64_t)node << 8 | c) * MULTIPLIER) >> 33) & 65535;
            if (at >= best) continue;
            best = at;
            s[node] = (char)c;
        }
    }
    assert_int_equal(trie_put(&t, s, N, 1), 0);
    assert_int_equal(t.used, N);
    for (uint32_t i = 0; i <= t.mask; i++) {
        run = t.key[i] == UINT64_MAX ? 0 : run + 1;
        longest = MAX(longest, run);
    }
    assert_in_range(longest, 2, 1000);
    trie_done(&t);
    mem_free(s);
}

/* --- Lists in which every entry occurs twice. */

static void test_added_twice(void **state)
{
    (void)state;
    struct tok *t = tok_new();
    size_t n;
    int32_t id;
    bool special;
    char s[16];
    assert_non_null(t);
    assert_int_equal(bpe_init(&t->bpe, 0), 0);
    for (uint32_t i = 0; i < 2 * MANY; i++) {
        struct added a = {.special = i >= MANY && i % 2 == 1};
        n = (size_t)snprintf(s, sizeof s, "<%u>", i % MANY);
        assert_int_equal(tok_add_token(t, s, n, a), 0);
    }
    assert_int_equal(tok_finish(t), 0);
    assert_int_equal(tok_n_added(t), MANY);
    for (uint32_t i = 0; i < 10; i++) { /* the later entry counts */
        assert_non_null(tok_added(t, i, &n, &id, &special));
        assert_int_equal(id, i);
        assert_int_equal(special, i % 2);
    }
    tok_close(t);
}

static void test_bias_twice(void **state)
{
    (void)state;
    kvik_generation g;
    struct buf b;
    buf_init(&b, (size_t)64 << 20);
    assert_int_equal(buf_puts(&b, "{\"sequence_bias\": ["), 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(
            buf_printf(&b, "%s[[%u],%u]", i ? "," : "", i % (MANY / 2), i / (MANY / 2)), 0);
    assert_int_equal(buf_puts(&b, "]}"), 0);
    gen_defaults(&g);
    assert_int_equal(kvik_generation_set(&g, b.data), 0);
    assert_int_equal(g.n_sequence_bias, MANY / 2);
    for (uint32_t i = 0; i < g.n_sequence_bias; i++) {
        assert_int_equal(g.sequence_bias[i].ids[0], i);
        assert_true(g.sequence_bias[i].bias == 1);
    }
    kvik_generation_done(&g);
    buf_done(&b);
}

/* --- Memory: a tree of a list takes twenty times its text, so the long lists of tokenizer.json never become one. */

static size_t tree, tree_most;

static void *tree_alloc(size_t n)
{
    size_t *p = malloc(n + 16);
    if (!p) return NULL;
    *p = n;
    tree += n;
    tree_most = MAX(tree_most, tree);
    return p + 2;
}

static void tree_free(void *p)
{
    if (!p) return;
    size_t *from = (size_t *)p - 2;
    tree -= *from;
    free(from);
}

/* The host may use jansson with functions of its own, so those of the library are in place only while it needs them. */
static void assert_host_functions(json_malloc_t alloc, json_free_t release)
{
    json_malloc_t now;
    json_free_t now_free;
    json_get_alloc_funcs(&now, &now_free);
    assert_ptr_equal(now, alloc);
    assert_ptr_equal(now_free, release);
}

static void test_host_functions(void **state)
{
    (void)state;
    json_t *j;
    char *text;
    assert_host_functions(malloc, free);
    {
        JSON_SCOPE(outer);
        assert_int_equal(json_parse("{\"a\":[1,2]}", 11, "test", &j), 0); /* a scope in a scope */
        assert_int_equal(json_whole(&outer), 0);
    }
    assert_host_functions(malloc, free);
    json_decref(j);
    json_set_alloc_funcs(tree_alloc, tree_free); /* after the first call of the library */
    assert_int_equal(json_parse("{\"a\":[1,2]}", 11, "test", &j), 0);
    assert_host_functions(tree_alloc, tree_free);
    assert_int_equal(json_text(j, &text), 0);
    assert_string_equal(text, "{\"a\":[1,2]}");
    mem_free(text);
    assert_true(tree > 0); /* the values of the library come from the host */
    json_decref(j);
    assert_int_equal(tree, 0);
    tree_most = 0;
    json_set_alloc_funcs(malloc, free);
}

static void *fail_alloc(size_t n)
{
    (void)n;
    return NULL;
}

/* A scope counts the failures of its own time, also in a scope in it; json_text those of the outermost one. */
static void test_scopes(void **state)
{
    (void)state;
    char *text;
    json_t *j;
    json_set_alloc_funcs(fail_alloc, free);
    {
        JSON_SCOPE(outer);
        assert_null(json_array());
        {
            JSON_SCOPE(inner);
            assert_int_equal(json_whole(&inner), 0);
            assert_int_equal(json_parse("[1]", 3, "test", &j), ERR_NOMEM); /* told by its result */
            assert_int_equal(json_whole(&inner), 0);
            assert_null(json_array());
            assert_int_equal(json_whole(&inner), ERR_NOMEM);
        }
        assert_int_equal(json_whole(&outer), ERR_NOMEM);
        assert_int_equal(json_text(json_true(), &text), ERR_NOMEM);
    }
    json_set_alloc_funcs(malloc, free);
    assert_int_equal(json_text(json_true(), &text), 0);
    mem_free(text);
}

static void test_tree(void **state)
{
    (void)state;
    enum { N = 50000 };
    struct buf b;
    size_t n;
    buf_init(&b, (size_t)64 << 20);
    buf_puts(&b, "{\"added_tokens\":[");
    for (uint32_t i = 0; i < N; i++)
        buf_printf(&b, "%s{\"content\":\"<%u>\",\"special\":true}", i ? "," : "", i);
    buf_puts(&b, "],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u0000\":1");
    for (uint32_t i = 2; i < N; i++)
        buf_printf(&b, ",\"a%u\":%u", i, i);
    buf_puts(&b, "},\"merges\":[");
    for (uint32_t i = 10; i < N; i++) /* "a1" + "0" would need "0"; a version line is no merge */
        buf_printf(&b, "%s\"#version: %u\"", i > 10 ? "," : "", i);
    assert_int_equal(buf_puts(&b, "]}}"), 0);
    json_malloc_t old_alloc;
    json_free_t old_free;
    json_get_alloc_funcs(&old_alloc, &old_free);
    json_set_alloc_funcs(tree_alloc, tree_free);
    struct tok *t = open_text(b.data);
    assert_host_functions(tree_alloc, tree_free);
    json_set_alloc_funcs(old_alloc, old_free);
    assert_int_equal(tree, 0);
    assert_in_range(tree_most, 1, 65536);
    assert_int_equal(tok_size(t), 2 * N);
    assert_int_equal(tok_find(t, "", 1), 1); /* one byte, which is NUL */
    assert_int_equal(tok_find(t, "<49999>", 7), 2 * N - 1);
    assert_non_null(tok_piece(t, 77, &n));
    tok_close(t);
    buf_done(&b);
}

/* The rest of the file is short in real files, and refused where it is not. */
static void test_rest(void **state)
{
    (void)state;
    struct tok *t = NULL;
    char *blank = repeat(" ", (size_t)17 << 20);
    memcpy(blank, "{\"x\":", 5);
    blank[((size_t)17 << 20) - 1] = '}';
    blank[((size_t)17 << 20) - 2] = '1';
    assert_int_equal(tok_open_json(blank, (size_t)17 << 20, NULL, 0, &t), ERR_LIMIT);
    mem_free(blank);
}

/* --- Tokenizers that multiply text, or look at the same text again and again. */

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" \":2},\"merges\":[]}"

static int encode(const struct tok *t, const char *s, const struct tok_span *plain, size_t n_plain,
                  size_t *n)
{
    struct ids v = {0};
    int e = tok_encode(t, s, strlen(s), 0, plain, n_plain, &v);
    *n = v.n;
    ids_done(&v);
    return e;
}

/* Replacements of 256 bytes each, in a chain: the first three stages alone would make 16 MB of one letter. */
static void test_decoder_chain(void **state)
{
    (void)state;
    static const struct {
        uint32_t stages, times;
        int code;
    } rows[] = {{4, 256, ERR_LIMIT}, {60, 1, 0}, {2, 100, ERR_LIMIT}, {1, 100, 0}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct buf json, text;
        char *many = repeat("a", rows[i].times);
        int32_t ids[1000] = {0};
        buf_init(&json, 1 << 20);
        buf_init(&text, SIZE_MAX / 2);
        buf_puts(&json, "{" MODEL ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[");
        for (uint32_t k = 0; k < rows[i].stages; k++)
            buf_printf(&json,
                       "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}",
                       k ? "," : "", many);
        assert_int_equal(buf_puts(&json, "]}}"), 0);
        struct tok *t = open_text(json.data);
        assert_int_equal(tok_decode(t, ids, countof(ids), false, &text), rows[i].code);
        assert_true(text.len == (rows[i].code ? 0 : countof(ids) * rows[i].times));
        assert_in_range(text.cap, 0, 8 << 20);
        tok_close(t);
        buf_done(&json);
        buf_done(&text);
        mem_free(many);
    }
}

/* Every part of a text between two added tokens is normalized by itself; the limit holds for their sum. */
static void test_normalizer_chain(void **state)
{
    (void)state;
    struct buf json;
    size_t n;
    char *many = repeat("b", 16000), *text = repeat("<x>a", 10000);
    buf_init(&json, 1 << 20);
    buf_printf(&json,
               "{" MODEL ",\"added_tokens\":[{\"content\":\"<x>\",\"special\":true}],"
               "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
               "{\"type\":\"Prepend\",\"prepend\":\"%s\"},"
               "{\"type\":\"Replace\",\"pattern\":{\"String\":\"%s\"},\"content\":\"\"}]}}",
               many, many);
    struct tok *t = open_text(json.data);
    assert_int_equal(encode(t, text, NULL, 0, &n), ERR_LIMIT);
    text[16] = 0;
    assert_int_equal(encode(t, text, NULL, 0, &n), 0);
    assert_int_equal(n, 8);
    tok_close(t);
    buf_done(&json);
    mem_free(many);
    mem_free(text);
}

static void test_added_scan(void **state)
{
    (void)state;
    struct buf json;
    size_t n;
    char *most = repeat("a", 1023), *text = repeat("a", 200000), *blank = repeat(" ", MANY);
    buf_init(&json, 1 << 20);
    buf_printf(&json,
               "{" MODEL ",\"added_tokens\":[{\"content\":\"%sb\",\"special\":true},"
               "{\"content\":\" \",\"special\":true,\"rstrip\":true}]}",
               most);
    struct tok *t = open_text(json.data);
    assert_int_equal(encode(t, text, NULL, 0, &n), ERR_LIMIT);
    text[1000] = 0;
    assert_int_equal(encode(t, text, NULL, 0, &n), 0);
    assert_int_equal(n, 1000);
    assert_int_equal(encode(t, blank, NULL, 0, &n),
                     0); /* each blank is a token, and strips all others */
    assert_int_equal(n, MANY);
    tok_close(t);
    buf_done(&json);
    mem_free(most);
    mem_free(text);
    mem_free(blank);
}

/* A conversation is searched for special tokens before it is encoded. */
static void test_special_scan(void **state)
{
    (void)state;
    struct buf json;
    char *most = repeat("a", 1023), *text = repeat("a", 3900000);
    buf_init(&json, 1 << 20);
    buf_printf(&json, "{" MODEL ",\"added_tokens\":[{\"content\":\"%sb\",\"special\":true}]}",
               most);
    struct tok *t = open_text(json.data);
    struct chat_options o = {.template_text = "{{ messages[0].content }}"};
    struct ids v = {0};
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", text);
    assert_int_equal(chat_encode(t, messages, &o, &v, NULL), ERR_LIMIT);
    assert_int_equal(v.n, 0);
    json_decref(messages);
    text[1000] = 0;
    messages = json_pack("[{s:s, s:s}]", "role", "user", "content", text);
    assert_int_equal(chat_encode(t, messages, &o, &v, NULL), 0);
    assert_int_equal(v.n, 1000);
    json_decref(messages);
    ids_done(&v);
    tok_close(t);
    buf_done(&json);
    mem_free(most);
    mem_free(text);
}

static void test_plain_spans(void **state)
{
    (void)state;
    size_t n;
    struct tok *t = open_text("{" MODEL ",\"added_tokens\":[{\"content\":\"<x>\",\"special\":true},"
                              "{\"content\":\"<y>\",\"normalized\":true}]}");
    char *text = repeat("<x>a", MANY / 2);
    struct tok_span *plain = mem_array(MANY / 2, sizeof *plain);
    for (size_t i = 0; i < MANY / 2; i++)
        plain[i] = (struct tok_span){4 * i + 3, 4 * i + 4};
    assert_int_equal(encode(t, text, plain, MANY / 2, &n), 0);
    assert_int_equal(n, MANY);
    tok_close(t);
    mem_free(plain);
    mem_free(text);
}

/* A single step of a pattern may read the rest of the text, so steps alone bound nothing. */
static void test_long_steps(void **state)
{
    (void)state;
    static const char *const slow[] = {"(?=a*a*b)?a", "(?=a*?a*?a*?b)?a"};
    char *s = repeat("a", MANY / 2);
    for (size_t i = 0; i < countof(slow); i++) {
        struct pattern *p;
        struct pattern_scratch m = {0};
        struct hit hit;
        struct hits h = {.s = s, .shadow = s, .n = MANY / 2};
        assert_int_equal(pattern_new(slow[i], strlen(slow[i]), true, &p), 0);
        h.p = p;
        int e;
        while ((e = hits_next(&h, &m, &hit)) > 0)
            continue;
        assert_int_equal(e, ERR_LIMIT);
        pattern_scratch_done(&m);
        pattern_drop(p);
    }
    mem_free(s);
}

/* Every text adds to the budget; a short one at the beginning does not set it for the rest. */
static void test_budget(void **state)
{
    (void)state;
    struct pattern *p;
    struct pattern_scratch m = {0};
    struct hit hit;
    char *s = repeat("a ", 500);
    assert_int_equal(pattern_new("a", 1, true, &p), 0);
    struct hits one = {.p = p, .s = s, .shadow = s, .n = 1},
                all = {.p = p, .s = s, .shadow = s, .n = 1000};
    assert_int_equal(hits_next(&one, &m, &hit), 1);
    int64_t first = m.deadline;
    while (hits_next(&all, &m, &hit) > 0)
        continue;
    assert_int_equal(m.deadline - first, 2000 * 1000);
    pattern_scratch_done(&m);
    pattern_drop(p);
    mem_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_trie),
        cmocka_unit_test(test_added_twice),
        cmocka_unit_test(test_bias_twice),
        cmocka_unit_test(test_decoder_chain),
        cmocka_unit_test(test_normalizer_chain),
        cmocka_unit_test(test_added_scan),
        cmocka_unit_test(test_special_scan),
        cmocka_unit_test(test_plain_spans),
        cmocka_unit_test(test_long_steps),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_host_functions),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_rest),
    };
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
