/* test_golden_beam.c - the recorded beam searches of part C through the public API. Transformers is
 * "the reference" here.
 *
 * Tokens and beam indices must be equal, scores and raw logits within 1e-4 relative. Rows are
 * compared up to their first end-of-sequence token, because the reference fills the rest with
 * another token when pad_token_id is 0. Then the same search runs static, offloaded, without a
 * cache and prompt by prompt; none of these may change a bit. */
#include "golden_case.h"
#include "testing.h"

#include <math.h>

#define DIR "tests/golden/cases"
enum { ROWS = 8, COLUMNS = 64 };
#define TOLERANCE 1e-4

struct golden {
    const char *id;
    json_t *json;                 /* owned */
    struct safetensors *features; /* owned, or NULL */
    const json_t *expect;
    uint32_t n;
    kvik_prompt prompt[ROWS];
    kvik_source source[ROWS];
    int32_t ids[ROWS][COLUMNS];
    uint8_t mask[ROWS][COLUMNS];
    bool f32;
};
static int n_run, n_unrecorded;

static void read_case(const char *id, struct golden *c)
{
    char path[300];
    snprintf(path, sizeof path, DIR "/%s.json", id);
    *c = (struct golden){.id = id};
    if (json_read(path, 64 << 20, &c->json) < 0) fail_msg("%s", err_last());
    c->expect = json_object_get(c->json, "expect");
    if (json_is_string(json_object_get(c->json, "input_features"))) {
        c->n = golden_features(c->json, DIR, &c->features, c->prompt, c->source, ROWS);
        if (!c->n) fail_msg("%s: no features", id);
        return;
    }
    const json_t *ids = json_object_get(c->json, "input_ids"),
                 *mask = json_object_get(c->json, "attention_mask");
    c->n = (uint32_t)json_array_size(ids);
    assert_in_range(c->n, 1, ROWS);
    for (uint32_t i = 0; i < c->n; i++) {
        const json_t *row = json_array_get(ids, i), *m = json_array_get(mask, i);
        size_t n = json_array_size(row);
        assert_in_range(n, 1, COLUMNS);
        for (size_t j = 0; j < n; j++) {
            c->ids[i][j] = (int32_t)json_integer_value(json_array_get(row, j));
            c->mask[i][j] = !m || json_integer_value(json_array_get(m, j));
        }
        c->prompt[i] = (kvik_prompt){
            .size = sizeof(kvik_prompt), .ids = c->ids[i], .n = n, .attention_mask = c->mask[i]};
    }
}

static void forget(struct golden *c)
{
    safetensors_close(c->features);
    json_decref(c->json);
}

static kvik_result *run(kvik_model *m, struct golden *c, const char *preset, bool use_cache,
                        uint32_t from, uint32_t n)
{
    kvik_generation g;
    kvik_cache *cache;
    kvik_result *r;
    char *gen = json_dumps(json_object_get(c->json, "generate"), 0);
    if (kvik_generation_init(&g, m) < 0 || kvik_generation_set(&g, gen) < 0)
        fail_msg("%s: %s", c->id, kvik_last_error());
    free(gen);
    golden_hear(m, c->prompt, c->source, c->n);
    g.output_logits = true;
    if (!use_cache) g.use_cache = false;
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = preset ? preset : g.cache_implementation,
                                .compute = "exact",
                                .max_sequences = n * g.num_beams,
                                .max_cache_len = MIN(2 * COLUMNS, kvik_model_context(m))};
    if (kvik_cache_open(m, &config, &cache) < 0 ||
        kvik_generate(cache, &g, c->prompt + from, n, NULL, &r) < 0)
        fail_msg("%s: %s", c->id, kvik_last_error());
    kvik_cache_close(cache);
    kvik_generation_done(&g);
    return r;
}

static bool near(double got, double want)
{
    return fabs(got - want) <= TOLERANCE * (1 + fabs(want));
}

static void check_rows(const struct golden *c, const kvik_result *r)
{
    const json_t *seq = json_object_get(c->expect, "sequences"),
                 *scores = json_object_get(c->expect, "sequences_scores"),
                 *indices = json_object_get(c->expect, "beam_indices");
    /* These are indices of other rows, see test_golden.c. */
    if (strstr(c->id, "group-beam-batch")) indices = NULL;
    assert_int_equal(r->n_rows, json_array_size(seq));
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const kvik_row *row = r->row[i];
        const json_t *want = json_array_get(seq, i), *from = json_array_get(indices, i);
        assert_in_range(row->n, row->n_prompt + 1, json_array_size(want));
        for (size_t k = 0; k < row->n; k++)
            if (row->ids[k] != json_integer_value(json_array_get(want, k)))
                fail_msg("%s: row %u token %zu is %d, the reference has %d", c->id, i, k,
                         row->ids[k], (int)json_integer_value(json_array_get(want, k)));
        if (row->finish != KVIK_FINISH_EOS) assert_int_equal(row->n, json_array_size(want));
        double score = json_number_value(json_array_get(scores, i));
        if (!near(row->score, score))
            fail_msg("%s: row %u scores %.7g, the reference %.7g", c->id, i, row->score, score);
        for (size_t k = 0; k < json_array_size(from); k++)
            assert_int_equal(k < row->n - row->n_prompt ? row->beam_indices[k] : -1,
                             json_integer_value(json_array_get(from, k)));
    }
}

static bool all_zero(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

/* The rows of a prompt whose search has ended are zeros in kvik; the reference continues to compute
 * them. */
static void check_logits(const struct golden *c, const kvik_result *r)
{
    char path[300];
    const json_t *l = json_object_get(c->expect, "logits");
    struct safetensors *s;
    double worst = 0;
    if (!json_is_object(l)) return;
    snprintf(path, sizeof path, DIR "/%s", json_string_value(json_object_get(l, "file")));
    if (safetensors_open(path, &s) < 0) fail_msg("%s", err_last());
    const struct tensor *t = safetensors_find(s, "logits");
    assert_non_null(t);
    assert_int_equal(t->dim[0], r->steps);
    assert_int_equal(t->dim[1], r->logit_rows);
    assert_int_equal(t->dim[2], r->vocab);
    for (size_t row = 0; row < (size_t)r->steps * r->logit_rows; row++) {
        const float *got = r->logits + row * r->vocab;
        if (all_zero(got, r->vocab)) {
            assert_true(row >= r->logit_rows); /* not in the first step */
            continue;
        }
        for (size_t k = 0; k < r->vocab; k++) {
            float want;
            memcpy(&want, (const char *)t->data + (row * r->vocab + k) * sizeof want, sizeof want);
            worst = fmax(worst, fabs(got[k] - want) / (1 + fabs(want)));
        }
    }
    if (!(worst <= TOLERANCE)) fail_msg("%s: logits off by %.2e", c->id, worst);
    safetensors_close(s);
}

/* Checks that rows [from, from + n) of `a` equal the rows of `b` bit for bit. */
static void check_same(const kvik_result *a, uint32_t from, uint32_t prompts, const kvik_result *b,
                       uint32_t groups)
{
    uint32_t beams = a->logit_rows / prompts, per = a->n_rows / prompts,
             first = from / per * beams; /* the first row of its logits */
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const kvik_row *x = a->row[from + i], *y = b->row[i];
        assert_int_equal(x->n, y->n);
        assert_memory_equal(x->ids, y->ids, x->n * sizeof *x->ids);
        assert_memory_equal(&x->score, &y->score, sizeof x->score);
        assert_int_equal(x->finish, y->finish);
        for (size_t k = 0; k < x->n - x->n_prompt; k++)
            assert_int_equal(x->beam_indices[k],
                             /* Indices count within a group. */
                             y->beam_indices[k] + (int32_t)(first / groups));
    }
    for (uint32_t step = 0; step < b->steps; step++)
        assert_memory_equal(a->logits + ((size_t)step * a->logit_rows + first) * a->vocab,
                            b->logits + (size_t)step * b->logit_rows * b->vocab,
                            (size_t)b->logit_rows * b->vocab * sizeof *a->logits);
}

static const char *const presets[] = {"static", "offloaded", "offloaded_static"};

static void run_case(const char *id)
{
    static struct golden c;
    kvik_model *m;
    kvik_result *r, *other;
    char path[300];
    read_case(id, &c);
    if (!json_is_array(json_object_get(c.expect, "beam_indices"))) { /* beams are not recorded */
        n_unrecorded++;
        forget(&c);
        return;
    }
    snprintf(path, sizeof path, "tests/golden/models/%s",
             json_string_value(json_object_get(c.json, "model")));
    int e = kvik_model_open(path, &m);
    if (e < 0) fail_msg("%s", kvik_last_error());
    const json_t *g = json_object_get(json_object_get(c.json, "generate"), "num_beam_groups");
    uint32_t groups = g ? (uint32_t)json_integer_value(g) : 1;
    r = run(m, &c, NULL, true, 0, c.n);
    check_rows(&c, r);
    if (strstr(json_string_value(json_object_get(c.json, "reference")), " 5."))
        assert_int_equal(r->steps, json_integer_value(json_object_get(c.expect, "steps")));
    check_logits(&c, r);
    for (size_t i = 0; i < countof(presets); i++) {
        other = run(m, &c, presets[i], true, 0, c.n);
        check_same(r, 0, c.n, other, groups);
        kvik_result_free(other);
    }
    other = run(m, &c, "dynamic", false, 0, c.n);
    check_same(r, 0, c.n, other, groups);
    kvik_result_free(other);
    for (uint32_t i = 0; c.n > 1 && i < c.n; i++) {
        other = run(m, &c, NULL, true, i, 1);
        check_same(r, i * (r->n_rows / c.n), c.n, other, groups);
        kvik_result_free(other);
    }
    kvik_result_free(r);
    kvik_model_close(m);
    forget(&c);
    n_run++;
}

static void cases(void **state)
{
    (void)state;
    json_t *index;
    const json_t *c;
    size_t i;
    int n = 0;
    if (json_read("tests/golden/index.json", 64 << 20, &index) < 0) fail_msg("%s", err_last());
    json_array_foreach(json_object_get(index, "cases"), i, c)
    {
        const json_t *tag;
        size_t k;
        bool beam = false;
        json_array_foreach(json_object_get(c, "tags"), k, tag) beam |=
            !strcmp(json_string_value(tag), "beam");
        if (beam && !strcmp(json_string_value(json_object_get(c, "meet")), "exact"))
            n++, run_case(json_string_value(json_object_get(c, "id")));
    }
    json_decref(index);
    printf("golden beams: %d exact, %d without recorded beams\n", n_run, n_unrecorded);
    assert_int_equal(n_run + n_unrecorded, n);
    assert_true(n_run >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
