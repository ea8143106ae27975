/* test_user_cache.c - the user's cache directory under attack: a home that is not there, directories that are replaced or cannot
 * be written, what killed processes leave, and processes that make, remove and read one entry at the same time. */
#include "base/beside.h"
#include "base/file.h"
#include "base/user_cache.h"
#include "cache_folder.h"
#include "kvik.h"
#include "testing.h"
#include "tok/tok.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static char dir[] = "/tmp/kvik-user-cache-XXXXXX";
static const struct cache_kind kind = {
    .folder = "things", .mark = "thing", .suffix = ".t", .least = 0, .most = 3};

static int setup(void **state)
{
    (void)state;
    cache_fresh(dir, "things", 3);
    return 0;
}

static void make_key(unsigned n, struct cache_key *key)
{
    struct cache_sources s;
    char purpose[32];
    snprintf(purpose, sizeof purpose, "test %u", n);
    cache_sources_begin(&s, purpose);
    cache_sources_end(&s, key);
}

static int begin(unsigned n, struct cache_writer **w)
{
    struct cache_key key;
    make_key(n, &key);
    return cache_write_begin(&kind, &key, 5, w);
}

static void put(unsigned n)
{
    struct cache_writer *w;
    if (begin(n, &w) < 0) fail_msg("%s", err_last());
    assert_int_equal(cache_write(w, "thing", 5), 0);
    if (cache_write_end(w) < 0) fail_msg("%s", err_last());
}

static bool has(unsigned n)
{
    struct cache_key key;
    struct cache_entry e;
    make_key(n, &key);
    if (!cache_find(&kind, &key, &e)) return false;
    assert_int_equal(e.size, 5);
    cache_entry_close(&e);
    return true;
}

/* --- The directory ------------------------------------------------------------------------------ */

/* A home that is not there is not made.  A cache directory that is named is made, as its standard says. */
static void test_home(void **state)
{
    (void)state;
    struct cache_writer *w;
    char home[PATH], deep[PATH];
    char *real = getenv("HOME") ? mem_strdup(getenv("HOME")) : NULL;
    snprintf(home, sizeof home, "%s/nobody/home", dir);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", home, 1);
    assert_int_equal(begin(1, &w), KVIK_IO);
    assert_non_null(strstr(err_last(), home));
    assert_non_null(strstr(err_last(), "HOME"));
    assert_false(has(1));
    snprintf(home, sizeof home, "%s/nobody", dir);
    assert_int_not_equal(access(home, F_OK), 0);
    assert_int_equal(mkdir(home, 0700), 0);
    setenv("HOME", home, 1);
    put(1);
    assert_true(has(1));
    snprintf(deep, sizeof deep, "%s/nobody/.cache/kvik/things", dir);
    assert_int_equal(count_entries(deep, NULL, 0), 1);
    remove_tree(home);
    if (real) setenv("HOME", real, 1);
    mem_free(real);
    snprintf(deep, sizeof deep, "%s/cache/a/b/c", dir);
    setenv("XDG_CACHE_HOME", deep, 1);
    put(1);
    assert_true(has(1));
}

/* Puts another directory, which has entries, in the place of the folder. */
static void replace_folder(char moved[PATH + 8])
{
    snprintf(moved, PATH + 8, "%s-moved", folder);
    assert_int_equal(rename(folder, moved), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int i = 0; i < 5; i++) {
        char name[2 * PATH];
        snprintf(name, sizeof name, "%s/%032d.t", folder, i);
        assert_int_equal(file_write(name, "x", 1), 0);
    }
}

/* A directory that takes the place of the checked one gets no entry and loses none. */
static void test_replaced(void **state)
{
    (void)state;
    struct cache_writer *w;
    char moved[PATH + 8];
    put(1);
    for (int drop = 0; drop < 2; drop++) {
        assert_int_equal(begin(2, &w), 0);
        replace_folder(moved);
        assert_int_equal(cache_write(w, "thing", 5), 0);
        if (drop)
            cache_write_drop(w);
        else if (cache_write_end(w) < 0)
            fail_msg("%s", err_last());
        assert_int_equal(count_entries(folder, NULL, 0), 5);
        assert_int_equal(count_entries(moved, NULL, 0), 2);
        remove_tree(folder);
        assert_int_equal(rename(moved, folder), 0);
        assert_true(has(1));
        assert_true(has(2));
    }
}

/* A link in the place of the folder is not followed. */
static void test_link(void **state)
{
    (void)state;
    struct cache_writer *w;
    char moved[PATH + 8];
    put(1);
    snprintf(moved, sizeof moved, "%s-moved", folder);
    assert_int_equal(rename(folder, moved), 0);
    assert_int_equal(symlink(moved, folder), 0);
    assert_false(has(1));
    assert_int_equal(begin(2, &w), KVIK_IO);
    assert_int_equal(count_entries(moved, NULL, 0), 1);
}

/* Runs a function in a process of its own, as a user without rights, and returns its exit status. */
static int as_nobody(void (*run)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0) _exit(77);
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void read_only(void)
{
    struct cache_writer *w;
    if (!has(1) || begin(2, &w) >= 0 || !strstr(err_last(), "ermission denied")) {
        fprintf(stderr, "%s\n", err_last());
        _exit(1);
    }
}

/* A directory that root has filled is read, and what cannot be written is an error with its cause. */
static void test_read_only(void **state)
{
    (void)state;
    char path[2 * PATH];
    put(1);
    count_entries(folder, path, sizeof path);
    assert_int_equal(chmod(dir, 0755) | chmod(cache_dir, 0755) | chmod(path, 0444), 0);
    snprintf(path, sizeof path, "%s/cache/kvik", dir);
    assert_int_equal(chmod(path, 0755) | chmod(folder, 0555), 0);
    assert_int_equal(as_nobody(read_only), 0);
    chmod(folder, 0700);
}

/* --- What is left ------------------------------------------------------------------------------- */

static void leave(char path[2 * PATH], const char *name, int seconds)
{
    struct timespec t[2];
    snprintf(path, 2 * PATH, "%s/%s", folder, name);
    assert_int_equal(file_write(path, "thing", 5), 0);
    clock_gettime(CLOCK_REALTIME, &t[0]);
    t[0].tv_sec -= seconds;
    t[1] = t[0];
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

/* Temporary files of killed processes are removed; those of living ones, and files of the user, stay. */
static void test_left(void **state)
{
    (void)state;
    static const char hex[] = "00112233445566778899aabbccddeeff";
    char name[PATH], path[4][2 * PATH];
    cache_limits_set(&(struct cache_limits){.most = 100});
    put(1);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, ".%s%d.t" PATH_BESIDE, hex, i);
        leave(path[i], name, i == 1 ? 1 : 3600);
    }
    leave(path[3], ".mine" PATH_BESIDE, 3600);
    int fd = open(path[2], O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    put(2);
    assert_int_not_equal(access(path[0], F_OK), 0);
    assert_int_equal(access(path[1], F_OK), 0); /* written a second ago */
    assert_int_equal(access(path[2], F_OK), 0); /* locked */
    assert_int_equal(access(path[3], F_OK), 0);
    close(fd);
    put(2);
    assert_int_not_equal(access(path[2], F_OK), 0);
}

/* --- Many processes ----------------------------------------------------------------------------- */

static const char model[] = "tests/golden/models/llama-bf16";
static const char tokenizer[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\" \":3},\"merges\":[\"a b\"]},"
    "\"added_tokens\":[{\"id\":4,\"content\":\"<X>\",\"special\":true}]}";

/* Returns a digest of the logits of a few tokens. */
static void digest_model(uint8_t out[DIGEST_BYTES])
{
    static const int32_t ids[] = {5, 9, 3, 77, 12};
    const kvik_model_options o = {.size = sizeof o, .quantize = "q4_0"};
    kvik_cache_config k = {.size = sizeof k, .max_cache_len = 16, .max_sequences = 1, .threads = 1};
    kvik_model *m;
    kvik_cache *c;
    kvik_seq s;
    if (kvik_model_open_with(model, &o, &m) < 0 || kvik_cache_open(m, &k, &c) < 0 ||
        kvik_cache_new(c, &s) < 0) {
        fprintf(stderr, "%s\n", kvik_last_error());
        _exit(1);
    }
    size_t n = kvik_model_vocab(m) * sizeof(float);
    float *row = mem_alloc(n);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = countof(ids)};
    if (kvik_forward(c, &span, 1, false, row) < 0) _exit(1);
    digest_of(row, n, out);
    mem_free(row);
    kvik_cache_close(c);
    kvik_model_close(m);
}

static void check_tokenizer(void)
{
    static const int32_t want[] = {2, 3, 4, 0, 3, 2};
    struct ids v = {0};
    struct tok *t;
    if (tok_open_dir(dir, &t) < 0 || tok_encode(t, "ab <X>a ab", 10, 0, NULL, 0, &v) < 0) {
        fprintf(stderr, "%s\n", err_last());
        _exit(1);
    }
    if (v.n != countof(want) || memcmp(v.id, want, sizeof want) != 0) _exit(2);
    ids_done(&v);
    tok_close(t);
}

/* One process: opens both again and again, and sometimes removes what is kept. */
static void work(unsigned seed, unsigned rounds, const uint8_t want[DIGEST_BYTES])
{
    uint8_t got[DIGEST_BYTES];
    char path[2 * PATH];
    static const char *const name[] = {"weights", "vocabularies"};
    for (unsigned i = 0; i < rounds; i++) {
        digest_model(got);
        if (memcmp(got, want, sizeof got) != 0) _exit(3);
        check_tokenizer();
        seed = seed * 1664525 + 1013904223;
        snprintf(folder, sizeof folder, "%s/cache/kvik/%s", dir, name[seed >> 20 & 1]);
        if (seed >> 21 & 1 && count_entries(folder, path, sizeof path)) unlink(path);
    }
    _exit(0);
}

/* Processes that make, read and remove the same entries, while others are killed in the middle, always have the right ones;
 * afterwards there is one whole entry of each. */
static void test_many(void **state)
{
    (void)state;
    enum { WORKERS = 3, KILLED = 24 };
    const unsigned rounds = getenv("KVIK_TEST_SHORT") ? 6 : 25;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    char path[PATH];
    pid_t pid[WORKERS];
    int status;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(file_write(path, tokenizer, sizeof tokenizer - 1), 0);
    setenv("XDG_CACHE_HOME", "/proc/self", 1);
    digest_model(want);
    setenv("XDG_CACHE_HOME", cache_dir, 1);
    fflush(NULL);
    for (unsigned i = 0; i < WORKERS; i++)
        if (!(pid[i] = fork())) work(i * 7919 + 1, rounds, want);
    for (unsigned i = 0; i < KILLED; i++) {
        pid_t child = fork();
        if (!child) work(i * 104729 + 5, 100, want);
        usleep(1000 + i * i * 40);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    digest_model(got);
    assert_memory_equal(got, want, sizeof got);
    check_tokenizer();
    snprintf(folder, sizeof folder, "%s/cache/kvik/weights", dir);
    assert_int_equal(count_entries(folder, NULL, 0), 1);
    snprintf(folder, sizeof folder, "%s/cache/kvik/vocabularies", dir);
    assert_int_equal(count_entries(folder, NULL, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_home, setup), cmocka_unit_test_setup(test_replaced, setup),
        cmocka_unit_test_setup(test_link, setup), cmocka_unit_test_setup(test_read_only, setup),
        cmocka_unit_test_setup(test_left, setup), cmocka_unit_test_setup(test_many, setup),
    };
    if (!mkdtemp(dir)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_tree(dir);
    return failed;
}
