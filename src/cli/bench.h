/* bench.h - private to the bench command: measuring (bench_run.c), printing (cmd_bench.c), drawing (bench_report.c). */
#pragma once
#include "cli/cli.h"

#define BENCH_DEPTHS  16u
#define BENCH_SAMPLES 64u
#define BENCH_RUNS    16u

struct bench_strategy {
    const char *name, *implementation;
    const char *config; /* cache_config or NULL */
};
struct bench_depth {
    uint32_t depth;
    double prefill[BENCH_RUNS], decode[BENCH_RUNS]; /* tokens per second */
    uint64_t bytes;                                 /* rows held, in memory and on disk */
};
struct bench_row {
    struct bench_strategy s;
    char *refused; /* owned: why there are no numbers */
    struct bench_depth at[BENCH_DEPTHS];
    uint64_t peak;
    uint32_t n_samples, sample_tokens[BENCH_SAMPLES];
    uint64_t sample_bytes[BENCH_SAMPLES]; /* in memory */
};
struct bench {
    struct session *session;
    const char *model;
    uint32_t n_depths, depth[BENCH_DEPTHS];
    uint32_t runs, steps;
    uint64_t weight_bytes; /* a decode step reads them once */
    double bandwidth;      /* bytes per second */
    struct bench_row *row;
    uint32_t n_rows;
};
/* What the library says of the model, or NULL; json_decref. */
json_t *bench_describe(const kvik_model *m);
/* The strategies that say something about this model, dynamic first.  At most `room`. */
uint32_t bench_strategies(const kvik_model *m, uint32_t longest, struct bench_strategy *s,
                          uint32_t room);
/* One run of one row; a refusal is not an error.  0, or EXIT_INTERRUPTED. */
int bench_run(struct bench *b, struct bench_row *r, uint32_t run, struct progress *p);
double bench_median(const double *v, uint32_t n);
/* Seconds of a decode step at a depth if memory were the only cost. */
double bench_floor(const struct bench *b, const struct bench_depth *d);
json_t *bench_json(const struct bench *b);
int bench_report(const struct bench *b, const char *path); /* one HTML page, whole or not at all */
