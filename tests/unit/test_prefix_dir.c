/* test_prefix_dir.c - a directory of prompts: rows in common stand once on disk, in one process and
 * in several; limits, temporary files of killed processes, files that vanish or rot; kills at every
 * system call of a save. */
#include "base/durable.h"
#include "base/file.h"
#include "kvik.h"
#include "session/session.h"
#include "session/session_file.h"
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#define MODEL "tests/golden/models/llama-mha"
enum { COMMON = 160, TAIL = 20, VOCAB = 1024 };

static char dir[] = "/tmp/kvik-prefix-XXXXXX";
static int32_t ids[4 * COMMON];
static kvik_model *m;
static uint32_t vocab;

static kvik_cache *open_cache(void)
{
    kvik_cache_config k = {.size = sizeof k,
                           .max_cache_len = 2 * COMMON,
                           .max_sequences = 4,
                           .no_prefix_cache = true,
                           .threads = 1};
    kvik_cache *c = NULL;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

/* Fills `out` with COMMON tokens that all prompts have and n tokens of prompt `which` alone. */
static uint32_t prompt(uint32_t which, uint32_t n, int32_t *out)
{
    memcpy(out, ids, COMMON * sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        out[COMMON + i] = (int32_t)(5 + (which * 131 + i * 17) % (vocab - 5));
    return COMMON + n;
}

static void forward(kvik_cache *c, kvik_seq s, const int32_t *t, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = t, .n = n};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

/* Computes n ids and saves them. */
static int keep(kvik_cache *c, const int32_t *t, uint32_t n, uint64_t max)
{
    kvik_seq s;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    forward(c, s, t, n, NULL);
    int e = kvik_prefix_save(c, dir, s, max);
    kvik_cache_drop(c, s);
    return e;
}

static void must_keep(kvik_cache *c, uint32_t which, uint32_t n)
{
    int32_t t[2 * COMMON];
    if (keep(c, t, prompt(which, n, t), 0) < 0) fail_msg("%s", kvik_last_error());
}

/* Returns how many tokens of the prompt the directory has. */
static int64_t find(kvik_cache *c, uint32_t which, uint32_t n)
{
    int32_t t[2 * COMMON];
    kvik_seq s;
    int64_t have = kvik_prefix_load(c, dir, t, prompt(which, n, t), &s);
    if (have < 0) fail_msg("%s", kvik_last_error());
    if (have > 0) kvik_cache_drop(c, s);
    return have;
}

/* Checks that a found prompt continues with the bits of one that is computed. */
static void assert_bits(kvik_cache *c, uint32_t which, uint32_t n)
{
    static float want[VOCAB], got[VOCAB];
    int32_t t[2 * COMMON];
    kvik_seq a, b;
    uint32_t len = prompt(which, n, t);
    assert_int_equal(kvik_prefix_load(c, dir, t, len, &a), len);
    assert_int_equal(kvik_cache_new(c, &b), 0);
    forward(c, b, t, len, NULL);
    forward(c, a, t, 3, got);
    forward(c, b, t, 3, want);
    assert_memory_equal(got, want, vocab * sizeof *got);
    kvik_cache_drop(c, a);
    kvik_cache_drop(c, b);
}

/* Adds up the files of the directory; path: the last one. */
static uint64_t disk(int *files, char path[300])
{
    uint64_t sum = 0;
    struct stat st;
    struct dirent *e;
    DIR *d = opendir(dir);
    *files = 0;
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, 300, "%s/%s", dir, e->d_name);
        assert_int_equal(stat(path, &st), 0);
        sum += (uint64_t)st.st_size;
        ++*files;
    }
    closedir(d);
    return sum;
}

static void clear(void)
{
    int files = 1;
    char path[300];
    while (disk(&files, path), files)
        assert_int_equal(unlink(path), 0);
}

/* Three prompts with most tokens in common: the rows of the common tokens stand once, whether one
 * cache saves all of them or three caches save one each. */
static void test_common_once(void **state)
{
    (void)state;
    char path[300];
    int files;
    for (int caches = 1; caches <= 3; caches += 2) {
        kvik_cache *c[3], *other = open_cache();
        for (int i = 0; i < 3; i++)
            c[i] = i < caches ? open_cache() : c[0];
        must_keep(c[0], 1, TAIL);
        uint64_t one = disk(&files, path);
        assert_int_equal(files, 1);
        must_keep(c[1], 2, TAIL);
        must_keep(c[2], 3, TAIL);
        uint64_t all = disk(&files, path), row = one / (COMMON + TAIL);
        assert_int_equal(files, 1);
        /* two tails of whole blocks, and the manifests, which name every block of every prompt */
        assert_true(all < one + 2 * row * (TAIL + 16) + 6 * 3 * 4096);
        assert_true(all < 2 * one);
        for (uint32_t i = 1; i <= 3; i++)
            assert_bits(other, i, TAIL);
        assert_int_equal(find(other, 9, TAIL), COMMON);
        for (int i = 0; i < caches; i++)
            kvik_cache_close(c[i]);
        kvik_cache_close(other);
        clear();
    }
}

/* A prompt that continues a saved one takes its place; one that a saved prompt begins with is not
 * saved again. */
static void test_longer_and_shorter(void **state)
{
    (void)state;
    char path[300], *json;
    int files;
    kvik_cache *c = open_cache();
    must_keep(c, 1, TAIL);
    must_keep(c, 2, TAIL);
    uint64_t before = disk(&files, path);
    must_keep(c, 1, TAIL - 3);
    must_keep(c, 2, TAIL);
    assert_int_equal(disk(&files, path), before);
    for (uint32_t n = TAIL + 1; n < TAIL + 80; n += 13)
        must_keep(c, 1, n); /* dead bytes pile up until the file is written anew */
    (void)disk(&files, path);
    assert_int_equal(files, 1);
    assert_int_equal(kvik_session_describe(path, &json), 0);
    assert_null(strstr(strstr(json, "\"sequences\""), "\"tokens\":181"));
    kvik_free(json);
    assert_bits(c, 1, TAIL + 79);
    assert_bits(c, 2, TAIL);
    kvik_cache_close(c);
    clear();
}

/* A file that is written anew keeps the other branches, except one whose rows have rotted. */
static void test_written_anew(void **state)
{
    (void)state;
    char path[300], *data;
    int files;
    size_t n;
    kvik_cache *c = open_cache();
    for (int rot = 0; rot < 2; rot++) {
        struct stat st;
        ino_t ino = 0;
        bool anew = false;
        must_keep(c, 1, 4);
        must_keep(c, 2, TAIL);
        (void)disk(&files, path);
        assert_int_equal(file_read(path, 1 << 24, &data, &n), 0);
        struct session_part p = {.at = SESSION_DATA + 99};
        data[p.at] ^= (char)rot;
        int fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, data, n, 0), n);
        close(fd);
        mem_free(data);
        uint32_t last = 0;
        for (uint32_t k = 5; k < 60 && !anew; k++) {
            must_keep(c, 1, last = k);
            (void)disk(&files, path);
            assert_int_equal(stat(path, &st), 0);
            anew = ino && st.st_ino != ino;
            ino = st.st_ino;
        }
        assert_true(anew);
        assert_bits(c, 1, last);
        if (!rot) assert_bits(c, 2, TAIL);
        clear();
    }
    kvik_cache_close(c);
}

/* The least recently used file goes first, and a file is as large as its limit allows. */
static void test_limit(void **state)
{
    (void)state;
    char path[300], gone[300];
    int files;
    int32_t t[2 * COMMON];
    kvik_cache *c = open_cache();
    must_keep(c, 1, TAIL);
    uint64_t one = disk(&files, gone);
    /* Branches go into the file until it has an eighth of the limit or twice the prompt. */
    for (uint32_t i = 2; i < 40; i++)
        assert_int_equal(keep(c, t, prompt(i, TAIL, t), 4 * one), 0);
    assert_true(disk(&files, path) <= 4 * one);
    assert_true(files >= 2);
    assert_int_equal(find(c, 39, TAIL), COMMON + TAIL);
    assert_int_equal(keep(c, t, prompt(50, TAIL, t), 1), 0);
    disk(&files, path);
    assert_int_equal(files, 0);
    kvik_cache_close(c);
    clear();
}

static void put(const char *name, size_t size, char path[300])
{
    char *data = mem_alloc(size);
    memcpy(data, SESSION_MAGIC, 8);
    snprintf(path, 300, "%s/%s", dir, name);
    assert_int_equal(file_write(path, data, size), 0);
    mem_free(data);
}

/* What a killed process left is removed; what another process is writing counts, and stays. */
static void test_temporaries(void **state)
{
    (void)state;
    char left[300], old[300], second[300], busy[300], own[300], path[300];
    int files;
    int32_t t[2 * COMMON];
    kvik_cache *c = open_cache();
    must_keep(c, 1, TAIL);
    uint64_t one = disk(&files, path);
    put("0123456789abcdef0123456789abcdef.kvik.tmp", 1 << 20, old);
    put(".0123456789abcdef0123456789abcdef.kvik.kvik-tmp", 1 << 20, left);
    put(".0123456789abcdef0123456789abcdef.kvik.kvik-tmp2", 1 << 20, second);
    put(".fedcba9876543210fedcba9876543210.kvik.kvik-tmp", 1 << 20, busy);
    put(".letters.kvik.kvik-tmp", 1 << 20, own);
    int fd = open(busy, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(keep(c, ids + COMMON, COMMON, (1 << 20) + 3 * one), 0);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(second, F_OK), -1);
    assert_int_equal(access(busy, F_OK), 0);
    assert_int_equal(access(own, F_OK), 0);
    assert_int_equal(find(c, 1, TAIL), COMMON + TAIL);
    assert_int_equal(keep(c, ids + 2 * COMMON, COMMON, (1 << 20) + one / 2), 0);
    assert_int_equal(find(c, 1, TAIL), 0);
    close(fd);
    assert_int_equal(keep(c, t, prompt(1, TAIL, t), 0), 0);
    assert_int_equal(access(busy, F_OK), -1);
    assert_int_equal(unlink(own), 0);
    kvik_cache_close(c);
    clear();
}

/* A file that has another name, or that a link names, is somebody else's too: it is read and never changed. */
static void test_links(void **state)
{
    (void)state;
    char path[300], mine[300], *was, *is;
    int files;
    size_t n, m_bytes;
    kvik_cache *c = open_cache();
    snprintf(mine, sizeof mine, "%s.mine", dir);
    for (int symbolic = 0; symbolic < 2; symbolic++) {
        must_keep(c, 1, TAIL);
        (void)disk(&files, path);
        assert_int_equal(symbolic ? rename(path, mine) : link(path, mine), 0);
        if (symbolic) assert_int_equal(symlink(mine, path), 0);
        assert_int_equal(file_read(mine, 1 << 24, &was, &n), 0);
        must_keep(c, 2, TAIL);
        assert_int_equal(find(c, 1, TAIL), COMMON + TAIL);
        assert_int_equal(find(c, 2, TAIL), COMMON + TAIL);
        assert_int_equal(file_read(mine, 1 << 24, &is, &m_bytes), 0);
        assert_int_equal(m_bytes, n);
        assert_memory_equal(is, was, n);
        mem_free(was);
        mem_free(is);
        clear();
        assert_int_equal(unlink(mine), 0);
    }
    kvik_cache_close(c);
}

/* Branches of a file that is removed or damaged are misses. */
static void test_lost_base(void **state)
{
    (void)state;
    char path[300], *data;
    int files;
    size_t n;
    kvik_cache *c = open_cache();
    must_keep(c, 1, TAIL);
    must_keep(c, 2, TAIL);
    (void)disk(&files, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(find(c, 2, TAIL), 0);
    must_keep(c, 1, TAIL);
    must_keep(c, 2, TAIL);
    (void)disk(&files, path);
    assert_int_equal(file_read(path, 1 << 24, &data, &n), 0);
    data[SESSION_DATA + 99] ^= 1; /* a row that both have */
    assert_int_equal(file_write(path, data, n), 0);
    mem_free(data);
    assert_int_equal(find(c, 2, TAIL), 0);
    disk(&files, path);
    assert_int_equal(files, 0);
    must_keep(c, 2, TAIL);
    assert_bits(c, 2, TAIL);
    kvik_cache_close(c);
    clear();
}

/* While another process writes the file, a prompt gets a file of its own. */
static void test_busy(void **state)
{
    (void)state;
    char path[300];
    int files;
    kvik_cache *c = open_cache();
    must_keep(c, 1, TAIL);
    (void)disk(&files, path);
    int fd = open(path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    must_keep(c, 2, TAIL);
    (void)disk(&files, path);
    assert_int_equal(files, 2);
    close(fd);
    assert_bits(c, 1, TAIL);
    assert_bits(c, 2, TAIL);
    kvik_cache_close(c);
    clear();
}

/* Forks.  The child takes over the model, which is read-only memory; a program opens it again. */
static pid_t fork_with_model(void)
{
    pid_t pid = fork();
    if (!pid) m->guard.pid = getpid();
    return pid;
}

static pid_t child(uint32_t which, uint64_t die_at)
{
    pid_t pid = fork_with_model();
    if (pid) return pid;
    int32_t t[2 * COMMON];
    kvik_seq s;
    kvik_cache *c = open_cache();
    uint32_t n = prompt(which, TAIL, t);
    if (kvik_cache_new(c, &s) < 0) _exit(2);
    forward(c, s, t, n, NULL);
    struct durable_fault f = {.at = die_at};
    if (die_at) durable_fault_set(&f);
    _exit(kvik_prefix_save(c, dir, s, 0) < 0);
}

/* A process that keeps the lock of the directory delays a save, and does not prevent it. */
static void test_lock_kept(void **state)
{
    (void)state;
    char path[300];
    int files, status;
    int fd = open(dir, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    pid_t pid = fork_with_model();
    if (!pid) {
        alarm(600); /* ends a save that waits for the lock without end */
        int32_t t[2 * COMMON];
        _exit(keep(open_cache(), t, prompt(1, TAIL, t), 0) < 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)disk(&files, path);
    assert_int_equal(files, 1);
    close(fd);
    kvik_cache *c = open_cache();
    assert_bits(c, 1, TAIL);
    kvik_cache_close(c);
    clear();
}

static void test_processes(void **state)
{
    (void)state;
    enum { N = 6 };
    char path[300];
    int files, status;
    pid_t pid[N];
    /* A loaded machine may be slow, and the assertions are about one file. */
    prefix_dir_patience(120);
    int fd = open(dir, O_RDONLY); /* all begin while the directory is empty and locked */
    assert_int_equal(flock(fd, LOCK_EX), 0);
    for (uint32_t i = 0; i < N; i++)
        pid[i] = child(i + 1, 0);
    assert_int_equal(flock(fd, LOCK_UN), 0);
    close(fd);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    kvik_cache *c = open_cache();
    for (uint32_t i = 0; i < N; i++)
        assert_bits(c, i + 1, TAIL);
    (void)disk(&files, path);
    assert_int_equal(files, 1);
    prefix_dir_patience(2);
    kvik_cache_close(c);
    clear();
}

/* A kill at any call of a save loses no prompt that was there, and what it leaves is no hindrance. */
static void test_kills(void **state)
{
    (void)state;
    kvik_cache *c = open_cache();
    int status = 0, files;
    uint64_t at = 0;
    char path[300];
    must_keep(c, 1, TAIL);
    must_keep(c, 2, TAIL);
    do {
        pid_t pid = child(3, ++at);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(find(c, 1, TAIL), COMMON + TAIL);
        assert_int_equal(find(c, 2, TAIL), COMMON + TAIL);
    } while (WIFSIGNALED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(at > 5);
    for (uint32_t i = 1; i <= 3; i++)
        assert_bits(c, i, TAIL);
    (void)disk(&files, path);
    assert_int_equal(files, 1);
    kvik_cache_close(c);
    clear();
}

static void test_check(void **state)
{
    (void)state;
    char path[300];
    kvik_cache *c = open_cache();
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = "quantized",
                           .cache_config = "{\"q_group_size\":8,\"residual_length\":8}",
                           .max_cache_len = 64};
    assert_int_equal(kvik_prefix_check(NULL, dir), 1);
    assert_int_equal(kvik_prefix_check(c, dir), 1);
    snprintf(path, sizeof path, "%s/new", dir);
    assert_int_equal(kvik_prefix_check(c, path), 1);
    assert_int_equal(rmdir(path), 0);
    put("file", 10, path);
    assert_int_equal(kvik_prefix_check(NULL, path), KVIK_IO);
    assert_non_null(strstr(kvik_last_error(), "not a directory"));
    snprintf(path, sizeof path, "%s/new/one", dir); /* with the one above it */
    assert_int_equal(kvik_prefix_check(c, path), 1);
    assert_int_equal(rmdir(path), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof path, "%s/file/such", dir);
    assert_int_equal(kvik_prefix_check(NULL, path), KVIK_IO);
    assert_non_null(strstr(kvik_last_error(), "cannot make"));
    kvik_cache_close(c);
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_prefix_check(c, dir), 0);
    kvik_cache_close(c);
    clear();
}

/* Prompts with long tails of their own are loaded from the directory as wholes.  The rows that they have in common stand
 * once in memory, as on disk, and every prompt continues with its own bits. */
static void test_shared_after_loading(void **state)
{
    (void)state;
    enum { PROMPTS = 3, LONG = 150 };
    static const struct {
        const char *implementation, *config;
    } kind[] = {
        {NULL, NULL}, {"static", NULL}, {NULL, "{\"sliding_window\":64}"}, {"offloaded", NULL}};
    static float want[VOCAB], got[VOCAB];
    for (size_t k = 0; k < countof(kind); k++) {
        kvik_cache_config config = {.size = sizeof config,
                                    .cache_implementation = kind[k].implementation,
                                    .cache_config = kind[k].config,
                                    .max_cache_len = 2 * COMMON,
                                    .max_sequences = 6,
                                    .threads = 1};
        kvik_cache *c, *plain;
        int32_t t[2 * COMMON];
        kvik_seq s[PROMPTS], fresh;
        kvik_usage one = {.size = sizeof one}, all = {.size = sizeof all};
        if (kvik_cache_open(m, &config, &c) < 0) fail_msg("%s", kvik_last_error());
        config.no_prefix_cache = true;
        if (kvik_cache_open(m, &config, &plain) < 0) fail_msg("%s", kvik_last_error());
        for (uint32_t i = 0; i < PROMPTS; i++)
            assert_int_equal(keep(plain, t, prompt(i, LONG, t), 0), 0);
        for (uint32_t i = 0; i < PROMPTS; i++) {
            uint32_t n = prompt(i, LONG, t);
            assert_int_equal(kvik_prefix_load(c, dir, t, n, &s[i]), n);
            if (!i) assert_int_equal(kvik_cache_usage(c, &one), 0);
        }
        assert_int_equal(kvik_cache_usage(c, &all), 0);
        if (!kind[k].config) {
            uint64_t row = (one.live + one.spilled) / (COMMON + LONG);
            /* beside the first prompt two tails in whole blocks */
            assert_true(all.live + all.spilled <
                        one.live + one.spilled + 2 * row * (LONG + 2 * 16));
            assert_true(all.shared > 0);
        }
        for (uint32_t i = 0; i < PROMPTS; i++) {
            uint32_t n = prompt(i, LONG, t);
            assert_int_equal(kvik_cache_new(plain, &fresh), 0);
            forward(plain, fresh, t, n, NULL);
            forward(plain, fresh, t, 3, want);
            forward(c, s[i], t, 3, got);
            assert_memory_equal(got, want, vocab * sizeof *got);
            kvik_cache_drop(plain, fresh);
            if (i == 1) kvik_cache_drop(c, s[0]); /* the others keep what they share */
        }
        kvik_cache_close(c);
        kvik_cache_close(plain);
        clear();
    }
}

/* --- Files of others */

static int notices;

static void on_notice(void *ctx, const char *text)
{
    (void)ctx;
    notices += strstr(text, "is not used") != NULL;
}

static kvik_cache *open_noticing(void)
{
    kvik_cache_config k = {.size = sizeof k,
                           .max_cache_len = 2 * COMMON,
                           .max_sequences = 4,
                           .no_prefix_cache = true,
                           .threads = 1,
                           .on_notice = on_notice};
    kvik_cache *c = NULL;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    notices = 0;
    return c;
}

/* Checks that nothing is found, that one notice is given, and that a save leaves the directory as it is. */
static void assert_passed_over(bool whole_directory)
{
    char path[300];
    int before, after;
    kvik_cache *c = open_noticing();
    (void)disk(&before, path);
    assert_int_equal(find(c, 1, TAIL), 0);
    assert_int_equal(find(c, 1, TAIL), 0);
    assert_int_equal(notices, 1);
    must_keep(c, 2, TAIL);
    assert_int_equal(notices, 1);
    (void)disk(&after, path);
    assert_int_equal(after, before + !whole_directory);
    kvik_cache_close(c);
}

/* A directory or a file that others can write, or that another user owns, is not believed. */
static void test_others(void **state)
{
    (void)state;
    const mode_t open_to[] = {0020, 0002};
    char path[300];
    int files;
    kvik_cache *c = open_noticing();
    for (size_t i = 0; i < countof(open_to); i++) {
        must_keep(c, 1, TAIL);
        (void)disk(&files, path);
        assert_int_equal(chmod(dir, 0700 | open_to[i]), 0);
        assert_passed_over(true);
        assert_int_equal(chmod(dir, 0700), 0);
        assert_int_equal(chmod(path, 0600 | open_to[i]), 0);
        assert_passed_over(false);
        clear();
        must_keep(c, 1, TAIL);
        (void)disk(&files, path);
        assert_int_equal(chmod(path, 0644), 0); /* others may read */
        notices = 0;
        assert_int_equal(find(c, 1, TAIL), COMMON + TAIL);
        assert_int_equal(notices, 0);
        if (geteuid() == 0) {
            assert_int_equal(chown(path, 65534, 65534), 0);
            assert_passed_over(false);
            assert_int_equal(chown(dir, 65534, 65534), 0);
            assert_passed_over(true);
            assert_int_equal(chown(dir, 0, 0), 0);
        }
        clear();
    }
    kvik_cache_close(c);
}

/* A file of another user under the name that a save wants is neither read nor added to. */
static void test_taken_name(void **state)
{
    (void)state;
    char path[300];
    int files;
    kvik_cache *c = open_noticing();
    must_keep(c, 1, TAIL);
    uint64_t before = disk(&files, path);
    assert_int_equal(chmod(path, 0666), 0);
    must_keep(c, 1, TAIL);
    assert_int_equal(disk(&files, path), before);
    assert_int_equal(files, 1);
    kvik_cache_close(c);
    clear();
}

static void test_own_mode(void **state)
{
    (void)state;
    struct stat st;
    char path[300];
    kvik_cache *c = open_noticing();
    mode_t was = umask(0);
    snprintf(path, sizeof path, "%s/new", dir);
    assert_int_equal(kvik_prefix_check(c, path), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    umask(was);
    assert_int_equal(rmdir(path), 0);
    kvik_cache_close(c);
}

/* --- A directory that is swapped after the check --- */

static char swap_in[64], swap_out[64];

static void on_swap(const char *path) /* the first file of a search was opened just now */
{
    (void)path;
    durable_opened = NULL;
    assert_int_equal(rename(dir, swap_out), 0);
    assert_int_equal(rename(swap_in, dir), 0);
}

static void swap_back(void)
{
    assert_null(durable_opened); /* on_swap was called */
    assert_int_equal(rename(dir, swap_in), 0);
    assert_int_equal(rename(swap_out, dir), 0);
}

/* Another directory takes the place of the checked one during a search.  It is open to all and has a file of the found
 * file's name with other rows.  Neither is anything read from it, nor written into it. */
static void test_swapped(void **state)
{
    (void)state;
    char mine[300], theirs[400], path[300];
    struct stat st;
    int files;
    kvik_cache *c = open_cache();
    snprintf(swap_in, sizeof swap_in, "%s-in", dir);
    snprintf(swap_out, sizeof swap_out, "%s-out", dir);
    must_keep(c, 2, TAIL);
    (void)disk(&files, path);
    assert_int_equal(mkdir(swap_in, 0700), 0);
    must_keep(c, 1, TAIL);
    (void)disk(&files, mine);
    assert_int_equal(files, 1);
    clear();
    must_keep(c, 1, 2 * TAIL);
    (void)disk(&files, mine);
    snprintf(theirs, sizeof theirs, "%s%s", swap_in, mine + strlen(dir));
    assert_int_equal(rename(mine, theirs), 0);
    must_keep(c, 2, TAIL);
    (void)disk(&files, path);
    assert_int_equal(rename(path, mine), 0);
    assert_int_equal(chmod(swap_in, 0777), 0);

    durable_opened = on_swap;
    assert_int_equal(find(c, 2, TAIL), COMMON + TAIL);
    swap_back();

    assert_int_equal(stat(theirs, &st), 0);
    const off_t before = st.st_size;
    uint64_t bytes = disk(&files, path);
    durable_opened = on_swap;
    must_keep(c, 3, TAIL);
    assert_int_equal(disk(&files, path), before);
    assert_int_equal(files, 1);
    swap_back();
    assert_true(disk(&files, path) > bytes);
    assert_bits(c, 3, TAIL);

    /* and a removal for room takes place where the files were counted */
    durable_opened = on_swap;
    int32_t t[2 * COMMON];
    assert_int_equal(keep(c, t, prompt(4, TAIL, t), 1), 0);
    assert_int_equal(disk(&files, path), before);
    swap_back();
    (void)disk(&files, path);
    assert_int_equal(files, 0);
    assert_int_equal(unlink(theirs), 0);
    assert_int_equal(rmdir(swap_in), 0);
    kvik_cache_close(c);
    clear();
}

static void on_alarm(int sig)
{
    (void)sig;
}

/* A signal, as of Ctrl-C, ends the wait for another process at once: with patience for an hour. */
static void test_wait_interrupted(void **state)
{
    (void)state;
    int fd = open(dir, O_RDONLY), files;
    char path[300];
    kvik_cache *c = open_noticing();
    assert_int_equal(flock(fd, LOCK_EX), 0);
    prefix_dir_patience(3600);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm, .sa_flags = SA_RESTART}, NULL);
    /* again and again, because the first may come before the wait begins */
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 50000}, {0, 50000}}, NULL);
    must_keep(c, 1, TAIL);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    prefix_dir_patience(2);
    close(fd);
    (void)disk(&files, path);
    assert_int_equal(files, 1);
    kvik_cache_close(c);
    clear();
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir) || kvik_model_open(MODEL, &m) < 0) return -1;
    vocab = kvik_model_vocab(m);
    for (uint32_t i = 0; i < 4 * COMMON; i++)
        ids[i] = (int32_t)(5 + i * 37 % (vocab - 5));
    return vocab <= VOCAB ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    kvik_model_close(m);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common_once),  cmocka_unit_test(test_longer_and_shorter),
        cmocka_unit_test(test_written_anew), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_temporaries),  cmocka_unit_test(test_lost_base),
        cmocka_unit_test(test_links),        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_lock_kept),    cmocka_unit_test(test_processes),
        cmocka_unit_test(test_kills),        cmocka_unit_test(test_check),
        cmocka_unit_test(test_swapped),      cmocka_unit_test(test_shared_after_loading),
        cmocka_unit_test(test_others),       cmocka_unit_test(test_taken_name),
        cmocka_unit_test(test_own_mode),     cmocka_unit_test(test_wait_interrupted)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
