/* test_tier.c - the file tier over both ways of background transfers: the bytes read back, limits, the mapping, and the
 * result of every failing system call. test_tier_disk.c has the files that the tier leaves on the disk. */
#include "tier_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>

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
                io[next + i] = (struct kv_io){
                    .mem = mem + k->off, .at = k->at, .n = k->n, .write = write, .err = 77};
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

/* True if the file system of the directory takes holes in files. */
static bool has_holes(void)
{
    enum { BYTES = 1 << 20, HOLE = 64 << 10 };
    struct stat before, after;
    char path[PATH_MAX], *mem = malloc(BYTES);
    memset(mem, 3, BYTES);
    snprintf(path, sizeof path, "%s/holes-XXXXXX", dir);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, mem, BYTES), BYTES);
    assert_int_equal(fsync(fd) | fstat(fd, &before), 0);
    bool made = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HOLE, BYTES / 2) == 0;
    assert_int_equal(fstat(fd, &after), 0);
    close(fd);
    unlink(path);
    free(mem);
    return made && after.st_blocks < before.st_blocks;
}

/* A dropped page is given back where the file system can do that, whatever size of transfers it likes best. */
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
    if (after.st_blocks == before.st_blocks && !has_holes())
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
                io[i] = (struct kv_io){
                    .mem = mem, .at = i * (PAGE + 5000), .n = PAGE, .write = round < 2, .err = 1};
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
    assert_int_equal(kv_tier_memory_open(NULL, 0, &t), ERR_ARG);
    assert_int_equal(kv_tier_memory_open(NULL, SIZE_MAX / 2, &t), ERR_NOMEM);
    mem_fail_at(0, false);
    assert_int_equal(kv_tier_memory_open(NULL, 100, &t), ERR_NOMEM);
    mem_fail_at(-1, false);
    assert_int_equal(kv_tier_memory_open(NULL, 10000, &t), 0);
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
 * after they were asked for, also if they are more than the system reads ahead at once.  Bytes that were never written are
 * not ready, and so are those behind them. */
static void test_mapping(void **state)
{
    (void)state;
    enum { BYTES = 12 << 20, AT = 5 * 4096 + 100 };
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
    for (int i = 0; i < 60000 && !t->ready(t, AT, BYTES); i++)
        usleep(1000);
    assert_true(t->ready(t, AT, BYTES));
    assert_memory_equal(window + AT, data, BYTES);
    t->close(t);
    munmap(window, 2 * BYTES);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_bytes_threads),   cmocka_unit_test(check_bytes_uring),
        cmocka_unit_test(check_signals_threads), cmocka_unit_test(check_signals_uring),
        cmocka_unit_test(check_limits_threads),  cmocka_unit_test(check_limits_uring),
        cmocka_unit_test(check_drop_threads),    cmocka_unit_test(check_drop_uring),
        cmocka_unit_test(check_faults_threads),  cmocka_unit_test(check_faults_uring),
        cmocka_unit_test(check_memory_threads),  cmocka_unit_test(check_memory_uring),
        cmocka_unit_test(check_bytes_memory),    cmocka_unit_test(test_memory),
        cmocka_unit_test(test_mapping),
    };
    return RUN_IN_DIR("tier", tests);
}
