/* test_index.c - the prefix index. Prompts with a common prefix compute it once, with the bits of
 * computing it each time, for every strategy. Also: the length of prefix hits, the reason of a
 * miss, and what is evicted when. */
#include "budgets.h"
#include "kvik_compat.h"
#include "model/budget.h"
#include "testing.h"

#define MODELS "tests/golden/models/"

enum { STEPS = 5, PROMPTS = 9, LONGEST = 160 };

static kvik_model *open_model(const char *name)
{
    char path[256];
    kvik_model *m;
    snprintf(path, sizeof path, MODELS "%s", name);
    if (kvik_model_open(path, &m) < 0) fail_msg("%s: %s", name, kvik_last_error());
    return m;
}

static kvik_cache *open_cache(kvik_model *m, const kvik_cache_config *c)
{
    kvik_cache *out;
    if (kvik_cache_open(m, c, &out) < 0) fail_msg("%s", kvik_last_error());
    return out;
}

static kvik_result *generate(kvik_cache *c, const int32_t *ids, uint32_t n, uint32_t beams)
{
    kvik_generation g;
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = n};
    kvik_generation_init(&g, NULL);
    g.max_new_tokens = STEPS;
    g.num_beams = g.num_return_sequences = beams;
    g.output_logits = true;
    g.n_eos = 0;
    if (kvik_generate(c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    kvik_generation_done(&g);
    return r;
}

/* Prompt k: the length it shares with earlier prompts, and its length. */
static const struct {
    uint32_t same, n;
} prompt[PROMPTS] = {{0, 100}, {100, 100}, {70, 90},   {100, 140}, {33, 60},
                     {10, 40}, {100, 101}, {140, 160}, {16, 17}};

static const struct way {
    const char *model, *impl, *config, *compute, *on_full;
    /* Unit: reused rows come in multiples of it; 0: no rows are reused. */
    uint32_t snapshots, beams, unit;
    uint32_t less; /* the first `less` hits are shorter than that, because of windows */
} ways[] = {
    {"llama-gqa-l3", "dynamic", NULL, NULL, NULL, 0, 1, 1, 0},
    {"llama-gqa-l3", "dynamic", NULL, "fast", NULL, 0, 1, 1, 0},
    {"llama-gqa-l3", "dynamic", NULL, NULL, NULL, 0, 3, 1, 0},
    {"llama-bf16", "static", "{\"max_cache_len\": 200}", NULL, NULL, 0, 1, 1, 0},
    {"llama-gqa-l3", "dynamic", NULL, NULL, "offload", 0, 1, 1, 0},
    {"llama-d128", "dynamic", "{\"backend\": \"shuffle\"}", NULL, NULL, 0, 1, 1, 1},
    {"llama-d128", "quantized", "{\"q_group_size\": 32, \"residual_length\": 16}", NULL, NULL, 0, 1,
     0, 0},
    {"llama-dynamic", "dynamic", "{\"max_cache_len\": 200}", NULL, NULL, 0, 1, 0, 0},
    {"llama-d64", "sliding_window", "{\"sliding_window\": 24}", NULL, NULL, KVIK_TURN_ENDS, 1, 1,
     1},
    {"llama-d64", "sliding_window", "{\"sliding_window\": 24}", NULL, NULL, 16, 1, 1, 1},
    {"llama-gqa-l3", "sink", "{\"window_length\": 40, \"num_sink_tokens\": 4}", NULL, NULL, 16, 1,
     1, 1},
    {"gemma2", "hybrid", NULL, NULL, NULL, 16, 1, 1, 1},
    {"gpt-oss", "dynamic", NULL, NULL, NULL, 0, 2, 1, 1},
    {"llama4", "hybrid_chunked", NULL, NULL, NULL, 16, 1, 1, 1},
    {"phi3", "dynamic", NULL, NULL, NULL, 0, 1, 1, 1},
    {"qwen3", "dynamic", NULL, NULL, NULL, 0, 1, 1, 0},
};

/* Makes the tokens of prompt k: the longest earlier prompt's up to the shared length, then its own. */
static void make(int32_t ids[PROMPTS][LONGEST], uint32_t vocab)
{
    for (uint32_t k = 0; k < PROMPTS; k++) {
        draw_ids(ids[k], prompt[k].n, vocab, 17 * k + 1);
        uint32_t from = k == 7 ? 3 : 0;
        memcpy(ids[k], ids[from], prompt[k].same * sizeof **ids);
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    static int32_t ids[PROMPTS][LONGEST];
    for (size_t w = 0; w < countof(ways); w++) {
        const struct way *y = &ways[w];
        kvik_model *m = open_model(y->model);
        kvik_cache_config c = {.size = sizeof c,
                               .cache_implementation = y->impl,
                               .cache_config = y->config,
                               .compute = y->compute,
                               .on_full = y->on_full,
                               .max_sequences = 4,
                               .snapshots = y->snapshots,
                               .threads = 1};
        kvik_cache *with = open_cache(m, &c);
        c.no_prefix_cache = true;
        kvik_cache *without = open_cache(m, &c);
        make(ids, kvik_model_vocab(m));
        size_t reused = 0;
        for (uint32_t k = 0; k < PROMPTS; k++) {
            kvik_result *a = generate(with, ids[k], prompt[k].n, y->beams),
                        *b = generate(without, ids[k], prompt[k].n, y->beams);
            size_t bytes = (size_t)a->steps * a->logit_rows * a->vocab * sizeof(float);
            if (a->steps != b->steps || memcmp(a->logits, b->logits, bytes) != 0)
                fail_msg("%s %s, prompt %u: the bits differ", y->model, y->impl, k);
            for (uint32_t i = 0; i < a->n_rows; i++)
                assert_memory_equal(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof(int32_t));
            uint32_t shared = MIN(prompt[k].same, prompt[k].n - 1);
            size_t got = a->row[0]->reused;
            reused += got;
            if (!y->less && y->unit && shared >= 16 && got != shared)
                fail_msg("%s, prompt %u: %zu of %u rows reused", y->model, k, got, shared);
            assert_int_equal(b->row[0]->reused, 0);
            assert_string_equal(b->row[0]->prefix_miss, kv_miss_text(KV_MISS_OFF));
            assert_true(!a->row[0]->prefix_miss == (got > 0));
            if (y->unit && !y->less) assert_int_equal(a->computed_tokens + got, b->computed_tokens);
            kvik_result_free(a);
            kvik_result_free(b);
        }
        if (!reused != !y->unit) fail_msg("%s %s: %zu rows reused", y->model, y->impl, reused);
        assert_true(kv_check(with->x->kv));
        kvik_cache_close(with);
        kvik_cache_close(without);
        kvik_model_close(m);
    }
}

/* Live sequences are found as well. Kept sequences are counted separately and evicted when room is
 * needed. */
static void test_live_and_kept(void **state)
{
    (void)state;
    kvik_model *m = open_model("llama-gqa-l3");
    kvik_cache *c = open_cache(
        m,
        &(kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 2, .threads = 1});
    static int32_t ids[400];
    kvik_usage u = {.size = sizeof u};
    kvik_seq s;
    draw_ids(ids, 400, kvik_model_vocab(m), 5);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    assert_int_equal(
        kvik_forward(c, &(kvik_span){.size = sizeof(kvik_span), .seq = s, .ids = ids, .n = 90}, 1,
                     false, NULL),
        0);
    kvik_result *r = generate(c, ids, 60, 1);
    assert_int_equal(r->row[0]->reused, 59);
    kvik_result_free(r);
    kvik_cache_usage(c, &u);
    uint64_t live = u.live;
    assert_true(u.index > 0 && u.tokens == 90); /* the tail of the row itself */
    assert_int_equal(kvik_cache_drop(c, s), 0);
    kvik_cache_usage(c, &u);
    assert_true(u.live == 0 && u.index >= live && u.tokens == 0);
    r = generate(c, ids, 100, 1);
    assert_int_equal(r->row[0]->reused, 90);
    kvik_result_free(r);
    assert_true(kv_check(c->x->kv));
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* An empty sequence of the caller counts as a fresh one; a failed call leaves it empty. */
static void test_sync_of_empty(void **state)
{
    (void)state;
    kvik_model *m = open_model("llama-gqa-l3");
    kvik_cache *c = open_cache(
        m,
        &(kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4, .threads = 1});
    static int32_t ids[120];
    static float a[4096], b[4096];
    kvik_seq s[2];
    kvik_sync said = {.size = sizeof said};
    uint32_t vocab = kvik_model_vocab(m);
    assert_true(vocab <= countof(a));
    draw_ids(ids, 120, vocab, 5);
    assert_int_equal(kvik_cache_new(c, &s[0]), 0);
    assert_int_equal(kvik_cache_new(c, &s[1]), 0);
    assert_int_equal(kvik_cache_sync(c, s[0], ids, 120, a, NULL), 0);
    assert_int_equal(kvik_cache_sync(c, s[1], ids, 120, b, &said), 0);
    assert_true(said.reused == 119 && said.computed == 1 && said.recomputed == 0);
    assert_memory_equal(a, b, vocab * sizeof *a);
    kvik_sync_done(&said);
    assert_int_equal(kvik_cache_drop(c, s[1]), 0);
    /* No sequence holds the rows now, but the index keeps them. */
    assert_int_equal(kvik_cache_reset(c, s[0]), 0);
    assert_int_equal(kvik_cache_length(c, s[0]), 0);
    assert_int_equal(kvik_cache_sync(c, s[0], ids, 120, b, &said), 0);
    assert_int_equal(said.reused, 119);
    assert_memory_equal(a, b, vocab * sizeof *a);
    kvik_sync_done(&said);
    kvik_cache_close(c);
    kvik_model_close(m);
}

static const char *miss_of(kvik_cache *c, const int32_t *ids, uint32_t n)
{
    kvik_result *r = generate(c, ids, n, 1);
    const char *why = r->row[0]->prefix_miss;
    kvik_result_free(r);
    return why;
}

static void test_why_not(void **state)
{
    (void)state;
    kvik_model *m = open_model("llama-gqa-l3");
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 1, .max_cache_len = 256, .threads = 1};
    config.cache_memory = 320 * 16 * 1024; /* room for about one sequence, see below */
    kvik_cache *c = open_cache(m, &config);
    size_t row = budget_row(m->m->site, m->m->n_sites, c->x->group[0].plane[0].shape.dtype);
    kvik_cache_close(c);
    config.cache_memory = budget_for(m, config, 300 * row, 2, 250);
    c = open_cache(m, &config);
    static int32_t a[250], b[250];
    draw_ids(a, 250, kvik_model_vocab(m), 1);
    draw_ids(b, 250, kvik_model_vocab(m), 2);
    assert_string_equal(miss_of(c, a, 10), kv_miss_text(KV_MISS_SHORT));
    assert_string_equal(miss_of(c, a, 200), kv_miss_text(KV_MISS_NEW));
    assert_null(miss_of(c, a, 200));
    assert_string_equal(miss_of(c, b, 240), kv_miss_text(KV_MISS_NEW)); /* takes the room of a */
    const char *why = miss_of(c, a, 240); /* a is still found in part, or was evicted */
    assert_true(!why || strcmp(why, kv_miss_text(KV_MISS_EVICTED)) == 0);
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c, &u);
    assert_true(u.evictions > 0 && u.bytes + u.index <= u.budget && u.peak_bytes <= u.budget);
    sums_hold(&u);
    assert_true(kv_check(c->x->kv));
    kvik_cache_close(c);

    config = (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                 .cache_implementation = "quantized",
                                 .cache_config = "{\"q_group_size\": 32}",
                                 .threads = 1};
    kvik_model *wide = open_model("llama-d128");
    c = open_cache(wide, &config);
    draw_ids(a, 200, kvik_model_vocab(wide), 3);
    assert_string_equal(miss_of(c, a, 100), kv_miss_text(KV_MISS_NEW));
    assert_string_equal(miss_of(c, a, 100), kv_miss_text(KV_MISS_TURNS));
    kvik_cache_close(c);
    config = (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                 .cache_config = "{\"sliding_window\": 20}",
                                 .threads = 1};
    c = open_cache(wide, &config);
    assert_string_equal(miss_of(c, a, 200), kv_miss_text(KV_MISS_NEW));
    assert_string_equal(miss_of(c, a, 60), kv_miss_text(KV_MISS_SNAPSHOT));
    kvik_cache_close(c);
    kvik_model_close(wide);
    kvik_model_close(m);
}

/* Prompts with masked columns before the first token, where a model counts them; imported rows;
 * rows without ids. */
static void test_other_conditions(void **state)
{
    (void)state;
    kvik_model *m = open_model("llama4");
    kvik_cache *c = open_cache(
        m,
        &(kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4, .threads = 1});
    static int32_t ids[60];
    uint32_t have = 9;
    kv_seq s;
    draw_ids(ids, 60, kvik_model_vocab(m), 4);
    kvik_result_free(generate(c, ids, 60, 1));
    assert_int_equal(exec_new(c->x, NULL, &s), 0);
    assert_int_equal(exec_match(c->x, s, ids, 60, 5, &have), 0);
    assert_true(have == 0 && kv_match_reason(c->x->kv) == KV_MISS_SALT);
    assert_int_equal(exec_match(c->x, s, ids, 60, 0, &have), 0);
    assert_true(have >= 16); /* the rows that the last chunk still holds */
    kvik_cache_close(c);
    kvik_model_close(m);

    m = open_model("llama-gqa-l3");
    c = open_cache(m, &(kvik_cache_config){
                          .size = sizeof(kvik_cache_config), .max_sequences = 4, .threads = 1});
    draw_ids(ids, 60, kvik_model_vocab(m), 4);
    kvik_seq in, out;
    kvik_export *rows;
    assert_int_equal(kvik_cache_new(c, &in), 0);
    assert_int_equal(
        kvik_forward(c, &(kvik_span){.size = sizeof(kvik_span), .seq = in, .ids = ids, .n = 60}, 1,
                     false, NULL),
        0);
    assert_int_equal(kvik_cache_export(c, in, &rows), 0);
    assert_int_equal(kv_drop(c->x->kv, in), 0);
    assert_int_equal(kvik_cache_import(c, rows, &out), 0);
    assert_string_equal(miss_of(c, ids, 60), kv_miss_text(KV_MISS_NEW));
    kv_forget(c->x->kv);
    assert_int_equal(kvik_cache_drop(c, out), 0);
    assert_string_equal(miss_of(c, ids, 60), kv_miss_text(KV_MISS_NEW));
    kvik_export_free(rows);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* A regime of frequencies together with padding: the fields of a salt do not affect each other. */
static void test_regime_and_padding(void **state)
{
    (void)state;
    kvik_model *m = open_model("phi3"); /* the model's frequencies change at 33 tokens */
    kvik_cache *c = open_cache(
        m,
        &(kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4, .threads = 1});
    struct model *inside = (struct model *)(uintptr_t)c->x->m;
    static int32_t ids[60];
    uint32_t have;
    kv_seq s, t;
    inside->counts_padding = true;
    draw_ids(ids, 60, kvik_model_vocab(m), 4);
    assert_int_equal(exec_new(c->x, NULL, &s), 0);
    for (uint32_t at = 0; at < 60; at += 20) { /* the second part changes the regime */
        struct exec_feed f = {.seq = s, .tok = ids + at, .n = 20, .pad = 5};
        assert_int_equal(exec_feed(c->x, &f, 1, 0, NULL, NULL, NULL), 0);
        struct kv_salt salt = kv_salt(c->x->kv, s);
        assert_int_equal(salt.pad, 5);
        assert_int_equal(salt.regime, regime_of(c->x->m, at + 20));
        assert_int_equal(salt.regime != 0, at > 0);
    }
    assert_int_equal(exec_new(c->x, NULL, &t), 0);
    assert_int_equal(exec_match(c->x, t, ids, 60, 0, &have), 0);
    assert_true(have == 0 && kv_match_reason(c->x->kv) == KV_MISS_SALT);
    assert_int_equal(exec_match(c->x, t, ids, 30, 5, &have), 0); /* rows of the other regime */
    assert_true(have == 0 && kv_match_reason(c->x->kv) == KV_MISS_SALT);
    assert_int_equal(exec_match(c->x, t, ids, 60, 5, &have), 0);
    assert_int_equal(have, 59);
    assert_int_equal(kv_salt(c->x->kv, t).pad, 5);
    inside->counts_padding = false;
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* Recurrent states are found through their snapshots. The test uses the store alone, because no
 * model has states yet. */
static void test_states(void **state)
{
    (void)state;
    struct kv_group g[2] = {{.policy = {.kind = KV_STATE, .every = 16},
                             .n_sites = 1,
                             .n_planes = 1,
                             .plane = {{"ssm", {1, 16, DT_F32, KV_FLAT}, NULL}}},
                            {.policy = {.kind = KV_ROWS},
                             .site0 = 1,
                             .n_sites = 1,
                             .rows = 16,
                             .n_planes = 2,
                             .plane = {{"k", {1, 4, DT_F32, KV_STRIPS}, NULL},
                                       {"v", {1, 4, DT_F32, KV_ROWMAJOR}, NULL}}}};
    struct kv_config config = {.group = g,
                               .n_groups = 2,
                               .max_seqs = 2,
                               .max_tokens = 64,
                               .max_len = 256,
                               .pool_bytes = 1 << 20,
                               .index = true};
    struct kv *kv;
    struct kv_step *st;
    struct kv_usage u;
    int32_t ids[100];
    uint32_t have;
    kv_seq s;
    draw_ids(ids, 100, 1000, 1);
    struct kv_salt salt = {.regime = 7};
    assert_int_equal(kv_open(&kv, &config), 0);
    assert_int_equal(kv_new(kv, &salt, &s), 0);
    for (uint32_t i = 0; i < 50; i += 10) {
        struct kv_span sp = {.seq = s, .n = 10, .tok = ids + i, .turn = true, .last = i == 20};
        assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
        assert_int_equal(kv_commit(st, NULL), 0);
    }
    assert_int_equal(kv_keep(kv, s), 0);
    kv_usage(kv, &u);
    assert_int_equal(u.kept, 1);
    static const struct {
        uint32_t n, have;
    } want[] = {{100, 50}, {50, 50}, {49, 48}, {47, 32}, {31, 29},
                {29, 29},  {28, 16}, {16, 16}, {15, 0}};
    for (uint32_t i = 0; i < countof(want); i++) {
        assert_int_equal(kv_new(kv, &salt, &s), 0);
        struct kv_prefix p = {.tok = ids, .n = want[i].n};
        assert_int_equal(kv_match(kv, s, &p, &have), 0);
        assert_int_equal(have, want[i].have);
        assert_true(kv_check(kv));
        assert_int_equal(kv_keep(kv, s), 0); /* the kept sequence covers it */
        kv_usage(kv, &u);
        assert_int_equal(u.kept, 1);
    }
    assert_true(u.index > 0 && u.live == 0 && u.states == 0);
    kv_forget(kv);
    kv_usage(kv, &u);
    assert_true(u.index == 0 && u.free == u.pool - u.metadata);
    kv_close(kv);
}

static void append(struct kv *kv, kv_seq s, const int32_t *ids, uint32_t n)
{
    struct kv_step *st;
    for (uint32_t at = 0; at < n; at += 64) {
        struct kv_span sp = {.seq = s, .n = MIN(n - at, 64u), .tok = ids + at};
        assert_int_equal(kv_begin(kv, &sp, 1, &st), 0);
        assert_int_equal(kv_commit(st, NULL), 0);
    }
}

static uint32_t found(struct kv *kv, const int32_t *ids, uint32_t n)
{
    kv_seq s;
    uint32_t have;
    struct kv_prefix p = {.tok = ids, .n = n};
    assert_int_equal(kv_new(kv, NULL, &s), 0);
    assert_int_equal(kv_match(kv, s, &p, &have), 0);
    assert_int_equal(kv_len(kv, s), have);
    assert_int_equal(kv_drop(kv, s), 0);
    assert_true(kv_check(kv));
    return have;
}

/* The least recently used sequence is evicted first, its last rows first. Eviction allocates
 * nothing and leaves reserves untouched. */
static void test_budget(void **state)
{
    (void)state;
    enum { BLOCK = 16 * 2 * 8 * 64 * 4, TABLES = 16384 };
    struct kv_group g = {.policy = {.kind = KV_ROWS},
                         .n_sites = 1,
                         .rows = 16,
                         .n_planes = 2,
                         .plane = {{"k", {8, 64, DT_F32, KV_STRIPS}, NULL},
                                   {"v", {8, 64, DT_F32, KV_ROWMAJOR}, NULL}}};
    struct kv_config config = {
        .group = &g, .n_groups = 1, .max_seqs = 3, .max_tokens = 64, .max_len = 512, .index = true};
    /* the tables of kept sequences count like those of the sequence with a reserve */
    size_t meta = 2 * kv_metadata_bytes(&config, 320);
    config.pool_bytes = kv_pool_bytes(&config, 21 * BLOCK + MAX(TABLES, meta));
    static int32_t ids[4][128];
    struct kv *kv;
    struct kv_usage u;
    kv_seq s, r;
    for (uint32_t i = 0; i < 4; i++)
        draw_ids(ids[i], 128, 1000, i);
    assert_int_equal(kv_open(&kv, &config), 0);
    uint64_t calls = mem_calls();
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kv_new(kv, NULL, &s), 0);
        append(kv, s, ids[i], 128);
        assert_int_equal(kv_keep(kv, s), 0);
    }
    kv_usage(kv, &u);
    assert_true(u.kept == 2 && u.index - u.index_tables == 16 * BLOCK && u.live == 0);
    assert_true(u.index_tables > 0 && u.index_tables <= TABLES && u.free == u.pool - u.metadata);
    assert_int_equal(found(kv, ids[0], 128), 128); /* now the other sequence is older */
    assert_int_equal(kv_new(kv, NULL, &s), 0);
    append(kv, s, ids[2], 128);
    kv_usage(kv, &u);
    assert_true(u.live == 8 * BLOCK && u.index - u.index_tables == 12 * BLOCK && u.evictions == 1);
    assert_int_equal(found(kv, ids[0], 128), 128);
    assert_int_equal(found(kv, ids[1], 128), 64);
    assert_int_equal(found(kv, ids[2], 128), 128); /* a live sequence */
    assert_int_equal(kv_keep(kv, s), 0);
    assert_int_equal(kv_new(kv, NULL, &s), 0);
    append(kv, s, ids[3], 120);
    /* The reserve takes the whole budget: nothing else is kept. */
    assert_int_equal(kv_reserve(kv, s, 20 * 16), 0);
    kv_usage(kv, &u);
    assert_true(u.kept == 0 && u.index == 0 && u.index_tables == 0);
    assert_int_equal(found(kv, ids[0], 128), 0);
    assert_int_equal(kv_match_reason(kv), KV_MISS_EVICTED);
    assert_int_equal(found(kv, ids[3], 120), 112); /* a copy of the open block might not fit */
    assert_int_equal(kv_match_reason(kv), KV_HIT);
    assert_int_equal(kv_fork(kv, s, &r), ERR_FULL);
    assert_true(mem_calls() == calls && kv_check(kv));
    kv_close(kv);
}

/* Kept prompts while pages stream: the second time they are read from the tier, with the same bits. */
static void test_streams(void **state)
{
    (void)state;
    kvik_model *m = open_model("llama-gqa-l3");
    static int32_t ids[3][400];
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 2, .max_cache_len = 500, .threads = 1};
    kvik_cache *plain = open_cache(m, &config);
    config.cache_implementation = "offloaded";
    config.cache_memory = 700 << 10; /* less memory than two of the three prompts need */
    kvik_cache *c = open_cache(m, &config);
    struct kv_usage u;
    for (uint32_t i = 0; i < 6; i++) {
        draw_ids(ids[i % 3], 400, kvik_model_vocab(m), i % 3);
        kvik_result *a = generate(c, ids[i % 3], 400, 1), *b = generate(plain, ids[i % 3], 400, 1);
        assert_int_equal(a->row[0]->reused, i < 3 ? 0 : 399);
        assert_memory_equal(a->logits, b->logits,
                            (size_t)a->steps * a->logit_rows * a->vocab * sizeof(float));
        kvik_result_free(a);
        kvik_result_free(b);
        assert_true(kv_check(c->x->kv));
    }
    kv_usage(c->x->kv, &u);
    assert_true(u.kept == 3 && u.spilled > 0 && u.tier_read > 0 && u.peak <= u.pool);
    kvik_cache_close(c);
    kvik_cache_close(plain);
    kvik_model_close(m);
}

/* Prompts of one call with a common prefix compute it once, for every way of decoding, and have the
 * tokens and logits they have alone. Two of them share more than the third.  Empty sequences of the
 * caller share as those of the call do. */
static void test_one_call(void **state)
{
    (void)state;
    enum { SHARED = 1040, DEEPER = 1090, LENGTH = 1110 };
    static const struct {
        const char *impl, *config;
        uint32_t beams, chunk,
            /* Slack: tokens lost to rounding, each time a row continues another row's prefix. */
            slack;
        bool given;
    } way[] = {{"dynamic", NULL, 1, 0, 0, false},
               {"dynamic", NULL, 3, 0, 0, false},
               {"dynamic", NULL, 1, 100, 0, false},
               {"static", "{\"max_cache_len\": 1200}", 1, 0, 16, false},
               {"offloaded", NULL, 1, 0, 0, false},
               {"sliding_window", "{\"sliding_window\": 24}", 1, 0, 0, false},
               {"dynamic", NULL, 1, 0, 0, true},
               {"dynamic", NULL, 3, 0, 0, true},
               {"static", "{\"max_cache_len\": 1200}", 1, 0, 16, true},
               {"offloaded", NULL, 1, 0, 0, true},
               {"sliding_window", "{\"sliding_window\": 24}", 1, 0, 0, true}};
    static int32_t ids[3][LENGTH];
    kvik_model *m = open_model("llama-gqa-l3");
    for (uint32_t i = 0; i < 3; i++) {
        draw_ids(ids[i], LENGTH, kvik_model_vocab(m), i + 1);
        memcpy(ids[i], ids[0], (i == 2 ? 0 : SHARED) * sizeof **ids);
    }
    memcpy(ids[2], ids[1], DEEPER * sizeof **ids);
    for (size_t w = 0; w < countof(way); w++) {
        kvik_cache_config config = {.size = sizeof config,
                                    .cache_implementation = way[w].impl,
                                    .cache_config = way[w].config,
                                    .max_sequences = 9,
                                    .max_cache_len = 1200,
                                    .threads = 1};
        kvik_cache *c = open_cache(m, &config);
        config.no_prefix_cache = true;
        kvik_cache *alone = open_cache(m, &config);
        kvik_generation g;
        kvik_generation_init(&g, NULL);
        g.max_new_tokens = STEPS;
        g.num_beams = g.num_return_sequences = way[w].beams;
        g.prefill_chunk_size = way[w].chunk;
        g.output_logits = true;
        g.n_eos = 0;
        kvik_prompt p[3];
        for (uint32_t i = 0; i < 3; i++) {
            p[i] = (kvik_prompt){.size = sizeof *p, .ids = ids[i], .n = LENGTH};
            if (way[w].given) assert_int_equal(kvik_cache_new(c, &p[i].seq), 0);
        }
        kvik_result *a, *b;
        if (kvik_generate(c, &g, p, 3, NULL, &a) < 0) fail_msg("%s", kvik_last_error());
        uint64_t decoded = 0;
        for (uint32_t i = 0; i < 3; i++) {
            const kvik_row *first = a->row[i * way[w].beams];
            assert_true(!first->sync == !way[w].given);
            if (first->sync) {
                assert_int_equal(first->sync->reused, first->reused);
                assert_int_equal(first->sync->computed, LENGTH - first->reused);
                p[i].seq = 0;
            }
            if (kvik_generate(alone, &g, &p[i], 1, NULL, &b) < 0) fail_msg("%s", kvik_last_error());
            decoded += b->computed_tokens - LENGTH;
            for (uint32_t k = 0; k < way[w].beams; k++)
                assert_memory_equal(a->row[i * way[w].beams + k]->ids, b->row[k]->ids,
                                    b->row[k]->n * sizeof(int32_t));
            for (size_t t = 0; t < b->steps && way[w].beams == 1; t++)
                assert_memory_equal(a->logits + (t * a->logit_rows + i) * a->vocab,
                                    b->logits + t * b->vocab, b->vocab * sizeof(float));
            kvik_result_free(b);
        }
        uint64_t least = LENGTH + (LENGTH - SHARED) + (LENGTH - DEEPER) + decoded;
        if (a->computed_tokens < least || a->computed_tokens > least + 2 * way[w].slack)
            fail_msg("%s: %llu tokens computed, %llu are enough", way[w].impl,
                     (unsigned long long)a->computed_tokens, (unsigned long long)least);
        assert_int_equal(a->row[0]->reused, 0);
        assert_true(kv_check(c->x->kv));
        kvik_result_free(a);
        kvik_generation_done(&g);
        kvik_cache_close(c);
        kvik_cache_close(alone);
    }
    kvik_model_close(m);
}

/* Many more sequences are kept than can be live, and each is found. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 600, EACH = 40 };
    struct kv_group g = {.policy = {.kind = KV_ROWS},
                         .n_sites = 1,
                         .rows = 16,
                         .n_planes = 2,
                         .plane = {{"k", {1, 4, DT_F32, KV_STRIPS}, NULL},
                                   {"v", {1, 4, DT_F32, KV_ROWMAJOR}, NULL}}};
    struct kv_config config = {.group = &g,
                               .n_groups = 1,
                               .max_seqs = 2,
                               .max_tokens = 64,
                               .max_len = 512,
                               .pool_bytes = 4 << 20,
                               .index = true};
    static int32_t ids[MANY][EACH];
    struct kv *kv;
    struct kv_usage u;
    kv_seq s;
    assert_int_equal(kv_open(&kv, &config), 0);
    uint64_t calls = mem_calls();
    for (uint32_t i = 0; i < MANY; i++) {
        draw_ids(ids[i], EACH, 1000, i);
        assert_int_equal(kv_new(kv, NULL, &s), 0);
        append(kv, s, ids[i], EACH);
        assert_int_equal(kv_keep(kv, s), 0);
    }
    kv_usage(kv, &u);
    assert_true(u.kept == MANY && u.live == 0 && u.free == u.pool - u.metadata &&
                mem_calls() == calls);
    for (uint32_t i = 0; i < MANY; i += 7)
        assert_int_equal(found(kv, ids[i], EACH), EACH);
    kv_forget(kv);
    kv_usage(kv, &u);
    assert_true(u.kept == 0 && u.index == 0);
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_live_and_kept),
        cmocka_unit_test(test_sync_of_empty),
        cmocka_unit_test(test_why_not),
        cmocka_unit_test(test_other_conditions),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_regime_and_padding),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_one_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
