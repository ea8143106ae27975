/* fuzz_multipart.c - a Content-Type and, after a NUL byte, a multipart/form-data body.  Parts lie in the body, in its order,
 * and between two of them is their boundary; a failure has a sentence. */
#include "fuzz.h"
#include "serve/multipart.h"

#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? size - (size_t)(nul - data) - 1 : 0;
    struct form_part part[MULTIPART_PARTS];
    uint32_t parts = 0;
    if (!nul) return 0;
    char *body = malloc(n ? n : 1); /* of its own, so that ASan sees its end */
    MUST(body);
    if (n) memcpy(body, nul + 1, n);
    int e = multipart_read((const char *)data, body, n, part, &parts);
    MUST(e <= 0);
    if (e < 0) MUST(err_last()[0] && !parts);
    const char *at = body;
    for (uint32_t i = 0; i < parts; i++) {
        MUST(part[i].name[0] && strlen(part[i].name) < MULTIPART_NAME);
        if (part[i].file) MUST(part[i].file > at && part[i].file + part[i].n_file < part[i].data);
        MUST(part[i].data > at && part[i].n <= n - (size_t)(part[i].data - body));
        at = part[i].data + part[i].n;
        MUST((size_t)(at - body) + 5 <= n && !memcmp(at, "\r\n--", 4));
        MUST(multipart_find(part, parts, part[i].name) <= &part[i]);
    }
    free(body);
    return 0;
}
