/* random.h - random numbers without a state.  Each number is a function of a seed and of its purpose.  So nothing
 * has to be saved between steps, and no draw depends on the number of draws before it. */
#pragma once
#include <stdint.h>

/* Returns a number that is uniform in [0, 1), with 53 bits. */
double random_uniform(uint64_t seed, uint32_t row, uint32_t step, uint32_t beam, uint32_t token);
