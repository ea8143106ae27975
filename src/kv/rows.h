/* rows.h - rows of the cache as f32, read and written through the views of an open step. */
#pragma once
#include "dev/dev.h"
#include "kv/kv.h"

struct rows_want {
    uint32_t lane, plane;
    uint32_t from, to; /* rows of the lane, all within reach of its first token */
    uint32_t edge;     /* rows below are read sealed */
    float *dst;        /* [heads][ld][dim]: row j goes to j - from + at */
    size_t ld, at;
    void *scratch; /* rows_scratch() bytes */
};
/* Bytes to decode a tile of one head in. */
size_t rows_scratch(const struct kv_group *g);
/* What of the rows this piece of the view covers. */
void rows_read(const struct kv_view *v, const struct rows_want *w);
/* n rows of x, [heads][ld][dim] from row `at`, to [n][heads][dim] as dev_kv_write takes them. */
void rows_pack(const float *x, size_t ld, size_t at, uint32_t n, uint32_t heads, uint32_t dim,
               float *out);
