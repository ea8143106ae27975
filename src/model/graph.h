/* graph.h - private to model: the recorded step, which graph.c records and exec.c replays. */
#pragma once
#include "model/model.h"

struct graph_op {
    graph_run run;
    const void *arg;
};
struct rotation { /* cosines and sines of one rope, computed at the start of every step */
    uint32_t rope;
    uint32_t limit; /* 0: true positions; else positions min(pos, limit - 1), for the sink rows */
    uint32_t *at;   /* [tokens] */
    struct graph_table cos, sin; /* [tokens][rot / 2], computed for each step */
};
struct sink_copy { /* a copy of a buffer of queries, rotated for the sink rows */
    const float *q;
    size_t width; /* heads * dim */
    float *copy;  /* [tokens][width] */
};
struct graph_turn { /* cosines and sines of one rope for the borrowed rows of the step */
    uint32_t rope;
    float *cos, *sin; /* [borrowed rows of a step][rot / 2] */
    struct dev_turn turn;
};
struct graph {
    struct exec *x;
    uint32_t tokens; /* most tokens of a step */
    struct graph_op *op;
    uint32_t n_ops;
    void **own;
    uint32_t n_own;
    int error;                   /* the first error of recording */
    bool narrow;                 /* mod_narrow has been recorded */
    uint32_t max_k, max_n;       /* widest input and output of all products */
    uint32_t max_heads, max_dim; /* most query heads and widest head of all attention */
    struct rotation rotation[4 * MODEL_ROPES];
    uint32_t n_rotations;
    struct sink_copy sink_copy[4];
    uint32_t n_sink_copies;
    /* where sequences may borrow rows: the turns of their queries, of each rope and by site (NULL: not rotated) */
    struct graph_turn turn[MODEL_ROPES];
    uint32_t n_turns;
    const struct dev_turn **site_turn; /* [n_sites] */
    /* attend.c: rooms for the rows of the current step, one for each shape */
    struct attend_room *room;
};
int graph_open(struct exec *x, uint32_t tokens, struct graph **out);
void graph_close(struct graph *g);
/* Return weights at the addresses where operations read them. */
struct mod_norm graph_norm(struct graph *g, const struct mod_norm *norm, uint32_t width);
const struct dev_bias *graph_bias(struct graph *g, const struct dev_bias *bias, uint32_t heads);
int graph_replay(const struct graph *g, struct pass *p);
/* out = norm of n rows of `width` values of x; out may be x. */
void norm_rows(struct dev_queue *d, const struct mod_norm *norm, const float *x, uint32_t n,
               uint32_t width, float *out);
