/* dtype.h - element types of weights and rows: names, block sizes.  A quantized type packs `block`
 * elements of one row (along K, the innermost dimension) into `bytes`. */
#pragma once
#include "base/base.h"

/* X(name, block elements, block bytes, GGUF type number or -1, safetensors name or "") */
#define DTYPE_MAP(X)                                                                               \
    X(F32, 1, 4, 0, "F32")                                                                         \
    X(F16, 1, 2, 1, "F16")                                                                         \
    X(BF16, 1, 2, 30, "BF16")                                                                      \
    X(Q4_0, 32, 18, 2, "")                                                                         \
    X(Q4_1, 32, 20, 3, "")                                                                         \
    X(Q5_0, 32, 22, 6, "")                                                                         \
    X(Q5_1, 32, 24, 7, "")                                                                         \
    X(Q8_0, 32, 34, 8, "")                                                                         \
    X(Q2_K, 256, 84, 10, "")                                                                       \
    X(Q3_K, 256, 110, 11, "")                                                                      \
    X(Q4_K, 256, 144, 12, "")                                                                      \
    X(Q5_K, 256, 176, 13, "")                                                                      \
    X(Q6_K, 256, 210, 14, "")                                                                      \
    X(MXFP4, 32, 17, 39, "")                                                                       \
    X(I32, 1, 4, 26, "I32")                                                                        \
    X(I64, 1, 8, 27, "I64")                                                                        \
    X(U8, 1, 1, -1, "U8")                                                                          \
    X(I8, 1, 1, 24, "I8")                                                                          \
    X(BOOL, 1, 1, -1, "BOOL")                                                                      \
    X(F64, 1, 8, 28, "F64")

enum dtype {
#define DTYPE_ENUM(n, b, s, g, st) DT_##n,
    DTYPE_MAP(DTYPE_ENUM)
#undef DTYPE_ENUM
        DT_COUNT
};
const char *dtype_name(enum dtype t); /* "f32", "q4_1", ... lower case */
uint32_t dtype_block(enum dtype t);   /* elements per block */
uint32_t dtype_size(enum dtype t);    /* bytes per block */
int dtype_from_gguf(uint32_t n);      /* an enum dtype, or -1 */
int dtype_from_safetensors(const char *s);
const char *dtype_safetensors(enum dtype t); /* "F32", ... or NULL if the format has no such type */
/* Computes the bytes of a row of n elements; false if n is not whole blocks or on overflow. */
bool dtype_bytes(enum dtype t, uint64_t n, size_t *out);
