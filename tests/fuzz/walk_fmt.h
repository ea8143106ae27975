/* walk_fmt.h - touches everything an accepted model file offers, and aborts when a promise of fmt.h
 * is broken. Fuzz targets and unit tests share it: a mutated file may be accepted if it survives
 * this walk under the sanitizers. */
#pragma once
#include "fmt/fmt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WALK_MUST(c)                                                                               \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #c);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static unsigned walk_bytes(const void *p, size_t n)
{
    const uint8_t *b = p;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + b[i];
    return sum;
}

/* Reads a tensor, which must lie inside [data, data + n) and have the size its shape says. */
static unsigned walk_tensor(const struct tensor *t, const uint8_t *data, size_t n)
{
    size_t bytes, rows = 1;
    const uint8_t *at = t->data;
    WALK_MUST(t->name != NULL && t->n_dims <= FMT_MAX_DIMS && t->dtype < DT_COUNT);
    WALK_MUST(at >= data && at <= data + n && t->bytes <= (size_t)(data + n - at));
    for (uint32_t i = 0; i + 1 < t->n_dims; i++)
        WALK_MUST(ck_mul(rows, t->dim[i], &rows));
    WALK_MUST(dtype_bytes(t->dtype, t->n_dims ? t->dim[t->n_dims - 1] : 1, &bytes));
    WALK_MUST(ck_mul(bytes, rows, &bytes) && bytes == t->bytes);
    return walk_bytes(at, t->bytes) + walk_bytes(t->name, strlen(t->name));
}

static inline unsigned walk_safetensors(const struct safetensors *s, const uint8_t *data, size_t n)
{
    unsigned sum = 0;
    uint32_t n_tensors = safetensors_count(s);
    for (uint32_t i = 0; i < n_tensors; i++) {
        const struct tensor *t = safetensors_at(s, i);
        WALK_MUST(safetensors_find(s, t->name) == t);
        sum += walk_tensor(t, data, n);
    }
    WALK_MUST(safetensors_at(s, n_tensors) == NULL);
    return sum;
}

static unsigned walk_value(const struct gguf *g, const struct gguf_value *v)
{
    uint32_t u;
    double d = 0;
    bool b;
    const char *s;
    size_t n;
    unsigned sum = 0;
    WALK_MUST(gguf_get(g, v->key) == v);
    if (gguf_get_u32(g, v->key, 1, 512, &u) == 1) WALK_MUST(u >= 1 && u <= 512);
    if (gguf_get_f64(g, v->key, &d) == 1) WALK_MUST(d - d == 0);
    gguf_get_bool(g, v->key, &b);
    if (gguf_get_str(g, v->key, &s, &n) == 1) sum += walk_bytes(s, n);
    if (v->type != GGUF_ARRAY) return sum;
    for (uint64_t i = 0; i < v->n; i++) {
        if (v->item == GGUF_STRING) {
            WALK_MUST(gguf_string_at(v, g, i, &s, &n) == 0);
            sum += walk_bytes(s, n);
        } else {
            sum += gguf_number_at(v, i) > 0;
        }
    }
    WALK_MUST(gguf_string_at(v, g, v->n, &s, &n) < 0);
    WALK_MUST(gguf_number_at(v, v->n) != gguf_number_at(v, v->n)); /* NaN */
    return sum;
}

static inline unsigned walk_gguf(const struct gguf *g, const uint8_t *data, size_t n)
{
    unsigned sum = 0;
    json_t *j = NULL;
    for (uint32_t i = 0; i < gguf_n_values(g); i++)
        sum += walk_value(g, gguf_value_at(g, i));
    for (uint32_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        WALK_MUST(gguf_find(g, t->name) == t);
        sum += walk_tensor(t, data, n);
    }
    WALK_MUST(gguf_json(g, &j) == 0 && json_is_object(j));
    json_decref(j);
    return sum;
}
