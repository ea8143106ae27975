/* bench_found.c - puts the numbers into sentences: the headline, the method, and the quality of a strategy. */
#include "cli/bench.h"

/* A ratio that varies by less than this is one number in the headline. */
#define STEADY 0.05

#define say(b, ...) ((void)buf_printf(b, __VA_ARGS__))

double bench_speed(const struct bench *b, const struct bench_row *r)
{
    return bench_median(r->at[b->n_depths - 1].decode, r->runs);
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

/* Writes how fast a row is next to the dynamic cache: one number, the range of the runs, or that no number is
 * reliable. */
static void say_ratio(const struct bench *b, const struct bench_row *r, struct buf *out)
{
    uint32_t d = b->n_depths - 1;
    double ratio = 100 * bench_speed(b, r) / bench_speed(b, b->row);
    double spread = bench_spread(r->at[d].decode, r->runs);
    if (!b->in_turn) spread += bench_spread(b->row->at[d].decode, b->row->runs);
    if (!bench_comparable(b, r))
        say(out, " (speeds were too unsteady to compare)");
    else if (spread > STEADY)
        say(out, ", at %.0f to %.0f %% of the speed", ratio * (1 - spread), ratio * (1 + spread));
    else
        say(out, ", at %.0f %% of the speed", ratio);
}

void bench_headline(const struct bench *b, struct buf *out)
{
    const struct bench_row *best = bench_best(b), *dynamic = &b->row[0];
    uint32_t n = bench_longest(b);
    char held[16], all[16];
    if (dynamic->refused || !dynamic->prompt.held) {
        say(out, "The cache of %s", b->machine.model);
        return;
    }
    bytes_text(dynamic->prompt.held, all);
    if (!best) {
        say(out, "%u tokens in %s", n, all);
        return;
    }
    say(out, "%u tokens in %s instead of %s", n, bytes_text(best->prompt.held, held), all);
    say_ratio(b, best, out);
}

/* Sets the least and the greatest number of runs of the strategies that have numbers. */
static void range_of_runs(const struct bench *b, uint32_t *least, uint32_t *most)
{
    *least = BENCH_RUNS;
    *most = 1;
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++) {
        if (r->refused) continue;
        *least = MIN(*least, r->runs);
        *most = MAX(*most, r->runs);
    }
}

void bench_method(const struct bench *b, struct buf *out)
{
    uint32_t least, most;
    say(out, "%s, %u thread%s of %s, %s, kvik %s; ", b->machine.model, b->machine.threads,
        b->machine.threads == 1 ? "" : "s", b->machine.cpu, b->machine.date, kvik_version());
    range_of_runs(b, &least, &most);
    if (most == 1)
        say(out, "one run");
    else if (least < most)
        say(out, "medians of %u to %u runs", least, most);
    else
        say(out, "medians of %u runs", most);
    if (b->in_turn) say(out, ", in turn with dynamic");
    if (b->others >= 0.01)
        say(out, ", while other programs took %.0f %% of the processors", 100 * b->others);
}

void bench_marks_say(const struct bench *b, struct buf *out)
{
    unsigned marks = bench_marks_all(b);
    size_t begun = out->len;
    bench_left_out(b, out);
    if (marks & (BENCH_SCATTERS | BENCH_PREFILL))
        say(out,
            "%sScatters: the runs differ by more than 30 %% from their median, so the speed is "
            "compared with no other.",
            out->len > begun ? " " : "");
    if (marks & BENCH_ABOVE)
        say(out,
            "%sAbove floor: more than 5 %% faster than memory was read, because the weights lie in the "
            "processor's cache, or because the machine was busy while memory was read.",
            out->len > begun ? " " : "");
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
