/* test_keys.c - API keys: every key of the file is compared with what a client sends, whole and as a digest, whether or not an
 * earlier one is the same; so the time tells neither which key it was nor how much of one was right. */
#include "base/base.h"

#include <nettle/memops.h>
#include <stdio.h>
#include <string.h>

static unsigned compared;
static size_t bytes;

/* Stands in for nettle's memeql_sec, whose time does not depend on the contents, and counts. */
static int counted(const void *a, const void *b, size_t n)
{
    compared++;
    bytes += n;
    return nettle_memeql_sec(a, b, n);
}
#undef memeql_sec
#define memeql_sec counted
/* A comparison that ends at the first difference is none for keys. */
#define memcmp(a, b, n) memcmp_of_keys((a), (b), (n))
#define strcmp(a, b)    strcmp_of_keys((a), (b))
#include "serve/keys.c"
#undef memeql_sec
#undef memcmp
#undef strcmp

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEYS = 40 };

static struct keys *read_keys(void)
{
    char path[] = "/tmp/kvik-keys-XXXXXX", line[32];
    struct keys *k = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(write(fd, line, (size_t)snprintf(line, sizeof line, "sk-%04d \r\n", i)),
                         10);
    assert_int_equal(write(fd, "# a comment\n\n", 13), 13);
    close(fd);
    assert_int_equal(keys_read(path, &k), 0);
    unlink(path);
    return k;
}

static void every_key_is_compared(void **state)
{
    (void)state;
    struct keys *k = read_keys();
    static const char *const good[] = {"sk-0000", "sk-0017", "sk-0039"};
    static const char *const bad[] = {"",
                                      "s",
                                      "sk-0040",
                                      "sk-000",
                                      "sk-00000",
                                      "sk-0000 ",
                                      "# a comment",
                                      "SK-0000",
                                      "tk-0000",
                                      "sk-0000\n",
                                      "a key that is longer than a digest, by far"};
    for (size_t i = 0; i < countof(good) + countof(bad); i++) {
        bool known = i < countof(good);
        compared = 0;
        bytes = 0;
        assert_int_equal(keys_have(k, known ? good[i] : bad[i - countof(good)]), known);
        assert_int_equal(compared, KEYS);
        assert_int_equal(bytes, KEYS * DIGEST_BYTES);
    }
    assert_false(keys_have(k, NULL));
    keys_free(k);
}

/* A salt is a digest of key and cache_salt with their border, so no pair is another's. */
static void salts_have_borders(void **state)
{
    (void)state;
    static const struct {
        const char *key, *own;
    } pair[] = {{"a", ""}, {"ab", ""},   {"a", "b"},  {NULL, "b"},
                {"b", ""}, {"a", "\1b"}, {NULL, "a"}, {"", "a"}};
    char salt[countof(pair)][KEYS_SALT], none[KEYS_SALT];
    keys_salt(NULL, "", 0, none);
    assert_string_equal(none, "");
    for (size_t i = 0; i < countof(pair); i++) {
        keys_salt(pair[i].key, pair[i].own, strlen(pair[i].own), salt[i]);
        for (size_t m = 0; m < i; m++)
            if (strcmp(pair[i].own, pair[m].own) ||
                strcmp(pair[i].key ? pair[i].key : "", pair[m].key ? pair[m].key : ""))
                assert_string_not_equal(salt[i], salt[m]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_key_is_compared),
                                       cmocka_unit_test(salts_have_borders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
