/* test_generate.c - the generation loop and the cache functions of the public API on a tiny model.
 * Lengths, stopping, cancelling, continuing, forks and crops against fresh runs, budgets, errors
 * that change nothing, and no allocation per token. */
#include "base/base.h"
#include "kvik.h"
#include "testing.h"

#define TINY "tests/golden/models/llama-gqa-l3"

static kvik_model *m;
static const int32_t ids[] = {85,  14, 62, 12, 145, 198, 305, 12, 354, 269,
                              383, 40, 41, 42, 43,  44,  45,  46, 47,  48};

static kvik_cache *cache_of(kvik_cache_config c)
{
    kvik_cache *out;
    if (kvik_cache_open(m, &c, &out) < 0) fail_msg("%s", kvik_last_error());
    return out;
}

static kvik_generation config(const char *json)
{
    kvik_generation g;
    assert_int_equal(kvik_generation_init(&g, m), 0);
    if (kvik_generation_set(&g, json) < 0) fail_msg("%s", kvik_last_error());
    return g;
}

static kvik_result *generate(kvik_cache *c, const char *json, const kvik_prompt *p, uint32_t n)
{
    kvik_generation g = config(json);
    kvik_result *r;
    if (kvik_generate(c, &g, p, n, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    kvik_generation_done(&g);
    return r;
}

static void lengths(void **state)
{
    (void)state;
    kvik_cache *c =
        cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4});
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 11};
    static const struct {
        const char *json;
        size_t n;
    } row[] = {{"{\"max_new_tokens\": 7, \"eos_token_id\": null}", 18},
               {"{\"max_length\": 15, \"eos_token_id\": null}", 15},
               {"{\"eos_token_id\": null}", 31}, /* the default is 20 new tokens */
               {"{\"max_new_tokens\": 1}", 12}};
    for (size_t i = 0; i < countof(row); i++) {
        kvik_result *r = generate(c, row[i].json, &p, 1);
        assert_int_equal(r->row[0]->n, row[i].n);
        assert_int_equal(r->row[0]->finish, KVIK_FINISH_LENGTH);
        kvik_result_free(r);
    }
    kvik_generation g = config("{\"max_length\": 11}");
    kvik_result *r;
    assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &r), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "11"));
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static void eos(void **state)
{
    (void)state;
    kvik_cache *c =
        cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4});
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 11};
    kvik_result *r = generate(c, "{\"max_new_tokens\": 12, \"eos_token_id\": null}", &p, 1);
    int32_t third = r->row[0]->ids[13];
    size_t at = 11;
    while (r->row[0]->ids[at] != third)
        at++;
    char json[128];
    snprintf(json, sizeof json, "{\"max_new_tokens\": 12, \"eos_token_id\": [%d, 383]}", third);
    kvik_result *e = generate(c, json, &p, 1);
    assert_int_equal(e->row[0]->finish, KVIK_FINISH_EOS);
    assert_int_equal(e->row[0]->n, at + 1); /* the eos token is part of the result */
    kvik_result_free(r);
    kvik_result_free(e);
    kvik_cache_close(c);
}

static bool stop_after(void *ctx, uint32_t row, int32_t id, const char *text)
{
    (void)row, (void)text;
    int *left = ctx;
    return id < 0 || --*left > 0;
}

static void cancel_keeps_the_chat(void **state)
{
    (void)state;
    kvik_cache *c =
        cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4});
    kvik_seq s;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 11, .seq = s};
    kvik_generation g = config("{\"max_new_tokens\": 30, \"eos_token_id\": null}");
    int left = 5;
    kvik_hooks h = {.size = sizeof h, .on_token = stop_after, .ctx = &left};
    kvik_result *r;
    assert_int_equal(kvik_generate(c, &g, &p, 1, &h, &r), 0);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_CANCELLED);
    assert_int_equal(r->row[0]->n, 16);
    assert_int_equal(kvik_cache_length(c, s), 15); /* the last token is not yet cached */
    /* Continuing from there gives the tokens of one uninterrupted run. */
    kvik_prompt more = {.size = sizeof more, .ids = r->row[0]->ids, .n = r->row[0]->n, .seq = s};
    kvik_result *a = generate(c, "{\"max_new_tokens\": 6, \"eos_token_id\": null}", &more, 1);
    assert_int_equal(a->row[0]->reused, 15);
    kvik_prompt fresh = {.size = sizeof fresh, .ids = ids, .n = 11};
    kvik_result *b = generate(c, "{\"max_new_tokens\": 11, \"eos_token_id\": null}", &fresh, 1);
    assert_int_equal(a->row[0]->n, b->row[0]->n);
    assert_memory_equal(a->row[0]->ids, b->row[0]->ids, b->row[0]->n * sizeof(int32_t));
    kvik_result_free(r);
    kvik_result_free(a);
    kvik_result_free(b);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static void diverging_prefix(void **state)
{
    (void)state;
    kvik_cache *c =
        cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4});
    kvik_seq s;
    int32_t other[20];
    memcpy(other, ids, sizeof other);
    other[9] = 77;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 20, .seq = s},
                q = {.size = sizeof(kvik_prompt), .ids = other, .n = 20, .seq = s},
                fresh = {.size = sizeof(kvik_prompt), .ids = other, .n = 20};
    const char *json = "{\"max_new_tokens\": 5, \"eos_token_id\": null, \"output_logits\": true}";
    kvik_result_free(generate(c, json, &p, 1));
    kvik_result *a = generate(c, json, &q, 1), *b = generate(c, json, &fresh, 1);
    assert_int_equal(a->row[0]->reused, 9);
    assert_memory_equal(a->logits, b->logits, 5 * (size_t)a->vocab * sizeof(float));
    kvik_result_free(a);
    kvik_result_free(b);
    kvik_cache_close(c);
}

/* Fork, crop and reorder, with windows and the codec hook, against forwards of fresh sequences. */
/* Llama 4 counts the masked columns before a prompt, in the same way for every way to compute it. */
static void padding_counts(void **state)
{
    (void)state;
    static const uint8_t mask[20] = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const char *const ways[] = {
        "{\"num_beams\": 3, \"use_cache\": true", "{\"num_beams\": 3, \"use_cache\": false",
        "{\"use_cache\": true", "{\"use_cache\": false", "{\"use_cache\": true"};
    kvik_model *was = m;
    kvik_result *r[5];
    assert_int_equal(kvik_model_open("tests/golden/models/llama4", &m), 0);
    kvik_cache *c =
        cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4});
    for (int i = 0; i < 5; i++) {
        char json[160];
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 20, .attention_mask = mask};
        snprintf(json, sizeof json, "%s%s", ways[i],
                 ", \"max_new_tokens\": 14, \"eos_token_id\": null, \"output_logits\": true}");
        /* An empty sequence of the caller. */
        if (i == 4) assert_int_equal(kvik_cache_new(c, &p.seq), 0);
        r[i] = generate(c, json, &p, 1);
    }
    size_t n = 14 * (size_t)r[0]->vocab * sizeof(float);
    assert_memory_equal(r[0]->logits, r[1]->logits, 3 * n);
    assert_memory_equal(r[2]->logits, r[3]->logits, n);
    assert_memory_equal(r[2]->logits, r[4]->logits, n);
    for (int i = 0; i < 5; i++)
        kvik_result_free(r[i]);
    kvik_cache_close(c);
    kvik_model_close(m);
    m = was;
}

/* Two batch rows with the same sequence are refused before either changes. */
static void twice_in_a_call(void **state)
{
    (void)state;
    kvik_cache *c =
        cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4});
    kvik_seq s;
    kvik_generation g = config("{\"max_new_tokens\": 3, \"eos_token_id\": null}");
    kvik_result *r;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = 9};
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = ids + 3, .n = 5, .seq = s},
                        {.size = sizeof(kvik_prompt), .ids = ids, .n = 5, .seq = s}};
    assert_int_equal(kvik_generate(c, &g, p, 2, NULL, &r), KVIK_ARG);
    assert_int_equal(kvik_cache_length(c, s), 9);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static void operations(void **state)
{
    (void)state;
    static const char *const configs[] = {NULL, "{\"sliding_window\": 5}",
                                          "{\"backend\": \"shuffle\"}",
                                          "{\"sliding_window\": 40, \"backend\": \"shuffle\"}"};
    uint32_t vocab = kvik_model_vocab(m);
    int32_t long_ids[300];
    for (int i = 0; i < 300; i++)
        long_ids[i] = ids[(i * 7 + i / 20) % 20];
    float *a = malloc(vocab * sizeof *a), *b = malloc(vocab * sizeof *b);
    for (size_t k = 0; k < countof(configs); k++) {
        kvik_cache *c = cache_of((kvik_cache_config){
            .size = sizeof(kvik_cache_config), .max_sequences = 6, .cache_config = configs[k]});
        kvik_seq s[3], f;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(kvik_cache_new(c, &s[i]), 0);
            kvik_span span = {.size = sizeof span, .seq = s[i], .ids = long_ids + i, .n = 250};
            assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
        }
        assert_int_equal(kvik_cache_fork(c, s[1], &f), 0);
        assert_int_equal(kvik_cache_crop(c, f, 201), 0);
        assert_int_equal(kvik_cache_crop(c, f, -1), 0);
        assert_int_equal(kvik_cache_length(c, f), 200);
        assert_int_equal(kvik_cache_crop(c, f, 1000), 0); /* beyond the end: all stay */
        assert_int_equal(kvik_cache_length(c, f), 200);
        assert_int_equal(kvik_cache_crop(c, f, -201), KVIK_ARG);
        assert_int_equal(kvik_cache_reorder(c, s, (uint32_t[]){1, 2, 0}, 3), 0);
        const struct {
            kvik_seq seq;
            int from, len;
        } now[] = {{s[0], 1, 250}, {s[1], 2, 250}, {s[2], 0, 250}, {f, 1, 200}};
        for (size_t i = 0; i < countof(now); i++) {
            kvik_seq fresh;
            int32_t next = 33;
            assert_int_equal(kvik_cache_new(c, &fresh), 0);
            kvik_span whole = {.size = sizeof whole,
                               .seq = fresh,
                               .ids = long_ids + now[i].from,
                               .n = (uint32_t)now[i].len};
            assert_int_equal(kvik_forward(c, &whole, 1, false, NULL), 0);
            kvik_span one = {.size = sizeof one, .seq = fresh, .ids = &next, .n = 1},
                      other = {.size = sizeof(kvik_span), .seq = now[i].seq, .ids = &next, .n = 1};
            assert_int_equal(kvik_forward(c, &one, 1, false, a), 0);
            assert_int_equal(kvik_forward(c, &other, 1, false, b), 0);
            assert_memory_equal(a, b, vocab * sizeof *a);
            kvik_cache_drop(c, fresh);
        }
        kvik_cache_close(c);
    }
    free(a);
    free(b);
}

static void budget(void **state)
{
    (void)state;
    kvik_cache *c;
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    kvik_seq s;
    int32_t many[400];
    for (int i = 0; i < 400; i++)
        many[i] = ids[i % 20];
    c = cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config),
                                     .max_sequences = 2,
                                     .max_cache_len = 512,
                                     .cache_memory = 200 << 10,
                                     .step_tokens = 32});
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = many, .n = 20};
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    kvik_cache_usage(c, &before);
    span.n = 400; /* several steps; the budget ends in the middle */
    span.ids = many;
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), KVIK_FULL);
    kvik_cache_usage(c, &after);
    assert_int_equal(kvik_cache_length(c, s), 20);
    assert_int_equal(after.bytes, before.bytes);
    assert_true(after.need > 0);
    span.n = 10;
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    kvik_cache_close(c);
}

/* Metadata is part of the budget.  What a sequence uses of it grows with its tokens, and ends with it. */
static void metadata(void **state)
{
    (void)state;
    kvik_usage u = {.size = sizeof u};
    kvik_seq s, f;
    kvik_cache *c = cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                 .max_sequences = 2,
                                                 .max_cache_len = 512,
                                                 .no_prefix_cache = true,
                                                 .cache_memory = 400 << 10});
    assert_int_equal(kvik_cache_usage(c, &u), 0);
    uint64_t fixed = u.metadata, of_one;
    assert_true(fixed > 0);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = 20};
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    assert_int_equal(kvik_cache_usage(c, &u), 0);
    of_one = u.metadata - fixed;
    assert_true(of_one >= 2 * 20 * sizeof(int32_t));
    assert_int_equal(kvik_cache_fork(c, s, &f), 0);
    assert_int_equal(kvik_cache_usage(c, &u), 0);
    assert_int_equal(u.metadata, fixed + 2 * of_one);
    assert_true(u.bytes + u.reserved + u.metadata <= u.budget);
    assert_int_equal(kvik_cache_drop(c, f), 0);
    assert_int_equal(kvik_cache_drop(c, s), 0);
    assert_int_equal(kvik_cache_usage(c, &u), 0);
    assert_int_equal(u.metadata, fixed);
    kvik_cache_close(c);
}

static void static_overflow(void **state)
{
    (void)state;
    kvik_cache *c = cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                 .max_sequences = 2,
                                                 .cache_implementation = "static",
                                                 .max_cache_len = 24});
    kvik_seq s;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = 20};
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    span.n = 5;
    assert_true(kvik_forward(c, &span, 1, false, NULL) < 0);
    assert_non_null(strstr(kvik_last_error(), "24"));
    assert_int_equal(kvik_cache_length(c, s), 20);
    span.n = 4;
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 20};
    kvik_generation g = config("{\"max_new_tokens\": 6, \"eos_token_id\": null}");
    kvik_result *r;
    /* The cache is too small: 25 rows are needed. */
    assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &r), KVIK_FULL);
    g.max_new_tokens = 5;
    assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &r), 0);
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static void errors(void **state)
{
    (void)state;
    kvik_cache *c;
    kvik_model *none;
    kvik_seq s;
    assert_int_equal(kvik_model_open("/no/such/model", &none), KVIK_NOTFOUND);
    assert_non_null(strstr(kvik_last_error(), "/no/such/model"));
    assert_true(kvik_cache_open(m,
                                &(kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                     .cache_implementation = "dynamc"},
                                &c) < 0);
    assert_non_null(strstr(kvik_last_error(), "dynamic"));
    assert_true(kvik_cache_open(m,
                                &(kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                     .cache_config = "{\"window\": 4}"},
                                &c) < 0);
    assert_true(kvik_cache_open(
                    m, &(kvik_cache_config){.size = sizeof(kvik_cache_config), .cache_config = "{"},
                    &c) < 0);
    assert_true(kvik_cache_open(
                    m,
                    &(kvik_cache_config){.size = sizeof(kvik_cache_config), .compute = "precise"},
                    &c) < 0);
    assert_true(
        kvik_cache_open(
            m, &(kvik_cache_config){.size = sizeof(kvik_cache_config), .isa = "avx1024"}, &c) < 0);
    assert_true(
        kvik_cache_open(
            m, &(kvik_cache_config){.size = sizeof(kvik_cache_config), .cache_memory = 1}, &c) < 0);
    c = cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 2});
    assert_int_equal(kvik_cache_new(c, &s), 0);
    int32_t bad = 384;
    kvik_span span = {.size = sizeof span, .seq = s, .ids = &bad, .n = 1};
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "384"));
    kvik_span twice[2] = {{.size = sizeof(kvik_span), .seq = s, .ids = ids, .n = 2},
                          {.size = sizeof(kvik_span), .seq = s, .ids = ids, .n = 2}};
    assert_true(kvik_forward(c, twice, 2, false, NULL) < 0);
    assert_int_equal(kvik_cache_length(c, s), 0);
    kvik_cache_drop(c, s);
    assert_int_equal(kvik_cache_length(c, s), KVIK_STALE);
    assert_true(kvik_forward(c, &span, 1, false, NULL) < 0);
    assert_true(kvik_cache_drop(c, s) < 0);
    kvik_cache_close(c);
}

struct counter {
    uint64_t at[64];
    int n;
};
static bool count_calls(void *ctx, uint32_t row, int32_t id, const char *text)
{
    (void)row, (void)id, (void)text;
    struct counter *k = ctx;
    if (k->n < 64) k->at[k->n++] = mem_calls();
    return true;
}

static void no_allocation_per_token(void **state)
{
    (void)state;
    static const char *const impl[] = {"dynamic", "static"};
    for (size_t i = 0; i < countof(impl); i++) {
        kvik_cache *c = cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                     .max_sequences = 2,
                                                     .cache_implementation = impl[i],
                                                     .max_cache_len = 256});
        kvik_generation g =
            config("{\"max_new_tokens\": 50, \"eos_token_id\": null, \"do_sample\": true, "
                   "\"top_p\": 0.9, \"repetition_penalty\": 1.1}");
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 11};
        struct counter k = {0};
        kvik_hooks h = {.size = sizeof h, .on_token = count_calls, .ctx = &k};
        kvik_result *r;
        assert_int_equal(kvik_generate(c, &g, &p, 1, &h, &r), 0);
        assert_true(k.n >= 50);
        assert_int_equal(k.at[0], k.at[49]);
        kvik_result_free(r);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

static void sampling_is_seeded(void **state)
{
    (void)state;
    kvik_cache *c =
        cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 8});
    kvik_prompt p[4];
    for (int i = 0; i < 4; i++)
        p[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = ids + i, .n = 10 + (size_t)i};
    const char *json =
        "{\"max_new_tokens\": 20, \"eos_token_id\": null, \"do_sample\": true, \"seed\": 11}";
    kvik_result *a = generate(c, json, p, 4), *b = generate(c, json, p, 4),
                *one = generate(c, json, p, 1);
    kvik_result *d = generate(
        c, "{\"max_new_tokens\": 20, \"eos_token_id\": null, \"do_sample\": true, \"seed\": 12}", p,
        4);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof(int32_t));
    assert_memory_equal(a->row[0]->ids, one->row[0]->ids, one->row[0]->n * sizeof(int32_t));
    assert_true(memcmp(a->row[0]->ids, d->row[0]->ids, a->row[0]->n * sizeof(int32_t)) != 0);
    kvik_result_free(a);
    kvik_result_free(b);
    kvik_result_free(one);
    kvik_result_free(d);
    kvik_cache_close(c);
}

/* A full batch of the caller's sequences is computed in several steps. When it is cancelled, no
 * sequence has changed. */
static bool at_third(void *ctx, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    return ++*(int *)ctx < 3;
}

static bool stop_pulse(void *ctx)
{
    ++*(int *)ctx;
    return false;
}

/* on_pulse comes with the first token, and ends the text behind it, or a search. */
static void pulse_cancels(void **state)
{
    (void)state;
    kvik_cache *c = cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config)});
    kvik_generation g = config("{\"max_new_tokens\": 9, \"eos_token_id\": []}");
    int32_t text[] = {5, 6, 7};
    kvik_prompt p = {.size = sizeof p, .ids = text, .n = 3};
    kvik_result *r;
    int calls = 0;
    kvik_hooks hooks = {.size = sizeof hooks, .on_pulse = stop_pulse, .ctx = &calls};
    assert_int_equal(kvik_generate(c, &g, &p, 1, &hooks, &r), 0);
    assert_int_equal(r->row[0]->finish, KVIK_FINISH_CANCELLED);
    assert_int_equal(r->row[0]->n, 4);
    assert_int_equal(calls, 1);
    kvik_result_free(r);
    g.num_beams = 2;
    assert_int_equal(kvik_generate(c, &g, &p, 1, &hooks, &r), KVIK_CANCELLED);
    assert_int_equal(calls, 2);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static void full_batch_continued(void **state)
{
    (void)state;
    enum { N = 4, LONG = 60, FED = 10 };
    kvik_cache *c = cache_of((kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                 .max_sequences = N,
                                                 .max_cache_len = 128,
                                                 .step_tokens = 16});
    kvik_generation g = config("{\"max_new_tokens\": 5, \"eos_token_id\": []}");
    int32_t text[N][LONG];
    kvik_prompt p[N];
    kvik_result *r;
    kvik_span span[N];
    int calls = 0;
    kvik_hooks hooks = {.size = sizeof hooks, .on_progress = at_third, .ctx = &calls};
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < LONG; k++)
            text[i][k] = (i * 31 + k * 7) % 380;
        p[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = text[i], .n = LONG};
        assert_int_equal(kvik_cache_new(c, &p[i].seq), 0);
        span[i] = (kvik_span){.size = sizeof(kvik_span), .seq = p[i].seq, .ids = text[i], .n = FED};
    }
    assert_int_equal(kvik_forward(c, span, N, false, NULL), 0);
    assert_int_equal(kvik_generate(c, &g, p, N, &hooks, &r), KVIK_CANCELLED);
    for (int i = 0; i < N; i++)
        assert_int_equal(kvik_cache_length(c, p[i].seq), FED);
    if (kvik_generate(c, &g, p, N, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    for (int i = 0; i < N; i++) {
        kvik_prompt alone = {.size = sizeof alone, .ids = text[i], .n = LONG};
        kvik_cache *own = cache_of((kvik_cache_config){
            .size = sizeof(kvik_cache_config), .max_sequences = 1, .max_cache_len = 128});
        kvik_result *s = generate(own, "{\"max_new_tokens\": 5, \"eos_token_id\": []}", &alone, 1);
        assert_int_equal(r->row[i]->reused, FED);
        assert_int_equal(r->row[i]->n, s->row[0]->n);
        assert_memory_equal(r->row[i]->ids, s->row[0]->ids, s->row[0]->n * sizeof *ids);
        kvik_result_free(s);
        kvik_cache_close(own);
    }
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

int main(void)
{
    if (kvik_model_open(TINY, &m) < 0) {
        fprintf(stderr, "%s\n", kvik_last_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(eos),
        cmocka_unit_test(cancel_keeps_the_chat),
        cmocka_unit_test(diverging_prefix),
        cmocka_unit_test(padding_counts),
        cmocka_unit_test(twice_in_a_call),
        cmocka_unit_test(operations),
        cmocka_unit_test(budget),
        cmocka_unit_test(metadata),
        cmocka_unit_test(static_overflow),
        cmocka_unit_test(errors),
        cmocka_unit_test(no_allocation_per_token),
        cmocka_unit_test(sampling_is_seeded),
        cmocka_unit_test(pulse_cancels),
        cmocka_unit_test(full_batch_continued),
    };
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    kvik_model_close(m);
    return e;
}
