/* beam_int.h - the inside of a beam search, shared by beam.c (the search itself), beam_group.c (the rules of one group of
 * diverse beams) and beam_draw.c (candidates drawn instead of ranked). */
#pragma once
#include "generate/beam.h"

struct beam_search {
    struct beam_rules rules;
    uint32_t n_prompt, n;             /* n: tokens generated */
    uint32_t keep;                    /* candidates of a step */
    uint32_t held;                    /* in `candidate`; a heap with the worst first until ranked */
    uint32_t n_real;                  /* finished sequences found */
    struct beam_candidate *candidate; /* [keep] */
    struct beam_candidate *sorted;    /* [keep] scratch of drawing, else NULL */
    struct beam_candidate *running;   /* [beams] what each running beam is made of */
    struct beam_done *done; /* [beams] best first; of a group: in the order they were found */
    double worst;           /* of a group: the lowest score in `done`, 1e9 while it is empty */
    int32_t *ids[2];        /* [beams][n_prompt + limit]; ids[0] is of the running beams */
    int32_t *path[2];       /* [beams][limit] the beam each token extended */
    int32_t *done_ids;      /* [beams][2][limit] what `done` points into */
};

static inline size_t beam_width(const struct beam_search *b)
{
    return (size_t)b->n_prompt + b->rules.limit;
}

/* beam.c: a finished sequence: what beam c->beam holds, and c's own token if it has one (>= 0). */
void beam_record(const struct beam_search *b, const struct beam_candidate *c,
                 struct beam_done *out);
/* The running beams' tokens: those of the beam each extends, and its own. */
void beam_follow(struct beam_search *b);
/* beam_group.c: beam_advance by the rules of a group. */
bool beam_advance_group(struct beam_search *b);
/* beam_draw.c: the key by which a candidate is drawn, and the running beams among drawn candidates. */
double beam_draw_key(const struct beam_search *b, float score, uint32_t beam, uint32_t token);
void beam_running_drawn(struct beam_search *b);
