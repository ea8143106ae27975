/* rt.h - all that this folder asks of a GPU: nineteen short functions of one struct, which a library brings that is loaded
 * when a model asks for the device.  libkvik-cuda.so (rt_cuda.cu) has them over the CUDA runtime;
 * tests/cuda/rt_emulated.c runs the same kernels on the CPU and lets work begin as late as the order of streams and
 * events allows.
 *
 * Functions that return int give 0 or a negative number; error() then has the sentence.  A stream runs what it is
 * given in order, and later.  Several threads use a device at once; a stream belongs to one. */
#pragma once
#include "dev/cuda/kernels.h"

#define CUDA_RT_VERSION 3u
enum cuda_copy { CUDA_TO_DEVICE, CUDA_TO_HOST, CUDA_WITHIN };
/* CUDA_PINNED: of the host, which copies reach without staging.  CUDA_RANGE: addresses, whose pages get memory and give it back. */
enum cuda_memory { CUDA_DEVICE, CUDA_PINNED, CUDA_RANGE };
enum cuda_act { CUDA_LAUNCH, CUDA_COPY, CUDA_FILL };
union cuda_args {
#define CUDA_ARGUMENTS_OF(name) struct name##_args name;
    CUDA_KERNELS(CUDA_ARGUMENTS_OF)
#undef CUDA_ARGUMENTS_OF
};
/* What a stream does. */
struct cuda_op {
    enum cuda_act act;
    /* CUDA_LAUNCH: a kernel on x * y blocks of K_THREADS threads */
    enum cuda_kernel kernel;
    uint32_t x, y;
    /* CUDA_COPY; the source must stay as it is, and the place unread, until the stream is past it.  CUDA_FILL: `to` and `byte` */
    enum cuda_copy how;
    int byte;
    void *to;
    const void *from;
    size_t n;                                    /* bytes: of the copy, of the arguments */
    unsigned char args[sizeof(union cuda_args)]; /* [n] of CUDA_LAUNCH */
};

struct cuda_about {
    const char *name; /* valid for ever */
    size_t page;      /* bytes of a page of a range */
};
struct cuda_rt {
    /* CUDA_RT_VERSION, and the size of the arguments of all kernels together: both sides must agree. */
    uint32_t version, arguments;
    const char *(*error)(void);
    /* Finds the device, and says what it is.  Fails with a sentence where there is no driver or no device. */
    int (*open)(struct cuda_about *about);

    /* --- memory.  alloc: NULL, if there is none.  release: n is that of a range, whose pages have given theirs back or do so now. */
    void *(*alloc)(enum cuda_memory kind, size_t n);
    void (*release)(enum cuda_memory kind, void *at, size_t n);
    /* Makes memory of the caller pinned memory; on false: no longer, all of it. */
    int (*hold)(void *at, size_t n, bool on);
    /* Gives pages of a range memory, whose contents stay if they have some; on false: takes it. */
    int (*back)(void *at, size_t n, bool on);

    /* --- streams */
    void *(*stream)(void);
    void (*stream_close)(void *stream);
    int (*give)(void *stream, const struct cuda_op *op); /* copies *op */
    int (*wait)(void *stream); /* until all of it is done; the first error of it */

    /* --- events */
    void *(*event)(void);
    void (*event_close)(void *event);
    int (*record)(void *event, void *stream); /* it happens when the stream is here */
    int (*after)(void *stream, void *event);  /* the stream goes on when it has happened */
    int (*happened)(void *event);             /* waits for it */

    /* --- graphs: operations one after another that a stream is given at once */
    void *(*graph)(const struct cuda_op *op, uint32_t n); /* copies them; NULL: no memory */
    /* From the next run on operation i is another one of the same act and kernel. */
    int (*graph_set)(void *graph, uint32_t i, const struct cuda_op *op);
    int (*graph_run)(void *graph, void *stream);
    void (*graph_close)(void *graph);
};

/* The sum of the sizes of all structs of arguments. */
enum {
    CUDA_ARGUMENTS = 0
#define CUDA_ARGUMENT_SIZE(name) +(int)sizeof(struct name##_args)
    CUDA_KERNELS(CUDA_ARGUMENT_SIZE)
#undef CUDA_ARGUMENT_SIZE
};
/* What the library exports. */
#define CUDA_RT_SYMBOL "kvik_cuda_rt"
