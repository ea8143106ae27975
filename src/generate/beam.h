/* beam.h - beam search: the search over one prompt (beam.c), and the code that drives the cache with it
 * (beam_mode.c, beam_rows.c).  A search is pure: it takes scores and gives surviving beams and finished sequences;
 * it knows no model, cache or text.  A step calls beam_offer for every running beam in ascending order, then
 * beam_rank; the caller marks the candidates that end; then beam_advance.  The rules and the float arithmetic are
 * those of Transformers (Hugging Face) 5.  Where Transformers leaves the order of equal scores open, the lowest
 * (beam, token) comes first here. */
#pragma once
#include "generate/run.h"

#define BEAM_DEAD (-1e9f) /* score of a token that must not be chosen */

struct beam_rules {
    uint32_t beams, vocab;
    /* number of ids that end a text; the more there are, the more candidates are ranked */
    uint32_t n_eos;
    uint32_t limit; /* most new tokens; the caller ends candidates that reach it */
    double length_penalty;
    enum kvik_early early;
    bool group; /* one group of diverse beams: the rules of Transformers 4.47 */
    bool draw;  /* beam sampling: candidates are drawn instead of ranked */
    uint64_t seed;
    uint32_t row; /* number of the prompt's row, for the draws */
};
struct beam_candidate {
    float score; /* sum of log-probabilities */
    double key;  /* the candidate's rank: its score, or the order of its draw */
    uint32_t beam;
    int32_t token;
    int ends; /* enum kvik_finish, or -1 if the text goes on */
};
struct beam_done { /* a finished sequence */
    double score;  /* the sum divided by length^length_penalty */
    bool real;     /* false: an empty place, for which no sequence was found */
    int ends;
    uint32_t n;
    /* [n] the generated tokens, and the running beam that each token extended */
    int32_t *token, *beam;
};
struct beam_search;
/* Begins a search.  The prompt is copied, for beam_ids. */
int beam_new(const struct beam_rules *rules, const int32_t *prompt, uint32_t n_prompt,
             struct beam_search **out);
void beam_drop(struct beam_search *b);

/* Turns scores into log-probabilities, in place.  NaN becomes -inf.  Beside a score of +inf all others become
 * -inf. */
void beam_log_softmax(float *score, uint32_t n);
/* Offers the continuations of beam `beam`.  score: [vocab] log-probabilities of the next token, after processors. */
void beam_offer(struct beam_search *b, uint32_t beam, const float *score);
/* Returns the best candidates, best first.  The caller marks those that end; all others go on. */
struct beam_candidate *beam_rank(struct beam_search *b, uint32_t *n);
/* Chooses the running beams and the finished sequences; false when the search is over. */
bool beam_advance(struct beam_search *b);

/* Returns running beam i, after beam_advance. */
const struct beam_candidate *beam_running(const struct beam_search *b, uint32_t i);
/* Returns the tokens of running beam i: the prompt, then beam_length() generated ones. */
const int32_t *beam_ids(const struct beam_search *b, uint32_t i);
uint32_t beam_length(const struct beam_search *b); /* tokens generated */
/* Returns a finished sequence, best first; rank < beams.  Not for groups. */
const struct beam_done *beam_best(const struct beam_search *b, uint32_t rank);

/* Ends the search.  Running beams join the finished sequences; ends[beams] says why each ends.  The caller does so
 * when a request is cancelled, and when the search over all groups ends, for each group that is not over. */
void beam_end(struct beam_search *b, const int *ends);
/* Writes the n_best best sequences over all groups, best first. */
void beam_group_best(struct beam_search *const *group, uint32_t n, const struct beam_done **best,
                     uint32_t n_best);

/* --- The beams of a run. */
struct ear { /* follows the text of one beam to find stop strings */
    struct tok_stream *stream;
    struct gen_stop *stop;
};
struct beam_group { /* a group of beams; a prompt has one group, or several with diverse beams */
    struct beam_search *search;
    uint32_t at; /* first row of the group in this step's logits */
    bool over;
};
struct beam_item { /* one prompt */
    struct row *row;
    struct beam_group *group; /* [groups] owned */
    kv_seq *seq; /* [beams] owned array; seq[0] is the sequence of the prompt's row; 0: none */
    /* [beams] owned; ear[0] belongs to the running beams; NULL without stop strings */
    struct ear *ear[2];
    const struct beam_done **best; /* [num_return_sequences] owned; set when the search is over */
    /* [n_candidates] candidates of the group that chooses, best first */
    struct beam_candidate *candidate;
    uint32_t n_candidates;
    uint32_t shown; /* index of the prompt's first text among the texts that the criteria see */
    bool done;
};
struct beams {
    struct run *r;
    struct beam_item *item; /* [r->n] */
    struct ear trial;
    int32_t *extended; /* scratch: the whole text of a candidate, for the caller's criteria */
    int32_t *texts;  /* scratch: the texts of all candidates, for criteria that see them together */
    size_t n_texts;  /* tokens that `texts` has room for */
    int32_t *chosen; /* [n] the tokens of a step, group after group */
    int *ends;       /* [n] why each running beam ends; for diverse groups */
    uint32_t n, groups;     /* beams of a prompt; groups of n / groups beams */
    uint32_t *from;         /* [n] scratch of reordering */
    uint32_t n_fresh;       /* sequences that the job has made; only without a cache */
    uint64_t prompt, steps; /* for the caller's progress: tokens of the prompts; most steps */
    bool shared;            /* the prompts have been forked */
    float *kept_scores;     /* [n] scores of this step that the result keeps, or NULL */
};

static inline uint32_t beams_each(const struct beams *b) /* beams of a group */
{
    return b->n / b->groups;
}

/* beam_rows.c: makes the rows of the result and their sequences, after the search. */
int beam_rows(struct run *r, kvik_result *out);
