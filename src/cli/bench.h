/* bench.h - private to the bench command: bench_run.c measures, cmd_bench.c prints, bench_report.c draws. */
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
    uint64_t bytes;                                 /* of cached rows, in memory and on disk */
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
    uint64_t weight_bytes; /* that a decode step reads once */
    double bandwidth;      /* bytes per second */
    struct bench_row *row;
    uint32_t n_rows;
};
/* Returns the library's description of the model, or NULL; json_decref. */
json_t *bench_describe(const kvik_model *m);
/* Fills s with the strategies that this model can use, dynamic first.  Returns how many, at most `room`. */
uint32_t bench_strategies(const kvik_model *m, uint32_t longest, struct bench_strategy *s,
                          uint32_t room);
/* Measures one run of one row; a refusal of the library is not an error.  Returns 0 or EXIT_INTERRUPTED. */
int bench_run(struct bench *b, struct bench_row *r, uint32_t run, struct progress *p);
double bench_median(const double *v, uint32_t n);
/* Returns the seconds of a decode step at a depth if reading memory were the only cost. */
double bench_floor(const struct bench *b, const struct bench_depth *d);
json_t *bench_json(const struct bench *b);
/* Writes one HTML page, whole or not at all. */
int bench_report(const struct bench *b, const char *path);
