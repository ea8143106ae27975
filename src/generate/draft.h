/* draft.h - who guesses what a text goes on with.
 *
 * speculate.c has the model check all guesses of a text in one step, so a good guess saves a step and a bad one costs
 * a little arithmetic; neither changes a token.  A maker of guesses is one file that fills in a struct drafter. */
#pragma once
#include "generate/run.h"

struct draft_row {       /* one running row */
    struct gen_row text; /* as processors see it, without guesses */
    uint32_t row;        /* of the run */
    int32_t *ids;        /* [n + max] of the text; guesses go behind it */
    uint32_t n;
    uint32_t max; /* guesses that are of use */
    uint32_t got; /* guesses made, 0 before the call */
};
#define DRAFT_MOST 64u /* guesses of a row, where a schedule may raise their number */
struct drafter {
    int (*propose)(void *ctx, struct draft_row *row, uint32_t n);
    /* How many of a row's guesses came true; may be NULL. */
    void (*told)(void *ctx, uint32_t row, uint32_t guesses, uint32_t right);
    void (*close)(void *ctx); /* may be NULL */
    void *ctx;
    uint32_t most; /* guesses of a row in one step, ever */
};

/* What draft_model.c knows of a model that guesses; lives beside its cache. */
struct gen_assistant {
    struct exec *x;
    uint32_t asked,
        learned; /* num_assistant_tokens, and what the schedule "heuristic" made of it */
};

/* draft_lookup.c: what followed the last tokens where they occurred before (prompt_lookup_num_tokens). */
int draft_lookup_open(const struct run *r, struct drafter *out);
/* draft_model.c: what a smaller model would say (assistant_model). */
int draft_model_open(const struct run *r, struct gen_assistant *a, struct drafter *out);
