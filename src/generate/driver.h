/* driver.h - generating: runs start, advance together step by step, pause and end.  A run is one request: prompts,
 * options and hooks, with its own rows, processors and way of decoding.  A driver advances the runs of one cache
 * together.  Every step of the driver does three things:
 *
 *     gather   each run without pending feeds sets the feeds that it needs
 *     feed     the feeds of all runs share steps of the model
 *     choose   each run whose feeds are done takes its logits and chooses tokens
 *
 * A run gives the same tokens, scores and logits as alone, whatever other runs join, leave or pause. */
#pragma once
#include "base/base.h"
#include "kvik.h"
#include "kvik_loop.h"

struct exec;
struct tok;
struct driver;
struct run;

struct gen_assist {                  /* the maker of draft tokens */
    struct gen_assistant *assistant; /* a model with a cache of its own (draft.h) */
    const struct drafter *maker;     /* or the maker of a test, which closes it */
};
struct gen_finish { /* Completes a result while a failure can still undo everything. */
    int (*call)(void *ctx, kvik_result *r);
    void *ctx;
};
/* The arguments of kvik_generate.  All pointers are borrowed until the run is freed. */
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
void driver_close(struct driver *d); /* call it after its runs were freed */
/* Returns ERR_BUSY if a run that has not ended continues this sequence, or has made it.  Nothing else may change the
 * sequence until then. */
int driver_owns(const struct driver *d, kvik_seq seq);
/* Called when the owner of a sequence is closed.  Returns true if a run continues the sequence.  That run then
 * drops it at its end, unless its result gives it to the caller. */
bool driver_inherit(struct driver *d, kvik_seq seq);

/* Checks the call, takes sequences and sets up the rows.  Computes nothing except the rows of an encoder, and rows
 * that must be recomputed to crop a sequence of the caller. */
int run_start(struct driver *d, const struct gen_call *call, struct run **out);
/* The runs that one step advances, in order.  All zeros: an empty batch. */
struct driver_batch {
    struct run *first, *last;
    uint32_t n;
};
/* Adds a run to a batch.  ERR_BUSY if the run is in a step already (the caller's callback runs inside it), or was
 * added twice; the batch is then empty. */
int driver_add(struct driver *d, struct driver_batch *b, struct run *r);
/* Advances the runs of the batch and empties it.  Paused runs and runs that are over take no part.  A run that
 * fails ends with its error; the others are unaffected.  ERR_BUSY inside a callback that a step of the model
 * calls. */
int driver_step(struct driver *d, struct driver_batch *b);
enum run_state { RUN_ACTIVE, RUN_PAUSED, RUN_OVER, RUN_FAILED };
enum run_state run_state(const struct run *r);
int run_error(const struct run *r, const char **text); /* of a failed run, else 0 */
/* Fills the counts of kvik_request_progress.  After the end of a run they are its last ones. */
void run_progress(const struct run *r, kvik_progress *out);
void run_pause(struct run *r, bool paused);
/* Replaces prefill_chunk_size, even while a prompt is being computed. */
void run_set_chunk(struct run *r, uint32_t tokens);
/* Builds the result of a run.  A run that is not over ends as cancelled.  If it has not chosen a token yet, the
 * caller's sequences are restored.  Call it once.  ERR_BUSY inside a callback of a step in which the run takes
 * part; if the run has chosen a token, inside any callback that a step of the model calls. */
int run_finish(struct run *r, kvik_result **out);
void run_free(
    struct run *r); /* NULL: nothing.  Not while the run takes part in a step or is ended */

/* Starts a run, advances it until it is over, and builds the result. */
int gen_run(struct driver *d, const struct gen_call *call, kvik_result **out);
void gen_result_free(kvik_result *r);
