/* logprobs.c - the log-probabilities that a program gets for each token: of the chosen token and of the most
 * likely ones.  They are those of the model, the softmax of its logits, even where processors, temperature and
 * filters changed what the choice was made from. */
#include "generate/run.h"

#include <math.h>

#define MOST 1024u /* most tokens; each may change all of them */

int run_logprobs_begin(struct run *r)
{
    const kvik_hooks *h = r->hooks;
    uint32_t vocab = r->x->m->vocab;
    if (!h || !h->on_logprobs) return 0;
    if (!r->mode->by_logits)
        return ERR(UNSUPPORTED,
                   "on_logprobs is for greedy decoding and sampling; beams have scores "
                   "(kvik_row.score), and contrastive search compares hidden states");
    if (h->top_logprobs > MIN(vocab, MOST))
        return ERR(ARG, "top_logprobs is %llu; at most %u are possible",
                   (unsigned long long)h->top_logprobs, MIN(vocab, MOST));
    r->top = mem_array((size_t)h->top_logprobs + 1, sizeof *r->top);
    return r->top ? 0 : ERR_NOMEM;
}

/* Finds the k largest logits, largest first; of equal ones the lower id comes first.  With remove_invalid_values
 * rows can have NaN, which is left out here.  Missing places get id -1. */
static void find_top(const float *logits, uint32_t vocab, kvik_logprob *top, uint32_t k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < vocab && k; i++) {
        if (isnan(logits[i]) || (n == k && !(logits[i] > top[k - 1].logprob))) continue;
        uint32_t at = n < k ? n++ : k - 1;
        for (; at && logits[i] > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (kvik_logprob){(int32_t)i, logits[i]};
    }
    for (; n < k; n++)
        top[n] = (kvik_logprob){-1, NAN};
}

bool run_logprobs(struct run *r, uint32_t i, const float *logits, int32_t id)
{
    uint32_t vocab = r->x->m->vocab, n;
    if (!r->top) return true;
    n = 1 + (uint32_t)r->hooks->top_logprobs;
    float most = logits[gen_argmax(logits, vocab)];
    double sum = 0;
    for (uint32_t k = 0; k < vocab; k++)
        if (!isnan(logits[k])) sum += expf(logits[k] - most);
    find_top(logits, vocab, r->top + 1, n - 1);
    r->top[0] = (kvik_logprob){id, logits[id]};
    for (uint32_t k = 0; k < n; k++)
        r->top[k].logprob = (float)((double)r->top[k].logprob - most - log(sum));
    return r->hooks->on_logprobs(r->hooks->ctx, i, r->top, n);
}
