/* test_decoder.c - the streaming decoder: its texts are whole characters and together those of kvik_tokenizer_decode, however
 * the ids are cut. A call that fails changes nothing, a token allocates nothing, and the decoder outlives its tokenizer. */
#include "base/base.h"
#include "base/utf8.h"
#include "kvik_loop.h"
#include "unpacked.h"

static const char *const names[] = {"llama2", "qwen3"};
static uint64_t seed = 1;
static uint32_t draw(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

enum { MOST = 60, IDS = 32000 };
/* Byte tokens are likely: there characters have several tokens. */
static size_t draw_ids(int32_t *ids)
{
    size_t n = draw(MOST);
    for (size_t i = 0; i < n; i++)
        ids[i] = draw(3) ? 3 + (int32_t)draw(256) : (int32_t)draw(IDS);
    return n;
}

static void append(struct buf *all, int64_t n, const char *text)
{
    assert_int_equal(text[n], 0);
    assert_true(utf8_valid(text, (size_t)n));
    assert_int_equal(buf_append(all, text, (size_t)n), 0);
}

/* Random ids in random pieces; the decoder is used again after its flush. */
static void test_pieces(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(names); k++) {
        kvik_tokenizer *t = open_one(names[k]);
        for (int skip = 0; skip < 2; skip++) {
            kvik_decoder *d;
            need(kvik_decoder_open(t, skip, &d));
            for (int round = 0; round < (getenv("KVIK_TEST_SHORT") ? 200 : 2000); round++) {
                int32_t ids[MOST];
                size_t n = draw_ids(ids), n_want;
                const char *text;
                char *want;
                struct buf all;
                buf_init(&all, 1 << 20);
                for (size_t at = 0, piece; at < n; at += piece) {
                    piece = 1 + draw((uint32_t)MIN(n - at, 4));
                    int64_t got = need(kvik_decoder_put(d, ids + at, piece, &text));
                    append(&all, got, text);
                }
                int64_t got = need(kvik_decoder_flush(d, &text));
                append(&all, got, text);
                need(kvik_tokenizer_decode(t, ids, n, skip, &want, &n_want));
                assert_int_equal(all.len, n_want);
                if (n_want) assert_memory_equal(all.data, want, n_want);
                kvik_free(want);
                buf_done(&all);
            }
            kvik_decoder_close(d);
        }
        kvik_tokenizer_close(t);
    }
}

/* A character of several tokens appears with its last one; a flush in the middle shows U+FFFD. */
static void test_held_back(void **state)
{
    (void)state;
    kvik_tokenizer *t = open_one("qwen3");
    kvik_decoder *d;
    int32_t *ids;
    size_t n;
    const char *text, *face = "\xF0\x9F\xAB\xA0";
    need(kvik_tokenizer_encode(t, face, 4, false, &ids, &n));
    assert_true(n > 1);
    need(kvik_decoder_open(t, true, &d));
    kvik_tokenizer_close(t); /* the decoder holds it */
    for (size_t i = 0; i < n; i++) {
        int64_t got = need(kvik_decoder_put(d, &ids[i], 1, &text));
        assert_int_equal(got, i + 1 < n ? 0 : 4);
        assert_string_equal(text, i + 1 < n ? "" : face);
    }
    assert_int_equal(kvik_decoder_flush(d, &text), 0);
    assert_int_equal(kvik_decoder_put(d, ids, 1, &text), 0);
    assert_int_equal(kvik_decoder_flush(d, &text), 3);
    assert_string_equal(text, "\xEF\xBF\xBD");
    assert_int_equal(kvik_decoder_put(d, NULL, 0, &text), 0);
    assert_int_equal(kvik_decoder_put(d, ids, n, &text), 4);
    kvik_free(ids);
    kvik_decoder_close(d);
}

static void test_special(void **state)
{
    (void)state;
    kvik_tokenizer *t = open_one("qwen3");
    kvik_decoder *d;
    const char *text;
    int32_t id = kvik_tokenizer_find(t, "<|im_end|>");
    assert_true(id >= 0);
    for (int skip = 0; skip < 2; skip++) {
        need(kvik_decoder_open(t, skip, &d));
        need(kvik_decoder_put(d, &id, 1, &text));
        assert_string_equal(text, skip ? "" : "<|im_end|>");
        kvik_decoder_close(d);
    }
    kvik_tokenizer_close(t);
}

/* The whole text of ids, of which some calls fail: those count for nothing. */
static void check_failures(kvik_tokenizer *t, const int32_t *ids, size_t n, bool memory)
{
    kvik_decoder *d;
    struct buf all;
    const char *text;
    char *want;
    size_t n_want;
    buf_init(&all, 1 << 20);
    need(kvik_decoder_open(t, false, &d));
    for (size_t at = 0; at + 2 <= n; at += 2) {
        const int32_t wrong[] = {-1, INT32_MIN}, bad[] = {ids[at], wrong[at / 2 % 2]};
        int64_t got;
        text = "kept";
        for (int64_t k = 0; memory; k++) {
            mem_fail_at(k, false);
            got = kvik_decoder_put(d, ids + at, 2, &text);
            mem_fail_at(-1, false);
            if (got >= 0) break;
            assert_int_equal(got, KVIK_NOMEM);
            assert_string_equal(text, "kept");
        }
        if (!memory) {
            assert_int_equal(kvik_decoder_put(d, bad, 2, &text), KVIK_ARG);
            assert_non_null(strstr(kvik_last_error(), "not a token id"));
            assert_string_equal(text, "kept");
            /* Ids without a token are empty text, wherever they stand. */
            const int32_t above[] = {ids[at], 1 << 30, ids[at + 1], INT32_MAX};
            got = need(kvik_decoder_put(d, above, 4, &text));
        }
        append(&all, got, text);
    }
    int64_t got = need(kvik_decoder_flush(d, &text));
    append(&all, got, text);
    need(kvik_tokenizer_decode(t, ids, n - n % 2, false, &want, &n_want));
    assert_int_equal(all.len, n_want);
    if (n_want) assert_memory_equal(all.data, want, n_want);
    kvik_free(want);
    kvik_decoder_close(d);
    buf_done(&all);
}

static void test_failures(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(names); k++) {
        kvik_tokenizer *t = open_one(names[k]);
        for (int round = 0; round < 100; round++) {
            int32_t ids[MOST];
            size_t n = draw_ids(ids);
            check_failures(t, ids, n, false);
            check_failures(t, ids, n, true);
        }
        kvik_tokenizer_close(t);
    }
}

static void test_no_allocation(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(names); k++) {
        kvik_tokenizer *t = open_one(names[k]);
        kvik_decoder *d;
        const char *text;
        need(kvik_decoder_open(t, true, &d));
        uint64_t calls = mem_calls();
        for (int32_t id = 0; id < IDS; id++)
            need(kvik_decoder_put(d, &id, 1, &text));
        for (int i = 0; i < 5000; i++) {
            int32_t id = (int32_t)draw(IDS);
            need(kvik_decoder_put(d, &id, 1, &text));
        }
        need(kvik_decoder_flush(d, &text));
        assert_int_equal(mem_calls(), calls);
        kvik_decoder_close(d);
        kvik_tokenizer_close(t);
    }
}

static void test_arguments(void **state)
{
    (void)state;
    kvik_tokenizer *t = open_one("qwen3");
    kvik_decoder *d = NULL;
    const char *text = "kept";
    int32_t id = 5;
    assert_int_equal(kvik_decoder_open(NULL, true, &d), KVIK_ARG);
    assert_int_equal(kvik_decoder_open(t, true, NULL), KVIK_ARG);
    for (int64_t k = 0; !d; k++) {
        mem_fail_at(k, false);
        int e = kvik_decoder_open(t, true, &d);
        mem_fail_at(-1, false);
        assert_true(e == 0 || e == KVIK_NOMEM);
        assert_true((d != NULL) == (e == 0));
    }
    assert_int_equal(kvik_decoder_put(NULL, &id, 1, &text), KVIK_ARG);
    assert_int_equal(kvik_decoder_put(d, NULL, 1, &text), KVIK_ARG);
    assert_int_equal(kvik_decoder_put(d, &id, 1, NULL), KVIK_ARG);
    assert_int_equal(kvik_decoder_flush(NULL, &text), KVIK_ARG);
    assert_int_equal(kvik_decoder_flush(d, NULL), KVIK_ARG);
    assert_string_equal(text, "kept");
    kvik_decoder_close(d);
    kvik_decoder_close(NULL);
    kvik_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_held_back),
        cmocka_unit_test(test_special),       cmocka_unit_test(test_failures),
        cmocka_unit_test(test_no_allocation), cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
