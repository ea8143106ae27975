/* device.c - a kind of device for tests, "hidden" (KVIK_DEVICE=hidden): the kernels of the CPU on memory that the host cannot
 * touch.
 *
 * Its memory is readable and writable while an operation runs, and else for nobody.  So whoever reads or writes an activation
 * or a weight between operations gets SIGSEGV, as with a GPU.  And each array that an operation is given must lie in one
 * piece of that memory, which is not closed, or in pages of a range that are in use.  Who hands over an array of the host is
 * told, and the process ends.  Memory holds NaN until something is put there, so an array that is read before its dev_put shows
 * in the results.
 *
 * A copy that was begun moves its bytes when it is waited for, and its place holds NaN before.  An operation can be made to fail:
 * it and those after it do nothing, and dev_finish says so.  Kernels read the arrays of a view from memory of the device, too.
 * Devices are used by one thread at a time. */
#include "arena.h"
#include "dev/pin.h"
#include "hidden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A copy under way. */
struct copy {
    uint32_t number;
    unsigned char *to;
    const unsigned char *from;
    size_t n;
    uint64_t sum; /* of the source */
    bool failed;
};
struct dev_queue {
    struct dev_base base;
    struct dev_queue *cpu; /* owned */
    void *lent;            /* [n_lent] the array of the last dev_lend */
    size_t n_lent;
    const char *failed; /* the operation that failed since the last dev_finish, or NULL */
    struct copy *copy;  /* [n_copies] */
    uint32_t n_copies, last;
};

static uint32_t n_devices, n_uploads, fail_at;
static size_t given_back, pinned;
static uint64_t n_beside;
static const char *lacking;

/* Counts an operation; false if it is not to be done. */
static bool counted(struct dev_queue *d, const char *what)
{
    if (fail_at && !--fail_at && !d->failed) d->failed = what;
    return !d->failed;
}

/* Runs an operation of the CPU while memory is open. */
#define RUN(operation)                                                                             \
    do {                                                                                           \
        struct dev_queue *cpu = d->cpu;                                                            \
        if (!counted(d, __func__ + 2)) break;                                                      \
        n_beside += d->n_copies > 0;                                                               \
        enter();                                                                                   \
        operation;                                                                                 \
        leave();                                                                                   \
    } while (0)

/* --- memory */
size_t hidden_bytes(void)
{
    return used - closed;
}

uint32_t hidden_uploads(void)
{
    return n_uploads;
}

size_t hidden_range_bytes(void)
{
    return range_used;
}

size_t hidden_given_back(void)
{
    return given_back;
}

uint64_t hidden_beside(void)
{
    return n_beside;
}

size_t hidden_pinned(void)
{
    return pinned;
}

void hidden_fail(uint32_t k)
{
    fail_at = k;
}

bool hidden_failing(void)
{
    return fail_at != 0;
}

void hidden_lacks(const char *codec)
{
    lacking = codec;
}

static void *h_alloc(struct dev_queue *d, size_t n)
{
    return take(d, n, 0);
}

/* Copies between the device and the host. */
static void copy(struct dev_queue *d, void *to, const void *from, size_t n, const char *what)
{
    if (!counted(d, what)) return;
    enter();
    memcpy(to, from, n);
    leave();
}

static void h_put(struct dev_queue *d, void *at, const void *host, size_t n)
{
    in("the place of a dev_put", at, n);
    outside("the source of a dev_put", host, n);
    copy(d, at, host, n, "put");
}

static void h_get(struct dev_queue *d, void *host, const void *at, size_t n)
{
    in("the source of a dev_get", at, n);
    outside("the place of a dev_get", host, n);
    copy(d, host, at, n, "get");
}

static uint64_t sum(const unsigned char *p, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static uint32_t begin(struct dev_queue *d, void *to, const void *from, size_t n)
{
    bool before = d->failed != NULL, failed = !counted(d, "a copy");
    struct copy *all = realloc(d->copy, (d->n_copies + 1) * sizeof *all);
    if (!all) abort();
    d->copy = all;
    if (!before) d->failed = NULL; /* dev_copied says it */
    enter();
    all[d->n_copies++] = (struct copy){++d->last, to, from, n, sum(from, n), failed};
    memset(to, 0xFF, n);
    leave();
    return d->last;
}

static uint32_t h_put_begin(struct dev_queue *d, void *at, const void *host, size_t n)
{
    in("the place of a copy", at, n);
    outside("the source of a copy", host, n);
    return begin(d, at, host, n);
}

static uint32_t h_get_begin(struct dev_queue *d, void *host, const void *at, size_t n)
{
    in("the source of a copy", at, n);
    outside("the place of a copy", host, n);
    return begin(d, host, at, n);
}

/* Moves the bytes of a copy. */
static void end(const struct copy *c)
{
    enter();
    if (sum(c->from, c->n) != c->sum) {
        fprintf(stderr, "hidden device: the source of a copy has changed\n");
        abort();
    }
    if (!c->failed) memcpy(c->to, c->from, c->n);
    leave();
}

static int h_copied(struct dev_queue *d, uint32_t number)
{
    for (uint32_t i = 0; i < d->n_copies; i++) {
        if (d->copy[i].number != number) continue;
        bool failed = d->copy[i].failed;
        end(&d->copy[i]);
        d->copy[i] = d->copy[--d->n_copies];
        return failed ? ERR(IO, "the device failed in a copy") : 0;
    }
    fprintf(stderr, "hidden device: copy %u was not begun, or waited for before\n", number);
    abort();
}

static void *h_weights(struct dev *dev, const void *host, size_t n)
{
    (void)dev;
    void *at = take(NULL, n, 0xFF);
    n_uploads++;
    if (!at) return NULL;
    outside("a weight of the host", host, n);
    enter();
    memcpy(at, host, n);
    leave();
    return at;
}

static void *h_mirror(struct dev_queue *d, const void *host, size_t n)
{
    (void)host;
    return take(d, n, 0xFF);
}

/* From now on nobody may name these bytes. */
static void h_mirror_close(struct dev_queue *d, void *at, size_t n)
{
    (void)d;
    close_piece(at, n);
}

static void *h_lend(struct dev_queue *d, const void *host, size_t n)
{
    (void)host;
    if (n > d->n_lent) {
        close_piece(d->lent, d->n_lent);
        if (!(d->lent = take(d, n, 0xFF))) return NULL;
        d->n_lent = n;
    }
    enter();
    memset(d->lent, 0xFF, n);
    leave();
    return d->lent;
}

static size_t h_page(const struct dev *dev)
{
    (void)dev;
    return PAGE;
}

static void *h_range(struct dev *dev, size_t n)
{
    (void)dev;
    size_t from = (used + PAGE - 1) & ~(PAGE - 1);
    closed += from - used; /* nobody has what lies between */
    used = from;
    void *at = n % PAGE ? NULL : take(NULL, n, 0);
    if (!at) abort();
    if (!(piece[n_pieces - 1].used = calloc(n / PAGE, 1))) abort();
    return at;
}

static void h_range_close(struct dev *dev, void *at, size_t n)
{
    (void)dev;
    close_piece(at, n);
}

static void h_pin(struct dev *dev, void *host, size_t n, bool on)
{
    (void)dev;
    outside("memory that is pinned", host, n);
    if ((size_t)host % PAGE || n % PAGE) abort();
    pinned += on ? n : -n;
}

static int h_range_set(struct dev *dev, void *at, size_t n, enum dev_range_as as)
{
    (void)dev;
    struct piece *p = piece_of(at);
    size_t first = p ? (size_t)((unsigned char *)at - arena) - p->from : 1;
    if (as == DEV_RANGE_HUGE) return 0;
    if (!p || p->closed || !p->used || first % PAGE || n % PAGE || n > p->n - first) {
        fprintf(stderr, "hidden device: %zu bytes of a range are no whole pages\n", n);
        abort();
    }
    for (size_t i = first / PAGE; i < (first + n) / PAGE; i++) {
        unsigned char *page = arena + p->from + i * PAGE;
        if (p->used[i] == (as == DEV_RANGE_USED)) continue;
        p->used[i] = as == DEV_RANGE_USED;
        range_used += p->used[i] ? PAGE : -PAGE;
        if (!p->used[i]) given_back += PAGE;
        if (!p->used[i]) madvise(page, PAGE, MADV_DONTNEED);
        if (!p->used[i]) continue;
        enter();
        memset(page, 0xFF, PAGE);
        leave();
    }
    return 0;
}

static const void *h_look(struct dev_queue *d, const void *at, size_t n, void *room)
{
    h_get(d, room, at, n);
    return room;
}

static void h_move(struct dev_queue *d, void *to, const void *from, size_t n, size_t parts,
                   size_t stride)
{
    in("what is copied", from, (parts - 1) * stride + n);
    in("a copy", to, (parts - 1) * stride + n);
    RUN(dev_move(cpu, to, from, n, parts, stride));
}

/* --- the queue */
static void h_queue_close(struct dev_queue *d)
{
    if (d->n_copies) {
        fprintf(stderr, "hidden device: a copy was not waited for\n");
        abort();
    }
    for (size_t i = 0; i < n_pieces; i++)
        if (piece[i].of == d && !piece[i].closed) close_piece(arena + piece[i].from, piece[i].n);
    dev_queue_close(d->cpu);
    free(d->copy);
    free(d);
}

static int h_finish(struct dev_queue *d)
{
    const char *failed = d->failed;
    d->failed = NULL;
    return failed ? ERR(IO, "the device failed in %s", failed) : 0;
}

static const char *h_isa_name(const struct dev_queue *d)
{
    return dev_isa_name(d->cpu);
}

static uint32_t h_threads(const struct dev_queue *d)
{
    return dev_threads(d->cpu);
}

static void h_each(struct dev_queue *d, uint32_t n, pool_fn fn, void *ctx)
{
    dev_each(d->cpu, n, fn, ctx);
}

static int h_reserve(struct dev_queue *d, const struct dev_limits *lim)
{
    return dev_reserve(d->cpu, lim);
}

/* --- operations on activations */
static void h_matmul(struct dev_queue *d, enum dev_compute mode, const float *x, size_t ldx,
                     uint32_t n, const struct dev_mm *mm, uint32_t n_mm)
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

static void h_embed(struct dev_queue *d, const struct dev_weight *w, const int32_t *id, uint32_t n,
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

static void h_norm(struct dev_queue *d, enum dev_norm kind, const float *x, const float *w,
                   const float *b, float eps, uint32_t n, uint32_t dim, float *out)
{
    floats("an input of a norm", x, (size_t)n * dim);
    perhaps("weights of a norm", w, dim);
    perhaps("a bias of a norm", b, dim);
    floats("a norm", out, (size_t)n * dim);
    RUN(dev_norm(cpu, kind, x, w, b, eps, n, dim, out));
}

static void h_map(struct dev_queue *d, enum dev_map kind, float *x, const float *y, bool shared,
                  float p, float q, uint32_t n, uint32_t dim)
{
    floats("x of a map", x, (size_t)n * dim);
    perhaps("y of a map", y, shared ? dim : (size_t)n * dim);
    RUN(dev_map(cpu, kind, x, y, shared, p, q, n, dim));
}

static void h_scale_rows(struct dev_queue *d, float *x, const float *by, uint32_t n, uint32_t dim)
{
    floats("rows", x, (size_t)n * dim);
    floats("factors of rows", by, n);
    RUN(dev_scale_rows(cpu, x, by, n, dim));
}

static void h_rope(struct dev_queue *d, float *x, size_t ldx, uint32_t n, uint32_t heads,
                   uint32_t dim, uint32_t rot, bool interleaved, const float *cos, const float *sin)
{
    if (n) floats("what is rotated", x, (n - 1) * ldx + (size_t)heads * dim);
    floats("cosines", cos, (size_t)n * (rot / 2));
    floats("sines", sin, (size_t)n * (rot / 2));
    RUN(dev_rope(cpu, x, ldx, n, heads, dim, rot, interleaved, cos, sin));
}

static void h_cut(struct dev_queue *d, const struct dev_cut *a, uint32_t n)
{
    size_t last = (size_t)(a->parts - 1) * a->stride + a->width;
    if (n) floats("columns", a->x, (n - 1) * a->ldx + last);
    if (n) floats("copied columns", a->out, (n - 1) * a->ldo + (size_t)a->parts * a->width);
    RUN(dev_cut(cpu, a, n));
}

static void h_rows(struct dev_queue *d, const float *x, const uint32_t *id, uint32_t n,
                   uint32_t dim, float *out)
{
    floats("rows", x, ids_end("numbers of rows", id, n) * dim);
    floats("picked rows", out, (size_t)n * dim);
    RUN(dev_rows(cpu, x, id, n, dim, out));
}

static void h_unfold(struct dev_queue *d, const float *x, uint32_t n_x, uint32_t channels,
                     uint32_t taps, uint32_t step, uint32_t n, float *out)
{
    floats("rows of a convolution", x, (size_t)n_x * channels);
    floats("inputs of a convolution", out, (size_t)n * channels * taps);
    RUN(dev_unfold(cpu, x, n_x, channels, taps, step, n, out));
}

static void h_choose(struct dev_queue *d, const float *score, uint32_t n, uint32_t n_experts,
                     uint32_t top, bool share, uint32_t *chosen, float *by)
{
    floats("scores", score, (size_t)n * n_experts);
    in("chosen experts", chosen, (size_t)n * top * sizeof *chosen);
    floats("weights of experts", by, (size_t)n * top);
    RUN(dev_choose(cpu, score, n, n_experts, top, share, chosen, by));
}

static void h_experts(struct dev_queue *d, enum dev_compute mode, const struct dev_experts *a,
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
static struct kv_view view(const struct dev_queue *d, const struct kv_view *host)
{
    struct kv_view v = *host;
    if (v.queue != d) abort();
    in("blocks", v.raw.base, v.raw.grain);
    if (v.sealed.rows) in("tiles", v.sealed.base, v.sealed.grain);
    const uint32_t **each[] = {&v.raw.table, &v.sealed.table, &v.counts, &v.slot, &v.len,
                               &v.lane,      &v.pos,          &v.lo,     &v.hi,   &v.edge,
                               &v.dst,       &v.enc,          &v.from};
    for (size_t i = 0; i < countof(each); i++)
        *each[i] = seen(host, *each[i]);
    return v;
}

/* Ends the process unless a page of the view is in use. */
static void there(const char *what, const struct kv_form *f, uint32_t page)
{
    in(what, f->base + page * f->grain, f->grain);
}

static void h_kv_write(struct dev_queue *d, const struct kv_view *v, uint32_t plane, const float *x,
                       size_t ldx)
{
    const struct kv_shape *s = &v->shape[plane];
    uint32_t n = v->counts[1];
    if (n && v->first) floats("rows of the cache", x, (n - 1) * ldx + (size_t)s->heads * s->dim);
    struct kv_view at = view(d, v);
    for (uint32_t t = 0; t < n && v->first; t++)
        there("a block that is written", &v->raw, v->dst[t] / v->raw.rows);
    RUN(dev_kv_write(cpu, &at, plane, x, ldx));
}

static void h_kv_seal(struct dev_queue *d, const struct kv_view *v)
{
    struct kv_view at = view(d, v);
    for (uint32_t i = 0; v->sealed.rows && v->first && i < v->counts[2]; i++)
        there("a tile that is written", &v->sealed,
              v->sealed.table[v->slot[v->enc[2 * i]] * v->sealed.stride + v->enc[2 * i + 1]]);
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

static void h_attention(struct dev_queue *d, const struct kv_view *v, const struct dev_attn *a)
{
    attn(v, a);
    struct kv_view at = view(d, v);
    RUN(dev_attention(cpu, &at, a));
}

static void h_attention_probe(struct dev_queue *d, const struct kv_view *v,
                              const struct dev_attn *a, const struct dev_probe *lane)
{
    attn(v, a);
    struct kv_view at = view(d, v);
    RUN(dev_attention_probe(cpu, &at, a, lane));
}

static void h_conv(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
                   const struct dev_conv *a)
{
    size_t n = (size_t)v->counts[1] * a->channels;
    floats("inputs of a convolution", a->x, n);
    floats("taps", a->w, (size_t)a->taps * a->channels);
    floats("biases of a convolution", a->bias, a->channels);
    floats("a convolution", a->out, n);
    struct kv_view at = view(d, v);
    RUN(dev_conv(cpu, &at, plane, a));
}

static void h_scan(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
                   const struct dev_scan *a)
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

static void h_delta(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
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

/* --- the device */
static bool h_reads(const struct dev *dev, const struct kv_codec *c)
{
    (void)dev;
    return !lacking || strcmp(c->name, lacking) != 0;
}

static int h_queue_open(struct dev *dev, const struct dev_config *c, struct dev_queue **out)
{
    struct dev_queue *d = calloc(1, sizeof *d);
    if (!d) return ERR_NOMEM;
    d->base = (struct dev_base){dev->kind, dev};
    int e = dev_queue_open(&dev_host, c, &d->cpu);
    if (e < 0) {
        free(d);
        return e;
    }
    *out = d;
    return 0;
}

static void h_close(struct dev *dev)
{
    free(dev);
    if (--n_devices) return;
    if (used) madvise(arena, used, MADV_DONTNEED);
    for (size_t i = 0; i < n_pieces; i++)
        free(piece[i].used);
    used = closed = n_pieces = range_used = 0;
    free(piece);
    piece = NULL;
}

static int h_open(struct dev **out);
static const struct dev_kind hidden = {
    .name = "hidden",
    .open = h_open,
#define MEMORY(result, name, parameters, arguments) .name = h_##name,
#define OP(result, name, parameters, arguments)     .name = h_##name,
#include "dev/ops.h"
};
DEV_KIND(hidden, &hidden);
static const struct dev_pins pins = {&hidden, h_pin};
DEV_PINS(hidden, &pins);

static int h_open(struct dev **out)
{
    struct dev *dev = calloc(1, sizeof *dev);
    if (!dev) return ERR_NOMEM;
    dev->kind = &hidden;
    n_devices++;
    *out = dev;
    return 0;
}
