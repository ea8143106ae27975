/* guidance.c - classifier-free guidance; see guidance.h.  The negative text of a row is the negative prompt
 * (without one, the last token of the prompt), and then the tokens that the row generates.  Each negative text is
 * one more sequence in the same store and shares the steps of its row.  So guidance costs rows, not steps.  When
 * beams are reordered, their negative texts are reordered with them, which Transformers does not do. */
#include "generate/guidance.h"
#include "generate/beam.h"

#include <string.h>

struct guide_row {
    kv_seq seq;
    int32_t *text;  /* [n_prompt + limit] the negative text, only without a cache; owned, or NULL */
    uint32_t *ends; /* turn ends of the text; owned */
    bool fed;
};
struct guide {
    struct guide_row *row; /* [r->width] */
    kv_seq *order;         /* [r->width] scratch of reordering */
    float *uncond;         /* [vocab] scratch */
};

static const int32_t *negative(const struct run *r, const struct row *w, uint32_t *n)
{
    bool given = r->g->n_negative_prompt_ids > 0;
    *n = given ? r->g->n_negative_prompt_ids : 1;
    return given ? r->g->negative_prompt_ids : &w->ids[w->n_prompt - 1];
}

/* Returns the row of the run to which negative text i belongs.  With beams several negative texts belong to one row. */
static const struct row *row_of_negative(const struct run *r, uint32_t i)
{
    return &r->row[i / (r->width / r->n)];
}

static int text_begin(struct run *r, const struct row *w, struct guide_row *g)
{
    uint32_t n;
    const int32_t *ids = negative(r, w, &n);
    size_t room = (size_t)n + w->limit;
    g->text = mem_array(room, sizeof *g->text);
    g->ends = mem_array(room, sizeof *g->ends);
    if (!g->text || !g->ends) return ERR_NOMEM;
    memcpy(g->text, ids, n * sizeof *ids);
    for (uint32_t k = 0; k < room; k++)
        g->ends[k] = MAX(k, n - 1);
    return 0;
}

int guide_begin(struct run *r)
{
    struct guide *g;
    if (r->g->guidance_scale == 1) return 0;
    if (!(r->guide = g = mem_alloc(sizeof *g))) return ERR_NOMEM;
    g->row = mem_array(r->width, sizeof *g->row);
    g->order = mem_array(r->width, sizeof *g->order);
    g->uncond = mem_array(r->x->m->vocab, sizeof *g->uncond);
    if (!g->row || !g->order || !g->uncond) return ERR_NOMEM;
    for (uint32_t i = 0; i < r->width; i++) {
        const struct row *w = row_of_negative(r, i);
        uint32_t n;
        (void)negative(r, w, &n);
        if ((uint64_t)n + w->limit - 1 > r->x->max_len)
            return ERR(LIMIT,
                       "negative_prompt_ids has %u tokens; with %u new ones that needs a "
                       "max_cache_len of %llu, it is %u",
                       n, w->limit, (unsigned long long)n + w->limit - 1, r->x->max_len);
        if (!r->g->use_cache) TRY(text_begin(r, w, &g->row[i]));
    }
    return 0;
}

void guide_end(struct run *r)
{
    struct guide *g = r->guide;
    if (!g) return;
    for (uint32_t i = 0; g->row && i < r->width; i++) {
        if (g->row[i].seq) kv_drop(r->x->kv, g->row[i].seq);
        mem_free(g->row[i].text);
        mem_free(g->row[i].ends);
    }
    mem_free(g->row);
    mem_free(g->order);
    mem_free(g->uncond);
    mem_free(g);
    r->guide = NULL;
}

int guide_feed(struct run *r, const struct row *w, uint32_t row, const int32_t *fresh, uint32_t n,
               struct exec_feed *out)
{
    struct guide_row *g = &r->guide->row[row];
    uint32_t n_negative;
    const int32_t *ids = negative(r, w, &n_negative);
    struct exec_feed f = {.loose = true, .ends = g->ends};
    if (g->text) {
        memcpy(g->text + n_negative, fresh, n * sizeof *fresh);
        f.tok = g->text;
        f.n = n_negative + n;
        TRY(kv_new(r->x->kv, &r->salt, &g->seq));
    } else {
        if (!g->seq) TRY(exec_new(r->x, &r->salt, &g->seq));
        f.tok = g->fed ? fresh + n - 1 : ids;
        f.n = g->fed ? 1 : n_negative;
    }
    f.seq = g->seq;
    g->fed = true;
    *out = f;
    return 0;
}

void guide_fed(struct run *r)
{
    struct guide *g = r->guide;
    for (uint32_t i = 0; g && i < r->width; i++) {
        if (!g->row[i].text || !g->row[i].seq) continue;
        kv_drop(r->x->kv, g->row[i].seq);
        g->row[i].seq = 0;
    }
}

int guide_fork(struct run *r, uint32_t row, uint32_t from)
{
    struct guide_row *g = r->guide->row;
    g[row].fed = true;
    return g[from].seq ? exec_fork(r->x, g[from].seq, &g[row].seq) : 0;
}

int guide_reorder(struct run *r, uint32_t first, const uint32_t *from, uint32_t n)
{
    const struct guide_row *g = r->guide->row + first;
    for (uint32_t i = 0; i < n; i++)
        r->guide->order[i] = g[i].seq;
    return kv_reorder(r->x->kv, r->guide->order, from, n);
}

void guide_apply(struct run *r, const float *uncond, float *scores)
{
    uint32_t vocab = r->x->m->vocab;
    float *un = r->guide->uncond, scale = (float)r->g->guidance_scale;
    memcpy(un, uncond, vocab * sizeof *un);
    beam_log_softmax(un, vocab);
    beam_log_softmax(scores, vocab);
    for (uint32_t v = 0; v < vocab; v++)
        scores[v] = scale * (scores[v] - un[v]) + un[v];
}

bool guide_owns(const struct run *r, kv_seq seq)
{
    for (uint32_t i = 0; r->guide && r->guide->row && i < r->width; i++)
        if (r->guide->row[i].seq == seq) return true;
    return false;
}
