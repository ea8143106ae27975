/* ssm.h - shared by the files of recurrent states (conv*.c, ssm*.c, delta*.c): types of their kernels, and how scan_work.c splits
 * their work. */
#pragma once
#include "dev/cpu/cpu.h"

#define SCAN_LANES 16u /* columns of a strip, one per lane of a vector */
#define SCAN_ROWS  (DEV_SCAN_STATES > DEV_DELTA_KEYS ? DEV_SCAN_STATES : DEV_DELTA_KEYS)

/* The tokens of one lane in a step, and the pages of its state. */
struct scan_span {
    uint32_t t0, t1;
    uint32_t pos;      /* number of tokens before token t0 */
    const float *from; /* the plane of the page to read; NULL: zeros */
};
struct scan_span scan_span(const struct kv_view *v, uint32_t plane, uint32_t lane);
/* Returns the plane of the page to write after token t, or NULL. */
float *scan_dst(const struct kv_view *v, uint32_t plane, uint32_t t);
/* Returns how many of `strips` strips a task takes, so that it has work for some microseconds.  cost: operations of one
 * strip and token. */
uint32_t scan_per_task(const struct kv_view *v, uint32_t strips, size_t cost);

/* A strip of a state: its first value in the first row of the page, and its columns (1 to SCAN_LANES). */
struct scan_strip {
    uint32_t i; /* number of the strip */
    size_t at;
    uint32_t lanes;
};
struct scan_work {
    const struct kv_view *v;
    uint32_t plane, strips;
    uint32_t rows; /* rows of a strip's state, at most SCAN_ROWS */
    size_t width;  /* from a row of the page to the next */
    size_t cost;   /* operations of one strip and token */
    const void *arg;
    struct scan_strip (*place)(const void *arg, uint32_t i);
    /* Passes n tokens from token t on over the strip's state h [rows][SCAN_LANES]. */
    void (*pass)(const void *arg, const struct scan_strip *s, uint32_t t, uint32_t n, float *h);
};
void scan_run(struct dev_queue *d, const struct scan_work *w);

/* Computes one token: out[i] = silu(bias[i] + the sum over k < taps of w[k * ldw + i] * row[k][i]), i < n. */
typedef void (*cpu_conv_fn)(const float *const *row, uint32_t taps, const float *w, size_t ldw,
                            const float *bias, uint32_t n, float *out);
/* One strip of one lane, tokens one after another. */
struct cpu_scan {
    float *h; /* [states][SCAN_LANES] */
    const float *x;
    size_t ldx;
    const float *dt; /* [tokens] apart by lddt: of lane i, dt[i / per] */
    size_t lddt;
    uint32_t head0, per; /* lane i belongs to head (head0 + i) / per */
    const float *b, *c;
    size_t ldb;
    const float *a; /* [states], lda apart; lda 0: one row for all */
    size_t lda;
    const float *d;
    float *out;
    size_t ldo;
    uint32_t lanes, states, tokens;
};
typedef void (*cpu_scan_fn)(const struct cpu_scan *j);

/* One strip of values of one head, tokens one after another. */
struct cpu_delta {
    float *h; /* [keys][SCAN_LANES] */
    const float *q, *k;
    size_t ldq;
    const float *v;
    size_t ldv;
    const float *dt, *beta; /* one value for each token; tokens are lddt apart */
    size_t lddt;
    float a, scale;
    float *out;
    size_t ldo;
    uint32_t lanes, keys, tokens;
};
typedef void (*cpu_delta_fn)(const struct cpu_delta *j);
