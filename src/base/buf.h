/* buf.h - a growing byte buffer with a mandatory maximum size.  NUL-terminated after each append. */
#pragma once
#include "base/base.h"

struct buf {
    char *data; /* owned; NULL until the first byte */
    size_t len, cap, max;
};
void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);
void buf_clear(struct buf *b);            /* len 0, memory kept */
void buf_cut(struct buf *b, size_t len);  /* keeps at most the first len bytes */
int buf_reserve(struct buf *b, size_t n); /* room for n more bytes; ERR_LIMIT past max */
int buf_append(struct buf *b, const void *p, size_t n); /* ERR_LIMIT past max; unchanged then */
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_utf8(struct buf *b, uint32_t cp); /* appends one code point */
char *buf_take(struct buf *b); /* transfers the string (mem_free), never NULL unless NOMEM */
