/* models.h - the golden models, found by walking tests/golden/models, so that a new model is
 * covered without being listed. */
#pragma once
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN_MODELS "tests/golden/models"
enum { GOLDEN_MOST = 128 };

/* Lists the models' names in alphabetical order, each to be put behind GOLDEN_MODELS "/". Returns
 * their number. The names live until the program ends. */
static inline uint32_t golden_models(const char *name[GOLDEN_MOST])
{
    static char kept[GOLDEN_MOST][128];
    struct dirent **found = NULL;
    uint32_t n = 0;
    int all = scandir(GOLDEN_MODELS, &found, NULL, alphasort);
    for (int i = 0; i < all; i++) {
        if (found[i]->d_name[0] != '.' && n < GOLDEN_MOST) {
            snprintf(kept[n], sizeof kept[n], "%.127s", found[i]->d_name);
            name[n] = kept[n];
            n++;
        }
        free(found[i]);
    }
    free(found);
    return n;
}
