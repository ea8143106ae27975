/* test_golden.c - runs the reference's cases of kind "generate" through the public API.
 *
 *     build/test_golden [PART] [-v]     PART: A (default), own
 *
 * tests/golden/index.json lists the cases with how each must be met; cases-own/ holds further ones in the same format
 * (its own recorded reference runs).  Tokens must be equal; f32 logits within 1e-4 relative. */
#include "base/json.h"
#include "fmt/fmt.h"
#include "kvik.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_exact, n_failed, n_skipped, verbose;

#define FAILF(...)                                                                                 \
    do {                                                                                           \
        printf("FAIL %s: ", id);                                                                   \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        goto fail;                                                                                 \
    } while (0)

struct batch {
    uint32_t n;
    kvik_prompt prompt[16];
    int32_t ids[16][1024];
    uint8_t mask[16][1024];
};

static int read_batch(const json_t *c, struct batch *b)
{
    const json_t *ids = json_object_get(c, "input_ids"),
                 *mask = json_object_get(c, "attention_mask");
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
        b->prompt[i] = (kvik_prompt){.ids = b->ids[i], .n = n, .attention_mask = b->mask[i]};
    }
    return 0;
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
    if (!t || t->n_dims != 3 || t->dim[0] < r->steps || t->dim[1] != r->n_rows ||
        t->dim[2] != r->vocab) {
        bad = "stored logits have another shape";
    } else {
        double worst = 0;
        for (uint32_t step = 0; step < r->steps; step++)
            for (uint32_t row = 0; row < r->n_rows; row++) {
                if (step >= r->row[row].n - r->row[row].n_prompt) continue; /* the row has ended */
                size_t at = ((size_t)step * r->n_rows + row) * r->vocab;
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

static const char *tokens_differ(const json_t *expect, const kvik_result *r, int32_t pad)
{
    static char why[200];
    const json_t *seq = json_object_get(expect, "sequences");
    if (json_array_size(seq) != r->n_rows) return "another number of rows";
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const json_t *row = json_array_get(seq, i);
        size_t n = json_array_size(row);
        for (size_t j = 0; j < n || j < r->row[i].n; j++) {
            int32_t want = j < n ? (int32_t)json_integer_value(json_array_get(row, j)) : -1;
            int32_t got = j < r->row[i].n ? r->row[i].ids[j] : pad;
            if (want == got) continue;
            snprintf(why, sizeof why, "row %u token %zu is %d, the reference has %d", i, j, got,
                     want);
            return why;
        }
    }
    return NULL;
}

static void run_case(const char *id, const char *dir)
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
    snprintf(path, sizeof path, "%s/%s.json", dir, id);
    if (json_read(path, 64 << 20, &c) < 0) FAILF("%s", err_last());
    if (strcmp(json_string_value(json_object_get(c, "kind")), "generate") ||
        read_batch(c, &b) < 0 || !json_is_null(json_object_get(c, "cache"))) {
        printf("SKIP %s\n", id);
        n_skipped++;
        goto out;
    }
    snprintf(path, sizeof path, "tests/golden/models/%s",
             json_string_value(json_object_get(c, "model")));
    if (kvik_model_open(path, &m) < 0) FAILF("%s", kvik_last_error());
    if (kvik_generation_init(&g, m) < 0) FAILF("%s", kvik_last_error());
    gen = json_dumps(json_object_get(c, "generate"), 0);
    if (kvik_generation_set(&g, gen) < 0) FAILF("%s", kvik_last_error());
    g.output_logits = true;
    bool f32 = strcmp(json_string_value(json_object_get(c, "dtype")), "f32") == 0;
    size_t longest = 0;
    for (uint32_t i = 0; i < b.n; i++)
        longest = b.prompt[i].n > longest ? b.prompt[i].n : longest;
    kvik_cache_config config = {.cache_implementation = g.cache_implementation,
                                .compute = f32 ? "exact" : NULL,
                                .max_sequences = b.n,
                                .max_cache_len = (uint32_t)longest + 64};
    if (kvik_cache_open(m, &config, &cache) < 0) FAILF("%s", kvik_last_error());
    if (kvik_generate(cache, &g, b.prompt, b.n, NULL, &r) < 0) FAILF("%s", kvik_last_error());
    const json_t *expect = json_object_get(c, "expect");
    if ((why = tokens_differ(expect, r, g.pad_token_id >= 0 ? g.pad_token_id : g.eos_token_id[0])))
        FAILF("%s", why);
    if (f32 && (why = logits_differ(expect, dir, r, 1e-4))) FAILF("%s", why);
    if (verbose) printf("ok   %s\n", id);
    n_exact++;
    goto out;
fail:
    n_failed++;
out:
    kvik_result_free(r);
    kvik_cache_close(cache);
    kvik_generation_done(&g);
    kvik_model_close(m);
    free(gen);
    json_decref(c);
}

int main(int argc, char **argv)
{
    const char *part = "A";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-v") == 0)
            verbose = 1;
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
        c_part = json_string_value(json_object_get(c, "issue"));
        if (!own && (!c_part || strcmp(c_part, part) != 0)) continue;
        if (strcmp(json_string_value(json_object_get(c, "meet")), "info") == 0) continue;
        run_case(json_string_value(json_object_get(c, "id")), dir);
    }
    json_decref(index);
    printf("golden %s: %d exact, %d failed, %d skipped\n", part, n_exact, n_failed, n_skipped);
    printf("%d passed, %d failed, %d skipped\n", n_exact, n_failed, n_skipped);
    return n_failed || n_exact == 0;
}
