/* device.c - a kind of device for tests, "hidden" (KVIK_DEVICE=hidden): the kernels of the CPU on memory that the host cannot
 * touch.
 *
 * Its memory is readable and writable while an operation runs, and else for nobody.  So whoever reads or writes an activation
 * or a weight between operations gets SIGSEGV, as with a GPU.  And each array that an operation is given must lie in one
 * piece of that memory, which is not closed.  Who hands over an array of the host is told, and the process ends.  Memory holds
 * NaN until something is put there, so an array that is read before its dev_put shows in the results.
 *
 * Kernels read the arrays of a view from memory of the device, too.  Devices are used by one thread at a time. */
#include "dev/dev.h"
#include "hidden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_THREAD__ /* the thread sanitizer has no larger ranges of addresses */
#define ARENA ((size_t)1 << 38)
#else
#define ARENA ((size_t)1 << 45) /* of addresses, for all devices */
#endif

struct dev {
    const struct dev_ops *op;
    struct dev *cpu; /* owned */
    void *lent;      /* [n_lent] the array of the last dev_lend */
    size_t n_lent;
};

/* What was given out, ascending, side by side.  All of it goes back with the last device. */
struct piece {
    size_t from, n;
    bool closed;
};
static struct piece *piece; /* [n_pieces] */
static size_t n_pieces;
static unsigned char *arena;
static size_t used,
    closed; /* bytes that were given out, and those of them that callers have closed */
static uint32_t n_devices, depth;

static void protect(int how)
{
    if (used && mprotect(arena, used, how) != 0) {
        perror("hidden device: mprotect");
        abort();
    }
}

static void enter(void)
{
    if (depth++ == 0) protect(PROT_READ | PROT_WRITE);
}

static void leave(void)
{
    if (--depth == 0) protect(PROT_NONE);
}

/* Returns the piece that an address lies in, or NULL. */
static struct piece *piece_of(const void *at)
{
    size_t from = (size_t)((const unsigned char *)at - arena), lo = 0, hi = n_pieces;
    if (from >= used) return NULL;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        *(piece[mid].from <= from ? &lo : &hi) = mid;
    }
    return from - piece[lo].from < piece[lo].n ? &piece[lo] : NULL;
}

/* Ends the process unless these bytes lie in one piece of memory of the device. */
static void in(const char *what, const void *at, size_t n)
{
    const struct piece *p = n ? piece_of(at) : NULL;
    if (n == 0) return;
    size_t first = p ? (size_t)((const unsigned char *)at - arena) - p->from : 0;
    if (p && !p->closed && n <= p->n - first) return;
    fprintf(stderr, "hidden device: %s, %zu bytes, %s\n", what, n,
            !p          ? "is memory of the host"
            : p->closed ? "was closed"
                        : "ends behind its memory");
    abort();
}

/* Ends the process if some of these bytes are memory of the device. */
static void outside(const char *what, const void *at, size_t n)
{
    const unsigned char *p = at;
    if (n == 0 || !arena || p >= arena + ARENA || p + n <= arena) return;
    fprintf(stderr, "hidden device: %s is memory of the device\n", what);
    abort();
}

static void floats(const char *what, const float *at, size_t n)
{
    in(what, at, n * sizeof *at);
}

/* The same for what need not be there. */
static void perhaps(const char *what, const float *at, size_t n)
{
    if (at) floats(what, at, n);
}

static void weight(const struct dev_weight *w)
{
    size_t n = 0;
    (void)dtype_bytes(w->dtype, (uint64_t)w->rows * w->cols, &n);
    in("a weight", w->data, n);
}

/* Returns one more than the largest of n ids that lie there. */
static size_t ids_end(const char *what, const void *at, uint32_t n)
{
    const uint32_t *id = at;
    size_t end = 0;
    in(what, id, n * sizeof *id);
    enter();
    for (uint32_t i = 0; i < n; i++)
        end = MAX(end, (size_t)id[i] + 1);
    leave();
    return end;
}

/* Runs an operation of the CPU while memory is open. */
#define RUN(operation)                                                                             \
    do {                                                                                           \
        struct dev *cpu = d->cpu;                                                                  \
        enter();                                                                                   \
        operation;                                                                                 \
        leave();                                                                                   \
    } while (0)

/* --- memory */
/* Returns what n bytes take, at least one. */
static size_t space(size_t n)
{
    return (n + 64) & ~(size_t)63;
}

size_t hidden_bytes(void)
{
    return used - closed;
}

static void *take(size_t n, int fill)
{
    size_t bytes = space(n);
    if (!arena) {
        arena = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED) abort();
    }
    if (bytes > ARENA - used) {
        (void)ERR(NOMEM, "hidden device: no memory");
        return NULL;
    }
    struct piece *all = realloc(piece, (n_pieces + 1) * sizeof *piece);
    if (!all) abort();
    piece = all;
    piece[n_pieces++] = (struct piece){used, n, false};
    void *at = arena + used;
    used += bytes;
    if (!fill) return at; /* new pages are zero */
    enter();
    memset(at, fill, n);
    leave();
    return at;
}

static void *h_alloc(struct dev *d, size_t n)
{
    (void)d;
    return take(n, 0);
}

static void h_put(struct dev *d, void *at, const void *host, size_t n)
{
    (void)d;
    in("the place of a dev_put", at, n);
    outside("the source of a dev_put", host, n);
    enter();
    memcpy(at, host, n);
    leave();
}

static void h_get(struct dev *d, void *host, const void *at, size_t n)
{
    (void)d;
    in("the source of a dev_get", at, n);
    outside("the place of a dev_get", host, n);
    enter();
    memcpy(host, at, n);
    leave();
}

static void *h_weights(struct dev *d, const void *host, size_t n)
{
    void *at = take(n, 0xFF);
    if (at) h_put(d, at, host, n);
    return at;
}

static void *h_mirror(struct dev *d, const void *host, size_t n)
{
    (void)d, (void)host;
    return take(n, 0xFF);
}

/* From now on nobody may name these bytes. */
static void close_piece(void *at, size_t n)
{
    if (!at) return;
    in("what is closed", at, n);
    piece_of(at)->closed = true;
    madvise(at, n, MADV_DONTNEED);
    closed += space(n);
}

static void h_mirror_close(struct dev *d, void *at, size_t n)
{
    (void)d;
    close_piece(at, n);
}

static void *h_lend(struct dev *d, const void *host, size_t n)
{
    (void)host;
    if (n > d->n_lent) {
        close_piece(d->lent, d->n_lent);
        if (!(d->lent = take(n, 0xFF))) return NULL;
        d->n_lent = n;
    }
    enter();
    memset(d->lent, 0xFF, n);
    leave();
    return d->lent;
}

static void *h_range(struct dev *d, size_t n)
{
    (void)d;
    size_t from = (used + 4095) & ~(size_t)4095;
    closed += from - used; /* nobody has what lies between */
    used = from;
    return take(n, 0);
}

static void h_range_close(struct dev *d, void *at, size_t n)
{
    (void)d;
    close_piece(at, n);
}

static int h_range_set(struct dev *d, void *at, size_t n, enum dev_range_as as)
{
    (void)d;
    in("a range", at, n);
    if (as == DEV_RANGE_DROPPED) madvise(at, n, MADV_DONTNEED);
    return 0;
}

static const void *h_look(struct dev *d, const void *at, size_t n, void *room)
{
    h_get(d, room, at, n);
    return room;
}

static void h_move(struct dev *d, void *to, const void *from, size_t n, size_t parts, size_t stride)
{
    in("what is copied", from, (parts - 1) * stride + n);
    in("a copy", to, (parts - 1) * stride + n);
    RUN(dev_move(cpu, to, from, n, parts, stride));
}

/* --- the device */
static void h_close(struct dev *d)
{
    dev_close(d->cpu);
    free(d);
    if (--n_devices) return;
    madvise(arena, used, MADV_DONTNEED);
    used = closed = n_pieces = 0;
    free(piece);
    piece = NULL;
}

static const char *h_isa_name(const struct dev *d)
{
    return dev_isa_name(d->cpu);
}

static uint32_t h_threads(const struct dev *d)
{
    return dev_threads(d->cpu);
}

static void h_each(struct dev *d, uint32_t n, pool_fn fn, void *ctx)
{
    dev_each(d->cpu, n, fn, ctx);
}

static int h_reserve(struct dev *d, const struct dev_limits *lim)
{
    return dev_reserve(d->cpu, lim);
}

/* --- operations on activations */
static void h_matmul(struct dev *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n,
                     const struct dev_mm *mm, uint32_t n_mm)
{
    for (uint32_t i = 0; n && i < n_mm; i++) {
        const struct dev_weight *w = mm[i].w;
        weight(w);
        floats("an input of a product", x, (n - 1) * ldx + w->cols);
        perhaps("a bias", mm[i].bias, w->rows);
        floats("a product", mm[i].y, (n - 1) * mm[i].ldy + w->rows);
    }
    RUN(dev_matmul(cpu, mode, x, ldx, n, mm, n_mm));
}

static void h_embed(struct dev *d, const struct dev_weight *w, const int32_t *id, uint32_t n,
                    float *out)
{
    weight(w);
    if (ids_end("ids", id, n) > w->rows) {
        fprintf(stderr, "hidden device: an id without a row\n");
        abort();
    }
    floats("embeddings", out, (size_t)n * w->cols);
    RUN(dev_embed(cpu, w, id, n, out));
}

static void h_norm(struct dev *d, enum dev_norm kind, const float *x, const float *w,
                   const float *b, float eps, uint32_t n, uint32_t dim, float *out)
{
    floats("an input of a norm", x, (size_t)n * dim);
    perhaps("weights of a norm", w, dim);
    perhaps("a bias of a norm", b, dim);
    floats("a norm", out, (size_t)n * dim);
    RUN(dev_norm(cpu, kind, x, w, b, eps, n, dim, out));
}

static void h_map(struct dev *d, enum dev_map kind, float *x, const float *y, bool shared, float p,
                  float q, uint32_t n, uint32_t dim)
{
    floats("x of a map", x, (size_t)n * dim);
    perhaps("y of a map", y, shared ? dim : (size_t)n * dim);
    RUN(dev_map(cpu, kind, x, y, shared, p, q, n, dim));
}

static void h_scale_rows(struct dev *d, float *x, const float *by, uint32_t n, uint32_t dim)
{
    floats("rows", x, (size_t)n * dim);
    floats("factors of rows", by, n);
    RUN(dev_scale_rows(cpu, x, by, n, dim));
}

static void h_rope(struct dev *d, float *x, size_t ldx, uint32_t n, uint32_t heads, uint32_t dim,
                   uint32_t rot, bool interleaved, const float *cos, const float *sin)
{
    if (n) floats("what is rotated", x, (n - 1) * ldx + (size_t)heads * dim);
    floats("cosines", cos, (size_t)n * (rot / 2));
    floats("sines", sin, (size_t)n * (rot / 2));
    RUN(dev_rope(cpu, x, ldx, n, heads, dim, rot, interleaved, cos, sin));
}

static void h_cut(struct dev *d, const struct dev_cut *a, uint32_t n)
{
    size_t last = (size_t)(a->parts - 1) * a->stride + a->width;
    if (n) floats("columns", a->x, (n - 1) * a->ldx + last);
    if (n) floats("copied columns", a->out, (n - 1) * a->ldo + (size_t)a->parts * a->width);
    RUN(dev_cut(cpu, a, n));
}

static void h_rows(struct dev *d, const float *x, const uint32_t *id, uint32_t n, uint32_t dim,
                   float *out)
{
    floats("rows", x, ids_end("numbers of rows", id, n) * dim);
    floats("picked rows", out, (size_t)n * dim);
    RUN(dev_rows(cpu, x, id, n, dim, out));
}

static void h_unfold(struct dev *d, const float *x, uint32_t n_x, uint32_t channels, uint32_t taps,
                     uint32_t step, uint32_t n, float *out)
{
    floats("rows of a convolution", x, (size_t)n_x * channels);
    floats("inputs of a convolution", out, (size_t)n * channels * taps);
    RUN(dev_unfold(cpu, x, n_x, channels, taps, step, n, out));
}

static void h_choose(struct dev *d, const float *score, uint32_t n, uint32_t n_experts,
                     uint32_t top, bool share, uint32_t *chosen, float *by)
{
    floats("scores", score, (size_t)n * n_experts);
    in("chosen experts", chosen, (size_t)n * top * sizeof *chosen);
    floats("weights of experts", by, (size_t)n * top);
    RUN(dev_choose(cpu, score, n, n_experts, top, share, chosen, by));
}

static void h_experts(struct dev *d, enum dev_compute mode, const struct dev_experts *a,
                      const float *x, uint32_t n, float *out)
{
    size_t wide = (size_t)n * a->hidden;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct dev_expert *e = &a->expert[i];
        weight(&e->gate);
        weight(&e->up);
        weight(&e->down);
        perhaps("a bias of an expert", e->bgate, a->ffn);
        perhaps("a bias of an expert", e->bup, a->ffn);
        perhaps("a bias of an expert", e->bdown, a->hidden);
    }
    in("chosen experts", a->chosen, (size_t)n * a->top * sizeof *a->chosen);
    floats("weights of experts", a->weight, (size_t)n * a->top);
    const float *room[] = {a->in, a->y, x, out};
    for (size_t i = 0; i < countof(room); i++)
        floats("rows of experts", room[i], wide);
    floats("room of experts", a->gate, (size_t)n * a->ffn);
    floats("room of experts", a->up, (size_t)n * a->ffn);
    floats("room of experts", a->by, n);
    in("room of experts", a->row, n * sizeof *a->row);
    RUN(dev_experts(cpu, mode, a, x, n, out));
}

/* --- operations on views */
/* Returns where the device sees an array of a view. */
static const uint32_t *seen(const struct kv_view *v, const uint32_t *host)
{
    for (uint32_t i = 0; host && i < KV_BLOCKS; i++) {
        const struct kv_block *b = &v->block[i];
        if (host < b->host || host >= b->host + b->n) continue;
        in("a block", b->at, b->n * sizeof *b->at);
        return b->at + (host - b->host);
    }
    if (!host) return NULL;
    fprintf(stderr, "hidden device: an array of a view is in no block\n");
    abort();
}

/* Returns the view as kernels see it. */
static struct kv_view view(const struct dev *d, const struct kv_view *host)
{
    struct kv_view v = *host;
    if (!v.dev) return v;
    if (v.dev != d) abort();
    in("blocks", v.raw.base, v.raw.grain);
    if (v.sealed.rows) in("tiles", v.sealed.base, v.sealed.grain);
    const uint32_t **each[] = {&v.raw.table, &v.sealed.table, &v.counts, &v.slot, &v.len,
                               &v.lane,      &v.pos,          &v.lo,     &v.hi,   &v.edge,
                               &v.dst,       &v.enc,          &v.from};
    for (size_t i = 0; i < countof(each); i++)
        *each[i] = seen(host, *each[i]);
    return v;
}

static void h_kv_write(struct dev *d, const struct kv_view *v, uint32_t plane, const float *x,
                       size_t ldx)
{
    const struct kv_shape *s = &v->shape[plane];
    uint32_t n = v->counts[1];
    if (n && v->first) floats("rows of the cache", x, (n - 1) * ldx + (size_t)s->heads * s->dim);
    struct kv_view at = view(d, v);
    RUN(dev_kv_write(cpu, &at, plane, x, ldx));
}

static void h_kv_seal(struct dev *d, const struct kv_view *v)
{
    struct kv_view at = view(d, v);
    RUN(dev_kv_seal(cpu, &at));
}

static void attn(const struct kv_view *v, const struct dev_attn *a)
{
    uint32_t n = v->counts[1];
    if (!n) return;
    size_t q = (n - 1) * a->ldq + (size_t)a->n_heads * v->shape[0].dim;
    floats("queries", a->q, q);
    perhaps("queries of sinks", a->q_sink, q);
    perhaps("sink logits", a->sink_logit, a->n_heads);
    floats("attention", a->out, (n - 1) * a->ldo + (size_t)a->n_heads * v->shape[1].dim);
    if (a->bias)
        floats("biases of distances", a->bias->w,
               (size_t)a->n_heads * (a->bias->back + 1 + a->bias->ahead));
}

static void h_attention(struct dev *d, const struct kv_view *v, const struct dev_attn *a)
{
    attn(v, a);
    struct kv_view at = view(d, v);
    RUN(dev_attention(cpu, &at, a));
}

static void h_attention_probe(struct dev *d, const struct kv_view *v, const struct dev_attn *a,
                              const struct dev_probe *lane)
{
    attn(v, a);
    struct kv_view at = view(d, v);
    RUN(dev_attention_probe(cpu, &at, a, lane));
}

static void h_conv(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_conv *a)
{
    size_t n = (size_t)v->counts[1] * a->channels;
    floats("inputs of a convolution", a->x, n);
    floats("taps", a->w, (size_t)a->taps * a->channels);
    floats("biases of a convolution", a->bias, a->channels);
    floats("a convolution", a->out, n);
    struct kv_view at = view(d, v);
    RUN(dev_conv(cpu, &at, plane, a));
}

static void h_scan(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_scan *a)
{
    size_t n = v->counts[1], row = (size_t)a->groups * a->n;
    if (n) floats("inputs of a scan", a->x, (n - 1) * a->ldx + a->channels);
    floats("time steps", a->dt, n * a->heads);
    if (n) floats("B of a scan", a->b, (n - 1) * a->ldb + row);
    if (n) floats("C of a scan", a->c, (n - 1) * a->ldb + row);
    floats("A of a scan", a->a, a->one_decay ? a->channels : (size_t)a->n * a->channels);
    floats("D of a scan", a->d, a->channels);
    floats("a scan", a->out, n * a->channels);
    struct kv_view at = view(d, v);
    RUN(dev_scan(cpu, &at, plane, a));
}

static void h_delta(struct dev *d, const struct kv_view *v, uint32_t plane,
                    const struct dev_delta *a)
{
    size_t n = v->counts[1], keys = (size_t)a->key_heads * a->keys,
           values = (size_t)a->heads * a->values;
    if (n) floats("queries of a delta rule", a->q, (n - 1) * a->ldq + keys);
    if (n) floats("keys of a delta rule", a->k, (n - 1) * a->ldq + keys);
    if (n) floats("values of a delta rule", a->v, (n - 1) * a->ldv + values);
    floats("time steps", a->dt, n * a->heads);
    floats("shares", a->beta, n * a->heads);
    floats("A of a delta rule", a->a, a->heads);
    floats("a delta rule", a->out, n * values);
    struct kv_view at = view(d, v);
    RUN(dev_delta(cpu, &at, plane, a));
}

static const struct dev_ops table = {
#define OP(result, name, parameters, arguments) .name = h_##name,
#include "dev/ops.h"
};

static int h_open(const struct dev_config *c, struct dev **out)
{
    struct dev *d = calloc(1, sizeof *d);
    if (!d) return ERR_NOMEM;
    d->op = &table;
    int e = dev_open_kind("cpu", c, &d->cpu);
    if (e < 0) {
        free(d);
        return e;
    }
    n_devices++;
    *out = d;
    return 0;
}

static const struct dev_kind hidden = {.name = "hidden", .open = h_open};
DEV_KIND(hidden, &hidden);
