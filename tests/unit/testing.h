/* testing.h - paths of models and data and cmocka's includes, shared by the unit tests. */
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
