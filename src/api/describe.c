/* describe.c - the public calls that describe models and caches as JSON text, which `kvik inspect` prints. */
#include "generate/describe.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

/* Writes an object as text.  Takes over the reference to the object. */
static int object_text(json_t *o, char **out)
{
    int e = json_text(o, out);
    json_decref(o);
    return e;
}

KVIK_API int kvik_model_describe(const kvik_model *k, char **out)
{
    json_t *o;
    TRY(model_check(k));
    if (!out) return ERR(ARG, "a pointer for the description is needed, and NULL was given");
    JSON_SCOPE(scope);
    TRY(describe_model(k, &o));
    return object_text(o, out);
}

KVIK_API int kvik_model_describe_caches(const kvik_model *k, char **out)
{
    json_t *o;
    TRY(model_check(k));
    if (!out) return ERR(ARG, "a pointer for the description is needed, and NULL was given");
    JSON_SCOPE(scope);
    TRY(describe_caches(k->m, &o));
    return object_text(o, out);
}

/* True if this build runs the architecture. */
static bool supported(const char *name)
{
    for (uint32_t i = 0; name && model_arch_at(i); i++)
        for (const char *const *s = model_arch_at(i)->names; *s; s++)
            if (!strcmp(*s, name)) return true;
    return false;
}

/* Returns the size of all files with weights. */
static uint64_t file_bytes(const struct checkpoint *ck)
{
    uint64_t sum = 0;
    const char *path;
    for (uint32_t i = 0; i < checkpoint_n_files(ck); i++)
        sum += checkpoint_file_at(ck, i, &path)->size;
    return sum;
}

KVIK_API int kvik_model_peek(const char *path, char **out)
{
    struct checkpoint *ck;
    if (!path || !out)
        return ERR(
            ARG,
            "a model path and a pointer for the description are needed, and one of them is NULL");
    TRY(checkpoint_open(path, &ck));
    JSON_SCOPE(scope);
    bool gguf = checkpoint_is_gguf(ck);
    const json_t *config = checkpoint_config(ck);
    const char *arch =
        json_string_value(json_object_get(config, gguf ? "general.architecture" : "model_type"));
    json_t *o =
        json_pack("{s:s, s:s?, s:b, s:I, s:I}", "format", gguf ? "gguf" : "safetensors",
                  "architecture", arch, "supported", supported(arch), "bytes",
                  (json_int_t)checkpoint_bytes(ck), "file_bytes", (json_int_t)file_bytes(ck));
    int e = o ? describe_file(ck, o) : ERR(NOMEM, "out of memory");
    const char *most = json_object_iter_key(json_object_iter(json_object_get(o, "weight_types")));
    if (e >= 0 && json_object_set_new(o, "weights", most ? json_string(most) : json_null()) < 0)
        e = ERR(NOMEM, "out of memory");
    if (e >= 0) e = json_text(o, out);
    json_decref(o);
    checkpoint_close(ck);
    return e;
}

static int by_name(const void *a, const void *b)
{
    const struct arch *const *x = a, *const *y = b;
    return strcmp((*x)->names[0], (*y)->names[0]);
}

KVIK_API int kvik_architectures(char **out)
{
    uint32_t n = 0;
    if (!out) return ERR(ARG, "a pointer for the list is needed, and NULL was given");
    while (model_arch_at(n))
        n++;
    JSON_SCOPE(scope);
    const struct arch **a = mem_array(MAX(n, 1), sizeof *a);
    json_t *list = json_array();
    int e = a && list ? 0 : ERR(NOMEM, "out of memory");
    for (uint32_t i = 0; !e && i < n; i++)
        a[i] = model_arch_at(i);
    if (!e) qsort(a, n, sizeof *a, by_name);
    for (uint32_t i = 0; !e && i < n; i++) {
        json_t *names = json_array();
        for (const char *const *s = a[i]->names; *s; s++)
            json_array_append_new(names, json_string(*s));
        json_array_append_new(list, names);
    }
    if (!e) e = json_text(list, out);
    json_decref(list);
    mem_free(a);
    return e;
}
