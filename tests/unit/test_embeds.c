/* test_embeds.c - prompts of embeddings: with the embeddings of ids they give, bit for bit, what the ids give, on every kind of
 * layer and with every strategy; the ways of decoding that need ids refuse them. */
#include "requests.h"

#include <math.h>

enum { N = 13, NEW = 9, MORE = 7 };

static const struct scene {
    const char *model, *strategy, *config;
} scenes[] = {
    {"llama-mha", "dynamic", NULL},
    {"llama-mha", "static", NULL},
    {"llama-mha", "quantized", "{\"nbits\": 4, \"residual_length\": 8, \"q_group_size\": 16}"},
    {"llama-mha", "offloaded", NULL},
    {"llama-mha", "sink", "{\"window_length\": 12, \"num_sink_tokens\": 4}"},
    {"llama-bf16", "dynamic", NULL},
    {"gemma2", "dynamic", NULL},
    {"gemma3", "dynamic", NULL},
    {"gpt2", "dynamic", NULL},
    {"gemma2.gguf", "dynamic", NULL},
    {"granite", "dynamic", NULL},
    {"granite.gguf", "dynamic", NULL},
    {"jamba", "dynamic", NULL},
    {"zamba2", "dynamic", NULL},
    {"qwen3-next", "dynamic", NULL},
};

static void same_result(const kvik_result *ids, const kvik_result *embeds, size_t cut)
{
    assert_int_equal(ids->n_rows, embeds->n_rows);
    for (uint32_t i = 0; i < ids->n_rows; i++) {
        const kvik_row *a = ids->row[i], *b = embeds->row[i];
        assert_int_equal(a->n - cut, b->n);
        assert_int_equal(b->n_prompt, a->n_prompt - cut);
        assert_memory_equal(a->ids + cut, b->ids, b->n * sizeof *b->ids);
        assert_int_equal(a->finish, b->finish);
    }
    assert_int_equal(ids->logit_steps, embeds->logit_steps);
    assert_memory_equal(ids->logits, embeds->logits,
                        (size_t)ids->logit_steps * ids->logit_rows * ids->vocab * sizeof(float));
    assert_int_equal(ids->prompt_tokens, embeds->prompt_tokens);
}

/* Two texts as ids and as embeddings; the first four columns of the second are masked. */
struct texts {
    int32_t ids[2][N];
    uint8_t mask[2][N];
    float *embeds[2]; /* [N][hidden] */
};

static void texts_draw(struct texts *t, const kvik_model *m)
{
    uint32_t seed = 1;
    for (uint32_t i = 0; i < 2; i++) {
        t->embeds[i] = mem_array((size_t)N * kvik_model_hidden(m), sizeof(float));
        for (uint32_t j = 0; j < N; j++) {
            t->ids[i][j] = (int32_t)random_below(&seed, kvik_model_vocab(m));
            t->mask[i][j] = !i || j >= 4;
        }
        assert_int_equal(kvik_model_embed(m, t->ids[i], N, t->embeds[i]), 0);
    }
}

/* Ways of asking.  BESIDE: the ids stand beside the embeddings, for processors and the result. */
enum { GREEDY, SAMPLES, LENGTHS, BESIDE, WAYS };

static kvik_generation way_options(const kvik_model *m, uint32_t way)
{
    kvik_generation g =
        options(m, way == SAMPLES  ? "{\"do_sample\": true, \"num_return_sequences\": 2}"
                   : way == BESIDE ? "{\"repetition_penalty\": 1.5}"
                                   : "{}");
    g.max_new_tokens = way == LENGTHS ? 0 : NEW;
    g.max_length = way == LENGTHS ? N + NEW : 0;
    g.min_length = way == LENGTHS ? N + 4 : 0;
    g.output_logits = true;
    g.seed = 5;
    return g;
}

/* A request copies what a prompt points to: the embeddings of the second prompt are overwritten after the start. */
static kvik_result *by_request(kvik_cache *c, const kvik_generation *g, kvik_prompt *p,
                               size_t bytes)
{
    kvik_request *q;
    kvik_result *r;
    float *copy = mem_alloc(bytes);
    memcpy(copy, p[1].embeds, bytes);
    p[1].embeds = copy;
    if (kvik_request_start(c, g, p, 2, NULL, &q) < 0) fail_msg("%s", kvik_last_error());
    memset(copy, 0, bytes);
    mem_free(copy);
    while (kvik_request_step(&q, 1) > 0)
        ;
    assert_int_equal(kvik_request_end(q, &r), 0);
    kvik_request_free(q);
    return r;
}

static void play(const struct scene *s)
{
    char path[256];
    struct texts t;
    snprintf(path, sizeof path, "tests/golden/models/%s", s->model);
    kvik_model *m = open_model(path);
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = s->strategy,
                           .cache_config = s->config,
                           .max_cache_len = 40,
                           .max_sequences = 8,
                           .step_tokens = 8};
    kvik_cache *c = open_cache(m, &k);
    texts_draw(&t, m);
    for (uint32_t way = 0; way < WAYS; way++) {
        kvik_generation g = way_options(m, way);
        kvik_prompt a[2], b[2];
        kvik_result *want, *got;
        size_t cut = way == BESIDE ? 0 : N;
        for (uint32_t i = 0; i < 2; i++) {
            a[i] = (kvik_prompt){
                .size = sizeof *a, .ids = t.ids[i], .n = N, .attention_mask = t.mask[i]};
            b[i] = (kvik_prompt){.size = sizeof *b,
                                 .embeds = t.embeds[i],
                                 .n_embeds = N,
                                 .attention_mask = t.mask[i]};
            b[i].ids = way == BESIDE ? t.ids[i] : NULL;
            b[i].n = way == BESIDE ? N : 0;
        }
        assert_int_equal(kvik_generate(c, &g, a, 2, NULL, &want), 0);
        if (kvik_generate(c, &g, b, 2, NULL, &got) < 0)
            fail_msg("%s %s: %s", s->model, s->strategy, kvik_last_error());
        same_result(want, got, cut);
        kvik_result_free(got);
        got = by_request(c, &g, b, (size_t)N * kvik_model_hidden(m) * sizeof(float));
        same_result(want, got, cut);
        kvik_result_free(got);
        kvik_result_free(want);
        kvik_generation_done(&g);
    }
    mem_free(t.embeds[0]);
    mem_free(t.embeds[1]);
    kvik_cache_close(c);
    kvik_model_close(m);
}

static void test_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(scenes); i++)
        play(&scenes[i]);
}

/* The index of prefixes finds no rows of embeddings: neither for embeddings nor for ids. */
static void test_no_prefix(void **state)
{
    (void)state;
    kvik_model *m = open_model("tests/golden/models/llama-mha");
    kvik_cache_config k = {.size = sizeof k, .max_cache_len = 128, .max_sequences = 4};
    kvik_cache *c = open_cache(m, &k);
    enum { LONG = 64 };
    int32_t zeros[LONG] = {0};
    float *e = mem_array((size_t)LONG * kvik_model_hidden(m), sizeof *e);
    kvik_generation g;
    kvik_result *r;
    assert_int_equal(kvik_generation_init(&g, m), 0);
    g.max_new_tokens = 2;
    assert_int_equal(kvik_model_embed(m, (int32_t[LONG]){7, 8, 9}, LONG, e), 0);
    kvik_prompt by_embeds = {.size = sizeof by_embeds, .embeds = e, .n_embeds = LONG},
                by_ids = {.size = sizeof by_ids, .ids = zeros, .n = LONG};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvik_generate(c, &g, &by_embeds, 1, NULL, &r), 0);
        assert_int_equal(r->row[0]->reused, 0);
        assert_int_equal(r->row[0]->n, 2);
        kvik_result_free(r);
    }
    assert_int_equal(kvik_generate(c, &g, &by_ids, 1, NULL, &r), 0);
    assert_int_equal(r->row[0]->reused, 0);
    kvik_result_free(r);
    kvik_generation_done(&g);
    mem_free(e);
    kvik_cache_close(c);
    kvik_model_close(m);
}

static void test_refused(void **state)
{
    (void)state;
    kvik_model *m = open_model("tests/golden/models/llama-mha");
    kvik_cache_config k = {.size = sizeof k, .max_cache_len = 64, .max_sequences = 16};
    kvik_cache *c = open_cache(m, &k);
    float *e = mem_array((size_t)N * kvik_model_hidden(m), sizeof *e);
    int32_t ids[N] = {0};
    uint8_t none[N] = {0};
    assert_int_equal(kvik_model_embed(m, ids, N, e), 0);
    assert_int_equal(kvik_model_embed(m, (int32_t[]){-1}, 1, e), KVIK_ARG);
    assert_int_equal(kvik_model_embed(m, (int32_t[]){1 << 20}, 1, e), KVIK_ARG);
    assert_int_equal(kvik_model_embed(m, NULL, 1, e), KVIK_ARG);
    static const char *const options[] = {
        "{\"num_beams\": 2}", "{\"penalty_alpha\": 0.5, \"top_k\": 3}",
        "{\"prompt_lookup_num_tokens\": 3}", "{\"guidance_scale\": 2}", "{\"use_cache\": false}"};
    kvik_prompt p = {.size = sizeof p, .embeds = e, .n_embeds = N};
    kvik_result *r;
    for (size_t i = 0; i < countof(options); i++) {
        kvik_generation g;
        assert_int_equal(kvik_generation_init(&g, m), 0);
        assert_int_equal(kvik_generation_set(&g, options[i]), 0);
        assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &r), KVIK_UNSUPPORTED);
        assert_non_null(strstr(kvik_last_error(), "embeddings"));
        kvik_generation_done(&g);
    }
    kvik_generation g;
    kvik_seq s;
    assert_int_equal(kvik_generation_init(&g, m), 0);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_prompt continues = p, masked = p, hollow = p, text = p, none_beside = p;
    continues.seq = s;
    masked.attention_mask = none;
    hollow.n_embeds = 0;
    text.text = "a";
    none_beside.n = 3;
    assert_int_equal(kvik_generate(c, &g, &continues, 1, NULL, &r), KVIK_UNSUPPORTED);
    assert_int_equal(kvik_generate(c, &g, &masked, 1, NULL, &r), KVIK_ARG);
    assert_int_equal(kvik_generate(c, &g, &hollow, 1, NULL, &r), KVIK_ARG);
    assert_int_equal(kvik_generate(c, &g, &none_beside, 1, NULL, &r), KVIK_ARG);
    assert_true(kvik_generate(c, &g, &text, 1, NULL, &r) < 0);
    kvik_generation_done(&g);
    mem_free(e);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* --- What follows ------------------------------------------------------------------------------ */

/* A sequence of ids and one of their embeddings, with the tokens that followed. */
struct pair {
    const struct scene *s;
    kvik_cache *c;
    kvik_seq seq[2];
    int32_t more[MORE];
    float *logits[2];
};

/* Appends the same ids to a sequence of each kind, and compares the logits. */
static void same_after(struct pair *p, const kvik_seq seq[2], const char *what)
{
    for (int i = 0; i < 2; i++) {
        kvik_span span = {.size = sizeof span, .seq = seq[i], .ids = p->more, .n = MORE};
        if (kvik_forward(p->c, &span, 1, false, p->logits[i]) < 0)
            fail_msg("%s %s, %s: %s", p->s->model, p->s->strategy, what, kvik_last_error());
    }
    if (memcmp(p->logits[0], p->logits[1], p->c->x->m->vocab * sizeof(float)) != 0)
        fail_msg("%s %s, %s: other logits", p->s->model, p->s->strategy, what);
}

/* Forks both, crops the forks, and appends to them.  Rows of embeddings that would have to be recomputed are KVIK_LOST, and
 * the sequence is then as it was. */
static void forked(struct pair *p, int64_t crop)
{
    kvik_seq fork[2];
    int e[2];
    char what[32];
    snprintf(what, sizeof what, "cropped to %d", (int)crop);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvik_cache_fork(p->c, p->seq[i], &fork[i]), 0);
        e[i] = kvik_cache_crop(p->c, fork[i], crop);
    }
    assert_int_equal(e[0], 0);
    if (e[1] < 0) {
        assert_int_equal(e[1], KVIK_LOST);
        assert_int_equal(kvik_cache_drop(p->c, fork[0]), 0);
        assert_int_equal(kvik_cache_fork(p->c, p->seq[0], &fork[0]), 0);
    }
    same_after(p, fork, what);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvik_cache_drop(p->c, fork[i]), 0);
}

static void saved(struct pair *p)
{
    kvik_seq loaded[2];
    char dir[] = "/tmp/kvik-embeds-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/session", dir);
    for (int i = 0; i < 2; i++) {
        if (kvik_cache_save(p->c, path, &p->seq[i], 1, NULL) < 0) fail_msg("%s", kvik_last_error());
        assert_int_equal(kvik_cache_load(p->c, path, 1, &loaded[i], NULL), 1);
        assert_int_equal(unlink(path), 0);
    }
    same_after(p, loaded, "saved and loaded");
    rmdir(dir);
}

/* What embeddings and the tokens behind them left in the cache goes on as what ids left. */
static void test_sequences(void **state)
{
    (void)state;
    static const int64_t crops[] = {N + NEW - 1, N + 3, N, N - 2, 1};
    for (size_t k = 0; k < countof(scenes); k++) {
        char path[256];
        struct texts t;
        struct pair p = {.s = &scenes[k], .more = {3, 9, 4, 1, 5, 11, 2}};
        snprintf(path, sizeof path, "tests/golden/models/%s", p.s->model);
        kvik_model *m = open_model(path);
        kvik_cache_config config = {.size = sizeof config,
                                    .cache_implementation = p.s->strategy,
                                    .cache_config = p.s->config,
                                    .max_cache_len = 40,
                                    .max_sequences = 8,
                                    .step_tokens = 8};
        p.c = open_cache(m, &config);
        texts_draw(&t, m);
        kvik_generation g = options(m, "{\"return_dict_in_generate\": true}");
        g.max_new_tokens = NEW;
        for (int i = 0; i < 2; i++) {
            kvik_result *r;
            kvik_prompt prompt = {.size = sizeof prompt};
            if (i) prompt.embeds = t.embeds[0], prompt.n_embeds = N;
            if (!i) prompt.ids = t.ids[0], prompt.n = N;
            assert_int_equal(kvik_generate(p.c, &g, &prompt, 1, NULL, &r), 0);
            p.seq[i] = r->row[0]->seq;
            p.logits[i] = mem_array(kvik_model_vocab(m), sizeof(float));
            kvik_result_free(r);
        }
        for (size_t i = 0; i < countof(crops); i++)
            forked(&p, crops[i]);
        saved(&p);
        same_after(&p, p.seq, "continued");
        kvik_generation_done(&g);
        for (int i = 0; i < 2; i++) {
            mem_free(p.logits[i]);
            mem_free(t.embeds[i]);
        }
        kvik_cache_close(p.c);
        kvik_model_close(m);
    }
}

/* Embeddings that are not finite, or overflow, end their row, and disturb neither the rows beside them nor the next call. */
static void test_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, 3e38F};
    kvik_model *m = open_model("tests/golden/models/llama-mha");
    kvik_cache_config k = {.size = sizeof k, .max_cache_len = 40, .max_sequences = 4};
    kvik_cache *c = open_cache(m, &k);
    struct texts t;
    texts_draw(&t, m);
    kvik_generation g = options(m, "{}");
    g.max_new_tokens = NEW;
    kvik_prompt p[3] = {
        {.size = sizeof *p, .embeds = t.embeds[0], .n_embeds = N},
        {.size = sizeof *p, .ids = t.ids[0], .n = N},
        {.size = sizeof *p, .embeds = t.embeds[1], .n_embeds = N},
    };
    kvik_result *want, *got;
    assert_int_equal(kvik_generate(c, &g, p, 2, NULL, &want), 0);
    for (size_t i = 0; i < 2 * countof(bad); i++) {
        uint32_t n = i % 2 ? 2 : 3; /* with the bad row, and without it */
        t.embeds[1][kvik_model_hidden(m) * (N / 2) + 3] = bad[i / 2];
        assert_int_equal(kvik_generate(c, &g, p, n, NULL, &got), 0);
        for (uint32_t row = 0; row < 2; row++) {
            assert_int_equal(got->row[row]->n, want->row[row]->n);
            assert_memory_equal(got->row[row]->ids, want->row[row]->ids,
                                want->row[row]->n * sizeof(int32_t));
        }
        if (n == 3 && bad[i / 2] != 3e38F) {
            assert_int_equal(got->row[2]->finish, KVIK_FINISH_NOT_FINITE);
            assert_int_equal(got->row[2]->n, 0);
        }
        kvik_result_free(got);
    }
    kvik_result_free(want);
    kvik_generation_done(&g);
    mem_free(t.embeds[0]);
    mem_free(t.embeds[1]);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* Without memory at any allocation there is KVIK_NOMEM and no leak (ASan), and the next call gives what it gave before. */
static void test_no_memory(void **state)
{
    (void)state;
    kvik_model *m = open_model("tests/golden/models/llama-mha");
    kvik_cache_config k = {.size = sizeof k, .max_cache_len = 40, .max_sequences = 4};
    kvik_cache *c = open_cache(m, &k);
    struct texts t;
    texts_draw(&t, m);
    kvik_generation g = options(m, "{}");
    g.max_new_tokens = 2;
    g.output_logits = true;
    kvik_prompt p = {
        .size = sizeof p, .embeds = t.embeds[1], .n_embeds = N, .attention_mask = t.mask[1]};
    kvik_result *want, *got = NULL;
    assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &want), 0);
    for (int way = 0; way < 2; way++) {
        int e = KVIK_NOMEM, failures = -1;
        for (int at = 0; e < 0; at++, failures++) {
            kvik_request *q = NULL;
            mem_fail_at(at, false);
            e = way ? kvik_request_start(c, &g, &p, 1, NULL, &q)
                    : kvik_generate(c, &g, &p, 1, NULL, &got);
            mem_fail_at(-1, false);
            assert_true(e == 0 || e == KVIK_NOMEM);
            if (!q) continue;
            while (kvik_request_step(&q, 1) > 0)
                ;
            assert_int_equal(kvik_request_end(q, &got), 0);
            kvik_request_free(q);
        }
        assert_in_range(failures, 5, 500);
        same_result(want, got, 0);
        kvik_result_free(got);
    }
    kvik_result_free(want);
    kvik_generation_done(&g);
    mem_free(t.embeds[0]);
    mem_free(t.embeds[1]);
    kvik_cache_close(c);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),       cmocka_unit_test(test_no_prefix),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
