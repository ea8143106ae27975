/* together.h - callbacks that see all rows of a step at once (kvik_together): the texts and scores that they get.
 *
 * A step begins with together_begin and ends with together_end.  In between, the callbacks for single rows are not
 * called. */
#pragma once
#include "generate/generate.h"

struct together;
/* rows: most rows that a step shows with scores.  *out: NULL if the hooks have no such callbacks.  together_close
 * frees it. */
int together_open(const kvik_hooks *hooks, uint32_t rows, uint32_t vocab, struct together **out);
void together_close(
    struct together *t); /* t may be NULL, here and in all calls that return a bool or a pointer */

/* Begins a step.  True if the caller has a processor; then the rows are added next. */
bool together_begin(struct together *t);
void together_end(struct together *t);
void together_clear(struct together *t); /* removes the rows that were added */
/* Adds a row; its ids are borrowed until the callback has returned.  Returns its scores, [vocab] zeros to fill in,
 * or NULL if all rows with scores are taken. */
float *together_add(struct together *t, const struct gen_row *text, bool over);
/* Makes room for this many rows without scores.  Removes the rows that were added. */
int together_room(struct together *t, size_t rows);
/* Calls the processor.  ERR_CANCELLED if it refuses. */
int together_process(struct together *t);
/* Returns the scores of the i-th row that was shown to the processor in this step, or NULL if there is none. */
const float *together_scores(const struct together *t, uint32_t i);
/* True in a step if the caller has criteria that see all rows. */
bool together_judges(const struct together *t);
/* Calls the criteria.  scores: [steps][rows][vocab] of the result, or NULL. */
void together_judge(struct together *t, const float *scores, size_t steps, uint32_t rows);
/* True if the criteria end the i-th row. */
bool together_ends(const struct together *t, uint32_t i);
