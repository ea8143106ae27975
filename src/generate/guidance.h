/* guidance.h - classifier-free guidance: every row's text is also continued after a negative prompt, and the scores are
 * moved away from what that would say. */
#pragma once
#include "generate/run.h"

struct guide;
/* r->guide, if guidance_scale asks for it; one sequence for each of r->width rows (beams: of each beam). */
int guide_begin(struct run *r);
void guide_end(struct run *r);
/* What row's negative text has not been fed: the negative prompt, then the newest of fresh[0..n), what the row
 * generated; without a cache all of it into a sequence of its own, see guide_fed.  w: the row, or a beam's. */
int guide_feed(struct run *r, const struct row *w, uint32_t row, const int32_t *fresh, uint32_t n,
               struct exec_feed *out);
/* After the feed, successful or not. */
void guide_fed(struct run *r);
/* Row `row` continues as a fork of row `from`. */
int guide_fork(struct run *r, uint32_t row, uint32_t from);
/* Rows [first, first + n) become what rows first + from[i] were. */
int guide_reorder(struct run *r, uint32_t first, const uint32_t *from, uint32_t n);
/* scores: of the row; uncond: logits after its negative text. */
void guide_apply(struct run *r, const float *uncond, float *scores);
