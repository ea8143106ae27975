/* test_salt.c - prompts share rows only with those of the same cache_salt: in the cache, in every way of decoding, in saved
 * sessions and in a directory of prompts.  The tokens do not depend on it. */
#include "base/base.h"
#include "kvik_loop.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 96, NEW = 4 };
static kvik_model *m;
static int32_t ids[N];

static kvik_cache *open_cache(const char *implementation)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = implementation,
                           .max_cache_len = 256,
                           .threads = 1};
    kvik_cache *c = NULL;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

/* Generates with options as JSON and a salt.  Returns what was reused. */
static uint64_t run(kvik_cache *c, const char *options, const char *salt, int32_t out[NEW],
                    const char **miss)
{
    kvik_generation g;
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = N, .cache_salt = salt};
    kvik_generation_init(&g, m);
    assert_int_equal(kvik_generation_set(&g, options), 0);
    g.max_new_tokens = g.min_new_tokens = NEW;
    if (kvik_generate(c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    uint64_t reused = r->row[0]->reused;
    memcpy(out, r->row[0]->ids + N, NEW * sizeof *out);
    if (miss) *miss = r->row[0]->prefix_miss;
    kvik_result_free(r);
    kvik_generation_done(&g);
    return reused;
}

static void test_apart(void **state)
{
    static const char *const way[] = {"{}",
                                      "{\"do_sample\": true, \"seed\": 7}",
                                      "{\"num_beams\": 3}",
                                      "{\"penalty_alpha\": 0.6, \"top_k\": 4}",
                                      "{\"prompt_lookup_num_tokens\": 3}",
                                      "{\"use_cache\": false}"};
    static const char *const salt[] = {NULL, "ann", "bob", "annbob"};
    (void)state;
    for (size_t i = 0; i < countof(way); i++) {
        kvik_cache *c = open_cache("dynamic");
        int32_t want[NEW], got[NEW];
        for (size_t k = 0; k < countof(salt); k++) {
            const char *miss = NULL;
            assert_int_equal(run(c, way[i], salt[k], k ? got : want, &miss), 0);
            if (k) assert_memory_equal(got, want, sizeof got);
            /* nor is anybody told that others have these tokens */
            if (miss) assert_true(!strstr(miss, "condition") && !strstr(miss, "turns"));
        }
        for (size_t k = 0; i < 2 && k < countof(salt); k++)
            assert_true(run(c, way[i], salt[k], got, NULL) >= N - 16);
        assert_true(i >= 2 || run(c, way[i], "", got, NULL) >= N - 16); /* "" is NULL */
        kvik_cache_close(c);
    }
}

/* Sequences that are still there give their rows to their own salt alone, too. */
static void test_live(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic");
    kvik_generation g;
    kvik_request *q;
    int32_t got[NEW];
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = N, .cache_salt = "ann"};
    kvik_generation_init(&g, m);
    g.max_new_tokens = g.min_new_tokens = 50;
    assert_int_equal(kvik_request_start(c, &g, &p, 1, NULL, &q), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(kvik_request_step(&q, 1), 1);
    assert_int_equal(run(c, "{}", NULL, got, NULL), 0);
    assert_int_equal(run(c, "{}", "bob", got, NULL), 0);
    assert_true(run(c, "{}", "ann", got, NULL) >= N - 16);
    kvik_request_free(q);
    kvik_prompt two[2] = {p, p};
    kvik_result *r;
    two[1].cache_salt = "bob";
    assert_int_equal(kvik_generate(c, &g, two, 2, NULL, &r), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "cache_salt"));
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

/* A splice without chunks gives an empty sequence a salt, in a cache whose chunks cannot move, and changes nothing else. */
static void test_given(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic");
    int32_t got[NEW];
    kvik_seq s;
    kvik_splice how = {.size = sizeof how, .cache_salt = "ann"};
    assert_int_equal(kvik_cache_new(c, &s), 0);
    assert_int_equal(kvik_cache_splice(c, s, NULL, 0, &how), 0);
    assert_int_equal(kvik_cache_length(c, s), 0);
    const kvik_span all = {.size = sizeof all, .seq = s, .ids = ids, .n = N};
    assert_int_equal(kvik_forward(c, &all, 1, false, NULL), 0);
    assert_int_equal(kvik_cache_splice(c, s, NULL, 0, &how), 0); /* it has that salt */
    how.cache_salt = "bob";
    assert_int_equal(kvik_cache_splice(c, s, NULL, 0, &how), KVIK_ARG);
    how.cache_salt = NULL;
    assert_int_equal(kvik_cache_splice(c, s, NULL, 0, &how), KVIK_ARG);
    assert_int_equal(run(c, "{}", NULL, got, NULL), 0);
    assert_int_equal(run(c, "{}", "bob", got, NULL), 0);
    assert_true(run(c, "{}", "ann", got, NULL) >= N - 16);
    kvik_cache_close(c);
}

/* Returns a sequence with the rows of the ids and a salt. */
static kvik_seq sequence(kvik_cache *c, const char *salt)
{
    kvik_generation g;
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = N, .cache_salt = salt};
    kvik_generation_init(&g, m);
    g.max_new_tokens = 1;
    g.return_dict_in_generate = true;
    assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &r), 0);
    kvik_seq s = r->row[0]->seq;
    assert_int_not_equal(s, 0);
    kvik_result_free(r);
    kvik_generation_done(&g);
    return s;
}

static int64_t look(kvik_cache *c, const char *dir, const char *salt)
{
    kvik_seq s;
    int64_t n = kvik_prefix_load_salted(c, dir, ids, N, salt, &s);
    if (n < 0) fail_msg("%s", kvik_last_error());
    if (n > 0) kvik_cache_drop(c, s);
    return n;
}

static void test_directory(void **state)
{
    (void)state;
    char dir[] = "/tmp/kvik-salt-XXXXXX", path[64], line[96];
    kvik_seq s;
    int32_t got[NEW];
    assert_non_null(mkdtemp(dir));
    kvik_cache *c = open_cache("dynamic");
    s = sequence(c, "ann");
    assert_int_equal(kvik_prefix_save(c, dir, s, 0), 0);
    snprintf(path, sizeof path, "%s/a.session", dir);
    assert_int_equal(kvik_cache_save(c, path, &s, 1, NULL), 0);
    kvik_cache_close(c);
    c = open_cache("dynamic");
    assert_int_equal(look(c, dir, NULL), 0);
    assert_int_equal(look(c, dir, "bob"), 0);
    assert_true(look(c, dir, "ann") >= N - 16);
    assert_int_equal(run(c, "{}", NULL, got, NULL), 0); /* the loaded rows are ann's */
    assert_true(run(c, "{}", "ann", got, NULL) >= N - 16);
    s = sequence(c, NULL); /* a second save is not taken for the first */
    assert_int_equal(kvik_prefix_save(c, dir, s, 0), 0);
    kvik_cache_close(c);
    c = open_cache("dynamic");
    assert_true(look(c, dir, NULL) >= N - 16);
    assert_int_equal(look(c, dir, "bob"), 0);
    kvik_cache_close(c);
    c = open_cache("dynamic"); /* a session keeps the salt */
    assert_int_equal(kvik_cache_load(c, path, 1, &s, NULL), 1);
    assert_int_equal(run(c, "{}", "bob", got, NULL), 0);
    assert_true(run(c, "{}", "ann", got, NULL) >= N - 16);
    kvik_cache_close(c);
    snprintf(line, sizeof line, "rm -rf %s", dir);
    assert_int_equal(system(line), 0);
}

int main(void)
{
    if (kvik_model_open("tests/golden/models/llama-mha", &m) < 0) {
        print_error("%s\n", kvik_last_error());
        return 1;
    }
    for (int i = 0; i < N; i++)
        ids[i] = 5 + i * 7 % 50;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_live),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_directory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kvik_model_close(m);
    return failed;
}
