/* test_padded_generate.c - generate() over a padded batch: the four ways of Transformers to
 * continue a batch, rows that end early, new ids, and the end of a text over a sink cache. */
#include "test_padded.h"

static void expect_rows(const kvik_result *r, const kvik_result *want, uint32_t skip)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_int_equal(r->row[i]->n, want->row[i]->n - skip);
        assert_memory_equal(r->row[i]->ids, want->row[i]->ids + skip,
                            r->row[i]->n * sizeof(int32_t));
    }
    assert_memory_equal(r->logits, want->logits,
                        (size_t)r->steps * ROWS * r->vocab * sizeof(float));
}

static void continuations(const char *model, const char *implementation, uint32_t beams,
                          uint32_t lookup)
{
    struct bench t;
    kvik_cache_config k = SMALL;
    kvik_generation g;
    kvik_result *want, *r, *again;
    uint32_t past = 5;
    int32_t head[ROWS * 5], tail[ROWS * 4];
    k.cache_implementation = implementation;
    k.max_sequences = 16;
    bench_open(&t, model, &k);
    must(kvik_generation_init(&g, t.m));
    g.n_eos = 0;
    g.do_sample = false;
    g.num_beams = beams;
    g.prompt_lookup_num_tokens = lookup;
    g.return_dict_in_generate = true;
    g.max_new_tokens = 4;
    g.output_logits = beams == 1;
    kvik_inputs full = {
        .size = sizeof full, .ids = t.ids, .n = WIDE, .attention_mask = LEFT, .width = WIDE};
    must(kvik_batch_generate(t.b, &g, &full, NULL, &want));
    assert_int_equal(kvik_batch_length(t.b), WIDE + 3);
    /* The same call again: more columns are cached than there are ids. */
    refused(kvik_batch_generate(t.b, &g, &full, NULL, &r), KVIK_ARG, "9 ids for a batch of 12");
    must(kvik_batch_crop(t.b, WIDE)); /* the ids equal the cached ones */
    must(kvik_batch_generate(t.b, &g, &full, NULL, &again));
    for (uint32_t i = 0; i < ROWS; i++)
        if (strcmp(implementation, "quantized") && beams == 1)
            assert_int_equal(again->row[i]->reused, again->row[i]->n_prompt - 1 -
                                                        (i == 0   ? 4
                                                         : i == 2 ? 2
                                                                  : 0));
    if (beams == 1) expect_rows(again, want, 0);
    kvik_result_free(again);
    /* A part is cached, and full ids follow. */
    uint8_t part[ROWS * 5];
    for (uint32_t i = 0; i < ROWS; i++) {
        memcpy(head + i * past, t.ids + i * WIDE, past * sizeof *head);
        memcpy(part + i * past, LEFT + i * WIDE, past);
        memcpy(tail + i * 4, t.ids + i * WIDE + past, 4 * sizeof *tail);
    }
    kvik_inputs first = {.size = sizeof first,
                         .ids = head,
                         .n = past,
                         .attention_mask = part,
                         .width = past,
                         .logits_to_keep = 1};
    count(part, past, past, t.pos);
    first.position_ids = t.pos;
    must(kvik_batch_reset(t.b));
    must(kvik_batch_forward(t.b, &first, NULL));
    must(kvik_batch_generate(t.b, &g, &full, NULL, &r));
    if (beams == 1) expect_rows(r, want, 0);
    kvik_result_free(r);
    /* new ids with a mask over everything */
    kvik_inputs more = {
        .size = sizeof more, .ids = tail, .n = 4, .attention_mask = LEFT, .width = WIDE};
    must(kvik_batch_reset(t.b));
    must(kvik_batch_forward(t.b, &first, NULL));
    must(kvik_batch_generate(t.b, &g, &more, NULL, &r));
    assert_int_equal(r->row[0]->n_prompt, 4);
    assert_int_equal(r->row[0]->seq, 0);
    if (beams == 1) expect_rows(r, want, past);
    assert_int_equal(kvik_batch_length(t.b), WIDE + 3);
    kvik_result_free(r);
    /* And new ids without a mask. */
    must(kvik_batch_crop(t.b, past));
    more.attention_mask = NULL;
    refused(kvik_batch_generate(t.b, &g, &more, NULL, &r), KVIK_ARG,
            "4 ids for a batch of 5 cached columns are not the whole text");
    more.ids = t.ids + 1;
    more.n = 8;
    refused(kvik_batch_generate(t.b, &g, &more, NULL, &r), KVIK_ARG,
            "the 8 ids differ from the 5 cached columns");
    more.attention_mask = LEFT;
    more.width = 7;
    refused(kvik_batch_generate(t.b, &g, &more, NULL, &r), KVIK_ARG,
            "7 columns for 8 ids after 5 cached; 8 if the ids are the whole text, 13 if they are "
            "new");
    assert_int_equal(kvik_batch_length(t.b), past);
    kvik_result_free(want);
    kvik_generation_done(&g);
    bench_close(&t);
}

static void test_continuations(void **state)
{
    (void)state;
    continuations("llama-mha", "dynamic", 1, 0);
    continuations("llama-mha", "static", 1, 0);
    continuations("mistral", "dynamic", 1, 0);
    continuations("gpt2", "dynamic", 1, 0);
    continuations("llama4", "dynamic", 1, 0);
    continuations("llama-mha", "dynamic", 2, 0);
    continuations("llama-mha", "dynamic", 1, 3);
}

/* Rows that end early: later columns are masked, and a full text with another mask is recomputed. */
static void test_early_end(void **state)
{
    (void)state;
    struct bench t;
    kvik_generation g;
    kvik_result *r, *again;
    uint8_t mask[ROWS * MOST];
    bench_open(&t, "llama-mha", &SMALL);
    must(kvik_generation_init(&g, t.m));
    g.do_sample = false;
    g.n_eos = 0;
    g.max_new_tokens = STEPS;
    kvik_inputs in = {
        .size = sizeof in, .ids = t.ids, .n = WIDE, .attention_mask = LEFT, .width = WIDE};
    must(kvik_batch_generate(t.b, &g, &in, NULL, &r));
    g.eos_token_id[0] = r->row[1]->ids[WIDE + 1]; /* row 1 ends after two tokens at the latest */
    g.n_eos = 1;
    kvik_result_free(r);
    must(kvik_batch_reset(t.b));
    must(kvik_batch_generate(t.b, &g, &in, NULL, &r));
    uint32_t n = kvik_batch_length(t.b);
    must(kvik_batch_mask(t.b, mask));
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t fresh = (uint32_t)(r->row[i]->n - WIDE), rows = 0;
        for (uint32_t j = 0; j < n; j++) {
            rows += mask[i * n + j];
            if (j >= WIDE) assert_int_equal(mask[i * n + j], j - WIDE + 1 < fresh);
        }
        assert_int_equal(kvik_cache_length(t.c, kvik_batch_seq(t.b, i)), rows);
    }
    assert_true(r->row[1]->n < WIDE + STEPS);
    /* The sequences as Transformers returns them, padded; the mask marks the padding. */
    uint32_t wide = n + 1;
    int32_t ids[ROWS * MOST];
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0; j < wide; j++) {
            ids[i * wide + j] = j < r->row[i]->n ? r->row[i]->ids[j] : 0;
            mask[i * wide + j] = j < WIDE ? LEFT[i * WIDE + j] : 1;
        }
    g.n_eos = 0;
    g.output_logits = true;
    in = (kvik_inputs){
        .size = sizeof(kvik_inputs), .ids = ids, .n = wide, .attention_mask = mask, .width = wide};
    kvik_batch *fresh;
    kvik_result *want;
    must(kvik_batch_generate(t.b, &g, &in, NULL, &again));
    must(kvik_batch_open(t.c, ROWS, &fresh));
    must(kvik_batch_generate(fresh, &g, &in, NULL, &want));
    expect_rows(again, want, 0);
    kvik_batch_close(fresh);
    kvik_result_free(r);
    kvik_result_free(again);
    kvik_result_free(want);
    kvik_generation_done(&g);
    bench_close(&t);
}

/* New ids: lengths count only them, failures leave the cached tokens, and the cached tokens decide
 * the result. */
static void test_append(void **state)
{
    (void)state;
    struct bench t;
    kvik_generation g;
    kvik_result *r, *want;
    int32_t ids[MOST] = {7, 8, 9};
    uint8_t ones[MOST];
    kvik_seq s;
    bench_open(&t, "llama-mha", &SMALL);
    must(kvik_generation_init(&g, t.m));
    g.do_sample = false;
    g.n_eos = 0;
    g.max_length = 8;
    g.output_logits = true;
    g.repetition_penalty = 1.5; /* the penalty sees the new ids alone */
    memset(ones, 1, sizeof ones);
    feed(&t, LEFT);
    must(kvik_cache_fork(t.c, kvik_batch_seq(t.b, 1), &s));
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 3, .seq = s, .append = true};
    must(kvik_generate(t.c, &g, &p, 1, NULL, &want));
    assert_int_equal(want->row[0]->n, 8);
    assert_int_equal(want->row[0]->n_prompt, 3);
    assert_int_equal(kvik_cache_length(t.c, s), WIDE + 7);
    uint32_t one[] = {1};
    must(kvik_batch_select(t.b, one, 1));
    kvik_inputs in = {
        .size = sizeof in, .ids = ids, .n = 3, .attention_mask = ones, .width = WIDE + 3};
    must(kvik_batch_generate(t.b, &g, &in, NULL, &r));
    assert_memory_equal(r->row[0]->ids, want->row[0]->ids, 8 * sizeof *ids);
    assert_memory_equal(r->logits, want->logits, 5 * t.vocab * sizeof(float));
    g.max_new_tokens = 60; /* as many as the cache has room for */
    kvik_result_free(r);
    in.width += 7;
    must(kvik_batch_generate(t.b, &g, &in, NULL, &r));
    assert_int_equal(kvik_batch_length(t.b), MOST);
    kvik_result_free(r);
    in.width = MOST + 3;
    uint8_t more[MOST + 3];
    memset(more, 1, sizeof more);
    in.attention_mask = more;
    refused(kvik_batch_generate(t.b, &g, &in, NULL, &r), KVIK_LIMIT, "67 tokens, max_cache_len");
    assert_int_equal(kvik_batch_length(t.b), MOST);
    g.num_beams = 2;
    refused(kvik_generate(t.c, &g, &p, 1, NULL, &r), KVIK_UNSUPPORTED, "greedy decoding or");
    assert_int_equal(kvik_cache_length(t.c, s), WIDE + 7);
    kvik_result_free(want);
    kvik_generation_done(&g);
    bench_close(&t);
}

/* Over a sink cache the loop of the Transformers guide passes the last window_length ids. The
 * result equals that of the whole text. */
static void test_sink_crop(void **state)
{
    (void)state;
    struct bench t;
    kvik_cache_config k = SMALL;
    kvik_generation g;
    kvik_result *r[2];
    kvik_batch *b[2];
    int32_t ids[2][2][4 * MOST], given[2 * 4 * MOST];
    uint8_t mask[2 * 4 * MOST];
    k.cache_implementation = "sink";
    k.cache_config = "{\"window_length\": 12, \"num_sink_tokens\": 3}";
    k.max_cache_len = 4 * MOST;
    bench_open(&t, "llama-mha", &k);
    must(kvik_generation_init(&g, t.m));
    g.do_sample = false;
    g.n_eos = 0;
    g.max_new_tokens = 5;
    g.output_logits = true;
    for (int way = 0; way < 2; way++) {
        must(kvik_batch_open(t.c, 2, &b[way]));
        memcpy(ids[way][0], t.ids, 18 * sizeof ***ids);
        memcpy(ids[way][1], t.ids + 5, 18 * sizeof ***ids);
    }
    for (uint32_t turn = 0, n = 18; turn < 14; turn++, n += 9) {
        for (int way = 0; way < 2; way++) {
            uint32_t len = way && turn ? 12 : n;
            for (uint32_t i = 0; i < 2; i++) {
                memcpy(given + i * len, ids[way][i] + n - len, len * sizeof *given);
                memset(mask + i * len, 1, len);
            }
            memset(mask + len, 0, 3); /* the second row is shorter */
            bool whole = len == n;
            kvik_inputs in = {.size = sizeof in,
                              .ids = given,
                              .n = len,
                              .attention_mask = whole ? mask : NULL,
                              .width = whole ? len : 0};
            must(kvik_batch_generate(b[way], &g, &in, NULL, &r[way]));
            for (uint32_t i = 0; i < 2; i++) {
                memcpy(ids[way][i] + n, r[way]->row[i]->ids + len, 5 * sizeof ***ids);
                for (uint32_t u = 0; u < 4; u++) /* the messages of a user */
                    ids[way][i][n + 5 + u] = t.ids[(turn * 5 + u * 3 + i) % (ROWS * WIDE)];
                assert_int_equal(kvik_cache_length(t.c, kvik_batch_seq(b[way], i)), n + 4 - 3 * i);
            }
        }
        assert_memory_equal(r[0]->logits, r[1]->logits, 2 * 5 * t.vocab * sizeof(float));
        kvik_result_free(r[0]);
        kvik_result_free(r[1]);
    }
    kvik_batch_close(b[0]);
    kvik_batch_close(b[1]);
    kvik_generation_done(&g);
    bench_close(&t);
}

/* The rows of a closed batch serve a later prompt that begins alike. */
static void test_closed_batch(void **state)
{
    enum { N = 40 };
    struct bench t;
    kvik_cache_config k = SMALL;
    kvik_generation g;
    kvik_batch *b;
    kvik_result *r;
    int32_t ids[N + 1];
    (void)state;
    bench_open(&t, "llama-mha", &k);
    for (int32_t i = 0; i <= N; i++)
        ids[i] = 5 + i % 7 * 3 + i;
    must(kvik_batch_open(t.c, 1, &b));
    kvik_inputs in = {.size = sizeof in, .ids = ids, .n = N, .logits_to_keep = 1};
    must(kvik_batch_forward(b, &in, NULL));
    kvik_batch_close(b);
    must(kvik_generation_init(&g, t.m));
    g.max_new_tokens = 1;
    kvik_prompt prompt = {.size = sizeof prompt, .ids = ids, .n = N + 1};
    must(kvik_generate(t.c, &g, &prompt, 1, NULL, &r));
    assert_int_equal(r->row[0]->reused, N);
    kvik_result_free(r);
    kvik_generation_done(&g);
    bench_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_continuations), cmocka_unit_test(test_early_end),
        cmocka_unit_test(test_append),        cmocka_unit_test(test_sink_crop),
        cmocka_unit_test(test_closed_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
