/* chunks.h - the chunks of a body, read strictly.  libevent takes sizes such as "0xf", "+f" and "f g" and misses no line end; where
 * a proxy reads them otherwise, a client could slip its text into the request of another. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum chunks_state {
    CHUNKS_SIZE,
    CHUNKS_SIZE_END,
    CHUNKS_DATA,
    CHUNKS_DATA_CR,
    CHUNKS_DATA_END,
    CHUNKS_LINE,    /* at the beginning of a line of the trailer */
    CHUNKS_IN_LINE, /* inside one */
    CHUNKS_LINE_END,
    CHUNKS_LAST_END,
    CHUNKS_OVER,
    CHUNKS_BAD
};
/* Zeroed: at the beginning of a body. */
struct chunks {
    enum chunks_state state;
    uint64_t left; /* of the size as far as it is read, or of the data */
    uint32_t digits;
};
/* Reads bytes of a body, which may be cut anywhere.  Returns how many belong to it: fewer where it is over or bad. */
size_t chunks_read(struct chunks *c, const char *bytes, size_t n);
