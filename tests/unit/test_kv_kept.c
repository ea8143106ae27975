/* test_kv_kept.c - which kept contents make others superfluous (kept.c). */
#include "small_store.h"

enum { LEN = 41, STATE = 2 * 16 * 4 }; /* bytes of a state at both sites */

/* Appends tokens [from, to) as one update. */
static void feed(struct kv *kv, kv_seq s, uint32_t from, uint32_t to)
{
    int32_t tok[LEN];
    for (uint32_t i = from; i < to; i++)
        tok[i - from] = (int32_t)(100 + i);
    struct kv_span sp = {.seq = s, .n = to - from, .tok = tok, .turn = true, .last = true};
    struct kv_step *st;
    assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
    assert_int_equal(kv_commit(st, NULL), 0);
}

/* Returns how many of the first n tokens a new sequence with other tokens behind them reuses. */
static uint32_t reused(struct kv *kv, uint32_t n)
{
    int32_t tok[LEN];
    uint32_t have = 0;
    kv_seq s;
    for (uint32_t i = 0; i < LEN; i++)
        tok[i] = (int32_t)((i < n ? 100 : 500) + i);
    assert_int_equal(kv_new(kv, NULL, &s), 0);
    assert_int_equal(kv_match(kv, s, &(struct kv_prefix){.tok = tok, .n = LEN}, &have), 0);
    assert_int_equal(kv_drop(kv, s), 0);
    return have;
}

/* A live sequence has all tokens of one that is kept.  Its snapshots at the full blocks may be evicted, so it can only go on
 * from a later token.  Then the kept contents must stay, because others can go on from their last full block. */
static void test_covered(void **state)
{
    (void)state;
    struct kv_group g = {.policy = {.kind = KV_STATE, .every = 16},
                         .n_sites = 2,
                         .n_planes = 1,
                         .plane = {{"ssm", {1, 16, DT_F32, KV_FLAT}, NULL}}};
    struct kv_config c = {
        .group = &g, .n_groups = 1, .max_seqs = 4, .max_tokens = 64, .max_len = 64, .index = true};
    c.pool_bytes = kv_pool_bytes(&c, 1 << 20);
    for (int evict = 0; evict < 2; evict++) {
        struct kv *kv = NULL;
        struct kv_usage u;
        kv_seq live, part;
        assert_int_equal(kv_open(&kv, &c), 0);
        assert_int_equal(kv_new(kv, NULL, &live), 0);
        feed(kv, live, 0, LEN); /* snapshots at 16, 32 and, before the last token, 40 */
        if (evict) assert_int_equal(kv_limit(kv, pool_held(kv) - 2 * STATE), 0);
        assert_int_equal(kv_limit(kv, c.pool_bytes), 0);
        kv_usage(kv, &u);
        assert_int_equal(u.evictions, 2 * evict);
        assert_int_equal(reused(kv, 32), evict ? 0 : 32);
        assert_int_equal(reused(kv, 40), 40);

        assert_int_equal(kv_new(kv, NULL, &part), 0);
        feed(kv, part, 0, 32);
        feed(kv, part, 32, 40);
        assert_int_equal(kv_keep(kv, part), 0);
        kv_usage(kv, &u);
        assert_int_equal(u.kept, evict);
        assert_int_equal(reused(kv, 32), 32);

        /* Of two with the same full blocks one is kept, from whose last block others can go on. */
        assert_int_equal(kv_keep(kv, live), 0);
        kv_usage(kv, &u);
        assert_int_equal(u.kept, 1);
        assert_int_equal(reused(kv, 32), 32);
        assert_true(kv_check(kv));
        kv_close(kv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_covered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
