/* scan.h - a JSON scanner for headers and indexes of model files.  It reads values in place, one after the other,
 * and builds no tree.  A hostile header of 100 MB costs its own size in memory and well under a second; a tree of
 * it would take gigabytes. */
#pragma once
#include "base/base.h"

#define SCAN_MAX_DEPTH 128u

struct scan {
    const char *s; /* borrowed */
    size_t n, pos;
    const char *what; /* names the source in errors */
    char *text;       /* owned: decoded strings, each with its NUL; n bytes are always enough */
    size_t used;      /* a caller that keeps no string may reset it */
    bool nul;         /* strings may hold \u0000 */
};
/* Begins to read a text; ERR_FORMAT if it is not UTF-8. */
int scan_init(struct scan *j, const char *s, size_t n, const char *what);
void scan_done(struct scan *j);
int scan_error(const struct scan *j, const char *why); /* ERR_FORMAT with the position */

/* Returns the next character that is no white space, without consuming it; 0 at the end. */
char scan_peek(struct scan *j);
/* Consumes the next character if it is c; else ERR_FORMAT. */
int scan_char(struct scan *j, char c);
/* Reads a string without NUL (unless j->nul) and decodes it into j->text, where it lives as long as the scanner. */
int scan_string(struct scan *j, const char **out);
/* Returns the bytes of s, which must be the string or key that was read last. */
size_t scan_length(const struct scan *j, const char *s);
/* Reads a number below 2^64: digits only, without a sign, fraction or exponent. */
int scan_u64(struct scan *j, uint64_t *out);
/* Skips a value of any type. */
int scan_skip(struct scan *j);
/* Steps through an object whose '{' was consumed.  Returns 1 with the key, whose ':' is consumed, or 0 after the
 * '}'.  *first is true before the first call.  scan_item does the same for an array. */
int scan_key(struct scan *j, bool *first, const char **key);
int scan_item(struct scan *j, bool *first);
/* Returns ERR_FORMAT unless only white space is left. */
int scan_end(struct scan *j);
