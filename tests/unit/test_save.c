/* test_save.c - sessions on disk. A loaded session continues with the bits of the saved one, for
 * every policy, codec and place of the rows. A session that cannot be loaded is refused with the
 * reason. A second save writes only what is new. */
#include "base/base.h"
#include "base/file.h"
#include "copied_model.h"
#include "hearing.h"
#include "kvik_compat.h"
#include "testing.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define LLAMA "tests/golden/models/llama-mha"
enum { N = 150, MORE = 4, VOCAB = 1024, FREE = 1 << 20 };

static char dir[] = "/tmp/kvik-save-XXXXXX", file[64];
static int32_t ids[2 * N];
static float want[MORE * VOCAB], got[MORE * VOCAB];
static struct hearing hearing; /* of the model opened last */
static const char *cross;      /* cross_cache_config of the caches opened next */

static kvik_model *open_model(const char *path)
{
    kvik_model *m;
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    uint32_t vocab = kvik_model_vocab(m);
    hearing_open(&hearing, m);
    assert_true(vocab <= VOCAB);
    for (uint32_t i = 0; i < 2 * N; i++)
        ids[i] = (int32_t)(5 + i * 37 % (vocab - 5));
    return m;
}

static kvik_cache *open_cache(kvik_model *m, const char *impl, const char *config, uint64_t memory)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = impl,
                           .cache_config = config,
                           .max_cache_len = MIN(2 * N, kvik_model_context(m)),
                           .cross_cache_config = cross,
                           .max_sequences = 2,
                           .cache_memory = memory,
                           .spill_dir = dir,
                           .step_tokens = 32,
                           .threads = 1};
    kvik_cache *c = NULL;
    if (memory == FREE) k.cache_memory = 0;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s %s: %s", impl, config, kvik_last_error());
    return c;
}

static void forward(kvik_cache *c, kvik_seq s, const int32_t *t, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = t, .n = n};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

/* Appends a turn, single tokens, and another turn. */
static kvik_seq converse(kvik_cache *c, uint32_t n)
{
    kvik_seq s;
    if (hearing_new(&hearing, c, &s) < 0) fail_msg("%s", kvik_last_error());
    uint32_t first = n / 2, at = first;
    forward(c, s, ids, first, NULL);
    for (; at < first + 9 && at < n; at++)
        forward(c, s, ids + at, 1, NULL);
    if (at < n) forward(c, s, ids + at, n - at, NULL);
    return s;
}

/* Appends single tokens and a turn. */
static void go_on(kvik_cache *c, kvik_seq s, uint32_t at, uint32_t vocab, float *logits)
{
    for (uint32_t i = 0; i + 1 < MORE; i++)
        forward(c, s, ids + at + i, 1, logits + (size_t)i * vocab);
    forward(c, s, ids + at + MORE - 1, 30, logits + (size_t)(MORE - 1) * vocab);
}

static void save(kvik_cache *c, const kvik_seq *s, uint32_t n)
{
    if (kvik_cache_save(c, file, s, n, "a note") < 0) fail_msg("save: %s", kvik_last_error());
}

static kvik_seq load(kvik_cache *c)
{
    kvik_seq s = 0;
    int n = kvik_cache_load(c, file, 1, &s, NULL);
    if (n < 0) fail_msg("load: %s", kvik_last_error());
    assert_int_equal(n, 1);
    return s;
}

static off_t bytes(void)
{
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    return st.st_size;
}

static void assert_refused(int e, int code, const char *word)
{
    assert_int_equal(e, code);
    if (!strstr(kvik_last_error(), word))
        fail_msg("\"%s\" does not say \"%s\"", kvik_last_error(), word);
}

static void clear_dir(const char *path)
{
    char name[600];
    DIR *d = opendir(path);
    struct dirent *e;
    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s/%s", path, e->d_name);
            unlink(name);
        }
    if (d) closedir(d);
    rmdir(path);
}

static int count_dir(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    struct dirent *e;
    while (d && (e = readdir(d)))
        n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* --- The same bits ------------------------------------------------------------------------- */

struct scene {
    const char *model, *impl, *config;
    /* The cache that loads the session; NULL: one like the first. */
    const char *other, *other_config;
    uint64_t memory; /* memory limit of the second cache */
    const char *cross, *other_cross;
};
#define QUANTO "{\"backend\":\"quanto\",\"q_group_size\":16,\"residual_length\":16"
#define HQQ                                                                                        \
    "{\"backend\":\"hqq\",\"q_group_size\":16,\"residual_length\":16,\"axis_key\":1,\"axis_value\":1"
#define QUANTO12 "{\"backend\":\"quanto\",\"q_group_size\":12,\"residual_length\":16"
#define T5       "tests/golden/models/t5"
#define WHISPER  "tests/golden/models/whisper"
static const struct scene scenes[] = {
    {LLAMA, "dynamic", NULL, NULL, NULL, 0, NULL, NULL},
    {LLAMA, "static", NULL, NULL, NULL, 0, NULL, NULL},
    {LLAMA, "dynamic", NULL, "static", NULL, 0, NULL, NULL},
    {LLAMA, "static", NULL, "offloaded", NULL, 500 << 10, NULL, NULL},
    {LLAMA, "offloaded", NULL, "dynamic", NULL, 0, NULL, NULL},
    {LLAMA, "dynamic", "{\"test_block_rows\":64}", "dynamic", NULL, 0, NULL, NULL},
    {LLAMA, "dynamic", NULL, "dynamic", "{\"test_block_rows\":256}", 0, NULL, NULL},
    {LLAMA, "sliding_window", "{\"sliding_window\":20}", NULL, NULL, 0, NULL, NULL},
    {LLAMA, "sliding_window", "{\"sliding_window\":20}", "dynamic",
     "{\"sliding_window\":20,\"test_block_rows\":64}", 0, NULL, NULL},
    {LLAMA, "sink", "{\"window_length\":24,\"num_sink_tokens\":3}", NULL, NULL, 0, NULL, NULL},
    {LLAMA, "sink", "{\"window_length\":24,\"num_sink_tokens\":3,\"test_block_rows\":128}", "sink",
     "{\"window_length\":24,\"num_sink_tokens\":3}", 0, NULL, NULL},
    {LLAMA, "quantized", QUANTO "}", NULL, NULL, 0, NULL, NULL},
    {LLAMA, "quantized", QUANTO "}", "quantized", QUANTO ",\"offloading\":true}", 500 << 10, NULL,
     NULL},
    {LLAMA, "quantized", QUANTO ",\"offloading\":true}", "quantized", QUANTO "}", 0, NULL, NULL},
    {LLAMA, "quantized", QUANTO ",\"axis_key\":-1,\"axis_value\":-1}", "quantized",
     QUANTO ",\"axis_key\":-1,\"axis_value\":-1,\"test_block_rows\":64}", 0, NULL, NULL},
    {LLAMA, "quantized", HQQ "}", NULL, NULL, 0, NULL, NULL},
    {LLAMA, "dynamic", "{\"backend\":\"shuffle\",\"test_block_rows\":32}", "dynamic",
     "{\"backend\":\"shuffle\"}", 0, NULL, NULL},
    {"tests/golden/models/gemma2", "hybrid", NULL, NULL, NULL, 0, NULL, NULL},
    {"tests/golden/models/gemma3", "dynamic", NULL, NULL, NULL, 0, NULL, NULL},
    {"tests/golden/models/mistral", "dynamic", NULL, NULL, NULL, 0, NULL, NULL},
    {"tests/golden/models/gpt-oss", "dynamic", NULL, NULL, NULL, 0, NULL, NULL},
    {"tests/golden/models/llama4", "hybrid_chunked", NULL, "dynamic", NULL, 0, NULL, NULL},
    {"tests/golden/models/phi3", "dynamic", NULL, NULL, NULL, 0, NULL, NULL},
    {"tests/golden/models/qwen3", "dynamic", NULL, NULL, NULL, 0, NULL, NULL},
    {T5, "dynamic", NULL, NULL, NULL, 0, NULL, NULL},
    {T5, "static", NULL, "offloaded", NULL, 420 << 10, NULL, "{\"offloading\":true}"},
    {T5, "quantized", QUANTO12 "}", "quantized", QUANTO12 ",\"offloading\":true}", 0, QUANTO12 "}",
     QUANTO12 ",\"offloading\":true}"},
    {WHISPER, "dynamic", NULL, "static", NULL, 0, NULL, NULL},
    {WHISPER, "static", NULL, "dynamic", NULL, 0, QUANTO12 ",\"offloading\":true}", QUANTO12 "}"},
};

static void same_bits(const struct scene *s, uint32_t n)
{
    kvik_usage u = {.size = sizeof u};
    kvik_model *m = open_model(s->model);
    uint32_t vocab = kvik_model_vocab(m);
    bool offloads = strstr(s->impl, "offloaded") || (s->config && strstr(s->config, "offloading"));
    if (kvik_model_context(m) < n + 3 * MORE + 40) n = kvik_model_context(m) - 36;
    cross = s->cross;
    kvik_cache *a = open_cache(m, s->impl, s->config, offloads ? 500 << 10 : 0);
    cross = s->other ? s->other_cross : s->cross;
    kvik_cache *b = open_cache(m, s->other ? s->other : s->impl,
                               s->other ? s->other_config : s->config, s->memory);
    cross = NULL;
    kvik_seq x = converse(a, n);
    unlink(file);
    save(a, &x, 1);
    go_on(a, x, n, vocab, want);
    kvik_seq y = load(b);
    assert_int_equal(kvik_cache_length(b, y), n);
    go_on(b, y, n, vocab, got);
    if (memcmp(got, want, sizeof(float) * MORE * vocab) != 0)
        fail_msg("%s %s %s, %u tokens: the bits differ", s->model, s->impl, s->config, n);
    /* The loaded sequence can be cropped like the saved one. */
    assert_int_equal(kvik_cache_crop(a, x, n - 25), 0);
    if (kvik_cache_crop(b, y, n - 25) < 0) fail_msg("%s", kvik_last_error());
    forward(a, x, ids + n, 1, want);
    forward(b, y, ids + n, 1, got);
    assert_memory_equal(got, want, sizeof(float) * vocab);
    /* The second cache saves the sequence again. */
    forward(b, y, ids, 9, NULL);
    forward(a, x, ids, 9, NULL);
    save(b, &y, 1);
    go_on(b, y, n, vocab, got);
    kvik_seq z = load(a);
    go_on(a, z, n, vocab, want);
    assert_memory_equal(got, want, sizeof(float) * MORE * vocab);
    kvik_cache_usage(a, &u);
    assert_true(!offloads || n < N || u.tier_written);
    kvik_cache_usage(b, &u);
    assert_true(!s->memory || n < N || u.tier_written);
    kvik_cache_drop(a, x);
    kvik_cache_drop(a, z);
    kvik_cache_usage(a, &u);
    assert_int_equal(u.live, 0);
    kvik_cache_close(a);
    kvik_cache_close(b);
    kvik_model_close(m);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(scenes); i++) {
        same_bits(&scenes[i], N);
        same_bits(&scenes[i], 37);
    }
}

/* Masked columns before a prompt shape the rows of some models (Llama 4). */
static void test_padding(void **state)
{
    (void)state;
    kvik_model *m = open_model("tests/golden/models/llama4");
    uint32_t vocab = kvik_model_vocab(m);
    kvik_cache *a = open_cache(m, "dynamic", NULL, 0), *b = open_cache(m, "dynamic", NULL, 0);
    kvik_generation g;
    kvik_result *r = NULL;
    kvik_seq s, t;
    uint8_t mask[60];
    for (int i = 0; i < 60; i++)
        mask[i] = i >= 25;
    assert_int_equal(kvik_cache_new(a, &s), 0);
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    g.max_new_tokens = 3;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 60, .attention_mask = mask, .seq = s};
    if (kvik_generate(a, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    kvik_result_free(r);
    kvik_generation_done(&g);
    uint32_t n = (uint32_t)kvik_cache_length(a, s);
    unlink(file);
    save(a, &s, 1);
    t = load(b);
    go_on(a, s, n, vocab, want);
    go_on(b, t, n, vocab, got);
    assert_memory_equal(got, want, sizeof(float) * MORE * vocab);
    kvik_cache_close(a);
    kvik_cache_close(b);
    kvik_model_close(m);
}

/* Rows cropped from a text with other frequencies are recomputed. A cache too short for such texts
 * cannot do so. */
static void test_regimes(void **state)
{
    (void)state;
    kvik_model *m = open_model("tests/golden/models/phi3");
    uint32_t vocab = kvik_model_vocab(m);
    kvik_cache *a = open_cache(m, "dynamic", NULL, 0), *b = open_cache(m, "dynamic", NULL, 0), *c;
    kvik_seq s = converse(a, N), t = 3;
    kvik_cache_config k = {.size = sizeof k, .max_cache_len = 30, .max_sequences = 2, .threads = 1};
    assert_int_equal(kvik_cache_open(m, &k, &c), 0);
    assert_int_equal(kvik_cache_crop(a, s, 20), 0);
    unlink(file);
    save(a, &s, 1);
    assert_refused(kvik_cache_load(c, file, 1, &t, NULL), KVIK_LIMIT, "frequencies");
    t = load(b);
    go_on(a, s, 20, vocab, want);
    go_on(b, t, 20, vocab, got);
    assert_memory_equal(got, want, sizeof(float) * MORE * vocab);
    kvik_cache_close(a);
    kvik_cache_close(b);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* Rows without token ids, and rows whose contents were never imported. */
static void test_imported(void **state)
{
    (void)state;
    static const char *const config[] = {NULL, "{\"sliding_window\":20}"};
    for (int i = 0; i < 2; i++) {
        kvik_model *m = open_model(LLAMA);
        uint32_t vocab = kvik_model_vocab(m);
        kvik_cache *a = open_cache(m, "dynamic", config[i], 0),
                   *b = open_cache(m, "dynamic", config[i], 0);
        kvik_export *rows;
        kvik_seq s = converse(a, N), t, u;
        assert_int_equal(kvik_cache_export(a, s, &rows), 0);
        assert_int_equal(kvik_cache_import(a, rows, &t), 0);
        if (i) { /* imported rows are no prefix for other sequences, also after a save */
            unlink(file);
            save(a, &t, 1);
            u = load(b);
            assert_int_equal(kvik_prefix_save(b, dir, u, 0), 0);
            unlink(file);
            assert_int_equal(count_dir(dir), 0);
        }
        mem_free(rows->ids);
        rows->ids = NULL;
        assert_int_equal(kvik_cache_import(a, rows, &t), 0);
        kvik_export_free(rows);
        unlink(file);
        save(a, &t, 1);
        u = load(b);
        if (i) assert_refused(kvik_cache_crop(b, u, N - 30), KVIK_LOST, "no token");
        assert_int_equal(kvik_cache_crop(b, u, N - 1), kvik_cache_crop(a, t, N - 1));
        uint32_t n = (uint32_t)kvik_cache_length(a, t);
        assert_int_equal(kvik_cache_length(b, u), n);
        go_on(a, t, n, vocab, want);
        go_on(b, u, n, vocab, got);
        assert_memory_equal(got, want, sizeof(float) * MORE * vocab);
        kvik_cache_close(a);
        kvik_cache_close(b);
        kvik_model_close(m);
    }
}

/* --- A directory of prompts ---------------------------------------------------------------- */

/* A prefix from the directory, cropped anywhere, continues like one computed from the beginning. */
static void prefixes(const char *impl, const char *config, bool cuts, uint32_t tile)
{
    char path[128];
    static int32_t other[2 * N];
    snprintf(path, sizeof path, "%s/prefixes", dir);
    kvik_model *m = open_model(LLAMA);
    uint32_t vocab = kvik_model_vocab(m);
    kvik_cache *a = open_cache(m, impl, config, 0), *b = open_cache(m, impl, config, 0);
    kvik_seq s, t;
    assert_int_equal(kvik_cache_new(a, &s), 0);
    assert_int_equal(kvik_prefix_load(a, path, ids, N, &t), 0);
    forward(a, s, ids, N, NULL);
    if (kvik_prefix_save(a, path, s, 0) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_prefix_save(a, path, s, 0), 0);
    forward(a, s, ids + N, 20, NULL);
    assert_int_equal(kvik_prefix_save(a, path, s, 0), 0);
    assert_int_equal(count_dir(path), 1); /* the file was extended */
    static const uint32_t common[] = {15, 16, 40, 48, 129, N, N + 20};
    for (size_t i = 0; i < countof(common); i++) {
        kvik_seq fresh;
        uint32_t n = common[i];
        memcpy(other, ids, sizeof other);
        other[n] = other[n] == 5 ? 6 : 5;
        int64_t have = kvik_prefix_load(b, path, other, n + 5, &t);
        uint32_t most = n < 16 ? 0 : n - n % tile;
        if (have < 0) fail_msg("%s", kvik_last_error());
        if (cuts || n == N + 20) assert_int_equal(have, n == N + 20 ? n : most);
        if (!have) continue;
        assert_int_equal(kvik_cache_length(b, t), have);
        assert_int_equal(kvik_cache_new(a, &fresh), 0);
        forward(a, fresh, other, (uint32_t)have, NULL);
        forward(a, fresh, other + have, 3, want);
        forward(b, t, other + have, 3, got);
        assert_memory_equal(got, want, sizeof(float) * vocab);
        kvik_cache_drop(a, fresh);
        kvik_cache_drop(b, t);
    }
    /* Other prompts do not replace the file. The oldest file is evicted when the directory exceeds
     * its limit. */
    assert_int_equal(kvik_cache_reset(a, s), 0);
    forward(a, s, ids + 7, N, NULL);
    assert_int_equal(kvik_prefix_save(a, path, s, 0), 0);
    assert_int_equal(count_dir(path), 2);
    assert_int_equal(kvik_cache_reset(a, s), 0);
    forward(a, s, ids + 9, N, NULL);
    assert_int_equal(kvik_prefix_save(a, path, s, 1), 0);
    assert_int_equal(count_dir(path), 0);
    clear_dir(path);
    kvik_cache_close(a);
    kvik_cache_close(b);
    kvik_model_close(m);
}

static void test_prefixes(void **state)
{
    (void)state;
    prefixes("dynamic", NULL, true, 1);
    prefixes("static", NULL, true, 1);
    prefixes("dynamic", "{\"test_block_rows\":64}", true, 1);
    prefixes("dynamic", "{\"backend\":\"shuffle\"}", false, 128);
    prefixes("dynamic", "{\"sliding_window\":20}", false, 1);
    prefixes("sink", "{\"window_length\":24,\"num_sink_tokens\":3}", false, 1);
}

/* --- Branches, and what a second save writes ------------------------------------------------ */

static void test_branches(void **state)
{
    (void)state;
    kvik_model *m = open_model(LLAMA);
    uint32_t vocab = kvik_model_vocab(m);
    kvik_cache *a = open_cache(m, "dynamic", NULL, 0), *b = open_cache(m, "dynamic", NULL, 0);
    kvik_seq s[2], t[2];
    kvik_usage ua = {.size = sizeof ua}, ub = {.size = sizeof ub};
    char *note = NULL;
    s[0] = converse(a, N);
    assert_int_equal(kvik_cache_fork(a, s[0], &s[1]), 0);
    forward(a, s[1], ids, 20, NULL);
    unlink(file);
    save(a, s, 1);
    off_t one = bytes();
    save(a, s, 2);
    assert_true(bytes() < one + one / 2);
    assert_refused(kvik_cache_load(b, file, 1, t, NULL), KVIK_LIMIT, "2 sequences");
    assert_int_equal(kvik_cache_load(b, file, 2, t, &note), 2);
    assert_string_equal(note, "a note");
    kvik_free(note);
    kvik_cache_usage(a, &ua);
    kvik_cache_usage(b, &ub);
    assert_true(ub.shared > 0 && ub.live <= ua.live);
    for (int i = 0; i < 2; i++) {
        go_on(a, s[i], N, vocab, want);
        go_on(b, t[i], N, vocab, got);
        assert_memory_equal(got, want, sizeof(float) * MORE * vocab);
    }
    kvik_cache_close(a);
    kvik_cache_close(b);
    kvik_model_close(m);
}

/* Saves a growing conversation many times. Each save writes about its own rows, and the file stays
 * within twice the size of its contents. */
static void test_grows(void **state)
{
    (void)state;
    kvik_model *m = open_model(LLAMA);
    kvik_cache *a = open_cache(m, "dynamic", NULL, 0), *b = open_cache(m, "dynamic", NULL, 0);
    kvik_seq s = converse(a, N), fresh;
    unlink(file);
    save(a, &s, 1);
    off_t first = bytes(), before = first;
    forward(a, s, ids, 20, NULL);
    save(a, &s, 1);
    print_message("second save after 20 of %d tokens: %lld of %lld bytes\n", N + 20,
                  (long long)(bytes() - before), (long long)bytes());
    assert_true(bytes() - before < first / 2);
    for (int i = 0; i < 40; i++) {
        kvik_seq t;
        forward(a, s, ids + i, 1, NULL);
        save(a, &s, 1);
        t = load(b);
        assert_int_equal(kvik_cache_length(b, t), N + 21 + i);
        assert_int_equal(kvik_cache_drop(b, t), 0);
    }
    off_t grown = bytes();
    assert_int_equal(kvik_cache_fork(a, s, &fresh), 0);
    unlink(file);
    save(a, &fresh, 1);
    assert_true(grown <= 3 * bytes());
    off_t same = bytes(); /* nothing is new: only the manifest is written */
    save(a, &fresh, 1);
    assert_true(bytes() - same < same / 2);
    kvik_cache_close(a);
    kvik_cache_close(b);
    kvik_model_close(m);
}

/* --- Refusals ------------------------------------------------------------------------------- */

static void refuse(kvik_model *m, const char *impl, const char *config, const char *compute,
                   uint32_t max_len, int code, const char *word)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = impl,
                           .cache_config = config,
                           .compute = compute,
                           .max_sequences = 2,
                           .max_cache_len = max_len,
                           .threads = 1};
    kvik_cache *c;
    kvik_seq s = 77;
    kvik_usage u = {.size = sizeof u};
    assert_int_equal(kvik_cache_open(m, &k, &c), 0);
    assert_refused(kvik_cache_load(c, file, 1, &s, NULL), code, word);
    assert_int_equal(s, 77);
    kvik_cache_usage(c, &u);
    assert_int_equal(u.live + u.reserved, 0);
    kvik_cache_close(c);
}

/* Rows quantized with other values of an option are different rows: "round" is a codec of the
 * tests. */
static void test_codec_options(void **state)
{
    (void)state;
    static const char *const other[] = {"{\"backend\":\"round\",\"mantissa_bits\":2}",
                                        "{\"backend\":\"round\",\"mantissa_bits_value\":2}",
                                        "{\"backend\":\"round\",\"first_rows\":3}",
                                        "{\"backend_key\":\"round\"}"};
    kvik_model *m = open_model(LLAMA);
    uint32_t vocab = kvik_model_vocab(m);
    kvik_cache *a = open_cache(m, "dynamic", "{\"backend\":\"round\"}", 0), *b;
    kvik_seq s = converse(a, N), t = 3;
    unlink(file);
    save(a, &s, 1);
    for (size_t i = 0; i < countof(other); i++) {
        b = open_cache(m, "dynamic", other[i], 0);
        assert_refused(kvik_cache_load(b, file, 1, &t, NULL), KVIK_ARG, "another cache_config");
        kvik_cache_close(b);
    }
    b = open_cache(m, "dynamic", "{\"backend\":\"round\"}", 0);
    t = load(b);
    go_on(a, s, N, vocab, want);
    go_on(b, t, N, vocab, got);
    assert_memory_equal(got, want, sizeof(float) * MORE * vocab);
    kvik_cache_close(a);
    kvik_cache_close(b);
    kvik_model_close(m);
}

static void test_refusals(void **state)
{
    (void)state;
    kvik_model *m = open_model(LLAMA);
    kvik_cache *a = open_cache(m, "dynamic", NULL, 0);
    kvik_seq s = converse(a, N);
    unlink(file);
    assert_refused(kvik_cache_load(a, file, 1, &s, NULL), KVIK_NOTFOUND, "no such file");
    assert_refused(kvik_cache_load(a, dir, 1, &s, NULL), KVIK_IO, "");
    save(a, &s, 1);
    refuse(m, "sliding_window", "{\"sliding_window\":20}", NULL, 2 * N, KVIK_ARG,
           "\"dynamic\"; this cache has \"sliding_window\"");
    refuse(m, "quantized", QUANTO "}", NULL, 2 * N, KVIK_ARG, "Open it with \"dynamic\"");
    refuse(m, "dynamic", "{\"sliding_window\":20}", NULL, 2 * N, KVIK_ARG, "window 20");
    refuse(m, "dynamic", NULL, "fast", 2 * N, KVIK_ARG, "compute \"exact\"");
    refuse(m, "dynamic", NULL, NULL, N - 1, KVIK_LIMIT, "max_cache_len");
    kvik_model *other = open_model("tests/golden/models/llama-gqa-l3");
    refuse(other, "dynamic", NULL, NULL, 2 * N, KVIK_ARG, "another model");
    kvik_model_close(other);
    kvik_cache *small = open_cache(m, "dynamic", NULL, 160 << 10);
    kvik_seq t = 5;
    assert_refused(kvik_cache_load(small, file, 1, &t, NULL), KVIK_FULL, "more than the limit of");
    assert_int_equal(t, 5);
    kvik_cache_close(small);
    kvik_cache_drop(a, s);
    assert_refused(kvik_cache_save(a, file, &s, 1, NULL), KVIK_STALE, "dropped");
    assert_int_equal(file_write(file, "my precious notes", 17), 0);
    s = converse(a, 20);
    assert_refused(kvik_cache_save(a, file, &s, 1, NULL), KVIK_ARG, "not a kvik session");
    assert_refused(kvik_cache_load(a, file, 1, &t, NULL), KVIK_FORMAT, "not a kvik session");
    kvik_cache_close(a);
    kvik_model_close(m);
}

/* --- Fine-tunes ----------------------------------------------------------------------------- */

static void test_fine_tunes(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/model", dir);
    kvik_model *m = open_model(LLAMA), *other;
    kvik_cache *a = open_cache(m, "dynamic", NULL, 0), *b;
    kvik_seq s = converse(a, 20);
    unlink(file);
    save(a, &s, 1);
    copy_model(LLAMA, path, 0);
    other = open_model(path);
    b = open_cache(other, "dynamic", NULL, 0);
    assert_int_equal(kvik_cache_length(b, load(b)), 20);
    kvik_cache_close(b);
    kvik_model_close(other);
    static const size_t change[] = {1, 700}; /* offsets into the last tensor */
    for (size_t i = 0; i < countof(change); i++) {
        copy_model(LLAMA, path, change[i]);
        other = open_model(path);
        refuse(other, "dynamic", NULL, NULL, 2 * N, KVIK_ARG, "another model");
        kvik_model_close(other);
    }
    clear_dir(path);
    kvik_cache_close(a);
    kvik_model_close(m);
}

static void test_describe(void **state)
{
    (void)state;
    kvik_model *m = open_model(LLAMA);
    kvik_cache *a = open_cache(m, "quantized", QUANTO "}", 0);
    kvik_seq s = converse(a, N);
    char *json;
    unlink(file);
    save(a, &s, 1);
    save(a, &s, 1);
    assert_int_equal(kvik_session_describe(file, &json), 0);
    static const char *const words[] = {"\"tokens\":150",          "\"saves\":2",
                                        "\"model\":\"llama-mha\"", "quanto 4-bit",
                                        "\"interrupted\":false",   "\"compute\":\"exact\""};
    for (size_t i = 0; i < countof(words); i++)
        if (!strstr(json, words[i])) fail_msg("%s is not in %s", words[i], json);
    kvik_free(json);
    kvik_cache_close(a);
    kvik_model_close(m);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(file, sizeof file, "%s/s.kvik", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_branches),
        cmocka_unit_test(test_grows),      cmocka_unit_test(test_codec_options),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_describe),
        cmocka_unit_test(test_fine_tunes), cmocka_unit_test(test_padding),
        cmocka_unit_test(test_regimes),    cmocka_unit_test(test_imported),
        cmocka_unit_test(test_prefixes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
