/* walk_cells.h - the walks of the cells of test_matrix and test_matrix_kv.  Their sequences begin with one prompt, and go on
 * with part A or B of a text, whose answers are known.  The number of a step names its sequence. */
#pragma once
#include "walk.h"

enum { CELL_SEQS = 6, CELL_LIVE = 4 };
enum cell_step { BEGIN, FORK, GO_A, GO_B, FEED, CROP, CUT, RESET, REORDER, DROP, CELL_STEPS };
static const struct walk_op cell_steps[CELL_STEPS] = {
    {"begin", 0},   {"fork", 4}, /* fork:21 forks sequence 1, as sequence 2 */
    {"a", 3},                    /* appends part A and decodes: its answers */
    {"b", 3},       {"feed", 2}, /* tokens that nobody asks about */
    {"crop", 0},                 /* to the prompt */
    {"cut", 2},                  /* into the prompt, whose rest is fed again */
    {"reset", 1},                /* to nothing, and the prompt is fed again */
    {"reorder", 2}, /* reorder:200 gives sequences 0, 1 and 2 the contents of 2, 0 and 0 */
    {"drop", 1}};
/* Written walks; "" is drawn for each cell. */
static const char walk_forward[] = "begin:0 a:0 drop:0",
                  walk_fork[] = "begin:0 fork:10 fork:21 b:1 drop:1 a:0 b:2 drop:2 drop:0",
                  walk_crop[] = "begin:0 b:0 crop:0 a:0 cut:0 b:0 crop:0 a:0 drop:0",
                  walk_reorder[] = "begin:0 fork:10 fork:20 feed:1 reorder:200 b:1 a:0 a:2 drop:2 "
                                   "drop:1 drop:0";

/* Returns the sequences that `n` sequences become, by the digits of a number. */
static inline void cell_order(uint32_t x, uint32_t n, uint32_t from[CELL_SEQS])
{
    for (; n--; x /= 10)
        from[n] = x % 10;
}

/* Draws a walk over a few sequences that ends with an answer of each. */
static inline void cell_draw(struct walk *w, uint32_t seed)
{
    bool longer[CELL_SEQS] = {false}, was[CELL_SEQS]; /* more than the prompt */
    uint32_t n = 1, from[CELL_SEQS];
    walk_seed(seed);
    walk_read(w, "begin:0 fork:10");
    for (uint32_t steps = between(4, 8), i = n++; steps--; i = dice(n)) {
        struct walk_step *s = &w->step[w->n];
        walk_draw(w, 1);
        if (s->op == FORK && n == CELL_LIVE) s->op = DROP;
        if (s->op == DROP && n == 1) s->op = RESET;
        if (longer[i] && s->op >= GO_A && s->op <= FEED) s->op = CROP;
        s->x = i;
        if (s->op == FORK) s->x = 10 * n + i, longer[n++] = longer[i];
        if (s->op == DROP) s->x = --n;
        if (s->op == CROP || s->op == CUT || s->op == RESET) longer[i] = false;
        if (s->op == GO_A || s->op == GO_B || s->op == FEED) longer[i] = true;
        if (s->op != REORDER) continue;
        for (s->x = 0, i = 0; i < n; i++)
            s->x = 10 * s->x + dice(n);
        cell_order(s->x, n, from);
        memcpy(was, longer, sizeof was);
        for (i = 0; i < n; i++)
            longer[i] = was[from[i]];
    }
    while (n--) {
        if (longer[n]) w->step[w->n++] = (struct walk_step){CROP, n};
        w->step[w->n++] = (struct walk_step){n % 2 ? GO_A : GO_B, n};
        w->step[w->n++] = (struct walk_step){DROP, n};
    }
}

/* Runs a written or a drawn walk.  step: returns 0, 1 if an answer is another, or an error; n: the number of sequences. */
static inline int cell_walk(const char *text, uint32_t seed, void *ctx,
                            int (*step)(void *ctx, enum cell_step op, uint32_t x, uint32_t n))
{
    struct walk w = {.op = cell_steps, .n_ops = CELL_STEPS};
    uint32_t n = 0;
    int e = 0;
    if (*text)
        walk_read(&w, text);
    else
        cell_draw(&w, seed);
    for (uint32_t i = 0; e == 0 && i < w.n; i++) {
        e = step(ctx, (enum cell_step)w.step[i].op, (uint32_t)w.step[i].x, n);
        n += w.step[i].op <= FORK;
        n -= w.step[i].op == DROP;
        if (e <= 0) continue;
        printf("     other answers at step %u of ", i);
        walk_print(&w);
    }
    return e;
}
