/* test_kv_ahead.c - what a step asks the tier for, ahead of its use, while the file of spilled pages is cold; and a sequence
 * that is saved while a step reads ahead. */
#include "kv/image.h"
#include "kv/kv.h"
#include "testing.h"

enum { SITES = 5, BLOCK = 16, ROWS = 2048, STEP = 64, MOST = 4096 };

/* What the tier was asked for since a step began, and pages that were wanted without it. */
static uint64_t asked[MOST];
static uint32_t n_asked, wanted, unasked;

/* The page cache never has a page. */
static bool never_ready(struct kv_tier *t, uint64_t at, size_t n)
{
    uint32_t i = 0;
    (void)t, (void)n;
    while (i < n_asked && asked[i] != at)
        i++;
    unasked += i == n_asked;
    wanted++;
    return false;
}

static void note_asked(struct kv_tier *t, uint64_t at, size_t n)
{
    (void)t, (void)n;
    assert_true(n_asked < MOST);
    asked[n_asked++] = at;
}

/* Appends n tokens; all sites are read. */
static void append(struct kv *kv, kv_seq s, uint32_t n)
{
    static const int32_t ids[STEP];
    struct kv_span span = {.seq = s, .n = n, .tok = ids};
    struct kv_step *st;
    struct kv_view v;
    int e = 1;
    n_asked = wanted = unasked = 0;
    if (kv_begin(kv, &span, 1, &st) < 0) fail_msg("%s", err_last());
    for (uint32_t site = 0; site < SITES; site++)
        while ((e = kv_next(st, site, &v)) > 0)
            ;
    if (e < 0) fail_msg("%s", err_last());
    assert_int_equal(kv_commit(st, NULL), 0);
}

static struct kv_group rows_group(void)
{
    return (struct kv_group){.policy = {.kind = KV_ROWS},
                             .n_sites = SITES,
                             .rows = BLOCK,
                             .n_planes = 2,
                             .stream = true,
                             .plane = {{"k", {1, 64, DT_F16, KV_STRIPS}, NULL},
                                       {"v", {1, 64, DT_F16, KV_ROWMAJOR}, NULL}}};
}

/* A step asks for all pages that it reads from a cold file before it wants them.  It does not count on what the step before
 * asked for: the system may have given that up. */
static void test_every_step(void **state)
{
    (void)state;
    struct kv_group g = rows_group();
    struct kv_config config = {.group = &g,
                               .n_groups = 1,
                               .max_seqs = 1,
                               .max_tokens = STEP,
                               .max_len = ROWS + 100,
                               .streaming = KV_STREAM};
    struct kv *kv;
    kv_seq s;
    config.pool_bytes = kv_pool_bytes(&config, (size_t)ROWS / 4 * SITES * 256 +
                                                   kv_metadata_bytes(&config, ROWS + 100));
    struct kv_tier *t;
    if (kv_tier_file_open(NULL, NULL, &t) < 0) fail_msg("%s", err_last());
    t->ready = never_ready;
    t->ahead = note_asked;
    config.tier = t; /* of the store from now on */
    if (kv_open(&kv, &config) < 0) fail_msg("%s", err_last());
    assert_int_equal(kv_new(kv, 0, &s), 0);
    for (uint32_t at = 0; at < ROWS; at += STEP)
        append(kv, s, STEP);
    struct kv_usage u;
    kv_usage(kv, &u);
    assert_true(u.spilled > 0);
    if (!wanted) { /* the system maps no such file */
        kv_close(kv);
        skip();
    }
    for (uint32_t i = 0; i < 4; i++) {
        append(kv, s, 1);
        assert_true(wanted >= SITES && n_asked >= SITES);
        assert_int_equal(unasked, 0);
    }
    kv_close(kv);
}

static int take_image(struct kv_sink *s, const struct kv_image *im)
{
    (void)s, (void)im;
    return 0;
}

static int take_chunk(struct kv_sink *s, const struct kv_chunk *c, const void *data, size_t bytes)
{
    (void)s, (void)c, (void)data, (void)bytes;
    return 0;
}

/* A sequence in the tier is saved while a step of another one has its next piece on the way: both get their bytes, and all
 * transfers come to their end. */
static void test_save_beside(void **state)
{
    (void)state;
    struct kv_group g = rows_group();
    struct kv_config config = {.group = &g,
                               .n_groups = 1,
                               .max_seqs = 2,
                               .max_tokens = STEP,
                               .max_len = ROWS,
                               .streaming = KV_STREAM};
    struct kv *kv;
    kv_seq s[2];
    config.pool_bytes = kv_pool_bytes(&config, (size_t)ROWS / 8 * SITES * 256 +
                                                   2 * kv_metadata_bytes(&config, ROWS));
    if (kv_tier_file_open(NULL, "threads", &config.tier) < 0) fail_msg("%s", err_last());
    config.tier->map = NULL; /* all pages pass through the staging area */
    if (kv_open(&kv, &config) < 0) fail_msg("%s", err_last());
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kv_new(kv, 0, &s[i]), 0);
        for (uint32_t at = 0; at < ROWS / 2; at += STEP)
            append(kv, s[i], STEP);
    }
    for (int i = 0; i < 40; i++) {
        static const int32_t id;
        struct kv_sink sink = {.image = take_image, .chunk = take_chunk};
        struct kv_span span = {.seq = s[1], .n = 1, .tok = &id};
        struct kv_step *st;
        struct kv_view v;
        if (kv_begin(kv, &span, 1, &st) < 0) fail_msg("%s", err_last());
        for (uint32_t site = 0; site < SITES; site++)
            for (int e = 1; e > 0;) {
                if ((e = kv_next(st, site, &v)) < 0) fail_msg("step %d: %s", i, err_last());
                if (kv_save(kv, s[0], &sink) < 0) fail_msg("save %d: %s", i, err_last());
            }
        assert_int_equal(kv_commit(st, NULL), 0);
    }
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_step),
                                       cmocka_unit_test(test_save_beside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
