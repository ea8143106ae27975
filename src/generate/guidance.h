/* guidance.h - classifier-free guidance: every row has a negative text, a negative prompt that the row's tokens
 * continue.  The scores of the row are moved away from those of the negative text. */
#pragma once
#include "generate/run.h"

struct guide;
/* Sets r->guide if guidance_scale asks for it.  There are r->width negative texts: one for each row, or for each
 * beam. */
int guide_begin(struct run *r);
void guide_end(struct run *r);
/* True if this sequence belongs to a negative text. */
bool guide_owns(const struct run *r, kv_seq seq);
/* Sets the feed of a row's negative text: first the negative prompt, later the newest of the tokens fresh[0..n)
 * that the row has generated.  Without a cache the feed is the whole text, in a new sequence that guide_fed drops.
 * w: the row, or the row of a beam. */
int guide_feed(struct run *r, const struct row *w, uint32_t row, const int32_t *fresh, uint32_t n,
               struct exec_feed *out);
/* Without a cache: drops the sequences of negative texts after their feed. */
void guide_fed(struct run *r);
/* Replaces the negative text of row `row` by a fork of that of row `from`. */
int guide_fork(struct run *r, uint32_t row, uint32_t from);
/* Replaces the negative text of row first + i by that of row first + from[i], all at once. */
int guide_reorder(struct run *r, uint32_t first, const uint32_t *from, uint32_t n);
/* Applies the guidance to the scores of a row; uncond: the logits after its negative text. */
void guide_apply(struct run *r, const float *uncond, float *scores);
