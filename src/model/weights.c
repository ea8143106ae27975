/* weights.c - opens a model and binds tensors by name, with their shapes checked.  The data stay in the mapped file. */
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

/* Finds a tensor of the text part of a model of text and images, under the names that older and newer releases
 * give it. */
static const struct tensor *find_text(const struct model *m, const char *name)
{
    static const char model[] = "model.";
    char other[192];
    snprintf(other, sizeof other, "language_model.%s", name);
    const struct tensor *t = checkpoint_find(m->ck, other);
    if (t || strncmp(name, model, sizeof model - 1) != 0) return t;
    snprintf(other, sizeof other, "model.language_model.%s", name + sizeof model - 1);
    return checkpoint_find(m->ck, other);
}

static const struct tensor *find_tensor(const struct model *m, const char *hf, const char *gguf,
                                        uint32_t layer, char *name, size_t n)
{
    const char *fmt = model_is_gguf(m) ? gguf : hf;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, n, fmt, layer); /* formats are literals of the architecture files */
#pragma GCC diagnostic pop
    const struct tensor *t = checkpoint_find(m->ck, name);
    return t || m->config == checkpoint_config(m->ck) ? t : find_text(m, name);
}

static int shape_error(const struct model *m, const struct tensor *t, const char *want)
{
    char got[96] = "";
    for (uint32_t i = 0, k = 0; i < t->n_dims; i++)
        k += (uint32_t)snprintf(got + k, sizeof got - k, i ? ", %llu" : "%llu",
                                (unsigned long long)t->dim[i]);
    return ERR(FORMAT, "%s: tensor %s has shape [%s], but the configuration needs %s", m->what,
               t->name, got, want);
}

int model_plain(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t rows,
                uint32_t cols, struct dev_weight *out)
{
    char name[160], want[64];
    const struct tensor *t = find_tensor(m, hf, gguf, layer, name, sizeof name);
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

int model_matrix(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t rows,
                 uint32_t cols, struct dev_weight *out)
{
    TRY(model_plain(m, hf, gguf, layer, rows, cols, out));
    if (m->matrices) matrix_note(m->matrices, model_find(m, hf, gguf, layer), false);
    return 0;
}

/* Binds an array of n_dims dimensions as f32. */
static int bind_array(struct model *m, const char *hf, const char *gguf, uint32_t layer,
                      const uint32_t *dim, uint32_t n_dims, bool optional, float **out)
{
    char name[160], want[64];
    const struct tensor *t = find_tensor(m, hf, gguf, layer, name, sizeof name);
    size_t n = 1, k = 0;
    bool fits = t && t->n_dims == n_dims;
    if (!t && optional) {
        *out = NULL;
        return 0;
    }
    if (!t) return ERR(FORMAT, "%s: tensor %s is missing", m->what, name);
    for (uint32_t i = 0; i < n_dims; i++) {
        fits = fits && t->dim[i] == dim[i];
        n *= dim[i];
        k += (size_t)snprintf(want + k, sizeof want - k, "%s%u%s", i ? ", " : "[", dim[i],
                              i + 1 < n_dims ? "" : "]");
    }
    if (!fits) return shape_error(m, t, want);
    if (!dev_weight_supported(t->dtype))
        return ERR(UNSUPPORTED, "%s: tensor %s has type %s", m->what, name, dtype_name(t->dtype));
    float *v = model_own(m, n, sizeof *v);
    if (!v) return ERR_NOMEM;
    dev_to_f32(t->dtype, t->data, v, n);
    *out = v;
    return 0;
}

int model_vector(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t n,
                 bool optional, float **out)
{
    return bind_array(m, hf, gguf, layer, &n, 1, optional, out);
}

int model_array(struct model *m, const char *hf, const char *gguf, uint32_t layer,
                const uint32_t *dim, uint32_t n_dims, float **out)
{
    return bind_array(m, hf, gguf, layer, dim, n_dims, false, out);
}

int model_norm(struct model *m, enum norm_kind kind, const char *hf, const char *gguf,
               uint32_t layer, uint32_t width, bool optional, struct mod_norm *out)
{
    char h[96], g[96];
    struct mod_norm norm = {.kind = kind, .eps = m->norm_eps};
    snprintf(h, sizeof h, "%s.weight", hf);
    snprintf(g, sizeof g, "%s.weight", gguf ? gguf : "");
    TRY(model_vector(m, h, g, layer, width, optional, &norm.w));
    snprintf(h, sizeof h, "%s.bias", hf);
    snprintf(g, sizeof g, "%s.bias", gguf ? gguf : "");
    if (kind == NORM_LAYER) TRY(model_vector(m, h, g, layer, width, true, &norm.b));
    *out = norm.w ? norm : (struct mod_norm){0};
    return 0;
}

const struct tensor *model_find(const struct model *m, const char *hf, const char *gguf,
                                uint32_t layer)
{
    char name[160];
    return (model_is_gguf(m) ? gguf : hf) ? find_tensor(m, hf, gguf, layer, name, sizeof name)
                                          : NULL;
}

void model_norm_plus_one(const struct model *m, struct mod_norm *norm, uint32_t n)
{
    for (uint32_t i = 0; norm->w && i < n && !model_is_gguf(m); i++)
        norm->w[i] += 1.0f;
}

struct dev_weight model_rows(const struct dev_weight *w, uint32_t row0, uint32_t rows)
{
    struct dev_weight part = *w;
    size_t bytes = 0;
    (void)dtype_bytes(w->dtype, w->cols, &bytes); /* cannot fail: a bound matrix has whole blocks */
    part.data = (const unsigned char *)w->data + row0 * bytes;
    part.rows = rows;
    return part;
}

/* Transposes src [cols][rows] to dst [rows][cols], elements of 2 or 4 bytes, by squares that fit the L1 cache. */
static void transpose(const void *src, void *dst, uint32_t rows, uint32_t cols, uint32_t size)
{
    enum { SIDE = 32 };
    const unsigned char *in = src;
    unsigned char *out = dst;
    for (size_t r0 = 0; r0 < rows; r0 += SIDE)
        for (size_t c0 = 0; c0 < cols; c0 += SIDE)
            for (size_t r = r0; r < MIN(r0 + SIDE, rows); r++)
                for (size_t c = c0; c < MIN(c0 + SIDE, cols); c++)
                    if (size == 4)
                        memcpy(out + (r * cols + c) * 4, in + (c * rows + r) * 4, 4);
                    else
                        memcpy(out + (r * cols + c) * 2, in + (c * rows + r) * 2, 2);
}

static int own_transposed(struct model *m, const struct tensor *t, size_t skip, uint32_t rows,
                          uint32_t cols, struct dev_weight *out)
{
    if (t->dtype != DT_F32 && t->dtype != DT_F16 && t->dtype != DT_BF16)
        return ERR(UNSUPPORTED, "%s: tensor %s has type %s, which cannot be transposed", m->what,
                   t->name, dtype_name(t->dtype));
    uint32_t size = (uint32_t)dtype_size(t->dtype);
    void *copy = model_own(m, (size_t)rows * cols, size);
    if (!copy) return ERR_NOMEM;
    transpose((const unsigned char *)t->data + skip * size, copy, rows, cols, size);
    *out = (struct dev_weight){copy, rows, cols, t->dtype};
    return 0;
}

int model_transposed(struct model *m, const char *hf, const char *gguf, uint32_t layer,
                     uint32_t rows, uint32_t cols, struct dev_weight *out)
{
    struct dev_weight w;
    const struct tensor *t = model_find(m, hf, gguf, layer);
    /* quantized matrices are stored as products read them, so they are not transposed */
    bool turned = t && dtype_block(t->dtype) > 1;
    if (model_is_gguf(m) || turned) return model_matrix(m, hf, gguf, layer, rows, cols, out);
    TRY(model_plain(m, hf, gguf, layer, cols, rows, &w));
    if (m->matrices) matrix_note(m->matrices, t, true);
    return own_transposed(m, t, 0, rows, cols, out);
}

int model_experts(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t n,
                  uint32_t rows, uint32_t cols, bool transposed, struct dev_weight *out)
{
    char name[160], want[64];
    const struct tensor *t = find_tensor(m, hf, gguf, layer, name, sizeof name);
    if (!t) return ERR(FORMAT, "%s: tensor %s is missing", m->what, name);
    bool swap = transposed && !model_is_gguf(m) && dtype_block(t->dtype) == 1;
    uint32_t r = swap ? cols : rows, c = swap ? rows : cols;
    if (t->n_dims != 3 || t->dim[0] != n || t->dim[1] != r || t->dim[2] != c) {
        snprintf(want, sizeof want, "[%u, %u, %u]", n, r, c);
        return shape_error(m, t, want);
    }
    if (!dev_weight_supported(t->dtype))
        return ERR(UNSUPPORTED, "%s: tensor %s has type %s, which matrix products do not support",
                   m->what, name, dtype_name(t->dtype));
    if (m->matrices) matrix_note(m->matrices, t, swap);
    struct dev_weight whole = {t->data, n * rows, cols, t->dtype};
    for (uint32_t i = 0; i < n; i++) {
        if (swap)
            TRY(own_transposed(m, t, (size_t)i * rows * cols, rows, cols, &out[i]));
        else
            out[i] = model_rows(&whole, i * rows, rows);
    }
    return 0;
}

const struct arch *model_arch_at(uint32_t i)
{
    return i < (size_t)(__stop_kvik_arch - __start_kvik_arch) ? __start_kvik_arch[i] : NULL;
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
    if (!json_is_object(c)) return ERR(FORMAT, "%s: the file must hold an object", m->config_file);
    TRY(json_get_str(c, m->config_file, model_is_gguf(m) ? "general.architecture" : "model_type",
                     &name));
    if (!name) return ERR(FORMAT, "%s: the configuration names no architecture", m->what);
    if (strlen(name) >= sizeof m->arch_name)
        return ERR(FORMAT, "%s: the name of the architecture has %zu bytes, the limit is %zu",
                   m->what, strlen(name), sizeof m->arch_name - 1);
    memcpy(m->arch_name, name, strlen(name) + 1);
    m->config = c;
    /* GGUF files of some families name a model with experts like the dense model, such as "llama".  An
     * architecture with experts registers as "llama+experts". */
    char wanted[80];
    uint32_t experts = 0;
    if (model_is_gguf(m)) TRY(model_u32(m, NULL, "expert_count", 0, UINT32_MAX, &experts));
    snprintf(wanted, sizeof wanted, "%s%s", name, experts ? "+experts" : "");
    char list[512] = "";
    for (const struct arch *const *a = __start_kvik_arch; a < __stop_kvik_arch; a++)
        for (const char *const *s = (*a)->names; *s; s++) {
            if (strcmp(*s, wanted) == 0) {
                m->arch = *a;
                return 0;
            }
            size_t k = strlen(list);
            snprintf(list + k, sizeof list - k, "%s%s", k ? ", " : "", *s);
        }
    return ERR(UNSUPPORTED, "%s: architecture \"%s\" is not supported; this version has: %s",
               m->what, wanted, list);
}

static void count_params(struct model *m)
{
    uint64_t count[DT_COUNT] = {0}, best = 0;
    for (uint32_t i = 0; i < checkpoint_n_tensors(m->ck); i++) {
        const struct tensor *t = checkpoint_tensor_at(m->ck, i);
        uint64_t n = 1;
        enum dtype type = t->dtype;
        for (uint32_t d = 0; d < t->n_dims; d++)
            n *= t->dim[d];
        /* MXFP4 (mxfp4.c) has codes in pairs, and scales, which are not counted. */
        if (type == DT_U8) {
            if (t->n_dims != 4) continue;
            type = DT_MXFP4;
            n *= 2;
        }
        m->n_params += n;
        if (t->n_dims >= 2) count[type] += n;
        if (t->n_dims >= 2 && count[type] > best) {
            best = count[type];
            m->weight_dtype = type;
        }
    }
}

/* Writes the name of the file that has the configuration. */
static int name_config(struct model *m)
{
    const char *end = model_is_gguf(m) ? "" : "/config.json";
    size_t n = strlen(m->what), k = strlen(end);
    if (!(m->config_file = mem_alloc(n + k + 1))) return ERR_NOMEM;
    memcpy(m->config_file, m->what, n);
    memcpy(m->config_file + n, end, k);
    return 0;
}

int model_bind(struct model *m)
{
    m->what = checkpoint_path(m->ck);
    TRY(name_config(m));
    TRY(arch_of(m));
    if (checkpoint_n_tensors(m->ck) == 0)
        return ERR(NOTFOUND,
                   "%s: no weights; model.safetensors or model.safetensors.index.json is needed",
                   m->what);
    count_params(m);
    return m->arch->open(m);
}

int model_open_quantized(const char *path, const struct quantize *q, const char *device,
                         struct model **out)
{
    struct model *m = mem_alloc(sizeof *m);
    if (!m) return ERR_NOMEM;
    pthread_mutex_init(&m->weights.lock, NULL);
    int e = placed_open(m, device);
    if (e >= 0) e = checkpoint_open(path, &m->ck);
    if (e >= 0 && q->to != DT_F32) e = weights_quantize(m, q);
    if (e >= 0) e = model_bind(m);
    if (e < 0) {
        model_close(m);
        return e;
    }
    *out = m;
    return 0;
}

int model_open(const char *path, struct model **out)
{
    const struct quantize none = {.to = DT_F32};
    return model_open_quantized(path, &none, NULL, out);
}

/* Frees everything but the files. */
void model_done(struct model *m)
{
    for (uint32_t i = 0; i < m->n_own; i++)
        mem_free(m->own[i]);
    mem_free(m->own);
    mem_free(m->site);
    mem_free(m->config_file);
    for (uint32_t i = 0; i < MODEL_ROPES; i++)
        rope_done(&m->rope[i]);
    pthread_mutex_destroy(&m->weights.lock);
}

void model_close(struct model *m)
{
    if (!m) return;
    struct checkpoint *ck = m->ck;
    placed_close(m);
    model_done(m);
    if (ck) checkpoint_close(ck);
    mem_free(m);
}
