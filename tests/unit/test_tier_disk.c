/* test_tier_disk.c - the files of the file tier: their names and modes, what a killed process leaves, the sweep, full disks
 * and limits of size, the choice of the directory, and the choice between io_uring and threads. */
#include "tier_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

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

static bool put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return good;
}

/* Gives the process mounts of its own.  Another user than root needs a namespace of users, in which a file can be made only
 * by a user who has a name there. */
static bool own_mounts(void)
{
    char user[40], group[40];
    if (unshare(CLONE_NEWNS) == 0) return true;
    snprintf(user, sizeof user, "%u %u 1", geteuid(), geteuid());
    snprintf(group, sizeof group, "%u %u 1", getegid(), getegid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && put_text("/proc/self/setgroups", "deny") &&
           put_text("/proc/self/uid_map", user) && put_text("/proc/self/gid_map", group);
}

/* Uses a disk of 2 MiB, mounted where only the child process sees it. */
static int fill_disk(const char *backend)
{
    struct kv_tier *t = NULL;
    static char mem[1 << 20], back[1 << 20];
    if (!own_mounts()) return 77;
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
    struct statfs fs;
    bool memory = statfs("/var/tmp", &fs) == 0 && fs.f_type == 0x01021994;
    assert_int_equal(kv_tier_file_open(NULL, NULL, &t), memory ? ERR_UNSUPPORTED : 0);
    if (!memory) t->close(t);
    unsetenv("KVIK_SPILL_DIR");
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nameless),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_size_limit),
        cmocka_unit_test(check_full_disk_threads),
        cmocka_unit_test(check_full_disk_uring),
        cmocka_unit_test(test_directory),
        cmocka_unit_test(test_backend_names),
        cmocka_unit_test(test_refused),
    };
    return RUN_IN_DIR("tier_disk", tests);
}
