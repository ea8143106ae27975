/* test_identity.c - the logits are bit-identical in every setting: threads, other rows of the
 * batch, block rows, the preset, the instruction set, the prefill chunk size, the codec hook,
 * recomputing everything. The test compares with memcmp at every step, through the public API.
 *
 * The small bf16 model runs in every way, 600 tokens deep (more than two attention atoms);
 * test_arch_identity.c covers every architecture. SmolLM2 adds quantized weights and real sizes: by
 * default it runs in the ways that split work differently, 272 tokens deep (one border of atoms);
 * in exact compute only in those that no other way contains.
 * KVIK_TEST_LONG=1 runs it in every way, 600 deep. KVIK_IDENTITY=bf16 runs only the small bf16
 * model (scripts/mutants.sh uses it). */
#include "dev/dev.h"
#include "kvik.h"
#include "testing.h"

enum { DEEP = 600, SHALLOW = 272, STEPS = 6, ROWS = 8 };
#define BF16 "tests/golden/models/llama-bf16-long"

static const char *smol;     /* NULL: the file is absent */
static bool whole;           /* KVIK_TEST_LONG */
static kvik_model *model[2]; /* SmolLM2, bf16 */
static int32_t prompt[DEEP];

struct way {
    const char *name, *compute, *isa, *impl, *config;
    uint32_t threads, rows, place, chunk, steps;
    bool recompute;
    enum {
        SMALL,
        FAST,
        BOTH_COMPUTES
    } real; /* in which compute the real model runs this way, too */
};

/* Returns the logits of the first steps after the prompt for the row at `place`: [STEPS][vocab],
 * malloc'd. */
static float *run(kvik_model *m, const struct way *w, uint32_t depth)
{
    uint32_t vocab = kvik_model_vocab(m), rows = w->rows ? w->rows : 1;
    static int32_t mate[ROWS][100];
    kvik_prompt p[ROWS];
    kvik_generation g;
    kvik_cache *c;
    kvik_result *r;
    draw_ids(prompt, DEEP, vocab, 42);
    for (uint32_t i = 0; i < rows; i++) {
        draw_ids(mate[i], 100, vocab, 7 + i);
        p[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = mate[i], .n = 5 + 13 * i};
    }
    p[w->place] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = prompt, .n = depth};
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    g.max_new_tokens = w->steps ? w->steps : STEPS;
    g.n_eos = 0;
    g.output_logits = true;
    g.prefill_chunk_size = w->chunk;
    g.use_cache = !w->recompute;
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = w->impl,
                                .cache_config = w->config,
                                .max_sequences = rows,
                                .max_cache_len = DEEP + 32,
                                .threads = w->threads,
                                .compute = w->compute,
                                .isa = w->isa};
    if (kvik_cache_open(m, &config, &c) < 0 || kvik_generate(c, &g, p, rows, NULL, &r) < 0)
        fail_msg("%s: %s", w->name, kvik_last_error());
    float *out = malloc(STEPS * (size_t)vocab * sizeof *out);
    for (uint32_t s = 0; s < g.max_new_tokens; s++)
        memcpy(out + (size_t)s * vocab, r->logits + ((size_t)s * rows + w->place) * vocab,
               vocab * sizeof *out);
    kvik_result_free(r);
    kvik_cache_close(c);
    kvik_generation_done(&g);
    return out;
}

static void same(kvik_model *m, const float *want, const struct way *w, uint32_t depth)
{
    uint32_t vocab = kvik_model_vocab(m), steps = w->steps ? w->steps : STEPS;
    float *got = run(m, w, depth);
    for (uint32_t s = 0; s < steps; s++)
        if (memcmp(want + (size_t)s * vocab, got + (size_t)s * vocab, vocab * sizeof *got)) {
            uint32_t k = 0;
            while (!memcmp(want + (size_t)s * vocab + k, got + (size_t)s * vocab + k, sizeof *got))
                k++;
            fail_msg("%s: step %u differs from logit %u on: %.9g, should be %.9g", w->name, s, k,
                     (double)got[(size_t)s * vocab + k], (double)want[(size_t)s * vocab + k]);
        }
    free(got);
}

static uint32_t depth_of(const kvik_model *m)
{
    return m == model[0] && !whole ? SHALLOW : DEEP;
}

/* True for the codec of tests on a device that has no kernels for it. */
static bool unread(const struct way *w)
{
    const char *device = getenv("KVIK_DEVICE");
    return device && !strcmp(device, "cuda") && w->config && strstr(w->config, "shuffle");
}

#define SHUFFLE "{\"backend\": \"shuffle\"}"
#define WINDOW  "{\"sliding_window\": 64}"
#define BOTH    "{\"sliding_window\": 64, \"backend\": \"shuffle\"}"

static void all_ways(kvik_model *m, const char *compute)
{
    const struct way base = {.name = "base", .compute = compute, .threads = 1};
    const struct way ways[] = {
        {.name = "2 threads", .threads = 2},
        {.name = "3 threads", .threads = 3},
        {.name = "batch of 8, first", .rows = 8, .place = 0},
        {.name = "batch of 8, fourth", .rows = 8, .place = 3, .threads = 2, .real = BOTH_COMPUTES},
        {.name = "batch of 8, last", .rows = 8, .place = 7},
        {.name = "block rows 256", .config = "{\"test_block_rows\": 256}"},
        {.name = "static", .impl = "static"},
        {.name = "chunks of 1", .chunk = 1, .threads = 2, .real = FAST},
        {.name = "chunks of 7", .chunk = 7},
        {.name = "chunks of 64", .chunk = 64},
        {.name = "codec hook", .config = SHUFFLE},
        {.name = "codec hook, chunks of 7", .config = SHUFFLE, .chunk = 7, .real = BOTH_COMPUTES},
        {.name = "codec hook, block rows 256",
         .config = "{\"backend\": \"shuffle\", \"test_block_rows\": 256}"},
        {.name = "recompute", .recompute = true, .steps = 2, .real = FAST},
    };
    uint32_t depth = depth_of(m);
    float *want = run(m, &base, depth);
    for (size_t i = 0; i < countof(ways); i++) {
        if (unread(&ways[i])) continue;
        struct way w = ways[i];
        w.compute = compute;
        if (m != model[0] || whole || w.real > (strcmp(compute, "exact") == 0))
            same(m, want, &w, depth);
    }
    free(want);
}

static void windows(kvik_model *m, const char *compute)
{
    const struct way base = {.name = "masked recompute",
                             .compute = compute,
                             .config = WINDOW,
                             .recompute = true,
                             .steps = 2};
    const struct way ways[] = {
        {.name = "window 64", .config = WINDOW, .steps = 2, .real = FAST},
        {.name = "window 64, chunks of 7", .config = WINDOW, .chunk = 7, .steps = 2},
        {.name = "window 64, chunks of 1", .config = WINDOW, .chunk = 1, .steps = 2, .threads = 2},
        {.name = "window 64, static, batch",
         .config = WINDOW,
         .impl = "static",
         .rows = 8,
         .place = 5,
         .steps = 2},
        {.name = "window 64, codec hook", .config = BOTH, .chunk = 100, .steps = 2, .real = FAST},
    };
    uint32_t depth = depth_of(m);
    float *want = run(m, &base, depth);
    if (m != model[0] || whole) { /* the window changes the result */
        float *full = run(m, &(struct way){.name = "full", .compute = compute}, depth);
        assert_true(memcmp(want, full, kvik_model_vocab(m) * sizeof *full) != 0);
        free(full);
    }
    for (size_t i = 0; i < countof(ways); i++) {
        if (unread(&ways[i])) continue;
        struct way w = ways[i];
        w.compute = compute;
        if (w.real || m != model[0] || whole) same(m, want, &w, depth);
    }
    free(want);
}

/* Compares every position of a prompt, not only its end: forwards of any size give the bits of a
 * single one. */
static void positions(kvik_model *m, const char *compute)
{
    static const uint32_t chunks[] = {600, 64, 7, 1};
    uint32_t vocab = kvik_model_vocab(m), n = m == model[0] && !whole ? 70 : 300;
    float *out[2];
    draw_ids(prompt, DEEP, vocab, 42);
    for (int k = 0; k < 2; k++)
        out[k] = malloc((size_t)n * vocab * sizeof(float));
    for (size_t i = 0; i < countof(chunks); i++) {
        kvik_cache *c;
        kvik_seq s;
        kvik_cache_config config = {.size = sizeof config,
                                    .max_sequences = 1,
                                    .max_cache_len = 600,
                                    .compute = compute,
                                    .step_tokens = chunks[i],
                                    .threads = 1 + i % 2};
        assert_int_equal(kvik_cache_open(m, &config, &c), 0);
        assert_int_equal(kvik_cache_new(c, &s), 0);
        kvik_span span = {.size = sizeof span, .seq = s, .ids = prompt, .n = n};
        assert_int_equal(kvik_forward(c, &span, 1, true, out[i > 0]), 0);
        if (i) assert_memory_equal(out[0], out[1], (size_t)n * vocab * sizeof(float));
        kvik_cache_close(c);
    }
    free(out[0]);
    free(out[1]);
}

static void isas(kvik_model *m, const char *compute, uint32_t depth, bool with_ref)
{
    float *want = NULL;
    for (int i = with_ref ? DEV_REF : DEV_REF + 1; i <= DEV_AVX512; i++) {
        if (!dev_isa_supported((enum dev_isa)i)) continue;
        struct way w = {
            .name = dev_isa_names()[i], .compute = compute, .isa = dev_isa_names()[i], .steps = 3};
        if (want)
            same(m, want, &w, depth);
        else
            want = run(m, &w, depth);
    }
    free(want);
}

#define NEEDS(m)                                                                                   \
    if (!(m)) skip()

static void smol_fast(void **s)
{
    (void)s;
    NEEDS(model[0]);
    all_ways(model[0], "fast");
}
static void smol_exact(void **s)
{
    (void)s;
    NEEDS(model[0]);
    all_ways(model[0], "exact");
}
static void smol_windows(void **s)
{
    (void)s;
    NEEDS(model[0]);
    windows(model[0], "fast");
}
static void smol_positions(void **s)
{
    (void)s;
    NEEDS(model[0]);
    positions(model[0], "fast");
}
static void smol_isas(void **s)
{
    (void)s;
    NEEDS(model[0]);
    isas(model[0], "fast", depth_of(model[0]) / 2, false);
    isas(model[0], "exact", depth_of(model[0]) / 2, false);
    isas(model[0], "fast", 8, true);
    isas(model[0], "exact", 8, true);
}
static void bf16_all(void **s)
{
    (void)s;
    NEEDS(model[1]);
    for (int i = 0; i < 2; i++) {
        const char *compute = i ? "exact" : "fast";
        all_ways(model[1], compute);
        windows(model[1], compute);
        positions(model[1], compute);
        isas(model[1], compute, DEEP, true);
    }
}

int main(void)
{
    const char *only = getenv("KVIK_IDENTITY");
    whole = getenv("KVIK_TEST_LONG") != NULL;
    bool small = getenv("KVIK_TEST_SHORT") || (only && strcmp(only, "bf16") == 0);
    smol = small ? NULL : test_model();
    if (smol && kvik_model_open(smol, &model[0]) < 0) fprintf(stderr, "%s\n", kvik_last_error());
    if (kvik_model_open(BF16, &model[1]) < 0) {
        fprintf(stderr, "%s\n", kvik_last_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_all),       cmocka_unit_test(smol_fast),
        cmocka_unit_test(smol_exact),     cmocka_unit_test(smol_windows),
        cmocka_unit_test(smol_positions), cmocka_unit_test(smol_isas),
    };
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    kvik_model_close(model[0]);
    kvik_model_close(model[1]);
    return e;
}
