/* test_session_file.c - sequences of synthetic groups (full, window with sinks, tiles, states,
 * frozen rows) through a session file in memory: every byte that the next token can read, into
 * blocks of any size. KVIK_CORPUS=DIR writes such files, the seeds of the fuzz target. */
#include "../fuzz/session_store.h"
#include "base/file.h"
#include "testing.h"

static uint8_t one[STORE_FILE], two[STORE_FILE];

/* Makes a sequence whose lengths end in the middle of blocks, tiles and windows. */
static kv_seq make(struct kv *kv, uint32_t len, uint32_t cross)
{
    kv_seq s;
    struct kv_salt salt = {.regime = 7, .adapter = {cross > 0}, .source = {[31] = cross > 0}};
    assert_int_equal(kv_new(kv, &salt, &s), 0);
    if (cross) assert_int_equal(store_step(kv, s, cross, true, false), 0);
    if (len > 3) assert_int_equal(store_step(kv, s, len - 3, false, true), 0);
    for (uint32_t i = 0; i < MIN(len, 3); i++)
        assert_int_equal(store_step(kv, s, 1, false, false), 0);
    assert_int_equal(kv_len(kv, s), len);
    return s;
}

static void load_one(struct kv *kv, const uint8_t *data, size_t n, kv_seq *out)
{
    struct session s;
    struct store_source v = {.io = {store_read, n, "memory"}, .data = data, .s = &s};
    if (session_read(&v.io, &s) < 0) fail_msg("%s", err_last());
    assert_int_equal(s.n_seqs, 1);
    if (store_load(kv, &v, out) != 1) fail_msg("%s", err_last());
    session_done(&s);
}

/* Checks how many rows of an encoder the saved sequence has. */
static void want_cross(const uint8_t *data, size_t n, uint32_t cross)
{
    struct session s;
    struct store_source v = {.io = {store_read, n, "memory"}, .data = data};
    assert_int_equal(session_read(&v.io, &s), 0);
    assert_int_equal(s.seq[0].im.cross, cross);
    session_done(&s);
}

/* The chunks of a sequence hold everything its next token can read, so two files are equal if and
 * only if their sequences are. */
static void round_trip(uint32_t rows_a, uint32_t rows_b, uint32_t len, uint32_t cross)
{
    struct kv *a = store_open(rows_a), *b = store_open(rows_b);
    struct store_file f = {.data = one}, g = {.data = two};
    assert_true(a && b);
    kv_seq s = make(a, len, cross), t, u;
    assert_int_equal(store_save(a, &s, 1, &f), 0);
    load_one(b, one, f.n, &t);
    assert_true(kv_check(b));
    struct kv_salt had = kv_salt(a, s), has = kv_salt(b, t);
    assert_int_equal(has.regime, 7);
    assert_true(kv_salt_same(&had, &has));
    /* The loaded sequence continues like the saved one. */
    assert_int_equal(store_step(a, s, 40, false, true), 0);
    assert_int_equal(store_step(b, t, 40, false, true), 0);
    assert_true(kv_check(b));
    if (rows_a == 16 && rows_b == 16) { /* otherwise the image lists rows without contents */
        assert_int_equal(store_save(a, &s, 1, &f), 0);
        assert_int_equal(store_save(b, &t, 1, &g), 0);
        assert_int_equal(f.n, g.n);
        assert_memory_equal(one, two, f.n);
    } else {
        struct session x, y;
        assert_int_equal(store_save(a, &s, 1, &f), 0);
        assert_int_equal(store_save(b, &t, 1, &g), 0);
        struct store_source v = {.io = {store_read, f.n, "a"}, .data = one},
                            w = {.io = {store_read, g.n, "b"}, .data = two};
        assert_int_equal(session_read(&v.io, &x), 0);
        assert_int_equal(session_read(&w.io, &y), 0);
        assert_int_equal(x.seq[0].n_parts, y.seq[0].n_parts);
        for (uint32_t i = 0; i < x.seq[0].n_parts; i++) {
            const struct session_part *p = &x.seq[0].part[i], *q = &y.seq[0].part[i];
            assert_memory_equal(&p->c, &q->c, sizeof p->c);
            assert_memory_equal(p->digest, q->digest, DIGEST_BYTES);
        }
        session_done(&x);
        session_done(&y);
    }
    want_cross(two, g.n, cross);
    load_one(a, two, g.n, &u);
    assert_true(kv_check(a));
    kv_close(a);
    kv_close(b);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const uint32_t lens[] = {1, 15, 16, 17, 40, 127, 128, 130, 200, 256, 260};
    static const uint32_t rows[] = {16, 64, 256};
    for (size_t i = 0; i < countof(lens); i++)
        for (size_t k = 0; k < 9; k++)
            round_trip(rows[k / 3], rows[k % 3], lens[i], i % 2 ? 37 : 0);
}

/* Images with wrong contents and right checksums. */
static void test_images_are_checked(void **state)
{
    (void)state;
    struct kv *kv = store_open(16);
    struct store_file f = {.data = one};
    struct session s;
    kv_seq q = make(kv, 150, 20), out = 99;
    assert_int_equal(store_save(kv, &q, 1, &f), 0);
    struct store_source v = {.io = {store_read, f.n, "memory"}, .data = one, .s = &s};
    assert_int_equal(session_read(&v.io, &s), 0);
    v.source = (struct kv_source){store_give, NULL};
    struct kv_image good = s.seq[0].im, im;
    struct kv_turn turn[2] = {{0, 200}, {0, 0}};
    static uint32_t unseen[10] = {0, 0, 151};
    static int32_t tok[STORE_LEN] = {-2};
    static uint32_t n_keeps[5] = {0, KV_KEEPS + 1}, none[5] = {1}, keep[2 * KV_KEEPS];
    struct kv_image bad[] = {good, good, good, good, good, good,
                             good, good, good, good, good, good};
    bad[0].len = STORE_LEN + 1;
    bad[1].cross = STORE_LEN + 1;
    bad[2].turn = turn;
    bad[3].n_turns = 2;
    bad[3].turn = (struct kv_turn[]){{0, 10}, {5, 10}};
    bad[4].turn_open = true;
    bad[5].unseen = unseen;
    bad[6].tok = tok;
    bad[7].len = 140; /* the last blocks differ */
    bad[7].n_turns = 0;
    assert_true(good.n_keeps[1] >= 2 && good.n_keeps[3] >= 2);
    memcpy(keep, good.keep, (good.n_keeps[1] + good.n_keeps[3]) * sizeof *keep);
    bad[8].n_keeps = n_keeps;
    bad[9].n_keeps = none; /* of rows that are never forgotten */
    bad[10].keep = (uint32_t[2 * KV_KEEPS]){0};
    keep[good.n_keeps[1] + good.n_keeps[3] - 1] = 151;
    bad[11].keep = keep;
    for (size_t i = 0; i < countof(bad); i++) {
        im = bad[i];
        int e = kv_load(kv, &im, &v.source, &out);
        if (e >= 0) fail_msg("image %zu was accepted", i);
        assert_true(e == ERR_FORMAT || e == ERR_LIMIT);
        assert_int_equal(out, 99);
        assert_true(kv_check(kv));
    }
    assert_int_equal(kv_load(kv, &good, &v.source, &out), 0);
    session_done(&s);
    kv_close(kv);
}

static void test_group_text(void **state)
{
    (void)state;
    char text[KV_GROUP_TEXT], other[KV_GROUP_TEXT];
    struct kv *a = store_open(16), *b = store_open(64);
    for (uint32_t i = 0; i < kv_n_groups(a); i++) {
        kv_group_text(a, i, text);
        kv_group_text(b, i, other); /* block sizes do not matter */
        assert_string_equal(text, other);
        for (uint32_t k = 0; k < i; k++) {
            kv_group_text(a, k, other);
            assert_string_not_equal(text, other);
        }
    }
    kv_close(a);
    kv_close(b);
}

static void test_corpus(void **state)
{
    (void)state;
    static const uint32_t lens[][2] = {{0, 0}, {1, 0}, {20, 5}, {130, 33}, {290, 0}};
    const char *dir = getenv("KVIK_CORPUS");
    struct kv *kv = store_open(16);
    kv_seq s[2];
    for (size_t i = 0; i < countof(lens); i++) {
        struct store_file f = {.data = one};
        char path[512];
        s[0] = make(kv, lens[i][0], lens[i][1]);
        assert_int_equal(kv_fork(kv, s[0], &s[1]), 0);
        assert_int_equal(store_save(kv, s, 1 + i % 2, &f), 0);
        snprintf(path, sizeof path, "%s/%u-%u", dir ? dir : "", lens[i][0], lens[i][1]);
        if (dir) assert_int_equal(file_write(path, one, f.n), 0);
        kv_drop(kv, s[0]);
        kv_drop(kv, s[1]);
    }
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_images_are_checked),
        cmocka_unit_test(test_group_text),
        cmocka_unit_test(test_corpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
