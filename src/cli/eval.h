/* eval.h - shared by the files of kvik eval, which measures how far quantized caches change what a model says.
 * eval_text.c makes the windows of tokens, eval_run.c feeds them to the caches, eval_score.c adds scores up,
 * eval_table.c prints tables and JSON, eval_report.c writes the page. */
#pragma once
#include "base/divergence.h"
#include "base/thread.h"
#include "cli/bench.h"

#define EVAL_ROWS  48u
#define EVAL_BLOCK 128u /* most positions that are compared at once */

/* How far one cache's predictions differ from those of the reference (16-bit rows), over all scored positions. */
struct eval_scores {
    uint32_t n;     /* scored positions */
    uint32_t same;  /* scored positions with the same most likely token */
    double nll;     /* sum of -log(probability of the token that follows), in nats */
    double *kld;    /* [most] owned: divergence at each position, in nats */
    bool identical; /* all logits have the same bits */
};
/* Numbers of a row that follow from its scores. */
struct eval_summary {
    double perplexity, mean, error, p99, p999, most; /* error: standard error of the mean */
};
struct eval_row {
    char name[96];
    const char *config; /* cache_config, borrowed; NULL: the reference */
    char *own;          /* owned config, or NULL */
    char *refused;      /* owned: why there are no numbers */
    uint32_t residual;  /* rows that gather before they are quantized */
    kvik_cache *cache;
    kvik_seq seq;
    uint32_t fed;          /* tokens of the window so far */
    uint64_t bytes;        /* bytes of the rows of a whole window, in memory and on disk */
    double bits;           /* bits of a value in rows of their final form, scales included */
    struct eval_scores at; /* scores of the row; the reference has a perplexity and no divergence */
    struct eval_summary sum;
};

struct eval {
    struct measured is;
    const char *text; /* file */
    char sha256[65];
    char rows[8];     /* type of the reference's rows */
    uint32_t window;  /* tokens of a window; the first half is a prompt, the second is scored */
    uint32_t wanted;  /* tokens to score at least, if the text has them */
    uint32_t windows; /* number of windows */
    int32_t *lead;    /* [n_lead] owned: tokens before each window, such as bos */
    uint32_t n_lead;
    int32_t *ids; /* [n_ids] owned: the text */
    uint32_t n_ids;
    struct eval_row row[EVAL_ROWS]; /* row[0]: the reference */
    uint32_t n_rows;
    uint32_t block; /* positions that are compared at once */
    struct pool *pool;
    float *logits, *other; /* [block][vocab] owned: of the reference, and of a row */
    double *p;             /* [block][vocab] owned */
    struct divergence at[EVAL_BLOCK];
    double seconds;
};
static inline uint32_t eval_prompt(const struct eval *v)
{
    return v->window / 2;
}
static inline uint32_t eval_scored(const struct eval *v)
{
    return v->window - eval_prompt(v);
}

/* eval_text.c */
/* Reads the text and chooses the number of windows.  Returns an exit status. */
int eval_text(struct eval *v);
/* Copies tokens [from, from + n) of window w; the token after the window is its token number `window`. */
void eval_tokens(const struct eval *v, uint32_t w, uint32_t from, uint32_t n, int32_t *out);

/* eval_run.c */
/* Adds a row for each codec of this build, or for each given configuration.  Returns an exit status. */
int eval_rows(struct eval *v, const struct arg_list *configs);
/* Opens the caches.  A cache that is refused has no numbers.  Returns an exit status. */
int eval_open(struct eval *v);
/* Feeds all windows to all caches.  Returns an exit status. */
int eval_run(struct eval *v);
void eval_close(void *v);

/* eval_score.c */
/* Returns the smallest value that at least the share `q` of the values does not exceed.  Sorts them. */
double eval_quantile(double *v, uint32_t n, double q);
struct eval_summary eval_summary(const struct eval_scores *s);

/* eval_table.c */
void eval_method(const struct eval *v, struct buf *out);
void eval_print(const struct eval *v);
json_t *eval_json(const struct eval *v);
void eval_markdown(const struct eval *v, struct buf *out);

/* eval_report.c: writes the page, whole or not at all.  Returns an error code. */
int eval_report(const struct eval *v, const char *path);
