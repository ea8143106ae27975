/* cuda.h - shared inside dev/cuda: a device, a queue with its scratch, and how operations launch kernels. */
#pragma once
#include "base/thread.h"
#include "dev/cuda/rt.h"
#include "dev/dev.h"

struct cuda_dev {
    struct dev base; /* first */
    const struct cuda_rt *rt;
    struct cuda_about about;
    pthread_mutex_t lock; /* of `own` */
    void **own;           /* [n_own] copies of weights */
    uint32_t n_own;
};
/* A copy that runs beside the operations.  When it has ended, another copy reuses the record and its event. */
struct cuda_beside {
    uint32_t number; /* 0: none */
    void *event;     /* happens when the copy has ended */
};
/* A list that came before, and its graph; NULL: the list came only once. */
struct cuda_graph {
    uint32_t first, n; /* operations of the list in `kept`; n 0: no list */
    void *graph;
    uint64_t used; /* number of the list that used it last */
};
/* Where the device has the addresses of the weights of a layer of experts. */
struct cuda_layer {
    const struct dev_expert *of; /* [n] */
    uint32_t n;
    /* [n] on the host and on the device; there NULL: the device has none */
    struct k_expert *here, *there;
};
#define CUDA_GRAPHS 64u
#define CUDA_LIST   4096u /* most operations that wait at once */
#define CUDA_KEPT   8192u /* most operations of all remembered lists */
struct dev_queue {
    struct dev_base base; /* first */
    const struct cuda_rt *rt;
    struct pool *pool; /* for work of the host; owned */
    /* streams: main for operations, aside for copies beside them, one for each direction */
    void *main, *aside[2];
    void *reached; /* event: how far `main` is when a copy beside it begins */
    void *done;    /* event that dev_finish waits for */
    /* cuda_graph.c: [n_list] of CUDA_LIST operations that `main` has not got yet; [n_kept] of CUDA_KEPT operations
     * of the remembered lists */
    struct cuda_op *list, *kept;
    uint32_t n_list, n_kept;
    struct cuda_graph graph[CUDA_GRAPHS];
    uint64_t lists;
    bool no_graphs; /* $KVIK_CUDA_GRAPHS is "no" */
    bool no_tensor; /* $KVIK_CUDA_TENSOR is "no" */
    int failed;     /* first error since the last dev_finish; `why` has its sentence */
    char why[256];
    void **own; /* [n_own] memory of alloc and mirror; NULL: closed */
    uint32_t n_own;
    void *lent; /* [n_lent] */
    size_t n_lent;
    /* [CUDA_STAGE] pinned; copies of the bytes up to `staged` may still run */
    unsigned char *stage;
    size_t staged;
    struct cuda_beside *beside; /* [n_beside] */
    uint32_t n_beside, last;
    struct cuda_layer *layer; /* [n_layers] */
    uint32_t n_layers;
    struct dev_limits lim;
    struct k_group *group; /* [tokens][groups] activations as codes */
    float *run, *part; /* in attention: the running results, and the results of a wave of atoms */
    size_t n_part;     /* floats of `part` */
    float *scores;     /* [n_scores] of a probe, kept from its first piece to its last */
    size_t n_scores;
};
#define CUDA_STAGE ((size_t)4 << 20)

/* The operations of the table. */
#define MEMORY(result, name, parameters, arguments) result cuda_##name parameters;
#define OP(result, name, parameters, arguments)     result cuda_##name parameters;
#include "dev/ops.h"

/* Keeps an error of the runtime as the queue's, unless the queue has one.  True if the queue has no error. */
bool cuda_ok(struct dev_queue *d, int e);
/* The same for an error of the host, whose sentence is that of the thread. */
void cuda_failed(struct dev_queue *d, int e);
/* cuda_launch, cuda_copy and cuda_fill append to the list.  A kernel runs on x * y blocks, or not at all if x or y
 * is 0.  After an error they do nothing. */
void cuda_launch(struct dev_queue *d, enum cuda_kernel k, size_t x, size_t y, const void *args,
                 size_t n);
void cuda_copy(struct dev_queue *d, void *to, const void *from, size_t n, enum cuda_copy how);
void cuda_fill(struct dev_queue *d, void *to, int byte, size_t n);
/* Gives the list to the stream. */
void cuda_flush(struct dev_queue *d);
/* Gives the list to the stream and waits for it.  Then no bytes are staged. */
void cuda_wait(struct dev_queue *d);
int cuda_graphs_open(struct dev_queue *d);
void cuda_graphs_close(struct dev_queue *d);
/* Lists are compared by their bytes, so padding between the members of arguments must be zeros. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define CUDA_CLEAR(p) __builtin_clear_padding(p)
#else /* other padding makes a list look new at worst, so that it is no graph */
#define CUDA_CLEAR(p) (void)0
#endif
#define LAUNCH(d, name, x, y, ...)                                                                 \
    do {                                                                                           \
        struct name##_args cuda_args = {__VA_ARGS__};                                              \
        CUDA_CLEAR(&cuda_args);                                                                    \
        cuda_launch(d, CUDA_##name, x, y, &cuda_args, sizeof cuda_args);                           \
    } while (0)
/* Returns where the device sees an array of a view, or NULL if it does not; and describes a plane of the view. */
const uint32_t *cuda_seen(const struct kv_view *v, const uint32_t *host);
struct k_plane cuda_plane(const struct kv_view *v, uint32_t plane);
struct k_weight cuda_weight(const struct dev_weight *w);
/* Makes codes of n inputs, if products with this weight take codes. */
void cuda_codes(struct dev_queue *d, enum dev_compute mode, const struct dev_weight *w,
                const float *x, size_t ldx, uint32_t n);
/* Returns the number of blocks for n values. */
static inline size_t cuda_blocks(size_t n)
{
    return (n + 255) / 256;
}
/* Makes sure that *at has room for n floats.  The memory lives as long as the queue and is reused by later calls. */
int cuda_room(struct dev_queue *d, float **at, size_t *have, size_t n);
