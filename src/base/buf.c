/* buf.c - a growing byte buffer with a mandatory maximum size. */
#include "base/buf.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_done(struct buf *b)
{
    mem_free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data) b->data[0] = 0;
}

void buf_cut(struct buf *b, size_t len)
{
    if (len >= b->len) return;
    b->len = len;
    b->data[len] = 0;
}

int buf_reserve(struct buf *b, size_t n)
{
    size_t need;
    if (!ck_add(b->len, n, &need) || need > b->max)
        return ERR(LIMIT, "text longer than the limit of %zu bytes", b->max);
    if (need + 1 <= b->cap) return 0;
    size_t cap = MAX(b->cap * 2, (size_t)64);
    if (cap < need + 1) cap = need + 1;
    char *p = mem_grow(b->data, cap, 1);
    if (!p) return ERR_NOMEM;
    b->data = p;
    b->cap = cap;
    b->data[b->len] = 0;
    return 0;
}

int buf_append(struct buf *b, const void *p, size_t n)
{
    TRY(buf_reserve(b, n));
    if (n) memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
    return 0;
}

int buf_puts(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
    return buf_append(b, &c, 1);
}

int buf_utf8(struct buf *b, uint32_t cp)
{
    char tmp[4];
    return buf_append(b, tmp, utf8_encode(cp, tmp));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) return ERR(ARG, "bad format");
    TRY(buf_reserve(b, (size_t)n));
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

char *buf_take(struct buf *b)
{
    if (!b->data && buf_reserve(b, 0) < 0) return NULL;
    b->data[b->len] = 0;
    char *p = b->data;
    *b = (struct buf){.max = b->max};
    return p;
}
