/* fuzz_import.c - any bytes as a file of the legacy form, imported into caches of small models:
 * full attention, windows, chunks, and padding that counts as tokens. After an accepted import a
 * forward and an export of as many columns must work. */
#include "compat/padded.h"
#include "fmt/fmt.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(c)                                                                                    \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            fprintf(stderr, "%s:%d: broken promise: %s (%s)\n", __FILE__, __LINE__, #c,            \
                    err_last());                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static struct place {
    const char *model;
    kvik_model *m;
    kvik_cache *c;
} place[] = {{"mistral", NULL, NULL}, {"llama4", NULL, NULL}, {"llama-gqa-l3", NULL, NULL}};

static bool open_places(void)
{
    static const kvik_cache_config config = {.size = sizeof config,
                                             .max_sequences = 4,
                                             .max_cache_len = 64,
                                             .step_tokens = 16,
                                             .threads = 1};
    char path[128];
    for (size_t i = 0; i < countof(place); i++) {
        struct place *p = &place[i];
        if (p->c) continue;
        snprintf(path, sizeof path, "tests/golden/models/%s", p->model);
        /* Not at the root of the repository. */
        if (!p->m && kvik_model_open(path, &p->m) < 0) return false;
        MUST(kvik_cache_open(p->m, &config, &p->c) == 0);
    }
    return true;
}

/* Appends one more column for all batch rows, then exports the batch. */
static void go_on(const struct place *p, kvik_batch *b)
{
    uint32_t rows = kvik_batch_rows(b), n = kvik_batch_length(b);
    int32_t ids[4] = {5, 6, 7, 8};
    kvik_legacy *l;
    uint8_t *old = malloc((size_t)rows * n + 1), *mask = malloc((size_t)rows * (n + 1));
    MUST(rows <= 4 && old && mask && kvik_batch_mask(b, old) == 0);
    for (uint32_t i = 0; i < rows; i++) {
        memcpy(mask + (size_t)i * (n + 1), old + (size_t)i * n, n);
        mask[(size_t)i * (n + 1) + n] = 1;
    }
    kvik_inputs in = {
        .size = sizeof in, .ids = ids, .n = 1, .attention_mask = mask, .width = n + 1};
    int e = kvik_batch_forward(b, &in, NULL);
    MUST(e == 0 || e == KVIK_LIMIT);
    MUST(kvik_batch_to_legacy(b, &l) == 0);
    MUST(l->batch == rows && l->length == n + (e == 0) && l->n_layers == kvik_model_layers(p->m));
    kvik_legacy_free(l);
    free(old);
    free(mask);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *s = NULL;
    kvik_legacy *l = NULL;
    kvik_usage u = {.size = sizeof u};
    if (!open_places() || safetensors_parse(data, size, "fuzz", &s) < 0) return 0;
    if (legacy_read(s, "fuzz", NULL, &l) < 0) {
        MUST(l == NULL && err_last()[0]);
        safetensors_close(s);
        return 0;
    }
    safetensors_close(s);
    for (size_t i = 0; i < countof(place); i++) {
        kvik_batch *b = NULL;
        if (kvik_batch_from_legacy(place[i].c, l, &b) < 0)
            MUST(b == NULL && err_last()[0]);
        else
            go_on(&place[i], b);
        kvik_batch_close(b);
        kvik_cache_usage(place[i].c, &u);
        MUST(u.live == 0 && u.tokens == 0);
    }
    kvik_legacy_free(l);
    return 0;
}
