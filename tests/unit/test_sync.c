/* test_sync.c - a sequence made to hold a conversation: 20 turns with history that is rewritten between them, for every
 * strategy, against runs from nothing; reports; failures that change nothing; ids cropped as the guide's sink loop does;
 * the guide's prefix whose last token changes. */
#include "api/api.h"
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

/* Takes n tokens out at `at`, as a template does that drops what a model thought. */
static void forget(struct talk *t, size_t at, size_t n)
{
    memmove(t->ids + at, t->ids + at + n, (t->n - at - n) * sizeof *t->ids);
    t->n -= n;
}

/* The logits of a sequence fed with the same tokens in the same turns, from nothing: what the store's rules promise. */
static void from_nothing(struct talk *t, bool one_turn)
{
    struct exec *x = t->c->x;
    uint32_t n_turns;
    kv_seq s;
    assert_int_equal(exec_new(x, &s), 0);
    if (one_turn) {
        struct exec_feed f = {.seq = s, .tok = t->ids, .n = (uint32_t)t->n};
        if (exec_feed(x, &f, 1, 0, t->want, NULL, NULL) < 0) fail_msg("%s", kvik_last_error());
    } else {
        uint32_t last = (uint32_t)t->n - 1;
        const struct kv_turn *turn = kv_turns(x->kv, t->s, &n_turns);
        const struct kv_turn *end = n_turns ? &turn[n_turns - 1] : NULL;
        if (end && end->pos + end->n == t->n) {
            struct exec_feed f = {.seq = s, .tok = t->ids + end->pos, .n = end->n};
            assert_int_equal(exec_replay(x, s, t->ids, turn, n_turns - 1, 0, end->pos), 0);
            assert_int_equal(exec_feed(x, &f, 1, 0, t->want, NULL, NULL), 0);
        } else {
            struct exec_feed f = {.seq = s, .tok = t->ids + last, .n = 1};
            assert_int_equal(exec_replay(x, s, t->ids, turn, n_turns, 0, last), 0);
            assert_int_equal(exec_feed(x, &f, 1, 0, t->want, NULL, NULL), 0);
        }
    }
    assert_int_equal(kv_drop(x->kv, s), 0);
    assert_memory_equal(t->logits, t->want, t->vocab * sizeof(float));
}

/* The reply: greedy tokens, fed one by one but for the last. */
static void reply(struct talk *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = 0;
        for (uint32_t v = 1; v < t->vocab; v++)
            if (t->logits[v] > t->logits[best]) best = v;
        t->ids[t->n++] = (int32_t)best;
        kvik_span span = {t->s, &t->ids[t->n - 1], 1};
        if (i + 1 < n && kvik_forward(t->c, &span, 1, false, t->logits) < 0)
            fail_msg("%s", kvik_last_error());
    }
}

static const struct strategy {
    const char *model, *name, *config;
    bool turns; /* equal where the turns are the same, not however they were fed */
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
        kvik_cache_config config = {.cache_implementation = y->name,
                                    .cache_config = y->config,
                                    .max_cache_len = 250,
                                    .max_sequences = 4,
                                    .threads = 1,
                                    .step_tokens = 48};
        if (y->config && strstr(y->config, "max_cache_len")) config.max_cache_len = 0;
        talk_open(&t, y->model, &config);
        for (; turns < 20; turns++) {
            size_t replied = t.n;
            if (turns &&
                turns % 3 != 2) /* history is rewritten: tokens of the last reply go, or change */
                forget(&t, t.n - 1 - draw(&t, 6), 1);
            if (turns % 5 == 4) t.ids[t.n / 2 + draw(&t, (uint32_t)t.n / 2)] ^= 1;
            if (turns == 13) t.n = 9;
            say(&t, 1 + draw(&t, 9));
            kvik_sync r;
            if (kvik_cache_sync(t.c, t.s, t.ids, t.n, t.logits, &r) < 0)
                fail_msg("%s %s: %s", y->model, y->name, kvik_last_error());
            (void)replied;
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
        print_message("  %-13s %-16s %4llu reused, %4llu computed again %s\n", y->model, y->name,
                      (unsigned long long)reused, (unsigned long long)again,
                      y->config ? y->config : "");
        talk_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(twenty_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
