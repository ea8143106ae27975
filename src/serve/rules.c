/* rules.c - the table of named rules; see rules.h.  docs/SERVING.md lists them. */
#include "serve/rules.h"

#include <string.h>

/* A system text's first line is left out if it begins with one of these, and so are the empty lines behind it. */
static const struct {
    const char *name, *begins;
} rules[] = {
    /* Claude Code: a header for its maker's accounting, with a digest of the request. */
    {"claude-code-billing", "x-anthropic-billing-header"},
};

size_t rules_skip(const char *text, size_t n)
{
    for (size_t i = 0; i < countof(rules); i++) {
        size_t len = strlen(rules[i].begins);
        if (n < len || memcmp(text, rules[i].begins, len) != 0) continue;
        const char *end = memchr(text, '\n', n);
        size_t at = end ? (size_t)(end - text) : n;
        while (at < n && text[at] == '\n')
            at++;
        return at;
    }
    return 0;
}
