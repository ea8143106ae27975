/* timings.c - the times of a request, and how far a prompt is, in llama-server's words. */
#include "serve/protocol.h"

#include <math.h>

static double per_second(double tokens, double seconds)
{
    return seconds > 0 ? tokens / seconds : 0;
}

static double each(double tokens, double milliseconds)
{
    return tokens > 0 ? milliseconds / tokens : 0;
}

/* read: tokens of the prompt that were computed in `prompt` seconds.  The first token of a text comes with its
 * prompt and needs no step of its own, so the rate counts the others. */
static json_t *timings(const struct answer *a, uint64_t read, double prompt)
{
    uint64_t n = 0, steps = 0;
    for (uint32_t i = 0; i < a->ask.choices; i++) {
        n += a->choice[i].new_tokens;
        steps += a->choice[i].new_tokens - (a->choice[i].new_tokens > 0);
    }
    double written = fmax(a->decoding, 0);
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n",
                     (json_int_t)a->reused, "prompt_n", (json_int_t)read, "prompt_ms", prompt * 1e3,
                     "prompt_per_token_ms", each((double)read, prompt * 1e3), "prompt_per_second",
                     per_second((double)read, prompt), "predicted_n", (json_int_t)n, "predicted_ms",
                     written * 1e3, "predicted_per_token_ms", each((double)steps, written * 1e3),
                     "predicted_per_second", per_second((double)steps, written));
}

json_t *answer_timings(const struct answer *a)
{
    return timings(a, a->prompt_tokens - a->reused, fmax(a->first - a->waited, 0));
}

void answer_add_timings(const struct answer *a, const struct choice *c, json_t *o)
{
    if (a->ask.timings || (c && c->over)) json_object_set_new(o, "timings", answer_timings(a));
}

void answer_progress(struct answer *a, const struct job *j, uint64_t have)
{
    if (!a->ask.progress || !a->ask.stream || !a->protocol->progress || j->index != 0 ||
        (a->progressed && have <= a->processed))
        return;
    a->progressed = true;
    a->processed = have;
    uint64_t read = have - MIN(have, a->reused);
    double seconds = read ? now_seconds() - j->begun : 0;
    json_t *o =
        json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)j->n, "cache", (json_int_t)a->reused,
                  "processed", (json_int_t)have, "time_ms", (json_int_t)(seconds * 1e3));
    a->protocol->progress(a, o, a->ask.timings ? timings(a, read, seconds) : NULL);
}
