/* fuzz_head.c - the bytes of a connection, in two pieces.  The head is found wherever the pieces are cut, ends with an empty
 * line, and what is read of it lies in it. */
#include "fuzz.h"
#include "serve/head.h"

#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

static void check_inside(const char *s, const char *text, size_t n)
{
    if (s && *s) MUST(s >= text && s < text + n && memchr(s, 0, n - (size_t)(s - text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct head h;
    if (!size) return 0;
    size_t n = size - 1, cut = n ? data[0] % n : 0;
    char *text = malloc(n ? n : 1); /* of its own, so that ASan sees its end */
    MUST(text);
    memcpy(text, data + 1, n);
    size_t whole = head_length(text, n, 0), first = head_length(text, cut, 0);
    MUST(first ? first == whole : head_length(text, n, cut) == whole);
    MUST(whole <= n);
    if (whole) {
        MUST(text[whole - 1] == '\n');
        bool plain = head_plain(text, whole);
        MUST(!plain || !memchr(text, 0, whole));
        head_read(text, whole, &h);
        MUST(h.path);
        check_inside(h.path, text, whole);
        check_inside(h.authorization, text, whole);
        check_inside(h.key, text, whole);
        check_inside(h.length, text, whole);
        check_inside(h.coding, text, whole);
    }
    free(text);
    return 0;
}
