/* cuda_cache.c - the cache on views: rows that are written, attention, recurrent states.
 *
 * Attention of a piece runs in waves: a kernel makes some atoms of every token and head, a second one merges them in
 * order.  A wave has as many atoms as the room for their results allows. */
#include "dev/affine.h"
#include "dev/coded.h"
#include "dev/cuda/cuda.h"
#include "dev/cuda/k_walk.h"
#include "dev/reader.h"
#include "dev/soften.h"

#include <assert.h>
#include <string.h>

#define PART_BYTES                                                                                 \
    ((size_t)64 << 20) /* for the results of a wave; more if one atom of each token takes more */

/* True for raw rows, and for tiles of rows as in raw blocks, of groups of small codes, of levels, and of floats of 8
 * bits. */
bool cuda_reads(const struct dev *d, const struct kv_codec *c)
{
    (void)d;
    return c->reader == kv_read_in_place || c->reader == kv_read_affine ||
           c->reader == kv_read_coded || c->reader == kv_read_float8;
}

int cuda_reserve(struct dev_queue *d, const struct dev_limits *more)
{
    struct dev_limits both = dev_limits_both(more, &d->lim), *lim = &both;
    size_t groups = (lim->k + K_GROUP - 1) / K_GROUP;
    size_t state = K_STATE + (size_t)lim->head_dim,
           results = (size_t)lim->tokens * lim->heads * state;
    if (lim->head_dim > K_DIM)
        return ERR(UNSUPPORTED, "device cuda: heads of %u values; its kernels take %u at most",
                   lim->head_dim, K_DIM);
    cuda_wait(d);
    float **room[] = {(float **)&d->group, &d->run, &d->part}, *more_room[3] = {NULL};
    size_t floats[] = {lim->tokens * groups * sizeof(struct k_group) / sizeof(float), results,
                       MAX(results, PART_BYTES / sizeof(float))},
           have;
    /* but never more than all atoms of all tokens */
    floats[2] = MAX(results, MIN(floats[2], results * (lim->max_len / KV_ATOM + WALK_PHASES)));
    int e = 0;
    for (size_t i = 0; i < countof(room) && e >= 0; i++) {
        have = 0;
        e = cuda_room(d, &more_room[i], &have, MAX(floats[i], 1));
    }
    for (size_t i = 0; i < countof(room); i++) { /* a room that cannot grow keeps its old size */
        float *old = e < 0 ? more_room[i] : *room[i];
        if (old) d->rt->release(CUDA_DEVICE, old, 0);
        if (e >= 0) *room[i] = more_room[i];
    }
    if (e < 0) return e;
    d->n_part = floats[2];
    d->lim = *lim;
    return 0;
}

const uint32_t *cuda_seen(const struct kv_view *v, const uint32_t *host)
{
    for (uint32_t i = 0; host && i < KV_BLOCKS; i++) {
        const struct kv_block *b = &v->block[i];
        if (b->n && host >= b->host && host < b->host + b->n) return b->at + (host - b->host);
    }
    return NULL;
}

static struct k_form form_of(const struct kv_view *v, const struct kv_form *f, uint32_t plane)
{
    return (struct k_form){f->base, f->grain, f->offset[plane], cuda_seen(v, f->table),
                           f->rows, f->stride};
}

static struct k_levels levels_of(const struct kv_coded *f)
{
    struct k_levels l = {.bits = f->bits, .key = f->key, .mean = f->mean};
    memcpy(l.level, f->level, sizeof l.level);
    if (!f->turned) return l;
    l.seed = f->turn.seed;
    l.run = f->turn.run;
    l.turn = f->turn.scale;
    return l;
}

struct k_plane cuda_plane(const struct kv_view *v, uint32_t i)
{
    const struct kv_shape *s = &v->shape[i];
    struct k_plane p = {.raw = form_of(v, &v->raw, i),
                        .heads = s->heads,
                        .dim = s->dim,
                        .type = (uint32_t)s->dtype,
                        .strips = s->layout == KV_STRIPS,
                        .coded = v->codec[i] != NULL,
                        .float8 = v->codec[i] && v->codec[i]->reader == kv_read_float8};
    if (!p.coded) return p;
    p.sealed = form_of(v, &v->sealed, i);
    if (v->codec[i]->reader == kv_read_affine) {
        const struct kv_affine *f = v->codec[i]->param;
        p.affine = (struct k_affine){f->bits, f->unit, f->group, f->zero_first};
    }
    if (v->codec[i]->reader == kv_read_coded) p.levels = levels_of(v->codec[i]->param);
    return p;
}

/* Describes the walk with arrays of the host, or with those of the device. */
static struct k_walk walk_of(const struct kv_view *v, bool host)
{
    struct k_walk w = {v->slot, v->lane, v->pos,  v->lo,    v->hi,   v->edge, v->row0,
                       v->row1, v->raw0, v->raw1, v->sinks, v->lead, false,   false};
    for (uint32_t i = 0; i < 2; i++) {
        w.tiled |= v->codec[i] != NULL;
        w.lossy |= v->codec[i] && !v->codec[i]->lossless;
    }
    const uint32_t **each[] = {&w.slot, &w.lane, &w.pos, &w.lo, &w.hi, &w.edge};
    for (size_t i = 0; !host && i < countof(each); i++)
        *each[i] = cuda_seen(v, *each[i]);
    return w;
}

static struct k_query query_of(const struct kv_view *v, const struct dev_attn *a)
{
    return (struct k_query){a->q,
                            a->q_sink,
                            a->ldq,
                            a->n_heads,
                            a->n_heads / v->shape[0].heads,
                            a->scale,
                            a->softcap,
                            a->bias ? a->bias->w : NULL,
                            a->bias ? a->bias->back : 0,
                            a->bias ? a->bias->ahead : 0};
}

/* Returns the largest number of atoms that a token has in the piece. */
static uint32_t most_atoms(const struct kv_view *v)
{
    struct k_walk w = walk_of(v, true);
    uint32_t most = 0;
    for (uint32_t t = 0; t < v->counts[1]; t++)
        most = MAX(most, walk_atoms(&w, t));
    return most;
}

/* Chooses the queries of a block: heads of a group, and adjacent tokens where sequences have many tokens in the
 * step.  Returns the number of blocks. */
static size_t share(const struct kv_view *v, struct k_atom_args *a)
{
    uint32_t group = a->query.group, dim = v->shape[0].dim, lanes = v->counts[0];
    uint32_t most = dim <= 256 ? K_QUERIES : dim <= 512 ? K_QUERIES / 2 : 1;
    uint32_t parts = (group + most - 1) / most;
    a->n = v->counts[1];
    a->heads = (group + parts - 1) / parts;
    a->tokens = a->n < 2 * lanes ? 1 : MAX(1, most / a->heads);
    return (size_t)parts * v->shape[0].heads * ((a->n + a->tokens - 1) / a->tokens);
}

void cuda_attention(struct dev_queue *d, const struct kv_view *v, const struct dev_attn *a)
{
    size_t results = (size_t)v->counts[1] * a->n_heads, state = K_STATE + (size_t)v->shape[1].dim;
    if (!results) return;
    assert(results * state <= d->n_part && a->n_heads % v->shape[0].heads == 0);
    struct k_plane k = cuda_plane(v, 0), value = cuda_plane(v, 1);
    struct k_walk walk = walk_of(v, false);
    struct k_query query = query_of(v, a);
    uint32_t atoms = most_atoms(v),
             wave = (uint32_t)MIN(MIN(MAX(atoms, 1), 65535), d->n_part / (results * state));
    for (uint32_t first = 0; first == 0 || first < atoms; first += wave) {
        uint32_t n = MIN(wave, atoms - first);
        bool ends = v->last && first + wave >= atoms;
        struct k_atom_args atom = {k,    value,           walk, query, d->part, first,
                                   wave, (uint32_t)state, 0,    0,     0};
        size_t blocks = share(v, &atom);
        struct k_merge_args merge = {walk,
                                     d->part,
                                     a->sink_logit,
                                     d->run,
                                     ends ? a->out : NULL,
                                     a->ldo,
                                     a->n_heads,
                                     v->shape[1].dim,
                                     first,
                                     wave,
                                     (uint32_t)state,
                                     v->first && first == 0};
        CUDA_CLEAR(&atom);
        CUDA_CLEAR(&merge);
        if (k.levels.bits || value.levels.bits)
            cuda_launch(d, CUDA_k_atom_coded, results, n, &atom, sizeof atom);
        else
            cuda_launch(d, CUDA_k_atom, blocks, n, &atom, sizeof atom);
        if (value.levels.bits)
            LAUNCH(d, k_merge_coded, results, 1, merge, value);
        else
            cuda_launch(d, CUDA_k_merge, results, 1, &merge, sizeof merge);
    }
}

/* Writes the probabilities of one token and head of a lane, from the scores of all rows. */
static void probe_row(const struct kv_view *v, const struct dev_attn *a, uint32_t token,
                      uint32_t head, float *out, uint32_t columns, const float *score)
{
    uint32_t hi = v->hi[token], lo = MIN(v->lo[token], hi), sinks = MIN(v->sinks, lo);
    memset(out, 0, columns * sizeof *out);
    memcpy(out, score, sinks * sizeof *out);
    memcpy(out + lo, score + lo, (hi - lo) * sizeof *out);
    dev_soften(out, sinks, lo, hi, a->softcap, a->sink_logit ? &a->sink_logit[head] : NULL);
}

void cuda_attention_probe(struct dev_queue *d, const struct kv_view *v, const struct dev_attn *a,
                          const struct dev_probe *lane)
{
    uint32_t n = v->counts[1], columns = 1, first = 0, atoms = most_atoms(v);
    struct dev_attn host = *a;
    for (uint32_t t = 0; t < n; t++)
        columns = MAX(columns, v->hi[t]);
    size_t all = (size_t)n * a->n_heads * columns;
    if (!n) return;
    if (v->first && cuda_room(d, &d->scores, &d->n_scores, all) < 0) cuda_failed(d, ERR_NOMEM);
    struct k_scores_args of = {cuda_plane(v, 0), walk_of(v, false), query_of(v, a), d->scores,
                               columns};
    CUDA_CLEAR(&of);
    cuda_launch(d, of.k.levels.bits ? CUDA_k_scores_coded : CUDA_k_scores, (size_t)n * a->n_heads,
                atoms, &of, sizeof of);
    if (!v->last) return;
    float *score = mem_array(all + a->n_heads, sizeof *score), *sink = score ? score + all : NULL;
    if (!score) cuda_failed(d, ERR_NOMEM);
    if (score) cuda_get(d, score, d->scores, all * sizeof *score);
    if (score && a->sink_logit) cuda_get(d, sink, a->sink_logit, a->n_heads * sizeof *sink);
    host.sink_logit = a->sink_logit ? sink : NULL;
    for (uint32_t t = 0; t < n && score && !d->failed; t++) {
        const struct dev_probe *to = &lane[v->lane[t]];
        if (t && v->lane[t] != v->lane[t - 1]) first = t;
        for (uint32_t h = 0; h < a->n_heads && to->out; h++)
            probe_row(v, &host, t, h, to->out + h * to->ldh + (size_t)(t - first) * to->columns,
                      to->columns, score + ((size_t)t * a->n_heads + h) * columns);
    }
    mem_free(score);
}

void cuda_kv_write(struct dev_queue *d, const struct kv_view *v, uint32_t plane, const float *x,
                   size_t ldx)
{
    const struct kv_shape *s = &v->shape[plane];
    size_t n = (size_t)v->counts[1] * s->heads * s->dim;
    if (v->first)
        LAUNCH(d, k_write, cuda_blocks(n), 1, cuda_plane(v, plane), x, ldx, cuda_seen(v, v->dst),
               n);
}

/* --- recurrent states */
static struct k_state state_of(const struct kv_view *v, uint32_t plane)
{
    return (struct k_state){v->raw.base,           v->raw.grain,         v->raw.offset[plane],
                            cuda_seen(v, v->lane), cuda_seen(v, v->pos), cuda_seen(v, v->dst),
                            cuda_seen(v, v->from), v->counts[1]};
}

void cuda_conv(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
               const struct dev_conv *a)
{
    assert(a->taps <= DEV_CONV_TAPS);
    LAUNCH(d, k_conv, cuda_blocks(a->channels), v->counts[0], state_of(v, plane), a->x, a->w,
           a->bias, a->out, a->taps, a->channels);
}

void cuda_scan(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
               const struct dev_scan *a)
{
    assert(a->n <= DEV_SCAN_STATES && a->channels % a->groups == 0);
    LAUNCH(d, k_scan, cuda_blocks(a->channels), v->counts[0], state_of(v, plane), a->x, a->dt, a->b,
           a->c, a->a, a->d, a->out, a->ldx, a->ldb, a->channels, a->heads, a->groups, a->n,
           a->one_decay);
}

void cuda_delta(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
                const struct dev_delta *a)
{
    assert(a->keys <= DEV_DELTA_KEYS && a->heads % a->key_heads == 0);
    LAUNCH(d, k_delta, cuda_blocks((size_t)a->heads * a->values), v->counts[0], state_of(v, plane),
           a->q, a->k, a->v, a->dt, a->beta, a->a, a->out, a->ldq, a->ldv, a->scale, a->heads,
           a->key_heads, a->keys, a->values);
}
