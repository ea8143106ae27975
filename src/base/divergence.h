/* divergence.h - how far one prediction of a token is from another: the Kullback-Leibler divergence of two rows of logits. */
#pragma once
#include "base/base.h"

/* The logits of one position of the reference, and what all comparisons with them share. */
struct divergence {
    const float *logits; /* [vocab] */
    double *p;           /* [vocab] probabilities */
    double log_sum;      /* log of the sum of exp(logits) */
    uint32_t best;       /* the first of the most likely tokens */
    int32_t next;        /* the token that follows in the text */
};
/* Returns log(sum of exp(x)); *best: the first of the largest. */
double log_sum_exp(const float *x, uint32_t n, uint32_t *best);
/* Fills p, log_sum and best from the logits. */
void divergence_reference(struct divergence *at, uint32_t vocab);
/* Compares the logits of one position with those of the reference: *kld, their divergence; *nll, -log of the
 * probability of the next token, both in nats; *same, whether the most likely token is the same.  Returns false if
 * the logits are not finite. */
bool divergence_compare(const struct divergence *at, const float *logits, uint32_t vocab,
                        double *kld, double *nll, bool *same);
