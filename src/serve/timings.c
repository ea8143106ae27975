/* timings.c - how long the parts of a request took, in the words of llama-server. */
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

json_t *answer_timings(const struct answer *a)
{
    double prompt = fmax(a->first - a->waited, 0), written = fmax(a->decoding, 0),
           read = (double)(a->prompt_tokens - a->reused), n = (double)a->new_tokens;
    return json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n", (json_int_t)a->reused,
        "prompt_n", (json_int_t)a->prompt_tokens - (json_int_t)a->reused, "prompt_ms", prompt * 1e3,
        "prompt_per_token_ms", each(read, prompt * 1e3), "prompt_per_second",
        per_second(read, prompt), "predicted_n", (json_int_t)a->new_tokens, "predicted_ms",
        written * 1e3, "predicted_per_token_ms", each(n, written * 1e3), "predicted_per_second",
        per_second(n, written));
}
