/* rt_cuda.cu - the functions of rt.h over the CUDA runtime.  Each is one or two calls.  `make cuda` compiles and
 * links it.  Tests without a GPU run tests/cuda/rt_emulated.c instead, so nothing but calls belongs here.
 *
 * Ranges are virtual memory of the driver (cuMemAddressReserve).  The driver's functions are looked up at run time,
 * so the library loads without a driver too, and open() then returns an error. */
#include "dev/cuda/k_block.h"
#include "dev/cuda/rt.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <mutex>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <unordered_map>
#include <vector>

#define DECLARE(name) extern "C" __global__ void name(const struct name##_args a);
CUDA_KERNELS(DECLARE)
#undef DECLARE

static thread_local char said[256];
static char device_name[sizeof(cudaDeviceProp::name)];
static int device;
static size_t granule;

/* The driver's functions for ranges. */
static decltype(&cuMemGetAllocationGranularity) mem_granularity;
static decltype(&cuMemAddressReserve) mem_reserve;
static decltype(&cuMemAddressFree) mem_free_range;
static decltype(&cuMemCreate) mem_create;
static decltype(&cuMemRelease) mem_release;
static decltype(&cuMemMap) mem_map;
static decltype(&cuMemUnmap) mem_unmap;
static decltype(&cuMemSetAccess) mem_access;

/* The memory of each used page of a range. */
static std::mutex pages_lock;
static std::unordered_map<CUdeviceptr, CUmemGenericAllocationHandle> pages;

static int fail(const char *what, const char *why)
{
    snprintf(said, sizeof said, "%s: %s", what, why);
    return -1;
}

static int check(const char *what, cudaError_t e)
{
    return e == cudaSuccess ? 0 : fail(what, cudaGetErrorString(e));
}

static const char *r_error(void)
{
    return said;
}

static bool find(const char *name, void **fn)
{
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    return cudaGetDriverEntryPointByVersion(name, fn, 12000, cudaEnableDefault, &found) ==
               cudaSuccess &&
           *fn;
#else
    return cudaGetDriverEntryPoint(name, fn, cudaEnableDefault, &found) == cudaSuccess && *fn;
#endif
}
#define FIND(name, fn) find(#name, (void **)&(fn))

static CUmemAllocationProp properties(void)
{
    CUmemAllocationProp p = {};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}

static int open_device(void)
{
    int n = 0;
    cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver)
        return fail("no driver", "install NVIDIA's driver, or a newer one for this library");
    if (e != cudaSuccess || n == 0)
        return fail("no device",
                    e == cudaSuccess ? "the driver finds none" : cudaGetErrorString(e));
    if (check("cannot open the device", cudaSetDevice(device)) < 0) return -1;
    if (check("cannot read what the device is", cudaGetDeviceProperties(&p, device)) < 0) return -1;
    snprintf(device_name, sizeof device_name, "%s", p.name);
    if (!FIND(cuMemGetAllocationGranularity, mem_granularity) ||
        !FIND(cuMemAddressReserve, mem_reserve) || !FIND(cuMemAddressFree, mem_free_range) ||
        !FIND(cuMemCreate, mem_create) || !FIND(cuMemRelease, mem_release) ||
        !FIND(cuMemMap, mem_map) || !FIND(cuMemUnmap, mem_unmap) ||
        !FIND(cuMemSetAccess, mem_access))
        return fail("no virtual memory", "the driver is too old");
    CUmemAllocationProp prop = properties();
    if (mem_granularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        return fail("no virtual memory", "the device has none");
    return 0;
}

static int r_open(struct cuda_about *about)
{
    static std::mutex lock;
    static bool opened;
    std::lock_guard<std::mutex> hold(lock);
    if (!opened && open_device() < 0) return -1;
    opened = true;
    about->name = device_name;
    about->page = granule;
    return check("cannot open the device", cudaSetDevice(device));
}

static void *range_of(size_t n)
{
    CUdeviceptr at;
    if (mem_reserve(&at, (n + granule - 1) / granule * granule, 0, 0, 0) == CUDA_SUCCESS)
        return (void *)at;
    fail("no addresses", "the driver refuses a range");
    return NULL;
}

static void *r_alloc(enum cuda_memory kind, size_t n)
{
    void *at = NULL;
    cudaSetDevice(device); /* sets the device of this thread */
    if (kind == CUDA_RANGE) return range_of(n);
    if (kind == CUDA_PINNED)
        return check("no pinned memory", cudaMallocHost(&at, n)) < 0 ? NULL : at;
    return check("no memory", cudaMalloc(&at, n)) < 0 ? NULL : at;
}

static int r_hold(void *at, size_t n, bool on)
{
    cudaSetDevice(device);
    if (on) return check("no pinned memory", cudaHostRegister(at, n, cudaHostRegisterDefault));
    return check("pinned memory", cudaHostUnregister(at));
}

static void drop(void *at, size_t n)
{
    std::lock_guard<std::mutex> hold(pages_lock);
    for (size_t i = 0; i < n; i += granule) {
        auto page = pages.find((CUdeviceptr)at + i);
        if (page == pages.end()) continue;
        mem_unmap(page->first, granule);
        mem_release(page->second);
        pages.erase(page);
    }
}

static void r_release(enum cuda_memory kind, void *at, size_t n)
{
    if (kind == CUDA_DEVICE) {
        cudaFree(at);
    } else if (kind == CUDA_PINNED) {
        cudaFreeHost(at);
    } else {
        drop(at, n);
        mem_free_range((CUdeviceptr)at, (n + granule - 1) / granule * granule);
    }
}

static int back_page(CUdeviceptr at)
{
    CUmemAllocationProp prop = properties();
    CUmemAccessDesc access = {};
    CUmemGenericAllocationHandle memory;
    if (pages.count(at)) return 0;
    if (mem_create(&memory, granule, &prop, 0) != CUDA_SUCCESS)
        return fail("no memory", "for a page of the cache");
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (mem_map(at, granule, 0, memory, 0) == CUDA_SUCCESS) {
        if (mem_access(at, granule, &access, 1) == CUDA_SUCCESS) {
            pages[at] = memory;
            return 0;
        }
        mem_unmap(at, granule);
    }
    mem_release(memory);
    return fail("no memory", "a page of the cache cannot be mapped");
}

static int r_back(void *at, size_t n, bool on)
{
    if (!on) {
        drop(at, n);
        return 0;
    }
    std::lock_guard<std::mutex> hold(pages_lock);
    cudaSetDevice(device);
    for (size_t i = 0; i < n; i += granule)
        if (back_page((CUdeviceptr)at + i) < 0) return -1;
    return 0;
}

static void *r_stream(void)
{
    cudaStream_t s;
    cudaSetDevice(device);
    return check("no stream", cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)) < 0 ? NULL : s;
}

static void r_stream_close(void *s)
{
    cudaStreamSynchronize((cudaStream_t)s);
    cudaStreamDestroy((cudaStream_t)s);
}

static const cudaMemcpyKind copies[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                        cudaMemcpyDeviceToDevice};
static const struct {
    const void *fn;
    const char *name;
} kernels[] = {
#define ROW(name) {(const void *)name, #name},
    CUDA_KERNELS(ROW)
#undef ROW
};

static int r_give(void *stream, const struct cuda_op *op)
{
    cudaStream_t s = (cudaStream_t)stream;
    void *one[] = {(void *)op->args};
    if (op->act == CUDA_COPY)
        return check("a copy", cudaMemcpyAsync(op->to, op->from, op->n, copies[op->how], s));
    if (op->act == CUDA_FILL)
        return check("a fill", cudaMemsetAsync(op->to, op->byte, op->n, s));
    return check(kernels[op->kernel].name,
                 cudaLaunchKernel(kernels[op->kernel].fn, dim3(op->x, op->y), dim3(K_THREADS), one, 0, s));
}

static int r_wait(void *s)
{
    return check("the device", cudaStreamSynchronize((cudaStream_t)s));
}

static void *r_event(void)
{
    cudaEvent_t e;
    cudaSetDevice(device);
    return check("no event", cudaEventCreateWithFlags(&e, cudaEventDisableTiming)) < 0 ? NULL : e;
}

static void r_event_close(void *e)
{
    cudaEventDestroy((cudaEvent_t)e);
}

static int r_record(void *e, void *s)
{
    return check("an event", cudaEventRecord((cudaEvent_t)e, (cudaStream_t)s));
}

static int r_after(void *s, void *e)
{
    return check("an event", cudaStreamWaitEvent((cudaStream_t)s, (cudaEvent_t)e, 0));
}

static int r_happened(void *e)
{
    return check("a copy", cudaEventSynchronize((cudaEvent_t)e));
}

/* --- graphs: a chain of nodes, which are kept so that they can be set */
struct chain {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    std::vector<cudaGraphNode_t> node;
};

static cudaKernelNodeParams launch_of(const struct cuda_op *op, void **one)
{
    cudaKernelNodeParams p = {};
    p.func = (void *)kernels[op->kernel].fn;
    p.gridDim = dim3(op->x, op->y);
    p.blockDim = dim3(K_THREADS);
    p.kernelParams = one;
    return p;
}

static cudaMemsetParams fill_of(const struct cuda_op *op)
{
    cudaMemsetParams p = {};
    p.dst = op->to;
    p.value = (unsigned)op->byte;
    p.elementSize = 1;
    p.width = op->n;
    p.height = 1;
    return p;
}

static int add_node(struct chain *c, const struct cuda_op *op)
{
    const cudaGraphNode_t *after = c->node.empty() ? NULL : &c->node.back();
    size_t n = after ? 1 : 0;
    cudaGraphNode_t node;
    cudaError_t e;
    if (op->act == CUDA_COPY) {
        e = cudaGraphAddMemcpyNode1D(&node, c->graph, after, n, op->to, op->from, op->n, copies[op->how]);
    } else if (op->act == CUDA_FILL) {
        cudaMemsetParams p = fill_of(op);
        e = cudaGraphAddMemsetNode(&node, c->graph, after, n, &p);
    } else {
        void *one[] = {(void *)op->args};
        cudaKernelNodeParams p = launch_of(op, one);
        e = cudaGraphAddKernelNode(&node, c->graph, after, n, &p);
    }
    if (check("a node of a graph", e) < 0) return -1;
    c->node.push_back(node);
    return 0;
}

static void r_graph_close(void *graph)
{
    struct chain *c = (struct chain *)graph;
    if (c->exec) cudaGraphExecDestroy(c->exec);
    if (c->graph) cudaGraphDestroy(c->graph);
    delete c;
}

static void *r_graph(const struct cuda_op *op, uint32_t n)
{
    struct chain *c = new (std::nothrow) chain();
    if (!c) return NULL;
    cudaSetDevice(device);
    int e = check("a graph", cudaGraphCreate(&c->graph, 0));
    for (uint32_t i = 0; i < n && e >= 0; i++)
        e = add_node(c, &op[i]);
    if (e >= 0) e = check("a graph", cudaGraphInstantiate(&c->exec, c->graph, 0));
    if (e >= 0) return c;
    r_graph_close(c);
    return NULL;
}

static int r_graph_set(void *graph, uint32_t i, const struct cuda_op *op)
{
    struct chain *c = (struct chain *)graph;
    if (op->act == CUDA_COPY)
        return check("a copy of a graph",
                     cudaGraphExecMemcpyNodeSetParams1D(c->exec, c->node[i], op->to, op->from, op->n,
                                                        copies[op->how]));
    if (op->act == CUDA_FILL) {
        cudaMemsetParams p = fill_of(op);
        return check("a fill of a graph", cudaGraphExecMemsetNodeSetParams(c->exec, c->node[i], &p));
    }
    void *one[] = {(void *)op->args};
    cudaKernelNodeParams p = launch_of(op, one);
    return check(kernels[op->kernel].name, cudaGraphExecKernelNodeSetParams(c->exec, c->node[i], &p));
}

static int r_graph_run(void *graph, void *s)
{
    return check("a graph", cudaGraphLaunch(((struct chain *)graph)->exec, (cudaStream_t)s));
}

static const struct cuda_rt rt = {
    CUDA_RT_VERSION, CUDA_ARGUMENTS, r_error,       r_open,   r_alloc,  r_release,  r_hold,
    r_back,          r_stream,       r_stream_close, r_give,  r_wait,   r_event,    r_event_close,
    r_record,        r_after,        r_happened,    r_graph,  r_graph_set, r_graph_run, r_graph_close,
};
extern "C" __attribute__((visibility("default"))) const struct cuda_rt *const kvik_cuda_rt = &rt;
