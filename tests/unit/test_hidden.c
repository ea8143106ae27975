/* test_hidden.c - the device of tests/hidden finds what it is there to find: a host that reads memory of the device, an
 * operation that is given memory of the host, an array that is read before it was put there.  And stores that close give all of
 * its memory back.  run-tests.sh runs golden cases on it. */
#include "../hidden/hidden.h"
#include "dev/dev.h"
#include "kvik_compat.h"
#include "small_store.h"
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

static void pass_more(struct dev *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x && dev_alloc(d, sizeof host)) dev_scale(d, x, 2, 2, countof(host));
}

static void pass_closed(struct dev *d)
{
    float *x = dev_mirror(d, host, sizeof host);
    dev_mirror_close(d, x, sizeof host);
    if (x) dev_scale(d, x, 2, 1, countof(host));
}

static void pick_none(struct dev *d)
{
    float *x = dev_alloc(d, sizeof host), *out = dev_alloc(d, sizeof host);
    const uint32_t id = countof(host) / 4;
    uint32_t *at = dev_alloc(d, sizeof id);
    if (!x || !out || !at) return;
    dev_put(d, at, &id, sizeof id);
    dev_rows(d, x, at, 1, 4, out);
}

static void put_itself(struct dev *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x) dev_put(d, x, x, sizeof host);
}

static void get_itself(struct dev *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x) dev_get(d, x, x, sizeof host);
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
    assert_false(survives(pass_more));
    assert_false(survives(pass_closed));
    assert_false(survives(pick_none));
    assert_false(survives(put_itself));
    assert_false(survives(get_itself));
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

/* A cache without a model opens its stores anew after a reset, on the same device. */
static void reset(void **state)
{
    (void)state;
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = "offloaded",
                                .cache_config = "{\"backend\": \"shuffle\"}"};
    kvik_shape s = {.size = sizeof s, .batch = 2, .heads = 1, .n = 40, .dim_k = 16, .dim_v = 16};
    static float x[2 * 40 * 16];
    kvik_layers *c;
    size_t first = 0;
    assert_int_equal(kvik_layers_open(&config, 2, NULL, &c), 0);
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t layer = 0; layer < 2; layer++) {
            kvik_rows rows = {.size = sizeof rows};
            assert_int_equal(kvik_layers_update(c, layer, x, x, &s, &rows), 0);
            assert_int_equal(rows.rows, 40);
        }
        if (!i) first = hidden_bytes();
        assert_int_equal(hidden_bytes(), first);
        assert_int_equal(kvik_layers_reset(c), 0);
        assert_true(hidden_bytes() < first);
    }
    kvik_layers_close(c);
    assert_int_equal(hidden_bytes(), 0);
}

/* Frozen rows may be written behind others, and together the two are longer than a table. */
static void frozen(void **state)
{
    (void)state;
    struct kv_group g[2] = {rows_group(0, 0, 1), rows_group(0, 1, 1)};
    g[1].policy.kind = KV_FROZEN;
    struct kv_config c = {
        .group = g, .n_groups = 2, .max_seqs = 1, .max_tokens = 256, .max_len = 256};
    struct kv_span rows = {.n = 200}, cross = {.n = 256, .cross = true};
    struct kv_step *st;
    struct kv *kv;
    assert_int_equal(dev_open(&(struct dev_config){.n_threads = 1}, &c.dev), 0);
    c.pool_bytes = kv_pool_bytes(&c, 100 * BLOCK);
    assert_int_equal(kv_open(&kv, &c), 0);
    assert_int_equal(kv_new(kv, NULL, &rows.seq), 0);
    cross.seq = rows.seq;
    assert_int_equal(kv_begin(kv, &rows, 1, &st), 0);
    assert_int_equal(kv_commit(st, NULL), 0);
    assert_int_equal(kv_begin(kv, &cross, 1, &st), 0);
    assert_int_equal(kv_commit(st, NULL), 0);
    assert_int_equal(kv_cross(kv, rows.seq), 256);
    kv_close(kv);
    dev_close(c.dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strays), cmocka_unit_test(copies),
                                       cmocka_unit_test(reset), cmocka_unit_test(frozen)};
    setenv("KVIK_DEVICE", "hidden", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
