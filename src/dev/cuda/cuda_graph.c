/* cuda_graph.c - the list of operations that wait for the stream, which becomes a graph when the same list comes
 * again.
 *
 * An operation is not launched when it is called.  It waits in a list until something needs its result: a copy to
 * the host, the end of a step, a copy beside the operations.  A decode step makes the same list every time, because
 * its arrays lie at fixed addresses and only their contents change.  So a list that comes a second time becomes a
 * graph, and later is one launch.  Some operations may differ from those of the graph and are set in it: attention,
 * which has a block for each atom of rows; sealing, which has blocks for each tile; and copies, whose sizes and
 * places in pinned memory change.  A list with any other difference gets a graph of its own.  The list, and the
 * remembered lists, lie in memory that is taken when the queue opens. */
#include "dev/cuda/cuda.h"

#include <string.h>

#define LEAST 6u /* fewer operations are not worth a graph */

/* --- the list */
int cuda_graphs_open(struct dev_queue *d)
{
    d->list = mem_array(CUDA_LIST, sizeof *d->list);
    d->kept = mem_array(CUDA_KEPT, sizeof *d->kept);
    return d->list && d->kept ? 0 : ERR_NOMEM;
}

static struct cuda_op *next(struct dev_queue *d, enum cuda_act act)
{
    if (d->n_list == CUDA_LIST) cuda_flush(d);
    if (d->failed) return NULL;
    struct cuda_op *op = &d->list[d->n_list++];
    memset(op, 0, offsetof(struct cuda_op, args));
    op->act = act;
    return op;
}

void cuda_launch(struct dev_queue *d, enum cuda_kernel k, size_t x, size_t y, const void *args,
                 size_t n)
{
    struct cuda_op *op = x && y ? next(d, CUDA_LAUNCH) : NULL;
    if (!op) return;
    op->kernel = k;
    op->x = (uint32_t)x;
    op->y = (uint32_t)y;
    op->n = n;
    memcpy(op->args, args, n);
}

void cuda_copy(struct dev_queue *d, void *to, const void *from, size_t n, enum cuda_copy how)
{
    struct cuda_op *op = n ? next(d, CUDA_COPY) : NULL;
    if (!op) return;
    op->how = how;
    op->to = to;
    op->from = from;
    op->n = n;
}

void cuda_fill(struct dev_queue *d, void *to, int byte, size_t n)
{
    struct cuda_op *op = n ? next(d, CUDA_FILL) : NULL;
    if (!op) return;
    op->byte = byte;
    op->to = to;
    op->n = n;
}

/* --- graphs */
static bool equal(const struct cuda_op *a, const struct cuda_op *b)
{
    return a->x == b->x && a->y == b->y && a->to == b->to && a->from == b->from &&
           a->byte == b->byte && a->n == b->n &&
           (a->act != CUDA_LAUNCH || memcmp(a->args, b->args, a->n) == 0);
}

static bool varies(const struct cuda_op *a)
{
    if (a->act != CUDA_LAUNCH) return a->act == CUDA_COPY;
    switch (a->kernel) {
    case CUDA_k_atom:
    case CUDA_k_merge:
    case CUDA_k_atom_coded:
    case CUDA_k_merge_coded:
    case CUDA_k_seal_rows:
    case CUDA_k_seal_ranges:
    case CUDA_k_seal_codes:
    case CUDA_k_seal_float8:
    case CUDA_k_seal_levels:
        return true;
    default:
        return false;
    }
}

/* True if one operation can take the place of the other in a graph. */
static bool alike(const struct cuda_op *a, const struct cuda_op *b)
{
    if (a->act != b->act || a->kernel != b->kernel || a->how != b->how) return false;
    return varies(a) || equal(a, b);
}

static struct cuda_graph *find(struct dev_queue *d, const struct cuda_op *op, uint32_t n)
{
    for (uint32_t i = 0; i < CUDA_GRAPHS; i++) {
        const struct cuda_graph *g = &d->graph[i];
        uint32_t k = 0;
        while (g->n == n && k < n && alike(&d->kept[g->first + k], &op[k]))
            k++;
        if (n == k) return &d->graph[i];
    }
    return NULL;
}

/* Forgets a list and moves the lists behind it up. */
static void forget(struct dev_queue *d, struct cuda_graph *g)
{
    uint32_t end = g->first + g->n;
    if (g->graph) d->rt->graph_close(g->graph);
    memmove(d->kept + g->first, d->kept + end, (d->n_kept - end) * sizeof *d->kept);
    d->n_kept -= g->n;
    for (uint32_t i = 0; i < CUDA_GRAPHS; i++)
        if (d->graph[i].n && d->graph[i].first > g->first) d->graph[i].first -= g->n;
    *g = (struct cuda_graph){0};
}

/* Returns a place for a list of n operations.  Forgets the least recently used lists for it. */
static struct cuda_graph *place(struct dev_queue *d, uint32_t n)
{
    for (;;) {
        struct cuda_graph *empty = NULL, *oldest = NULL;
        for (uint32_t i = 0; i < CUDA_GRAPHS; i++) {
            struct cuda_graph *g = &d->graph[i];
            if (!g->n)
                empty = g;
            else if (!oldest || g->used < oldest->used)
                oldest = g;
        }
        if (empty && d->n_kept + n <= CUDA_KEPT) return empty;
        forget(d, oldest);
    }
}

/* Keeps a list that came for the first time. */
static void remember(struct dev_queue *d, const struct cuda_op *op, uint32_t n)
{
    *place(d, n) = (struct cuda_graph){.first = d->n_kept, .n = n, .used = d->lists};
    memcpy(d->kept + d->n_kept, op, n * sizeof *op);
    d->n_kept += n;
}

/* Sets the operations of a graph to those of the list.  False: the graph must be made again. */
static bool settle(struct dev_queue *d, const struct cuda_graph *g, const struct cuda_op *op)
{
    struct cuda_op *was = d->kept + g->first;
    for (uint32_t i = 0; i < g->n; i++) {
        if (equal(&was[i], &op[i])) continue;
        if (d->rt->graph_set(g->graph, i, &op[i]) < 0) return false;
        was[i] = op[i];
    }
    return true;
}

/* True if the list was given as a graph.  An error of the graph is the queue's. */
static bool replayed(struct dev_queue *d, const struct cuda_op *op, uint32_t n)
{
    struct cuda_graph *g = find(d, op, n);
    if (!g) {
        remember(d, op, n);
        return false;
    }
    g->used = d->lists;
    if (g->graph && !settle(d, g, op)) {
        d->rt->graph_close(g->graph);
        g->graph = NULL;
    }
    if (!g->graph) {
        memcpy(d->kept + g->first, op, n * sizeof *op);
        g->graph = d->rt->graph(op, n);
    }
    /* there is no memory for a graph, so operations are given one by one */
    if (!g->graph) return false;
    (void)cuda_ok(d, d->rt->graph_run(g->graph, d->main));
    return true;
}

void cuda_flush(struct dev_queue *d)
{
    const struct cuda_op *op = d->list;
    uint32_t i = 0, n = d->n_list;
    d->n_list = 0;
    d->lists++;
    /* Copies from the host at the beginning of a step change their size every few steps, so they stay outside of the
     * graph. */
    for (; i < n && op[i].act == CUDA_COPY && op[i].how == CUDA_TO_DEVICE; i++)
        if (!d->failed) (void)cuda_ok(d, d->rt->give(d->main, &op[i]));
    if (n - i >= LEAST && !d->no_graphs && !d->failed && replayed(d, op + i, n - i)) return;
    for (; i < n && !d->failed; i++)
        (void)cuda_ok(d, d->rt->give(d->main, &op[i]));
}

void cuda_wait(struct dev_queue *d)
{
    cuda_flush(d);
    (void)cuda_ok(d, d->rt->wait(d->main));
    d->staged = 0;
}

void cuda_graphs_close(struct dev_queue *d)
{
    for (uint32_t i = 0; i < CUDA_GRAPHS; i++)
        if (d->graph[i].graph) d->rt->graph_close(d->graph[i].graph);
    mem_free(d->kept);
    mem_free(d->list);
}
