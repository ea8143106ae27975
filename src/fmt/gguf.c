/* gguf.c - GGUF version 2 and 3, little endian.
 *
 *     "GGUF" u32 version  u64 n_tensors  u64 n_values  values...  tensor infos...  padding  data
 *
 * One pass reads the header through the checked reader.  Keys and names are copied, because no NUL follows them in
 * the file; everything else is borrowed.  What was validated is never read a second time to form an address: dims,
 * offsets and the places of the strings of an array are kept here, so a file that changes under the mapping cannot
 * turn into a wild pointer.  Dims are innermost first in the file and outermost first in struct tensor. */
#include "base/map.h"
#include "base/utf8.h"
#include "fmt/fmt_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ALIGNMENT 32u
#define MAX_ALIGNMENT     (1u << 20)
#define MAX_VALUES        65536u
#define MAX_TENSORS       (1u << 22)
#define MIN_VALUE_BYTES   14u /* length 8, key 1, type 4, value 1 */
#define MIN_TENSOR_BYTES  25u /* length 8, name 1, n_dims 4, type 4, offset 8 */
#define MIN_STRING_BYTES  8u

struct gguf {
    struct map map; /* unused (not mapped) after gguf_parse */
    char *what;     /* owned: the source in errors */
    uint32_t n_values, n_tensors;
    struct gguf_value *value; /* [n_values] owned, keys owned */
    uint64_t **item;          /* [n_values] owned: for an array of n strings, n + 1 offsets */
    const uint8_t *data;      /* the whole file */
    struct tensor *tensor;    /* [n_tensors] owned, names owned */
    struct names by_key, by_name;
};

/* Bytes of one value; 0 for strings and arrays. */
static const uint8_t value_size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static const char *const value_name[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};

static int read_name(struct rd *r, const char *field, const char **out)
{
    const char *s;
    size_t n, at = r->pos;
    TRY(rd_str(r, field, &s, &n));
    if (n == 0 || n > FMT_MAX_NAME || memchr(s, 0, n) || !utf8_valid(s, n))
        return ERR(FORMAT, "%s: byte %zu: %s must be 1 to %u bytes of UTF-8 without NUL", r->what,
                   at, field, FMT_MAX_NAME);
    char *copy = mem_strndup(s, n);
    if (!copy) return ERR_NOMEM;
    *out = copy;
    return 0;
}

static int take_strings(struct rd *r, struct gguf_value *v, uint64_t **out)
{
    uint64_t *at = mem_array((size_t)v->n + 1, sizeof *at);
    if (!at) return ERR_NOMEM;
    for (uint64_t i = 0; i < v->n; i++) {
        const char *s;
        size_t n;
        at[i] = r->pos;
        int e = rd_str(r, v->key, &s, &n);
        if (e < 0) {
            mem_free(at);
            return e;
        }
    }
    at[v->n] = r->pos;
    *out = at;
    return 0;
}

/* Refuses numbers that are not finite.  Otherwise every reader of the file would have to replace them by a
 * default. */
static int check_finite(const struct rd *r, const struct gguf_value *v)
{
    enum gguf_type type = v->type == GGUF_ARRAY ? v->item : v->type;
    if (type != GGUF_F32 && type != GGUF_F64) return 0;
    for (uint64_t i = 0; i < v->n; i++)
        if (!isfinite(gguf_float_at(type, v->data, i)))
            return ERR(FORMAT, "%s: key \"%.200s\" has a number that is not finite", r->what,
                       v->key);
    return 0;
}

static int take_array(struct rd *r, struct gguf_value *v, uint64_t **item)
{
    uint32_t type;
    const uint8_t *p;
    TRY(rd_u32(r, v->key, &type));
    if (type >= countof(value_size) || type == GGUF_ARRAY)
        return ERR(FORMAT, "%s: key \"%.200s\": an array of %s", r->what, v->key,
                   type == GGUF_ARRAY ? "arrays is not supported" : "an unknown type");
    v->item = type;
    TRY(rd_count(r, v->key, type == GGUF_STRING ? MIN_STRING_BYTES : value_size[type], &v->n));
    v->data = r->data + r->pos;
    if (type == GGUF_STRING) return take_strings(r, v, item);
    TRY(rd_take(r, v->n * value_size[type], v->key, &p));
    return check_finite(r, v);
}

static int take_value(struct rd *r, struct gguf_value *v, uint64_t **item)
{
    uint32_t type;
    const uint8_t *p;
    TRY(read_name(r, "a metadata key", &v->key));
    TRY(rd_u32(r, v->key, &type));
    if (type >= countof(value_size))
        return ERR(FORMAT, "%s: key \"%.200s\": unknown type %u", r->what, v->key, type);
    v->type = type;
    if (type == GGUF_ARRAY) return take_array(r, v, item);
    v->n = 1;
    if (type == GGUF_STRING) {
        const char *s;
        size_t n;
        TRY(rd_str(r, v->key, &s, &n));
        v->n = n;
        v->data = s;
        return 0;
    }
    TRY(rd_take(r, value_size[type], v->key, &p));
    v->data = p;
    return check_finite(r, v);
}

static int take_values(struct gguf *g, struct rd *r, uint64_t n)
{
    g->value = mem_array((size_t)n, sizeof *g->value);
    g->item = mem_array((size_t)n, sizeof *g->item);
    if (!g->value || !g->item) return ERR_NOMEM;
    for (uint64_t i = 0; i < n; i++) {
        g->n_values = (uint32_t)i + 1; /* now gguf_close sees the value, even half-read */
        TRY(take_value(r, &g->value[i], &g->item[i]));
    }
    TRY(names_build(&g->by_key, g->value, g->n_values, sizeof *g->value));
    const char *twice = names_twice(&g->by_key);
    if (twice) return ERR(FORMAT, "%s: key \"%.200s\" occurs twice", r->what, twice);
    return 0;
}

/* Reads the alignment of the data.  The specification and both other readers want u32 here.  The value is a divisor, so it is checked. */
static int alignment(const struct gguf *g, uint32_t *out)
{
    const struct gguf_value *v = gguf_get(g, "general.alignment");
    uint32_t a = DEFAULT_ALIGNMENT;
    if (v && v->type != GGUF_U32)
        return ERR(FORMAT, "%s: general.alignment must be u32, not %s", g->what,
                   value_name[v->type]);
    if (v) a = le_u32(v->data);
    if (a == 0 || (a & (a - 1)) != 0 || a > MAX_ALIGNMENT)
        return ERR(FORMAT, "%s: general.alignment is %u: not a power of two up to %u", g->what, a,
                   MAX_ALIGNMENT);
    *out = a;
    return 0;
}

static const char *foreign_type(uint32_t n)
{
    static const struct {
        uint32_t n;
        const char *name;
    } known[] = {{9, "Q8_1"},     {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"},
                 {18, "IQ3_XXS"}, {19, "IQ1_S"},  {20, "IQ4_NL"},  {21, "IQ3_S"},
                 {22, "IQ2_S"},   {23, "IQ4_XS"}, {25, "I16"},     {29, "IQ1_M"},
                 {34, "TQ1_0"},   {35, "TQ2_0"},  {40, "NVFP4"},   {41, "Q1_0"}};
    for (size_t i = 0; i < countof(known); i++)
        if (known[i].n == n) return known[i].name;
    return NULL;
}

static int take_dtype(struct rd *r, struct tensor *t)
{
    uint32_t n;
    TRY(rd_u32(r, t->name, &n));
    int d = dtype_from_gguf(n);
    const char *name = foreign_type(n);
    if (d < 0 && name)
        return ERR(UNSUPPORTED,
                   "%s: tensor \"%.200s\" is %s, which kvik does not read: use a file quantized "
                   "as Q4_0 ... Q8_0, Q2_K ... Q6_K or MXFP4",
                   r->what, t->name, name);
    if (d < 0)
        return ERR(FORMAT, "%s: tensor \"%.200s\" has the unknown type %u", r->what, t->name, n);
    t->dtype = (enum dtype)d;
    return 0;
}

/* Reads the description of one tensor; *offset is relative to the data section. */
static int take_tensor(struct rd *r, struct tensor *t, uint64_t *offset)
{
    uint64_t dim[FMT_MAX_DIMS];
    TRY(read_name(r, "a tensor name", &t->name));
    TRY(rd_u32(r, t->name, &t->n_dims));
    if (t->n_dims > FMT_MAX_DIMS) {
        uint32_t n = t->n_dims;
        t->n_dims = 0;
        return ERR(FORMAT, "%s: tensor \"%.200s\" has %u dimensions, the limit is %u", r->what,
                   t->name, n, FMT_MAX_DIMS);
    }
    for (uint32_t i = 0; i < t->n_dims; i++)
        TRY(rd_u64(r, t->name, &dim[i]));
    for (uint32_t i = 0; i < t->n_dims; i++)
        t->dim[i] = dim[t->n_dims - 1 - i];
    TRY(take_dtype(r, t));
    TRY(rd_u64(r, t->name, offset));
    if (!tensor_size(t, &t->bytes))
        return ERR(FORMAT,
                   "%s: tensor \"%.200s\": %s rows of %llu do not fit whole blocks of %u, or the "
                   "size overflows %zu bytes",
                   r->what, t->name, dtype_name(t->dtype),
                   (unsigned long long)(t->n_dims ? t->dim[t->n_dims - 1] : 1),
                   dtype_block(t->dtype), (size_t)SIZE_MAX);
    return 0;
}

/* Turns relative offsets into addresses.  After success every tensor lies wholly inside the file. */
static int place_tensors(struct gguf *g, const struct rd *r, const uint64_t *offset)
{
    uint32_t align;
    size_t start;
    TRY(alignment(g, &align));
    if (!ck_add(r->pos, align - 1, &start))
        return ERR(FORMAT, "%s: a header of %zu bytes cannot be aligned to %u", g->what, r->pos,
                   align);
    start &= ~((size_t)align - 1);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct tensor *t = &g->tensor[i];
        if (offset[i] % align != 0)
            return ERR(FORMAT, "%s: tensor \"%.200s\": offset %llu is not a multiple of %u",
                       g->what, t->name, (unsigned long long)offset[i], align);
        if (start > r->size || offset[i] > r->size - start ||
            t->bytes > r->size - start - offset[i])
            return ERR(FORMAT,
                       "%s: tensor \"%.200s\" (%zu bytes at %llu of the data) reaches past the "
                       "end of the file (%zu bytes): is the download complete?",
                       g->what, t->name, t->bytes, (unsigned long long)offset[i], r->size);
        t->data = r->data + start + offset[i];
    }
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct tensor *s = *(const struct tensor *const *)a;
    const struct tensor *t = *(const struct tensor *const *)b;
    uintptr_t p = (uintptr_t)s->data, q = (uintptr_t)t->data;
    return p != q ? (p < q ? -1 : 1) : (s->bytes > t->bytes) - (s->bytes < t->bytes);
}

static int refuse_overlap(const struct gguf *g)
{
    const struct tensor **at = mem_array(g->n_tensors, sizeof *at);
    if (!at) return ERR_NOMEM;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        at[i] = &g->tensor[i];
    qsort(at, g->n_tensors, sizeof *at, by_place);
    int e = 0;
    for (uint32_t i = 1; i < g->n_tensors && e == 0; i++)
        if ((const uint8_t *)at[i - 1]->data + at[i - 1]->bytes > (const uint8_t *)at[i]->data)
            e = ERR(FORMAT, "%s: tensors \"%.200s\" and \"%.200s\" overlap", g->what,
                    at[i - 1]->name, at[i]->name);
    mem_free(at);
    return e;
}

static int take_tensors(struct gguf *g, struct rd *r, uint64_t n)
{
    int e = 0;
    uint64_t *offset = mem_array((size_t)n, sizeof *offset);
    g->tensor = mem_array((size_t)n, sizeof *g->tensor);
    if (!offset || !g->tensor) e = ERR_NOMEM;
    for (uint64_t i = 0; i < n && e == 0; i++) {
        g->n_tensors = (uint32_t)i + 1;
        e = take_tensor(r, &g->tensor[i], &offset[i]);
    }
    if (e == 0) e = place_tensors(g, r, offset);
    mem_free(offset);
    if (e == 0) e = refuse_overlap(g);
    if (e == 0) e = names_build(&g->by_name, g->tensor, g->n_tensors, sizeof *g->tensor);
    if (e < 0) return e;
    const char *twice = names_twice(&g->by_name);
    if (twice) return ERR(FORMAT, "%s: tensor \"%.200s\" occurs twice", r->what, twice);
    return 0;
}

/* True if the file begins with "ggml", "ggmf" or "ggjt", as a number in little endian. */
static bool is_ggml(const uint8_t *magic)
{
    return !memcmp(magic, "lmgg", 4) || !memcmp(magic, "fmgg", 4) || !memcmp(magic, "tjgg", 4);
}

static int take_version(struct rd *r)
{
    const uint8_t *magic;
    uint32_t version;
    TRY(rd_take(r, 4, "the magic number", &magic));
    if (is_ggml(magic))
        return ERR(
            UNSUPPORTED,
            "%s: a ggml file of whisper.cpp, or of llama.cpp before GGUF, which kvik does not read; for a "
            "Whisper model: kvik pull openai/whisper-base, then kvik transcribe openai/whisper-base FILE",
            r->what);
    if (memcmp(magic, "GGUF", 4) != 0)
        return ERR(FORMAT, "%s: not a GGUF file%s: give a model directory or a .gguf file", r->what,
                   looks_like(r->data, r->size));
    TRY(rd_u32(r, "the version", &version));
    if (version == 2 || version == 3) return 0;
    if (version && (version & 0xFFFF) == 0)
        return ERR(UNSUPPORTED, "%s: a big-endian GGUF file: only little endian is read", r->what);
    return ERR(UNSUPPORTED, "%s: GGUF version %u: only 2 and 3 are read", r->what, version);
}

static int parse(struct gguf *g, const uint8_t *data, size_t size)
{
    struct rd r = {.data = data, .size = size, .what = g->what};
    uint64_t n_tensors, n_values;
    g->data = data;
    TRY(take_version(&r));
    TRY(rd_count(&r, "the number of tensors", MIN_TENSOR_BYTES, &n_tensors));
    TRY(rd_count(&r, "the number of metadata values", MIN_VALUE_BYTES, &n_values));
    if (n_values > MAX_VALUES || n_tensors > MAX_TENSORS)
        return ERR(LIMIT, "%s: %llu metadata values and %llu tensors; at most %u and %u are read",
                   g->what, (unsigned long long)n_values, (unsigned long long)n_tensors, MAX_VALUES,
                   MAX_TENSORS);
    TRY(take_values(g, &r, n_values));
    return take_tensors(g, &r, n_tensors);
}

int gguf_parse(const void *data, size_t n, const char *what, struct gguf **out)
{
    struct gguf *g = mem_alloc(sizeof *g);
    if (!g) return ERR_NOMEM;
    g->what = mem_strdup(what);
    int e = g->what ? parse(g, data, n) : ERR_NOMEM;
    if (e < 0) {
        gguf_close(g);
        return e;
    }
    *out = g;
    return 0;
}

int gguf_open(const char *path, struct gguf **out)
{
    struct map map;
    struct gguf *g = NULL;
    TRY(map_open(&map, path));
    int e = gguf_parse(map.data, map.size, path, &g);
    if (e < 0) {
        map_close(&map);
        return e;
    }
    g->map = map;
    *out = g;
    return 0;
}

void gguf_close(struct gguf *g)
{
    if (!g) return;
    for (uint32_t i = 0; i < g->n_values; i++) {
        if (g->value) mem_free((void *)(uintptr_t)g->value[i].key);
        if (g->item) mem_free(g->item[i]);
    }
    for (uint32_t i = 0; i < g->n_tensors; i++)
        mem_free((void *)(uintptr_t)g->tensor[i].name);
    mem_free(g->value);
    mem_free(g->item);
    mem_free(g->tensor);
    names_done(&g->by_key);
    names_done(&g->by_name);
    map_close(&g->map);
    mem_free(g->what);
    mem_free(g);
}

int gguf_recheck(const struct gguf *g)
{
    return map_check(&g->map, g->what);
}

const struct map *gguf_map(const struct gguf *g, const char **path)
{
    *path = g->what;
    return &g->map;
}

uint32_t gguf_n_values(const struct gguf *g)
{
    return g->n_values;
}

const struct gguf_value *gguf_value_at(const struct gguf *g, uint32_t i)
{
    return i < g->n_values ? &g->value[i] : NULL;
}

const struct gguf_value *gguf_get(const struct gguf *g, const char *key)
{
    return names_find(&g->by_key, key);
}

uint32_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct tensor *gguf_tensor_at(const struct gguf *g, uint32_t i)
{
    return i < g->n_tensors ? &g->tensor[i] : NULL;
}

const struct tensor *gguf_find(const struct gguf *g, const char *name)
{
    return names_find(&g->by_name, name);
}

int gguf_string_at(const struct gguf_value *v, const struct gguf *g, uint64_t i, const char **s,
                   size_t *n)
{
    if (v->type != GGUF_ARRAY || v->item != GGUF_STRING)
        return ERR(FORMAT, "%s: key \"%.200s\" must be an array of strings", g->what, v->key);
    if (i >= v->n)
        return ERR(ARG, "%s: key \"%.200s\" has no item %llu", g->what, v->key,
                   (unsigned long long)i);
    const uint64_t *at = g->item[v - g->value];
    *s = (const char *)g->data + at[i] + MIN_STRING_BYTES;
    *n = (size_t)(at[i + 1] - at[i] - MIN_STRING_BYTES);
    return 0;
}
