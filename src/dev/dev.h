/* dev.h - floor 2: a backend's operations on activations, weights and cache views.
 *
 * THE CANONICAL ORDER.  Every path (scalar reference, AVX2, AVX-512, NEON) gives the same bits for the same
 * operation, and no result depends on how many tokens share the call, on threads, or on which kernel
 * (decode or prefill) ran.  All fma are explicit; the build has -ffp-contract=off.
 *
 *  sum16   A sum over k of a[k]*b[k] in f32 keeps 16 lanes: lane l takes k = l, l+16, l+32, ... by
 *          acc[l] = fma(a[k], b[k], acc[l]) from +0, ascending.  Reduced by tree16: s[l] += s[l+8]
 *          (l<8), then +4, +2, +1.  A tail shorter than 16 touches only its lanes.
 *  matmul, exact   y[o] = tree16 over K of x[k] * w[o][k], w converted exactly to f32 as the format
 *          defines (GGUF: the `gguf` package's dequantization, products and sums rounded as there).
 *          Then + bias.
 *  matmul, fast, quantized w   x is quantized per token and group of 256 of K (the last may be shorter), groups
 *          counted from the first column: dx = amax/32512, q = round-to-even(x * (32512/amax)).  amax below 2^-100:
 *          dx 0 and all codes 0; an infinity or NaN in the group: codes 0 and dx NaN, so that it shows.
 *          A block is what one scale of w serves, 32 columns or 16 (Q2_K, Q3_K, Q6_K): isum = the exact integer dot of
 *          its signed codes (or of unsigned codes less a constant, same thing) with q, xsum = the integer sum of q.
 *          Within a group, blocks ascending from +0: s = fma(dw, (float)isum, s); formats with an offset then
 *          s = fma(mw, (float)xsum, s); dw, mw: scale and offset of the block (one rounding each).
 *          Groups ascending from +0: y = fma(dx, s, y).  Then + bias.  No sum has lanes here.
 *  matmul, fast, bf16 w   x rounded to bf16 (nearest even), then as exact.  f16 and f32 w: as exact.
 *          The avx512bf16 path (VDPBF16PS) is a path of its own: identical within itself.
 *  attention   score(j) = chain over d ascending, s = fma(q[d], k[j][d], s) from +0, then * scale, then
 *          softcap, or + the bias of the row's distance (never both).  Rows go in atoms: maximal runs inside one span [256k, 256(k+1)), one form (a
 *          lossless codec counts as raw), clipped to reach.  Per atom: m = max; p(j) = exp(s-m); l: lane
 *          j%16 sums ascending, then tree16; acc[d] = chain over j ascending of fma(p(j), v[j][d], acc[d]).
 *          Atoms merge ascending into (M, L, O): M' = max(M, m); a = exp(M-M'), b = exp(m-M');
 *          L = fma(L, a, l*b); O[d] = fma(O[d], a, acc[d]*b); from the first atom as is.  A sink logit is one
 *          more atom at the end: m its value, l = 1, acc = 0.  Output O * (1/L).
 *          Sealed rows whose reader sums (struct kv_reader): score(j) as the reader states; acc by pieces, the atom's
 *          rows of one tile, ascending, each added as the reader states.  A reader may end O, once, behind the last of them.
 *  rmsnorm  ss = sum16 of x*x; x * (1/sqrtf(ss/n + eps)) * w  (w last).
 *  layernorm  mean = sum16 of x * 1 / n; ss = sum16 of (x-mean)*(x-mean);
 *          (x-mean) * (1/sqrtf(ss/n + eps)) * w + b, each rounded.
 *  softmax  m = max; e = exp(x-m); l: lane i%16 sums ascending, then tree16; e * (1/l).
 *  gelu    (tanh form) 0.5 * x * (1 + tanh(u)) with u = sqrt(2/pi) * (x + 0.044715 * x^3), computed as
 *          x / (1 + exp(-2u)).
 *  gelu (erf form) max(x, 0) - u/2 * (P(t) * t * exp(-u/2 * u)) with u = |x|, t = 1 / fma(T, u, 1) (cpu/mathfn.h).
 *  softplus  v = x + bias, rounded; max(v, 0) + log1p(exp(-|v|)), then clamped.  log1p(e) is 2 t, where s = e / (2 + e),
 *          z = s*s and t = fma(s*z, P(z), s) with the polynomial of cpu/mathfn.h.
 *  conv    y[c] = chain over the taps k ascending (the oldest first), y = fma(w[k][c], x[k][c], y) from the bias; taps
 *          before the sequence's first token are left out.  Then silu.
 *  scan    tokens one after another, whatever the step: u = dt*x; a = exp(dt * A); for state n ascending
 *          h[n] = fma(h[n], a, u*B[n]) and p[n%4] = fma(h[n], C[n], p[n%4]) from +0;
 *          y = fma(D, x, (p[0] + p[2]) + (p[1] + p[3])).
 *  delta   tokens one after another, whatever the step, each column of a head's matrix by itself: a = exp(dt * A); for
 *          key i ascending m[i%4] = fma(S[i], k[i], m[i%4]) from +0; u = (v - a * M) * beta with
 *          M = (m[0] + m[2]) + (m[1] + m[3]), each rounded; then S[i] = fma(S[i], a, u*k[i]) and
 *          p[i%4] = fma(S[i], q[i], p[i%4]) from +0; y = scale * ((p[0] + p[2]) + (p[1] + p[3])).
 *  exp, silu, tanh  own polynomials (cpu/mathfn.h), the same operations everywhere; silu is
 *          x / (1 + exp(-x)).  Which NaN a result is, is not part of the order.
 */
#pragma once
#include "base/base.h"
#include "base/dtype.h"
#include "base/thread.h"
#include "dev/view.h"

struct dev_queue;
struct kv_codec;
/* Each instruction set includes the ones above it of the same architecture; a machine has those of one architecture. */
enum dev_isa {
    DEV_REF,
    DEV_NEON,     /* ARM of 64 bits */
    DEV_NEONDOT,  /* dot products of bytes (FEAT_DotProd) */
    DEV_NEONI8MM, /* matrix products of bytes (FEAT_I8MM) */
    DEV_AVX2,
    DEV_AVX512,
    DEV_AVX512BF16, /* the only one that rounds in its own way */
    DEV_ISAS
};
enum dev_compute { DEV_EXACT, DEV_FAST };
struct dev_config {     /* of a queue */
    uint32_t n_threads; /* 0: $KVIK_THREADS, else cpu_count() */
    const char *isa;    /* a name of dev_isa_names; NULL: $KVIK_ISA, else the best here */
};
/* A device: memory, and weights in that memory.  Models hold a device, and caches of a model share it.  A kind of
 * device may add members after these. */
struct dev {
    const struct dev_kind *kind;
};
/* Opens a device of the named kind.  NULL: the kind that $KVIK_DEVICE names, else "cpu".  ERR_UNSUPPORTED names a
 * kind that this build does not have. */
int dev_open(const char *name, struct dev **out);
/* The CPU as a device, whose memory is that of the host, and a queue of it that can only copy.  For code without a
 * model, hence without a device of its own. */
extern struct dev dev_host;
extern struct dev_queue dev_host_queue;
bool dev_isa_supported(enum dev_isa isa);
const char *const *dev_isa_names(void); /* [DEV_ISAS] */

/* The largest sizes of a step.  k: widest matmul input; tile: rows of the largest codec tile. */
struct dev_limits {
    uint32_t tokens, k, n, heads, head_dim, max_len, tile;
};
/* Returns limits that hold for both. */
static inline struct dev_limits dev_limits_both(const struct dev_limits *a,
                                                const struct dev_limits *b)
{
    return (struct dev_limits){
        MAX(a->tokens, b->tokens),
        MAX(a->k, b->k),
        MAX(a->n, b->n),
        MAX(a->heads, b->heads),
        MAX(a->head_dim, b->head_dim),
        MAX(a->max_len, b->max_len),
        MAX(a->tile, b->tile),
    };
}
enum dev_range_as {
    DEV_RANGE_USED,   /* becomes readable and writable; parts in use keep their contents */
    DEV_RANGE_HUGE,   /* all of it is in use: a hint to use huge pages */
    DEV_RANGE_DROPPED /* the contents are not needed: gives the memory back until the next use */
};

struct dev_weight { /* [rows][cols] as it lies in the file; possibly unaligned */
    const void *data;
    uint32_t rows, cols; /* y has `rows` values, x has `cols` */
    enum dtype dtype;
};
bool dev_weight_supported(enum dtype t);
struct dev_mm { /* one of several products of the same x */
    const struct dev_weight *w;
    const float *bias; /* [rows] or NULL */
    float *y;          /* [n][ldy] */
    size_t ldy;
};
/* Converts n elements of any supported weight type to f32; n whole blocks. */
void dev_to_f32(enum dtype t, const void *src, float *dst, size_t n);
/* Quantizes n values, whole blocks, to q8_0, q4_0 or q4_k.  False if a value is not finite, or too large for a scale in f16. */
bool dev_encode(enum dtype t, const float *x, void *out, size_t n);

/* out[t * ldo + i * width + c] = x[t * ldx + i * stride + c] for t < n, i < parts, c < width; out is not x. */
struct dev_cut {
    const float *x;
    size_t ldx; /* values per token */
    uint32_t parts, stride, width;
    float *out;
    size_t ldo;
};
struct dev_expert { /* a gated MLP */
    struct dev_weight gate, up, down;
    const float *bgate, *bup, *bdown; /* NULL: none */
};
struct dev_experts {
    const struct dev_expert *expert; /* [n] */
    uint32_t n, top, hidden, ffn;
    bool clamped;       /* the gate is dev_swiglu_clamped(alpha, limit), else dev_silu_mul */
    float alpha, limit; /* of the clamped gate */
    bool weigh_input;   /* the weight multiplies an expert's input; false: its result */
    const uint32_t *chosen;
    const float *weight; /* the weights that dev_choose wrote */
    /* scratch for a step of at most `room` tokens: [room][hidden], [room][ffn], [room][hidden], [room] */
    uint32_t room;
    float *in, *gate, *up, *y, *by;
    uint32_t *row;
};
/* A bias that is added to a score, chosen by the distance between its row and the query's own row:  w[h][clamp(row -
 * pos, -back, ahead) + back], of w[heads][back + 1 + ahead]. */
struct dev_bias {
    const float *w;
    uint32_t back, ahead;
};
/* How queries are rotated once more before they meet borrowed rows: cosines and sines [rot / 2] for each of
 * kv_view.borrowed. */
struct dev_turn {
    const float *cos, *sin;
    uint32_t rot;
    bool interleaved;
};
struct dev_attn {
    const float *q; /* [token][n_heads][dim], rotated */
    size_t ldq;     /* values per token */
    float *out;     /* [token][n_heads][dim] */
    size_t ldo;
    /* query heads; group of n_heads / kv heads consecutive ones share a kv head */
    uint32_t n_heads;
    float scale;
    float softcap; /* 0: none; s = softcap * tanh(s / softcap) */
    /* The queries rotated for the sink rows, where the view has sinks: [token][n_heads][dim], ldq apart.  They read
     * the sink rows where these do not touch the window (sinks < lo).  NULL: q serves. */
    const float *q_sink;
    const float *sink_logit; /* [n_heads] or NULL: takes part in the softmax and adds no value */
    /* NULL: no bias.  It excludes a softcap, and views with sinks or borrowed rows. */
    const struct dev_bias *bias;
    /* For borrowed rows.  NULL: q serves, because the layer does not rotate. */
    const struct dev_turn *turn;
};
/* Where a lane's probabilities are written: out[h * ldh + i * columns + j] for head h, the lane's i-th token and row
 * j < columns.  It is 0 where the token does not see the row.  `out` is memory of the host; NULL: none are written. */
struct dev_probe {
    float *out;
    size_t ldh;
    uint32_t columns;
};
/* A causal convolution of each channel over its last `taps` inputs, then silu.  The plane holds the last `taps` inputs,
 * [taps][channels], the oldest first; zeros before the sequence's first token. */
struct dev_conv {
    const float *x, *w, *bias; /* [token][channels], [taps][channels], [channels] */
    float *out;                /* [token][channels], not x */
    uint32_t taps, channels;
};
#define DEV_CONV_TAPS 16u /* most taps of the convolution */
/* A selective scan (Mamba): each channel has `n` states, which decay by exp(dt * A) and take up dt * x * B; the output
 * is their sum weighted with C, plus D * x.  Mamba 1: A of every state, one head per channel.  Mamba 2: heads of
 * channels / heads neighbours share dt and A (`one_decay`).  The plane is [n][channels]. */
struct dev_scan {
    const float *x; /* [token], ldx apart: [channels] */
    size_t ldx;
    const float *dt;    /* [token][heads], after softplus */
    const float *b, *c; /* [token], ldb apart: [groups][n] */
    size_t ldb;
    const float *a; /* [n][channels], or with one_decay [channels]; negative */
    bool one_decay;
    const float *d; /* [channels] */
    float *out;     /* [token][channels], not x */
    uint32_t channels, heads, groups, n;
};
#define DEV_SCAN_STATES 256u /* most states of a channel */
/* A gated delta rule: each head has a matrix, keys by values, that remembers.  A token lets it decay by exp(dt * A), reads the
 * value under its key k, replaces the share beta of it by its own value v, and reads the value under q.  The plane is
 * [heads][keys][values]. */
struct dev_delta {
    const float *q,
        *k; /* [token], ldq apart: [key_heads][keys]; heads / key_heads neighbours share one */
    size_t ldq;
    const float *v; /* [token], ldv apart: [heads][values] */
    size_t ldv;
    const float *dt, *beta; /* [token][heads]; dt after softplus */
    const float *a;         /* [heads] negative */
    float scale;            /* factor of the value that is read under q */
    float *out;             /* [token][heads][values], not v */
    uint32_t heads, key_heads, keys, values;
};
#define DEV_DELTA_KEYS 256u /* most keys of a head */

enum dev_map {
#define MAP(which, name, parameters, arguments) DEV_##which,
#include "dev/ops.h"
    DEV_MAPS
};
enum dev_norm {
#define NORM(which, name, parameters, arguments) DEV_##which,
#include "dev/ops.h"
    DEV_NORMS
};
/* A kind of device.  Each kind registers itself with one line. */
struct dev_kind {
    const char *name;
    bool is_host; /* memory of the device is memory of the host: files can be read into it */
    int (*open)(struct dev **out);
#define MEMORY(result, name, parameters, arguments) result(*name) parameters;
#define OP(result, name, parameters, arguments)     result(*name) parameters;
#include "dev/ops.h"
};
#define DEV_KIND(ident, ptr)                                                                       \
    const struct dev_kind *const kvik_dev_##ident                                                  \
        __attribute__((section("kvik_dev"), used, visibility("hidden"))) = ptr
/* A queue: operations in order, with the scratch they need.  Each cache has a queue of its own.  The struct
 * dev_queue of every kind begins with these members. */
struct dev_base {
    const struct dev_kind *kind;
    struct dev *dev;
};
static inline const struct dev_base *dev_base(const struct dev_queue *d)
{
    return (const struct dev_base *)(const void *)d;
}
/* The list as functions: dev_matmul calls `matmul` in the table of the queue's kind, and so on. */
#define MEMORY(result, name, parameters, arguments)                                                \
    static inline result dev_##name parameters                                                     \
    {                                                                                              \
        return d->kind->name arguments;                                                            \
    }
#define OP(result, name, parameters, arguments)                                                    \
    static inline result dev_##name parameters                                                     \
    {                                                                                              \
        return dev_base(d)->kind->name arguments;                                                  \
    }
#define MAP(which, name, parameters, arguments)                                                    \
    static inline void dev_##name parameters                                                       \
    {                                                                                              \
        dev_map arguments;                                                                         \
    }
#define NORM(which, name, parameters, arguments)                                                   \
    static inline void dev_##name parameters                                                       \
    {                                                                                              \
        dev_norm arguments;                                                                        \
    }
#include "dev/ops.h"
/* x *= w[dim] */
static inline void dev_mul_row(struct dev_queue *d, float *x, const float *w, uint32_t n,
                               uint32_t dim)
{
    dev_map(d, DEV_MUL, x, w, true, 0, 0, n, dim);
}
/* Computes a->y, the MLP of expert e for the n rows of a->in.  Kinds of device use it in their operation `experts`. */
void dev_expert_mlp(struct dev_queue *d, enum dev_compute mode, const struct dev_experts *a,
                    const struct dev_expert *e, uint32_t n);
