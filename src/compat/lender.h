/* lender.h - private to compat: a forward whose rows the caller keeps. */
#pragma once
#include "compat/padded.h"

struct lender {
    const struct kvik_batch *b;
    const kvik_inputs *in;
    const uint8_t *real;   /* [rows][n] 1: the cell is a token */
    const uint32_t *count; /* [rows] its tokens */
    uint32_t *column;      /* owned, as what follows */
    uint32_t *end;         /* [tokens of the step] the last position of each one's feed */
    float *keys, *values;  /* of the step, as rectangles */
    size_t k, v;           /* floats that they have room for */
    float *rows;           /* what is seen, without padding */
    uint32_t *pos;
    size_t cells; /* rows that both have room for */
    struct exec_lender to;
};
/* True if the batch holds the tokens of forwards with on_layer: their recurrent states are in its sequences.  The rows
 * beside them are of no account. */
bool lender_grows(const struct kvik_batch *b);
/* Checks a forward with on_layer. */
int lender_check(const struct kvik_batch *b, const kvik_inputs *in, const kvik_outputs *out);
/* Makes l->to, which the k feeds of these cells take, and sets their `ends`.  l must be closed, also after an error. */
int lender_open(struct lender *l, const struct kvik_batch *b, const kvik_inputs *in,
                const uint8_t *real, const uint32_t *count, struct exec_feed *feed, uint32_t k);
void lender_close(struct lender *l);
