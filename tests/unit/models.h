/* models.h - the golden models, found by walking tests/golden/models, so that a new model is covered without being
 * listed.  Anything unreadable ends the test, because a shorter list would silently leave models out. */
#pragma once
#include "generate/handle.h"
#include "stop.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define GOLDEN_MODELS "tests/golden/models"
enum { GOLDEN_MOST = 128, GOLDEN_ARCHS = 128 };

/* True if the model, or the one that a .gguf file was made of, has an encoder. Its sequences need
 * the encoder's input before tokens (hearing.h). */
static inline bool golden_hears(const char *name)
{
    char path[256];
    static char text[1 << 16];
    size_t len = strlen(name);
    if (len > 5 && strcmp(name + len - 5, ".gguf") == 0) len -= 5;
    snprintf(path, sizeof path, GOLDEN_MODELS "/%.*s/config.json", (int)len, name);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (n == 0 || n == sizeof text)
        test_stop("%s: cannot be read, or has %zu bytes or more", path, sizeof text);
    fclose(f);
    text[n] = 0;
    return strstr(text, "\"is_encoder_decoder\": true") != NULL;
}

/* Lists the names of the models with, or without, an encoder, in alphabetical order.  A path is GOLDEN_MODELS "/"
 * and the name.  Returns their number.  The names live until the program ends. */
static inline uint32_t golden_list(const char *name[GOLDEN_MOST], bool hears)
{
    static char kept[2][GOLDEN_MOST][128];
    struct dirent **found = NULL;
    uint32_t n = 0;
    int all = scandir(GOLDEN_MODELS, &found, NULL, alphasort);
    if (all < 0)
        test_stop(GOLDEN_MODELS " cannot be read; run the test from the root of the repository");
    for (int i = 0; i < all; i++) {
        const char *at = found[i]->d_name;
        if (at[0] != '.' && golden_hears(at) == hears) {
            if (n == GOLDEN_MOST || strlen(at) >= sizeof kept[hears][n])
                test_stop("more than %d golden models, or a long name: %s", GOLDEN_MOST, at);
            strcpy(kept[hears][n], at);
            name[n] = kept[hears][n];
            n++;
        }
        free(found[i]);
    }
    free(found);
    if (n == 0) test_stop(GOLDEN_MODELS " has no model %s an encoder", hears ? "with" : "without");
    return n;
}

static inline uint32_t golden_models(const char *name[GOLDEN_MOST])
{
    return golden_list(name, false);
}

/* All models, those with an encoder last. */
static inline uint32_t golden_all(const char *name[GOLDEN_MOST])
{
    const char *hears[GOLDEN_MOST];
    uint32_t n = golden_list(name, false), more = golden_list(hears, true);
    if (n + more > GOLDEN_MOST)
        test_stop("more than %d golden models; raise GOLDEN_MOST", GOLDEN_MOST);
    for (uint32_t i = 0; i < more; i++)
        name[n++] = hears[i];
    return n;
}

/* Notes that a test has run the model: its architecture counts as covered. */
static bool golden_covered[GOLDEN_ARCHS];
static inline void golden_ran(const kvik_model *m)
{
    for (uint32_t i = 0; model_arch_at(i); i++) {
        if (i == GOLDEN_ARCHS)
            test_stop("more than %d architectures; raise GOLDEN_ARCHS", GOLDEN_ARCHS);
        golden_covered[i] |= model_arch_at(i) == m->m->arch;
    }
}

/* Returns the name of a registered architecture of which no golden model has run, or NULL. */
static inline const char *golden_missed(void)
{
    for (uint32_t i = 0; model_arch_at(i); i++)
        if (i == GOLDEN_ARCHS || !golden_covered[i]) return model_arch_at(i)->names[0];
    return NULL;
}
