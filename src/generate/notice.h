/* notice.h - the notices of a run: one line each, through the caller's hook. */
#pragma once
#include "kvik.h"

struct exec;
/* Tells the hook, once, that a cache that was to stay in memory has begun to stream.  Returns true if it does so. */
bool gen_notice_full(const struct exec *x, const kvik_hooks *hooks, bool *told);
/* Tells the hook, once for each rung, that rows were encoded because memory was short.  *told: the last rung that was
 * told. */
void gen_notice_encoded(const struct exec *x, const kvik_hooks *hooks, uint32_t *told);
/* Tells the hook, once in a run, that a row ends because its logits are not finite. */
void gen_notice_broken(const kvik_hooks *hooks, uint32_t row, uint32_t tokens, bool *told);
