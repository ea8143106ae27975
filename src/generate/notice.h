/* notice.h - what a run tells people besides text: one line each, through the caller's hook. */
#pragma once
#include "kvik.h"

struct exec;
/* True once, the first time after `*told` was false, when a cache that was to stay in memory began to stream. */
bool gen_notice_full(const struct exec *x, const kvik_hooks *hooks, bool *told);
