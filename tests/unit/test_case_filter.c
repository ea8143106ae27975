/* test_case_filter.c - CMOCKA_TEST_FILTER chooses the cases of a test program (case_filter.c). */
#include "testing.h"

#include <sys/wait.h>

static void test_good(void **state)
{
    (void)state;
}

static void test_bad(void **state)
{
    (void)state;
    fail();
}

/* Runs the two cases above in another process; returns how many failed. */
static int cases(const char *filter)
{
    pid_t child = fork();
    if (child == 0) {
        if (filter) setenv("CMOCKA_TEST_FILTER", filter, 1);
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(99);
        execl("/proc/self/exe", "test_case_filter", "cases", (char *)NULL);
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_filter(void **state)
{
    (void)state;
    unsetenv("CMOCKA_TEST_FILTER");
    assert_int_equal(cases(NULL), 1);
    assert_int_equal(cases("*good"), 0);
    assert_int_equal(cases("*b?d*"), 1);
}

int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest two[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_filter)};
    return argc > 1 ? cmocka_run_group_tests(two, NULL, NULL)
                    : cmocka_run_group_tests(tests, NULL, NULL);
}
