/* test_kv_basic.c - the store, case by case: the meaning of each promise of kv.h in bytes, error
 * codes and messages. */
#include "base/bytes.h"
#include "kv/kv_int.h"
#include "testing.h"

static struct kv_group rows_group(uint32_t window, uint32_t site0, uint32_t n_sites)
{
    return (struct kv_group){.policy = {.kind = KV_ROWS, .window = window},
                             .site0 = site0,
                             .n_sites = n_sites,
                             .rows = 16,
                             .n_planes = 2,
                             .plane = {{"k", {2, 4, DT_F32, KV_STRIPS}, NULL},
                                       {"v", {2, 4, DT_F32, KV_ROWMAJOR}, NULL}}};
}

#define BLOCK ((size_t)16 * 2 * 4 * 4 * 2) /* bytes of a block at one site */

/* Bytes of metadata that the budget holds for a sequence of so many rows. */
static size_t meta(const struct kv_group *g, uint32_t n, uint32_t rows)
{
    return 2 * kv_metadata_bytes(&(struct kv_config){.group = g, .n_groups = n}, rows);
}

/* bytes: of the budget, beside arrays of fixed size */
static struct kv *store(const struct kv_group *g, uint32_t n, size_t bytes)
{
    struct kv *kv = NULL;
    struct kv_config c = {
        .group = g, .n_groups = n, .max_seqs = 8, .max_tokens = 256, .max_len = 1024};
    c.pool_bytes = kv_pool_bytes(&c, bytes);
    int e = kv_open(&kv, &c);
    if (e < 0) print_error("%s\n", err_last());
    assert_int_equal(e, 0);
    return kv;
}

static float *key(const struct kv_view *v, uint32_t lane, uint32_t row, uint32_t head, uint32_t d)
{
    uint32_t page = v->raw.table[v->slot[lane] * v->raw.stride + row / 16];
    float *k = (float *)(v->raw.base + page * v->raw.grain + v->raw.offset[0]);
    return &k[(head * 4 + d) * 16 + row % 16];
}

static void write_keys(const struct kv_view *v, float tag)
{
    for (uint32_t t = 0; t < v->counts[1]; t++)
        for (uint32_t h = 0; h < 2; h++)
            for (uint32_t d = 0; d < 4; d++)
                *key(v, v->lane[t], v->pos[t], h, d) = tag + (float)(v->pos[t] * 8 + h * 4 + d);
}

static int append(struct kv *kv, kv_seq s, uint32_t n, float tag)
{
    static const int32_t tok[256];
    struct kv_span sp = {.seq = s, .n = n, .tok = tok};
    struct kv_step *st = NULL;
    int e = kv_begin(kv, &sp, 1, &st);
    if (e < 0) return e;
    struct kv_view v;
    for (uint32_t site = 0; site < kv->n_sites; site++) {
        assert_int_equal(kv_next(st, site, &v), 1);
        write_keys(&v, tag);
        assert_int_equal(kv_next(st, site, &v), 0);
    }
    return kv_commit(st, NULL);
}

static void test_append_fork_drop(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 3);
    struct kv *kv = store(&g, 1, 1 << 20);
    kv_seq a, b;
    struct kv_usage u;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    assert_int_equal(append(kv, a, 20, 0), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.live, 2 * 3 * BLOCK);
    assert_int_equal(kv_fork(kv, a, &b), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.live, 2 * 3 * BLOCK);
    assert_int_equal(u.shared, 2 * 3 * BLOCK);
    assert_int_equal(append(kv, b, 1, 1000), 0); /* copies 4 rows of the open block */
    kv_usage(kv, &u);
    assert_int_equal(u.live, 3 * 3 * BLOCK);
    assert_int_equal(u.rows_copied, 4);
    assert_int_equal(append(kv, a, 1, 2000), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.rows_copied, 4);

    struct kv_span sp[2] = {{.seq = a, .n = 1}, {.seq = b, .n = 1}};
    struct kv_step *st;
    struct kv_view v;
    assert_int_equal(kv_begin(kv, sp, 2, &st), 0);
    assert_int_equal(kv_next(st, 1, &v), 1);
    for (uint32_t row = 0; row < 20; row++)
        for (uint32_t lane = 0; lane < 2; lane++)
            assert_true(*key(&v, lane, row, 1, 3) == (float)(row * 8 + 7));
    assert_true(*key(&v, 0, 20, 0, 0) == 2000.f + 160);
    assert_true(*key(&v, 1, 20, 0, 0) == 1000.f + 160);
    assert_int_equal(kv_drop(kv, a), ERR_BUSY);
    kv_abort(st);
    assert_true(kv_check(kv));
    assert_int_equal(kv_drop(kv, a), 0);
    assert_int_equal(kv_drop(kv, a), ERR_STALE);
    assert_int_equal(kv_drop(kv, b), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.live, 0);
    assert_true(kv_check(kv));
    kv_close(kv);
}

/* Forks share contents until one of them changes; after an aborted step they share again. */
static void test_forks_share_contents(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 3);
    struct kv *kv = store(&g, 1, 50 * 3 * BLOCK + 8 * meta(&g, 1, 40));
    struct kv_usage u;
    struct kv_step *st;
    kv_seq s[8], extra;
    uint32_t have;
    assert_int_equal(kv_new(kv, NULL, &s[0]), 0);
    assert_int_equal(append(kv, s[0], 40, 0), 0);
    uint64_t calls = mem_calls();
    for (uint32_t i = 1; i < 8; i++)
        assert_int_equal(kv_fork(kv, s[i / 2], &s[i]), 0);
    assert_int_equal(kv_fork(kv, s[0], &extra), ERR_LIMIT);
    assert_int_equal(mem_calls(), calls);
    kv_usage(kv, &u);
    assert_int_equal(u.shared, 3 * 3 * BLOCK);
    assert_int_equal(u.max_refs, 8);
    assert_int_equal(u.rows, 8 * 40);
    assert_true(kv_check(kv));
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(kv->slot[s[i] & 7].seq, kv->slot[s[0] & 7].seq);

    struct kv_span two[2] = {{.seq = s[3], .n = 5}, {.seq = s[5], .n = 5}};
    assert_int_equal(kv_begin(kv, two, 2, &st), 0);
    kv_abort(st);
    struct kv_span far[2] = {{.seq = s[3], .n = 5}, {.seq = s[5], .n = 1000}};
    assert_int_equal(kv_begin(kv, far, 2, &st), ERR_LIMIT);
    assert_int_equal(kv_trim(kv, s[4], 40, &have), 0); /* a trim to the present length */
    assert_int_equal(kv_reserve(kv, s[4], 0), 0);
    assert_int_equal(kv_reserve(kv, s[4], 1000), ERR_FULL);
    assert_true(kv_check(kv));
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(kv->slot[s[i] & 7].seq, kv->slot[s[0] & 7].seq);

    /* The other sequences change while the step is open. */
    assert_int_equal(kv_begin(kv, two, 2, &st), 0);
    for (uint32_t i = 0; i < 8; i++)
        if (i != 3 && i != 5) assert_int_equal(kv_trim(kv, s[i], 10 + i, &have), 0);
    kv_abort(st);
    assert_true(kv_check(kv));
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(kv_len(kv, s[i]), i == 3 || i == 5 ? 40 : 10 + i);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(kv_drop(kv, s[i]), 0);
    kv_usage(kv, &u);
    assert_true(u.live == 0 && u.shared == 0 && kv_check(kv));
    kv_close(kv);
}

/* A reorder exchanges names: it touches no row, table or reference. */
static void test_reorder_renames(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 1);
    struct kv *kv = store(&g, 1, 1 << 20);
    kv_seq s[4];
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(kv_new(kv, NULL, &s[i]), 0);
        assert_int_equal(append(kv, s[i], 20 + i, (float)i * 10000), 0);
    }
    assert_int_equal(kv_reorder(kv, s, (uint32_t[]){2, 2, 0, 2}, 4), 0);
    static const uint32_t len[] = {22, 22, 20, 22};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(kv_len(kv, s[i]), len[i]);
    assert_int_equal(kv->slot[s[0] & 7].seq, kv->slot[s[3] & 7].seq);
    assert_int_equal(kv->n_spare, 8 - 2); /* contents that no sequence uses are freed */
    assert_int_equal(append(kv, s[3], 1, 5000), 0);
    assert_int_equal(kv_len(kv, s[0]), 22);
    assert_true(kv_check(kv));
    kv_close(kv);
}

static void test_window_and_full(void **state)
{
    (void)state;
    struct kv_group g[2] = {rows_group(0, 0, 1), rows_group(64, 1, 2)};
    struct kv *kv = store(g, 2, 1 << 20);
    kv_seq a;
    struct kv_usage u;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    for (uint32_t i = 0; i < 500; i++) {
        assert_int_equal(append(kv, a, 1, 0), 0);
        assert_true(kv_check(kv));
    }
    kv_usage(kv, &u);
    /* 500 rows: 32 blocks at one site; rows [437, 500) in blocks 27..31 at two */
    assert_int_equal(u.live, 32 * BLOCK + 5 * 2 * BLOCK);
    kv_close(kv);
}

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

/* Measuring a store builds nothing: it allocates a few small arrays whatever the length of the sequences, and
 * needs no address space.  What it measures is what kv_open then counts. */
static void test_measuring_builds_nothing(void **state)
{
    (void)state;
    struct kv_group g[2] = {rows_group(64, 0, 2), rows_group(0, 0, 2)};
    g[1].site0 = 2;
    struct kv_config c = {.group = g, .n_groups = 2, .max_seqs = 4, .max_tokens = 8, .marks = 5};
    for (uint32_t i = 0; i < 4; i++) {
        struct kv *kv;
        struct kv_usage u;
        uint64_t calls = mem_calls();
        c.index = i & 1;
        c.max_len = i & 2 ? 1u << 28 : 64;
        kv_fault.map_limit = 1;
        c.pool_bytes = kv_pool_bytes(&c, 1 << 20);
        kv_fault.map_limit = 0;
        assert_true(c.pool_bytes > 1 << 20 && c.pool_bytes < SIZE_MAX);
        assert_true(mem_calls() - calls <= 64);
        if (i & 2) continue;
        size_t fixed = kv_fixed_bytes(&c);
        assert_int_equal(kv_open(&kv, &c), 0);
        kv_usage(kv, &u);
        assert_int_equal(u.metadata, fixed);
        kv_close(kv);
    }
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
        const uint32_t *t = kv->group[0].table[RAW] + kv->slot[i].seq * kv->group[0].stride[RAW];
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

/* A match makes room for reserves that lack pages, which may cost the kept contents it clones. */
static void test_match_loses_donor(void **state)
{
    (void)state;
    static int32_t tok[480];
    struct kv_group g[2] = {rows_group(0, 0, 1), rows_group(24, 1, 16)};
    struct kv_config c = {.group = g,
                          .n_groups = 2,
                          .max_seqs = 8,
                          .marks = 4,
                          .max_tokens = 16,
                          .max_len = 1024,
                          .pool_bytes = 1 << 20,
                          .index = true};
    for (int32_t i = 0; i < 480; i++)
        tok[i] = i;
    for (size_t spare = 0; spare <= 4096; spare += 512) {
        struct kv *kv = NULL;
        struct kv_mark m[2];
        struct kv_prefix p = {.tok = tok, .n = 479};
        struct kv_step *st;
        kv_seq r[2], x, y;
        uint32_t have;
        if (kv_open(&kv, &c) < 0) fail_msg("%s", err_last());
        for (int k = 0; k < 2; k++) {
            assert_int_equal(kv_new(kv, NULL, &r[k]), 0);
            assert_int_equal(kv_reserve(kv, r[k], 256), 0);
            for (uint32_t i = 0; i < 128; i += 16)
                assert_int_equal(append(kv, r[k], 16, 0), 0);
        }
        assert_int_equal(kv_new(kv, NULL, &x), 0);
        for (uint32_t i = 0; i < 480; i += 16) {
            struct kv_span sp = {.seq = x, .n = 16, .tok = tok + i};
            assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
            assert_int_equal(kv_commit(st, NULL), 0);
        }
        for (int k = 0; k < 2; k++)
            assert_int_equal(kv_mark(kv, r[k], &m[k]), 0);
        /* Both reserves will lack pages: as after a tier that failed, with little room left. */
        for (int k = 0; k < 2; k++) {
            kv->owing = true;
            kv->pool = pool_held(kv);
            assert_int_equal(kv_trim(kv, r[k], 0, &have), 0);
        }
        assert_true(kv->owing);
        kv->pool = 1 << 20;
        assert_int_equal(kv_keep(kv, x), 0);
        kv->pool = pool_held(kv) + 2 * kv_metadata_bytes(&c, 480) + spare;
        assert_int_equal(kv_new(kv, NULL, &y), 0);
        assert_int_equal(kv_match(kv, y, &p, &have), 0);
        assert_int_equal(kv_len(kv, y), have);
        assert_true(kv_check(kv));
        kv_close(kv);
    }
}

static void append_ids(struct kv *kv, kv_seq s, const int32_t *ids, uint32_t n)
{
    struct kv_span sp = {.seq = s, .n = n, .tok = ids};
    struct kv_step *st;
    assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
    assert_int_equal(kv_commit(st, NULL), 0);
}

static uint32_t matched(struct kv *kv, const int32_t *ids, uint32_t n)
{
    kv_seq s;
    uint32_t have;
    struct kv_prefix p = {.tok = ids, .n = n};
    assert_int_equal(kv_new(kv, NULL, &s), 0);
    assert_int_equal(kv_match(kv, s, &p, &have), 0);
    assert_int_equal(kv_drop(kv, s), 0);
    return have;
}

/* A search looks at the live sequences that have grown since the last search, and at each of their blocks once. */
static void test_live_sequences(void **state)
{
    (void)state;
    enum { MANY = 300, LEN = 40 };
    struct kv_group g = rows_group(0, 0, 1);
    struct kv_config config = {.group = &g,
                               .n_groups = 1,
                               .max_seqs = MANY + 1,
                               .max_tokens = 64,
                               .max_len = 128,
                               .pool_bytes = 8 << 20,
                               .index = true};
    static int32_t ids[MANY][2 * LEN];
    kv_seq s[MANY];
    struct kv *kv;
    assert_int_equal(kv_open(&kv, &config), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        for (int32_t k = 0; k < 2 * LEN; k++)
            ids[i][k] = k + 1000 * (int32_t)i;
        assert_int_equal(kv_new(kv, NULL, &s[i]), 0);
        append_ids(kv, s[i], ids[i], LEN);
    }
    assert_int_equal(kv->index.n_noted, MANY);
    assert_int_equal(matched(kv, ids[7], 2 * LEN), LEN);
    assert_int_equal(kv->index.n_noted, 1); /* the sequence that resumed */
    append_ids(kv, s[9], ids[9] + LEN, LEN);
    append_ids(kv, s[8], ids[8] + LEN, 7); /* completes no block */
    assert_int_equal(kv->index.n_noted, 2);
    assert_int_equal(matched(kv, ids[9], 2 * LEN), 2 * LEN);
    assert_int_equal(matched(kv, ids[8], 2 * LEN), LEN + 7);
    assert_int_equal(kv->index.n_noted, 1);
    for (uint32_t i = 0; i < MANY; i++) /* sequences may be dropped and names used again */
        assert_int_equal(kv_drop(kv, s[i]), 0);
    assert_int_equal(matched(kv, ids[9], 2 * LEN), 0);
    assert_true(kv_check(kv));
    kv_close(kv);
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

static void test_state_snapshots(void **state)
{
    (void)state;
    struct kv_group g = {.policy = {.kind = KV_STATE, .every = 8},
                         .n_sites = 2,
                         .n_planes = 1,
                         .plane = {{"ssm", {1, 16, DT_F32, KV_FLAT}, NULL}}};
    struct kv *kv = store(&g, 1, 4096 * 128);
    kv_seq a;
    uint32_t have = 99;
    struct kv_usage u;
    int32_t tok[200];
    for (int i = 0; i < 200; i++)
        tok[i] = i;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    struct kv_span sp = {.seq = a, .n = 1, .tok = tok};
    struct kv_step *st;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
        assert_int_equal(kv_commit(st, NULL), 0);
    }
    kv_usage(kv, &u);
    assert_int_equal(u.states / 128, 1);
    size_t kept = u.index / 128; /* snapshots: the sequence passed 125 multiples */
    assert_true(kept >= 7 && kept <= 4 + 7);
    assert_int_equal(u.live, 0);
    assert_int_equal(kv_trim(kv, a, 999, &have), 0);
    assert_int_equal(have, 992);
    assert_int_equal(kv_trim(kv, a, 992, &have), 0);
    assert_int_equal(have, 992);
    assert_int_equal(kv_trim(kv, a, 975, &have), 0);
    assert_int_equal(have, 968);
    assert_int_equal(kv_trim(kv, a, 7, &have), 0);
    assert_int_equal(have, 0);
    kv_usage(kv, &u);
    assert_int_equal(u.states, 0);
    sp = (struct kv_span){.seq = a, .n = 20}; /* without tokens the rows cannot be recomputed */
    assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
    assert_int_equal(kv_commit(st, NULL), 0);
    assert_int_equal(kv_trim(kv, a, 19, &have), ERR_LOST);
    assert_int_equal(kv_len(kv, a), 20);
    assert_int_equal(kv_trim(kv, a, 16, &have), 0);
    kv_close(kv);
}

/* Draft tokens: rows that may be rejected. A tile over a rejected row is dropped with it. */
static void test_drafts_and_tiles(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 1);
    g.seal.tile = 128;
    g.plane[0].codec = g.plane[1].codec = &kv_codec_shuffle;
    struct kv *kv = store(&g, 1, 80 * BLOCK + 8 * meta(&g, 1, 16));
    struct kv_usage u;
    struct kv_step *st;
    struct kv_view v;
    kv_seq a;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    assert_int_equal(append(kv, a, 126, 0), 0);
    struct kv_span sp = {.seq = a, .n = 4, .undo = 3, .tok = (int32_t[]){1, 2, 3, 4}};
    for (uint32_t take = 1; take <= 2; take++) {
        uint32_t accepted = take;
        assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
        assert_int_equal(kv_next(st, 0, &v), 1);
        uint32_t encodes = take == 1 || kv_len(kv, a) == 127 ? 1 : 0;
        assert_int_equal(v.counts[2], encodes);
        assert_int_equal(v.enc[1], 0);
        assert_int_equal(v.edge[0], 0);
        assert_int_equal(v.edge[3], 128);
        assert_int_equal(kv_commit(st, &accepted), 0);
        kv_usage(kv, &u);
        /* 127 rows: raw blocks only; 129: a tile, and the raw block of row 128 */
        assert_int_equal(u.live, take == 1 ? 8 * BLOCK : 8 * BLOCK + BLOCK);
        assert_int_equal(u.seals, take - 1);
        assert_true(kv_check(kv));
    }
    assert_int_equal(kv_len(kv, a), 129);
    uint32_t have;
    assert_int_equal(kv_trim(kv, a, 128, &have), 0);
    assert_int_equal(have, 128);
    assert_int_equal(kv_trim(kv, a, 100, &have), 0); /* the raw rows of the tile are freed */
    assert_int_equal(have, 0);
    kv_close(kv);
}

static void test_cross_rows(void **state)
{
    (void)state;
    struct kv_group g[2] = {rows_group(0, 0, 1), rows_group(0, 1, 1)};
    g[1].policy.kind = KV_FROZEN;
    struct kv *kv = store(g, 2, 1 << 20);
    kv_seq a, b;
    struct kv_usage u;
    struct kv_step *st;
    struct kv_view v;
    assert_int_equal(kv_new(kv, NULL, &a), 0);
    struct kv_span cross = {.seq = a, .n = 50, .cross = true};
    assert_int_equal(kv_begin(kv, &cross, 1, &st), 0);
    assert_int_equal(kv_next(st, 0, &v), ERR_ARG);
    assert_int_equal(kv_next(st, 1, &v), 1);
    write_keys(&v, 0);
    assert_int_equal(kv_commit(st, NULL), 0);
    /* A cross-attention is written only once. */
    assert_int_equal(kv_begin(kv, &cross, 1, &st), ERR_ARG);
    assert_int_equal(kv_fork(kv, a, &b), 0);
    struct kv_span sp[2] = {{.seq = a, .n = 2}, {.seq = b, .n = 1}};
    assert_int_equal(kv_begin(kv, sp, 2, &st), 0);
    assert_int_equal(kv_next(st, 1, &v), 1);
    for (uint32_t t = 0; t < 3; t++) {
        assert_int_equal(v.lo[t], 0);
        assert_int_equal(v.hi[t], 50);
        assert_int_equal(v.dst[t], 0);
    }
    assert_true(*key(&v, 1, 49, 1, 3) == 49 * 8 + 7);
    assert_int_equal(kv_commit(st, NULL), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.live, 4 * BLOCK + 2 * BLOCK);
    assert_int_equal(u.shared, 4 * BLOCK);
    assert_int_equal(u.rows_copied, 0);
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

static void test_reorder_refuses(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 3);
    struct kv *kv = store(&g, 1, 1 << 20);
    kv_seq s[2];
    assert_int_equal(kv_new(kv, NULL, &s[0]), 0);
    assert_int_equal(kv_new(kv, NULL, &s[1]), 0);
    assert_int_equal(append(kv, s[0], 20, 0), 0);
    assert_int_equal(kv_reorder(kv, (kv_seq[]){s[0], s[0]}, (uint32_t[]){0, 1}, 2), ERR_ARG);
    assert_int_equal(kv_reorder(kv, s, (uint32_t[]){0, 2}, 2), ERR_ARG);
    assert_int_equal(kv_reorder(kv, (kv_seq[]){s[0], 0}, (uint32_t[]){0, 1}, 2), ERR_STALE);
    assert_int_equal(kv_reorder(kv, s, (uint32_t[]){0, 1}, 9), ERR_ARG);
    assert_int_equal(kv_len(kv, s[0]), 20);
    assert_int_equal(kv_reorder(kv, s, (uint32_t[]){1, 0}, 2), 0); /* swap the two */
    assert_int_equal(kv_len(kv, s[0]), 0);
    assert_int_equal(kv_len(kv, s[1]), 20);
    assert_int_equal(kv_max_len(kv), 1024);
    assert_int_equal(kv_max_tokens(kv), 256);
    assert_true(kv_check(kv));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_fork_drop),
        cmocka_unit_test(test_forks_share_contents),
        cmocka_unit_test(test_reorder_renames),
        cmocka_unit_test(test_window_and_full),
        cmocka_unit_test(test_budget_to_the_byte),
        cmocka_unit_test(test_reorder_refuses),
        cmocka_unit_test(test_open_with_extremes),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_open_with_the_least),
        cmocka_unit_test(test_metadata_in_budget),
        cmocka_unit_test(test_open_without_memory),
        cmocka_unit_test(test_no_allocation_after_open),
        cmocka_unit_test(test_small_address_space),
        cmocka_unit_test(test_measuring_builds_nothing),
        cmocka_unit_test(test_adjacent_pages),
        cmocka_unit_test(test_sentences_name_numbers),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_marked_trim),
        cmocka_unit_test(test_fork_of_marked),
        cmocka_unit_test(test_match_loses_donor),
        cmocka_unit_test(test_live_sequences),
        cmocka_unit_test(test_state_snapshots),
        cmocka_unit_test(test_drafts_and_tiles),
        cmocka_unit_test(test_cross_rows),
        cmocka_unit_test(test_memory_moves_between_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
