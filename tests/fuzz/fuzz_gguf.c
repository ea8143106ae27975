/* fuzz_gguf.c - any bytes as a GGUF file. */
#include "fuzz.h"
#include "walk_fmt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    if (gguf_parse(data, size, "fuzz", &g) < 0) {
        WALK_MUST(g == NULL && err_last()[0]);
        return 0;
    }
    walk_gguf(g, data, size);
    gguf_close(g);
    return 0;
}
