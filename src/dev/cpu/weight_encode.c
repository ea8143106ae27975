/* weight_encode.c - f32 values as blocks of q8_0, q4_0 and q4_k, the layouts of GGUF.
 *
 * q8_0 and q4_0 give the bytes of the `gguf` package: the scale comes from the value of the largest magnitude.  q4_k has a scale
 * and a minimum of 6 bits for each 32 values, and a scale of both for 256.  Each pair is the one of the least squared error
 * among the least-squares fits of a few ranges, and the codes are taken with the pair as it is stored. */
#include "dev/cpu/half.h"
#include "dev/dev.h"

#include <math.h>
#include <string.h>

enum { SUB = 32, SUPER = 256, CODE = 15, PART = 63 };

static void put_half(unsigned char *out, uint16_t h)
{
    memcpy(out, &h, sizeof h);
}

/* Writes a scale as f16.  False if it has no finite f16. */
static bool put_scale(unsigned char *out, float d)
{
    uint16_t h = half_f32_to_f16(d);
    put_half(out, h);
    return isfinite(half_f16_to_f32(h));
}

/* Returns 1 / d, or 0 where 1 / d is not finite: such a d is 0 as f16. */
static float inverse(float d)
{
    float by = 1 / d;
    return isfinite(by) ? by : 0;
}

static bool encode_q8_0(const float *x, unsigned char *out)
{
    float most = 0;
    for (int i = 0; i < SUB; i++)
        most = fmaxf(most, fabsf(x[i]));
    float d = most / 127, by = inverse(d);
    for (int i = 0; i < SUB; i++)
        out[2 + i] = (unsigned char)(int8_t)roundf(x[i] * by);
    return put_scale(out, d);
}

static bool encode_q4_0(const float *x, unsigned char *out)
{
    float most = x[0];
    unsigned char q[SUB];
    for (int i = 1; i < SUB; i++)
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
    float d = most / -8, by = inverse(d);
    for (int i = 0; i < SUB; i++)
        q[i] = (unsigned char)fmin(fmax((double)x[i] * (double)by + 8.5, 0), CODE);
    for (int i = 0; i < SUB / 2; i++)
        out[2 + i] = (unsigned char)(q[i] | q[i + SUB / 2] << 4);
    return put_scale(out, d);
}

/* Returns the squared error of x ~ scale * q - min, whose codes are those of the range [lo, lo + 15 / by]; fits scale and min to
 * these codes. */
static double fit(const float *x, double lo, double by, double *scale, double *min)
{
    double q[SUB], n = SUB, sq = 0, sqq = 0, sx = 0, sxq = 0, error = 0;
    for (int i = 0; i < SUB; i++) {
        q[i] = fmin(fmax(rint((x[i] - lo) * by), 0), CODE);
        sq += q[i];
        sqq += q[i] * q[i];
        sx += x[i];
        sxq += x[i] * q[i];
    }
    double det = n * sqq - sq * sq;
    double s = det > 0 ? (n * sxq - sx * sq) / det : 0, m = det > 0 ? -(sx - s * sq) / n : 0;
    if (m < 0 || det <= 0) {
        m = 0;
        s = sqq > 0 ? sxq / sqq : 0;
    }
    s = fmax(s, 0);
    for (int i = 0; i < SUB; i++) {
        double e = s * q[i] - m - x[i];
        error += e * e;
    }
    *scale = s;
    *min = m;
    return error;
}

/* Finds the scale and the minimum of 32 values. */
static void fit_best(const float *x, double *scale, double *min)
{
    double lo = 0, hi = 0, best = INFINITY, s, m;
    for (int i = 0; i < SUB; i++) { /* GCC 12 crashes over fmin and fmax here, for ARM */
        if (x[i] < lo) lo = x[i];
        if (x[i] > hi) hi = x[i];
    }
    *scale = *min = 0;
    if (hi <= lo) return;
    for (int step = -10; step <= 10; step++) {
        double error = fit(x, lo, (CODE + 0.1 * step) / (hi - lo), &s, &m);
        if (error >= best) continue;
        best = error;
        *scale = s;
        *min = m;
    }
}

static unsigned part(double v, double d)
{
    return d > 0 ? (unsigned)fmin(rint(v / d), PART) : 0;
}

static bool encode_q4_k(const float *x, unsigned char *out)
{
    enum { N = SUPER / SUB };
    double scale[N], min[N], top = 0, bottom = 0;
    unsigned char *packed = out + 4, *codes = out + 16;
    for (int j = 0; j < N; j++) {
        fit_best(x + j * SUB, &scale[j], &min[j]);
        top = fmax(top, scale[j]);
        bottom = fmax(bottom, min[j]);
    }
    uint16_t hd = half_f32_to_f16((float)(top / PART)),
             hm = half_f32_to_f16((float)(bottom / PART));
    double d = half_f16_to_f32(hd), dmin = half_f16_to_f32(hm);
    put_half(out, hd);
    put_half(out + 2, hm);
    memset(packed, 0, SUPER / 2 + 12);
    for (int j = 0; j < N; j++) {
        unsigned sc = part(scale[j], d), mn = part(min[j], dmin);
        if (j < 4) {
            packed[j] |= (unsigned char)sc;
            packed[j + 4] |= (unsigned char)mn;
        } else {
            packed[j + 4] = (unsigned char)((sc & 15) | (mn & 15) << 4);
            packed[j - 4] |= (unsigned char)(sc >> 4 << 6);
            packed[j] |= (unsigned char)(mn >> 4 << 6);
        }
        double s = d * sc, m = dmin * mn;
        for (int i = 0; i < SUB; i++) {
            double q = s > 0 ? fmin(fmax(rint((x[j * SUB + i] + m) / s), 0), CODE) : 0;
            codes[j / 2 * SUB + i] |= (unsigned char)((unsigned)q << (j % 2 ? 4 : 0));
        }
    }
    return isfinite(d) && isfinite(dmin);
}

bool dev_encode(enum dtype t, const float *x, void *out, size_t n)
{
    uint32_t block = dtype_block(t);
    bool fits = true;
    for (size_t i = 0; i < n; i++)
        fits = fits && isfinite(x[i]);
    unsigned char *to = out;
    for (size_t i = 0; fits && i < n; i += block, to += dtype_size(t))
        fits = t == DT_Q8_0   ? encode_q8_0(x + i, to)
               : t == DT_Q4_0 ? encode_q4_0(x + i, to)
                              : encode_q4_k(x + i, to);
    return fits;
}
