/* together.h - callbacks that see the rows of a step together (kvik_together): the texts and scores they get.
 *
 * A step begins with together_begin and ends with together_end; in between the callbacks of single rows are not called. */
#pragma once
#include "generate/generate.h"

struct together;
/* rows: most that a step shows with scores.  *out: NULL if the hooks have no such callbacks; together_close drops it. */
int together_open(const kvik_hooks *hooks, uint32_t rows, uint32_t vocab, struct together **out);
void together_close(
    struct together *t); /* t: or NULL, as in all calls that return a bool or a pointer */

/* Begins a step.  True if the caller has a processor, for which rows are added now. */
bool together_begin(struct together *t);
void together_end(struct together *t);
void together_clear(struct together *t); /* takes the rows that were added off */
/* Adds a row; the ids are borrowed until the callback has returned.  Returns the place of its scores, [vocab] zeros, or
 * NULL if there is no room with scores. */
float *together_add(struct together *t, const struct gen_row *text, bool over);
/* Makes room for so many rows without scores.  Keeps none of the rows. */
int together_room(struct together *t, size_t rows);
/* Calls the processor.  ERR_CANCELLED if it refuses. */
int together_process(struct together *t);
/* Returns the scores of the i-th row that was shown to the processor in this step, or NULL if there is none. */
const float *together_scores(const struct together *t, uint32_t i);
/* True in a step if the caller has criteria that see all rows. */
bool together_judges(const struct together *t);
/* Calls them.  scores: [steps][rows][vocab] of the result, or NULL. */
void together_judge(struct together *t, const float *scores, size_t steps, uint32_t rows);
/* True if they end the i-th row. */
bool together_ends(const struct together *t, uint32_t i);
