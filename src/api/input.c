/* input.c - reads the features that an encoder hears from a file. */
#include "dev/dev.h"
#include "fmt/fmt.h"
#include "kvik.h"

#include <string.h>

static int check_features(const struct tensor *t, const char *name, const char *path)
{
    uint64_t n = 1;
    if (!t) return ERR(NOTFOUND, "%s has no tensor %s", path, name);
    if (t->n_dims < 2 || t->n_dims > 3)
        return ERR(FORMAT,
                   "%s: %s has %u dimensions; features have [bins, frames] or [batch, bins, "
                   "frames]",
                   path, name, t->n_dims);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (!t->dim[i] || t->dim[i] > 1u << 24)
            return ERR(FORMAT, "%s: %s has a dimension of %llu; 1 to 2^24 are possible", path, name,
                       (unsigned long long)t->dim[i]);
        n *= t->dim[i];
        if (n > 1u << 30)
            return ERR(LIMIT, "%s: %s has %llu values or more, the limit is 2^30; split the batch",
                       path, name, (unsigned long long)n);
    }
    if (t->dtype != DT_F32 && t->dtype != DT_F16 && t->dtype != DT_BF16)
        return ERR(UNSUPPORTED, "%s: %s has type %s; features are f32, f16 or bf16", path, name,
                   dtype_name(t->dtype));
    return 0;
}

static int take_features(const struct tensor *t, uint32_t *dim, float **data)
{
    size_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->dim[i];
    float *v = mem_array(n, sizeof *v);
    if (!v) return ERR_NOMEM;
    dim[0] = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        dim[i + 3 - t->n_dims] = (uint32_t)t->dim[i];
    dev_to_f32(t->dtype, t->data, v, n);
    *data = v;
    return 0;
}

KVIK_API int kvik_features_load(const char *path, const char *tensor, uint32_t *dim, float **data)
{
    struct safetensors *s;
    if (!path || !tensor || !dim || !data)
        return ERR(ARG, "loading features needs a path, the name of a tensor, and places for the "
                        "sizes and the values");
    TRY(safetensors_open(path, &s));
    const struct tensor *t = safetensors_find(s, tensor);
    int e = check_features(t, tensor, path);
    if (e >= 0) e = take_features(t, dim, data);
    safetensors_close(s);
    return e;
}
