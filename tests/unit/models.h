/* models.h - the golden models, found by walking tests/golden/models, so that a new model is
 * covered without being listed. */
#pragma once
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN_MODELS "tests/golden/models"
enum { GOLDEN_MOST = 128 };

/* True if the model, or the one that a .gguf file was made of, has an encoder. Its sequences need
 * the encoder's input before tokens (hearing.h). */
static inline bool golden_hears(const char *name)
{
    char path[256], text[8192];
    size_t len = strlen(name);
    if (len > 5 && strcmp(name + len - 5, ".gguf") == 0) len -= 5;
    snprintf(path, sizeof path, GOLDEN_MODELS "/%.*s/config.json", (int)len, name);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return strstr(text, "\"is_encoder_decoder\": true") != NULL;
}

/* Lists the names of the models that do or do not have an encoder, in alphabetical order, each to
 * be put behind GOLDEN_MODELS "/". Returns their number. The names live until the program ends. */
static inline uint32_t golden_list(const char *name[GOLDEN_MOST], bool hears)
{
    static char kept[2][GOLDEN_MOST][128];
    struct dirent **found = NULL;
    uint32_t n = 0;
    int all = scandir(GOLDEN_MODELS, &found, NULL, alphasort);
    for (int i = 0; i < all; i++) {
        const char *at = found[i]->d_name;
        if (at[0] != '.' && n < GOLDEN_MOST && golden_hears(at) == hears) {
            snprintf(kept[hears][n], sizeof kept[hears][n], "%.127s", at);
            name[n] = kept[hears][n];
            n++;
        }
        free(found[i]);
    }
    free(found);
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
    for (uint32_t i = 0; i < more && n < GOLDEN_MOST; i++)
        name[n++] = hears[i];
    return n;
}
