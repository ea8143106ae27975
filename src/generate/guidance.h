/* guidance.h - classifier-free guidance: every row's text also continues a negative prompt, and the scores of the row are
 * moved away from the scores of that negative text. */
#pragma once
#include "generate/run.h"

struct guide;
/* Sets r->guide if guidance_scale asks for it: one negative text for each of r->width rows (beams: of each beam). */
int guide_begin(struct run *r);
void guide_end(struct run *r);
/* True if a negative text is this sequence. */
bool guide_owns(const struct run *r, kv_seq seq);
/* Sets the feed of a row's negative text: the negative prompt, later the newest of the tokens fresh[0..n) that the row
 * generated.  Without a cache the feed is the whole text, into a sequence that guide_fed drops.  w: the row, or the row of
 * a beam. */
int guide_feed(struct run *r, const struct row *w, uint32_t row, const int32_t *fresh, uint32_t n,
               struct exec_feed *out);
/* Drops the sequences of texts without a cache, after their feed. */
void guide_fed(struct run *r);
/* Makes the negative text of row `row` a fork of that of row `from`. */
int guide_fork(struct run *r, uint32_t row, uint32_t from);
/* Makes the negative text of row first + i that of row first + from[i], all at once. */
int guide_reorder(struct run *r, uint32_t first, const uint32_t *from, uint32_t n);
/* Applies the guidance to the scores of a row; uncond: the logits after its negative text. */
void guide_apply(struct run *r, const float *uncond, float *scores);
