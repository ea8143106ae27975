/* fuzz_chunks.c - the body of a request in chunks.  It ends at the same byte wherever it is cut, and each byte of a whole body
 * has one meaning: written anew from its data, it is the same but for leading zeros and the letters of sizes. */
#include "fuzz.h"
#include "serve/chunks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

/* Finds the end of a whole body as a strict reader does that has all of it; 0: it is none. */
static size_t length_of(const char *s, size_t n)
{
    size_t at = 0;
    for (bool last = false; !last;) {
        char *end;
        size_t digits = 0;
        while (at + digits < n && strchr("0123456789abcdefABCDEF", s[at + digits]) &&
               s[at + digits])
            digits++;
        if (!digits || digits > 15 || at + digits + 2 > n ||
            memcmp(s + at + digits, "\r\n", 2) != 0)
            return 0;
        unsigned long long size = strtoull(s + at, &end, 16);
        MUST(end == s + at + digits);
        at += digits + 2;
        last = !size;
        if (last) break;
        if (size > n - at || n - at - size < 2 || memcmp(s + at + size, "\r\n", 2) != 0) return 0;
        at += size + 2;
    }
    for (;;) {
        size_t line = 0;
        while (at + line < n && s[at + line] && s[at + line] != '\r' && s[at + line] != '\n')
            line++;
        if (at + line + 2 > n || memcmp(s + at + line, "\r\n", 2) != 0) return 0;
        at += line + 2;
        if (!line) return at;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chunks whole = {0}, parts = {0};
    if (!size) return 0;
    size_t n = size - 1, cut = n ? data[0] % n : 0;
    char *s = malloc(n + 1); /* of its own, so that ASan sees its end */
    MUST(s);
    memcpy(s, data + 1, n);
    s[n] = 0;
    size_t used = chunks_read(&whole, s, n);
    size_t first = chunks_read(&parts, s, cut);
    if (parts.state < CHUNKS_OVER) first += chunks_read(&parts, s + cut, n - cut);
    MUST(used <= n && first == used && parts.state == whole.state);
    MUST(whole.state >= CHUNKS_OVER || used == n);
    MUST((whole.state == CHUNKS_OVER ? used : 0) == length_of(s, n));
    free(s);
    return 0;
}
