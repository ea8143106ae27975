/* rt_emulated.c - the runtime of src/dev/cuda/rt.h on the CPU: the same kernels, block by block, on memory of the host.
 *
 * Nothing runs when it is given.  A stream is a list, and is worked off when somebody waits for it, or for an event in it: as
 * late as a GPU may be.  So a result that is read too early is old, an array that the host writes too early is seen by its
 * checksum, and memory that is given back too early is a fault, since nobody can touch it any more.  With
 * KVIK_EMULATED=eager everything runs at once instead, and with KVIK_EMULATED=backwards the threads of a block run in
 * descending order: whoever depends on an order gives other bits in one of the three.  New memory holds NaN. */
#include "base/base.h"
#include "dev/cuda/k_block.h"
#include "dev/cuda/rt.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define GRANULE ((size_t)64 << 10)

enum act { ACT_COPY, ACT_FILL, ACT_LAUNCH, ACT_RECORD, ACT_AFTER };
struct event {
    struct stream *stream; /* where it was recorded last; NULL: it has happened */
    size_t at;             /* items of the stream before it */
};
struct item {
    enum act act;
    unsigned char *to;
    const unsigned char *from;
    size_t n;
    uint64_t sum; /* of a source of the host */
    bool summed;
    int byte;
    enum cuda_kernel kernel;
    uint32_t x, y;
    unsigned char args[512];
    size_t target; /* ACT_AFTER: where the event was when this was given */
    struct stream *of;
};
struct stream {
    struct item *item; /* [n] */
    size_t n, done;    /* counted from the first item ever */
    size_t room, first;
};

static _Thread_local char said[128];
static bool eager, backwards;

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

static const char *e_name(void)
{
    return "emulated";
}

static int e_open(void)
{
    const char *how = getenv("KVIK_EMULATED");
    if (how && !strcmp(how, "none")) return fail("there is no driver: libcuda.so.1 was not found");
    eager = how && !strcmp(how, "eager");
    backwards = how && !strcmp(how, "backwards");
    return 0;
}

/* --- memory: a mapping each, so that what was given back faults.  Before it stands its size. */
static void *take(size_t n)
{
    size_t page = 4096, all = (n + page - 1) / page * page + page;
    unsigned char *at = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        fail("no memory");
        return NULL;
    }
    memcpy(at, &all, sizeof all);
    memset(at + page, 0xFF, n);
    return at + page;
}

static void e_release(void *p)
{
    size_t all;
    unsigned char *at = (unsigned char *)p - 4096;
    if (!p) return;
    memcpy(&all, at, sizeof all);
    madvise(at, all, MADV_DONTNEED);
    mprotect(at, all, PROT_NONE); /* the addresses never come again */
}

static size_t e_granule(void)
{
    return GRANULE;
}

static void *e_range(size_t n)
{
    void *at = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) return at;
    fail("no addresses");
    return NULL;
}

static void e_range_close(void *at, size_t n)
{
    munmap(at, n);
}

static int e_back(void *at, size_t n)
{
    if (n % GRANULE) fault("a range is used in parts of its pages");
    for (size_t i = 0; i < n; i += GRANULE) {
        unsigned char in, *page = (unsigned char *)at + i;
        if (mincore(page, 1, &in) != 0) fault("a page is in no range");
        if (mprotect(page, GRANULE, PROT_READ | PROT_WRITE) != 0) return fail("no memory");
    }
    return 0;
}

static void e_drop(void *at, size_t n)
{
    madvise(at, n, MADV_DONTNEED);
    mprotect(at, n, PROT_NONE);
}

/* --- streams */
static uint64_t checksum(const unsigned char *p, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static void launch(const struct item *i)
{
    struct k_block at = {0, 0, backwards};
    for (at.y = 0; at.y < i->y; at.y++)
        for (at.x = 0; at.x < i->x; at.x++)
            switch (i->kernel) {
#define RUN(name)                                                                                  \
    case CUDA_##name: {                                                                            \
        struct name##_args a;                                                                      \
        memcpy(&a, i->args, sizeof a);                                                             \
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

static void run(struct item *i)
{
    switch (i->act) {
    case ACT_COPY:
        if (i->summed && checksum(i->from, i->n) != i->sum)
            fault("the source of a copy has changed");
        memcpy(i->to, i->from, i->n);
        break;
    case ACT_FILL:
        memset(i->to, i->byte, i->n);
        break;
    case ACT_LAUNCH:
        launch(i);
        break;
    case ACT_RECORD:
        break;
    case ACT_AFTER:
        if (i->of) run_to(i->of, i->target);
    }
}

/* Works off the items of a stream before item `end`. */
static void run_to(struct stream *s, size_t end)
{
    while (s->done < end && s->done < s->first + s->n) {
        struct item i = s->item[s->done - s->first];
        s->done++; /* first: an event may lead back here */
        run(&i);
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

static int e_copy(void *s, void *to, const void *from, size_t n, enum cuda_copy how)
{
    struct item i = {
        .act = ACT_COPY, .to = to, .from = from, .n = n, .summed = how == CUDA_TO_DEVICE};
    if (i.summed) i.sum = checksum(from, n);
    return give(s, &i);
}

static int e_fill(void *s, void *at, int byte, size_t n)
{
    return give(s, &(struct item){.act = ACT_FILL, .to = at, .byte = byte, .n = n});
}

static int e_launch(void *s, enum cuda_kernel k, uint32_t x, uint32_t y, const void *args, size_t n)
{
    struct item i = {.act = ACT_LAUNCH, .kernel = k, .x = x, .y = y, .n = n};
    if (n > sizeof i.args) fault("a kernel has more arguments than there is room for");
    if (y > 65535) return fail("a grid has at most 65535 rows of blocks");
    memcpy(i.args, args, n);
    return give(s, &i);
}

static int e_wait(void *s)
{
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
    event->stream = stream;
    event->at = stream->first + stream->n;
    return give(stream, &(struct item){.act = ACT_RECORD});
}

static int e_after(void *s, void *e)
{
    const struct event *event = e;
    return give(s, &(struct item){.act = ACT_AFTER, .of = event->stream, .target = event->at});
}

static int e_happened(void *e)
{
    struct event *event = e;
    if (event->stream) run_to(event->stream, event->at);
    return 0;
}

static const struct cuda_rt rt = {
    .version = CUDA_RT_VERSION,
    .arguments = CUDA_ARGUMENTS,
    .error = e_error,
    .open = e_open,
    .name = e_name,
    .alloc = take,
    .release = e_release,
    .pin = take,
    .unpin = e_release,
    .granule = e_granule,
    .range = e_range,
    .range_close = e_range_close,
    .back = e_back,
    .drop = e_drop,
    .stream = e_stream,
    .stream_close = e_stream_close,
    .copy = e_copy,
    .fill = e_fill,
    .launch = e_launch,
    .wait = e_wait,
    .event = e_event,
    .event_close = e_event_close,
    .record = e_record,
    .after = e_after,
    .happened = e_happened,
};
extern const struct cuda_rt *const kvik_cuda_rt;
__attribute__((visibility("default"))) const struct cuda_rt *const kvik_cuda_rt = &rt;
