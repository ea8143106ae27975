/* dtype.c - the table of element types. */
#include "base/dtype.h"

#include <string.h>

static const struct {
    const char *upper;
    uint32_t block, size;
    int gguf;
    const char *st;
} table[] = {
#define DTYPE_ROW(n, b, s, g, st) {#n, b, s, g, st},
    DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};
static const char *const lower[] = {"f32",  "f16",  "bf16", "q4_0", "q4_1", "q5_0", "q5_1",
                                    "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "mxfp4",
                                    "i32",  "i64",  "u8",   "i8",   "bool", "f64"};
_Static_assert(countof(lower) == DT_COUNT, "one name per dtype");

const char *dtype_name(enum dtype t)
{
    return (unsigned)t < DT_COUNT ? lower[t] : "?";
}

uint32_t dtype_block(enum dtype t)
{
    return table[t].block;
}

uint32_t dtype_size(enum dtype t)
{
    return table[t].size;
}

int dtype_from_gguf(uint32_t n)
{
    for (int i = 0; i < DT_COUNT; i++)
        if (table[i].gguf >= 0 && (uint32_t)table[i].gguf == n) return i;
    return -1;
}

int dtype_from_safetensors(const char *s)
{
    for (int i = 0; i < DT_COUNT; i++)
        if (table[i].st[0] && strcmp(table[i].st, s) == 0) return i;
    return -1;
}

const char *dtype_safetensors(enum dtype t)
{
    return (unsigned)t < DT_COUNT && table[t].st[0] ? table[t].st : NULL;
}

bool dtype_bytes(enum dtype t, uint64_t n, size_t *out)
{
    return n % table[t].block == 0 && ck_mul(n / table[t].block, table[t].size, out);
}
