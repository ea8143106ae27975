/* reader_coded.c - the readers of coded tiles (dev/coded.h): the scalar reference of the order that coded_read.h states, and
 * the table.  The kernels of instruction sets are in coded_*.c. */
#include "dev/cpu/coded_read.h"
#include "dev/cpu/half.h"

#include <math.h>
#include <string.h>

static int nearest(float x) /* even; |x| < 2^22 */
{
    return (int)((x + 0x1.8p+23f) - 0x1.8p+23f);
}

static void query(const struct kv_reading *r, const float *q, float *out)
{
    const struct kv_coded *f = coded_of(r);
    uint32_t dim = r->shape->dim, top = 0;
    float x[CODED_DIM];
    struct coded_query *to = (struct coded_query *)(void *)out;
    int16_t *code = (int16_t *)(to + 1);
    memcpy(x, q, dim * sizeof *x);
    if (f->turned) hadamard_turn(&f->turn, x);
    for (uint32_t d = 0; d < dim; d++)
        top = MAX(top, half_bits(x[d]) & 0x7fffffffu);
    float by = coded_query_scale(top, &to->scale);
    to->sum = 0;
    for (uint32_t d = 0; d < dim; d++) {
        code[d] = (int16_t)(by > 0 ? nearest(x[d] * by) : 0);
        to->sum += code[d];
    }
}

static float mean_dot(const int16_t *code, const uint16_t *mean, uint32_t dim)
{
    float s[16] = {0};
    for (uint32_t d = 0; d < dim; d++)
        s[d % 16] = fmaf((float)code[d], half_bf16_to_f32(mean[d]), s[d % 16]);
    for (uint32_t w = 8; w; w /= 2)
        for (uint32_t l = 0; l < w; l++)
            s[l] += s[l + w];
    return s[0];
}

static void score(const struct kv_reading *r, const struct kv_piece *at, const float *q, uint32_t n,
                  float scale, float *p, size_t ldp)
{
    const struct kv_coded *f = coded_of(r);
    uint32_t dim = r->shape->dim;
    int8_t level[CODED_DIM];
    for (uint32_t j = at->r0; j < at->r1; j++) {
        const unsigned char *unit = coded_unit(r, at, j / CODED_ROWS);
        uint32_t row = j % CODED_ROWS;
        coded_get(f, dim, unit, row, level);
        for (uint32_t i = 0; i < n; i++) {
            const struct coded_query *c =
                (const struct coded_query *)(const void *)(q + (size_t)i * dim);
            const int16_t *code = (const int16_t *)(c + 1);
            float t = c->scale * scale,
                  m = f->mean ? t * mean_dot(code, coded_means(unit), dim) : 0;
            int32_t sum = 0;
            for (uint32_t d = 0; d < dim; d++)
                sum += code[d] * level[d];
            p[i * ldp + j - at->r0] =
                fmaf((float)sum, t * half_bf16_to_f32(coded_scales(unit)[row]), m);
        }
    }
}

/* Returns the largest finite scale of a unit below a limit. */
static float top_below(const uint16_t *scale, float limit)
{
    float top = 0;
    for (uint32_t j = 0; j < CODED_ROWS; j++) {
        float s = half_bf16_to_f32(scale[j]);
        if (scale[j] < 0x7f80 && s < limit) top = fmaxf(top, s);
    }
    return top;
}

void coded_add_unit(const struct kv_coded *f, uint32_t dim, const unsigned char *unit, uint32_t r0,
                    uint32_t r1, const float *p, float *o)
{
    const uint16_t *scale = coded_scales(unit);
    int8_t level[CODED_DIM];
    float step, by, top, limit = INFINITY;
    bool nan = false;
    for (uint32_t j = r0; j < r1; j++)
        nan |= scale[j] >= 0x7f80;
    while (top = top_below(scale, limit), (by = cpu_group_scale(half_bits(top), &step)) > 0) {
        float least = top * CODED_BAND;
        int32_t sum[CODED_DIM] = {0};
        for (uint32_t j = r0; j < r1; j++) {
            float s = half_bf16_to_f32(scale[j]), w = p[j - r0] * (s * by);
            /* A probability that is NaN gets code 0; its query is NaN anyway. */
            bool band = scale[j] < 0x7f80 && s >= least && s < limit;
            int code = band && w > 0 ? nearest(fminf(w, CPU_X_CODE)) : 0;
            coded_get(f, dim, unit, j, level);
            for (uint32_t d = 0; d < dim; d++)
                sum[d] += code * level[d];
        }
        for (uint32_t d = 0; d < dim; d++)
            o[d] = fmaf((float)sum[d], step, o[d]);
        limit = least;
    }
    for (uint32_t d = 0; nan && d < dim; d++)
        o[d] = NAN;
}

static void add(const struct kv_reading *r, const struct kv_piece *at, const float *p, size_t ldp,
                uint32_t n, float *o, size_t ldo)
{
    for (uint32_t j = at->r0, end; j < at->r1; j = end) {
        uint32_t first = j / CODED_ROWS * CODED_ROWS;
        end = MIN(at->r1, first + CODED_ROWS);
        for (uint32_t i = 0; i < n; i++)
            coded_add_unit(coded_of(r), r->shape->dim, coded_unit(r, at, j / CODED_ROWS), j - first,
                           end - first, p + i * ldp + j - at->r0, o + i * ldo);
    }
}

void coded_end(const struct kv_reading *r, float *o)
{
    const struct kv_coded *f = coded_of(r);
    if (f->turned) hadamard_back(&f->turn, o);
}

static const struct kv_reader ref = {.query = query, .score = score, .add = add, .end = coded_end};

const struct kv_reader *const kv_read_coded[DEV_ISAS] = {
    [DEV_REF] = &ref,
#if defined(__x86_64__)
    [DEV_AVX2] = &coded_reader_avx2,
    [DEV_AVX512] = &coded_reader_avx512,
#elif defined(__aarch64__)
    [DEV_NEON] = &coded_reader_neon,
    [DEV_NEONDOT] = &coded_reader_neondot,
#endif
};
