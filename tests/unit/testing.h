/* testing.h - paths of models and data, token ids and cmocka's includes, shared by the unit tests. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "share.h"

/* Returns the path of SmolLM2-135M-Instruct.Q4_1.gguf: $KVIK_TEST_MODEL, or the demo's place; NULL
 * if absent. */
static inline const char *test_model(void)
{
    static char path[1024];
    const char *env = getenv("KVIK_TEST_MODEL"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (env)
        snprintf(path, sizeof path, "%s", env);
    else if (cache)
        snprintf(path, sizeof path, "%s/kvik/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/kvik/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home ? home : ".");
    if (access(path, R_OK) == 0) return path;
    fprintf(stderr, "skipped: no SmolLM2 at %s (make fetch-model, or set KVIK_TEST_MODEL)\n", path);
    return NULL;
}

/* Fills in n ids that look random and are the same in every run.  The first three of a vocabulary are usually special. */
static inline void draw_ids(int32_t *ids, uint32_t n, uint32_t vocab, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(3 + (seed >> 8) % (vocab - 3));
    }
}
