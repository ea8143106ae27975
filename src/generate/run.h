/* run.h - the inside of a run, which driver.h starts and advances.  Rows are independent sequences; nothing is
 * padded.  Several answers to one prompt are several rows: the first row feeds the prompt and the others fork it.
 * A beam search has one row per prompt and its own sequences for the beams.  Each way of decoding has a struct
 * run_mode, which says which feeds it gathers and how it chooses. */
#pragma once
#include "generate/driver.h"
#include "generate/generate.h"
#include "generate/heard.h"
#include "generate/sync.h"
#include "generate/together.h"
#include "model/model.h"
#include "tok/tok.h"

struct row {
    const kvik_prompt *prompt;
    /* the encoder's input and the decoder's first tokens; NULL: the model has no encoder */
    const struct gen_source *source;
    bool heard;       /* this run has computed the encoder's rows in `given` */
    kv_seq given;     /* sequence of the caller that this row continues; 0: none */
    kv_seq seq;       /* `given`, or the row's own */
    struct sync sync; /* reuse of the cached tokens of `given` */
    int32_t *ids;     /* [n_prompt + limit] prompt without masked columns, then generated tokens */
    uint32_t *ends;   /* turn ends, only for use_cache=false; else NULL */
    uint32_t n, n_prompt;
    uint32_t have;  /* tokens that were fed */
    uint32_t limit; /* most new tokens */
    uint32_t reused;
    const char *miss; /* why a new row reuses no cached tokens */
    /* number of tokens that the row `leader` must have before this row goes on (share.c); 0: this row does not
     * wait */
    uint32_t common;
    uint32_t leader;
    uint32_t pad; /* masked columns before the first token */
    /* [lead][hidden] embeddings that the first job appends in place of the prompt's ids: those of the prompt, or
     * own_embeds */
    const float *embeds;
    float *own_embeds;
    uint32_t lead;
    bool cut; /* `limit` is less than was asked for: the context or max_cache_len allows no more */
    bool done;
    bool decided; /* run_decide has chosen `next` from the logits of the job */
    bool broken;  /* these logits are not finite */
    int32_t next;
    bool handed;   /* the caller has taken over `seq` */
    bool orphaned; /* the owner of `given` was closed, so the run drops the sequence */
    enum kvik_finish finish;
    struct tok_stream *stream;
    struct gen_stop *stop;
    size_t stop_seen; /* bytes of the prompt's text that a stop string may begin in */
    struct buf text;
    size_t told; /* bytes of `text` that the caller has got */
    bool closed; /* a stop string ends `text`, so nothing follows */
};
struct run_kept { /* kept values of every step */
    bool wanted;
    float *data; /* [n][width][vocab] */
    size_t n, cap;
};
/* A way of decoding: facts about it, and functions.  A function that returns an int returns 0 or an error, which
 * ends the run. */
struct run_mode {
    const char *sequences; /* plural noun for the sequences of a prompt, in messages */
    bool by_logits;        /* each token of a row is chosen from the row's logits (run_choose) */
    bool embeds;           /* a prompt may be embeddings */
    bool anew;             /* computes the whole prompt, even if a prefix is cached */
    /* the mode is a search: its texts are known only at the end, and the rows of the run are the prompts (beams) */
    bool search;
    bool drafts;    /* a job may have draft tokens */
    uint32_t unfed; /* number of last tokens of a text that are never appended to its sequence */
    /* Returns how many sequences a prompt needs. */
    uint64_t (*width)(const struct run *r);
    /* Refuses options and callbacks that the mode does not support.  May be NULL. */
    int (*check)(const struct run *r);
    /* Allocates the mode's state in r->own.  May be NULL. */
    int (*begin)(struct run *r);
    /* Sets the feeds that the next choice needs, r->feed[0, r->job.n), and the fields of r->job that differ from
     * the default. */
    int (*gather)(struct run *r);
    /* Takes the logits of these feeds and chooses tokens.  *running: more tokens are wanted. */
    int (*choose)(struct run *r, bool *running);
    /* For a job of drafts: chooses from the logits of feeds [first, first + n), and lowers accepted[i], to at
     * least 1. */
    int (*judge)(struct run *r, uint32_t first, uint32_t n, uint32_t *accepted);
    /* Ends the rows or beams that still run, after at least one choice.  NULL: run_cancel. */
    int (*cancel)(struct run *r);
    /* Fills the rows of the result. */
    int (*finish)(struct run *r, kvik_result *out);
    /* Frees what `begin` and later calls have taken.  May be NULL. */
    void (*end)(struct run *r);
    /* True if the mode has made this sequence.  NULL: all sequences that the mode has made are in the feeds. */
    bool (*owns)(const struct run *r, kv_seq seq);
};
extern const struct run_mode plain_mode, speculate_mode, contrastive_mode, beam_mode;

struct run {
    struct driver *driver;
    struct run *next;  /* list of the driver's runs */
    struct run *after; /* list of the batch that a step advances */
    struct exec *x;
    const struct tok *tok;
    const kvik_generation *g;
    const kvik_hooks *hooks;
    const struct gen_assist *assist; /* may be NULL */
    const struct gen_finish *finish; /* may be NULL */
    struct gen_chain *chain;
    struct together *together; /* for callbacks that see all rows at once, or NULL */
    const struct run_mode *mode;
    void *own; /* state of the mode */
    struct row *row;
    struct kv_salt salt;       /* salt of the sequences that the run makes */
    struct gen_source *source; /* [n_prompts] or NULL */
    uint32_t n_prompts;
    uint32_t n;   /* rows */
    uint32_t per; /* rows of each prompt, which are adjacent; 1 with beams */
    /* rows of logits that the result keeps of a step: n, or with beams one for each beam */
    uint32_t width;
    uint32_t lanes;      /* most sequences that are fed at once, hence rows of logits */
    uint32_t draft_rows; /* most rows of logits that a job of drafts has */
    uint32_t fed;        /* rows of logits of the last job, without those of negative texts */
    struct guide *guide; /* guidance.c, or NULL */
    uint32_t steps, kept_steps;
    float *logits, *scores;            /* [lanes][vocab], [vocab] */
    struct exec_feed *feed;            /* [lanes] */
    struct run_kept kept, kept_scores; /* raw logits; processed scores */
    struct buf piece;
    kvik_logprob *top; /* [1 + hooks->top_logprobs] or NULL */
    /* number of draft tokens that were checked, and that were accepted */
    uint64_t drafted, accepted;
    bool told;               /* pages stream, and the notice of it was given */
    uint32_t told_rung;      /* the rung for which the notice of encoded rows was given */
    bool told_broken;        /* the notice that logits are not finite was given */
    double pulsed;           /* time of the last on_pulse */
    double begun, prefilled; /* times of the beginning and of the end of the first job (0 before) */
    uint64_t computed;       /* computed tokens */
    uint32_t chunk;          /* most tokens of a prompt in one step; 0: step_tokens */

    /* Fields of the driver: */
    struct exec_job job; /* feed[0, job.n) */
    bool pending;        /* the job has begun, and its logits were not taken yet */
    bool sharing;        /* the job feeds common parts of prompts, so nothing is chosen after it */
    uint64_t before;     /* job.done when the step began */
    /* number of the run's last part of a step; the run with the lowest number has waited longest */
    uint64_t turn;
    exec_progress progress; /* callback of the first job, or NULL */
    void *progress_ctx;
    bool stepping, paused, over;
    kvik_progress counts; /* final counts, taken when the rows were freed */
    int error;
    char why[1024]; /* sentence of `error` */
};

/* run_shape.c */
/* Sets the mode and the numbers of rows and sequences; an error if the options exclude one another or the cache is too small. */
int run_shape(struct run *r);
/* Gives the notice that drafts are ignored.  Call it when the run has its sequences, which the callback then
 * cannot change. */
void run_tell_mode(const struct run *r);
/* run.c */
int run_begin(struct run *r, const kvik_prompt *prompt);
/* Frees everything but the struct.  failed: restores the caller's sequences. */
void run_end(struct run *r, bool failed);
/* Returns the encoder's input that a feed of the row must bring: only if nothing is cached (use_cache false).
 * Else returns NULL, because the row's sequence has the encoder's rows. */
static inline const struct exec_source *run_hears(const struct run *r, const struct row *w)
{
    return w->source && !r->g->use_cache ? &w->source->in : NULL;
}
/* share.c: computes common parts of prompts once.  Call share_begin after run_begin: it finds which rows wait for
 * which. */
void share_begin(struct run *r);
/* Sets the feeds, r->feed[0, r->job.n), that must be done before waiting rows can go on; none if no row waits. */
int share_gather(struct run *r);
void share_fed(struct run *r); /* the feeds of share_gather are done */

/* Returns how many KV rows the row's prompt takes. */
static inline uint32_t run_prompt_rows(const struct row *w)
{
    return w->lead ? w->lead : w->n_prompt;
}
/* Returns how many columns of a prompt minimum and maximum lengths count. */
static inline size_t run_columns(const kvik_prompt *p)
{
    return MAX(p->n - p->n_new, p->n_embeds);
}
/* Returns a row as processors see it when its text is ids[0..n). */
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
/* Applies all processors to a row of scores.  uncond: logits after its negative text, or NULL. */
int run_process(struct run *r, const struct gen_row *row, const float *uncond, float *scores);

/* Applies the processors before the caller's, which is not called. */
void run_process_before(struct run *r, const struct gen_row *row, const float *uncond,
                        float *scores);

/* criteria.c */
bool run_ends(const kvik_generation *g, int32_t id); /* true if id is an end-of-sequence token */
/* True if the caller's criteria or max_time end a text after ids[0..n). */
bool run_criteria(const struct run *r, uint32_t row, const int32_t *ids, size_t n,
                  enum kvik_finish *why);
/* True if the text ends.  stopped: its last token has completed a stop string.  *why: the reason;
 * KVIK_FINISH_LENGTH if the text does not end. */
bool run_over(const struct run *r, const struct gen_row *text, bool stopped, enum kvik_finish *why);

/* results.c: returns the array [width][vocab] for the values of step `at`, which begin as zeros; NULL if the
 * caller does not want them.  `at` is at most one beyond the last step. */
int run_keep(struct run *r, struct run_kept *k, uint32_t at, float **out);
/* Fills one row of the result, without its text.  fresh: the tokens that were generated after the row's prompt. */
int run_result(const struct row *w, const int32_t *fresh, uint32_t n, kvik_row *out);
/* Fills all rows of the result, each with its own sequence.  Not for beams. */
int run_rows(struct run *r, kvik_result *out);
/* Fills the rows of a run that has chosen nothing: their prompts. */
int run_no_rows(struct run *r, kvik_result *out);
/* shown.c: run_stream opens a stream for the text of new tokens, which shows kvik_hooks.shown_tokens.  run_decode
 * appends the text of n tokens. */
int run_stream(const struct run *r, struct tok_stream **out);
int run_decode(const struct run *r, const int32_t *id, size_t n, struct buf *text);
/* Cuts the new text of a row before its first stop string, if the options exclude stop strings from the text. */
int run_cut_text(const struct run *r, const struct row *w, struct buf *text);
int run_result_begin(const struct run *r, kvik_result **out);
/* Completes the result.  failed: drops the sequences that the rows were to have. */
void run_result_end(struct run *r, kvik_result *out, bool failed);

/* --- plain.c: shared by the modes that choose tokens row by row */
/* Gathers the tokens that each running row has not fed, and then the feeds of negative texts.  In the first job
 * the rows of one prompt share its feed. */
int run_gather_rows(struct run *r);
/* Called when these feeds are done: the logits of running row k are then row k of r->logits. */
int run_rows_fed(struct run *r);
/* Appends a token to row i, reports it to the caller, and ends the row if it must end.  *cancel: the caller wants
 * to stop. */
int run_append(struct run *r, uint32_t i, int32_t id, bool *cancel);
/* Appends the text of the new tokens that the prompt ends with (kvik_prompt.n_new).  The caller has got that text
 * before. */
int run_replay(struct run *r, struct row *w);
/* logprobs.c: reports the log-probabilities of the token that row i has chosen from logits[vocab].  False: the
 * caller wants to stop. */
bool run_logprobs(struct run *r, uint32_t i, const float *logits, int32_t id);
/* Allocates memory for log-probabilities.  An error if the way of decoding has none to report. */
int run_logprobs_begin(struct run *r);
/* Calls on_pulse if it is set and due.  False: the caller wants to stop. */
bool run_pulse(struct run *r);
struct gen_row run_text(const struct run *r, uint32_t i); /* row i as processors see it */
/* True if run_decide may be called before the mode's `choose`, on another thread: no callback of the caller takes
 * part in the choice. */
bool run_decides(const struct run *r);
/* Decides the next token of each running row from its logits.  Several runs may decide at the same time. */
void run_decide(struct run *r);
/* Decides the next token of row i from logits[vocab], unless run_decide has done so, and appends it. */
int run_choose(struct run *r, uint32_t i, const float *logits, bool *cancel);
/* Takes the logits of run_gather_rows: chooses one token for every running row. */
int run_choose_rows(struct run *r, bool *cancel);
/* True if a token may be chosen from this row: its raw logits are finite, or remove_invalid_values replaces them. */
bool run_sound(const struct run *r, const float *logits);
/* Ends row i, whose logits are not finite, and reports it to the caller. */
int run_break(struct run *r, uint32_t i, bool *cancel);
/* Called when every row has its tokens.  cancel: ends all rows.  *running: a row still runs. */
int run_step_end(struct run *r, bool cancel, bool *running);
int run_cancel(struct run *r);

/* idle.c: computes kept raw logits of rows that ended before others, when the rows have their results. */
void idle_run(struct run *r);

uint64_t
run_width(const struct run *r); /* num_return_sequences: struct run_mode's `width` of rows */
