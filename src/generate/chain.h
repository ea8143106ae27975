/* chain.h - what a logits processor sees, and how it registers.  A processor is one file: functions over
 * (chain, row, scores) and one GEN_PROCESSOR line; the chain finds it, asks once per generation whether the config wants
 * it, and runs the wanted ones in the order of their numbers for every row and step. */
#pragma once
#include "generate/generate.h"

struct gen_processor {
    const char *name;
    unsigned order; /* cache-semantics 22: its item number times 100 */
    bool sampling;  /* only when do_sample */
    bool (*wanted)(const kvik_generation *g);
    void (*apply)(struct gen_chain *c, const struct gen_row *row, float *scores);
    int (*open)(
        struct gen_chain *c); /* NULL, or checks the config against the vocabulary, takes scratch */
};
/* After the five: .open = FUNCTION, if there is one. */
#define GEN_PROCESSOR(name_, order_, sampling_, wanted_, apply_, ...)                              \
    static const struct gen_processor processor_##name_ = {.name = #name_,                         \
                                                           .order = (order_),                      \
                                                           .sampling = (sampling_),                \
                                                           .wanted = (wanted_),                    \
                                                           .apply = (apply_),                      \
                                                           __VA_ARGS__};                           \
    static const struct gen_processor *const reg_##name_                                           \
        __attribute__((section("gen_processors"), used)) = &processor_##name_

#define GEN_USER_PROCESSOR 1800u /* where the caller's own comes */
#define GEN_MAX_PROCESSORS 32
struct gen_pair { /* typical_p: distance of a surprise from the expected one, probability */
    float far, p;
};
struct gen_chain {
    kvik_generation g; /* what it points to is the original's, which outlives the chain */
    uint32_t vocab;
    uint32_t keep;           /* tokens a filter leaves at least (1; more for beams) */
    float *value;            /* [vocab] scratch */
    struct gen_pair *pair;   /* [vocab] scratch of typical_p, else NULL */
    float filter;            /* what filters of sampling make of a score: -inf */
    uint64_t *seen;          /* [vocab bits] scratch, all zero between calls */
    const kvik_hooks *hooks; /* with a logits_processor, or NULL; borrowed */
    uint32_t n;
    const struct gen_processor *processor[GEN_MAX_PROCESSORS];
};

/* exp(s - max) of every score into value, 0 for -inf and NaN; the sum of them, or 0 when no score is finite.
 * A score of +inf takes all. */
double gen_weights(const float *scores, uint32_t n, float *value);
/* The k-th largest (k from 1) of v[0..n), which is reordered; no NaN in it. */
float gen_select(float *v, uint32_t n, uint32_t k);
void gen_sort(float *v, uint32_t n); /* ascending, in place, n log n */
/* Leaves exactly the c->keep largest scores (fewer when fewer are finite); of equal ones, higher ids. */
void gen_keep(struct gen_chain *c, float *scores);
/* -inf for these tokens; ids outside the vocabulary are passed over. */
void gen_remove(const struct gen_chain *c, const int32_t *id, uint32_t n, float *scores);
/* Of every distinct token of ids, the score times p when negative and divided by it otherwise. */
void gen_penalize(struct gen_chain *c, const int32_t *ids, size_t n, float p, float *scores);
bool gen_row_ends(const struct gen_row *row, const int32_t *ids, uint32_t n); /* in these ids */
/* ERR(ARG) naming the option if an id is outside the vocabulary. */
int gen_check_ids(const struct gen_chain *c, const char *option, const int32_t *id, uint32_t n);
int gen_check_sequences(const struct gen_chain *c, const char *option, const kvik_bias *b,
                        uint32_t n);
bool gen_seen_get(const struct gen_chain *c, int32_t id);
bool gen_seen_set(struct gen_chain *c,
                  int32_t id); /* true the first time; ids outside the vocabulary: false */
void gen_seen_clear(struct gen_chain *c, int32_t id);
