/* test_kv.c - the store: random operations against a flat reference, and deliberate faults that the
 * comparison must notice.
 *
 *   test_kv                       the suite, with a short random run; KVIK_TEST_SHORT: a shorter one,
 *                                 without the deliberate faults
 *   test_kv --ops N --seed S      a long run, one summary line
 *           [--config NAME]       the first group of every store is of this kind (frozen: the second)
 *           [--stream]            every store that can streams
 *           [--break-refs | --skip-cow | --skip-own | --trust-keys | --match-unref |
 *            --short-reserve | --drop-early | --keep-rejected | --skip-wait |
 *            --wrong-stage | --forget-write | --stale-open | --stale-age]   a deliberate fault
 *           [--no-check]          without kv_check: only views are compared */
#include "../ref/kv_model.h"
#include "testing.h"

static void print_totals(const struct model_totals *t)
{
    printf(
        "ops %llu forks %llu seals %llu evictions %llu max refs %u "
        "(steps %llu, aborts %llu, refused %llu, rejected rows %llu, trims %llu, reorders %llu, "
        "reserves %llu, rows copied on write %llu, rows verified %llu, views %llu, stores %llu; "
        "pieces %llu, raw ones under a codec %llu, tier reads %llu, writes %llu, drops %llu, faults %llu, began when full %llu; loads %llu; kept %llu, prefixes %llu of %llu rows; oldest snapshots %llu; rungs %llu, for want of room %llu, refused %llu)\n",
        (unsigned long long)t->ops, (unsigned long long)t->forks, (unsigned long long)t->seals,
        (unsigned long long)t->evictions, t->max_refs, (unsigned long long)t->steps,
        (unsigned long long)t->aborts, (unsigned long long)t->refused,
        (unsigned long long)t->rejected_rows, (unsigned long long)t->trims,
        (unsigned long long)t->reorders, (unsigned long long)t->reserves,
        (unsigned long long)t->rows_copied, (unsigned long long)t->verified_rows,
        (unsigned long long)t->verified_views, (unsigned long long)t->stores,
        (unsigned long long)t->pieces, (unsigned long long)t->raw_pieces,
        (unsigned long long)t->tier_reads, (unsigned long long)t->tier_writes,
        (unsigned long long)t->tier_drops, (unsigned long long)t->tier_faults,
        (unsigned long long)t->began_full, (unsigned long long)t->loads,
        (unsigned long long)t->kept, (unsigned long long)t->hits, (unsigned long long)t->hit_rows,
        (unsigned long long)t->walked, (unsigned long long)t->encodes,
        (unsigned long long)t->encodes_full, (unsigned long long)t->encodes_refused);
}

static void test_random(void **state)
{
    (void)state;
    struct model_options o = {.ops = 40000 / test_share(), .seed = 4, .check = true};
    struct model_totals t = {0};
    assert_int_equal(model_run(&o, &t), 0);
    print_totals(&t);
    if (test_share() > 1) return;
    assert_true(t.forks > 500 && t.seals > 500 && t.evictions > 20 && t.refused > 100);
    assert_true(t.loads > 100);
    assert_true(t.aborts > 100 && t.rejected_rows > 100 && t.max_refs > 4 && t.rows_copied > 100);
    assert_true(t.marks > 200 && t.rollbacks > 100 && t.reserved_rollbacks > 5);
    assert_true(t.hits > 100 && t.hit_rows > 5000 && t.kept > 100);
    assert_true(t.walked > 5000);
}

static void test_streams(void **state)
{
    (void)state;
    struct model_options o = {
        .ops = 60000 / test_share(), .seed = 11, .check = true, .stream = true};
    struct model_totals t = {0};
    assert_int_equal(model_run(&o, &t), 0);
    print_totals(&t);
    if (test_share() > 1) return;
    assert_true(t.pieces > 50 && t.tier_reads > 1000 && t.tier_writes > 500 && t.tier_drops > 10);
    assert_true(t.tier_faults > 20 && t.began_full > 0);
}

/* Raw rows under lossy codecs; frozen rows of every kind beside others. */
static void test_raw_streams(void **state)
{
    (void)state;
    static const char *const only[] = {"resid", "codec", "frozen"};
    struct model_totals t = {0};
    for (uint64_t i = 0; i < countof(only); i++) {
        struct model_options o = {.ops = 40000 / test_share(),
                                  .seed = 9 + 4 * i,
                                  .check = true,
                                  .stream = true,
                                  .only = only[i]};
        assert_int_equal(model_run(&o, &t), 0);
    }
    print_totals(&t);
    if (test_share() == 1) assert_true(t.raw_pieces > 200);
}

/* Groups whose rows are encoded when the budget is short, or when it is asked for. */
static void test_rungs(void **state)
{
    (void)state;
    struct model_options o = {
        .ops = 40000 / test_share(), .seed = 5, .check = true, .only = "rungs"};
    struct model_totals t = {0};
    assert_int_equal(model_run(&o, &t), 0);
    print_totals(&t);
    if (test_share() == 1)
        assert_true(t.encodes > 15 && t.encodes_full > 4 && t.encodes_refused > 8);
}

/* Each fault must show in views and row bytes alone, without kv_check. */
static void test_faults_are_caught(void **state)
{
    (void)state;
    if (test_share() > 1) skip();
    bool *fault[] = {&kv_fault.break_refs,      &kv_fault.skip_cow,    &kv_fault.drop_early,
                     &kv_fault.keep_rejected,   &kv_fault.skip_wait,   &kv_fault.wrong_stage,
                     &kv_fault.forget_write,    &kv_fault.stale_open,  &kv_fault.skip_own,
                     &kv_fault.trust_keys,      &kv_fault.match_unref, &kv_fault.short_reserve,
                     &kv_fault.forget_rollback, &kv_fault.stale_age};
    for (size_t i = 0; i < countof(fault); i++)
        for (int check = 0; check < 2; check++) {
            struct model_options o = {.ops = i < 11 ? 20000 : 60000,
                                      .seed = 3,
                                      .check = check,
                                      .stream = i >= 4 && i < 8};
            struct model_totals t = {0};
            *fault[i] = true;
            int e = model_run(&o, &t);
            *fault[i] = false;
            if (!e) print_error("fault %zu went unnoticed, kv_check %d\n", i, check);
            assert_int_equal(e, -1);
        }
}

static int usage(const char *arg)
{
    fprintf(stderr, "test_kv: bad argument %s\n", arg);
    return 2;
}

static int long_run(int argc, char **argv)
{
    struct model_options o = {.ops = 1000000, .seed = 1, .check = true};
    struct model_totals t = {0};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(a, "--break-refs"))
            kv_fault.break_refs = true;
        else if (!strcmp(a, "--skip-cow"))
            kv_fault.skip_cow = true;
        else if (!strcmp(a, "--skip-own"))
            kv_fault.skip_own = true;
        else if (!strcmp(a, "--trust-keys"))
            kv_fault.trust_keys = true;
        else if (!strcmp(a, "--match-unref"))
            kv_fault.match_unref = true;
        else if (!strcmp(a, "--short-reserve"))
            kv_fault.short_reserve = true;
        else if (!strcmp(a, "--drop-early"))
            kv_fault.drop_early = true;
        else if (!strcmp(a, "--keep-rejected"))
            kv_fault.keep_rejected = true;
        else if (!strcmp(a, "--skip-wait"))
            kv_fault.skip_wait = true;
        else if (!strcmp(a, "--wrong-stage"))
            kv_fault.wrong_stage = true;
        else if (!strcmp(a, "--forget-write"))
            kv_fault.forget_write = true;
        else if (!strcmp(a, "--stale-open"))
            kv_fault.stale_open = true;
        else if (!strcmp(a, "--stale-age"))
            kv_fault.stale_age = true;
        else if (!strcmp(a, "--stream"))
            o.stream = true;
        else if (!strcmp(a, "--no-check"))
            o.check = false;
        else if (!next)
            return usage(a);
        else if (!strcmp(a, "--ops"))
            o.ops = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(a, "--seed"))
            o.seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(a, "--config"))
            o.only = argv[++i];
        else
            return usage(a);
    }
    if (model_run(&o, &t) < 0) return 1;
    print_totals(&t);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) return long_run(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_raw_streams),
        cmocka_unit_test(test_rungs),
        cmocka_unit_test(test_faults_are_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
