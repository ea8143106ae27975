/* lender.h - private to compat: a forward whose rows the caller keeps. */
#pragma once
#include "compat/padded.h"

struct lender {
    const struct kvik_batch *b;
    const kvik_inputs *in;
    const uint8_t *real;   /* [rows][n] 1: the cell is a token */
    const uint32_t *count; /* [rows] number of tokens of each row */
    uint32_t *column;      /* owned, like the pointers below */
    uint32_t *end;         /* [tokens of the step] the last position of each one's feed */
    float *keys, *values;  /* keys and values of the step, as rectangles with padding */
    size_t k, v;           /* sizes of `keys` and `values` in floats */
    float *rows;           /* the rows that the tokens see, without padding */
    uint32_t *pos;
    size_t cells; /* rows that `rows` and `pos` have room for */
    struct exec_lender to;
};
/* True if the batch has served forwards with on_layer.  Then its sequences hold the recurrent states, and their
 * other rows are not used. */
bool lender_grows(const struct kvik_batch *b);
/* Checks a forward with on_layer. */
int lender_check(const struct kvik_batch *b, const kvik_inputs *in, const kvik_outputs *out);
/* Makes l->to for the k feeds of these cells, and sets the feeds' `ends`.  The caller closes l, also after an error. */
int lender_open(struct lender *l, const struct kvik_batch *b, const kvik_inputs *in,
                const uint8_t *real, const uint32_t *count, struct exec_feed *feed, uint32_t k);
void lender_close(struct lender *l);
