/* test_modes.c - common properties of every way of generating: the caller's processors and
 * criteria, scores, the sequences of rows; and every way with every cache strategy. */
#include "base/buf.h"
#include "generate/beam.h"
#include "generate/generate.h"
#include "generate/handle.h"
#include "kvik_compat.h"
#include "testing.h"

#include <math.h>

#define TINY "tests/golden/models/llama-mha"

static kvik_model *tiny; /* the model of the running test */
static const int32_t ids[] = {295, 130, 218, 306, 124, 275, 247, 161};
static const int32_t others[] = {185, 127, 94, 307, 38};

struct hooked {
    uint32_t asked, vocab, rows; /* rows: one bit for each row seen */
    int32_t banned;
    size_t longest; /* texts of this length shall end */
    bool refuse;
};

static bool ban(void *ctx, uint32_t row, const int32_t *text, size_t n, float *scores,
                uint32_t vocab)
{
    struct hooked *h = ctx;
    assert_true(n >= countof(others) && (text[0] == ids[0] || text[0] == others[0]));
    h->asked++;
    h->vocab = vocab;
    h->rows |= 1u << row;
    scores[h->banned] = -INFINITY;
    return !h->refuse;
}

static bool long_enough(void *ctx, uint32_t row, const int32_t *text, size_t n)
{
    (void)row;
    (void)text;
    return n >= ((struct hooked *)ctx)->longest;
}

static kvik_cache *open_cache(const char *preset, const char *config)
{
    kvik_cache *c;
    kvik_cache_config cc = {.size = sizeof cc,
                            .cache_implementation = preset,
                            .cache_config = config,
                            .compute = "exact",
                            .max_cache_len = 64,
                            .max_sequences = 12};
    if (kvik_cache_open(tiny, &cc, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static kvik_generation options(uint32_t new_tokens)
{
    kvik_generation g;
    if (kvik_generation_init(&g, tiny) < 0) fail_msg("%s", kvik_last_error());
    g.max_new_tokens = new_tokens;
    g.n_eos = 0;
    return g;
}

static kvik_result *run(kvik_cache *c, const kvik_generation *g, uint32_t n,
                        const kvik_hooks *hooks)
{
    const kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = countof(ids)},
                              {.size = sizeof(kvik_prompt), .ids = others, .n = countof(others)}};
    kvik_result *r;
    if (kvik_generate(c, g, p, n, hooks, &r) < 0) fail_msg("%s", kvik_last_error());
    return r;
}

/* The caller's processor sees every row and step, and a token it forbids is not chosen; greedily
 * and with beams. */
static void processors(void **state)
{
    (void)state;
    for (uint32_t beams = 1; beams <= 3; beams += 2) {
        kvik_cache *c = open_cache("dynamic", NULL);
        kvik_generation g = options(6);
        g.num_beams = beams;
        kvik_result *plain = run(c, &g, 2, NULL);
        struct hooked h = {.banned = plain->row[0]->ids[plain->row[0]->n_prompt]};
        kvik_hooks hooks = {.size = sizeof hooks, .ctx = &h, .logits_processor = ban};
        kvik_result *r = run(c, &g, 2, &hooks);
        assert_int_equal(h.vocab, r->vocab);
        assert_int_equal(h.rows, (1u << 2 * beams) - 1);
        for (size_t k = r->row[0]->n_prompt; k < r->row[0]->n; k++)
            assert_int_not_equal(r->row[0]->ids[k], h.banned);
        kvik_result_free(r);
        h.refuse = true;
        assert_int_equal(
            kvik_generate(
                c, &g, &(kvik_prompt){.size = sizeof(kvik_prompt), .ids = ids, .n = countof(ids)},
                1, &hooks, &r),
            KVIK_CANCELLED);
        kvik_result_free(plain);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* Scores are logits after processors, and the chosen token is their argmax. Scores of beams are
 * log-probabilities. */
static void scores(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic", NULL);
    kvik_generation g = options(5);
    g.output_scores = g.output_logits = true;
    g.repetition_penalty = 1.5;
    kvik_result *r = run(c, &g, 2, NULL);
    assert_memory_not_equal(r->scores, r->logits, r->vocab * sizeof *r->scores);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t s = 0; s < r->steps; s++)
            assert_int_equal(
                gen_argmax(r->scores + ((size_t)s * r->logit_rows + i) * r->vocab, r->vocab),
                r->row[i]->ids[r->row[i]->n_prompt + s]);
    kvik_result_free(r);
    g.num_beams = 3;
    g.repetition_penalty = 1;
    r = run(c, &g, 2, NULL);
    float *want = mem_array(r->vocab, sizeof *want);
    for (uint32_t k = 0; k < r->logit_rows; k++) {
        memcpy(want, r->logits + (size_t)k * r->vocab, r->vocab * sizeof *want);
        beam_log_softmax(want, r->vocab);
        assert_memory_equal(want, r->scores + (size_t)k * r->vocab, r->vocab * sizeof *want);
    }
    const kvik_row *best = r->row[1];
    double sum = 0;
    for (size_t k = 0; k < best->n - best->n_prompt; k++)
        sum += r->scores[((size_t)k * r->logit_rows + (uint32_t)best->beam_indices[k]) * r->vocab +
                         (uint32_t)best->ids[best->n_prompt + k]];
    assert_true(fabs(sum / (double)(best->n - best->n_prompt) - best->score) < 1e-5);
    mem_free(want);
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

/* --- every way of generating under every strategy */
struct way {
    const char *name;
    void (*set)(kvik_generation *g);
};

static void greedy(kvik_generation *g)
{
    g->num_beams = 1;
}

static void beam(kvik_generation *g)
{
    g->num_beams = g->num_return_sequences = 3;
}

static void beam_sample(kvik_generation *g)
{
    beam(g);
    g->do_sample = true;
    g->seed = 11;
}

static void group_beam(kvik_generation *g)
{
    g->num_beams = g->num_return_sequences = 4;
    g->num_beam_groups = 2;
    g->diversity_penalty = 0.7;
}

static void contrastive(kvik_generation *g)
{
    g->penalty_alpha = 0.6;
    g->top_k = 4;
}

static void guided(kvik_generation *g)
{
    g->guidance_scale = 1.7;
    g->repetition_penalty = 1.2;
}

static int32_t unwanted[] = {7, 300, 12, 94, 41, 188};

static void guided_samples(kvik_generation *g)
{
    g->guidance_scale = 1.3;
    g->do_sample = true;
    g->num_return_sequences = 2;
}

static void guided_beam(kvik_generation *g)
{
    beam(g);
    g->guidance_scale = 1.5;
}

static void guided_contrast(kvik_generation *g)
{
    contrastive(g);
    g->guidance_scale = 1.5;
}

/* Sets or removes the negative prompt. The configuration does not own it, so it is removed before
 * the configuration is freed. */
static void negative_prompt(kvik_generation *g, bool on)
{
    if (g->guidance_scale == 1) return;
    g->negative_prompt_ids = on ? unwanted : NULL;
    g->n_negative_prompt_ids = on ? countof(unwanted) : 0;
}

static const struct way ways[] = {{"greedy", greedy},
                                  {"beam", beam},
                                  {"beam sample", beam_sample},
                                  {"group beam", group_beam},
                                  {"contrastive", contrastive},
                                  {"guided", guided},
                                  {"guided samples", guided_samples},
                                  {"guided beam", guided_beam},
                                  {"guided contrast", guided_contrast}};

/* Criteria end rows and beams. With diverse beams they end the search once every beam has met them. */
static void criteria(void **state)
{
    (void)state;
    for (size_t w = 0; w < countof(ways); w++) {
        kvik_cache *c = open_cache("dynamic", NULL);
        kvik_generation g = options(8);
        ways[w].set(&g);
        struct hooked h = {.longest = countof(ids) + 2};
        kvik_hooks hooks = {.size = sizeof hooks, .ctx = &h, .stopping_criteria = long_enough};
        kvik_result *r = run(c, &g, 2, &hooks);
        for (uint32_t i = 0; i < r->n_rows; i++) {
            assert_int_equal(r->row[i]->n, countof(ids) + 2);
            assert_int_equal(r->row[i]->finish, KVIK_FINISH_CRITERIA);
        }
        assert_string_equal(kvik_finish_name(r->row[0]->finish), "criteria");
        kvik_result_free(r);
        g.max_time = 1e-9;
        r = run(c, &g, 2, NULL);
        for (uint32_t i = 0; i < r->n_rows; i++) {
            assert_int_equal(r->row[i]->n, r->row[i]->n_prompt + 1);
            assert_int_equal(r->row[i]->finish, KVIK_FINISH_TIME);
        }
        kvik_result_free(r);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

struct counted {
    uint64_t first;
    uint32_t calls;
};

static bool count(void *ctx, uint32_t row, const int32_t *text, size_t n, float *s, uint32_t vocab)
{
    struct counted *k = ctx;
    (void)row, (void)text, (void)n, (void)s, (void)vocab;
    if (!k->calls++) k->first = mem_calls();
    assert_int_equal(mem_calls(), k->first);
    return true;
}

/* Nothing is allocated from the first step on. */
static void no_allocations(void **state)
{
    (void)state;
    for (size_t w = 0; w < countof(ways); w++) {
        kvik_cache *c = open_cache("dynamic", NULL);
        kvik_generation g = options(8);
        ways[w].set(&g);
        struct counted k = {0};
        kvik_hooks hooks = {.size = sizeof hooks, .ctx = &k, .logits_processor = count};
        kvik_result *r = run(c, &g, 2, &hooks);
        assert_true(k.calls >= 16);
        kvik_result_free(r);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* Computes the logits of `text` without a cache; the new tokens are computed one by one. */
static void from_scratch(kvik_cache *c, const int32_t *text, size_t prompt, size_t n, float *out)
{
    kvik_span span = {.size = sizeof span, .ids = text, .n = (uint32_t)prompt};
    assert_int_equal(kvik_cache_new(c, &span.seq), 0);
    assert_int_equal(kvik_forward(c, &span, 1, false, out), 0);
    for (size_t i = prompt; i < n; i++) {
        span.ids = text + i;
        span.n = 1;
        assert_int_equal(kvik_forward(c, &span, 1, false, out), 0);
    }
    assert_int_equal(kvik_cache_drop(c, span.seq), 0);
}

/* The sequence of a row holds all of its text but the last token. It continues with the bits of a
 * sequence computed by hand. */
static void sequences(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *config;
    } kind[] = {{"dynamic", NULL},
                {"static", NULL},
                {"offloaded", NULL},
                {"quantized", "{\"nbits\": 4, \"residual_length\": 4, \"q_group_size\": 16}"}};
    float *got = mem_array(kvik_model_vocab(tiny), sizeof *got),
          *want = mem_array(kvik_model_vocab(tiny), sizeof *want);
    for (size_t p = 0; p < countof(kind); p++)
        for (size_t way = 0; way < countof(ways); way++) {
            kvik_cache *c = open_cache(kind[p].preset, kind[p].config);
            kvik_generation g = options(7);
            ways[way].set(&g);
            negative_prompt(&g, true);
            g.return_dict_in_generate = true;
            kvik_result *r = run(c, &g, 2, NULL);
            kvik_usage u = {.size = sizeof u};
            for (uint32_t i = 0; i < r->n_rows; i++) {
                const kvik_row *row = r->row[i];
                assert_int_equal(kvik_cache_length(c, row->seq), row->n - 1);
                kvik_span span = {
                    .size = sizeof span, .seq = row->seq, .ids = row->ids + row->n - 1, .n = 1};
                assert_int_equal(kvik_forward(c, &span, 1, false, got), 0);
                from_scratch(c, row->ids, row->n_prompt, row->n, want);
                assert_memory_equal(got, want, r->vocab * sizeof *got);
                assert_int_equal(kvik_cache_drop(c, row->seq), 0);
            }
            kvik_cache_usage(c, &u);
            assert_int_equal(u.tokens, 0);
            kvik_result_free(r);
            negative_prompt(&g, false);
            kvik_generation_done(&g);
            kvik_cache_close(c);
        }
    mem_free(got);
    mem_free(want);
}

struct strategy {
    const char *preset, *config;
    bool use_cache;
};

static void same_rows(const char *way, const struct strategy *s, const kvik_result *a,
                      const kvik_result *b)
{
    assert_int_equal(a->n_rows, b->n_rows);
    for (uint32_t i = 0; i < a->n_rows; i++)
        if (a->row[i]->n != b->row[i]->n ||
            memcmp(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof *a->row[i]->ids) ||
            a->row[i]->score != b->row[i]->score)
            fail_msg("%s, %s: row %u differs", way, s->use_cache ? s->preset : "no cache", i);
}

/* Lossless strategies give the rows of dynamic, scores included, bit for bit. Two prompts together
 * give those of each alone (a draw depends on the row of its prompt, so only for the first). Lossy
 * strategies give the same rows in two runs. */
static void strategies(void **state)
{
    (void)state;
    static const struct strategy lossless[] = {{"static", NULL, true},
                                               {"offloaded", NULL, true},
                                               {"offloaded_static", NULL, true},
                                               {"dynamic", NULL, false}},
                                 lossy[] = {
                                     {"quantized", "{\"nbits\": 4, \"q_group_size\": 16}", true},
                                     {"sink", "{\"window_length\": 8, \"num_sink_tokens\": 2}",
                                      true},
                                     {"dynamic", "{\"sliding_window\": 6}", true}};
    for (size_t w = 0; w < countof(ways); w++) {
        kvik_generation g = options(9);
        ways[w].set(&g);
        negative_prompt(&g, true);
        kvik_cache *c = open_cache("dynamic", NULL);
        kvik_result *want = run(c, &g, 2, NULL), *alone = run(c, &g, 1, NULL);
        for (uint32_t i = 0; i < alone->n_rows; i++)
            assert_memory_equal(alone->row[i]->ids, want->row[i]->ids,
                                alone->row[i]->n * sizeof *alone->row[i]->ids);
        kvik_result_free(alone);
        kvik_cache_close(c);
        for (size_t k = 0; k < countof(lossless); k++) {
            c = open_cache(lossless[k].preset, lossless[k].config);
            g.use_cache = lossless[k].use_cache || g.penalty_alpha > 0;
            kvik_result *r = run(c, &g, 2, NULL);
            same_rows(ways[w].name, &lossless[k], want, r);
            kvik_result_free(r);
            kvik_cache_close(c);
        }
        g.use_cache = true;
        for (size_t k = 0; k < countof(lossy); k++) {
            c = open_cache(lossy[k].preset, lossy[k].config);
            kvik_result *a = run(c, &g, 2, NULL), *b = run(c, &g, 2, NULL);
            same_rows(ways[w].name, &lossy[k], a, b);
            kvik_result_free(a);
            kvik_result_free(b);
            kvik_cache_close(c);
        }
        kvik_result_free(want);
        negative_prompt(&g, false);
        kvik_generation_done(&g);
    }
}

/* Windows, chunks, learned positions, experts: every way gives the same rows with a static cache
 * and, if it can, without a cache. */
static void architectures(void **state)
{
    (void)state;
    static const char *const model[] = {"mistral", "gemma2", "gemma3",  "llama4", "gpt2",
                                        "qwen3",   "phi3",   "mixtral", "gpt-oss"};
    static const struct strategy other[] = {{"static", NULL, true}, {"dynamic", NULL, false}};
    kvik_model *usual = tiny;
    for (size_t m = 0; m < countof(model); m++) {
        char path[100];
        snprintf(path, sizeof path, "tests/golden/models/%s", model[m]);
        if (kvik_model_open(path, &tiny) < 0) fail_msg("%s", kvik_last_error());
        for (size_t w = 0; w < countof(ways); w++) {
            kvik_generation g = options(6);
            ways[w].set(&g);
            kvik_cache *c = open_cache("dynamic", NULL);
            kvik_result *want = run(c, &g, 2, NULL);
            kvik_cache_close(c);
            for (size_t k = 0; k < countof(other); k++) {
                c = open_cache(other[k].preset, other[k].config);
                g.use_cache = other[k].use_cache || g.penalty_alpha > 0;
                kvik_result *r = run(c, &g, 2, NULL);
                same_rows(ways[w].name, &other[k], want, r);
                kvik_result_free(r);
                kvik_cache_close(c);
            }
            kvik_result_free(want);
            kvik_generation_done(&g);
        }
        kvik_model_close(tiny);
    }
    tiny = usual;
}

/* --- contrastive search by its definition: the hidden states of every candidate, computed without
 * a cache */
static void hidden_of(kvik_cache *c, const int32_t *text, uint32_t n, float *logits, float *hidden)
{
    kv_seq s;
    struct exec_probe probe = {.last = hidden};
    assert_int_equal(kv_new(c->x->kv, NULL, &s), 0);
    struct exec_feed f = {.seq = s, .tok = text, .n = n, .probe = &probe};
    assert_int_equal(exec_feed(c->x, &f, 1, 0, logits, NULL, NULL), 0);
    assert_int_equal(kv_drop(c->x->kv, s), 0);
}

static double cosine(const float *a, const float *b, uint32_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

static void contrast_literally(void **state)
{
    (void)state;
    enum { NEW = 10, K = 5, P = countof(ids) };
    kvik_cache *c = open_cache("dynamic", NULL);
    kvik_generation g = options(NEW);
    uint32_t vocab = kvik_model_vocab(tiny), hidden = c->x->m->hidden;
    float *logits = mem_array(vocab, sizeof *logits),
          *states = mem_array((P + NEW) * (size_t)hidden, sizeof *states);
    int32_t text[P + NEW];
    memcpy(text, ids, sizeof ids);
    for (int step = 0; step < 2 * NEW; step++) {
        uint32_t n = P + (uint32_t)step % NEW;
        double alpha = step < NEW ? 0.6 : 0.9, best = -INFINITY, total = 0;
        int32_t choice = -1;
        bool used[1024] = {false};
        assert_true(vocab <= countof(used));
        hidden_of(c, text, n, logits, states);
        float max = logits[gen_argmax(logits, vocab)];
        for (uint32_t v = 0; v < vocab; v++)
            total += exp((double)logits[v] - max);
        for (int k = 0; k < K; k++) {
            uint32_t top = 0;
            float other[1024];
            while (used[top])
                top++;
            for (uint32_t v = 0; v < vocab; v++)
                if (!used[v] && logits[v] > logits[top]) top = v;
            used[top] = true;
            text[n] = (int32_t)top;
            hidden_of(c, text, n + 1, other, states);
            double most = -INFINITY;
            for (uint32_t t = 0; t < n; t++)
                most = fmax(most, cosine(states + t * hidden, states + n * hidden, hidden));
            double score = (1 - alpha) * exp((double)logits[top] - max) / total - alpha * most;
            if (score <= best) continue;
            best = score;
            choice = (int32_t)top;
        }
        text[n] = choice;
        if (n + 1 < P + NEW) continue;
        g.penalty_alpha = alpha;
        g.top_k = K;
        kvik_result *r = run(c, &g, 1, NULL);
        assert_memory_equal(r->row[0]->ids, text, sizeof text);
        kvik_result_free(r);
    }
    mem_free(logits);
    mem_free(states);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

/* Every way continues a sequence of the caller. A call that fails at any allocation leaves the
 * sequence unchanged. */
static void given(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * countof(ways); i++) {
        size_t w = i / 2;
        kvik_cache *c = open_cache("dynamic", NULL);
        kvik_generation g = options(4);
        ways[w].set(&g);
        negative_prompt(&g, true);
        kvik_result *want = run(c, &g, 1, NULL), *r = NULL;
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
        kvik_span span = {.size = sizeof span, .ids = ids, .n = 5};
        assert_int_equal(kvik_cache_new(c, &p.seq), 0);
        span.seq = p.seq;
        assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
        kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
        kvik_cache_usage(c, &before);
        int64_t failures = 0;
        g.return_dict_in_generate = i % 2;
        for (;; failures++) {
            mem_fail_at(failures, false);
            int e = kvik_generate(c, &g, &p, 1, NULL, &r);
            mem_fail_at(-1, false);
            if (e == 0) break;
            assert_int_equal(e, KVIK_NOMEM);
            kvik_cache_usage(c, &after);
            assert_int_equal(kvik_cache_length(c, p.seq), 5);
            assert_int_equal(after.tokens, before.tokens);
            assert_int_equal(after.bytes, before.bytes);
        }
        assert_true(failures > 10);
        assert_memory_equal(r->row[0]->ids, want->row[0]->ids, want->row[0]->n * sizeof *ids);
        /* Beam search keeps as much of the best row as is still cached. */
        assert_in_range(kvik_cache_length(c, p.seq), countof(ids), r->row[0]->n - 1);
        if (g.num_beams == 1 || i % 2)
            assert_int_equal(kvik_cache_length(c, p.seq), r->row[0]->n - 1);
        assert_int_equal(r->row[0]->seq, i % 2 ? p.seq : 0);
        assert_true(kv_check(c->x->kv));
        kvik_result_free(r);
        kvik_result_free(want);
        negative_prompt(&g, false);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* return_legacy_cache: prompts end in one column, and each cell is the row that the sequence
 * exports. */
static void legacy(void **state)
{
    (void)state;
    for (size_t w = 0; w < countof(ways); w++) {
        kvik_cache *c = open_cache("dynamic", NULL);
        kvik_generation g = options(5);
        ways[w].set(&g);
        g.return_legacy_cache = g.return_dict_in_generate = true;
        kvik_result *r = run(c, &g, 2, NULL);
        const kvik_legacy *l = r->past_key_values;
        assert_non_null(l);
        assert_int_equal(l->batch, r->n_rows);
        assert_int_equal(l->length, countof(ids) + 5 - 1);
        for (uint32_t i = 0; i < r->n_rows; i++) {
            const kvik_row *row = r->row[i];
            const uint8_t *mask = l->attention_mask + (size_t)i * l->length;
            kvik_export *s;
            assert_int_equal(kvik_cache_export(c, row->seq, &s), 0);
            for (uint32_t col = 0, k = 0; col < l->length; col++) {
                assert_int_equal(mask[col], col + row->n_prompt >= countof(ids));
                const kvik_legacy_layer *y = &l->layer[1];
                for (uint32_t h = 0; h < y->heads && mask[col]; h++)
                    assert_memory_equal(
                        y->values + (((size_t)i * y->heads + h) * y->tokens + col) * y->dim_v,
                        (const float *)kvik_layer_plane(&s->layer[1], "values")->data +
                            ((size_t)h * s->layer[1].rows + k) * y->dim_v,
                        y->dim_v * sizeof(float));
                if (mask[col]) assert_int_equal(l->ids[(size_t)i * l->length + col], row->ids[k++]);
            }
            kvik_export_free(s);
            assert_int_equal(kvik_cache_drop(c, row->seq), 0);
        }
        kvik_result_free(r);
        g.return_dict_in_generate = false; /* only arrays are returned: no sequence stays */
        r = run(c, &g, 1, NULL);
        kvik_usage u = {.size = sizeof u};
        kvik_cache_usage(c, &u);
        assert_true(r->past_key_values && !r->row[0]->seq && u.tokens == 0);
        kvik_result_free(r);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* Combinations that contradict each other are refused by name. */
static void refusals(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic", NULL);
    kvik_generation g = options(4);
    const kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = countof(ids)},
                              {.size = sizeof(kvik_prompt), .ids = others, .n = countof(others)}};
    kvik_result *r;
    contrastive(&g);
    g.top_k = 7;
    assert_int_equal(kvik_generate(c, &g, p, 2, NULL, &r), KVIK_LIMIT);
    assert_non_null(strstr(kvik_last_error(), "2 prompts with 7 candidates"));
    assert_non_null(strstr(kvik_last_error(), "need 14 sequences"));
    g.use_cache = false;
    assert_int_equal(kvik_generate(c, &g, p, 1, NULL, &r), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "use_cache"));
    kvik_generation_done(&g);
    g = options(4);
    guided_beam(&g);
    g.num_beams = 4;
    assert_int_equal(kvik_generate(c, &g, p, 2, NULL, &r), KVIK_LIMIT);
    assert_non_null(strstr(kvik_last_error(), "and their negative texts need 16 sequences"));
    kvik_generation_done(&g);
    kvik_cache_close(c);
    c = open_cache("sink", "{\"window_length\": 8, \"num_sink_tokens\": 2}");
    g = options(4);
    g.return_legacy_cache = true;
    assert_int_equal(kvik_generate(c, &g, p, 1, NULL, &r), KVIK_UNSUPPORTED);
    g.use_cache = false;
    assert_int_equal(kvik_generate(c, &g, p, 1, NULL, &r), KVIK_ARG);
    kvik_generation_done(&g);
    kvik_cache_close(c);
}

static int setup(void **state)
{
    (void)state;
    return kvik_model_open(TINY, &tiny);
}

static int teardown(void **state)
{
    (void)state;
    kvik_model_close(tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processors),
        cmocka_unit_test(criteria),
        cmocka_unit_test(scores),
        cmocka_unit_test(sequences),
        cmocka_unit_test(strategies),
        cmocka_unit_test(architectures),
        cmocka_unit_test(contrast_literally),
        cmocka_unit_test(legacy),
        cmocka_unit_test(no_allocations),
        cmocka_unit_test(given),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
