/* test_keeper_files.c - a directory that keeps values: they are whole or not there, also after writers that were killed; files that
 * no keeper wrote are no values; room is made of what was not used for longest; a directory that was removed is made again. */
#include "shared/keeper.h"
#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 100 << 10, LIMIT = 1 << 20 };
#define FOREVER 1e18

static char dir[64], path[256];
static struct address at;
static struct keeper *k;

static void key_of(uint32_t i, uint8_t key[KEEPER_KEY])
{
    memset(key, 0, KEEPER_KEY);
    memcpy(key, &i, sizeof i);
}

static const char *path_of(uint32_t i)
{
    uint8_t key[KEEPER_KEY];
    char hex[KEEPER_HEX];
    key_of(i, key);
    digest_hex(key, hex);
    snprintf(path, sizeof path, "%s/%s.rows", dir, hex);
    return path;
}

static int put(uint32_t i, size_t n)
{
    static uint8_t data[2 * LIMIT];
    uint8_t key[KEEPER_KEY];
    key_of(i, key);
    memset(data, (int)i, n);
    return k->put(k, key, data, n, FOREVER);
}

/* Returns 1 if the value is there and whole, or an error. */
static int get(uint32_t i, size_t n)
{
    uint8_t key[KEEPER_KEY];
    void *data;
    size_t got;
    key_of(i, key);
    int e = k->get(k, key, BYTES, &data, &got, FOREVER);
    if (e < 0) return e;
    assert_int_equal(got, n);
    for (size_t b = 0; b < n; b++)
        assert_int_equal(((uint8_t *)data)[b], (uint8_t)i);
    mem_free(data);
    return 1;
}

static int exists(uint32_t i)
{
    uint8_t key[KEEPER_KEY];
    key_of(i, key);
    return k->exists(k, key, FOREVER);
}

static int take_away(uint32_t i)
{
    uint8_t key[KEEPER_KEY];
    key_of(i, key);
    return k->remove(k, key, FOREVER);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/kvik-keeper-XXXXXX");
    assert_non_null(mkdtemp(dir));
    char text[128];
    snprintf(text, sizeof text, "file://%s?size=1M", dir);
    assert_int_equal(address_read(text, &at), 0);
    assert_int_equal(keeper_open(&at, NULL, &k), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    k->close(k);
    address_done(&at);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void test_calls(void **state)
{
    (void)state;
    assert_int_equal(get(1, BYTES), ERR_NOTFOUND);
    assert_int_equal(exists(1), 0);
    assert_int_equal(take_away(1), 0);
    assert_int_equal(put(1, BYTES), 0);
    assert_int_equal(put(2, 0), 0);
    assert_int_equal(exists(1) + exists(2), 2);
    assert_int_equal(get(1, BYTES), 1);
    assert_int_equal(get(2, 0), 1);
    assert_int_equal(put(1, 7), 0); /* in its place */
    assert_int_equal(get(1, 7), 1);
    assert_int_equal(take_away(1), 0);
    assert_int_equal(get(1, 7), ERR_NOTFOUND);
    assert_int_equal(put(3, LIMIT + 1), ERR_FULL);
    assert_int_equal(exists(3), 0);
}

static void age(uint32_t i, time_t by)
{
    const struct timespec t[2] = {{.tv_sec = time(NULL) - by}, {.tv_sec = time(NULL) - by}};
    assert_int_equal(utimensat(AT_FDCWD, path_of(i), t, 0), 0);
}

/* What was not used for longest goes, and with it what a killed writer left; what other writers put counts. */
static void test_room(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(put(i, BYTES), 0);
        age(i, 1000 - i);
    }
    assert_int_equal(get(0, BYTES), 1); /* it is used now */
    assert_int_equal(rename(path_of(1), "/tmp/kvik-keeper-left"), 0);
    char left[300];
    snprintf(left, sizeof left, "%s.0123456789abcdef", path_of(1));
    assert_int_equal(rename("/tmp/kvik-keeper-left", left), 0);
    struct keeper *mine = k, *other;
    assert_int_equal(keeper_open(&at, NULL, &other), 0);
    k = other;
    assert_int_equal(put(10, BYTES), 0); /* together more than the limit */
    k = mine;
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(exists(2), 0);
    for (uint32_t i = 4; i < 11; i++)
        assert_int_equal(exists(i), 1);
    assert_int_equal(exists(0), 1);
    for (uint32_t i = 11; i < 31; i++) { /* each writer looks again after a while */
        k = i & 1 ? mine : other;
        assert_int_equal(put(i, BYTES), 0);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < 31; i++)
        n += (uint32_t)exists(i);
    assert_in_range(n, 5, 12);
    k = mine;
    other->close(other);
}

/* Files that no keeper wrote are told as such, are removed, and values take their place. */
static void test_foreign(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        if (i != 1 && i != 2 && i != 3) assert_int_equal(put(i, 100), 0);
        switch (i) {
        case 0:
            assert_int_equal(chmod(path_of(i), 0622), 0);
            break;
        case 1:
            assert_int_equal(symlink("/etc/passwd", path_of(i)), 0);
            break;
        case 2:
            assert_int_equal(mkfifo(path_of(i), 0600), 0);
            break;
        case 3:
            assert_int_equal(mkdir(path_of(i), 0700), 0);
            break;
        case 4:
            assert_int_equal(truncate(path_of(i), BYTES + 1), 0);
            break;
        default:
            assert_int_equal(truncate(path_of(i), 0), 0);
            break;
        }
        assert_int_equal(get(i, 0), i == 5 ? 1 : ERR_LIMIT);
        if (i >= 1 && i <= 3) assert_int_equal(exists(i), 0);
        assert_int_equal(take_away(i), 0);
        assert_int_equal(get(i, 0), ERR_NOTFOUND);
        assert_int_equal(put(i, 100), 0);
        assert_int_equal(get(i, 100), 1);
    }
    assert_int_equal(access("/etc/passwd", R_OK), 0);
}

/* A directory that others can write is refused, and one that was removed is made again. */
static void test_directory(void **state)
{
    (void)state;
    struct keeper *other;
    char command[200];
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(keeper_open(&at, NULL, &other), ERR_ARG);
    assert_int_equal(chmod(dir, 0700), 0);
    assert_int_equal(put(1, 100), 0);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(get(1, 100), ERR_NOTFOUND);
    assert_int_equal(put(1, 100), 0);
    assert_int_equal(access(path_of(1), F_OK), 0);
    assert_int_equal(system(command), 0);
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(put(1, 100), ERR_IO); /* into no directory of others */
    assert_int_equal(access(path_of(1), F_OK), -1);
    assert_int_equal(chmod(dir, 0700), 0);
    assert_int_equal(put(1, 100), 0);
    assert_int_equal(get(1, 100), 1);
}

/* Writers are killed at any time: values are whole or not there. */
static void test_killed(void **state)
{
    (void)state;
    uint32_t seen = 0, x = 1;
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        if (!child)
            for (uint32_t i = 0;; i = (i + 1) % 8)
                if (put(i, BYTES) < 0) _exit(1);
        x = x * 1664525u + 1013904223u;
        usleep(500 + (x >> 8) % 5000);
        for (uint32_t i = 0; i < 8; i++) {
            int e = get(i, BYTES);
            assert_true(e == 1 || e == ERR_NOTFOUND);
            seen += e == 1;
        }
        int how;
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        for (uint32_t i = 0; i < 8; i++) {
            int e = get(i, BYTES);
            assert_true(e == 1 || e == ERR_NOTFOUND);
        }
    }
    assert_true(seen > 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_calls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_foreign, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_directory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_killed, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
