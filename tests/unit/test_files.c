/* test_files.c - what writing a file does to what already has its name, to the limits of the process,
 * and to the descriptors of the standard streams. */
#include "base/descriptor.h"
#include "base/durable.h"
#include "base/file.h"
#include "base/quota.h"
#include "base/thread.h"
#include "kv/tier.h"
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/kvik-files-XXXXXX", file[64], other[64];

static void assert_text(const char *path, const char *want)
{
    char *text;
    size_t n;
    if (file_read(path, 1 << 20, &text, &n) < 0) fail_msg("%s", err_last());
    assert_string_equal(text, want);
    mem_free(text);
}

/* Counts all names, hidden ones too. */
static int names(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void test_mode_stays(void **state)
{
    (void)state;
    const mode_t mode[] = {0600, 0640, 0444, 0755};
    struct stat st;
    mode_t was = umask(022);
    for (size_t i = 0; i < countof(mode); i++) {
        assert_int_equal(file_write(file, "a", 1), 0);
        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0644);
        assert_int_equal(chmod(file, mode[i]), 0);
        assert_int_equal(file_write(file, "new", 3), 0);
        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(st.st_mode & 07777, mode[i]);
        assert_text(file, "new");
        assert_int_equal(unlink(file), 0);
    }
    umask(was);
    assert_int_equal(names(), 0);
}

static void test_owner_stays(void **state)
{
    (void)state;
    struct stat st;
    if (geteuid() != 0) skip();
    assert_int_equal(file_write(file, "a", 1), 0);
    assert_int_equal(chown(file, 65534, 65534), 0);
    assert_int_equal(file_write(file, "b", 1), 0);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_uid, 65534);
    assert_int_equal(st.st_gid, 65534);
    assert_int_equal(unlink(file), 0);
}

static void test_links_stay(void **state)
{
    (void)state;
    char third[80];
    struct stat st;
    snprintf(third, sizeof third, "%s/third", dir);
    for (int there = 0; there < 2; there++) {
        if (there) assert_int_equal(file_write(other, "old", 3), 0);
        assert_int_equal(symlink("third", file), 0);
        assert_int_equal(symlink(other, third), 0);
        assert_int_equal(file_write(file, "new", 3), 0);
        assert_int_equal(lstat(file, &st), 0);
        assert_true(S_ISLNK(st.st_mode));
        assert_int_equal(lstat(third, &st), 0);
        assert_true(S_ISLNK(st.st_mode));
        assert_text(other, "new");
        assert_int_equal(unlink(file) | unlink(third) | unlink(other), 0);
    }
    assert_int_equal(symlink("file", file), 0); /* a circle */
    assert_int_equal(file_write(file, "new", 3), ERR_IO);
    assert_int_equal(lstat(file, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(file_write(other, "old", 3), 0);
    snprintf(third, sizeof third, "%s/below", other);
    assert_int_equal(symlink(third, file), 0); /* below a file, where nothing can be */
    assert_int_equal(file_write(file, "new", 3), ERR_IO);
    assert_int_equal(lstat(file, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(unlink(file) | unlink(other), 0);
    assert_int_equal(names(), 0);
}

static void test_devices_stay(void **state)
{
    (void)state;
    struct stat st;
    char got[8] = "";
    assert_int_equal(stat("/dev/null", &st), 0);
    dev_t device = st.st_rdev;
    assert_int_equal(file_write("/dev/null", "x", 1), 0);
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode) && st.st_rdev == device);
    assert_int_equal(file_write("/dev/full", "x", 1), ERR_IO);
    assert_int_equal(mkfifo(file, 0600), 0);
    int reader = open(file, O_RDONLY | O_NONBLOCK);
    assert_int_equal(file_write(file, "stream", 6), 0);
    assert_int_equal(read(reader, got, sizeof got), 6);
    assert_string_equal(got, "stream");
    close(reader);
    assert_int_equal(lstat(file, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(file_write(dir, "x", 1), ERR_IO);
    assert_int_equal(names(), 0);
}

/* A reader that leaves is an error, not the end of the process. */
static void test_broken_pipe(void **state)
{
    (void)state;
    int status;
    assert_int_equal(mkfifo(file, 0600), 0);
    pid_t pid = fork();
    if (!pid) {
        int reader = open(file, O_RDONLY | O_NONBLOCK);
        char *much = mem_alloc(1 << 22);
        pid_t leaver = fork();
        if (!leaver) /* keeps the only reader until the first bytes have come */
            _exit(poll(&(struct pollfd){.fd = reader, .events = POLLIN}, 1, 20000) != 1);
        close(reader);
        int e = file_write(file, much, 1 << 22);
        _exit(e == ERR_IO && strstr(err_last(), "Broken pipe") ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(unlink(file), 0);
}

/* --- Limits of the process */

static int write_durable(void)
{
    struct durable f;
    static const char data[8192] = "MARK";
    if (durable_create(&f, file, "MARK") < 0) return 3;
    int e = durable_write(&f, 0, data, 2048);
    if (e >= 0) e = durable_write(&f, 2048, data, 1);
    if (e >= 0) e = durable_write(&f, 4000, data, sizeof data);
    durable_close(&f);
    return e == ERR_IO && strstr(err_last(), "ulimit -f") ? 0 : 1;
}

static int write_whole(void)
{
    char data[8192] = "";
    int e = file_write(file, data, sizeof data);
    if (file_write(file, data, 100) < 0) return 2; /* a smaller file fits */
    if (unlink(file) < 0) return 3;
    return e == ERR_IO && strstr(err_last(), "ulimit -f") ? 0 : 1;
}

static int cut_durable(void)
{
    struct durable f;
    if (durable_create(&f, file, "MARK") < 0) return 3;
    int e = durable_truncate(&f, 1 << 20);
    durable_close(&f);
    return e == ERR_IO ? 0 : 1;
}

/* The signal of a file that is too large would end the process: none is raised, and no name stays. */
static void test_file_size_limit(void **state)
{
    (void)state;
    int (*const writer[])(void) = {write_durable, write_whole, cut_durable};
    for (size_t i = 0; i < countof(writer); i++) {
        int status;
        pid_t pid = fork();
        if (!pid) {
            signal(SIGXFSZ, SIG_DFL);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
            _exit(writer[i]());
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_false(WIFSIGNALED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(names(), 0);
    }
}

/* Without room for its threads a pool says why, and what to do. */
/* Runs fn in a process of its own, which must end with 0. */
static void in_child(int (*fn)(void))
{
    int status;
    pid_t pid = fork();
    if (!pid) _exit(fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int start_threads(void)
{
    struct pool *p;
    if (geteuid() == 0 && setuid(65534) < 0) return 2; /* the limit does not hold for root */
    setrlimit(RLIMIT_NPROC, &(struct rlimit){1, 1});
    int e = pool_open(&p, 4);
    return e == ERR_NOMEM && strstr(err_last(), "temporarily unavailable; take fewer threads") ? 0
                                                                                               : 1;
}

static void test_thread_limit(void **state)
{
    (void)state;
    in_child(start_threads);
}

static const char *at(const char *name, char out[200])
{
    snprintf(out, 200, "%s/%s", dir, name);
    return out;
}

/* The limit of a container is the smallest of its group and the groups around it. */
static void test_cpu_quota(void **state)
{
    (void)state;
    static const char *const folder[] = {"root", "root/a", "root/a/b", "root/cpu", "root/cpu/c"};
    static const char *const name[] = {"groups", "root/a/b/cpu.max", "root/cpu.max",
                                       "root/cpu/c/cpu.cfs_quota_us",
                                       "root/cpu/c/cpu.cfs_period_us"};
    static const struct {
        const char *text[5]; /* of the files `name` */
        double want;
    } row[] = {
        {{"0::/a/b\n", "200000 100000\n", "max 100000\n", "-1", "100000"}, 2},
        {{"0::/a/b\n", "max 100000\n", "50000 100000\n", "-1", "100000"}, 0.5},
        {{"0::/a/b\n", "400000 100000\n", "150000 100000\n", "-1", "100000"}, 1.5},
        {{"0::/a/b\n", "max 100000\n", "max 100000\n", "100000", "100000"}, 0},
        {{"0::/\n", "100000 100000\n", "300000 100000\n", "-1", "100000"}, 3},
        {{"0::/gone/too\n", "100000 100000\n", "300000 100000\n", "-1", "100000"}, 3},
        {{"7:memory:/a\n4:cpuset,cpu:/c\n", "1 1\n", "1 1\n", "250000", "100000"}, 2.5},
        {{"4:cpuacct,cpuset:/c\n", "1 1\n", "1 1\n", "250000", "100000"}, 0},
        {{"4:cpu:/c\n0::/a/b\n", "100000 100000\n", "max 1\n", "250000", "100000"}, 1},
        {{"0::/a/b", "-5 100000", "0 0", "x", "0"}, 0},
        {{"0\n::\n:\n\n0::/a/b", "nonsense", "", "", ""}, 0},
        {{"", "100000 100000\n", "1 1", "1", "1"}, 0},
    };
    char groups[200], root[200], path[200];
    for (size_t i = 0; i < countof(folder); i++)
        assert_int_equal(mkdir(at(folder[i], path), 0700), 0);
    at("groups", groups);
    at("root", root);
    for (size_t i = 0; i < countof(row); i++) {
        for (size_t k = 0; k < countof(name); k++)
            if (file_write(at(name[k], path), row[i].text[k], strlen(row[i].text[k])) < 0)
                fail_msg("%s", err_last());
        assert_true(cpu_quota(groups, root) == row[i].want);
    }
    for (size_t k = 0; k < countof(name); k++)
        assert_int_equal(unlink(at(name[k], path)), 0);
    assert_true(cpu_quota(groups, root) == 0);
    for (size_t i = countof(folder); i-- > 0;)
        assert_int_equal(rmdir(at(folder[i], path)), 0);
}

/* --- Descriptors of the standard streams */

static int lowest_free(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

/* Runs with all three standard streams closed; returns the number of the step that took one. */
/* Makes the files that have no name, or only for a moment. */
static int make_unnamed(void)
{
    char path[300];
    struct stat st;
    int fd = fd_nameless(dir); /* some file systems have none */
    if (fd >= 0 && (fd < 3 || fstat(fd, &st) < 0 || st.st_nlink || (st.st_mode & 077))) return -1;
    if (fd >= 0) close(fd);
    snprintf(path, sizeof path, "%s/named-??????", dir);
    fd = fd_named(path);
    if (fd < 3 || strchr(path, '?') || stat(path, &st) < 0 || (st.st_mode & 0777) != 0600)
        return -1;
    close(fd);
    return unlink(path);
}

static int open_everything(void)
{
    struct durable f;
    struct kv_tier *tier;
    const char *const how[] = {"threads", "uring"};
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    int fd = fd_open("/dev/null", O_RDWR, 0);
    if (fd < 3 || lowest_free() != 0) return 1;
    close(fd);
    if (durable_create(&f, file, "MARK") < 0 || f.fd < 3 || lowest_free() != 0) return 2;
    if (durable_replace(&f) < 0) return 3;
    durable_close(&f);
    if (durable_open(&f, file, false) < 0 || f.fd < 3) return 4;
    durable_close(&f);
    DIR *list = fd_list(dir);
    FILE *stream = fd_stream(file);
    if (!list || !stream || lowest_free() != 0) return 5;
    closedir(list);
    (void)fclose(stream);
    for (size_t i = 0; i < countof(how); i++) {
        if (kv_tier_file_open(dir, how[i], &tier) < 0) continue; /* no io_uring here */
        if (lowest_free() != 0) return 6;
        tier->close(tier);
    }
    if (make_unnamed() < 0 || lowest_free() != 0) return 8;
    fd_fill();
    return lowest_free() < 3 ? 7 : 0;
}

static void test_low_descriptors(void **state)
{
    (void)state;
    in_child(open_everything);
    assert_int_equal(unlink(file), 0);
}

/* Another process that makes a file of the same name first keeps it. */
static void test_new_file_replaces_none(void **state)
{
    (void)state;
    struct durable f;
    assert_int_equal(durable_create(&f, file, "MARK"), 0);
    f.fresh = true;
    assert_int_equal(durable_write(&f, 0, "MARK", 4), 0);
    assert_int_equal(file_write(file, "theirs", 6), 0);
    assert_int_equal(durable_replace(&f), ERR_BUSY);
    durable_close(&f);
    assert_text(file, "theirs");
    assert_int_equal(names(), 1);
    assert_int_equal(unlink(file), 0);
}

/* Writes "new" over file with the directory swapped in the middle: everything happens in the first one. */
static void replace_swapped(int at)
{
    char moved[80], theirs[96];
    struct durable f;
    snprintf(moved, sizeof moved, "%s-moved", dir);
    snprintf(theirs, sizeof theirs, "%s/file", moved);
    assert_int_equal(
        at ? durable_create_at(&f, at, file, "MARK") : durable_create(&f, file, "MARK"), 0);
    assert_int_equal(durable_write(&f, 0, "MARK", 4), 0);
    assert_int_equal(rename(dir, moved), 0);
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_int_equal(durable_replace(&f), 0);
    durable_close(&f);
    assert_int_equal(names(), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rename(moved, dir), 0);
    assert_text(file, "MARK");
    assert_int_equal(names(), 1);
}

static void test_swapped_directory(void **state)
{
    (void)state;
    struct durable f;
    int at = open(dir, O_PATH | O_DIRECTORY);
    replace_swapped(0);
    replace_swapped(at);
    assert_int_equal(durable_open_at(&f, at, file, true), 0);
    durable_close(&f);
    /* a link in the place of the file is followed by path, and not in a directory that was checked */
    assert_int_equal(rename(file, other), 0);
    assert_int_equal(symlink(other, file), 0);
    assert_int_equal(durable_open_at(&f, at, file, true), ERR_IO);
    assert_int_equal(durable_open(&f, file, true), 0);
    durable_close(&f);
    assert_int_equal(unlink(file) | unlink(other), 0);
    close(at);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(file, sizeof file, "%s/file", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mode_stays),        cmocka_unit_test(test_owner_stays),
        cmocka_unit_test(test_links_stay),        cmocka_unit_test(test_devices_stay),
        cmocka_unit_test(test_broken_pipe),       cmocka_unit_test(test_file_size_limit),
        cmocka_unit_test(test_cpu_quota),         cmocka_unit_test(test_thread_limit),
        cmocka_unit_test(test_low_descriptors),   cmocka_unit_test(test_new_file_replaces_none),
        cmocka_unit_test(test_swapped_directory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
