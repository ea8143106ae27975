/* safetensors.c - one safetensors file, read.
 *
 *     u64 n   n bytes of JSON {"name": {"dtype", "shape", "data_offsets": [from, to]}, ...}   data
 *
 * The rules are the reference reader's: header of at most 100 MB, entries sorted by offset tile the data exactly
 * (no hole, no overlap, nothing behind the last), size equals shape times dtype, white space around the object and
 * unknown fields allowed.  Stricter than the reference on purpose: duplicate names are refused (the reference
 * reader keeps one of them by accident), and so are NUL bytes in names, entries written as arrays, more than 4
 * dimensions and types kvik has no use for. */
#include "base/map.h"
#include "fmt/fmt_int.h"
#include "fmt/scan.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HEADER  100000000u
#define MAX_TENSORS (1u << 22)

struct safetensors {
    struct map map; /* unused (not mapped) after safetensors_parse */
    char *what;     /* owned: the source in errors */
    char *text;     /* owned: the names and the metadata */
    uint32_t n;
    struct tensor *tensor; /* [n] owned, in the order of the data */
    struct names by_name;
    struct safetensors_note *note; /* [n_notes] owned, as written */
    uint32_t n_notes;
};
struct body {
    const uint8_t *data;
    uint64_t size;
};

static int bad(const char *what, const char *name, const char *why)
{
    return ERR(FORMAT, "%s: tensor \"%.200s\": %s", what, name, why);
}

static int take_dtype(struct scan *j, const char *what, struct tensor *t)
{
    static const char *const known[] = {"I16",     "U16",         "U32",        "U64", "F8_E5M2",
                                        "F8_E4M3", "F8_E8M0",     "F4",         "C64", "F6_E2M3",
                                        "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};
    const char *s;
    TRY(scan_string(j, &s));
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

static int take_shape(struct scan *j, const char *what, struct tensor *t)
{
    bool first = true;
    int e;
    TRY(scan_char(j, '['));
    while ((e = scan_item(j, &first)) == 1) {
        if (t->n_dims == FMT_MAX_DIMS)
            return ERR(UNSUPPORTED, "%s: tensor \"%.200s\" has more than %u dimensions", what,
                       t->name, FMT_MAX_DIMS);
        TRY(scan_u64(j, &t->dim[t->n_dims]));
        t->n_dims++;
    }
    return e;
}

static int take_offsets(struct scan *j, uint64_t place[2])
{
    TRY(scan_char(j, '['));
    TRY(scan_u64(j, &place[0]));
    TRY(scan_char(j, ','));
    TRY(scan_u64(j, &place[1]));
    return scan_char(j, ']');
}

/* Reads one field of an entry.  *seen collects which of the three fields were there. */
static int take_field(struct scan *j, const char *what, const char *key, struct tensor *t,
                      uint64_t place[2], unsigned *seen)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    for (unsigned i = 0; i < countof(fields); i++) {
        if (strcmp(fields[i], key) != 0) continue;
        if (*seen & 1u << i) return scan_error(j, "a field occurs twice");
        *seen |= 1u << i;
        if (i == 0) return take_dtype(j, what, t);
        return i == 1 ? take_shape(j, what, t) : take_offsets(j, place);
    }
    return scan_skip(j);
}

static int place_tensor(const char *what, const struct body *body, const uint64_t place[2],
                        struct tensor *t)
{
    size_t want;
    if (place[0] > place[1] || place[1] > body->size)
        return ERR(FORMAT,
                   "%s: tensor \"%.200s\": bytes %llu to %llu are not inside the data of %llu "
                   "bytes: is the download complete?",
                   what, t->name, (unsigned long long)place[0], (unsigned long long)place[1],
                   (unsigned long long)body->size);
    if (!tensor_size(t, &want))
        return ERR(FORMAT, "%s: tensor \"%.200s\": the size of the shape overflows %zu bytes", what,
                   t->name, (size_t)SIZE_MAX);
    if (place[1] - place[0] != want)
        return ERR(FORMAT,
                   "%s: tensor \"%.200s\" wants %zu bytes by its shape, its offsets span %llu",
                   what, t->name, want, (unsigned long long)(place[1] - place[0]));
    t->data = body->data + place[0];
    t->bytes = want;
    return 0;
}

static int take_entry(struct scan *j, const char *what, const struct body *body, struct tensor *t)
{
    uint64_t place[2];
    unsigned seen = 0;
    const char *key;
    bool first = true;
    int e;
    TRY(scan_char(j, '{'));
    while ((e = scan_key(j, &first, &key)) == 1)
        TRY(take_field(j, what, key, t, place, &seen));
    if (e < 0) return e;
    if (seen != 7) return bad(what, t->name, "dtype, shape or data_offsets is missing");
    return place_tensor(what, body, place, t);
}

/* Reads the metadata, whose values are strings, as the format says, or null. */
static int take_metadata(struct safetensors *s, struct scan *j)
{
    const char *key, *value;
    bool first = true;
    int e;
    if (scan_peek(j) == 'n') return scan_skip(j);
    TRY(scan_char(j, '{'));
    while ((e = scan_key(j, &first, &key)) == 1) {
        TRY(scan_string(j, &value));
        if ((s->n_notes & (s->n_notes + 1)) == 0) { /* full: 0, 1, 3, 7, ... */
            struct safetensors_note *p = mem_grow(s->note, 2 * (size_t)s->n_notes + 1, sizeof *p);
            if (!p) return ERR_NOMEM;
            s->note = p;
        }
        s->note[s->n_notes++] = (struct safetensors_note){key, value};
    }
    return e;
}

static int add_tensor(struct safetensors *s, uint32_t *cap, const char *name)
{
    if (s->n == MAX_TENSORS) return ERR(LIMIT, "%s: more than %u tensors", s->what, MAX_TENSORS);
    if (s->n == *cap) {
        uint32_t grown = *cap ? *cap * 2 : 64;
        struct tensor *t = mem_grow(s->tensor, grown, sizeof *t);
        if (!t) return ERR_NOMEM;
        s->tensor = t;
        *cap = grown;
    }
    s->tensor[s->n++] = (struct tensor){.name = name};
    return 0;
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

static int take_header(struct safetensors *s, struct scan *j, const struct body *body)
{
    const char *key;
    bool first = true, metadata = false;
    uint32_t cap = 0;
    int e;
    TRY(scan_char(j, '{'));
    while ((e = scan_key(j, &first, &key)) == 1) {
        if (strcmp(key, "__metadata__") == 0) {
            if (metadata) return scan_error(j, "__metadata__ occurs twice");
            metadata = true;
            TRY(take_metadata(s, j));
            continue;
        }
        TRY(add_tensor(s, &cap, key));
        TRY(take_entry(j, s->what, body, &s->tensor[s->n - 1]));
    }
    return e < 0 ? e : scan_end(j);
}

static int check_tensors(struct safetensors *s, const struct body *body)
{
    if (s->n) qsort(s->tensor, s->n, sizeof *s->tensor, by_place);
    TRY(names_build(&s->by_name, s->tensor, s->n, sizeof *s->tensor));
    const char *twice = names_twice(&s->by_name);
    if (twice) return bad(s->what, twice, "the name occurs twice");
    return check_tiling(s, body);
}

static int parse(struct safetensors *s, const uint8_t *data, size_t size)
{
    struct rd r = {.data = data, .size = size, .what = s->what};
    struct scan j;
    uint64_t n;
    const uint8_t *text;
    TRY(rd_u64(&r, "the header length", &n));
    if (n > MAX_HEADER)
        return ERR(FORMAT, "%s: a header of %llu bytes, the limit is %u%s", s->what,
                   (unsigned long long)n, MAX_HEADER, looks_like(data, size));
    TRY(rd_take(&r, n, "the header", &text));
    struct body body = {.data = data + r.pos, .size = rd_left(&r)};
    TRY(scan_init(&j, (const char *)text, (size_t)n, s->what));
    int e = take_header(s, &j, &body);
    s->text = j.text; /* names point into this text */
    j.text = NULL;
    scan_done(&j);
    return e < 0 ? e : check_tensors(s, &body);
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
    mem_free(s->note);
    mem_free(s->text);
    map_close(&s->map);
    mem_free(s->what);
    mem_free(s);
}

int safetensors_recheck(const struct safetensors *s)
{
    return map_check(&s->map, s->what);
}

const struct map *safetensors_map(const struct safetensors *s)
{
    return &s->map;
}

const char *safetensors_path(const struct safetensors *s)
{
    return s->what;
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

const char *safetensors_metadata(const struct safetensors *s, const char *key)
{
    for (uint32_t i = 0; i < s->n_notes; i++)
        if (strcmp(s->note[i].key, key) == 0) return s->note[i].value;
    return NULL;
}
