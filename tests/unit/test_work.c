/* test_work.c - work that must not grow with the square of a file or a list.  Where the work can be counted, the test counts
 * it.  Elsewhere the sizes are such that an algorithm whose time grows with the square needs minutes, and an alarm ends
 * the process after one. */
#include "test_tok.h"

#include <unistd.h>

#include "generate/options.h"
#include "tok/tok_int.h"

enum { ALARM = 60, MANY = 400000 };

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),      cmocka_unit_test(test_texts),
        cmocka_unit_test(test_trie),       cmocka_unit_test(test_added_twice),
        cmocka_unit_test(test_bias_twice),
    };
    alarm(ALARM);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
