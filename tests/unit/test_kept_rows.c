/* test_kept_rows.c - forwards whose rows the caller keeps (kvik_inputs.on_layer).  A caller that gives back every row
 * gets the bits of a batch that keeps them itself, under masks of every kind, with windows, chunks, an encoder, rotary
 * frequencies that follow the length of the text, and recurrent states, which the batch keeps.  What it leaves out is not
 * seen; what it gives wrongly is an error, and the batch works after it. */
#include "test_padded.h"
#include "testing.h"

enum { LAYERS = 8, WIDTH = 64, STATES = 9, FLOATS = ROWS * MOST * 512 };

/* What a caller keeps of a layer, as rectangles. */
struct kept {
    float *rows[LAYERS][2];
    uint32_t columns[LAYERS], calls;
    uint32_t last;  /* gives the last so many columns alone; 0: all */
    int fails;      /* what the callback returns */
    uint32_t wrong; /* a mistake that it makes */
    int32_t place[MOST];
    float *given[2];
};

static void append(float **rows, uint32_t was, uint32_t n, uint32_t heads, uint32_t dim,
                   const float *more)
{
    float *to = calloc(FLOATS, sizeof *to);
    for (uint32_t i = 0; i < ROWS * heads; i++) {
        if (was)
            memcpy(to + (size_t)i * (was + n) * dim, *rows + (size_t)i * was * dim,
                   was * dim * sizeof *to);
        memcpy(to + ((size_t)i * (was + n) + was) * dim, more + (size_t)i * n * dim,
               n * dim * sizeof *to);
    }
    free(*rows);
    *rows = to;
}

static const float *tail(float *to, const float *rows, uint32_t columns, uint32_t last,
                         uint32_t heads, uint32_t dim)
{
    for (uint32_t i = 0; i < ROWS * heads; i++)
        memcpy(to + (size_t)i * last * dim, rows + ((size_t)i * columns + columns - last) * dim,
               last * dim * sizeof *to);
    return to;
}

static int keep(void *ctx, kvik_seen *s)
{
    struct kept *k = ctx;
    uint32_t was = k->columns[s->layer], all = was + s->n;
    k->calls++;
    append(&k->rows[s->layer][0], was, s->n, s->heads, s->dim_k, s->new_keys);
    append(&k->rows[s->layer][1], was, s->n, s->heads, s->dim_v, s->new_values);
    k->columns[s->layer] = all;
    s->columns = k->last ? k->last : all;
    s->keys = tail(k->given[0], k->rows[s->layer][0], all, s->columns, s->heads, s->dim_k);
    s->values = tail(k->given[1], k->rows[s->layer][1], all, s->columns, s->heads, s->dim_v);
    if (k->wrong == 1) s->keys = NULL;
    if (k->wrong == 2) { /* columns that do not ascend */
        memset(k->place, 0, sizeof k->place);
        s->position = k->place;
    }
    if (k->wrong == 3) { /* nothing is seen */
        memset(k->place, 0xff, sizeof k->place);
        s->position = k->place;
    }
    return k->fails;
}

static void kept_open(struct kept *k)
{
    memset(k, 0, sizeof *k);
    for (int i = 0; i < 2; i++)
        k->given[i] = calloc(FLOATS, sizeof(float));
}

static void kept_close(struct kept *k)
{
    for (int i = 0; i < LAYERS; i++)
        for (int w = 0; w < 2; w++)
            free(k->rows[i][w]);
    free(k->given[0]);
    free(k->given[1]);
}

/* Runs columns [from, to) of the bench with its mask. */
static int run(struct bench *t, kvik_batch *b, struct kept *k, uint32_t from, uint32_t to,
               float *logits)
{
    int32_t ids[ROWS * MOST], pos[ROWS * MOST];
    uint8_t mask[ROWS * MOST];
    uint32_t n = to - from;
    for (uint32_t i = 0; i < ROWS; i++) {
        memcpy(ids + i * n, t->ids + i * WIDE + from, n * sizeof *ids);
        memcpy(mask + i * to, t->mask + i * WIDE, to);
    }
    count(mask, to, n, pos);
    kvik_inputs in = {.size = sizeof in,
                      .ids = ids,
                      .n = n,
                      .attention_mask = mask,
                      .width = to,
                      .position_ids = pos,
                      .position_rows = ROWS,
                      .past = k ? from : 0,
                      .on_layer = k ? keep : NULL,
                      .ctx = k};
    kvik_outputs out = {.size = sizeof out, .logits = logits};
    return kvik_batch_forward(b, &in, &out);
}

static const kvik_cache_config ROOM = {
    .size = sizeof ROOM, .max_sequences = 8, .max_cache_len = MOST, .step_tokens = 64};

/* Gives every row the rows of an encoder, if the model has one. */
static void hear(struct bench *t, const kvik_batch *b)
{
    kvik_encoder encoder = {.size = sizeof encoder};
    for (uint32_t i = 0; i < ROWS && kvik_model_encoder(t->m, &encoder); i++) {
        kvik_source in = {.size = sizeof in, .ids = t->ids + i, .n = 4 + i};
        must(kvik_cache_encode(t->c, kvik_batch_seq(b, i), &in));
    }
}

static void the_same_bits(void **state)
{
    (void)state;
    const char *model[] = {"llama-gqa-l3",  "mistral", "llama4", "gpt-oss",
                           "llama-bf16",    "t5",      "bart",   "phi3",
                           "llama-dynamic", "jamba",   "zamba2", "qwen3-next"};
    const uint8_t *masks[] = {LEFT, RIGHT, HOLES};
    for (size_t i = 0; i < countof(model); i++)
        for (size_t j = 0; j < countof(masks); j++) {
            struct bench t;
            struct kept k;
            bench_open(&t, model[i], &ROOM);
            kept_open(&k);
            memcpy(t.mask, masks[j], ROWS * WIDE);
            kvik_batch *own;
            must(kvik_batch_open(t.c, ROWS, &own));
            hear(&t, own);
            hear(&t, t.b);
            size_t bytes = (size_t)ROWS * WIDE * t.vocab * sizeof(float);
            float *a = calloc(1, bytes), *b = calloc(1, bytes);
            for (uint32_t from = 0, to = 5; to <= WIDE; from = to++) {
                must(run(&t, own, NULL, from, to, a));
                must(run(&t, t.b, &k, from, to, b));
                assert_memory_equal(a, b, (size_t)ROWS * (to - from) * t.vocab * sizeof *a);
                assert_int_equal(kvik_batch_length(t.b), i < STATES ? 0 : to);
            }
            assert_true(i < STATES ? k.calls == 5 * kvik_model_layers(t.m) : k.calls % 5 == 0);
            free(a);
            free(b);
            kept_close(&k);
            kvik_batch_close(own);
            bench_close(&t);
        }
}

/* A window of the caller's is a window of the model's, here of 4 tokens with the own one. */
static void rows_left_out(void **state)
{
    (void)state;
    struct bench t, w;
    struct kept k;
    bench_open(&t, "llama-gqa-l3", &ROOM);
    kvik_cache_config sliding = ROOM;
    sliding.cache_implementation = "sliding_window";
    sliding.cache_config = "{\"sliding_window\": 4}";
    bench_open(&w, "llama-gqa-l3", &sliding);
    kept_open(&k);
    k.last = 4;
    memset(t.mask, 1, ROWS * WIDE);
    memset(w.mask, 1, ROWS * WIDE);
    float *a = calloc((size_t)ROWS * 4 * t.vocab, sizeof *a),
          *b = calloc((size_t)ROWS * 4 * t.vocab, sizeof *b);
    for (uint32_t from = 0, to = 4; to <= WIDE; from = to++) {
        must(run(&w, w.b, NULL, from, to, a));
        must(run(&t, t.b, &k, from, to, b));
        assert_memory_equal(a, b, (size_t)ROWS * (to - from) * t.vocab * sizeof *a);
    }
    free(a);
    free(b);
    kept_close(&k);
    bench_close(&t);
    bench_close(&w);
}

static void mistakes(void **state)
{
    (void)state;
    struct bench t;
    struct kept k;
    bench_open(&t, "llama-gqa-l3", &ROOM);
    memset(t.mask, 1, ROWS * WIDE);
    float *logits = calloc((size_t)ROWS * MOST * t.vocab, sizeof *logits);
    const struct {
        uint32_t wrong;
        int fails, code;
        const char *words;
    } row[] = {{1, 0, KVIK_ARG, "on_layer set no keys"},
               {2, 0, KVIK_ARG, "they ascend"},
               {3, 0, KVIK_ARG, "gave none to attend to"},
               {0, -1, KVIK_CANCELLED, "on_layer failed in layer 0"}};
    for (size_t i = 0; i < countof(row); i++) {
        kept_open(&k);
        k.wrong = row[i].wrong;
        k.fails = row[i].fails;
        refused(run(&t, t.b, &k, 0, 5, logits), row[i].code, row[i].words);
        kept_close(&k);
        kept_open(&k);
        must(run(&t, t.b, &k, 0, 5, logits)); /* the batch is as it was */
        kept_close(&k);
    }
    kept_open(&k);
    kvik_inputs in = {.size = sizeof in, .ids = t.ids, .n = 30, .on_layer = keep, .ctx = &k};
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_LIMIT, "more than step_tokens (64)");
    in.n = 5;
    refused(kvik_batch_forward(t.b, &in,
                               &(kvik_outputs){.size = sizeof(kvik_outputs), .attentions = logits}),
            KVIK_UNSUPPORTED, "attentions");
    must(run(&t, t.b, NULL, 0, 5, logits));
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_ARG, "need an empty one");
    bench_close(&t);
    kvik_cache_config sink = ROOM;
    sink.cache_implementation = "sink";
    sink.cache_config = "{\"window_length\": 8, \"num_sink_tokens\": 2}";
    bench_open(&t, "llama-gqa-l3", &sink);
    refused(kvik_batch_forward(t.b, &in, NULL), KVIK_UNSUPPORTED, "turns its rows");
    bench_close(&t);
    kept_close(&k);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(rows_left_out),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
