/* chunks.c - reads the chunks of a body strictly; see chunks.h. */
#include "serve/chunks.h"
#include "base/base.h"

#include <string.h>

enum { MOST_DIGITS = 15 };

static enum chunks_state read_size(struct chunks *c, char byte)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = byte ? strchr(digits, byte) : NULL;
    if (byte == '\r' && c->digits) return CHUNKS_SIZE_END;
    if (!at || ++c->digits > MOST_DIGITS) return CHUNKS_BAD;
    c->left = c->left * 16 + (uint64_t)(at - digits - (at - digits > 15 ? 6 : 0));
    return CHUNKS_SIZE;
}

/* Reads one byte of the framing, which is no data. */
static enum chunks_state read_byte(struct chunks *c, char byte)
{
    switch (c->state) {
    case CHUNKS_SIZE:
        return read_size(c, byte);
    case CHUNKS_SIZE_END:
        c->digits = 0;
        return byte != '\n' ? CHUNKS_BAD : c->left ? CHUNKS_DATA : CHUNKS_LINE;
    case CHUNKS_DATA_CR:
        return byte == '\r' ? CHUNKS_DATA_END : CHUNKS_BAD;
    case CHUNKS_DATA_END:
        return byte == '\n' ? CHUNKS_SIZE : CHUNKS_BAD;
    case CHUNKS_LINE:
    case CHUNKS_IN_LINE:
        if (byte == '\r') return c->state == CHUNKS_LINE ? CHUNKS_LAST_END : CHUNKS_LINE_END;
        return byte && byte != '\n' ? CHUNKS_IN_LINE : CHUNKS_BAD;
    case CHUNKS_LINE_END:
        return byte == '\n' ? CHUNKS_LINE : CHUNKS_BAD;
    case CHUNKS_LAST_END:
        return byte == '\n' ? CHUNKS_OVER : CHUNKS_BAD;
    default:
        return c->state;
    }
}

size_t chunks_read(struct chunks *c, const char *bytes, size_t n)
{
    size_t at = 0;
    while (at < n && c->state < CHUNKS_OVER) {
        if (c->state != CHUNKS_DATA) {
            c->state = read_byte(c, bytes[at++]);
            continue;
        }
        size_t data = (size_t)MIN(c->left, n - at);
        at += data;
        c->left -= data;
        if (!c->left) c->state = CHUNKS_DATA_CR;
    }
    return at;
}
