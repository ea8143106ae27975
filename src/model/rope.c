/* rope.c - rotary position embeddings.  Frequencies follow the reference's modeling_rope_utils; angles are
 * f32 products as there, cosine and sine are taken in double and rounded, so that no libm variant can
 * change a bit in practice.  Dynamic NTK (rule 13): a row keeps the frequency of the turn it was fed in. */
#include "model/model.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const char *const names[ROPE_TYPES] = {"default", "linear", "llama3", "yarn", "dynamic"};

const char *rope_type_name(enum rope_type t)
{
    return names[t];
}

static int type_of(const char *s, const char *what, enum rope_type *out)
{
    for (int i = 0; i < ROPE_TYPES; i++)
        if (strcmp(names[i], s) == 0) {
            *out = (enum rope_type)i;
            return 0;
        }
    return ERR(UNSUPPORTED,
               "%s: rope type \"%s\" is not supported (default, linear, llama3, yarn, dynamic are)",
               what, s);
}

static int positive(const char *what, const char *key, double v)
{
    if (!((float)v > 0) || !(v <= FLT_MAX))
        return ERR(FORMAT, "%s: \"%s\" must be a positive number", what, key);
    return 0;
}

static int read_scaling(struct rope *r, const json_t *o, const char *what)
{
    const char *type = NULL;
    double mscale = 0, mscale_all = 0;
    bool has_attention = false;
    TRY(json_get_str(o, what, "type", &type));
    TRY(json_get_str(o, what, "rope_type", &type));
    if (type) TRY(type_of(type, what, &r->type));
    TRY(json_get_f64(o, what, "rope_theta", &r->theta));
    TRY(json_get_f64(o, what, "factor", &r->factor));
    TRY(json_get_f64(o, what, "low_freq_factor", &r->low_freq_factor));
    TRY(json_get_f64(o, what, "high_freq_factor", &r->high_freq_factor));
    TRY(json_get_f64(o, what, "beta_fast", &r->beta_fast));
    TRY(json_get_f64(o, what, "beta_slow", &r->beta_slow));
    TRY(json_get_f64(o, what, "mscale", &mscale));
    TRY(json_get_f64(o, what, "mscale_all_dim", &mscale_all));
    TRY(json_get_bool(o, what, "truncate", &r->truncate));
    TRY(json_get_u32(o, what, "original_max_position_embeddings", 1, 1u << 30, &r->original));
    int e = json_get_f64(o, what, "attention_factor", &r->attention_factor);
    if (e < 0) return e;
    has_attention = e > 0;
    if (r->type != ROPE_DEFAULT && !json_object_get(o, "factor"))
        return ERR(FORMAT, "%s: rope type \"%s\" needs \"factor\"", what, names[r->type]);
    if (r->type == ROPE_YARN && !has_attention) {
        double f = r->factor;
        double a = f <= 1 ? 1 : 0.1 * (mscale && mscale_all ? mscale : 1) * log(f) + 1;
        double b = f <= 1 || !(mscale && mscale_all) ? 1 : 0.1 * mscale_all * log(f) + 1;
        r->attention_factor = a / b;
    }
    return 0;
}

int rope_read(struct rope *r, const json_t *config, const char *what, uint32_t context)
{
    *r = (struct rope){.theta = r->theta > 0 ? r->theta : 10000,
                       .factor = 1,
                       .low_freq_factor = 1,
                       .high_freq_factor = 4,
                       .attention_factor = 1,
                       .beta_fast = 32,
                       .beta_slow = 1,
                       .truncate = true,
                       .original = context};
    TRY(json_get_f64(config, what, "rope_theta", &r->theta));
    const json_t *o = json_object_get(config, "rope_parameters");
    if (!o || json_is_null(o)) o = json_object_get(config, "rope_scaling");
    if (o && !json_is_null(o)) {
        if (!json_is_object(o)) return ERR(FORMAT, "%s: rope parameters must be an object", what);
        TRY(read_scaling(r, o, what));
    }
    TRY(positive(what, "rope_theta", r->theta));
    TRY(positive(what, "factor", r->factor));
    TRY(positive(what, "attention_factor", r->attention_factor));
    TRY(positive(what, "beta_fast", r->beta_fast));
    TRY(positive(what, "beta_slow", r->beta_slow));
    TRY(positive(what, "low_freq_factor", r->low_freq_factor));
    if (r->type == ROPE_LLAMA3 && !(r->high_freq_factor > r->low_freq_factor))
        return ERR(FORMAT, "%s: \"high_freq_factor\" must be above \"low_freq_factor\"", what);
    return 0;
}

static double correction_dim(const struct rope *r, double rotations)
{
    return r->rot * log(r->original / (rotations * 2 * M_PI)) / (2 * log(r->theta));
}

static void yarn(const struct rope *r, float *f)
{
    double low = correction_dim(r, r->beta_fast), high = correction_dim(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, r->rot - 1);
    if (low == high) high += 0.001;
    for (uint32_t i = 0; i < r->rot / 2; i++) {
        float p = powf((float)r->theta, (float)(2 * i) / (float)r->rot);
        float inter = 1.0f / ((float)r->factor * p), extra = 1.0f / p;
        float ramp = (float)fmin(fmax((i - low) / (high - low), 0), 1);
        float keep = 1.0f - ramp;
        f[i] = inter * (1.0f - keep) + extra * keep;
    }
}

static void llama3(const struct rope *r, float *f)
{
    double low_len = r->original / r->low_freq_factor, high_len = r->original / r->high_freq_factor;
    for (uint32_t i = 0; i < r->rot / 2; i++) {
        double len = 2 * M_PI / f[i];
        if (len > low_len) {
            f[i] = f[i] / (float)r->factor;
        } else if (len >= high_len) {
            float smooth = (float)((r->original / len - r->low_freq_factor) /
                                   (r->high_freq_factor - r->low_freq_factor));
            f[i] = (1 - smooth) * f[i] / (float)r->factor + smooth * f[i];
        }
    }
}

static double dynamic_base(const struct rope *r, uint32_t len)
{
    double n = MAX(len, r->original);
    return r->theta * pow(r->factor * n / r->original - (r->factor - 1), r->rot / (r->rot - 2.0));
}

static float freq(double base, uint32_t i, uint32_t rot)
{
    return 1.0f / powf((float)base, (float)(2 * i) / (float)rot);
}

int rope_prepare(struct rope *r)
{
    if (r->rot < 2 || r->rot % 2 || (r->type == ROPE_DYNAMIC && r->rot < 4))
        return ERR(FORMAT, "%u rotated dimensions: an even number is needed", r->rot);
    float *f = mem_array(r->rot / 2, sizeof *f);
    if (!f) return ERR_NOMEM;
    for (uint32_t i = 0; i < r->rot / 2; i++)
        f[i] = freq(r->theta, i, r->rot);
    if (r->type == ROPE_LINEAR)
        for (uint32_t i = 0; i < r->rot / 2; i++)
            f[i] /= (float)r->factor;
    if (r->type == ROPE_LLAMA3) llama3(r, f);
    if (r->type == ROPE_YARN) yarn(r, f);
    if (r->freq_factor)
        for (uint32_t i = 0; i < r->rot / 2; i++)
            f[i] /= r->freq_factor[i];
    r->inv_freq = f;
    return 0;
}

void rope_done(struct rope *r)
{
    mem_free(r->inv_freq);
    mem_free(r->freq_factor);
    r->inv_freq = r->freq_factor = NULL;
}

void rope_fill(const struct rope *r, const uint32_t *pos, const uint32_t *end, uint32_t n,
               float *cos_, float *sin_)
{
    uint32_t half = r->rot / 2;
    float scale = (float)r->attention_factor;
    for (uint32_t t = 0; t < n; t++) {
        bool stretched = r->type == ROPE_DYNAMIC && end[t] + 1 > r->original;
        double base = stretched ? dynamic_base(r, end[t] + 1) : 0;
        for (uint32_t i = 0; i < half; i++) {
            float f = stretched ? freq(base, i, r->rot) : r->inv_freq[i];
            float angle = (float)pos[t] * f;
            cos_[(size_t)t * half + i] = (float)cos((double)angle) * scale;
            sin_[(size_t)t * half + i] = (float)sin((double)angle) * scale;
        }
    }
}
