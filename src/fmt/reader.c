/* reader.c - the checked reader under every parser of model files.  A number of the file is compared with the
 * bytes that are really there before it serves as a size, a count or an index.  Sizes have 64 bits until that
 * comparison, so nothing is truncated before it. */
#include "fmt/fmt_int.h"

#include <string.h>

size_t rd_left(const struct rd *r)
{
    return r->size - r->pos;
}

int rd_take(struct rd *r, uint64_t n, const char *field, const uint8_t **out)
{
    if (n > rd_left(r))
        return ERR(FORMAT, "%s: byte %zu: %.200s needs %llu bytes, the file has %zu left", r->what,
                   r->pos, field, (unsigned long long)n, rd_left(r));
    *out = r->data + r->pos;
    r->pos += (size_t)n;
    return 0;
}

uint32_t le_u32(const void *p)
{
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint64_t le_u64(const void *p)
{
    return le_u32(p) | (uint64_t)le_u32((const uint8_t *)p + 4) << 32;
}

int rd_u32(struct rd *r, const char *field, uint32_t *out)
{
    const uint8_t *p;
    TRY(rd_take(r, 4, field, &p));
    *out = le_u32(p);
    return 0;
}

int rd_u64(struct rd *r, const char *field, uint64_t *out)
{
    const uint8_t *p;
    TRY(rd_take(r, 8, field, &p));
    *out = le_u64(p);
    return 0;
}

int rd_count(struct rd *r, const char *field, size_t least, uint64_t *out)
{
    struct rd at = *r;
    uint64_t n;
    TRY(rd_u64(&at, field, &n));
    if (n > rd_left(&at) / least)
        return ERR(FORMAT, "%s: byte %zu: %.200s is %llu, the file has only %zu bytes left",
                   r->what, r->pos, field, (unsigned long long)n, rd_left(&at));
    *r = at;
    *out = n;
    return 0;
}

int rd_str(struct rd *r, const char *field, const char **s, size_t *n)
{
    struct rd at = *r;
    const uint8_t *p;
    uint64_t len;
    TRY(rd_u64(&at, field, &len));
    TRY(rd_take(&at, len, field, &p));
    *r = at;
    *s = (const char *)p;
    *n = (size_t)len;
    return 0;
}

bool tensor_size(const struct tensor *t, size_t *out)
{
    uint64_t inner = t->n_dims ? t->dim[t->n_dims - 1] : 1;
    bool empty = inner == 0;
    size_t bytes;
    if (!dtype_bytes(t->dtype, empty ? dtype_block(t->dtype) : inner, &bytes)) return false;
    for (uint32_t i = 0; i + 1 < t->n_dims; i++) {
        empty = empty || t->dim[i] == 0;
        if (!ck_mul(bytes, MAX(t->dim[i], 1u), &bytes)) return false;
    }
    *out = empty ? 0 : bytes;
    return true;
}

const char *looks_like(const void *data, size_t n)
{
    static const struct {
        const char *start, *text;
    } known[] = {
        {"version https://git-lfs", " (this is a Git LFS pointer: run `git lfs pull`)"},
        {"<!DOCTYPE", " (this is a web page: download the file itself)"},
        {"<html", " (this is a web page: download the file itself)"},
        {"PK\x03\x04", " (this is a zip archive, perhaps a pickle checkpoint)"},
        {"GGUF", " (this is a GGUF file)"},
    };
    for (size_t i = 0; i < countof(known); i++) {
        size_t k = strlen(known[i].start);
        if (n >= k && memcmp(data, known[i].start, k) == 0) return known[i].text;
    }
    return "";
}
