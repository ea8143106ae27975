/* run.h - what every way of generating shares: rows set up from prompts, and turned into results at the end.
 *
 * Rows are independent sequences; nothing is padded.  Drawing several answers to a prompt makes several rows, of which the
 * first feeds the prompt and the others fork it; a beam search has one row per prompt and its own sequences
 * for the beams. */
#pragma once
#include "generate/generate.h"
#include "generate/loop.h"
#include "generate/sync.h"
#include "model/model.h"
#include "tok/tok.h"

struct row {
    const kvik_prompt *prompt;
    kv_seq given;                      /* the caller's sequence, which this row continues; else 0 */
    kv_seq seq;                        /* `given`, or the row's own */
    struct sync sync;                  /* of `given` */
    int32_t *ids;                      /* masked columns left out; prompt, then generated */
    uint32_t *ends;                    /* turn ends for the recompute path, else NULL */
    uint32_t n, n_prompt, have, limit; /* have: tokens fed; limit: new tokens at most */
    uint32_t reused;
    const char *miss;  /* why a fresh row reuses nothing */
    uint32_t pad;      /* masked columns before the first token */
    bool done, handed; /* handed: seq is the caller's now */
    enum kvik_finish finish;
    struct tok_stream *stream;
    struct gen_stop *stop;
    struct buf text;
};
struct run_kept { /* of every step */
    bool wanted;
    float *data; /* [n][width][vocab] */
    size_t n, cap;
};
struct run {
    struct exec *x;
    const struct tok *tok;
    const kvik_generation *g;
    const kvik_hooks *hooks;
    struct gen_chain *chain;
    struct row *row;
    uint32_t n;          /* rows */
    uint32_t per;        /* rows for each prompt, adjacent; 1 with beams */
    uint32_t width;      /* rows of logits that are kept of a step: n, or with beams all of them */
    uint32_t lanes;      /* most sequences fed at once, hence rows of logits */
    uint32_t fed;        /* rows of logits of the last feed before those of negative texts */
    struct guide *guide; /* guidance.c, or NULL */
    uint32_t steps, kept_steps;
    float *logits, *scores;            /* [lanes][vocab], [vocab] */
    struct exec_feed *feed;            /* [lanes] */
    struct run_kept kept, kept_scores; /* raw logits; processed scores */
    struct buf piece;
    const struct gen_assist *assist; /* or NULL */
    uint64_t drafted, accepted;      /* guesses that were checked; that came true */
    bool told;                       /* that pages stream */
    double begun;                    /* for max_time */
};

/* run.c */
int run_begin(struct run *r, const kvik_prompt *prompt, uint32_t n_prompts);
/* After a failure the caller's sequences are what they were. */
void run_end(struct run *r, bool failed);
/* Another sequence with the rows of `from`, and a reserve of its own if the preset gives one. */
int run_fork(struct exec *x, kv_seq from, kv_seq *out);
/* exec_feed of feed[at, at + n) into the rows of logits from `at`, telling once if the cache begins to stream. */
int run_feed(struct run *r, uint32_t at, uint32_t n, uint32_t chunk, exec_progress progress,
             void *ctx);
/* feed[0, n), one token each, in as many steps as it takes: none of them needs memory or forks to fall back to. */
int run_feed_steps(struct run *r, uint32_t n);
/* What processors are told of a row whose text is ids[0..n). */
static inline struct gen_row run_view(const struct row *w, const int32_t *ids, size_t n,
                                      uint32_t row)
{
    return (struct gen_row){.ids = ids,
                            .n = n,
                            .n_prompt = w->n_prompt,
                            .pad = w->prompt->n - w->n_prompt,
                            .max_length = (size_t)w->n_prompt + w->limit,
                            .row = row};
}
/* All processors on a row of scores; uncond: the logits after its negative text, or NULL. */
int run_process(struct run *r, const struct gen_row *row, const float *uncond, float *scores);

/* criteria.c */
bool run_ends(const kvik_generation *g, int32_t id); /* an end-of-sequence token */
/* Whether the caller's criteria or the clock end a text after ids[0..n). */
bool run_criteria(const struct run *r, uint32_t row, const int32_t *ids, size_t n,
                  enum kvik_finish *why);
/* Whether anything ends it; stopped: its last token completed a stop string.  *why is KVIK_FINISH_LENGTH if nothing. */
bool run_over(const struct run *r, const struct gen_row *text, bool stopped, enum kvik_finish *why);

/* results.c: what is kept of step `at`, at most one behind the last, [width][vocab], zeros at first; NULL if nobody wants
 * it. */
int run_keep(struct run *r, struct run_kept *k, uint32_t at, float **out);
/* `fresh`: what was generated after the row's prompt; text is not filled in. */
int run_result(const struct row *w, const int32_t *fresh, uint32_t n, kvik_row *out);
/* All rows, each with its own sequence (not beams). */
int run_rows(struct run *r, kvik_result *out);
int run_result_begin(const struct run *r, uint32_t n_prompts, kvik_result **out);
/* Failed: the sequences that the rows were to have are dropped. */
void run_result_end(struct run *r, kvik_result *out, bool failed);

/* loop.c: what ways of generating one token a row and step (or several) share.
 * Feeds what each running row has not fed; the logits of its last token in row k of r->logits, rows that run in order.
 * The first time rows of one prompt share its feed. */
int run_feed_rows(struct run *r, uint32_t chunk, exec_progress progress);
/* Appends a token to row i, says it, and ends the row if it must; *cancel is set if the caller wants that. */
int run_append(struct run *r, uint32_t i, int32_t id, bool *cancel);
struct gen_row run_text(const struct run *r, uint32_t i); /* row i as processors see it */
/* Chooses the next token of row i from the logits[vocab] of its last one, and appends it. */
int run_choose(struct run *r, uint32_t i, const float *logits, bool *cancel);
/* After every row had its tokens: ends all if cancelled; whether any still runs. */
int run_step_end(struct run *r, bool cancel, bool *running);

/* idle.c: after the rows have their results, the raw logits (if kept) of those that ended before others. */
void idle_run(struct run *r);

/* speculate.c: guesses checked many at a time; fills the rows of `out`. */
int speculate_run(struct run *r, kvik_result *out, double *prefilled);

/* contrastive.c: likely tokens unlike the text so far. */
int contrastive_run(struct run *r, kvik_result *out, double *prefilled);
uint32_t contrastive_width(const struct run *r); /* sequences of a row */

/* beam_loop.c: beam search over all rows; fills the rows of `out`.  *prefilled: when the prompts had been fed. */
int beam_run(struct run *r, kvik_result *out, double *prefilled);
