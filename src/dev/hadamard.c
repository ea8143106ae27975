/* hadamard.c - the rotation of hadamard.h on vectors of four values, which every processor has.  It runs for each
 * query and for the sum of each atom, so it must cost less than reading the rows of an atom. */
#include "dev/hadamard.h"
#include "dev/four.h"
#include "dev/hadamard_sign.h"

#include <math.h>
#include <string.h>

/* Does two steps of the transform inside a vector: those with partners 1 and 2 channels apart. */
static inline four inside(four v)
{
    const four odd = {1, -1, 1, -1}, high = {1, 1, -1, -1};
    four a = {v[0], v[0], v[2], v[2]}, b = {v[1], v[1], v[3], v[3]};
    v = a + b * odd;
    a = (four){v[0], v[1], v[0], v[1]}, b = (four){v[2], v[3], v[2], v[3]};
    return a + b * high;
}

static void narrow(const struct hadamard *c, float *x)
{
    for (uint32_t h = 1; h < c->run; h *= 2)
        for (uint32_t i = 0; i < c->dim; i += 2 * h)
            for (uint32_t d = i; d < i + h; d++) {
                float a = x[d], b = x[d + h];
                x[d] = a + b;
                x[d + h] = a - b;
            }
}

/* Does two steps in one pass over x: those with partners h and 2h channels apart. */
static void pass2(float *x, uint32_t dim, uint32_t h)
{
    for (uint32_t i = 0; i < dim; i += 4 * h)
        for (uint32_t d = i; d < i + h; d += 4) {
            four a = four_load(x + d), b = four_load(x + d + h), c = four_load(x + d + 2 * h),
                 e = four_load(x + d + 3 * h);
            four s = a + b, t = a - b, u = c + e, w = c - e;
            four_store(x + d, s + u);
            four_store(x + d + h, t + w);
            four_store(x + d + 2 * h, s - u);
            four_store(x + d + 3 * h, t - w);
        }
}

static void pass1(float *x, uint32_t dim, uint32_t h)
{
    for (uint32_t i = 0; i < dim; i += 2 * h)
        for (uint32_t d = i; d < i + h; d += 4) {
            four a = four_load(x + d), b = four_load(x + d + h);
            four_store(x + d, a + b);
            four_store(x + d + h, a - b);
        }
}

static void transform(const struct hadamard *c, float *x)
{
    uint32_t h = 4;
    if (c->run < 4) {
        narrow(c, x);
        return;
    }
    for (uint32_t d = 0; d < c->dim; d += 4)
        four_store(x + d, inside(four_load(x + d)));
    for (; 4 * h <= c->run; h *= 4)
        pass2(x, c->dim, h);
    if (h < c->run) pass1(x, c->dim, h);
}

void hadamard_turn(const struct hadamard *c, float *x)
{
    uint32_t d = 0;
    for (; d + 4 <= c->dim; d += 4)
        four_store(x + d, four_load(x + d) * four_load(c->sign + d));
    for (; d < c->dim; d++)
        x[d] *= c->sign[d];
    transform(c, x);
    for (d = 0; d + 4 <= c->dim; d += 4)
        four_store(x + d, four_load(x + d) * c->scale);
    for (; d < c->dim; d++)
        x[d] *= c->scale;
}

void hadamard_back(const struct hadamard *c, float *x)
{
    uint32_t d = 0;
    transform(c, x);
    for (; d + 4 <= c->dim; d += 4)
        four_store(x + d, four_load(x + d) * c->scale * four_load(c->sign + d));
    for (; d < c->dim; d++)
        x[d] = x[d] * c->scale * c->sign[d];
}

void hadamard_choose(struct hadamard *c, uint32_t seed, uint32_t dim)
{
    c->dim = dim;
    c->run = dim & (0 - dim);
    c->scale = 1 / sqrtf((float)c->run);
    c->seed = seed;
    for (uint32_t d = 0; d < dim; d++)
        c->sign[d] = hadamard_sign(seed, d);
}
