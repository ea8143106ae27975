/* test_session_damage.c - damaged sessions of models with an encoder, with states and with windows: each changed byte is refused,
 * and where checksums are bypassed, what is accepted leaves a store that is right in itself and can be used.
 * KVIK_TEST_LONG=1 changes every byte. */
#include "base/file.h"
#include "generate/handle.h"
#include "hearing.h"
#include "kvik.h"
#include "session/session_file.h"
#include "session_cache.h"

#include <fcntl.h>

enum {
    PROMPT = 21,
    VOCAB = 1024,
    MANIFEST = 2000 /* bytes at the end: what the file says of itself */
};

static char file[] = "/tmp/kvik-damage-XXXXXX";
static struct hearing hearing;
static kvik_model *m;
static kvik_cache *from, *into;
static kvik_seq live;
static float want[VOCAB], got[VOCAB];
static int32_t ids[PROMPT], others[PROMPT]; /* equal tokens would be shared and not read */

static int forward(kvik_cache *c, kvik_seq s, uint32_t n, float *logits)
{
    kvik_span span = {
        .size = sizeof span, .seq = s, .ids = c == into && s == live ? others : ids, .n = n};
    return kvik_forward(c, &span, 1, false, logits);
}

/* A sequence that nothing may change: computes the logits of a further token on a fork of it. */
static void peek(float *logits)
{
    kvik_seq f;
    assert_int_equal(kvik_cache_fork(into, live, &f), 0);
    assert_int_equal(forward(into, f, 1, logits), 0);
    assert_int_equal(kvik_cache_drop(into, f), 0);
}

static void save(char **data, size_t *n)
{
    kvik_seq s[2];
    if (hearing_new(&hearing, from, &s[0]) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(forward(from, s[0], PROMPT, got), 0);
    assert_int_equal(kvik_cache_fork(from, s[0], &s[1]), 0);
    assert_int_equal(forward(from, s[1], 3, got), 0);
    unlink(file);
    if (kvik_cache_save(from, file, s, 2, "note") < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(file_read(file, 1 << 24, data, n), 0);
}

/* Loads the file; what is accepted is used. Returns the result of the load. */
static int use(void)
{
    kvik_seq s[4] = {0};
    char *note = NULL;
    int n = kvik_cache_load(into, file, 3, s, &note);
    if (n < 0) assert_true(strlen(kvik_last_error()) > 10);
    kvik_free(note);
    if (!kv_check(into->x->kv)) fail_msg("after loading: %s", err_last());
    for (int i = 0; i < n; i++) {
        if (hearing.hears && kvik_cache_length(into, s[i]) == 0) /* it lacks an input */
            assert_true(forward(into, s[i], 2, got) < 0 || forward(into, s[i], 1, got) == 0);
        else if (forward(into, s[i], 2, got) < 0)
            assert_true(strlen(kvik_last_error()) > 10);
        (void)kvik_cache_crop(into, s[i], (int64_t)kvik_cache_length(into, s[i]) / 2);
        (void)forward(into, s[i], 2, got);
        if (!kv_check(into->x->kv)) fail_msg("after a step: %s", err_last());
        assert_int_equal(kvik_cache_drop(into, s[i]), 0);
    }
    return n;
}

static void damage(const char *name)
{
    static const char masks[] = {0x01, 0x10, (char)0x80, (char)0xff};
    char path[256], *data;
    size_t n, step, accepted[2] = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    assert_true(kvik_model_vocab(m) <= VOCAB);
    hearing_open(&hearing, m);
    from = session_cache(m);
    into = session_cache(m);
    live = 0;
    assert_int_equal(hearing_new(&hearing, into, &live), 0);
    assert_int_equal(forward(into, live, PROMPT, want), 0);
    peek(want);
    save(&data, &n);
    int fd = open(file, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(use(), 2);
    step = getenv("KVIK_TEST_LONG") ? 1 : MAX(n / 300, 1) * test_share();
    for (int trust = 0; trust < 2; trust++) {
        session_trust = trust;
        for (size_t i = 0, k = 0; i < n;
             i += trust && i + MANIFEST >= n ? test_share() : step, k++) {
            char x = data[i] ^ masks[k % sizeof masks];
            assert_int_equal(pwrite(fd, &x, 1, (off_t)i), 1);
            accepted[trust] += use() >= 0;
            assert_int_equal(pwrite(fd, &data[i], 1, (off_t)i), 1);
        }
    }
    session_trust = false;
    close(fd);
    print_message("%s: %zu bytes, %zu of the changes were accepted without checksums\n", name, n,
                  accepted[1]);
    assert_int_equal(accepted[0], 0);
    peek(got);
    assert_memory_equal(got, want, kvik_model_vocab(m) * sizeof *got);
    mem_free(data);
    kvik_cache_close(from);
    kvik_cache_close(into);
    kvik_model_close(m);
}

static void test_encoders(void **state)
{
    (void)state;
    damage("t5");
    damage("whisper");
    damage("bart");
}

static void test_others(void **state)
{
    (void)state;
    damage("gemma2");
    damage("zamba2");
    damage("qwen3-next");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_others),
    };
    for (int32_t i = 0; i < PROMPT; i++)
        ids[i] = 3 + i * 7 % 31, others[i] = 4 + i * 5 % 37;
    int fd = mkstemp(file);
    if (fd < 0) return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return failed;
}
