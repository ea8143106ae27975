/* cuda_graph.c - operations on their way to the stream: a list, which is given as one graph where it came before.
 *
 * An operation is not launched when it is called.  It waits in a list until somebody needs what was called so far: a result,
 * the end of a step, a copy beside.  A decode step makes the same list every time, because its arrays lie at fixed
 * addresses and only their contents change.  So a list that comes the second time becomes a graph, and is one launch from
 * then on.  Two things may differ from the list that the graph was made of, and are set in the graph: attention, which
 * has a block for each atom of rows, and copies, whose sizes and places in the pinned memory may change.  A list with any
 * other difference is another graph. */
#include "dev/cuda/cuda.h"

#include <string.h>

#define LEAST 6u    /* operations that are worth a graph */
#define MOST  4096u /* operations that wait at once */
#define KEPT  8192u /* operations in the lists that are remembered */

/* --- the list */
static struct cuda_op *next(struct dev_queue *d, enum cuda_act act)
{
    struct cuda_list *l = &d->list;
    if (d->failed) return NULL;
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 256;
        struct cuda_op *op = room <= MOST ? mem_grow(l->op, room, sizeof *op) : NULL;
        if (op) {
            l->op = op;
            l->room = room;
        } else if (l->n) {
            cuda_flush(d);
        } else {
            d->failed = ERR_NOMEM;
        }
        if (d->failed) return NULL;
    }
    struct cuda_op *op = &l->op[l->n++];
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

/* True if one can take the place of the other in a graph. */
static bool alike(const struct cuda_op *a, const struct cuda_op *b)
{
    if (a->act != b->act || a->kernel != b->kernel || a->how != b->how) return false;
    bool varies = a->act == CUDA_COPY || (a->act == CUDA_LAUNCH &&
                                          (a->kernel == CUDA_k_atom || a->kernel == CUDA_k_merge));
    return varies || equal(a, b);
}

static struct cuda_graph *find(struct dev_queue *d, const struct cuda_op *op, uint32_t n)
{
    for (uint32_t i = 0; i < CUDA_GRAPHS; i++) {
        const struct cuda_list *l = &d->graph[i].list;
        uint32_t k = 0;
        while (l->n == n && k < n && alike(&l->op[k], &op[k]))
            k++;
        if (n == k) return &d->graph[i];
    }
    return NULL;
}

static void forget(struct dev_queue *d, struct cuda_graph *g)
{
    if (g->graph) d->rt->graph_close(g->graph);
    mem_free(g->list.op);
    *g = (struct cuda_graph){0};
}

/* Returns a place for a list of n operations; those that were not used for the longest time make room. */
static struct cuda_graph *place(struct dev_queue *d, uint32_t n)
{
    for (;;) {
        struct cuda_graph *empty = NULL, *oldest = NULL;
        uint32_t kept = n;
        for (uint32_t i = 0; i < CUDA_GRAPHS; i++) {
            struct cuda_graph *g = &d->graph[i];
            kept += g->list.n;
            if (!g->list.n)
                empty = g;
            else if (!oldest || g->used < oldest->used)
                oldest = g;
        }
        if (empty && (kept <= KEPT || !oldest)) return empty;
        forget(d, oldest);
    }
}

/* Keeps a list that came for the first time. */
static void remember(struct dev_queue *d, const struct cuda_op *op, uint32_t n)
{
    struct cuda_graph *g = place(d, n);
    g->list.op = mem_array(n, sizeof *op);
    if (!g->list.op) return;
    memcpy(g->list.op, op, n * sizeof *op);
    g->list.n = n;
    g->used = d->lists;
}

/* Brings a graph to what its list is now.  False: it must be made again. */
static bool settle(struct dev_queue *d, struct cuda_graph *g, const struct cuda_op *op)
{
    for (uint32_t i = 0; i < g->list.n; i++) {
        if (equal(&g->list.op[i], &op[i])) continue;
        if (d->rt->graph_set(g->graph, i, &op[i]) < 0) return false;
        g->list.op[i] = op[i];
    }
    return true;
}

/* True if the list was given as a graph, or has failed. */
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
        memcpy(g->list.op, op, n * sizeof *op);
        g->graph = d->rt->graph(op, n);
    }
    if (!g->graph) return false; /* without memory for it, one by one */
    (void)cuda_ok(d, d->rt->graph_run(g->graph, d->main));
    return true;
}

void cuda_flush(struct dev_queue *d)
{
    const struct cuda_list *l = &d->list;
    uint32_t i = 0, n = l->n;
    d->list.n = 0;
    d->lists++;
    /* What the host brings at the beginning of a step has another size every few steps: it stays outside. */
    for (; i < n && l->op[i].act == CUDA_COPY && l->op[i].how == CUDA_TO_DEVICE; i++)
        if (!d->failed) (void)cuda_ok(d, d->rt->give(d->main, &l->op[i]));
    if (n - i >= LEAST && !d->no_graphs && !d->failed && replayed(d, l->op + i, n - i)) return;
    for (; i < n && !d->failed; i++)
        (void)cuda_ok(d, d->rt->give(d->main, &l->op[i]));
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
        forget(d, &d->graph[i]);
    mem_free(d->list.op);
    d->list = (struct cuda_list){0};
}
