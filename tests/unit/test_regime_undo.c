/* test_regime_undo.c - a change of longrope's frequencies that is refused, fails or is ended early
 * leaves the sequence exactly as it was: its tokens, its turns, the bits of its next logits and its
 * reserve.  The golden model changes its frequencies at 33 tokens. */
#include "generate/handle.h"
#include "test_arch.h"

enum { LONGEST = 96, HELD = 30 };

static int32_t text[LONGEST];

/* Opens the golden model with `change` merged into its configuration. */
static kvik_model *open_model(const char *change)
{
    kvik_model *m;
    assert_non_null(mkdtemp(strcpy(dir, "/tmp/kvik-regime-XXXXXX")));
    make(changed("phi3", change, ""));
    int e = kvik_model_open(dir, &m);
    clear();
    rmdir(dir);
    if (e < 0) fail_msg("%s", kvik_last_error());
    draw_ids(text, LONGEST, kvik_model_vocab(m), 9);
    return m;
}

static kvik_cache *open_cache(kvik_model *m, kvik_cache_config k)
{
    kvik_cache *c;
    k.size = sizeof k;
    k.max_cache_len = 128;
    k.threads = 1;
    k.no_prefix_cache = true;
    return kvik_cache_open(m, &k, &c) < 0 ? NULL : c;
}

static int append(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t to, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = text + from, .n = to - from};
    return kvik_forward(c, &span, 1, false, logits);
}

/* Makes a sequence of HELD tokens, one turn and decoded tokens. */
static int hold(kvik_cache *c, kvik_seq *s)
{
    int e = kvik_cache_new(c, s);
    if (e >= 0) e = append(c, *s, 0, HELD - 8, NULL);
    for (uint32_t n = HELD - 8; e >= 0 && n < HELD; n++)
        e = append(c, *s, n, n + 1, NULL);
    return e;
}

/* --- Other sequences leave little room. */

static const struct tight {
    const char *name, *model, *impl, *config;
} tights[] = {
    {"window 8", "{\"sliding_window\": 8}", NULL, NULL},
    {"window 24", "{}", NULL, NULL},
    {"all rows", "{\"sliding_window\": null}", NULL, NULL},
    {"quanto", "{}", "quantized",
     "{\"backend\": \"quanto\", \"nbits\": 2, \"residual_length\": 8, \"q_group_size\": 32}"},
};

/* The crossing is refused, or it succeeds; after a refusal the next token has the logits that it
 * has in a cache with room. */
static void refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(tights); k++) {
        const struct tight *t = &tights[k];
        kvik_model *m = open_model(t->model);
        size_t size = kvik_model_vocab(m) * sizeof(float);
        float *want = malloc(size), *got = malloc(size);
        uint32_t n_refused = 0, n_crossed = 0;
        for (uint32_t kib = 0; kib <= 240; kib += 4) { /* 0: the default */
            kvik_cache_config config = {.cache_implementation = t->impl,
                                        .cache_config = t->config,
                                        .max_sequences = 2,
                                        .step_tokens = 16,
                                        .cache_memory = kib << 10};
            kvik_cache *c = open_cache(m, config);
            kvik_seq s, other;
            if (!c) continue;
            int e = hold(c, &s);
            if (!kib) assert_int_equal(append(c, s, HELD, HELD + 1, want), 0);
            if (e >= 0 && kib) e = kvik_cache_new(c, &other);
            if (e >= 0 && kib) e = kvik_cache_reserve(c, other, 40);
            if (e >= 0 && kib) {
                e = append(c, s, HELD, HELD + 9, got);
                n_crossed += e >= 0;
                n_refused += e < 0;
                if (e < 0) {
                    assert_int_equal(e, KVIK_FULL);
                    if (kvik_cache_length(c, s) != HELD)
                        fail_msg("%s, %u KiB: %lld tokens", t->name, kib,
                                 (long long)kvik_cache_length(c, s));
                    kvik_cache_drop(c, other);
                    assert_int_equal(append(c, s, HELD, HELD + 1, got), 0);
                    assert_memory_equal(got, want, size);
                }
            }
            kvik_cache_close(c);
        }
        if (!n_refused || !n_crossed)
            fail_msg("%s: %u refused, %u crossed", t->name, n_refused, n_crossed);
        free(want);
        free(got);
        kvik_model_close(m);
    }
}

/* --- The least static cache. */

/* A static cache that is opened and gives a sequence never fails for want of memory later: the
 * reserve includes the rows that a change of the frequencies computes again. */
static void static_promise(void **state)
{
    (void)state;
    static const char *const models[] = {"{\"sliding_window\": null}", "{\"sliding_window\": 8}"};
    static const uint32_t pieces[] = {1, 7, 31, 128};
    static const char quanto[] = "{\"backend\": \"quanto\", \"nbits\": 4, \"q_group_size\": 16}";
    for (size_t k = 0; k < 2 * 2 * countof(pieces); k++) {
        kvik_model *m = open_model(models[k % 2]);
        kvik_cache *c = NULL;
        kvik_seq s;
        bool made = false;
        for (uint64_t memory = 16 << 10; !made && memory < 4 << 20; memory += 4 << 10) {
            kvik_cache_config config = {.cache_implementation = "static",
                                        .cache_config = k / 2 % 2 ? quanto : NULL,
                                        .max_sequences = 1,
                                        .step_tokens = 16,
                                        .cache_memory = memory};
            if (!(c = open_cache(m, config))) continue;
            made = kvik_cache_new(c, &s) >= 0;
            if (!made) kvik_cache_close(c);
        }
        assert_true(made);
        uint32_t piece = pieces[k / 4];
        for (uint32_t n = 0; n < LONGEST; n += piece)
            if (append(c, s, n, MIN(n + piece, LONGEST), NULL) < 0)
                fail_msg("%s, %u at a time, after %u: %s", models[k % 2], piece, n,
                         kvik_last_error());
        kvik_cache_close(c);
        kvik_model_close(m);
    }
}

/* --- A request is ended while rows are recomputed. */

static const struct ended {
    const char *name, *impl, *json;
    uint32_t step;
} endeds[] = {
    {"dynamic", NULL, "{}", 5},
    {"static", "static", "{}", 5},
    {"offloaded", "offloaded", "{}", 5},
    {"quantized", "quantized", "{}", 5},
    {"two rows", NULL, "{\"num_return_sequences\": 2, \"do_sample\": true}", 5},
    {"beams", NULL, "{\"num_beams\": 3}", 5},
    {"static beams", "static", "{\"num_beams\": 2}", 4},
};

/* Compares the next logits of a row's sequence with those of a fresh sequence of the same tokens,
 * appended in the same turns. */
static void same_as_fresh(kvik_cache *c, const struct ended *w, const kvik_row *row)
{
    size_t size = c->x->m->vocab * sizeof(float);
    float *got = malloc(size), *want = malloc(size);
    uint32_t len = (uint32_t)kvik_cache_length(c, row->seq);
    static const int32_t next = 9;
    kvik_seq s;
    if (len + 1 < row->n || len > row->n)
        fail_msg("%s: a sequence of %u tokens, the result has %zu", w->name, len, row->n);
    assert_memory_equal(kv_tokens(c->x->kv, row->seq), row->ids, len * sizeof(int32_t));
    kvik_span last = {.size = sizeof last, .seq = row->seq, .ids = &next, .n = 1};
    if (kvik_forward(c, &last, 1, false, got) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_span first = {
        .size = sizeof first, .seq = s, .ids = row->ids, .n = (uint32_t)row->n_prompt};
    assert_int_equal(kvik_forward(c, &first, 1, false, NULL), 0);
    for (uint32_t i = (uint32_t)row->n_prompt; i < len; i++) {
        kvik_span one = {.size = sizeof one, .seq = s, .ids = row->ids + i, .n = 1};
        assert_int_equal(kvik_forward(c, &one, 1, false, NULL), 0);
    }
    last.seq = s;
    assert_int_equal(kvik_forward(c, &last, 1, false, want), 0);
    if (memcmp(got, want, size) != 0) fail_msg("%s: other logits after %u tokens", w->name, len);
    kvik_cache_drop(c, s);
    free(got);
    free(want);
}

/* Ends a request after `steps` steps; true if rows were being recomputed at that time. */
static bool end_after(kvik_model *m, const struct ended *w, uint32_t steps)
{
    kvik_cache *c = open_cache(m, (kvik_cache_config){.cache_implementation = w->impl,
                                                      .max_sequences = 6,
                                                      .step_tokens = w->step});
    kvik_generation g;
    kvik_request *r;
    kvik_result *out;
    kvik_prompt p = {.size = sizeof p, .ids = text, .n = HELD};
    struct kv_usage u;
    uint64_t most = 0;
    bool middle = false;
    if (!c) fail_msg("%s: %s", w->name, kvik_last_error());
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    assert_int_equal(kvik_generation_set(&g, w->json), 0);
    assert_int_equal(kvik_generation_set(&g, "{\"max_new_tokens\": 10, \"eos_token_id\": null, "
                                             "\"return_dict_in_generate\": true}"),
                     0);
    if (kvik_request_start(c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    for (uint32_t i = 0; i < steps; i++) {
        assert_true(kvik_request_step(&r, 1) >= 0);
        kv_usage(c->x->kv, &u);
        middle = u.rows < most; /* rows were dropped */
        most = MAX(most, u.rows);
    }
    if (kvik_request_end(r, &out) < 0) fail_msg("%s: %s", w->name, kvik_last_error());
    kvik_request_free(r);
    for (uint32_t i = 0; i < out->n_rows; i++)
        if (out->row[i]->n > out->row[i]->n_prompt) same_as_fresh(c, w, out->row[i]);
    kvik_result_free(out);
    kvik_generation_done(&g);
    kvik_cache_close(c);
    return middle;
}

static void ended(void **state)
{
    (void)state;
    kvik_model *m = open_model("{}");
    for (size_t k = 0; k < countof(endeds); k++) {
        uint32_t middle = 0;
        for (uint32_t steps = 6; steps < 24; steps++)
            middle += end_after(m, &endeds[k], steps);
        if (!middle) fail_msg("%s: never ended in the middle", endeds[k].name);
    }
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused), cmocka_unit_test(static_promise),
                                       cmocka_unit_test(ended)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
