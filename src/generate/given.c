/* given.c - reads options and callbacks of a program that may have been compiled with another kvik.h. */
#include "generate/generate.h"
#include "generate/sizes.h"

int generation_in(const kvik_generation *g, kvik_generation *out)
{
    gen_defaults(out);
    return SIZED_IN(out, g, kvik_generation);
}

int hooks_in(const kvik_hooks *given, kvik_hooks *room, const kvik_hooks **out)
{
    *out = NULL;
    if (!given) return 0;
    *room = (kvik_hooks){0};
    TRY(SIZED_IN(room, given, kvik_hooks));
    if (room->n_shown_tokens && !room->shown_tokens)
        return ERR(ARG, "n_shown_tokens is %llu and shown_tokens is NULL",
                   (unsigned long long)room->n_shown_tokens);
    *out = room;
    return 0;
}
