/* config.c - hyper-parameters from config.json or GGUF metadata, every one with a range. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool model_is_gguf(const struct model *m)
{
    return checkpoint_is_gguf(m->ck);
}

static void key_of(const struct model *m, const char *hf, const char *gguf, char *key, size_t n)
{
    if (model_is_gguf(m))
        snprintf(key, n, "%s.%s", m->arch_name, gguf);
    else
        snprintf(key, n, "%s", hf);
}

int model_u32(const struct model *m, const char *hf, const char *gguf, uint32_t min, uint32_t max,
              uint32_t *out)
{
    char key[160];
    if (!(model_is_gguf(m) ? gguf : hf)) return 0;
    key_of(m, hf, gguf, key, sizeof key);
    return json_get_u32(checkpoint_config(m->ck), m->what, key, min, max, out);
}

int model_need_u32(const struct model *m, const char *hf, const char *gguf, uint32_t min,
                   uint32_t max, uint32_t *out)
{
    int e = model_u32(m, hf, gguf, min, max, out);
    if (e != 0) return e;
    char key[160];
    key_of(m, hf, gguf, key, sizeof key);
    return ERR(FORMAT, "%s: the configuration lacks \"%s\"", m->what, key);
}

int model_f32(const struct model *m, const char *hf, const char *gguf, float *out)
{
    char key[160];
    double d;
    if (!(model_is_gguf(m) ? gguf : hf)) return 0;
    key_of(m, hf, gguf, key, sizeof key);
    int e = json_get_f64(checkpoint_config(m->ck), m->what, key, &d);
    if (e <= 0) return e;
    if (!isfinite(d)) return ERR(FORMAT, "%s: \"%s\" must be finite", m->what, key);
    *out = (float)d;
    return 1;
}
