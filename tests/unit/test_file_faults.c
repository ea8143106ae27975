/* test_file_faults.c - each call that touches a file fails, in whole uses of the library: files of models and tokenizers,
 * the spill file, session files, directories of prompts. The errors are EIO, ENOSPC and EINTR; and reads and writes move
 * one byte. A failed step gives a clean error and then works without the fault, and the tokens are those of a run without
 * faults. Without KVIK_TEST_LONG the test tries a sample. test_stream_faults does this with io_uring. */
#include "fault_runs.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

/* A cause that is the system's is an error of input and output. A file that cannot be looked at may seem absent. */
static bool unreadable(int e)
{
    return e == KVIK_IO || e == KVIK_NOTFOUND || e == KVIK_BUSY;
}

static void sweep(void **state)
{
    static const uint32_t moves = 1u << SHIM_READ | 1u << SHIM_WRITE;
    static const struct sweep all[] = {
        {"EIO", SHIM_FILES, EIO, false, unreadable},
        {"ENOSPC", SHIM_FILES, ENOSPC, false, unreadable},
        {"EINTR", SHIM_FILES, EINTR, false, unreadable},
        {"EIO for good", SHIM_FILES, EIO, true, unreadable},
        {"interrupted transfers", 0, EINTR, false, NULL},
        {"one byte", 0, 0, false, NULL},
    };
    for (size_t i = 0; i < countof(all); i++) {
        struct sweep w = all[i];
        if (!w.kinds) w.kinds = moves;
        sweep_scene(*state, &w);
    }
}

/* Fills the disk with a file. */
static void fill(const char *path)
{
    static const char zeros[4096];
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    while (write(fd, zeros, sizeof zeros) > 0)
        ;
    close(fd);
}

/* Saves on a disk of 1 MiB that only this process sees. Returns 77 where no disk can be mounted. */
static int on_full_disk(void)
{
    static const struct scene resident = {"full", {0}, {0}, dir};
    struct fault_run r = {.scene = &resident};
    char filler[100];
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", sessions, "tmpfs", 0, "size=1m") < 0)
        return 77;
    snprintf(filler, sizeof filler, "%s/filler", sessions);
    snprintf(prefixes, sizeof prefixes, "%s/prefixes", sessions);
    assert_true(open_model(&r) >= 0 && open_cache(&r) >= 0 && add_sequence(&r) >= 0 &&
                append(&r) >= 0);
    assert_int_equal(save(&r), 0);
    assert_int_equal(generate(&r), 0);
    fill(filler);
    assert_int_equal(save_over(&r), KVIK_IO); /* and the old session loads */
    assert_non_null(strstr(kvik_last_error(), "No space left"));
    assert_int_equal(save_prefix(&r), KVIK_IO);
    assert_int_equal(load_prefix(&r), 0);
    assert_int_equal(r.loaded, 0);
    assert_int_equal(unlink(filler), 0);
    assert_int_equal(save_over(&r), 0);
    assert_int_equal(save_prefix(&r), 0);
    assert_true(load(&r) >= 0 && continue_loaded(&r) >= 0);
    assert_memory_equal(r.out[0], r.out[1], sizeof r.out[0]);
    kvik_cache_close(r.c);
    kvik_model_close(r.m);
    return 0;
}

static void full_disk(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(on_full_disk());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        fprintf(stderr, "skipped: no private mount here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[countof(scenes) + 1];
    size_t n = 0;
    setenv("KVIK_AIO", "threads", 1);
    setenv("KVIK_SPILL_MAP", "0", 1); /* every read is a call */
    for (size_t i = 0; i < countof(scenes); i++)
        if (argc < 2 || strcmp(argv[1], scenes[i].name) == 0)
            tests[n++] = (struct CMUnitTest){scenes[i].name, sweep, NULL, NULL, &scenes[i]};
    if (argc < 2 || !strcmp(argv[1], "full"))
        tests[n++] = (struct CMUnitTest){"full disk", full_disk, NULL, NULL, NULL};
    return _cmocka_run_group_tests("file_faults", tests, n, setup, teardown);
}
