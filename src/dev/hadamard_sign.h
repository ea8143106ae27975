/* hadamard_sign.h - the signs of a rotation (hadamard.h), a channel at a time: kernels of a device find them by themselves. */
#pragma once
#include <stdint.h>

/* Returns 1 or -1, from the bits of a product of the seed and the channel. */
static inline float hadamard_sign(uint32_t seed, uint32_t d)
{
    uint64_t x = ((uint64_t)seed << 32 | d) + 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x >> 63 ? -1.0f : 1.0f;
}
