/* feed.c - feeds of any length made of steps.
 *
 * A feed that needs several steps first forks each sequence that already holds rows (a fork is references only); if
 * a later step fails or is cancelled the sequence becomes that fork again, so the caller's cache is exactly as it
 * was.  How a feed is cut into steps changes no bit (dev.h, canonical order) and no form (rule 1). */
#include "model/model.h"

#include <string.h>

struct feed_state { /* of one feed while it runs */
    uint32_t done;
    uint32_t start; /* rows before the feed */
    kv_seq backup;  /* 0: none */
};

int feed_open(struct exec *x)
{
    x->feed = mem_array(2 * (size_t)x->max_seqs, sizeof *x->feed);
    x->span = mem_array(2 * (size_t)x->max_seqs, sizeof *x->span);
    x->call = mem_array(x->max_seqs, sizeof *x->call);
    return x->feed && x->span && x->call ? 0 : ERR_NOMEM;
}

void feed_close(struct exec *x)
{
    mem_free(x->feed);
    mem_free(x->call);
    mem_free(x->span);
}

static void restore(struct exec *x, const struct exec_feed *f, struct feed_state *g, bool failed)
{
    uint32_t have;
    if (!g->backup && failed && g->done) (void)kv_trim(x->kv, f->seq, g->start, &have);
    exec_settle(x, f->seq, g->backup, failed);
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
