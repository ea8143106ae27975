/* random.h - random numbers without a state: each is a function of a seed and of what it is for, so that nothing
 * has to be saved between steps and no draw depends on how many were made before. */
#pragma once
#include <stdint.h>

/* Uniform in [0, 1) with 53 bits. */
double random_uniform(uint64_t seed, uint32_t row, uint32_t step, uint32_t beam, uint32_t token);
