/* run.h - the inside of a run, which driver.h starts and advances.
 *
 * Rows are independent sequences; nothing is padded.  Several answers to one prompt are several rows: the first feeds the
 * prompt and the others fork it.  A beam search has one row per prompt and its own sequences for the beams.
 *
 * What the ways of decoding differ in is their struct run_mode: which feeds they gather, and how they choose. */
#pragma once
#include "generate/driver.h"
#include "generate/generate.h"
#include "generate/heard.h"
#include "generate/sync.h"
#include "model/model.h"
#include "tok/tok.h"

struct row {
    const kvik_prompt *prompt;
    const struct gen_source *source; /* of models with an encoder, else NULL */
    bool heard;                      /* `given` has got the encoder's rows from this run */
    kv_seq given;                    /* the caller's sequence, which this row continues; else 0 */
    kv_seq seq;                      /* `given`, or the row's own */
    struct sync sync;                /* of `given` */
    int32_t *ids;   /* [n_prompt + limit] prompt without masked columns, then generated tokens */
    uint32_t *ends; /* turn ends for use_cache=false, else NULL */
    uint32_t n, n_prompt;
    uint32_t have;  /* tokens fed */
    uint32_t limit; /* new tokens at most */
    uint32_t reused;
    const char *miss; /* why a fresh row reuses nothing */
    /* tokens for which the row waits until row `leader` has them (share.c); 0: it does not wait */
    uint32_t common;
    uint32_t leader;
    uint32_t pad; /* masked columns before the first token */
    /* [lead][hidden] embeddings that the first job appends in place of the prompt's ids; the prompt's, or own_embeds */
    const float *embeds;
    float *own_embeds;
    uint32_t lead;
    bool cut; /* limit is what the context or max_cache_len leaves, less than was asked for */
    bool done;
    bool decided; /* run_decide has chosen `next` from the logits of the job that is done */
    bool broken;  /* these logits are not finite */
    int32_t next;
    bool handed;   /* the caller has taken over `seq` */
    bool orphaned; /* the owner of `given` is closed, so the run drops the sequence */
    enum kvik_finish finish;
    struct tok_stream *stream;
    struct gen_stop *stop;
    size_t stop_seen; /* bytes of the prompt's text, in which a stop string may begin */
    struct buf text;
    size_t told; /* bytes of `text` that the caller was told */
    bool closed; /* `text` ends before a stop string: nothing follows */
};
struct run_kept { /* values of every step */
    bool wanted;
    float *data; /* [n][width][vocab] */
    size_t n, cap;
};
/* A way of decoding: facts that the parts of a run ask for, and calls.  Every call that returns an int returns 0 or an
 * error, which ends the run. */
struct run_mode {
    const char *sequences; /* what the sequences of a prompt are, in messages */
    bool by_logits;        /* each token of a row is chosen from the row's logits (run_choose) */
    bool embeds;           /* a prompt may be embeddings */
    bool anew;             /* computes the whole prompt, whatever a sequence has of it */
    bool search;    /* the texts are known at the end, and the rows of a run are prompts (beams) */
    bool drafts;    /* a job may have draft tokens */
    uint32_t unfed; /* last tokens of a text that are never appended to its sequence */
    /* Returns the number of sequences of a prompt. */
    uint64_t (*width)(const struct run *r);
    /* Refuses options and callbacks that the mode cannot have.  May be NULL. */
    int (*check)(const struct run *r);
    /* Takes what the mode needs, in r->own.  May be NULL. */
    int (*begin)(struct run *r);
    /* Sets the feeds before the next choice: r->feed[0, r->job.n), and what of r->job is not as usual. */
    int (*gather)(struct run *r);
    /* Takes the logits of these feeds; *running: tokens are still wanted. */
    int (*choose)(struct run *r, bool *running);
    /* Of a job of drafts: chooses from the logits of feeds [first, first + n) and lowers accepted[i], at least 1. */
    int (*judge)(struct run *r, uint32_t first, uint32_t n, uint32_t *accepted);
    /* Ends what still runs, after at least one choice.  NULL: run_cancel. */
    int (*cancel)(struct run *r);
    /* Fills the rows of the result. */
    int (*finish)(struct run *r, kvik_result *out);
    /* Gives back what `begin` and later calls took.  May be NULL. */
    void (*end)(struct run *r);
    /* True if the mode has made this sequence.  NULL: those it made are in the feeds. */
    bool (*owns)(const struct run *r, kv_seq seq);
};
extern const struct run_mode plain_mode, speculate_mode, contrastive_mode, beam_mode;

struct run {
    struct driver *driver;
    struct run *next;  /* of the driver's runs */
    struct run *after; /* of the batch that a step advances */
    struct exec *x;
    const struct tok *tok;
    const kvik_generation *g;
    const kvik_hooks *hooks;
    const struct gen_assist *assist; /* or NULL */
    const struct gen_finish *finish; /* or NULL */
    struct gen_chain *chain;
    const struct run_mode *mode;
    void *own; /* the mode's */
    struct row *row;
    struct gen_source *source; /* [n_prompts] or NULL */
    uint32_t n_prompts;
    uint32_t n;          /* rows */
    uint32_t per;        /* rows for each prompt, adjacent; 1 with beams */
    uint32_t width;      /* rows of logits that are kept of a step: n, or with beams all of them */
    uint32_t lanes;      /* most sequences fed at once, hence rows of logits */
    uint32_t draft_rows; /* most rows of logits of a job of drafts */
    uint32_t fed;        /* rows of logits of the last job before those of negative texts */
    struct guide *guide; /* guidance.c, or NULL */
    uint32_t steps, kept_steps;
    float *logits, *scores;            /* [lanes][vocab], [vocab] */
    struct exec_feed *feed;            /* [lanes] */
    struct run_kept kept, kept_scores; /* raw logits; processed scores */
    struct buf piece;
    kvik_logprob *top;          /* [1 + hooks->top_logprobs] or NULL */
    uint64_t drafted, accepted; /* draft tokens that were checked; that were right */
    bool told;                  /* that pages stream */
    bool told_broken;           /* that logits are not finite */
    double pulsed;              /* when on_pulse was called */
    double begun, prefilled;    /* prefilled: when the first job was done, 0 before */
    uint64_t computed;          /* tokens */
    uint32_t chunk;             /* tokens of a prompt in one step; 0: step_tokens */

    /* The driver's: */
    struct exec_job job; /* feed[0, job.n) */
    bool pending;        /* the job has begun and its logits have not been taken */
    bool sharing; /* the job's feeds are what prompts have in common: nothing is chosen after it */
    uint64_t before; /* job.done when the step began */
    uint64_t turn;   /* of its last part of a step; the run with the lowest has waited longest */
    exec_progress progress; /* of the first job; or NULL */
    void *progress_ctx;
    bool stepping, paused, over;
    kvik_progress counts; /* when the rows were given back */
    int error;
    char why[1024]; /* the sentence of `error` */
};

/* run_shape.c */
/* Sets the mode and the numbers of rows and sequences; an error if the options exclude one another or the cache is too small. */
int run_shape(struct run *r);
/* Tells that drafts are ignored.  Call it once the run has its sequences, which the callback cannot change then. */
void run_tell_mode(const struct run *r);
/* run.c */
int run_begin(struct run *r, const kvik_prompt *prompt);
/* Gives everything back but the struct.  After a failure the caller's sequences are what they were. */
void run_end(struct run *r, bool failed);
/* What the encoder must be given before a feed of the row: its input where nothing is cached (use_cache false), else NULL,
 * because the row's sequence has the rows. */
static inline const struct exec_source *run_hears(const struct run *r, const struct row *w)
{
    return w->source && !r->g->use_cache ? &w->source->in : NULL;
}
/* share.c: what prompts have in common is computed once.  After run_begin: finds which rows wait for which. */
void share_begin(struct run *r);
/* Sets the feeds, r->feed[0, r->job.n), that must be done before the waiting rows can go on; none if no row waits. */
int share_gather(struct run *r);
void share_fed(struct run *r); /* they are done */

/* Returns the rows of the cache that the row's prompt takes. */
static inline uint32_t run_prompt_rows(const struct row *w)
{
    return w->lead ? w->lead : w->n_prompt;
}
/* Returns the columns of a prompt, as minimum and maximum lengths count them. */
static inline size_t run_columns(const kvik_prompt *p)
{
    return MAX(p->n - p->n_new, p->n_embeds);
}
/* What processors are told of a row whose text is ids[0..n). */
static inline struct gen_row run_view(const struct row *w, const int32_t *ids, size_t n,
                                      uint32_t row)
{
    return (struct gen_row){.ids = ids,
                            .n = n,
                            .n_prompt = w->n_prompt,
                            .pad = run_columns(w->prompt) - w->n_prompt,
                            .heard = w->source ? w->source->columns : NULL,
                            .n_heard = w->source ? w->source->n_columns : 0,
                            .max_length = (size_t)w->n_prompt + w->limit,
                            .row = row};
}
/* Applies all processors to a row of scores; uncond: the logits after its negative text, or NULL. */
int run_process(struct run *r, const struct gen_row *row, const float *uncond, float *scores);

/* criteria.c */
bool run_ends(const kvik_generation *g, int32_t id); /* true if id is an end-of-sequence token */
/* True if the caller's criteria or max_time end a text after ids[0..n). */
bool run_criteria(const struct run *r, uint32_t row, const int32_t *ids, size_t n,
                  enum kvik_finish *why);
/* True if anything ends the text; stopped: its last token completed a stop string.  *why is KVIK_FINISH_LENGTH if
 * nothing does. */
bool run_over(const struct run *r, const struct gen_row *text, bool stopped, enum kvik_finish *why);

/* results.c: returns the array [width][vocab] of what is kept of step `at`, zeros at first; NULL if the caller does not want it.
 * `at` is at most one behind the last step. */
int run_keep(struct run *r, struct run_kept *k, uint32_t at, float **out);
/* `fresh`: what was generated after the row's prompt; text is not filled in. */
int run_result(const struct row *w, const int32_t *fresh, uint32_t n, kvik_row *out);
/* All rows, each with its own sequence (not beams). */
int run_rows(struct run *r, kvik_result *out);
/* Rows of a run that has chosen nothing: their prompts. */
int run_no_rows(struct run *r, kvik_result *out);
/* shown.c: opens a stream for the text of new tokens, which shows kvik_hooks.shown_tokens; and appends the text of n
 * tokens. */
int run_stream(const struct run *r, struct tok_stream **out);
int run_decode(const struct run *r, const int32_t *id, size_t n, struct buf *text);
/* Cuts the new text of a row before its first stop string, if the options leave stop strings out. */
int run_cut_text(const struct run *r, const struct row *w, struct buf *text);
int run_result_begin(const struct run *r, kvik_result **out);
/* Failed: the sequences that the rows were to have are dropped. */
void run_result_end(struct run *r, kvik_result *out, bool failed);

/* plain.c: what the modes share that choose one or several tokens a row and step. */
/* Gathers what each running row has not fed, and behind these feeds those of the negative texts.  In the first job the
 * rows of one prompt share its feed. */
int run_gather_rows(struct run *r);
/* After these feeds: the logits of the k-th running row are row k of r->logits. */
int run_rows_fed(struct run *r);
/* Appends a token to row i, tells the caller, and ends the row if it must; *cancel is set if the caller wants that. */
int run_append(struct run *r, uint32_t i, int32_t id, bool *cancel);
/* Adds the text of the new tokens that the row begins with (kvik_prompt.n_new); the caller was told of it before. */
int run_replay(struct run *r, struct row *w);
/* logprobs.c: tells the caller the log-probabilities of the token that row i chose from logits[vocab].  False: the caller wants
 * to stop. */
bool run_logprobs(struct run *r, uint32_t i, const float *logits, int32_t id);
/* Takes the memory for them; an error if the way of decoding has none to tell. */
int run_logprobs_begin(struct run *r);
/* Calls on_pulse where it is wanted and due.  False: the caller wants to stop. */
bool run_pulse(struct run *r);
struct gen_row run_text(const struct run *r, uint32_t i); /* row i as processors see it */
/* True if run_decide can be called before the mode's `choose`, from another thread: nothing of the caller's takes part. */
bool run_decides(const struct run *r);
/* Decides the next tokens of all rows that run, from their logits.  Runs decide beside each other. */
void run_decide(struct run *r);
/* Decides the next token of row i from the logits[vocab] of its last one, unless that is done, and appends it. */
int run_choose(struct run *r, uint32_t i, const float *logits, bool *cancel);
/* True if a row may be chosen from: its raw logits are finite, or remove_invalid_values replaces them. */
bool run_sound(const struct run *r, const float *logits);
/* Ends row i, whose logits are not finite, and tells the caller. */
int run_break(struct run *r, uint32_t i, bool *cancel);
/* After every row has its tokens: ends all rows if cancelled.  *running: a row still runs. */
int run_step_end(struct run *r, bool cancel, bool *running);
int run_cancel(struct run *r);

/* idle.c: after the rows have their results, the raw logits (if kept) of rows that ended before others. */
void idle_run(struct run *r);

uint64_t
run_width(const struct run *r); /* num_return_sequences: struct run_mode's `width` of rows */
