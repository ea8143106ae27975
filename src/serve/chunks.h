/* chunks.h - reads the chunks of a body strictly.
 *
 * libevent accepts sizes such as "0xf", "+f" and "f g", and chunks whose line end is missing.  If a proxy in front reads
 * such a body otherwise, a client can slip text into the request of another client. */
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
/* Zeroed: stands at the beginning of a body. */
struct chunks {
    enum chunks_state state;
    uint64_t left; /* the size as far as it was read, or the bytes of data that are left */
    uint32_t digits;
};
/* Reads bytes of a body, which may be cut anywhere.  Returns how many bytes belong to the body: fewer than n if the
 * body is over or malformed. */
size_t chunks_read(struct chunks *c, const char *bytes, size_t n);
