/* k_state.cu - recurrent states.  A thread has a channel, or a column of a head's matrix, and processes the tokens
 * of its sequence one after another (dev.h: conv, scan, delta).  It keeps its column throughout, and writes a copy
 * to the page of each token that has one. */
#include "dev/cuda/k_block.h"
#include "dev/cuda/kernels.h"

enum { STATES = 256, TAPS = 16 };

/* Returns the first of the step's tokens whose lane is not below `lane`. */
K_FN uint32_t first_of(const struct k_state *s, uint32_t lane)
{
    uint32_t from = 0, to = s->n;
    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        if (s->lane[mid] < lane)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

K_FN float *plane_of(const struct k_state *s, uint32_t page)
{
    return (float *)(void *)(s->base + page * s->grain + s->offset);
}

KERNEL(k_conv)
{
    EACH_VALUE(c, a.channels)
    {
        uint32_t lane = BLOCK_Y, t0 = first_of(&a.s, lane), channels = a.channels;
        const float *page = plane_of(&a.s, a.s.from[lane]);
        float seen[TAPS]; /* the last inputs, the oldest first */
        for (uint32_t k = 0; k < a.taps; k++)
            seen[k] = a.s.from[lane] ? page[(size_t)k * channels + c] : 0;
        for (uint32_t i = t0; i < a.s.n && a.s.lane[i] == lane; i++) {
            uint32_t had = a.s.pos[i] + 1, taps = had < a.taps ? had : a.taps;
            for (uint32_t k = 0; k + 1 < a.taps; k++)
                seen[k] = seen[k + 1];
            seen[a.taps - 1] = a.x[(size_t)i * channels + c];
            float y = a.bias[c];
            for (uint32_t k = a.taps - taps; k < a.taps; k++)
                y = k_fma(a.w[(size_t)k * channels + c], seen[k], y);
            a.out[(size_t)i * channels + c] = math_silu(y);
            float *to = plane_of(&a.s, a.s.dst[i]);
            for (uint32_t k = 0; a.s.dst[i] && k < a.taps; k++)
                to[(size_t)k * channels + c] = k < a.taps - taps ? 0 : seen[k];
        }
    }
}

KERNEL(k_scan)
{
    EACH_VALUE(c, a.channels)
    {
        uint32_t lane = BLOCK_Y, channels = a.channels, head = (uint32_t)c / (channels / a.heads);
        size_t group = c / (channels / a.groups) * a.n;
        const float *page = plane_of(&a.s, a.s.from[lane]);
        float h[STATES];
        for (uint32_t n = 0; n < a.n; n++)
            h[n] = a.s.from[lane] ? page[(size_t)n * channels + c] : 0;
        for (uint32_t i = first_of(&a.s, lane); i < a.s.n && a.s.lane[i] == lane; i++) {
            const float *b = a.b + i * a.ldb + group, *w = a.c + i * a.ldb + group;
            float x = a.x[i * a.ldx + c], dt = a.dt[(size_t)i * a.heads + head], u = dt * x;
            float decay = math_exp(dt * a.a[c]), p[4] = {0, 0, 0, 0};
            for (uint32_t n = 0; n < a.n; n++) {
                if (!a.one_decay && n) decay = math_exp(dt * a.a[(size_t)n * channels + c]);
                h[n] = k_fma(h[n], decay, u * b[n]);
                p[n % 4] = k_fma(h[n], w[n], p[n % 4]);
            }
            a.out[(size_t)i * channels + c] = k_fma(a.d[c], x, (p[0] + p[2]) + (p[1] + p[3]));
            float *to = plane_of(&a.s, a.s.dst[i]);
            for (uint32_t n = 0; a.s.dst[i] && n < a.n; n++)
                to[(size_t)n * channels + c] = h[n];
        }
    }
}

KERNEL(k_delta)
{
    EACH_VALUE(column, (size_t)a.heads * a.values)
    {
        uint32_t lane = BLOCK_Y, head = (uint32_t)(column / a.values),
                 c = (uint32_t)(column % a.values);
        size_t at = (size_t)head * a.keys * a.values + c,
               key = (size_t)(head / (a.heads / a.key_heads)) * a.keys;
        const float *page = plane_of(&a.s, a.s.from[lane]);
        float h[STATES];
        for (uint32_t i = 0; i < a.keys; i++)
            h[i] = a.s.from[lane] ? page[at + (size_t)i * a.values] : 0;
        for (uint32_t i = first_of(&a.s, lane); i < a.s.n && a.s.lane[i] == lane; i++) {
            const float *q = a.q + i * a.ldq + key, *k = a.k + i * a.ldq + key;
            float decay = math_exp(a.dt[(size_t)i * a.heads + head] * a.a[head]);
            float m[4] = {0, 0, 0, 0}, p[4] = {0, 0, 0, 0};
            for (uint32_t n = 0; n < a.keys; n++)
                m[n % 4] = k_fma(h[n], k[n], m[n % 4]);
            float u = (a.v[i * a.ldv + column] - decay * ((m[0] + m[2]) + (m[1] + m[3]))) *
                      a.beta[(size_t)i * a.heads + head];
            for (uint32_t n = 0; n < a.keys; n++) {
                h[n] = k_fma(h[n], decay, u * k[n]);
                p[n % 4] = k_fma(h[n], q[n], p[n % 4]);
            }
            a.out[(size_t)i * a.heads * a.values + column] =
                a.scale * ((p[0] + p[2]) + (p[1] + p[3]));
            float *to = plane_of(&a.s, a.s.dst[i]);
            for (uint32_t n = 0; a.s.dst[i] && n < a.keys; n++)
                to[at + (size_t)n * a.values] = h[n];
        }
    }
}
