/* bench_found.c - what the numbers say, in sentences: the headline, the method, and the quality of a strategy. */
#include "cli/bench.h"

#define say(b, ...) ((void)buf_printf(b, __VA_ARGS__))

double bench_floor(const struct bench *b, const struct bench_depth *d)
{
    return b->bandwidth > 0 ? ((double)b->weight_bytes + (double)d->bytes) / b->bandwidth : 0;
}

double bench_speed(const struct bench *b, const struct bench_row *r)
{
    return bench_median(r->at[b->n_depths - 1].decode, b->runs);
}

bool bench_lost(const struct bench_prompt *p)
{
    return p->same * 5 < p->n * 4;
}

const struct bench_row *bench_best(const struct bench *b)
{
    const struct bench_row *dynamic = &b->row[0], *best = NULL;
    double least = (double)dynamic->prompt.held * 0.95;
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++) {
        if (r->refused || dynamic->refused || r->s.forgets || !r->prompt.held) continue;
        if (bench_speed(b, r) * 2 < bench_speed(b, dynamic) || (double)r->prompt.held >= least)
            continue;
        if (bench_lost(&r->prompt)) continue;
        least = (double)r->prompt.held;
        best = r;
    }
    return best;
}

void bench_headline(const struct bench *b, struct buf *out)
{
    const struct bench_row *best = bench_best(b), *dynamic = &b->row[0];
    uint32_t n = bench_longest(b);
    char held[16], all[16];
    if (dynamic->refused || !dynamic->prompt.held) {
        say(out, "The cache of %s", b->model);
        return;
    }
    bytes_text(dynamic->prompt.held, all);
    if (!best) {
        say(out, "%u tokens in %s", n, all);
        return;
    }
    say(out, "%u tokens in %s instead of %s, at %.0f %% of the speed", n,
        bytes_text(best->prompt.held, held), all,
        100 * bench_speed(b, best) / bench_speed(b, dynamic));
}

void bench_method(const struct bench *b, struct buf *out)
{
    say(out, "%s, %u thread%s of %s, %s, kvik %s; ", b->model, b->threads,
        b->threads == 1 ? "" : "s", b->cpu, b->date, kvik_version());
    if (b->runs == 1)
        say(out, "one run");
    else
        say(out, "medians of %u runs", b->runs);
    if (b->in_turn) say(out, ", in turn with dynamic");
}

const char *bench_quality(const struct bench_prompt *p, char out[24])
{
    if (!p->n)
        snprintf(out, 24, "-");
    else if (p->identical)
        snprintf(out, 24, "identical");
    else
        snprintf(out, 24, "%u of %u", p->same, p->n);
    return out;
}
