/* test_speculate.c - speculative decoding returns exactly the results of plain decoding; only the
 * number of steps differs. Tokens, logits, ends, callbacks, the cached rows and the next logits are
 * equal bit for bit. Tested for every model family, cache strategy and source of draft tokens. One
 * source knows the answer and is wrong at random on purpose. */
#include "generate/draft.h"
#include "generate/handle.h"
#include "kvik_compat.h"
#include "planes.h"
#include "share.h"
#include "testing.h"

enum { ROWS = 2, NEW = 40, MOST = 700 };

struct policy {
    const char *model, *implementation, *config, *on_full;
    uint32_t prompt[ROWS];
    bool tight;     /* little memory, so that pages are spilled */
    uint32_t least; /* new tokens, if not NEW */
};
#define QUANTO "{\"backend\":\"quanto\",\"nbits\":4,\"q_group_size\":16,\"residual_length\":8}"
#define HQQ                                                                                        \
    "{\"backend\":\"hqq\",\"nbits\":4,\"axis_key\":1,\"axis_value\":1,\"q_group_size\":16,"        \
    "\"residual_length\":8}"
static const struct policy policies[] = {
    {.model = "llama-mha", .prompt = {43, 11}},
    {.model = "llama-mha", .implementation = "static", .prompt = {43, 11}},
    {.model = "llama-mha", .implementation = "quantized", .config = QUANTO, .prompt = {43, 11}},
    {.model = "llama-mha", .implementation = "quantized", .config = HQQ, .prompt = {43, 11}},
    {.model = "llama-mha",
     .config = "{\"backend\":\"hqq\",\"nbits\":3,\"q_group_size\":16,\"residual_length\":16}",
     .prompt = {43, 30}},
    {.model = "llama-mha", .config = "{\"backend\":\"shuffle\"}", .prompt = {120, 11}},
    {.model = "llama-mha",
     .implementation = "sink",
     .config = "{\"window_length\":24,\"num_sink_tokens\":3}",
     .prompt = {43, 11}},
    {.model = "llama-mha",
     .implementation = "sliding_window",
     .config = "{\"sliding_window\":17}",
     .prompt = {43, 11}},
    {.model = "llama-mha", .implementation = "offloaded", .prompt = {523, 270}, .tight = true},
    {.model = "llama-mha", .on_full = "offload", .prompt = {523, 270}, .tight = true},
    {.model = "llama-mha",
     .implementation = "offloaded",
     .config = QUANTO,
     .prompt = {523, 270},
     .tight = true},
    {.model = "llama-mha",
     .implementation = "offloaded",
     .config = "{\"window_length\":300,\"num_sink_tokens\":3}",
     .prompt = {523, 270},
     .tight = true},
    {.model = "llama-dynamic", .prompt = {20, 5}},
    {.model = "llama-dynamic", .config = QUANTO, .prompt = {20, 5}},
    {.model = "mistral", .prompt = {43, 11}},
    {.model = "mistral", .implementation = "sliding_window", .prompt = {43, 11}},
    {.model = "mistral", .implementation = "quantized", .config = QUANTO, .prompt = {43, 11}},
    {.model = "mixtral", .prompt = {43, 11}},
    {.model = "gemma2", .prompt = {43, 11}},
    {.model = "gemma2", .implementation = "hybrid", .prompt = {43, 11}},
    {.model = "gemma2", .implementation = "offloaded", .prompt = {523, 270}, .tight = true},
    {.model = "gemma3", .prompt = {43, 11}},
    {.model = "gemma3", .implementation = "quantized", .config = HQQ, .prompt = {43, 11}},
    {.model = "llama4", .prompt = {43, 11}},
    {.model = "llama4", .implementation = "hybrid_chunked", .prompt = {43, 11}},
    {.model = "gpt-oss", .prompt = {43, 11}},
    {.model = "gpt-oss",
     .implementation = "sink",
     .config = "{\"window_length\":20,\"num_sink_tokens\":2}",
     .prompt = {43, 11}},
    {.model = "phi3", .prompt = {20, 30}}, /* crosses into the long factors at 32 */
    {.model = "phi3", .implementation = "static", .prompt = {20, 5}},
    {.model = "phi3", .config = QUANTO, .prompt = {29, 5}},
    {.model = "gpt2", .prompt = {43, 11}},
    {.model = "gpt2", .implementation = "static", .prompt = {43, 11}},
    {.model = "qwen3", .config = "{\"sliding_window\":21}", .prompt = {43, 11}},
};

enum who { PLAIN, LOOKUP, LOOKUP_LONG, SAME, OTHER, WRONG, NOISE, WHO };
static const char *const who_names[] = {"plain",          "lookup of 3",   "lookup of 10",
                                        "the same model", "another model", "wrong on purpose",
                                        "noise"};

struct played { /* everything that must not depend on draft tokens */
    int32_t ids[ROWS][NEW];
    uint32_t n[ROWS], reused[ROWS];
    enum kvik_finish finish[ROWS];
    /* Digests: of the cached rows, and of the calls of on_token. */
    uint64_t rows[ROWS], calls[ROWS];
    float *logits, *next; /* [NEW][ROWS][vocab], [ROWS][vocab] */
    uint32_t steps, vocab;
    uint64_t drafted, accepted, spilled, computed;
};

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct played *p = ctx;
    p->calls[row] = mix(mix(p->calls[row], &id, sizeof id), text, strlen(text));
    return true;
}

static uint64_t digest(kvik_cache *c, kvik_seq s)
{
    kvik_export *p;
    uint64_t h = 1469598103934665603u;
    if (kvik_cache_export(c, s, &p) < 0) fail_msg("%s", kvik_last_error());
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const kvik_layer_rows *r = &p->layer[l];
        for (uint32_t i = 0; i < r->n_planes; i++)
            h = mix(h, r->plane[i].data, plane_values(&r->plane[i]) * sizeof(float));
        h = mix(h, r->position, (size_t)r->rows * 4);
    }
    h = mix(h, p->ids, (size_t)p->length * sizeof *p->ids);
    kvik_export_free(p);
    return h;
}

/* --- sources of draft tokens for the tests */
struct oracle { /* knows the tokens of plain decoding */
    const struct played *truth;
    uint32_t seed, vocab;
    bool noise;
};

static uint32_t draw(struct oracle *t, uint32_t n)
{
    t->seed = t->seed * 1664525u + 1013904223u;
    return (t->seed >> 8) % n;
}

static int tell(void *ctx, struct draft_row *row, uint32_t n)
{
    struct oracle *t = ctx;
    for (uint32_t i = 0; i < n; i++) {
        struct draft_row *w = &row[i];
        uint32_t most = draw(t, 3) ? w->max : MIN(w->max, draw(t, 4)), lie = draw(t, 13);
        for (; w->got < most; w->got++) {
            uint32_t at = w->n - (uint32_t)w->text.n_prompt + w->got;
            bool truth = !t->noise && w->got != lie && at < t->truth->n[w->row];
            w->ids[w->n + w->got] =
                truth ? t->truth->ids[w->row][at] : (int32_t)draw(t, draw(t, 4) ? t->vocab : 3);
        }
    }
    return 0;
}

/* --- one run */
struct scene {
    const struct policy *p;
    kvik_model *model, *other;
    kvik_generation g;
    uint64_t memory;
    kvik_prompt prompt[ROWS];
    int32_t ids[ROWS][MOST];
    uint32_t rows;
};

static kvik_model *open_model(const char *name)
{
    char path[200];
    kvik_model *m;
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    return m;
}

static int open_cache(const struct scene *s, kvik_cache **out)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = s->p->implementation,
                           .cache_config = s->p->config,
                           .cache_memory = s->memory,
                           .max_cache_len = strcmp(s->p->model, "gpt2") ? MOST : 128,
                           .max_sequences = 6,
                           .step_tokens = 64,
                           .threads = 1,
                           .compute = "exact",
                           .on_full = s->p->on_full,
                           .spill_dir = s->p->tight ? "." : NULL};
    return kvik_cache_open(s->model, &k, out);
}

static kvik_cache *open_assistant(kvik_model *m)
{
    kvik_cache_config k = {.size = sizeof k,
                           .max_cache_len = MOST,
                           .max_sequences = 6,
                           .threads = 1,
                           .compute = "exact"};
    kvik_cache *c;
    if (kvik_model_context(m) == 128) k.max_cache_len = 128;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static int generate(const struct scene *s, kvik_cache *c, const kvik_prompt *prompt, enum who who,
                    const struct played *truth, struct played *out, kvik_result **r)
{
    kvik_generation g = s->g;
    kvik_cache *a = NULL;
    struct oracle t = {truth, 7, kvik_model_vocab(s->model), who == NOISE};
    struct drafter d = {.propose = tell, .ctx = &t, .most = 12};
    struct gen_assist assist = {.maker = &d};
    kvik_hooks h = {.size = sizeof h, .on_token = on_token, .ctx = out};
    int e;
    if (who == LOOKUP) g.prompt_lookup_num_tokens = 3;
    if (who == LOOKUP_LONG) g.prompt_lookup_num_tokens = 10, g.max_matching_ngram_size = 3;
    if (who == SAME) g.num_assistant_tokens = 5, g.assistant_confidence_threshold = 0;
    static char schedule[] = "heuristic_transient";
    if (who == OTHER) g.num_assistant_tokens_schedule = schedule;
    if (who == SAME) h.assistant_model = a = open_assistant(s->model);
    if (who == OTHER) h.assistant_model = a = open_assistant(s->other);
    if (who == WRONG || who == NOISE)
        e = gen_run(c->driver,
                    &(struct gen_call){.tok = c->model->tok ? c->model->tok->tok : NULL,
                                       .g = &g,
                                       .prompt = prompt,
                                       .n = s->rows,
                                       .hooks = &h,
                                       .assist = &assist},
                    r);
    else
        e = kvik_generate(c, &g, prompt, s->rows, &h, r);
    if (a) {
        kvik_usage u = {.size = sizeof u};
        kvik_cache_usage(a, &u);
        assert_int_equal(u.tokens, 0); /* nothing of the speculation stays in the cache */
        kvik_cache_close(a);
    }
    return e;
}

static void keep(const struct scene *s, kvik_cache *c, const kvik_prompt *prompt,
                 const kvik_result *r, struct played *out)
{
    kvik_usage u = {.size = sizeof u};
    size_t vocab = r->vocab;
    out->vocab = r->vocab;
    out->logits = calloc((size_t)NEW * s->rows * vocab, sizeof(float));
    out->next = calloc(s->rows * vocab, sizeof(float));
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->rows; i++) {
        const kvik_row *w = r->row[i];
        out->n[i] = (uint32_t)(w->n - w->n_prompt);
        most = MAX(most, out->n[i]);
        memcpy(out->ids[i], w->ids + w->n_prompt, out->n[i] * sizeof(int32_t));
        out->finish[i] = w->finish;
        out->reused[i] = (uint32_t)w->reused;
        if (!prompt[i].seq) continue;
        assert_int_equal(kvik_cache_length(c, prompt[i].seq), w->n - 1);
        out->rows[i] = digest(c, prompt[i].seq);
        kvik_span span = {
            .size = sizeof span, .seq = prompt[i].seq, .ids = w->ids + w->n - 1, .n = 1};
        if (kvik_forward(c, &span, 1, false, out->next + i * vocab) < 0)
            fail_msg("%s", kvik_last_error());
    }
    assert_int_equal(r->logit_steps, most);
    memcpy(out->logits, r->logits, (size_t)most * s->rows * vocab * sizeof(float));
    kvik_cache_usage(c, &u);
    out->steps = r->steps;
    out->drafted = r->drafted;
    out->accepted = r->accepted;
    out->computed = r->computed_tokens;
    out->spilled = u.tier_written;
}

static int play(const struct scene *s, enum who who, const struct played *truth, struct played *out)
{
    kvik_cache *c;
    kvik_result *r = NULL;
    kvik_prompt prompt[ROWS];
    int e = open_cache(s, &c);
    if (e < 0) return e;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; e >= 0 && i < s->rows; i++) {
        prompt[i] = s->prompt[i];
        e = kvik_cache_new(c, &prompt[i].seq);
    }
    if (e >= 0) e = generate(s, c, prompt, who, truth, out, &r);
    if (e >= 0) keep(s, c, prompt, r, out);
    kvik_result_free(r);
    kvik_cache_close(c);
    return e;
}

static void forget(struct played *p)
{
    free(p->logits);
    free(p->next);
}

static void compare(const struct scene *s, const struct played *want, const struct played *got,
                    const char *who)
{
    const char *name = s->p->model, *how = s->p->implementation ? s->p->implementation : "dynamic";
    for (uint32_t i = 0; i < s->rows; i++) {
        if (want->n[i] != got->n[i] || memcmp(want->ids[i], got->ids[i], want->n[i] * 4))
            fail_msg("%s %s, %s: other tokens in row %u", name, how, who, i);
        if (want->finish[i] != got->finish[i])
            fail_msg("%s %s, %s: row %u ends differently", name, how, who, i);
        if (want->calls[i] != got->calls[i])
            fail_msg("%s %s, %s: row %u made other calls", name, how, who, i);
        if (want->rows[i] != got->rows[i])
            fail_msg("%s %s, %s: row %u leaves other contents in the cache", name, how, who, i);
    }
    if (memcmp(want->logits, got->logits, (size_t)NEW * s->rows * want->vocab * sizeof(float)))
        fail_msg("%s %s, %s: other logits", name, how, who);
    if (memcmp(want->next, got->next, (size_t)s->rows * want->vocab * sizeof(float)))
        fail_msg("%s %s, %s: other logits afterwards", name, how, who);
}

static void fill(struct scene *s)
{
    uint32_t seed = 17, vocab = kvik_model_vocab(s->model);
    for (uint32_t i = 0; i < s->rows; i++) {
        for (uint32_t k = 0; k < s->p->prompt[i]; k++) {
            seed = seed * 1664525u + 1013904223u;
            s->ids[i][k] = (int32_t)(3 + (seed >> 8) % (vocab - 3));
            /* Repeats, so that prompt lookup finds something. */
            if (k > 20 && k % 3) s->ids[i][k] = s->ids[i][k - 20];
        }
        s->prompt[i] =
            (kvik_prompt){.size = sizeof(kvik_prompt), .ids = s->ids[i], .n = s->p->prompt[i]};
    }
}

/* Finds a memory limit that is just enough for plain decoding, growing by halves. */
static void squeeze(struct scene *s, struct played *out)
{
    int e = KVIK_FULL;
    for (s->memory = 1 << 15; e < 0; s->memory += s->memory / 2) {
        e = play(s, PLAIN, NULL, out);
        if (e < 0 && e != KVIK_FULL && e != KVIK_LIMIT) fail_msg("%s", kvik_last_error());
        if (e >= 0) break;
    }
    if (!out->spilled) fail_msg("%s: no page was spilled", s->p->model);
}

/* True if the results may differ: an assistant has a plain cache and computes the accepted tokens
 * as one turn. */
static bool differs(const struct scene *s)
{
    return s->p->config || strcmp(s->p->model, "llama-dynamic") == 0;
}

static void test_policies(void **state)
{
    (void)state;
    uint32_t saved = 0;
    for (size_t i = 0; i<countof(policies); i += test_share()> 4 ? 3 : 1) {
        struct scene s = {.p = &policies[i], .rows = ROWS};
        struct played want, got;
        s.model = open_model(s.p->model);
        s.other = open_model(strcmp(s.p->model, "qwen2") ? "qwen2" : "llama-mha");
        assert_int_equal(kvik_generation_init(&s.g, NULL), 0);
        s.g.max_new_tokens = NEW;
        s.g.output_logits = true;
        fill(&s);
        if (s.p->tight)
            squeeze(&s, &want);
        else if (play(&s, PLAIN, NULL, &want) < 0)
            fail_msg("%s: %s", s.p->model, kvik_last_error());
        for (enum who w = LOOKUP; w < WHO; w++) {
            if (play(&s, w, &want, &got) < 0)
                fail_msg("%s, %s: %s", s.p->model, who_names[w], kvik_last_error());
            compare(&s, &want, &got, who_names[w]);
            if (getenv("SPECULATE_SAY"))
                printf("%s %s: steps %u for %u, %llu of %llu draft tokens\n", s.p->model,
                       who_names[w], got.steps, want.steps, (unsigned long long)got.accepted,
                       (unsigned long long)got.drafted);
            assert_true(got.steps <= want.steps);
            if (w == SAME && !differs(&s)) {
                assert_int_equal(got.accepted, got.drafted);
                assert_true(got.steps <= 2 + (NEW + 4) / 5);
            }
            saved += want.steps - got.steps;
            forget(&got);
        }
        forget(&want);
        kvik_generation_done(&s.g);
        kvik_model_close(s.other);
        kvik_model_close(s.model);
    }
    assert_true(saved > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
