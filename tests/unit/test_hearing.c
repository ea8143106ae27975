/* test_hearing.c - encoder-decoder models: every golden model with an encoder, through every way of
 * decoding and every pair of strategies for the decoder's own rows and for the encoder's. */
#include "generate/handle.h"
#include "kvik_compat.h"
#include "kvik_loop.h"
#include "models.h"
#include "share.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IDS = 21, NEW = 9, INPUTS = 3, MOST = 8192 };

static kvik_model *model;
static kvik_encoder encoder;
static int32_t ids[INPUTS][IDS];
static float features[INPUTS][MOST];
/* Most bytes that test_room has seen on disk, of rows as computed and of codes. */
static uint64_t spilled[2];

static int64_t need(int64_t e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
    return e;
}

static void refused(int64_t e, int code, const char *says)
{
    if (e != code || !strstr(kvik_last_error(), says))
        fail_msg("%lld, \"%s\": \"%s\" is expected", (long long)e, kvik_last_error(), says);
}

/* Input i of the encoder. */
static kvik_source source(int i)
{
    kvik_source s = {.size = sizeof s};
    if (encoder.bins) {
        s.features = features[i];
        s.n_frames = (size_t)encoder.rows * encoder.stride;
    } else {
        s.ids = ids[i];
        s.n = IDS - 3 * (size_t)i;
    }
    return s;
}

static kvik_prompt prompt(int i)
{
    static kvik_source given[INPUTS];
    given[i] = source(i);
    return (kvik_prompt){.size = sizeof(kvik_prompt), .source = &given[i]};
}

static void inputs(void)
{
    uint32_t seed = 7, vocab = kvik_model_vocab(model);
    assert_true((size_t)encoder.bins * encoder.rows * encoder.stride <= MOST);
    for (int i = 0; i < INPUTS; i++) {
        for (int k = 0; k < IDS; k++) {
            seed = seed * 1664525u + 1013904223u;
            ids[i][k] = (int32_t)(2 + (seed >> 8) % (vocab - 2));
        }
        for (int k = 0; k < MOST; k++) {
            seed = seed * 1664525u + 1013904223u;
            features[i][k] = (float)(seed >> 8) / (float)(1 << 23) - 1;
        }
    }
}

static kvik_cache_config plain(void)
{
    return (kvik_cache_config){.size = sizeof(kvik_cache_config),
                               .max_sequences = 24,
                               .max_cache_len = 32,
                               .threads = 2,
                               .compute = "exact"};
}

static kvik_cache *open_cache(kvik_cache_config k)
{
    kvik_cache *c;
    need(kvik_cache_open(model, &k, &c));
    return c;
}

static kvik_generation options(const char *json)
{
    kvik_generation g;
    need(kvik_generation_init(&g, model));
    g.max_new_tokens = NEW;
    g.n_eos = 0;
    g.output_logits = true;
    if (json) need(kvik_generation_set(&g, json));
    return g;
}

static kvik_result *run(kvik_cache *c, const char *json, const kvik_prompt *p, uint32_t n)
{
    kvik_result *r;
    kvik_generation g = options(json);
    need(kvik_generate(c, &g, p, n, NULL, &r));
    kvik_generation_done(&g);
    return r;
}

static void same(const char *what, const kvik_result *a, const kvik_result *b)
{
    if (a->n_rows != b->n_rows || a->logit_steps != b->logit_steps)
        fail_msg("%s: another shape", what);
    for (uint32_t i = 0; i < a->n_rows; i++)
        if (a->row[i]->n != b->row[i]->n ||
            memcmp(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof(int32_t)) != 0)
            fail_msg("%s: other tokens in row %u", what, i);
    size_t n = (size_t)a->logit_steps * a->logit_rows * a->vocab;
    if (a->logits && b->logits && memcmp(a->logits, b->logits, n * sizeof(float)) != 0)
        fail_msg("%s: other logits", what);
}

#define CODES    "\"nbits\": 4, \"residual_length\": 4, \"q_group_size\": 12"
#define STREAMED "{" CODES ", \"offloading\": true}"

/* Every pair of strategies gives the bits of the plain cache, unless it rounds rows. */
static void strategies(void)
{
    static const struct {
        const char *implementation, *config;
        bool rounds;
    } own[] = {{"dynamic", NULL, false},
               {"static", NULL, false},
               {"offloaded", NULL, false},
               {"quantized", "{" CODES "}", true}},
      cross[] = {{NULL, NULL, false},
                 {"static", NULL, false},
                 {"offloaded", NULL, false},
                 {"quantized", "{" CODES "}", true},
                 {"quantized", STREAMED, true}};
    kvik_prompt p[INPUTS] = {prompt(0), prompt(1), prompt(2)};
    kvik_cache *c = open_cache(plain());
    kvik_result *want = run(c, NULL, p, INPUTS);
    kvik_cache_close(c);
    for (size_t i = 0; i < countof(own); i++)
        for (size_t k = 0; k < countof(cross); k++) {
            char what[64];
            kvik_cache_config config = plain();
            config.cache_implementation = own[i].implementation;
            config.cache_config = own[i].config;
            config.cross_cache_implementation = cross[k].implementation;
            config.cross_cache_config = cross[k].config;
            config.threads = 1 + (uint32_t)k;
            config.isa = (i + k) % (test_share() > 1 ? 6 : 2) == 1 ? "ref" : NULL; /* slow */
            config.step_tokens = i % 2 ? 3 : 0;
            snprintf(what, sizeof what, "%s, cross %s", own[i].implementation,
                     cross[k].implementation ? cross[k].implementation : "default");
            c = open_cache(config);
            kvik_result *got = run(c, NULL, p, INPUTS), *again = run(c, NULL, p, INPUTS);
            if (!own[i].rounds && !cross[k].rounds) same(what, want, got);
            same(what, got, again);
            kvik_result_free(got);
            kvik_result_free(again);
            kvik_cache_close(c);
        }
    kvik_result_free(want);
}

/* What a batch, padding, forks of one prompt, drafts or no cache at all must not change. */
static void ways(void)
{
    kvik_cache *c = open_cache(plain());
    kvik_prompt p[INPUTS] = {prompt(0), prompt(1), prompt(2)};
    kvik_result *all = run(c, NULL, p, INPUTS);
    for (int i = 0; i < INPUTS; i++) {
        kvik_result *one = run(c, NULL, &p[i], 1);
        assert_memory_equal(one->row[0]->ids, all->row[i]->ids, one->row[0]->n * sizeof(int32_t));
        kvik_result_free(one);
    }
    kvik_result *bare = run(c, "{\"use_cache\": false}", p, INPUTS);
    same("no cache", all, bare);
    kvik_result_free(bare);
    kvik_result *drafted = run(c, "{\"prompt_lookup_num_tokens\": 3}", p, INPUTS);
    same("prompt lookup", all, drafted);
    kvik_result_free(drafted);
    if (!encoder
             .bins) { /* the same inputs with padding; where it counts in positions, behind them */
        bool behind = model->m->encoder.counts_padding;
        int32_t padded[INPUTS][IDS];
        uint8_t mask[INPUTS][IDS];
        kvik_source in[INPUTS];
        kvik_prompt q[INPUTS];
        for (int i = 0; i < INPUTS; i++) {
            size_t n = p[i].source->n, at = behind ? 0 : IDS - n;
            memset(mask[i], 0, IDS);
            memset(mask[i] + at, 1, n);
            memset(padded[i], 0, sizeof padded[i]);
            memcpy(padded[i] + at, ids[i], n * sizeof(int32_t));
            in[i] = (kvik_source){
                .size = sizeof *in, .ids = padded[i], .n = IDS, .attention_mask = mask[i]};
            q[i] = (kvik_prompt){.size = sizeof *q, .source = &in[i]};
        }
        kvik_result *got = run(c, NULL, q, INPUTS);
        same("padding", all, got);
        kvik_result_free(got);
    }
    kvik_cache *helper = open_cache(plain());
    kvik_hooks hooks = {.size = sizeof hooks, .assistant_model = helper};
    kvik_generation g = options(NULL);
    kvik_result *helped;
    need(kvik_generate(c, &g, p, INPUTS, &hooks, &helped));
    same("an assistant", all, helped);
    kvik_result_free(helped);
    kvik_generation_done(&g);
    kvik_cache_close(helper);
    kvik_result_free(all);
    kvik_cache_close(c);
}

static const char *const modes[] = {
    "{\"do_sample\": true, \"num_return_sequences\": 3, \"seed\": 5}",
    "{\"num_beams\": 3, \"num_return_sequences\": 2}",
    "{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 0.5}",
    "{\"penalty_alpha\": 0.6, \"top_k\": 3}",
    "{\"forced_bos_token_id\": 5, \"forced_eos_token_id\": 6, \"repetition_penalty\": 1.3}",
};

/* Other modes give the same with quantized places of nothing: static and dynamic caches agree, and
 * so do a request and a call. */
static void decoding(void)
{
    kvik_cache_config k = plain();
    kvik_cache *a = open_cache(k);
    k.cache_implementation = "static";
    k.cross_cache_implementation = "static";
    k.threads = 1;
    kvik_cache *b = open_cache(k);
    kvik_prompt p[2] = {prompt(1), prompt(2)};
    for (size_t i = 0; i < countof(modes); i++) {
        kvik_result *x = run(a, modes[i], p, 2), *y = run(b, modes[i], p, 2), *z;
        same(modes[i], x, y);
        kvik_generation g = options(modes[i]);
        kvik_request *q;
        need(kvik_request_start(a, &g, p, 2, NULL, &q));
        while (kvik_request_state(q) == KVIK_RUNNING)
            need(kvik_request_step(&q, 1));
        need(kvik_request_end(q, &z));
        same(modes[i], x, z);
        kvik_request_free(q);
        kvik_generation_done(&g);
        kvik_result_free(x);
        kvik_result_free(y);
        kvik_result_free(z);
    }
    kvik_cache_close(a);
    kvik_cache_close(b);
}

static bool longer; /* inputs of ids are a few hundred */

static int heard(kvik_cache *c, int i, kvik_seq *s)
{
    static int32_t many[400];
    kvik_source in = source(i);
    for (int k = 0; k < 400; k++)
        many[k] = ids[i][k % IDS];
    if (longer && !encoder.bins) {
        in.ids = many;
        in.n = MIN(400u, encoder.rows) - (size_t)i;
    }
    need(kvik_cache_new(c, s));
    return kvik_cache_encode(c, *s, &in);
}

static kvik_seq hear(kvik_cache *c, int i)
{
    kvik_seq s;
    need(heard(c, i, &s));
    return s;
}

static const int32_t text[6] = {3, 9, 4, 11, 7, 2};

/* Appends tokens [from, to) and returns the logits of the last. */
static void say(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t to, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = text + from, .n = to - from};
    need(kvik_forward(c, &span, 1, false, logits));
}

/* Forks, crops, resets, sessions, exports and legacy arrays of sequences with an encoder. */
static void sequences(void)
{
    kvik_cache *c = open_cache(plain());
    size_t row = kvik_model_vocab(model) * sizeof(float);
    float *want = malloc(row), *got = malloc(row);
    char path[] = "/tmp/kvik-hearing-XXXXXX";
    kvik_source first = source(0), other = source(1);
    kvik_seq s = hear(c, 0), f, l;
    kvik_usage u = {.size = sizeof u};
    say(c, s, 0, 6, want);
    need(kvik_cache_usage(c, &u));
    uint64_t alone = u.live;
    need(kvik_cache_fork(c, s, &f));
    need(kvik_cache_usage(c, &u));
    assert_int_equal(u.live, alone); /* nothing is copied */
    need(kvik_cache_crop(c, f, 3));
    say(c, f, 3, 6, got);
    assert_memory_equal(want, got, row);
    refused(kvik_cache_encode(c, f, &other), KVIK_ARG, "another encoder input");
    need(kvik_cache_encode(c, f, &first)); /* it has these rows */
    need(kvik_cache_reset(c, f));
    assert_int_equal(kvik_cache_encoder_length(c, f), 0);
    need(kvik_cache_encode(c, f, &other));
    need(kvik_cache_reset(c, f));
    kvik_span span = {.size = sizeof span, .seq = f, .ids = text, .n = 1};
    refused(kvik_forward(c, &span, 1, false, got), KVIK_ARG, "no encoder rows");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    need(kvik_cache_crop(c, s, 3));
    need(kvik_cache_save(c, path, &s, 1, NULL));
    kvik_cache *d = open_cache(plain());
    assert_int_equal(need(kvik_cache_load(d, path, 1, &l, NULL)), 1);
    assert_int_equal(kvik_cache_encoder_length(d, l), kvik_cache_encoder_length(c, s));
    say(d, l, 3, 6, got);
    assert_memory_equal(want, got, row);
    kvik_export *rows;
    need(kvik_cache_export(c, s, &rows));
    assert_non_null(kvik_layer_plane(&rows->layer[0], "cross_keys"));
    need(kvik_cache_import(d, rows, &l));
    say(d, l, 3, 6, got);
    assert_memory_equal(want, got, row);
    kvik_export_free(rows);
    unlink(path);
    assert_true(kv_check(c->x->kv) && kv_check(d->x->kv));
    kvik_cache_close(d);
    kvik_cache_close(c);
    free(want);
    free(got);
}

enum { FORKS = 12, STEPS = 28 };

/* Decodes one more token of every fork, each its own. */
static void all_step(kvik_cache *c, const kvik_seq *s, uint32_t n, uint32_t step, float *logits)
{
    static int32_t id[FORKS];
    kvik_span span[FORKS];
    for (uint32_t i = 0; i < n; i++) {
        id[i] = (int32_t)(3 + (step * 7 + i * 5) % 90);
        span[i] = (kvik_span){.size = sizeof *span, .seq = s[i], .ids = &id[i], .n = 1};
    }
    need(kvik_forward(c, span, n, false, logits));
}

/* Forks decode together, hold the encoder's rows once, and give the bits of separate sequences. */
static void forks(void)
{
    kvik_cache_config k = plain();
    k.no_prefix_cache = true;
    k.max_sequences = FORKS;
    k.max_cache_len = 6 + STEPS;
    kvik_cache *c = open_cache(k), *d = open_cache(k);
    kvik_seq s[FORKS];
    kvik_usage u = {.size = sizeof u};
    size_t row = kvik_model_vocab(model) * sizeof(float);
    char *want = malloc(FORKS * STEPS * row), *got = malloc(FORKS * row);
    s[0] = hear(d, 0);
    need(kvik_cache_usage(d, &u));
    uint64_t one = u.live;
    say(d, s[0], 0, 6, NULL);
    need(kvik_cache_usage(d, &u));
    uint64_t block = u.live - one; /* of the decoder's own rows */
    need(kvik_cache_drop(d, s[0]));
    s[0] = hear(c, 0);
    say(c, s[0], 0, 6, NULL);
    for (uint32_t i = 1; i < FORKS; i++)
        need(kvik_cache_fork(c, s[0], &s[i]));
    for (uint32_t t = 0; t < STEPS; t++)
        all_step(c, s, FORKS, t, (float *)(void *)(want + t * FORKS * row));
    need(kvik_cache_usage(c, &u));
    assert_int_equal(u.live, one + FORKS * ((6 + STEPS + 15) / 16) * block);
    for (uint32_t i = 0; i < FORKS; i += 5) {
        kvik_seq alone = hear(d, 0);
        say(d, alone, 0, 6, NULL);
        for (uint32_t t = 0; t < STEPS; t++) {
            int32_t id = (int32_t)(3 + (t * 7 + i * 5) % 90);
            kvik_span span = {.size = sizeof span, .seq = alone, .ids = &id, .n = 1};
            need(kvik_forward(d, &span, 1, false, (float *)(void *)got));
            assert_memory_equal(got, want + (t * FORKS + i) * row, row);
        }
        need(kvik_cache_drop(d, alone));
    }
    kvik_cache_close(d);
    kvik_cache_close(c);
    free(want);
    free(got);
}

/* A batch: cross attentions sum to one, and its legacy form comes back with the same bits. */
static void batches(void)
{
    kvik_cache *c = open_cache(plain());
    kvik_batch *b, *back;
    kvik_legacy *l, *file;
    char path[] = "/tmp/kvik-hearing-XXXXXX";
    uint32_t layers = kvik_model_layers(model), heads = kvik_model_heads(model),
             vocab = kvik_model_vocab(model);
    size_t rows = 0;
    need(kvik_batch_open(c, 2, &b));
    for (uint32_t i = 0; i < 2; i++) {
        kvik_source in = source((int)i);
        need(kvik_cache_encode(c, kvik_batch_seq(b, i), &in));
        rows = MAX(rows, (size_t)need(kvik_cache_encoder_length(c, kvik_batch_seq(b, i))));
    }
    int32_t in[2][4] = {{3, 9, 4, 11}, {7, 2, 5, 8}};
    size_t cells = (size_t)layers * 2 * heads * 4 * rows;
    float *cross = calloc(cells, sizeof *cross),
          *own = calloc(layers * 2 * heads * 16, sizeof *own);
    float *want = calloc(2 * vocab, sizeof *want), *got = calloc(2 * vocab, sizeof *got);
    kvik_inputs inputs = {.size = sizeof inputs, .ids = in[0], .n = 4};
    kvik_outputs out = {.size = sizeof out, .attentions = own, .cross_attentions = cross};
    if (!model->m
             ->learned_positions) { /* distances count rows, so positions would change nothing */
        const int32_t apart[4] = {0, 5, 10, 15};
        inputs.position_ids = apart;
        inputs.position_rows = 1;
        refused(kvik_batch_forward(b, &inputs, &out), KVIK_UNSUPPORTED, "no position ids");
        inputs = (kvik_inputs){.size = sizeof inputs, .ids = in[0], .n = 4};
    }
    need(kvik_batch_forward(b, &inputs, &out));
    for (size_t i = 0; i < cells; i += rows) {
        double sum = 0;
        for (size_t k = 0; k < rows; k++)
            sum += (double)cross[i + k];
        if (fabs(sum - 1) > 1e-5) fail_msg("cross attentions sum to %g", sum);
    }
    need(kvik_batch_to_legacy(b, &l));
    assert_int_equal(l->encoder_length, rows);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    need(kvik_legacy_save(l, model, path));
    need(kvik_legacy_load(path, model, &file));
    unlink(path);
    need(kvik_batch_from_legacy(c, file, &back));
    int32_t next[2] = {6, 6};
    inputs = (kvik_inputs){.size = sizeof inputs, .ids = next, .n = 1};
    out = (kvik_outputs){.size = sizeof out, .logits = want};
    need(kvik_batch_forward(b, &inputs, &out));
    out.logits = got;
    need(kvik_batch_forward(back, &inputs, &out));
    assert_memory_equal(want, got, 2 * vocab * sizeof *want);
    file->encoder_length++;
    kvik_batch *bad;
    refused(kvik_batch_from_legacy(c, file, &bad), encoder.bins ? KVIK_LIMIT : KVIK_ARG,
            encoder.bins ? "rows of an encoder" : "cross layer 0");
    file->encoder_length--;
    kvik_legacy_free(l);
    kvik_legacy_free(file);
    need(kvik_batch_crop(b, -(int64_t)kvik_batch_length(b)));
    assert_true(kvik_cache_encoder_length(c, kvik_batch_seq(b, 0)) > 0);
    kvik_result *all, *one;
    kvik_generation g = options(NULL);
    inputs = (kvik_inputs){.size = sizeof inputs, .ids = in[0], .n = 4};
    if (!encoder.bins) {
        refused(kvik_batch_generate(b, &g, &inputs, NULL, &all), KVIK_ARG, "start token");
        in[0][0] = in[1][0] = encoder.decoder_start_token_id;
    }
    need(kvik_batch_generate(b, &g, &inputs, NULL, &all));
    for (uint32_t i = 0; i < 2; i++) { /* as the rows alone */
        kvik_seq s = hear(c, (int)i);
        kvik_span span = {.size = sizeof span, .seq = s, .ids = in[i], .n = 1};
        need(kvik_forward(c, &span, 1, false, NULL));
        kvik_prompt p = {.size = sizeof p, .ids = in[i], .n = 4, .seq = s};
        one = run(c, NULL, &p, 1);
        assert_int_equal(one->row[0]->n, 4 + NEW);
        assert_int_equal(all->row[i]->n, 4 + NEW);
        assert_memory_equal(one->row[0]->ids, all->row[i]->ids, (4 + NEW) * sizeof(int32_t));
        kvik_result_free(one);
    }
    assert_int_equal(kvik_batch_length(b), 4 + NEW - 1);
    kvik_result_free(all);
    kvik_generation_done(&g);
    need(kvik_batch_reset(b));
    for (uint32_t i = 0; i < 2; i++) {
        kvik_source other = source(2);
        assert_int_equal(kvik_cache_encoder_length(c, kvik_batch_seq(b, i)), 0);
        need(kvik_cache_encode(c, kvik_batch_seq(b, i), &other));
    }
    kvik_batch_close(b);
    kvik_batch_close(back);
    kvik_cache_close(c);
    free(cross);
    free(own);
    free(want);
    free(got);
}

/* The encoder runs once for an input, whoever asks, and its rows are held once. */
static void sharing(void)
{
    kvik_cache *c = open_cache(plain());
    kvik_prompt p = prompt(0);
    kvik_usage u = {.size = sizeof u};
    uint64_t before = c->x->computed;
    kvik_seq s = hear(c, 0), t;
    uint64_t rows = (uint64_t)kvik_cache_encoder_length(c, s);
    assert_int_equal(c->x->computed - before, rows);
    need(kvik_cache_usage(c, &u));
    uint64_t live = u.live;
    t = hear(c, 0);
    assert_int_equal(c->x->computed - before, rows);
    need(kvik_cache_usage(c, &u));
    assert_int_equal(u.live, live);
    need(kvik_cache_drop(c, s));
    need(kvik_cache_drop(c, t)); /* kept for the next request */
    kvik_result *r = run(c, NULL, &p, 1);
    assert_int_equal(c->x->computed - before, rows + NEW);
    kvik_result_free(r);
    r = run(c, "{\"num_beams\": 4}", &p, 1);
    kvik_result_free(r);
    kvik_generation g = options(NULL);
    kvik_request *q[2];
    for (int i = 0; i < 3; i++) { /* requests: beside each other, then after both have ended */
        uint64_t at = c->x->computed;
        for (int k = 0; k < 2; k++)
            need(kvik_request_start(c, &g, &p, 1, NULL, &q[k]));
        while (kvik_request_state(q[0]) == KVIK_RUNNING || kvik_request_state(q[1]) == KVIK_RUNNING)
            need(kvik_request_step(q, 2));
        assert_true(c->x->computed - at <= 2 * NEW);
        for (int k = 0; k < 2; k++) {
            need(kvik_request_end(q[k], &r));
            kvik_result_free(r);
            kvik_request_free(q[k]);
        }
    }
    kvik_generation_done(&g);
    before = c->x->computed;
    s = hear(c, 1);
    assert_true(c->x->computed > before);
    assert_true(kv_check(c->x->kv));
    kvik_cache_close(c);
}

/* Where masked columns before an input count in its positions, the same ids behind other columns have rows of their own;
 * elsewhere the rows are shared. */
static void columns(void)
{
    if (encoder.bins) return;
    int32_t padded[3][IDS + 2] = {{0}};
    uint8_t mask[3][IDS + 2] = {{0}};
    kvik_cache *c = open_cache(plain());
    uint64_t before = c->x->computed;
    for (uint32_t i = 0; i < 3; i++) { /* two columns behind, one on each side, two before */
        memset(mask[i] + i, 1, IDS);
        memcpy(padded[i] + i, ids[0], sizeof ids[0]);
        kvik_source in = {
            .size = sizeof in, .ids = padded[i], .n = IDS + 2, .attention_mask = mask[i]};
        kvik_seq s;
        need(kvik_cache_new(c, &s));
        need(kvik_cache_encode(c, s, &in));
    }
    assert_int_equal(c->x->computed - before, IDS * (model->m->encoder.counts_padding ? 3 : 1));
    if (encoder.rows < 400 && model->m->encoder.counts_padding) { /* no positions are left */
        int32_t many[400] = {0};
        uint8_t last[400] = {0};
        last[399] = 1;
        kvik_source in = {.size = sizeof in, .ids = many, .n = 400, .attention_mask = last};
        kvik_seq s;
        need(kvik_cache_new(c, &s));
        refused(kvik_cache_encode(c, s, &in), KVIK_LIMIT, "masked columns");
    }
    kvik_cache_close(c);
}

/* Rows of an encoder leave memory and come back with the same bits.  codes: they are quantized, too. */
static void leave(bool codes)
{
    enum { N = 6 };
    kvik_cache_config k = plain();
    if (codes) k.cross_cache_implementation = "quantized";
    if (codes) k.cross_cache_config = "{" CODES "}";
    kvik_usage u = {.size = sizeof u};
    k.max_sequences = N;
    kvik_cache *c = open_cache(k);
    uint32_t vocab = kvik_model_vocab(model);
    float *want = malloc(INPUTS * vocab * sizeof(float)), *got = malloc(vocab * sizeof(float));
    kvik_seq s[N];
    longer = true;
    for (int i = 0; i < N; i++) {
        s[i] = hear(c, i % INPUTS);
        say(c, s[i], 0, 6, i < INPUTS ? want + (size_t)i * vocab : got);
    }
    need(kvik_cache_usage(c, &u));
    uint64_t budget = u.budget;
    kvik_cache_close(c);
    if (codes)
        k.cross_cache_config = STREAMED;
    else
        k.cross_cache_implementation = "offloaded";
    k.no_prefix_cache = true;
    k.step_tokens = 2;
    for (uint64_t part = 95; part > 10; part -= 5) {
        bool full = false;
        k.cache_memory = budget * part / 100;
        if (kvik_cache_open(model, &k, &c) < 0) break; /* less than the cache itself needs */
        for (int i = 0; i < N && !full; i++) {
            kvik_span span = {.size = sizeof span, .ids = text, .n = 6};
            int e = heard(c, i % INPUTS, &span.seq);
            if (e >= 0) e = kvik_forward(c, &span, 1, false, got);
            if (e < 0 && e != KVIK_FULL) fail_msg("%s", kvik_last_error());
            full = e < 0;
            if (!full && memcmp(got, want + (size_t)(i % INPUTS) * vocab, vocab * sizeof(float)))
                fail_msg("input %d at %d%% of the budget: other logits", i, (int)part);
            assert_true(kv_check(c->x->kv));
            need(kvik_cache_usage(c, &u));
            spilled[codes] = MAX(spilled[codes], u.spilled);
        }
        kvik_cache_close(c);
    }
    longer = false;
    free(want);
    free(got);
}

static void room(void)
{
    leave(false);
    leave(true);
}

static void refusals(void)
{
    kvik_cache *c = open_cache(plain());
    kvik_prompt p = prompt(0);
    kvik_result *r;
    kvik_generation g = options("{\"guidance_scale\": 1.5}");
    refused(kvik_generate(c, &g, &p, 1, NULL, &r), KVIK_UNSUPPORTED, "without an encoder");
    kvik_generation_done(&g);
    g = options(NULL);
    kvik_prompt none = {.size = sizeof none, .ids = text, .n = 2};
    refused(kvik_generate(c, &g, &none, 1, NULL, &r), KVIK_ARG, "the encoder has no input");
    kvik_source in = {.size = sizeof in};
    kvik_prompt wrong = {.size = sizeof wrong, .source = &in};
    refused(kvik_generate(c, &g, &wrong, 1, NULL, &r), KVIK_ARG, "the encoder has no input");
    in = (kvik_source){
        .size = sizeof in, .ids = ids[0], .n = IDS, .features = features[0], .n_frames = 4};
    refused(kvik_generate(c, &g, &wrong, 1, NULL, &r), KVIK_ARG, "both are given");
    in = (kvik_source){.size = sizeof in, .ids = ids[0], .n = IDS};
    if (!encoder.bins)
        in = (kvik_source){.size = sizeof in, .features = features[0], .n_frames = 4};
    refused(kvik_generate(c, &g, &wrong, 1, NULL, &r), KVIK_ARG, "the encoder takes");
    in = source(0);
    in.size = 5;
    refused(kvik_generate(c, &g, &wrong, 1, NULL, &r), KVIK_ARG, "kvik_source.size");
    in = source(0);
    in.text = "a";
    refused(kvik_generate(c, &g, &wrong, 1, NULL, &r), KVIK_ARG, "a text as well as");
    const uint8_t mask[2] = {0, 1};
    kvik_prompt masked = p;
    masked.ids = text;
    masked.n = 2;
    masked.attention_mask = mask;
    refused(kvik_generate(c, &g, &masked, 1, NULL, &r), KVIK_ARG, "kvik_source.attention_mask");
    in = source(0);
    kvik_seq s;
    need(kvik_cache_new(c, &s));
    if (encoder.bins) {
        float *x = malloc(sizeof features[0]);
        memcpy(x, features[0], sizeof features[0]);
        x[5] = NAN;
        in.features = x;
        refused(kvik_cache_encode(c, s, &in), KVIK_ARG, "not a finite number");
        free(x);
    } else {
        int32_t big[2] = {1, 1 << 20};
        in.ids = big;
        in.n = 2;
        refused(kvik_cache_encode(c, s, &in), KVIK_ARG, "outside the vocabulary");
        /* Transformers lets the columns around a hidden one stand apart; rows next to each other are other tokens. */
        const uint8_t hole[IDS] = {0, 1, 0, 1, 1};
        in = (kvik_source){.size = sizeof in, .ids = ids[0], .n = 5, .attention_mask = hole};
        refused(kvik_generate(c, &g, &wrong, 1, NULL, &r), KVIK_UNSUPPORTED, "hides column 2");
        refused(kvik_cache_encode(c, s, &in), KVIK_UNSUPPORTED, "hides column 2");
    }
    kvik_generation_done(&g);
    kvik_cache_close(c);
    kvik_cache_config k = plain();
    k.cross_cache_implementation = "sink";
    refused(kvik_cache_open(model, &k, &c), KVIK_ARG, "cross_cache_implementation");
    k.cross_cache_implementation = NULL;
    k.cross_cache_config = "{\"sliding_window\": 4}";
    refused(kvik_cache_open(model, &k, &c), KVIK_ARG, "cross_cache_config");
}

static void every_model(void (*test)(void))
{
    const char *name[GOLDEN_MOST];
    uint32_t n = golden_list(name, true);
    assert_true(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        char path[300];
        if (strstr(name[i], ".gguf")) continue;
        snprintf(path, sizeof path, GOLDEN_MODELS "/%s", name[i]);
        need(kvik_model_open(path, &model));
        encoder = (kvik_encoder){.size = sizeof encoder};
        assert_int_equal(need(kvik_model_encoder(model, &encoder)), 1);
        inputs();
        test();
        kvik_model_close(model);
    }
}

#define TEST(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        every_model(name);                                                                         \
    }
TEST(strategies)
TEST(ways)
TEST(decoding)
TEST(sequences)
TEST(forks)
TEST(batches)
TEST(sharing)
TEST(columns)
static void test_room(void **state)
{
    (void)state;
    every_model(room);
    assert_true(spilled[0] > 0 && spilled[1] > 0);
}
TEST(refusals)

/* GGUF and safetensors hold the same weights. */
static void test_gguf(void **state)
{
    (void)state;
    kvik_result *r[2];
    for (int k = 0; k < 2; k++) {
        need(kvik_model_open(k ? GOLDEN_MODELS "/t5.gguf" : GOLDEN_MODELS "/t5", &model));
        encoder = (kvik_encoder){.size = sizeof encoder};
        need(kvik_model_encoder(model, &encoder));
        inputs();
        kvik_prompt p[INPUTS] = {prompt(0), prompt(1), prompt(2)};
        kvik_cache *c = open_cache(plain());
        r[k] = run(c, NULL, p, INPUTS);
        kvik_cache_close(c);
        kvik_model_close(model);
    }
    size_t n = (size_t)r[0]->logit_steps * r[0]->logit_rows * r[0]->vocab;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(r[0]->logits[i] - r[1]->logits[i]) <= 1e-4f * (1 + fabsf(r[0]->logits[i]))))
            fail_msg("logit %zu: %g and %g", i, (double)r[0]->logits[i], (double)r[1]->logits[i]);
    kvik_result_free(r[0]);
    kvik_result_free(r[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategies), cmocka_unit_test(test_ways),
        cmocka_unit_test(test_decoding),   cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_batches),    cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_room),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_gguf),       cmocka_unit_test(test_forks),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
