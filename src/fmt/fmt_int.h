/* fmt_int.h - what the parsers of this folder share: the checked reader, the size of a tensor, and
 * the sorted index of names.  A parser turns a number of the file into a pointer only through rd_take, and
 * allocates only after the number was compared with the bytes that are left. */
#pragma once
#include "fmt/fmt.h"

#define FMT_MAX_NAME 65535u /* bytes of a tensor name or metadata key */

/* --- A cursor over bytes from outside.  A read that fails is ERR_FORMAT, names the field and the offset, and does
 * not move the cursor. */
struct rd {
    const uint8_t *data;
    size_t size, pos;
    const char *what; /* names the source in errors */
};
size_t rd_left(const struct rd *r);
int rd_take(struct rd *r, uint64_t n, const char *field, const uint8_t **out);
int rd_u32(struct rd *r, const char *field, uint32_t *out);
int rd_u64(struct rd *r, const char *field, uint64_t *out);
/* Reads a count of things that need at least `least` bytes each.  A count that the remaining bytes cannot hold is
 * an error. */
int rd_count(struct rd *r, const char *field, size_t least, uint64_t *out);
/* Reads a 64-bit length and that many bytes; *s points into the file and ends with no NUL. */
int rd_str(struct rd *r, const char *field, const char **s, size_t *n);

/* Read little-endian numbers at any address. */
uint32_t le_u32(const void *p);
uint64_t le_u64(const void *p);

/* Returns the i-th number of metadata of a numeric type or bool. */
double gguf_float_at(enum gguf_type t, const void *data, uint64_t i);

/* Writes the bytes of the whole tensor, from dtype and dims.  False if the innermost dimension is not whole
 * blocks, or if a product overflows.  A dimension of 0 counts as 1 for overflow, so no product that a caller forms
 * from the dims can overflow either. */
bool tensor_size(const struct tensor *t, size_t *out);

/* --- Names: pointers to structs whose first member is `const char *name`, sorted by it. */
struct names {
    const void **at; /* [n] owned */
    uint32_t n;
};
int names_build(struct names *x, const void *base, uint32_t n, size_t stride);
void names_done(struct names *x);
const void *names_find(const struct names *x, const char *name); /* NULL: absent */
const char *names_twice(const struct names *x); /* a name that occurs twice, or NULL */

/* --- The sharded index: {"weight_map": {tensor: file}}.  Every file is a plain name: no directory
 * part, no leading dot, ends in .safetensors. */
struct shard_entry {
    const char *file; /* first, so that names_build sorts by it */
    const char *name;
    uint32_t number; /* of the file */
};
struct shards {
    char *text;                /* owned: all strings */
    struct shard_entry *entry; /* [n] owned, in the order of the map */
    uint32_t n;
    const char **file; /* [n_files] owned, each once */
    uint32_t n_files;
};
int shards_parse(const char *text, size_t n, const char *what, struct shards *out);
void shards_done(struct shards *s);

/* Parses config.json as Python writes it: NaN, Infinity and -Infinity are allowed (read as the text "NaN"
 * and the largest double).  The result is an object. */
int config_parse(const char *text, size_t n, const char *what, json_t **out);

/* --- The .gguf files of a model: one, or the parts that the name of the first leads to. */
struct gguf_parts {
    struct gguf **file; /* [n] owned; the first has the metadata */
    uint32_t n;
};
int gguf_parts_open(const char *path, struct gguf_parts *out);
void gguf_parts_close(struct gguf_parts *x);

/* Returns ERR_IO if the file under the mapping has shrunk since it was opened. */
int safetensors_recheck(const struct safetensors *s);
int gguf_recheck(const struct gguf *g);
struct map;
const struct map *safetensors_map(const struct safetensors *s);
const char *safetensors_path(const struct safetensors *s);
/* Returns what a file that is not a model file looks like (a Git LFS pointer, a web page), or "". */
const char *looks_like(const void *data, size_t n);
