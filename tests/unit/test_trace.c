/* test_trace.c - the trace of a cache whose pages are in a file: valid events in Chrome's format, reads of the next layer
 * that begin before the layer before it ends, a fixed number of events, nothing without a beginning, recordings that begin
 * and end while other threads compute, and a forked process, which records nothing. */
#include "base/file.h"
#include "base/json.h"
#include "base/trace.h"
#include "kvik.h"
#include "testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "tests/golden/models/llama-mha"
enum { PROMPT = 600, TOKENS = 4, LAYERS = 64 };

static char file[] = "/tmp/kvik-trace-XXXXXX";
static kvik_model *m;

static void forward(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t n)
{
    int32_t ids[PROMPT];
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(5 + (from + i) * 37 % (kvik_model_vocab(m) - 5));
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    if (kvik_forward(c, &span, 1, false, NULL) < 0) fail_msg("%s", kvik_last_error());
}

/* Decodes with most rows on disk and returns the trace. */
static json_t *traced(const char *map)
{
    kvik_cache_config k = {.size = sizeof k,
                           .max_cache_len = PROMPT + TOKENS,
                           .step_tokens = 16,
                           .max_sequences = 1,
                           .threads = 1,
                           .no_prefix_cache = true};
    kvik_usage u = {.size = sizeof u};
    kvik_cache *c;
    kvik_seq s;
    json_t *out;
    setenv("KVIK_SPILL_MAP", map, 1);
    assert_int_equal(kvik_cache_open(m, &k, &c), 0);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    forward(c, s, 0, PROMPT);
    kvik_cache_usage(c, &u);
    kvik_cache_close(c);
    k.cache_implementation = "offloaded";
    k.cache_memory = u.live / 3 + 2 * u.metadata;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_cache_new(c, &s), 0);
    forward(c, s, 0, PROMPT);
    assert_int_equal(trace_begin(), 0);
    assert_int_equal(trace_begin(), ERR_BUSY);
    for (uint32_t i = 0; i < TOKENS; i++)
        forward(c, s, PROMPT + i, 1);
    assert_int_equal(trace_end(file), 0);
    kvik_cache_usage(c, &u);
    assert_true(u.spilled > 0);
    kvik_cache_close(c);
    if (json_read(file, 64 << 20, &out) < 0) fail_msg("%s", err_last());
    unsetenv("KVIK_SPILL_MAP");
    return out;
}

static double number(const json_t *e, const char *key)
{
    assert_true(json_is_number(json_object_get(e, key)));
    return json_number_value(json_object_get(e, key));
}

/* Counts the events of a name, and checks that all have what the format asks for. */
static uint32_t count(const json_t *trace, const char *name)
{
    const json_t *all = json_object_get(trace, "traceEvents"), *e;
    uint32_t n = 0;
    size_t i;
    json_array_foreach(all, i, e)
    {
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0) continue;
        assert_true(number(e, "ts") >= 0 && number(e, "dur") >= 0 && number(e, "tid") >= 1);
        n += strcmp(json_string_value(json_object_get(e, "name")), name) == 0;
    }
    return n;
}

/* Reads by copies: of all layers but the first, the first read of a step begins before the layer before it ends. */
static void test_overlap(void **state)
{
    (void)state;
    json_t *trace = traced("0");
    const json_t *all = json_object_get(trace, "traceEvents"), *e;
    double fetched[LAYERS];
    uint32_t overlaps = 0, layers = 0;
    size_t i;
    for (uint32_t k = 0; k < LAYERS; k++)
        fetched[k] = -1;
    assert_int_equal(count(trace, "forward"), TOKENS);
    assert_true(count(trace, "fetch") > TOKENS && count(trace, "wait") > TOKENS);
    json_array_foreach(all, i, e)
    {
        const json_t *layer = json_object_get(json_object_get(e, "args"), "layer");
        const char *name = json_string_value(json_object_get(e, "name"));
        uint32_t l = (uint32_t)json_integer_value(layer);
        assert_true(l < LAYERS);
        if (strcmp(name, "fetch") == 0 && fetched[l] < 0) fetched[l] = number(e, "ts");
    }
    /* a layer's event is recorded when it ends; the fetch of the next one when that was waited for */
    json_array_foreach(all, i, e)
    {
        if (strcmp(json_string_value(json_object_get(e, "name")), "layer") != 0) continue;
        uint32_t l =
            (uint32_t)json_integer_value(json_object_get(json_object_get(e, "args"), "layer"));
        if (l + 1 >= LAYERS || fetched[l + 1] < 0 || layers > l) continue;
        layers++;
        overlaps += fetched[l + 1] < number(e, "ts") + number(e, "dur");
    }
    assert_true(layers >= 1);
    assert_int_equal(overlaps, layers);
    json_decref(trace);
}

/* Read in place, nothing is fetched. */
static void test_in_place(void **state)
{
    (void)state;
    json_t *trace = traced("1");
    assert_int_equal(count(trace, "forward"), TOKENS);
    assert_true(count(trace, "layer") >= 2 * TOKENS);
    if (!count(trace, "fetch")) assert_true(count(trace, "in place") >= 2 * TOKENS);
    json_decref(trace);
}

/* Without a beginning nothing is recorded; with many events the newest stay, and the file says how many do not. */
static void test_bounds(void **state)
{
    (void)state;
    json_t *trace;
    trace_add(TRACE_WAIT, "early", trace_now(), 1, 0);
    assert_int_equal(trace_end(NULL), 0);
    assert_int_equal(trace_begin(), 0);
    for (uint32_t i = 0; i < 100000; i++)
        trace_add(TRACE_WAIT, i < 50000 ? "old" : "new", trace_now(), i, i);
    assert_int_equal(trace_end(file), 0);
    assert_int_equal(json_read(file, 64 << 20, &trace), 0);
    assert_int_equal(number(trace, "lost"), 100000 - 65536);
    assert_int_equal(count(trace, "new"), 50000);
    assert_int_equal(count(trace, "old"), 15536);
    json_decref(trace);
    assert_int_equal(trace_begin(), 0);
    assert_int_equal(trace_end("/tmp/kvik-no-such-directory/trace.json"), ERR_IO);
}

static kvik_cache *small_cache(kvik_seq *s)
{
    const kvik_cache_config k = {
        .size = sizeof k, .max_cache_len = PROMPT, .max_sequences = 1, .threads = 1};
    kvik_cache *c;
    if (kvik_cache_open(m, &k, &c) < 0 || kvik_cache_new(c, s) < 0)
        fail_msg("%s", kvik_last_error());
    return c;
}

static atomic_bool stop;
static atomic_uint steps;

static void *computes(void *unused)
{
    kvik_seq s;
    kvik_cache *c = small_cache(&s);
    for (uint32_t at = 0; !atomic_load(&stop); at = (at + 1) % (PROMPT - 1)) {
        if (!at) assert_int_equal(kvik_cache_crop(c, s, 0), 0);
        forward(c, s, at, 1);
        atomic_fetch_add(&steps, 1);
    }
    kvik_cache_close(c);
    return unused;
}

/* Recordings begin and end while two threads compute.  Each has steps of its own time alone. */
static void test_threads(void **state)
{
    (void)state;
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, computes, NULL), 0);
    for (int round = 0; round < 20; round++) {
        json_t *trace;
        assert_int_equal(kvik_trace_begin(), 0);
        assert_int_equal(kvik_trace_begin(), KVIK_BUSY);
        for (uint32_t from = atomic_load(&steps); atomic_load(&steps) - from < 6;)
            sched_yield();
        assert_int_equal(kvik_trace_end(round % 7 ? NULL : file), 0);
        if (round % 7) continue;
        assert_int_equal(json_read(file, 64 << 20, &trace), 0);
        assert_true(count(trace, "forward") >= 2 && count(trace, "layer") >= 2);
        assert_int_equal(number(trace, "lost"), 0);
        json_decref(trace);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(kvik_trace_end(NULL), 0);
    assert_int_equal(kvik_trace_end(file), KVIK_ARG);
}

/* A forked process cannot begin or end, and what its caches do is in no recording. */
static void test_fork(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__ /* the thread sanitizer ends a child that starts threads */
    skip();
#endif
    kvik_seq s;
    json_t *trace;
    int status;
    assert_int_equal(kvik_trace_begin(), 0);
    kvik_cache *c = small_cache(&s);
    forward(c, s, 0, 1);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        kvik_seq own;
        if (kvik_model_open(MODEL, &m) < 0) _exit(2); /* the parent's cannot compute here */
        kvik_cache *mine = small_cache(&own);
        forward(mine, own, 0, 1);
        _exit(kvik_trace_begin() != KVIK_BUSY || kvik_trace_end(file) != KVIK_BUSY);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    forward(c, s, 1, 1);
    assert_int_equal(kvik_trace_end(file), 0);
    assert_int_equal(json_read(file, 64 << 20, &trace), 0);
    assert_int_equal(count(trace, "forward"), 2);
    json_decref(trace);
    kvik_cache_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap), cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_threads), cmocka_unit_test(test_fork)};
    int fd = mkstemp(file);
    if (fd < 0 || kvik_model_open(MODEL, &m) < 0) return 1;
    close(fd);
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    kvik_model_close(m);
    unlink(file);
    return e;
}
