/* weights.c - opening a model and binding tensors by name, shape checked; data stays where it lies. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

extern const struct arch *const __start_kvik_arch[] __attribute__((visibility("hidden")));
extern const struct arch *const __stop_kvik_arch[] __attribute__((visibility("hidden")));

void *model_own(struct model *m, size_t n, size_t size)
{
    void **own = mem_grow(m->own, m->n_own + 1u, sizeof *own);
    if (!own) return NULL;
    m->own = own;
    size_t total;
    void *p = ck_mul(n, size, &total) ? mem_aligned(total) : NULL;
    if (p) own[m->n_own++] = p;
    return p;
}

static const struct tensor *find(const struct model *m, const char *hf, const char *gguf,
                                 uint32_t layer, char *name, size_t n)
{
    const char *fmt = model_is_gguf(m) ? gguf : hf;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, n, fmt, layer); /* formats are literals of the architecture files */
#pragma GCC diagnostic pop
    return checkpoint_find(m->ck, name);
}

static int shape_error(const struct model *m, const struct tensor *t, const char *want)
{
    char got[96] = "";
    for (uint32_t i = 0, k = 0; i < t->n_dims; i++)
        k += (uint32_t)snprintf(got + k, sizeof got - k, i ? ", %llu" : "%llu",
                                (unsigned long long)t->dim[i]);
    return ERR(FORMAT, "%s: tensor %s has shape [%s], the configuration asks for %s", m->what,
               t->name, got, want);
}

int model_matrix(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t rows,
                 uint32_t cols, struct dev_weight *out)
{
    char name[160], want[64];
    const struct tensor *t = find(m, hf, gguf, layer, name, sizeof name);
    if (!t) return ERR(FORMAT, "%s: tensor %s is missing", m->what, name);
    if (t->n_dims != 2 || t->dim[0] != rows || t->dim[1] != cols) {
        snprintf(want, sizeof want, "[%u, %u]", rows, cols);
        return shape_error(m, t, want);
    }
    if (!dev_weight_supported(t->dtype))
        return ERR(UNSUPPORTED, "%s: tensor %s has type %s, which matrix products do not support",
                   m->what, name, dtype_name(t->dtype));
    *out = (struct dev_weight){t->data, rows, cols, t->dtype};
    return 0;
}

int model_vector(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t n,
                 bool optional, float **out)
{
    char name[160], want[64];
    const struct tensor *t = find(m, hf, gguf, layer, name, sizeof name);
    if (!t && optional) {
        *out = NULL;
        return 0;
    }
    if (!t) return ERR(FORMAT, "%s: tensor %s is missing", m->what, name);
    if (t->n_dims != 1 || t->dim[0] != n) {
        snprintf(want, sizeof want, "[%u]", n);
        return shape_error(m, t, want);
    }
    if (!dev_weight_supported(t->dtype))
        return ERR(UNSUPPORTED, "%s: tensor %s has type %s", m->what, name, dtype_name(t->dtype));
    float *v = model_own(m, n, sizeof *v);
    if (!v) return ERR_NOMEM;
    dev_to_f32(t->dtype, t->data, v, n);
    *out = v;
    return 0;
}

static int arch_of(struct model *m)
{
    const json_t *c = checkpoint_config(m->ck);
    const char *name = NULL;
    if (!c)
        return ERR(NOTFOUND,
                   "%s: no config.json; a model directory holds config.json, model.safetensors and "
                   "tokenizer.json",
                   m->what);
    if (!json_is_object(c)) return ERR(FORMAT, "%s: config.json must be an object", m->what);
    TRY(json_get_str(c, m->what, model_is_gguf(m) ? "general.architecture" : "model_type", &name));
    if (!name) return ERR(FORMAT, "%s: the configuration names no architecture", m->what);
    if (strlen(name) >= sizeof m->arch_name)
        return ERR(FORMAT, "%s: architecture name too long", m->what);
    memcpy(m->arch_name, name, strlen(name) + 1);
    char list[256] = "";
    for (const struct arch *const *a = __start_kvik_arch; a < __stop_kvik_arch; a++)
        for (const char *const *s = (*a)->names; *s; s++) {
            if (strcmp(*s, name) == 0) {
                m->arch = *a;
                return 0;
            }
            size_t k = strlen(list);
            snprintf(list + k, sizeof list - k, "%s%s", k ? ", " : "", *s);
        }
    return ERR(UNSUPPORTED, "%s: architecture \"%s\" is not supported; this version has: %s",
               m->what, name, list);
}

static void survey(struct model *m)
{
    uint64_t count[DT_COUNT] = {0}, best = 0;
    for (uint32_t i = 0; i < checkpoint_n_tensors(m->ck); i++) {
        const struct tensor *t = checkpoint_tensor_at(m->ck, i);
        uint64_t n = 1;
        for (uint32_t d = 0; d < t->n_dims; d++)
            n *= t->dim[d];
        m->n_params += n;
        if (t->n_dims == 2) count[t->dtype] += n;
        if (t->n_dims == 2 && count[t->dtype] > best) {
            best = count[t->dtype];
            m->weight_dtype = t->dtype;
        }
    }
}

int model_open(const char *path, struct model **out)
{
    struct model *m = mem_alloc(sizeof *m);
    if (!m) return ERR_NOMEM;
    int e = checkpoint_open(path, &m->ck);
    if (e < 0) goto fail;
    m->what = checkpoint_path(m->ck);
    if ((e = arch_of(m)) < 0) goto fail;
    if (checkpoint_n_tensors(m->ck) == 0) {
        e = ERR(NOTFOUND,
                "%s: no weights; model.safetensors or model.safetensors.index.json is needed",
                m->what);
        goto fail;
    }
    survey(m);
    if ((e = m->arch->open(m)) < 0) goto fail;
    *out = m;
    return 0;
fail:
    model_close(m);
    return e;
}

void model_close(struct model *m)
{
    if (!m) return;
    for (uint32_t i = 0; i < m->n_own; i++)
        mem_free(m->own[i]);
    mem_free(m->own);
    mem_free(m->layer);
    rope_done(&m->rope);
    if (m->ck) checkpoint_close(m->ck);
    mem_free(m);
}
