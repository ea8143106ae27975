/* open_schema.c - holds a compiled schema for a program, so that generations with the same text find it. */
#include "generate/chain.h"
#include "generate/handle.h"
#include "kvik_loop.h"

struct kvik_schema {
    struct refs refs;      /* one reference: the caller's */
    struct schema *schema; /* held */
};

KVIK_API int kvik_schema_open(const char *json_schema, const kvik_tokenizer *t, kvik_schema **out)
{
    if (!json_schema || !out)
        return ERR(ARG,
                   "a schema and a pointer for the result are needed, and one of them is NULL");
    if (t) TRY(tokenizer_check(t));
    kvik_schema *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    refs_init(&s->refs);
    int e = gen_schema_hold(json_schema, t ? t->tok : NULL, &s->schema);
    if (e < 0)
        mem_free(s);
    else
        *out = s;
    return MIN(e, 0);
}

KVIK_API void kvik_schema_close(kvik_schema *s)
{
    if (!s || !refs_close(&s->refs)) return;
    gen_schema_drop(s->schema);
    mem_free(s);
}
