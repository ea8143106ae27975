/* exec.c - one step over the store: begin, replay of the recorded graph, logits, commit.  A step
 * that fails changes nothing. */
#include "model/graph.h"

/* Makes a table of n values of 32 bits. */
static int table(struct exec *x, size_t n, struct graph_table *out)
{
    out->host = mem_array(n, sizeof(uint32_t));
    if (out->host) out->at = dev_mirror(x->queue, out->host, n * sizeof(uint32_t));
    return out->at ? 0 : ERR_NOMEM;
}

static int buffers(struct exec *x)
{
    struct pass *p = x->pass;
    size_t n = MAX(x->step_tokens, x->encoder_rows), bytes;
    if (!ck_mul(n, x->m->hidden * sizeof(float), &bytes))
        return ERR(NOMEM, "%zu tokens of %u activations take more than %zu bytes; lower %s", n,
                   x->m->hidden, (size_t)SIZE_MAX,
                   n > x->step_tokens ? "max_encoder_len" : "step_tokens");
    p->h = dev_alloc(x->queue, bytes);
    p->rows = dev_alloc(x->queue, bytes);
    p->end = mem_array(n, sizeof *p->end);
    p->column = mem_array(n, sizeof *p->column);
    p->shown = mem_array(2 * (size_t)x->max_seqs, sizeof *p->shown);
    p->span = mem_array(n, sizeof *p->span);
    p->accepted = mem_array(n, sizeof *p->accepted);
    if (!p->h || !p->rows || !p->end || !p->column || !p->span || !p->accepted || !p->shown)
        return ERR_NOMEM;
    TRY(table(x, n, &p->pos));
    TRY(table(x, n, &p->ids));
    TRY(table(x, n, &p->wanted));
    p->x = x;
    p->queue = x->queue;
    return feed_open(x);
}

/* Records the steps of one phase, and sizes the scratch for its operations. */
static int record_phase(struct exec *x, int (*write)(const struct model *m, struct graph *g),
                        uint32_t tokens, uint32_t tile, struct graph **out)
{
    const struct model *m = x->m;
    TRY(graph_open(x, tokens, out));
    TRY(write(m, *out));
    if ((*out)->error < 0) return (*out)->error;
    /* the head is not part of the graph, but uses the same scratch */
    graph_needs(*out, m->hidden, m->vocab);
    struct dev_limits lim = {
        .tokens = tokens,
        .k = (*out)->max_k,
        .n = (*out)->max_n,
        .heads = (*out)->max_heads,
        .head_dim = (*out)->max_dim,
        .max_len = MAX(x->max_len, x->encoder_rows),
        .tile = tile,
    };
    return dev_reserve(x->queue, &lim);
}

/* Makes the final norm and the head, which come after the recorded words. */
static int ends(struct exec *x)
{
    const struct model *m = x->m;
    struct graph *g = x->graph;
    x->ends.norm = graph_norm(g, &m->final_norm, m->hidden);
    x->ends.head = graph_matrix(g, &m->head);
    x->ends.bias = graph_weights(g, m->head_bias, m->vocab * sizeof *m->head_bias);
    return MIN(g->error, 0);
}

static int record_graphs(struct exec *x, uint32_t tile)
{
    const struct arch *a = x->m->arch;
    uint32_t rows = x->encoder_rows ? x->encoder_rows : x->step_tokens;
    TRY(record_phase(x, a->graph, x->step_tokens, tile, &x->graph));
    TRY(ends(x));
    return a->encode ? record_phase(x, a->encode, rows, tile, &x->encode) : 0;
}

const struct kv_group *exec_group(const struct exec *x, uint32_t site)
{
    uint32_t g = 0;
    while (x->site[site] >= x->group[g].site0 + x->group[g].n_sites)
        g++;
    return kv_group_now(x->kv, g);
}

const struct kv_policy *exec_sinks(const struct exec *x)
{
    for (uint32_t i = 0; i < x->n_groups; i++)
        if (x->group[i].policy.sinks) return &x->group[i].policy;
    return NULL;
}

/* Checks that rows of this model, in this form, can be read at other positions. */
static int agree_chunks(const struct exec *x, const struct exec_config *c)
{
    const struct model *m = x->m;
    const char *why = m->no_sinks;
    if (m->encoder.n_layers) why = "its rows depend on the encoder's input";
    for (uint32_t i = 0; !why && i < x->n_groups; i++) {
        const struct kv_policy *p = &x->group[i].policy;
        why = p->kind != KV_ROWS ? "it has recurrent layers, whose states have no positions"
              : p->sinks         ? "a sink cache chooses the positions of its rows"
              : p->window        ? "layers with a window forget rows"
              : p->chunk         ? "layers with chunks forget rows"
                                 : NULL;
    }
    if (c->streaming != KV_RESIDENT) why = "rows that can go to disk stay where they are";
    if (!dev_base(x->queue)->kind->is_host) why = "the device has no kernels for that";
    return !why
               ? 0
               : ERR(UNSUPPORTED, "%s: chunks cannot move to other positions (moved_chunks %u): %s",
                     m->what, c->chunks, why);
}

/* Checks that at least some rows can be encoded later. */
static int agree_rungs(const struct exec *x)
{
    for (uint32_t i = 0; i < x->n_groups; i++)
        if (x->group[i].n_rungs) return 0;
    return ERR(
        UNSUPPORTED,
        "%s: on_full \"encode\" has nothing to encode: no layer keeps all of its rows, in heads of "
        "8 to 256 values; use on_full \"offload\"",
        x->m->what);
}

/* Checks that the model and the preset agree.  Sinks are checked first: their default length is beyond any
 * model's. */
static int check_preset(const struct exec *x, const struct exec_config *c)
{
    const struct model *m = x->m;
    if (c->chunks) TRY(agree_chunks(x, c));
    if (c->preset.rungs) TRY(agree_rungs(x));
    if (m->no_sinks && exec_sinks(x))
        return ERR(UNSUPPORTED, "%s: a sink cache cannot be exact with this model: %s", m->what,
                   m->no_sinks);
    if (m->learned_positions && x->max_len > m->context)
        return ERR(
            LIMIT,
            "%s: max_cache_len is %u, but the model has learned positions for %u tokens only",
            m->what, x->max_len, m->context);
    return 0;
}

int exec_tier_open(struct dev_queue *queue, const char *dir, struct kv_tier **out)
{
    /* bytes of addresses; only rows that are used take memory */
    const size_t room = (size_t)1 << 40;
    return dev_base(queue)->kind->is_host ? kv_tier_file_open(dir, NULL, out)
                                          : kv_tier_memory_open(queue, room, out);
}

struct kv_config exec_store(const struct model *m, const struct exec_config *c)
{
    return (struct kv_config){
        .dev = m->dev,
        .max_seqs = EXEC_HANDLES * c->max_seqs,
        .lanes = 2 * c->max_seqs,
        /* one for each sequence of a call, and one for recomputed rows */
        .marks = 2 * c->max_seqs + 2,
        .redo = regime_rows(m, c->max_len),
        .max_tokens = MAX(c->step_tokens, c->encoder_rows),
        /* a sequence at its longest must be able to begin a step for one more row, to read its rows */
        .max_len = MAX(c->max_len + 1, c->encoder_rows),
        .pool_bytes = c->pool_bytes,
        .streaming = c->streaming,
        .stage_bytes = c->stage_bytes,
        .index = !c->no_index,
        /* other caches are refused by check_preset(), with a sentence */
        .borrows = c->streaming == KV_RESIDENT ? c->chunks : 0,
    };
}

static int store(struct exec *x, const struct exec_config *c)
{
    const struct model *m = x->m;
    x->site = mem_array(m->n_sites, sizeof *x->site);
    x->group = mem_array(m->n_sites, sizeof *x->group);
    if (!x->site || !x->group) return ERR_NOMEM;
    int n = preset_groups(m->site, m->n_sites, &c->preset, x->group, x->site);
    if (n < 0) return n;
    x->n_groups = (uint32_t)n;
    struct kv_config k = exec_store(m, c);
    k.queue = x->queue;
    k.group = x->group;
    k.n_groups = x->n_groups;
    k.order = x->site; /* a step visits the store's sites in this order */
    for (uint32_t i = 0; i < m->n_ropes; i++)
        k.turns |= m->rope[i].type == ROPE_DYNAMIC;
    if (c->streaming != KV_RESIDENT) TRY(exec_tier_open(x->queue, c->spill_dir, &k.tier));
    int e = kv_open(&x->kv, &k);
    if (e < 0 && k.tier) k.tier->close(k.tier);
    return e;
}

static uint32_t widest_tile(const struct exec *x)
{
    uint32_t tile = 0;
    for (uint32_t i = 0; i < x->n_groups; i++)
        tile = MAX(tile, MAX(x->group[i].seal.tile,
                             x->group[i].n_rungs ? x->group[i].rung[0].seal.tile : 0));
    return tile;
}

int exec_open(const struct model *m, const struct exec_config *c, struct exec **out)
{
    struct exec *x = mem_alloc(sizeof *x);
    if (!x) return ERR_NOMEM;
    x->m = m;
    x->compute = c->compute;
    x->step_tokens = c->step_tokens;
    x->max_seqs = c->max_seqs;
    x->max_len = c->max_len;
    x->encoder_rows = c->encoder_rows;
    x->regime_rows = regime_rows(m, c->max_len);
    x->borrows = c->chunks ? 2 * c->max_seqs * c->chunks : 0;
    x->n_handles = EXEC_HANDLES * c->max_seqs;
    x->reserve = c->reserve;
    x->encodes = c->preset.rungs;
    x->streaming = c->streaming;
    struct dev_config d = {c->threads, c->isa};
    int e = (x->pass = mem_alloc(sizeof *x->pass)) ? 0 : ERR_NOMEM;
    if (e >= 0) e = dev_queue_open(m->dev, &d, &x->queue);
    if (e >= 0) e = store(x, c);
    if (e >= 0) e = check_preset(x, c);
    if (e >= 0) e = buffers(x);
    if (e >= 0) e = record_graphs(x, widest_tile(x));
    if (e < 0) {
        exec_close(x);
        return e;
    }
    *out = x;
    return 0;
}

void exec_close(struct exec *x)
{
    if (!x) return;
    if (x->kv) kv_close(x->kv);
    if (x->group) preset_close(x->group, x->n_groups);
    if (x->queue) dev_queue_close(x->queue);
    graph_close(x->graph);
    graph_close(x->encode);
    struct pass *p = x->pass;
    if (p) {
        void *own[] = {p->pos.host, p->ids.host, p->wanted.host, p->end, p->column,
                       p->span,     p->accepted, p->shown,       p};
        for (size_t i = 0; i < countof(own); i++)
            mem_free(own[i]);
    }
    mem_free(x->site);
    mem_free(x->group);
    lent_close(x->lent);
    feed_close(x);
    mem_free(x);
}

/* Sets the id, position and turn end of token t of the step.  It is token j of its span, whose first row is `len`. */
static int prepare_token(struct exec *x, const struct exec_span *s, uint32_t len, uint32_t j,
                         uint32_t t)
{
    struct pass *p = x->pass;
    const struct exec_feed *f = s->feed;
    const int32_t *own = s->source ? s->source->ids : s->rows.tok;
    int32_t id = f ? (f->embeds ? 0 : f->tok[s->at + j]) : own ? own[j] : 0;
    if (id < 0 || (uint32_t)id >= x->m->vocab)
        return ERR(ARG, "token id %d is outside the vocabulary of %u", id, x->m->vocab);
    uint32_t pos = f && f->pos ? f->pos[s->at + j] : len + j;
    ((int32_t *)p->ids.host)[t] = id;
    ((uint32_t *)p->pos.host)[t] = s->source ? pos + s->source->first : pos;
    p->end[t] = f && f->ends ? f->ends[s->at + j] : MAX(s->turn_end, len + j);
    return 0;
}

/* True if the caller wants the logits of token j of a span. */
static bool wants_logits(const struct exec_span *s, uint32_t j)
{
    if (s->feed && s->feed->want) return s->feed->want[s->at + j];
    return j >= s->rows.n - s->n_logits;
}

/* Fills in the inputs of the step, in span order. */
static int prepare_inputs(struct exec *x, const struct exec_span *span, uint32_t n)
{
    struct pass *p = x->pass;
    uint32_t t = 0, most = (n && span[0].rows.cross ? x->encode : x->graph)->tokens;
    p->fed = span;
    p->n_fed = n;
    p->n_wanted = 0;
    p->embeds = p->probed = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct exec_span *s = &span[i];
        struct kv_salt salt = kv_salt(x->kv, s->rows.seq);
        uint32_t len = s->rows.cross ? 0 : kv_len(x->kv, s->rows.seq), regime = salt.regime;
        uint32_t pad = salt.pad;
        p->embeds |= s->feed && s->feed->embeds;
        p->probed |= s->feed ? s->feed->probe != NULL : s->source && s->source->probe;
        if (s->rows.n > most - t)
            return ERR(
                LIMIT,
                "a step of %u tokens or more, step_tokens is %u; raise step_tokens or split the step",
                t + s->rows.n, most);
        for (uint32_t j = 0; j < s->rows.n; j++, t++) {
            TRY(prepare_token(x, s, len, j, t));
            p->column[t] = len + j + pad;
            if (x->regime_rows && !x->lender) p->end[t] = regime ? regime - 1 : 0;
            if (wants_logits(s, j)) ((uint32_t *)p->wanted.host)[p->n_wanted++] = t;
        }
        p->span[i] = s->rows;
    }
    p->n = t;
    dev_put(p->queue, p->ids.at, p->ids.host, t * sizeof(uint32_t));
    dev_put(p->queue, p->pos.at, p->pos.host, t * sizeof(uint32_t));
    dev_put(p->queue, p->wanted.at, p->wanted.host, p->n_wanted * sizeof(uint32_t));
    return 0;
}

static int compute_logits(struct exec *x, float *logits)
{
    struct pass *p = x->pass;
    const struct model *m = x->m;
    uint32_t row = p->n_wanted;
    if (row == 0) return 0;
    size_t bytes = (size_t)row * m->vocab * sizeof *logits;
    float *y = dev_lend(x->queue, logits, bytes);
    if (!y) return ERR_NOMEM;
    if (!p->narrow) dev_rows(x->queue, p->h, p->wanted.at, row, m->hidden, p->rows);
    norm_rows(x->queue, &x->ends.norm, p->narrow ? p->h : p->rows, row, m->hidden, p->rows);
    if (m->head_scale != 0) dev_scale(x->queue, p->rows, m->head_scale, row, m->hidden);
    struct dev_mm mm = {&x->ends.head, x->ends.bias, y, m->vocab};
    dev_matmul(x->queue, x->compute, p->rows, m->hidden, row, &mm, 1);
    if (m->logit_softcap) dev_softcap(x->queue, y, m->logit_softcap, row, m->vocab);
    dev_get(x->queue, logits, y, bytes);
    return 0;
}

int exec_step(struct exec *x, const struct exec_span *span, uint32_t n, float *logits)
{
    return exec_step_judged(x, span, n, logits, NULL, NULL);
}

int exec_step_judged(struct exec *x, const struct exec_span *span, uint32_t n, float *logits,
                     exec_judge judge, void *ctx)
{
    struct pass *p = x->pass;
    const struct graph *g = n && span[0].rows.cross ? x->encode : x->graph;
    if (!g) return ERR(UNSUPPORTED, "%s: %s has no encoder", x->m->what, x->m->arch_name);
    TRY(prepare_inputs(x, span, n));
    TRY(kv_begin(x->kv, p->span, n, &p->step));
    uint32_t tokens = p->n;
    p->logits = logits != NULL;
    p->narrow = false;
    int e = graph_replay(g, p);
    p->n = tokens;
    if (e >= 0 && logits) e = compute_logits(x, logits);
    if (e >= 0 && p->probed) probe_last(p);
    if (e >= 0) e = dev_finish(x->queue);
    if (e < 0) {
        kv_abort(p->step);
        return e;
    }
    x->computed += p->n;
    if (!judge) return kv_commit(p->step, NULL);
    for (uint32_t i = 0; i < n; i++)
        p->accepted[i] = span[i].rows.n;
    e = judge(ctx, logits, p->accepted);
    if (e < 0)
        kv_abort(p->step);
    else
        e = kv_commit(p->step, p->accepted);
    return e;
}

/* Gives a new sequence the reserve that the preset demands, and returns it.  If there is no room, drops the
 * sequence. */
static int hand_out(struct exec *x, kv_seq s, kv_seq *out)
{
    int e = x->reserve ? kv_reserve(x->kv, s, x->max_len) : 0;
    if (e < 0) {
        kv_drop(x->kv, s);
        return e;
    }
    *out = s;
    return 0;
}

int exec_new(struct exec *x, const struct kv_salt *salt, kv_seq *out)
{
    kv_seq s;
    TRY(kv_new(x->kv, salt, &s));
    return hand_out(x, s, out);
}

int exec_fork(struct exec *x, kv_seq from, kv_seq *out)
{
    kv_seq s;
    TRY(kv_fork(x->kv, from, &s));
    return hand_out(x, s, out);
}
