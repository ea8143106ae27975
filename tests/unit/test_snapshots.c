/* test_snapshots.c - snapshots of states and windows are taken by default, where a later text can use
 * them: a prompt that is repeated or continued, and a history that is rewritten, compute only what is
 * new.  The results are bit-identical to those of a cache that reuses nothing, and the snapshots stay
 * within the memory limit. */
#include "generate/handle.h"
#include "kvik.h"
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define MODELS "tests/golden/models/"
enum { PROMPT = 150, MORE = 30, NEW = 6, MOST = 400 };

static const struct line {
    const char *model, *name, *config;
} rows[] = {{"mamba", NULL, NULL},
            {"falcon-mamba", NULL, NULL},
            {"mamba2", NULL, NULL},
            {"jamba", NULL, NULL},
            {"zamba2", NULL, NULL},
            {"jamba", "offloaded", NULL},
            {"mistral", NULL, NULL},
            {"gemma3", NULL, NULL},
            {"gpt-oss", NULL, NULL},
            {"llama4", NULL, NULL},
            {"llama-d64", "static", "{\"sliding_window\": 24}"},
            {"llama-gqa-l3", "sink", "{\"window_length\": 40, \"num_sink_tokens\": 4}"}};

static int32_t ids[MOST];
static float want[1 << 16], got[1 << 16];

static kvik_cache *cache_of(kvik_model *m, const struct line *r, bool index, uint64_t memory)
{
    kvik_cache *c;
    const kvik_cache_config k = {.size = sizeof k,
                                 .cache_implementation = r->name,
                                 .cache_config = r->config,
                                 .max_cache_len = 256,
                                 .max_sequences = 3,
                                 .cache_memory = memory,
                                 .no_prefix_cache = !index,
                                 .threads = 1,
                                 .compute = "exact"};
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static void fill_ids(uint32_t from, uint32_t x, uint32_t vocab)
{
    for (uint32_t i = from; i < MOST; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(4 + (x >> 8) % (vocab - 4));
    }
}

/* Continues a prompt of n tokens; returns how many tokens were reused, and the answer in out. */
static uint64_t answer(kvik_cache *c, kvik_model *m, uint32_t n, int32_t out[NEW])
{
    kvik_generation g;
    kvik_result *r;
    const kvik_prompt p = {.size = sizeof p, .ids = ids, .n = n};
    assert_int_equal(kvik_generation_init(&g, m), 0);
    g.max_new_tokens = NEW;
    g.n_eos = 0;
    if (kvik_generate(c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    uint64_t reused = r->row[0]->reused;
    assert_int_equal(r->row[0]->n, n + NEW);
    memcpy(out, r->row[0]->ids + n, NEW * sizeof *out);
    kvik_result_free(r);
    kvik_generation_done(&g);
    return reused;
}

/* Answers with and without reuse, which must agree, and with at least `least` tokens reused. */
static void reuses(kvik_cache *with, kvik_cache *without, kvik_model *m, const struct line *r,
                   const char *what, uint32_t n, uint32_t least)
{
    int32_t a[NEW], b[NEW];
    uint64_t reused = answer(with, m, n, a);
    (void)answer(without, m, n, b);
    if (reused < least)
        fail_msg("%s: %s: %u of %u tokens reused, expected %u", r->model, what, (unsigned)reused, n,
                 least);
    if (memcmp(a, b, sizeof a) != 0) fail_msg("%s: %s: another answer", r->model, what);
}

static void prompts(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        char path[80];
        kvik_model *m;
        snprintf(path, sizeof path, MODELS "%s", rows[i].model);
        if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
        kvik_cache *with = cache_of(m, &rows[i], true, 0),
                   *without = cache_of(m, &rows[i], false, 0);
        fill_ids(0, 1 + (uint32_t)i, kvik_model_vocab(m));
        reuses(with, without, m, &rows[i], "first", PROMPT, 0);
        reuses(with, without, m, &rows[i], "again", PROMPT, PROMPT - 1);
        fill_ids(PROMPT, 77, kvik_model_vocab(m));
        reuses(with, without, m, &rows[i], "another answer", PROMPT + MORE, PROMPT - 1);
        fill_ids(PROMPT + MORE, 78, kvik_model_vocab(m));
        reuses(with, without, m, &rows[i], "continued", PROMPT + MORE + 9, PROMPT + MORE - 1);
        kvik_cache_close(without);
        kvik_cache_close(with);
        kvik_model_close(m);
    }
}

static void append(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t to, float *logits)
{
    const kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + from, .n = to - from};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

/* A conversation of several turns whose second turn is rewritten: only the new tokens are computed. */
static void rewritten(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        char path[80];
        kvik_model *m;
        kvik_seq s, t;
        snprintf(path, sizeof path, MODELS "%s", rows[i].model);
        if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
        size_t bytes = kvik_model_vocab(m) * sizeof *want;
        assert_true(bytes <= sizeof want);
        kvik_cache *c = cache_of(m, &rows[i], false, 0);
        fill_ids(0, 31 + (uint32_t)i, kvik_model_vocab(m));
        assert_int_equal(kvik_cache_new(c, &s), 0);
        for (uint32_t at = 0; at < 200; at += 40)
            append(c, s, at, at + 40, NULL);
        fill_ids(80, 5, kvik_model_vocab(m));
        kvik_sync r = {.size = sizeof r};
        if (kvik_cache_sync(c, s, ids, 100, got, &r) < 0) fail_msg("%s", kvik_last_error());
        if (r.recomputed > 1) fail_msg("%s: %u recomputed", rows[i].model, (unsigned)r.recomputed);
        kvik_sync_done(&r);
        assert_int_equal(kvik_cache_new(c, &t), 0);
        append(c, t, 0, 100, want);
        assert_memory_equal(want, got, bytes);
        kvik_cache_close(c);
        kvik_model_close(m);
    }
}

/* Saves five turns, and returns the path. */
static const char *saved(kvik_model *m, const struct line *r)
{
    static char path[64];
    kvik_cache *c = cache_of(m, r, false, 0);
    kvik_seq s;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    for (uint32_t at = 0; at < 200; at += 40)
        append(c, s, at, at + 40, NULL);
    strcpy(path, "/tmp/kvik-snapshots-XXXXXX");
    close(mkstemp(path));
    if (kvik_cache_save(c, path, &s, 1, NULL) < 0) fail_msg("%s", kvik_last_error());
    kvik_cache_close(c);
    return path;
}

/* The same after a restart: a session has the snapshots. */
static void after_a_restart(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        char path[80];
        kvik_model *m;
        kvik_seq s, t;
        snprintf(path, sizeof path, MODELS "%s", rows[i].model);
        if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
        fill_ids(0, 31 + (uint32_t)i, kvik_model_vocab(m));
        const char *file = saved(m, &rows[i]);
        kvik_cache *c = cache_of(m, &rows[i], false, 0);
        fill_ids(80, 5, kvik_model_vocab(m));
        if (kvik_cache_load(c, file, 1, &s, NULL) != 1) fail_msg("%s", kvik_last_error());
        assert_int_equal(kvik_cache_length(c, s), 200);
        kvik_sync r = {.size = sizeof r};
        if (kvik_cache_sync(c, s, ids, 100, got, &r) < 0) fail_msg("%s", kvik_last_error());
        if (r.recomputed > 1) fail_msg("%s: %u recomputed", rows[i].model, (unsigned)r.recomputed);
        kvik_sync_done(&r);
        assert_true(kv_check(c->x->kv));
        assert_int_equal(kvik_cache_new(c, &t), 0);
        append(c, t, 0, 100, want);
        assert_memory_equal(want, got, kvik_model_vocab(m) * sizeof *want);
        kvik_cache_close(c);
        unlink(file);
        kvik_model_close(m);
    }
}

/* A directory of prompts: a text that leaves a saved one at the end of a turn reuses it up to there. */
static void from_a_directory(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        char path[80], dir[64] = "/tmp/kvik-prompts-XXXXXX", file[400];
        struct dirent *f;
        kvik_model *m;
        kvik_seq s;
        snprintf(path, sizeof path, MODELS "%s", rows[i].model);
        if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
        assert_non_null(mkdtemp(dir));
        fill_ids(0, 31 + (uint32_t)i, kvik_model_vocab(m));
        kvik_cache *c = cache_of(m, &rows[i], false, 0);
        assert_int_equal(kvik_cache_new(c, &s), 0);
        for (uint32_t at = 0; at < 200; at += 40)
            append(c, s, at, at + 40, NULL);
        if (kvik_prefix_save(c, dir, s, 0) < 0) fail_msg("%s", kvik_last_error());
        kvik_cache_close(c);
        c = cache_of(m, &rows[i], false, 0);
        fill_ids(80, 5, kvik_model_vocab(m));
        for (uint32_t n = 80; n <= 100; n += 20) { /* the beginning, and another text */
            int64_t have = kvik_prefix_load(c, dir, ids, n, &s);
            if (have < 79)
                fail_msg("%s: %d tokens of 80: %s", rows[i].model, (int)have,
                         have < 0 ? kvik_last_error() : "");
            append(c, s, (uint32_t)have, 100, got);
            assert_int_equal(kvik_cache_drop(c, s), 0);
            assert_int_equal(kvik_cache_new(c, &s), 0);
            append(c, s, 0, 100, want);
            assert_memory_equal(want, got, kvik_model_vocab(m) * sizeof *want);
            assert_int_equal(kvik_cache_drop(c, s), 0);
        }
        kvik_cache_close(c);
        DIR *d = opendir(dir);
        while ((f = readdir(d))) {
            snprintf(file, sizeof file, "%s/%s", dir, f->d_name);
            if (f->d_name[0] != '.') unlink(file);
        }
        closedir(d);
        rmdir(dir);
        kvik_model_close(m);
    }
}

/* A session of version 1 has no snapshots, and is loaded all the same.  One of a later version is refused by its name. */
static void other_versions(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_seq s;
    char path[] = "/tmp/kvik-snapshots-XXXXXX";
    if (kvik_model_open(MODELS "mamba", &m) < 0) fail_msg("%s", kvik_last_error());
    fill_ids(0, 9, kvik_model_vocab(m));
    kvik_cache *c = cache_of(m, &rows[0], false, 0);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    for (uint32_t at = 0; at < 30; at++) /* no turns, so no snapshots */
        append(c, s, at, at + 1, NULL);
    int fd = mkstemp(path);
    assert_int_equal(kvik_cache_save(c, path, &s, 1, NULL), 0);
    append(c, s, 30, 31, want);
    for (uint8_t version = 0; version < 5; version++) {
        int e = 0;
        kvik_seq t;
        fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, &version, 1, 8), 1);
        close(fd);
        e = kvik_cache_load(c, path, 1, &t, NULL);
        assert_int_equal(e, version == 1 || version == 2 ? 1
                            : version                    ? KVIK_UNSUPPORTED
                                                         : KVIK_FORMAT);
        if (version > 2) assert_non_null(strstr(kvik_last_error(), "newer kvik"));
        if (e < 0) continue;
        append(c, t, 30, 31, got);
        assert_memory_equal(want, got, kvik_model_vocab(m) * sizeof *want);
        assert_int_equal(kvik_cache_drop(c, t), 0);
    }
    /* A save with snapshots does not append to the old file: it writes a new one. */
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &(uint8_t){1}, 1, 8), 1);
    close(fd);
    append(c, s, 31, 60, NULL);
    if (kvik_cache_save(c, path, &s, 1, NULL) < 0) fail_msg("%s", kvik_last_error());
    char *json;
    assert_int_equal(kvik_session_describe(path, &json), 0);
    assert_non_null(strstr(json, "\"version\":2"));
    assert_non_null(strstr(json, "\"snapshots\":1"));
    kvik_free(json);
    unlink(path);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* Appends twelve turns in a cache with that limit; false if the limit is too small for them. */
static bool turns(kvik_model *m, uint64_t limit, float *logits, kvik_usage *u)
{
    const kvik_cache_config k = {.size = sizeof k,
                                 .max_cache_len = 240,
                                 .max_sequences = 1,
                                 .cache_memory = limit,
                                 .no_prefix_cache = true,
                                 .threads = 1,
                                 .compute = "exact"};
    kvik_cache *c;
    kvik_seq s;
    int e = 0;
    if (kvik_cache_open(m, &k, &c) < 0) return false;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    for (uint32_t at = 0; at < 240 && e >= 0; at += 20) {
        const kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + at, .n = 20};
        e = kvik_forward(c, &span, 1, false, logits);
    }
    assert_true(e == 0 || e == KVIK_FULL);
    assert_int_equal(kvik_cache_usage(c, u), 0);
    kvik_cache_close(c);
    return e == 0;
}

/* Snapshots are reported, and evicted where the limit has no room for them: all turns fit into a limit
 * that the snapshots alone would exceed. */
static void within_the_limit(void **state)
{
    (void)state;
    static const char *const lines[] = {"mamba", "mistral"};
    for (size_t i = 0; i < countof(lines); i++) {
        char path[80];
        kvik_model *m;
        kvik_usage ample = {.size = sizeof ample}, least = {.size = sizeof least};
        uint64_t limit = 8192;
        snprintf(path, sizeof path, MODELS "%s", lines[i]);
        if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
        fill_ids(0, 3, kvik_model_vocab(m));
        assert_true(turns(m, 0, want, &ample));
        while (!turns(m, limit, got, &least))
            limit += 4096;
        print_message(
            "  %s: %llu bytes and %llu of snapshots; with %llu: %llu and %llu, evicted %llu\n",
            lines[i], (unsigned long long)ample.bytes, (unsigned long long)ample.index,
            (unsigned long long)limit, (unsigned long long)least.bytes,
            (unsigned long long)least.index, (unsigned long long)least.evictions);
        assert_true(ample.index > 0 && ample.evictions == 0);
        assert_true(least.evictions > 0 && least.index < ample.index);
        assert_true(least.metadata + least.bytes + least.index <= limit);
        assert_memory_equal(want, got, kvik_model_vocab(m) * sizeof *want);
        kvik_model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts),         cmocka_unit_test(rewritten),
        cmocka_unit_test(after_a_restart), cmocka_unit_test(from_a_directory),
        cmocka_unit_test(other_versions),  cmocka_unit_test(within_the_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
