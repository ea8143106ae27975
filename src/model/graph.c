/* graph.c - a step as a list of operations: recording, buffers and replay; and the words in which architectures
 * write their forward.  This is what "compiled decode" means here.  All addresses are fixed when the exec is
 * opened.  A step only fills tables and runs the list.  One list serves every batch and length, because words read
 * the number of tokens when they run.  Attention reaches KV rows only through the view that the store gives, site
 * by site. */
#include "model/graph.h"

#include <assert.h>
#include <string.h>

int graph_open(struct exec *x, uint32_t tokens, struct graph **out)
{
    struct graph *g = mem_alloc(sizeof *g);
    if (!g) return ERR_NOMEM;
    g->x = x;
    g->tokens = tokens;
    *out = g;
    return 0;
}

void graph_close(struct graph *g)
{
    if (!g) return;
    for (uint32_t i = 0; i < g->n_own; i++)
        mem_free(g->own[i]);
    mem_free(g->own);
    mem_free(g->op);
    mem_free(g);
}

static void *keep_block(struct graph *g, void *p)
{
    void **own = p ? mem_grow(g->own, g->n_own + 1u, sizeof *own) : NULL;
    if (!own) {
        mem_free(p);
        g->error = ERR_NOMEM;
        return NULL;
    }
    g->own = own;
    return own[g->n_own++] = p;
}

/* Returns an address that the device gave.  Notes ERR_NOMEM if it is NULL. */
static void *got(struct graph *g, void *at)
{
    if (!at && g->error >= 0) g->error = ERR_NOMEM;
    return at;
}

float *graph_buffer(struct graph *g, size_t width)
{
    size_t n;
    if (!ck_mul(width, g->tokens, &n) || !ck_mul(n, sizeof(float), &n)) {
        if (g->error >= 0)
            g->error =
                ERR(NOMEM,
                    "a buffer of %zu values for each of %u tokens takes more than %zu bytes; "
                    "lower step_tokens",
                    width, g->tokens, (size_t)SIZE_MAX);
        return NULL;
    }
    return got(g, dev_alloc(g->x->queue, n));
}

void *graph_weights(struct graph *g, const void *host, size_t n)
{
    return host ? got(g, model_placed(g->x->m, host, n)) : NULL;
}

struct dev_weight graph_matrix(struct graph *g, const struct dev_weight *w)
{
    struct dev_weight out = *w;
    size_t bytes = 0;
    (void)dtype_bytes(w->dtype, (uint64_t)w->rows * w->cols,
                      &bytes); /* cannot fail: a bound matrix has whole blocks */
    out.data = graph_weights(g, w->data, bytes);
    return out;
}

struct mod_norm graph_norm(struct graph *g, const struct mod_norm *norm, uint32_t width)
{
    struct mod_norm out = *norm;
    out.w = graph_weights(g, norm->w, width * sizeof *out.w);
    out.b = graph_weights(g, norm->b, width * sizeof *out.b);
    return out;
}

const struct dev_bias *graph_bias(struct graph *g, const struct dev_bias *bias, uint32_t heads)
{
    struct dev_bias *out = bias ? graph_own(g, 1, sizeof *out) : NULL;
    if (!out) return NULL;
    *out = *bias;
    out->w =
        graph_weights(g, bias->w, (size_t)heads * (bias->back + 1 + bias->ahead) * sizeof *bias->w);
    return out;
}

struct graph_table graph_table(struct graph *g, size_t n)
{
    struct graph_table t = {0};
    t.host = keep_block(g, mem_aligned(n));
    if (t.host) t.at = got(g, dev_mirror(g->x->queue, t.host, n));
    return t;
}

void *graph_own(struct graph *g, size_t n, size_t size)
{
    return keep_block(g, mem_array(n, size));
}

void graph_op(struct graph *g, graph_run run, const void *arg)
{
    if (g->error < 0) return;
    struct graph_op *op = mem_grow(g->op, g->n_ops + 1u, sizeof *op);
    if (!op) {
        g->error = ERR_NOMEM;
        return;
    }
    g->op = op;
    op[g->n_ops++] = (struct graph_op){run, arg};
}

/* Appends an operation with a copy of its argument. */
static void word(struct graph *g, graph_run run, const void *arg, size_t size)
{
    void *a = graph_own(g, 1, size);
    if (!a) return;
    memcpy(a, arg, size);
    graph_op(g, run, a);
}

uint32_t graph_step_tokens(const struct graph *g)
{
    return g->tokens;
}

void graph_needs(struct graph *g, uint32_t k, uint32_t n)
{
    g->max_k = MAX(g->max_k, k);
    g->max_n = MAX(g->max_n, n);
}

float *graph_h(struct graph *g)
{
    return g->x->pass->h;
}

const struct kv_site *graph_site(const struct graph *g, uint32_t site)
{
    return &g->x->m->site[site];
}

/* Refuses a word after mod_narrow that reads other tokens or depends on positions. */
static void needs_all(struct graph *g)
{
    if (g->narrow && g->error >= 0)
        g->error = ERR(UNSUPPORTED, "%s: a word behind mod_narrow needs all tokens", g->x->m->what);
}

uint32_t graph_number(struct graph *g, uint32_t site)
{
    needs_all(g);
    return g->x->site[site];
}

/* Computes by how much the queries of the step are turned back for each run of borrowed rows. */
static void fill_turns(const struct graph *g, const struct pass *p)
{
    const struct kv_borrowed *run;
    uint32_t n = g->n_turns ? kv_step_borrowed(p->step, &run) : 0;
    for (uint32_t i = 0; i < g->n_turns; i++)
        for (uint32_t k = 0; k < n; k++) {
            const struct graph_turn *t = &g->turn[i];
            size_t at = (size_t)k * (t->turn.rot / 2);
            rope_turn(&g->x->m->rope[t->rope], -(int64_t)run[k].by, t->cos + at, t->sin + at);
        }
}

int graph_replay(const struct graph *g, struct pass *p)
{
    for (uint32_t i = 0; i < g->n_rotations; i++) {
        const struct rotation *r = &g->rotation[i];
        const uint32_t *pos = p->pos.host;
        for (uint32_t t = 0; r->limit && t < p->n; t++)
            r->at[t] = MIN(pos[t], r->limit - 1);
        const struct rope *rope = &p->x->m->rope[r->rope];
        size_t bytes = (size_t)p->n * (rope->rot / 2) * sizeof(float);
        rope_fill(rope, r->limit ? r->at : pos, p->end, p->n, r->cos.host, r->sin.host);
        dev_put(p->queue, r->cos.at, r->cos.host, bytes);
        dev_put(p->queue, r->sin.at, r->sin.host, bytes);
    }
    fill_turns(g, p);
    for (uint32_t i = 0; i < g->n_ops; i++)
        TRY(g->op[i].run(p, g->op[i].arg));
    return 0;
}

/* Returns the cosines and sines of a rope, for positions of at most `limit` - 1; limit 0: for the true positions. */
static const struct rotation *rotation(struct graph *g, uint32_t rope, uint32_t limit)
{
    needs_all(g);
    for (uint32_t i = 0; i < g->n_rotations; i++)
        if (g->rotation[i].rope == rope && g->rotation[i].limit == limit) return &g->rotation[i];
    if (g->n_rotations == countof(g->rotation)) {
        if (g->error >= 0)
            g->error = ERR(LIMIT, "the model has more than %u kinds of rotation", g->n_rotations);
        return NULL;
    }
    struct rotation *r = &g->rotation[g->n_rotations];
    size_t bytes = (size_t)g->tokens * (g->x->m->rope[rope].rot / 2) * sizeof(float);
    *r = (struct rotation){.rope = rope, .limit = limit};
    r->cos = graph_table(g, bytes);
    r->sin = graph_table(g, bytes);
    r->at = graph_own(g, g->tokens, sizeof *r->at);
    if (g->error < 0) return NULL;
    g->n_rotations++;
    return r;
}

/* --- words */
/* Writes the embeddings of ids.  A feed with embeddings has id 0 for each token; its embeddings then replace these
 * rows. */
static int embed_run(struct pass *p, const void *arg)
{
    const struct model *m = p->x->m;
    uint32_t d = m->embed.cols, t = 0;
    dev_embed(p->queue, arg, p->ids.at, p->n, p->h);
    if (m->embed_scale != 0 && !m->scales_given) dev_scale(p->queue, p->h, m->embed_scale, p->n, d);
    for (uint32_t i = 0; p->embeds && i < p->n_fed; t += p->fed[i++].rows.n) {
        const struct exec_span *s = &p->fed[i];
        if (s->feed && s->feed->embeds)
            dev_put(p->queue, p->h + (size_t)t * d, s->feed->embeds + (size_t)s->at * d,
                    (size_t)s->rows.n * d * sizeof(float));
    }
    if (m->embed_scale != 0 && m->scales_given) dev_scale(p->queue, p->h, m->embed_scale, p->n, d);
    return 0;
}

void mod_embed(struct graph *g)
{
    struct dev_weight w = graph_matrix(g, &g->x->m->embed);
    word(g, embed_run, &w, sizeof w);
}

struct positions {
    struct dev_weight w;
    float *x, *row;
};

static int positions_run(struct pass *p, const void *arg)
{
    const struct positions *a = arg;
    dev_embed(p->queue, &a->w, p->pos.at, p->n, a->row);
    dev_add(p->queue, a->x, a->row, p->n, a->w.cols);
    return 0;
}

void mod_embed_positions(struct graph *g, const struct dev_weight *w, float *x)
{
    struct positions a = {graph_matrix(g, w), x, graph_buffer(g, w->cols)};
    needs_all(g);
    word(g, positions_run, &a, sizeof a);
}

struct narrow {
    float *x;
    uint32_t width;
};

static int narrow_run(struct pass *p, const void *arg)
{
    const struct narrow *a = arg;
    uint32_t d = p->x->m->hidden, n = p->logits ? p->n_wanted : 0;
    if (p->probed) return 0;
    dev_rows(p->queue, p->h, p->wanted.at, n, d, p->h);
    dev_rows(p->queue, a->x, p->wanted.at, n, a->width, a->x);
    p->n = n;
    p->narrow = true;
    return 0;
}

void mod_narrow(struct graph *g, uint32_t layer, float *x, uint32_t width)
{
    if (layer + 1 < g->x->m->n_layers) return;
    needs_all(g);
    g->narrow = true;
    word(g, narrow_run, &(struct narrow){x, width}, sizeof(struct narrow));
}

struct norm_word {
    struct mod_norm norm;
    const float *x;
    uint32_t per, width;
    float *out;
};

static void copy_rows(struct dev_queue *d, const float *x, uint32_t n, uint32_t width, float *out)
{
    dev_cut(d, &(struct dev_cut){x, width, 1, width, width, out, width}, n);
}

void norm_rows(struct dev_queue *d, const struct mod_norm *norm, const float *x, uint32_t n,
               uint32_t width, float *out)
{
    if (norm->kind == NORM_NONE) {
        if (out != x) copy_rows(d, x, n, width, out);
    } else if (norm->kind == NORM_LAYER)
        dev_layernorm(d, x, norm->w, norm->b, norm->eps, n, width, out);
    else
        dev_rmsnorm(d, x, norm->w, norm->eps, n, width, out);
}

static int norm_run(struct pass *p, const void *arg)
{
    const struct norm_word *a = arg;
    norm_rows(p->queue, &a->norm, a->x, p->n * a->per, a->width, a->out);
    return 0;
}

void mod_norm(struct graph *g, const struct mod_norm *norm, const float *x, uint32_t per,
              uint32_t width, float *out)
{
    assert(norm->kind != NORM_NONE);
    struct norm_word a = {graph_norm(g, norm, width), x, per, width, out};
    word(g, norm_run, &a, sizeof a);
}

struct linear {
    const float *x;
    uint32_t n, k;
    struct dev_weight w[4];
    struct dev_mm mm[4]; /* the arguments for the device; the first n are used */
};

static int linear_run(struct pass *p, const void *arg)
{
    const struct linear *a = arg;
    dev_matmul(p->queue, p->x->compute, a->x, a->k, p->n, a->mm, a->n);
    return 0;
}

void mod_linear(struct graph *g, const float *x, const struct mod_out *out, uint32_t n_out)
{
    struct linear *a = graph_own(g, 1, sizeof *a);
    if (!a) return;
    *a = (struct linear){.x = x, .n = n_out, .k = out[0].w->cols};
    for (uint32_t i = 0; i < n_out; i++) {
        uint32_t rows = out[i].w->rows;
        a->w[i] = graph_matrix(g, out[i].w);
        a->mm[i] = (struct dev_mm){&a->w[i], graph_weights(g, out[i].bias, rows * sizeof(float)),
                                   out[i].y, rows};
        graph_needs(g, a->k, rows);
    }
    graph_op(g, linear_run, a);
}

struct rotate_word { /* a rotation of queries or keys */
    const struct rotation *r, *sink;
    float *x, *copy;
    uint32_t heads, dim;
};

static int rope_run(struct pass *p, const void *arg)
{
    const struct rotate_word *a = arg;
    const struct rope *r = &p->x->m->rope[a->r->rope];
    size_t ld = (size_t)a->heads * a->dim;
    if (a->copy) {
        copy_rows(p->queue, a->x, p->n, a->heads * a->dim, a->copy);
        dev_rope(p->queue, a->copy, ld, p->n, a->heads, a->dim, r->rot, r->interleaved,
                 a->sink->cos.at, a->sink->sin.at);
    }
    dev_rope(p->queue, a->x, ld, p->n, a->heads, a->dim, r->rot, r->interleaved, a->r->cos.at,
             a->r->sin.at);
    return 0;
}

void mod_rope(struct graph *g, uint32_t rope, float *x, uint32_t heads, uint32_t dim)
{
    assert(g->x->m->rope[rope].rot <= dim);
    struct rotate_word a = {.r = rotation(g, rope, 0), .x = x, .heads = heads, .dim = dim};
    word(g, rope_run, &a, sizeof a);
}

/* Returns the copy for the sink rows that belongs to a buffer of queries.  Layers that share the buffer share the
 * copy. */
static float *sink_copy(struct graph *g, const float *q, size_t width)
{
    for (uint32_t i = 0; i < g->n_sink_copies; i++)
        if (g->sink_copy[i].q == q && g->sink_copy[i].width >= width) return g->sink_copy[i].copy;
    if (g->n_sink_copies == countof(g->sink_copy)) {
        if (g->error >= 0)
            g->error = ERR(LIMIT, "the model rotates more than %u query buffers", g->n_sink_copies);
        return NULL;
    }
    float *copy = graph_buffer(g, width);
    g->sink_copy[g->n_sink_copies++] = (struct sink_copy){q, width, copy};
    return copy;
}

/* Notes the rope of a site's queries, which are rotated once more where they meet borrowed rows. */
static void note_turn(struct graph *g, uint32_t site, uint32_t rope)
{
    const struct rope *r = &g->x->m->rope[rope];
    size_t rows = (size_t)g->x->borrows * (r->rot / 2);
    uint32_t i = 0;
    if (!rows) return;
    if (!g->site_turn) g->site_turn = graph_own(g, g->x->m->n_sites, sizeof *g->site_turn);
    while (i < g->n_turns && g->turn[i].rope != rope)
        i++;
    if (i == g->n_turns) {
        struct graph_turn *t = &g->turn[g->n_turns++];
        *t = (struct graph_turn){.rope = rope};
        t->cos = graph_own(g, rows, sizeof *t->cos);
        t->sin = graph_own(g, rows, sizeof *t->sin);
        t->turn = (struct dev_turn){t->cos, t->sin, r->rot, r->interleaved};
    }
    if (g->site_turn) g->site_turn[site] = &g->turn[i].turn;
}

const float *mod_rope_query(struct graph *g, uint32_t site, uint32_t rope, float *q, uint32_t heads,
                            uint32_t dim)
{
    const struct kv_policy *p = &exec_group(g->x, site)->policy;
    assert(g->x->m->rope[rope].rot <= dim);
    struct rotate_word a = {.r = rotation(g, rope, 0), .x = q, .heads = heads, .dim = dim};
    if (p->sinks && p->window) {
        a.copy = sink_copy(g, q, (size_t)heads * dim);
        a.sink = rotation(g, rope, p->sinks + p->window);
    }
    note_turn(g, site, rope);
    word(g, rope_run, &a, sizeof a);
    return a.copy;
}

struct attention {
    struct mod_attention a;
    uint32_t number;    /* number of the site in the store */
    bool cross;         /* the rows are those of an encoder */
    size_t ldk, ldv;    /* values per token: of keys, of values */
    struct dev_attn at; /* the arguments for the device */
};

static int attention_lent(struct pass *p, const struct attention *w)
{
    struct kv_view view, first = {0};
    int e;
    while ((e = kv_next(p->step, w->number, &view)) > 0) {
        if (!view.first) continue;
        first = view;
        dev_kv_write(
            p->queue, &view, 0, w->a.k,
            /* these rows are not read; they must be numbers because their page may be sealed */
            w->ldk);
        dev_kv_write(p->queue, &view, 1, w->a.v, w->ldv);
        dev_kv_seal(p->queue, &view);
    }
    return e < 0 ? e
                 : lent_attend(p, w->a.layer, &first, &exec_group(p->x, w->a.site)->policy, w->a.k,
                               w->a.v, &w->at);
}

static int attention_run(struct pass *p, const void *arg)
{
    const struct attention *w = arg;
    struct kv_view view;
    int e;
    if (p->x->lender && !w->cross) return attention_lent(p, w);
    while ((e = kv_next(p->step, w->number, &view)) > 0) {
        if (view.first && w->a.k) {
            dev_kv_write(p->queue, &view, 0, w->a.k, w->ldk);
            dev_kv_write(p->queue, &view, 1, w->a.v, w->ldv);
            dev_kv_seal(p->queue, &view);
        }
        if (!w->a.q) continue;
        dev_attention(p->queue, &view, &w->at);
        if (p->probed) probe_attention(p, w->a.layer, w->cross, &view, &w->at);
    }
    return e;
}

void mod_attention(struct graph *g, const struct mod_attention *a)
{
    const struct kv_site_plane *k = &graph_site(g, a->site)->plane[0], *v = k + 1;
    struct attention w = {
        .a = *a,
        .number = graph_number(g, a->site),
        .cross = graph_site(g, a->site)->kind == KV_FROZEN,
        .ldk = (size_t)k->heads * k->dim,
        .ldv = (size_t)v->heads * v->dim,
        .at = {.q = a->q,
               .ldq = (size_t)a->heads * k->dim,
               .out = a->out,
               .ldo = (size_t)a->heads * v->dim,
               .n_heads = a->heads,
               .scale = a->scale,
               .softcap = a->softcap,
               .q_sink = a->q_sink,
               .bias = graph_bias(g, a->bias, a->heads),
               .turn = g->site_turn ? g->site_turn[a->site] : NULL,
               .sink_logit = graph_weights(g, a->sink_logit, a->heads * sizeof(float))},
    };
    assert(a->heads % k->heads == 0);
    g->max_heads = MAX(g->max_heads, a->heads);
    g->max_dim = MAX(g->max_dim, MAX(k->dim, v->dim));
    word(g, attention_run, &w, sizeof w);
}

struct map_args {
    enum dev_map kind;
    float *x;
    const float *y;
    float by;
    uint32_t width;
};

static int map_run(struct pass *p, const void *arg)
{
    const struct map_args *a = arg;
    dev_map(p->queue, a->kind, a->x, a->y, false, a->by, 0, p->n, a->width);
    return 0;
}

static void map_word(struct graph *g, struct map_args a)
{
    word(g, map_run, &a, sizeof a);
}

void mod_add(struct graph *g, float *x, const float *y, uint32_t width)
{
    map_word(g, (struct map_args){DEV_ADD, x, y, 0, width});
}

void mod_silu_mul(struct graph *g, float *x, const float *y, uint32_t width)
{
    map_word(g, (struct map_args){DEV_SILU_MUL, x, y, 0, width});
}

void mod_gelu_mul(struct graph *g, float *x, const float *y, uint32_t width)
{
    map_word(g, (struct map_args){DEV_GELU_MUL, x, y, 0, width});
}

void mod_gelu(struct graph *g, float *x, uint32_t width)
{
    map_word(g, (struct map_args){DEV_GELU, x, NULL, 0, width});
}

void mod_gelu_erf(struct graph *g, float *x, uint32_t width)
{
    map_word(g, (struct map_args){DEV_GELU_ERF, x, NULL, 0, width});
}

void mod_relu(struct graph *g, float *x, uint32_t width)
{
    map_word(g, (struct map_args){DEV_RELU, x, NULL, 0, width});
}

void mod_mul(struct graph *g, float *x, const float *y, uint32_t width)
{
    map_word(g, (struct map_args){DEV_MUL, x, y, 0, width});
}

void mod_scale(struct graph *g, float *x, float by, uint32_t width)
{
    map_word(g, (struct map_args){DEV_SCALE, x, NULL, by, width});
}
