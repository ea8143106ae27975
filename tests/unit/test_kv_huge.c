/* test_kv_huge.c - long sequences lie in huge pages where the system has them; their rows stay what they were, and
 * memory is not taken before rows use it. */
#include "kv/kv_int.h"
#include "testing.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
enum { SITES = 2, HEADS = 8, DIM = 64, BLOCK = 16 * HEADS * DIM * 2 * 2, ROWS = 3072 };

/* Returns the bytes of [at, at + n) that lie in huge pages, of the mappings that touch it, and those in memory. */
static size_t huge_bytes(const void *at, size_t n, size_t *resident)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    size_t lo = 0, hi = 0, kb, huge = 0;
    char line[512];
    *resident = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        size_t a, b;
        if (sscanf(line, "%zx-%zx ", &a, &b) == 2) lo = a, hi = b;
        if (hi <= (size_t)at || lo >= (size_t)at + n) continue;
        if (sscanf(line, "AnonHugePages: %zu", &kb) == 1) huge += kb << 10;
        if (sscanf(line, "Rss: %zu", &kb) == 1) *resident += kb << 10;
    }
    fclose(f);
    return huge;
}

/* Whether the system makes a huge page of small ones here and now. */
static bool system_has_them(void)
{
    size_t n = 3 * HUGE_BYTES, resident;
    char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    memset(at, 1, n);
    char *from = (char *)(((size_t)at + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    bool has = madvise(from, HUGE_BYTES, 25 /* MADV_COLLAPSE */) == 0 &&
               huge_bytes(at, n, &resident) >= HUGE_BYTES;
    munmap(at, n);
    return has;
}

static uint16_t *rows_of(const struct kv_view *v, uint32_t row, uint32_t plane)
{
    uint32_t page = v->raw.table[v->slot[0] * v->raw.stride + row / 16];
    return (uint16_t *)(v->raw.base + page * v->raw.grain + v->raw.offset[plane]);
}

static void feed(struct kv *kv, kv_seq s, uint32_t n)
{
    static const int32_t tok[256];
    struct kv_span sp = {.seq = s, .n = n, .tok = tok};
    struct kv_step *st = NULL;
    struct kv_view v;
    assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
    for (uint32_t site = 0; site < SITES; site++) {
        assert_int_equal(kv_next(st, site, &v), 1);
        for (uint32_t t = 0; t < n; t += 16)
            for (uint32_t plane = 0; plane < 2; plane++)
                for (uint32_t i = 0; i < 16 * HEADS * DIM; i++)
                    rows_of(&v, v.pos[t], plane)[i] =
                        (uint16_t)(v.pos[t] * 31 + site * 7 + plane + i);
        assert_int_equal(kv_next(st, site, &v), 0);
    }
    assert_int_equal(kv_commit(st, NULL), 0);
}

static struct kv *store(uint32_t seqs)
{
    struct kv_group g = {.policy = {.kind = KV_ROWS},
                         .n_sites = SITES,
                         .rows = 16,
                         .n_planes = 2,
                         .plane = {{"k", {HEADS, DIM, DT_F16, KV_STRIPS}, NULL},
                                   {"v", {HEADS, DIM, DT_F16, KV_ROWMAJOR}, NULL}}};
    struct kv_config c = {
        .group = &g, .n_groups = 1, .max_seqs = seqs, .max_tokens = 256, .max_len = ROWS + 16};
    struct kv *kv = NULL;
    c.pool_bytes = kv_pool_bytes(&c, (size_t)64 << 20);
    assert_int_equal(kv_open(&kv, &c), 0);
    assert_int_equal(kv->group[0].form[RAW].grain, BLOCK);
    return kv;
}

/* Each of them has one block in a run of its own: huge pages would cost sixteen times the memory. */
static void test_short_sequences(void **state)
{
    (void)state;
    struct kv *kv = store(64);
    struct pages *p = &kv->group[0].form[RAW];
    size_t resident;
    for (uint32_t i = 0; i < 40; i++) {
        kv_seq s;
        assert_int_equal(kv_new(kv, NULL, &s), 0);
        feed(kv, s, 16);
    }
    assert_true(p->usable * KV_RUN * (size_t)BLOCK > 6 * HUGE_BYTES);
    assert_int_equal(huge_bytes(p->base, SITES * p->span, &resident), 0);
    assert_true(resident <= SITES * (40 + 2) * (size_t)BLOCK);
    kv_close(kv);
}

static void test_long_sequences(void **state)
{
    (void)state;
    struct kv *kv = store(2);
    struct pages *p = &kv->group[0].form[RAW];
    bool has = system_has_them();
    size_t resident;
    kv_seq s;
    assert_int_equal(kv_new(kv, NULL, &s), 0);
    feed(kv, s, 256);
    assert_int_equal(huge_bytes(p->base, SITES * p->span, &resident), 0); /* a short one has none */
    assert_true(resident <= SITES * (256 / 16 + 2) * (size_t)BLOCK);
    for (uint32_t n = 256; n < ROWS; n += 256)
        feed(kv, s, 256);
    size_t huge = huge_bytes(p->base, SITES * p->span, &resident);
    if (has) assert_true(huge >= SITES * HUGE_BYTES);
    /* and the run of the null page */
    assert_true(resident <= SITES * (ROWS / 16 + KV_RUN) * (size_t)BLOCK);

    struct kv_span sp = {.seq = s, .n = 1, .tok = (int32_t[]){0}};
    struct kv_step *st = NULL;
    struct kv_view v;
    assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
    for (uint32_t site = 0; site < SITES; site++) {
        assert_int_equal(kv_next(st, site, &v), 1);
        for (uint32_t row = 0; row < ROWS; row += 16)
            for (uint32_t plane = 0; plane < 2; plane++)
                for (uint32_t i = 0; i < 16 * HEADS * DIM; i++)
                    if (rows_of(&v, row, plane)[i] != (uint16_t)(row * 31 + site * 7 + plane + i))
                        fail_msg("site %u, plane %u, block %u", site, plane, row / 16);
        assert_int_equal(kv_next(st, site, &v), 0);
    }
    kv_abort(st);
    kv_close(kv);
    if (!has) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_sequences),
                                       cmocka_unit_test(test_short_sequences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
