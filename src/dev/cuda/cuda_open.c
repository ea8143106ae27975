/* cuda_open.c - the kind of device "cuda": finds the library of kernels, opens devices and queues.
 *
 * libkvik has no CUDA in it.  The library with the kernels is loaded when a model asks for the device:
 * $KVIK_CUDA_LIBRARY, or libkvik-cuda.so where the system finds libraries.  If the library or the driver is missing,
 * the error says which. */
#include "dev/cuda/cuda.h"
#include "dev/pin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cuda_open(struct dev **out);
static const struct dev_kind cuda = {
    .name = "cuda",
    .open = cuda_open,
#define MEMORY(result, name, parameters, arguments) .name = cuda_##name,
#define OP(result, name, parameters, arguments)     .name = cuda_##name,
#include "dev/ops.h"
};
DEV_KIND(cuda, &cuda);

/* An error is ignored: copies of memory that is not pinned work, too. */
static void cuda_pin(struct dev *d, void *host, size_t n, bool on)
{
    (void)((struct cuda_dev *)d)->rt->hold(host, n, on);
}
static const struct dev_pins pins = {&cuda, cuda_pin};
DEV_PINS(cuda, &pins);

/* The library stays loaded, because a device of another model may be running its kernels. */
static int load(const struct cuda_rt **out, struct cuda_about *about)
{
    const char *file = getenv("KVIK_CUDA_LIBRARY");
    if (!file || !*file) file = "libkvik-cuda.so";
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ERR(
            UNSUPPORTED,
            "device cuda: %s; make cuda builds the library, $KVIK_CUDA_LIBRARY names another place",
            dlerror());
    const struct cuda_rt *const *rt = dlsym(library, CUDA_RT_SYMBOL);
    if (!rt || (*rt)->version != CUDA_RT_VERSION || (*rt)->arguments != CUDA_ARGUMENTS) {
        dlclose(library);
        return ERR(UNSUPPORTED, "device cuda: %.200s is of another version of kvik; build it again",
                   file);
    }
    if ((*rt)->open(about) < 0) return ERR(UNSUPPORTED, "device cuda: %s", (*rt)->error());
    *out = *rt;
    return 0;
}

static int cuda_open(struct dev **out)
{
    const struct cuda_rt *rt;
    struct cuda_about about;
    TRY(load(&rt, &about));
    struct cuda_dev *dev = mem_alloc(sizeof *dev);
    if (!dev) return ERR_NOMEM;
    *dev = (struct cuda_dev){.base = {&cuda}, .rt = rt, .about = about};
    pthread_mutex_init(&dev->lock, NULL);
    *out = &dev->base;
    return 0;
}

void cuda_close(struct dev *base)
{
    struct cuda_dev *dev = (struct cuda_dev *)base;
    for (uint32_t i = 0; i < dev->n_own; i++)
        dev->rt->release(CUDA_DEVICE, dev->own[i], 0);
    mem_free(dev->own);
    pthread_mutex_destroy(&dev->lock);
    mem_free(dev);
}

static bool without(const char *name)
{
    const char *given = getenv(name);
    return given && !strcmp(given, "no");
}

int cuda_queue_open(struct dev *base, const struct dev_config *c, struct dev_queue **out)
{
    const struct cuda_dev *dev = (const struct cuda_dev *)base;
    struct dev_queue *d = mem_alloc(sizeof *d);
    if (!d) return ERR_NOMEM;
    *d = (struct dev_queue){.base = {base->kind, base},
                            .rt = dev->rt,
                            .no_graphs = without("KVIK_CUDA_GRAPHS"),
                            .no_tensor = without("KVIK_CUDA_TENSOR")};
    int e = pool_open(&d->pool, c ? c->n_threads : 0);
    if (e >= 0) {
        d->main = d->rt->stream();
        for (int i = 0; i < 2; i++)
            d->aside[i] = d->rt->stream();
        d->reached = d->rt->event();
        d->done = d->rt->event();
        d->stage = d->rt->alloc(CUDA_PINNED, CUDA_STAGE);
        e = cuda_graphs_open(d);
        if (!d->main || !d->aside[0] || !d->aside[1] || !d->reached || !d->done || !d->stage)
            e = ERR(NOMEM, "device cuda: %s", d->rt->error());
    }
    if (e < 0) {
        cuda_queue_close(d);
        return e;
    }
    *out = d;
    return 0;
}

void cuda_queue_close(struct dev_queue *d)
{
    const struct cuda_rt *rt = d->rt;
    if (d->main) cuda_wait(d);
    cuda_graphs_close(d);
    for (int i = 0; i < 2; i++)
        if (d->aside[i]) (void)rt->wait(d->aside[i]);
    for (uint32_t i = 0; i < d->n_beside; i++)
        rt->event_close(d->beside[i].event);
    void *memory[] = {d->lent, d->group, d->run, d->part, d->scores};
    for (size_t i = 0; i < countof(memory); i++)
        if (memory[i]) rt->release(CUDA_DEVICE, memory[i], 0);
    for (uint32_t i = 0; i < d->n_own; i++)
        if (d->own[i]) rt->release(CUDA_DEVICE, d->own[i], 0);
    if (d->reached) rt->event_close(d->reached);
    if (d->done) rt->event_close(d->done);
    if (d->stage) rt->release(CUDA_PINNED, d->stage, 0);
    for (int i = 0; i < 2; i++)
        if (d->aside[i]) rt->stream_close(d->aside[i]);
    if (d->main) rt->stream_close(d->main);
    mem_free(d->beside);
    for (uint32_t i = 0; i < d->n_layers; i++)
        mem_free(d->layer[i].here);
    mem_free(d->layer);
    mem_free(d->own);
    pool_close(d->pool);
    mem_free(d);
}

bool cuda_ok(struct dev_queue *d, int e)
{
    if (e < 0 && !d->failed) {
        d->failed = ERR_IO;
        snprintf(d->why, sizeof d->why, "%s", d->rt->error());
    }
    return !d->failed;
}

void cuda_failed(struct dev_queue *d, int e)
{
    if (d->failed) return;
    d->failed = e;
    snprintf(d->why, sizeof d->why, "%s", err_last());
}

int cuda_finish(struct dev_queue *d)
{
    const struct cuda_rt *rt = d->rt;
    cuda_flush(d);
    /* Waits even after an error: nothing may still run when the pages of a step are given back. */
    int e = rt->record(d->done, d->main);
    if (e >= 0) e = rt->happened(d->done);
    (void)cuda_ok(d, e);
    d->staged = 0;
    if (!d->failed) return 0;
    int code = d->failed;
    d->failed = 0;
    return err_pass(code, err_set(code, "%s%s", code == ERR_IO ? "device cuda: " : "", d->why));
}

const char *cuda_isa_name(const struct dev_queue *d)
{
    return ((const struct cuda_dev *)d->base.dev)->about.name;
}

uint32_t cuda_threads(const struct dev_queue *d)
{
    return pool_threads(d->pool);
}

void cuda_each(struct dev_queue *d, uint32_t n, pool_fn fn, void *ctx)
{
    pool_run(d->pool, n, fn, ctx);
}
