/* test_probe_reference.c - hidden states, attention probabilities, embeddings and positions against
 * those of Transformers for the same models (tests/fixtures/make_probe.py), and the same bits under
 * every strategy. */
#include "test_probe.h"

#include "fmt/fmt.h"

enum { PAST = 13, NEW = 4, ALL = PAST + NEW, FED = 6, DEEP = 600 };
static const uint32_t positions[FED] = {3, 4, 9, 10, 11, 30};
static const char *const models[] = {"llama-mha",   "gpt2",        "gemma2",     "gemma3-old",
                                     "gpt-oss",     "llama4",      "mixtral",    "mistral",
                                     "qwen3-mixed", "qwen2-upper", "qwen3-next", "olmo3"};
static struct safetensors *file;

static int start(void **state)
{
    (void)state;
    return safetensors_open("tests/fixtures/probe.safetensors", &file);
}

static int stop(void **state)
{
    (void)state;
    safetensors_close(file);
    return 0;
}

/* Checks that values are within `part` of the largest value of Transformers, or of 1 if 1 is
 * larger. */
static void near(const char *name, const char *what, const float *got, size_t n, float part)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", name, what);
    const struct tensor *t = safetensors_find(file, key);
    size_t have = t ? 1 : 0;
    for (uint32_t i = 0; t && i < t->n_dims; i++)
        have *= t->dim[i];
    if (have != n) fail_msg("%s: %zu numbers, the reference has %zu", key, n, have);
    float *want = malloc(n * sizeof *want), most = 1;
    memcpy(want, t->data, n * sizeof *want);
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(want[i]));
    if (!(apart(want, got, n) <= part * most))
        fail_msg("%s: differs by %g", key, (double)apart(want, got, n));
    free(want);
}

static void take_ids(void)
{
    for (int32_t i = 0; i < ALL; i++)
        ids[i] = 3 + i * 37 % 50;
}

/* The outputs of one way of computing. */
struct shown {
    size_t n_first, n_attention, n_hidden;
    float *first, *attention, *hidden;
};

static struct shown show(struct exec *x, uint32_t chunk)
{
    const struct model *m = x->m;
    size_t per = (size_t)m->n_layers * m->n_heads;
    struct shown s = {.n_first = per * PAST * PAST, .n_attention = per * NEW * ALL};
    s.n_hidden = (size_t)(m->n_layers + 1) * NEW * m->hidden;
    struct exec_probe a = {.attention = s.first = array(s.n_first), .columns = PAST};
    struct exec_probe b = {.attention = s.attention = array(s.n_attention), .columns = ALL};
    b.hidden = s.hidden = array(s.n_hidden);
    /* every element of a layer with attention is written */
    for (uint32_t i = 0; i < m->n_sites; i++)
        if (m->site[i].kind == KV_ROWS)
            memset(s.attention + (size_t)m->site[i].layer * m->n_heads * NEW * ALL, 0x7f,
                   (size_t)m->n_heads * NEW * ALL * sizeof *s.attention);
    kv_seq seq = fresh(x), other = fresh(x);
    take_ids();
    const struct exec_feed one[] = {{.seq = seq, .tok = ids, .n = PAST, .probe = &a},
                                    {.seq = other, .tok = ids + 2, .n = 7}};
    const struct exec_feed two[] = {{.seq = other, .tok = ids, .n = 3},
                                    {.seq = seq, .tok = ids + PAST, .n = NEW, .probe = &b}};
    feed(x, one, 2, chunk, NULL);
    feed(x, two, 2, chunk, NULL);
    return s;
}

static void done(struct shown *s)
{
    free(s->first);
    free(s->attention);
    free(s->hidden);
}

static void test_reference(void **state)
{
    static const struct way ways[] = {
        {.step = 64, .compute = "exact"},
        {.step = 5, .compute = "exact"},
        {.impl = "static", .step = 9, .chunk = 1, .compute = "exact"},
        {.impl = "offloaded", .step = 64, .compute = "exact"},
        {.config = "{\"backend\": \"shuffle\"}", .step = 64, .compute = "exact"}};
    (void)state;
    for (size_t k = 0; k < countof(models); k++) {
        struct shown want = {0};
        for (size_t w = 0; w < countof(ways); w++) {
            struct shown got = show(open_way(models[k], &ways[w]), ways[w].chunk);
            close_way();
            if (w == 0) {
                near(models[k], "first", got.first, got.n_first, 2e-5f);
                near(models[k], "attention", got.attention, got.n_attention, 2e-5f);
                near(models[k], "hidden", got.hidden, got.n_hidden, 2e-5f);
                want = got;
                continue;
            }
            if (memcmp(want.first, got.first, got.n_first * sizeof(float)) ||
                memcmp(want.attention, got.attention, got.n_attention * sizeof(float)) ||
                memcmp(want.hidden, got.hidden, got.n_hidden * sizeof(float)))
                fail_msg("%s, way %zu: has other outputs", models[k], w);
            done(&got);
        }
        done(&want);
    }
}

static void test_embeds(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(models); k++) {
        struct exec *x = open_way(models[k], &(struct way){.step = 4, .compute = "exact"});
        size_t n = FED * (size_t)x->m->hidden;
        char key[64];
        snprintf(key, sizeof key, "%s.embeds", models[k]);
        float *embeds = array(n), *last = array(n);
        memcpy(embeds, safetensors_find(file, key)->data, n * sizeof *embeds);
        struct exec_probe p = {.last = last};
        struct exec_feed f = {.seq = fresh(x), .embeds = embeds, .n = FED, .probe = &p};
        feed(x, &f, 1, 0, NULL);
        near(models[k], "embeds.last", last, n, 2e-5f);
        take_ids();
        f = (struct exec_feed){
            .seq = fresh(x), .tok = ids, .n = FED, .pos = positions, .probe = &p};
        feed(x, &f, 1, 0, NULL);
        near(models[k], "positions.last", last, n, 2e-5f);
        free(embeds);
        free(last);
        close_way();
    }
}

/* Quantized rows: the steps do not matter, probabilities sum to one, and with 8 bits they are close
 * to those of f32. */
static void test_quantized(void **state)
{
    static const char *const config[] = {
        "{\"backend\": \"quanto\", \"nbits\": 4, \"residual_length\": 4, \"q_group_size\": 16}",
        "{\"backend\": \"hqq\", \"nbits\": 8, \"residual_length\": 4, \"q_group_size\": 16}"};
    (void)state;
    for (size_t k = 0; k < countof(config); k++) {
        struct shown want = {0};
        for (uint32_t step = 64; step >= 4; step /= 4) {
            struct way w = {.impl = "quantized", .config = config[k], .step = step};
            struct exec *x = open_way("llama-mha", &w);
            uint32_t rows = x->m->n_layers * x->m->n_heads * NEW;
            struct shown got = show(x, 0);
            close_way();
            for (uint32_t i = 0; i < rows; i++) {
                double sum = 0;
                for (uint32_t j = 0; j < ALL; j++)
                    sum += (double)got.attention[i * ALL + j];
                if (!(fabs(sum - 1) < 1e-6)) fail_msg("probabilities sum to %.9g", sum);
            }
            if (want.first && memcmp(want.attention, got.attention, got.n_attention * 4))
                fail_msg("%s, steps of %u: other probabilities", config[k], step);
            if (k == 1) near("llama-mha", "attention", got.attention, got.n_attention, 0.02f);
            done(&want);
            want = got;
        }
        done(&want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_embeds),
                                       cmocka_unit_test(test_quantized)};
    return cmocka_run_group_tests(tests, start, stop);
}
