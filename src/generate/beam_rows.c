/* beam_rows.c - the result of a beam search: the best finished texts as rows, and the sequences of the cache that
 * hold them.  A sequence of the caller becomes that of the beam which shares most with the best row, cut to the
 * shared part.  With return_dict_in_generate every row gets a sequence: a fork of the beam that shares most with
 * the row, cut to the shared part.  The missing tokens are decoded again one by one, so the sequence has the bits
 * of plain decoding. */
#include "generate/beam.h"

#include <string.h>

/* Returns the number of KV rows of a sequence up to the end of its prompt. */
static uint32_t rows_before(const struct row *w)
{
    return w->n_prompt + (w->sync.report ? (uint32_t)w->sync.report->offset : 0);
}

/* Returns the beam whose sequence shares most with a finished text.  *have: KV rows that agree. */
static uint32_t nearest_beam(const struct beams *b, const struct beam_item *it,
                             const struct beam_done *d, uint32_t *have)
{
    const struct kv *kv = b->r->x->kv;
    uint32_t longest = 0, which = 0, prompt = rows_before(it->row);
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

/* Gives the caller's sequence the contents of beam `which`.  If that fails it returns false, and the sequence still
 * has those of the first beam. */
static bool take_best(struct beams *b, struct beam_item *it, uint32_t which)
{
    struct kv *kv = b->r->x->kv;
    return !which ||
           kv_reorder(kv, (kv_seq[]){it->seq[0], it->seq[which]}, (uint32_t[]){1, 0}, 2) >= 0;
}

static void keep_best(struct beams *b, struct beam_item *it)
{
    const struct row *w = it->row;
    uint32_t longest, have, which = nearest_beam(b, it, it->best[0], &longest);
    if (!w->given) return;
    if (!take_best(b, it, which)) longest = rows_before(w);
    (void)kv_trim(b->r->x->kv, it->seq[0], longest, &have);
}

/* Makes a sequence with all tokens of a finished text but the last one.  Its rows have the bits of a text that was
 * decoded alone. */
static int give_sequence(struct beams *b, struct beam_item *it, const struct beam_done *d,
                         bool first, kvik_row *out)
{
    struct exec *x = b->r->x;
    uint32_t prompt = rows_before(it->row), have, which = nearest_beam(b, it, d, &have);
    if (first && it->row->given) {
        if (!take_best(b, it, which)) have = prompt;
        out->seq = it->row->given;
    } else {
        TRY(exec_fork(x, it->seq[which], &out->seq));
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
        /* row 0 comes last, because it may change the sequence of a beam */
        for (uint32_t k = rows; k-- > 0;)
            TRY(give_sequence(b, &b->item[i], b->item[i].best[k], k == 0,
                              out->row[(size_t)i * rows + k]));
    return 0;
}

static int item_result(const struct beams *b, const struct beam_item *it, uint32_t index,
                       kvik_row **row)
{
    const struct run *r = b->r;
    uint32_t rows = r->g->num_return_sequences;
    for (uint32_t k = 0; k < rows; k++) {
        kvik_row *out = row[k];
        const struct beam_done *d = it->best[k];
        TRY(run_result(it->row, d->token, d->n, out));
        out->finish = d->real ? (enum kvik_finish)d->ends : KVIK_FINISH_LENGTH;
        out->score = (float)d->score;
        out->reused = k ? it->row->n_prompt : it->row->reused;
        out->prefix_miss = it->row->miss;
        out->beam_indices = mem_array(MAX(d->n, 1), sizeof *out->beam_indices);
        if (!out->beam_indices) return ERR_NOMEM;
        for (uint32_t i = 0; i < d->n; i++)
            out->beam_indices[i] = (int32_t)(index * beams_each(b)) + d->beam[i];
        if (!r->tok) continue;
        struct buf text;
        buf_init(&text, (size_t)1 << 30);
        int e = run_decode(r, d->token, d->n, &text);
        if (e >= 0 && out->finish == KVIK_FINISH_STOP) e = run_cut_text(r, it->row, &text);
        if (e >= 0 && !(out->text = buf_take(&text))) e = ERR_NOMEM;
        buf_done(&text);
        if (e < 0) return e;
    }
    return 0;
}

static int find_best(const struct beams *b, struct beam_item *it)
{
    uint32_t rows = b->r->g->num_return_sequences;
    struct beam_search **search = mem_array(b->groups, sizeof(struct beam_search *));
    it->best = mem_array(rows, sizeof *it->best);
    for (uint32_t g = 0; search && g < b->groups; g++)
        search[g] = it->group[g].search;
    if (search && it->best && b->groups > 1) beam_group_best(search, b->groups, it->best, rows);
    for (uint32_t k = 0; it->best && b->groups == 1 && k < rows; k++)
        it->best[k] = beam_best(it->group[0].search, k);
    mem_free(search);
    return search && it->best ? 0 : ERR_NOMEM;
}

int beam_rows(struct run *r, kvik_result *out)
{
    struct beams *b = r->own;
    const kvik_generation *g = r->g;
    for (uint32_t i = 0; i < b->r->n; i++) {
        struct beam_item *it = &b->item[i];
        TRY(find_best(b, it));
        TRY(item_result(b, it, i, out->row + (size_t)i * g->num_return_sequences));
        const struct beam_done *d = it->best[0]; /* from now on this is the row's text */
        memcpy(it->row->ids + it->row->n, d->token, d->n * sizeof *d->token);
        it->row->n += d->n;
    }
    if (g->use_cache && g->return_dict_in_generate) return give_all(b, out);
    for (uint32_t i = 0; g->use_cache && i < b->r->n; i++)
        keep_best(b, &b->item[i]);
    return 0;
}
