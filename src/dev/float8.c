/* float8.c - floats of 8 bits, one after another: the scalar reference. */
#include "dev/float8.h"
#include "dev/row.h"

void float8_decode(enum dtype t, float scale, const unsigned char *code, uint32_t n, void *out)
{
    for (uint32_t i = 0; i < n; i++)
        kv_row_put(t, out, i, float8_value(code[i]) * scale);
}
