/* sample.c - chooses a token: the most likely one, or a draw.  The random number of a draw is a function of (seed,
 * row, step) alone: Philox4x32-10 as a hash of a counter (Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", SC 2011).  So a row draws the same tokens in any batch, and nothing has to be saved between steps. */
#include "generate/chain.h"
#include "generate/random.h"

#include <math.h>
#include <string.h>

static void philox(uint32_t counter[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * counter[0], b = (uint64_t)0xCD9E8D57u * counter[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ counter[1] ^ k0, (uint32_t)b,
                            (uint32_t)(a >> 32) ^ counter[3] ^ k1, (uint32_t)a};
        for (int i = 0; i < 4; i++)
            counter[i] = next[i];
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

double random_uniform(uint64_t seed, uint32_t row, uint32_t step, uint32_t beam, uint32_t token)
{
    uint32_t counter[4] = {step, row, beam, token};
    philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    uint64_t bits = ((uint64_t)counter[0] << 32 | counter[1]) >> 11;
    return (double)bits * 0x1p-53;
}

bool gen_finite(const float *logits, uint32_t n)
{
    enum { AT_ONCE = 16 };             /* compilers turn a loop of this length into vectors */
    int32_t most[AT_ONCE] = {0}, bits; /* signed, because SSE2 has no unsigned comparison */
    uint32_t i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE)
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            memcpy(&bits, logits + i + k, sizeof bits);
            bits &= 0x7FFFFFFF;
            most[k] = most[k] > bits ? most[k] : bits;
        }
    for (; i < n; i++) {
        memcpy(&bits, logits + i, sizeof bits);
        most[0] = MAX(most[0], bits & 0x7FFFFFFF);
    }
    for (uint32_t k = 1; k < AT_ONCE; k++)
        most[0] = MAX(most[0], most[k]);
    return most[0] < 0x7F800000; /* this is infinity; the bits of NaN are greater */
}

/* Searches block by block.  Vectors find the largest value of a block; its index is only searched if it is the
 * largest so far. */
int32_t gen_argmax(const float *scores, uint32_t n)
{
    enum { BLOCK = 1024, AT_ONCE = 16 }; /* compilers turn a loop of AT_ONCE into vectors */
    uint32_t best = 0;
    float max = -INFINITY;
    for (uint32_t from = 0, end; from < n; from = end) {
        float most[AT_ONCE], top = -INFINITY;
        uint32_t i = from;
        end = n - from > BLOCK ? from + BLOCK : n;
        for (uint32_t k = 0; k < AT_ONCE; k++)
            most[k] = -INFINITY;
        for (; i + AT_ONCE <= end; i += AT_ONCE)
            for (uint32_t k = 0; k < AT_ONCE; k++)
                most[k] = scores[i + k] > most[k] ? scores[i + k] : most[k];
        for (; i < end; i++)
            top = scores[i] > top ? scores[i] : top;
        for (uint32_t k = 0; k < AT_ONCE; k++)
            top = most[k] > top ? most[k] : top;
        if (!(top > max)) continue;
        max = top;
        best = from;
        while (scores[best] != top)
            best++;
    }
    return (int32_t)best;
}

int32_t gen_sample(struct gen_chain *c, const float *scores, uint64_t seed, uint32_t row,
                   uint32_t step)
{
    double total = gen_weights(scores, c->vocab, c->value);
    if (!(total > 0)) return gen_argmax(scores, c->vocab);
    double target = random_uniform(seed, row, step, 0, 0) * total, sum = 0;
    int32_t last = 0;
    for (uint32_t i = 0; i < c->vocab; i++) {
        if (!(c->value[i] > 0)) continue;
        sum += c->value[i];
        last = (int32_t)i;
        if (sum > target) return last;
    }
    return last; /* because of rounding no sum was above the target */
}
