/* guard.h - spans of a rendered prompt in which special tokens must not be recognised. */
#pragma once
#include "base/base.h"
#include "chat/chat.h"

struct tok;
struct tok_span;
struct plain_spans {
    struct tok_span *v; /* owned (mem_free); ascending, disjoint */
    size_t n, cap;
    size_t n_own; /* special tokens the template wrote */
};
int guard_spans(const struct tok *t, const char *s, size_t n, const struct jinja_span *foreign,
                size_t n_foreign, struct plain_spans *out);
