/* beam.h - beam search over one prompt: scores in, surviving beams and finished sequences out.
 *
 * Pure: no model, no cache, no text.  A step is beam_offer for every running beam in ascending order, beam_rank, marks by
 * the caller on the candidates that end, beam_advance.  The rules are those of the reference's v5
 * (cache-semantics 21.1), in its float arithmetic; where it leaves the order of equal scores open, the lowest
 * (beam, token) comes first here. */
#pragma once
#include "base/base.h"
#include "kvik.h"

#define BEAM_DEAD (-1e9f) /* the score of what must not be chosen */

struct beam_rules {
    uint32_t beams, vocab;
    uint32_t n_eos; /* ids that end a text: so many more candidates are ranked */
    uint32_t limit; /* new tokens at most; the caller ends candidates there */
    double length_penalty;
    enum kvik_early early;
    bool group; /* one group of diverse beams: the rules of beam_group.c */
    bool draw;  /* beam sampling: candidates are drawn, see beam_draw.c */
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

/* --- groups: beam_advance is false when a group is over, which then takes no part in further steps.
 * When the whole search ends: beams of a group that was not over join its finished sequences; ends[beams]: why each ends. */
void beam_group_end(struct beam_search *b, const int *ends);
/* The n_best best over all groups, best first. */
void beam_group_best(struct beam_search *const *group, uint32_t n, const struct beam_done **best,
                     uint32_t n_best);
