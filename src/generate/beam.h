/* beam.h - beam search: the search over one prompt (beam.c), and what drives the cache with it (beam_mode.c, beam_rows.c).
 *
 * A search is pure: scores in, surviving beams and finished sequences out; no model, no cache, no text.  A step is
 * beam_offer for every running beam in ascending order, beam_rank, marks by the caller on the candidates that end,
 * beam_advance.  The rules and the float arithmetic are those of Transformers (Hugging Face) 5.  Where it leaves the
 * order of equal scores open, the lowest (beam, token) comes first here. */
#pragma once
#include "generate/run.h"

#define BEAM_DEAD (-1e9f) /* the score of what must not be chosen */

struct beam_rules {
    uint32_t beams, vocab;
    uint32_t n_eos; /* ids that end a text: so many more candidates are ranked */
    uint32_t limit; /* new tokens at most; the caller ends candidates there */
    double length_penalty;
    enum kvik_early early;
    bool group; /* one group of diverse beams: the rules of Transformers 4.47 */
    bool draw;  /* beam sampling: candidates are drawn instead of ranked */
    uint64_t seed;
    uint32_t row; /* of the draws: the prompt's */
};
struct beam_candidate {
    float score; /* sum of log-probabilities */
    double key;  /* what it is ranked by: the score, or the order of a draw */
    uint32_t beam;
    int32_t token;
    int ends; /* enum kvik_finish, or -1: the text goes on */
};
struct beam_done { /* a finished sequence */
    double score;  /* the sum divided by length^length_penalty */
    bool real;     /* false: the place of one that was never found */
    int ends;
    uint32_t n;
    int32_t *token, *beam; /* [n] what was generated, and the running beam each token extended */
};
struct beam_search;
/* prompt is copied, for beam_ids. */
int beam_new(const struct beam_rules *rules, const int32_t *prompt, uint32_t n_prompt,
             struct beam_search **out);
void beam_drop(struct beam_search *b);

/* Log-probabilities, in place; NaN and, beside a +inf, all but that become -inf. */
void beam_log_softmax(float *score, uint32_t n);
/* score: [vocab] log-probabilities of what may follow beam `beam`, after processors. */
void beam_offer(struct beam_search *b, uint32_t beam, const float *score);
/* The best candidates, best first; all go on until the caller says otherwise. */
struct beam_candidate *beam_rank(struct beam_search *b, uint32_t *n);
/* Chooses the running beams and the finished sequences; false when the search is over. */
bool beam_advance(struct beam_search *b);

/* Of the running beams, after beam_advance. */
const struct beam_candidate *beam_running(const struct beam_search *b, uint32_t i);
const int32_t *beam_ids(const struct beam_search *b, uint32_t i); /* prompt, then beam_length() */
uint32_t beam_length(const struct beam_search *b);                /* tokens generated */
/* Finished sequences, best first; rank < beams.  Not of groups. */
const struct beam_done *beam_best(const struct beam_search *b, uint32_t rank);

/* Ends the search: beams that run join the finished sequences; ends[beams]: why each ends.  The caller does so for the
 * groups that are not over when the search over all groups ends, and when a request is cancelled. */
void beam_end(struct beam_search *b, const int *ends);
/* Groups: the n_best best over all of them, best first. */
void beam_group_best(struct beam_search *const *group, uint32_t n, const struct beam_done **best,
                     uint32_t n_best);

/* --- The beams of a run. */
struct ear { /* looks for stop strings in the text of one beam */
    struct tok_stream *stream;
    struct gen_stop *stop;
};
struct group { /* of beams; one, unless diverse */
    struct beam_search *search;
    uint32_t at; /* its first row of this step's logits */
    bool over;
};
struct item { /* one prompt */
    struct row *row;
    struct group *group; /* [groups] owned */
    kv_seq *seq;         /* [beams] owned array; seq[0] is the row's; 0: none */
    /* [beams] owned; ear[0] is of the running beams; NULL without stop strings */
    struct ear *ear[2];
    const struct beam_done **best; /* [num_return_sequences] owned, after the search */
    bool done;
};
struct beams {
    struct run *r;
    struct item *item; /* [r->n] */
    struct ear trial;
    int32_t *extended;      /* scratch: a candidate's whole text, for the caller's criteria */
    int32_t *chosen;        /* [n] the tokens of a step, group after group */
    int *ends;              /* [n] why each running beam of diverse groups ends */
    uint32_t n, groups;     /* beams of a prompt; groups of n / groups beams */
    uint32_t *from;         /* [n] scratch of reordering */
    uint32_t n_fresh;       /* without a cache: sequences of the job */
    uint64_t prompt, steps; /* of the caller's progress: tokens of the prompts, steps at most */
    bool shared;            /* the prompts have been forked */
    float *kept_scores;     /* of this step, or NULL */
};

static inline uint32_t beams_each(const struct beams *b) /* beams of a group */
{
    return b->n / b->groups;
}

/* beam_rows.c: after the search: rows and their sequences. */
int beam_rows(struct run *r, kvik_result *out);
