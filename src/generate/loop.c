/* loop.c - the generation loop: prefill, then choose, append, stop, feed, row by row in one batch.
 *
 * Rows are independent sequences; nothing is padded.  A row that ends leaves the batch.  The last token chosen is
 * never fed, as in the reference.  A sequence the caller handed in is forked first (references only), so a failure
 * gives it back unchanged.  Without a cache (use_cache false) every step feeds everything again into a fresh
 * sequence: the oracle the other ways are compared with. */
#include "generate/loop.h"
#include "generate/generate.h"
#include "generate/notice.h"
#include "model/model.h"
#include "tok/tok.h"

#include <string.h>
#include <time.h>

struct row {
    const kvik_prompt *prompt;
    kv_seq seq, backup;
    int32_t *ids;                      /* masked columns left out; prompt, then generated */
    uint32_t *ends;                    /* turn ends for the recompute path, else NULL */
    uint32_t n, n_prompt, have, limit; /* have: tokens fed; limit: new tokens at most */
    uint32_t reused;
    bool done;
    enum kvik_finish finish;
    struct tok_stream *stream;
    struct gen_stop *stop;
    struct buf text;
};
struct run {
    struct exec *x;
    const struct tok *tok;
    const kvik_generation *g;
    const kvik_hooks *hooks;
    struct gen_chain *chain;
    struct row *row;
    uint32_t n, steps;
    float *logits, *scores; /* [n][vocab], [vocab] */
    struct exec_feed *feed; /* [n] */
    float *kept;            /* [steps][n][vocab] */
    size_t kept_cap;
    struct buf piece;
    bool told; /* that pages stream */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* max_new_tokens, or max_length less the longest prompt, or 20 within the context as the reference counts them. */
static int new_tokens(const struct run *r, uint32_t *out)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < r->n; i++)
        longest = MAX(longest, r->row[i].prompt->n);
    if (r->g->max_new_tokens) {
        *out = r->g->max_new_tokens;
        return 0;
    }
    size_t max = r->g->max_length;
    if (!max) max = MIN(longest + 20, (size_t)r->x->m->context);
    if (longest >= max)
        return ERR(
            ARG,
            "the prompt has %zu tokens and max_length is %zu: nothing can be generated; raise "
            "max_length or set max_new_tokens",
            longest, max);
    *out = (uint32_t)(max - longest);
    return 0;
}

/* A stop string may begin in the prompt, but must end in what is generated, as in the reference. */
static int stop_begin(struct run *r, struct row *w)
{
    TRY(gen_stop_new(r->g->stop_strings, r->g->n_stop_strings, &w->stop));
    if (!w->stop) return 0;
    struct buf text;
    buf_init(&text, (size_t)1 << 30);
    int e = tok_decode(r->tok, w->ids, w->n_prompt, true, &text);
    size_t at = 0;
    while (e >= 0 && at < text.len && gen_stop_put(w->stop, text.data + at, text.len - at, &at))
        ;
    buf_done(&text);
    return e;
}

static int row_begin(struct run *r, struct row *w, uint32_t index, uint32_t limit)
{
    const kvik_prompt *p = w->prompt;
    if (p->n == 0 || !p->ids) return ERR(ARG, "row %u: the prompt has no tokens", index);
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += !p->attention_mask || p->attention_mask[i];
    if (n == 0) return ERR(ARG, "row %u: the attention mask hides every token", index);
    uint32_t max_len = r->x->max_len;
    if (n > max_len)
        return ERR(
            LIMIT,
            "row %u: the prompt has %zu tokens, more than the %u the cache holds (the model's context is %u)",
            index, n, max_len, r->x->m->context);
    if (r->x->reserve && n + limit - 1 > max_len)
        return ERR(
            FULL,
            "row %u: %zu prompt tokens and %u new ones need a static cache of %zu, max_cache_len is %u; "
            "raise it or lower max_new_tokens",
            index, n, limit, n + limit - 1, max_len);
    w->limit = (uint32_t)MIN((size_t)limit, max_len - n + 1);
    w->n = w->n_prompt = (uint32_t)n;
    w->ids = mem_array(n + w->limit, sizeof *w->ids);
    if (!w->ids) return ERR_NOMEM;
    for (size_t i = 0, k = 0; i < p->n; i++)
        if (!p->attention_mask || p->attention_mask[i]) w->ids[k++] = p->ids[i];
    if (!r->g->use_cache) {
        if (p->seq)
            return ERR(ARG, "row %u: a sequence cannot be continued with use_cache false", index);
        w->ends = mem_array(n + w->limit, sizeof *w->ends);
        if (!w->ends) return ERR_NOMEM;
        for (uint32_t i = 0; i < w->n_prompt + w->limit; i++)
            w->ends[i] = MAX(i, w->n_prompt - 1);
    }
    size_t room = 256 + 8 * (size_t)w->limit;
    buf_init(&w->text, (size_t)1 << 30);
    if (r->tok) {
        TRY(tok_stream_new(r->tok, true, &w->stream));
        w->text.data = mem_alloc(room); /* room up front: decoding allocates nothing */
        if (!w->text.data) return ERR_NOMEM;
        w->text.cap = room;
    } else if (r->g->n_stop_strings) {
        return ERR(ARG, "stop_strings need a tokenizer, and the model has none");
    }
    return stop_begin(r, w);
}

/* The longest prefix the sequence already holds, at most all but the last token. */
static int sync(struct run *r, struct row *w)
{
    struct exec *x = r->x;
    if (!w->prompt->seq) return exec_new(x, &w->seq);
    w->seq = w->prompt->seq;
    uint32_t len = kv_len(x->kv, w->seq), same = 0;
    const int32_t *known = kv_tokens(x->kv, w->seq);
    if (!known) return ERR(STALE, "the sequence was dropped");
    while (same < len && same + 1 < w->n && known[same] == w->ids[same])
        same++;
    if (len && !x->reserve) TRY(kv_fork(x->kv, w->seq, &w->backup));
    TRY(kv_trim(x->kv, w->seq, same, &w->have));
    w->reused = w->have;
    return 0;
}

static int keep_logits(struct run *r)
{
    size_t vocab = r->x->m->vocab, step = vocab * r->n;
    if (!r->g->output_logits) return 0;
    if (r->steps == r->kept_cap) {
        size_t cap = r->kept_cap ? 2 * r->kept_cap : 16;
        float *p = mem_grow(r->kept, cap, step * sizeof *p);
        if (!p) return ERR_NOMEM;
        r->kept = p;
        r->kept_cap = cap;
    }
    float *at = r->kept + r->steps * step;
    memset(at, 0, step * sizeof *at);
    for (uint32_t i = 0, k = 0; i < r->n; i++)
        if (!r->row[i].done) memcpy(at + i * vocab, r->logits + k++ * vocab, vocab * sizeof *at);
    return 0;
}

static int feed_rows(struct run *r, uint32_t chunk, exec_progress progress)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        if (!r->g->use_cache) TRY(kv_new(r->x->kv, 0, &w->seq));
        r->feed[k++] = (struct exec_feed){
            .seq = w->seq, .tok = w->ids + w->have, .n = w->n - w->have, .ends = w->ends};
    }
    int e =
        exec_feed(r->x, r->feed, k, chunk, r->logits, progress, r->hooks ? r->hooks->ctx : NULL);
    (void)gen_notice_full(r->x, r->hooks, &r->told);
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        if (r->g->use_cache) {
            if (e >= 0) w->have = w->n;
        } else {
            kv_drop(r->x->kv, w->seq);
            w->seq = 0;
        }
    }
    return e;
}

static int emit(struct run *r, uint32_t i, int32_t id, bool *cancel)
{
    struct row *w = &r->row[i];
    size_t keep;
    buf_clear(&r->piece);
    if (w->stream) {
        TRY(id >= 0 ? tok_stream_put(w->stream, id, &r->piece)
                    : tok_stream_end(w->stream, &r->piece));
        TRY(buf_append(&w->text, r->piece.data, r->piece.len));
        if (id >= 0 && !w->done && gen_stop_put(w->stop, r->piece.data, r->piece.len, &keep)) {
            w->done = true;
            w->finish = KVIK_FINISH_STOP;
        }
    }
    const kvik_hooks *h = r->hooks;
    if (h && h->on_token && !h->on_token(h->ctx, i, id, r->piece.data ? r->piece.data : ""))
        *cancel = true;
    return 0;
}

static bool is_eos(const kvik_generation *g, int32_t id)
{
    for (uint32_t i = 0; i < g->n_eos; i++)
        if (g->eos_token_id[i] == id) return true;
    return false;
}

/* One token for every row that runs; false when none is left. */
static int choose(struct run *r, bool *running)
{
    size_t vocab = r->x->m->vocab;
    bool cancel = false;
    TRY(keep_logits(r));
    *running = false;
    for (uint32_t i = 0, k = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        memcpy(r->scores, r->logits + k++ * vocab, vocab * sizeof *r->scores);
        struct gen_row view = {w->ids, w->n, w->n_prompt};
        gen_chain_apply(r->chain, &view, r->scores);
        int32_t id = r->g->do_sample ? gen_sample(r->chain, r->scores, r->g->seed, i, r->steps)
                                     : gen_argmax(r->scores, (uint32_t)vocab);
        w->ids[w->n++] = id;
        w->finish = KVIK_FINISH_LENGTH;
        w->done = w->n - w->n_prompt >= w->limit;
        if (is_eos(r->g, id)) {
            w->done = true;
            w->finish = KVIK_FINISH_EOS;
        }
        TRY(emit(r, i, id, &cancel));
        if (w->done) TRY(emit(r, i, -1, &cancel));
    }
    r->steps++;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (cancel && !w->done) {
            w->done = true;
            w->finish = KVIK_FINISH_CANCELLED;
            TRY(emit(r, i, -1, &cancel));
        }
        *running |= !w->done;
    }
    return 0;
}

static int result_of(struct run *r, kvik_result *out)
{
    out->row = mem_array(r->n, sizeof *out->row);
    if (!out->row) return ERR_NOMEM;
    out->n_rows = r->n;
    out->steps = r->steps;
    out->vocab = r->x->m->vocab;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        kvik_row *o = &out->row[i];
        uint32_t fresh = w->n - w->n_prompt;
        o->n_prompt = w->prompt->n;
        o->n = w->prompt->n + fresh;
        o->ids = mem_array(o->n, sizeof *o->ids);
        if (!o->ids) return ERR_NOMEM;
        memcpy(o->ids, w->prompt->ids, o->n_prompt * sizeof *o->ids);
        memcpy(o->ids + o->n_prompt, w->ids + w->n_prompt, fresh * sizeof *o->ids);
        o->finish = w->finish;
        o->reused = w->reused;
        out->prompt_tokens += w->n_prompt;
        out->new_tokens += fresh;
        if (w->stream && !(o->text = buf_take(&w->text))) return ERR_NOMEM;
    }
    out->logits = r->kept;
    r->kept = NULL;
    return 0;
}

/* A sequence of the caller's becomes what it was if the call failed: its backup, or empty.  A static one keeps what it
 * had in common with the prompt, since its reserve cannot be forked. */
static void row_settle(struct exec *x, const struct row *w, bool failed)
{
    uint32_t have;
    if (!w->prompt->seq) {
        if (w->seq) kv_drop(x->kv, w->seq);
    } else if (w->backup) {
        exec_settle(x, w->seq, w->backup, failed);
    } else if (failed && w->seq && !x->reserve) {
        (void)kv_trim(x->kv, w->seq, 0, &have);
    }
}

static void run_end(struct run *r, bool failed)
{
    for (uint32_t i = 0; r->row && i < r->n; i++) {
        struct row *w = &r->row[i];
        row_settle(r->x, w, failed);
        if (w->stream) tok_stream_drop(w->stream);
        gen_stop_drop(w->stop);
        buf_done(&w->text);
        mem_free(w->ids);
        mem_free(w->ends);
    }
    if (r->chain) gen_chain_drop(r->chain);
    buf_done(&r->piece);
    mem_free(r->row);
    mem_free(r->logits);
    mem_free(r->scores);
    mem_free(r->feed);
    mem_free(r->kept);
}

static int run_begin(struct run *r, const kvik_prompt *prompt)
{
    uint32_t limit;
    size_t vocab = r->x->m->vocab, logits;
    if (!ck_mul(vocab * sizeof(float), r->n, &logits)) return ERR(NOMEM, "too many rows");
    buf_init(&r->piece, (size_t)1 << 30);
    r->row = mem_array(r->n, sizeof *r->row);
    if (!r->row) return ERR_NOMEM;
    for (uint32_t i = 0; i < r->n; i++)
        r->row[i].prompt = &prompt[i];
    r->logits = mem_aligned(logits);
    r->scores = mem_aligned(vocab * sizeof *r->scores);
    r->feed = mem_array(r->n, sizeof *r->feed);
    if (!r->logits || !r->scores || !r->feed) return ERR_NOMEM;
    TRY(gen_chain_new(r->g, (uint32_t)vocab, &r->chain));
    TRY(new_tokens(r, &limit));
    for (uint32_t i = 0; i < r->n; i++)
        TRY(row_begin(r, &r->row[i], i, limit));
    for (uint32_t i = 0; r->g->use_cache && i < r->n; i++)
        TRY(sync(r, &r->row[i]));
    return 0;
}

int gen_run(struct exec *x, const struct tok *tok, const kvik_generation *g,
            const kvik_prompt *prompt, uint32_t n, const kvik_hooks *hooks, kvik_result **out)
{
    struct run r = {.x = x, .tok = tok, .g = g, .hooks = hooks, .n = n};
    if (n == 0) return ERR(ARG, "no prompt");
    if (n > x->max_seqs) return ERR(LIMIT, "%u rows, the cache was opened for %u", n, x->max_seqs);
    TRY(gen_validate(g));
    kvik_result *res = mem_alloc(sizeof *res);
    if (!res) return ERR_NOMEM;
    double t0 = seconds(), t1 = t0;
    uint64_t computed = x->computed;
    (void)gen_notice_full(x, NULL, &r.told); /* in an earlier run: no news */
    int e = run_begin(&r, prompt);
    if (e >= 0) e = feed_rows(&r, g->prefill_chunk_size, hooks ? hooks->on_progress : NULL);
    t1 = seconds();
    bool running = true;
    while (e >= 0) {
        e = choose(&r, &running);
        if (e < 0 || !running) break;
        e = feed_rows(&r, g->use_cache ? 0 : g->prefill_chunk_size, NULL);
    }
    if (e >= 0) e = result_of(&r, res);
    res->prefill_seconds = t1 - t0;
    res->decode_seconds = seconds() - t1;
    res->computed_tokens = x->computed - computed;
    run_end(&r, e < 0);
    if (e < 0) {
        gen_result_free(res);
        return e;
    }
    *out = res;
    return 0;
}

void gen_result_free(kvik_result *r)
{
    if (!r) return;
    for (uint32_t i = 0; r->row && i < r->n_rows; i++) {
        mem_free(r->row[i].ids);
        mem_free(r->row[i].text);
    }
    mem_free(r->row);
    mem_free(r->logits);
    mem_free(r);
}
