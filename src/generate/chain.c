/* chain.c - the registered logits processors.  A generation chooses the processors that it wants once, and runs
 * them for every row.  Scratch for one vocabulary is reserved here, so that a step allocates nothing.  A NaN logit
 * counts as -inf everywhere: it is never chosen and never reaches a comparison. */
#include "generate/chain.h"

#include <assert.h>
#include <math.h>

extern const struct gen_processor *const __start_kvik_processor[];
extern const struct gen_processor *const __stop_kvik_processor[];

static void insert_processor(struct gen_chain *c, const struct gen_processor *p)
{
    uint32_t i = c->n++;
    for (; i > 0 && c->processor[i - 1]->order > p->order; i--)
        c->processor[i] = c->processor[i - 1];
    c->processor[i] = p;
}

int gen_chain_new(const kvik_generation *g, uint32_t vocab, const struct tok *tok,
                  struct gen_chain **out)
{
    struct gen_chain *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    c->g = *g;
    c->vocab = vocab;
    c->tok = tok;
    c->keep = g->num_beams < 2 ? 1 : g->n_eos ? g->n_eos + 1 : 2;
    c->value = mem_array(vocab ? vocab : 1, sizeof *c->value);
    c->seen = mem_array((size_t)vocab / 64 + 1, sizeof *c->seen);
    c->filter = -INFINITY;
    int e = c->value && c->seen ? 0 : ERR_NOMEM;
    for (const struct gen_processor *const *p = __start_kvik_processor; p < __stop_kvik_processor;
         p++) {
        if ((*p)->sampling && !g->do_sample) continue;
        if (e < 0 || !(*p)->wanted(g)) continue;
        assert(c->n < GEN_MAX_PROCESSORS);
        insert_processor(c, *p);
        if ((*p)->open) e = (*p)->open(c);
    }
    if (e < 0) {
        gen_chain_drop(c);
        return e;
    }
    *out = c;
    return 0;
}

void gen_chain_drop(struct gen_chain *c)
{
    if (!c) return;
    mem_free(c->value);
    mem_free(c->seen);
    mem_free(c->pair);
    if (c->drop_schema) c->drop_schema(c->schema);
    mem_free(c);
}

void gen_chain_hooks(struct gen_chain *c, const kvik_hooks *hooks)
{
    c->hooks = hooks && hooks->logits_processor ? hooks : NULL;
}

void gen_chain_keep(struct gen_chain *c, uint32_t n)
{
    c->keep = n;
}

static int ask_user(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    const kvik_hooks *h = c->hooks;
    if (h->logits_processor(h->ctx, row->row, row->ids, row->n, scores, c->vocab)) return 0;
    return ERR(CANCELLED, "cancelled by logits_processor");
}

void gen_chain_before(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    c->error = 0;
    for (uint32_t i = 0; i < c->n && c->processor[i]->order < GEN_USER_PROCESSOR; i++)
        c->processor[i]->apply(c, row, scores);
}

int gen_chain_after(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->processor[i]->order >= GEN_USER_PROCESSOR) c->processor[i]->apply(c, row, scores);
    return c->error;
}

int gen_chain_apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    gen_chain_before(c, row, scores);
    if (c->hooks) TRY(ask_user(c, row, scores));
    return gen_chain_after(c, row, scores);
}

double gen_weights(const float *scores, uint32_t n, float *value)
{
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (scores[i] > max) max = scores[i];
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        float s = scores[i];
        if (!(s > -INFINITY))
            value[i] = 0;
        else
            value[i] = max == INFINITY ? (float)(s == max) : expf(s - max);
        sum += value[i];
    }
    return sum;
}

void gen_keep(struct gen_chain *c, float *scores)
{
    uint32_t n = 0, left = c->keep;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (scores[i] > -INFINITY) c->value[n++] = scores[i];
    if (left >= n) return;
    float least = gen_select(c->value, n, left);
    for (uint32_t i = 0; i < c->vocab; i++)
        left -= scores[i] > least;
    for (uint32_t i = c->vocab; i-- > 0;) {
        if (scores[i] > least || (scores[i] == least && left > 0 && left--)) continue;
        scores[i] = c->filter;
    }
}

void gen_remove(const struct gen_chain *c, const int32_t *id, uint32_t n, float *scores)
{
    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)id[i] < c->vocab) scores[id[i]] = -INFINITY;
}

int gen_check_ids(const struct gen_chain *c, const char *option, const int32_t *id, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)id[i] >= c->vocab)
            return ERR(ARG, "%s has token id %d, outside the vocabulary of %u", option, id[i],
                       c->vocab);
    return 0;
}

bool gen_seen_get(const struct gen_chain *c, int32_t id)
{
    return id >= 0 && (uint32_t)id < c->vocab && (c->seen[id >> 6] >> (id & 63) & 1);
}

bool gen_seen_set(struct gen_chain *c, int32_t id)
{
    if (id < 0 || (uint32_t)id >= c->vocab) return false;
    uint64_t bit = (uint64_t)1 << (id & 63), *word = &c->seen[id >> 6];
    if (*word & bit) return false;
    *word |= bit;
    return true;
}

void gen_seen_clear(struct gen_chain *c, int32_t id)
{
    if (id >= 0 && (uint32_t)id < c->vocab) c->seen[id >> 6] = 0;
}
