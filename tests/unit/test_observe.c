/* test_observe.c - kvik_cache_observe: after any workload the blocks that were told are those of the store, each behind the block
 * before it, and a prompt reuses as many tokens as they promise. */
#include "kvik_loop.h"
#include "testing.h"

#include <unistd.h>

enum { MOST = 8192, STRIP = 16, LONGEST = 200, VOCAB = 384 };

struct picture {
    struct told {
        uint8_t key[32], before[32];
        bool first;
        uint32_t number;
        int32_t ids[STRIP];
    } block[MOST];
    uint32_t n, wrong;
    uint64_t stored, removed;
    kvik_cache *asks; /* a call with it is refused */
};

static struct told *find(struct picture *p, const uint8_t *key)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (!memcmp(p->block[i].key, key, 32)) return &p->block[i];
    return NULL;
}

static bool has_child(const struct picture *p, const uint8_t *key)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (!p->block[i].first && !memcmp(p->block[i].before, key, 32)) return true;
    return false;
}

static void on_block(void *ctx, const kvik_block *b)
{
    struct picture *p = ctx;
    struct told *t = find(p, b->key), *before = b->before ? find(p, b->before) : NULL;
    kvik_usage u = {.size = sizeof u};
    p->wrong += b->size != sizeof *b || b->n != STRIP;
    p->wrong += (b->before != NULL) != (b->number > 0);
    p->wrong += b->before && (!before || before->number + 1 != b->number);
    if (p->asks) p->wrong += kvik_cache_usage(p->asks, &u) != KVIK_BUSY;
    if (b->stored) {
        p->stored++;
        p->wrong += t != NULL || p->n == MOST;
        if (t || p->n == MOST) return;
        t = &p->block[p->n++];
        memcpy(t->key, b->key, 32);
        if (!(t->first = !b->before)) memcpy(t->before, b->before, 32);
        t->number = b->number;
        memcpy(t->ids, b->ids, sizeof t->ids);
    } else {
        p->removed++;
        p->wrong += !t || memcmp(t->ids, b->ids, sizeof t->ids) || has_child(p, b->key);
        if (t) *t = p->block[--p->n];
    }
}

/* Returns how many leading blocks of a prompt the picture has. */
static uint32_t promised(struct picture *p, const int32_t *ids, uint32_t n)
{
    const struct told *at = NULL;
    uint32_t have = 0;
    for (; (have + 1) * STRIP <= n; have++) {
        const struct told *next = NULL;
        for (uint32_t i = 0; i < p->n && !next; i++) {
            const struct told *t = &p->block[i];
            if (t->first == !at && (!at || !memcmp(t->before, at->key, 32)) &&
                !memcmp(t->ids, ids + have * STRIP, sizeof t->ids))
                next = t;
        }
        if (!next) break;
        at = next;
    }
    return have;
}

static uint64_t dice = 20261127;
static uint32_t roll(uint32_t n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice >> 33) % n;
}

/* A prompt whose beginning is one of three, up to some place. */
static uint32_t draw(int32_t *ids)
{
    uint32_t n = 1 + roll(LONGEST - 1), same = roll(n + 1), which = roll(3);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(i < same ? 5 + (i * (7 + 2 * which)) % 50 : 60 + roll(300));
    return n;
}

static kvik_cache *open_cache(kvik_model *m, const char *impl, uint64_t memory)
{
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = impl,
                                .cache_memory = memory,
                                .threads = 1,
                                .max_sequences = 6};
    kvik_cache *c;
    if (kvik_cache_open(m, &config, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static void compare(kvik_cache *c, struct picture *p, const char *when)
{
    static struct picture again;
    again = (struct picture){0};
    assert_int_equal(kvik_cache_observe(c, on_block, &again), 0);
    if (again.wrong || p->wrong)
        fail_msg("%s: %u and %u blocks in a wrong order", when, p->wrong, again.wrong);
    for (uint32_t i = 0; i < again.n; i++)
        if (!find(p, again.block[i].key))
            fail_msg("%s: block %u of the store was not told", when, again.block[i].number);
    if (again.n != p->n)
        fail_msg("%s: %u blocks were told, and the store has %u", when, p->n, again.n);
    static struct picture kept;
    kept = *p;
    kept.asks = NULL;
    again = (struct picture){0};
    assert_int_equal(kvik_cache_observe(c, on_block, &again), 0);
    *p = kept;
    p->n = again.n; /* in the order of the store, from here on */
    memcpy(p->block, again.block, sizeof p->block);
    p->asks = c;
}

/* One turn of the workload: a prompt, and sometimes a fork, a crop or a drop of an older sequence. */
static void turn(kvik_cache *c, struct picture *p, bool exact)
{
    int32_t ids[LONGEST];
    uint32_t n = draw(ids), have = promised(p, ids, n - 1);
    kvik_result *r;
    kvik_generation g;
    kvik_prompt prompt = {.size = sizeof prompt, .ids = ids, .n = n};
    kvik_generation_init(&g, NULL);
    g.max_new_tokens = 1 + roll(40);
    g.n_eos = 0;
    g.do_sample = roll(2);
    g.return_dict_in_generate = roll(3) == 0;
    if (kvik_generate(c, &g, &prompt, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    size_t reused = r->row[0]->reused;
    if (exact && (reused / STRIP != have || reused >= n))
        fail_msg("a prompt of %u tokens reused %zu, and the blocks promise %u", n, reused,
                 have * STRIP);
    kvik_seq s = r->row[0]->seq, fork;
    if (s && roll(2) && kvik_cache_fork(c, s, &fork) == 0) {
        (void)kvik_cache_crop(c, s, (int64_t)roll((uint32_t)kvik_cache_length(c, s)));
        kvik_cache_drop(c, fork);
    }
    if (s) kvik_cache_drop(c, s);
    kvik_result_free(r);
    kvik_generation_done(&g);
}

static void the_picture_is_the_store(void **state)
{
    static const struct {
        const char *model, *impl;
        uint64_t memory;
        bool exact;
    } way[] = {{"llama-gqa-l3", "dynamic", 0, true},
               {"llama-gqa-l3", "dynamic", 400 << 10, true},
               {"llama-gqa-l3", "quantized", 400 << 10, false},
               {"gemma3", "dynamic", 600 << 10, false},
               {"mamba2", "dynamic", 3 << 20, false}};
    (void)state;
    for (size_t w = 0; w < sizeof way / sizeof *way; w++) {
        char path[128];
        kvik_model *m;
        static struct picture p;
        snprintf(path, sizeof path, "tests/golden/models/%s", way[w].model);
        if (kvik_model_open(path, &m) < 0) fail_msg("%s: %s", path, kvik_last_error());
        kvik_cache *c = open_cache(m, way[w].impl, way[w].memory);
        p = (struct picture){0};
        p.asks = NULL;
        for (int i = 0; i < 5; i++)
            turn(c, &p, false); /* before anybody observes */
        assert_int_equal(kvik_cache_observe(c, on_block, &p), 0);
        p.asks = c;
        for (int i = 0; i < 60; i++) {
            char when[64];
            turn(c, &p, way[w].exact);
            snprintf(when, sizeof when, "%s, way %zu, turn %d", way[w].model, w, i);
            p.asks = NULL;
            if (i % 10 == 9) {
                compare(c, &p, when);
                assert_int_equal(kvik_cache_observe(c, NULL, NULL), 0);
                p.n = 0;
                assert_int_equal(kvik_cache_observe(c, on_block, &p), 0);
            }
            p.asks = c;
            if (p.wrong) fail_msg("%s: %u blocks in a wrong order", when, p.wrong);
        }
        printf("%s %s: %llu blocks came and %llu went\n", way[w].model, way[w].impl,
               (unsigned long long)p.stored, (unsigned long long)p.removed);
        if (way[w].memory) assert_true(p.removed > 0);
        kvik_cache_close(c);
        kvik_model_close(m);
    }
}

/* Sequences that were loaded are listed when the next prompt is looked for.  An observer that goes before is not called any
 * more, and one that comes is told of them once. */
static void after_loading(void **state)
{
    (void)state;
    static struct picture p;
    char path[] = "/tmp/kvik-observe-XXXXXX";
    int32_t ids[LONGEST];
    kvik_model *m;
    kvik_seq s;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    for (int32_t i = 0; i < LONGEST; i++)
        ids[i] = 5 + i;
    assert_int_equal(kvik_model_open("tests/golden/models/llama-gqa-l3", &m), 0);
    kvik_cache *c = open_cache(m, "dynamic", 0);
    kvik_span span = {.size = sizeof span, .ids = ids, .n = LONGEST};
    assert_int_equal(kvik_cache_new(c, &span.seq), 0);
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    if (kvik_cache_save(c, path, &span.seq, 1, NULL) < 0) fail_msg("%s", kvik_last_error());
    kvik_cache_close(c);
    for (int again = 0; again < 2; again++) {
        c = open_cache(m, "dynamic", 0);
        p = (struct picture){0};
        assert_int_equal(kvik_cache_observe(c, on_block, &p), 0);
        if (kvik_cache_load(c, path, 1, &s, NULL) != 1) fail_msg("%s", kvik_last_error());
        assert_int_equal(kvik_cache_observe(c, again ? on_block : NULL, &p), 0);
        assert_int_equal(p.stored, again ? LONGEST / STRIP : 0);
        assert_int_equal(p.wrong, 0);
        kvik_cache_close(c);
    }
    unlink(path);
    kvik_model_close(m);
}

static void without_an_index(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_cache *c;
    kvik_cache_config config = {.size = sizeof config, .no_prefix_cache = true};
    static struct picture p;
    assert_int_equal(kvik_model_open("tests/golden/models/llama-gqa-l3", &m), 0);
    assert_int_equal(kvik_cache_open(m, &config, &c), 0);
    assert_int_equal(kvik_cache_observe(c, on_block, &p), KVIK_UNSUPPORTED);
    assert_non_null(strstr(kvik_last_error(), "no_prefix_cache"));
    kvik_cache_close(c);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_picture_is_the_store),
                                       cmocka_unit_test(after_loading),
                                       cmocka_unit_test(without_an_index)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
