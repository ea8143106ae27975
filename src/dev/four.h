/* four.h - vectors of four values, which the compiler provides for every processor.  They are for code that runs for
 * each row and has no kernels.  Each operation works on each value by itself, so the bits are those of a loop. */
#pragma once
#include "base/base.h"

#include <string.h>

typedef float four __attribute__((vector_size(16)));
typedef int32_t four_ints __attribute__((vector_size(16)));
typedef uint32_t four_words __attribute__((vector_size(16)));

/* The checked memcpy to a place in an array of known size would be a call. */
static inline four four_load(const float *x)
{
    four v;
    __builtin_memcpy(&v, x, sizeof v);
    return v;
}
static inline void four_store(float *x, four v)
{
    __builtin_memcpy(x, &v, sizeof v);
}
static inline four four_all(float x)
{
    return (four){x, x, x, x};
}
/* Returns a where a comparison held (its bits are 1), else b. */
static inline four four_pick(four_ints held, four a, four b)
{
    return (four)((held & (four_ints)a) | (~held & (four_ints)b));
}
