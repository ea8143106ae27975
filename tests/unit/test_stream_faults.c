/* test_stream_faults.c - a whole model whose cache streams from a file, while every system call on
 * that file fails in turn. Either the tokens are those of a resident cache, or there is a clean
 * error and the sequence has its old length. The same call without the fault then gives those
 * tokens. KVIK_TEST_LONG=1 tries every call, otherwise some of each run. */
#include "base/aio.h"
#include "budgets.h"

#include <dirent.h>
#include <errno.h>

enum { TURN = 70, HELD = 4 * TURN, PROMPT = 330, NEW = 4, CONTEXT = 384 };

static kvik_model *m;
static char dir[256]; /* on a disk, empty between runs */
static int32_t prompt[PROMPT];

/* One strategy, with resident rows and streamed. */
struct scene {
    const char *name, *implementation, *config; /* the streamed cache */
    const char *resident, *resident_config;
    uint64_t memory; /* beside metadata */
    const char *on_full;
};
#define QUANTO "{\"backend\":\"quanto\",\"q_group_size\":16,\"residual_length\":32"
static const struct scene scenes[] = {
    {"offloaded", "offloaded", NULL, "dynamic", NULL, 430 << 10, NULL},
    {"static", "offloaded_static", NULL, "dynamic", NULL, 470 << 10, NULL},
    {"quantized", "quantized", QUANTO ",\"offloading\":true}", "quantized", QUANTO "}", 432 << 10,
     NULL},
    {"on_full", "dynamic", NULL, "dynamic", NULL, 430 << 10, "offload"},
};

static uint64_t memory[countof(scenes)]; /* with metadata */

static int count_files(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Returns the configuration of a scene's cache. */
static kvik_cache_config config_of(const struct scene *s, bool resident)
{
    return (kvik_cache_config){
        .size = sizeof(kvik_cache_config),
        .cache_implementation = resident ? s->resident : s->implementation,
        .cache_config = resident ? s->resident_config : s->config,
        .max_cache_len = CONTEXT,
        .max_sequences = 1,
        .step_tokens = 64,
        .threads = 1,
        .on_full = resident ? NULL : s->on_full,
        .spill_dir = dir,
    };
}

static int open_cache(const struct scene *s, bool resident, kvik_cache **out)
{
    kvik_cache_config config = config_of(s, resident);
    if (!resident) config.cache_memory = memory[s - scenes];
    return kvik_cache_open(m, &config, out);
}

/* Gives the sequence the whole prompt, a part of which it holds, and returns the tokens that
 * follow. */
static int go_on(kvik_cache *c, kvik_seq seq, int32_t *new)
{
    kvik_generation g;
    kvik_result *r = NULL;
    kvik_prompt p = {.size = sizeof p, .ids = prompt, .n = PROMPT, .seq = seq};
    kvik_generation_init(&g, NULL);
    g.max_new_tokens = NEW;
    int e = kvik_generate(c, &g, &p, 1, NULL, &r);
    if (e >= 0) {
        assert_int_equal(r->row[0]->n, PROMPT + NEW);
        memcpy(new, r->row[0]->ids + PROMPT, NEW * sizeof *new);
    }
    kvik_result_free(r);
    kvik_generation_done(&g);
    return e;
}

/* Checks that the error is one of the file and comes with a message. */
static void assert_clean(int e)
{
    assert_int_equal(e, KVIK_IO);
    assert_true(strlen(kvik_last_error()) > 10);
}

struct outcome {
    int errors;
    uint64_t calls, spilled, read;
};

/* Opens, caches a part of the prompt and continues; the fault may hit anywhere. */
static void run(const struct scene *s, const struct aio_fault *fault, const int32_t *want,
                struct outcome *out)
{
    kvik_cache *c = NULL;
    kvik_seq seq;
    kvik_usage u = {.size = sizeof u};
    int32_t new[NEW];
    int e;
    aio_fault_set(fault);
    if ((e = open_cache(s, false, &c)) < 0) {
        assert_clean(e);
        out->errors++;
        aio_fault_set(NULL);
        if (open_cache(s, false, &c) < 0) fail_msg("%s", kvik_last_error());
    }
    assert_int_equal(kvik_cache_new(c, &seq), 0);
    for (uint32_t at = 0; at < HELD; at += TURN) {
        kvik_span span = {.size = sizeof span, .seq = seq, .ids = prompt + at, .n = TURN};
        if ((e = kvik_forward(c, &span, 1, false, NULL)) < 0) {
            assert_clean(e);
            out->errors++;
            aio_fault_set(NULL);
            assert_int_equal(kvik_cache_length(c, seq), at);
            if (kvik_forward(c, &span, 1, false, NULL) < 0) fail_msg("%s", kvik_last_error());
        }
    }
    assert_int_equal(kvik_cache_length(c, seq), HELD);
    if ((e = go_on(c, seq, new)) < 0) {
        assert_clean(e);
        out->errors++;
        aio_fault_set(NULL);
        assert_true(kvik_cache_length(c, seq) >= HELD);
        if (go_on(c, seq, new) < 0) fail_msg("%s", kvik_last_error());
    }
    assert_memory_equal(new, want, sizeof new);
    out->calls = aio_fault_calls();
    aio_fault_set(NULL);
    kvik_cache_usage(c, &u);
    out->spilled = u.spilled;
    out->read = u.tier_read;
    /* Once more, from the tokens cached by now. */
    memset(new, 0, sizeof new);
    if (go_on(c, seq, new) < 0) fail_msg("%s", kvik_last_error());
    assert_memory_equal(new, want, sizeof new);
    kvik_cache_drop(c, seq);
    kv_forget(c->x->kv); /* kept prefixes may be in the tier */
    kvik_cache_usage(c, &u);
    assert_int_equal(u.tokens, 0);
    assert_int_equal(u.spilled, 0);
    kvik_cache_close(c);
}

/* Lets every call of some kinds, or some of every call, fail with an error. Returns the number of
 * errors that reached the caller. */
static int fail_each(const struct scene *s, uint32_t kinds, int error, bool stays,
                     const int32_t *want)
{
    struct outcome o = {0};
    run(s, &(struct aio_fault){.kinds = kinds}, want, &o);
    uint64_t some = MAX(8 / test_share(), 1);
    uint64_t step = getenv("KVIK_TEST_LONG") ? 1 : MAX(o.calls / some, 1);
    for (uint64_t at = 1; at <= o.calls; at += at < 4 ? 1 : step) {
        struct aio_fault f = {.at = at, .kinds = kinds, .error = error, .every = stays};
        struct outcome one = {0};
        run(s, &f, want, &one);
        o.errors += one.errors;
    }
    return o.errors;
}

static void check_scene(const struct scene *s, const char *backend)
{
    const uint32_t ring = 1u << AIO_SUBMIT | 1u << AIO_WAIT, file = ~ring;
    int32_t want[NEW];
    kvik_cache *c = NULL;
    kvik_seq seq;
    struct outcome o = {0};
    if (open_cache(s, true, &c) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_cache_new(c, &seq), 0);
    for (uint32_t at = 0; at < HELD; at += TURN) {
        kvik_span span = {.size = sizeof span, .seq = seq, .ids = prompt + at, .n = TURN};
        assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    }
    assert_int_equal(go_on(c, seq, want), 0);
    kvik_cache_close(c);

    setenv("KVIK_AIO", backend, 1);
    memory[s - scenes] = budget_for(m, config_of(s, false), s->memory, 1, PROMPT + NEW);
    int fds = count_files("/proc/self/fd"), files = count_files(dir);
    /* The shortest form (TSan) tries so few calls that their errors may all be made good by a second try. */
    int least = test_share() > 4 ? 0 : test_share() > 1 ? 1 : 3;
    run(s, &(struct aio_fault){0}, want, &o);
    printf("%s over %s: %llu calls, %llu bytes spilled, %llu read\n", s->name, backend,
           (unsigned long long)o.calls, (unsigned long long)o.spilled, (unsigned long long)o.read);
    assert_true(o.spilled > 0);
    assert_true(o.read > 0);
    assert_int_equal(fail_each(s, file, 0, false, want), 0); /* transfers are short */
    assert_int_equal(fail_each(s, 0, EINTR, false, want), 0);
    assert_int_equal(fail_each(s, ring, EIO, false, want), 0);
    assert_true(fail_each(s, file, EIO, false, want) >= least);
    assert_true(fail_each(s, file, ENOSPC, false, want) >= least);
    assert_true(fail_each(s, file, EIO, true, want) >=
                least); /* all calls fail from there on, until one is noticed */
    assert_int_equal(count_files("/proc/self/fd"), fds);
    assert_int_equal(count_files(dir), files);
    unsetenv("KVIK_AIO");
}

static void over_threads(void **state)
{
    check_scene(*state, "threads");
}

static void over_uring(void **state)
{
    struct aio *a = NULL;
    if (aio_open(-1, "uring", &a) < 0) {
        fprintf(stderr, "skipped: %s\n", err_last());
        skip();
    }
    aio_close(a);
    check_scene(*state, "uring");
}

int main(void)
{
    const char *base = getenv("KVIK_TEST_DIR");
    uint64_t seed = 7;
    setenv("KVIK_SPILL_MAP", "0", 1); /* so that every read is a transfer, which can fail */
    snprintf(dir, sizeof dir, "%s/kvik-test-faults-XXXXXX", base ? base : "/var/tmp");
    if (!mkdtemp(dir)) {
        perror(dir);
        return 1;
    }
    if (kvik_model_open("tests/golden/models/llama-mha", &m) < 0) {
        fprintf(stderr, "%s\n", kvik_last_error());
        return 1;
    }
    for (int i = 0; i < PROMPT; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        prompt[i] = (int32_t)(3 + (seed >> 33) % 380);
    }
    struct CMUnitTest tests[2 * countof(scenes)];
    for (size_t i = 0; i < countof(scenes); i++) {
        void *scene = (void *)(uintptr_t)&scenes[i];
        tests[2 * i] = (struct CMUnitTest){scenes[i].name, over_threads, NULL, NULL, scene};
        tests[2 * i + 1] = (struct CMUnitTest){scenes[i].name, over_uring, NULL, NULL, scene};
    }
    int failed = cmocka_run_group_tests_name("stream_faults", tests, NULL, NULL);
    kvik_model_close(m);
    rmdir(dir);
    return failed;
}
