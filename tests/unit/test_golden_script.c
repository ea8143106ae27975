/* test_golden_script.c - runs the recorded cases of kind "script": caches used by hand, operation
 * by operation. Transformers is "the reference" here.
 *
 *     build/test_golden_script [PART] [-v] [-o SUBSTRING]     PART: C (default) or D
 *
 * tests/golden/cases-script holds the published cases; cases-script-own holds further ones in the
 * same format (recorded by tests/fixtures/make_scripts.py). Every operation has its own
 * expectations: argmax, logits within 1e-4 relative, tokens, sequences, the length of the cache,
 * and (where the file has them) keys and values.
 *   exact   all of them hold
 *   close   the model computes the reference's tokens turn by turn; the error of the logits against the unquantized
 *           run is at most the reference's, see test_golden.c
 *   info    runs as well; the result of kvik is printed beside the reason why the case is not to be met */
#include "base/json.h"
#include "fmt/fmt.h"
#include "kvik_compat.h"
#include "states.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 8, COLUMNS = 128, NAMES = 8 };

static int n_exact, n_close, n_info, n_failed, n_ops, n_skipped, verbose;
static size_t n_cells; /* the number of compared keys and values */
static const char *only;
static size_t n_shown; /* the number of compared hidden states and attentions */

struct named {
    char name[8];
    kvik_cache *cache; /* copies share the cache of the first */
    bool owner;
    kvik_batch *batch; /* NULL until it is first used */
};
struct script {
    kvik_model *m;
    uint32_t vocab, layers, hidden, heads;
    struct safetensors *data;
    struct named cache[NAMES];
    uint32_t n;
    bool slots; /* cache_position counts slots of the convolution's state, not tokens */
    float *logits, *states, *weights, *embeds;
    char why[512]; /* the first difference from the expectations */
};

static void differs(struct script *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void differs(struct script *s, const char *fmt, ...)
{
    va_list ap;
    if (s->why[0]) return;
    va_start(ap, fmt);
    vsnprintf(s->why, sizeof s->why, fmt, ap);
    va_end(ap);
}

static int64_t number(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static const char *string(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* --- The inputs of an operation. */

struct rect { /* rows of numbers */
    uint32_t rows, n;
    int32_t at[ROWS * COLUMNS];
};

static bool read_rect(const json_t *o, const char *key, struct rect *r)
{
    const json_t *a = json_object_get(o, key);
    r->rows = r->n = 0;
    if (!json_is_array(a)) return false;
    bool flat = !json_is_array(json_array_get(a, 0));
    r->rows = flat ? 1 : (uint32_t)json_array_size(a);
    r->n = (uint32_t)json_array_size(flat ? a : json_array_get(a, 0));
    for (uint32_t i = 0; i < r->rows && r->rows <= ROWS; i++)
        for (uint32_t j = 0; j < r->n && r->n <= COLUMNS; j++)
            r->at[i * r->n + j] =
                (int32_t)json_integer_value(json_array_get(flat ? a : json_array_get(a, i), j));
    return true;
}

struct given {
    struct rect ids, mask, positions, columns;
    bool has_mask, has_positions, has_columns;
    uint8_t bits[ROWS * COLUMNS];
    uint32_t cache_position[COLUMNS];
    kvik_inputs in;
};

static void inputs(struct given *g)
{
    for (uint32_t i = 0; i < g->mask.rows * g->mask.n; i++)
        g->bits[i] = g->mask.at[i] != 0;
    for (uint32_t i = 0; i < g->columns.n; i++)
        g->cache_position[i] = (uint32_t)g->columns.at[i];
    g->in = (kvik_inputs){.size = sizeof(kvik_inputs),
                          .ids = g->ids.at,
                          .n = g->ids.n,
                          .attention_mask = g->has_mask ? g->bits : NULL,
                          .width = g->mask.n,
                          .position_ids = g->has_positions ? g->positions.at : NULL,
                          .position_rows = g->positions.rows,
                          .cache_position = g->has_columns ? g->cache_position : NULL};
}

static void read_given(const struct script *s, const json_t *op, struct given *g)
{
    read_rect(op, "input_ids", &g->ids);
    g->has_mask = read_rect(op, "attention_mask", &g->mask);
    g->has_positions = read_rect(op, "position_ids", &g->positions);
    g->has_columns = read_rect(op, "cache_position", &g->columns) && !s->slots;
    inputs(g);
}

/* --- Comparisons. */

static const struct tensor *tensor_of(struct script *s, const char *name)
{
    const struct tensor *t = name ? safetensors_find(s->data, name) : NULL;
    if (!t) differs(s, "no tensor %s", name ? name : "(none)");
    return t;
}

/* Compares logits. rows: [n][vocab] of ours and of the reference from row `at` on. skip: rows
 * without meaning, or NULL. */
static void compare_logits(struct script *s, const json_t *expect, size_t at, size_t n,
                           const float *ours, const uint8_t *seen)
{
    const struct tensor *t = tensor_of(s, string(expect, "logits"));
    double worst = 0;
    if (!t) return;
    if (t->bytes < (at + n) * s->vocab * 4) {
        differs(s, "%s has another shape", t->name);
        return;
    }
    for (size_t i = 0; i < n * s->vocab; i++) {
        float want;
        if (seen && !seen[i / s->vocab]) continue;
        memcpy(&want, (const char *)t->data + (at * s->vocab + i) * 4, 4);
        double d = fabs(ours[i] - want) / (1 + fabs(want));
        if (!(d <= worst)) worst = d;
    }
    if (verbose > 1) printf("     %s off by %.2e\n", t->name, worst);
    if (!(worst <= 1e-4)) differs(s, "%s off by %.2e", t->name, worst);
}

static int32_t argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (int32_t)best;
}

/* Compares keys or values of the file, [batch][heads][tokens][dim], with the legacy form: the last
 * columns of both, where the mask shows a row and kvik still holds it. */
static void compare_plane(struct script *s, const kvik_legacy *l, uint32_t layer, bool values,
                          const struct tensor *t)
{
    const kvik_legacy_layer *y = &l->layer[layer];
    uint32_t dim = values ? y->dim_v : y->dim_k, theirs = (uint32_t)t->dim[2];
    const float *ours = values ? y->values : y->keys;
    if (t->dim[0] != l->batch || t->dim[1] != y->heads || t->dim[3] != dim) {
        differs(s, "%s has another shape", t->name);
        return;
    }
    if (theirs != y->tokens && theirs != l->length)
        differs(s, "%s holds %u columns, kvik's legacy form %u", t->name, theirs, y->tokens);
    for (uint32_t b = 0; b < l->batch; b++)
        for (uint32_t h = 0; h < y->heads; h++)
            for (uint32_t k = 1; k <= y->tokens && k <= theirs; k++) { /* from the end */
                size_t row = (size_t)b * y->heads + h;
                const float *a = ours + (row * y->tokens + y->tokens - k) * dim;
                bool held = false;
                for (uint32_t d = 0; d < dim; d++)
                    held |= a[d] != 0;
                if (!held || !l->attention_mask[(size_t)b * l->length + l->length - k]) continue;
                for (uint32_t d = 0; d < dim; d++) {
                    float want;
                    memcpy(&want,
                           (const char *)t->data + ((row * theirs + theirs - k) * dim + d) * 4, 4);
                    if (!(fabs(a[d] - want) <= 1e-4 * (1 + fabs(want))))
                        differs(s, "%s row %u column -%u: %g, the reference has %g", t->name, b, k,
                                a[d], want);
                }
                n_cells++;
            }
}

static void compare_layers(struct script *s, const kvik_legacy *l, const char *prefix)
{
    char name[80];
    for (uint32_t i = 0; i < l->n_layers; i++)
        for (int v = 0; v < 2; v++) {
            snprintf(name, sizeof name, "%s.%u.%s", prefix, i, v ? "values" : "keys");
            const struct tensor *t = safetensors_find(s->data, name);
            if (t && t->n_dims == 4) compare_plane(s, l, i, v, t);
        }
}

/* Compares recurrent states, and KV rows of layers beside them. */
static void compare_states(struct script *s, size_t op, const struct named *c)
{
    char prefix[40], first[60];
    snprintf(prefix, sizeof prefix, "op%zu.layers", op);
    snprintf(first, sizeof first, "%s.0.conv", prefix);
    if (!safetensors_find(s->data, first)) return;
    for (uint32_t b = 0; b < kvik_batch_rows(c->batch); b++) {
        kvik_export *p = NULL;
        const char *why = NULL;
        if (kvik_cache_export(c->cache, kvik_batch_seq(c->batch, b), &p) < 0)
            why = kvik_last_error();
        else
            why = states_differ(s->data, prefix, b, p, true);
        if (why) differs(s, "op %zu: %s", op, why);
        kvik_export_free(p);
    }
}

static void compare_cache(struct script *s, const json_t *expect, size_t op, const struct named *c)
{
    const json_t *want = json_object_get(expect, "cache");
    char prefix[40];
    if (!json_is_object(want)) return;
    uint32_t n = kvik_batch_length(c->batch);
    bool counts = json_is_integer(json_object_get(want, "seq_length"));
    if (counts && number(want, "seq_length") != n)
        differs(s, "op %zu: length %u, the reference has %lld", op, n,
                (long long)number(want, "seq_length"));
    compare_states(s, op, c);
    snprintf(prefix, sizeof prefix, "op%zu.layers.0.keys", op);
    if (!safetensors_find(s->data, prefix)) return;
    snprintf(prefix, sizeof prefix, "op%zu.layers", op);
    kvik_legacy *l;
    if (kvik_batch_to_legacy(c->batch, &l) < 0) {
        differs(s, "op %zu: %s", op, kvik_last_error());
        return;
    }
    compare_layers(s, l, prefix);
    kvik_legacy_free(l);
}

/* --- Operations. */

static struct named *find(struct script *s, const char *name)
{
    for (uint32_t i = 0; name && i < s->n; i++)
        if (strcmp(s->cache[i].name, name) == 0) return &s->cache[i];
    return NULL;
}

static struct named *add(struct script *s, const char *name)
{
    struct named *c = &s->cache[s->n++];
    *c = (struct named){0};
    snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

static int open_cache(struct script *s, const json_t *op, kvik_cache **out)
{
    static const char *const classes[][2] = {
        {"DynamicCache", "dynamic"},       {"StaticCache", "static"},
        {"QuantizedCache", "quantized"},   {"SinkCache", "sink"},
        {"HybridCache", "hybrid_chunked"}, {"SlidingWindowCache", "sliding_window"}};
    static const char *const no_keys[] = {"config", "batch_size", "dtype"};
    kvik_cache_config k = {
        .size = sizeof k, .compute = "exact", .max_sequences = ROWS, .max_cache_len = COLUMNS};
    json_t *args = json_deep_copy(json_object_get(op, "args"));
    s->slots = !string(op, "class"); /* the model makes its own: MambaCache of release 4.47 */
    if (s->slots) k.cache_implementation = "dynamic";
    for (size_t i = 0; string(op, "class") && i < sizeof classes / sizeof *classes; i++)
        if (strcmp(string(op, "class"), classes[i][0]) == 0) k.cache_implementation = classes[i][1];
    for (size_t i = 0; i < sizeof no_keys / sizeof *no_keys; i++)
        json_object_del(args, no_keys[i]);
    if (number(args, "max_cache_len")) k.max_cache_len = 0;
    char *text = json_object_size(args) ? json_dumps(args, 0) : NULL;
    k.cache_config = text;
    int e = k.cache_implementation ? kvik_cache_open(s->m, &k, out) : -1;
    free(text);
    json_decref(args);
    return e;
}

/* Compares cells: [outer][rows * n][inner] of ours and of the reference, where the mask shows the
 * column. */
static void compare_cells(struct script *s, const char *name, const float *ours, size_t outer,
                          const struct given *g, size_t heads, size_t inner)
{
    const struct tensor *t = tensor_of(s, name);
    uint32_t rows = g->ids.rows, n = g->ids.n;
    double worst = 0;
    if (!t) return;
    if (t->bytes != outer * rows * heads * n * inner * 4) {
        differs(s, "%s has another shape", name);
        return;
    }
    for (size_t i = 0; i < outer * rows * heads * n; i++) {
        size_t row = i / n / heads % rows, column = i % n;
        bool seen = g->bits[row * g->mask.n + g->mask.n - n + column];
        for (size_t j = i * inner; j < (i + 1) * inner; j++) {
            float want;
            memcpy(&want, (const char *)t->data + j * 4, 4);
            if (!seen) want = 0;
            double d = fabs(ours[j] - want) / (seen ? 1 + fabs(want) : 1e-30);
            if (!(d <= worst)) worst = d;
        }
    }
    if (verbose > 1) printf("     %s off by %.2e\n", name, worst);
    if (!(worst <= 1e-4)) differs(s, "%s off by %.2e", name, worst);
    n_shown++;
}

/* Prepares room for the other outputs of a forward; takes embeddings instead of ids. */
static void more(struct script *s, const json_t *op, const struct named *c, struct given *g,
                 kvik_outputs *out)
{
    const json_t *expect = json_object_get(op, "expect");
    size_t cells = (size_t)g->ids.rows * g->ids.n, width = kvik_batch_length(c->batch) + g->ids.n;
    const char *embeds = string(op, "inputs_embeds");
    const struct tensor *t = embeds ? tensor_of(s, embeds) : NULL;
    if (string(expect, "hidden_states"))
        out->hidden_states = s->states =
            malloc((s->layers + 1) * cells * s->hidden * sizeof *s->states);
    if (string(expect, "attentions"))
        out->attentions = s->weights =
            malloc(s->layers * cells * s->heads * width * sizeof *s->weights);
    if (!t) return;
    g->in.ids = NULL;
    g->in.embeds = s->embeds = malloc(t->bytes);
    memcpy(s->embeds, t->data, t->bytes);
}

static void compare_more(struct script *s, const json_t *expect, const struct named *c,
                         const struct given *g)
{
    if (s->states)
        compare_cells(s, string(expect, "hidden_states"), s->states, s->layers + 1, g, 1,
                      s->hidden);
    if (s->weights)
        compare_cells(s, string(expect, "attentions"), s->weights, s->layers, g, s->heads,
                      kvik_batch_length(c->batch));
}

static void op_forward(struct script *s, const json_t *op, size_t k, struct named *c)
{
    static struct given g;
    static uint8_t seen[ROWS * COLUMNS];
    const json_t *expect = json_object_get(op, "expect"), *top = json_object_get(expect, "argmax");
    read_given(s, op, &g);
    bool all = strcmp(string(expect, "logits_of"), "all") == 0;
    g.in.logits_to_keep = all ? 0 : 1;
    kvik_outputs out = {.size = sizeof out, .logits = s->logits};
    more(s, op, c, &g, &out);
    if (kvik_batch_forward(c->batch, &g.in, &out) < 0)
        differs(s, "op %zu: %s", k, kvik_last_error());
    else
        compare_more(s, expect, c, &g);
    free(s->states);
    free(s->weights);
    free(s->embeds);
    s->states = s->weights = s->embeds = NULL;
    if (s->why[0]) return;
    uint32_t kept = all ? g.in.n : 1;
    for (uint32_t i = 0; i < g.ids.rows * kept; i++)
        seen[i] = !g.has_mask || g.bits[(i / kept + 1) * g.mask.n - kept + i % kept];
    for (uint32_t i = 0; i < g.ids.rows; i++) {
        if (!seen[(size_t)(i + 1) * kept - 1]) continue;
        int32_t id = argmax(s->logits + ((size_t)(i + 1) * kept - 1) * s->vocab, s->vocab);
        if (id != json_integer_value(json_array_get(top, i)))
            differs(s, "op %zu row %u: argmax %d", k, i, id);
    }
    compare_logits(s, expect, 0, (size_t)g.ids.rows * kept, s->logits, seen);
}

/* Adds one more column: the chosen tokens, ones in the mask, and the next positions. */
static void next_column(struct given *g, const struct script *s)
{
    uint32_t rows = g->ids.rows, w = g->mask.n;
    for (uint32_t i = 0; i < rows; i++)
        g->ids.at[i] = argmax(s->logits + (size_t)i * s->vocab, s->vocab);
    for (uint32_t i = rows; g->has_mask && i-- > 0;) {
        memmove(g->mask.at + (size_t)i * (w + 1), g->mask.at + (size_t)i * w,
                w * sizeof *g->mask.at);
        g->mask.at[(size_t)i * (w + 1) + w] = 1;
    }
    g->mask.n += g->has_mask;
    for (uint32_t i = 0; i < g->positions.rows; i++)
        g->positions.at[i]++;
    g->columns.at[0]++;
    inputs(g);
}

static void op_greedy_loop(struct script *s, const json_t *op, size_t k, struct named *c)
{
    static struct given g;
    const json_t *expect = json_object_get(op, "expect"), *want = json_object_get(expect, "tokens");
    uint32_t steps = (uint32_t)number(op, "steps");
    read_given(s, op, &g);
    for (uint32_t step = 0; step < steps; step++) {
        kvik_outputs out = {.size = sizeof out, .logits = s->logits};
        if (kvik_batch_forward(c->batch, &g.in, &out) < 0) {
            differs(s, "op %zu: %s", k, kvik_last_error());
            return;
        }
        compare_logits(s, expect, (size_t)step * g.ids.rows, g.ids.rows, s->logits, NULL);
        next_column(&g, s);
        for (uint32_t i = 0; i < g.ids.rows; i++)
            if (g.ids.at[i] != json_integer_value(json_array_get(json_array_get(want, i), step)))
                differs(s, "op %zu row %u step %u: token %d", k, i, step, g.ids.at[i]);
    }
}

static void compare_result(struct script *s, const json_t *expect, size_t k, const kvik_result *r,
                           int32_t pad)
{
    static uint8_t seen[ROWS * COLUMNS];
    const json_t *want = json_object_get(expect, "sequences");
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const json_t *row = json_array_get(want, i);
        size_t n = json_array_size(row);
        for (size_t j = 0; j < n || j < r->row[i]->n; j++) {
            int32_t id = j < r->row[i]->n ? r->row[i]->ids[j] : pad;
            if (j >= n || id != json_integer_value(json_array_get(row, j)))
                differs(s, "op %zu row %u token %zu is %d", k, i, j, id);
        }
        for (uint32_t step = 0; step < r->steps; step++)
            seen[step * r->n_rows + i] = step < r->row[i]->n - r->row[i]->n_prompt;
    }
    compare_logits(s, expect, 0, (size_t)r->steps * r->n_rows, r->logits, seen);
}

static void op_generate(struct script *s, const json_t *op, size_t k, struct named *c)
{
    static struct given g;
    const json_t *value;
    const char *key;
    void *next;
    kvik_generation gen = {0};
    kvik_result *r = NULL;
    read_given(s, op, &g);
    json_t *asked = json_deep_copy(json_object_get(op, "generate"));
    json_object_foreach_safe(asked, next, key, value) if (json_is_null(value))
        json_object_del(asked, key);
    char *text = json_dumps(asked, 0);
    if (kvik_generation_init(&gen, s->m) < 0 || kvik_generation_set(&gen, text) < 0) {
        differs(s, "op %zu: %s", k, kvik_last_error());
    } else {
        gen.output_logits = true;
        if (kvik_batch_generate(c->batch, &gen, &g.in, NULL, &r) < 0)
            differs(s, "op %zu: %s", k, kvik_last_error());
        else
            compare_result(s, json_object_get(op, "expect"), k, r,
                           gen.pad_token_id >= 0 ? gen.pad_token_id : gen.eos_token_id[0]);
    }
    kvik_result_free(r);
    kvik_generation_done(&gen);
    free(text);
    json_decref(asked);
}

static void op_to_legacy(struct script *s, const json_t *op, size_t k, struct named *c)
{
    const json_t *expect = json_object_get(op, "expect");
    size_t before = n_cells;
    kvik_legacy *l;
    if (kvik_batch_to_legacy(c->batch, &l) < 0) {
        differs(s, "op %zu: %s", k, kvik_last_error());
        return;
    }
    if (l->n_layers != number(expect, "layers") &&
        json_is_integer(json_object_get(expect, "layers")))
        differs(s, "op %zu: %u layers", k, l->n_layers);
    compare_layers(s, l, string(expect, "tensors"));
    if (n_cells == before) differs(s, "op %zu: nothing was compared", k);
    kvik_legacy_free(l);
}

/* Imports the reference's tuple as the file holds it. */
static void op_from_legacy(struct script *s, const json_t *op, size_t k)
{
    kvik_legacy_layer layer[8] = {0};
    kvik_legacy l = {.size = sizeof l, .layer = layer};
    char name[80];
    const struct tensor *t;
    struct named *c = add(s, string(op, "name"));
    for (; l.n_layers < 8; l.n_layers++) {
        kvik_legacy_layer *y = &layer[l.n_layers];
        snprintf(name, sizeof name, "%s.%u.keys", string(op, "tensors"), l.n_layers);
        if (!(t = safetensors_find(s->data, name))) break;
        l.batch = (uint32_t)t->dim[0];
        *y = (kvik_legacy_layer){.heads = (uint32_t)t->dim[1],
                                 .tokens = (uint32_t)t->dim[2],
                                 .dim_k = (uint32_t)t->dim[3],
                                 .dim_v = (uint32_t)t->dim[3]};
        y->keys = malloc(t->bytes);
        memcpy(y->keys, t->data, t->bytes);
        snprintf(name, sizeof name, "%s.%u.values", string(op, "tensors"), l.n_layers);
        if (!(t = tensor_of(s, name))) break;
        y->values = malloc(t->bytes);
        memcpy(y->values, t->data, t->bytes);
    }
    c->owner = true;
    json_t *as = json_pack("{s:s, s:{}}", "class", string(op, "class"), "args");
    if (open_cache(s, as, &c->cache) < 0 || kvik_batch_from_legacy(c->cache, &l, &c->batch) < 0)
        differs(s, "op %zu: %s", k, kvik_last_error());
    json_decref(as);
    for (uint32_t i = 0; i < 8; i++) {
        free(layer[i].keys);
        free(layer[i].values);
    }
}

static void op_cache(struct script *s, const json_t *op, size_t k)
{
    struct named *c = add(s, string(op, "name"));
    c->owner = true;
    if (open_cache(s, op, &c->cache) < 0) differs(s, "op %zu: %s", k, kvik_last_error());
}

/* Runs an operation on all rows; false: there is no such operation. */
static bool op_rows(const json_t *op, const char *what, kvik_batch *b, int *e)
{
    struct rect r;
    uint32_t index[ROWS];
    bool beams = read_rect(op, "beam_idx", &r);
    if (!beams) read_rect(op, "indices", &r);
    for (uint32_t i = 0; i < r.n && i < ROWS; i++)
        index[i] = (uint32_t)r.at[i];
    *e = 0;
    if (strcmp(what, "crop") == 0) /* the cases with 0 are of release 5, where it removes nothing */
        *e = number(op, "n") ? kvik_batch_crop(b, number(op, "n")) : 0;
    else if (strcmp(what, "reset") == 0)
        *e = kvik_batch_reset(b);
    else if (strcmp(what, "reorder_cache") == 0)
        *e = kvik_batch_reorder(b, index);
    else if (strcmp(what, "batch_select_indices") == 0)
        *e = kvik_batch_select(b, index, r.n);
    else if (strcmp(what, "batch_repeat_interleave") == 0)
        *e = kvik_batch_repeat(b, (uint32_t)number(op, "repeats"));
    else
        /* Every cache of kvik can be cropped. */
        return strcmp(what, "activate_past_recording") == 0;
    return true;
}

static void run_op(struct script *s, const json_t *op, size_t k)
{
    const char *what = string(op, "op");
    const json_t *raises = json_object_get(json_object_get(op, "expect"), "raises");
    int e = 0;
    n_ops++;
    if (strcmp(what, "cache") == 0) {
        op_cache(s, op, k);
        return;
    }
    struct named *c = find(s, string(op, "cache"));
    if (strcmp(what, "from_legacy") == 0) {
        op_from_legacy(s, op, k);
        c = find(s, string(op, "name"));
    } else if (!c || !c->cache) {
        differs(s, "op %zu: no cache", k);
    } else if (strcmp(what, "copy") == 0) {
        struct named *d = add(s, string(op, "to"));
        d->cache = c->cache;
        e = kvik_batch_copy(c->batch, &d->batch);
    } else {
        const json_t *ids = json_object_get(op, "input_ids");
        if (!c->batch)
            e = kvik_batch_open(c->cache, ids ? (uint32_t)json_array_size(ids) : 1, &c->batch);
        if (e >= 0 && strcmp(what, "forward") == 0)
            op_forward(s, op, k, c);
        else if (e >= 0 && strcmp(what, "greedy_loop") == 0)
            op_greedy_loop(s, op, k, c);
        else if (e >= 0 && strcmp(what, "generate") == 0)
            op_generate(s, op, k, c);
        else if (e >= 0 && strcmp(what, "to_legacy") == 0)
            op_to_legacy(s, op, k, c);
        else if (e >= 0 && !op_rows(op, what, c->batch, &e))
            differs(s, "op %zu: %s is not known", k, what);
    }
    if (e < 0) differs(s, "op %zu: %s", k, kvik_last_error());
    if (json_is_object(raises) && !s->why[0])
        differs(s, "op %zu: %s works (length %u), the reference raises %s", k, what,
                kvik_batch_length(c->batch), string(raises, "type"));
    if (c && c->batch) compare_cache(s, json_object_get(op, "expect"), k, c);
}

/* --- Lossy caches: the model computes the reference's tokens, and errors are compared. */

/* Returns the number of generated steps of all turns and writes the logits of each. */
static size_t forced(struct script *s, const json_t *ops, const json_t *cache, float *out)
{
    kvik_cache *c = NULL;
    kvik_batch *b = NULL;
    const json_t *op;
    size_t i, steps = 0;
    int e = open_cache(s, cache, &c);
    if (e >= 0) e = kvik_batch_open(c, 1, &b);
    json_array_foreach(ops, i, op)
    {
        struct rect ids, all;
        if (strcmp(string(op, "op"), "generate") != 0) continue;
        read_rect(op, "input_ids", &ids);
        read_rect(json_object_get(op, "expect"), "sequences", &all);
        for (uint32_t from = kvik_batch_length(b), to = ids.n; e >= 0 && to < all.n; from = to++) {
            kvik_inputs in = {
                .size = sizeof in, .ids = all.at + from, .n = to - from, .logits_to_keep = 1};
            kvik_outputs o = {.size = sizeof o, .logits = out + steps++ * s->vocab};
            e = kvik_batch_forward(b, &in, &o);
        }
    }
    if (e < 0) differs(s, "%s", kvik_last_error());
    kvik_batch_close(b);
    kvik_cache_close(c);
    return steps;
}

static void run_close(struct script *s, const json_t *ops)
{
    const json_t *op;
    size_t i, at = 0, most = 4096;
    float *plain = calloc(most, s->vocab * sizeof *plain),
          *ours = calloc(most, s->vocab * sizeof *ours);
    json_t *dynamic = json_pack("{s:s, s:{}}", "class", "DynamicCache", "args");
    double e_ours = 0, e_ref = 0;
    forced(s, ops, dynamic, plain);
    forced(s, ops, json_array_get(ops, 0), ours);
    json_array_foreach(ops, i, op)
    {
        const char *name = string(json_object_get(op, "expect"), "logits");
        n_ops++;
        if (!name) continue;
        const struct tensor *t = tensor_of(s, name);
        for (size_t j = 0; t && j < t->bytes / 4; j++, at++) {
            float ref;
            memcpy(&ref, (const char *)t->data + j * 4, 4);
            e_ours += (double)(ours[at] - plain[at]) * (ours[at] - plain[at]);
            e_ref += (double)(ref - plain[at]) * (ref - plain[at]);
        }
    }
    e_ours = sqrt(e_ours / (double)at);
    e_ref = sqrt(e_ref / (double)at);
    if (verbose) printf("     error %.4e, the reference's %.4e\n", e_ours, e_ref);
    if (!(e_ours <= 1.1 * e_ref + 1e-6) || !(e_ours > 0))
        differs(s, "error %.3e, the reference's is %.3e", e_ours, e_ref);
    json_decref(dynamic);
    free(plain);
    free(ours);
}

static void run_case(const char *dir, const json_t *c)
{
    static struct script s;
    const char *id = string(c, "id"), *meet = string(c, "meet");
    char path[400];
    const json_t *op;
    json_t *script = NULL;
    size_t k;
    s = (struct script){0};
    snprintf(path, sizeof path, "tests/golden/models/%s", string(c, "model"));
    if (kvik_model_open(path, &s.m) < 0) differs(&s, "%s", kvik_last_error());
    s.vocab = s.m ? kvik_model_vocab(s.m) : 0;
    s.layers = s.m ? kvik_model_layers(s.m) : 0;
    s.hidden = s.m ? kvik_model_hidden(s.m) : 0;
    s.heads = s.m ? kvik_model_heads(s.m) : 0;
    s.logits = calloc((size_t)ROWS * COLUMNS, (s.vocab + 1) * sizeof *s.logits);
    snprintf(path, sizeof path, "%s/%s.safetensors", dir, id);
    if (safetensors_open(path, &s.data) < 0) differs(&s, "%s", err_last());
    snprintf(path, sizeof path, "%s/%s.json", dir, id);
    if (json_read(path, 64 << 20, &script) < 0) differs(&s, "%s", err_last());
    const json_t *ops = json_object_get(script, "ops");
    if (!s.why[0] && json_array_size(ops) == 0) differs(&s, "the case has no operations");
    bool ready = !s.why[0];
    if (ready && strcmp(meet, "close") == 0) {
        run_close(&s, ops);
    } else if (ready) {
        json_array_foreach(ops, k, op) run_op(&s, op, k);
    }
    if (strcmp(meet, "info") == 0) {
        printf("info %s: %s; kvik: %s\n", id, string(c, "why"),
               s.why[0] ? s.why : "as the reference");
        n_info++;
        n_failed += !ready;
    } else if (s.why[0]) {
        printf("FAIL %s: %s\n", id, s.why);
        n_failed++;
    } else {
        if (verbose) printf("ok   %s\n", id);
        n_exact += strcmp(meet, "exact") == 0;
        n_close += strcmp(meet, "close") == 0;
    }
    for (uint32_t i = 0; i < s.n; i++)
        kvik_batch_close(s.cache[i].batch);
    for (uint32_t i = 0; i < s.n; i++)
        if (s.cache[i].owner) kvik_cache_close(s.cache[i].cache);
    safetensors_close(s.data);
    kvik_model_close(s.m);
    free(s.logits);
    json_decref(script);
}

static bool run_all(const char *dir, const char *part)
{
    char path[200];
    json_t *index;
    const json_t *c;
    size_t i;
    snprintf(path, sizeof path, "%s/index.json", dir);
    if (json_read(path, 64 << 20, &index) < 0) {
        printf("%s\n", err_last());
        return false;
    }
    if (json_array_size(json_object_get(index, "cases")) == 0)
        n_failed++, printf("FAIL %s has no cases\n", path);
    json_array_foreach(json_object_get(index, "cases"), i, c)
    {
        const char *of = string(c, "issue");
        if (of && strcmp(of, "D") != 0)
            n_failed++, printf("FAIL %s: part \"%s\" is run by nobody\n", string(c, "id"), of);
        if (strcmp(of ? of : "C", part) != 0) continue;
        if (!only || strstr(string(c, "id"), only)) run_case(dir, c);
    }
    json_decref(index);
    return true;
}

int main(int argc, char **argv)
{
    const char *part = "C";
    for (int k = 1; k < argc; k++)
        if (strcmp(argv[k], "-v") == 0)
            verbose++;
        else if (strcmp(argv[k], "-o") == 0 && k + 1 < argc)
            only = argv[++k];
        else
            part = argv[k];
    if (strcmp(part, "C") != 0 && strcmp(part, "D") != 0) {
        printf("there are parts C and D, not \"%s\"\n", part);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!run_all("tests/golden/cases-script", part) ||
        !run_all("tests/golden/cases-script-own", part))
        return 1;
    printf("golden scripts %s: %d exact, %d close, %d info (listed), %d skipped; %d operations; "
           "compared besides: %zu rows of keys and values, %zu hidden states and attentions, "
           "%zu recurrent states\n",
           part, n_exact, n_close, n_info, n_skipped, n_ops, n_cells, n_shown, n_states);
    printf("%d passed, %d failed, %d skipped\n", n_exact + n_close, n_failed, n_skipped);
    return n_failed || n_exact == 0;
}
