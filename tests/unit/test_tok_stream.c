/* test_tok_stream.c - streams of random ids on the golden tokenizers: pieces are whole characters,
 * their concatenation is the decoded list, memory stays bounded, and an error leaves the text
 * unchanged. */
#include "test_tok.h"

static uint64_t seed = 1;
static uint32_t draw(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

/* Draws an id. Runs of byte tokens and of few ids are likely, because streams fail there first. */
static int32_t draw_id(const struct tok *t, int mode)
{
    uint32_t n = tok_size(t);
    if (mode == 0) return (int32_t)draw(n);
    if (mode == 1) return (int32_t)(3 + draw(256));
    return (int32_t)(draw(3) ? 3 + draw(256) : draw(n));
}

static void check(const struct tok *t, size_t n_max, int mode, bool skip)
{
    struct ids v = {0};
    struct buf whole, flow;
    size_t n = draw((uint32_t)n_max);
    buf_init(&whole, 1 << 20);
    buf_init(&flow, 1 << 20);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids_push(&v, draw_id(t, mode)), 0);
    assert_int_equal(tok_decode(t, v.id, v.n, skip, &whole), 0);
    stream(t, &v, skip, &flow);
    assert_int_equal(flow.len, whole.len);
    if (whole.len) assert_memory_equal(flow.data, whole.data, whole.len);
    buf_done(&whole);
    buf_done(&flow);
    ids_done(&v);
}

static void run(const char *name)
{
    struct tok *t = open_golden(name);
    int n = getenv("KVIK_TEST_SHORT") ? 300 : 3000;
    for (int i = 0; i < n; i++)
        check(t, 40, i % 3, i & 1);
    tok_close(t);
}

static void test_llama2(void **state)
{
    (void)state;
    run("llama2");
}

static void test_qwen3(void **state)
{
    (void)state;
    run("qwen3");
}

/* A character of several tokens appears with its last token. */
static void test_pieces(void **state)
{
    (void)state;
    struct tok *t = open_golden("qwen3");
    struct tok_stream *s;
    struct ids v = {0};
    struct buf b;
    const char *text = "a\xF0\x9F\xAB\xA0 b"; /* melting face: more than one token */
    buf_init(&b, 100);
    assert_int_equal(tok_encode(t, text, strlen(text), 0, NULL, 0, &v), 0);
    assert_true(v.n > 3);
    assert_int_equal(tok_stream_new(t, false, &s), 0);
    for (int round = 0; round < 2; round++) { /* a stream can be reused after its end */
        buf_clear(&b);
        size_t silent = 0;
        for (size_t i = 0; i < v.n; i++) {
            size_t before = b.len;
            assert_int_equal(tok_stream_put(s, v.id[i], &b), 0);
            silent += b.len == before;
        }
        assert_true(silent >= 1);
        assert_int_equal(tok_stream_end(s, &b), 0);
        assert_string_equal(b.data, text);
    }
    buf_clear(&b); /* cut in the middle of a character: the end flushes a replacement character */
    assert_int_equal(tok_stream_put(s, v.id[0], &b), 0);
    assert_int_equal(tok_stream_put(s, v.id[1], &b), 0);
    assert_string_equal(b.data, "a");
    assert_int_equal(tok_stream_end(s, &b), 0);
    assert_string_equal(b.data, "a\xEF\xBF\xBD");
    tok_stream_drop(s);
    tok_stream_drop(NULL);
    buf_done(&b);
    ids_done(&v);
    tok_close(t);
}

static void test_unknown_ids(void **state)
{
    (void)state;
    struct tok *t = open_golden("llama2");
    struct buf b;
    const int32_t bad[] = {INT32_MIN, -1};
    buf_init(&b, 100);
    assert_int_equal(buf_puts(&b, "kept"), 0);
    for (size_t i = 0; i < countof(bad); i++) {
        const int32_t ids[] = {1200, bad[i]};
        assert_int_equal(tok_decode(t, ids, 2, false, &b), ERR_ARG);
        assert_string_equal(b.data, "kept");
        assert_false(tok_is_special(t, bad[i]));
    }
    /* Models have more rows than their tokenizers have tokens; the reference shows nothing for such an id. */
    const int32_t spare[] = {1200, (int32_t)tok_size(t), 1200, INT32_MAX}, plain[] = {1200, 1200};
    struct buf same;
    buf_init(&same, 100);
    assert_int_equal(buf_puts(&same, "kept"), 0);
    assert_int_equal(tok_decode(t, spare, 4, false, &b), 0);
    assert_int_equal(tok_decode(t, plain, 2, false, &same), 0);
    assert_string_equal(b.data, same.data);
    assert_false(tok_is_special(t, spare[1]));
    buf_done(&same);
    buf_done(&b);
    tok_close(t);
}

/* A stream's memory does not grow with its length: after a while there are no more allocations. */
static void test_bounded(void **state)
{
    (void)state;
    static const char *const names[] = {"llama2", "qwen3"};
    for (size_t k = 0; k < 2; k++) {
        struct tok *t = open_golden(names[k]);
        struct tok_stream *s;
        struct buf b;
        uint64_t calls = 0;
        buf_init(&b, 1 << 20);
        assert_int_equal(tok_stream_new(t, true, &s), 0);
        for (int i = 0; i < 40000; i++) {
            if (i == 20000) calls = mem_calls();
            buf_clear(&b);
            assert_int_equal(tok_stream_put(s, (int32_t)(300 + draw(20000)), &b), 0);
        }
        assert_int_equal(mem_calls() - calls, 0);
        for (int i = 0; i < 200000; i++) { /* an endless run of byte tokens */
            buf_clear(&b);
            assert_int_equal(tok_stream_put(s, 3 + 'a', &b), 0);
        }
        buf_clear(&b);
        assert_int_equal(tok_stream_end(s, &b), 0);
        assert_true(b.len <= 65536);
        tok_stream_drop(s);
        buf_done(&b);
        tok_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama2),  cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_pieces),  cmocka_unit_test(test_unknown_ids),
        cmocka_unit_test(test_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
