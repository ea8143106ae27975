/* results.c - the result of a run: kept logits and scores, rows with their tokens, the sequences of rows.
 *
 * The caller takes over the sequences that the result names.  All other sequences of a run are dropped when it ends. */
#include "generate/run.h"

#include <string.h>

int run_keep(struct run *r, struct run_kept *k, uint32_t at, float **out)
{
    size_t step = (size_t)r->x->m->vocab * r->width;
    *out = NULL;
    r->kept_steps = MAX(r->kept_steps, at + 1);
    if (!k->wanted) return 0;
    if (at >= k->cap) {
        size_t cap = MAX(MAX(2 * k->cap, 16u), at + 1);
        float *p = mem_grow(k->data, cap, step * sizeof *p);
        if (!p) return ERR_NOMEM;
        k->data = p;
        k->cap = cap;
    }
    for (; k->n <= at; k->n++)
        memset(k->data + k->n * step, 0, step * sizeof *k->data);
    *out = k->data + at * step;
    return 0;
}

int run_result(const struct row *w, const int32_t *fresh, uint32_t n, kvik_row *out)
{
    out->n_prompt = w->prompt->n - w->prompt->n_new;
    out->n = out->n_prompt + n;
    out->ids = mem_array(MAX(out->n, 1), sizeof *out->ids);
    if (!out->ids) return ERR_NOMEM;
    if (out->n_prompt) memcpy(out->ids, w->prompt->ids, out->n_prompt * sizeof *out->ids);
    if (n) memcpy(out->ids + out->n_prompt, fresh, n * sizeof *out->ids);
    return 0;
}

int run_rows(struct run *r, kvik_result *out)
{
    bool give = r->g->return_dict_in_generate && r->g->use_cache;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        kvik_row *o = out->row[i];
        TRY(run_result(w, w->ids + w->n_prompt, w->n - w->n_prompt, o));
        o->finish = w->finish;
        o->reused = w->reused;
        o->prefix_miss = w->miss;
        if (w->stream && !(o->text = buf_take(&w->text))) return ERR_NOMEM;
        if (!give) continue;
        o->seq = w->seq;
        w->handed = true;
    }
    return 0;
}

int run_cut_text(const struct run *r, const struct row *w, struct buf *text)
{
    struct gen_stop *stop;
    size_t end;
    if (r->g->include_stop_str_in_output || !w->stop) return 0;
    TRY(gen_stop_new(r->g->stop_strings, r->g->n_stop_strings, &stop));
    gen_stop_copy(stop, w->stop); /* `stop` has read the prompt */
    if (gen_stop_put(stop, text->data, text->len, &end)) {
        end -= w->stop_seen;
        buf_cut(text, end - MIN(end, gen_stop_match(stop)));
    }
    gen_stop_drop(stop);
    return 0;
}

int run_no_rows(struct run *r, kvik_result *out)
{
    uint32_t per = r->g->num_return_sequences;
    for (uint32_t i = 0; i < out->n_rows; i++) {
        const struct row *w = &r->row[i / per * r->per];
        kvik_row *o = out->row[i];
        TRY(run_result(w, w->ids + w->n_prompt, w->n - w->n_prompt, o));
        o->finish = KVIK_FINISH_CANCELLED;
        out->prompt_tokens += run_prompt_rows(w);
        if (r->tok && !(o->text = mem_strndup(w->text.len ? w->text.data : "", w->text.len)))
            return ERR_NOMEM;
        out->new_tokens += w->n - w->n_prompt;
    }
    out->computed_tokens = r->computed;
    out->prefill_seconds = now_seconds() - r->begun;
    return 0;
}

int run_result_begin(const struct run *r, kvik_result **out)
{
    kvik_result *res = mem_alloc(sizeof *res);
    if (!res) return ERR_NOMEM;
    res->n_rows = r->n_prompts * r->g->num_return_sequences;
    res->vocab = r->x->m->vocab;
    res->logit_rows = r->width;
    res->row = mem_array(res->n_rows, sizeof *res->row);
    kvik_row *rows = mem_array(res->n_rows, sizeof *rows); /* row[0] owns the arrays of all rows */
    if (!res->row || !rows) {
        mem_free(rows);
        mem_free(res->row);
        mem_free(res);
        return ERR_NOMEM;
    }
    for (uint32_t i = 0; i < res->n_rows; i++)
        res->row[i] = &rows[i];
    *out = res;
    return 0;
}

/* Drops sequences that are neither the caller's nor those of rows; run_end handles these. */
static void drop_sequences(struct run *r, kvik_result *out)
{
    for (uint32_t i = 0; i < out->n_rows; i++) {
        bool own = !out->row[i]->seq;
        for (uint32_t j = 0; r->row && j < r->n; j++)
            own |= r->row[j].seq == out->row[i]->seq;
        if (!own) kv_drop(r->x->kv, out->row[i]->seq);
        out->row[i]->seq = 0;
    }
}

/* Notes the token that was generated but not appended to the caller's sequence. */
static void note_said(struct run *r, const struct row *w)
{
    uint64_t at = kv_len(r->x->kv, w->seq) - w->sync.report->offset;
    if (at < w->n) sync_said(r->x, w->seq, w->ids[at]);
}

/* Corrects the reason why a text ended at its length, if the context or max_cache_len allowed no more tokens than it
 * has, although more were asked for. */
static void note_cut(const struct run *r, const struct row *w, kvik_row *o)
{
    if (o->finish == KVIK_FINISH_LENGTH && w->cut && o->n - o->n_prompt >= w->limit)
        o->finish =
            r->x->max_len < r->x->m->context ? KVIK_FINISH_MAX_CACHE_LEN : KVIK_FINISH_CONTEXT;
}

void run_result_end(struct run *r, kvik_result *out, bool failed)
{
    uint32_t per = r->g->num_return_sequences;
    if (failed) {
        drop_sequences(r, out);
        return;
    }
    for (uint32_t i = 0; i < out->n_rows; i++) {
        const struct row *w = &r->row[i / per * r->per];
        out->prompt_tokens += run_prompt_rows(w);
        out->new_tokens += out->row[i]->n - out->row[i]->n_prompt;
        note_cut(r, &r->row[i / per * r->per], out->row[i]);
    }
    for (uint32_t i = 0; i < out->n_rows; i += per) {
        struct row *w = &r->row[i / per * r->per];
        if (w->given) note_said(r, w);
        out->row[i]->sync = w->sync.report;
        w->sync.report = NULL;
    }
    out->steps = r->steps;
    out->logit_steps = r->kept_steps;
    out->drafted = r->drafted;
    out->accepted = r->accepted;
    out->logits = r->kept.data;
    out->scores = r->kept_scores.data;
    r->kept.data = r->kept_scores.data = NULL;
}

void gen_result_free(kvik_result *r)
{
    if (!r) return;
    for (uint32_t i = 0; r->row && i < r->n_rows; i++) {
        sync_report_free(r->row[i]->sync);
        mem_free(r->row[i]->ids);
        mem_free(r->row[i]->beam_indices);
        mem_free(r->row[i]->text);
    }
    if (r->row) mem_free(r->row[0]);
    mem_free(r->row);
    mem_free(r->logits);
    mem_free(r->scores);
    mem_free(r);
}
