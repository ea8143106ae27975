/* test_hidden.c - the device of tests/hidden finds what it is there to find: a host that reads memory of the device, an
 * operation that is given memory of the host, an array that is read before it was put there.  run-tests.sh runs golden cases
 * on it. */
#include "dev/dev.h"
#include "testing.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

static float host[16];

static void read_memory(struct dev *d)
{
    const volatile float *x = dev_alloc(d, sizeof host);
    if (x) host[0] = x[0];
}

static void write_memory(struct dev *d)
{
    volatile float *x = dev_alloc(d, sizeof host);
    if (x) x[0] = 1;
}

static void pass_host(struct dev *d)
{
    dev_scale(d, host, 2, 1, countof(host));
}

static void pass_neighbour(struct dev *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x) dev_scale(d, x, 2, 1 << 20, countof(host));
}

static void proper(struct dev *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x) dev_scale(d, x, 2, 1, countof(host));
}

/* True if a process of its own comes to the end of `use`. */
static bool survives(void (*use)(struct dev *d))
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct dev *d;
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler would go on with the next test */
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        if (dev_open(&(struct dev_config){.n_threads = 1}, &d) < 0) _exit(1);
        use(d);
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void strays(void **state)
{
    (void)state;
    assert_true(survives(proper));
    assert_false(survives(read_memory));
    assert_false(survives(write_memory));
    assert_false(survives(pass_host));
    assert_false(survives(pass_neighbour));
}

static void copies(void **state)
{
    (void)state;
    struct dev *d;
    float got[countof(host)];
    assert_int_equal(dev_open(&(struct dev_config){.n_threads = 1}, &d), 0);
    for (size_t i = 0; i < countof(host); i++)
        host[i] = (float)i;
    float *mirror = dev_mirror(d, host, sizeof host), *lent = dev_lend(d, host, sizeof host);
    const float *weights = dev_weights(d, host, sizeof host);
    assert_true(mirror && lent && weights);
    dev_get(d, got, mirror, sizeof got); /* nothing was put there */
    assert_true(isnan(got[3]));
    dev_put(d, mirror, host, sizeof host);
    dev_put(d, lent, host, sizeof host);
    dev_add(d, lent, mirror, 1, countof(host));
    dev_mul(d, lent, weights, 1, countof(host));
    dev_get(d, got, lent, sizeof got);
    for (size_t i = 0; i < countof(host); i++)
        assert_float_equal(got[i], 2 * (float)(i * i), 0);
    dev_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strays), cmocka_unit_test(copies)};
    setenv("KVIK_DEVICE", "hidden", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
