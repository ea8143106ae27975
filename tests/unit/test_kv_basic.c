/* Store basics: begin, commit, abort, fork, drop, windows, the budget to the byte. */
#include "kv/kv_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct kv_group rows_group(uint32_t window, uint32_t site0, uint32_t n_sites)
{
    return (struct kv_group){.policy = {.kind = KV_ROWS, .window = window},
                             .site0 = site0,
                             .n_sites = n_sites,
                             .rows = 16,
                             .n_planes = 2,
                             .plane = {{"k", {2, 4, DT_F32, KV_STRIPS}, NULL},
                                       {"v", {2, 4, DT_F32, KV_ROWMAJOR}, NULL}}};
}

#define BLOCK ((size_t)16 * 2 * 4 * 4 * 2) /* bytes of a block at one site */

static struct kv *store(const struct kv_group *g, uint32_t n, size_t pool)
{
    struct kv *kv = NULL;
    struct kv_config c = {.group = g,
                          .n_groups = n,
                          .max_seqs = 8,
                          .max_tokens = 256,
                          .max_len = 1024,
                          .pool_bytes = pool};
    int e = kv_open(&kv, &c);
    if (e < 0) print_error("%s\n", err_last());
    assert_int_equal(e, 0);
    return kv;
}

static float *key(const struct kv_view *v, uint32_t lane, uint32_t row, uint32_t head, uint32_t d)
{
    uint32_t page = v->raw.table[v->slot[lane] * v->raw.stride + row / 16];
    float *k = (float *)(v->raw.base + page * v->raw.grain + v->raw.offset[0]);
    return &k[(head * 4 + d) * 16 + row % 16];
}

static void write_keys(const struct kv_view *v, float tag)
{
    for (uint32_t t = 0; t < v->counts[1]; t++)
        for (uint32_t h = 0; h < 2; h++)
            for (uint32_t d = 0; d < 4; d++)
                *key(v, v->lane[t], v->pos[t], h, d) = tag + (float)(v->pos[t] * 8 + h * 4 + d);
}

static int append(struct kv *kv, kv_seq s, uint32_t n, float tag)
{
    struct kv_span sp = {.seq = s, .n = n};
    struct kv_step *st = NULL;
    int e = kv_begin(kv, &sp, 1, &st);
    if (e < 0) return e;
    struct kv_view v;
    for (uint32_t site = 0; site < kv->n_sites; site++) {
        assert_int_equal(kv_next(st, site, &v), 1);
        write_keys(&v, tag);
        assert_int_equal(kv_next(st, site, &v), 0);
    }
    return kv_commit(st, NULL);
}

static void test_append_fork_drop(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 3);
    struct kv *kv = store(&g, 1, 1 << 20);
    kv_seq a, b;
    struct kv_usage u;
    assert_int_equal(kv_new(kv, 0, &a), 0);
    assert_int_equal(append(kv, a, 20, 0), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.live, 2 * 3 * BLOCK);
    assert_int_equal(kv_fork(kv, a, &b), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.live, 2 * 3 * BLOCK);
    assert_int_equal(u.shared, 2 * 3 * BLOCK);
    assert_int_equal(append(kv, b, 1, 1000), 0); /* copies 4 rows of the open block */
    kv_usage(kv, &u);
    assert_int_equal(u.live, 3 * 3 * BLOCK);
    assert_int_equal(u.rows_copied, 4);
    assert_int_equal(append(kv, a, 1, 2000), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.rows_copied, 4);

    struct kv_span sp[2] = {{.seq = a, .n = 1}, {.seq = b, .n = 1}};
    struct kv_step *st;
    struct kv_view v;
    assert_int_equal(kv_begin(kv, sp, 2, &st), 0);
    assert_int_equal(kv_next(st, 1, &v), 1);
    for (uint32_t row = 0; row < 20; row++)
        for (uint32_t lane = 0; lane < 2; lane++)
            assert_true(*key(&v, lane, row, 1, 3) == (float)(row * 8 + 7));
    assert_true(*key(&v, 0, 20, 0, 0) == 2000.f + 160);
    assert_true(*key(&v, 1, 20, 0, 0) == 1000.f + 160);
    assert_int_equal(kv_drop(kv, a), ERR_BUSY);
    kv_abort(st);
    assert_true(kv_check(kv));
    assert_int_equal(kv_drop(kv, a), 0);
    assert_int_equal(kv_drop(kv, a), ERR_STALE);
    assert_int_equal(kv_drop(kv, b), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.live, 0);
    assert_true(kv_check(kv));
    kv_close(kv);
}

static void test_window_and_full(void **state)
{
    (void)state;
    struct kv_group g[2] = {rows_group(0, 0, 1), rows_group(64, 1, 2)};
    struct kv *kv = store(g, 2, 1 << 20);
    kv_seq a;
    struct kv_usage u;
    assert_int_equal(kv_new(kv, 0, &a), 0);
    for (uint32_t i = 0; i < 500; i++) {
        assert_int_equal(append(kv, a, 1, 0), 0);
        assert_true(kv_check(kv));
    }
    kv_usage(kv, &u);
    /* 500 rows: 32 blocks at one site; rows [437, 500) in blocks 27..31 at two */
    assert_int_equal(u.live, 32 * BLOCK + 5 * 2 * BLOCK);
    kv_close(kv);
}

static void test_budget_to_the_byte(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 3);
    for (int short_by = 0; short_by < 2; short_by++) {
        struct kv *kv = store(&g, 1, 10 * 3 * BLOCK - (size_t)short_by);
        kv_seq a;
        struct kv_usage u;
        assert_int_equal(kv_new(kv, 0, &a), 0);
        assert_int_equal(append(kv, a, 144, 0), 0);
        int e = append(kv, a, 1, 0);
        assert_int_equal(e, short_by ? ERR_FULL : 0);
        kv_usage(kv, &u);
        assert_int_equal(u.need, short_by);
        assert_int_equal(kv_len(kv, a), short_by ? 144 : 145);
        assert_true(kv_check(kv));
        kv_close(kv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_fork_drop),
        cmocka_unit_test(test_window_and_full),
        cmocka_unit_test(test_budget_to_the_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
