/* fmt.h - floor 1: model files.  Everything is validated against the real file size before any
 * tensor is handed out; tensors are borrowed from the mapping and live as long as their file. */
#pragma once
#include "base/base.h"
#include "base/dtype.h"
#include "base/json.h"

#define FMT_MAX_DIMS 4u
struct tensor {
    const char *name;
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t dim[FMT_MAX_DIMS]; /* outermost first (the order of Hugging Face, also for GGUF) */
    const void *data;           /* may be unaligned in safetensors files */
    size_t bytes;
};

/* --- safetensors: one file.  Header <= 100 MB, entries tile the buffer, duplicates rejected. */
struct safetensors;
int safetensors_open(const char *path, struct safetensors **out);
int safetensors_parse(const void *data, size_t n, const char *what, struct safetensors **out);
void safetensors_close(struct safetensors *s);
uint32_t safetensors_count(const struct safetensors *s);
const struct tensor *safetensors_at(const struct safetensors *s, uint32_t i);
const struct tensor *safetensors_find(const struct safetensors *s, const char *name);
struct safetensors_note {
    const char *key, *value;
};
/* Returns a text of the file's metadata, or NULL. */
const char *safetensors_metadata(const struct safetensors *s, const char *key);
/* Writes a file whole or not at all; names unique. */
int safetensors_write(const char *path, const struct tensor *t, uint32_t n);
int safetensors_write_noted(const char *path, const struct tensor *t, uint32_t n,
                            const struct safetensors_note *note, uint32_t n_notes);

/* --- GGUF v2/v3, little endian: one file, which may be one of the parts of a model. */
struct gguf;
/* The file's own numbers. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};
struct gguf_value {
    const char *key;
    enum gguf_type type, item; /* item: element type of an array */
    uint64_t n;                /* elements of an array, bytes of a string, else 1 */
    const void *data;          /* scalars and numeric arrays: unaligned little-endian bytes */
};
int gguf_open(const char *path, struct gguf **out);
int gguf_parse(const void *data, size_t n, const char *what, struct gguf **out);
void gguf_close(struct gguf *g);
uint32_t gguf_n_values(const struct gguf *g);
const struct gguf_value *gguf_value_at(const struct gguf *g, uint32_t i);
const struct gguf_value *gguf_get(const struct gguf *g, const char *key); /* NULL: absent */
/* Typed getters: 0 absent, 1 present, ERR_FORMAT wrong type or out of range.  Integers may be stored
 * as any integer type, f64 as any number; NaN and infinities are out of range. */
int gguf_get_u32(const struct gguf *g, const char *key, uint32_t min, uint32_t max, uint32_t *out);
int gguf_get_f64(const struct gguf *g, const char *key, double *out);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out);
/* Sets *s to bytes in the mapping, which end with no NUL. */
int gguf_get_str(const struct gguf *g, const char *key, const char **s, size_t *n);
/* Finds the i-th item of a string array in O(1) (offsets are indexed at open). */
int gguf_string_at(const struct gguf_value *v, const struct gguf *g, uint64_t i, const char **s,
                   size_t *n);
double gguf_number_at(const struct gguf_value *v, uint64_t i); /* numeric or bool array item */
/* Returns scalars and arrays of at most 64 items as one flat object, without the arrays of the tokenizer.
 * Values that JSON cannot hold (NaN, bytes that are not UTF-8) become null. */
int gguf_json(const struct gguf *g, json_t **out);
/* Returns the name of the file's mix of types, such as "Q4_K_M", or NULL if the file does not name one. */
const char *gguf_file_type(const struct gguf *g);
uint32_t gguf_n_tensors(const struct gguf *g);
const struct tensor *gguf_tensor_at(const struct gguf *g, uint32_t i);
const struct tensor *gguf_find(const struct gguf *g, const char *name);

/* Returns the mapping of the file and writes its path.  After gguf_parse nothing is mapped. */
struct map;
const struct map *gguf_map(const struct gguf *g, const char **path);

/* --- checkpoint: a Hugging Face directory (config.json, model.safetensors or a sharded index,
 * generation_config.json optional) or a .gguf file, or the first of its parts.  A directory without weights opens too (tokenizer
 * tools need none); n_tensors is 0 then. */
struct checkpoint;
int checkpoint_open(const char *path, struct checkpoint **out);
void checkpoint_close(struct checkpoint *c);
/* Replaces the types and data of tensors by those of the tensors of the same names in a GGUF file.  The file is an
 * entry of the user's cache directory, or lies in memory.  Shapes may be transposed in their last two dimensions.
 * On success the checkpoint owns entry (or memory).  After a failure the caller still owns it, and the checkpoint
 * is unchanged. */
struct cache_entry;
int checkpoint_adopt(struct checkpoint *c, const struct cache_entry *entry, void *memory, size_t n);
/* Returns the bytes of the adopted tensors, 0 if there are none, and their entry, which is NULL if they lie in
 * memory. */
size_t checkpoint_adopted(const struct checkpoint *c, const struct cache_entry **entry);
/* Returns ERR_IO if a mapped file has become shorter since it was opened.  Reading the lost pages would raise
 * SIGBUS, so a long-lived program calls this before each turn. */
int checkpoint_recheck(const struct checkpoint *c);
/* Returns the mapping of the i-th file with weights, and writes its path. */
uint32_t checkpoint_n_files(const struct checkpoint *c); /* an adopted entry is the last */
const struct map *checkpoint_file_at(const struct checkpoint *c, uint32_t i, const char **path);
const char *checkpoint_path(const struct checkpoint *c);
bool checkpoint_is_gguf(const struct checkpoint *c);
/* Returns the file, or the first of its parts; NULL for a directory.  Only the metadata are those of the whole model. */
const struct gguf *checkpoint_gguf(const struct checkpoint *c);
/* Returns the configuration.  Of a directory: config.json (NULL if absent; an object; Python's Infinity reads as the largest double,
 * NaN as the text "NaN").  GGUF: the scalar and small-array metadata as one flat
 * object {"general.architecture": "llama", "llama.block_count": 30, ...}; tokenizer arrays left out. */
const json_t *checkpoint_config(const struct checkpoint *c);
const json_t *checkpoint_generation_config(const struct checkpoint *c); /* NULL if absent */
uint32_t checkpoint_n_tensors(const struct checkpoint *c);
const struct tensor *checkpoint_tensor_at(const struct checkpoint *c, uint32_t i);
const struct tensor *checkpoint_find(const struct checkpoint *c, const char *name);
size_t checkpoint_bytes(const struct checkpoint *c); /* of all tensors */
