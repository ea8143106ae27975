/* given.c - options and callbacks as a program gave them, which may have been compiled with another kvik.h. */
#include "base/sized.h"
#include "generate/generate.h"

int generation_in(const kvik_generation *g, kvik_generation *out)
{
    gen_defaults(out);
    TRY(SIZED_IN(out, g, kvik_generation));
    if (g->size < GEN_SIZE_LEAST)
        return ERR(ARG, "kvik_generation.size is %zu: kvik_generation_init sets it", g->size);
    return 0;
}

int hooks_in(const kvik_hooks *given, kvik_hooks *room, const kvik_hooks **out)
{
    *out = NULL;
    if (!given) return 0;
    *room = (kvik_hooks){0};
    TRY(SIZED_IN(room, given, kvik_hooks));
    *out = room;
    return 0;
}
