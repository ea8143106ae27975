/* safetensors.c - one safetensors file, read.
 *
 *     u64 n   n bytes of JSON {"name": {"dtype", "shape", "data_offsets": [from, to]}, ...}   data
 *
 * The rules are the reference reader's: header of at most 100 MB, entries sorted by offset tile the
 * data exactly (no hole, no overlap, nothing behind the last), size equals shape times dtype, white
 * space around the object allowed.  Stricter than the reference on purpose: duplicate names are
 * refused (it keeps one of them, which one is an accident), and so are NUL bytes in names, entries
 * written as arrays, numbers of 2^63 and more, more than 4 dimensions and types kvik has no use for. */
#include "base/map.h"
#include "fmt/fmt_int.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HEADER 100000000u

struct safetensors {
    struct map map; /* unused (not mapped) after safetensors_parse */
    char *what;     /* owned: the source in errors */
    char *text;     /* owned: all names, each with its NUL */
    uint32_t n;
    struct tensor *tensor; /* [n] owned, in the order of the data */
    struct names by_name;
};
struct body {
    const uint8_t *data;
    uint64_t size;
};

static int bad(const char *what, const char *name, const char *why)
{
    return ERR(FORMAT, "%s: tensor \"%.200s\": %s", what, name, why);
}

static bool index_of(const json_t *j, uint64_t *out)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0) return false;
    *out = (uint64_t)json_integer_value(j);
    return true;
}

static int entry_dtype(const json_t *entry, const char *what, struct tensor *t)
{
    static const char *const known[] = {"I16",     "U16",         "U32",        "U64", "F8_E5M2",
                                        "F8_E4M3", "F8_E8M0",     "F4",         "C64", "F6_E2M3",
                                        "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};
    const json_t *value = json_object_get(entry, "dtype");
    const char *s = json_string_value(value);
    if (!s || strlen(s) != json_string_length(value))
        return bad(what, t->name, "\"dtype\" must be a string");
    int d = dtype_from_safetensors(s);
    for (size_t i = 0; d < 0 && i < countof(known); i++)
        if (strcmp(known[i], s) == 0)
            return ERR(UNSUPPORTED,
                       "%s: tensor \"%.200s\" is %s, which kvik does not read: convert the "
                       "checkpoint to F32, F16 or BF16",
                       what, t->name, s);
    if (d < 0)
        return ERR(FORMAT, "%s: tensor \"%.200s\": unknown dtype \"%.40s\"", what, t->name, s);
    t->dtype = (enum dtype)d;
    return 0;
}

static int entry_shape(const json_t *entry, const char *what, struct tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    size_t n = json_array_size(shape);
    if (!json_is_array(shape)) return bad(what, t->name, "\"shape\" must be an array");
    if (n > FMT_MAX_DIMS)
        return ERR(UNSUPPORTED, "%s: tensor \"%.200s\" has %zu dimensions, the limit is %u", what,
                   t->name, n, FMT_MAX_DIMS);
    t->n_dims = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        if (!index_of(json_array_get(shape, i), &t->dim[i]))
            return bad(what, t->name, "\"shape\" must hold non-negative integers");
    return 0;
}

static int entry_place(const json_t *entry, const char *what, const struct body *body,
                       struct tensor *t)
{
    const json_t *pair = json_object_get(entry, "data_offsets");
    uint64_t from, to;
    size_t want;
    if (!json_is_array(pair) || json_array_size(pair) != 2 ||
        !index_of(json_array_get(pair, 0), &from) || !index_of(json_array_get(pair, 1), &to))
        return bad(what, t->name, "\"data_offsets\" must be two non-negative integers");
    if (from > to || to > body->size)
        return ERR(FORMAT,
                   "%s: tensor \"%.200s\": bytes %llu to %llu are not inside the data of %llu "
                   "bytes: is the download complete?",
                   what, t->name, (unsigned long long)from, (unsigned long long)to,
                   (unsigned long long)body->size);
    if (!tensor_size(t, &want)) return bad(what, t->name, "the size of the shape overflows");
    if (to - from != want)
        return ERR(FORMAT,
                   "%s: tensor \"%.200s\" wants %zu bytes by its shape, its offsets span %llu",
                   what, t->name, want, (unsigned long long)(to - from));
    t->data = body->data + from;
    t->bytes = want;
    return 0;
}

static int take_entry(const json_t *entry, const char *what, const struct body *body,
                      struct tensor *t)
{
    if (!json_is_object(entry)) return bad(what, t->name, "not an object");
    TRY(entry_dtype(entry, what, t));
    TRY(entry_shape(entry, what, t));
    return entry_place(entry, what, body, t);
}

static int by_place(const void *a, const void *b)
{
    const struct tensor *s = a, *t = b;
    uintptr_t p = (uintptr_t)s->data, q = (uintptr_t)t->data;
    if (p != q) return p < q ? -1 : 1;
    if (s->bytes != t->bytes) return s->bytes < t->bytes ? -1 : 1;
    return strcmp(s->name, t->name);
}

static int check_tiling(const struct safetensors *s, const struct body *body)
{
    const uint8_t *at = body->data;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tensor *t = &s->tensor[i];
        if (t->data != at)
            return bad(s->what, t->name, "its bytes do not start where the previous ones end");
        at += t->bytes;
    }
    size_t used = (size_t)(at - body->data);
    if (used != body->size)
        return ERR(FORMAT, "%s: %llu bytes after the last tensor", s->what,
                   (unsigned long long)(body->size - used));
    return 0;
}

static int check_metadata(const json_t *meta, const char *what)
{
    const char *key;
    json_t *value;
    if (!meta || json_is_null(meta)) return 0;
    if (!json_is_object(meta)) return ERR(FORMAT, "%s: __metadata__ must be an object", what);
    json_object_foreach((json_t *)(uintptr_t)meta, key, value)
    {
        if (!json_is_string(value))
            return ERR(FORMAT, "%s: __metadata__ \"%.200s\" must be a string", what, key);
    }
    return 0;
}

static bool is_tensor(const char *key)
{
    return strcmp(key, "__metadata__") != 0;
}

/* Names move to one block of our own, so that the JSON tree need not live. */
static int take_names(struct safetensors *s, json_t *header)
{
    const char *key;
    json_t *value;
    size_t bytes = 0, n = 0;
    json_object_foreach(header, key, value)
    {
        if (!is_tensor(key)) continue;
        bytes += strlen(key) + 1;
        n++;
    }
    s->text = mem_alloc(bytes);
    s->tensor = mem_array(n, sizeof *s->tensor);
    if (!s->text || !s->tensor) return ERR_NOMEM;
    char *p = s->text;
    json_object_foreach(header, key, value)
    {
        if (!is_tensor(key)) continue;
        s->tensor[s->n++].name = memcpy(p, key, strlen(key) + 1);
        p += strlen(key) + 1;
    }
    return 0;
}

static int take_header(struct safetensors *s, json_t *header, const struct body *body)
{
    if (!json_is_object(header)) return ERR(FORMAT, "%s: the header is not an object", s->what);
    TRY(check_metadata(json_object_get(header, "__metadata__"), s->what));
    TRY(take_names(s, header));
    for (uint32_t i = 0; i < s->n; i++) {
        struct tensor *t = &s->tensor[i];
        TRY(take_entry(json_object_get(header, t->name), s->what, body, t));
    }
    qsort(s->tensor, s->n, sizeof *s->tensor, by_place);
    TRY(check_tiling(s, body));
    return names_build(&s->by_name, s->tensor, s->n, sizeof *s->tensor);
}

static int parse(struct safetensors *s, const uint8_t *data, size_t size)
{
    struct rd r = {.data = data, .size = size, .what = s->what};
    uint64_t n;
    const uint8_t *text;
    json_t *header;
    TRY(rd_u64(&r, "the header length", &n));
    if (n > MAX_HEADER)
        return ERR(FORMAT, "%s: a header of %llu bytes, the limit is %u%s", s->what,
                   (unsigned long long)n, MAX_HEADER, looks_like(data, size));
    TRY(rd_take(&r, n, "the header", &text));
    TRY(json_parse((const char *)text, (size_t)n, s->what, &header));
    struct body body = {.data = data + r.pos, .size = rd_left(&r)};
    int e = take_header(s, header, &body);
    json_decref(header);
    return e;
}

int safetensors_parse(const void *data, size_t n, const char *what, struct safetensors **out)
{
    struct safetensors *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    s->what = mem_strdup(what);
    int e = s->what ? parse(s, data, n) : ERR_NOMEM;
    if (e < 0) {
        safetensors_close(s);
        return e;
    }
    *out = s;
    return 0;
}

int safetensors_open(const char *path, struct safetensors **out)
{
    struct map map;
    struct safetensors *s = NULL;
    TRY(map_open(&map, path));
    int e = safetensors_parse(map.data, map.size, path, &s);
    if (e < 0) {
        map_close(&map);
        return e;
    }
    s->map = map;
    *out = s;
    return 0;
}

void safetensors_close(struct safetensors *s)
{
    if (!s) return;
    names_done(&s->by_name);
    mem_free(s->tensor);
    mem_free(s->text);
    map_close(&s->map);
    mem_free(s->what);
    mem_free(s);
}

int safetensors_recheck(const struct safetensors *s)
{
    return map_check(&s->map, s->what);
}

uint32_t safetensors_count(const struct safetensors *s)
{
    return s->n;
}

const struct tensor *safetensors_at(const struct safetensors *s, uint32_t i)
{
    return i < s->n ? &s->tensor[i] : NULL;
}

const struct tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    return names_find(&s->by_name, name);
}
