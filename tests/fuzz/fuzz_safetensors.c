/* fuzz_safetensors.c - any bytes as a safetensors file. */
#include "fuzz.h"
#include "walk_fmt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *s = NULL;
    if (safetensors_parse(data, size, "fuzz", &s) < 0) {
        WALK_MUST(s == NULL && err_last()[0]);
        return 0;
    }
    walk_safetensors(s, data, size);
    safetensors_close(s);
    return 0;
}
