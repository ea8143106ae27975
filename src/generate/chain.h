/* chain.h - what a logits processor sees, and how it registers.  A processor is a few functions over (chain, row,
 * scores) and one GEN_PROCESSOR line; a file holds a family of processors.  Once per generation the chain asks
 * each processor whether the configuration wants it.  The wanted ones run for every row and step, in the order of
 * their numbers. */
#pragma once
#include "generate/generate.h"

struct gen_processor {
    const char *name;
    unsigned order; /* position in Transformers' list of processors, times 100 */
    bool sampling;  /* runs only when do_sample is set */
    bool (*wanted)(const kvik_generation *g);
    void (*apply)(struct gen_chain *c, const struct gen_row *row, float *scores);
    /* NULL, or checks the configuration against the vocabulary and reserves scratch. */
    int (*open)(struct gen_chain *c);
};
/* Registers a processor.  A sixth argument may be .open = FUNCTION. */
#define GEN_PROCESSOR(name_, order_, sampling_, wanted_, apply_, ...)                              \
    static const struct gen_processor processor_##name_ = {.name = #name_,                         \
                                                           .order = (order_),                      \
                                                           .sampling = (sampling_),                \
                                                           .wanted = (wanted_),                    \
                                                           .apply = (apply_),                      \
                                                           __VA_ARGS__};                           \
    static const struct gen_processor *const reg_##name_                                           \
        __attribute__((section("kvik_processor"), used)) = &processor_##name_

#define GEN_USER_PROCESSOR 1800u /* position of the caller's own logits_processor */
#define GEN_MAX_PROCESSORS 32
/* Scratch of typical_p: the distance of a token's surprise from the expected surprise, and its probability */
struct gen_pair {
    float far, p;
};
struct gen_chain {
    kvik_generation g; /* a shallow copy: the original outlives the chain */
    uint32_t vocab;
    uint32_t keep;             /* least number of tokens that a filter leaves (1; more for beams) */
    float *value;              /* [vocab] scratch */
    struct gen_pair *pair;     /* [vocab] scratch of typical_p, else NULL */
    float filter;              /* the score of a token that a filter removes: -inf */
    const struct tok *tok;     /* borrowed, or NULL */
    struct gen_schema *schema; /* owned by processor_schema.c, or NULL */
    void (*drop_schema)(struct gen_schema *s);
    int error;               /* error of a processor, whose sentence is set */
    uint64_t *seen;          /* [vocab bits] scratch; all zero between calls */
    const kvik_hooks *hooks; /* borrowed; NULL: the caller has no logits_processor */
    uint32_t n;
    const struct gen_processor *processor[GEN_MAX_PROCESSORS];
};

/* Returns the trie of a vocabulary, which is made once and lives as long as the tokenizer. */
struct lexicon;
struct schema;
int gen_lexicon(const struct tok *tok, const struct lexicon **out);
/* Compiles a schema ahead of the generations that have it, which find it as long as it is held; tok may be NULL. */
int gen_schema_hold(const char *text, const struct tok *tok, struct schema **out);
void gen_schema_drop(struct schema *s);

/* Writes exp(s - max) of every score to value, 0 for -inf and NaN, and returns their sum; 0 if no score is above
 * -inf.  If there are scores of +inf, only these have weight. */
double gen_weights(const float *scores, uint32_t n, float *value);
/* Returns the k-th largest (k from 1) of v[0..n), which is reordered and holds no NaN. */
float gen_select(float *v, uint32_t n, uint32_t k);
void gen_sort(float *v, uint32_t n); /* sorts ascending, in place, in n log n steps */
/* Removes all but the c->keep largest scores.  Of equal scores the higher ids stay. */
void gen_keep(struct gen_chain *c, float *scores);
/* Sets the scores of these tokens to -inf; skips ids outside the vocabulary. */
void gen_remove(const struct gen_chain *c, const int32_t *id, uint32_t n, float *scores);
/* Returns ERR_ARG, with the name of the option, if an id is outside the vocabulary. */
int gen_check_ids(const struct gen_chain *c, const char *option, const int32_t *id, uint32_t n);
/* Marks tokens as seen.  gen_seen_set returns true the first time, false later and for ids outside the vocabulary.
 * A processor that sets marks clears them before the next one runs. */
bool gen_seen_get(const struct gen_chain *c, int32_t id);
bool gen_seen_set(struct gen_chain *c, int32_t id);
void gen_seen_clear(struct gen_chain *c, int32_t id);
