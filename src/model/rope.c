/* rope.c - rotary position embeddings.  Frequencies follow Transformers' modeling_rope_utils, and angles are f32
 * products as there.  Cosines and sines are computed in double and then rounded, so in practice every libm gives the
 * same bits.  Under dynamic NTK a row keeps the frequencies of the turn that appended it (docs/CACHE.md, "Models
 * whose rows depend on more than the tokens before them"). */
#include "model/model.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const char *const names[ROPE_TYPES] = {"default", "linear",  "llama3",
                                              "yarn",    "dynamic", "longrope"};

const char *rope_type_name(enum rope_type t)
{
    return names[t];
}

static int rope_type_of(const char *s, const char *what, enum rope_type *out)
{
    if (strcmp(s, "su") == 0) s = "longrope"; /* the name of longrope in early files */
    for (int i = 0; i < ROPE_TYPES; i++)
        if (strcmp(names[i], s) == 0) {
            *out = (enum rope_type)i;
            return 0;
        }
    return ERR(
        UNSUPPORTED,
        "%s: rope type \"%s\" is not supported (default, linear, llama3, yarn, dynamic, longrope are)",
        what, s);
}

static int positive(const char *what, const char *key, double v)
{
    if (!((float)v > 0) || !(v <= FLT_MAX))
        return ERR(FORMAT, "%s: \"%s\" must be a positive number, not %g", what, key, v);
    return 0;
}

/* Reads an array of positive numbers. */
static int read_factors(const json_t *o, const char *what, const char *key, float **out,
                        uint32_t *n)
{
    const json_t *a = json_object_get(o, key);
    size_t size = json_array_size(a);
    if (!size || size > 1u << 16)
        return ERR(FORMAT, "%s: rope type \"longrope\" needs \"%s\", an array of numbers", what,
                   key);
    *n = (uint32_t)size;
    *out = mem_array(size, sizeof **out);
    if (!*out) return ERR_NOMEM;
    for (uint32_t i = 0; i < size; i++) {
        (*out)[i] = (float)json_number_value(json_array_get(a, i)); /* 0 if it is not a number */
        if (!((*out)[i] > 0) || !isfinite((*out)[i]))
            return ERR(FORMAT, "%s: \"%s\"[%u] must be a positive number", what, key, i);
    }
    return 0;
}

/* Reads the keys of longrope.  original_max_position_embeddings beside the rope parameters has precedence over one
 * inside them. */
static int read_long(struct rope *r, const json_t *config, const json_t *o, const char *what,
                     uint32_t context)
{
    uint32_t n = 0;
    TRY(json_get_u32(config, what, "original_max_position_embeddings", 1, 1u << 30, &r->original));
    TRY(read_factors(o, what, "short_factor", &r->short_factor, &r->n_factors));
    TRY(read_factors(o, what, "long_factor", &r->long_factor, &n));
    if (n != r->n_factors)
        return ERR(FORMAT, "%s: \"short_factor\" has %u numbers, \"long_factor\" %u", what,
                   r->n_factors, n);
    if (!json_object_get(o, "factor")) r->factor = (double)context / r->original;
    const json_t *attention = json_object_get(o, "attention_factor");
    if (attention && !json_is_null(attention)) return 0;
    r->attention_factor = r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log(r->original));
    return 0;
}

static int read_scaling(struct rope *r, const json_t *o, const char *what)
{
    const char *type = NULL;
    double mscale = 0, mscale_all = 0;
    bool has_attention = false;
    TRY(json_get_str(o, what, "type", &type));
    TRY(json_get_str(o, what, "rope_type", &type));
    if (type) TRY(rope_type_of(type, what, &r->type));
    if (r->type == ROPE_YARN && json_object_get(o, "short_factor"))
        r->type = ROPE_LONG; /* some early files give longrope the type yarn */
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
    if (r->type == ROPE_LONG) return 0;
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
        if (r->type == ROPE_LONG) TRY(read_long(r, config, o, what, context));
    }
    TRY(positive(what, "rope_theta", r->theta));
    TRY(positive(what, "factor", r->factor));
    TRY(positive(what, "attention_factor", r->attention_factor));
    TRY(positive(what, "beta_fast", r->beta_fast));
    TRY(positive(what, "beta_slow", r->beta_slow));
    TRY(positive(what, "low_freq_factor", r->low_freq_factor));
    if (r->type == ROPE_LLAMA3 && !(r->high_freq_factor > r->low_freq_factor))
        return ERR(
            FORMAT,
            "%s: \"high_freq_factor\" is %g and must be above \"low_freq_factor\", which is %g",
            what, (double)r->high_freq_factor, (double)r->low_freq_factor);
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

/* Computes the frequencies of short sequences in f, and of long ones in r->long_inv_freq. */
static int longrope(struct rope *r, float *f)
{
    uint32_t half = r->rot / 2;
    if (r->n_factors != half)
        return ERR(FORMAT, "\"short_factor\" and \"long_factor\" have %u numbers, %u are needed",
                   r->n_factors, half);
    r->long_inv_freq = mem_array(half, sizeof *f);
    if (!r->long_inv_freq) return ERR_NOMEM;
    for (uint32_t i = 0; i < half; i++) {
        float p = powf((float)r->theta, (float)(2 * i) / (float)r->rot);
        f[i] = 1.0f / (r->short_factor[i] * p);
        r->long_inv_freq[i] = 1.0f / (r->long_factor[i] * p);
    }
    return 0;
}

int rope_prepare(struct rope *r)
{
    if (r->rot < 2 || r->rot % 2 || (r->type == ROPE_DYNAMIC && r->rot < 4))
        return ERR(FORMAT, "a head has %u rotated dimensions; the number must be even and not 0",
                   r->rot);
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
    return r->type == ROPE_LONG ? longrope(r, f) : 0;
}

void rope_done(struct rope *r)
{
    float **own[] = {&r->inv_freq, &r->freq_factor, &r->short_factor, &r->long_factor,
                     &r->long_inv_freq};
    for (size_t i = 0; i < countof(own); i++) {
        mem_free(*own[i]);
        *own[i] = NULL;
    }
}

void rope_fill(const struct rope *r, const uint32_t *pos, const uint32_t *end, uint32_t n,
               float *cos_, float *sin_)
{
    uint32_t half = r->rot / 2;
    float scale = (float)r->attention_factor;
    for (uint32_t t = 0; t < n; t++) {
        bool stretched = r->type == ROPE_DYNAMIC && end[t] + 1 > r->original;
        double base = stretched ? dynamic_base(r, end[t] + 1) : 0;
        bool longer = r->type == ROPE_LONG && end[t] + 1 > r->original;
        const float *inv_freq = longer ? r->long_inv_freq : r->inv_freq;
        for (uint32_t i = 0; i < half; i++) {
            float f = stretched ? freq(base, i, r->rot) : inv_freq[i];
            float angle = (float)pos[t] * f;
            cos_[(size_t)t * half + i] = (float)cos((double)angle) * scale;
            sin_[(size_t)t * half + i] = (float)sin((double)angle) * scale;
        }
    }
}

void rope_turn(const struct rope *r, int64_t by, float *cos_, float *sin_)
{
    for (uint32_t i = 0; i < r->rot / 2; i++) {
        double angle = (double)by * (double)r->inv_freq[i];
        cos_[i] = (float)cos(angle);
        sin_[i] = (float)sin(angle);
    }
}
