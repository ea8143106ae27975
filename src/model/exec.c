/* exec.c - one forward over the store, and feeds of any length made of such steps.
 *
 * A step is begin, graph, logits, commit: all or nothing.  A feed that needs several steps first forks each
 * sequence that already holds rows (a fork is references only); if a later step fails or is cancelled the
 * sequence becomes that fork again, so the caller's cache is exactly as it was.  How a feed is cut into steps
 * changes no bit (dev.h, canonical order) and no form (rule 1). */
#include "model/model.h"

#include <string.h>

struct feed_state { /* of one feed while it runs */
    uint32_t done;
    uint32_t start; /* rows before the feed */
    kv_seq backup;  /* 0: none */
};

static int buffers(struct exec *x)
{
    const struct model *m = x->m;
    struct pass *p = x->pass;
    size_t n = x->step_tokens, q = (size_t)m->n_heads * m->head_dim,
           kv = (size_t)m->n_kv_heads * m->head_dim;
    const struct {
        float **at;
        size_t width;
    } f[] = {{&p->cos, m->rope.rot / 2},
             {&p->sin, m->rope.rot / 2},
             {&p->h, m->hidden},
             {&p->norm, m->hidden},
             {&p->q, q},
             {&p->k, kv},
             {&p->v, kv},
             {&p->att, q},
             {&p->gate, m->ffn},
             {&p->up, m->ffn},
             {&p->rows, m->hidden}};
    for (size_t i = 0; i < countof(f); i++) {
        size_t bytes;
        if (!ck_mul(n, f[i].width * sizeof(float), &bytes))
            return ERR(NOMEM, "activations too large");
        *f[i].at = mem_aligned(bytes);
        if (!*f[i].at) return ERR_NOMEM;
    }
    p->pos = mem_array(n, sizeof *p->pos);
    p->end = mem_array(n, sizeof *p->end);
    p->ids = mem_array(n, sizeof *p->ids);
    p->span = mem_array(n, sizeof *p->span);
    if (!p->pos || !p->end || !p->ids || !p->span) return ERR_NOMEM;
    x->feed = mem_array(2 * (size_t)x->max_seqs, sizeof *x->feed);
    x->span = mem_array(2 * (size_t)x->max_seqs, sizeof *x->span);
    x->call = mem_array(x->max_seqs, sizeof *x->call);
    if (!x->feed || !x->span || !x->call) return ERR_NOMEM;
    p->x = x;
    p->dev = x->dev;
    p->tok = p->ids;
    return 0;
}

#pragma weak kv_tier_file_open /* until tier_file.c is there */
static int tier_open(const char *dir, struct kv_tier **out)
{
    if (!kv_tier_file_open) return ERR(UNSUPPORTED, "offloaded caches are not in this build");
    return kv_tier_file_open(dir, NULL, out);
}

static int store(struct exec *x, const struct exec_config *c)
{
    const struct model *m = x->m;
    x->site = mem_array(m->n_layers, sizeof *x->site);
    x->group = mem_array(m->n_layers, sizeof *x->group);
    if (!x->site || !x->group) return ERR_NOMEM;
    int n = kv_preset_groups(m->layer, m->n_layers, &c->preset, x->group, x->site);
    if (n < 0) return n;
    x->n_groups = (uint32_t)n;
    struct kv_config k = {
        .group = x->group,
        .n_groups = x->n_groups,
        .max_seqs = 2 * c->max_seqs + 2, /* each may need a fork to fall back to */
        .max_tokens = c->step_tokens,
        .max_len = c->max_len,
        .pool_bytes = c->pool_bytes,
        .streaming = c->streaming,
        .stage_bytes = c->stage_bytes,
        .order = x->site, /* a step visits the layers in their order */
    };
    if (c->streaming != KV_RESIDENT) TRY(tier_open(c->spill_dir, &k.tier));
    int e = kv_open(&x->kv, &k);
    if (e < 0 && k.tier) k.tier->close(k.tier);
    return e;
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
    x->reserve = c->reserve;
    struct dev_config d = {c->threads, c->isa};
    uint32_t q = m->n_heads * m->head_dim;
    struct dev_limits lim = {
        .tokens = c->step_tokens,
        .k = MAX(MAX(m->hidden, m->ffn), q),
        .n = MAX(m->vocab, m->ffn),
        .heads = m->n_heads,
        .head_dim = m->head_dim,
        .max_len = c->max_len,
        .tile = c->preset.codec ? c->preset.codec->tile : 0,
    };
    int e = (x->pass = mem_alloc(sizeof *x->pass)) ? 0 : ERR_NOMEM;
    if (e >= 0) e = dev_open(&d, &x->dev);
    if (e >= 0) e = dev_reserve(x->dev, &lim);
    if (e >= 0) e = store(x, c);
    if (e >= 0) e = buffers(x);
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
    if (x->group) kv_preset_close(x->group, x->n_groups);
    if (x->dev) dev_close(x->dev);
    struct pass *p = x->pass;
    if (p) {
        void *own[] = {p->cos,  p->sin, p->h,    p->norm, p->q,   p->k,   p->v,    p->att,
                       p->gate, p->up,  p->rows, p->pos,  p->end, p->ids, p->span, p};
        for (size_t i = 0; i < countof(own); i++)
            mem_free(own[i]);
    }
    mem_free(x->site);
    mem_free(x->group);
    mem_free(x->feed);
    mem_free(x->call);
    mem_free(x->span);
    mem_free(x);
}

size_t exec_row_bytes(const struct model *m, const struct kv_preset_options *o)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < m->n_layers; i++)
        sum += 2 * (size_t)m->layer[i].heads * m->layer[i].dim * dtype_size(o->dtype);
    return sum;
}

/* Tokens, positions and turn ends of the step, in span order. */
static int prepare(struct exec *x, const struct exec_span *span, uint32_t n)
{
    struct pass *p = x->pass;
    uint32_t t = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t len = kv_len(x->kv, span[i].seq);
        if (span[i].n > x->step_tokens - t)
            return ERR(LIMIT, "a step of more than %u tokens", x->step_tokens);
        for (uint32_t j = 0; j < span[i].n; j++, t++) {
            int32_t id = span[i].tok[j];
            if (id < 0 || (uint32_t)id >= x->m->vocab)
                return ERR(ARG, "token id %d is outside the vocabulary of %u", id, x->m->vocab);
            p->ids[t] = id;
            p->pos[t] = len + j;
            p->end[t] = span[i].ends ? span[i].ends[j] : MAX(span[i].turn_end, len + j);
        }
        p->span[i] = (struct kv_span){.seq = span[i].seq,
                                      .n = span[i].n,
                                      .tok = span[i].tok,
                                      .turn = span[i].turn,
                                      .last = span[i].last};
    }
    p->n = t;
    return 0;
}

static void head(struct exec *x, const struct exec_span *span, uint32_t n, float *logits)
{
    struct pass *p = x->pass;
    const struct model *m = x->m;
    uint32_t row = 0, t = 0;
    for (uint32_t i = 0; i < n; t += span[i].n, i++)
        for (uint32_t j = span[i].n - span[i].n_logits; j < span[i].n; j++, row++)
            memcpy(p->rows + (size_t)row * m->hidden, p->h + (size_t)(t + j) * m->hidden,
                   m->hidden * sizeof *p->rows);
    if (row == 0) return;
    dev_rmsnorm(x->dev, p->rows, m->final_norm, m->norm_eps, row, m->hidden, p->rows);
    struct dev_mm mm = {&m->head, NULL, logits, m->vocab};
    dev_matmul(x->dev, x->compute, p->rows, m->hidden, row, &mm, 1);
}

int exec_step(struct exec *x, const struct exec_span *span, uint32_t n, float *logits)
{
    struct pass *p = x->pass;
    TRY(prepare(x, span, n));
    TRY(kv_begin(x->kv, p->span, n, &p->step));
    rope_fill(&x->m->rope, p->pos, p->end, p->n, p->cos, p->sin);
    int e = x->m->arch->forward(x->m, p);
    if (e < 0) {
        kv_abort(p->step);
        return e;
    }
    if (logits) head(x, span, n, logits);
    x->computed += p->n;
    return kv_commit(p->step, NULL);
}

void exec_settle(struct exec *x, kv_seq seq, kv_seq backup, bool failed)
{
    if (!backup) return;
    if (failed) (void)kv_reorder(x->kv, (kv_seq[]){seq, backup}, (uint32_t[]){1, 0}, 2);
    (void)kv_drop(x->kv, backup);
}

static void restore(struct exec *x, const struct exec_feed *f, struct feed_state *g, bool failed)
{
    uint32_t have;
    if (!g->backup && failed && g->done) (void)kv_trim(x->kv, f->seq, g->start, &have);
    exec_settle(x, f->seq, g->backup, failed);
}

int exec_new(struct exec *x, kv_seq *out)
{
    kv_seq s;
    TRY(kv_new(x->kv, 0, &s));
    int e = x->reserve ? kv_reserve(x->kv, s, x->max_len) : 0;
    if (e < 0) {
        kv_drop(x->kv, s);
        return e;
    }
    *out = s;
    return 0;
}

/* The spans of the next step, *n_out of them. */
static void next_step(struct exec *x, const struct exec_feed *feed, struct feed_state *g,
                      uint32_t n, uint32_t chunk, struct exec_span *span, uint32_t *n_out)
{
    uint32_t room = x->step_tokens, k = 0;
    for (uint32_t i = 0; i < n && room; i++) {
        uint32_t left = feed[i].n - g[i].done, take = MIN(MIN(left, chunk), room);
        if (!take) continue;
        bool last = take == left;
        span[k++] = (struct exec_span){
            .seq = feed[i].seq,
            .tok = feed[i].tok + g[i].done,
            .n = take,
            .turn_end = g[i].start + feed[i].n - 1,
            .turn = feed[i].n > 1,
            .last = last,
            .n_logits = feed[i].all ? take
                        : last      ? 1
                                    : 0,
            .ends = feed[i].ends ? feed[i].ends + g[i].done : NULL,
        };
        room -= take;
    }
    *n_out = k;
}

/* Logits of a step go to rows of the caller's array: with `all`, token order of the feed; else one row a feed. */
static int run_step(struct exec *x, const struct exec_feed *feed, struct feed_state *g, uint32_t n,
                    struct exec_span *span, uint32_t n_span, float *logits, float *tmp)
{
    size_t vocab = x->m->vocab;
    TRY(exec_step(x, span, n_span, tmp));
    uint32_t row = 0;
    size_t out = 0; /* first row of feed i in `logits` */
    for (uint32_t i = 0, s = 0; i < n; i++) {
        if (s < n_span && span[s].seq == feed[i].seq) {
            if (tmp && tmp != logits)
                memcpy(logits + (out + (feed[i].all ? g[i].done : 0)) * vocab, tmp + row * vocab,
                       span[s].n_logits * vocab * sizeof *logits);
            row += span[s].n_logits;
            g[i].done += span[s].n;
            s++;
        }
        out += feed[i].all ? feed[i].n : 1;
    }
    return 0;
}

int exec_feed(struct exec *x, const struct exec_feed *feed, uint32_t n, uint32_t chunk,
              float *logits, exec_progress progress, void *ctx)
{
    uint64_t total = 0, done = 0;
    TRY(checkpoint_recheck(x->m->ck)); /* a mapped file that shrank would be a SIGBUS */
    if (n > 2 * x->max_seqs)
        return ERR(LIMIT, "%u rows, the cache was opened for %u", n, x->max_seqs);
    if (chunk == 0 || chunk > x->step_tokens) chunk = x->step_tokens;
    bool one_step = true;
    for (uint32_t i = 0; i < n; i++) {
        if (feed[i].n == 0) return ERR(ARG, "row %u: no tokens to feed", i);
        uint32_t len = kv_len(x->kv, feed[i].seq);
        if (feed[i].n > x->max_len - MIN(len, x->max_len))
            return ERR(LIMIT,
                       "%u tokens after the %u already cached do not fit in max_cache_len %u",
                       feed[i].n, len, x->max_len);
        total += feed[i].n;
        one_step &= feed[i].n <= chunk;
    }
    one_step &= total <= x->step_tokens;
    struct feed_state *g = x->feed;
    struct exec_span *span = x->span;
    size_t vocab = x->m->vocab, rows = x->step_tokens;
    bool any_all = false;
    for (uint32_t i = 0; i < n; i++)
        any_all |= feed[i].all;
    if (!any_all) rows = MIN(rows, n);
    float *tmp = !logits || one_step ? logits : mem_array(rows, vocab * sizeof *tmp);
    int e = logits && !tmp ? ERR_NOMEM : 0;
    uint32_t started = 0;
    for (; e >= 0 && started < n; started++) {
        g[started] = (struct feed_state){.start = kv_len(x->kv, feed[started].seq)};
        if (!one_step && g[started].start && !x->reserve)
            e = kv_fork(x->kv, feed[started].seq, &g[started].backup);
        if (e < 0) g[started].backup = 0;
    }
    while (e >= 0 && done < total) {
        uint32_t n_span;
        next_step(x, feed, g, n, chunk, span, &n_span);
        for (uint32_t i = 0; i < n_span; i++)
            done += span[i].n;
        e = run_step(x, feed, g, n, span, n_span, logits, tmp);
        if (e >= 0 && progress && !progress(ctx, done, total)) e = ERR(CANCELLED, "cancelled");
    }
    for (uint32_t i = 0; i < started; i++)
        restore(x, &feed[i], &g[i], e < 0);
    if (tmp != logits) mem_free(tmp);
    return e;
}
