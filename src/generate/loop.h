/* loop.h - generate(): prompts in, rows out. */
#pragma once
#include "base/base.h"
#include "kvik.h"

struct exec;
struct tok;
/* See kvik_generate.  tok may be NULL (no text, no stop strings). */
int gen_run(struct exec *x, const struct tok *tok, const kvik_generation *g,
            const kvik_prompt *prompt, uint32_t n, const kvik_hooks *hooks, kvik_result **out);
void gen_result_free(kvik_result *r);
