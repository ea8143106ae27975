/* test_beam_cache.h - opening, generating and comparing for the tests of beam search over the cache. */
#pragma once
#include "budgets.h"

#define BEAM_LONG "tests/golden/models/llama-bf16-long"

static const int32_t ids[] = {85, 14, 62, 12, 145, 198, 305, 12, 354, 269, 383, 40, 41, 42, 43, 44};

static inline kvik_cache *cache_of(kvik_model *m, kvik_cache_config c)
{
    kvik_cache *out;
    if (kvik_cache_open(m, &c, &out) < 0) fail_msg("%s", kvik_last_error());
    return out;
}

static inline kvik_generation config(kvik_model *m, const char *json)
{
    kvik_generation g;
    assert_int_equal(kvik_generation_init(&g, m), 0);
    if (kvik_generation_set(&g, json) < 0) fail_msg("%s", kvik_last_error());
    return g;
}

static inline kvik_result *generate(kvik_cache *c, const char *json, const kvik_prompt *p,
                                    uint32_t n)
{
    kvik_generation g = config(c->model, json);
    kvik_result *r;
    if (kvik_generate(c, &g, p, n, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    kvik_generation_done(&g);
    return r;
}

/* Two searches gave the same rows, scores and logits, bit for bit. */
static inline void same_run(const kvik_result *a, const kvik_result *b)
{
    assert_int_equal(a->steps, b->steps);
    assert_memory_equal(a->logits, b->logits,
                        (size_t)a->steps * a->logit_rows * a->vocab * sizeof *a->logits);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        size_t fresh = a->row[i]->n - a->row[i]->n_prompt;
        assert_int_equal(a->row[i]->n, b->row[i]->n);
        assert_memory_equal(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof *ids);
        assert_memory_equal(a->row[i]->beam_indices, b->row[i]->beam_indices, fresh * sizeof *ids);
        assert_true(a->row[i]->score == b->row[i]->score);
    }
}
