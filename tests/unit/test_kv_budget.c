/* test_kv_budget.c - the store, case by case: what the promises of kv.h about opening, the budget,
 * reserves and marks mean in bytes, error codes and messages. */
#include "../codec/shuffle.h"
#include "small_store.h"

static void test_budget_to_the_byte(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 3);
    for (int short_by = 0; short_by < 2; short_by++) {
        struct kv *kv = store(&g, 1, 10 * 3 * BLOCK + meta(&g, 1, 145) - (size_t)short_by);
        kv_seq a;
        struct kv_usage u;
        assert_int_equal(kv_new(kv, NULL, &a), 0);
        assert_int_equal(append(kv, a, 144, 0), 0);
        int e = append(kv, a, 1, 0);
        assert_int_equal(e, short_by ? ERR_FULL : 0);
        kv_usage(kv, &u);
        assert_int_equal(u.need, short_by);
        assert_int_equal(kv_len(kv, a), short_by ? 144 : 145);
        assert_true(kv_check(kv));
        kv_close(kv);
    }
}

static void test_open_refuses(void **state)
{
    (void)state;
    static const struct kv_codec *const shuffle = &kv_codec_shuffle;
    struct kv_group good = rows_group(0, 0, 1);
    struct {
        const char *what;
        struct kv_group g;
        struct kv_config c;
        int want;
    } row[16];
    size_t n = 0;
#define CASE(name, edit, code)                                                                     \
    do {                                                                                           \
        struct kv_group g = good;                                                                  \
        struct kv_config c = {                                                                     \
            .n_groups = 1, .max_seqs = 2, .max_tokens = 8, .max_len = 64, .pool_bytes = 1 << 20};  \
        edit;                                                                                      \
        row[n].what = name, row[n].g = g, row[n].c = c, row[n++].want = code;                      \
    } while (0)
    CASE("no groups", c.n_groups = 0, ERR_ARG);
    CASE("max_seqs", c.max_seqs = 65536, ERR_ARG);
    CASE("max_tokens", c.max_tokens = 0, ERR_ARG);
    CASE("max_len", c.max_len = 0, ERR_ARG);
    CASE("rows", g.rows = 24, ERR_ARG);
    CASE("rows", g.rows = 512, ERR_ARG);
    CASE("site0", g.site0 = 1, ERR_ARG);
    CASE("planes", g.n_planes = 0, ERR_ARG);
    CASE("shape", g.plane[1].shape.dim = 0, ERR_ARG);
    CASE("dtype", g.plane[1].shape.dtype = DT_Q4_0, ERR_ARG);
    CASE("layout", g.plane[1].shape.layout = KV_FLAT, ERR_ARG);
    CASE("tile without codec", g.seal.tile = 128, ERR_ARG);
    CASE("codec on one plane", (g.seal.tile = 128, g.plane[0].codec = shuffle), ERR_ARG);
    CASE("tile of the codec",
         (g.seal.tile = 64, g.plane[0].codec = shuffle, g.plane[1].codec = shuffle), ERR_ARG);
    CASE("sinks below lead",
         (g.seal.tile = 128, g.plane[0].codec = shuffle, g.plane[1].codec = shuffle,
          g.policy.window = 9, g.policy.sinks = 4),
         ERR_ARG);
    CASE("small pool", c.pool_bytes = 2 * BLOCK - 1, ERR_LIMIT);
    assert_int_equal(n, countof(row));
    for (size_t i = 0; i < n; i++) {
        struct kv *kv = (struct kv *)&n;
        row[i].c.group = &row[i].g;
        int e = kv_open(&kv, &row[i].c);
        if (e != row[i].want) print_error("%s: %d %s\n", row[i].what, e, err_last());
        assert_int_equal(e, row[i].want);
        assert_ptr_equal(kv, &n);
    }
}

/* The smallest budget opens a store with room for the first rows of every sequence.  A byte less is refused, and the
 * message says how much is needed. */
static void test_open_with_the_least(void **state)
{
    (void)state;
    struct kv_group g[2] = {rows_group(0, 0, 3), rows_group(64, 3, 2)};
    g[1].policy.every = 64;
    for (uint32_t i = 0; i < 8; i++) {
        struct kv_config c = {.group = g,
                              .n_groups = 2,
                              .max_seqs = 1 + i % 3,
                              .max_tokens = 16u << i,
                              .max_len = 256u << i,
                              .index = i % 2};
        struct kv *kv = NULL;
        kv_seq s;
        char text[16];
        c.pool_bytes = kv_open_bytes(&c);
        assert_int_equal(kv_open(&kv, &c), 0);
        for (uint32_t k = 0; k < c.max_seqs; k++) {
            assert_int_equal(kv_new(kv, NULL, &s), 0);
            assert_int_equal(append(kv, s, 16, 0), 0);
        }
        assert_int_equal(pool_held(kv), c.pool_bytes);
        assert_int_equal(append(kv, s, 1, 0), ERR_FULL);
        kv_close(kv);
        c.pool_bytes--;
        assert_int_equal(kv_open(&kv, &c), ERR_LIMIT);
        assert_non_null(strstr(err_last(), bytes_text(c.pool_bytes + 1, text)));
    }
}

/* Metadata is part of the budget.  Forks, second marks and longer sequences are refused for want of it alone, and say so.
 * What undoes them never is. */
static void test_metadata_in_budget(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 1);
    size_t one = kv_metadata_bytes(&(struct kv_config){.group = &g, .n_groups = 1}, 64);
    struct kv_config c = {
        .group = &g, .n_groups = 1, .max_seqs = 8, .marks = 8, .max_tokens = 64, .max_len = 1024};
    c.pool_bytes = kv_pool_bytes(&c, 8 * (4 * BLOCK + 2 * one));
    struct kv *kv = NULL;
    struct kv_usage u;
    struct kv_mark m[2];
    kv_seq a, b;
    uint32_t have;
    assert_int_equal(kv_open(&kv, &c), 0);
    kv_usage(kv, &u);
    size_t fixed = u.metadata;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    assert_int_equal(append(kv, a, 64, 0), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.metadata, fixed + 2 * one);
    assert_int_equal(u.free, u.pool - u.metadata - 4 * BLOCK);
    assert_int_equal(kv_mark(kv, a, &m[0]), 0); /* paid for already */
    kv_usage(kv, &u);
    assert_int_equal(u.metadata, fixed + 2 * one);
    kv->pool = pool_held(kv) + one - 1;
    assert_int_equal(kv_mark(kv, a, &m[1]), ERR_FULL);
    assert_non_null(strstr(err_last(), "for metadata"));
    assert_int_equal(kv_fork(kv, a, &b), ERR_FULL);
    assert_non_null(strstr(err_last(), "a fork needs"));
    assert_int_equal(kv->need, one + 1);
    kv->pool = pool_held(kv) + 2 * one;
    assert_int_equal(kv_fork(kv, a, &b), 0);
    assert_int_equal(kv_trim(kv, b, 10, &have), 0); /* tables of its own are paid for */
    assert_int_equal(kv_trim(kv, a, 0, &have), 0);
    kv->pool = pool_held(kv);
    kv_rollback(kv, &m[0]);
    assert_int_equal(kv_len(kv, a), 64);
    assert_true(kv_check(kv));
    assert_int_equal(kv_mark(kv, a, &m[0]), 0);
    assert_int_equal(kv_drop(kv, a), 0); /* the mark outlives its sequence */
    kv_usage(kv, &u);
    assert_int_equal(u.metadata, fixed + 3 * one);
    kv_release(kv, &m[0]);
    kv_usage(kv, &u);
    assert_int_equal(u.metadata, fixed + 2 * one);
    kv->pool = pool_held(kv) + 4 * BLOCK;
    assert_int_equal(append(kv, b, 55, 0), ERR_FULL); /* row 65 needs more tables */
    assert_non_null(strstr(err_last(), "the step needs"));
    assert_int_equal(kv_reserve(kv, b, 65), ERR_FULL);
    assert_true(kv_check(kv));
    assert_int_equal(kv_drop(kv, b), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.metadata, fixed);
    kv_close(kv);
}

static void test_open_without_memory(void **state)
{
    (void)state;
    struct kv_group g[2] = {rows_group(0, 0, 3), rows_group(64, 3, 2)};
    g[1].policy.every = 64;
    struct kv_config c = {.group = g,
                          .n_groups = 2,
                          .max_seqs = 3,
                          .max_tokens = 64,
                          .max_len = 256,
                          .index = true,
                          .pool_bytes = 1 << 20};
    for (int persistent = 0; persistent < 2; persistent++) {
        int64_t k = 0;
        for (;; k++) {
            struct kv *kv = NULL;
            mem_fail_at(k, persistent);
            int e = kv_open(&kv, &c);
            mem_fail_at(-1, false);
            if (e == 0) {
                kv_close(kv);
                break;
            }
            assert_int_equal(e, ERR_NOMEM);
            assert_null(kv);
        }
        assert_true(k > 30);
    }
}

static void test_no_allocation_after_open(void **state)
{
    (void)state;
    struct kv_group g = rows_group(64, 0, 2);
    struct kv *kv = store(&g, 1, 1 << 20);
    uint64_t calls = mem_calls();
    kv_seq a, b;
    uint32_t have;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    for (uint32_t i = 0; i < 300; i++) {
        assert_int_equal(append(kv, a, 1 + i % 5, 0), 0);
        assert_int_equal(kv_fork(kv, a, &b), 0);
        assert_int_equal(append(kv, b, 3, 1), 0);
        assert_int_equal(kv_reorder(kv, (kv_seq[]){a, b}, (uint32_t[]){1, 1}, 2), 0);
        assert_int_equal(kv_trim(kv, a, kv_len(kv, a) - 2, &have), 0);
        assert_int_equal(kv_drop(kv, b), 0);
    }
    assert_true(mem_calls() == calls);
    kv_close(kv);
}

/* In a small address space the ranges shrink. The budget then ends earlier, with a message. */
static void test_small_address_space(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 3);
    kv_fault.map_limit = 300 * BLOCK;
    struct kv *kv = store(&g, 1, 400 * 3 * BLOCK);
    kv_fault.map_limit = 0;
    kv_seq s;
    uint32_t n = 0;
    int e = 0;
    for (uint32_t i = 0; i < 8 && e == 0; i++) {
        assert_int_equal(kv_new(kv, NULL, &s), 0);
        for (uint32_t k = 0; k < 64 && e == 0; k++, n += e == 0)
            e = append(kv, s, 16, 0);
    }
    assert_int_equal(e, ERR_FULL);
    assert_non_null(strstr(err_last(), "address space"));
    assert_true(n > 60 && n < 100);
    assert_true(kv_check(kv));
    kv_close(kv);
    kv_fault.map_limit = 1;
    struct kv_config c = {.group = &g,
                          .n_groups = 1,
                          .max_seqs = 1,
                          .max_tokens = 8,
                          .max_len = 64,
                          .pool_bytes = 1 << 20};
    assert_int_equal(kv_open(&kv, &c), ERR_LIMIT);
    kv_fault.map_limit = 0;
}

/* One sequence fills aligned runs of 16 page ids, also while other sequences grow. */
static void test_adjacent_pages(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 1);
    struct kv *kv = store(&g, 1, 600 * BLOCK);
    kv_seq s[4];
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(kv_new(kv, NULL, &s[i]), 0);
    for (uint32_t k = 0; k < 64; k++)
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(append(kv, s[i], 16, 0), 0);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t *t =
            kv->group[0].tables[RAW].host + kv->slot[i].seq * kv->group[0].stride[RAW];
        for (uint32_t k = 0; k < 64; k++)
            assert_int_equal(t[k] % 16, k % 16);
        for (uint32_t k = 0; k < 63; k++)
            if (k % 16 != 15) assert_int_equal(t[k + 1], t[k] + 1);
    }
    kv_close(kv);
}

static void test_sentences_name_numbers(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 1);
    struct kv *kv = store(&g, 1, 1 << 20);
    kv_seq a;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(append(kv, a, 200, 0), 0);
    assert_int_equal(append(kv, a, 25, 0), ERR_LIMIT);
    assert_non_null(strstr(err_last(), "25 rows after 1000"));
    assert_non_null(strstr(err_last(), "1024"));
    assert_int_equal(append(kv, a, 24, 0), 0);
    assert_int_equal(append(kv, a, 1, 0), ERR_LIMIT);
    assert_int_equal(kv_len(kv, a), 1024);
    assert_int_equal(append(kv, a, 0, 0), ERR_ARG);
    kv_close(kv);
}

/* A store whose sequences can be marked: one layer that sees everything, and 16 with a window of 24 rows. */
static struct kv *marked_store(size_t bytes)
{
    struct kv *kv = NULL;
    const struct kv_group g[2] = {rows_group(0, 0, 1), rows_group(24, 1, 16)};
    struct kv_config c = {
        .group = g, .n_groups = 2, .max_seqs = 8, .marks = 4, .max_tokens = 16, .max_len = 1024};
    c.pool_bytes = kv_pool_bytes(&c, bytes);
    if (kv_open(&kv, &c) < 0) fail_msg("%s", err_last());
    return kv;
}

/* Appends up to `len` rows, all within a reserve. */
static void grow(struct kv *kv, kv_seq s, uint32_t len)
{
    while (kv_len(kv, s) < len)
        if (append(kv, s, 1, 0) < 0) fail_msg("at row %u: %s", kv_len(kv, s), err_last());
}

/* The budget beside arrays of fixed size in which a sequence of 64 rows with a reserve of 256 just fits, and a mark. */
static size_t marked_budget(void)
{
    struct kv_usage u;
    struct kv_mark m;
    kv_seq s;
    struct kv *kv = marked_store(1 << 20);
    assert_int_equal(kv_new(kv, NULL, &s), 0);
    assert_int_equal(kv_reserve(kv, s, 256), 0);
    for (uint32_t i = 0; i < 64; i += 16)
        assert_int_equal(append(kv, s, 16, 0), 0);
    assert_int_equal(kv_mark(kv, s, &m), 0);
    kv_usage(kv, &u);
    size_t sum = u.live + u.reserved + u.metadata - kv->fixed;
    kv_release(kv, &m);
    kv_close(kv);
    return sum;
}

/* What the reserve of a marked sequence has to spare in one group makes no room for what another group lacks: a trim is
 * refused, or the reserve holds.  A rollback finds the reserve as it was. */
static void test_marked_trim(void **state)
{
    (void)state;
    size_t least = marked_budget();
    int refused = 0, done = 0;
    for (size_t pool = least; pool < least + 80 * BLOCK; pool += BLOCK) {
        struct kv *kv = marked_store(pool);
        struct kv_mark m;
        uint32_t have;
        kv_seq s;
        assert_int_equal(kv_new(kv, NULL, &s), 0);
        if (kv_reserve(kv, s, 256) < 0) fail_msg("%zu: %s", pool, err_last());
        for (uint32_t i = 0; i < 64; i += 16)
            assert_int_equal(append(kv, s, 16, 0), 0);
        assert_int_equal(kv_mark(kv, s, &m), 0);
        int e = kv_trim(kv, s, 0, &have);
        if (e < 0) {
            assert_int_equal(e, ERR_FULL);
            assert_int_equal(kv_len(kv, s), 64);
            refused++;
        } else {
            grow(kv, s, 256);
            done++;
        }
        kv_rollback(kv, &m);
        assert_int_equal(kv_len(kv, s), 64);
        grow(kv, s, 256);
        assert_true(kv_check(kv));
        kv_close(kv);
    }
    assert_true(refused > 0 && done > 0);
}

/* A fork keeps pages that a rollback would give back to the reserve.  The fork adds these pages to
 * the reserve, or is refused; so the reserve holds after the rollback without one page more.  The
 * same with a release, and with a fork that was made before the sequence grew. */
static void test_fork_of_marked(void **state)
{
    (void)state;
    size_t least = marked_budget();
    int refused = 0, done = 0;
    for (uint32_t k = 0; k < 8; k++)
        for (size_t pool = least; pool < least + 120 * BLOCK; pool += 2 * BLOCK) {
            struct kv *kv = marked_store(pool);
            struct kv_mark m;
            kv_seq s, f = 0;
            uint32_t have, rows = k & 4 ? 60 : 64;
            assert_int_equal(kv_new(kv, NULL, &s), 0);
            assert_int_equal(kv_reserve(kv, s, 256), 0);
            grow(kv, s, rows);
            assert_int_equal(kv_mark(kv, s, &m), 0);
            int e = k & 1 ? kv_fork(kv, s, &f) : 0;
            grow(kv, s, rows + 40);
            if (e >= 0 && !(k & 1)) e = kv_fork(kv, s, &f);
            if (e >= 0) (void)kv_trim(kv, s, rows - 20, &have); /* may be refused */
            refused += e < 0;
            done += e >= 0;
            if (e < 0) assert_int_equal(e, ERR_FULL);
            kv->pool = pool_held(kv);
            kv_settle(kv, &m, k & 2);
            if (k & 2) assert_int_equal(kv_len(kv, s), rows);
            assert_false(kv->owing);
            grow(kv, s, 256);
            assert_true(kv_check(kv));
            kv_close(kv);
        }
    assert_true(refused > 0 && done > 0);
}

/* Two stores, one with a reserve. Growth within the reserve cannot fail, even when other sequences
 * take the rest. */
static void test_reserve(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 3);
    size_t before = meta(&g, 1, 320), more = meta(&g, 1, 321) - before;
    struct kv *kv = store(&g, 1, 41 * 3 * BLOCK + 2 * before + more);
    kv_seq a, b, c;
    struct kv_usage u;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    assert_int_equal(kv_new(kv, NULL, &b), 0);
    assert_int_equal(append(kv, a, 8, 0), 0);
    assert_int_equal(kv_reserve(kv, a, 320), 0);
    kv_usage(kv, &u);
    /* 19 blocks up to the reserved length, and a copy of the open block. */
    assert_int_equal(u.reserved, 20 * 3 * BLOCK);
    assert_int_equal(kv_reserve(kv, b, 320), ERR_FULL);
    kv_usage(kv, &u);
    assert_int_equal(u.need, 3 * BLOCK - more);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(append(kv, b, 16, 0), 0);
    assert_int_equal(append(kv, b, 1, 0), ERR_FULL);
    /* Sequence a would have to copy its open block. */
    assert_int_equal(kv_fork(kv, a, &c), ERR_FULL);
    assert_int_equal(append(kv, a, 200, 0), 0);
    assert_int_equal(append(kv, a, 112, 0), 0);
    assert_int_equal(append(kv, a, 1, 0),
                     0); /* the page for a copy, which the reserve released at its end */
    assert_int_equal(append(kv, a, 16, 0), ERR_FULL);
    assert_int_equal(kv_reserve(kv, a, 0), 0);
    assert_true(kv_check(kv));
    kv_close(kv);
}

/* Memory of the past peak of one form is freed before another form needs it. */
static void test_memory_moves_between_forms(void **state)
{
    (void)state;
    struct kv_group g[2] = {rows_group(0, 0, 4), rows_group(0, 4, 4)};
    g[0].policy.window = 16;
    struct kv *kv = store(g, 2, 40 * 4 * BLOCK + meta(g, 2, 480));
    kv_seq a;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    /* Pages of the window are freed while the other groups grow. */
    for (uint32_t i = 0; i < 30; i++) {
        assert_int_equal(append(kv, a, 16, 0), 0);
        assert_true(kv->live + kv->backed <= kv->pool);
        assert_true(kv_check(kv));
    }
    kv_close(kv);
}

/* Huge numbers are refused or harmless; no size wraps. */
static void test_open_with_extremes(void **state)
{
    (void)state;
    static const uint32_t odd[] = {1, 16, 255, 256, 1u << 20, 1u << 24, 1u << 30, UINT32_MAX};
    srand(5);
    for (int round = 0; round < 2000; round++) {
        struct kv_group g = rows_group(0, 0, 1);
        struct kv_config c = {.group = &g,
                              .n_groups = 1,
                              .max_seqs = 2,
                              .max_tokens = 8,
                              .max_len = 64,
                              .pool_bytes = rand() % 2 ? SIZE_MAX : 1 << 20};
        uint32_t *field[] = {
            &g.n_sites,       &g.rows,         &g.plane[0].shape.heads, &g.plane[1].shape.dim,
            &g.policy.window, &g.policy.slack, &g.policy.every,         &g.policy.chunk};
        for (int k = 0; k < 3; k++)
            *field[rand() % countof(field)] = odd[rand() % countof(odd)];
        struct kv *kv = NULL;
        kv_seq s;
        if (kv_open(&kv, &c) < 0) continue;
        assert_int_equal(kv_new(kv, NULL, &s), 0);
        for (int k = 0; k < 20; k++) {
            struct kv_span sp = {.seq = s, .n = 3};
            struct kv_step *st;
            int e = kv_begin(kv, &sp, 1, &st);
            assert_true(e == 0 || e == ERR_FULL || e == ERR_NOMEM);
            if (e == 0) assert_int_equal(kv_commit(st, NULL), 0);
        }
        assert_true(kv_check(kv));
        kv_close(kv);
    }
}

/* A lower budget evicts what is kept, and then is refused with nothing changed; a higher one is that of the opening at
 * most. */
static void test_limit(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 1);
    struct kv_config c = {.group = &g,
                          .n_groups = 1,
                          .max_seqs = 8,
                          .max_tokens = 256,
                          .max_len = 1024,
                          .index = true};
    c.pool_bytes = kv_pool_bytes(&c, 1 << 20);
    struct kv *kv = NULL;
    struct kv_usage u;
    kv_seq kept, live;
    struct kv_span sp = {.seq = 0, .n = 16};
    struct kv_step *st;
    assert_int_equal(kv_open(&kv, &c), 0);
    assert_int_equal(kv_new(kv, NULL, &kept), 0);
    assert_int_equal(append(kv, kept, 256, 0), 0);
    assert_int_equal(kv_keep(kv, kept), 0);
    assert_int_equal(kv_new(kv, &(struct kv_salt){.pad = 1}, &live), 0);
    assert_int_equal(append(kv, live, 64, 0), 0);
    kv_usage(kv, &u);
    assert_true(u.kept == 1 && u.index >= 16 * BLOCK);
    size_t least = u.pool - u.free;
    assert_int_equal(kv_limit(kv, least - 1), ERR_FULL);
    assert_non_null(strstr(err_last(), "what the sequences hold"));
    kv_usage(kv, &u);
    assert_true(u.pool == c.pool_bytes && u.kept == 1);
    assert_int_equal(kv_limit(kv, least), 0);
    kv_usage(kv, &u);
    assert_true(u.pool == least && u.kept == 0 && !u.free);
    assert_true(pool_held(kv) + kv->backed <= least && kv_check(kv));
    assert_int_equal(append(kv, live, 1, 0), ERR_FULL);
    assert_int_equal(kv_limit(kv, c.pool_bytes + 1), ERR_LIMIT);
    assert_int_equal(kv_limit(kv, c.pool_bytes), 0);
    assert_int_equal(append(kv, live, 256, 0), 0);
    sp.seq = live;
    assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
    assert_int_equal(kv_limit(kv, least), ERR_BUSY);
    kv_abort(st);
    assert_true(kv_check(kv));
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_to_the_byte),
        cmocka_unit_test(test_open_with_extremes),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_open_with_the_least),
        cmocka_unit_test(test_metadata_in_budget),
        cmocka_unit_test(test_open_without_memory),
        cmocka_unit_test(test_no_allocation_after_open),
        cmocka_unit_test(test_small_address_space),
        cmocka_unit_test(test_adjacent_pages),
        cmocka_unit_test(test_sentences_name_numbers),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_marked_trim),
        cmocka_unit_test(test_fork_of_marked),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_memory_moves_between_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
