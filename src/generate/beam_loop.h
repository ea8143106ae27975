/* beam_loop.h - the inside of a beam search over the cache, shared by beam_loop.c (steps) and beam_rows.c (results). */
#pragma once
#include "generate/beam.h"
#include "generate/run.h"

struct ear { /* one beam's text as stop strings hear it */
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
    struct ear
        *ear[2]; /* [beams] owned; ear[0] is of the running beams; NULL without stop strings */
    const struct beam_done **best; /* [num_return_sequences] owned, after the search */
    bool done;
};
struct beams {
    struct run *r;
    struct item *item; /* [r->n] */
    struct ear trial;
    int32_t *extended;  /* scratch: a candidate's whole text, for the caller's criteria */
    int32_t *chosen;    /* [n] the tokens of a step, group after group */
    int *ends;          /* [n] why each running beam of diverse groups ends */
    uint32_t n, groups; /* beams of a prompt; groups of n / groups beams */
    uint32_t *from;     /* [n] scratch of reordering */
    bool shared;        /* the prompts have been forked */
    float *kept_scores; /* of this step, or NULL */
};

static inline uint32_t beams_each(const struct beams *b) /* beams of a group */
{
    return b->n / b->groups;
}

/* beam_rows.c: after the search: rows and their sequences. */
int beam_rows(struct beams *b, kvik_result *out);
