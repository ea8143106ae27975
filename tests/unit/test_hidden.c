/* test_hidden.c - the device of tests/hidden finds what it is there to find: a host that reads memory of the device, an
 * operation that is given memory of the host, an array that is read before it was put there.  And stores keep to what a device
 * with memory of its own needs: they give all of it back, in its own pages, and copies of tiers are under way while operations
 * run.  test_hidden_cache.c is about caches of a model; run-tests.sh runs golden cases on the device. */
#include "../hidden/hidden.h"
#include "dev/dev.h"
#include "kv/rows.h"
#include "kvik_compat.h"
#include "small_store.h"
#include "testing.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

static float host[16];

static void read_memory(struct dev_queue *d)
{
    const volatile float *x = dev_alloc(d, sizeof host);
    if (x) host[0] = x[0];
}

static void write_memory(struct dev_queue *d)
{
    volatile float *x = dev_alloc(d, sizeof host);
    if (x) x[0] = 1;
}

static void pass_host(struct dev_queue *d)
{
    dev_scale(d, host, 2, 1, countof(host));
}

static void pass_neighbour(struct dev_queue *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x) dev_scale(d, x, 2, 1 << 20, countof(host));
}

static void pass_more(struct dev_queue *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x && dev_alloc(d, sizeof host)) dev_scale(d, x, 2, 2, countof(host));
}

static void pass_closed(struct dev_queue *d)
{
    float *x = dev_mirror(d, host, sizeof host);
    dev_mirror_close(d, x, sizeof host);
    if (x) dev_scale(d, x, 2, 1, countof(host));
}

static void pick_none(struct dev_queue *d)
{
    float *x = dev_alloc(d, sizeof host), *out = dev_alloc(d, sizeof host);
    const uint32_t id = countof(host) / 4;
    uint32_t *at = dev_alloc(d, sizeof id);
    if (!x || !out || !at) return;
    dev_put(d, at, &id, sizeof id);
    dev_rows(d, x, at, 1, 4, out);
}

static void put_itself(struct dev_queue *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x) dev_put(d, x, x, sizeof host);
}

static void get_itself(struct dev_queue *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x) dev_get(d, x, x, sizeof host);
}

static void proper(struct dev_queue *d)
{
    float *x = dev_alloc(d, sizeof host);
    if (x) dev_scale(d, x, 2, 1, countof(host));
}

static struct dev *open_queue(struct dev_queue **d)
{
    struct dev *dev;
    if (dev_open(NULL, &dev) < 0 ||
        dev_queue_open(dev, &(struct dev_config){.n_threads = 1}, d) < 0)
        _exit(1);
    return dev;
}

static void close_queue(struct dev *dev, struct dev_queue *d)
{
    dev_queue_close(d);
    dev_close(dev);
}

/* True if a process of its own comes to the end of `use`. */
static bool survives(void (*use)(struct dev_queue *d))
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct dev_queue *d;
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler would go on with the next test */
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        open_queue(&d);
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
    struct dev_queue *d;
    float got[countof(host)];
    struct dev *dev = open_queue(&d);
    for (size_t i = 0; i < countof(host); i++)
        host[i] = (float)i;
    float *mirror = dev_mirror(d, host, sizeof host), *lent = dev_lend(d, host, sizeof host);
    const float *weights = dev_weights(dev, host, sizeof host);
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
    close_queue(dev, d);
    assert_int_equal(hidden_bytes(), 0);
}

/* A cache without a model opens its stores anew after a reset, on the same device. */
static void reset(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its three tiers have more addresses than the thread sanitizer lends */
#endif
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
    c.dev = open_queue(&c.queue);
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
    close_queue(c.dev, c.queue);
}

/* A block has one and a quarter pages of the device at each of two sites, so blocks share pages. */
enum { HEADS = 8, DIM = 20, WIDTH = HEADS * DIM, ROWS = 2400, BYTES = 16 * WIDTH * 2 * 4 };

static float value(uint32_t site, uint32_t plane, uint32_t row, uint32_t i, uint32_t tag)
{
    return (float)((tag * 2 + site) * 2 + plane) + (float)(row * WIDTH + i) / (ROWS * WIDTH);
}

/* Appends n rows. */
static int append_there(struct kv *kv, struct dev_queue *d, kv_seq s, uint32_t n, uint32_t tag)
{
    static float x[64 * WIDTH];
    struct kv_span span = {.seq = s, .n = n};
    struct kv_step *st;
    struct kv_view v;
    uint32_t len = kv_len(kv, s);
    TRY(kv_begin(kv, &span, 1, &st));
    for (uint32_t site = 0; site < 2; site++)
        while (kv_next(st, site, &v) > 0)
            for (uint32_t plane = 0; v.first && plane < 2; plane++) {
                for (uint32_t i = 0; i < n * WIDTH; i++)
                    x[i] = value(site, plane, len + i / WIDTH, i % WIDTH, tag);
                float *at = dev_lend(d, x, n * WIDTH * sizeof *x);
                assert_non_null(at);
                dev_put(d, at, x, n * WIDTH * sizeof *x);
                dev_kv_write(d, &v, plane, at, WIDTH);
            }
    return kv_commit(st, NULL);
}

static void check_rows(struct kv *kv, const struct kv_group *g, kv_seq s, uint32_t tag)
{
    static float k[ROWS * WIDTH], v[ROWS * WIDTH];
    struct rows_reader r;
    uint32_t len = kv_len(kv, s);
    assert_int_equal(rows_open(kv, s, &r), 0);
    for (uint32_t site = 0; site < 2; site++) {
        assert_int_equal(rows_site(&r, g, site, k, v), 0);
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t i = 0; i < len * DIM; i++) {
                size_t at = (size_t)h * len * DIM + i;
                assert_true(k[at] == value(site, 0, i / DIM, h * DIM + i % DIM, tag));
                assert_true(v[at] == value(site, 1, i / DIM, h * DIM + i % DIM, tag));
            }
    }
    assert_int_equal(rows_close(&r), 0);
}

/* Rows that do not fit the budget leave for a tier.  Their memory is given back to the device, in its own pages, and asked for
 * again when other rows take it; copies are under way while operations run; and no row is lost. */
static void pages(void **state)
{
    (void)state;
    struct kv_group g = {.policy = {.kind = KV_ROWS},
                         .n_sites = 2,
                         .rows = 16,
                         .n_planes = 2,
                         .plane = {{"k", {HEADS, DIM, DT_F32, KV_STRIPS}, NULL},
                                   {"v", {HEADS, DIM, DT_F32, KV_ROWMAJOR}, NULL}},
                         .stream = true};
    struct kv_config c = {.group = &g,
                          .n_groups = 1,
                          .max_seqs = 2,
                          .max_tokens = 64,
                          .max_len = ROWS + 16,
                          .streaming = KV_STREAM};
    struct kv *kv;
    c.dev = open_queue(&c.queue);
    c.pool_bytes = kv_pool_bytes(&c, 40 * 2 * BYTES);
    assert_int_equal(kv_tier_memory_open(c.queue, (size_t)1 << 36, &c.tier), 0);
    assert_int_equal(kv_open(&kv, &c), 0);
    uint64_t beside = hidden_beside();
    for (uint32_t tag = 0; tag < 3; tag++) {
        kv_seq s;
        size_t back = hidden_given_back();
        assert_int_equal(kv_new(kv, NULL, &s), 0);
        for (uint32_t n = 0; n < ROWS; n += 48) {
            assert_int_equal(append_there(kv, c.queue, s, 48, tag), 0);
            /* runs that are in use in part, at two sites */
            assert_true(hidden_range_bytes() <= c.pool_bytes + (size_t)2 * 2 * 16 * BYTES);
        }
        assert_true(hidden_given_back() > back && hidden_pinned() > 0);
        check_rows(kv, &g, s, tag);
        assert_true(kv_check(kv));
        assert_int_equal(kv_drop(kv, s), 0);
    }
    assert_true(hidden_beside() > beside);
    kv_close(kv);
    assert_int_equal(hidden_range_bytes(), 0);
    assert_int_equal(hidden_pinned(), 0);
    close_queue(c.dev, c.queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strays), cmocka_unit_test(copies),
                                       cmocka_unit_test(reset), cmocka_unit_test(frozen),
                                       cmocka_unit_test(pages)};
    setenv("KVIK_DEVICE", "hidden", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
