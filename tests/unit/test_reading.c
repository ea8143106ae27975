/* test_reading.c - saved rows that are read beside other work: in parts, with steps of requests between them, with the rows and tokens
 * of the calls that read at once. */
#include "base/base.h"
#include "kvik_loop.h"
#include "kvik_shared.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { N = 224, NEW = 4, PART = 32 };
static kvik_model *m;
static int32_t ids[N + 1];
static char dir[] = "/tmp/kvik-reading-XXXXXX", path[64];

static kvik_cache *open_cache(const char *implementation)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = implementation,
                           .max_cache_len = 512,
                           .threads = 1};
    kvik_cache *c = NULL;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

/* Generates behind the ids.  Returns what was reused; *seq: the text's rows, if that is not NULL. */
static uint64_t run(kvik_cache *c, int32_t out[NEW], kvik_seq *seq)
{
    kvik_generation g;
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = N};
    kvik_generation_init(&g, m);
    g.do_sample = false;
    g.max_new_tokens = g.min_new_tokens = NEW;
    g.return_dict_in_generate = seq != NULL;
    if (kvik_generate(c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    uint64_t reused = r->row[0]->reused;
    memcpy(out, r->row[0]->ids + N, NEW * sizeof *out);
    if (seq) *seq = r->row[0]->seq;
    kvik_result_free(r);
    kvik_generation_done(&g);
    return reused;
}

static kvik_request *start(kvik_cache *c)
{
    static const int32_t other[] = {9, 8, 7, 6};
    kvik_generation g;
    kvik_request *q;
    kvik_prompt p = {.size = sizeof p, .ids = other, .n = countof(other)};
    kvik_generation_init(&g, m);
    g.max_new_tokens = g.min_new_tokens = 200;
    assert_int_equal(kvik_request_start(c, &g, &p, 1, NULL, &q), 0);
    kvik_generation_done(&g);
    return q;
}

/* Takes all, and steps the request between the parts.  Returns the number of parts before the last. */
static int take(kvik_reading *r, kvik_request *q, kvik_seq *seq, char **note)
{
    const struct timespec tick = {.tv_nsec = 1000000};
    int e, parts = 0;
    while ((e = kvik_reading_take(r, PART, seq, note)) > 0) {
        parts += e == 1;
        if (e == 2) nanosleep(&tick, NULL);
        if (e == 1 && q) assert_int_equal(kvik_request_step(&q, 1), 1);
    }
    if (e < 0) fail_msg("%s", kvik_last_error());
    return parts;
}

/* Saves the text in the directory and as a session.  Returns its tokens. */
static void save(const char *implementation, int32_t want[NEW])
{
    kvik_cache *c = open_cache(implementation);
    kvik_seq seq;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s/*", dir);
    assert_int_equal(system(command), 0);
    run(c, want, &seq);
    snprintf(path, sizeof path, "%s/one.session", dir);
    assert_int_equal(kvik_cache_save(c, path, &seq, 1, "a note"), 0);
    assert_int_equal(kvik_prefix_save(c, dir, seq, 0), 0);
    kvik_cache_close(c);
}

static void test_prefix(void **state)
{
    (void)state;
    static const char *const implementations[] = {"dynamic", "static"};
    for (size_t i = 0; i < countof(implementations); i++) {
        int32_t want[NEW], got[NEW];
        kvik_reading *r;
        kvik_seq seq;
        save(implementations[i], want);
        kvik_cache *c = open_cache(implementations[i]);
        kvik_request *q = start(c);
        assert_int_equal(kvik_prefix_read(c, dir, ids, N, NULL, 0, &r), 0);
        int parts = take(r, q, &seq, NULL);
        assert_true(parts >= N / PART - 2 && parts <= N / PART);
        assert_int_equal(kvik_cache_length(c, seq), N);
        assert_int_equal(kvik_cache_drop(c, seq), 0);
        assert_int_equal(kvik_reading_take(r, PART, &seq, NULL), 0); /* once more: nothing */
        assert_int_equal(seq, 0);
        kvik_reading_free(r);
        assert_true(run(c, got, NULL) >= N - 16);
        assert_memory_equal(got, want, sizeof got);
        kvik_request_free(q);
        kvik_cache_close(c);
    }
}

/* What the cache has is not read, and a reading that finds no more gives nothing. */
static void test_have(void **state)
{
    (void)state;
    int32_t want[NEW];
    kvik_reading *r;
    kvik_seq seq = 1;
    save("dynamic", want);
    kvik_cache *c = open_cache("dynamic");
    assert_int_equal(kvik_prefix_read(c, dir, ids, N, NULL, N, &r), 0);
    assert_int_equal(take(r, NULL, &seq, NULL), 0);
    assert_int_equal(seq, 0);
    kvik_reading_free(r);
    assert_int_equal(kvik_prefix_read(c, dir, ids, N, "salt", 0, &r), 0);
    assert_int_equal(take(r, NULL, &seq, NULL), 0);
    assert_int_equal(seq, 0);
    kvik_reading_free(r);
    assert_int_equal(kvik_prefix_read(c, "/nowhere/at/all", ids, N, NULL, 0, &r), 0);
    assert_int_equal(take(r, NULL, &seq, NULL), 0);
    assert_int_equal(seq, 0);
    kvik_reading_free(r);
    kvik_cache_close(c);
}

static void test_session(void **state)
{
    (void)state;
    int32_t want[NEW], got[NEW];
    kvik_reading *r;
    kvik_seq seq;
    char *note = NULL;
    save("dynamic", want);
    kvik_cache *c = open_cache("dynamic");
    kvik_request *q = start(c);
    assert_int_equal(kvik_session_read(c, path, &r), 0);
    assert_true(take(r, q, &seq, &note) >= N / PART - 1);
    assert_string_equal(note, "a note");
    kvik_free(note);
    assert_int_equal(kvik_cache_length(c, seq), N + NEW - 1);
    kvik_cache_drop(c, seq);
    kvik_reading_free(r);
    assert_true(run(c, got, NULL) >= N - 16);
    assert_memory_equal(got, want, sizeof got);
    kvik_request_free(q);
    assert_int_equal(kvik_session_read(c, "/nowhere", &r), 0);
    int e;
    while ((e = kvik_reading_take(r, PART, &seq, NULL)) == 2) {
    }
    assert_int_equal(e, KVIK_NOTFOUND);
    assert_non_null(strstr(kvik_last_error(), "/nowhere"));
    kvik_reading_free(r);
    kvik_cache_close(c);
}

/* A file with damaged rows is a miss, and goes. */
static void test_damage(void **state)
{
    (void)state;
    int32_t want[NEW], got[NEW];
    char command[256];
    kvik_reading *r;
    kvik_seq seq;
    save("dynamic", want);
    snprintf(
        command, sizeof command,
        "f=$(ls %s/*.kvik) && printf 'damaged bytes' | dd of=\"$f\" bs=1 seek=3000 conv=notrunc 2>/dev/null",
        dir);
    assert_int_equal(system(command), 0);
    kvik_cache *c = open_cache("dynamic");
    assert_int_equal(kvik_prefix_read(c, dir, ids, N, NULL, 0, &r), 0);
    assert_int_equal(take(r, NULL, &seq, NULL), 0);
    assert_int_equal(seq, 0);
    kvik_reading_free(r);
    snprintf(command, sizeof command, "test -z \"$(ls %s/*.kvik 2>/dev/null)\"", dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(run(c, got, NULL), 0);
    assert_memory_equal(got, want, sizeof got);
    kvik_cache_close(c);
}

/* Readings end whenever the program wants, in any order with their cache. */
static void test_ends(void **state)
{
    (void)state;
    int32_t want[NEW];
    save("dynamic", want);
    for (int i = 0; i < 20; i++) {
        kvik_cache *c = open_cache("dynamic");
        kvik_reading *r;
        kvik_seq seq;
        assert_int_equal(i % 2 ? kvik_session_read(c, path, &r)
                               : kvik_prefix_read(c, dir, ids, N, NULL, 0, &r),
                         0);
        for (int k = 0; k < i; k++)
            (void)kvik_reading_take(r, PART, &seq, NULL);
        if (i % 3) kvik_cache_close(c);
        kvik_reading_free(r);
        if (i % 3 == 0) kvik_cache_close(c);
    }
}

int main(void)
{
    char command[64];
    if (kvik_model_open("tests/golden/models/llama-bf16-long", &m) < 0 || !mkdtemp(dir)) {
        print_error("%s\n", kvik_last_error());
        return 1;
    }
    for (int i = 0; i < N; i++)
        ids[i] = 5 + (i * 11 + i * i) % 50;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix), cmocka_unit_test(test_have), cmocka_unit_test(test_session),
        cmocka_unit_test(test_damage), cmocka_unit_test(test_ends),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (system(command)) failed++;
    kvik_model_close(m);
    return failed;
}
