/* test_parked.c - a text that a generation was ended in goes on with kvik_prompt.n_new: the ids, text, logits, scores and
 * ends are those of one generation, wherever it was cut, for every cache and way of decoding that can do it. */
#include "requests.h"

static const struct {
    const char *model, *assistant;
    kvik_cache_config config;
} scenes[] = {
    {"llama-mha", "llama-mha", {.cache_implementation = "dynamic"}},
    {"llama-mha", "llama-mha", {.cache_implementation = "static", .step_tokens = 16}},
    {"llama-mha",
     "llama-mha",
     {.cache_implementation = "quantized",
      .cache_config = "{\"nbits\": 4, \"residual_length\": 8, \"q_group_size\": 16}"}},
    {"gemma2", "gemma2", {.cache_implementation = "offloaded", .step_tokens = 24}},
    {"mistral",
     "mistral",
     {.cache_implementation = "quantized",
      .cache_config =
          "{\"backend\": \"hqq\", \"nbits\": 4, \"residual_length\": 4, \"q_group_size\": 16}"}},
    {"phi3", /* its rope changes at 32 tokens, inside these texts */
     "phi3",
     {.cache_implementation = "quantized",
      .cache_config = "{\"nbits\": 4, \"residual_length\": 8, \"q_group_size\": 16}"}},
    {"llama-dynamic", "llama-dynamic", {.cache_implementation = "dynamic"}},
    {"mamba2", "llama-mha", {.cache_implementation = "dynamic", .step_tokens = 24}},
    {"gpt2", "gpt2", {.cache_implementation = "dynamic", .no_prefix_cache = true}},
};

static const char *const names[] = {"greedy",         "sample",   "penalties",         "lookup",
                                    "sampled lookup", "assisted", "sampled, assisted", "oracle"};

static const char *scene; /* the model and cache of the present scene */

static bool can_park(const struct way *w)
{
    for (size_t i = 0; i < countof(names); i++)
        if (strcmp(w->name, names[i]) == 0) return true;
    return false;
}

/* Compares what the second part generated with the rows of the whole text. */
static void same_end(const struct asked *a, const kvik_result *r, const size_t *cut)
{
    const kvik_result *w = a->want;
    size_t bytes = w->vocab * sizeof(float);
    assert_int_equal(r->n_rows, w->n_rows);
    assert_int_equal(r->logit_steps, w->logit_steps);
    for (uint32_t i = 0; i < w->n_rows; i++) {
        const kvik_row *got = r->row[i], *want = w->row[i];
        assert_int_equal(got->n_prompt, want->n_prompt);
        if (got->n != want->n || memcmp(got->ids, want->ids, want->n * sizeof *want->ids) != 0)
            fail_msg("%s, %s: row %u, cut after %zu, has other tokens", scene, a->way->name, i,
                     cut[i]);
        assert_int_equal(got->finish, want->finish);
        if (want->text) assert_string_equal(got->text, want->text);
        for (size_t s = cut[i]; s < want->n - want->n_prompt; s++) {
            size_t at = (s * w->logit_rows + i) * w->vocab;
            if (memcmp(r->logits + at, w->logits + at, bytes) != 0)
                fail_msg("%s, %s: row %u, cut after %zu: other logits at %zu", scene, a->way->name,
                         i, cut[i], s);
            if (memcmp(r->scores + at, w->scores + at, bytes) != 0)
                fail_msg("%s, %s: row %u, cut after %zu: other scores at %zu", scene, a->way->name,
                         i, cut[i], s);
        }
    }
}

/* Generates the text of a request again, from the tokens before a random cut of each row. */
static bool go_on(struct asked *a, kvik_cache *c, uint32_t *seed)
{
    kvik_prompt p[2];
    kvik_result *r;
    size_t cut[2];
    uint32_t cuts = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const kvik_row *row = a->want->row[i];
        cut[i] = random_below(seed, (uint32_t)(row->n - row->n_prompt));
        cuts += cut[i] > 0;
        p[i] = (kvik_prompt){
            .size = sizeof p[0], .ids = row->ids, .n = row->n_prompt + cut[i], .n_new = cut[i]};
    }
    if (kvik_generate(c, &a->g, p, a->n, &a->hooks, &r) < 0)
        fail_msg("%s: %s", a->way->name, kvik_last_error());
    same_end(a, r, cut);
    kvik_result_free(r);
    return cuts > 0;
}

static void every_way(void **state)
{
    (void)state;
    uint32_t n_cut = 0;
    for (size_t s = 0; s < countof(scenes); s++) {
        char path[2][256];
        uint32_t seed = 11 + (uint32_t)s;
        snprintf(path[0], sizeof *path, "tests/golden/models/%s", scenes[s].model);
        snprintf(path[1], sizeof *path, "tests/golden/models/%s", scenes[s].assistant);
        kvik_model *m = open_model(path[0]), *small = open_model(path[1]);
        kvik_cache_config k = scenes[s].config;
        char called[100];
        snprintf(called, sizeof called, "%s %s", scenes[s].model, k.cache_implementation);
        scene = called;
        k.size = sizeof k;
        k.max_cache_len = TEXT + 24;
        k.max_sequences = 16;
        k.compute = "exact";
        kvik_cache *c = open_cache(m, &k), *other = open_cache(m, &k);
        kvik_cache_config h = {
            .size = sizeof h, .max_cache_len = TEXT + 24, .max_sequences = 6, .compute = "exact"};
        kvik_cache *helper = open_cache(small, &h);
        for (uint32_t i = 0; i < countof(ways); i++)
            for (uint32_t round = 0; can_park(&ways[i]) && round < 4; round++) {
                struct asked a;
                draw(&a, m, &ways[i], helper, &seed);
                a.g.max_new_tokens = 4 + random_below(&seed, 16);
                alone(&a, other);
                n_cut += go_on(&a, round % 2 ? c : other, &seed);
                forget(&a);
            }
        kvik_cache_close(helper);
        kvik_cache_close(other);
        kvik_cache_close(c);
        kvik_model_close(small);
        kvik_model_close(m);
    }
    assert_true(n_cut > countof(scenes) * countof(names) * 2);
}

/* A request is ended while it decodes, its sequence is dropped, and its tokens start again beside others. */
static void parked(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, (kvik_cache_config){.max_sequences = 16});
    for (uint32_t after = 1; after < 9; after++) {
        struct asked *a = ask(&s, 1, 12), *beside = ask(&s, 4, 12);
        kvik_result *r, *again;
        kvik_request *both[2];
        kvik_prompt p[2];
        start(a, s.c);
        for (uint32_t i = 0; i < after + 8; i++)
            assert_in_range(kvik_request_step(&a->request, 1), 0, 1);
        if (kvik_request_end(a->request, &r) < 0) fail_msg("%s", kvik_last_error());
        kvik_request_free(a->request);
        for (uint32_t i = 0; i < r->n_rows; i++)
            p[i] = (kvik_prompt){.size = sizeof *p,
                                 .ids = r->row[i]->ids,
                                 .n = r->row[i]->n,
                                 .n_new = r->row[i]->n - r->row[i]->n_prompt};
        bool over = p[0].n_new == 12;
        start(beside, s.c);
        if (!over) {
            assert_int_equal(kvik_request_start(s.c, &a->g, p, r->n_rows, &a->hooks, &a->request),
                             0);
            both[0] = a->request;
            both[1] = beside->request;
            while (kvik_request_step(both, 2) > 0)
                ;
            if (kvik_request_end(a->request, &again) < 0) fail_msg("%s", kvik_last_error());
            for (uint32_t i = 0; i < again->n_rows; i++) {
                assert_int_equal(again->row[i]->n, a->want->row[i]->n);
                assert_memory_equal(again->row[i]->ids, a->want->row[i]->ids,
                                    again->row[i]->n * sizeof(int32_t));
            }
            kvik_result_free(again);
            kvik_request_free(a->request);
        }
        kvik_result_free(r);
        finish(&beside, 1);
        end(beside);
    }
    stage_close(&s);
}

static void refused(kvik_cache *c, const kvik_generation *g, const kvik_prompt *p, int code,
                    const char *why)
{
    kvik_result *r;
    assert_int_equal(kvik_generate(c, g, p, 1, NULL, &r), code);
    if (!strstr(kvik_last_error(), why)) fail_msg("%s", kvik_last_error());
}

/* What cannot go on is refused, before anything is computed. */
static void refusals(void **state)
{
    (void)state;
    struct stage s;
    int32_t ids[] = {5, 6, 7, 8};
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 4, .n_new = 2};
    stage_open(&s, (kvik_cache_config){.max_sequences = 16});
    for (uint32_t i = 0; i < countof(ways); i++) {
        kvik_generation g = options(s.m, ways[i].json);
        bool many =
            strcmp(ways[i].name, "samples") == 0; /* rows of one prompt: the same new tokens */
        if (!can_park(&ways[i]) && !many) refused(s.c, &g, &p, KVIK_UNSUPPORTED, "n_new is for");
        kvik_generation_done(&g);
    }
    kvik_generation g = options(s.m, "{\"max_new_tokens\": 2}");
    refused(s.c, &g, &p, KVIK_ARG, "nothing is left to generate");
    g.max_new_tokens = 9;
    g.eos_token_id[g.n_eos++] = 7; /* a new token */
    refused(s.c, &g, &p, KVIK_ARG, "the text is complete");
    g.n_eos = 0;
    p.n_new = 4;
    refused(s.c, &g, &p, KVIK_ARG, "the prompt needs one at least");
    p.n_new = SIZE_MAX;
    refused(s.c, &g, &p, KVIK_ARG, "the prompt needs one at least");
    p.ids = NULL;
    refused(s.c, &g, &p, KVIK_ARG, "there are no ids");
    p.ids = ids;
    p.n_new = 1;
    p.attention_mask = (const uint8_t[]){1, 1, 1, 0};
    refused(s.c, &g, &p, KVIK_ARG, "hides one of the new tokens");
    kvik_generation_done(&g);
    stage_close(&s);
}

/* Without a new token the request gives back what it began with. */
static void ended_at_once(void **state)
{
    (void)state;
    struct stage s;
    int32_t ids[] = {5, 6, 7, 8};
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 4, .n_new = 3};
    kvik_request *q;
    kvik_result *r;
    stage_open(&s, (kvik_cache_config){.max_sequences = 4});
    kvik_generation g = options(s.m, "{}");
    assert_int_equal(kvik_request_start(s.c, &g, &p, 1, NULL, &q), 0);
    assert_int_equal(kvik_request_end(q, &r), 0);
    assert_int_equal(r->row[0]->n_prompt, 1);
    assert_int_equal(r->row[0]->n, 4);
    assert_memory_equal(r->row[0]->ids, ids, sizeof ids);
    assert_int_equal(r->new_tokens, 3);
    kvik_result_free(r);
    kvik_request_free(q);
    kvik_generation_done(&g);
    stage_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_way), cmocka_unit_test(parked),
                                       cmocka_unit_test(refusals), cmocka_unit_test(ended_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
