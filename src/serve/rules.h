/* rules.h - leaves out text that clients put at the front of a prompt and change with every request, because no row
 * behind such a text could be reused. */
#pragma once
#include "base/base.h"

/* Returns how many bytes at the front of a system text are left out, which is mostly 0. */
size_t rules_skip(const char *text, size_t n);
