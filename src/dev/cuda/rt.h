/* rt.h - the functions that this folder needs of a GPU's runtime, as one struct.  A library that is loaded when a
 * model asks for the device provides them.  libkvik-cuda.so (rt_cuda.cu) has them over the CUDA runtime.
 * tests/cuda/rt_emulated.c runs the same kernels on the CPU, and lets work begin as late as the order of streams and
 * events allows.
 *
 * Functions that return int return 0 or a negative number; then error() has the sentence.  A stream runs its
 * operations in order, often after the call that adds them has returned.  Several threads use a device at once; a stream
 * belongs to one thread. */
#pragma once
#include "dev/cuda/kernels.h"

#define CUDA_RT_VERSION 3u
enum cuda_copy { CUDA_TO_DEVICE, CUDA_TO_HOST, CUDA_WITHIN };
/* CUDA_PINNED: memory of the host that copies read and write without staging.  CUDA_RANGE: a range of addresses
 * whose pages get memory and give it back. */
enum cuda_memory { CUDA_DEVICE, CUDA_PINNED, CUDA_RANGE };
enum cuda_act { CUDA_LAUNCH, CUDA_COPY, CUDA_FILL };
union cuda_args {
#define CUDA_ARGUMENTS_OF(name) struct name##_args name;
    CUDA_KERNELS(CUDA_ARGUMENTS_OF)
#undef CUDA_ARGUMENTS_OF
};
/* One operation of a stream. */
struct cuda_op {
    enum cuda_act act;
    /* CUDA_LAUNCH: a kernel on x * y blocks of K_THREADS threads */
    enum cuda_kernel kernel;
    uint32_t x, y;
    /* For CUDA_COPY.  Until the stream has done the copy, the source must not change and the destination must not be
     * read.  CUDA_FILL uses `to` and `byte`. */
    enum cuda_copy how;
    int byte;
    void *to;
    const void *from;
    size_t n;                                    /* bytes of the copy, or of the arguments */
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

    /* --- memory.  alloc: NULL if there is none.  release: n is the size of a range; its pages give their memory
     * back now or did so before. */
    void *(*alloc)(enum cuda_memory kind, size_t n);
    void (*release)(enum cuda_memory kind, void *at, size_t n);
    /* Pins memory of the caller; on false: unpins all that one call has pinned. */
    int (*hold)(void *at, size_t n, bool on);
    /* Gives memory to pages of a range; pages that have memory keep their contents.  on false: takes the memory
     * back. */
    int (*back)(void *at, size_t n, bool on);

    /* --- streams */
    void *(*stream)(void);
    void (*stream_close)(void *stream);
    int (*give)(void *stream, const struct cuda_op *op); /* copies *op */
    int (*wait)(void *stream); /* waits until the stream is done; returns its first error */

    /* --- events */
    void *(*event)(void);
    void (*event_close)(void *event);
    /* the event happens when the stream reaches this point */
    int (*record)(void *event, void *stream);
    int (*after)(void *stream, void *event); /* the stream waits for the event */
    int (*happened)(void *event);            /* the host waits for the event */

    /* --- graphs: a list of operations that a stream gets in one call */
    void *(*graph)(const struct cuda_op *op, uint32_t n); /* copies them; NULL: no memory */
    /* Replaces operation i, from the next run on, by another one of the same act and kernel. */
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
