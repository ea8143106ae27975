/* test_pool.c - the pool of threads: every task runs once, in every job, however many tasks and threads there are, whether
 * the threads are awake or asleep, and however long a task takes. */
#include "base/thread.h"
#include "testing.h"

#include <stdatomic.h>
#include <time.h>

enum { TASKS = 300 };

struct job {
    uint32_t threads;
    uint32_t ran[TASKS]; /* plain: a race would show under TSan */
    uint64_t number;     /* of the job, which all its tasks see */
    _Atomic uint64_t seen;
};

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void count(void *ctx, uint32_t task, uint32_t thread)
{
    struct job *j = ctx;
    if (thread < j->threads) j->ran[task]++;
    if (task % 100 == 7 && j->number % 10 == 0) pause_ns(200000);
    atomic_fetch_add(&j->seen, j->number);
}

static void test_every_task_once(void **state)
{
    (void)state;
    static const uint32_t threads[] = {1, 2, 3, 7};
    uint32_t jobs = test_share() > 1 ? 200 : 2000;
    for (size_t i = 0; i < countof(threads); i++) {
        struct pool *p;
        assert_int_equal(pool_open(&p, threads[i]), 0);
        assert_int_equal(pool_threads(p), threads[i]);
        for (uint64_t k = 1; k <= jobs; k++) {
            struct job j = {.threads = threads[i],
                            .number = k}; /* a late thread would find another */
            uint32_t n = (uint32_t)(k * 7919 % (k % 50 ? 9 : TASKS + 1));
            pool_run(p, n, count, &j);
            for (uint32_t t = 0; t < TASKS; t++)
                assert_int_equal(j.ran[t], t < n);
            assert_int_equal(j.seen, n * k);
            if (k % 64 == 0) pause_ns(300000); /* the workers fall asleep */
        }
        pool_close(p);
    }
}

/* A pool that never ran a job closes, with its threads awake or asleep. */
static void test_close(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 40; i++) {
        struct pool *p;
        assert_int_equal(pool_open(&p, 4), 0);
        if (i % 2) pause_ns(300000);
        pool_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_once),
        cmocka_unit_test(test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
