/* requests.h - requests of every way of decoding, and the result of each alone, for the tests of requests. */
#pragma once
#include "budgets.h"

/* The greatest number of requests at once; the greatest number of tokens of a prompt. */
enum { MOST = 8, TEXT = 56 };

static inline uint32_t random_below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*seed >> 8) * n >> 24);
}

/* --- Ways of decoding, and the result of kvik_generate for each of them. */

static const struct way {
    const char *name, *json;
    bool assisted;
} ways[] = {
    {"greedy", "{}", false},
    {"sample",
     "{\"do_sample\": true, \"temperature\": 0.9, \"top_k\": 40, \"top_p\": 0.9, \"xtc_probability\": 0.3}",
     false},
    {"samples", "{\"do_sample\": true, \"num_return_sequences\": 2, \"repetition_penalty\": 1.2}",
     false},
    {"penalties", "{\"no_repeat_ngram_size\": 2, \"min_new_tokens\": 3}", false},
    {"beams", "{\"num_beams\": 3, \"num_return_sequences\": 2}", false},
    {"groups", "{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 0.4}", false},
    {"drawn beams", "{\"num_beams\": 2, \"do_sample\": true, \"top_k\": 50}", false},
    {"contrastive", "{\"penalty_alpha\": 0.5, \"top_k\": 3}", false},
    {"guided", "{\"guidance_scale\": 1.6, \"negative_prompt_ids\": [7, 8, 9]}", false},
    {"guided beams", "{\"guidance_scale\": 1.4, \"num_beams\": 2}", false},
    {"guided contrast", "{\"guidance_scale\": 1.3, \"penalty_alpha\": 0.4, \"top_k\": 2}", false},
    {"lookup", "{\"prompt_lookup_num_tokens\": 4}", false},
    {"sampled lookup", "{\"prompt_lookup_num_tokens\": 3, \"do_sample\": true, \"top_k\": 5}",
     false},
    {"assisted", "{\"num_assistant_tokens\": 4}", true},
    {"sampled, assisted", "{\"num_assistant_tokens\": 3, \"do_sample\": true, \"top_k\": 4}", true},
    {"oracle", "{\"use_cache\": false}", false},
    {"oracle beams", "{\"use_cache\": false, \"num_beams\": 2}", false},
};

struct asked { /* one request, and its result alone */
    const struct way *way;
    kvik_generation g;
    kvik_hooks hooks;
    int32_t ids[2][TEXT];
    kvik_prompt prompt[2];
    uint32_t n;
    kvik_result *want;
    kvik_request *request;
    bool paused;
};

static inline kvik_generation options(const kvik_model *m, const char *json)
{
    kvik_generation g;
    if (kvik_generation_init(&g, m) < 0) fail_msg("%s", kvik_last_error());
    g.n_eos = 0;
    if (kvik_generation_set(&g, json) < 0) fail_msg("%s", kvik_last_error());
    return g;
}

static inline void draw(struct asked *a, const kvik_model *m, const struct way *w,
                        kvik_cache *assistant, uint32_t *seed)
{
    *a = (struct asked){.way = w,
                        .hooks.size = sizeof(kvik_hooks),
                        .g = options(m, w->json),
                        .n = 1 + random_below(seed, 2)};
    a->g.max_new_tokens = 1 + random_below(seed, 14);
    a->g.seed = random_below(seed, 1000);
    a->g.output_logits = a->g.output_scores = true;
    a->g.prefill_chunk_size = random_below(seed, 3) * 5;
    a->g.eos_token_id[a->g.n_eos++] = (int32_t)random_below(seed, kvik_model_vocab(m));
    a->g.pad_token_id = 0;
    if (w->assisted) a->hooks.assistant_model = assistant;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t n = 1 + random_below(seed, TEXT), period = 2 + random_below(seed, 9);
        for (uint32_t t = 0; t < n; t++)
            a->ids[i][t] = t >= period && random_below(seed, 8)
                               ? a->ids[i][t - period]
                               : (int32_t)(3 + random_below(seed, kvik_model_vocab(m) - 3));
        a->prompt[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = a->ids[i], .n = n};
    }
}

static inline void same(const struct asked *a, const kvik_result *r)
{
    const kvik_result *w = a->want;
    size_t rows = (size_t)w->logit_steps * w->logit_rows * w->vocab * sizeof(float);
    assert_int_equal(r->n_rows, w->n_rows);
    for (uint32_t i = 0; i < w->n_rows; i++) {
        if (r->row[i]->n != w->row[i]->n ||
            memcmp(r->row[i]->ids, w->row[i]->ids, w->row[i]->n * sizeof(int32_t)) != 0)
            fail_msg("%s: row %u has other tokens", a->way->name, i);
        assert_int_equal(r->row[i]->n_prompt, w->row[i]->n_prompt);
        assert_int_equal(r->row[i]->finish, w->row[i]->finish);
        assert_memory_equal(&r->row[i]->score, &w->row[i]->score, sizeof(double));
        assert_int_equal(!r->row[i]->beam_indices, !w->row[i]->beam_indices);
        if (w->row[i]->beam_indices)
            assert_memory_equal(r->row[i]->beam_indices, w->row[i]->beam_indices,
                                (w->row[i]->n - w->row[i]->n_prompt) * sizeof(int32_t));
        if (w->row[i]->text) assert_string_equal(r->row[i]->text, w->row[i]->text);
    }
    assert_int_equal(r->logit_steps, w->logit_steps);
    assert_int_equal(r->logit_rows, w->logit_rows);
    if (memcmp(r->logits, w->logits, rows) != 0) fail_msg("%s: other logits", a->way->name);
    if (memcmp(r->scores, w->scores, rows) != 0) fail_msg("%s: other scores", a->way->name);
}

static inline void start(struct asked *a, kvik_cache *c)
{
    if (kvik_request_start(c, &a->g, a->prompt, a->n, &a->hooks, &a->request) < 0)
        fail_msg("%s: %s", a->way->name, kvik_last_error());
}

static inline void alone(struct asked *a, kvik_cache *c)
{
    if (kvik_generate(c, &a->g, a->prompt, a->n, &a->hooks, &a->want) < 0)
        fail_msg("%s: %s", a->way->name, kvik_last_error());
}

static inline void end(struct asked *a)
{
    kvik_result *r;
    assert_int_equal(kvik_request_state(a->request), KVIK_OVER);
    if (kvik_request_end(a->request, &r) < 0) fail_msg("%s: %s", a->way->name, kvik_last_error());
    same(a, r);
    kvik_result_free(r);
    kvik_request_free(a->request);
    a->request = NULL;
}

static inline void forget(struct asked *a)
{
    kvik_result_free(a->want);
    kvik_generation_done(&a->g);
}

static inline kvik_cache *open_cache(kvik_model *m, const kvik_cache_config *k)
{
    kvik_cache *c;
    if (kvik_cache_open(m, k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static inline kvik_model *open_model(const char *path)
{
    kvik_model *m;
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    return m;
}

/* --- The setting of the other tests: a tiny model, five requests of different kinds. */

struct stage {
    kvik_model *m;
    kvik_cache *c, *plain, *helper;
    struct asked a[countof(ways)];
    uint32_t seed;
};

static inline void stage_open(struct stage *s, kvik_cache_config k)
{
    *s = (struct stage){.m = open_model("tests/golden/models/llama-mha"), .seed = 4};
    k.size = sizeof k;
    k.max_cache_len = k.max_cache_len ? k.max_cache_len : TEXT + 40;
    k.compute = "exact";
    k.step_tokens = 16;
    kvik_cache_config h = {
        .size = sizeof h, .max_cache_len = TEXT + 40, .max_sequences = 16, .compute = "exact"};
    if (k.cache_memory) k.cache_memory = budget_for(s->m, k, k.cache_memory, 4, TEXT + 40);
    s->c = open_cache(s->m, &k);
    k.cache_memory = 0;
    k.max_sequences = 64;
    s->plain = open_cache(s->m, &k);
    s->helper = open_cache(s->m, &h);
}

/* Makes a request of one way of decoding and computes its result alone. */
static inline struct asked *ask(struct stage *s, uint32_t way, uint32_t new_tokens)
{
    struct asked *a = &s->a[way];
    if (a->way) forget(a);
    draw(a, s->m, &ways[way], s->helper, &s->seed);
    a->g.max_new_tokens = new_tokens;
    a->g.n_eos = 0;
    alone(a, s->plain);
    return a;
}

static inline void stage_close(struct stage *s)
{
    kvik_usage u = {.size = sizeof u};
    for (size_t i = 0; i < countof(ways); i++)
        if (s->a[i].way) forget(&s->a[i]);
    kvik_cache_usage(s->c, &u);
    assert_int_equal(u.tokens, 0);
    assert_true(kv_check(s->c->x->kv));
    kvik_cache_close(s->c);
    kvik_cache_close(s->plain);
    kvik_cache_close(s->helper);
    kvik_model_close(s->m);
}

static inline void finish(struct asked *const *a, uint32_t n)
{
    kvik_request *r[MOST];
    for (uint32_t i = 0; i < n; i++)
        r[i] = a[i]->request;
    int left;
    while ((left = kvik_request_step(r, n)) > 0)
        ;
    assert_int_equal(left, 0);
}

/* What a callback counts, and the request that it tries to disturb. */
struct trap {
    uint32_t left;
    kvik_request **self;
    kvik_cache *c;
};
