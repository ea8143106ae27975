/* test_padded.c - padded batches. A loop written by hand has the bits of kvik_generate, and each
 * row those it has alone. Inputs that the forward of Transformers refuses are refused with the
 * numbers. Outputs of a forward, operations on rows, failures. */
#include "test_padded.h"

static int32_t best(const float *x, uint32_t n)
{
    uint32_t k = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[k]) k = i;
    return (int32_t)k;
}

/* Runs a greedy loop over the public forward: logits [STEPS][ROWS][vocab], chosen ids
 * [STEPS][ROWS]. */
static void by_hand(struct bench *t, const uint8_t *mask, bool last_only, float *logits,
                    int32_t *chosen)
{
    uint32_t width = WIDE, n = WIDE;
    int32_t *ids = t->ids;
    float *all = malloc((size_t)ROWS * WIDE * t->vocab * sizeof *all);
    memcpy(t->mask, mask, ROWS * WIDE);
    for (int step = 0; step < STEPS; step++) {
        float *to = logits + (size_t)step * ROWS * t->vocab;
        count(t->mask, width, n, t->pos);
        kvik_inputs in = {.size = sizeof in,
                          .ids = ids,
                          .n = n,
                          .attention_mask = t->mask,
                          .width = width,
                          .position_ids = t->pos,
                          .logits_to_keep = last_only ? 1 : 0};
        kvik_outputs out = {.size = sizeof out, .logits = last_only ? to : all};
        must(kvik_batch_forward(t->b, &in, &out));
        for (uint32_t i = 0; i < ROWS; i++) {
            uint32_t j = n - 1; /* the last unmasked column */
            while (!t->mask[i * width + width - n + j])
                j--;
            if (!last_only)
                memcpy(to + (size_t)i * t->vocab, all + ((size_t)i * n + j) * t->vocab,
                       t->vocab * sizeof *to);
            chosen[step * ROWS + (int)i] = best(to + (size_t)i * t->vocab, t->vocab);
        }
        for (uint32_t i = ROWS; i-- > 0;) {
            memmove(t->mask + i * (width + 1), t->mask + i * width, width);
            t->mask[i * (width + 1) + width] = 1;
        }
        width++;
        n = 1;
        ids = chosen + step * ROWS;
    }
    free(all);
}

static void generate(struct bench *t, kvik_cache *c, const uint8_t *mask, kvik_result **r)
{
    kvik_generation g;
    kvik_prompt p[ROWS];
    must(kvik_generation_init(&g, t->m));
    g.n_eos = 0;
    g.do_sample = false;
    g.max_new_tokens = STEPS;
    g.output_logits = true;
    for (uint32_t i = 0; i < ROWS; i++)
        p[i] = (kvik_prompt){.size = sizeof(kvik_prompt),
                             .ids = t->ids + i * WIDE,
                             .n = WIDE,
                             .attention_mask = mask + i * WIDE};
    must(kvik_generate(c, &g, p, ROWS, NULL, r));
    kvik_generation_done(&g);
}

static void same_as_generate(const char *model, const char *implementation, const char *config,
                             const uint8_t *mask, bool last_only)
{
    struct bench t;
    kvik_cache_config k = SMALL;
    int32_t chosen[STEPS * ROWS];
    kvik_result *r;
    k.cache_implementation = implementation;
    k.cache_config = config;
    bench_open(&t, model, &k);
    size_t bytes = (size_t)STEPS * ROWS * t.vocab * sizeof(float);
    float *logits = malloc(bytes);
    by_hand(&t, mask, last_only, logits, chosen);
    assert_int_equal(kvik_batch_length(t.b), WIDE + STEPS - 1);
    generate(&t, t.c, mask, &r);
    assert_int_equal(r->steps, STEPS);
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t s = 0; s < STEPS; s++)
            if (r->row[i]->ids[WIDE + s] != chosen[s * ROWS + i])
                fail_msg("%s %s: row %u step %u", model, implementation, i, s);
    if (memcmp(logits, r->logits, bytes) != 0) fail_msg("%s %s: bits", model, implementation);
    kvik_result_free(r);
    free(logits);
    bench_close(&t);
}

static void test_by_hand(void **state)
{
    (void)state;
    static const char *const models[] = {"llama-mha", "mistral", "gemma2", "gpt2",
                                         "gpt-oss",   "llama4",  "phi3",   "mixtral"};
    for (size_t i = 0; i < countof(models); i++)
        same_as_generate(models[i], "dynamic", NULL, LEFT, true);
    same_as_generate("llama-mha", "static", NULL, LEFT, true);
    same_as_generate("gemma3", "hybrid", NULL, LEFT, true);
    same_as_generate("llama-mha", "quantized", "{\"backend\": \"quanto\", \"q_group_size\": 16}",
                     LEFT, true);
    same_as_generate("llama-mha", "sink", "{\"window_length\": 8, \"num_sink_tokens\": 2}", LEFT,
                     true);
    same_as_generate("llama-mha", "offloaded", NULL, LEFT, true);
    same_as_generate("llama-mha", "dynamic", NULL, RIGHT, false);
    same_as_generate("gemma2", "dynamic", NULL, HOLES, false);
    same_as_generate("gpt2", "dynamic", NULL, HOLES, false);
}

/* --- Refusals: messages have the numbers, and nothing changes. */

static void test_refusals(void **state)
{
    (void)state;
    struct bench t;
    uint8_t mask[ROWS * MOST];
    uint32_t at[] = {7, 8}, columns[] = {1, 0}, gone[] = {3};
    int32_t ids[ROWS * 2] = {7, 8, 9, 10, 11, 12}, negative[2] = {0, -4};
    bench_open(&t, "llama-mha", &SMALL);
    feed(&t, LEFT);
    for (uint32_t i = 0; i < ROWS; i++) {
        memcpy(mask + i * (WIDE + 2), LEFT + i * WIDE, WIDE);
        memset(mask + i * (WIDE + 2) + WIDE, 1, 2);
    }
    kvik_inputs good = {.size = sizeof good,
                        .ids = ids,
                        .n = 2,
                        .attention_mask = mask,
                        .width = WIDE + 2},
                in;
    in = good;
    in.width = WIDE;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG,
            "9 columns; 9 are cached and 2 come now, so it needs 11");
    in = good;
    in.cache_position = at;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG,
            "cache_position[0] is 7; 9 columns are cached, so it must be 9");
    in = good;
    in.attention_mask = NULL;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "row 0 column 0 was masked");
    in = good;
    mask[WIDE + 2 + 4] = 0;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "row 1 column 4 was seen");
    mask[WIDE + 2 + 4] = 1;
    mask[2 * (WIDE + 2)] = 1;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "row 2 column 0 was masked");
    mask[2 * (WIDE + 2)] = 0;
    in.embeds = (const float *)(const void *)ids;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "either ids or embeds");
    in = good;
    in.n = 0;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "either ids or embeds");
    in = good;
    in.position_ids = negative;
    in.position_rows = 1;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "row 0 column 1: position -4");
    in.position_rows = 2;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "2 rows for a batch of 3");
    in = good;
    in.logits_to_keep = 3;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "logits_to_keep is 3");
    in = good;
    in.columns = columns;
    in.n_columns = 2;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "must ascend");
    in.columns = NULL; /* room for two columns, and not for all */
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "n_columns is 2");
    in = good;
    ids[3] = (int32_t)t.vocab;
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "vocabulary");
    ids[3] = 10;
    refused(kvik_batch_crop(t.b, -10), KVIK_ARG, "crop by 10 columns, the batch has 9");
    refused(kvik_batch_select(t.b, gone, 1), KVIK_ARG, "row 3 of a batch of 3");
    refused(kvik_batch_repeat(t.b, 3), KVIK_LIMIT, "max_sequences 8");
    assert_int_equal(kvik_batch_length(t.b), WIDE);
    assert_int_equal(kvik_cache_length(t.c, kvik_batch_seq(t.b, 0)), 5);
    must(kvik_batch_forward(t.b, &good, NULL));
    assert_int_equal(kvik_batch_length(t.b), WIDE + 2);
    uint8_t back[ROWS * (WIDE + 2)];
    must(kvik_batch_mask(t.b, back));
    assert_memory_equal(back, mask, sizeof back);
    bench_close(&t);
}

/* --- Outputs of a forward. */

static void test_outputs(void **state)
{
    (void)state;
    static const char *const models[] = {"llama-mha", "gemma2"};
    for (size_t k = 0; k < countof(models); k++) {
        struct bench t;
        uint32_t columns[] = {0, 5, 8};
        bench_open(&t, models[k], &SMALL);
        uint32_t hidden = kvik_model_hidden(t.m), layers = kvik_model_layers(t.m);
        size_t cells = ROWS * WIDE;
        float *all = malloc(cells * t.vocab * sizeof *all), *some = malloc(cells * t.vocab * 4);
        float *h = malloc((layers + 1) * cells * hidden * sizeof *h);
        kvik_inputs in = {
            .size = sizeof in, .ids = t.ids, .n = WIDE, .attention_mask = HOLES, .width = WIDE};
        must(kvik_batch_forward(
            t.b, &in,
            &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = all, .hidden_states = h}));
        for (uint32_t i = 0; i < cells; i++)
            for (uint32_t j = 0; !HOLES[i] && j < t.vocab; j++)
                assert_true(all[i * t.vocab + j] == 0);
        must(kvik_batch_reset(t.b));
        in.columns = columns;
        in.n_columns = 3;
        must(kvik_batch_forward(t.b, &in,
                                &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = some}));
        for (uint32_t i = 0; i < ROWS; i++)
            for (uint32_t j = 0; j < 3; j++)
                assert_memory_equal(some + (i * 3 + j) * t.vocab,
                                    all + (i * WIDE + columns[j]) * t.vocab, t.vocab * 4);
        /* Rows whose only wanted column is masked, and rows where it is not. */
        in.columns = columns + 1;
        in.n_columns = 1;
        columns[1] = 1;
        must(kvik_batch_reset(t.b));
        must(kvik_batch_forward(t.b, &in,
                                &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = some}));
        for (uint32_t i = 0; i < ROWS; i++)
            assert_memory_equal(some + i * t.vocab, all + (i * WIDE + 1) * t.vocab, t.vocab * 4);
        must(kvik_batch_reset(t.b)); /* the input of the first layer is passed back as embeddings */
        in.columns = NULL;
        in.n_columns = 0;
        in.ids = NULL;
        in.embeds = h;
        must(kvik_batch_forward(t.b, &in,
                                &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = some}));
        assert_memory_equal(some, all, cells * t.vocab * sizeof *all);
        free(all);
        free(some);
        free(h);
        bench_close(&t);
    }
}

/* A row whose sequence was changed outside the batch is noticed before anything is read. */
static void test_behind_its_back(void **state)
{
    (void)state;
    struct bench t;
    bench_open(&t, "llama-mha", &SMALL);
    uint32_t heads = kvik_model_heads(t.m), layers = kvik_model_layers(t.m);
    float *attentions = malloc((size_t)layers * ROWS * heads * (WIDE + 1) * sizeof *attentions);
    kvik_inputs in = {.size = sizeof in, .ids = t.ids, .n = WIDE};
    kvik_outputs out = {.size = sizeof out, .attentions = attentions};
    must(kvik_batch_forward(t.b, &in, NULL));
    must(kvik_cache_crop(t.c, kvik_batch_seq(t.b, 2), 4));
    in.n = 1;
    refused(kvik_batch_forward(t.b, &in, &out), KVIK_ARG, "row 2: its sequence has 4 tokens");
    must(kvik_cache_drop(t.c, kvik_batch_seq(t.b, 2)));
    refused(kvik_batch_forward(t.b, &in, &out), KVIK_ARG, "row 2: its sequence has 0 tokens");
    free(attentions);
    bench_close(&t);
}

/* A row that is masked in a whole call computes nothing and has zeros as logits; later it starts in
 * the column of the other rows. */
static void test_idle_rows(void **state)
{
    (void)state;
    struct bench t;
    uint8_t mask[ROWS * (WIDE + 2)] = {0};
    bench_open(&t, "llama4", &SMALL); /* a model that counts padding */
    float *logits = malloc((size_t)ROWS * t.vocab * 4), *want = malloc((size_t)ROWS * t.vocab * 4);
    memset(mask + WIDE, 1, WIDE);
    kvik_inputs in = {.size = sizeof in,
                      .ids = t.ids,
                      .n = WIDE,
                      .attention_mask = mask,
                      .width = WIDE,
                      .logits_to_keep = 1};
    must(kvik_batch_forward(t.b, &in,
                            &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = logits}));
    for (uint32_t i = 0; i < t.vocab; i++)
        assert_true(logits[i] == 0 && logits[2 * t.vocab + i] == 0);
    assert_int_equal(kvik_cache_length(t.c, kvik_batch_seq(t.b, 0)), 0);
    memset(mask, 0, sizeof mask);
    for (uint32_t i = 0; i < ROWS; i++)
        memset(mask + i * (WIDE + 2) + (i == 1 ? 0 : WIDE), 1, i == 1 ? WIDE + 2 : 2);
    in = (kvik_inputs){.size = sizeof(kvik_inputs),
                       .ids = t.ids + 3,
                       .n = 2,
                       .attention_mask = mask,
                       .width = WIDE + 2,
                       .logits_to_keep = 1};
    must(kvik_batch_forward(t.b, &in,
                            &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = logits}));
    must(kvik_batch_reset(t.b)); /* the same columns in one call */
    int32_t ids[ROWS * (WIDE + 2)] = {0};
    for (uint32_t i = 0; i < ROWS; i++) {
        memcpy(ids + i * (WIDE + 2), t.ids + i * WIDE, WIDE * sizeof *ids);
        memcpy(ids + i * (WIDE + 2) + WIDE, t.ids + 3 + i * 2, 2 * sizeof *ids);
    }
    in.ids = ids;
    in.n = WIDE + 2;
    must(kvik_batch_forward(t.b, &in,
                            &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = want}));
    assert_memory_equal(logits, want, (size_t)ROWS * t.vocab * 4);
    free(logits);
    free(want);
    bench_close(&t);
}

/* --- Operations on rows. */

/* Computes the logits of one more column. */
static void next(kvik_batch *b, int32_t id, uint32_t vocab, float *logits)
{
    uint32_t rows = kvik_batch_rows(b), n = kvik_batch_length(b);
    int32_t ids[8], pos[8];
    uint8_t *old = calloc(rows, n + 1), *mask = calloc(rows, n + 1);
    must(kvik_batch_mask(b, old));
    for (uint32_t i = 0; i < rows; i++) {
        memcpy(mask + i * (n + 1), old + i * n, n);
        mask[i * (n + 1) + n] = 1;
        ids[i] = id;
        pos[i] = 0;
        for (uint32_t j = 0; j < n; j++)
            pos[i] += old[i * n + j];
    }
    kvik_inputs in = {.size = sizeof in,
                      .ids = ids,
                      .n = 1,
                      .attention_mask = mask,
                      .width = n + 1,
                      .position_ids = pos};
    must(kvik_batch_forward(b, &in,
                            &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = logits}));
    (void)vocab;
    free(old);
    free(mask);
}

static void operations(const char *model, const char *implementation)
{
    struct bench t;
    kvik_cache_config k = SMALL;
    kvik_batch *d;
    uint32_t beams[] = {2, 2, 0}, pick[] = {1, 0};
    k.cache_implementation = implementation;
    bench_open(&t, model, &k);
    uint32_t v = t.vocab;
    float *want = malloc((size_t)8 * v * 4), *got = malloc((size_t)8 * v * 4);
    feed(&t, LEFT);
    must(kvik_batch_copy(t.b, &d));
    next(d, 9, v, want);
    assert_int_equal(kvik_batch_length(t.b), WIDE);
    must(kvik_batch_crop(d, -1)); /* crop back */
    next(d, 9, v, got);
    assert_memory_equal(got, want, (size_t)ROWS * v * 4);
    must(kvik_batch_crop(d, WIDE));
    must(kvik_batch_crop(d, 1000));
    assert_int_equal(kvik_batch_length(d), WIDE);
    must(kvik_batch_reorder(d, beams));
    next(d, 9, v, got);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_memory_equal(got + i * v, want + beams[i] * v, v * 4);
    kvik_batch_close(d);
    must(kvik_batch_copy(t.b, &d));
    must(kvik_batch_select(d, pick, 2));
    must(kvik_batch_repeat(d, 2));
    assert_int_equal(kvik_batch_rows(d), 4);
    next(d, 9, v, got);
    for (uint32_t i = 0; i < 4; i++)
        assert_memory_equal(got + i * v, want + pick[i / 2] * v, v * 4);
    must(kvik_batch_crop(d, 3)); /* a crop inside the padding of two rows */
    assert_int_equal(kvik_cache_length(t.c, kvik_batch_seq(d, 2)), 0);
    assert_int_equal(kvik_cache_length(t.c, kvik_batch_seq(d, 0)), 3);
    must(kvik_batch_crop(d, 0)); /* none stay, as with kvik_cache_crop */
    assert_int_equal(kvik_batch_length(d), 0);
    assert_int_equal(kvik_cache_length(t.c, kvik_batch_seq(d, 0)), 0);
    kvik_batch_close(d);
    next(t.b, 9, v, got); /* the copied batch continued unchanged */
    assert_memory_equal(got, want, (size_t)ROWS * v * 4);
    must(kvik_batch_reset(t.b));
    assert_int_equal(kvik_batch_length(t.b), 0);
    feed(&t, LEFT);
    next(t.b, 9, v, got);
    assert_memory_equal(got, want, (size_t)ROWS * v * 4);
    free(want);
    free(got);
    bench_close(&t);
}

static void test_operations(void **state)
{
    (void)state;
    operations("llama-mha", "dynamic");
    operations("llama-mha", "static");
    operations("mistral", "dynamic");
    operations("llama4", "dynamic");
    operations("gemma2", "hybrid");
    operations("llama-mha", "quantized");
    operations("llama-mha", "offloaded");
}

/* The second column of a loop allocates nothing, and neither do later ones. */
static void test_steps_allocate_nothing(void **state)
{
    (void)state;
    struct bench t;
    bench_open(&t, "mistral", &SMALL);
    float *logits = malloc((size_t)ROWS * t.vocab * sizeof *logits);
    memset(t.mask, 1, sizeof t.mask);
    for (uint32_t n = 0; n < 40; n++) {
        uint64_t before = mem_calls();
        kvik_inputs in = {.size = sizeof in,
                          .ids = t.ids,
                          .n = 1,
                          .attention_mask = t.mask,
                          .width = n + 1,
                          .logits_to_keep = 1};
        must(kvik_batch_forward(t.b, &in,
                                &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = logits}));
        if (n) assert_int_equal(mem_calls() - before, 0);
    }
    free(logits);
    bench_close(&t);
}

/* The budget runs out: nothing changes. */
static void test_full(void **state)
{
    (void)state;
    struct bench t;
    kvik_cache_config k = SMALL;
    kvik_batch *d, *other[8] = {NULL};
    int e = 0;
    k.step_tokens = 8;
    kvik_model *m;
    must(kvik_model_open("tests/golden/models/llama-mha", &m));
    k.cache_memory = budget_for(m, k, 450 << 10, 3 * ROWS, WIDE + 1); /* 18 blocks */
    kvik_model_close(m);
    bench_open(&t, "llama-mha", &k);
    float *want = malloc((size_t)ROWS * t.vocab * 4), *got = malloc((size_t)ROWS * t.vocab * 4);
    feed(&t, LEFT);
    must(kvik_batch_copy(t.b, &d));
    next(d, 9, t.vocab, want);
    kvik_batch_close(d);
    for (int i = 0; i < 8 && e >= 0; i++) { /* other sequences take the rest */
        kvik_inputs in = {.size = sizeof in, .ids = t.ids, .n = ROWS * WIDE};
        must(kvik_batch_open(t.c, 1, &other[i]));
        e = kvik_batch_forward(other[i], &in, NULL);
        assert_int_equal(kvik_batch_length(other[i]), e < 0 ? 0 : ROWS * WIDE);
    }
    refused(e, KVIK_FULL, "cache");
    next(t.b, 9, t.vocab, got);
    assert_memory_equal(got, want, (size_t)ROWS * t.vocab * 4);
    for (int i = 0; i < 8; i++)
        kvik_batch_close(other[i]);
    free(want);
    free(got);
    bench_close(&t);
}

/* The lengths of the rows, and of the batch. */
static void lengths_are(kvik_cache *c, const kvik_batch *b, uint32_t want)
{
    assert_int_equal(kvik_batch_length(b), want);
    for (uint32_t i = 0; i < kvik_batch_rows(b); i++)
        assert_int_equal(kvik_cache_length(c, kvik_batch_seq(b, i)), want);
}

/* Crops (keep > 0) or resets a batch whose rows share their first columns, under a budget in which other sequences have
 * taken what the sharing saves.  Returns the code of the call. */
static int shared_cut(kvik_model *m, const char *implementation, uint64_t memory, uint32_t keep)
{
    enum { FIRST = 45 };
    kvik_cache_config k = SMALL;
    kvik_cache *c;
    kvik_batch *b, *more[8] = {NULL};
    int32_t ids[FIRST];
    k.cache_implementation = implementation;
    k.cache_memory = memory;
    if (kvik_cache_open(m, &k, &c) < 0) return KVIK_LIMIT;
    for (int i = 0; i < FIRST; i++)
        ids[i] = 5 + i * 3;
    kvik_inputs in = {.size = sizeof in, .ids = ids, .n = FIRST};
    int e = kvik_batch_open(c, 1, &b);
    if (e < 0) b = NULL;
    if (e >= 0 && ((e = kvik_batch_forward(b, &in, NULL)) < 0 || (e = kvik_batch_repeat(b, 4)) < 0))
        e = KVIK_LIMIT;
    for (int i = 0; e >= 0 && i < 4 && kvik_batch_open(c, 1, &more[i]) >= 0; i++) {
    }
    if (e >= 0) {
        e = keep ? kvik_batch_crop(b, keep) : kvik_batch_reset(b);
        lengths_are(c, b, e < 0 ? FIRST : keep);
        in.n = 8; /* the batch is whole: its rows go on as far as the static rows reach */
        must(kvik_batch_forward(b, &in, NULL));
    }
    for (int i = 0; i < 4; i++)
        kvik_batch_close(more[i]);
    kvik_batch_close(b);
    kvik_cache_close(c);
    return e;
}

/* A crop or a reset that finds no room for the reserves of all rows changes no row. */
static void test_crop_all_or_none(void **state)
{
    (void)state;
    static const struct {
        const char *model, *implementation;
    } of[] = {{"llama-mha", "static"}, {"gemma2", "hybrid"}, {"jamba", "static"}};
    for (size_t i = 0; i < countof(of); i++)
        for (uint32_t keep = 0; keep <= 20; keep += 20) {
            char path[200];
            uint32_t full = 0, done = 0;
            kvik_model *m;
            snprintf(path, sizeof path, MODELS "%s", of[i].model);
            must(kvik_model_open(path, &m));
            for (uint64_t kb = 400; kb < 6000 && done < 3; kb += 24) {
                int e = shared_cut(m, of[i].implementation, kb << 10, keep);
                full += e == KVIK_FULL;
                done = e < 0 ? 0 : done + 1;
                if (e < 0 && e != KVIK_FULL && e != KVIK_LIMIT) fail_msg("%s", kvik_last_error());
            }
            if (!full || !done) fail_msg("%s: %u refused, %u done", of[i].model, full, done);
            kvik_model_close(m);
        }
}

/* Allocations fail while a crop recomputes rows of a window. */
static void test_crop_no_memory(void **state)
{
    (void)state;
    struct bench t;
    kvik_batch *d;
    int e = -1;
    bench_open(&t, "mistral", &SMALL);
    float *want = malloc((size_t)ROWS * t.vocab * 4), *got = malloc((size_t)ROWS * t.vocab * 4);
    feed(&t, LEFT);
    for (uint32_t i = 0; i < 30; i++)
        next(t.b, (int32_t)(20 + i), t.vocab, got);
    must(kvik_batch_copy(t.b, &d));
    must(kvik_batch_crop(d, WIDE + 1));
    next(d, 7, t.vocab, want);
    kvik_batch_close(d);
    for (int64_t j = 0; e < 0 && j < 100; j++) {
        mem_fail_at(j, false);
        e = kvik_batch_crop(t.b, WIDE + 1);
        mem_fail_at(-1, false);
        if (j == 0) assert_int_equal(e, KVIK_NOMEM);
        assert_int_equal(kvik_batch_length(t.b), WIDE + (e < 0 ? 30 : 1));
        assert_int_equal(kvik_cache_length(t.c, kvik_batch_seq(t.b, 1)), WIDE + (e < 0 ? 30 : 1));
    }
    must(e);
    next(t.b, 7, t.vocab, got);
    assert_memory_equal(got, want, (size_t)ROWS * t.vocab * 4);
    free(want);
    free(got);
    bench_close(&t);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct bench t;
    kvik_batch *d = NULL;
    kvik_result *r = NULL;
    kvik_generation g;
    uint32_t pick[] = {2, 1, 0, 2}, hidden;
    bench_open(&t, "llama-mha", &SMALL);
    must(kvik_generation_init(&g, t.m));
    g.max_new_tokens = 2;
    hidden = kvik_model_hidden(t.m) * (kvik_model_layers(t.m) + 1);
    float *h = malloc((size_t)ROWS * WIDE * hidden * 4);
    kvik_inputs in = {
        .size = sizeof in, .ids = t.ids, .n = WIDE, .attention_mask = LEFT, .width = WIDE};
    for (int what = 0; what < 4; what++) {
        int e = -1;
        uint32_t length = kvik_batch_length(t.b), rows = kvik_batch_rows(t.b);
        for (int64_t k = 0; e < 0 && k < 300; k++) {
            mem_fail_at(k, false);
            e = what == 0 ? kvik_batch_forward(
                                t.b, &in,
                                &(kvik_outputs){.size = sizeof(kvik_outputs), .hidden_states = h})
                : what == 1 ? kvik_batch_copy(t.b, &d)
                : what == 2 ? kvik_batch_select(t.b, pick, 4)
                            : kvik_batch_generate(d, &g, &in, NULL, &r);
            mem_fail_at(-1, false);
            if (e >= 0) break;
            assert_int_equal(e, KVIK_NOMEM);
            assert_int_equal(kvik_batch_length(t.b), length);
            assert_int_equal(kvik_batch_rows(t.b), rows);
        }
        must(e);
    }
    assert_int_equal(kvik_batch_rows(t.b), 4);
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_batch_close(d);
    free(h);
    bench_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_behind_its_back),
        cmocka_unit_test(test_idle_rows),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_steps_allocate_nothing),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_crop_all_or_none),
        cmocka_unit_test(test_crop_no_memory),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
