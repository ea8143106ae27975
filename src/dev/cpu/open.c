/* open.c - opening the CPU and its queues: which instruction set, which kernels, how many threads, and all the
 * scratch the operations will need.  After dev_reserve nothing in this backend allocates. */
#include "base/built.h"
#include "dev/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const char *const isa_names[DEV_ISAS] = {"ref",  "neon",   "neondot",   "neoni8mm",
                                                "avx2", "avx512", "avx512bf16"};

/* Bounds of the section the CPU_KERNEL lines fill; weak, so that an empty one links. */
extern const struct cpu_kernel *const __start_kvik_cpu[]
    __attribute__((weak, visibility("hidden")));
extern const struct cpu_kernel *const __stop_kvik_cpu[] __attribute__((weak, visibility("hidden")));

const char *const *dev_isa_names(void)
{
    return isa_names;
}

bool dev_isa_supported(enum dev_isa isa)
{
    if (isa == DEV_REF) return true;
#if defined(__x86_64__)
    __builtin_cpu_init();
    unsigned a, b, c = 0, e;
    bool f16c = __get_cpuid(1, &a, &b, &c, &e) && (c & bit_F16C); /* clang has no name for it */
    bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == DEV_AVX2) return avx2;
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vnni");
    if (isa == DEV_AVX512) return avx512;
    if (isa == DEV_AVX512BF16) return avx512 && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
    const unsigned long asimddp = 1ul << 20, i8mm = 1ul << 13; /* HWCAP_ASIMDDP, HWCAP2_I8MM */
    if (isa == DEV_NEON) return true;
    bool dot = getauxval(AT_HWCAP) & asimddp;
    if (isa == DEV_NEONDOT) return dot;
    if (isa == DEV_NEONI8MM) return dot && getauxval(AT_HWCAP2) & i8mm;
#endif
    return false;
}

static enum dev_isa best_isa(void)
{
    enum dev_isa best = DEV_REF;
    for (int i = 0; i < DEV_ISAS; i++)
        if (dev_isa_supported((enum dev_isa)i)) best = (enum dev_isa)i;
    return best;
}

/* The instruction sets that kernels were compiled for, and which of them this processor has. */
static int names(struct buf *b)
{
    bool have[DEV_ISAS] = {[DEV_REF] = true};
    for (const struct cpu_kernel *const *p = __start_kvik_cpu; p < __stop_kvik_cpu; p++)
        have[(*p)->isa] = true;
    for (int i = 0; i < DEV_ISAS; i++)
        if (have[i]) TRY(buf_printf(b, "%s%s", i ? ", " : "", isa_names[i]));
    return buf_printf(b, " (this processor: %s)", isa_names[best_isa()]);
}
BUILT(cpu, BUILT_KERNELS, names);

static int choose_isa(const char *name, enum dev_isa *out)
{
    if (!name || !*name) name = getenv("KVIK_ISA");
    if (!name || !*name) {
        *out = best_isa();
        return 0;
    }
    char have[64];
    size_t len = 0;
    int found = -1;
    for (int i = 0; i < DEV_ISAS; i++) {
        if (strcmp(name, isa_names[i]) == 0) found = i;
        if (!dev_isa_supported((enum dev_isa)i)) continue;
        len +=
            (size_t)snprintf(have + len, sizeof have - len, "%s%s", len ? ", " : "", isa_names[i]);
    }
    if (found < 0)
        return ERR(UNSUPPORTED, "unknown instruction set '%.40s': choose one of %s", name, have);
    if (!dev_isa_supported((enum dev_isa)found))
        return ERR(UNSUPPORTED, "this processor lacks %s: choose one of %s", name, have);
    *out = (enum dev_isa)found;
    return 0;
}

static void bind_kernels(struct dev_queue *d)
{
    signed char have[CPU_OPS][DT_COUNT];
    memset(have, -1, sizeof have);
    for (const struct cpu_kernel *const *p = __start_kvik_cpu; p < __stop_kvik_cpu; p++) {
        const struct cpu_kernel *k = *p;
        if (k->isa > d->isa || (int)k->isa <= have[k->op][k->type]) continue;
        have[k->op][k->type] = (signed char)k->isa;
        d->fn[k->op][k->type] = k->fn;
    }
}

void cpu_queue_close(struct dev_queue *d)
{
    pool_close(d->pool);
    for (uint32_t i = 0; i < d->n_own; i++)
        mem_free(d->own[i]);
    mem_free(d->own);
    mem_free(d->scratch);
    mem_free(d);
}

const char *cpu_isa_name(const struct dev_queue *d)
{
    return isa_names[d->isa];
}

uint32_t cpu_threads(const struct dev_queue *d)
{
    return pool_threads(d->pool);
}

void cpu_each(struct dev_queue *d, uint32_t n, pool_fn fn, void *ctx)
{
    pool_run(d->pool, n, fn, ctx);
}

/* Adds n items of `size` bytes, rounded up to a cache line, at *at; false on overflow. */
static bool add_room(size_t *at, size_t n, size_t size, size_t *where)
{
    size_t bytes;
    *where = *at;
    return ck_mul(n, size, &bytes) && ck_add(bytes, 63, &bytes) &&
           ck_add(*at, bytes & ~(size_t)63, at);
}

int cpu_reserve(struct dev_queue *d, const struct dev_limits *lim)
{
    struct dev_limits l = dev_limits_both(lim, &d->lim);
    if (l.k > 1u << 24)
        return ERR(LIMIT, "matrix rows of %u values: the limit is %u", l.k, 1u << 24);
    uint32_t threads = pool_threads(d->pool), x_tokens = MIN(MAX(l.tokens, 1), CPU_X_TOKENS);
    size_t groups = (l.k + CPU_GROUP - 1) / CPU_GROUP,
           xb_stride = ((size_t)l.k * 4 + 63) & ~(size_t)63;
    size_t attn_bytes = cpu_attn_scratch(&l, threads), total = 0, xq, xb, thread, attn;
    if (!add_room(&total, x_tokens * groups, sizeof(struct cpu_xgroup), &xq) ||
        !add_room(&total, x_tokens, xb_stride, &xb) ||
        !add_room(&total, threads, CPU_THREAD_BYTES, &thread) ||
        !add_room(&total, attn_bytes, 1, &attn))
        return ERR(LIMIT, "scratch for %u tokens of %u values overflows", l.tokens, l.k);
    unsigned char *s = mem_aligned(total);
    if (!s) return ERR_NOMEM;
    mem_free(d->scratch);
    d->scratch = s;
    d->scratch_bytes = total;
    d->lim = l;
    d->xq = (struct cpu_xgroup *)(s + xq);
    d->xq_groups = groups;
    d->xb = s + xb;
    d->xb_stride = xb_stride;
    d->x_tokens = x_tokens;
    d->thread = s + thread;
    d->attn = s + attn;
    d->attn_bytes = attn_bytes;
    return 0;
}

/* Operations are over when they return, and cannot fail: all they need is reserved. */
int cpu_finish(struct dev_queue *d)
{
    (void)d;
    return 0;
}

int cpu_queue_open(struct dev *dev, const struct dev_config *c, struct dev_queue **out)
{
    enum dev_isa isa = DEV_REF;
    TRY(choose_isa(c ? c->isa : NULL, &isa));
    struct dev_queue *d = mem_alloc(sizeof *d);
    if (!d) return ERR_NOMEM;
    d->base = (struct dev_base){dev->kind, dev};
    d->isa = isa;
    bind_kernels(d);
    int e = pool_open(&d->pool, c ? c->n_threads : 0);
    if (e < 0) {
        mem_free(d);
        return e;
    }
    *out = d;
    return 0;
}

/* The CPU is there without being opened. */
static int cpu_open(struct dev **out)
{
    *out = &dev_host;
    return 0;
}

void cpu_close(struct dev *d)
{
    (void)d;
}

/* The host reads tiles of every codec, since each has `decode` if it has no faster reader. */
bool cpu_reads(const struct dev *d, const struct kv_codec *c)
{
    (void)d, (void)c;
    return true;
}

static const struct dev_kind cpu = {
    .name = "cpu",
    .is_host = true,
    .open = cpu_open,
#define MEMORY(result, name, parameters, arguments) .name = cpu_##name,
#define OP(result, name, parameters, arguments)     .name = cpu_##name,
#include "dev/ops.h"
};
DEV_KIND(cpu, &cpu);
struct dev dev_host = {.kind = &cpu};
struct dev_queue dev_host_queue = {.base = {&cpu, &dev_host}};
