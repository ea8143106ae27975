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
 *          Sealed rows of a codec with kernels of its own (struct kv_kernels): score(j) as the codec states; acc by
 *          pieces, the atom's rows of one tile, ascending, each added as the codec states.
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

struct dev;
/* Of an architecture each includes those above it; a machine has those of one architecture. */
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
struct dev_config {
    uint32_t n_threads; /* 0: $KVIK_THREADS, else cpu_count() */
    const char *isa;    /* a name of dev_isa_names; NULL: $KVIK_ISA, else the best here */
};
int dev_open(const struct dev_config *c,
             struct dev **out); /* ERR_UNSUPPORTED names a missing ISA, or device (ops.h) */
void dev_close(struct dev *d);
const char *dev_isa_name(const struct dev *d);
uint32_t dev_threads(const struct dev *d);
/* Work of the host between operations: pool_run on the threads that the host has for the device.  Tasks may allocate; they
 * call no operation and nothing of the caller's. */
void dev_each(struct dev *d, uint32_t n, pool_fn fn, void *ctx);
bool dev_isa_supported(enum dev_isa isa);
const char *const *dev_isa_names(void); /* [DEV_ISAS] */

/* Scratch for the largest step, reserved once: after it no operation allocates.  May be called again
 * with larger values between steps.  k: widest matmul input; tile: largest codec tile (rows). */
struct dev_limits {
    uint32_t tokens, k, n, heads, head_dim, max_len, tile;
};
int dev_reserve(struct dev *d, const struct dev_limits *lim);

/* Memory.  Floats, ids and weights that operations read or write lie in memory of the device: where these functions say.  The
 * host reaches it by dev_put and dev_get alone.  On the CPU it is memory of the host, and an array is its own mirror; so
 * nothing is copied there. */
/* Returns n zeroed bytes that live as long as the device, aligned to 64; NULL with an error set. */
void *dev_alloc(struct dev *d, size_t n);
/* Returns where operations see n bytes of the host that never change: weights.  Valid while both live; NULL as above. */
void *dev_weights(struct dev *d, const void *host, size_t n);
/* Returns where operations see an array of the host: as it was at the last dev_put of it.  Valid while both live.  Who frees
 * the array before the device closes the mirror first; NULL has nothing to close. */
void *dev_mirror(struct dev *d, const void *host, size_t n);
void dev_mirror_close(struct dev *d, void *at, size_t n);
/* The same for an array that is there for a moment: valid until the next dev_lend.  Operations may write to it, and
 * dev_get then brings it to the host. */
void *dev_lend(struct dev *d, const void *host, size_t n);
/* True if memory of the device is memory of the host: files can be read into it. */
bool dev_is_host(const struct dev *d);
/* Copy to the device and to the host.  When a copy returns, the host may write its array again, or read what came. */
void dev_put(struct dev *d, void *at, const void *host, size_t n);
void dev_get(struct dev *d, void *host, const void *at, size_t n);

/* Pages of the cache lie in ranges of addresses, which get memory as it is used.  d NULL: memory of the host. */
void *dev_range(struct dev *d, size_t n); /* NULL: the system refuses */
void dev_range_close(struct dev *d, void *at, size_t n);
enum dev_range_as {
    DEV_RANGE_USED,   /* readable and writable from now on; zeros at first */
    DEV_RANGE_HUGE,   /* all of it is in use: a hint to take larger pages of the system */
    DEV_RANGE_DROPPED /* nobody needs the contents: the memory goes back until the next write */
};
/* Returns -1 if the system has no memory for what is to be used. */
int dev_range_set(struct dev *d, void *at, size_t n, enum dev_range_as as);
/* Returns where the host can read n bytes: `at` itself, or `room`, which then has a copy. */
const void *dev_look(struct dev *d, const void *at, size_t n, void *room);
/* Copies n bytes at each of `parts` places that are `stride` bytes apart. */
void dev_move(struct dev *d, void *to, const void *from, size_t n, size_t parts, size_t stride);

struct dev_weight { /* [rows][cols] as it lies in the file; possibly unaligned */
    const void *data;
    uint32_t rows, cols; /* y has `rows` values, x has `cols` */
    enum dtype dtype;
};
bool dev_weight_supported(enum dtype t);
/* Several products of the same x in one fork-join: y[t][o] = x[t] . w[o] (+ bias[o]). */
struct dev_mm {
    const struct dev_weight *w;
    const float *bias; /* [rows] or NULL */
    float *y;          /* [n][ldy] */
    size_t ldy;
};
void dev_matmul(struct dev *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n,
                const struct dev_mm *mm, uint32_t n_mm);
/* out[t] = row id[t] of w, as f32 (exact conversion).  Ids are checked by the caller. */
void dev_embed(struct dev *d, const struct dev_weight *w, const int32_t *id, uint32_t n,
               float *out);
/* Converts n elements of any supported weight type to f32; n whole blocks. */
void dev_to_f32(enum dtype t, const void *src, float *dst, size_t n);
/* Quantizes n values, whole blocks, to q8_0, q4_0 or q4_k.  False if a value is not finite, or too large for a scale in f16. */
bool dev_encode(enum dtype t, const float *x, void *out, size_t n);

/* Elementwise; n tokens, rows of `dim`, dense. */
void dev_rmsnorm(struct dev *d, const float *x, const float *w, float eps, uint32_t n, uint32_t dim,
                 float *out); /* out may be x; w NULL: ones.  Heads: n * heads rows of head_dim */
void dev_layernorm(struct dev *d, const float *x, const float *w, const float *b, float eps,
                   uint32_t n, uint32_t dim, float *out); /* out may be x; w, b may be NULL */
void dev_add(struct dev *d, float *x, const float *y, uint32_t n, uint32_t dim); /* x += y */
void dev_silu_mul(struct dev *d, float *gate, const float *up, uint32_t n, uint32_t dim);
void dev_gelu_mul(struct dev *d, float *gate, const float *up, uint32_t n, uint32_t dim);
void dev_gelu_erf_mul(struct dev *d, float *gate, const float *up, uint32_t n, uint32_t dim);
void dev_gelu(struct dev *d, float *x, uint32_t n, uint32_t dim);
void dev_gelu_erf(struct dev *d, float *x, uint32_t n, uint32_t dim);
void dev_relu(struct dev *d, float *x, uint32_t n, uint32_t dim);                /* max(x, 0) */
void dev_mul(struct dev *d, float *x, const float *y, uint32_t n, uint32_t dim); /* x *= y */
void dev_mul_row(struct dev *d, float *x, const float *w, uint32_t n,
                 uint32_t dim); /* x *= w[dim] */
/* x = min(max(softplus(x + bias[dim]), lo), hi) */
void dev_softplus(struct dev *d, float *x, const float *bias, float lo, float hi, uint32_t n,
                  uint32_t dim);
/* gpt_oss: gate = (clamp(up, -limit, limit) + 1) * g / (1 + exp(-alpha * g)), g = min(gate, limit). */
void dev_swiglu_clamped(struct dev *d, float *gate, const float *up, float alpha, float limit,
                        uint32_t n, uint32_t dim);
void dev_scale(struct dev *d, float *x, float by, uint32_t n, uint32_t dim); /* x *= by */
void dev_scale_rows(struct dev *d, float *x, const float *by, uint32_t n, uint32_t dim); /* by[n] */
void dev_softcap(struct dev *d, float *x, float cap, uint32_t n,
                 uint32_t dim);                                      /* cap*tanh(x/cap) */
void dev_softmax(struct dev *d, float *x, uint32_t n, uint32_t dim); /* rows, in place */
void dev_sigmoid(struct dev *d, float *x, uint32_t n, uint32_t dim); /* 1 / (1 + exp(-x)) */
/* Rotates the first `rot` of each head's `dim` values in place: pairs (i, i + rot/2), or (2i, 2i+1) if
 * interleaved.  cos, sin: [n][rot/2], attention factor included.
 * out = (a*cos - b*sin, b*cos + a*sin), as fma(a, cos, -(b*sin)), fma(b, cos, a*sin). */
void dev_rope(struct dev *d, float *x, size_t ldx, uint32_t n, uint32_t heads, uint32_t dim,
              uint32_t rot, bool interleaved, const float *cos, const float *sin);

/* Rows and columns from place to place, bits unchanged. */
/* out[t * ldo + i * width + c] = x[t * ldx + i * stride + c] for t < n, i < parts, c < width; out is not x. */
struct dev_cut {
    const float *x;
    size_t ldx; /* values per token */
    uint32_t parts, stride, width;
    float *out;
    size_t ldo;
};
void dev_cut(struct dev *d, const struct dev_cut *a, uint32_t n);
/* out[i] = row id[i] of x, rows of `dim`; out may be x where id ascends. */
void dev_rows(struct dev *d, const float *x, const uint32_t *id, uint32_t n, uint32_t dim,
              float *out);
/* What a convolution over the n_x rows of x, [n_x][channels], multiplies: out[r][c][j] = x[step * r + j - taps / 2][c] for
 * r < n, j < taps; 0 where x has no such row. */
void dev_unfold(struct dev *d, const float *x, uint32_t n_x, uint32_t channels, uint32_t taps,
                uint32_t step, uint32_t n, float *out);

/* A mixture of experts.  dev_choose takes of each token the `top` largest of its n_experts scores, the largest first and
 * of equal ones the lowest index first; a NaN is preferred to nothing before it, and nothing to it.  chosen, weight: [n][top]; `share`: a token's weights are
 * then divided by their sum, which is taken in that order. */
void dev_choose(struct dev *d, const float *score, uint32_t n, uint32_t n_experts, uint32_t top,
                bool share, uint32_t *chosen, float *weight);
struct dev_expert { /* a gated MLP */
    struct dev_weight gate, up, down;
    const float *bgate, *bup, *bdown; /* NULL: none */
};
struct dev_experts {
    const struct dev_expert *expert; /* [n] */
    uint32_t n, top, hidden, ffn;
    bool clamped;       /* the gate is dev_swiglu_clamped(alpha, limit), else dev_silu_mul */
    float alpha, limit; /* of the clamped gate */
    bool weigh_input;   /* the weight multiplies an expert's input, else its result */
    const uint32_t *chosen;
    const float *weight; /* of dev_choose */
    /* room for a step: [tokens][hidden], [tokens][ffn], [tokens][hidden], [tokens] */
    float *in, *gate, *up, *y, *by;
    uint32_t *row;
};
/* out = the sum of the results of each token's experts, in ascending order of the experts, each rounded first.  The weights
 * of an expert that no token chose are not read.  out is not x. */
void dev_experts(struct dev *d, enum dev_compute mode, const struct dev_experts *a, const float *x,
                 uint32_t n, float *out);

/* Cache operations on a view; k, v: [token][heads][dim] f32, rounded to the plane's dtype (nearest
 * even; f16 saturates to the largest finite value). */
void dev_kv_write(struct dev *d, const struct kv_view *v, uint32_t plane, const float *x,
                  size_t ldx);
void dev_kv_seal(struct dev *d, const struct kv_view *v); /* encodes v->enc, after the writes */
/* A score's bias by the distance of its row from the query's own: w[h][clamp(row - pos, -back, ahead) + back], of
 * w[heads][back + 1 + ahead]. */
struct dev_bias {
    const float *w;
    uint32_t back, ahead;
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
    /* Where the view has sinks: [token][n_heads][dim], ldq apart too, the queries rotated for the sink rows,
     * which are read with these when they do not touch the window (sinks < lo).  NULL: q serves. */
    const float *q_sink;
    const float *sink_logit; /* [n_heads] or NULL: takes part in the softmax and adds no value */
    const struct dev_bias *bias; /* NULL: none; not with a softcap, nor where the view has sinks */
};
/* Planes 0 (K) and 1 (V) of a view piece.  Running (M, L, O) is kept in the device's scratch between
 * the first and the last piece; `out` is written with the last. */
void dev_attention(struct dev *d, const struct kv_view *v, const struct dev_attn *a);
/* Where the probabilities of a lane's tokens go: out[h * ldh + i * columns + j] of head h, the lane's i-th token and
 * row j < columns; 0 where the token does not see the row.  `out` is memory of the host; NULL: nowhere. */
struct dev_probe {
    float *out;
    size_t ldh;
    uint32_t columns;
};
/* The softmax of attention's scores, from the same pieces; `lane` has an entry per lane.  Written to be read, not to
 * be fast; attention itself keeps no probabilities. */
void dev_attention_probe(struct dev *d, const struct kv_view *v, const struct dev_attn *a,
                         const struct dev_probe *lane);

/* Recurrent states, on a view of a state group.  The lane's state is read from its page `from` (0: zeros), and written
 * to the page `dst` of every token that has one. */
/* A causal convolution of each channel over its last `taps` inputs, then silu.  The plane holds the last `taps` inputs,
 * [taps][channels], the oldest first; zeros before the sequence's first token. */
struct dev_conv {
    const float *x, *w, *bias; /* [token][channels], [taps][channels], [channels] */
    float *out;                /* [token][channels], not x */
    uint32_t taps, channels;
};
#define DEV_CONV_TAPS 16u /* most taps of the convolution */
void dev_conv(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_conv *a);
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
void dev_scan(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_scan *a);
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
    float scale;            /* of what is read under q */
    float *out;             /* [token][heads][values], not v */
    uint32_t heads, key_heads, keys, values;
};
#define DEV_DELTA_KEYS 256u /* most keys of a head */
void dev_delta(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_delta *a);
