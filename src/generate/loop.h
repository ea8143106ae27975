/* loop.h - generate(): prompts in, rows out. */
#pragma once
#include "base/base.h"
#include "kvik.h"

struct exec;
struct tok;
/* See kvik_generate.  tok may be NULL (no text, no stop strings). */
int gen_run(struct exec *x, const struct tok *tok, const kvik_generation *g,
            const kvik_prompt *prompt, uint32_t n, const kvik_hooks *hooks, kvik_result **out);
/* The same with somebody who guesses ahead, NULL: nobody; and a last thing to do, NULL: nothing. */
struct gen_assist {
    struct gen_assistant *assistant; /* a model with a cache of its own (draft.h) */
    const struct drafter *maker;     /* or whoever else, for tests; closed by the caller */
};
struct
    gen_finish { /* what is still to be made of a result, while a failure can give everything back */
    int (*call)(void *ctx, kvik_result *r);
    void *ctx;
};
int gen_run_with(struct exec *x, const struct tok *tok, const kvik_generation *g,
                 const kvik_prompt *prompt, uint32_t n, const kvik_hooks *hooks,
                 const struct gen_assist *assist, const struct gen_finish *finish,
                 kvik_result **out);
void gen_result_free(kvik_result *r);
