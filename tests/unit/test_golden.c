/* test_golden.c - runs the recorded cases of kind "generate" through the public API. Transformers
 * is "the reference" here.
 *
 *     build/test_golden [PART] [-v] [-o SUBSTRING]     PART: A (default), B, C, D, own
 *
 * tests/golden/index.json lists the cases and how each must be met. cases-own/ holds further cases
 * in the same format, recorded for this repository.
 *   exact   tokens equal; f32 logits within 1e-4 relative
 *   tokens  tokens equal
 *   close   the model computes the reference's tokens, and the error of the logits is measured against the unquantized
 *           run (root mean square over all steps). In the geometric mean of all such cases the error is at most the
 *           reference's; in a single case it may be a tenth larger, because rounding after three layers is chance.
 *           test_codec tests the attention output itself.
 *   info    listed with the reason why it is not to be met
 * Beams: indices equal, scores within 1e-4 relative. Rows are compared up to their end, since the
 * reference fills the rest with another token when pad_token_id is 0. test_golden_script runs the
 * cases of kind "script".
 * Cases of architectures that kvik does not run yet are listed and counted as skipped.
 * Cases that the reference could not run (not_recorded) run with the strategy they name; they must
 * give the tokens of the case they equal. */
#include "golden_case.h"
#include "states.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_exact, n_tokens, n_close, n_info, n_failed, verbose;
static double close_log; /* the sum of log(our error / the reference's error) */
static const char *only;

#define FAILF(...)                                                                                 \
    do {                                                                                           \
        printf("FAIL %s: ", id);                                                                   \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        goto fail;                                                                                 \
    } while (0)

struct batch {
    uint32_t n;
    struct safetensors *features; /* or NULL */
    kvik_prompt prompt[16];
    kvik_source source[16];
    int32_t ids[16][1024];
    uint8_t mask[16][1024];
    int32_t decoder[16][1024];
    size_t n_decoder[16];
};

static int read_decoder(const json_t *c, struct batch *b)
{
    const json_t *all = json_object_get(c, "decoder_input_ids");
    for (uint32_t i = 0; json_is_array(all) && i < b->n; i++) {
        const json_t *row = json_array_get(all, i);
        b->n_decoder[i] = json_array_size(row);
        if (b->n_decoder[i] > 1024) return -1;
        for (size_t j = 0; j < b->n_decoder[i]; j++)
            b->decoder[i][j] = (int32_t)json_integer_value(json_array_get(row, j));
    }
    return 0;
}

static int read_batch(const json_t *c, const char *dir, struct batch *b)
{
    const json_t *ids = json_object_get(c, "input_ids"),
                 *mask = json_object_get(c, "attention_mask");
    b->features = NULL;
    memset(b->n_decoder, 0, sizeof b->n_decoder);
    if (json_is_string(json_object_get(c, "input_features"))) {
        b->n = golden_features(c, dir, &b->features, b->prompt, b->source, countof(b->prompt));
        return b->n ? read_decoder(c, b) : -1;
    }
    b->n = (uint32_t)json_array_size(ids);
    if (b->n > 16) return -1;
    for (uint32_t i = 0; i < b->n; i++) {
        const json_t *row = json_array_get(ids, i);
        size_t n = json_array_size(row);
        if (n > 1024) return -1;
        for (size_t j = 0; j < n; j++) {
            b->ids[i][j] = (int32_t)json_integer_value(json_array_get(row, j));
            b->mask[i][j] = !json_is_array(mask) ||
                            json_integer_value(json_array_get(json_array_get(mask, i), j));
        }
        b->prompt[i] = (kvik_prompt){
            .size = sizeof(kvik_prompt), .ids = b->ids[i], .n = n, .attention_mask = b->mask[i]};
    }
    return read_decoder(c, b);
}

static bool zeros(const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

static const char *logits_differ(const json_t *expect, const char *dir, const kvik_result *r,
                                 double tol)
{
    static char why[200];
    const json_t *l = json_object_get(expect, "logits");
    if (!json_is_object(l)) return NULL;
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(l, "file")));
    struct safetensors *s;
    if (safetensors_open(path, &s) < 0) return err_last();
    const struct tensor *t = safetensors_find(s, json_string_value(json_object_get(l, "key")));
    const char *bad = NULL;
    if (!t || t->n_dims != 3 || t->dim[0] < r->steps || t->dim[1] != r->logit_rows ||
        t->dim[2] != r->vocab) {
        bad = "stored logits have another shape";
    } else {
        double worst = 0;
        for (uint32_t step = 0; step < r->steps; step++)
            for (uint32_t row = 0; row < r->logit_rows; row++) {
                size_t at = ((size_t)step * r->logit_rows + row) * r->vocab;
                if (step && zeros(r->logits + at, r->vocab)) continue; /* the row has ended */
                for (uint32_t k = 0; k < r->vocab; k++) {
                    float want;
                    memcpy(&want, (const char *)t->data + (at + k) * 4, 4);
                    double d = fabs(r->logits[at + k] - want) / (1 + fabs(want));
                    if (!(d <= worst)) worst = d;
                }
            }
        if (verbose) printf("     logits off by %.2e\n", worst);
        if (!(worst <= tol)) {
            snprintf(why, sizeof why, "logits off by %.2e", worst);
            bad = why;
        }
    }
    safetensors_close(s);
    return bad;
}

/* Compares beam results. groups: several prompts with groups of beams. If a row's search is still
 * running at the end, the reference writes the indices of groups and prompts in one order and reads
 * them in another. It then shows the beam indices of another row, which are not compared. */
static const char *beams_differ(const json_t *expect, const kvik_result *r, bool groups)
{
    static char why[200];
    const json_t *scores = json_object_get(expect, "sequences_scores"),
                 *indices = groups ? NULL : json_object_get(expect, "beam_indices");
    for (uint32_t i = 0; json_is_array(scores) && i < r->n_rows; i++) {
        const kvik_row *row = r->row[i];
        const json_t *from = json_array_get(indices, i);
        double want = json_number_value(json_array_get(scores, i));
        if (!(fabs(row->score - want) <= 1e-4 * (1 + fabs(want)))) {
            snprintf(why, sizeof why, "row %u scores %.7g, the reference %.7g", i, row->score,
                     want);
            return why;
        }
        for (size_t k = 0; k < json_array_size(from); k++) {
            int32_t beam = (int32_t)json_integer_value(json_array_get(from, k));
            int32_t got = k < row->n - row->n_prompt ? row->beam_indices[k] : -1;
            if (got == beam) continue;
            snprintf(why, sizeof why, "row %u token %zu is of beam %d, the reference has %d", i, k,
                     got, beam);
            return why;
        }
    }
    return NULL;
}

static const char *tokens_differ(const json_t *expect, const kvik_result *r, int32_t pad)
{
    static char why[200];
    const json_t *seq = json_object_get(expect, "sequences");
    if (json_array_size(seq) != r->n_rows) return "another number of rows";
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const json_t *row = json_array_get(seq, i);
        size_t n = json_array_size(row);
        if (r->row[i]->beam_indices && r->row[i]->finish == KVIK_FINISH_EOS) n = r->row[i]->n;
        for (size_t j = 0; j < n || j < r->row[i]->n; j++) {
            int32_t want = j < n ? (int32_t)json_integer_value(json_array_get(row, j)) : -1;
            int32_t got = j < r->row[i]->n ? r->row[i]->ids[j] : pad;
            if (want == got) continue;
            snprintf(why, sizeof why, "row %u token %zu is %d, the reference has %d", i, j, got,
                     want);
            return why;
        }
    }
    return NULL;
}

/* The strategy of a case: its cache object, or the strategy its generate arguments name. */
struct strategy {
    const char *implementation;
    char *config; /* owned JSON, or NULL */
    uint32_t max_cache_len;
    const char *cross; /* of an encoder's rows */
};

static int strategy_of(const json_t *cache, const kvik_generation *g, struct strategy *s)
{
    static const struct {
        const char *name, *implementation;
    } classes[] = {{"DynamicCache", "dynamic"},
                   {"StaticCache", "static"},
                   {"QuantizedCache", "quantized"},
                   {"QuantoQuantizedCache", "quantized"},
                   {"HQQQuantizedCache", "quantized"},
                   {"SinkCache", "sink"},
                   {"Sink", "sink"}};
    *s = (struct strategy){.implementation = g->cache_implementation};
    if (g->cache_config) s->config = strdup(g->cache_config);
    if (json_is_null(cache)) return 0;
    const char *name = json_string_value(json_object_get(cache, "class"));
    if (strcmp(name, "EncoderDecoderCache") == 0) {
        const json_t *both = json_object_get(cache, "args");
        const char *cross = json_string_value(
            json_object_get(json_object_get(both, "cross_attention_cache"), "class"));
        cache = json_object_get(both, "self_attention_cache");
        name = json_string_value(json_object_get(cache, "class"));
        for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
            if (strcmp(cross, classes[i].name) == 0) s->cross = classes[i].implementation;
        if (!s->cross) return -1;
    }
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(name, classes[i].name) == 0) s->implementation = classes[i].implementation;
    if (!s->implementation) return -1;
    json_t *args = json_object_get(cache, "args");
    /* Release 4.47 has a config object. */
    const json_t *inner = json_object_get(args, "cache_config");
    args = json_deep_copy(inner ? json_object_get(inner, "args") : args);
    json_object_del(args, "config");
    json_object_del(args, "batch_size"); /* release 4.47 */
    json_object_del(args, "dtype");
    s->max_cache_len = (uint32_t)json_integer_value(json_object_get(args, "max_cache_len"));
    if (json_object_size(args)) s->config = json_dumps(args, 0);
    json_decref(args);
    return 0;
}

/* Compares the logits of every position of a sink case, prompts longer than the window included. */
static const char *stream_differs(const json_t *expect, const char *dir, kvik_cache *cache,
                                  uint32_t vocab)
{
    static char why[200];
    const json_t *l = json_object_get(expect, "stream_logits");
    if (!json_is_object(l)) return NULL;
    const json_t *seq = json_array_get(json_object_get(expect, "sequences"), 0);
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(l, "file")));
    struct safetensors *s;
    if (safetensors_open(path, &s) < 0) return err_last();
    const struct tensor *t = safetensors_find(s, json_string_value(json_object_get(l, "key")));
    uint64_t n = t ? t->bytes / 4 / vocab : 0;
    int32_t ids[1024];
    kvik_seq q = 0;
    const char *bad = NULL;
    float *got = calloc(n + 1, vocab * sizeof *got);
    double worst = 0;
    for (size_t i = 0; i < json_array_size(seq) && i < 1024; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(seq, i));
    kvik_span span = {.size = sizeof span, .seq = 0, .ids = ids, .n = (uint32_t)n};
    if (!n || n > json_array_size(seq) || kvik_cache_new(cache, &q) < 0) bad = "no stream logits";
    span.seq = q;
    if (!bad && kvik_forward(cache, &span, 1, true, got) < 0) bad = kvik_last_error();
    for (size_t i = 0; !bad && i < n * vocab; i++) {
        float want;
        memcpy(&want, (const char *)t->data + i * 4, 4);
        double d = fabs(got[i] - want) / (1 + fabs(want));
        if (!(d <= worst)) worst = d;
    }
    if (!bad && !(worst <= 1e-4)) {
        snprintf(why, sizeof why, "logits of the stream off by %.2e", worst);
        bad = why;
    }
    if (verbose && !bad) printf("     stream off by %.2e\n", worst);
    if (q) kvik_cache_drop(cache, q);
    free(got);
    safetensors_close(s);
    return bad;
}

/* Compares the states after all tokens but the last, where the case stores them. The tokens are
 * appended in two parts. */
static const char *stored_states_differ(const json_t *expect, const char *dir, kvik_cache *cache,
                                        const struct batch *b)
{
    const json_t *l = json_object_get(expect, "logits"),
                 *all = json_object_get(expect, "sequences");
    char path[600];
    struct safetensors *s = NULL;
    const char *bad = NULL;
    if (!json_is_object(l) || json_array_size(all) != b->n) return NULL;
    snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(l, "file")));
    if (safetensors_open(path, &s) < 0) return err_last();
    for (uint32_t i = 0; !bad && safetensors_find(s, "layers.0.conv") && i < b->n; i++) {
        const json_t *row = json_array_get(all, i);
        int32_t ids[1024];
        uint32_t n = 0;
        kvik_seq q;
        kvik_export *p = NULL;
        for (size_t k = 0; k + 1 < json_array_size(row) && k < 1024; k++)
            if (k >= b->prompt[i].n || b->mask[i][k])
                ids[n++] = (int32_t)json_integer_value(json_array_get(row, k));
        kvik_span span = {.size = sizeof span, .ids = ids, .n = n / 2};
        bool masked = n + 1 < json_array_size(row);
        if (kvik_cache_new(cache, &q) < 0) return kvik_last_error();
        span.seq = q;
        int e = kvik_forward(cache, &span, 1, false, NULL);
        span.ids += span.n;
        span.n = n - span.n;
        if (e >= 0) e = kvik_forward(cache, &span, 1, false, NULL);
        if (e >= 0) e = kvik_cache_export(cache, q, &p);
        bad = e < 0 ? kvik_last_error() : states_differ(s, "layers", i, p, !masked);
        kvik_export_free(p);
        kvik_cache_drop(cache, q);
    }
    safetensors_close(s);
    return bad;
}

/* Compares one plane of every layer with tensors <prefix>.layers.N.<name>. */
static const char *planes_differ(const struct safetensors *s, const char *prefix, const char *name,
                                 const char *plane, uint32_t row, const kvik_export *p)
{
    const char *why = NULL;
    for (uint32_t i = 0; !why && i < p->n_layers; i++) {
        const kvik_plane *q = kvik_layer_plane(&p->layer[i], plane);
        char key[80];
        snprintf(key, sizeof key, "%s.layers.%u.%s", prefix, i, name);
        why = state_differs(safetensors_find(s, key), row, q->data, plane_values(q));
    }
    return why;
}

/* Compares the rows of decoder and encoder after all tokens but the last, where the case stores
 * them. Only cases of one row have them, without masked columns. */
static const char *heard_rows_differ(const json_t *expect, const char *dir, kvik_cache *cache,
                                     const struct batch *b)
{
    const json_t *l = json_object_get(expect, "logits"),
                 *row = json_array_get(json_object_get(expect, "sequences"), 0);
    char path[600];
    struct safetensors *s = NULL;
    const char *bad = NULL;
    if (!json_is_object(l) || b->n != 1) return NULL;
    snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(l, "file")));
    if (safetensors_open(path, &s) < 0) return err_last();
    if (safetensors_find(s, "cross.layers.0.keys")) {
        int32_t ids[1024];
        kvik_seq q;
        kvik_export *p = NULL;
        kvik_source source = b->source[0];
        source.attention_mask = NULL;
        kvik_span span = {.size = sizeof span, .ids = ids};
        for (; span.n + 1 < json_array_size(row) && span.n < 1024; span.n++)
            ids[span.n] = (int32_t)json_integer_value(json_array_get(row, span.n));
        int e = kvik_cache_new(cache, &q);
        span.seq = q;
        if (e >= 0) e = kvik_cache_encode(cache, q, &source);
        if (e >= 0) e = kvik_forward(cache, &span, 1, false, NULL);
        if (e >= 0) e = kvik_cache_export(cache, q, &p);
        bad = e < 0 ? kvik_last_error() : planes_differ(s, "self", "keys", "keys", 0, p);
        if (!bad) bad = planes_differ(s, "self", "values", "values", 0, p);
        if (!bad) bad = planes_differ(s, "cross", "keys", "cross_keys", 0, p);
        if (!bad) bad = planes_differ(s, "cross", "values", "cross_values", 0, p);
        kvik_export_free(p);
        kvik_cache_drop(cache, q);
    }
    safetensors_close(s);
    return bad;
}

/* Computes the reference's tokens. Returns the logits of every step, [steps][rows][vocab]; the
 * prompt is one turn. */
static int forced(kvik_model *m, const struct strategy *st, const struct batch *b,
                  const json_t *seq, uint32_t steps, float *out)
{
    uint32_t vocab = kvik_model_vocab(m), n0 = (uint32_t)b->prompt[0].n;
    kvik_cache *cache = NULL;
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = st->implementation,
                                .cache_config = st->config,
                                .compute = "exact",
                                .max_sequences = b->n,
                                .max_cache_len = n0 + steps + 16};
    int e = kvik_cache_open(m, &config, &cache);
    kvik_span span[16];
    int32_t ids[16][1024];
    for (uint32_t i = 0; e >= 0 && i < b->n; i++) {
        span[i] = (kvik_span){.size = sizeof(kvik_span), .seq = 0, .ids = ids[i], .n = 0};
        for (uint32_t j = 0; j < n0; j++)
            if (b->mask[i][j]) ids[i][span[i].n++] = b->ids[i][j];
        e = kvik_cache_new(cache, &span[i].seq);
    }
    for (uint32_t step = 0; e >= 0 && step < steps; step++) {
        e = kvik_forward(cache, span, b->n, false, out + (size_t)step * b->n * vocab);
        for (uint32_t i = 0; i < b->n; i++) {
            ids[i][0] =
                (int32_t)json_integer_value(json_array_get(json_array_get(seq, i), n0 + step));
            span[i].n = 1;
        }
    }
    kvik_cache_close(cache);
    return e;
}

/* Returns our score of the tokens of row 0, computed as the reference does. */
static double score_of(const float *logits, const json_t *row, size_t prompt, uint32_t steps,
                       uint32_t vocab)
{
    double sum = 0;
    for (uint32_t t = 0; t < steps; t++) {
        const float *l = logits + (size_t)t * vocab;
        double all = 0;
        for (uint32_t k = 0; k < vocab; k++)
            all += exp(l[k]);
        sum += l[json_integer_value(json_array_get(row, prompt + t))] - log(all);
    }
    return sum / steps;
}

/* Compares the score of a beam search, because only the score is stored. */
static const char *score_not_close(const json_t *expect, kvik_model *m, const struct strategy *st,
                                   const struct batch *b)
{
    static char why[200];
    const json_t *seq = json_object_get(expect, "sequences");
    uint32_t steps = (uint32_t)json_integer_value(json_object_get(expect, "steps"));
    uint32_t vocab = kvik_model_vocab(m);
    size_t prompt = b->prompt[0].n;
    double ref = json_number_value(json_array_get(json_object_get(expect, "sequences_scores"), 0));
    float *plain = calloc((size_t)steps * vocab, sizeof *plain);
    float *ours = calloc((size_t)steps * vocab, sizeof *ours);
    struct strategy none = {.implementation = "dynamic"};
    const char *bad = NULL;
    if (b->n != 1 || forced(m, &none, b, seq, steps, plain) < 0 ||
        forced(m, st, b, seq, steps, ours) < 0)
        bad = kvik_last_error();
    if (!bad) {
        const json_t *row = json_array_get(seq, 0);
        double base = score_of(plain, row, prompt, steps, vocab);
        double e_ours = fabs(score_of(ours, row, prompt, steps, vocab) - base);
        double e_ref = fabs(ref - base);
        if (verbose) printf("     error of the score %.3e, the reference's %.3e\n", e_ours, e_ref);
        if (!(e_ours <= 1.1 * e_ref + 1e-6)) {
            snprintf(why, sizeof why, "error of the score %.3e, the reference's is %.3e", e_ours,
                     e_ref);
            bad = why;
        }
    }
    free(plain);
    free(ours);
    return bad;
}

static const char *not_close(const json_t *expect, const char *dir, kvik_model *m,
                             const struct strategy *st, const struct batch *b)
{
    static char why[200];
    const json_t *l = json_object_get(expect, "logits");
    const json_t *seq = json_object_get(expect, "sequences");
    if (!json_is_object(l)) return score_not_close(expect, m, st, b);
    uint32_t steps = (uint32_t)json_integer_value(json_object_get(expect, "steps"));
    size_t n = (size_t)steps * b->n * kvik_model_vocab(m);
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(l, "file")));
    struct safetensors *s;
    if (safetensors_open(path, &s) < 0) return err_last();
    const struct tensor *t = safetensors_find(s, json_string_value(json_object_get(l, "key")));
    float *plain = calloc(n, sizeof *plain), *ours = calloc(n, sizeof *ours);
    struct strategy none = {.implementation = "dynamic"};
    const char *bad = NULL;
    double e_ours = 0, e_ref = 0;
    if (!t || t->bytes != n * 4) bad = "stored logits have another shape";
    if (!bad &&
        (forced(m, &none, b, seq, steps, plain) < 0 || forced(m, st, b, seq, steps, ours) < 0))
        bad = kvik_last_error();
    for (size_t i = 0; !bad && i < n; i++) {
        float ref;
        memcpy(&ref, (const char *)t->data + i * 4, 4);
        e_ours += (double)(ours[i] - plain[i]) * (ours[i] - plain[i]);
        e_ref += (double)(ref - plain[i]) * (ref - plain[i]);
    }
    e_ours = sqrt(e_ours / (double)n);
    e_ref = sqrt(e_ref / (double)n);
    if (verbose) printf("     error %.3e, the reference's %.3e\n", e_ours, e_ref);
    if (!bad && e_ours > 1e-6 && e_ref > 0) close_log += log(e_ours / e_ref);
    if (!bad && !(e_ours <= 1.1 * e_ref + 1e-6)) {
        snprintf(why, sizeof why, "error %.3e, the reference's is %.3e", e_ours, e_ref);
        bad = why;
    }
    free(plain);
    free(ours);
    safetensors_close(s);
    return bad;
}

/* Runs one case. as: NULL, or the cache_implementation to use instead of the case's own. */
static void run_case(const char *id, const char *dir, const char *meet, const char *as)
{
    static struct batch b;
    char path[600];
    const char *why;
    json_t *c = NULL;
    char *gen = NULL;
    kvik_model *m = NULL;
    kvik_cache *cache = NULL;
    kvik_result *r = NULL;
    kvik_generation g = {0};
    struct strategy st = {0};
    snprintf(path, sizeof path, "%s/%s.json", dir, id);
    if (json_read(path, 64 << 20, &c) < 0) FAILF("%s", err_last());
    if (read_batch(c, dir, &b) < 0) FAILF("its input cannot be read");
    const json_t *expect = json_object_get(c, "expect");
    snprintf(path, sizeof path, "tests/golden/models/%s",
             json_string_value(json_object_get(c, "model")));
    if (kvik_model_open(path, &m) < 0) FAILF("%s", kvik_last_error());
    if (kvik_generation_init(&g, m) < 0) FAILF("%s", kvik_last_error());
    gen = json_dumps(json_object_get(c, "generate"), 0);
    if (kvik_generation_set(&g, gen) < 0) FAILF("%s", kvik_last_error());
    if (strategy_of(json_object_get(c, "cache"), &g, &st) < 0) FAILF("unknown cache class");
    if (as) st.implementation = as;
    if (strcmp(meet, "close") == 0) {
        if ((why = not_close(expect, dir, m, &st, &b))) FAILF("%s", why);
        if (verbose) printf("ok   %s\n", id);
        n_close++;
        goto out;
    }
    g.output_logits = true;
    const char *class = json_string_value(json_object_get(json_object_get(c, "cache"), "class"));
    if (class && strcmp(class, "Sink") == 0)
        g.n_eos = 0; /* recorded without a model's generate() */
    bool f32 = strcmp(json_string_value(json_object_get(c, "dtype")), "f32") == 0;
    size_t longest = 0;
    for (uint32_t i = 0; i < b.n; i++)
        longest = b.prompt[i].n > longest ? b.prompt[i].n : longest;
    golden_hear(m, b.prompt, b.source, b.n);
    for (uint32_t i = 0; i < b.n; i++) {
        if (!b.n_decoder[i]) continue;
        b.prompt[i].ids = b.decoder[i];
        b.prompt[i].n = b.n_decoder[i];
    }
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = st.implementation,
                                .cache_config = st.config,
                                .cross_cache_implementation = st.cross,
                                .compute = f32 ? "exact" : NULL,
                                .max_sequences = b.n * (g.num_beams + 8),
                                .max_cache_len = st.max_cache_len ? 0 : (uint32_t)longest + 64};
    if (kvik_cache_open(m, &config, &cache) < 0) FAILF("%s", kvik_last_error());
    if (kvik_generate(cache, &g, b.prompt, b.n, NULL, &r) < 0) FAILF("%s", kvik_last_error());
    if ((why = tokens_differ(expect, r, g.pad_token_id >= 0 ? g.pad_token_id : g.eos_token_id[0])))
        FAILF("%s", why);
    if ((why = beams_differ(expect, r, g.num_beam_groups > 1 && b.n > 1))) FAILF("%s", why);
    if (strcmp(meet, "exact") == 0) {
        if (f32 && (why = logits_differ(expect, dir, r, 1e-4))) FAILF("%s", why);
        if ((why = stored_states_differ(expect, dir, cache, &b))) FAILF("%s", why);
        if ((why = heard_rows_differ(expect, dir, cache, &b))) FAILF("%s", why);
        if ((why = stream_differs(expect, dir, cache, kvik_model_vocab(m)))) FAILF("%s", why);
        n_exact++;
    } else {
        n_tokens++;
    }
    if (verbose) printf("ok   %s%s%s\n", id, as ? " as " : "", as ? as : "");
    goto out;
fail:
    n_failed++;
out:
    free(st.config);
    safetensors_close(b.features);
    b.features = NULL;
    kvik_result_free(r);
    kvik_cache_close(cache);
    kvik_generation_done(&g);
    kvik_model_close(m);
    free(gen);
    json_decref(c);
}

static const json_t *find_case(const json_t *index, const char *id)
{
    const json_t *c;
    size_t i;
    json_array_foreach(json_object_get(index, "cases"), i,
                       c) if (strcmp(json_string_value(json_object_get(c, "id")), id) ==
                              0) return c;
    return NULL;
}

/* Runs the cases the reference could not run, with the strategy in their id. */
static void run_missing(const json_t *index, const char *part, const char *dir)
{
    static const struct {
        const char *in, *implementation;
    } names[] = {{"offloaded_static.", "offloaded_static"},
                 {"offloaded-static.", "offloaded_static"},
                 {"offloaded.", "offloaded"},
                 {".sliding", "sliding_window"},
                 {".static", "static"},
                 {".dynamic", "dynamic"}};
    const json_t *n, *c;
    const char *c_part;
    size_t i;
    json_array_foreach(json_object_get(index, "not_recorded"), i, n)
    {
        const char *id = json_string_value(json_object_get(n, "id")), *as = NULL;
        const char *equals = json_string_value(json_object_get(n, "equals"));
        for (size_t k = 0; !as && k < sizeof names / sizeof *names; k++)
            if (strstr(id, names[k].in)) as = names[k].implementation;
        c = equals ? find_case(index, equals) : NULL;
        if (!as || !c) {
            printf("FAIL %s: no strategy in its name, or no case that it equals\n", id);
            n_failed++;
            continue;
        }
        if (only && !strstr(id, only)) continue;
        c_part = json_string_value(json_object_get(c, "issue"));
        if (!c_part || strcmp(c_part, part) != 0) continue;
        run_case(equals, dir, "exact", as);
    }
}

/* The number of cases of the index that belong to a part; all of `own` do. */
static int cases_of(const json_t *index, const char *part, bool own)
{
    const json_t *c;
    size_t i;
    int n = 0;
    json_array_foreach(json_object_get(index, "cases"), i, c)
    {
        const char *id = json_string_value(json_object_get(c, "id")),
                   *of = json_string_value(json_object_get(c, "issue"));
        if (!of || !of[0] || of[1] || !strchr("ABCD", of[0])) {
            printf("FAIL %s: part \"%s\" is run by nobody\n", id, of ? of : "");
            n_failed++;
        }
        if (strcmp(json_string_value(json_object_get(c, "kind")), "generate") != 0) {
            printf("FAIL %s: is not of kind generate\n", id);
            n_failed++;
        }
        n += own || (of && strcmp(of, part) == 0);
    }
    return n;
}

int main(int argc, char **argv)
{
    const char *part = "A";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-v") == 0)
            verbose = 1;
        else if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            only = argv[++i];
        else
            part = argv[i];
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool own = strcmp(part, "own") == 0;
    const char *dir = own ? "tests/golden/cases-own" : "tests/golden/cases", *c_part;
    const json_t *c;
    json_t *index;
    size_t i;
    if (json_read(own ? "tests/golden/cases-own/index.json" : "tests/golden/index.json", 64 << 20,
                  &index) < 0) {
        printf("%s\n", err_last());
        return 1;
    }
    json_array_foreach(json_object_get(index, "cases"), i, c)
    {
        const char *id = json_string_value(json_object_get(c, "id"));
        const char *meet = json_string_value(json_object_get(c, "meet"));
        c_part = json_string_value(json_object_get(c, "issue"));
        if (!own && (!c_part || strcmp(c_part, part) != 0)) continue;
        if (only && !strstr(id, only)) continue;
        if (meet && strcmp(meet, "info") == 0) {
            printf("info %s: %s\n", id, json_string_value(json_object_get(c, "why")));
            n_info++;
            continue;
        }
        run_case(id, dir, meet ? meet : "exact", NULL);
    }
    int ran = n_exact + n_tokens + n_close + n_info + n_failed, want = cases_of(index, part, own);
    if (!only && ran != want) {
        printf("FAIL %d cases of part %s ran, the index has %d\n", ran, part, want);
        n_failed++;
    }
    if (!own) run_missing(index, part, dir);
    json_decref(index);
    if (n_close) {
        double mean = exp(close_log / n_close);
        printf("close: error %.4f of the reference's in the geometric mean\n", mean);
        n_failed += !(mean <= 1);
    }
    if (n_states) printf("%zu recurrent states and rows compared\n", n_states);
    printf("golden %s: %d exact, %d tokens, %d close, %d info (listed)\n", part, n_exact, n_tokens,
           n_close, n_info);
    printf("%d passed, %d failed, 0 skipped\n", n_exact + n_tokens + n_close, n_failed);
    return n_failed || (only ? n_exact + n_tokens + n_close == 0 : n_exact == 0);
}
