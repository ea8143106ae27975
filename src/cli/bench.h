/* bench.h - shared by the files of the bench command.  bench_text.c makes the tokens.  bench_run.c measures
 * strategies that grow in pieces, bench_pace.c compares their steps with those of a dynamic cache, bench_prompt.c
 * measures one prompt in one call.  bench_host.c names the machine and the model, bench_load.c measures how busy
 * the machine was.  bench_judge.c decides which speeds are reliable, bench_found.c puts the findings into
 * sentences, bench_table.c prints tables and JSON, bench_report.c writes the page. */
#pragma once
#include "cli/cli.h"

#define BENCH_DEPTHS  16u
#define BENCH_SAMPLES 64u
#define BENCH_RUNS    16u
#define BENCH_NAME    48u
/* The number of tokens after the prompt whose logits are compared with those of the dynamic cache. */
#define BENCH_QUALITY 64u
/* The number of tokens in one call of bench_run.c and in one chunk of bench_prompt.c, and so the distance of
 * samples of the memory curve. */
#define BENCH_PIECE 256u

struct bench_strategy {
    char name[BENCH_NAME];
    const char *implementation;
    char config[96]; /* cache_config, or "" */
    bool forgets;    /* later tokens see only a part of the rows */
};
struct bench_depth {
    uint32_t depth;
    double prefill[BENCH_RUNS], decode[BENCH_RUNS]; /* tokens per second */
    /* for each run, its decoding speed as a share of the dynamic cache's in the same turns; 0: not measured */
    double ratio[BENCH_RUNS];
    uint64_t bytes; /* bytes of cached rows, in memory and on disk */
};
/* Memory against tokens. */
struct bench_curve {
    uint32_t n, tokens[BENCH_SAMPLES];
    uint64_t bytes[BENCH_SAMPLES]; /* in memory: in use or set aside */
    uint64_t peak;
};
/* A prompt of the greatest depth that was fed in one call, and the quality of the tokens after it. */
struct bench_prompt {
    struct bench_curve memory;
    uint64_t held, disk; /* bytes after the prompt: in memory, on disk */
    double prefill;      /* tokens per second */
    /* Compared positions, and at how many of them the most likely token is that of the dynamic cache. */
    uint32_t n, same;
    double kld;     /* mean Kullback-Leibler divergence from the dynamic cache, in nats */
    bool identical; /* all logits are bit-identical to those of the dynamic cache */
};
struct bench_row {
    struct bench_strategy s;
    char *refused;  /* owned: why there are no numbers */
    bool late;      /* refused because no time was left */
    uint32_t runs;  /* complete runs */
    double seconds; /* of the last run */
    struct bench_depth at[BENCH_DEPTHS];
    struct bench_curve pieces;
    struct bench_prompt prompt;
};
/* The dynamic cache that takes turns with each strategy (bench_pace.c). */
struct bench_pace {
    kvik_cache *cache;                      /* NULL: there is none */
    kvik_seq grows, at[BENCH_DEPTHS], turn; /* `turn`: a fork that decodes, or 0 */
    uint32_t depth;                         /* tokens of `turn` */
    float *logits;
};
/* What was measured, and where. */
struct bench_machine {
    char model[128], cpu[128], date[16];
    uint32_t threads;
};
struct bench {
    struct engine *engine;
    struct bench_pace pace;
    struct bench_machine machine;
    const char *text; /* file of the measured text; NULL: the model wrote it */
    uint32_t window;  /* tokens that sliding windows and sinks keep; 0: the model's own windows */
    uint32_t n_depths, depth[BENCH_DEPTHS];
    uint32_t runs, steps;
    double seconds; /* seconds that the benchmark took */
    double limit;   /* most seconds that it may take; 0: no limit */
    double others;  /* share of the processors' time that other programs took; below 0: unknown */
    bool in_turn;   /* true if the strategies decoded in turn with the dynamic cache */
    int32_t *ids;   /* owned: the measured text */
    uint32_t n_ids;
    uint64_t weight_bytes; /* bytes of weights that a decode step reads once */
    double bandwidth;      /* bytes per second that memory was read at */
    struct bench_row *row; /* owned */
    uint32_t n_rows;
    float *logits; /* owned: [BENCH_QUALITY][vocab] logits of the dynamic cache */
};
static inline uint32_t bench_longest(const struct bench *b)
{
    return b->depth[b->n_depths - 1];
}
/* Returns the number of tokens of one turn in the growing conversation. */
static inline uint32_t bench_turn(const struct bench *b)
{
    return MAX(BENCH_PIECE, bench_longest(b) / 40 + 1);
}

/* bench_host.c */
/* word: the model as the user named it. */
void bench_machine_name(const struct engine *s, const char *word, struct bench_machine *out);
/* Returns the library's description of the model, or NULL; json_decref. */
json_t *bench_describe(const kvik_model *m);
/* Adds up the bytes of all tensors, except an embedding that is only looked up: what a step reads. */
uint64_t bench_weight_bytes(const kvik_model *m);

/* measuring.c */
/* The first member of the struct of every measurement. */
struct measured {
    struct engine *engine;
    struct bench_machine machine;
};
/* A command that measures one MODEL; its options begin with struct common. */
struct measuring {
    /* size of the struct that begins with struct measured */
    size_t bytes;
    int (*check)(const void *options);            /* before the model is opened */
    int (*measure)(void *v, const void *options); /* v: zeros except for struct measured */
    void (*close)(void *v);
};
/* Reads the options, opens the engine and measures.  Returns the exit status of the command. */
int measuring_run(const struct command *self, const struct measuring *m, int argc, char **argv,
                  void *options);
/* How a cache is opened to be measured. */
struct cache_options {
    const char *implementation, *config; /* or NULL */
    uint32_t sequences,
        tokens;      /* tokens of a sequence, unless the configuration has max_cache_len */
    uint64_t memory; /* 0: no limit */
};
/* Returns the configuration of a measured cache, with the options of the command line.  It has no prefix index and
 * the fewest snapshots, so that the peak is the memory that the strategy needs; snapshots would be evicted before
 * anything else. */
kvik_cache_config cache_config(const struct common *o, const struct cache_options *c);
/* Returns the value of a key of cache_config, which may be spelled with '-', or NULL. */
const json_t *config_value(json_t *config, const char *name);
/* Warns if `others` (from bench_load_others) is more than BENCH_BUSY.  Returns true if it is. */
bool say_busy(double others);

/* bench_text.c */
/* Estimates the seconds of the whole benchmark by a short trial; 0: unknown. */
double bench_estimate(const struct bench *b);
/* Fills ids with the tokens of the file b->text, or with text that the model samples.  Returns the exit status. */
int bench_text(struct bench *b, struct progress *p);

/* bench_run.c */
/* Fills s with the strategies that this model can use, dynamic first.  Returns how many, at most `room`. */
uint32_t bench_strategies(struct bench *b, struct bench_strategy *s, uint32_t room);
/* Opens a cache of one sequence for a strategy.  Returns an error code. */
int bench_open(const struct bench *b, const struct bench_strategy *s, kvik_cache **cache,
               kvik_seq *seq);
/* Measures the next run of one row; a refusal of the library is not an error.  Returns 0 or EXIT_INTERRUPTED. */
int bench_run(struct bench *b, struct bench_row *r);
/* Notes why a row has no numbers.  Returns 0, or EXIT_INTERRUPTED after Ctrl-C. */
int bench_refuse(struct bench_row *r, int error);
void bench_sample(kvik_cache *c, uint32_t tokens, struct bench_curve *curve);

/* bench_judge.c */
double bench_median(const double *v, uint32_t n);
/* Returns half the range of n runs as a share of their median; 0 for one run.  With four or more runs the highest
 * and the lowest quarter are left out, so that one bad moment does not hide that the others agree. */
double bench_spread(const double *v, uint32_t n);
/* Returns the least seconds of a decode step at a depth: the time to read the memory that it needs. */
double bench_floor(const struct bench *b, const struct bench_depth *d);
/* Why a speed is doubtful: decoding scatters, decoding is faster than memory was read, or the prefill scatters. */
enum { BENCH_SCATTERS = 1, BENCH_ABOVE = 2, BENCH_PREFILL = 4 };
unsigned bench_marks(const struct bench *b, const struct bench_row *r, uint32_t d);
/* Returns the marks that any row has at any depth. */
unsigned bench_marks_all(const struct bench *b);
/* Returns "scatters, above floor"; "" without marks. */
const char *bench_marks_text(unsigned marks, char out[48]);
/* True if the ratio of a row's speed to the dynamic cache's is reliable at the greatest depth. */
bool bench_comparable(const struct bench *b, const struct bench_row *r);
/* True if a row is to be measured once more. */
bool bench_again(const struct bench *b, const struct bench_row *r);
/* Returns the seconds that a benchmark may take.  asked: what the user allows, or 0.  0: no limit. */
double bench_limit(double estimate, uint32_t asked);
/* True if work of `expected` seconds ends within the limit. */
bool bench_fits(const struct bench *b, double elapsed, double expected);
/* Writes a sentence on what the time limit left out; nothing if everything was measured. */
void bench_left_out(const struct bench *b, struct buf *out);

/* bench_load.c: seconds of processor time since boot, of all programs, and of this one. */
struct bench_load {
    bool known;
    double used, idle, own;
};
/* Reads the first line of /proc/stat.  Returns false if it counts nothing. */
bool bench_load_parse(const char *line, double ticks_per_second, struct bench_load *l);
/* share of the processors' time above which the user gets a warning */
#define BENCH_BUSY 0.1
void bench_load_read(struct bench_load *l);
/* Returns the share of processor time that other programs, and other machines on the same host, took; -1: unknown. */
double bench_load_others(const struct bench_load *from, const struct bench_load *to);

/* bench_pace.c */
/* Opens the dynamic cache and fills it up to the greatest depth.  If it does not fit, there is none.  Returns 0 or
 * EXIT_INTERRUPTED. */
int bench_pace_open(struct bench *b);
void bench_pace_close(struct bench *b);
/* Begin decoding at depth number d; measure one step, in seconds (0: there is no dynamic cache); end decoding. */
int bench_pace_begin(struct bench *b, uint32_t d);
int bench_pace_step(struct bench *b, double *seconds);
int bench_pace_end(struct bench *b);
/* Called after each run: replaces the speed of each strategy by that of the dynamic cache times the strategy's
 * ratio. */
void bench_pace_settle(struct bench *b);

/* bench_prompt.c */
/* Measures one prompt in one call.  The first row keeps its logits in b, the others are compared with them. */
int bench_prompt(struct bench *b, struct bench_row *r);

/* bench_found.c */
/* True if more than a fifth of the tokens differ from those of the dynamic cache. */
bool bench_lost(const struct bench_prompt *p);
/* Returns the row with the least memory.  Candidates keep every token, have not lost quality, and decode at least
 * half as fast as the dynamic cache.  NULL: no candidate needs less memory than the dynamic cache. */
const struct bench_row *bench_best(const struct bench *b);
/* Returns the decoding speed of a row at the greatest depth. */
double bench_speed(const struct bench *b, const struct bench_row *r);
/* Writes the main finding as one sentence without HTML. */
void bench_headline(const struct bench *b, struct buf *out);
/* Writes how it was measured: model, CPU, threads, date, runs. */
void bench_method(const struct bench *b, struct buf *out);
/* Writes what the marks in tables mean, and what the time limit left out; nothing if all speeds are reliable. */
void bench_marks_say(const struct bench *b, struct buf *out);
/* Returns "identical", "61 of 64" or "-". */
const char *bench_quality(const struct bench_prompt *p, char out[24]);

/* bench_table.c */
void bench_print(const struct bench *b);
json_t *bench_json(const struct bench *b);
/* Writes one table in Markdown, a row for each strategy. */
void bench_markdown(const struct bench *b, struct buf *out);

/* bench_report.c: writes the page, whole or not at all.  Returns an error code. */
int bench_report(const struct bench *b, const char *path);
