/* test_kv_basic.c - the store, case by case: what the promises of kv.h about sequences and rows mean
 * in bytes, error codes and messages. test_kv_budget.c has those about memory. */
#include "../codec/shuffle.h"
#include "small_store.h"

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
    /* Those three keep the copies that the undone changes made.  These have the same pages, and were paid for. */
    for (uint32_t i = 0; i < 8; i++)
        assert_true((kv->slot[s[i] & 7].seq == kv->slot[s[0] & 7].seq) == (i < 3 || i > 5));
    struct kv_usage now;
    kv_usage(kv, &now);
    assert_true(kv_check(kv) && now.shared == u.shared && now.live == u.live &&
                now.metadata == u.metadata);

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

static int zeros(struct kv_source *s, const struct kv_chunk *c, void *data, size_t bytes)
{
    (void)s, (void)c;
    memset(data, 0, bytes);
    return 0;
}

/* A snapshot in the middle of a block, at the end of a tile, has no raw rows; it has the block, where the next row goes. */
static void test_load_snapshot_in_block(void **state)
{
    (void)state;
    struct kv_group g = rows_group(40, 0, 1);
    g.rows = 256;
    g.policy.every = 16;
    g.seal.tile = kv_codec_shuffle.tile;
    g.plane[0].codec = g.plane[1].codec = &kv_codec_shuffle;
    struct kv *kv = store(&g, 1, 1 << 20);
    static const int32_t tok[600];
    uint32_t unseen[2] = {0}, one = 1, pos = 384, have;
    struct kv_image im = {.len = 600, .tok = tok, .unseen = unseen, .n_keeps = &one, .keep = &pos};
    struct kv_source src = {.chunk = zeros};
    kv_seq s;
    assert_int_equal(384 % kv_codec_shuffle.tile, 0);
    if (kv_load(kv, &im, &src, &s) < 0) fail_msg("%s", err_last());
    if (!kv_check(kv)) fail_msg("%s", err_last());
    assert_int_equal(kv_resume(kv, s, 384, &have), 0);
    assert_int_equal(have, 384);
    kv_close(kv);
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

/* A rollback while a step is open gives the marked contents to a sequence with a reserve.  The other sequence, which
 * held them before the step, keeps its copy when the step is aborted. */
static void test_rollback_beside_a_step(void **state)
{
    (void)state;
    struct kv_group g = rows_group(0, 0, 3);
    struct kv *kv;
    struct kv_config c = {
        .group = &g, .n_groups = 1, .max_seqs = 2, .max_tokens = 64, .max_len = 128, .marks = 1};
    c.pool_bytes = kv_pool_bytes(&c, 1 << 20);
    assert_int_equal(kv_open(&kv, &c), 0);
    struct kv_step *st;
    struct kv_mark m;
    kv_seq s[2];
    assert_int_equal(kv_new(kv, NULL, &s[0]), 0);
    assert_int_equal(kv_new(kv, NULL, &s[1]), 0);
    assert_int_equal(append(kv, s[0], 20, 0), 0);
    assert_int_equal(kv_reserve(kv, s[0], 60), 0);
    assert_int_equal(kv_mark(kv, s[0], &m), 0);
    assert_int_equal(kv_reorder(kv, s, (uint32_t[]){1, 0}, 2), 0); /* swap the two */
    assert_int_equal(kv_begin(kv, &(struct kv_span){.seq = s[1], .n = 1}, 1, &st), 0);
    kv_rollback(kv, &m);
    kv_abort(st);
    assert_true(kv_check(kv));
    assert_int_equal(kv_len(kv, s[0]), 20);
    assert_int_equal(kv_len(kv, s[1]), 20);
    assert_int_equal(append(kv, s[1], 30, 1000), 0);
    assert_int_equal(append(kv, s[0], 40, 20), 0);
    assert_true(kv_check(kv));
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_fork_drop),
        cmocka_unit_test(test_forks_share_contents),
        cmocka_unit_test(test_reorder_renames),
        cmocka_unit_test(test_window_and_full),
        cmocka_unit_test(test_reorder_refuses),
        cmocka_unit_test(test_measuring_builds_nothing),
        cmocka_unit_test(test_match_loses_donor),
        cmocka_unit_test(test_live_sequences),
        cmocka_unit_test(test_state_snapshots),
        cmocka_unit_test(test_drafts_and_tiles),
        cmocka_unit_test(test_cross_rows),
        cmocka_unit_test(test_rollback_beside_a_step),
        cmocka_unit_test(test_load_snapshot_in_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
