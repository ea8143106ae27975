/* gguf_parts.c - a model in several .gguf files, NAME-00001-of-00003.gguf: each says which part it is and of how many
 * (split.no, from 0, and split.count), the first has the metadata, and every tensor is in one of them.  Only the number
 * in the name is changed to find the others, so a file cannot name files of another directory. */
#include "fmt/fmt_int.h"

#include <stdio.h>
#include <string.h>

#define MAX_PARTS 4096u
#define TAIL      20u /* bytes of "-00001-of-00003.gguf" */

/* Which part of how many a file is; 0 of 1 for a model in one file. */
struct part_number {
    uint32_t no, count, n_tensors; /* n_tensors: of all parts; 0: not given */
};

static int place_of(const struct gguf *g, const char *path, struct part_number *p)
{
    *p = (struct part_number){.count = 1};
    int e = gguf_get_u32(g, "split.count", 0, UINT32_MAX, &p->count);
    if (e < 0) return e;
    if (p->count <= 1) {
        p->count = 1;
        return 0;
    }
    if (p->count > MAX_PARTS)
        return ERR(LIMIT, "%s: one of %u parts; the limit is %u", path, p->count, MAX_PARTS);
    e = gguf_get_u32(g, "split.no", 0, p->count - 1, &p->no);
    if (e == 0) return ERR(FORMAT, "%s: split.no is missing", path);
    if (e > 0) e = gguf_get_u32(g, "split.tensors.count", 0, INT32_MAX, &p->n_tensors);
    return e < 0 ? e : 0;
}

/* Writes the end of a part's name, with a NUL. */
static void tail_of(uint32_t no, uint32_t count, char out[TAIL + 1])
{
    char text[40];
    snprintf(text, sizeof text, "-%05u-of-%05u.gguf", no + 1, count);
    memcpy(out, text, TAIL);
    out[TAIL] = 0;
}

/* Opens one of the other parts, and refuses one that does not say that it is this part. */
static int open_part(const char *path, uint32_t no, uint32_t count, struct gguf **out)
{
    struct part_number p;
    *out = NULL;
    int e = gguf_open(path, out);
    if (e == ERR_NOTFOUND)
        return ERR(NOTFOUND, "%s, part %u of %u, is missing: download it too", path, no + 1, count);
    if (e < 0) return e;
    TRY(place_of(*out, path, &p));
    if (p.no == no && p.count == count) return 0;
    return ERR(FORMAT, "%s is part %u of %u by its name, and part %u of %u by its contents", path,
               no + 1, count, p.no + 1, p.count);
}

/* Opens all parts behind the first.  tail: the end of its name, in a copy. */
static int open_others(const char *path, char *tail, const struct part_number *of,
                       struct gguf_parts *x)
{
    uint64_t tensors = gguf_n_tensors(x->file[0]);
    for (; x->n < of->count; x->n++) {
        tail_of(x->n, of->count, tail);
        int e = open_part(path, x->n, of->count, &x->file[x->n]);
        if (e < 0) {
            gguf_close(x->file[x->n]);
            return e;
        }
        tensors += gguf_n_tensors(x->file[x->n]);
    }
    if (of->n_tensors && tensors != of->n_tensors)
        return ERR(FORMAT, "%s: %u parts with %llu tensors, and the first says %u", path, of->count,
                   (unsigned long long)tensors, of->n_tensors);
    return 0;
}

/* Refuses a first file whose name does not lead to the others, or that is not the first part. */
static int check_first(const char *path, char *tail, const struct part_number *of)
{
    char own[TAIL + 1];
    tail_of(of->no, of->count, own);
    if (!tail || strcmp(tail, own) != 0)
        return ERR(ARG, "%s: part %u of %u, whose name must end with %s", path, of->no + 1,
                   of->count, own);
    if (of->no == 0) return 0;
    tail_of(0, of->count, tail);
    return ERR(ARG, "part %u of %u of a model: give the first, %s", of->no + 1, of->count, path);
}

static int open_parts(const char *path, const struct part_number *of, struct gguf_parts *x)
{
    char *name = mem_strdup(path);
    if (!name) return ERR_NOMEM;
    size_t n = strlen(name);
    char *tail = n > TAIL ? name + n - TAIL : NULL;
    int e = check_first(name, tail, of);
    struct gguf **grown = e < 0 ? NULL : mem_grow(x->file, of->count, sizeof(struct gguf *));
    if (grown) x->file = grown;
    if (e >= 0) e = grown ? open_others(name, tail, of, x) : ERR_NOMEM;
    mem_free(name);
    return e;
}

int gguf_parts_open(const char *path, struct gguf_parts *out)
{
    struct gguf_parts x = {0};
    struct part_number of;
    x.file = mem_array(1, sizeof(struct gguf *));
    if (!x.file) return ERR_NOMEM;
    int e = gguf_open(path, &x.file[0]);
    if (e >= 0) {
        x.n = 1;
        e = place_of(x.file[0], path, &of);
        if (e >= 0 && of.count > 1) e = open_parts(path, &of, &x);
    }
    if (e < 0) {
        gguf_parts_close(&x);
        return e;
    }
    *out = x;
    return 0;
}

void gguf_parts_close(struct gguf_parts *x)
{
    for (uint32_t i = 0; i < x->n; i++)
        gguf_close(x->file[i]);
    mem_free(x->file);
    *x = (struct gguf_parts){0};
}
