/* test_kv_queue.c - which pages leave memory first.  Rows are not computed; only places count. */
#include "kv/kv_int.h"
#include "testing.h"

enum { BLOCK = 16 * 2 * 4 * 4 * 2 };

static bool broken; /* the next write fails */

static int start(struct kv_tier *t, struct kv_io *io, uint32_t n)
{
    (void)t;
    for (uint32_t i = 0; i < n; i++) {
        io[i].err = broken && io[i].write ? ERR_IO : 0;
        if (!io[i].write) memset(io[i].mem, 0, io[i].n);
    }
    return 0;
}

static int finish(struct kv_tier *t, struct kv_io *io, uint32_t n)
{
    (void)t;
    for (uint32_t i = 0; i < n; i++)
        if (io[i].err) return ERR(IO, "the tier fails");
    return 0;
}

static void drop(struct kv_tier *t, uint64_t at, size_t n)
{
    (void)t, (void)at, (void)n;
}

static void done(struct kv_tier *t)
{
    (void)t;
}

static struct kv *store(uint32_t sinks)
{
    static struct kv_tier tier = {
        .name = "nothing", .start = start, .finish = finish, .drop = drop, .close = done};
    struct kv_group g = {.policy = {.kind = KV_ROWS, .window = sinks ? 512 : 0, .sinks = sinks},
                         .n_sites = 1,
                         .rows = 16,
                         .n_planes = 2,
                         .stream = true,
                         .plane = {{"k", {2, 4, DT_F32, KV_STRIPS}, NULL},
                                   {"v", {2, 4, DT_F32, KV_ROWMAJOR}, NULL}}};
    struct kv_config c = {.group = &g,
                          .n_groups = 1,
                          .max_seqs = 8,
                          .max_tokens = 256,
                          .max_len = 1024,
                          .tier = &tier,
                          .streaming = KV_STREAM,
                          .pool_bytes = 1 << 20};
    struct kv *kv = NULL;
    assert_int_equal(kv_open(&kv, &c), 0);
    return kv;
}

static kv_seq sequence(struct kv *kv, uint32_t n)
{
    struct kv_step *st;
    kv_seq s;
    assert_int_equal(kv_new(kv, NULL, &s), 0);
    struct kv_span sp = {.seq = s, .n = n};
    assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
    assert_int_equal(kv_commit(st, NULL), 0);
    return s;
}

static void step(struct kv *kv, kv_seq s, uint32_t n)
{
    struct kv_step *st;
    struct kv_span sp = {.seq = s, .n = n};
    assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
    assert_true(kv_check(kv));
    assert_int_equal(kv_commit(st, NULL), 0);
    assert_true(kv_check(kv));
}

/* Returns which blocks of s are in memory: '+', or in the tier: '-'. */
static const char *where(const struct kv *kv, kv_seq s)
{
    static char text[65];
    const struct group *g = &kv->group[0];
    const struct seq *q = &kv->seq[kv->slot[slot_index(kv, s)].seq];
    uint32_t n = table_used(g, RAW, q->len);
    for (uint32_t i = 0; i < n; i++)
        text[i] = g->form[RAW].page[seq_table(kv, g, RAW, q)[i]].spilled ? '-' : '+';
    text[n] = 0;
    return text;
}

static void leave(struct kv *kv, uint32_t blocks)
{
    assert_int_equal(spill_out(kv, (size_t)blocks * BLOCK), 0);
    if (!kv_check(kv)) fail_msg("%s", err_last());
}

/* The highest rows leave first whoever has them, then open blocks, the highest first. */
static void test_order(void **state)
{
    (void)state;
    struct kv *kv = store(0);
    kv_seq a = sequence(kv, 85), b = sequence(kv, 48), c = sequence(kv, 40);
    assert_int_equal(spill_can(kv), 12 * BLOCK);
    leave(kv, 2);
    assert_string_equal(where(kv, a), "+++--+");
    leave(kv, 2);
    assert_string_equal(where(kv, a), "++---+");
    assert_string_equal(where(kv, b), "++-");
    leave(kv, 6);
    assert_string_equal(where(kv, a), "-----+");
    assert_string_equal(where(kv, b), "---");
    assert_string_equal(where(kv, c), "--+");
    leave(kv, 1);
    assert_string_equal(where(kv, a), "------");
    assert_string_equal(where(kv, c), "--+");
    leave(kv, 1);
    assert_int_equal(spill_can(kv), 0);
    leave(kv, 1); /* nothing is left to leave */
    step(kv, a, 1);
    assert_string_equal(where(kv, a), "-----+");
    kv_close(kv);
}

/* The tail of a sequence with a reserve stays, and is free to leave when the reserve ends or is
 * reached.  Forks share pages, so a page in one tail and inside another sequence is a page like
 * others. */
static void test_tails(void **state)
{
    (void)state;
    struct kv *kv = store(0);
    kv_seq a = sequence(kv, 40), b;
    uint32_t have;
    assert_int_equal(kv_reserve(kv, a, 60), 0);
    assert_int_equal(spill_can(kv), 2 * BLOCK);
    step(kv, a, 20);
    assert_int_equal(spill_can(kv), 4 * BLOCK);
    assert_int_equal(kv_reserve(kv, a, 64), 0);
    assert_int_equal(spill_can(kv), 3 * BLOCK);
    assert_int_equal(kv_fork(kv, a, &b), 0);
    assert_int_equal(kv_trim(kv, b, 24, &have), 0);
    if (!kv_check(kv)) fail_msg("%s", err_last());
    leave(kv, 2);
    assert_string_equal(where(kv, a), "+--+");
    assert_int_equal(kv_drop(kv, a), 0);
    assert_string_equal(where(kv, b), "+-");
    if (!kv_check(kv)) fail_msg("%s", err_last());
    assert_int_equal(spill_can(kv), BLOCK);
    kv_close(kv);
}

static void test_sinks_stay(void **state)
{
    (void)state;
    struct kv *kv = store(4);
    kv_seq a = sequence(kv, 100);
    assert_int_equal(spill_can(kv), 6 * BLOCK);
    leave(kv, 100);
    assert_string_equal(where(kv, a), "+------");
    kv_close(kv);
}

static void test_failed_write(void **state)
{
    (void)state;
    struct kv *kv = store(0);
    kv_seq a = sequence(kv, 85);
    broken = true;
    assert_int_equal(spill_out(kv, 3 * BLOCK), ERR_IO);
    broken = false;
    assert_true(kv_check(kv));
    assert_string_equal(where(kv, a), "++++++");
    assert_int_equal(spill_can(kv), 6 * BLOCK);
    leave(kv, 3);
    assert_string_equal(where(kv, a), "++---+");
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_tails),
                                       cmocka_unit_test(test_sinks_stay),
                                       cmocka_unit_test(test_failed_write)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
