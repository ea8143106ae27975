/* test_sync.c - a sequence follows a conversation: 20 turns with a history that is rewritten
 * between them, for every strategy, against runs without a cache. Also: reports; failures that
 * change nothing; ids cropped as the sink loop of the Transformers guide does; the guide's prefix
 * whose last token changes. */
#include "generate/handle.h"
#include "generate/sync.h"
#include "testing.h"

#define MODELS "tests/golden/models/"

struct talk { /* a conversation and the cache that follows it */
    kvik_model *m;
    kvik_cache *c;
    kvik_seq s;
    uint32_t vocab, state;
    int32_t ids[1024];
    size_t n;
    float *logits, *want;
};

static uint32_t draw(struct talk *t, uint32_t below)
{
    t->state = t->state * 1664525u + 1013904223u;
    return (t->state >> 8) % below;
}

static void talk_open(struct talk *t, const char *model, const kvik_cache_config *config)
{
    char path[256];
    *t = (struct talk){.state = 7};
    snprintf(path, sizeof path, MODELS "%s", model);
    if (kvik_model_open(path, &t->m) < 0 || kvik_cache_open(t->m, config, &t->c) < 0 ||
        kvik_cache_new(t->c, &t->s) < 0)
        fail_msg("%s: %s", model, kvik_last_error());
    t->vocab = kvik_model_vocab(t->m);
    t->logits = malloc(t->vocab * sizeof(float));
    t->want = malloc(t->vocab * sizeof(float));
}

static void talk_close(struct talk *t)
{
    free(t->logits);
    free(t->want);
    kvik_cache_close(t->c);
    kvik_model_close(t->m);
}

static void say(struct talk *t, uint32_t n)
{
    while (n-- && t->n < countof(t->ids))
        t->ids[t->n++] = (int32_t)draw(t, t->vocab);
}

/* Removes n tokens at `at`, as a template does that drops the model's thoughts. */
static void forget(struct talk *t, size_t at, size_t n)
{
    memmove(t->ids + at, t->ids + at + n, (t->n - at - n) * sizeof *t->ids);
    t->n -= n;
}

/* Computes the logits of a new sequence with the same tokens in the same turns: the result that the
 * store promises. */
static void from_nothing(struct talk *t, bool one_turn)
{
    struct exec *x = t->c->x;
    uint32_t n_turns;
    kv_seq s;
    assert_int_equal(exec_new(x, NULL, &s), 0);
    if (one_turn) {
        struct exec_feed f = {.seq = s, .tok = t->ids, .n = (uint32_t)t->n};
        if (exec_feed(x, &f, 1, 0, t->want, NULL, NULL) < 0) fail_msg("%s", kvik_last_error());
    } else {
        uint32_t last = (uint32_t)t->n - 1;
        const struct kv_turn *turn = kv_turns(x->kv, t->s, &n_turns);
        struct kv_past past = {.tok = t->ids, .turn = turn, .len = last, .n_turns = n_turns};
        const struct kv_turn *end = n_turns ? &turn[n_turns - 1] : NULL;
        if (end && end->pos + end->n == t->n) {
            struct exec_feed f = {.seq = s, .tok = t->ids + end->pos, .n = end->n};
            past.n_turns--;
            assert_int_equal(exec_replay(x, s, &past, 0, end->pos), 0);
            assert_int_equal(exec_feed(x, &f, 1, 0, t->want, NULL, NULL), 0);
        } else {
            struct exec_feed f = {.seq = s, .tok = t->ids + last, .n = 1};
            assert_int_equal(exec_replay(x, s, &past, 0, last), 0);
            assert_int_equal(exec_feed(x, &f, 1, 0, t->want, NULL, NULL), 0);
        }
    }
    assert_int_equal(kv_drop(x->kv, s), 0);
    assert_memory_equal(t->logits, t->want, t->vocab * sizeof(float));
}

/* Appends the reply: greedy tokens, one by one except for the last. */
static void reply(struct talk *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = 0;
        for (uint32_t v = 1; v < t->vocab; v++)
            if (t->logits[v] > t->logits[best]) best = v;
        t->ids[t->n++] = (int32_t)best;
        kvik_span span = {.size = sizeof span, .seq = t->s, .ids = &t->ids[t->n - 1], .n = 1};
        if (i + 1 < n && kvik_forward(t->c, &span, 1, false, t->logits) < 0)
            fail_msg("%s", kvik_last_error());
    }
}

static const struct strategy {
    const char *model, *name, *config;
    bool turns; /* true if results are equal only for equal turns */
} strategy[] = {
    {"llama-gqa-l3", "dynamic", NULL, false},
    {"llama-gqa-l3", "static", NULL, false},
    {"llama-gqa-l3", "offloaded", NULL, false},
    {"llama-gqa-l3", "offloaded_static", NULL, false},
    {"llama-d128", "quantized", "{\"q_group_size\": 32, \"residual_length\": 16}", true},
    {"llama-d128", "quantized",
     "{\"backend\": \"hqq\", \"axis_key\": 1, \"axis_value\": 1, \"q_group_size\": 32, \"residual_length\": 32}",
     true},
    {"llama-d128", "quantized",
     "{\"axis_key\": -1, \"axis_value\": -1, \"q_group_size\": 32, \"offloading\": true}", true},
    {"llama-d64", "dynamic", "{\"sliding_window\": 24}", false},
    {"llama-d64", "sliding_window", "{\"sliding_window\": 24}", false},
    {"llama-gqa-l3", "sink", "{\"window_length\": 40, \"num_sink_tokens\": 4}", false},
    {"llama-d64", "sink", "{\"window_length\": 33, \"num_sink_tokens\": 3, \"offloading\": true}",
     false},
    {"mistral", "dynamic", NULL, false},
    {"gemma2", "hybrid", NULL, false},
    {"gemma3", "dynamic", NULL, false},
    {"gpt-oss", "dynamic", NULL, false},
    {"llama4", "hybrid_chunked", NULL, false},
    {"phi3", "dynamic", NULL, false},
    {"llama-dynamic", "dynamic", "{\"max_cache_len\": 256}", true},
};

static void twenty_turns(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(strategy); k++) {
        const struct strategy *y = &strategy[k];
        struct talk t;
        uint64_t reused = 0, again = 0;
        uint32_t turns = 0;
        kvik_cache_config config = {.size = sizeof config,
                                    .cache_implementation = y->name,
                                    .cache_config = y->config,
                                    .max_cache_len = 250,
                                    .max_sequences = 4,
                                    .threads = 1,
                                    .no_prefix_cache = true,
                                    .step_tokens = 48};
        if (y->config && strstr(y->config, "max_cache_len")) config.max_cache_len = 0;
        talk_open(&t, y->model, &config);
        for (; turns < 20; turns++) {
            if (turns &&
                /* The history is rewritten: tokens of the last reply are removed or changed. */
                turns % 3 != 2)
                forget(&t, t.n - 1 - draw(&t, 6), 1);
            if (turns % 5 == 4) t.ids[t.n / 2 + draw(&t, (uint32_t)t.n / 2)] ^= 1;
            if (turns == 13) t.n = 9;
            say(&t, 1 + draw(&t, 9));
            kvik_sync r = {.size = sizeof r};
            if (kvik_cache_sync(t.c, t.s, t.ids, t.n, t.logits, &r) < 0)
                fail_msg("%s %s: %s", y->model, y->name, kvik_last_error());
            assert_int_equal(r.reused + r.computed, t.n);
            assert_true(!r.recomputed == !r.reason);
            assert_int_equal(kvik_cache_length(t.c, t.s), t.n);
            assert_memory_equal(kv_tokens(t.c->x->kv, t.s), t.ids, t.n * sizeof *t.ids);
            reused += r.reused;
            again += r.recomputed;
            kvik_sync_done(&r);
            from_nothing(&t, !y->turns);
            reply(&t, 1 + draw(&t, 7));
            assert_true(kv_check(t.c->x->kv));
        }
        assert_true(reused > 0);
        print_message("  %-13s %-16s %4llu reused, %4llu recomputed %s\n", y->model, y->name,
                      (unsigned long long)reused, (unsigned long long)again,
                      y->config ? y->config : "");
        talk_close(&t);
    }
}

/* A chat whose template drops the model's thoughts: counts the recomputed tokens of layers with
 * windows, with and without snapshots. */
static void thoughts_dropped(void **state)
{
    (void)state;
    static const struct {
        const char *model, *name, *config;
    } row[] = {{"mistral", "dynamic", NULL},
               {"gemma3", "dynamic", NULL},
               {"gemma2", "hybrid", NULL},
               {"llama4", "dynamic", NULL},
               {"llama-d64", "dynamic", "{\"sliding_window\": 40}"},
               {"llama-gqa-l3", "sink", "{\"window_length\": 40, \"num_sink_tokens\": 4}"},
               {"llama-d128", "dynamic",
                "{\"sliding_window\": 40, \"backend\": \"quanto\", \"q_group_size\": 32}"}};
    for (size_t k = 0; k < countof(row); k++) {
        uint64_t again[2] = {0, 0}, computed[2] = {0, 0}, peak[2];
        for (int all = 0; all < 2; all++) {
            struct talk t;
            kvik_usage u = {.size = sizeof u};
            kvik_cache_config c = {.size = sizeof c,
                                   .cache_implementation = row[k].name,
                                   .cache_config = row[k].config,
                                   .max_cache_len = 250,
                                   .max_sequences = 2,
                                   .threads = 1,
                                   .no_prefix_cache = true,
                                   .snapshots = all ? 0 : KVIK_TURN_ENDS};
            talk_open(&t, row[k].model, &c);
            for (int turn = 0; turn < 12; turn++) {
                kvik_sync r = {.size = sizeof r};
                say(&t, 6);
                assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, t.n, t.logits, &r), 0);
                again[all] += r.recomputed;
                computed[all] += r.computed;
                kvik_sync_done(&r);
                from_nothing(&t, !row[k].config || !strstr(row[k].config, "quanto"));
                assert_true(kv_check(t.c->x->kv));
                size_t start = t.n;
                reply(&t, 30);
                forget(&t, start, 20); /* remove the thoughts */
            }
            kvik_cache_usage(t.c, &u);
            peak[all] = u.peak_bytes;
            talk_close(&t);
        }
        print_message(
            "  %-12s %-8s computed again with snapshots at turn ends %llu of %llu, by default %llu of %llu; "
            "peak %llu and %llu KiB\n",
            row[k].model, row[k].name, (unsigned long long)again[0],
            (unsigned long long)computed[0], (unsigned long long)again[1],
            (unsigned long long)computed[1], (unsigned long long)peak[0] >> 10,
            (unsigned long long)peak[1] >> 10);
        assert_true(again[0] <= 12 && again[1] <= 12); /* one token of each turn */
    }
}

static bool cancel(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    return done == total;
}

/* Captures the state of the sequence: tokens, turns, and the logits of one more token, which is
 * then cropped. */
static void probe(struct talk *t, float *logits, struct kv_turn *turn, uint32_t *n_turns)
{
    static const int32_t id = 5;
    kvik_span span = {.size = sizeof span, .seq = t->s, .ids = &id, .n = 1};
    const struct kv_turn *turns = kv_turns(t->c->x->kv, t->s, n_turns);
    memcpy(turn, turns, *n_turns * sizeof *turn);
    assert_int_equal(kvik_forward(t->c, &span, 1, false, logits), 0);
    assert_int_equal(kvik_cache_crop(t->c, t->s, -1), 0);
}

/* A prompt that shares the beginning of a sequence is cancelled in the middle: nothing changes. */
static void failures_change_nothing(void **state)
{
    (void)state;
    static const char *const config[] = {NULL, "{\"backend\": \"quanto\", \"q_group_size\": 32}",
                                         "{\"sliding_window\": 24}"};
    for (size_t k = 0; k < 2 * countof(config); k++) {
        struct talk t;
        struct kv_turn before[64], after[64];
        uint32_t n_before, n_after;
        kvik_generation g;
        kvik_result *r;
        kvik_hooks hooks = {.size = sizeof hooks, .on_progress = cancel};
        kvik_cache_config c = {.size = sizeof c,
                               .cache_implementation = k % 2 ? "static" : "dynamic",
                               .cache_config = config[k / 2],
                               .max_cache_len = 200,
                               .max_sequences = 1,
                               .threads = 1,
                               .no_prefix_cache = true,
                               .step_tokens = 16};
        talk_open(&t, "llama-d64", &c);
        assert_int_equal(kvik_generation_init(&g, t.m), 0);
        g.max_new_tokens = 4;
        for (int i = 0; i < 4; i++) {
            say(&t, 17);
            assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, t.n, t.logits, NULL), 0);
            reply(&t, 3);
        }
        size_t held = t.n - 1;
        probe(&t, t.want, before, &n_before);
        forget(&t, 30, 2);
        say(&t, 40);
        kvik_prompt p = {.size = sizeof p, .ids = t.ids, .n = t.n, .seq = t.s};
        assert_int_equal(kvik_generate(t.c, &g, &p, 1, &hooks, &r), KVIK_CANCELLED);
        assert_int_equal(kvik_cache_length(t.c, t.s), held);
        probe(&t, t.logits, after, &n_after);
        assert_int_equal(n_before, n_after);
        assert_memory_equal(before, after, n_before * sizeof *before);
        assert_memory_equal(t.logits, t.want, t.vocab * sizeof(float));
        t.ids[t.n - 1] = -7; /* this id is refused */
        assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, t.n, t.logits, NULL), KVIK_ARG);
        assert_int_equal(kvik_cache_length(t.c, t.s), held);
        assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 1000, NULL, NULL), KVIK_LIMIT);
        assert_int_equal(kvik_cache_sync(t.c, t.s, NULL, 0, t.logits, NULL), KVIK_ARG);
        assert_int_equal(kvik_cache_sync(t.c, t.s, NULL, 0, NULL, NULL), 0);
        assert_int_equal(kvik_cache_length(t.c, t.s), 0);
        assert_int_equal(kvik_cache_drop(t.c, t.s), 0);
        assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 1, NULL, NULL), KVIK_STALE);
        kvik_generation_done(&g);
        talk_close(&t);
    }
}

/* All ids may be reused if no logits are wanted; otherwise the last token is recomputed. */
static void counts(void **state)
{
    (void)state;
    struct talk t;
    kvik_sync r = {.size = sizeof r};
    talk_open(&t, "mistral",
              &(kvik_cache_config){.size = sizeof(kvik_cache_config),
                                   .max_sequences = 2,
                                   .threads = 1,
                                   .no_prefix_cache = true});
    say(&t, 50);
    assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 50, NULL, &r), 0);
    assert_int_equal(r.computed, 50);
    assert_int_equal(r.divergence, -1);
    assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 50, NULL, &r), 0);
    assert_true(r.reused == 50 && !r.computed && !r.recomputed && !r.reason);
    assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 50, t.logits, &r), 0);
    assert_true(r.reused == 49 && r.computed == 1);
    kvik_sync_done(&r);
    from_nothing(&t, true);
    t.ids[20] ^= 1; /* the window of 12 tokens has moved on */
    assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 50, t.logits, &r), 0);
    assert_true(r.divergence == 20 && r.reused + r.recomputed == 20 && r.recomputed);
    assert_true(!r.cached && !r.given); /* without a tokenizer there are no texts */
    assert_non_null(strstr(r.reason, "window of 12"));
    kvik_sync_done(&r);
    from_nothing(&t, true);
    talk_close(&t);
}

/* An empty sequence starts from the rows of another sequence, live or kept. */
static void empty_begins_with_others(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct talk t;
        kvik_seq s;
        kvik_sync r = {.size = sizeof r};
        talk_open(&t, "llama-gqa-l3",
                  &(kvik_cache_config){.size = sizeof(kvik_cache_config),
                                       .cache_implementation = k ? "static" : "dynamic",
                                       .max_cache_len = 100,
                                       .max_sequences = 2,
                                       .threads = 1});
        say(&t, 60);
        assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 60, NULL, NULL), 0);
        assert_int_equal(kvik_cache_new(t.c, &s), 0);
        assert_int_equal(kvik_cache_sync(t.c, s, t.ids, 50, t.logits, &r), 0);
        assert_true(r.reused >= 48 && r.reused + r.computed == 50 && !r.recomputed);
        t.n = 50;
        from_nothing(&t, true);
        assert_int_equal(kvik_cache_drop(t.c, t.s), 0);
        assert_int_equal(kvik_cache_drop(t.c, s), 0);
        assert_int_equal(kvik_cache_new(t.c, &t.s), 0);
        t.ids[49] ^= 1;
        assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 50, t.logits, &r), 0);
        assert_true(r.reused >= 48 && r.divergence == -1);
        from_nothing(&t, true);
        t.ids[40] = -3; /* a failure leaves the sequence empty */
        assert_int_equal(kvik_cache_reset(t.c, t.s), 0);
        assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 50, t.logits, &r), KVIK_ARG);
        assert_int_equal(kvik_cache_length(t.c, t.s), 0);
        talk_close(&t);
    }
}

/* Masked columns before a prompt shape the rows of some models; with other columns nothing can be
 * reused. */
static void padding_changes(void **state)
{
    (void)state;
    struct talk t;
    uint8_t mask[23] = {0, 0, 0};
    kvik_generation g;
    kvik_result *a, *b;
    talk_open(&t, "llama4",
              &(kvik_cache_config){.size = sizeof(kvik_cache_config),
                                   .max_sequences = 2,
                                   .threads = 1,
                                   .no_prefix_cache = true});
    say(&t, 23);
    memset(mask + 3, 1, 20);
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    g.max_new_tokens = 4;
    g.output_logits = true;
    kvik_prompt padded = {.size = sizeof padded,
                          .ids = t.ids,
                          .n = 23,
                          .attention_mask = mask,
                          .seq = t.s},
                plain = {.size = sizeof(kvik_prompt), .ids = t.ids + 3, .n = 20, .seq = t.s},
                fresh = {.size = sizeof(kvik_prompt), .ids = t.ids + 3, .n = 20};
    assert_int_equal(kvik_generate(t.c, &g, &padded, 1, NULL, &a), 0);
    kvik_result_free(a);
    assert_int_equal(kvik_generate(t.c, &g, &padded, 1, NULL, &a), 0);
    assert_int_equal(a->row[0]->sync->reused, 19);
    kvik_result_free(a);
    assert_int_equal(kvik_generate(t.c, &g, &plain, 1, NULL, &a), 0);
    assert_int_equal(kvik_generate(t.c, &g, &fresh, 1, NULL, &b), 0);
    assert_memory_equal(a->logits, b->logits, 4ull * a->vocab * sizeof(float));
    assert_int_equal(a->row[0]->sync->reused, 0);
    assert_int_equal(a->row[0]->sync->recomputed, 19);
    assert_non_null(strstr(a->row[0]->sync->reason, "masked columns"));
    kvik_result_free(a);
    kvik_result_free(b);
    kvik_generation_done(&g);
    talk_close(&t);
}

static char *map_of(kvik_cache *c, kvik_seq s)
{
    char *json;
    if (kvik_cache_map(c, s, &json) < 0) fail_msg("%s", kvik_last_error());
    return json;
}

/* Counts the blocks and tiles of the whole store that have one of the letters. */
static size_t in_store(kvik_cache *c, const char *letters)
{
    char *json = map_of(c, 0), *s = json;
    size_t n = 0;
    for (const char *const *key = (const char *const[]){"\"blocks\":\"", "\"tiles\":\"", NULL};
         *key; key++)
        for (s = json; (s = strstr(s, *key));) {
            s += strlen(*key);
            for (; *s && *s != '"'; s++)
                n += strchr(letters, *s) != NULL;
        }
    kvik_free(json);
    return n;
}

/* The map shows which rows are shared, quantized, evicted and on disk. */
static void maps(void **state)
{
    (void)state;
    static const struct {
        const char *name, *config;
        const char *own, *forked;
    } row[] = {{"dynamic", NULL, "\"map\":\"rrro\"", "\"map\":\"RRRO\""},
               {"dynamic", "{\"sliding_window\": 20}", "\"map\":\"..ro\"", "\"map\":\"..RO\""},
               {"quantized", "{\"q_group_size\": 32, \"residual_length\": 1}", "\"map\":\"eee\"",
                "\"map\":\"EEE\""}};
    for (size_t k = 0; k < countof(row); k++) {
        struct talk t;
        kvik_seq copy;
        uint32_t n = k == 2 ? 48 : 52;
        talk_open(&t, "llama-d64",
                  &(kvik_cache_config){.size = sizeof(kvik_cache_config),
                                       .cache_implementation = row[k].name,
                                       .cache_config = row[k].config,
                                       .max_sequences = 2,
                                       .threads = 1,
                                       .no_prefix_cache = true});
        say(&t, n);
        char *empty = map_of(t.c, t.s);
        assert_non_null(strstr(empty, "\"map\":\"\""));
        kvik_free(empty);
        assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, n, NULL, NULL), 0);
        char *own = map_of(t.c, t.s);
        if (!strstr(own, row[k].own)) fail_msg("%s: no %s", own, row[k].own);
        assert_int_equal(kvik_cache_fork(t.c, t.s, &copy), 0);
        char *forked = map_of(t.c, copy);
        if (!strstr(forked, row[k].forked)) fail_msg("%s: no %s", forked, row[k].forked);
        assert_true(in_store(t.c, "RE") > 0); /* what both hold */
        assert_int_equal(kvik_cache_drop(t.c, copy), 0);
        char *none = NULL;
        assert_int_equal(kvik_cache_map(t.c, copy, &none), KVIK_STALE);
        assert_int_equal(in_store(t.c, "RE"), 0);
        assert_true(in_store(t.c, "re") > 0);
        kvik_free(own);
        kvik_free(forked);
        talk_close(&t);
    }
}

static kvik_result *answer(struct talk *t, const int32_t *ids, size_t n)
{
    kvik_generation g;
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = n, .seq = t->s};
    assert_int_equal(kvik_generation_init(&g, t->m), 0);
    g.max_new_tokens = 9;
    g.n_eos = 0;
    g.output_logits = true;
    if (kvik_generate(t->c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    kvik_generation_done(&g);
    return r;
}

/* With a sink cache, the loop of the Transformers guide passes the last window_length tokens of the
 * rendered conversation. */
static void cropped(void **state)
{
    (void)state;
    struct talk full, crop;
    kvik_cache_config c = {.size = sizeof c,
                           .cache_implementation = "sink",
                           .cache_config = "{\"window_length\": 40, \"num_sink_tokens\": 4}",
                           .max_cache_len = 1000,
                           .max_sequences = 2,
                           .threads = 1,
                           .no_prefix_cache = true};
    uint32_t cuts = 0;
    talk_open(&full, "llama-gqa-l3", &c);
    talk_open(&crop, "llama-gqa-l3", &c);
    for (int turn = 0; turn < 20; turn++) {
        say(&full, 1 + draw(&full, 14));
        size_t from = full.n > 40 ? full.n - 40 : 0;
        kvik_result *a = answer(&full, full.ids, full.n),
                    *b = answer(&crop, full.ids + from, full.n - from);
        assert_int_equal(a->row[0]->n, full.n + 9);
        /* The ids of the caller, and the new tokens. */
        assert_int_equal(b->row[0]->n, full.n - from + 9);
        assert_memory_equal(a->row[0]->ids + from, b->row[0]->ids, b->row[0]->n * sizeof(int32_t));
        assert_memory_equal(a->logits, b->logits, 9ull * a->vocab * sizeof(float));
        assert_int_equal(b->row[0]->sync->offset, from);
        assert_int_equal(b->row[0]->sync->divergence, -1);
        assert_int_equal(a->row[0]->sync->computed, b->row[0]->sync->computed);
        cuts += from > 0;
        memcpy(full.ids + full.n, a->row[0]->ids + full.n, 9 * sizeof(int32_t));
        full.n += 9;
        kvik_result_free(a);
        kvik_result_free(b);
    }
    assert_true(cuts > 10);
    /* All tokens are cached. The last one is recomputed, from rows before the first given id. */
    size_t held = full.n - 1;
    kvik_result *a = answer(&full, full.ids, held), *b = answer(&crop, full.ids + held - 40, 40);
    assert_memory_equal(a->logits, b->logits, 9ull * a->vocab * sizeof(float));
    assert_int_equal(b->row[0]->sync->offset, held - 40);
    kvik_result_free(a);
    kvik_result_free(b);
    /* Ids that do not overlap the cached tokens are a text of their own. */
    crop.n = 0;
    say(&crop, 40);
    b = answer(&crop, crop.ids, 40);
    assert_int_equal(b->row[0]->sync->offset, 0);
    assert_int_equal(b->row[0]->reused, 0);
    kvik_result_free(b);
    talk_close(&full);
    talk_close(&crop);
}

/* A reply that repeats one token: the last generated tokens, which are not yet cached, show where
 * the ids of a crop belong. */
static void cropped_repetition(void **state)
{
    (void)state;
    struct talk t;
    kvik_sync r = {.size = sizeof r};
    kvik_cache_config c = {.size = sizeof c,
                           .cache_implementation = "sink",
                           .cache_config = "{\"window_length\": 40, \"num_sink_tokens\": 4}",
                           .max_cache_len = 1000,
                           .max_sequences = 2,
                           .threads = 1,
                           .no_prefix_cache = true};
    talk_open(&t, "llama-gqa-l3", &c);
    say(&t, 40);
    while (t.n < 53)
        t.ids[t.n++] = 7;
    assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids, 52, NULL, NULL), 0);
    sync_said(t.c->x, t.s, 7);
    t.ids[t.n++] = 9;
    assert_int_equal(kvik_cache_sync(t.c, t.s, t.ids + 14, 40, t.logits, &r), 0);
    assert_true(r.offset == 14 && r.reused == 38 && r.computed == 2);
    assert_int_equal(kvik_cache_length(t.c, t.s), 54);
    from_nothing(&t, true);
    talk_close(&t);
}

/* The prefix of the Transformers guide ends in a space, so its last token changes when text
 * follows. */
static void the_guides_prefix(void **state)
{
    (void)state;
    static const char prefix[] = "You are a helpful assistant. ",
                      *const prompt[] = {"Help me to write a blogpost about travelling.",
                                         "What is the capital of France?"};
    const char *path = getenv("KVIK_TEST_SHORT") ? NULL : test_model();
    kvik_model *m;
    kvik_cache *c;
    kvik_seq s, copy;
    if (!path) skip();
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = "static",
                                .max_cache_len = 64,
                                .max_sequences = 3,
                                .no_prefix_cache = true};
    if (kvik_cache_open(m, &config, &c) < 0) fail_msg("%s", kvik_last_error());
    const kvik_tokenizer *tok = kvik_model_tokenizer(m);
    int32_t *ids;
    size_t n, n_prefix;
    kvik_generation g;
    assert_int_equal(kvik_generation_init(&g, m), 0);
    g.max_new_tokens = 8;
    g.output_logits = true;
    assert_int_equal(kvik_tokenizer_encode(tok, prefix, strlen(prefix), true, &ids, &n_prefix), 0);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    assert_int_equal(kvik_cache_sync(c, s, ids, n_prefix, NULL, NULL), 0);
    kvik_free(ids);
    for (size_t i = 0; i < countof(prompt); i++) {
        char text[128];
        kvik_result *a, *b;
        snprintf(text, sizeof text, "%s%s", prefix, prompt[i]);
        assert_int_equal(kvik_tokenizer_encode(tok, text, strlen(text), true, &ids, &n), 0);
        assert_int_equal(kvik_cache_fork(c, s, &copy), 0);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = n, .seq = copy},
                    q = {.size = sizeof(kvik_prompt), .ids = ids, .n = n};
        assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &a), 0);
        assert_int_equal(kvik_generate(c, &g, &q, 1, NULL, &b), 0);
        assert_int_equal(a->row[0]->n, b->row[0]->n);
        assert_memory_equal(a->row[0]->ids, b->row[0]->ids, b->row[0]->n * sizeof(int32_t));
        assert_memory_equal(a->logits, b->logits, (size_t)b->steps * b->vocab * sizeof(float));
        const kvik_sync *y = a->row[0]->sync;
        assert_null(b->row[0]->sync);
        assert_int_equal(y->divergence, n_prefix - 1);
        assert_int_equal(y->reused, n_prefix - 1);
        assert_string_equal(y->cached, prefix);
        assert_memory_equal(y->given, prefix, strlen(prefix));
        print_message("  \"%s\" was \"%s\"\n", y->given, y->cached);
        kvik_result_free(a);
        kvik_result_free(b);
        assert_int_equal(kvik_cache_drop(c, copy), 0);
        assert_int_equal(kvik_cache_length(c, s), n_prefix);
        kvik_free(ids);
    }
    kvik_generation_done(&g);
    kvik_cache_close(c);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(twenty_turns),
                                       cmocka_unit_test(thoughts_dropped),
                                       cmocka_unit_test(failures_change_nothing),
                                       cmocka_unit_test(counts),
                                       cmocka_unit_test(empty_begins_with_others),
                                       cmocka_unit_test(padding_changes),
                                       cmocka_unit_test(maps),
                                       cmocka_unit_test(cropped),
                                       cmocka_unit_test(cropped_repetition),
                                       cmocka_unit_test(the_guides_prefix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
