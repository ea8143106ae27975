/* test_tier.c - the file tier over both ways of background transfers: the bytes read back, the
 * result of every failing system call, and the files left on the disk. */
#include "base/aio.h"
#include "kv/tier.h"
#include "testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/wait.h>

static char dir[256]; /* a directory on a disk, empty, removed at the end */

static uint64_t seed = 1;
static uint32_t rnd(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}
static void fill(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)rnd(256);
}

static struct kv_tier *open_or_skip(const char *backend)
{
    struct kv_tier *t = NULL;
    bool memory = strcmp(backend, "memory") == 0;
    int e = memory ? kv_tier_memory_open((size_t)1 << 28, &t) : kv_tier_file_open(dir, backend, &t);
    if (e == ERR_UNSUPPORTED) {
        fprintf(stderr, "skipped: %s\n", err_last());
        skip();
    }
    assert_int_equal(e, 0);
    return t;
}

static int move(struct kv_tier *t, void *mem, uint64_t at, size_t n, bool write)
{
    struct kv_io io = {.mem = mem, .at = at, .n = n, .write = write};
    TRY(t->start(t, &io, 1));
    return t->finish(t, &io, 1);
}

static int count_files(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}
static int count_fds(void)
{
    return count_files("/proc/self/fd");
}

/* Returns the descriptor of the tier's open file in dir, found from outside the tier; -1: none. */
static int tier_fd(void)
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

/* --- Bytes ---------------------------------------------------------------------------------- */

enum { CHUNKS = 200, MOST = 160 * 1024 };
struct chunk {
    uint64_t at;
    size_t n, off; /* off: offset in the copy in memory */
};

static size_t lay_out(struct chunk *c)
{
    size_t off = 0;
    uint64_t at = 0;
    for (int i = 0; i < CHUNKS; i++) {
        size_t n = 1 + rnd(i % 3 ? 5000 : MOST);
        c[i] = (struct chunk){at, n, off};
        off += n;
        at += n + (i % 5 ? 0 : 1u << 20); /* leave holes, too */
    }
    return off;
}

/* Moves all chunks in random order, in batches of random length with several in flight. */
static void move_all(struct kv_tier *t, const struct chunk *c, unsigned char *mem, bool write)
{
    int order[CHUNKS];
    struct kv_io io[CHUNKS];
    struct {
        int from, n;
    } batch[CHUNKS];
    for (int i = 0; i < CHUNKS; i++)
        order[i] = i;
    for (int i = CHUNKS - 1; i > 0; i--) {
        int j = (int)rnd((uint32_t)i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
    int next = 0, first = 0, last = 0, flying = 0;
    while (next < CHUNKS || first < last) {
        int n = 1 + (int)rnd(20);
        n = MIN(n, CHUNKS - next);
        if (n && flying + n <= (int)KV_TIER_DEPTH) {
            for (int i = 0; i < n; i++) {
                const struct chunk *k = &c[order[next + i]];
                io[next + i] = (struct kv_io){mem + k->off, k->at, k->n, write, 77, 0};
            }
            assert_int_equal(t->start(t, &io[next], (uint32_t)n), 0);
            batch[last].from = next;
            batch[last++].n = n;
            next += n;
            flying += n;
            if (rnd(3)) continue;
        }
        if (first < last) {
            /* A transfer that is not the oldest. */
            int k = first + (int)rnd((uint32_t)(last - first));
            int from = batch[k].from, len = batch[k].n;
            batch[k] = batch[first++];
            assert_int_equal(t->finish(t, &io[from], (uint32_t)len), 0);
            for (int i = 0; i < len; i++)
                assert_int_equal(io[from + i].err, 0);
            flying -= len;
        }
    }
}

static void check_bytes(const char *backend)
{
    struct chunk c[CHUNKS];
    int fds = count_fds();
    struct kv_tier *t = open_or_skip(backend);
    size_t total = lay_out(c);
    unsigned char *a = malloc(total), *b = malloc(total);
    for (int round = 0; round < 3; round++) {
        fill(a, total);
        memset(b, 0x5A, total);
        move_all(t, c, a, true);
        move_all(t, c, b, false);
        assert_memory_equal(a, b, total);
    }
    t->drop(t, c[7].at, c[7].n); /* adjacent chunks keep their bytes */
    t->drop(t, c[9].at, c[9].n);
    memset(b, 0, total);
    for (int i = 0; i < CHUNKS; i++)
        assert_int_equal(move(t, b + c[i].off, c[i].at, c[i].n, false), 0);
    for (int i = 0; i < CHUNKS; i++)
        if (i != 7 && i != 9) assert_memory_equal(a + c[i].off, b + c[i].off, c[i].n);
    t->close(t);
    free(a);
    free(b);
    assert_int_equal(count_fds(), fds);
    assert_int_equal(count_files(dir), 0);
}

/* Real interruptions: a timer whose handler does not restart system calls. */
static void on_alarm(int sig)
{
    (void)sig;
}
static void check_signals(const char *backend)
{
    struct sigaction sa = {.sa_handler = on_alarm}, old;
    struct itimerval often = {{0, 300}, {0, 300}}, off = {{0, 0}, {0, 0}};
    struct kv_tier *t = open_or_skip(backend);
    size_t n = 4 << 20;
    unsigned char *a = malloc(n), *b = malloc(n);
    fill(a, n);
    sigaction(SIGALRM, &sa, &old);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 20; i++) {
        memset(b, 0, n);
        assert_int_equal(move(t, a, (uint64_t)i * 100, n, true), 0);
        assert_int_equal(move(t, b, (uint64_t)i * 100, n, false), 0);
        assert_memory_equal(a, b, n);
    }
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &old, NULL);
    t->close(t);
    free(a);
    free(b);
}

static void check_limits(const char *backend)
{
    char mem[64] = "abc";
    struct kv_io io[KV_TIER_DEPTH + 1];
    struct kv_tier *t = open_or_skip(backend);
    assert_string_equal(t->name, "file");
    assert_int_equal(move(t, mem, 0, 0, true), 0);
    assert_int_equal(move(t, mem, 0, 0, false), 0);
    assert_int_equal(move(t, mem, 0, 1, false), ERR_IO); /* nothing was written yet */
    assert_non_null(strstr(err_last(), "never written"));
    assert_int_equal(move(t, mem, 1 << 20, 3, true), 0);
    assert_int_equal(move(t, mem + 8, 1 << 20, 3, false), 0);
    assert_memory_equal(mem + 8, "abc", 3);
    assert_int_equal(move(t, mem, 1 << 20, 4, false), ERR_IO);
    assert_int_equal(move(t, mem, UINT64_MAX - 1, 4, true), ERR_LIMIT);
    assert_int_equal(move(t, mem, INT64_MAX, 4, true), ERR_LIMIT);
    t->drop(t, UINT64_MAX - 5, SIZE_MAX);
    t->drop(t, 0, SIZE_MAX);
    for (uint32_t i = 0; i <= KV_TIER_DEPTH; i++)
        io[i] = (struct kv_io){.mem = mem, .at = i, .n = 1, .write = true};
    assert_int_equal(t->start(t, io, KV_TIER_DEPTH + 1), ERR_BUSY);
    assert_int_equal(t->start(t, io, KV_TIER_DEPTH), 0);
    assert_int_equal(t->start(t, &io[KV_TIER_DEPTH], 1), ERR_BUSY);
    assert_int_equal(t->finish(t, io, KV_TIER_DEPTH), 0);
    assert_int_equal(t->start(t, io, KV_TIER_DEPTH), 0); /* close waits for transfers in flight */
    t->close(t);
}

static void check_drop(const char *backend)
{
    struct stat before, after;
    struct kv_tier *t = open_or_skip(backend);
    size_t n = 1 << 20;
    char *mem = calloc(1, n);
    memset(mem, 3, n);
    assert_int_equal(move(t, mem, 4096, n, true), 0);
    int fd = tier_fd();
    assert_true(fd >= 0);
    fsync(fd);
    assert_int_equal(fstat(fd, &before), 0);
    t->drop(t, 4096 + 100, n - 200);
    fstat(fd, &after);
    if (after.st_blocks == before.st_blocks)
        fprintf(stderr, "note: no holes on this file system\n");
    else
        assert_true(after.st_blocks <= before.st_blocks - (int)(n - 8192 - 4096) / 512);
    char edge[100];
    assert_int_equal(move(t, edge, 4096, 100, false), 0);
    assert_memory_equal(edge, mem, 100);
    assert_int_equal(move(t, edge, 4096 + n - 100, 100, false), 0);
    assert_memory_equal(edge, mem, 100);
    t->close(t);
    free(mem);
}

/* --- Faults --------------------------------------------------------------------------------- */

enum { PAGES = 6, PAGE = 40000 };

/* Opens, writes, rewrites, reads, drops, and closes. Every result is either right or an error with
 * a message. A failed operation is repeated without the fault and must then be right. Returns the
 * number of calls that failed. */
static int use_tier(const char *backend, const unsigned char *want, unsigned char *got)
{
    struct kv_tier *t = NULL;
    struct kv_io io[PAGES];
    int failed = 0;
    err_set(ERR_IO, "%s", "");
    if (kv_tier_file_open(dir, backend, &t) < 0) {
        failed++;
        assert_true(strlen(err_last()) > 10);
        aio_fault_set(NULL);
        assert_int_equal(kv_tier_file_open(dir, backend, &t), 0);
    }
    memset(got, 0xA5, PAGES * PAGE);
    for (int round = 0; round < 4; round++) { /* rounds 0 and 1 write, 2 and 3 read */
        for (int tries = 0;; tries++) {
            int e = 0;
            for (size_t i = 0; i < PAGES; i++) {
                void *mem = round < 2 ? (void *)(uintptr_t)(want + i * PAGE) : got + i * PAGE;
                io[i] = (struct kv_io){mem, i * (PAGE + 5000), PAGE, round < 2, 1, 0};
            }
            err_set(ERR_IO, "%s", "");
            e = t->start(t, io, PAGES);
            if (e == 0) {
                e = t->finish(t, io, PAGES);
                for (int i = 0, any = 0; i < PAGES; i++) {
                    any += io[i].err != 0;
                    assert_true(io[i].err == 0 || (io[i].err < 0 && e < 0));
                    if (round >= 2 && io[i].err == 0)
                        assert_memory_equal(want + i * PAGE, got + i * PAGE, PAGE);
                    if (i == PAGES - 1) assert_true((any > 0) == (e < 0));
                }
            }
            if (e == 0) break;
            failed++;
            assert_true(strlen(err_last()) > 10);
            assert_int_equal(tries, 0);
            aio_fault_set(NULL);
        }
        if (round >= 2) assert_memory_equal(want, got, PAGES * PAGE);
        memset(got, 0xA5, PAGES * PAGE);
    }
    t->drop(t, 0, PAGE);
    t->close(t);
    aio_fault_set(NULL);
    assert_int_equal(count_files(dir), 0);
    return failed;
}

static void check_faults(const char *backend)
{
    static const int errors[] = {0, EINTR, EAGAIN, EIO, ENOSPC, ENOMEM};
    unsigned char *want = malloc(PAGES * PAGE), *got = malloc(PAGES * PAGE);
    struct kv_tier *t = open_or_skip(backend);
    t->close(t);
    int fds = count_fds(), failures = 0;
    fill(want, PAGES * PAGE);
    uint64_t calls = 0;
    for (uint64_t at = 1; at < 400; at++) {
        bool reached = false;
        for (size_t i = 0; i < countof(errors); i++) {
            aio_fault_set(&(struct aio_fault){.at = at, .error = errors[i]});
            int failed = use_tier(backend, want, got);
            failures += failed;
            reached |= failed > 0;
            /* The tier repeats interrupted and short calls itself. */
            if (errors[i] == 0 || errors[i] == EINTR) assert_int_equal(failed, 0);
            assert_int_equal(count_fds(), fds);
        }
        if (reached) calls = at;
        if (at > calls + 20) break; /* beyond the last call that can fail */
    }
    assert_true(calls > 4u * PAGES - 8);
    assert_true(failures > 2 * 4 * PAGES);
    for (enum aio_call k = AIO_OPEN; k <= AIO_PUNCH; k++) { /* the call fails from now on */
        aio_fault_set(&(struct aio_fault){.at = 1, .kinds = 1u << k, .error = EIO, .every = 1});
        int failed = use_tier(backend, want, got);
        bool fatal = k == AIO_OPEN || k == AIO_SIZE || k == AIO_READ || k == AIO_WRITE;
        assert_int_equal(failed, fatal);
    }
    /* A call that is interrupted without end becomes an error, not an endless wait. */
    aio_fault_set(
        &(struct aio_fault){.at = 1, .kinds = 1u << AIO_READ, .error = EINTR, .every = 1});
    assert_int_equal(use_tier(backend, want, got), 1);
    aio_fault_set(&(struct aio_fault){.at = 1, .every = 1}); /* every transfer is short */
    assert_int_equal(use_tier(backend, want, got), 0);
    assert_int_equal(count_fds(), fds);
    free(want);
    free(got);
}

static void check_memory(const char *backend)
{
    struct kv_tier *t = open_or_skip(backend);
    t->close(t);
    int fds = count_fds();
    for (int64_t k = 0;; k++) {
        t = NULL;
        mem_fail_at(k, false);
        int e = kv_tier_file_open(dir, backend, &t);
        mem_fail_at(-1, false);
        if (e == 0) break;
        assert_int_equal(e, ERR_NOMEM);
        assert_null(t);
        assert_int_equal(count_fds(), fds);
        assert_true(k < 20);
    }
    uint64_t before = mem_calls();
    char mem[100] = "x";
    assert_int_equal(move(t, mem, 0, 100, true), 0);
    assert_int_equal(move(t, mem, 0, 100, false), 0);
    t->drop(t, 0, 100);
    assert_int_equal(mem_calls(), before);
    t->close(t);
}

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
BOTH(check_bytes)
static void check_bytes_memory(void **state)
{
    (void)state;
    check_bytes("memory");
}
BOTH(check_signals)
BOTH(check_limits)
BOTH(check_drop)
BOTH(check_faults)
BOTH(check_memory)

static void test_memory(void **state)
{
    (void)state;
    struct kv_tier *t = NULL;
    char mem[8] = "abc";
    assert_int_equal(kv_tier_memory_open(0, &t), ERR_ARG);
    assert_int_equal(kv_tier_memory_open(SIZE_MAX / 2, &t), ERR_NOMEM);
    mem_fail_at(0, false);
    assert_int_equal(kv_tier_memory_open(100, &t), ERR_NOMEM);
    mem_fail_at(-1, false);
    assert_int_equal(kv_tier_memory_open(10000, &t), 0);
    assert_int_equal(move(t, mem, 0, 1, false), ERR_IO);
    assert_int_equal(move(t, mem, 9999, 2, true), ERR_LIMIT);
    assert_int_equal(move(t, mem, UINT64_MAX, 2, true), ERR_LIMIT);
    assert_int_equal(move(t, mem, 9997, 3, true), 0);
    t->drop(t, 0, 9996);
    t->drop(t, UINT64_MAX, SIZE_MAX);
    assert_int_equal(move(t, mem + 4, 9997, 3, false), 0);
    assert_memory_equal(mem + 4, "abc", 3);
    t->close(t);
}

/* --- The mapping ---------------------------------------------------------------------------- */

/* What a transfer writes can be read in the mapping.  Bytes that the page cache has lost are not ready; they become ready
 * after they were asked for.  Bytes that were never written are not ready, and so are those behind them. */
static void test_mapping(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20, AT = 5 * 4096 + 100 };
    struct kv_tier *t;
    unsigned char *data = malloc(BYTES), *window;
    assert_int_equal(kv_tier_file_open(dir, NULL, &t), 0);
    window = mmap(NULL, 2 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(window, MAP_FAILED);
    setenv("KVIK_SPILL_MAP", "0", 1);
    assert_int_not_equal(t->map(t, window, 2 * BYTES), 0);
    unsetenv("KVIK_SPILL_MAP");
    if (t->map(t, window, 2 * BYTES) != 0) skip();
    assert_false(t->ready(t, AT, 1));
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < BYTES; i++)
            data[i] = (unsigned char)(i * 7 + i / 251 + (uint32_t)round);
        assert_int_equal(move(t, (char *)data, AT, BYTES, true), 0);
        assert_true(t->ready(t, AT, BYTES));
        assert_memory_equal(window + AT, data, BYTES);
        assert_false(t->ready(t, AT, BYTES + 1));
    }
    int fd =
        open("/proc/self/maps", O_RDONLY); /* any descriptor: the next number below is the file's */
    close(fd);
    while (--fd > 2) {
        struct stat st;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && !st.st_nlink) break;
    }
    assert_int_equal(madvise(window, 2 * BYTES, MADV_DONTNEED), 0);
    assert_int_equal(fsync(fd) | posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    bool lost = !t->ready(t, AT, BYTES);
    if (!lost) print_message("note: this file system keeps its pages\n");
    t->ahead(t, AT, BYTES);
    for (int i = 0; i < 5000 && !t->ready(t, AT, BYTES); i++)
        usleep(1000);
    assert_true(t->ready(t, AT, BYTES));
    assert_memory_equal(window + AT, data, BYTES);
    t->close(t);
    munmap(window, 2 * BYTES);
    free(data);
}

/* --- The disk ------------------------------------------------------------------------------- */

/* Opening makes these calls: list the directory, O_TMPFILE, then open a name and unlink it. */
static const struct aio_fault no_tmpfile = {.at = 2, .kinds = 1u << AIO_OPEN, .error = EOPNOTSUPP};
static const struct aio_fault must_keep_name = {
    .at = 2, .every = 2, .kinds = 1u << AIO_OPEN | 1u << AIO_UNLINK, .error = EPERM};

static void test_nameless(void **state)
{
    (void)state;
    const struct aio_fault *way[] = {NULL, &no_tmpfile, &must_keep_name};
    for (size_t i = 0; i < countof(way); i++) {
        struct stat st;
        struct kv_tier *t = NULL;
        char mem[100] = "some bytes";
        aio_fault_set(way[i]);
        assert_int_equal(kv_tier_file_open(dir, NULL, &t), 0);
        aio_fault_set(NULL);
        int fd = tier_fd();
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_nlink, way[i] == &must_keep_name);
        assert_int_equal(count_files(dir), way[i] == &must_keep_name);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(move(t, mem, 0, 100, true), 0);
        t->close(t);
        assert_int_equal(count_files(dir), 0);
    }
}

static pid_t spill_in_child(const struct aio_fault *way)
{
    int ready[2];
    char mem[4096] = "x";
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct kv_tier *t = NULL;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process waiting */
        aio_fault_set(way);
        int e = kv_tier_file_open(dir, NULL, &t);
        aio_fault_set(NULL);
        if (e < 0 || move(t, mem, 0, sizeof mem, true) < 0) _exit(1);
        if (write(ready[1], "r", 1) != 1) _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], mem, 1), 1);
    close(ready[0]);
    return pid;
}

/* A killed process leaves no file, or one that the next start removes; a living process keeps its
 * file. */
static void test_kill(void **state)
{
    (void)state;
    const struct aio_fault *way[] = {NULL, &no_tmpfile, &must_keep_name};
    for (size_t i = 0; i < countof(way); i++) {
        int named = way[i] == &must_keep_name, status;
        struct kv_tier *t = NULL;
        pid_t pid = spill_in_child(way[i]);
        assert_int_equal(count_files(dir), named);
        assert_int_equal(kv_tier_file_open(dir, NULL, &t), 0);
        assert_int_equal(count_files(dir), named);
        t->close(t);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(count_files(dir), named);
        assert_int_equal(kv_tier_file_open(dir, NULL, &t), 0);
        assert_int_equal(count_files(dir), 0);
        t->close(t);
    }
}

/* The sweep removes only regular files of this user whose names have the tier's form. */
static void test_sweep(void **state)
{
    (void)state;
    static const char *const keep[] = {"kvik-spill-", "kvik-spill-abc-1", "kvik-spill-12", "other"};
    char path[600];
    struct kv_tier *t = NULL;
    for (size_t i = 0; i < countof(keep); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, keep[i]);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    snprintf(path, sizeof path, "%s/kvik-spill-1-dir", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/kvik-spill-1-link", dir);
    assert_int_equal(symlink("other", path), 0);
    snprintf(path, sizeof path, "%s/kvik-spill-1-fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/kvik-spill-99999999-abcdef", dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(count_files(dir), 8);
    assert_int_equal(kv_tier_file_open(dir, NULL, &t), 0);
    t->close(t);
    assert_int_equal(count_files(dir), 7);
    assert_int_not_equal(access(path, F_OK), 0);
    for (size_t i = 0; i < countof(keep); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, keep[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/kvik-spill-1-dir", dir);
    rmdir(path);
    snprintf(path, sizeof path, "%s/kvik-spill-1-link", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/kvik-spill-1-fifo", dir);
    unlink(path);
    assert_int_equal(count_files(dir), 0);
}

/* A file of 4 MiB at most: an error instead of SIGXFSZ, and smaller transfers still work. */
static void test_size_limit(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct kv_tier *t = NULL;
        static char mem[8 << 20], back[1 << 20];
        memset(mem, 7, sizeof mem);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){4 << 20, 4 << 20});
        if (kv_tier_file_open(dir, NULL, &t) < 0) _exit(1);
        if (move(t, mem, 0, sizeof mem, true) != ERR_IO) _exit(2);
        if (move(t, mem, 100, sizeof back, true) != 0) _exit(3);
        if (move(t, back, 100, sizeof back, false) != 0) _exit(4);
        if (memcmp(mem, back, sizeof back) != 0) _exit(5);
        t->close(t);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Uses a disk of 2 MiB, mounted where only the child process sees it. */
static int fill_disk(const char *backend)
{
    struct kv_tier *t = NULL;
    static char mem[1 << 20], back[1 << 20];
    if (unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) return 77;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) return 77;
    if (mount("none", dir, "tmpfs", 0, "size=2m") < 0) return 77;
    int e = kv_tier_file_open(dir, backend, &t);
    if (e < 0) return e == ERR_UNSUPPORTED ? 77 : 1;
    memset(mem, 9, sizeof mem);
    int full = 0;
    for (uint64_t i = 0; i < 4; i++) {
        e = move(t, mem, i * sizeof mem, sizeof mem, true);
        if (e == ERR_IO && strstr(err_last(), "no space left"))
            full++;
        else if (e < 0)
            return 2;
    }
    if (full < 2) return 3;
    if (move(t, back, 0, sizeof back, false) < 0 || memcmp(mem, back, sizeof mem) != 0) return 4;
    t->drop(t, 0, 4 * sizeof mem); /* freed space can be used again */
    if (move(t, mem, 2 * sizeof mem, sizeof mem, true) < 0) return 5;
    if (move(t, back, 2 * sizeof mem, sizeof back, false) < 0) return 6;
    if (memcmp(mem, back, sizeof mem) != 0) return 7;
    t->close(t);
    return 0;
}
static void check_full_disk(const char *backend)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(fill_disk(backend));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        fprintf(stderr, "skipped: no private mount, or no such backend, here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}
BOTH(check_full_disk)

static void test_directory(void **state)
{
    (void)state;
    struct kv_tier *t = NULL;
    int fds = count_fds();
    const char *old = getenv("TMPDIR");
    char *kept = old ? strdup(old) : NULL;
    unsetenv("KVIK_SPILL_DIR");
    setenv("TMPDIR", dir, 1);
    assert_int_equal(kv_tier_file_open(NULL, NULL, &t), 0);
    assert_true(tier_fd() >= 0);
    t->close(t);
    setenv("TMPDIR", "/nonexistent", 1);
    assert_int_equal(kv_tier_file_open(NULL, NULL, &t), ERR_IO);
    assert_non_null(strstr(err_last(), "KVIK_SPILL_DIR"));
    setenv("KVIK_SPILL_DIR", dir, 1); /* the variable wins over TMPDIR */
    assert_int_equal(kv_tier_file_open(NULL, NULL, &t), 0);
    assert_true(tier_fd() >= 0);
    t->close(t);
    setenv("KVIK_SPILL_DIR", "/nonexistent", 1);
    assert_int_equal(kv_tier_file_open(NULL, NULL, &t), ERR_IO);
    assert_int_equal(kv_tier_file_open(dir, NULL, &t), 0); /* the argument wins over the variable */
    t->close(t);
    assert_int_equal(kv_tier_file_open("/proc", NULL, &t), ERR_IO);
    /* The message does not advise a useless change. */
    assert_non_null(strstr(err_last(), "spill_dir, else KVIK_SPILL_DIR"));
    /* An empty variable counts as unset. */
    setenv("KVIK_SPILL_DIR", "", 1);
    setenv("TMPDIR", "", 1);
    assert_int_equal(kv_tier_file_open(NULL, NULL, &t), 0); /* in /var/tmp */
    t->close(t);
    unsetenv("KVIK_SPILL_DIR");
    struct statfs fs;
    if (statfs("/dev/shm", &fs) == 0 && fs.f_type == 0x01021994 && access("/dev/shm", W_OK) == 0) {
        setenv("TMPDIR", "/dev/shm", 1);
        assert_int_equal(kv_tier_file_open(NULL, NULL, &t), ERR_UNSUPPORTED);
        assert_non_null(strstr(err_last(), "KVIK_SPILL_DIR"));
        assert_non_null(strstr(err_last(), "/dev/shm"));
        assert_int_equal(kv_tier_file_open("/dev/shm", NULL, &t), 0);
        t->close(t);
        setenv("KVIK_SPILL_DIR", "/dev/shm", 1);
        assert_int_equal(kv_tier_file_open(NULL, NULL, &t), 0);
        t->close(t);
        unsetenv("KVIK_SPILL_DIR");
    } else {
        fprintf(stderr, "note: /dev/shm is no tmpfs here, the refusal was not tried\n");
    }
    if (kept)
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
    free(kept);
    assert_int_equal(count_fds(), fds);
}

static void test_backend_names(void **state)
{
    (void)state;
    struct kv_tier *t = NULL;
    struct aio *a = NULL;
    int fds = count_fds();
    assert_int_equal(kv_tier_file_open(dir, "fibers", &t), ERR_ARG);
    assert_non_null(strstr(err_last(), "fibers"));
    setenv("KVIK_AIO", "fibers", 1);
    assert_int_equal(kv_tier_file_open(dir, NULL, &t), ERR_ARG);
    setenv("KVIK_AIO", "threads", 1);
    assert_int_equal(aio_open(-1, NULL, &a), 0);
    assert_string_equal(aio_backend(a), "threads");
    aio_close(a);
    unsetenv("KVIK_AIO");
    assert_int_equal(aio_open(-1, NULL, &a), 0);
    fprintf(stderr, "note: the backend of this system is %s\n", aio_backend(a));
    aio_close(a);
    assert_int_equal(count_fds(), fds);
    assert_int_equal(count_files(dir), 0);
}

/* A sandbox without io_uring, as containers often are: threads serve the file, without a message. */
static int refuse_uring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {countof(code), code};
    struct aio *a = NULL;
    struct kv_tier *t = NULL;
    char mem[8] = "bytes", back[8] = "";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return 77;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) return 77;
    if (aio_open(-1, "uring", &a) != ERR_UNSUPPORTED) return 1;
    if (aio_open(-1, NULL, &a) < 0 || strcmp(aio_backend(a), "threads") != 0) return 2;
    aio_close(a);
    if (kv_tier_file_open(dir, NULL, &t) < 0) return 3;
    if (move(t, mem, 10, 8, true) < 0 || move(t, back, 10, 8, false) < 0) return 4;
    if (memcmp(mem, back, 8) != 0) return 5;
    t->close(t);
    return 0;
}
static void test_refused(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(refuse_uring());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        fprintf(stderr, "skipped: no seccomp here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const char *base = getenv("KVIK_TEST_DIR");
    snprintf(dir, sizeof dir, "%s/kvik-test-tier-XXXXXX", base ? base : "/var/tmp");
    if (!mkdtemp(dir)) {
        perror(dir);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_bytes_threads),
        cmocka_unit_test(check_bytes_uring),
        cmocka_unit_test(check_signals_threads),
        cmocka_unit_test(check_signals_uring),
        cmocka_unit_test(check_limits_threads),
        cmocka_unit_test(check_limits_uring),
        cmocka_unit_test(check_drop_threads),
        cmocka_unit_test(check_drop_uring),
        cmocka_unit_test(check_faults_threads),
        cmocka_unit_test(check_faults_uring),
        cmocka_unit_test(check_memory_threads),
        cmocka_unit_test(check_memory_uring),
        cmocka_unit_test(test_nameless),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_size_limit),
        cmocka_unit_test(check_full_disk_threads),
        cmocka_unit_test(check_full_disk_uring),
        cmocka_unit_test(test_directory),
        cmocka_unit_test(test_backend_names),
        cmocka_unit_test(check_bytes_memory),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_mapping),
        cmocka_unit_test(test_refused),
    };
    int failed = cmocka_run_group_tests_name("tier", tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
