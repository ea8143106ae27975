/* ops.h - the list of operations.
 *
 * A line is an operation of a queue: OP(result, name, parameters, arguments).  Whoever includes the list says what becomes of a
 * line: a member of the table of a kind of device, a function dev_NAME that calls it, the declaration of a kernel.  So a new
 * operation is a line here, and a function in each kind of device.  Which order an operation sums in is said in dev.h.
 *
 * MEMORY lines are the same for what a device does, whatever the queue.  MAP and NORM name cases of the operations `map` and
 * `norm`, which have one kernel each: a line is a value of their enum, a function of dev.h, and the name under which the CPU
 * looks for a kernel.  d: the queue, or the device; x, out, ...: memory of the device. */
#ifndef MEMORY
#define MEMORY(result, name, parameters, arguments)
#endif
#ifndef OP
#define OP(result, name, parameters, arguments)
#endif
#ifndef MAP
#define MAP(which, name, parameters, arguments)
#endif
#ifndef NORM
#define NORM(which, name, parameters, arguments)
#endif
/* A line of the list is not C, so clang-format must not touch it. */
/* clang-format off */

/* --- a device.  Queues and stores of several threads use one device at the same time. */
MEMORY(void, close, (struct dev *d), (d)) /* all queues are closed */
/* Opens a queue of the device.  ERR_UNSUPPORTED names a missing ISA. */
MEMORY(int, queue_open, (struct dev *d, const struct dev_config *c, struct dev_queue **out), (d, c, out))
/* True if attention of this device reads tiles of the codec. */
MEMORY(bool, reads, (const struct dev *d, const struct kv_codec *c), (d, c))
/* Returns the device's copy of n bytes of the host that never change; it lives as long as the device.  Where memory
 * of the device is memory of the host, it is the bytes themselves.  NULL with an error set. */
MEMORY(void *, weights, (struct dev *d, const void *host, size_t n), (d, host, n))
/* Returns the size of a page of the device.  Pages of the cache lie in ranges of addresses, which get memory and
 * give it back in whole pages of the device. */
MEMORY(size_t, page, (const struct dev *d), (d))
MEMORY(void *, range, (struct dev *d, size_t n), (d, n)) /* NULL: the system refuses */
MEMORY(void, range_close, (struct dev *d, void *at, size_t n), (d, at, n))
/* Changes the use of whole pages (a hint may have parts of pages).  Returns -1 if there is no memory for
 * DEV_RANGE_USED. */
MEMORY(int, range_set, (struct dev *d, void *at, size_t n, enum dev_range_as as), (d, at, n, as))

/* --- a queue: operations run in the order of their calls, and are over when dev_finish returns.  One thread uses it. */
OP(void, queue_close, (struct dev_queue *d), (d))
/* Waits for all operations.  Returns the first error of the operations since the last call, or 0.  An operation
 * returns no error itself; what a failed one should have written is undefined. */
OP(int, finish, (struct dev_queue *d), (d))
OP(const char *, isa_name, (const struct dev_queue *d), (d))
OP(uint32_t, threads, (const struct dev_queue *d), (d))
/* Runs work of the host between operations: pool_run on the queue's host threads.  Tasks may allocate.  They must
 * not call operations or anything of the caller. */
OP(void, each, (struct dev_queue *d, uint32_t n, pool_fn fn, void *ctx), (d, n, fn, ctx))
/* Scratch for the largest step, reserved once: after it no operation allocates.  May be called again with larger values
 * between steps. */
OP(int, reserve, (struct dev_queue *d, const struct dev_limits *lim), (d, lim))

/* --- memory of a queue.  Floats, ids and weights that operations read or write lie in memory of the device: where these
 * functions and dev_weights say.  The host reaches it by dev_put and dev_get alone.  On the CPU it is memory of the host, and
 * an array is its own mirror; so nothing is copied there. */
/* Returns n zeroed bytes that live as long as the queue, aligned to 64; NULL with an error set. */
OP(void *, alloc, (struct dev_queue *d, size_t n), (d, n))
/* Returns where operations see an array of the host, with the contents of its last dev_put.  Valid while both live.
 * If the array is freed before the queue closes, the mirror must be closed first; NULL has nothing to close. */
OP(void *, mirror, (struct dev_queue *d, const void *host, size_t n), (d, host, n))
OP(void, mirror_close, (struct dev_queue *d, void *at, size_t n), (d, at, n))
/* As mirror, for an array that exists for a short time: valid until the next dev_lend.  Operations may write to it;
 * dev_get then copies it to the host. */
OP(void *, lend, (struct dev_queue *d, const void *host, size_t n), (d, host, n))
/* put copies to the device, get to the host.  When a copy returns, the host may overwrite its array, or read what
 * was copied. */
OP(void, put, (struct dev_queue *d, void *at, const void *host, size_t n), (d, at, host, n))
OP(void, get, (struct dev_queue *d, void *host, const void *at, size_t n), (d, host, at, n))
/* Copies that run beside later operations.  A copy begins after the operations before it, and has ended when
 * dev_copied of its number returns.  Until then nobody may write to its source or read its destination.  dev_copied
 * returns an error of the copy. */
OP(uint32_t, put_begin, (struct dev_queue *d, void *at, const void *host, size_t n), (d, at, host, n))
OP(uint32_t, get_begin, (struct dev_queue *d, void *host, const void *at, size_t n), (d, host, at, n))
OP(int, copied, (struct dev_queue *d, uint32_t copy), (d, copy))
/* Returns where the host can read n bytes: `at` itself, or `room`, which then has a copy. */
OP(const void *, look, (struct dev_queue *d, const void *at, size_t n, void *room), (d, at, n, room))
/* Copies n bytes at each of `parts` places that are `stride` bytes apart. */
OP(void, move, (struct dev_queue *d, void *to, const void *from, size_t n, size_t parts, size_t stride),
   (d, to, from, n, parts, stride))

/* --- products */
/* Several products of the same x in one fork-join: y[t][o] = x[t] . w[o] (+ bias[o]). */
OP(void, matmul,
   (struct dev_queue *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n, const struct dev_mm *mm, uint32_t n_mm),
   (d, mode, x, ldx, n, mm, n_mm))
/* out[t] = row id[t] of w, as f32 (exact conversion).  Ids are checked by the caller. */
OP(void, embed, (struct dev_queue *d, const struct dev_weight *w, const int32_t *id, uint32_t n, float *out),
   (d, w, id, n, out))

/* --- elementwise; n tokens, rows of `dim`, dense */
/* Rows.  out may be x.  w NULL: ones; b NULL: zeros.  Heads: n * heads rows of head_dim. */
OP(void, norm,
   (struct dev_queue *d, enum dev_norm kind, const float *x, const float *w, const float *b, float eps, uint32_t n,
    uint32_t dim, float *out),
   (d, kind, x, w, b, eps, n, dim, out))
NORM(RMSNORM, rmsnorm,
     (struct dev_queue *d, const float *x, const float *w, float eps, uint32_t n, uint32_t dim, float *out),
     (d, DEV_RMSNORM, x, w, NULL, eps, n, dim, out))
NORM(LAYERNORM, layernorm,
     (struct dev_queue *d, const float *x, const float *w, const float *b, float eps, uint32_t n, uint32_t dim, float *out),
     (d, DEV_LAYERNORM, x, w, b, eps, n, dim, out))
NORM(SOFTMAX, softmax, (struct dev_queue *d, float *x, uint32_t n, uint32_t dim), (d, DEV_SOFTMAX, x, NULL, NULL, 0, n, dim, x))
/* Values: x = op(x, y), with the numbers p and q.  shared: y is one row for all tokens. */
OP(void, map,
   (struct dev_queue *d, enum dev_map kind, float *x, const float *y, bool shared, float p, float q, uint32_t n, uint32_t dim),
   (d, kind, x, y, shared, p, q, n, dim))
MAP(ADD, add, (struct dev_queue *d, float *x, const float *y, uint32_t n, uint32_t dim), /* x += y */
    (d, DEV_ADD, x, y, false, 0, 0, n, dim))
MAP(SCALE, scale, (struct dev_queue *d, float *x, float by, uint32_t n, uint32_t dim), /* x *= by */
    (d, DEV_SCALE, x, NULL, false, by, 0, n, dim))
MAP(SILU_MUL, silu_mul, (struct dev_queue *d, float *gate, const float *up, uint32_t n, uint32_t dim), /* silu(gate) * up */
    (d, DEV_SILU_MUL, gate, up, false, 0, 0, n, dim))
MAP(GELU_MUL, gelu_mul, (struct dev_queue *d, float *gate, const float *up, uint32_t n, uint32_t dim),
    (d, DEV_GELU_MUL, gate, up, false, 0, 0, n, dim))
MAP(GELU_ERF_MUL, gelu_erf_mul, (struct dev_queue *d, float *gate, const float *up, uint32_t n, uint32_t dim),
    (d, DEV_GELU_ERF_MUL, gate, up, false, 0, 0, n, dim))
MAP(GELU, gelu, (struct dev_queue *d, float *x, uint32_t n, uint32_t dim), (d, DEV_GELU, x, NULL, false, 0, 0, n, dim))
MAP(GELU_ERF, gelu_erf, (struct dev_queue *d, float *x, uint32_t n, uint32_t dim),
    (d, DEV_GELU_ERF, x, NULL, false, 0, 0, n, dim))
MAP(RELU, relu, (struct dev_queue *d, float *x, uint32_t n, uint32_t dim), /* max(x, 0) */
    (d, DEV_RELU, x, NULL, false, 0, 0, n, dim))
/* gpt_oss: gate = (clamp(up, -limit, limit) + 1) * g / (1 + exp(-alpha * g)), g = min(gate, limit) */
MAP(SWIGLU, swiglu_clamped,
    (struct dev_queue *d, float *gate, const float *up, float alpha, float limit, uint32_t n, uint32_t dim),
    (d, DEV_SWIGLU, gate, up, false, alpha, limit, n, dim))
MAP(SOFTCAP, softcap, (struct dev_queue *d, float *x, float cap, uint32_t n, uint32_t dim), /* cap * tanh(x / cap) */
    (d, DEV_SOFTCAP, x, NULL, false, cap, 0, n, dim))
MAP(SIGMOID, sigmoid, (struct dev_queue *d, float *x, uint32_t n, uint32_t dim), /* 1 / (1 + exp(-x)) */
    (d, DEV_SIGMOID, x, NULL, false, 0, 0, n, dim))
MAP(MUL, mul, (struct dev_queue *d, float *x, const float *y, uint32_t n, uint32_t dim), /* x *= y */
    (d, DEV_MUL, x, y, false, 0, 0, n, dim))
/* x = min(max(softplus(x + bias[dim]), lo), hi) */
MAP(SOFTPLUS, softplus, (struct dev_queue *d, float *x, const float *bias, float lo, float hi, uint32_t n, uint32_t dim),
    (d, DEV_SOFTPLUS, x, bias, true, lo, hi, n, dim))
OP(void, scale_rows, (struct dev_queue *d, float *x, const float *by, uint32_t n, uint32_t dim), (d, x, by, n, dim)) /* by[n] */
/* Rotates the first `rot` of each head's `dim` values in place: pairs (i, i + rot/2), or (2i, 2i+1) if interleaved.  cos,
 * sin: [n][rot/2], attention factor included.  out = (a*cos - b*sin, b*cos + a*sin), as fma(a, cos, -(b*sin)), fma(b, cos,
 * a*sin). */
OP(void, rope,
   (struct dev_queue *d, float *x, size_t ldx, uint32_t n, uint32_t heads, uint32_t dim, uint32_t rot, bool interleaved,
    const float *cos, const float *sin),
   (d, x, ldx, n, heads, dim, rot, interleaved, cos, sin))

/* --- rows and columns from place to place, bits unchanged */
OP(void, cut, (struct dev_queue *d, const struct dev_cut *a, uint32_t n), (d, a, n))
/* out[i] = row id[i] of x, rows of `dim`; out may be x where id ascends. */
OP(void, rows, (struct dev_queue *d, const float *x, const uint32_t *id, uint32_t n, uint32_t dim, float *out),
   (d, x, id, n, dim, out))
/* What a convolution over the n_x rows of x, [n_x][channels], multiplies: out[r][c][j] = x[step * r + j - taps / 2][c] for
 * r < n, j < taps; 0 where x has no such row. */
OP(void, unfold,
   (struct dev_queue *d, const float *x, uint32_t n_x, uint32_t channels, uint32_t taps, uint32_t step, uint32_t n, float *out),
   (d, x, n_x, channels, taps, step, n, out))

/* --- a mixture of experts */
/* Chooses for each token the `top` largest of its n_experts scores, in descending order; of equal scores the one
 * with the lowest index first.  A NaN replaces no score before it, and no later score replaces a NaN.  chosen,
 * weight: [n][top].  share:  divides a token's weights by their sum, taken in that order. */
OP(void, choose,
   (struct dev_queue *d, const float *score, uint32_t n, uint32_t n_experts, uint32_t top, bool share, uint32_t *chosen,
    float *weight),
   (d, score, n, n_experts, top, share, chosen, weight))
/* out = the sum of the results of each token's experts, in ascending order of the experts, each rounded first.  The weights
 * of an expert that no token chose are not read.  out is not x. */
OP(void, experts,
   (struct dev_queue *d, enum dev_compute mode, const struct dev_experts *a, const float *x, uint32_t n, float *out),
   (d, mode, a, x, n, out))

/* --- the cache, on a view */
/* k, v: [token][heads][dim] f32, rounded to the plane's dtype (nearest even; f16 saturates to the largest finite value). */
OP(void, kv_write, (struct dev_queue *d, const struct kv_view *v, uint32_t plane, const float *x, size_t ldx),
   (d, v, plane, x, ldx))
OP(void, kv_seal, (struct dev_queue *d, const struct kv_view *v), (d, v)) /* encodes v->enc, after the writes */
/* Planes 0 (K) and 1 (V) of a view piece.  Running (M, L, O) is kept in the queue's scratch between the first and the last
 * piece; `out` is written with the last. */
OP(void, attention, (struct dev_queue *d, const struct kv_view *v, const struct dev_attn *a), (d, v, a))
/* Writes the softmax of attention's scores, from the same pieces; `lane` has an entry per lane.  It is made to be
 * read, not to be fast; attention itself keeps no probabilities. */
OP(void, attention_probe,
   (struct dev_queue *d, const struct kv_view *v, const struct dev_attn *a, const struct dev_probe *lane), (d, v, a, lane))
/* Recurrent states, on a view of a state group.  The lane's state is read from its page `from` (0: zeros), and written to the
 * page `dst` of every token that has one. */
OP(void, conv, (struct dev_queue *d, const struct kv_view *v, uint32_t plane, const struct dev_conv *a), (d, v, plane, a))
OP(void, scan, (struct dev_queue *d, const struct kv_view *v, uint32_t plane, const struct dev_scan *a), (d, v, plane, a))
OP(void, delta, (struct dev_queue *d, const struct kv_view *v, uint32_t plane, const struct dev_delta *a), (d, v, plane, a))

/* clang-format on */
#undef MEMORY
#undef OP
#undef MAP
#undef NORM
