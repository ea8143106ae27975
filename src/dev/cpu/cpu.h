/* cpu.h - shared inside dev/cpu: a queue with its scratch, and the table of kernels.
 *
 * An operation (enum cpu_op) has a reference kernel in a base file and may have faster siblings, in files
 * whose suffix names the instruction set (_avx2, _avx512, _avx512bf16).  A sibling registers itself
 * with one CPU_KERNEL line; dev_open takes, per operation and type, the registered kernel of the
 * highest instruction set not above the device's.  So a new kernel is one new file, and a missing one
 * means a slower answer with the same bits. */
#pragma once
#include "base/thread.h"
#include "dev/dev.h"

/* One function type per operation; `fn` is cast back by the caller of cpu_kernel_get. */
typedef void (*cpu_fn)(void);
enum cpu_op {
    /* per weight type */
    CPU_UNPACK,    /* cpu_unpack_fn: quantized types */
    CPU_TO_F32,    /* cpu_to_f32_fn */
    CPU_MM_Q,      /* cpu_mm_fn, x is cpu_xgroup: quantized types */
    CPU_FEW_Q,     /* cpu_mm_fn, as CPU_MM_Q, n <= CPU_FEW: optional */
    CPU_GEMV_F32,  /* cpu_mm_fn, n == 1, quantized types n <= CPU_FEW: optional */
    CPU_GEMV_BF16, /* cpu_mm_fn, n == 1, packed x: optional */
    /* any weight type (registered under CPU_ANY) */
    CPU_MM_F32,     /* cpu_mm_fn: x is f32 */
    CPU_MM_BF16,    /* cpu_mm_fn: x is packed bf16; only instruction sets with their own rounding */
    CPU_QUANTIZE,   /* cpu_quantize_fn */
    CPU_ROUND_BF16, /* cpu_round_fn */
/* cpu_row_fn, in the order of enum dev_norm: CPU_RMSNORM and so on */
#define NORM(which, name, parameters, arguments) CPU_##which,
#include "dev/ops.h"
/* cpu_map_fn, in the order of enum dev_map: CPU_ADD and so on */
#define MAP(which, name, parameters, arguments) CPU_##which,
#include "dev/ops.h"
    CPU_ROPE, /* cpu_rope_fn */
    /* recurrent states: ssm.h has the types */
    CPU_CONV,
    CPU_SCAN,
    CPU_DELTA,
    /* attention and cache rows: attn.h has the types */
    CPU_ATTN_ATOM,
    CPU_KV_ROUND,
    CPU_OPS
};
#define CPU_ANY DT_F32

struct cpu_kernel {
    enum cpu_op op;
    enum dtype type;
    enum dev_isa isa;
    cpu_fn fn;
};
/* Pointers in a linker section, walked by dev_open. */
#define CPU_KERNEL(isa, op, type, fn) CPU_KERNEL_(isa, op, type, fn)
#define CPU_KERNEL_(isa_, op_, type_, fn_)                                                         \
    static const struct cpu_kernel reg_##op_##_##type_##_##fn_ = {op_, type_, isa_, (cpu_fn)fn_};  \
    static const struct cpu_kernel *const regp_##op_##_##type_##_##fn_                             \
        __attribute__((used, section("kvik_cpu"))) = &reg_##op_##_##type_##_##fn_

/* Weights are decoded 64 codes at a time: value = d * (q - zero) (+ m), with d and m per lane of four
 * codes (dev.h, "matmul, fast").  A chunk of which only 32 exist has its first half set only. */
struct cpu_wchunk {
    uint8_t q[64];
    float d[16], m[16]; /* m is set where the format has an offset, else untouched */
};
struct cpu_format {
    bool quantized, has_min;
    int zero;
    uint32_t scaled; /* codes under one scale in a product: 32 or 16 */
};
extern const struct cpu_format cpu_format[DT_COUNT];
/* Activations of 256 columns under one scale: x = d * q.  Of every four codes the second and the third change places, so
 * that one load of two words fits the words of four bytes of weights.  `sum` and `sum32` are sums of 16 and of 32 codes;
 * what lies behind column K is never read.  (dot_q_avx512.c and quads_neon.h
 * have bytes in q: kernels that quantize and multiply belong together.) */
#define CPU_GROUP 256u
struct cpu_xgroup {
    int16_t q[CPU_GROUP];
    int32_t sum[CPU_GROUP / 16], sum32[CPU_GROUP / 32];
    float d;
    float pad[7];
};
/* Largest code: 127 * 256, so that a code can also be taken as two codes of int8. */
#define CPU_X_CODE 32512
static inline uint32_t cpu_x_place(uint32_t i) /* index of column i in q */
{
    return (i & ~3u) | (i & 1u) << 1 | (i & 2u) >> 1;
}
/* Computes the scale d of a group, from the bits of its largest |x|.  Returns the factor of x before rounding; 0:
 * all codes are 0. */
float cpu_group_scale(uint32_t bits, float *d);

/* Unpacks elements [k0, k0 + k) of a row (k0 a multiple of 256) into ceil(k / 64) chunks. */
typedef void (*cpu_unpack_fn)(const unsigned char *row, uint32_t k0, uint32_t k,
                              struct cpu_wchunk *dst);
typedef void (*cpu_to_f32_fn)(const void *src, float *dst, size_t n);
typedef void (*cpu_quantize_fn)(const float *x, uint32_t k, struct cpu_xgroup *out);
/* Rounds to bf16.  out is f32, or packed bf16 where CPU_MM_BF16 exists. */
typedef void (*cpu_round_fn)(const float *x, uint32_t k, void *out);
/* Works on one row; out may be x.  w, b: NULL for none; softmax takes neither, nor eps. */
typedef void (*cpu_row_fn)(const float *x, const float *w, const float *b, float eps, uint32_t dim,
                           float *out);
/* Changes n values in place; the operation defines y, p and q. */
typedef void (*cpu_map_fn)(float *x, const float *y, float p, float q, size_t n);
typedef void (*cpu_rope_fn)(float *x, uint32_t heads, uint32_t dim, uint32_t rot, bool interleaved,
                            const float *cos, const float *sin); /* one token */

/* One job of a matmul: some rows of one weight for some tokens, at most CPU_TILE of them. */
struct cpu_mm {
    const unsigned char *w; /* first row of the job */
    uint32_t before;        /* rows that the weight has before it */
    size_t row_bytes;
    enum dtype dtype;
    uint32_t rows, k, n;
    const unsigned char *x; /* first token, in the form the kernel wants */
    size_t ldx;             /* bytes from token to token */
    float *y;               /* [n][ldy] first row */
    size_t ldy;
    const float *bias; /* first row, or NULL */
    cpu_unpack_fn unpack;
    cpu_to_f32_fn to_f32;
    unsigned char *scratch; /* this thread's CPU_THREAD_BYTES, 64-byte aligned */
    /* For prefetching.  then: the bytes that the thread will read after the job; NULL: not known.  asked: the thread
     * prefetched the first weights of this job during its job before. */
    const unsigned char *then;
    size_t then_bytes;
    bool asked;
};
typedef void (*cpu_mm_fn)(const struct cpu_mm *j);
#define CPU_TILE         64u  /* tokens of a job */
#define CPU_FEW          4u   /* tokens, at most, of a kernel that decodes as it goes */
#define CPU_X_TOKENS     256u /* tokens that are converted at a time */
#define CPU_THREAD_BYTES (48u << 10)
/* The reference product of quantized weights, for shapes that a vector kernel does not take; j->unpack is used. */
void cpu_mm_q_ref(const struct cpu_mm *j);

struct dev_queue {
    struct dev_base base; /* first */
    struct pool *pool;    /* owned */
    void **own;           /* [n_own] what cpu_alloc gave */
    uint32_t n_own;
    enum dev_isa isa;
    struct dev_limits lim;
    unsigned char *scratch; /* owned; everything below lies in it */
    size_t scratch_bytes;
    struct cpu_xgroup *xq; /* [x_tokens][ceil(k/256)] */
    unsigned char *xb;     /* [x_tokens][xb_stride] */
    size_t xq_groups, xb_stride;
    uint32_t x_tokens;
    unsigned char *thread; /* [threads][CPU_THREAD_BYTES] */
    void *attn;            /* attn_bytes, 64-byte aligned: scratch of the files of attention */
    size_t attn_bytes;
    cpu_fn fn[CPU_OPS][DT_COUNT];
};

/* The operations of the CPU's table (open.c). */
#define MEMORY(result, name, parameters, arguments) result cpu_##name parameters;
#define OP(result, name, parameters, arguments)     result cpu_##name parameters;
#include "dev/ops.h"

static inline cpu_fn cpu_kernel_get(const struct dev_queue *d, enum cpu_op op, enum dtype t)
{
    return d->fn[op][t];
}
/* Returns the bytes that the files of attention need at d->attn for these limits. */
size_t cpu_attn_scratch(const struct dev_limits *lim, uint32_t threads);
/* Returns the reference decoder of a type, for callers without a queue (dev_to_f32, tests). */
cpu_unpack_fn cpu_unpack_ref(enum dtype t); /* NULL: not quantized */
