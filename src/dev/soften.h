/* soften.h - from scores to probabilities, for the probes of all devices. */
#pragma once
#include "base/base.h"

/* Makes the scores x of rows [0, sinks) and [lo, hi) probabilities, in place.  cap: softcap, 0: none.  sink: a logit that
 * takes its share and has no row, or NULL. */
void dev_soften(float *x, uint32_t sinks, uint32_t lo, uint32_t hi, float cap, const float *sink);
