/* bench_judge.c - decides which measurements are reliable: what is marked in tables, what is measured again, and
 * what still fits into the announced time.  Nothing here measures or prints. */
#include "cli/bench.h"

#include <math.h>
#include <string.h>

/* Runs that differ from their median by more than this share scatter. */
#define MOST_SPREAD 0.30
/* The rate of memory is itself measured, so a speed is marked only if it exceeds the floor by more than this
 * factor. */
#define MOST_OF_FLOOR 1.05
/* A row that scatters is measured at most this many times as often as the user asked for. */
enum { REPEATS = 3 };
/* The time for repeated measurements, as a share of the estimate; and the least limit in seconds. */
#define SPARE 1.5
#define LEAST 60.0

double bench_median(const double *v, uint32_t n)
{
    double copy[256];
    n = MIN(n, (uint32_t)countof(copy));
    memcpy(copy, v, n * sizeof *v);
    return n ? median_of(copy, n) : 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_spread(const double *v, uint32_t n)
{
    double copy[BENCH_RUNS], median = bench_median(v, n);
    n = MIN(n, BENCH_RUNS);
    if (!n || !(median > 0)) return 0;
    memcpy(copy, v, n * sizeof *v);
    qsort(copy, n, sizeof *copy, ascending);
    uint32_t drop = n / 4;
    return (copy[n - 1 - drop] - copy[drop]) / 2 / median;
}

double bench_floor(const struct bench *b, const struct bench_depth *d)
{
    return b->bandwidth > 0 ? ((double)b->weight_bytes + (double)d->bytes) / b->bandwidth : 0;
}

unsigned bench_marks(const struct bench *b, const struct bench_row *r, uint32_t d)
{
    const struct bench_depth *x = &r->at[d];
    unsigned marks = 0;
    if (r->refused) return 0;
    if (bench_spread(x->decode, r->runs) > MOST_SPREAD) marks |= BENCH_SCATTERS;
    if (bench_spread(x->prefill, r->runs) > MOST_SPREAD) marks |= BENCH_PREFILL;
    if (bench_median(x->decode, r->runs) * bench_floor(b, x) > MOST_OF_FLOOR) marks |= BENCH_ABOVE;
    return marks;
}

unsigned bench_marks_all(const struct bench *b)
{
    unsigned marks = 0;
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++)
        for (uint32_t d = 0; d < b->n_depths; d++)
            marks |= bench_marks(b, r, d);
    return marks;
}

const char *bench_marks_text(unsigned marks, char out[48])
{
    static const char *const word[] = {"scatters", "above floor", "prefill scatters"};
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < countof(word); i++)
        if (marks & 1u << i) n += (size_t)snprintf(out + n, 48 - n, "%s%s", n ? ", " : "", word[i]);
    return out;
}

/* True if only this row is faster than memory allows.  If the dynamic cache is, too, the weights lie in the
 * processor's cache, or memory was busy while its rate was measured.  Both affect all strategies alike. */
static bool above_alone(const struct bench *b, const struct bench_row *r, uint32_t d)
{
    return bench_marks(b, r, d) & ~bench_marks(b, b->row, d) & BENCH_ABOVE;
}

bool bench_comparable(const struct bench *b, const struct bench_row *r)
{
    uint32_t d = b->n_depths - 1;
    unsigned marks = bench_marks(b, r, d) | bench_marks(b, b->row, d);
    return !(marks & BENCH_SCATTERS) && !above_alone(b, r, d);
}

bool bench_again(const struct bench *b, const struct bench_row *r)
{
    if (r->refused || b->runs < 2 || r->runs >= MIN(b->runs * REPEATS, BENCH_RUNS)) return false;
    for (uint32_t d = 0; d < b->n_depths; d++)
        if (bench_marks(b, r, d) & (BENCH_SCATTERS | BENCH_PREFILL) || above_alone(b, r, d))
            return true;
    return false;
}

double bench_limit(double estimate, uint32_t asked)
{
    if (asked) return asked;
    return estimate > 0 ? fmax(estimate * SPARE, LEAST) : 0;
}

bool bench_fits(const struct bench *b, double elapsed, double expected)
{
    return !(b->limit > 0) || elapsed + expected <= b->limit;
}

void bench_left_out(const struct bench *b, struct buf *out)
{
    uint32_t never = 0, fewer = 0, least = b->runs;
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++) {
        never += r->late;
        fewer += !r->refused && r->runs < b->runs;
        if (!r->refused) least = MIN(least, r->runs);
    }
    if (!never && !fewer) return;
    (void)buf_printf(out, "The limit of %.0f s was reached: ", b->limit);
    if (never) (void)buf_printf(out, "%u of %u strategies not measured", never, b->n_rows);
    if (never && fewer) (void)buf_printf(out, ", ");
    if (fewer)
        (void)buf_printf(out, "%u measured fewer than %u times (at least %u)", fewer, b->runs,
                         least);
    (void)buf_printf(out, ".");
}
