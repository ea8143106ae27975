/* checkpoint.c - opens a model, which is either a Hugging Face directory or a .gguf file, behind one interface.
 *
 * The tensors of a checkpoint are copies of the descriptions in its files, indexed by name across all shards.
 * Their names and data stay borrowed from those files. */
#include "base/buf.h"
#include "base/file.h"
#include "base/user_cache.h"
#include "fmt/fmt_int.h"

#include <string.h>

#define MAX_CONFIG ((size_t)4 << 20)
#define MAX_INDEX  ((size_t)100 << 20)

struct checkpoint {
    char *path;                /* owned */
    struct gguf_parts gguf;    /* owned; n is 0 for a directory */
    struct safetensors **file; /* [n_files] owned */
    uint32_t n_files;
    json_t *config, *generation; /* owned; NULL if absent */
    struct tensor *tensor;       /* [n_tensors] owned, contents borrowed */
    uint32_t n_tensors;
    struct names by_name;
    size_t bytes;
    struct gguf *adopted; /* owned: tensors that replace those of the files, or NULL */
    /* owned: the entry that holds the adopted tensors; or, without an entry, the memory that holds them */
    struct cache_entry entry;
    void *memory;
};

/* Returns the path dir/name, which the caller frees (mem_free). */
static char *join_path(const char *dir, const char *name)
{
    struct buf b;
    buf_init(&b, 65536);
    char *p = buf_printf(&b, "%s/%s", dir, name) == 0 ? buf_take(&b) : NULL;
    if (!p) buf_done(&b);
    return p;
}

static int has(const char *dir, const char *name, bool *out)
{
    char *path = join_path(dir, name);
    if (!path) return ERR_NOMEM;
    *out = path_exists(path);
    mem_free(path);
    return 0;
}

/* Reads dir/name if it is there; *out stays NULL otherwise. */
static int read_json(const char *dir, const char *name, json_t **out)
{
    char *text, *path = join_path(dir, name);
    size_t n;
    int e = 0;
    if (!path) return ERR_NOMEM;
    if (path_exists(path)) {
        e = file_read(path, MAX_CONFIG, &text, &n);
        if (e == ERR_NOTFOUND) {
            e = 0; /* the file was removed after the test */
        } else if (e == 0) {
            e = config_parse(text, n, path, out);
            mem_free(text);
        }
    }
    mem_free(path);
    return e;
}

static int add_file(struct checkpoint *c, const char *name)
{
    char *path = join_path(c->path, name);
    if (!path) return ERR_NOMEM;
    int e = safetensors_open(path, &c->file[c->n_files]);
    mem_free(path);
    if (e < 0) return e;
    c->n_files++;
    return 0;
}

static int index_tensors(struct checkpoint *c)
{
    for (uint32_t i = 0; i < c->n_tensors; i++)
        if (!ck_add(c->bytes, c->tensor[i].bytes, &c->bytes))
            return ERR(FORMAT, "%s: the sizes of all %u tensors overflow %zu bytes", c->path,
                       c->n_tensors, (size_t)SIZE_MAX);
    TRY(names_build(&c->by_name, c->tensor, c->n_tensors, sizeof *c->tensor));
    const char *twice = names_twice(&c->by_name);
    if (twice) return ERR(FORMAT, "%s: tensor \"%.200s\" occurs twice", c->path, twice);
    return 0;
}

static int open_single(struct checkpoint *c)
{
    c->file = mem_array(1, sizeof(struct safetensors *));
    if (!c->file) return ERR_NOMEM;
    TRY(add_file(c, "model.safetensors"));
    uint32_t n = safetensors_count(c->file[0]);
    c->tensor = mem_array(n, sizeof *c->tensor);
    if (!c->tensor) return ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        c->tensor[i] = *safetensors_at(c->file[0], i);
    c->n_tensors = n;
    return index_tensors(c);
}

/* Collects the tensors of the weight map, each from the file that the map names for it. */
static int open_shards(struct checkpoint *c, const struct shards *s)
{
    c->file = mem_array(s->n_files, sizeof(struct safetensors *));
    c->tensor = mem_array(s->n, sizeof *c->tensor);
    if (!c->file || !c->tensor) return ERR_NOMEM;
    for (uint32_t i = 0; i < s->n_files; i++) {
        int e = add_file(c, s->file[i]);
        if (e == ERR_NOTFOUND)
            return ERR(
                NOTFOUND,
                "%s: %.200s, one of %u files named by the index, is missing: download it too",
                c->path, s->file[i], s->n_files);
        if (e < 0) return e;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const struct shard_entry *at = &s->entry[i];
        const struct tensor *t = safetensors_find(c->file[at->number], at->name);
        if (!t)
            return ERR(FORMAT,
                       "%s: the index puts tensor \"%.200s\" into %.200s, which does not hold it",
                       c->path, at->name, at->file);
        c->tensor[c->n_tensors++] = *t;
    }
    return index_tensors(c);
}

static int open_index(struct checkpoint *c)
{
    char *text, *path = join_path(c->path, "model.safetensors.index.json");
    struct shards s;
    size_t n;
    if (!path) return ERR_NOMEM;
    int e = file_read(path, MAX_INDEX, &text, &n);
    if (e == 0) {
        e = shards_parse(text, n, path, &s);
        mem_free(text);
    }
    mem_free(path);
    if (e < 0) return e;
    e = open_shards(c, &s);
    shards_done(&s);
    return e;
}

static int refuse_empty(const char *dir)
{
    static const char *const any[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    for (size_t i = 0; i < countof(any); i++) {
        bool there;
        TRY(has(dir, any[i], &there));
        if (there) return 0;
    }
    return ERR(NOTFOUND,
               "%s: not a model: a model directory holds config.json, model.safetensors (or "
               "model.safetensors.index.json and its files) and tokenizer.json",
               dir);
}

/* Refuses pickled weights: reading a pickle can run code that it contains. */
static int refuse_pickle(const char *dir)
{
    static const char *const name[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    for (size_t i = 0; i < countof(name); i++) {
        bool there;
        TRY(has(dir, name[i], &there));
        if (there)
            return ERR(
                UNSUPPORTED,
                "%s has only %s, and kvik reads safetensors; convert it once with "
                "Transformers: python3 -c \"from transformers import AutoModelForCausalLM as "
                "M; M.from_pretrained('%s').save_pretrained('%s', safe_serialization=True)\"",
                dir, name[i], dir, dir);
    }
    return 0;
}

static int open_dir(struct checkpoint *c)
{
    bool single, sharded;
    TRY(has(c->path, "model.safetensors", &single));
    TRY(has(c->path, "model.safetensors.index.json", &sharded));
    if (!single && !sharded) TRY(refuse_pickle(c->path));
    if (!single && !sharded) TRY(refuse_empty(c->path));
    TRY(read_json(c->path, "config.json", &c->config));
    TRY(read_json(c->path, "generation_config.json", &c->generation));
    if (single) return open_single(c);
    if (sharded) return open_index(c);
    return index_tensors(c);
}

static int open_gguf(struct checkpoint *c)
{
    size_t n = 0;
    TRY(gguf_parts_open(c->path, &c->gguf));
    TRY(gguf_json(c->gguf.file[0], &c->config));
    for (uint32_t i = 0; i < c->gguf.n; i++)
        n += gguf_n_tensors(c->gguf.file[i]);
    if (n > UINT32_MAX) return ERR(LIMIT, "%s: %zu tensors in all parts", c->path, n);
    c->tensor = mem_array(n, sizeof *c->tensor);
    if (!c->tensor) return ERR_NOMEM;
    for (uint32_t i = 0; i < c->gguf.n; i++)
        for (uint32_t k = 0; k < gguf_n_tensors(c->gguf.file[i]); k++)
            c->tensor[c->n_tensors++] = *gguf_tensor_at(c->gguf.file[i], k);
    return index_tensors(c);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

static int open_any(struct checkpoint *c)
{
    if (dir_exists(c->path)) return open_dir(c);
    if (ends_with(c->path, ".safetensors") || ends_with(c->path, ".json"))
        return ERR(ARG, "%s: one file of a model: give the directory that holds it", c->path);
    int e = open_gguf(c);
    if (e == ERR_NOTFOUND && !path_exists(c->path))
        return ERR(NOTFOUND,
                   "%s: no such file or directory: give a Hugging Face model directory or a .gguf "
                   "file",
                   c->path);
    return e;
}

int checkpoint_open(const char *path, struct checkpoint **out)
{
    struct checkpoint *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    c->path = mem_strdup(path);
    int e = c->path ? open_any(c) : ERR_NOMEM;
    if (e == 0) e = checkpoint_recheck(c);
    if (e < 0) {
        checkpoint_close(c);
        return e;
    }
    *out = c;
    return 0;
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c) return;
    names_done(&c->by_name);
    mem_free(c->tensor);
    for (uint32_t i = 0; i < c->n_files; i++)
        safetensors_close(c->file[i]);
    mem_free(c->file);
    gguf_parts_close(&c->gguf);
    gguf_close(c->adopted);
    cache_entry_close(&c->entry);
    mem_free(c->memory);
    json_decref(c->config);
    json_decref(c->generation);
    mem_free(c->path);
    mem_free(c);
}

int checkpoint_recheck(const struct checkpoint *c)
{
    for (uint32_t i = 0; i < c->gguf.n; i++)
        TRY(gguf_recheck(c->gguf.file[i]));
    for (uint32_t i = 0; i < c->n_files; i++)
        TRY(safetensors_recheck(c->file[i]));
    return c->entry.path ? map_check(&c->entry.map, c->entry.path) : 0;
}

/* Returns the checkpoint's tensor of the same name and shape (or transposed shape), or NULL. */
static struct tensor *place_of(struct checkpoint *c, const struct tensor *t)
{
    struct tensor *old = (struct tensor *)(uintptr_t)names_find(&c->by_name, t->name);
    if (!old || old->n_dims != t->n_dims || t->n_dims < 2) return NULL;
    uint32_t n = t->n_dims - 2;
    for (uint32_t i = 0; i < n; i++)
        if (old->dim[i] != t->dim[i]) return NULL;
    bool same = old->dim[n] == t->dim[n] && old->dim[n + 1] == t->dim[n + 1];
    bool turned = old->dim[n] == t->dim[n + 1] && old->dim[n + 1] == t->dim[n];
    return same || turned ? old : NULL;
}

int checkpoint_adopt(struct checkpoint *c, const struct cache_entry *entry, void *memory, size_t n)
{
    struct gguf *g;
    TRY(gguf_parse(entry ? entry->map.data : memory, entry ? entry->size : n, c->path, &g));
    for (uint32_t i = 0; i < gguf_n_tensors(g); i++)
        if (!place_of(c, gguf_tensor_at(g, i))) {
            gguf_close(g);
            return ERR(FORMAT, "%s: the quantized tensors are those of another model", c->path);
        }
    for (uint32_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        struct tensor *old = place_of(c, t);
        const char *name = old->name;
        c->bytes -= old->bytes;
        *old = *t;
        old->name = name;
        c->bytes += old->bytes;
    }
    c->adopted = g;
    if (entry) c->entry = *entry;
    c->memory = entry ? NULL : memory;
    return 0;
}

size_t checkpoint_adopted(const struct checkpoint *c, const struct cache_entry **entry)
{
    size_t bytes = 0;
    *entry = c->entry.path ? &c->entry : NULL;
    for (uint32_t i = 0; c->adopted && i < gguf_n_tensors(c->adopted); i++)
        bytes += gguf_tensor_at(c->adopted, i)->bytes;
    return bytes;
}

uint32_t checkpoint_n_files(const struct checkpoint *c)
{
    return c->gguf.n + c->n_files + (c->entry.path != NULL);
}

const struct map *checkpoint_file_at(const struct checkpoint *c, uint32_t i, const char **path)
{
    if (c->entry.path && i + 1 == checkpoint_n_files(c)) {
        *path = c->entry.path;
        return &c->entry.map;
    }
    if (c->gguf.n) return gguf_map(c->gguf.file[i], path);
    *path = safetensors_path(c->file[i]);
    return safetensors_map(c->file[i]);
}

const char *checkpoint_path(const struct checkpoint *c)
{
    return c->path;
}

bool checkpoint_is_gguf(const struct checkpoint *c)
{
    return c->gguf.n > 0;
}

const struct gguf *checkpoint_gguf(const struct checkpoint *c)
{
    return c->gguf.n ? c->gguf.file[0] : NULL;
}

const json_t *checkpoint_config(const struct checkpoint *c)
{
    return c->config;
}

const json_t *checkpoint_generation_config(const struct checkpoint *c)
{
    return c->generation;
}

uint32_t checkpoint_n_tensors(const struct checkpoint *c)
{
    return c->n_tensors;
}

const struct tensor *checkpoint_tensor_at(const struct checkpoint *c, uint32_t i)
{
    return i < c->n_tensors ? &c->tensor[i] : NULL;
}

const struct tensor *checkpoint_find(const struct checkpoint *c, const char *name)
{
    return names_find(&c->by_name, name);
}

size_t checkpoint_bytes(const struct checkpoint *c)
{
    return c->bytes;
}
