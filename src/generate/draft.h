/* draft.h - makers of draft tokens.  speculate.c lets the model check all draft tokens of a text in one step.  An
 * accepted token saves a step, a rejected one costs a little arithmetic, and neither changes the text.  A maker is
 * one file that fills in a struct drafter. */
#pragma once
#include "generate/run.h"

struct draft_row {       /* one running row */
    struct gen_row text; /* as processors see it, without the draft */
    uint32_t row;        /* number of the row in the run */
    int32_t *ids;        /* [n + max] the text; the draft is written behind it */
    uint32_t n;
    uint32_t max; /* longest draft that the caller can use */
    uint32_t got; /* length of the draft, 0 before the call */
    /* the encoder's input; NULL: no encoder, or not known */
    const struct exec_source *source;
};
#define DRAFT_MOST 64u /* longest draft that a schedule may reach */
struct drafter {
    int (*propose)(void *ctx, struct draft_row *row, uint32_t n);
    /* Tells how many draft tokens of a row were accepted; may be NULL. */
    void (*told)(void *ctx, uint32_t row, uint32_t drafted, uint32_t accepted);
    void (*close)(void *ctx); /* may be NULL */
    void *ctx;
    uint32_t most; /* longest draft of a row */
};

/* State of draft_model.c for one assistant.  It outlives calls and stands beside the assistant's cache. */
struct gen_assistant {
    struct exec *x;
    struct assistant *first; /* open drafters */
    /* num_assistant_tokens, and the value that the schedule "heuristic" has made of it */
    uint32_t asked, learned;
};

/* draft_lookup.c: the draft is what followed the last tokens where they occurred before (prompt_lookup_num_tokens). */
int draft_lookup_open(const struct run *r, struct drafter *out);
/* draft_model.c: the draft is what a smaller model decodes (assistant_model). */
int draft_model_open(const struct run *r, struct gen_assistant *a, struct drafter *out);
/* True if a drafter has made this sequence, so that nothing else may change it. */
bool draft_model_owns(const struct gen_assistant *a, kvik_seq seq);
