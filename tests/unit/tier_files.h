/* tier_files.h - the file tier in a directory of the test, for the tests of tiers. */
#pragma once
#include "base/aio.h"
#include "kv/tier.h"
#include "testing.h"

#include <dirent.h>

static char dir[256]; /* a directory on a disk, empty, removed at the end */

static uint64_t seed = 1;
static inline uint32_t rnd(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}
static inline void fill(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)rnd(256);
}

static inline struct kv_tier *open_or_skip(const char *backend)
{
    struct kv_tier *t = NULL;
    bool memory = strcmp(backend, "memory") == 0;
    int e = memory ? kv_tier_memory_open(NULL, (size_t)1 << 28, &t)
                   : kv_tier_file_open(dir, backend, &t);
    if (e == ERR_UNSUPPORTED) {
        fprintf(stderr, "skipped: %s\n", err_last());
        skip();
    }
    assert_int_equal(e, 0);
    return t;
}

static inline int move(struct kv_tier *t, void *mem, uint64_t at, size_t n, bool write)
{
    struct kv_io io = {.mem = mem, .at = at, .n = n, .write = write};
    TRY(t->start(t, &io, 1));
    return t->finish(t, &io, 1);
}

static inline int count_files(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}
static inline int count_fds(void)
{
    return count_files("/proc/self/fd");
}

/* Returns the descriptor of the tier's open file in dir, found without the help of the tier; -1: none. */
static inline int tier_fd(void)
{
    char path[64], target[512];
    for (int fd = 3; fd < 64; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = '\0';
        if (strncmp(target, dir, strlen(dir)) == 0) return fd;
    }
    return -1;
}

/* Two tests: `check` with threads and with io_uring. */
#define BOTH(check)                                                                                \
    static void check##_threads(void **state)                                                      \
    {                                                                                              \
        (void)state;                                                                               \
        check("threads");                                                                          \
    }                                                                                              \
    static void check##_uring(void **state)                                                        \
    {                                                                                              \
        (void)state;                                                                               \
        check("uring");                                                                            \
    }

/* Makes the directory, runs the tests and removes it; returns the number of failed tests. */
#define RUN_IN_DIR(name, tests)                                                                    \
    (tier_dir_make() ? 1 : tier_dir_end(cmocka_run_group_tests_name(name, tests, NULL, NULL)))
static inline bool tier_dir_make(void)
{
    const char *base = getenv("KVIK_TEST_DIR");
    snprintf(dir, sizeof dir, "%s/kvik-test-tier-XXXXXX", base ? base : "/var/tmp");
    if (mkdtemp(dir)) return false;
    perror(dir);
    return true;
}
static inline int tier_dir_end(int failed)
{
    rmdir(dir);
    return failed;
}
