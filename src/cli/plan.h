/* plan.h - shared by the files of kvik plan, which predicts how much memory a cache takes and how fast it decodes.
 * plan_bytes.c asks the library for the bytes, plan_speed.c measures a few steps, plan_table.c
 * prints. */
#pragma once
#include "cli/bench.h"

#define PLAN_ROWS 48u
#define PLAN_CALL 256u
/* Steps in a row, because the first one wakes the threads of a cache. */
#define PLAN_TURN 4u
#define PLAN_FEW  64u

/* The kind of a strategy, best first. */
enum plan_rank { PLAN_EXACT, PLAN_QUANTIZED, PLAN_DISK, PLAN_FORGETS };

struct plan_row {
    char name[96];
    const char *implementation, *config; /* borrowed, or NULL */
    char *own;                           /* owned config, or NULL */
    char *refused;                       /* owned: why there are no numbers */
    enum plan_rank rank;
    bool on_disk;   /* rows can leave memory, whatever the rank */
    uint32_t order; /* index in the list of planned rows, in which more bits come first */
    kvik_cache *cache;
    /* bytes of one sequence.  further: bytes that each further sequence adds if it shares the prompt */
    uint64_t rows, quantized, states, further;
    uint64_t tables; /* bytes of tables, of all sequences */
    uint64_t peak;   /* most bytes of rows and states, as a rule at the end of the prompt */
    uint64_t disk;   /* bytes that can live on disk */
    uint64_t need;   /* memory that a cache needs for all this */
    uint64_t seen;   /* rows that the last token sees, over all layers */
    /* fits: with the prompt in one call; fits_in_calls: in calls of PLAN_CALL tokens */
    bool fits, fits_in_calls;
    uint32_t longest; /* tokens that fit the memory; 0: not asked */
    double tokens;    /* predicted tokens per second of all sequences together; 0: not measured */
    double pace;      /* seconds of a step of the reference meanwhile */
    /* tokens behind which steps were measured; extrapolated: the planned length is further away than those steps */
    uint32_t measured;
    bool extrapolated;
};

/* A few computed tokens (plan_few.c). */
struct plan_few {
    kvik_cache *cache; /* the reference: a dynamic cache.  NULL: not open */
    kvik_seq seq;
    struct kvik_export *rows; /* of the sequence, or NULL */
};

struct plan {
    struct measured is;
    /* tokens; decoded: how many of them are decoded; beams: sequences */
    uint32_t context, decoded, beams;
    uint64_t memory; /* 0: no limit was given */
    bool measures;
    uint64_t weight_bytes;
    double bandwidth;
    /* share of the processors' time that other programs took meanwhile; below 0: unknown */
    double others;
    struct plan_few few;
    struct plan_row row[PLAN_ROWS];
    uint32_t n_rows;
};
static inline uint32_t plan_prompt(const struct plan *v)
{
    return v->context - v->decoded;
}

/* plan_bytes.c */
/* Adds the strategies that the user named, or those of the build.  Returns an exit status. */
int plan_rows(struct plan *v, const char *implementation, const struct arg_list *configs);
/* Predicts the bytes of a row; a refusal of the library is not an error.  Returns an exit status. */
int plan_bytes(struct plan *v, struct plan_row *r);
/* Returns how many rows the n-th token of a sequence reads, over all layers. */
uint64_t plan_seen(const struct plan_row *r, uint32_t n);
/* Sorts the rows: those that fit first, and the best of them first. */
void plan_sort(struct plan *v);
void plan_close(void *v);

/* plan_few.c */
/* Opens a cache with this configuration and computes PLAN_FEW tokens, at most half of max_cache_len.  Returns an error
 * code. */
int plan_few_open(struct plan_few *f, kvik_model *m, const kvik_cache_config *config);
void plan_few_close(struct plan_few *f);
/* Measures n steps, at most PLAN_FEW.  logits: [vocab].  seconds: [n].  Returns an error code. */
int plan_few_steps(const struct plan_few *f, uint32_t n, float *logits, double *seconds);
/* Makes a sequence of n tokens in a cache of the same model: the rows of the few again and again.  *out: dropped by the
 * caller.  Returns an error code: ERR_FULL if so many do not fit. */
int plan_few_repeat(struct plan_few *f, kvik_cache *c, uint32_t n, kvik_seq *out);

/* plan_speed.c */
/* Predicts the speed of a row.  Returns 0 or EXIT_INTERRUPTED. */
int plan_speed(struct plan *v, struct plan_row *r);
/* Gives all rows the speed that they would have had at the same time: at the median pace of the machine. */
void plan_speed_settle(struct plan *v);

/* plan_table.c */
void plan_print(const struct plan *v);
json_t *plan_json(const struct plan *v);
