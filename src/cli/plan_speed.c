/* plan_speed.c - predicts how fast a cache decodes.  Steps are measured after a few tokens, and again after as many
 * tokens as two seconds of prefill give.  The difference is extrapolated to the rows that a token reads at the
 * planned length.  No prediction is faster than memory can be read. */
#include "cli/plan.h"

#include <math.h>

enum { SHALLOW = 16, WARM = 2, STEPS = 24, PIECE = 256 };
#define PROMPT_SECONDS 2.0

struct trial {
    struct plan *v;
    struct plan_row *r;
    kvik_seq grows;
    uint32_t len; /* length of `grows` */
    float *logits;
    kvik_seq *seq;   /* [beams] */
    kvik_span *span; /* [beams] */
    int32_t *ids;    /* [PIECE] */
    uint32_t vocab, seed;
};

static int32_t draw(struct trial *t)
{
    t->seed = t->seed * 1664525u + 1013904223u;
    return (int32_t)((t->seed >> 8) % t->vocab);
}

static int grow(struct trial *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        t->ids[i] = draw(t);
    kvik_span span = {.size = sizeof span, .seq = t->grows, .ids = t->ids, .n = n};
    TRY(kvik_forward(t->r->cache, &span, 1, false, NULL));
    t->len += n;
    return interrupt_seen() ? ERR_CANCELLED : 0;
}

/* Measures a few steps, of one token for each fork of the sequence.  *seconds: the median of a step.  Returns an
 * error code. */
static int steps(struct trial *t, double *seconds)
{
    double took[STEPS];
    uint32_t n = t->v->beams, forks = 0;
    uint32_t all = WARM + MIN(STEPS, t->v->context - t->len - WARM);
    int e = 0;
    for (; e >= 0 && forks < n; forks += e >= 0)
        e = kvik_cache_fork(t->r->cache, t->grows, &t->seq[forks]);
    for (uint32_t k = 0; e >= 0 && k < all; k++) {
        for (uint32_t i = 0; i < n; i++) {
            t->ids[i] = draw(t);
            t->span[i] =
                (kvik_span){.size = sizeof *t->span, .seq = t->seq[i], .ids = &t->ids[i], .n = 1};
        }
        double begun = now_seconds();
        e = kvik_forward(t->r->cache, t->span, n, false, t->logits);
        if (k >= WARM) took[k - WARM] = now_seconds() - begun;
        if (interrupt_seen()) e = ERR_CANCELLED;
    }
    while (forks-- > 0)
        (void)kvik_cache_drop(t->r->cache, t->seq[forks]);
    *seconds = e < 0 ? 0 : bench_median(took, all - WARM);
    return e;
}

/* Computes the seconds of a step at the planned length. */
static int predict(struct trial *t, double *seconds)
{
    struct plan *v = t->v;
    double first, last, begun;
    uint32_t end = plan_prompt(v), most = v->context - MIN(v->context, WARM + STEPS);
    end = MAX(MIN(end, most), 1);
    TRY(grow(t, MIN(SHALLOW, end)));
    uint64_t before = plan_seen(t->r, t->len + 1);
    TRY(steps(t, &first));
    begun = now_seconds();
    while (t->len < end && now_seconds() - begun < PROMPT_SECONDS)
        TRY(grow(t, MIN(PIECE, end - t->len)));
    uint64_t after = plan_seen(t->r, t->len + 1);
    TRY(steps(t, &last));
    double rows = (double)t->r->seen - (double)after, more = (double)after - (double)before;
    double each = more > 0 ? fmax((last - first) / more, 0) : 0;
    /* rows that exceed the processor's caches are read from memory, at the rate of the weights or faster */
    double bytes = (double)(t->r->rows + t->r->quantized);
    double pace = fmax(v->bandwidth, first > 0 ? (double)v->weight_bytes / first : 0);
    if (t->r->seen && pace > 0) each = fmax(each, bytes / (double)t->r->seen / pace);
    *seconds = last + each * fmax(rows, 0);
    return 0;
}

int plan_speed(struct plan *v, struct plan_row *r)
{
    struct trial t = {.v = v, .r = r, .vocab = kvik_model_vocab(v->is.engine->model), .seed = 7};
    double seconds = 0;
    if (v->context < WARM + 2) return 0;
    t.logits = mem_array((size_t)v->beams * t.vocab, sizeof *t.logits);
    t.seq = mem_array(v->beams, sizeof *t.seq);
    t.span = mem_array(v->beams, sizeof *t.span);
    t.ids = mem_array(MAX(PIECE, v->beams), sizeof *t.ids);
    bool room = t.logits && t.seq && t.span && t.ids;
    int e = room ? kvik_cache_new(r->cache, &t.grows) : ERR_NOMEM;
    if (e >= 0) e = predict(&t, &seconds);
    mem_free(t.logits);
    mem_free(t.seq);
    mem_free(t.span);
    mem_free(t.ids);
    if (e == ERR_CANCELLED) return EXIT_INTERRUPTED;
    if (e < 0) return 0; /* without a speed the row still has its bytes */
    double floor = v->bandwidth > 0 ? (double)v->weight_bytes / v->bandwidth : 0;
    r->tokens = v->beams / fmax(seconds, floor);
    return 0;
}
