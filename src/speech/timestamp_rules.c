/* timestamp_rules.c - decides which tokens may come next in a text with timestamps, as Transformers does.
 * Timestamps come in pairs, except before the end.  They do not decrease.  A text begins with one.  If all
 * timestamps together are more likely than the most likely word, a timestamp must come. */
#include "speech/speech.h"

#include <math.h>

static void remove_range(float *scores, int64_t from, int64_t to)
{
    for (int64_t i = MAX(from, 0); i < to; i++)
        scores[i] = -INFINITY;
}

/* True if all timestamps together are more likely than each other token. */
static bool timestamp_due(const float *scores, uint32_t first, uint32_t vocab)
{
    float most = -INFINITY, word = -INFINITY;
    double sum = 0;
    for (uint32_t i = first; i < vocab; i++)
        most = fmaxf(most, scores[i]);
    if (most == -INFINITY) return false;
    for (uint32_t i = first; i < vocab; i++)
        sum += exp((double)scores[i] - (double)most);
    for (uint32_t i = 0; i < first; i++)
        word = fmaxf(word, scores[i]);
    return (double)most + log(sum) > (double)word;
}

void timestamp_rules(const struct speech_marks *k, const int32_t *ids, size_t n, float *scores,
                     uint32_t vocab)
{
    int32_t first = k->first_timestamp;
    if (first >= (int64_t)vocab) return;
    scores[k->no_timestamps] = -INFINITY;
    bool last = n >= 1 && ids[n - 1] >= first, before = n < 2 || ids[n - 2] >= first;
    if (last && before) remove_range(scores, first, vocab);
    if (last && !before) remove_range(scores, 0, k->eos);
    int64_t least = first;
    for (size_t i = n; i > 0; i--)
        if (ids[i - 1] >= first) {
            least = ids[i - 1] + (last && !before ? 0 : 1);
            break;
        }
    remove_range(scores, first, MIN(least, (int64_t)vocab));
    if (n == 0) {
        remove_range(scores, 0, first);
        if (k->max_initial >= 0) remove_range(scores, (int64_t)first + k->max_initial + 1, vocab);
    }
    if (timestamp_due(scores, (uint32_t)first, vocab)) remove_range(scores, 0, first);
}
