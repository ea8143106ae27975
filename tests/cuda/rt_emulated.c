/* rt_emulated.c - the runtime of src/dev/cuda/rt.h on the CPU: the same kernels, block by block, on memory of the host.
 *
 * Nothing runs when it is given.  A stream is a list, and is worked off when somebody waits for it, or for an event in it: as
 * late as a GPU may be.  So a result that is read too early is old, an array that the host writes too early is seen by its
 * checksum, and memory that is given back too early is a fault, since nobody can touch it any more.  With
 * KVIK_EMULATED=eager everything runs at once instead, and with KVIK_EMULATED=backwards the threads of a block run in
 * descending order: whoever depends on an order gives other bits in one of the three.
 *
 * KVIK_EMULATED_MEMORY=BYTES: the device has so much, for arrays and pages together.
 *
 * New memory holds NaN, and ends where an unreadable page begins (backwards: begins where one ends).  A graph is a list of
 * operations, with the arguments that it was made of or that were set: a pointer that has changed since is stale. */
#include "base/base.h"
#include "dev/cuda/k_block.h"
#include "dev/cuda/rt.h"
#include "emulated.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define GRANULE ((size_t)64 << 10)

struct event {
    struct stream *stream; /* where it was recorded last; NULL: it has happened */
    size_t at;             /* items of the stream before it */
};
enum what { RUN_OP, RECORD, AFTER };
struct item {
    enum what what;
    struct cuda_op op;
    uint64_t sum; /* of a source of the host */
    bool summed, pinned;
    size_t target; /* AFTER: where the event was when this was given */
    struct stream *of;
};
struct graph {
    struct cuda_op *op; /* [n] */
    uint32_t n;
};
struct stream {
    struct item *item; /* [n] */
    size_t n, done;    /* counted from the first item ever */
    size_t room, first;
    size_t copies; /* on their way */
};

static _Thread_local char said[128];
static bool eager, backwards;
static size_t limit = SIZE_MAX; /* bytes of the device */
static _Atomic size_t taken;
static struct emulated_counts counts;
static _Atomic size_t copies; /* on their way, of all streams */

/* Pinned memory of the host. */
static struct {
    const unsigned char *at;
    size_t n;
} * pinned;
static size_t n_pinned;
static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;

#define DECLARE(name) void name(const struct name##_args a, const struct k_block at);
CUDA_KERNELS(DECLARE)
#undef DECLARE

static _Noreturn void fault(const char *what)
{
    fprintf(stderr, "emulated device: %s\n", what);
    abort();
}

static int fail(const char *what)
{
    snprintf(said, sizeof said, "%s", what);
    return -1;
}

static const char *e_error(void)
{
    return said;
}

static int e_open(struct cuda_about *about)
{
    *about = (struct cuda_about){"emulated", GRANULE};
    const char *how = getenv("KVIK_EMULATED");
    if (how && !strcmp(how, "none")) return fail("there is no driver: libcuda.so.1 was not found");
    const char *most = getenv("KVIK_EMULATED_MEMORY");
    if (most) limit = strtoul(most, NULL, 10);
    eager = how && !strcmp(how, "eager");
    backwards = how && !strcmp(how, "backwards");
    return 0;
}

/* --- memory: a mapping each, between unreadable pages, so that what was given back faults.  Before it stands its size. */
#define PAGE ((size_t)4096)
static void *take(size_t n)
{
    size_t body = (n + PAGE - 1) / PAGE * PAGE, all = body + 3 * PAGE;
    unsigned char *at = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        fail("no memory");
        return NULL;
    }
    memcpy(at, &all, sizeof all);
    mprotect(at + PAGE, PAGE, PROT_NONE);
    mprotect(at + 2 * PAGE + body, PAGE, PROT_NONE);
    at += 2 * PAGE;
    memset(at, 0xFF, n);
    if (!backwards && body > n) memmove(at + body - n, at, n);
    return backwards ? at : at + body - n;
}

/* Returns what it took. */
static size_t untake(void *p)
{
    size_t all;
    if (!p) return 0;
    unsigned char *at = (unsigned char *)((uintptr_t)p & ~(PAGE - 1)) - 2 * PAGE;
    memcpy(&all, at, sizeof all);
    madvise(at, all, MADV_DONTNEED);
    mprotect(at, all, PROT_NONE); /* the addresses never come again */
    return all - 3 * PAGE;
}

/* Counts n bytes of the device, if it has them. */
static bool count(size_t n)
{
    if ((taken += n) <= limit) return true;
    taken -= n;
    fail("no memory");
    return false;
}

static void *device_take(size_t n)
{
    size_t body = (n + PAGE - 1) / PAGE * PAGE;
    if (!count(body)) return NULL;
    void *at = take(n);
    if (!at) taken -= body;
    return at;
}

/* --- pinned memory of the host */
static size_t find_pinned(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n_pinned && !(p >= pinned[i].at && p + n <= pinned[i].at + pinned[i].n))
        i++;
    return i;
}

static bool is_pinned(const void *p, size_t n)
{
    pthread_mutex_lock(&pinned_lock);
    bool is = find_pinned(p, n) < n_pinned;
    pthread_mutex_unlock(&pinned_lock);
    return is;
}

static int hold(void *at, size_t n)
{
    pthread_mutex_lock(&pinned_lock);
    void *all = realloc(pinned, (n_pinned + 1) * sizeof *pinned);
    if (!all) abort();
    pinned = all;
    pinned[n_pinned].at = at;
    pinned[n_pinned++].n = n;
    counts.held += n;
    pthread_mutex_unlock(&pinned_lock);
    return 0;
}

static int let_go(void *at)
{
    pthread_mutex_lock(&pinned_lock);
    size_t i = find_pinned(at, 0);
    if (i == n_pinned || pinned[i].at != at) fault("memory is let go that was not held");
    counts.held -= pinned[i].n;
    pinned[i] = pinned[--n_pinned];
    pthread_mutex_unlock(&pinned_lock);
    return 0;
}

static int e_hold(void *at, size_t n, bool on)
{
    return on ? hold(at, n) : let_go(at);
}

static void *range_of(size_t n)
{
    void *at = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) return at;
    fail("no addresses");
    return NULL;
}

/* With a limit, a page that has memory has been written: by e_back, if by nobody else. */
static bool backed(const unsigned char *page)
{
    unsigned char in;
    if (mincore((void *)(uintptr_t)page, 1, &in) != 0) fault("a page is in no range");
    return in & 1;
}

/* Gives back what the pages of a range have taken. */
static void uncount(const unsigned char *at, size_t n)
{
    for (size_t i = 0; limit < SIZE_MAX && i < n; i += GRANULE)
        if (backed(at + i)) taken -= GRANULE;
}

static int drop(void *at, size_t n)
{
    uncount(at, n);
    madvise(at, n, MADV_DONTNEED);
    mprotect(at, n, PROT_NONE);
    return 0;
}

static int e_back(void *at, size_t n, bool on)
{
    if (!on) return drop(at, n);
    if (n % GRANULE) fault("a range is used in parts of its pages");
    for (size_t i = 0; i < n; i += GRANULE) {
        unsigned char *page = (unsigned char *)at + i;
        if (backed(page)) continue;
        if (limit < SIZE_MAX && !count(GRANULE)) return -1;
        if (mprotect(page, GRANULE, PROT_READ | PROT_WRITE) != 0) return fail("no memory");
        if (limit < SIZE_MAX) *page = 0xFF;
    }
    return 0;
}

static void *e_alloc(enum cuda_memory kind, size_t n)
{
    if (kind == CUDA_DEVICE) return device_take(n);
    if (kind == CUDA_RANGE) return range_of(n);
    void *at = take(n);
    if (at) hold(at, n);
    return at;
}

static void e_release(enum cuda_memory kind, void *at, size_t n)
{
    if (kind == CUDA_RANGE) {
        uncount(at, n);
        munmap(at, n);
        return;
    }
    if (kind == CUDA_PINNED) let_go(at);
    size_t was = untake(at);
    if (kind == CUDA_DEVICE) taken -= was;
}

/* --- streams */
static uint64_t checksum(const unsigned char *p, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static void launch(const struct cuda_op *op)
{
    struct k_block at = {0, 0, backwards};
    for (at.y = 0; at.y < op->y; at.y++)
        for (at.x = 0; at.x < op->x; at.x++)
            switch (op->kernel) {
#define RUN(name)                                                                                  \
    case CUDA_##name: {                                                                            \
        struct name##_args a;                                                                      \
        memcpy(&a, op->args, sizeof a);                                                            \
        name(a, at);                                                                               \
        break;                                                                                     \
    }
                CUDA_KERNELS(RUN)
#undef RUN
            default:
                fault("there is no such kernel");
            }
}

static void run_to(struct stream *s, size_t end);

/* The memory of the host that a copy names. */
static const void *host_of(const struct cuda_op *op)
{
    return op->how == CUDA_TO_DEVICE ? op->from : op->to;
}

static void run_copy(struct stream *s, const struct item *i)
{
    const struct cuda_op *op = &i->op;
    if (i->pinned && !is_pinned(host_of(op), op->n))
        fault("memory of the host is let go before its copy has ended");
    if (i->summed && checksum(op->from, op->n) != i->sum) fault("the source of a copy has changed");
    memcpy(op->to, op->from, op->n);
    copies--;
    s->copies--;
}

static void run(struct stream *s, const struct item *i)
{
    if (i->what == AFTER && i->of) run_to(i->of, i->target);
    if (i->what != RUN_OP) return;
    if (i->op.act == CUDA_COPY)
        run_copy(s, i);
    else if (i->op.act == CUDA_FILL)
        memset(i->op.to, i->op.byte, i->op.n);
    else
        launch(&i->op);
}

/* Works off the items of a stream before item `end`. */
static void run_to(struct stream *s, size_t end)
{
    while (s->done < end && s->done < s->first + s->n) {
        struct item i = s->item[s->done - s->first];
        s->done++; /* first: an event may lead back here */
        run(s, &i);
    }
    if (s->done == s->first + s->n) { /* nothing waits: the list begins again */
        s->first = s->done;
        s->n = 0;
    }
}

static int give(struct stream *s, const struct item *i)
{
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct item *all = realloc(s->item, room * sizeof *all);
        if (!all) return fail("out of memory");
        s->item = all;
        s->room = room;
    }
    s->item[s->n++] = *i;
    if (eager) run_to(s, SIZE_MAX);
    return 0;
}

static void *e_stream(void)
{
    return calloc(1, sizeof(struct stream));
}

static void e_stream_close(void *p)
{
    struct stream *s = p;
    run_to(s, SIZE_MAX);
    free(s->item);
    free(s);
}

static int give_op(struct stream *s, const struct cuda_op *op)
{
    struct item i = {.what = RUN_OP, .op = *op};
    if (op->act == CUDA_LAUNCH && op->y > 65535)
        return fail("a grid has at most 65535 rows of blocks");
    if (op->act == CUDA_LAUNCH && copies > s->copies) counts.beside++;
    if (op->act == CUDA_COPY) {
        copies++;
        s->copies++;
        i.pinned = op->how != CUDA_WITHIN && is_pinned(host_of(op), op->n);
        i.summed = op->how == CUDA_TO_DEVICE;
        if (i.summed) i.sum = checksum(op->from, op->n);
        if (op->how != CUDA_WITHIN) *(i.pinned ? &counts.pinned : &counts.pageable) += op->n;
    }
    return give(s, &i);
}

static int e_give(void *s, const struct cuda_op *op)
{
    counts.given++;
    return give_op(s, op);
}

static int e_wait(void *s)
{
    counts.waits++;
    run_to(s, SIZE_MAX);
    return 0;
}

static void *e_event(void)
{
    return calloc(1, sizeof(struct event));
}

static void e_event_close(void *e)
{
    free(e);
}

static int e_record(void *e, void *s)
{
    struct event *event = e;
    struct stream *stream = s;
    if (counts.refuse && !--counts.refuse) return fail("an event is refused");
    event->stream = stream;
    event->at = stream->first + stream->n;
    return give(stream, &(struct item){.what = RECORD});
}

static int e_after(void *s, void *e)
{
    const struct event *event = e;
    return give(s, &(struct item){.what = AFTER, .of = event->stream, .target = event->at});
}

static int e_happened(void *e)
{
    struct event *event = e;
    if (event->stream) run_to(event->stream, event->at);
    return 0;
}

/* --- graphs */
static void *e_graph(const struct cuda_op *op, uint32_t n)
{
    struct graph *g = calloc(1, sizeof *g);
    if (!g || !(g->op = malloc(n * sizeof *op))) abort();
    memcpy(g->op, op, n * sizeof *op);
    g->n = n;
    counts.graphs++;
    return g;
}

static int e_graph_set(void *graph, uint32_t i, const struct cuda_op *op)
{
    struct graph *g = graph;
    if (i >= g->n || g->op[i].act != op->act || g->op[i].kernel != op->kernel)
        fault("an operation of a graph becomes another one");
    g->op[i] = *op;
    counts.sets++;
    return 0;
}

static int e_graph_run(void *graph, void *stream)
{
    const struct graph *g = graph;
    counts.runs++;
    counts.in_graphs += g->n;
    for (uint32_t i = 0; i < g->n; i++)
        if (give_op(stream, &g->op[i]) < 0) return -1;
    return 0;
}

static void e_graph_close(void *graph)
{
    struct graph *g = graph;
    free(g->op);
    free(g);
}

static const struct cuda_rt rt = {
    .version = CUDA_RT_VERSION,
    .arguments = CUDA_ARGUMENTS,
    .error = e_error,
    .open = e_open,
    .alloc = e_alloc,
    .release = e_release,
    .hold = e_hold,
    .back = e_back,
    .stream = e_stream,
    .stream_close = e_stream_close,
    .give = e_give,
    .wait = e_wait,
    .event = e_event,
    .event_close = e_event_close,
    .record = e_record,
    .after = e_after,
    .happened = e_happened,
    .graph = e_graph,
    .graph_set = e_graph_set,
    .graph_run = e_graph_run,
    .graph_close = e_graph_close,
};
extern const struct cuda_rt *const kvik_cuda_rt;
__attribute__((visibility("default"))) const struct cuda_rt *const kvik_cuda_rt = &rt;
extern struct emulated_counts *const kvik_emulated_counts;
__attribute__((visibility("default"))) struct emulated_counts *const kvik_emulated_counts = &counts;
