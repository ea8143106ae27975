/* beam_mode.c - beam search over the cache.  A prompt is fed once and forked into num_beams sequences, which share
 * its blocks.  A step feeds one token to every running beam of every prompt in one batch.  Then the cache follows
 * the search: the sequences are permuted all at once, by reference.  Rows are copied only in the open block of a
 * beam that is continued twice.  Without a cache each step feeds every beam's whole text again.
 *
 * Diverse beams are several searches over the beams of one prompt, one for each group.  In a step the groups
 * choose one after the other.  A group that is over is fed no more.
 *
 * A stop string ends a beam like any other end.  So a stream follows the text of every beam.  With diverse beams
 * stop strings end the whole search, once every running beam has met an end. */
#include "generate/beam.h"
#include "generate/guidance.h"

#include <string.h>

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

/* Makes an ear for a beam.  Like the row's own, it has read the prompt. */
static int ear_new(const struct run *r, const struct row *w, struct ear *e)
{
    TRY(run_stream(r, &e->stream));
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

static int item_begin(struct beams *b, struct beam_item *it, struct row *w)
{
    const struct run *r = b->r;
    struct beam_rules rules = {.beams = beams_each(b),
                               .vocab = r->x->m->vocab,
                               .n_eos = r->g->n_eos,
                               .limit = w->limit,
                               .length_penalty = r->g->length_penalty,
                               .early = r->g->early_stopping,
                               .group = b->groups > 1,
                               .draw = r->g->do_sample,
                               .seed = r->g->seed,
                               .row = (uint32_t)(it - b->item)};
    it->row = w;
    it->seq = mem_array(b->n, sizeof *it->seq);
    if (!it->seq) return ERR_NOMEM;
    it->seq[0] = w->seq;
    it->group = mem_array(b->groups, sizeof *it->group);
    if (!it->group) return ERR_NOMEM;
    for (uint32_t g = 0; g < b->groups; g++)
        TRY(beam_new(&rules, w->ids, w->n_prompt, &it->group[g].search));
    for (int k = 0; w->stop && k < 2; k++) {
        it->ear[k] = mem_array(b->n, sizeof **it->ear);
        if (!it->ear[k]) return ERR_NOMEM;
        for (uint32_t i = 0; i < b->n; i++)
            TRY(ear_new(r, w, &it->ear[k][i]));
    }
    return w->stop && !b->trial.stop ? ear_new(r, w, &b->trial) : 0;
}

static void item_end(struct beams *b, struct beam_item *it)
{
    for (uint32_t i = 0; it->seq && i < b->n; i++)
        if (it->seq[i] && it->seq[i] != it->row->seq) kv_drop(b->r->x->kv, it->seq[i]);
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; it->ear[k] && i < b->n; i++)
            ear_drop(&it->ear[k][i]);
        mem_free(it->ear[k]);
    }
    for (uint32_t g = 0; it->group && g < b->groups; g++)
        beam_drop(it->group[g].search);
    mem_free(it->group);
    mem_free(it->best);
    mem_free(it->seq);
}

/* Returns the row of beam j of a prompt among the logits of all prompts. */
static uint32_t row_of(const struct beams *b, const struct beam_item *it, uint32_t j)
{
    return (uint32_t)(it - b->item) * b->n + j;
}

static struct beam_group *group_of(const struct beams *b, const struct beam_item *it, uint32_t j)
{
    return &it->group[j / beams_each(b)];
}

/* Returns the text of beam j, including the prompt. */
static const int32_t *ids_of(const struct beams *b, const struct beam_item *it, uint32_t j)
{
    return beam_ids(group_of(b, it, j)->search, j % beams_each(b));
}

/* Returns the number of generated tokens, which is the same for all running beams. */
static uint32_t length_of(const struct beams *b, const struct beam_item *it)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < b->groups; g++)
        n = MAX(n, beam_length(it->group[g].search));
    return n;
}

/* Returns the raw logits of beam j.  After the prompt all beams have the same logits. */
static const float *logits_of(const struct beams *b, const struct beam_item *it, uint32_t j)
{
    uint32_t row = group_of(b, it, j)->at + (b->shared ? j % beams_each(b) : 0);
    return b->r->logits + (size_t)row * b->r->x->m->vocab;
}

/* Fails if logits are not finite: beams are ranked by their scores, so a search cannot go on without them. */
static int check_logits(struct beams *b)
{
    const struct run *r = b->r;
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t j = 0; !b->item[i].done && j < (b->shared ? b->n : 1); j++)
            if (!group_of(b, &b->item[i], j)->over && !run_sound(r, logits_of(b, &b->item[i], j)))
                return ERR(
                    FORMAT,
                    "prompt %u, step %u: the model's logits are not finite (NaN or infinity), so "
                    "its beams cannot be ranked; its weights are damaged, or its numbers overflow",
                    i, r->steps);
    return 0;
}

static int keep_logits(struct beams *b)
{
    size_t vocab = b->r->x->m->vocab;
    float *kept;
    TRY(run_keep(b->r, &b->r->kept_scores, b->r->steps, &b->kept_scores));
    TRY(run_keep(b->r, &b->r->kept, b->r->steps, &kept));
    for (uint32_t i = 0; kept && i < b->r->n; i++)
        for (uint32_t j = 0; !b->item[i].done && j < b->n; j++)
            if (!group_of(b, &b->item[i], j)->over)
                memcpy(kept + ((size_t)i * b->n + j) * vocab, logits_of(b, &b->item[i], j),
                       vocab * sizeof *kept);
    return 0;
}

/* True if the caller's criteria or max_time end the text of this candidate. */
static bool meets(struct beams *b, const struct beam_item *it, const struct beam_candidate *c,
                  enum kvik_finish *why)
{
    const struct run *r = b->r;
    uint32_t len = it->row->n_prompt + length_of(b, it);
    memcpy(b->extended, ids_of(b, it, c->beam), len * sizeof *b->extended);
    b->extended[len] = c->token;
    return run_criteria(r, row_of(b, it, c->beam), b->extended, len + 1, why);
}

/* Marks the candidates that end, and why.  In groups only end-of-sequence tokens end a beam. */
static int mark_ends(struct beams *b, struct beam_item *it)
{
    struct beam_candidate *c = it->candidate;
    uint32_t n = it->n_candidates;
    bool last = length_of(b, it) + 1 >= it->row->limit, stops = false;
    bool asks = b->extended != NULL, judged = b->groups == 1 && together_judges(b->r->together);
    enum kvik_finish why;
    for (uint32_t i = 0; i < n; i++) {
        if (run_ends(b->r->g, c[i].token)) {
            c[i].ends = KVIK_FINISH_EOS;
        } else if (b->groups > 1) {
            continue;
        } else if (last) {
            c[i].ends = KVIK_FINISH_LENGTH;
        } else if (it->ear[0]) {
            TRY(ear_copy(&b->trial, &it->ear[0][c[i].beam]));
            TRY(ear_hear(b, &b->trial, c[i].token, &stops));
            if (stops) c[i].ends = KVIK_FINISH_STOP;
        }
        if (c[i].ends < 0 && judged && together_ends(b->r->together, it->shown + i))
            c[i].ends = KVIK_FINISH_CRITERIA;
        if (asks && c[i].ends < 0 && meets(b, it, &c[i], &why)) c[i].ends = (int)why;
    }
    return 0;
}

static int follow_text(struct beams *b, struct beam_item *it)
{
    struct ear *heard = it->ear[0];
    uint32_t each = beams_each(b);
    if (!heard) return 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const struct beam_group *g = group_of(b, it, i);
        const struct beam_candidate *c = beam_running(g->search, i % each);
        bool stops = false;
        TRY(ear_copy(&it->ear[1][i], &heard[g->over ? i : i / each * each + c->beam]));
        if (!g->over) TRY(ear_hear(b, &it->ear[1][i], c->token, &stops));
        if (stops) b->ends[i] = KVIK_FINISH_STOP;
    }
    it->ear[0] = it->ear[1];
    it->ear[1] = heard;
    return 0;
}

/* True if every running beam of diverse groups has met an end; b->ends[i] says which. */
static bool all_end(struct beams *b, struct beam_item *it)
{
    uint32_t len = length_of(b, it), n = it->row->n_prompt + len;
    bool all = true;
    for (uint32_t i = 0; i < b->n; i++) {
        enum kvik_finish why;
        if (group_of(b, it, i)->over) continue;
        if (len >= it->row->limit)
            b->ends[i] = KVIK_FINISH_LENGTH;
        else if (b->ends[i] < 0 && run_criteria(b->r, row_of(b, it, i), ids_of(b, it, i), n, &why))
            b->ends[i] = (int)why;
        all &= b->ends[i] >= 0;
    }
    return all;
}

/* Returns what processors see of beam j. */
static struct gen_row view_of(const struct beams *b, const struct beam_item *it, uint32_t j)
{
    struct gen_row view =
        run_view(it->row, ids_of(b, it, j), it->row->n_prompt + length_of(b, it), row_of(b, it, j));
    view.chosen = b->chosen;
    view.n_chosen = j / beams_each(b) * beams_each(b);
    return view;
}

/* Adds the scores of group g for the caller's processor that sees all rows at once. */
static void add_scores(struct beams *b, struct beam_item *it, uint32_t g)
{
    struct run *r = b->r;
    uint32_t vocab = r->x->m->vocab, each = beams_each(b), first = g * each;
    /* scores of the first beam; all beams have the same before the prompt is forked */
    const float *alike = NULL;
    for (uint32_t j = first; j < first + each; j++) {
        bool over = it->done || it->group[g].over;
        struct gen_row view = view_of(b, it, j);
        float *scores = together_add(r->together, &view, over);
        if (over) continue;
        const float *logits = logits_of(b, it, j);
        memcpy(scores, alike ? alike : logits, vocab * sizeof *scores);
        if (alike) continue;
        beam_log_softmax(scores, vocab);
        run_process_before(r, &view, r->guide ? logits + (size_t)r->fed * vocab : NULL, scores);
        if (!b->shared) alike = scores;
    }
}

/* Writes the processed scores of beam j to r->scores. */
static int score_beam(struct beams *b, struct beam_item *it, uint32_t j)
{
    struct run *r = b->r;
    uint32_t vocab = r->x->m->vocab, each = beams_each(b);
    uint32_t place = b->groups > 1 ? j % each : row_of(b, it, j);
    struct gen_row view = view_of(b, it, j);
    const float *scored = together_scores(r->together, place);
    if (scored) {
        memcpy(r->scores, scored, vocab * sizeof *r->scores);
        return gen_chain_after(r->chain, &view, r->scores);
    }
    /* before the fork all beams have the scores of the first */
    if (j % each && !b->shared) return 0;
    const float *logits = logits_of(b, it, j);
    memcpy(r->scores, logits, vocab * sizeof *r->scores);
    beam_log_softmax(r->scores, vocab);
    return run_process(r, &view, r->guide ? logits + (size_t)r->fed * vocab : NULL, r->scores);
}

/* Ranks the candidates of group g of a prompt. */
static int rank_group(struct beams *b, struct beam_item *it, uint32_t g)
{
    struct run *r = b->r;
    struct beam_group *group = &it->group[g];
    uint32_t vocab = r->x->m->vocab, each = beams_each(b), first = g * each;
    for (uint32_t j = 0; j < each; j++) {
        TRY(score_beam(b, it, first + j));
        if (b->kept_scores)
            memcpy(b->kept_scores + (size_t)row_of(b, it, first + j) * vocab, r->scores,
                   vocab * sizeof *r->scores);
        beam_offer(group->search, j, r->scores);
    }
    it->candidate = beam_rank(group->search, &it->n_candidates);
    return 0;
}

/* Takes the next tokens of group g of a prompt from its candidates. */
static int advance_group(struct beams *b, struct beam_item *it, uint32_t g)
{
    struct beam_group *group = &it->group[g];
    uint32_t each = beams_each(b);
    TRY(mark_ends(b, it));
    group->over = !beam_advance(group->search);
    for (uint32_t j = 0; j < each; j++)
        b->chosen[g * each + j] = beam_running(group->search, j)->token;
    return 0;
}

/* Chooses the next tokens of one of several groups of a prompt. */
static int choose_group(struct beams *b, struct beam_item *it, uint32_t g)
{
    const kvik_generation *o = b->r->g;
    uint32_t each = beams_each(b);
    bool over = it->group[g].over;
    /* a group that is over chooses padding, as in Transformers */
    for (uint32_t j = 0; over && j < each; j++)
        b->chosen[g * each + j] = o->pad_token_id >= 0 ? o->pad_token_id : o->eos_token_id[0];
    if (over) return 0;
    if (together_begin(b->r->together)) {
        add_scores(b, it, g);
        TRY(together_process(b->r->together));
    }
    TRY(rank_group(b, it, g));
    together_end(b->r->together); /* criteria of groups see one beam at a time */
    return advance_group(b, it, g);
}

/* Shows the candidates of all prompts to the caller's criteria that see all rows at once. */
static int judge_together(struct beams *b)
{
    struct together *t = b->r->together;
    size_t n = 0, tokens = 0;
    for (uint32_t i = 0; i < b->r->n; i++) {
        struct beam_item *it = &b->item[i];
        if (it->done) continue;
        n += it->n_candidates;
        tokens += (size_t)it->n_candidates * (it->row->n_prompt + length_of(b, it) + 1);
    }
    TRY(together_room(t, n));
    if (tokens > b->n_texts) {
        int32_t *more = mem_grow(b->texts, 2 * tokens, sizeof *more);
        if (!more) return ERR_NOMEM;
        b->texts = more;
        b->n_texts = 2 * tokens;
    }
    int32_t *at = b->texts;
    n = 0;
    for (uint32_t i = 0; i < b->r->n; i++) {
        struct beam_item *it = &b->item[i];
        it->shown = (uint32_t)n;
        for (uint32_t k = 0; !it->done && k < it->n_candidates; k++, n++) {
            const struct beam_candidate *c = &it->candidate[k];
            struct gen_row view = view_of(b, it, c->beam);
            memcpy(at, view.ids, view.n * sizeof *at);
            at[view.n] = c->token;
            view.ids = at;
            at += ++view.n;
            (void)together_add(t, &view, false);
        }
    }
    together_judge(t, b->r->kept_scores.data, b->r->steps + 1, b->r->width);
    return 0;
}

/* Chooses the next tokens of all prompts, where beams are one group. */
static int choose_together(struct beams *b)
{
    struct run *r = b->r;
    if (together_begin(r->together)) {
        for (uint32_t i = 0; i < r->n; i++)
            add_scores(b, &b->item[i], 0);
        TRY(together_process(r->together));
    }
    for (uint32_t i = 0; i < r->n; i++)
        if (!b->item[i].done) TRY(rank_group(b, &b->item[i], 0));
    if (together_judges(r->together)) TRY(judge_together(b));
    for (uint32_t i = 0; i < r->n; i++)
        if (!b->item[i].done) TRY(advance_group(b, &b->item[i], 0));
    return 0;
}

static int choose_item(struct beams *b, struct beam_item *it)
{
    bool over = true;
    for (uint32_t g = 0; g < b->groups; g++) {
        if (b->groups > 1) TRY(choose_group(b, it, g));
        over &= it->group[g].over;
    }
    for (uint32_t i = 0; i < b->n; i++)
        b->ends[i] = -1;
    it->done = over;
    if (over) return 0;
    TRY(follow_text(b, it));
    it->done = b->groups > 1 && all_end(b, it);
    for (uint32_t g = 0; it->done && g < b->groups; g++)
        if (!it->group[g].over) beam_end(it->group[g].search, b->ends + g * beams_each(b));
    return 0;
}

/* Reorders the sequences of the cache to those of the chosen beams. */
static int follow_cache(struct beams *b, struct beam_item *it)
{
    struct run *r = b->r;
    uint32_t each = beams_each(b);
    for (uint32_t i = 1; !b->shared && i < b->n; i++) {
        TRY(exec_fork(r->x, it->seq[0], &it->seq[i]));
        if (r->guide) TRY(guide_fork(r, row_of(b, it, i), row_of(b, it, 0)));
    }
    if (!b->shared) return 0; /* the sequences are still equal */
    for (uint32_t i = 0; i < b->n; i++) {
        const struct beam_group *g = group_of(b, it, i);
        b->from[i] = g->over ? i : i / each * each + beam_running(g->search, i % each)->beam;
    }
    if (r->guide) TRY(guide_reorder(r, row_of(b, it, 0), b->from, b->n));
    return kv_reorder(r->x->kv, it->seq, b->from, b->n);
}

/* Adds the feeds of the negative texts of all running beams, in the order of the beams. */
static int gather_negatives(struct beams *b, uint32_t *n)
{
    struct run *r = b->r;
    for (uint32_t i = 0; i < r->n; i++) {
        struct beam_item *it = &b->item[i];
        for (uint32_t j = 0; !it->done && j < b->n; j++) {
            if (group_of(b, it, j)->over || (j && !b->shared)) continue;
            const int32_t *fresh = ids_of(b, it, j) + it->row->n_prompt;
            TRY(guide_feed(r, it->row, row_of(b, it, j), fresh, length_of(b, it),
                           &r->feed[(*n)++]));
        }
    }
    return 0;
}

/* Without a cache: gives the first r->fed feeds new sequences, which are dropped after the job. */
static int fresh(struct run *r)
{
    struct beams *b = r->own;
    for (b->n_fresh = 0; b->n_fresh < r->fed; b->n_fresh++)
        TRY(kv_new(r->x->kv, &r->salt, &r->feed[b->n_fresh].seq));
    return 0;
}

static void drop_fresh(struct run *r)
{
    struct beams *b = r->own;
    for (; b->n_fresh; b->n_fresh--)
        kv_drop(r->x->kv, r->feed[b->n_fresh - 1].seq);
    guide_fed(r);
}

/* Sets the feeds: the last token of each beam; without a cache its whole text. */
static uint32_t gather_beams(struct beams *b)
{
    struct run *r = b->r;
    bool cached = r->g->use_cache;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        struct beam_item *it = &b->item[i];
        uint32_t len = it->row->n_prompt + length_of(b, it);
        for (uint32_t j = 0; !it->done && j < b->n; j++) {
            const int32_t *ids = ids_of(b, it, j);
            struct beam_group *g = group_of(b, it, j);
            if (j % beams_each(b) == 0) g->at = n;
            if (g->over) continue;
            r->feed[n++] = (struct exec_feed){.seq = it->seq[j],
                                              .tok = cached ? ids + len - 1 : ids,
                                              .n = cached ? 1 : len,
                                              .pad = it->row->pad,
                                              .loose = true,
                                              .ends = it->row->ends,
                                              .source = run_hears(r, it->row)};
        }
    }
    return n;
}

static uint32_t gather_prompts(struct beams *b)
{
    struct run *r = b->r;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        r->feed[i] = (struct exec_feed){.seq = w->seq,
                                        .tok = w->ids + w->have,
                                        .n = w->n - w->have,
                                        .pad = w->pad,
                                        .loose = true,
                                        .ends = w->ends,
                                        .source = run_hears(r, w)};
        for (uint32_t g = 0; g < b->groups; g++)
            b->item[i].group[g].at = i;
    }
    return r->n;
}

/* Reports progress to the caller: tokens of the prompts first, then steps. */
static bool on_prompt(void *ctx, uint64_t done, uint64_t total)
{
    struct beams *b = ctx;
    const kvik_hooks *h = b->r->hooks;
    b->prompt = total;
    return h->on_progress(h->ctx, done, total + b->steps);
}

static int on_step(const struct beams *b)
{
    const kvik_hooks *h = b->r->hooks;
    bool more = run_pulse(b->r);
    if (more && h && h->on_progress)
        more = h->on_progress(h->ctx, b->prompt + b->r->steps, b->prompt + b->steps);
    return more ? 0 : ERR(CANCELLED, "cancelled");
}

static int beams_gather(struct run *r)
{
    struct beams *b = r->own;
    uint32_t n = r->fed = r->steps ? gather_beams(b) : gather_prompts(b);
    if (r->guide) TRY(gather_negatives(b, &n));
    if (!r->g->use_cache) TRY(fresh(r));
    if (r->progress) r->progress = r->g->use_cache ? on_prompt : NULL;
    r->progress_ctx = b;
    r->job.n = n;
    return 0;
}

static int beams_choose(struct run *r, bool *running)
{
    struct beams *b = r->own;
    if (!r->g->use_cache) drop_fresh(r);
    *running = false;
    TRY(keep_logits(b));
    TRY(check_logits(b));
    if (b->groups == 1) TRY(choose_together(b));
    for (uint32_t i = 0; i < r->n; i++) {
        struct beam_item *it = &b->item[i];
        if (it->done) continue;
        TRY(choose_item(b, it));
        if (!it->done && r->g->use_cache) TRY(follow_cache(b, it));
        *running |= !it->done;
    }
    together_end(r->together);
    b->shared = true;
    r->steps++;
    return *running ? on_step(b) : 0;
}

/* Ends the running beams: they become finished sequences. */
static int cancel(struct run *r)
{
    struct beams *b = r->own;
    for (uint32_t i = 0; i < b->n; i++)
        b->ends[i] = KVIK_FINISH_CANCELLED;
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t g = 0; !b->item[i].done && g < b->groups; g++)
            if (!b->item[i].group[g].over) beam_end(b->item[i].group[g].search, b->ends);
    return 0;
}

static int scratch(struct beams *b)
{
    const struct run *r = b->r;
    bool asks = r->g->max_time > 0 || (r->hooks && r->hooks->stopping_criteria);
    size_t longest = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        longest = MAX(longest, (size_t)r->row[i].n_prompt + r->row[i].limit);
        b->steps = MAX(b->steps, r->row[i].limit);
    }
    b->extended = asks ? mem_array(longest, sizeof *b->extended) : NULL;
    b->item = mem_array(r->n, sizeof *b->item);
    b->from = mem_array(b->n, sizeof *b->from);
    b->chosen = mem_array(b->n, sizeof *b->chosen);
    b->ends = mem_array(b->n, sizeof *b->ends);
    return b->item && b->from && b->chosen && b->ends && (b->extended || !asks) ? 0 : ERR_NOMEM;
}

static int beams_begin(struct run *r)
{
    struct beams *b = mem_alloc(sizeof *b);
    if (!(r->own = b)) return ERR_NOMEM;
    *b = (struct beams){.r = r, .n = r->g->num_beams, .groups = MAX(r->g->num_beam_groups, 1)};
    TRY(scratch(b));
    for (uint32_t i = 0; i < r->n; i++)
        TRY(item_begin(b, &b->item[i], &r->row[i]));
    return 0;
}

static void beams_end(struct run *r)
{
    struct beams *b = r->own;
    if (!r->g->use_cache) drop_fresh(r);
    for (uint32_t i = 0; b->item && i < r->n; i++)
        item_end(b, &b->item[i]);
    ear_drop(&b->trial);
    void *own[] = {b->item, b->from, b->chosen, b->ends, b->extended, b->texts, b};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
}

/* True if a beam has this sequence.  A beam that was just forked is not in the feeds yet. */
static bool owns(const struct run *r, kv_seq seq)
{
    const struct beams *b = r->own;
    for (uint32_t i = 0; b->item && i < r->n; i++)
        for (uint32_t j = 0; b->item[i].seq && j < b->n; j++)
            if (b->item[i].seq[j] == seq) return true;
    return false;
}

static uint64_t width(const struct run *r)
{
    return r->g->num_beams;
}

static int beams_check(const struct run *r)
{
    if (!r->hooks || !r->hooks->on_token) return 0;
    return ERR(ARG,
               "on_token cannot be used with num_beams=%u: which text is the best is not known "
               "before the end",
               r->g->num_beams);
}

const struct run_mode beam_mode = {.sequences = "beams",
                                   .search = true,
                                   .unfed = 1,
                                   .width = width,
                                   .check = beams_check,
                                   .begin = beams_begin,
                                   .gather = beams_gather,
                                   .choose = beams_choose,
                                   .cancel = cancel,
                                   .finish = beam_rows,
                                   .owns = owns,
                                   .end = beams_end};
