/* test_arch_identity.c - the logits of the tiny golden models are bit-identical in every setting.
 * Settings: the strategy, the prefill chunk size, padding, other rows of the batch, threads, block
 * rows, the instruction set, recomputing everything.
 * test_identity.c tests two models in depth. This test covers every family, beyond every window,
 * chunk and rotary threshold, where forwards are as long as positions allow. In fast compute the
 * models take the settings in turn. KVIK_TEST_SHORT: exact compute only, half as long, one attention
 * atom crossed, and settings, codecs and the scalar device in turn. */
#include "base/base.h"
#include "codecs.h"
#include "dev/dev.h"
#include "hearing.h"
#include "testing.h"

enum { DEEP = 600, STEPS = 4, ROWS = 4, PAD = 11 };

struct way {
    const char *name, *impl, *config, *isa;
    uint32_t depth, threads, rows, place, chunk, pad;
    bool recompute;
    size_t memory;
    const char *only; /* for models whose description has this word; NULL: all */
};
static const struct way ways[] = {
    {.name = "static, 2 threads", .impl = "static", .threads = 2},
    {.name = "recompute", .recompute = true},
    {.name = "chunks of 1", .chunk = 1},
    {.name = "chunks of 7", .chunk = 7},
    {.name = "chunks of 64, 3 threads", .chunk = 64, .threads = 3},
    {.name = "static, chunks of 7", .impl = "static", .chunk = 7},
    {.name = "left padding", .pad = PAD},
    {.name = "left padding, chunks of 7", .pad = PAD, .chunk = 7},
    {.name = "left padding, recompute", .pad = PAD, .recompute = true},
    {.name = "batch, first", .rows = ROWS, .place = 0, .threads = 2},
    {.name = "batch, last, static", .rows = ROWS, .place = ROWS - 1, .impl = "static"},
    {.name = "batch, second, chunks of 64", .rows = ROWS, .place = 1, .chunk = 64},
    {.name = "block rows 256", .config = "{\"test_block_rows\": 256}"},
    {.name = "codec hook", .config = "{\"backend\": \"shuffle\"}", .chunk = 100},
    {.name = "offloaded", .impl = "offloaded", .chunk = 64},
    {.name = "offloaded_static", .impl = "offloaded_static"},
    {.name = "offloaded, batch, chunks of 7",
     .impl = "offloaded",
     .rows = ROWS,
     .place = 1,
     .chunk = 7},
    {.name = "hybrid", .impl = "hybrid", .only = "sliding_attention"},
    {.name = "offloaded_hybrid, chunks of 7",
     .impl = "offloaded_hybrid",
     .only = "sliding_attention",
     .chunk = 7},
    {.name = "hybrid_chunked", .impl = "hybrid_chunked", .only = "chunked_attention"},
    {.name = "sliding_window", .impl = "sliding_window", .only = "sliding_attention"},
};

static bool small;
static struct hearing hearing;  /* of the model */
#define LEARNED "\"rope\":null" /* positions are learned: no text is longer than the context */

/* True if the model's description has a word, such as its type of rotation. */
static bool says(const kvik_model *m, const char *word)
{
    char *text;
    assert_int_equal(kvik_model_describe(m, &text), 0);
    bool yes = strstr(text, word) != NULL;
    kvik_free(text);
    return yes;
}

static uint32_t depth_of(const kvik_model *m)
{
    uint32_t deep = small ? DEEP / 2 : DEEP, context = kvik_model_context(m);
    return says(m, LEARNED) ? MIN(deep, context - STEPS) : deep;
}

static uint64_t written; /* bytes spilled so far */

/* Returns the logits of the first steps after the prompt for the row at `place`: [STEPS][vocab],
 * malloc'd. */
static float *run(kvik_model *m, const char *model, const struct way *w, const char *compute)
{
    static int32_t ids[ROWS][DEEP + PAD];
    static uint8_t mask[DEEP + PAD];
    uint32_t vocab = kvik_model_vocab(m), rows = w->rows ? w->rows : 1,
             n = w->depth ? w->depth : depth_of(m);
    kvik_prompt p[ROWS];
    kvik_generation g;
    kvik_cache *c;
    kvik_result *r;
    for (uint32_t i = 0; i < rows; i++) {
        draw_ids(ids[i], 100, vocab, 7 + i);
        p[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = ids[i], .n = MIN(3 + 29 * i, n)};
        hearing_prompt(&hearing, &p[i]);
    }
    uint32_t pad = hearing.hears ? 0 : w->pad; /* the encoder's input is padded instead */
    memset(mask, 1, sizeof mask);
    memset(mask, 0, w->pad);
    memset(ids[w->place], 0, pad * sizeof **ids);
    draw_ids(ids[w->place] + pad, n, vocab, 42);
    p[w->place] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = ids[w->place], .n = n + pad};
    hearing_prompt(&hearing, &p[w->place]);
    int32_t input[PAD + HEARD_IDS] = {0};
    kvik_source padded = {
        .size = sizeof padded, .ids = input, .n = w->pad + HEARD_IDS, .attention_mask = mask};
    memcpy(input + w->pad, hearing.ids, sizeof hearing.ids);
    if (w->pad && !hearing.hears) p[w->place].attention_mask = mask;
    if (w->pad && hearing.hears && !hearing.encoder.bins) p[w->place].source = &padded;
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    g.max_new_tokens = w->recompute ? 2 : STEPS;
    g.n_eos = 0;
    g.output_logits = true;
    g.prefill_chunk_size = w->chunk;
    g.use_cache = !w->recompute;
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = w->impl,
                                .cache_config = w->config,
                                .max_sequences = rows,
                                .max_cache_len = n + STEPS,
                                .cache_memory = w->memory,
                                .threads = w->threads ? w->threads : 1,
                                .compute = compute,
                                .isa = w->isa};
    int e = kvik_cache_open(m, &config, &c);
    if (e >= 0 && (e = kvik_generate(c, &g, p, rows, NULL, &r)) < 0) kvik_cache_close(c);
    if (e < 0 && w->memory) return NULL;
    if (e < 0) fail_msg("%s, %s: %s", model, w->name, kvik_last_error());
    kvik_usage usage = {.size = sizeof usage};
    kvik_cache_usage(c, &usage);
    written += usage.tier_written;
    float *out = calloc(STEPS * (size_t)vocab, sizeof *out);
    for (uint32_t s = 0; s < g.max_new_tokens; s++)
        memcpy(out + (size_t)s * vocab, r->logits + ((size_t)s * rows + w->place) * vocab,
               vocab * sizeof *out);
    kvik_result_free(r);
    kvik_cache_close(c);
    kvik_generation_done(&g);
    return out;
}

static void same_logits(kvik_model *m, const char *model, const float *want, const float *got,
                        const struct way *w, const char *compute)
{
    uint32_t vocab = kvik_model_vocab(m), steps = w->recompute ? 2 : STEPS;
    for (size_t k = 0; k < (size_t)steps * vocab; k++)
        if (memcmp(&want[k], &got[k], sizeof *got) != 0)
            fail_msg("%s, %s, %s: step %zu, logit %zu is %.9g, should be %.9g", model, w->name,
                     compute, k / vocab, k % vocab, (double)got[k], (double)want[k]);
}

static void same(kvik_model *m, const char *model, const float *want, const struct way *w,
                 const char *compute)
{
    float *got = run(m, model, w, compute);
    same_logits(m, model, want, got, w, compute);
    free(got);
}

/* Runs in the smallest sufficient budget, where rows are spilled. Models with nothing but windows,
 * or short texts, may spill none. */
static void offloaded(kvik_model *m, const char *model, const float *want, const char *compute)
{
    struct way w = {.name = "offloaded, small", .impl = "offloaded", .chunk = 64};
    float *got = NULL;
    uint64_t before = written;
    for (w.memory = 32 << 10; !got && w.memory < 16 << 20; w.memory += w.memory / (small ? 1 : 4))
        got = run(m, model, &w, compute);
    if (!got) fail_msg("%s: %s", model, kvik_last_error());
    same_logits(m, model, want, got, &w, compute);
    free(got);
    printf("%s, %s: %llu bytes offloaded in a budget of %zu\n", model, compute,
           (unsigned long long)(written - before), w.memory);
}

static void all_ways(kvik_model *m, const char *model, const char *compute)
{
    float *want = run(m, model, &(struct way){.name = "base"}, compute);
    /* Llama 4 and the encoder of BART count the masked columns, so padded rows are compared with each other. */
    bool counts = strncmp(model, "llama4", 6) == 0 || strstr(model, "bart");
    float *padded = want;
    if (counts) padded = run(m, model, &(struct way){.name = "padded base", .pad = PAD}, compute);
    /* The models take the ways in turn, unless all are asked for; in fast compute more seldom, since how
     * fast kernels split their work does not depend on the family. */
    bool in_turn = small || !getenv("KVIK_TEST_LONG");
    static size_t turn;
    size_t turns = small ? test_share() : !in_turn ? 1 : strcmp(compute, "fast") == 0 ? 5 : 2;
    for (size_t i = in_turn ? turn++ % turns : 0; i < countof(ways); i += turns)
        if (!ways[i].only || says(m, ways[i].only))
            same(m, model, ways[i].pad ? padded : want, &ways[i], compute);
    offloaded(m, model, want, compute);
    if (counts) free(padded);
    free(want);
}

/* The scalar reference device is slow, so it is compared with the others on a short prompt, beyond
 * the windows. */
static void isas(kvik_model *m, const char *model, const char *compute, uint32_t turn)
{
    static const uint32_t depth[] = {50, DEEP};
    for (int k = 0; k < 2 - small; k++) {
        float *want = NULL;
        for (int i = k || turn % test_share() ? DEV_REF + 1 : DEV_REF; i <= DEV_AVX512; i++) {
            struct way w = {.name = dev_isa_names()[i],
                            .isa = dev_isa_names()[i],
                            .depth = MIN(depth[k], depth_of(m))};
            if (!dev_isa_supported((enum dev_isa)i)) continue;
            if (want)
                same(m, model, want, &w, compute);
            else
                want = run(m, model, &w, compute);
        }
        free(want);
    }
}

/* Compares every position of a prompt, not only its end. */
static void positions(kvik_model *m, const char *model)
{
    static const uint32_t chunks[] = {DEEP, 64, 7, 1};
    static int32_t ids[DEEP];
    uint32_t vocab = kvik_model_vocab(m), n = MIN(small ? 40u : 150u, depth_of(m));
    size_t size = (size_t)n * vocab * sizeof(float);
    float *out[2] = {malloc(size), malloc(size)};
    draw_ids(ids, n, vocab, 11);
    for (size_t i = 0; i < countof(chunks); i++) {
        kvik_cache *c;
        kvik_seq s;
        kvik_cache_config config = {.size = sizeof config,
                                    .max_sequences = 1,
                                    .max_cache_len = n,
                                    .step_tokens = chunks[i],
                                    .compute = "exact"};
        assert_int_equal(kvik_cache_open(m, &config, &c), 0);
        int e = hearing_new(&hearing, c, &s);
        kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
        if (e < 0 || kvik_forward(c, &span, 1, true, out[i > 0]) < 0)
            fail_msg("%s: %s", model, kvik_last_error());
        if (i && memcmp(out[0], out[1], size) != 0)
            fail_msg("%s: positions differ in forwards of %u tokens", model, chunks[i]);
        kvik_cache_close(c);
    }
    free(out[0]);
    free(out[1]);
}

/* Models without attention have none; codecs then have nothing to quantize. */
static uint32_t head_dim_of(const kvik_model *m)
{
    char *text;
    assert_int_equal(kvik_model_describe(m, &text), 0);
    const char *at = strstr(text, "\"head_dim\":");
    uint32_t dim = at ? (uint32_t)strtoul(at + 11, NULL, 10) : 0;
    assert_true(dim > 0 || strstr(text, "recurrent_state"));
    kvik_free(text);
    return dim ? dim : 16;
}

static uint32_t n_quantized[1 + 5 * CODEC_KINDS]; /* the number of models that a variant ran on */

/* Under every codec the same rows are quantized and read in the same form in every way. The models
 * take the variants in turn. Variants for larger heads than most models have run on each that they fit. */
static void codecs(kvik_model *m, const char *model, uint32_t turn)
{
    static const struct way other[] = {
        {.name = "static, 2 threads", .impl = "static", .threads = 2},
        {.name = "chunks of 7", .chunk = 7},
        {.name = "batch", .rows = ROWS, .place = 1, .threads = 2},
        {.name = "offloaded", .impl = "offloaded", .chunk = 64}};
    const uint32_t share = 7 * test_share(), n = codec_variants(), dim = head_dim_of(m);
    struct codec_variant v;
    for (uint32_t i = 1; i < n; i++) {
        char config[sizeof v.config + 2], name[200];
        uint32_t depth = MIN(DEEP / 2, depth_of(m));
        bool rare = !small && !codec_variant(i, 16, &v);
        if (!codec_variant(i, dim, &v) || (!rare && i % share != turn % share)) continue;
        n_quantized[i]++;
        snprintf(config, sizeof config, "{%s}", v.config);
        float *want =
            run(m, model, &(struct way){.name = v.name, .config = config, .depth = depth}, "exact");
        for (size_t k = 0; k < countof(other); k++) {
            struct way w = other[k];
            snprintf(name, sizeof name, "%s, %s", v.name, w.name);
            w.name = name;
            w.config = config;
            w.depth = depth;
            same(m, model, want, &w, "exact");
        }
        free(want);
    }
}

/* True if the model is another model's file in another format, which test_gguf_models.c compares. */
static bool twin(const char *const *names, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        if (strncmp(name, names[i], len) == 0 && strcmp(name + len, ".gguf") == 0) return true;
    }
    return false;
}

static void one_answer(void **state)
{
    (void)state;
    const char *names[GOLDEN_MOST];
    uint32_t n = golden_all(names), asked = 0, twins = 0;
    for (uint32_t i = 0; i < n; i++) {
        char path[300];
        kvik_model *m;
        if (twin(names, n, names[i])) {
            twins++;
            continue;
        }
        snprintf(path, sizeof path, GOLDEN_MODELS "/%s", names[i]);
        if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
        hearing_open(&hearing, m);
        for (int fast = 0; fast < 2 - small; fast++) {
            all_ways(m, names[i], fast ? "fast" : "exact");
            isas(m, names[i], fast ? "fast" : "exact", asked);
        }
        codecs(m, names[i], asked++);
        positions(m, names[i]);
        golden_ran(m);
        kvik_model_close(m);
    }
    assert_int_equal(asked + twins, n);
    const char *arch = golden_missed();
    if (arch) fail_msg("no golden model of architecture %s ran", arch);
    for (uint32_t i = 1; i < codec_variants() && !small; i++)
        if (!n_quantized[i]) fail_msg("variant %u of the codecs ran on no model", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_answer)};
    small = getenv("KVIK_TEST_SHORT") != NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
