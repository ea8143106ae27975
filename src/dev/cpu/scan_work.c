/* scan_work.c - how the recurrences of ssm.c, delta.c and conv.c are split over sequences and strips, and how the
 * state of a strip moves through pages.
 *
 * A state is a matrix in a page.  Its columns do not depend on each other, so a strip of 16 columns is a vector, and
 * a task is some strips of one sequence.  The tokens of a sequence follow one another, in a step of one token and in
 * a prefill alike.
 *
 * The state of a strip is copied from its page and stays in the L1 cache while its tokens pass.  It is copied to the
 * page of every token that has one: the page of the step's last token, those of drafts, and snapshots. */
#include "dev/cpu/ssm.h"

#include <assert.h>
#include <string.h>

struct scan_span scan_span(const struct kv_view *v, uint32_t plane, uint32_t lane)
{
    uint32_t t0 = 0, end = v->counts[1], t1;
    while (t0 < end) { /* finds the first token whose lane is not below `lane` */
        uint32_t mid = t0 + (end - t0) / 2;
        if (v->lane[mid] < lane)
            t0 = mid + 1;
        else
            end = mid;
    }
    for (t1 = t0; t1 < v->counts[1] && v->lane[t1] == lane; t1++) {
    }
    const unsigned char *page = v->raw.base + v->from[lane] * v->raw.grain + v->raw.offset[plane];
    return (struct scan_span){t0, t1, t0 < t1 ? v->pos[t0] : 0,
                              v->from[lane] ? (const float *)(const void *)page : NULL};
}

float *scan_dst(const struct kv_view *v, uint32_t plane, uint32_t t)
{
    unsigned char *page = v->raw.base + v->dst[t] * v->raw.grain + v->raw.offset[plane];
    return v->dst[t] ? (float *)(void *)page : NULL;
}

uint32_t scan_per_task(const struct kv_view *v, uint32_t strips, size_t cost)
{
    enum { TASK = 1 << 14 };
    size_t tokens = MAX(v->counts[1] / MAX(v->counts[0], 1), 1);
    return (uint32_t)MIN(MAX(TASK / (tokens * cost), 1), MAX(strips, 1));
}

/* --- strips */

struct split {
    const struct scan_work *w;
    uint32_t per_task, per_lane; /* strips of a task, tasks of a lane */
};

/* Copies a strip from a page to h [rows][SCAN_LANES]; page NULL: zeros. */
static void load(const struct scan_work *w, const float *page, const struct scan_strip *s, float *h)
{
    if (!page || s->lanes < SCAN_LANES) memset(h, 0, (size_t)w->rows * SCAN_LANES * sizeof *h);
    for (uint32_t i = 0; page && i < w->rows; i++)
        memcpy(h + i * SCAN_LANES, page + s->at + i * w->width, s->lanes * sizeof *h);
}

static void save(const struct scan_work *w, const float *h, const struct scan_strip *s, float *page)
{
    for (uint32_t i = 0; i < w->rows; i++)
        memcpy(page + s->at + i * w->width, h + i * SCAN_LANES, s->lanes * sizeof *h);
}

static void run_strip(const struct scan_work *w, const struct scan_span *span, uint32_t i, float *h)
{
    struct scan_strip s = w->place(w->arg, i);
    load(w, span->from, &s, h);
    for (uint32_t t = span->t0, end; t < span->t1; t = end + 1) {
        for (end = t; end + 1 < span->t1 && !w->v->dst[end];)
            end++;
        w->pass(w->arg, &s, t, end + 1 - t, h);
        float *page = scan_dst(w->v, w->plane, end);
        if (page) save(w, h, &s, page);
    }
}

static void run_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct split *o = ctx;
    uint32_t first = task % o->per_lane * o->per_task, end = MIN(first + o->per_task, o->w->strips);
    struct scan_span span = scan_span(o->w->v, o->w->plane, task / o->per_lane);
    _Alignas(64) float h[SCAN_ROWS * SCAN_LANES];
    (void)thread;
    for (uint32_t i = first; i < end; i++)
        run_strip(o->w, &span, i, h);
}

void scan_run(struct dev_queue *d, const struct scan_work *w)
{
    struct split o = {.w = w, .per_task = scan_per_task(w->v, w->strips, w->cost)};
    assert(w->rows <= SCAN_ROWS);
    o.per_lane = (w->strips + o.per_task - 1) / o.per_task;
    pool_run(d->pool, w->v->counts[0] * o.per_lane, run_task, &o);
}
