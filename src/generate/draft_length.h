/* draft_length.h - how many draft tokens of prompt lookup are worth checking. */
#pragma once
#include "generate/draft.h"

struct draft_length;
/* For rows [0, n) of a run.  draft_length_close frees it. */
int draft_length_open(uint32_t n, struct draft_length **out);
void draft_length_close(struct draft_length *l);
/* Returns the longest draft to make for a row, from 1 to most. */
uint32_t draft_length_ask(const struct draft_length *l, uint32_t row, uint32_t most);
/* Returns how many tokens of a draft the model shall check: all of them, or 0.  A draft that is not checked is
 * remembered, so that the row still learns from it. */
uint32_t draft_length_take(struct draft_length *l, const struct draft_row *w);
/* Learns from the text that followed the draft. */
void draft_length_learn(struct draft_length *l, uint32_t row, const int32_t *ids, uint32_t n);
