/* plan_speed.c - predicts how fast a cache decodes.  Steps are measured behind as many cached tokens as are planned, most of
 * which are not computed (plan_few.c).  If so many do not fit the memory, steps are measured behind as many as do and behind
 * half of them, and the difference is extrapolated to the rows that a token reads at the planned length. */
#include "cli/plan.h"

#include <math.h>

enum { LEAST = 12, STEPS = 64, PIECE = 256 };
#define STEP_SECONDS   0.5
#define PROMPT_SECONDS 2.0

struct trial {
    struct plan *v;
    struct plan_row *r;
    kvik_seq grows;
    uint32_t len;    /* tokens of `grows` */
    float *logits;   /* [beams][vocab] */
    kvik_seq *seq;   /* [beams] */
    kvik_span *span; /* [beams] */
    int32_t *ids;    /* [beams][PIECE] */
    uint32_t vocab, seed;
};
/* A measurement behind `len` tokens.  seen: rows that a token read.  seconds: of a step.  pace: of a step of the reference
 * in turn. */
struct point {
    uint32_t len;
    uint64_t seen;
    double seconds, pace;
};

/* Appends n tokens to each sequence, at most PIECE. */
static int append(struct trial *t, const kvik_seq *seq, uint32_t n_seq, uint32_t n, float *logits)
{
    for (uint32_t i = 0; i < n_seq; i++) {
        int32_t *ids = t->ids + (size_t)i * PIECE;
        for (uint32_t k = 0; k < n; k++) {
            t->seed = t->seed * 1664525u + 1013904223u;
            ids[k] = (int32_t)((t->seed >> 8) % t->vocab);
        }
        t->span[i] = (kvik_span){.size = sizeof *t->span, .seq = seq[i], .ids = ids, .n = n};
    }
    TRY(kvik_forward(t->r->cache, t->span, n_seq, false, logits));
    return interrupt_seen() ? ERR_CANCELLED : 0;
}

/* Appends up to n tokens to each sequence, as many as are computed in PROMPT_SECONDS.  *len grows by them. */
static int append_many(struct trial *t, const kvik_seq *seq, uint32_t n_seq, uint32_t n,
                       uint32_t *len)
{
    double begun = now_seconds();
    for (uint32_t done = 0, piece; done < n && now_seconds() - begun < PROMPT_SECONDS;
         done += piece) {
        piece = MIN(MAX(PIECE / n_seq, 1), n - done);
        TRY(append(t, seq, n_seq, piece, NULL));
        *len += piece;
    }
    return 0;
}

/* Measures steps of all forks in turn with steps of the reference. */
static int turns(struct trial *t, uint32_t most, struct point *out)
{
    double took[STEPS], pace[STEPS], spent = 0;
    uint32_t n = 0;
    while (n < most && (n < LEAST || spent < STEP_SECONDS)) {
        uint32_t end = MIN(n + PLAN_TURN, most);
        TRY(plan_few_steps(&t->v->few, end - n, t->logits, pace + n));
        for (; n < end; n++) {
            double begun = now_seconds();
            TRY(append(t, t->seq, t->v->beams, 1, t->logits));
            took[n] = now_seconds() - begun;
            spent += took[n];
        }
    }
    out->seconds = bench_median(took, n);
    out->pace = bench_median(pace, n);
    return 0;
}

/* Measures steps of one token for each fork of the sequence.  tail: tokens that each fork first has alone. */
static int steps(struct trial *t, uint32_t tail, struct point *out)
{
    uint32_t forks = 0, len = t->len;
    int e = 0;
    for (; e >= 0 && forks < t->v->beams; forks += e >= 0)
        e = kvik_cache_fork(t->r->cache, t->grows, &t->seq[forks]);
    if (e >= 0) e = append_many(t, t->seq, forks, tail, &len);
    if (e >= 0) e = turns(t, MIN(STEPS, t->v->context - len), out);
    while (forks-- > 0)
        (void)kvik_cache_drop(t->r->cache, t->seq[forks]);
    out->seen = plan_seen(t->r, len + 1);
    out->len = len;
    return e;
}

/* Measures steps behind n tokens that are not computed. */
static int steps_behind(struct trial *t, uint32_t n, uint32_t tail, struct point *out)
{
    TRY(plan_few_repeat(&t->v->few, t->r->cache, n, &t->grows));
    t->len = n;
    int e = steps(t, tail, out);
    (void)kvik_cache_drop(t->r->cache, t->grows);
    return e;
}

/* Measures behind as many tokens as fit, at most n, and behind half of them unless that is all. */
static int measure_filled(struct trial *t, uint32_t n, uint32_t tail, struct point *first,
                          struct point *last)
{
    uint32_t all = n;
    int e = steps_behind(t, n, tail, last);
    while (e == ERR_FULL && n > 1)
        e = steps_behind(t, n /= 2, 0, last);
    *first = *last;
    return e < 0 || n == all ? e : steps_behind(t, MAX(n / 2, 1), 0, first);
}

static int open_few(struct plan *v)
{
    kvik_cache_config c = cache_config(
        &v->is.engine->common, &(struct cache_options){.sequences = 2, .tokens = 2 * PLAN_FEW});
    c.max_cache_len = MIN(c.max_cache_len, kvik_model_context(v->is.engine->model));
    return v->few.cache ? 0 : plan_few_open(&v->few, v->is.engine->model, &c);
}

/* Computes the seconds of a step at the planned length. */
static int predict(struct trial *t, double *seconds)
{
    struct plan *v = t->v;
    struct point first, last;
    uint32_t most = v->context - MIN(v->context - 1, STEPS);
    /* beams share the prompt; a sequence alone does as well without computing its last tokens */
    uint32_t shared = v->beams > 1 ? MAX(MIN(plan_prompt(v), most), 1) : most;
    TRY(open_few(v));
    int e = measure_filled(t, shared, most - shared, &first, &last);
    if (e < 0) return e;
    double rows = (double)t->r->seen - (double)last.seen;
    double more = (double)last.seen - (double)first.seen;
    double each = more > 0 ? (last.seconds - first.seconds * last.pace / first.pace) / more : 0;
    /* rows that exceed the processor's caches are read from memory, at the rate of the weights or faster */
    double bytes = (double)(t->r->rows + t->r->quantized);
    double rate = fmax(v->bandwidth, (double)v->weight_bytes / last.pace);
    if (t->r->seen && rate > 0) each = fmax(each, bytes / (double)t->r->seen / rate);
    *seconds = last.seconds + each * fmax(rows, 0);
    t->r->pace = last.pace;
    t->r->measured = last.len;
    t->r->extrapolated = last.len < most;
    return 0;
}

int plan_speed(struct plan *v, struct plan_row *r)
{
    struct trial t = {.v = v, .r = r, .vocab = kvik_model_vocab(v->is.engine->model), .seed = 7};
    double seconds = 0;
    if (v->context < 4) return 0;
    t.logits = mem_array((size_t)v->beams * t.vocab, sizeof *t.logits);
    t.seq = mem_array(v->beams, sizeof *t.seq);
    t.span = mem_array(v->beams, sizeof *t.span);
    t.ids = mem_array((size_t)v->beams * PIECE, sizeof *t.ids);
    bool room = t.logits && t.seq && t.span && t.ids;
    int e = room ? predict(&t, &seconds) : ERR_NOMEM;
    mem_free(t.logits);
    mem_free(t.seq);
    mem_free(t.span);
    mem_free(t.ids);
    if (e == ERR_CANCELLED) return EXIT_INTERRUPTED;
    /* without a speed the row still has its bytes */
    r->tokens = e < 0 ? 0 : v->beams / seconds;
    return 0;
}

void plan_speed_settle(struct plan *v)
{
    double pace[PLAN_ROWS], floor;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n_rows; i++)
        if (v->row[i].tokens > 0) pace[n++] = v->row[i].pace;
    double usual = n ? bench_median(pace, n) : 0;
    floor = v->bandwidth > 0 ? (double)v->weight_bytes / v->bandwidth : 0;
    for (struct plan_row *r = v->row; r < v->row + v->n_rows; r++)
        if (r->tokens > 0)
            r->tokens = fmin(r->tokens * r->pace / usual, floor > 0 ? v->beams / floor : INFINITY);
}
