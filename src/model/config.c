/* config.c - reads hyperparameters from config.json or GGUF metadata, each with a range. */
#include "model/model.h"

#include <float.h>
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
    return json_get_u32(m->config, m->config_file, key, min, max, out);
}

int model_need_u32(const struct model *m, const char *hf, const char *gguf, uint32_t min,
                   uint32_t max, uint32_t *out)
{
    int e = model_u32(m, hf, gguf, min, max, out);
    if (e != 0) return e;
    char key[160];
    key_of(m, hf, gguf, key, sizeof key);
    return ERR(FORMAT, "%s: the configuration lacks \"%s\"", m->config_file, key);
}

int model_f32(const struct model *m, const char *hf, const char *gguf, float *out)
{
    char key[160];
    double d;
    if (!(model_is_gguf(m) ? gguf : hf)) return 0;
    key_of(m, hf, gguf, key, sizeof key);
    int e = json_get_f64(m->config, m->config_file, key, &d);
    if (e <= 0) return e;
    if (!(fabs(d) <= FLT_MAX))
        return ERR(FORMAT, "%s: \"%s\" must be finite, not %g", m->config_file, key, d);
    *out = (float)d;
    return 1;
}

bool model_is_null(const struct model *m, const char *hf)
{
    return !model_is_gguf(m) && json_is_null(json_object_get(m->config, hf));
}

int model_expect_str(const struct model *m, const char *hf, const char *want)
{
    const char *got = want;
    if (model_is_gguf(m)) return 0;
    TRY(json_get_str(m->config, m->config_file, hf, &got));
    if (strcmp(got, want) == 0) return 0;
    return ERR(UNSUPPORTED, "%s: %s is \"%s\", but %s supports only \"%s\"", m->config_file, hf,
               got, m->arch_name, want);
}

int model_expect_false(const struct model *m, const char *hf)
{
    bool got = false;
    if (model_is_gguf(m)) return 0;
    TRY(json_get_bool(m->config, m->config_file, hf, &got));
    if (!got) return 0;
    return ERR(UNSUPPORTED, "%s: %s is true, which %s does not support", m->config_file, hf,
               m->arch_name);
}

int model_enter_text(struct model *m)
{
    const json_t *text = json_object_get(m->config, "text_config");
    char found[JSON_FOUND];
    if (!text || model_is_gguf(m)) return 0;
    if (!json_is_object(text))
        return ERR(FORMAT, "%s: text_config must be an object, not %s", m->config_file,
                   json_found(text, found));
    m->config = text;
    return 0;
}
