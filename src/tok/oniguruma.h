/* oniguruma.h - regular expressions in the dialect of Oniguruma, which tokenizer files use, rewritten for PCRE2. */
#pragma once
#include "base/buf.h"

/* Appends the PCRE2 text (UTF, UCP, MULTILINE, newline LF) of the pattern.  ERR_UNSUPPORTED names a construct
 * that PCRE2 cannot express. */
int oniguruma_rewrite(const char *s, size_t n, struct buf *out);
