/* testing.h - what the unit tests share: paths of models and data, cmocka's includes. */
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

/* SmolLM2-135M-Instruct.Q4_1.gguf: $KVIK_TEST_MODEL, else where the demo keeps it; NULL if absent. */
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
