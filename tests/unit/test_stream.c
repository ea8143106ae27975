/* test_stream.c - a cache whose pages are mostly on disk gives the bits of a resident cache:
 * forwards, forks, crops, reorders, batches, windows, the codec hook, exact and fast compute,
 * streamed from the start or from the moment the budget is short. It stays within its budget.
 * Budgets are the smallest that open. */
#include "budgets.h"

#include <signal.h>
#include <sys/resource.h>

enum { DEEP = 600, ROWS = 8, OUT = 48, FAR = 1600 };

static kvik_model *model[3];
static const char *const names[3] = {"llama-mha", "llama-bf16-long", "SmolLM2"};

/* The tiles of this codec make the smallest budget a large one. */
#define CODEC "{\"backend\": \"shuffle\"}"
struct way {
    const char *name, *impl, *config, *on_full;
    uint32_t chunk, threads;
    bool fits;       /* the cache may fit into the budget */
    uint32_t tokens; /* of the sequences that the budget has tables for; 0: DEEP + 100 */
};
static const struct way ways[] = {
    {.name = "offloaded", .impl = "offloaded"},
    {.name = "offloaded, chunks of 7", .impl = "offloaded", .chunk = 7, .threads = 2},
    {.name = "offloaded_static", .impl = "offloaded_static", .fits = true},
    {.name = "on_full", .on_full = "offload"},
    {.name = "static, on_full", .impl = "static", .on_full = "offload", .fits = true},
    {.name = "codec hook", .impl = "offloaded", .config = CODEC, .fits = true},
    {.name = "blocks of 64",
     .impl = "offloaded",
     .config = "{\"test_block_rows\": 64}",
     .fits = true},
};
#define WINDOW "{\"sliding_window\": 200}"
static const struct way windows[] = {
    {.name = "window", .impl = "offloaded", .config = WINDOW},
    {.name = "window, on_full", .on_full = "offload", .config = WINDOW, .chunk = 50},
    {.name = "window, codec hook",
     .impl = "offloaded",
     .config = "{\"sliding_window\": 200, \"backend\": \"shuffle\"}",
     .chunk = 100,
     .fits = true},
};

/* Opens a cache. tight: with the smallest budget that opens and holds a few steps. */
static kvik_cache *opened(kvik_model *m, const struct way *w, const char *compute, uint32_t seqs,
                          bool tight)
{
    kvik_cache_config c = {.size = sizeof c,
                           .cache_implementation = w->impl,
                           .cache_config = w->config,
                           .max_sequences = seqs,
                           .max_cache_len = seqs == 1 ? FAR + 10 : DEEP + 100,
                           .step_tokens = w->chunk ? w->chunk : 48,
                           .threads = w->threads ? w->threads : 1,
                           .compute = compute,
                           .on_full = w->on_full,
                           .cache_memory = tight ? 1 << 16 : 0};
    kvik_cache *out;
    while (kvik_cache_open(m, &c, &out) < 0) {
        if (!tight || c.cache_memory > 1 << 30) fail_msg("%s: %s", w->name, kvik_last_error());
        c.cache_memory += c.cache_memory / 4;
    }
    if (!tight) return out;
    /* with room for steps and copies, or for reserves */
    uint64_t rows = c.cache_memory - budget_metadata(out);
    kvik_cache_close(out);
    c.cache_memory = budget_for(m, c, w->fits ? 3 * rows : rows + rows / 3, (seqs + 3) / 4,
                                w->tokens ? w->tokens : DEEP + 100);
    assert_int_equal(kvik_cache_open(m, &c, &out), 0);
    return out;
}

struct play {
    kvik_cache *c;
    float *out; /* [OUT][vocab] */
    uint32_t n, vocab;
    const char *name;
};

static void feed(struct play *p, kvik_seq s, uint32_t n, uint32_t seed)
{
    static int32_t ids[FAR];
    draw_ids(ids, n, p->vocab, seed);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    assert_true(p->n < OUT);
    if (kvik_forward(p->c, &span, 1, false, p->out + (size_t)p->n++ * p->vocab) < 0)
        fail_msg("%s: %s", p->name, kvik_last_error());
}

static void feed_all(struct play *p, const kvik_seq *s, uint32_t n, uint32_t seed)
{
    static int32_t ids[ROWS][5];
    kvik_span span[ROWS];
    for (uint32_t i = 0; i < n; i++) {
        draw_ids(ids[i], 5, p->vocab, seed + i);
        span[i] =
            (kvik_span){.size = sizeof(kvik_span), .seq = s[i], .ids = ids[i], .n = 1 + i % 5};
    }
    assert_true(p->n + n <= OUT);
    if (kvik_forward(p->c, span, n, false, p->out + (size_t)p->n * p->vocab) < 0)
        fail_msg("%s: %s", p->name, kvik_last_error());
    p->n += n;
}

/* Runs every operation on sequences; returns the logits of every forward. */
static float *play(kvik_cache *c, const char *name, uint32_t deep, uint32_t vocab, uint32_t *n)
{
    struct play p = {c, calloc((size_t)OUT * vocab, sizeof(float)), 0, vocab, name};
    kvik_seq s[ROWS];
    assert_int_equal(kvik_cache_new(c, &s[0]), 0);
    feed(&p, s[0], deep, 1);
    if (kvik_cache_fork(c, s[0], &s[1]) < 0) fail_msg("%s: %s", name, kvik_last_error());
    feed(&p, s[0], 20, 2);
    feed(&p, s[1], 1, 3);
    if (kvik_cache_crop(c, s[0], deep / 2) < 0) /* into a page that was spilled */
        fail_msg("%s: %s", name, kvik_last_error());
    assert_int_equal(kvik_cache_fork(c, s[0], &s[2]), 0);
    feed(&p, s[0], 1, 4);
    feed(&p, s[2], 70, 5);
    feed_all(&p, s, 3, 6);
    assert_int_equal(kvik_cache_reorder(c, s, (uint32_t[]){1, 1, 0}, 3), 0);
    feed_all(&p, s, 3, 9);
    assert_int_equal(kvik_cache_drop(c, s[1]), 0);
    assert_int_equal(kvik_cache_crop(c, s[0], -1), 0);
    assert_int_equal(kvik_cache_new(c, &s[1]), 0);
    feed(&p, s[1], deep / 3, 12);
    for (uint32_t i = 3; i < ROWS; i++)
        assert_int_equal(kvik_cache_fork(c, s[i % 3], &s[i]), 0);
    for (uint32_t i = 0; i < 3; i++)
        feed_all(&p, s, ROWS, 20 + 10 * i);
    *n = p.n;
    return p.out;
}

static void agree(int k, const struct way *w, const struct way *base, const char *compute)
{
    kvik_model *m = model[k];
    uint32_t vocab = kvik_model_vocab(m), deep = k == 2 ? 300 : DEEP, n, n_want;
    kvik_usage u = {.size = sizeof u};
    kvik_cache *c = opened(m, base, compute, ROWS, false);
    float *want = play(c, base->name, deep, vocab, &n_want);
    kvik_cache_usage(c, &u);
    uint64_t whole = u.peak_bytes;
    kvik_cache_close(c);
    c = opened(m, w, compute, ROWS, true);
    float *got = play(c, w->name, deep, vocab, &n);
    assert_int_equal(n, n_want);
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(want + (size_t)i * vocab, got + (size_t)i * vocab, vocab * sizeof *got) != 0)
            fail_msg("%s, %s, %s: forward %u differs from a cache in memory", names[k], w->name,
                     compute, i);
    kvik_cache_usage(c, &u);
    if (u.peak_bytes > u.budget) fail_msg("%s: peak over budget", w->name);
    if (!w->fits &&
        !(u.streaming && u.spilled && u.tier_read && (w->config || u.budget - u.metadata < whole)))
        fail_msg("%s, %s: nothing streamed: %zu of %zu bytes, %zu on disk, %zu read", names[k],
                 w->name, (size_t)u.peak_bytes, (size_t)whole, (size_t)u.spilled,
                 (size_t)u.tier_read);
    kvik_cache_close(c);
    free(want);
    free(got);
}

static const struct way plain = {.name = "dynamic"},
                        windowed = {.name = "dynamic, window", .config = WINDOW};

static void small_models(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int exact = 0; exact < 2; exact++) {
            const char *compute = exact ? "exact" : "fast";
            for (size_t i = 0; i < countof(ways); i++)
                agree(k, &ways[i], &plain, compute);
            for (size_t i = 0; i < countof(windows); i++)
                agree(k, &windows[i], &windowed, compute);
        }
}

/* One long sequence under codecs: quantized tiles are spilled. */
static void codecs(void **state)
{
    (void)state;
    static const char *const config[] = {
        CODEC, "{\"backend\": \"shuffle\", \"window_length\": 1200, \"num_sink_tokens\": 20}",
        "{\"backend\": \"quanto\", \"nbits\": 4, \"q_group_size\": 16, \"residual_length\": 32}"};
    kvik_model *m = model[1];
    for (size_t i = 0; i < countof(config); i++) {
        float *out[2];
        for (int k = 0; k < 2; k++) {
            const struct way w = {.tokens = FAR,
                                  .name = config[i],
                                  .impl = k ? "offloaded" : NULL,
                                  .config = config[i]};
            kvik_cache *c = opened(m, &w, "exact", 1, k);
            struct play p = {c, calloc(OUT * (size_t)kvik_model_vocab(m), sizeof(float)), 0,
                             kvik_model_vocab(m), w.name};
            kvik_seq s;
            kvik_usage u = {.size = sizeof u};
            assert_int_equal(kvik_cache_new(c, &s), 0);
            for (uint32_t n = 0; n < FAR; n += 100)
                feed(&p, s, 100, n);
            for (uint32_t n = 0; n < 5; n++)
                feed(&p, s, 1, n);
            kvik_cache_usage(c, &u);
            assert_true(u.peak_bytes <= u.budget);
            if (u.streaming != k) fail_msg("%s: streaming %d", w.name, u.streaming);
            out[k] = p.out;
            kvik_cache_close(c);
        }
        assert_memory_equal(out[0], out[1], OUT * (size_t)kvik_model_vocab(m) * sizeof(float));
        free(out[0]);
        free(out[1]);
    }
}

/* A prompt that is one turn stays raw until it ends: its raw rows pass through staging too. */
static void raw_turns(void **state)
{
    (void)state;
    enum { PROMPT = 700 };
    static const char *const config[] = {
        "{\"backend\": \"quanto\", \"nbits\": 4, \"q_group_size\": 16, \"residual_length\": 128}",
        "{\"backend\": \"quanto\", \"nbits\": 2, \"axis_key\": -1, \"q_group_size\": 32}",
        "{\"backend\": \"hqq\", \"nbits\": 4, \"axis_key\": 1, \"axis_value\": 1, "
        "\"q_group_size\": 16}",
        "{\"backend\": \"hqq\", \"nbits\": 2, \"axis_key\": 0, \"axis_value\": 0, "
        "\"q_group_size\": 64, \"residual_length\": 40}",
    };
    for (size_t i = 0; i < 2 * countof(config); i++) {
        kvik_model *m = model[i % 2];
        uint32_t vocab = kvik_model_vocab(m);
        float *out[3];
        uint64_t raw = 0;
        for (int k = 2; k >= 0;
             k--) { /* offloaded, and in memory; first without a codec, for its number of bytes */
            const struct way w = {.name = config[i / 2],
                                  .impl = k ? NULL : "offloaded",
                                  .config = k < 2 ? config[i / 2] : NULL};
            kvik_cache *c = opened(m, &w, "exact", 1, !k);
            struct play p = {c, calloc(OUT * (size_t)vocab, sizeof(float)), 0, vocab, w.name};
            kvik_seq s;
            kvik_usage u = {.size = sizeof u};
            assert_int_equal(kvik_cache_new(c, &s), 0);
            feed(&p, s, PROMPT, 1);
            kvik_cache_usage(c, &u);
            if (k == 2) raw = u.peak_bytes;
            if (!k && !(u.budget - u.metadata < raw && u.peak_bytes <= u.budget && u.tier_read))
                fail_msg("%s, %s: peak %zu of %zu bytes, rows of the prompt %zu, %zu read",
                         names[i % 2], w.name, (size_t)u.peak_bytes, (size_t)u.budget, (size_t)raw,
                         (size_t)u.tier_read);
            for (uint32_t n = 0; n < 3; n++)
                feed(&p, s, 1, n);
            feed(&p, s, 100, 5); /* another turn */
            feed(&p, s, 1, 6);
            out[k] = p.out;
            kvik_cache_close(c);
        }
        if (memcmp(out[0], out[1], OUT * (size_t)vocab * sizeof(float)) != 0)
            fail_msg("%s, %s: differs from a cache in memory", names[i % 2], config[i / 2]);
        for (int k = 0; k < 3; k++)
            free(out[k]);
    }
}

/* Many sequences in the default budget of an offloaded cache; all of them complete a tile of the
 * largest size in one step. */
static void many(void **state)
{
    (void)state;
    enum { LANES = 64, STEPS = 15, TURN = 120 };
    kvik_model *m = model[0];
    const struct way w = {.name = "many",
                          .impl = "offloaded",
                          .config = "{\"backend\": \"hqq\", \"nbits\": 4, \"axis_key\": 0, "
                                    "\"axis_value\": 0, \"q_group_size\": 128}"};
    kvik_cache *c = opened(m, &w, "fast", LANES, false);
    float *out = calloc((size_t)LANES * kvik_model_vocab(m), sizeof(float));
    static int32_t ids[LANES][TURN];
    kvik_span span[LANES];
    kvik_usage u = {.size = sizeof u};
    for (uint32_t i = 0; i < LANES; i++) {
        draw_ids(ids[i], TURN, kvik_model_vocab(m), i);
        span[i] = (kvik_span){.size = sizeof(kvik_span), .seq = 0, .ids = ids[i], .n = TURN};
        assert_int_equal(kvik_cache_new(c, &span[i].seq), 0);
    }
    for (uint32_t n = 0; n < STEPS; n++) {
        if (kvik_forward(c, span, LANES, false, out) < 0) fail_msg("%s", kvik_last_error());
        for (uint32_t i = 0; i < LANES; i++)
            span[i].n = 1;
    }
    kvik_cache_usage(c, &u);
    assert_true(u.peak_bytes <= u.budget);
    kvik_cache_close(c);
    free(out);
}

static void smollm2(void **state)
{
    (void)state;
    if (!model[2]) skip();
    agree(2, &(struct way){.name = "on_full", .on_full = "offload", .threads = 2}, &plain, "fast");
}

/* Counts the notice that the cache continues on disk. */
static void notice(void *ctx, const char *text)
{
    ++*(int *)ctx;
    assert_non_null(strstr(text, "continuing"));
}

static void fall_back(uint32_t rows, uint32_t deep, uint32_t more)
{
    kvik_model *m = model[0];
    static int32_t ids[ROWS][200];
    kvik_prompt p[ROWS];
    kvik_result *r[2];
    for (uint32_t i = 0; i < rows; i++) {
        draw_ids(ids[i], deep, kvik_model_vocab(m), 5 + i);
        p[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = ids[i], .n = deep};
    }
    for (int i = 0; i < 2; i++) {
        const struct way w = {.name = "fallback", .on_full = i ? "offload" : NULL};
        kvik_cache *c = opened(m, &w, "exact", rows, i);
        kvik_generation g;
        kvik_usage u = {.size = sizeof u};
        int told = 0;
        kvik_hooks h = {.size = sizeof h, .ctx = &told, .on_notice = notice};
        assert_int_equal(kvik_generation_init(&g, NULL), 0);
        g.max_new_tokens = more;
        g.n_eos = 0;
        if (kvik_generate(c, &g, p, rows, &h, &r[i]) < 0) fail_msg("%s", kvik_last_error());
        kvik_cache_usage(c, &u);
        assert_int_equal(u.streaming, i);
        assert_int_equal(told, i);
        assert_true(u.peak_bytes <= u.budget);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
    for (uint32_t i = 0; i < rows; i++) {
        assert_int_equal(r[0]->row[i]->n, r[1]->row[i]->n);
        assert_memory_equal(r[0]->row[i]->ids, r[1]->row[i]->ids,
                            r[0]->row[i]->n * sizeof(int32_t));
    }
    kvik_result_free(r[0]);
    kvik_result_free(r[1]);
}

static void falls_back(void **state)
{
    (void)state;
    fall_back(1, 200, 400);
    fall_back(ROWS, 100, 300); /* in a step of eight rows, of which fewer can be staged */
}

/* The disk is full: the call fails, the cache is unchanged, and it continues once there is room. */
static void full_disk(void **state)
{
    (void)state;
    kvik_model *m = model[0];
    uint32_t vocab = kvik_model_vocab(m);
    float *out[2];
    struct rlimit whole, none;
    static int32_t ids[DEEP];
    draw_ids(ids, DEEP, vocab, 3);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    none = (struct rlimit){0, whole.rlim_max};
    for (int i = 0; i < 2; i++) {
        const struct way w = {.name = "full disk", .impl = i ? "offloaded" : NULL};
        kvik_cache *c = opened(m, &w, "exact", 2, i);
        struct play p = {c, calloc(OUT * (size_t)vocab, sizeof(float)), 0, vocab, w.name};
        kvik_seq s;
        kvik_usage u = {.size = sizeof u};
        assert_int_equal(kvik_cache_new(c, &s), 0);
        feed(&p, s, 100, 1);
        kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = DEEP};
        if (i) {
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
            int e = kvik_forward(c, &span, 1, false, p.out + (size_t)p.n * vocab);
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
            assert_int_equal(e, KVIK_IO);
            assert_int_equal(kvik_cache_length(c, s), 100);
        }
        feed(&p, s, 1, 2);
        feed(&p, s, DEEP - 20, 3);
        feed(&p, s, 1, 4);
        kvik_cache_usage(c, &u);
        assert_int_equal(u.spilled > 0, i);
        out[i] = p.out;
        kvik_cache_close(c);
    }
    assert_memory_equal(out[0], out[1], OUT * (size_t)vocab * sizeof(float));
    free(out[0]);
    free(out[1]);
}

static size_t peak_memory(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    size_t kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %zu", &kib) == 1) break;
    if (f) fclose(f);
    return kib << 10;
}

/* 4 000 tokens in 8 MiB; this test runs first, because the process's peak memory never falls. */
static void memory(void **state)
{
    (void)state;
    if (!model[2] || !getenv("KVIK_TEST_LONG")) skip();
    setenv("KVIK_SPILL_MAP", "0",
           1); /* the peak also counts pages of mapped files, which are the system's */
    static int32_t ids[3990];
    draw_ids(ids, countof(ids), kvik_model_vocab(model[2]), 1);
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 1, .max_cache_len = 4000, .step_tokens = 16};
    size_t before = 0;
    for (int i = 0; i < 2; i++) {
        kvik_cache *c;
        kvik_generation g;
        kvik_result *r;
        kvik_usage u = {.size = sizeof u};
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = i ? countof(ids) : 10};
        assert_int_equal(kvik_cache_open(model[2], &config, &c), 0);
        assert_int_equal(kvik_generation_init(&g, NULL), 0);
        g.max_new_tokens = 10;
        g.n_eos = 0;
        if (kvik_generate(c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
        kvik_cache_usage(c, &u);
        kvik_result_free(r);
        kvik_generation_done(&g);
        kvik_cache_close(c);
        if (i) {
            printf("peak of the cache %zu, process %zu over %zu\n", (size_t)u.peak_bytes,
                   peak_memory() - before, before);
            assert_true(u.peak_bytes <= 8u << 20);
            assert_true(peak_memory() - before <= 16u << 20);
        }
        before = peak_memory();
        config.cache_implementation = "offloaded";
        config.cache_memory = 8u << 20;
        config.step_tokens = 0;
    }
    unsetenv("KVIK_SPILL_MAP");
}

int main(void)
{
    const char *path[3] = {"tests/golden/models/llama-mha", "tests/golden/models/llama-bf16-long",
                           getenv("KVIK_TEST_SHORT") ? NULL : test_model()};
    for (int i = 0; i < 3; i++)
        if (path[i] && kvik_model_open(path[i], &model[i]) < 0) {
            fprintf(stderr, "%s\n", kvik_last_error());
            return 1;
        }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory),    cmocka_unit_test(small_models), cmocka_unit_test(codecs),
        cmocka_unit_test(raw_turns), cmocka_unit_test(many),         cmocka_unit_test(falls_back),
        cmocka_unit_test(full_disk), cmocka_unit_test(smollm2),
    };
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 3; i++)
        kvik_model_close(model[i]);
    return e;
}
