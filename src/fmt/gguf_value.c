/* gguf_value.c - metadata values of a GGUF file as C numbers, as strings and as JSON.  Files store
 * the same hyper-parameter as u32, i32, u64 or even f32, so the getters take any integer type and
 * check the range; they never convert a string. */
#include "fmt/fmt_int.h"

#include <math.h>
#include <string.h>

#define SMALL_ARRAY 64u /* longest array that gguf_json shows */

static const uint8_t size_of[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static bool is_integer(enum gguf_type t)
{
    return t <= GGUF_I32 || t == GGUF_U64 || t == GGUF_I64;
}

static bool is_signed(enum gguf_type t)
{
    return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;
}

/* Returns the bits of the i-th item, sign-extended for signed integers. */
static uint64_t bits_at(enum gguf_type t, const void *data, uint64_t i)
{
    const uint8_t *p = (const uint8_t *)data + i * size_of[t];
    switch (size_of[t]) {
    case 1:
        return is_signed(t) ? (uint64_t)(int64_t)(int8_t)p[0] : p[0];
    case 2: {
        uint16_t u = (uint16_t)(p[0] | p[1] << 8);
        return is_signed(t) ? (uint64_t)(int64_t)(int16_t)u : u;
    }
    case 4:
        return is_signed(t) ? (uint64_t)(int64_t)(int32_t)le_u32(p) : le_u32(p);
    default:
        return le_u64(p);
    }
}

double gguf_float_at(enum gguf_type t, const void *data, uint64_t i)
{
    uint64_t u = bits_at(t, data, i);
    if (t == GGUF_F32) {
        uint32_t u32 = (uint32_t)u;
        float f;
        memcpy(&f, &u32, sizeof f);
        return (double)f;
    }
    if (t == GGUF_F64) {
        double d;
        memcpy(&d, &u, sizeof d);
        return d;
    }
    if (t == GGUF_BOOL) return u != 0;
    return is_signed(t) ? (double)(int64_t)u : (double)u;
}

double gguf_number_at(const struct gguf_value *v, uint64_t i)
{
    if (v->type != GGUF_ARRAY || size_of[v->item] == 0 || i >= v->n) return (double)NAN;
    return gguf_float_at(v->item, v->data, i);
}

int gguf_get_u32(const struct gguf *g, const char *key, uint32_t min, uint32_t max, uint32_t *out)
{
    const struct gguf_value *v = gguf_get(g, key);
    if (!v) return 0;
    if (is_integer(v->type)) {
        uint64_t u = bits_at(v->type, v->data, 0); /* a negative number is beyond every max */
        if (u >= min && u <= max) {
            *out = (uint32_t)u;
            return 1;
        }
    }
    return ERR(FORMAT, "key \"%.200s\" must be an integer from %u to %u", key, min, max);
}

int gguf_get_f64(const struct gguf *g, const char *key, double *out)
{
    const struct gguf_value *v = gguf_get(g, key);
    if (!v) return 0;
    bool number = is_integer(v->type) || v->type == GGUF_F32 || v->type == GGUF_F64;
    double d = number ? gguf_float_at(v->type, v->data, 0) : (double)NAN;
    if (!isfinite(d)) return ERR(FORMAT, "key \"%.200s\" must be a finite number", key);
    *out = d;
    return 1;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out)
{
    const struct gguf_value *v = gguf_get(g, key);
    if (!v) return 0;
    if (v->type != GGUF_BOOL) return ERR(FORMAT, "key \"%.200s\" must be true or false", key);
    *out = *(const uint8_t *)v->data != 0;
    return 1;
}

int gguf_get_str(const struct gguf *g, const char *key, const char **s, size_t *n)
{
    const struct gguf_value *v = gguf_get(g, key);
    if (!v) return 0;
    if (v->type != GGUF_STRING) return ERR(FORMAT, "key \"%.200s\" must be a string", key);
    *s = v->data;
    *n = (size_t)v->n;
    return 1;
}

/* Returns a new reference; JSON null for values that JSON cannot hold (NaN, bytes that are not UTF-8). */
static json_t *text_json(const char *s, size_t n)
{
    json_t *j = json_stringn(s, n);
    return j ? j : json_null();
}

static json_t *number_json(enum gguf_type t, const void *data, uint64_t i)
{
    uint64_t u = bits_at(t, data, i);
    if (t == GGUF_BOOL) return json_boolean(u != 0);
    if (is_integer(t) && (is_signed(t) || u <= INT64_MAX)) return json_integer((json_int_t)u);
    double d = gguf_float_at(t, data, i);
    return isfinite(d) ? json_real(d) : json_null();
}

static json_t *array_json(const struct gguf *g, const struct gguf_value *v)
{
    json_t *a = json_array();
    for (uint64_t i = 0; a && i < v->n; i++) {
        const char *s = NULL;
        size_t n = 0;
        json_t *j;
        if (v->item != GGUF_STRING)
            j = number_json(v->item, v->data, i);
        else
            j = gguf_string_at(v, g, i, &s, &n) == 0 ? text_json(s, n) : NULL;
        if (!j || json_array_append_new(a, j) < 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static bool shown(const struct gguf_value *v)
{
    if (v->type != GGUF_ARRAY) return true;
    return v->n <= SMALL_ARRAY && strncmp(v->key, "tokenizer.", 10) != 0;
}

int gguf_json(const struct gguf *g, json_t **out)
{
    JSON_SCOPE(scope);
    json_t *o = json_object();
    for (uint32_t i = 0; o && i < gguf_n_values(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        json_t *j;
        if (!shown(v)) continue;
        if (v->type == GGUF_ARRAY)
            j = array_json(g, v);
        else if (v->type == GGUF_STRING)
            j = text_json(v->data, (size_t)v->n);
        else
            j = number_json(v->type, v->data, 0);
        if (!j || json_object_set_new(o, v->key, j) < 0) {
            json_decref(o);
            o = NULL;
        }
    }
    if (o && json_whole(&scope) < 0) {
        json_decref(o);
        o = NULL;
    }
    if (!o) return ERR(NOMEM, "out of memory: GGUF metadata");
    *out = o;
    return 0;
}

const char *gguf_file_type(const struct gguf *g)
{
    /* names by the numbers of general.file_type; no program writes 4 to 6 and 33 to 35 any more */
    static const char *const names[] = {
        "F32",    "F16",    "Q4_0",  "Q4_1",    NULL,     NULL,     NULL,     "Q8_0",
        "Q5_0",   "Q5_1",   "Q2_K",  "Q3_K_S",  "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M",
        "Q5_K_S", "Q5_K_M", "Q6_K",  "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS",
        "IQ1_S",  "IQ4_NL", "IQ3_S", "IQ3_M",   "IQ2_S",  "IQ2_M",  "IQ4_XS", "IQ1_M",
        "BF16",   NULL,     NULL,    NULL,      "TQ1_0",  "TQ2_0",  "MXFP4"};
    uint32_t n = UINT32_MAX;
    if (gguf_get_u32(g, "general.file_type", 0, UINT32_MAX, &n) <= 0) return NULL;
    return n < countof(names) ? names[n] : NULL;
}
