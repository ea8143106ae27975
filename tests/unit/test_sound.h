/* test_sound.h - the recording of fixtures/audio/make_features.py, and what the tests of speech read of recorded cases. */
#pragma once
#include "base/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Writes n samples; 4 000 from the middle on are silent. */
static inline void test_sound(float *sound, int64_t n)
{
    uint32_t x = 12345;
    for (int64_t i = 0; i < n; i++) {
        x = (x * 1103515245u + 12345u) & 0x7fffffffu;
        int64_t wave = llabs(i * (40 + i / 16) % 4096 - 2048) - 1024;
        int64_t noise = (int64_t)(x >> 16) % 256 - 128;
        sound[i] = (float)(wave * 8 + noise * (i % 8192 / 64)) / 32768.0f;
    }
    memset(sound + n / 2, 0, 4000 * sizeof *sound);
}

/* Reads a list of token ids.  Returns their number; aborts if there are more than `most`. */
static inline size_t recorded_ids(const json_t *list, int32_t *out, size_t most)
{
    size_t n = json_array_size(list);
    if (n > most) abort();
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return n;
}
