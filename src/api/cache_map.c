/* cache_map.c - the blocks of one sequence, or of the whole store, as JSON text; see kvik_cache_map. */
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
