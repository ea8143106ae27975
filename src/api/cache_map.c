/* cache_map.c - the blocks of one sequence, or of the whole store, as JSON text (kvik_cache_map), and predictions of
 * what a sequence will hold. */
#include "generate/handle.h"

KVIK_API int kvik_cache_map(const kvik_cache *c, kvik_seq s, char **json)
{
    json_t *o;
    USE_CACHE(c);
    if (!json) return ERR(ARG, "a pointer for the text is needed, and NULL was given");
    if (s && !kv_tokens(c->x->kv, s)) return ERR(STALE, "the sequence was dropped");
    JSON_SCOPE(scope);
    TRY(s ? exec_map(c->x, s, &o) : exec_store_map(c->x, &o));
    int e = json_text(o, json);
    json_decref(o);
    return e;
}

KVIK_API int kvik_cache_plan(const kvik_cache *c, uint32_t prompt, uint32_t n, char **json)
{
    json_t *o;
    USE_CACHE(c);
    if (!json) return ERR(ARG, "a pointer for the text is needed, and NULL was given");
    if (prompt > n)
        return ERR(ARG, "a prompt of %u tokens is longer than its sequence of %u", prompt, n);
    if (n > kv_max_len(c->x->kv))
        return ERR(LIMIT, "%u tokens, max_cache_len is %u; give fewer, or open the cache with more",
                   n, kv_max_len(c->x->kv));
    JSON_SCOPE(scope);
    TRY(exec_plan(c->x, prompt, n, &o));
    int e = json_text(o, json);
    json_decref(o);
    return e;
}
