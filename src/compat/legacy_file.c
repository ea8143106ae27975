/* legacy_file.c - the legacy form as a safetensors file, for exchange with other programs.
 *
 *     layers.N.keys, layers.N.values   F32 [batch][heads][tokens][dim]
 *     cross.layers.N.keys, .values     the same of an encoder's rows, if the model has an encoder
 *     encoder_mask                     U8  [batch][encoder rows]
 *     attention_mask                   U8  [batch][length]     absent: every column is a token
 *     input_ids                        I32 [batch][length]     absent, or -1: not known
 *     __metadata__                     format, length, model, fingerprint and weights (digests of the model)
 *
 * Loading checks that the file is consistent; the import checks that it fits the model.  Only keys and values are
 * mandatory, because files of other programs have nothing else. */
#include "base/digest.h"
#include "compat/padded.h"
#include "fmt/fmt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_NAME "kvik legacy cache 1"
enum { NAME = 40 };

static struct tensor cells(const kvik_legacy *l, const char *name, enum dtype type,
                           const void *data)
{
    size_t n = (size_t)l->batch * l->length;
    return (struct tensor){.name = name,
                           .dtype = type,
                           .n_dims = 2,
                           .dim = {l->batch, l->length},
                           .data = data,
                           .bytes = n * dtype_size(type)};
}

static struct tensor plane(const kvik_legacy *l, const kvik_legacy_layer *y, bool values,
                           const char *name)
{
    uint32_t dim = values ? y->dim_v : y->dim_k;
    size_t n = (size_t)l->batch * y->heads * y->tokens * dim;
    return (struct tensor){.name = name,
                           .dtype = DT_F32,
                           .n_dims = 4,
                           .dim = {l->batch, y->heads, y->tokens, dim},
                           .data = values ? y->values : y->keys,
                           .bytes = n * sizeof(float)};
}

KVIK_API int kvik_legacy_save(const kvik_legacy *given, const kvik_model *m, const char *path)
{
    kvik_legacy full = {0}, *l = &full;
    struct model_digests mine = {0};
    char length[16];
    uint32_t k = 0;
    if (m) TRY(model_check(m));
    if (!given || !path) return ERR(ARG, "saving the legacy form needs keys, values and a path");
    TRY(SIZED_IN(&full, given, kvik_legacy));
    if (!l->layer) return ERR(ARG, "saving the legacy form needs keys, values and a path");
    struct tensor *t = mem_array(4 * (size_t)l->n_layers + 3, sizeof *t);
    char *name = mem_array(4 * (size_t)l->n_layers, NAME);
    int e = t && name ? 0 : ERR_NOMEM;
    for (uint32_t i = 0; e >= 0 && i < 2 * l->n_layers; i++) {
        char *s = name + (size_t)i * NAME;
        snprintf(s, NAME, "layers.%u.%s", i / 2, i % 2 ? "values" : "keys");
        t[k++] = plane(l, &l->layer[i / 2], i % 2, s);
    }
    for (uint32_t i = 0; l->cross && e >= 0 && i < 2 * l->n_layers; i++) {
        char *s = name + (2 * (size_t)l->n_layers + i) * NAME;
        snprintf(s, NAME, "cross.layers.%u.%s", i / 2, i % 2 ? "values" : "keys");
        t[k++] = plane(l, &l->cross[i / 2], i % 2, s);
    }
    if (e >= 0 && l->cross && l->encoder_mask) {
        t[k] = cells(l, "encoder_mask", DT_U8, l->encoder_mask);
        t[k].dim[1] = l->encoder_length;
        t[k++].bytes = l->batch * l->encoder_length;
    }
    if (e >= 0 && l->attention_mask) t[k++] = cells(l, "attention_mask", DT_U8, l->attention_mask);
    if (e >= 0 && l->ids) t[k++] = cells(l, "input_ids", DT_I32, l->ids);
    if (e >= 0 && m) e = model_digests(m->m, 0, &mine);
    snprintf(length, sizeof length, "%u", l->length);
    const struct safetensors_note note[] = {{"format", FORMAT_NAME},
                                            {"length", length},
                                            {"model", m ? m->m->arch_name : ""},
                                            {"fingerprint", mine.fingerprint},
                                            {"weights", mine.weights}};
    if (e >= 0) e = safetensors_write_noted(path, t, k, note, m ? countof(note) : 2);
    mem_free(t);
    mem_free(name);
    return e;
}

static int bad(const char *what, const char *name, const char *why)
{
    return ERR(FORMAT, "%s: %s: %s", what, name, why);
}

/* Finds the keys or values of layer i and checks their type and shape. */
static int find_plane(const struct safetensors *s, const char *what, const kvik_legacy *l,
                      const char *of, uint32_t i, bool values, const struct tensor **out)
{
    char name[NAME];
    snprintf(name, sizeof name, "%slayers.%u.%s", of, i, values ? "values" : "keys");
    const struct tensor *t = safetensors_find(s, name);
    if (!t) return bad(what, name, "the tensor is missing");
    if (t->dtype != DT_F32 || t->n_dims != 4)
        return bad(what, name, "keys and values must be F32 of four dimensions");
    for (uint32_t d = 0; d < 4; d++)
        if (t->dim[d] > UINT32_MAX)
            return ERR(FORMAT, "%s: %s: dimension %u is %llu, the limit is %u", what, name, d,
                       (unsigned long long)t->dim[d], UINT32_MAX);
    if (!t->dim[0] || (l->batch && t->dim[0] != l->batch))
        return bad(what, name, "the tensors have batches of different sizes");
    *out = t;
    return 0;
}

static int load_layer(const struct safetensors *s, const char *what, kvik_legacy *l, const char *of,
                      uint32_t i)
{
    const struct tensor *k, *v;
    kvik_legacy_layer *y = *of ? &l->cross[i] : &l->layer[i];
    TRY(find_plane(s, what, l, of, i, false, &k));
    TRY(find_plane(s, what, l, of, i, true, &v));
    if (k->dim[1] != v->dim[1] || k->dim[2] != v->dim[2])
        return ERR(FORMAT, "%s: layer %u: keys and values differ in heads or tokens", what, i);
    *y = (kvik_legacy_layer){.heads = (uint32_t)k->dim[1],
                             .tokens = (uint32_t)k->dim[2],
                             .dim_k = (uint32_t)k->dim[3],
                             .dim_v = (uint32_t)v->dim[3]};
    TRY(legacy_layer_new(l, y));
    memcpy(y->keys, k->data, k->bytes);
    memcpy(y->values, v->data, v->bytes);
    return 0;
}

/* Finds a tensor [batch][length]; returns 1, or 0 if the file has none. */
static int find_cells(const struct safetensors *s, const char *what, const char *name,
                      enum dtype type, const kvik_legacy *l, const struct tensor **out)
{
    const struct tensor *t = safetensors_find(s, name);
    if (!t) return 0;
    if (t->dtype != type || t->n_dims != 2 || t->dim[0] != l->batch || t->dim[1] != l->length)
        return ERR(FORMAT, "%s: %s: %s [%u][%u] is expected", what, name, dtype_name(type),
                   l->batch, l->length);
    *out = t;
    return 1;
}

static int load_cells(const struct safetensors *s, const char *what, kvik_legacy *l)
{
    const struct tensor *t;
    int e = find_cells(s, what, "attention_mask", DT_U8, l, &t);
    if (e < 0) return e;
    if (e) {
        l->attention_mask = mem_alloc(t->bytes);
        if (!l->attention_mask) return ERR_NOMEM;
        memcpy(l->attention_mask, t->data, t->bytes);
    }
    TRY(e = find_cells(s, what, "input_ids", DT_I32, l, &t));
    if (e) {
        l->ids = mem_alloc(t->bytes);
        if (!l->ids) return ERR_NOMEM;
        memcpy(l->ids, t->data, t->bytes);
    }
    return 0;
}

/* Loads the rows of an encoder, if the file has any. */
static int load_cross(const struct safetensors *s, const char *what, kvik_legacy *l)
{
    if (!safetensors_find(s, "cross.layers.0.keys")) return 0;
    l->cross = mem_array(l->n_layers, sizeof *l->cross);
    if (!l->cross) return ERR_NOMEM;
    for (uint32_t i = 0; i < l->n_layers; i++) {
        TRY(load_layer(s, what, l, "cross.", i));
        if (l->cross[i].tokens != l->cross[0].tokens)
            return bad(what, "cross.layers", "the layers have different numbers of rows");
    }
    l->encoder_length = l->cross[0].tokens;
    const struct tensor *t = safetensors_find(s, "encoder_mask");
    if (!t) return 0;
    if (t->dtype != DT_U8 || t->n_dims != 2 || t->dim[0] != l->batch ||
        t->dim[1] != l->encoder_length)
        return bad(what, "encoder_mask", "it must be U8 [batch][encoder rows]");
    l->encoder_mask = mem_alloc(MAX(t->bytes, 1));
    if (!l->encoder_mask) return ERR_NOMEM;
    memcpy(l->encoder_mask, t->data, t->bytes);
    return 0;
}

static int read_notes(const struct safetensors *s, const char *what, const kvik_model *m,
                      uint32_t *length)
{
    const char *theirs = safetensors_metadata(s, "fingerprint"),
               *model = safetensors_metadata(s, "model"), *n = safetensors_metadata(s, "length"),
               *all = safetensors_metadata(s, "weights");
    struct model_digests mine;
    char *end;
    if (m && theirs) {
        TRY(model_digests(m->m, 0, &mine));
        if (strcmp(mine.fingerprint, theirs) != 0)
            return ERR(ARG,
                       "%s: keys and values of another model (%.64s %.12s; this model is %s %.12s)",
                       what, model ? model : "?", theirs, m->m->arch_name, mine.fingerprint);
        if (all && strcmp(mine.weights, all) != 0)
            return ERR(ARG,
                       "%s: keys and values of other weights of this model (%.12s; those of %s are "
                       "%.12s)",
                       what, all, m->m->what, mine.weights);
    }
    *length = 0;
    if (!n) return 0;
    unsigned long v = strtoul(n, &end, 10);
    if (*end || end == n || *n == '-' || v > UINT32_MAX)
        return bad(what, "length", "not a number of columns");
    *length = (uint32_t)v;
    return 0;
}

static int load_tensors(const struct safetensors *s, const char *what, const kvik_model *m,
                        kvik_legacy *l)
{
    char name[NAME];
    const struct tensor *first = safetensors_find(s, "layers.0.keys");
    if (!first) return bad(what, "layers.0.keys", "the tensor is missing");
    do /* bounded by the number of tensors in the file */
        snprintf(name, sizeof name, "layers.%u.keys", ++l->n_layers);
    while (safetensors_find(s, name));
    l->layer = mem_array(l->n_layers, sizeof *l->layer);
    if (!l->layer) return ERR_NOMEM;
    for (uint32_t i = 0; i < l->n_layers; i++) {
        if (i == 0) {
            const struct tensor *t;
            TRY(find_plane(s, what, l, "", 0, false, &t));
            l->batch = (uint32_t)t->dim[0];
        }
        TRY(load_layer(s, what, l, "", i));
    }
    TRY(load_cross(s, what, l));
    TRY(read_notes(s, what, m, &l->length));
    const struct tensor *mask = safetensors_find(s, "attention_mask");
    if (!l->length && mask && mask->n_dims == 2 && mask->dim[1] <= UINT32_MAX)
        l->length = (uint32_t)mask->dim[1];
    return load_cells(s, what, l);
}

int legacy_read(const struct safetensors *s, const char *what, const kvik_model *m,
                kvik_legacy **out)
{
    kvik_legacy *l = mem_alloc(sizeof *l);
    if (!l) return ERR_NOMEM;
    l->size = sizeof *l;
    int e = load_tensors(s, what, m, l);
    if (e < 0) {
        kvik_legacy_free(l);
        return e;
    }
    *out = l;
    return 0;
}

KVIK_API int kvik_legacy_load(const char *path, const kvik_model *m, kvik_legacy **out)
{
    struct safetensors *s;
    if (m) TRY(model_check(m));
    if (!path || !out) return ERR(ARG, "loading the legacy form needs a path and a pointer for it");
    TRY(safetensors_open(path, &s));
    int e = legacy_read(s, path, m, out);
    safetensors_close(s);
    return e;
}
