/* test_save_faults.c - a session file under every kind of fault: every byte changed, every length
 * truncated, every system call failing, the process killed at every call and at any time. A load
 * gives the old or the new session, bit for bit, or an error that leaves the cache unchanged.
 * KVIK_TEST_LONG=1 tries every case; otherwise slow tests try a part. */
#include "base/durable.h"
#include "base/file.h"
#include "generate/handle.h"
#include "kvik.h"
#include "session_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MODEL "tests/golden/models/llama-mha"
enum { OLD = 9, NEW = 14, FIRST = 5, VOCAB = 1024 };

static char dir[] = "/tmp/kvik-faults-XXXXXX", file[64], tmp[64];
static kvik_model *m;
static kvik_cache *from, *into;
static kvik_seq saved[2],
    live; /* OLD and NEW tokens in `from`; a sequence of `into` that nothing may change */
static int32_t ids[64];
static uint32_t vocab;
static float want[2][VOCAB], live_want[VOCAB];

static void forward(kvik_cache *c, kvik_seq s, const int32_t *t, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = t, .n = n};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

/* Computes the logits of one more token, on a fork. */
static void peek(kvik_cache *c, kvik_seq s, float *logits)
{
    kvik_seq f;
    assert_int_equal(kvik_cache_fork(c, s, &f), 0);
    forward(c, f, ids, 1, logits);
    assert_int_equal(kvik_cache_drop(c, f), 0);
}

static int save(int which)
{
    return kvik_cache_save(from, file, &saved[which], 1, which ? "new" : "old");
}

static void must_save(int which)
{
    if (save(which) < 0) fail_msg("save: %s", kvik_last_error());
}

/* Returns the state of the file: 0 old, 1 new, bit for bit, or a negative error. The cache must
 * hold afterwards what it held before. */
static int state_of(bool bits)
{
    static float got[VOCAB];
    kvik_seq s = 0;
    char *note = NULL;
    int e = kvik_cache_load(into, file, 1, &s, &note), which = e;
    if (e >= 0) {
        int64_t n = kvik_cache_length(into, s);
        assert_true(e == 1 && (n == OLD || n == NEW));
        which = n == NEW;
        assert_string_equal(note, which ? "new" : "old");
        if (bits) peek(into, s, got);
        if (bits) assert_memory_equal(got, want[which], vocab * sizeof *got);
        assert_int_equal(kvik_cache_drop(into, s), 0);
    } else {
        assert_null(note);
        assert_true(s == 0 && strlen(kvik_last_error()) > 10);
    }
    kvik_free(note);
    return which;
}

static void assert_live_unharmed(void)
{
    static float got[VOCAB];
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(into, &u);
    assert_int_equal(u.tokens, OLD);
    peek(into, live, got);
    assert_memory_equal(got, live_want, vocab * sizeof *got);
}

static size_t read_all(char **out)
{
    size_t n;
    assert_int_equal(file_read(file, 1 << 20, out, &n), 0);
    return n;
}

static void put_all(const char *data, size_t n)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);
}

static bool all(void)
{
    return getenv("KVIK_TEST_LONG") != NULL;
}

/* --- Bytes ---------------------------------------------------------------------------------- */

/* Changes each `step`-th byte with three masks. Returns how many changes were not refused. */
static size_t flip(size_t step, int newest)
{
    static const char masks[] = {0x01, (char)0x80, (char)0xff};
    char *data;
    size_t n = read_all(&data), kept = 0;
    int fd = open(file, O_WRONLY);
    assert_true(fd >= 0);
    for (size_t i = 0; i < n; i += step)
        for (size_t k = 0; k < sizeof masks; k++) {
            char x = data[i] ^ masks[k];
            assert_int_equal(pwrite(fd, &x, 1, (off_t)i), 1);
            int e = state_of(false);
            if (e >= 0 && (e != newest || state_of(true) != newest))
                fail_msg("byte %zu ^ %02x: another session", i, (unsigned char)masks[k]);
            if (e < 0 && e != KVIK_FORMAT && e != KVIK_UNSUPPORTED)
                fail_msg("byte %zu ^ %02x: %s", i, (unsigned char)masks[k], kvik_last_error());
            kept += e >= 0;
            assert_int_equal(pwrite(fd, &data[i], 1, (off_t)i), 1);
        }
    close(fd);
    mem_free(data);
    assert_int_equal(state_of(true), newest);
    return kept;
}

static void test_flips(void **state)
{
    (void)state;
    unlink(file);
    must_save(0);
    char *data;
    size_t n = read_all(&data);
    mem_free(data);
    print_message("a session of %d tokens: %zu bytes\n", OLD, n);
    assert_true(n <= 64 << 10);
    assert_int_equal(flip(test_share(), 0), 0); /* every one is refused */
    must_save(1);
    flip(all() ? 1 : 31 * test_share(), 1); /* bytes of superseded saves may change */
    assert_live_unharmed();
}

static void cut(size_t step)
{
    char *data;
    size_t n = read_all(&data);
    for (size_t i = 0; i < n; i += step) {
        assert_int_equal(truncate(file, (off_t)(n - 1 - i)), 0);
        int e = state_of(false);
        if (e != KVIK_FORMAT) fail_msg("%zu of %zu bytes: %d", n - 1 - i, n, e);
    }
    put_all(data, n);
    mem_free(data);
}

static void test_cuts(void **state)
{
    (void)state;
    unlink(file);
    must_save(0);
    cut(test_share());
    must_save(1);
    cut(all() ? 1 : 7 * test_share());
    assert_int_equal(state_of(true), 1);
    assert_live_unharmed();
}

/* Bytes behind the end are the remains of an interrupted save: the session is complete and can be
 * saved again. */
static void test_tail(void **state)
{
    (void)state;
    unlink(file);
    must_save(0);
    FILE *f = fopen(file, "ab");
    fputs("half of a block", f);
    fclose(f);
    assert_int_equal(state_of(true), 0);
    char *json;
    assert_int_equal(kvik_session_describe(file, &json), 0);
    assert_non_null(strstr(json, "\"interrupted\":true"));
    kvik_free(json);
    must_save(1);
    assert_int_equal(state_of(true), 1);
    assert_int_equal(kvik_session_describe(file, &json), 0);
    assert_non_null(strstr(json, "\"interrupted\":false"));
    kvik_free(json);
}

static void test_foreign(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "KVIK", "KVIKSESS", "GGUF0123456789abcdef", "{}"};
    for (size_t i = 0; i < countof(texts); i++) {
        put_all(texts[i], strlen(texts[i]));
        assert_int_equal(state_of(false), KVIK_FORMAT);
    }
    unlink(file);
    must_save(0);
    char *data;
    size_t n = read_all(&data);
    data[8] = 3;
    put_all(data, n);
    assert_int_equal(state_of(false), KVIK_UNSUPPORTED);
    assert_non_null(strstr(kvik_last_error(), "version 3"));
    assert_int_equal(save(1), KVIK_UNSUPPORTED); /* the file is not overwritten */
    data[8] = 2;
    data[n / 2] ^= 1; /* a damaged file is replaced */
    put_all(data, n);
    must_save(1);
    assert_int_equal(state_of(true), 1);
    mem_free(data);
}

/* --- Calls that fail ------------------------------------------------------------------------ */

/* The states in which a save begins: no file, the old session, the old session after an interrupted
 * save, and a file most of which is superseded. */
enum { NONE, ADD, TAIL, ANEW, WAYS };

static char *grown; /* the old session in a file most of which is superseded */
static size_t n_grown;

static void begin(int way)
{
    unlink(file);
    if (way == NONE) return;
    if (way == ANEW) {
        put_all(grown, n_grown);
        return;
    }
    must_save(0);
    if (way != TAIL) return;
    FILE *f = fopen(file, "ab");
    fputs("half of a block", f);
    fclose(f);
}

static uint64_t count_calls(int way)
{
    begin(way);
    durable_fault_set(&(struct durable_fault){0});
    must_save(1);
    uint64_t n = durable_fault_calls();
    durable_fault_set(NULL);
    return n;
}

static void check(int way, int e, const char *what, uint64_t at)
{
    int now = state_of(true);
    bool fine = now == 1 ||
                (e < 0 && (now == 0 ? way != NONE || !at : way == NONE && now == KVIK_NOTFOUND));
    if (!fine) fail_msg("%s at call %llu of way %d: %d", what, (unsigned long long)at, way, now);
    must_save(1);
    assert_int_equal(state_of(true), 1);
}

static void test_failing_calls(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        uint64_t n = count_calls(way);
        int errors = 0;
        for (uint64_t at = 1; at <= n; at++)
            for (int kind = 0; kind < 4; kind++) {
                struct durable_fault f = {.at = at,
                                          .error = kind & 1 ? ENOSPC : EIO,
                                          .half = kind & 1,
                                          .stays = kind & 2};
                begin(way);
                durable_fault_set(&f);
                int e = save(1);
                durable_fault_set(NULL);
                if (e < 0) assert_true(e == KVIK_IO && strlen(kvik_last_error()) > 10);
                errors += e < 0;
                check(way, e, "an error", at);
                assert_false(file_exists(tmp));
            }
        print_message("way %d: %llu calls, %d errors\n", way, (unsigned long long)n, errors);
        assert_true(errors > 0);
    }
    begin(ADD);
    durable_fault_set(&(struct durable_fault){0});
    assert_int_equal(state_of(true), 0);
    uint64_t n = durable_fault_calls();
    for (uint64_t at = 1; at <= n; at++) {
        durable_fault_set(&(struct durable_fault){.at = at, .error = EIO});
        assert_int_equal(state_of(false), KVIK_IO);
    }
    durable_fault_set(NULL);
    assert_int_equal(state_of(true), 0);
    assert_live_unharmed();
}

/* Every allocation of a save and of a load fails in turn. */
static void test_no_memory(void **state)
{
    (void)state;
    int errors[2] = {0, 0};
    for (int64_t k = 1, e = -1; e < 0; k++) {
        begin(ADD);
        mem_fail_at(k, false);
        e = save(1);
        mem_fail_at(-1, false);
        assert_true(k < 1000 && (e >= 0 || e == KVIK_NOMEM));
        errors[0] += e < 0;
        check(ADD, (int)e, "no memory", (uint64_t)k);
    }
    for (int64_t k = 1, e = -1; e < 0; k++) {
        char *note = NULL, *json = NULL;
        kvik_seq s = 0;
        mem_fail_at(k, false);
        e = kvik_cache_load(into, file, 1, &s, &note);
        mem_fail_at(-1, false);
        assert_true(k < 1000 && (e >= 0 || e == KVIK_NOMEM));
        assert_true(e >= 0 || (!note && !s));
        errors[1] += e < 0;
        kvik_free(note);
        if (s) assert_int_equal(kvik_cache_drop(into, s), 0);
        mem_fail_at(k, false);
        if (kvik_session_describe(file, &json) >= 0) kvik_free(json);
        mem_fail_at(-1, false);
    }
    print_message("no memory: %d saves and %d loads fail\n", errors[0], errors[1]);
    assert_true(errors[0] > 5 && errors[1] > 5);
    assert_live_unharmed();
}

/* --- Kills ---------------------------------------------------------------------------------- */

/* Loads what another process has saved: a cache that does not know the session must not replace it. */
static void know(void)
{
    kvik_seq s;
    if (kvik_cache_load(from, file, 1, &s, NULL) < 0) return;
    assert_int_equal(kvik_cache_drop(from, s), 0);
}

/* A child process saves and is killed at its own call `at` (0: by the parent, after some time). */
static void kill_one(int way, uint64_t at, bool half, long nanoseconds)
{
    int status;
    begin(way);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        from->guard.pid = getpid(); /* it has one thread and no spill file; a program is refused */
        durable_fault_set(&(struct durable_fault){.at = at, .half = half});
        alarm(600); /* the parent of a busy machine may take long to send the signal */
        for (int i = 0; i < (at ? 1 : INT_MAX); i++)
            if (save(!(i & 1)) < 0) _exit(1);
        _exit(0);
    }
    if (!at) {
        nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
        kill(pid, SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    know();
    check(way, -1, half ? "a kill within" : "a kill", at);
}

static void test_kills(void **state)
{
    (void)state;
    int kills = 0;
    for (int way = 0; way < WAYS; way++) {
        uint64_t n = count_calls(way);
        for (uint64_t at = 1; at <= n; at++)
            for (int half = 0; half < 2; half++, kills++)
                kill_one(way, at, half, 0);
    }
    int at_calls = kills, most = all() ? 1000 : 50;
    for (uint32_t x = 1; kills - at_calls < most; kills++) {
        x = x * 1664525u + 1013904223u;
        kill_one((int)(x >> 30), 0, false, 1000000 + (long)(x >> 8) % 8000000);
    }
    print_message("%d kills: %d at calls, %d at any time\n", kills, at_calls, most);
    assert_true(kills >= 50);
    assert_live_unharmed();
}

/* --- Power cuts ----------------------------------------------------------------------------- */

/* The disk operations of a save, in order. After a power cut, everything before the last completed
 * sync is on disk; of the later operations any part may be. */
static struct op {
    enum durable_call call;
    uint64_t at;
    char *data;
    size_t n;
} ops[64];
static size_t n_ops;

static void on_op(enum durable_call call, uint64_t at, const void *data, size_t n)
{
    assert_true(n_ops < countof(ops));
    ops[n_ops] = (struct op){call, at, malloc(n + 1), n};
    if (n) memcpy(ops[n_ops].data, data, n);
    n_ops++;
}

static void apply(int fd, const struct op *o, bool half)
{
    if (o->call == DURABLE_TRUNCATE) assert_int_equal(ftruncate(fd, (off_t)o->at), 0);
    if (o->call != DURABLE_WRITE) return;
    size_t n = half ? o->n / 2 : o->n;
    assert_int_equal(pwrite(fd, o->data, n, (off_t)o->at), n);
}

/* Builds the file after a power cut before operation `end`. The bits of `pick` and `half` choose
 * which operations after the last sync reached the disk, and which in half. */
static void cut_power(const char *base, size_t n_base, size_t end, uint32_t pick, uint32_t half)
{
    size_t synced = 0;
    put_all(base, n_base);
    int fd = open(file, O_RDWR);
    for (size_t i = 0; i < end; i++)
        if (ops[i].call == DURABLE_SYNC) synced = i;
    for (size_t i = 0; i < end; i++)
        if (i < synced || pick >> (i - synced) % 32 & 1)
            apply(fd, &ops[i], i >= synced && half >> (i - synced) % 32 & 1);
    close(fd);
    int now = state_of(true);
    if (now != 0 && now != 1)
        fail_msg("power cut before op %zu, picked %x, halves %x: %s", end, pick, half,
                 kvik_last_error());
    if (end == n_ops && now != 1) fail_msg("a save that returned is lost");
    must_save(1);
    assert_int_equal(state_of(true), 1);
}

static void test_power_cuts(void **state)
{
    (void)state;
    for (int way = ADD; way <= TAIL; way++) {
        char *base;
        begin(way);
        size_t n = read_all(&base);
        n_ops = 0;
        durable_trace = on_op;
        must_save(1);
        durable_trace = NULL;
        size_t syncs = 0;
        for (size_t i = 0; i < n_ops; i++)
            syncs += ops[i].call == DURABLE_SYNC;
        assert_int_equal(syncs, 3);
        uint32_t x = 1;
        for (size_t end = 0; end <= n_ops; end++)
            for (int k = 0; k < (all() ? 64 : 8); k++) {
                x = x * 1664525u + 1013904223u;
                uint32_t pick = k == 0 ? 0 : k < 3 ? UINT32_MAX : x >> 8;
                cut_power(base, n, end, pick, k < 2 ? 0 : k == 2 ? UINT32_MAX : x >> 13 & x);
            }
        for (size_t i = 0; i < n_ops; i++)
            free(ops[i].data);
        mem_free(base);
    }
    begin(NONE); /* A new file is synced before it gets its name, and its directory after that. */
    n_ops = 0;
    durable_trace = on_op;
    must_save(1);
    durable_trace = NULL;
    assert_int_equal(ops[n_ops - 2].call, DURABLE_SYNC);
    assert_int_equal(ops[n_ops - 1].call, DURABLE_RENAME);
    for (size_t i = 0; i < n_ops; i++)
        free(ops[i].data);
}

static void test_locked(void **state)
{
    (void)state;
    begin(ADD);
    int fd = open(file, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(save(1), KVIK_BUSY);
    assert_int_equal(state_of(true), 0); /* loading works */
    close(fd);
    must_save(1);
    assert_int_equal(state_of(true), 1);
}

/* --- */

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(file, sizeof file, "%s/s.kvik", dir);
    snprintf(tmp, sizeof tmp, "%s/.s.kvik.kvik-tmp", dir);
    if (kvik_model_open(MODEL, &m) < 0) return -1;
    vocab = kvik_model_vocab(m);
    assert_true(vocab <= VOCAB);
    for (uint32_t i = 0; i < countof(ids); i++)
        ids[i] = (int32_t)(5 + i * 37 % (vocab - 5));
    from = session_cache(m);
    into = session_cache(m);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvik_cache_new(from, &saved[i]), 0);
        forward(from, saved[i], ids, FIRST, NULL);
        forward(from, saved[i], ids + FIRST, (i ? NEW : OLD) - FIRST, NULL);
        peek(from, saved[i], want[i]);
    }
    assert_int_equal(kvik_cache_new(into, &live), 0);
    forward(into, live, ids + 3, OLD, NULL);
    peek(into, live, live_want);
    for (kvik_usage u = {.size = sizeof u};;) { /* until the next save would start a new file */
        kvik_seq s;
        char *json;
        int e = grown ? kvik_session_describe(file, &json) : 0;
        assert_true(e >= 0);
        if (grown) {
            long long end = 0, part = 0;
            const char *a = strstr(json, "\"bytes\":"), *b = strstr(json, "\"live_bytes\":");
            assert_true(a && b && sscanf(a, "\"bytes\":%lld", &end) == 1);
            assert_true(sscanf(b, "\"live_bytes\":%lld", &part) == 1);
            kvik_free(json);
            if (part < end / 2) break;
        }
        assert_int_equal(kvik_cache_new(from, &s), 0);
        kvik_cache_usage(from, &u);
        forward(from, s, ids + u.tokens % 40, OLD, NULL);
        assert_int_equal(kvik_cache_save(from, file, &s, 1, "other"), 0);
        assert_int_equal(kvik_cache_drop(from, s), 0);
        must_save(0);
        mem_free(grown);
        n_grown = read_all(&grown);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mem_free(grown);
    kvik_cache_close(from);
    kvik_cache_close(into);
    kvik_model_close(m);
    unlink(file);
    unlink(tmp);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flips),         cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_tail),          cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_failing_calls), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_kills),         cmocka_unit_test(test_power_cuts),
        cmocka_unit_test(test_locked),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
