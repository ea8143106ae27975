/* beam_loop.c - beam search over the cache.
 *
 * A prompt is fed once and forked into num_beams sequences, which share its blocks.  A step feeds one token to every
 * running beam of every prompt in one batch; then the cache follows the search: the sequences are permuted all at
 * once, by reference, so that no row is copied except in the open block of a beam that is continued twice.
 * Without a cache each step feeds every beam's whole text again.
 *
 * Stop strings end a beam like any other end, so the text of every beam is followed in streams of its own.  A
 * sequence of the caller's serves as the first beam, and keeps what it holds of the best row; return_dict_in_generate gives
 * every row a sequence, forked from the beam that has most of it. */
#include "generate/beam.h"
#include "generate/run.h"

#include <string.h>

struct ear { /* one beam's text as stop strings hear it */
    struct tok_stream *stream;
    struct gen_stop *stop;
};
struct item { /* one prompt */
    struct row *row;
    struct beam_search *search;
    kv_seq *seq; /* [beams] owned array; seq[0] is the row's; 0: none */
    struct ear
        *ear[2]; /* [beams] owned; ear[0] is of the running beams; NULL without stop strings */
    uint32_t at; /* its first row of this step's logits */
    bool done;
};
struct beams {
    struct run *r;
    struct item *item; /* [r->n] */
    struct ear trial;
    int32_t *extended;  /* scratch: a candidate's whole text, for the caller's criteria */
    uint32_t n;         /* beams of a prompt */
    uint32_t *from;     /* [n] scratch of reordering */
    bool shared;        /* the prompts have been forked */
    float *kept_scores; /* of this step, or NULL */
};

static void ear_drop(struct ear *e)
{
    if (e->stream) tok_stream_drop(e->stream);
    gen_stop_drop(e->stop);
}

static int ear_copy(struct ear *to, const struct ear *from)
{
    TRY(tok_stream_copy(to->stream, from->stream));
    gen_stop_copy(to->stop, from->stop);
    return 0;
}

/* An ear like the row's own, which has heard the prompt. */
static int ear_new(const struct run *r, const struct row *w, struct ear *e)
{
    TRY(tok_stream_new(r->tok, true, &e->stream));
    TRY(gen_stop_new(r->g->stop_strings, r->g->n_stop_strings, &e->stop));
    gen_stop_copy(e->stop, w->stop);
    return 0;
}

static int ear_hear(struct beams *b, struct ear *e, int32_t id, bool *stops)
{
    struct buf *piece = &b->r->piece;
    size_t keep;
    buf_clear(piece);
    TRY(tok_stream_put(e->stream, id, piece));
    *stops = gen_stop_put(e->stop, piece->data, piece->len, &keep);
    return 0;
}

static int item_begin(struct beams *b, struct item *it, struct row *w)
{
    const struct run *r = b->r;
    struct beam_rules rules = {.beams = b->n,
                               .vocab = r->x->m->vocab,
                               .n_eos = r->g->n_eos,
                               .limit = w->limit,
                               .length_penalty = r->g->length_penalty,
                               .early = r->g->early_stopping};
    it->row = w;
    it->seq = mem_array(b->n, sizeof *it->seq);
    if (!it->seq) return ERR_NOMEM;
    it->seq[0] = w->seq;
    TRY(beam_new(&rules, w->ids, w->n_prompt, &it->search));
    for (int k = 0; w->stop && k < 2; k++) {
        it->ear[k] = mem_array(b->n, sizeof **it->ear);
        if (!it->ear[k]) return ERR_NOMEM;
        for (uint32_t i = 0; i < b->n; i++)
            TRY(ear_new(r, w, &it->ear[k][i]));
    }
    return w->stop && !b->trial.stop ? ear_new(r, w, &b->trial) : 0;
}

static void item_end(struct beams *b, struct item *it)
{
    for (uint32_t i = 0; it->seq && i < b->n; i++)
        if (it->seq[i] && it->seq[i] != it->row->seq) kv_drop(b->r->x->kv, it->seq[i]);
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; it->ear[k] && i < b->n; i++)
            ear_drop(&it->ear[k][i]);
        mem_free(it->ear[k]);
    }
    beam_drop(it->search);
    mem_free(it->seq);
}

/* Row j of a prompt among all rows of logits. */
static uint32_t row_of(const struct beams *b, const struct item *it, uint32_t j)
{
    return (uint32_t)(it - b->item) * b->n + j;
}

/* The raw logits of beam j: all beams of a prompt that was just fed have the same ones. */
static const float *logits_of(const struct beams *b, const struct item *it, uint32_t j)
{
    return b->r->logits + (size_t)(it->at + (b->shared ? j : 0)) * b->r->x->m->vocab;
}

static int keep_logits(struct beams *b)
{
    size_t vocab = b->r->x->m->vocab;
    float *kept;
    TRY(run_keep(b->r, &b->r->kept_scores, b->r->steps, &b->kept_scores));
    TRY(run_keep(b->r, &b->r->kept, b->r->steps, &kept));
    for (uint32_t i = 0; kept && i < b->r->n; i++)
        for (uint32_t j = 0; !b->item[i].done && j < b->n; j++)
            memcpy(kept + ((size_t)i * b->n + j) * vocab, logits_of(b, &b->item[i], j),
                   vocab * sizeof *kept);
    return 0;
}

/* The caller's criteria and max_time on one candidate. */
static bool meets(struct beams *b, const struct item *it, const struct beam_candidate *c,
                  enum kvik_finish *why)
{
    const struct run *r = b->r;
    uint32_t len = it->row->n_prompt + beam_length(it->search);
    memcpy(b->extended, beam_ids(it->search, c->beam), len * sizeof *b->extended);
    b->extended[len] = c->token;
    return run_criteria(r, row_of(b, it, c->beam), b->extended, len + 1, why);
}

/* Which of the candidates end here, and why. */
static int mark_ends(struct beams *b, struct item *it, struct beam_candidate *c, uint32_t n)
{
    bool last = beam_length(it->search) + 1 >= it->row->limit, stops = false;
    bool asks = b->extended != NULL;
    enum kvik_finish why;
    for (uint32_t i = 0; i < n; i++) {
        if (run_ends(b->r->g, c[i].token)) {
            c[i].ends = KVIK_FINISH_EOS;
        } else if (last) {
            c[i].ends = KVIK_FINISH_LENGTH;
        } else if (it->ear[0]) {
            TRY(ear_copy(&b->trial, &it->ear[0][c[i].beam]));
            TRY(ear_hear(b, &b->trial, c[i].token, &stops));
            if (stops) c[i].ends = KVIK_FINISH_STOP;
        }
        if (asks && c[i].ends < 0 && meets(b, it, &c[i], &why)) c[i].ends = (int)why;
    }
    return 0;
}

static int follow_text(struct beams *b, struct item *it)
{
    struct ear *heard = it->ear[0];
    bool stops;
    if (!heard) return 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const struct beam_candidate *c = beam_running(it->search, i);
        TRY(ear_copy(&it->ear[1][i], &heard[c->beam]));
        TRY(ear_hear(b, &it->ear[1][i], c->token, &stops));
    }
    it->ear[0] = it->ear[1];
    it->ear[1] = heard;
    return 0;
}

static int choose_item(struct beams *b, struct item *it)
{
    struct run *r = b->r;
    uint32_t vocab = r->x->m->vocab, n;
    for (uint32_t j = 0; j < b->n; j++) {
        if (j == 0 || b->shared) {
            struct gen_row view = {.ids = beam_ids(it->search, j),
                                   .n = (size_t)it->row->n_prompt + beam_length(it->search),
                                   .n_prompt = it->row->n_prompt,
                                   .pad = it->row->prompt->n - it->row->n_prompt,
                                   .max_length = (size_t)it->row->n_prompt + it->row->limit,
                                   .row = row_of(b, it, j)};
            memcpy(r->scores, logits_of(b, it, j), vocab * sizeof *r->scores);
            beam_log_softmax(r->scores, vocab);
            TRY(run_process(r, &view, r->scores));
        }
        if (b->kept_scores)
            memcpy(b->kept_scores + (size_t)row_of(b, it, j) * vocab, r->scores,
                   vocab * sizeof *r->scores);
        beam_offer(it->search, j, r->scores);
    }
    struct beam_candidate *c = beam_rank(it->search, &n);
    TRY(mark_ends(b, it, c, n));
    it->done = !beam_advance(it->search);
    return it->done ? 0 : follow_text(b, it);
}

/* The sequences become those of the beams just chosen. */
static int follow_cache(struct beams *b, struct item *it)
{
    struct run *r = b->r;
    for (uint32_t i = 1; !b->shared && i < b->n; i++)
        TRY(run_fork(r->x, it->seq[0], &it->seq[i]));
    if (!b->shared) return 0; /* all alike */
    for (uint32_t i = 0; i < b->n; i++)
        b->from[i] = beam_running(it->search, i)->beam;
    return kv_reorder(r->x->kv, it->seq, b->from, b->n);
}

static int choose(struct beams *b, bool *running)
{
    struct run *r = b->r;
    *running = false;
    TRY(keep_logits(b));
    for (uint32_t i = 0; i < r->n; i++) {
        struct item *it = &b->item[i];
        if (it->done) continue;
        TRY(choose_item(b, it));
        if (!it->done && r->g->use_cache) TRY(follow_cache(b, it));
        *running |= !it->done;
    }
    b->shared = true;
    r->steps++;
    return 0;
}

/* Steps of one token each, so that none of them needs forks to fall back to. */
static int feed_cached(struct run *r, uint32_t n)
{
    for (uint32_t at = 0, k; at < n; at += k) {
        k = MIN(n - at, MIN(r->x->step_tokens, kv_step_lanes(r->x->kv)));
        TRY(run_feed(r, at, k, 0, NULL, NULL));
    }
    return 0;
}

static int feed_again(struct run *r, uint32_t n)
{
    uint32_t made = 0;
    int e = 0;
    for (; e >= 0 && made < n; made++)
        if ((e = kv_new(r->x->kv, 0, &r->feed[made].seq)) < 0) break;
    if (e >= 0) e = run_feed(r, 0, n, r->g->prefill_chunk_size, NULL, NULL);
    for (uint32_t i = 0; i < made; i++)
        kv_drop(r->x->kv, r->feed[i].seq);
    return e;
}

/* The beams' last tokens; without a cache their whole texts. */
static int feed_beams(struct beams *b)
{
    struct run *r = b->r;
    bool cached = r->g->use_cache;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        struct item *it = &b->item[i];
        uint32_t len = it->row->n_prompt + beam_length(it->search);
        it->at = n;
        for (uint32_t j = 0; !it->done && j < b->n; j++) {
            const int32_t *ids = beam_ids(it->search, j);
            r->feed[n++] = (struct exec_feed){.seq = it->seq[j],
                                              .tok = cached ? ids + len - 1 : ids,
                                              .n = cached ? 1 : len,
                                              .pad = it->row->pad,
                                              .loose = true,
                                              .ends = it->row->ends};
        }
    }
    return cached ? feed_cached(r, n) : feed_again(r, n);
}

struct meter { /* the caller's progress: tokens of the prompts, then steps */
    const kvik_hooks *hooks;
    uint64_t prompt, steps;
};

static bool on_prompt(void *ctx, uint64_t done, uint64_t total)
{
    struct meter *m = ctx;
    m->prompt = total;
    return m->hooks->on_progress(m->hooks->ctx, done, total + m->steps);
}

static int feed_prompts(struct beams *b, struct meter *m)
{
    struct run *r = b->r;
    bool cached = r->g->use_cache;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        r->feed[i] = (struct exec_feed){.seq = w->seq,
                                        .tok = w->ids + w->have,
                                        .n = w->n - w->have,
                                        .pad = w->pad,
                                        .loose = true,
                                        .ends = w->ends};
        b->item[i].at = i;
        m->steps = MAX(m->steps, w->limit);
    }
    if (!cached) return feed_again(r, r->n);
    return run_feed(r, 0, r->n, r->g->prefill_chunk_size, m->hooks ? on_prompt : NULL, m);
}

/* The beam whose sequence has most of a finished text, and how much of it. */
static uint32_t nearest(const struct beams *b, const struct item *it, const struct beam_done *d,
                        uint32_t *have)
{
    const struct kv *kv = b->r->x->kv;
    uint32_t longest = 0, which = 0, prompt = it->row->n_prompt;
    for (uint32_t j = 0; j < b->n && it->seq[j]; j++) {
        const int32_t *known = kv_tokens(kv, it->seq[j]);
        uint32_t len = MIN(kv_len(kv, it->seq[j]), prompt + d->n - MIN(d->n, 1)), same = 0;
        while (same < len && (same < prompt || known[same] == d->token[same - prompt]))
            same++;
        if (same > longest) which = j;
        longest = MAX(longest, same);
    }
    *have = longest;
    return which;
}

/* The caller's sequence becomes the beam that holds most of the best row; false: it is that of the first beam. */
static bool take_best(struct beams *b, struct item *it, uint32_t which)
{
    struct kv *kv = b->r->x->kv;
    return !which ||
           kv_reorder(kv, (kv_seq[]){it->seq[0], it->seq[which]}, (uint32_t[]){1, 0}, 2) >= 0;
}

static void keep_best(struct beams *b, struct item *it)
{
    const struct row *w = it->row;
    uint32_t longest, have, which = nearest(b, it, beam_best(it->search, 0), &longest);
    if (!w->given) return;
    if (!take_best(b, it, which)) longest = w->n_prompt;
    (void)kv_trim(b->r->x->kv, it->seq[0], longest, &have);
}

/* A sequence with all of a finished text but its last token, as if it had been decoded alone. */
static int give(struct beams *b, struct item *it, const struct beam_done *d, bool first,
                kvik_row *out)
{
    struct exec *x = b->r->x;
    uint32_t prompt = it->row->n_prompt, have, which = nearest(b, it, d, &have);
    if (first && it->row->given) {
        if (!take_best(b, it, which)) have = prompt;
        out->seq = it->row->given;
    } else {
        TRY(run_fork(x, it->seq[which], &out->seq));
    }
    TRY(exec_crop(x, out->seq, have));
    for (uint32_t i = have - prompt; i + 1 < d->n; i++) {
        struct exec_feed f = {
            .seq = out->seq, .tok = d->token + i, .n = 1, .pad = it->row->pad, .loose = true};
        TRY(exec_feed(x, &f, 1, 0, NULL, NULL, NULL));
    }
    return 0;
}

static int give_all(struct beams *b, kvik_result *out)
{
    uint32_t rows = b->r->g->num_return_sequences;
    for (uint32_t i = 0; i < b->r->n; i++)
        for (uint32_t k = rows; k-- > 0;) /* the first may change the sequence of a beam */
            TRY(give(b, &b->item[i], beam_best(b->item[i].search, k), k == 0,
                     out->row + (size_t)i * rows + k));
    return 0;
}

static void take_back(struct beams *b, kvik_result *out)
{
    uint32_t rows = b->r->g->num_return_sequences;
    for (uint32_t i = 0; i < out->n_rows; i++)
        if (out->row[i].seq && out->row[i].seq != b->r->row[i / rows].given)
            kv_drop(b->r->x->kv, out->row[i].seq);
}

static int item_result(struct beams *b, struct item *it, uint32_t index, kvik_row *out)
{
    const struct run *r = b->r;
    uint32_t rows = r->g->num_return_sequences;
    for (uint32_t k = 0; k < rows; k++, out++) {
        const struct beam_done *d = beam_best(it->search, k);
        TRY(run_result(it->row, d->token, d->n, out));
        out->finish = d->real ? (enum kvik_finish)d->ends : KVIK_FINISH_LENGTH;
        out->score = d->score;
        out->reused = k ? it->row->n_prompt : it->row->reused;
        out->beam_indices = mem_array(MAX(d->n, 1), sizeof *out->beam_indices);
        if (!out->beam_indices) return ERR_NOMEM;
        for (uint32_t i = 0; i < d->n; i++)
            out->beam_indices[i] = (int32_t)(index * b->n) + d->beam[i];
        if (!r->tok) continue;
        struct buf text;
        buf_init(&text, (size_t)1 << 30);
        int e = tok_decode(r->tok, d->token, d->n, true, &text);
        if (e >= 0 && !(out->text = buf_take(&text))) e = ERR_NOMEM;
        buf_done(&text);
        if (e < 0) return e;
    }
    return 0;
}

static int search(struct beams *b, kvik_result *out, double *prefilled)
{
    struct run *r = b->r;
    const kvik_hooks *h = r->hooks && r->hooks->on_progress ? r->hooks : NULL;
    struct meter m = {.hooks = h};
    bool running = true;
    for (uint32_t i = 0; i < r->n; i++)
        TRY(item_begin(b, &b->item[i], &r->row[i]));
    TRY(feed_prompts(b, &m));
    *prefilled = now_seconds();
    for (;;) {
        TRY(choose(b, &running));
        if (!running) break;
        if (h && !h->on_progress(h->ctx, m.prompt + r->steps, m.prompt + m.steps))
            return ERR(CANCELLED, "cancelled");
        TRY(feed_beams(b));
    }
    for (uint32_t i = 0; i < r->n; i++)
        TRY(item_result(b, &b->item[i], i, out->row + (size_t)i * r->g->num_return_sequences));
    if (r->g->use_cache && r->g->return_dict_in_generate) return give_all(b, out);
    for (uint32_t i = 0; r->g->use_cache && i < r->n; i++)
        keep_best(b, &b->item[i]);
    return 0;
}

int beam_run(struct run *r, kvik_result *out, double *prefilled)
{
    struct beams b = {.r = r, .n = r->g->num_beams};
    b.item = mem_array(r->n, sizeof *b.item);
    b.from = mem_array(b.n, sizeof *b.from);
    bool asks = r->g->max_time > 0 || (r->hooks && r->hooks->stopping_criteria);
    size_t longest = 0;
    for (uint32_t i = 0; i < r->n; i++)
        longest = MAX(longest, (size_t)r->row[i].n_prompt + r->row[i].limit);
    b.extended = asks ? mem_array(longest, sizeof *b.extended) : NULL;
    bool enough = b.item && b.from && (b.extended || !asks);
    int e = enough ? search(&b, out, prefilled) : ERR_NOMEM;
    if (e < 0) take_back(&b, out);
    for (uint32_t i = 0; b.item && i < r->n; i++)
        item_end(&b, &b.item[i]);
    ear_drop(&b.trial);
    mem_free(b.item);
    mem_free(b.from);
    mem_free(b.extended);
    return e;
}
