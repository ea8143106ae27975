/* driver.h - generating: runs start, advance step by step beside each other, pause and end.
 *
 * A run is one request: prompts, options and hooks, with its own rows, processors and way of decoding.  A driver advances
 * the runs of one cache together.  Every step of the driver does three things:
 *
 *     gather   each run that has no feeds pending says what it needs fed
 *     feed     the feeds of all runs share steps of the model
 *     choose   each run whose feeds are done takes its logits and chooses tokens
 *
 * A run gives the tokens, scores and logits that it gives alone, whatever runs join, leave or pause beside it. */
#pragma once
#include "base/base.h"
#include "kvik.h"

struct exec;
struct tok;
struct driver;
struct run;

struct gen_assist {                  /* who makes draft tokens */
    struct gen_assistant *assistant; /* a model with a cache of its own (draft.h) */
    const struct drafter *maker;     /* or another maker, for tests; the caller closes it */
};
struct gen_finish { /* completes a result, while a failure can still undo everything */
    int (*call)(void *ctx, kvik_result *r);
    void *ctx;
};
/* See kvik_generate.  All pointers are borrowed until the run is freed. */
struct gen_call {
    const struct tok *tok; /* NULL: no text, no stop strings */
    const kvik_generation *g;
    const kvik_prompt *prompt;
    uint32_t n;
    const kvik_hooks *hooks;         /* or NULL */
    const struct gen_assist *assist; /* or NULL */
    const struct gen_finish *finish; /* or NULL */
};
int driver_open(struct exec *x, struct driver **out);
void driver_close(struct driver *d); /* after its runs */
/* ERR_BUSY: a run that has not ended continues this sequence of the caller's, or made it, so that nobody else may change
 * it. */
int driver_owns(const struct driver *d, kvik_seq seq);
/* Called when the owner of a sequence is closed.  Returns true if a run continues the sequence: that run drops it when
 * it ends, unless its result gives the sequence to the caller. */
bool driver_inherit(struct driver *d, kvik_seq seq);

/* Checks the call, takes sequences and sets up the rows.  Computes nothing, except rows that a sequence of the caller's
 * needs to be cropped, and the rows of an encoder. */
int run_start(struct driver *d, const struct gen_call *call, struct run **out);
/* The runs that a step advances, in this order.  Zeros: none yet. */
struct driver_batch {
    struct run *first, *last;
    uint32_t n;
};
/* ERR_BUSY: the run is in a step already (the caller's callback runs inside it), or was added twice.  The batch is then
 * empty again. */
int driver_add(struct driver *d, struct driver_batch *b, struct run *r);
/* Advances the runs of the batch, which is empty afterwards.  Paused runs and runs that are over take no part.  A run that
 * fails ends with its error; the others are unaffected.  ERR_BUSY inside a callback that a step of the model calls. */
int driver_step(struct driver *d, struct driver_batch *b);
enum run_state { RUN_ACTIVE, RUN_PAUSED, RUN_OVER, RUN_FAILED };
enum run_state run_state(const struct run *r);
int run_error(const struct run *r, const char **text); /* of a failed run, else 0 */
/* Fills the counts of kvik_request_progress; those of a run that has ended are its last ones. */
void run_progress(const struct run *r, kvik_progress *out);
void run_pause(struct run *r, bool paused);
/* Replaces prefill_chunk_size, also of a prompt that is being computed. */
void run_set_chunk(struct run *r, uint32_t tokens);
/* Builds the result.  A run that is not over ends as cancelled; if it has not chosen a token yet, the caller's sequences
 * become what they were.  Call it once; ERR_BUSY inside a callback of a step in which the run takes part, and, if the run
 * has chosen a token, inside any callback that a step of the model calls. */
int run_finish(struct run *r, kvik_result **out);
void run_free(
    struct run *r); /* NULL: nothing.  Not while the run takes part in a step or is ended */

/* All of it: starts a run, advances it until it is over, builds the result. */
int gen_run(struct driver *d, const struct gen_call *call, kvik_result **out);
void gen_result_free(kvik_result *r);
