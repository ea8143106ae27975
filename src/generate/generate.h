/* generate.h - floor 5: from raw logits to the next token. */
#pragma once
#include "base/base.h"
#include "base/json.h"
#include "kvik.h"

/* --- options.c and settings.c: the table of options, and applying options.  They also have the public functions
 * kvik_option_at, kvik_option_nearest, kvik_generation_init and kvik_generation_set. */
/* Sets the defaults of the table of options.  The struct then owns nothing. */
void gen_defaults(kvik_generation *g);
/* Applies an object of option names, all or nothing.  strict: an unknown key is an error that suggests the nearest
 * one.  Not strict (a model's generation_config.json): unknown keys and nulls are ignored; bad values are still
 * errors.  `what` names the source in errors.  If g->size is less than that of the whole struct, the fields beyond
 * it are not set. */
int gen_apply(kvik_generation *g, const json_t *o, const char *what, bool strict);
void gen_done(kvik_generation *g);
/* Reads an option that is one number or a truth value.  ERR_ARG for others. */
int gen_number(const kvik_generation *g, const char *name, double *value);
/* given.c: copies the options or callbacks of a program, whose structs may be of another version.  Fields that they
 * lack get their defaults.  For hooks *out is `room`, or NULL if the program gives none. */
int generation_in(const kvik_generation *g, kvik_generation *out);
int hooks_in(const kvik_hooks *given, kvik_hooks *room, const kvik_hooks **out);
/* Makes a copy that owns what it points to; gen_done frees it. */
int gen_copy(const kvik_generation *from, kvik_generation *to);
/* Checks the combination of options (temperature > 0 when sampling, ...).  Called before generating. */
int gen_validate(const kvik_generation *g);

/* --- validate.c: the way of decoding that a configuration asks for. */
enum gen_mode {
    GEN_GREEDY,
    GEN_SAMPLE,
    GEN_BEAM,
    GEN_BEAM_SAMPLE,
    GEN_GROUP_BEAM,
    GEN_CONTRASTIVE
};
enum gen_mode gen_mode(const kvik_generation *g);
/* True for greedy decoding or sampling with draft tokens (assistant model, prompt lookup).  Other modes ignore both. */
bool gen_assisted(const kvik_generation *g, bool assistant_model);
/* True for greedy decoding or sampling token by token, the only modes that can append to a sequence. */
bool gen_plain(const kvik_generation *g, bool assistant_model);

/* --- processors, in the order of Transformers: repetition penalty, min new tokens | temperature, top_k,
 * top_p, min_p when sampling.  scores: [vocab] f32 in place.  ids: tokens so far, prompt included (masked
 * columns excluded).  The formulas are those of Transformers 5, in f32. */
struct gen_row {
    const int32_t *ids;
    size_t n, n_prompt;
    uint32_t row; /* row number that callbacks get */
    /* Diverse beams: the tokens that earlier groups chose in this step. */
    const int32_t *chosen;
    uint32_t n_chosen;
    /* masked columns of the prompt, which are not in ids; lengths count them, as in Transformers */
    size_t pad;
    size_t max_length; /* most tokens that the text of the row may have */
    /* The encoder's input with masked columns, for processors that look at the encoder's prompt.  NULL: these look
     * at the prompt of the text. */
    const int32_t *heard;
    size_t n_heard;
};
/* The registered processors that a configuration wants.  Their scratch is reserved once. */
struct gen_chain;
struct tok;
/* tok: the model's tokenizer, which processors of text need, or NULL. */
int gen_chain_new(const kvik_generation *g, uint32_t vocab, const struct tok *tok,
                  struct gen_chain **out);
void gen_chain_drop(struct gen_chain *c);
/* Applies the chain to scores[vocab].  ERR_CANCELLED if the caller's callback asks for it. */
int gen_chain_apply(struct gen_chain *c, const struct gen_row *row, float *scores);
/* gen_chain_before runs the chain up to the caller's processor; gen_chain_after runs the rest. */
void gen_chain_before(struct gen_chain *c, const struct gen_row *row, float *scores);
int gen_chain_after(struct gen_chain *c, const struct gen_row *row, float *scores);
/* Makes filters leave at least n tokens from now on. */
void gen_chain_keep(struct gen_chain *c, uint32_t n);
/* Makes the caller's logits_processor part of the chain; borrowed. */
void gen_chain_hooks(struct gen_chain *c, const kvik_hooks *hooks);
/* --- sampling: seeded, independent of batch mates: the draw depends on (seed, row, step) only, so a row gives the same
 * tokens alone and in a batch at the same row index. */
int32_t gen_argmax(const float *scores, uint32_t n); /* first of equals; NaN never wins */
bool gen_finite(const float *logits, uint32_t n);    /* true if all are finite */
int32_t gen_sample(struct gen_chain *c, const float *scores, uint64_t seed, uint32_t row,
                   uint32_t step);

/* --- stop strings, which are searched in the decoded text of one row. */
struct gen_stop;
int gen_stop_new(char *const *strings, uint32_t n, struct gen_stop **out); /* n 0: *out NULL */
void gen_stop_drop(struct gen_stop *s);
/* Copies the state of `from` to `to`, which must have the same strings. */
void gen_stop_copy(struct gen_stop *to, const struct gen_stop *from);
/* Adds text.  Returns true once a stop string has appeared, even across calls.  *keep: bytes of the whole text up
 * to the end of the match, because Transformers keeps the stop string in the output. */
bool gen_stop_put(struct gen_stop *s, const char *text, size_t n, size_t *keep);
/* Returns the bytes at the end of the text so far that may begin a stop string. */
size_t gen_stop_partial(const struct gen_stop *s);
/* Returns the length of the longest stop string that ends the text so far; 0: none does. */
size_t gen_stop_match(const struct gen_stop *s);
