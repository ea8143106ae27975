/* test_cuda_order.c - what a GPU is given, and in which order, on the emulated device (tests/cuda): a decode step is one graph,
 * which is set where shapes change; rows outside memory come by copies beside the kernels, from pinned memory; and the
 * emulation notices who breaks the order.  Models of each family, and quantized rows, have the logits of the CPU. */
#include "emulated_library.h"
#include "kvik_compat.h"
#include "share.h"

#include <math.h>
#include <sys/wait.h>

#define MODELS "tests/golden/models/"
static const char *path = MODELS "llama-gqa-l3";
enum { PROMPT = 250, STEPS = 24, ROWS = 3 };
static struct emulated_counts *counts;
static int32_t ids[ROWS][PROMPT + STEPS];

static kvik_model *open_model(const char *device)
{
    kvik_model_options o = {.size = sizeof o, .device = device};
    kvik_model *m;
    if (kvik_model_open_with(path, &o, &m) < 0) fail_msg("%s", kvik_last_error());
    for (uint32_t i = 0; i < ROWS; i++)
        draw_ids(ids[i], PROMPT + STEPS, kvik_model_vocab(m), 5 + i);
    return m;
}

static const char *codec; /* of the cache, or NULL */

static kvik_cache *open_cache(kvik_model *m, const char *impl, uint64_t memory)
{
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = impl,
                                .cache_config = codec,
                                .max_sequences = ROWS,
                                .max_cache_len = PROMPT + STEPS,
                                .cache_memory = memory,
                                .threads = 1};
    kvik_cache *c;
    if (kvik_cache_open(m, &config, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

/* Appends tokens [from, to) of the first `rows` rows.  logits: [rows][vocab] */
static void feed(kvik_cache *c, const kvik_seq *s, uint32_t rows, uint32_t from, uint32_t to,
                 float *logits)
{
    kvik_span span[ROWS];
    for (uint32_t i = 0; i < rows; i++)
        span[i] =
            (kvik_span){.size = sizeof *span, .seq = s[i], .ids = ids[i] + from, .n = to - from};
    if (kvik_forward(c, span, rows, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

/* The logits of the last steps: [STEPS][rows][vocab]; malloc'd.  Every step but the first few is one graph, and the atom that
 * begins in between makes no other one. */
static float *decode(const char *device, uint32_t rows, bool graphs)
{
    kvik_model *m = open_model(device);
    kvik_cache *c = open_cache(m, "static", 0);
    kvik_seq s[ROWS];
    size_t one = (size_t)rows * kvik_model_vocab(m);
    float *out = malloc(STEPS * one * sizeof *out);
    for (uint32_t i = 0; i < rows; i++)
        assert_int_equal(kvik_cache_new(c, &s[i]), 0);
    feed(c, s, rows, 0, PROMPT, NULL);
    uint64_t made = 0, set = 0;
    for (uint32_t t = 0; t < STEPS; t++) {
        uint64_t given = counts->given, runs = counts->runs, in = counts->in_graphs;
        uint64_t calls = mem_calls();
        feed(c, s, rows, PROMPT + t, PROMPT + t + 1, out + t * one);
        assert_int_equal(mem_calls(), calls); /* nor for a list of a new shape */
        if (t == 2) {
            made = counts->graphs;
            set = counts->sets;
        }
        if (t < 2) continue;
        assert_int_equal(counts->runs - runs, graphs);
        if (!graphs) continue;
        assert_int_equal(counts->graphs, made);
        assert_true(counts->in_graphs - in > 10 * 3); /* all kernels of all layers */
        assert_true(counts->given - given < 20);      /* what the host brings, and the logits */
    }
    if (graphs) assert_true(counts->sets > set); /* row 256 began another atom */
    if (graphs) assert_true(counts->sets - set < 20);
    kvik_cache_close(c);
    kvik_model_close(m);
    return out;
}

static void test_steps(void **state)
{
    (void)state;
    for (uint32_t rows = 1; rows <= ROWS; rows += 2) {
        kvik_model *m = open_model("cpu");
        size_t bytes = STEPS * rows * kvik_model_vocab(m) * sizeof(float);
        kvik_cache *c = open_cache(m, "static", 0);
        kvik_seq s[ROWS];
        float *want = malloc(bytes), *got = decode("cuda", rows, true);
        for (uint32_t i = 0; i < rows; i++)
            assert_int_equal(kvik_cache_new(c, &s[i]), 0);
        feed(c, s, rows, 0, PROMPT, NULL);
        for (uint32_t t = 0; t < STEPS; t++)
            feed(c, s, rows, PROMPT + t, PROMPT + t + 1,
                 want + (size_t)t * rows * kvik_model_vocab(m));
        if (memcmp(want, got, bytes)) fail_msg("%u rows: not the logits of the CPU", rows);
        free(got);
        if (rows == 1) {
            setenv("KVIK_CUDA_GRAPHS", "no", 1);
            got = decode("cuda", rows, false);
            unsetenv("KVIK_CUDA_GRAPHS");
            if (memcmp(want, got, bytes)) fail_msg("without graphs: not the logits of the CPU");
            free(got);
        }
        free(want);
        kvik_cache_close(c);
        kvik_model_close(m);
    }
}

/* Each step of a model is one graph, once its kind came twice: a step that seals tiles, every few steps; one with experts. */
static void one_graph(const char *model, const char *impl, const char *config)
{
    enum { FIRST = 20, LAST = 44 };
    path = model;
    codec = config;
    kvik_model *m = open_model("cuda");
    kvik_cache *c = open_cache(m, impl, 0);
    kvik_seq s[2];
    float *logits = malloc(2 * kvik_model_vocab(m) * sizeof *logits);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvik_cache_new(c, &s[i]), 0);
    feed(c, s, 2, 0, FIRST, NULL);
    for (uint32_t t = FIRST; t < LAST; t++) {
        uint64_t given = counts->given, runs = counts->runs, made = counts->graphs;
        feed(c, s, 2, t, t + 1, logits);
        if (t < FIRST + 12) continue;
        if (counts->runs - runs != 1 || counts->graphs != made || counts->given - given >= 20)
            fail_msg("%s, step %u: %d graphs, %d new, %d operations beside", model, t,
                     (int)(counts->runs - runs), (int)(counts->graphs - made),
                     (int)(counts->given - given));
    }
    free(logits);
    kvik_cache_close(c);
    kvik_model_close(m);
    path = MODELS "llama-gqa-l3";
    codec = NULL;
}

static void test_one_graph(void **state)
{
    (void)state;
    one_graph(MODELS "llama-d64", "quantized",
              "{\"backend\": \"quanto\", \"nbits\": 4, \"residual_length\": 3}");
    one_graph(MODELS "llama-d64", "quantized", "{\"backend\": \"fp8\"}");
    one_graph(MODELS "mixtral", "dynamic", NULL);
    one_graph(MODELS "gpt-oss-mxfp4", "dynamic", NULL);
    one_graph(MODELS "qwen3-next", "dynamic", NULL);
}

/* Rows that do not fit the budget: the pages of a layer come while kernels of the layer before run, from pinned memory, and the
 * logits are those of rows in memory. */
static void test_offloaded(void **state)
{
    (void)state;
    kvik_model *m = open_model("cuda");
    kvik_cache *c[2] = {open_cache(m, "static", 0), open_cache(m, "offloaded", 460 << 10)};
    size_t vocab = kvik_model_vocab(m);
    float *logits[2] = {malloc(vocab * sizeof(float)), malloc(vocab * sizeof(float))};
    kvik_seq s[2];
    uint64_t pageable = counts->pageable;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvik_cache_new(c[i], &s[i]), 0);
        feed(c[i], &s[i], 1, 0, PROMPT, NULL);
    }
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c[1], &u);
    assert_true(u.tier_written > 0 && counts->held > (4u << 20)); /* more than what is staged */
    for (uint32_t t = 0; t < STEPS; t++) {
        feed(c[0], &s[0], 1, PROMPT + t, PROMPT + t + 1, logits[0]);
        uint64_t beside = counts->beside;
        feed(c[1], &s[1], 1, PROMPT + t, PROMPT + t + 1, logits[1]);
        assert_memory_equal(logits[0], logits[1], vocab * sizeof(float));
        assert_true(counts->beside > beside + 10); /* kernels of a layer, at least */
    }
    assert_int_equal(counts->pageable, pageable);
    for (int i = 0; i < 2; i++) {
        kvik_cache_close(c[i]);
        free(logits[i]);
    }
    kvik_model_close(m);
    assert_int_equal(counts->held, 0);
}

/* States, experts, windows, sinks and quantized rows, for a prompt and a few steps. */
static void test_families(void **state)
{
    /* two tiles of 128 rows and a part of another, in two atoms */
    enum { FIRST = 40, TILES = 268, MORE = 4 };
    static const struct {
        const char *model, *impl, *codec;
        uint32_t first; /* tokens of the prompt; 0: FIRST */
    } all[] = {
        {MODELS "mamba2", "dynamic", NULL, 0},
        {MODELS "jamba", "dynamic", NULL, 0},
        {MODELS "qwen3-next", "dynamic", NULL, 0},
        {MODELS "gpt-oss-mxfp4", "dynamic", NULL, 0},
        {MODELS "mixtral", "dynamic", NULL, 0},
        {MODELS "llama4", "dynamic", NULL, 0},
        {MODELS "gemma3", "hybrid", NULL, 0},
        {MODELS "llama-d64", "quantized",
         "{\"backend\": \"quanto\", \"nbits\": 4, \"residual_length\": 16}", 0},
        {MODELS "llama-d64", "quantized",
         "{\"backend\": \"hqq\", \"nbits\": 3, \"axis_key\": 1, \"axis_value\": 1, \"residual_length\": 16}",
         0},
        {MODELS "llama-d64", "quantized", "{\"backend\": \"fp8\"}", 0},
        {MODELS "llama-d64", "quantized", "{\"backend\": \"kvik\", \"nbits\": 8}", TILES},
        {MODELS "llama-d64", "quantized", "{\"backend\": \"kvik\", \"k_bits\": 4, \"v_bits\": 2}",
         TILES},
        {MODELS "gpt-oss", "quantized", "{\"backend\": \"kvik\", \"nbits\": 3}", TILES},
        {MODELS "gemma2", "quantized", "{\"backend_key\": \"kvik\", \"backend_value\": \"none\"}",
         TILES},
        {MODELS "llama-d64", "quantized",
         "{\"backend_key\": \"none\", \"backend_value\": \"kvik\"}", TILES},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        float *logits[2];
        size_t n = 0;
        uint32_t first = all[i].first ? all[i].first : FIRST;
        if (all[i].first && i % 2 && test_share() > 1) continue; /* long prompts */
        path = all[i].model;
        codec = all[i].codec;
        for (int side = 0; side < 2; side++) {
            kvik_model *m = open_model(side ? "cuda" : "cpu");
            kvik_cache *c = open_cache(m, all[i].impl, 0);
            kvik_seq s[2];
            n = 2 * kvik_model_vocab(m);
            logits[side] = malloc(MORE * n * sizeof(float));
            for (int r = 0; r < 2; r++)
                assert_int_equal(kvik_cache_new(c, &s[r]), 0);
            feed(c, s, 2, 0, first, NULL);
            for (uint32_t t = first; t < first + MORE; t++)
                feed(c, s, 2, t, t + 1, logits[side] + (t - first) * n);
            kvik_cache_close(c);
            kvik_model_close(m);
        }
        if (memcmp(logits[0], logits[1], MORE * n * sizeof(float)))
            fail_msg("%s, %s: not the logits of the CPU", path, all[i].impl);
        free(logits[0]);
        free(logits[1]);
    }
    path = MODELS "llama-gqa-l3";
    codec = NULL;
}

static const struct cuda_rt *rt;
static struct cuda_about about;

/* The device has so many bytes from now on. */
static void device_has(const char *bytes)
{
    setenv("KVIK_EMULATED_MEMORY", bytes, 1);
    assert_true(rt->open(&about) >= 0);
    unsetenv("KVIK_EMULATED_MEMORY");
}

/* Probabilities of attention are those of the CPU.  Where the device has no memory for them the call fails: the rows stay as they
 * were, and the same call succeeds when there is memory again. */
static void test_shown(void **state)
{
    static const char *const codecs[] = {NULL, "{\"backend\": \"kvik\", \"nbits\": 4}"};
    enum { FIRST = 150, N = 3 };
    (void)state;
    path = MODELS "llama-d64";
    for (size_t i = 0; i < 2; i++) {
        float *shown[2];
        size_t bytes = 0;
        codec = codecs[i];
        for (int side = 0; side < 2; side++) {
            kvik_model *m = open_model(side ? "cuda" : "cpu");
            kvik_cache *c = open_cache(m, codec ? "quantized" : "dynamic", 0);
            kvik_batch *b;
            assert_int_equal(kvik_batch_open(c, 1, &b), 0);
            bytes = (size_t)kvik_model_layers(m) * kvik_model_heads(m) * N * (FIRST + N) *
                    sizeof(float);
            shown[side] = malloc(bytes);
            kvik_inputs in = {.size = sizeof in, .ids = ids[0], .n = FIRST};
            kvik_outputs out = {.size = sizeof out, .attentions = shown[side]};
            if (kvik_batch_forward(b, &in, NULL) < 0) fail_msg("%s", kvik_last_error());
            in.ids += FIRST;
            in.n = N;
            if (side) {
                device_has("1");
                int e = kvik_batch_forward(b, &in, &out);
                device_has("18446744073709551615");
                assert_int_equal(e, KVIK_NOMEM);
                assert_non_null(strstr(kvik_last_error(), "device cuda: no memory for"));
                assert_int_equal(kvik_batch_length(b), FIRST);
            }
            if (kvik_batch_forward(b, &in, &out) < 0) fail_msg("%s", kvik_last_error());
            kvik_batch_close(b);
            kvik_cache_close(c);
            kvik_model_close(m);
        }
        if (memcmp(shown[0], shown[1], bytes)) fail_msg("case %zu: not those of the CPU", i);
        free(shown[0]);
        free(shown[1]);
    }
    path = MODELS "llama-gqa-l3";
    codec = NULL;
}

/* --- the emulation itself: what it must notice */

static void copy(void *stream, void *to, const void *from, size_t n, enum cuda_copy how)
{
    const struct cuda_op op = {.act = CUDA_COPY, .how = how, .to = to, .from = from, .n = n};
    assert_true(rt->give(stream, &op) >= 0);
}

/* A kernel that copies n bytes. */
static struct cuda_op move(void *to, const void *from, size_t n)
{
    struct cuda_op op = {.act = CUDA_LAUNCH, .kernel = CUDA_k_move, .x = 1, .y = 1};
    struct k_move_args a = {to, from, n, 0, n};
    op.n = sizeof a;
    memcpy(op.args, &a, sizeof a);
    return op;
}

/* True if a copy on a stream of its own has ended for a kernel that does, or does not, come after its event. */
static bool sees(bool ordered)
{
    void *stream = rt->stream(), *beside = rt->stream(), *event = rt->event();
    float *host = rt->alloc(CUDA_PINNED, 64), *page = rt->alloc(CUDA_DEVICE, 64),
          *out = rt->alloc(CUDA_DEVICE, 64);
    for (int i = 0; i < 16; i++)
        host[i] = (float)i;
    const struct cuda_op read = move(out, page, 64);
    copy(beside, page, host, 64, CUDA_TO_DEVICE);
    assert_true(rt->record(event, beside) >= 0);
    if (ordered) assert_true(rt->after(stream, event) >= 0);
    assert_true(rt->give(stream, &read) >= 0 && rt->wait(stream) >= 0);
    bool same = memcmp(out, host, 64) == 0, none = isnan(out[3]);
    assert_true(same != none);
    rt->stream_close(stream);
    rt->stream_close(beside);
    rt->event_close(event);
    rt->release(CUDA_PINNED, host, 0);
    return same;
}

/* A page that is given back while a kernel that reads it is on its way. */
static void dropped(bool early)
{
    size_t n = about.page;
    void *stream = rt->stream(), *out = rt->alloc(CUDA_DEVICE, 64), *event = rt->event();
    unsigned char *page = rt->alloc(CUDA_RANGE, n);
    assert_true(rt->back(page, n, true) == 0);
    const struct cuda_op read = move(out, page, 64);
    assert_true(rt->give(stream, &read) >= 0 && rt->record(event, stream) >= 0);
    if (early) (void)rt->back(page, n, false);
    assert_true(rt->happened(event) >= 0);
    if (!early) (void)rt->back(page, n, false);
    rt->stream_close(stream);
}

/* A graph that runs when the memory of its kernels is another. */
static void stale(bool wrong)
{
    void *stream = rt->stream(), *out = rt->alloc(CUDA_DEVICE, 64), *a = rt->alloc(CUDA_DEVICE, 64),
         *b = rt->alloc(CUDA_DEVICE, 64);
    const struct cuda_op was = move(out, a, 64), now = move(out, b, 64);
    void *graph = rt->graph(&was, 1);
    rt->release(CUDA_DEVICE, a, 0);
    if (!wrong) assert_true(rt->graph_set(graph, 0, &now) >= 0);
    assert_true(rt->graph_run(graph, stream) >= 0 && rt->wait(stream) >= 0);
    rt->graph_close(graph);
    rt->stream_close(stream);
}

/* Pinned memory that is let go before its copy has ended. */
static void let_go(bool early)
{
    void *stream = rt->stream(), *at = rt->alloc(CUDA_DEVICE, 64),
         *host = aligned_alloc(4096, 4096);
    memset(host, 1, 4096);
    assert_true(rt->hold(host, 4096, true) >= 0);
    copy(stream, at, host, 64, CUDA_TO_DEVICE);
    if (early) (void)rt->hold(host, 0, false);
    assert_true(rt->wait(stream) >= 0);
    if (!early) (void)rt->hold(host, 0, false);
    rt->stream_close(stream);
    free(host);
}

/* Memory of the host that is written before its copy has ended. */
static void written(bool early)
{
    void *stream = rt->stream(), *at = rt->alloc(CUDA_DEVICE, 64);
    unsigned char *host = rt->alloc(CUDA_PINNED, 64);
    copy(stream, at, host, 64, CUDA_TO_DEVICE);
    if (early) host[5]++;
    assert_true(rt->wait(stream) >= 0);
    host[5]++;
    rt->stream_close(stream);
    rt->release(CUDA_PINNED, host, 0);
}

/* True if a process that does this ends in order. */
static bool survives(void (*act)(bool), bool wrong)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        signal(SIGSEGV, SIG_DFL); /* cmocka's would go on */
        signal(SIGABRT, SIG_DFL);
        act(wrong);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_noticed(void **state)
{
    static void (*const acts[])(bool) = {dropped, stale, let_go, written};
    (void)state;
    assert_true(sees(true));
    assert_false(sees(false));
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        if (!survives(acts[i], false)) fail_msg("act %zu is refused in the right order", i);
        if (survives(acts[i], true)) fail_msg("act %zu is not noticed in the wrong order", i);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noticed),   cmocka_unit_test(test_steps),
        cmocka_unit_test(test_one_graph), cmocka_unit_test(test_offloaded),
        cmocka_unit_test(test_families),  cmocka_unit_test(test_shown)};
    emulated_choose(argc ? argv[0] : "");
    setenv("KVIK_EMULATED", "late", 1);
    rt = emulated_rt();
    counts = emulated_counted();
    if (!counts || rt->open(&about) < 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
