/* soften.h - turns scores into probabilities, for the probes of all devices. */
#pragma once
#include "base/base.h"

/* Turns the scores x of rows [0, sinks) and [lo, hi) into probabilities, in place.  cap: softcap, 0: none.  sink: a
 * logit that takes its share but has no row; NULL: none. */
void dev_soften(float *x, uint32_t sinks, uint32_t lo, uint32_t hi, float cap, const float *sink);
