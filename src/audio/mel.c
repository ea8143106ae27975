/* mel.c - one frame of a log-mel spectrogram: a periodic Hann window, a Fourier transform of 400 points, and a
 * bank of triangular filters on the mel scale of Slaney's Auditory Toolbox, each of unit area.
 *
 * The transform is a sum with tables.  400 is no power of two, and one frame covers 10 ms of sound: a plain sum is
 * simple and fast enough.  Two symmetries leave 40 000 of its 320 000 products: bins of even and odd number see
 * the sum and the difference of the two halves of the frame, and cosines and sines see the even and the odd part
 * of that.  Sums are in double, so that the result is closer to the true value than any float transform. */
#include "audio/audio.h"

#include <math.h>
#include <string.h>

#define HALF    (MEL_WINDOW / 2) /* 200 */
#define QUARTER (MEL_WINDOW / 4) /* 100 */
#define BINS    (HALF + 1)
#define LANES   104u /* bins of one parity, 101 or 100, filled up to whole vectors */

struct band {
    uint32_t first, n; /* bins with a weight */
    double weight[BINS];
};
struct mel {
    double window[MEL_WINDOW];
    /* [parity of the bin][n][bin / 2]; n counts the samples of a quarter */
    double cosine[2][QUARTER + 1][LANES], sine[2][QUARTER + 1][LANES];
    uint32_t bands;
    struct band band[];
};

/* The mel scale of Slaney: linear up to 1 000 Hz, logarithmic above. */
static const double knee_hz = 1000, knee_mel = 15;
static double log_step(void)
{
    return log(6.4) / 27;
}
static double mel_of(double hz)
{
    return hz < knee_hz ? 3 * hz / 200 : knee_mel + log(hz / knee_hz) / log_step();
}
static double hz_of(double mel)
{
    return mel < knee_mel ? 200 * mel / 3 : knee_hz * exp(log_step() * (mel - knee_mel));
}

/* Fills a triangle from low over mid to high (Hz), of unit area. */
static void fill_band(struct band *b, double low, double mid, double high)
{
    double area = 2 / (high - low);
    b->first = BINS;
    for (uint32_t k = 0; k < BINS; k++) {
        double hz = (double)k * AUDIO_RATE / MEL_WINDOW;
        double up = (hz - low) / (mid - low), down = (high - hz) / (high - mid);
        double w = MAX(0, MIN(up, down)) * area;
        if (w <= 0) continue;
        if (b->first == BINS) b->first = k;
        b->n = k - b->first + 1;
        b->weight[k - b->first] = w;
    }
    if (b->first == BINS) b->first = 0;
}

static void fill_tables(struct mel *m)
{
    const double turn = 2 * M_PI / MEL_WINDOW;
    for (uint32_t i = 0; i < MEL_WINDOW; i++)
        m->window[i] = 0.5 - 0.5 * cos(turn * i);
    for (uint32_t odd = 0; odd < 2; odd++)
        for (uint32_t n = 0; n <= QUARTER; n++)
            for (uint32_t i = 0; 2 * i + odd < BINS; i++) {
                double angle = turn * ((2 * i + odd) * n % MEL_WINDOW);
                m->cosine[odd][n][i] = cos(angle);
                m->sine[odd][n][i] = sin(angle);
            }
}

int mel_open(uint32_t bands, struct mel **out)
{
    if (bands < 1 || bands > MEL_MOST)
        return ERR(UNSUPPORTED, "log-mel features with %u bands: 1 to %u are supported", bands,
                   MEL_MOST);
    struct mel *m = mem_alloc(sizeof *m + bands * sizeof m->band[0]);
    if (!m) return ERR_NOMEM;
    m->bands = bands;
    fill_tables(m);
    double step = mel_of(AUDIO_RATE / 2.0) / (bands + 1);
    for (uint32_t i = 0; i < bands; i++)
        fill_band(&m->band[i], hz_of(i * step), hz_of((i + 1) * step), hz_of((i + 2) * step));
    *out = m;
    return 0;
}

void mel_close(struct mel *m)
{
    mem_free(m);
}

/* Adds v times a table to sums, LANES values of each. */
static void add_lanes(double *restrict sum, const double *restrict table, double v)
{
    for (uint32_t i = 0; i < LANES; i++)
        sum[i] += v * table[i];
}

void mel_frame(const struct mel *m, const float *samples, float *out)
{
    double half[2][HALF], power[BINS];
    for (uint32_t n = 0; n < HALF; n++) {
        double a = samples[n] * m->window[n], b = samples[n + HALF] * m->window[n + HALF];
        half[0][n] = a + b;
        half[1][n] = a - b;
    }
    for (uint32_t odd = 0; odd < 2; odd++) {
        const double *x = half[odd];
        double re[LANES] = {0}, im[LANES] = {0};
        /* Sample HALF - n has the cosine of sample n with the sign of the parity, and its sine with the other. */
        double sign = odd ? -1 : 1;
        add_lanes(re, m->cosine[odd][0], x[0]);
        for (uint32_t n = 1; n < QUARTER; n++) {
            add_lanes(re, m->cosine[odd][n], x[n] + sign * x[HALF - n]);
            add_lanes(im, m->sine[odd][n], x[n] - sign * x[HALF - n]);
        }
        add_lanes(re, m->cosine[odd][QUARTER], x[QUARTER]);
        add_lanes(im, m->sine[odd][QUARTER], x[QUARTER]);
        for (uint32_t i = 0; 2 * i + odd < BINS; i++)
            power[2 * i + odd] = re[i] * re[i] + im[i] * im[i];
    }
    for (uint32_t b = 0; b < m->bands; b++) {
        const struct band *f = &m->band[b];
        double sum = 0;
        for (uint32_t i = 0; i < f->n; i++)
            sum += power[f->first + i] * f->weight[i];
        out[b] = (float)log10(MAX(sum, 1e-10));
    }
}
