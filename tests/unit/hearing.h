/* hearing.h - gives sequences and prompts of models with an encoder an input, so that tests treat all golden
 * models alike.  The input is the same in all tests.  Models without an encoder get none. */
#pragma once
#include "kvik.h"
#include "models.h"

enum { HEARD_IDS = 37, HEARD_FEATURES = 8192 };

struct hearing {
    bool hears;
    kvik_encoder encoder;
    int32_t ids[HEARD_IDS];
    float features[HEARD_FEATURES];
    kvik_source source;
};

/* Describes the input of a model; aborts if the features of the model are too many. */
static inline void hearing_open(struct hearing *h, const kvik_model *m)
{
    h->encoder = (kvik_encoder){.size = sizeof h->encoder};
    h->hears = kvik_model_encoder(m, &h->encoder) > 0;
    if ((size_t)h->encoder.bins * h->encoder.rows * h->encoder.stride > HEARD_FEATURES) abort();
    uint32_t seed = 9, vocab = kvik_model_vocab(m);
    for (uint32_t i = 0; i < HEARD_FEATURES; i++) {
        seed = seed * 1664525u + 1013904223u;
        h->features[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
        if (i < HEARD_IDS) h->ids[i] = (int32_t)(2 + (seed >> 8) % (vocab - 2));
    }
    h->source = (kvik_source){.size = sizeof h->source, .ids = h->ids, .n = HEARD_IDS};
    if (h->encoder.bins)
        h->source = (kvik_source){.size = sizeof h->source,
                                  .features = h->features,
                                  .n_frames = (size_t)h->encoder.rows * h->encoder.stride};
}

/* Gives a prompt the input.  Its ids are then those of the decoder's text. */
static inline void hearing_prompt(const struct hearing *h, kvik_prompt *p)
{
    if (!h->hears) return;
    p->source = &h->source;
}

/* Gives a sequence without rows the input. */
static inline int hearing_begin(const struct hearing *h, kvik_cache *c, kvik_seq s)
{
    return h->hears ? kvik_cache_encode(c, s, &h->source) : 0;
}

/* Creates a sequence with the input. */
static inline int hearing_new(const struct hearing *h, kvik_cache *c, kvik_seq *s)
{
    int e = kvik_cache_new(c, s);
    if (e >= 0) e = hearing_begin(h, c, *s);
    return e;
}
