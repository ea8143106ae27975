/* job_request.c - generates the text of one job, as a request of the library; see scheduler.h. */
#include "serve/scheduler.h"

#include <string.h>

void job_free(struct job *j)
{
    if (!j) return;
    kvik_schema_close(j->schema);
    kvik_generation_done(&j->g);
    exchange_release(j->x);
    mem_free(j->splicing.chunk);
    mem_free(j->ids);
    mem_free(j->chosen);
    mem_free(j->fresh);
    mem_free(j->tops);
    mem_free(j);
}

/* --- Callbacks of a request, inside a step. */

static int keep(struct job *j, int32_t id)
{
    if (j->n_chosen == j->cap) {
        size_t cap = MAX(64, 2 * j->cap);
        int32_t *chosen = mem_grow(j->chosen, cap, sizeof *chosen);
        if (chosen) j->chosen = chosen;
        bool *fresh = mem_grow(j->fresh, cap, sizeof *fresh);
        if (fresh) j->fresh = fresh;
        if (!chosen || !fresh) return ERR_NOMEM;
        j->cap = cap;
    }
    size_t i = 0;
    bool penalties = j->presence_penalty != 0;
    while (penalties && i < j->n_chosen && j->chosen[i] != id)
        i++;
    j->fresh[j->n_chosen] = penalties && i == j->n_chosen;
    j->chosen[j->n_chosen++] = id;
    if (j->n_chosen == 1) j->first = now_seconds();
    return 0;
}

static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct job *j = ctx;
    (void)row;
    if (id >= 0 && keep(j, id) < 0) return false;
    bool more = j->calls->text(j, id, text, j->tops, j->n_tops);
    j->n_tops = 0;
    return more && !exchange_gone(j->x);
}

static bool on_logprobs(void *ctx, uint32_t row, const kvik_logprob *token, uint32_t n)
{
    struct job *j = ctx;
    (void)row;
    if (!j->tops && !(j->tops = mem_array(n, sizeof *j->tops))) return false;
    memcpy(j->tops, token, n * sizeof *token);
    j->n_tops = n;
    return true;
}

/* True if the new token at i did not occur among the new tokens before it. */
static bool is_first(const struct job *j, const int32_t *ids, size_t i)
{
    size_t k = j->n;
    if (j->presence_penalty == 0) return false;
    if (j->g.num_beams <= 1 && i - j->n < j->n_chosen) return j->fresh[i - j->n];
    while (k < i && ids[k] != ids[i])
        k++;
    return k == i;
}

/* OpenAI's penalties: a token that occurs c times among the new tokens loses frequency * c, and presence once. */
static bool on_scores(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                      uint32_t vocab)
{
    struct job *j = ctx;
    (void)row;
    for (size_t i = j->n; i < n; i++) {
        if ((uint32_t)ids[i] >= vocab) continue;
        double less = j->frequency_penalty + (is_first(j, ids, i) ? j->presence_penalty : 0);
        scores[ids[i]] -= (float)less;
    }
    return true;
}

/* --- The request. */

int job_start(struct job *j, kvik_cache *cache)
{
    kvik_hooks hooks = {.size = sizeof hooks,
                        .ctx = j,
                        .on_token = on_token,
                        .shown_tokens = j->shown,
                        .n_shown_tokens = j->n_shown};
    size_t n = j->n + j->n_chosen;
    int32_t *ids = mem_array(n, sizeof *ids);
    if (!ids) return ERR_NOMEM;
    memcpy(ids, j->ids, j->n * sizeof *ids);
    if (j->n_chosen) memcpy(ids + j->n, j->chosen, j->n_chosen * sizeof *ids);
    kvik_prompt prompt = {.size = sizeof prompt,
                          .seq = j->splicing.seq,
                          .ids = ids,
                          .n = n,
                          .n_new = j->n_chosen,
                          .cache_salt = j->salt};
    if (j->logprobs) {
        hooks.on_logprobs = on_logprobs;
        hooks.top_logprobs = j->top_logprobs;
    }
    if (j->presence_penalty != 0 || j->frequency_penalty != 0) hooks.logits_processor = on_scores;
    if (j->g.num_beams > 1) hooks.on_token = NULL;
    int e = kvik_request_start(cache, &j->g, &prompt, 1, &hooks, &j->request);
    mem_free(ids);
    if (e >= 0 && j->begun == 0) j->begun = now_seconds();
    return e;
}

void job_look(struct job *j)
{
    kvik_progress p = {.size = sizeof p};
    if (kvik_request_progress(j->request, &p) < 0) return;
    j->prefills = p.prefills > 0;
    j->have = p.reused_tokens + p.computed_tokens;
    if (j->calls->progress) j->calls->progress(j);
}

/* Returns how many tokens of the prompt had rows before the job computed any.  The request of a job with documents counts
 * all of their tokens as reused, also those that splicing.c has computed, so the sums of splicing.c are used. */
static uint64_t reused_of(const struct job *j, const kvik_progress *p)
{
    const struct splicing *c = &j->splicing;
    return c->seq ? c->reused + c->moved : p->reused_tokens;
}

void job_note_reuse(struct job *j)
{
    kvik_progress p = {.size = sizeof p};
    if (!j->counted && kvik_request_progress(j->request, &p) >= 0) j->reused = reused_of(j, &p);
}

void job_note_progress(struct job *j)
{
    kvik_progress p = {.size = sizeof p};
    if (kvik_request_progress(j->request, &p) < 0) return;
    if (!j->counted)
        j->reused = reused_of(j, &p); /* only of the first beginning, if the job was parked */
    j->counted = true;
    j->computed += p.computed_tokens + j->splicing.computed;
    j->splicing.computed = 0;
}
