/* rules.h - what clients put at the front of a prompt and change with every request: it would make all rows behind it
 * useless, so it is left out. */
#pragma once
#include "base/base.h"

/* Returns how many bytes at the front of a system text are left out; often 0. */
size_t rules_skip(const char *text, size_t n);
