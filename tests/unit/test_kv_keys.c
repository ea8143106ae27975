/* test_kv_keys.c - the keys of the prefix index where rows depend on turns.  Rows are not computed. */
#include "kv/kv_int.h"
#include "testing.h"

static struct kv *open_by_turns(uint32_t max_len)
{
    struct kv_group g = {.policy = {.kind = KV_ROWS},
                         .n_sites = 1,
                         .rows = 256,
                         .n_planes = 2,
                         .plane = {{"k", {1, 4, DT_F32, KV_STRIPS}, NULL},
                                   {"v", {1, 4, DT_F32, KV_ROWMAJOR}, NULL}}};
    struct kv_config config = {.group = &g,
                               .n_groups = 1,
                               .max_seqs = 1,
                               .max_tokens = 64,
                               .max_len = max_len,
                               .index = true,
                               .turns = true};
    struct kv *kv;
    config.pool_bytes = kv_pool_bytes(&config, 1 << 20);
    assert_int_equal(kv_open(&kv, &config), 0);
    return kv;
}

/* The key of a block follows from exactly the turns that reach into the block. */
static void test_keys_of_turns(void **state)
{
    (void)state;
    enum { LEN = 512 };
    struct kv *kv = open_by_turns(LEN);
    int32_t ids[LEN];
    unsigned char before[KV_KEY] = {7}, all[KV_KEY], some[KV_KEY];
    for (uint32_t i = 0; i < LEN; i++)
        ids[i] = (int32_t)(i * 31 % 97);
    for (uint32_t k = 0; k < 200; k++) {
        struct kv_turn turn[LEN], in[LEN];
        uint32_t n = 0, x = k;
        for (uint32_t at = 0; at < LEN;) {
            x = x * 1664525u + 1013904223u;
            uint32_t gap = (x >> 8) % (1 + k % 40), len = 1 + (x >> 20) % (1 + k / 5);
            if (at + gap + len > LEN) break;
            turn[n++] = (struct kv_turn){at + gap, len};
            at += gap + len;
        }
        for (uint32_t i = 0; i < LEN / KV_STRIP; i++) {
            uint32_t from = i * KV_STRIP, m = 0;
            for (uint32_t t = 0; t < n; t++)
                if (turn[t].pos < from + KV_STRIP && turn[t].pos + turn[t].n > from)
                    in[m++] = turn[t];
            key_next(kv, before, ids, turn, n, i, all);
            key_next(kv, before, ids, in, m, i, some);
            assert_memory_equal(all, some, KV_KEY);
            if (!m) continue;
            key_next(kv, before, ids, in, m - 1, i, some);
            assert_memory_not_equal(all, some, KV_KEY);
            key_next(kv, before, ids, in + 1, m - 1, i, some);
            assert_memory_not_equal(all, some, KV_KEY);
        }
    }
    kv_close(kv);
}

/* A search looks at each turn of a long prompt once.  A look at all turns for each block would take minutes. */
static void test_many_turns(void **state)
{
    (void)state;
    enum { LEN = 1 << 22 };
    struct kv *kv = open_by_turns(LEN);
    int32_t *ids = calloc(LEN, sizeof *ids);
    struct kv_turn *turn = calloc(LEN / 2, sizeof *turn);
    kv_seq s;
    uint32_t have;
    assert_true(ids && turn);
    for (uint32_t i = 0; i < LEN / 2; i++)
        turn[i] = (struct kv_turn){2 * i, 2};
    struct kv_prefix p = {.tok = ids, .n = LEN, .turn = turn, .n_turns = LEN / 2};
    assert_int_equal(kv_new(kv, NULL, &s), 0);
    assert_int_equal(kv_match(kv, s, &p, &have), 0);
    assert_int_equal(have, 0);
    free(ids);
    free(turn);
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_of_turns),
        cmocka_unit_test(test_many_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
