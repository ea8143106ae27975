/* test_states.c - what recurrent states cost: a crop recomputes from the nearest snapshot, rejected
 * draft tokens and forks recompute and copy nothing, memory does not grow with the text, and states
 * survive export, import, save and load. The results are bit-identical to those of a fresh
 * sequence. */
#include "generate/handle.h"
#include "kvik_compat.h"
#include "planes.h"
#include "testing.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

#define MODELS "tests/golden/models/"
static const char *const models[] = {"mamba", "falcon-mamba", "mamba2",
                                     "jamba", "zamba2",       "qwen3-next"};
enum { LONG = 600, TURN = 40, DEEP = 1700 };

static int32_t ids[DEEP];
static float *want, *got;
static uint32_t vocab;

static void fill_ids(void)
{
    for (uint32_t i = 0, x = 9; i < DEEP; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(4 + (x >> 8) % (vocab - 4));
    }
}

static kvik_cache *cache_of(kvik_model *m, uint32_t most)
{
    kvik_cache *c;
    const kvik_cache_config k = {.size = sizeof k,
                                 .max_sequences = 3,
                                 .max_cache_len = most,
                                 .no_prefix_cache = true,
                                 .threads = 1,
                                 .compute = "exact"};
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static void append(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t to, float *logits)
{
    const kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + from, .n = to - from};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

/* Appends ids [at, to) after a crop to `len` tokens; returns how many tokens were computed. */
static uint64_t crop(kvik_cache *c, kvik_seq s, uint32_t len, uint32_t to)
{
    uint64_t before = c->x->computed;
    if (kvik_cache_crop(c, s, len) < 0) fail_msg("%s", kvik_last_error());
    append(c, s, len, to, got);
    return c->x->computed - before;
}

static void same(const char *what, const char *model)
{
    if (memcmp(want, got, vocab * sizeof *want) != 0) fail_msg("%s: %s: other bits", model, what);
}

static void expect(kvik_cache *c, uint32_t n)
{
    kvik_seq s;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    append(c, s, 0, n, want);
    assert_int_equal(kvik_cache_drop(c, s), 0);
}

static void crops(kvik_model *m, const char *name)
{
    kvik_cache *c = cache_of(m, LONG + TURN);
    kvik_seq s;
    expect(c, LONG - 9);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    append(c, s, 0, TURN, NULL); /* two turns */
    append(c, s, TURN, LONG, NULL);
    for (uint32_t i = LONG; i < LONG + 5; i++)
        append(c, s, i, i + 1, NULL);
    assert_int_equal(crop(c, s, LONG - 20, LONG - 9), LONG - 9 - 512); /* snapshots every 256 */
    same("crop", name);
    expect(c, TURN + 1);
    assert_int_equal(crop(c, s, TURN, TURN + 1), 2); /* and before the last token of a turn */
    same("crop to a turn", name);
    kvik_cache_close(c);
}

static void forks(kvik_model *m, const char *name)
{
    kvik_cache *c = cache_of(m, LONG);
    kvik_seq s, t;
    kvik_usage u = {.size = sizeof u}, v = {.size = sizeof v};
    assert_int_equal(kvik_cache_new(c, &s), 0);
    append(c, s, 0, 64, NULL); /* whole blocks: attention layers have nothing to copy either */
    assert_int_equal(kvik_cache_usage(c, &u), 0);
    assert_int_equal(kvik_cache_fork(c, s, &t), 0);
    assert_int_equal(kvik_cache_usage(c, &v), 0);
    assert_true(v.bytes == u.bytes && v.shared > 0 && v.rows_copied == 0);
    append(c, t, 64, 90, got);
    append(c, s, 200, 230, NULL); /* the original goes another way */
    assert_int_equal(kvik_cache_usage(c, &v), 0);
    assert_int_equal(v.rows_copied, 0);
    expect(c, 90);
    same("fork", name);
    kvik_cache_close(c);
}

/* A draft model that is wrong every time: rejected tokens are never computed again. */
static void drafts(kvik_model *m, const char *name)
{
    kvik_cache *c = cache_of(m, LONG);
    kvik_generation g;
    kvik_result *plain, *guess;
    const kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 50};
    assert_int_equal(kvik_generation_init(&g, m), 0);
    g.max_new_tokens = 20;
    g.n_eos = 0;
    assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &plain), 0);
    assert_int_equal(kvik_generation_set(
                         &g, "{\"prompt_lookup_num_tokens\": 5, \"max_matching_ngram_size\": 1}"),
                     0);
    uint64_t before = c->x->computed;
    assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &guess), 0);
    assert_memory_equal(plain->row[0]->ids, guess->row[0]->ids, 70 * sizeof *ids);
    if (c->x->computed - before > 50 + 20 * 6) fail_msg("%s: drafts were computed again", name);
    kvik_result_free(plain);
    kvik_result_free(guess);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static void travels(kvik_model *m, const char *name)
{
    char path[64] = "/tmp/kvik-states-XXXXXX";
    kvik_cache *c = cache_of(m, LONG);
    kvik_seq s, t;
    kvik_export *p;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    append(c, s, 0, 300, NULL);
    assert_int_equal(kvik_cache_export(c, s, &p), 0);
    assert_int_equal(p->n_layers, kvik_model_layers(m));
    kvik_plane *conv = plane_of(&p->layer[0], "conv");
    assert_true(conv && conv->data && conv->n_dims == 2 && p->layer[0].n_planes >= 2);
    assert_int_equal(kvik_cache_import(c, p, &t), 0);
    append(c, t, 300, 310, got);
    expect(c, 310);
    same("import", name);
    /* The snapshots on the way of an import have no contents, so a crop recomputes the text. */
    assert_int_equal(crop(c, t, 290, 310), 310);
    same("crop of an import", name);
    conv->dim[1]++;
    assert_int_equal(kvik_cache_import(c, p, &t), KVIK_ARG);
    conv->dim[1]--;
    kvik_export_free(p);
    close(mkstemp(path));
    unlink(path);
    assert_int_equal(kvik_cache_save(c, path, &s, 1, NULL), 0);
    kvik_cache_close(c);
    c = cache_of(m, LONG);
    assert_int_equal(kvik_cache_load(c, path, 1, &t, NULL), 1);
    append(c, t, 300, 310, got);
    same("load", name);
    unlink(path);
    kvik_cache_close(c);
}

/* Loads the longest prefix of ids [0, n) and continues it: it has as many tokens as the call returns. */
static int64_t resume(kvik_cache *c, const char *name, const char *dir, uint32_t n)
{
    kvik_seq t;
    int64_t have = kvik_prefix_load(c, dir, ids, n, &t);
    if (have < 0) fail_msg("%s: %s", name, kvik_last_error());
    if (!have) return 0;
    assert_int_equal(kvik_cache_length(c, t), have);
    append(c, t, (uint32_t)have, n, got);
    assert_int_equal(kvik_cache_drop(c, t), 0);
    expect(c, n);
    same("prefix", name);
    return have;
}

/* Prompts from a directory: one that goes on, and one that goes another way where no state is kept. */
static void prefixes(kvik_model *m, const char *name)
{
    char dir[64] = "/tmp/kvik-prompts-XXXXXX", file[400];
    kvik_cache *c = cache_of(m, LONG);
    kvik_seq s;
    struct dirent *f;
    int32_t kept = ids[280];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(kvik_cache_new(c, &s), 0);
    append(c, s, 0, 300, NULL);
    if (kvik_prefix_save(c, dir, s, 0) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(resume(c, name, dir, 310), 300);
    ids[280] = kept == 5 ? 6 : 5;
    assert_true(resume(c, name, dir, 290) <= 280);
    ids[280] = kept;
    kvik_cache_close(c);
    DIR *d = opendir(dir);
    while ((f = readdir(d))) {
        snprintf(file, sizeof file, "%s/%s", dir, f->d_name);
        if (f->d_name[0] != '.') unlink(file);
    }
    closedir(d);
    rmdir(dir);
}

/* The memory of states is the same after any text, and a model without attention has nothing else. */
static void constant(kvik_model *m)
{
    char *says;
    assert_int_equal(kvik_model_describe(m, &says), 0);
    bool attends = strstr(says, "full_attention");
    kvik_free(says);
    kvik_cache *c = cache_of(m, DEEP);
    kvik_seq s;
    kvik_usage u = {.size = sizeof u}, v = {.size = sizeof v};
    assert_int_equal(kvik_cache_new(c, &s), 0);
    append(c, s, 0, TURN, NULL);
    assert_int_equal(kvik_cache_usage(c, &u), 0);
    append(c, s, TURN, DEEP, NULL);
    assert_int_equal(kvik_cache_usage(c, &v), 0);
    assert_true(v.states == u.states && (v.live > 0) == attends);
    kvik_cache_close(c);
}

static void every_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(models); i++) {
        char path[80];
        kvik_model *m;
        snprintf(path, sizeof path, MODELS "%s", models[i]);
        if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
        vocab = kvik_model_vocab(m);
        want = calloc(vocab, sizeof *want);
        got = calloc(vocab, sizeof *got);
        fill_ids();
        if (kvik_model_context(m) > DEEP) {
            crops(m, models[i]);
            constant(m);
        }
        forks(m, models[i]);
        drafts(m, models[i]);
        if (kvik_model_context(m) > LONG) {
            travels(m, models[i]);
            prefixes(m, models[i]);
        }
        free(want);
        free(got);
        kvik_model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
