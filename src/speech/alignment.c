/* alignment.c - finds when each token was spoken, from its attention to the sound.  The weights of each head are
 * normalized over the tokens and smoothed along time by a median.  The mean of the heads is a map of tokens and
 * times.  The path through this map that never goes back and has the largest sum tells the time of each token:
 * when the path reaches it.  Values and ties are those of Transformers, which works in float32. */
#include "speech/speech.h"

#include <math.h>
#include <string.h>

/* Normalizes each column over the tokens: mean 0, deviation 1. */
static void normalize(float *w, uint32_t n, uint32_t columns, uint32_t used)
{
    for (uint32_t c = 0; c < used; c++) {
        double sum = 0, squares = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += (double)w[(size_t)i * columns + c];
        double mean = sum / n;
        for (uint32_t i = 0; i < n; i++) {
            double d = (double)w[(size_t)i * columns + c] - mean;
            squares += d * d;
        }
        float centre = (float)mean, deviation = (float)sqrt(squares / n);
        for (uint32_t i = 0; i < n; i++)
            w[(size_t)i * columns + c] = (w[(size_t)i * columns + c] - centre) / deviation;
    }
}

/* Sorts as torch does: NaN is the largest. */
static void sort_few(float *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        float x = v[i];
        uint32_t at = i;
        for (; at > 0 && !isnan(v[at - 1]) == !isnan(x) && v[at - 1] > x; at--)
            v[at] = v[at - 1];
        if (!isnan(x))
            for (; at > 0 && (isnan(v[at - 1]) || v[at - 1] > x); at--)
                v[at] = v[at - 1];
        v[at] = x;
    }
}

enum { WIDEST = 63 };

/* Replaces a row by its running median; the ends are mirrored. */
static void smooth(float *row, uint32_t used, uint32_t width, float *tmp)
{
    uint32_t pad = width / 2;
    float few[WIDEST];
    if (used <= pad) return;
    memcpy(tmp, row, used * sizeof *tmp);
    for (uint32_t c = 0; c < used; c++) {
        for (uint32_t j = 0; j < width; j++) {
            int64_t at = (int64_t)c + j - pad;
            if (at < 0) at = -at;
            if (at >= used) at = 2 * ((int64_t)used - 1) - at;
            few[j] = tmp[at];
        }
        sort_few(few, width);
        row[c] = few[pad];
    }
}

/* Finds the path through map[n][columns] from its beginning to its end.  cost: [n + 1] for one column of times;
 * trace: [n + 1][used + 1]. */
static void walk_costs(const float *map, uint32_t n, uint32_t columns, uint32_t used, float *cost,
                       uint8_t *trace, double *time)
{
    enum { BOTH, TOKEN, TIME };
    size_t width = used + 1;
    for (uint32_t i = 0; i <= n; i++)
        cost[i] = i ? INFINITY : 0;
    for (uint32_t j = 1; j <= used; j++) {
        float before = cost[0]; /* cost of the cell at i - 1 and j - 1 */
        cost[0] = INFINITY;
        for (uint32_t i = 1; i <= n; i++) {
            float both = before, token = cost[i - 1], still = cost[i], least = still;
            uint8_t step = TIME;
            if (both < token && both < still) {
                least = both;
                step = BOTH;
            } else if (token < both && token < still) {
                least = token;
                step = TOKEN;
            }
            before = cost[i];
            cost[i] = (float)(-(double)map[(size_t)(i - 1) * columns + j - 1] + (double)least);
            trace[i * width + j] = step;
        }
    }
    uint32_t i = n, j = used;
    while (i > 0 || j > 0) {
        uint8_t step = i == 0 ? TIME : j == 0 ? TOKEN : trace[i * width + j];
        /* The path reaches token i where it leaves token i - 1.  Cells are visited backwards, so the earliest cell
         * of a token is written last. */
        if (i > 0) time[i - 1] = j > 0 ? (j - 1) * SPEECH_TICK : 0;
        if (step != TIME) i--;
        if (step != TOKEN) j--;
    }
}

int alignment_times(float *weight, uint32_t heads, uint32_t n, uint32_t columns, uint32_t used,
                    uint32_t median, double *time)
{
    used = MIN(used, columns);
    if (!n || !used) {
        memset(time, 0, n * sizeof *time);
        return 0;
    }
    if (median % 2 == 0 || median > WIDEST)
        return ERR(UNSUPPORTED, "median_filter_width %u: odd numbers up to %d are supported",
                   median, WIDEST);
    float *tmp = mem_array(MAX(used, n + 1), sizeof *tmp);
    uint8_t *trace = mem_array((size_t)n + 1, used + 1);
    if (!tmp || !trace) {
        mem_free(tmp);
        mem_free(trace);
        return ERR_NOMEM;
    }
    for (uint32_t h = 0; h < heads; h++) {
        float *w = weight + (size_t)h * n * columns;
        normalize(w, n, columns, used);
        for (uint32_t i = 0; i < n; i++)
            smooth(w + (size_t)i * columns, used, median, tmp);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < used; c++) {
            float sum = 0;
            for (uint32_t h = 0; h < heads; h++)
                sum += weight[((size_t)h * n + i) * columns + c];
            weight[(size_t)i * columns + c] = sum / (float)heads;
        }
    walk_costs(weight, n, columns, used, tmp, trace, time);
    mem_free(tmp);
    mem_free(trace);
    return 0;
}
