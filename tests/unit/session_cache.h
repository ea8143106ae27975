/* session_cache.h - the cache that the tests of damaged sessions save from and load into. */
#pragma once
#include "kvik.h"
#include "testing.h"

static inline kvik_cache *session_cache(kvik_model *m)
{
    kvik_cache_config k = {
        .size = sizeof k, .max_cache_len = 48, .max_sequences = 4, .step_tokens = 16, .threads = 1};
    kvik_cache *c = NULL;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}
