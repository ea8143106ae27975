/* bytes.c - prints byte counts with one decimal in powers of 1024: an option of 64M prints as "64.0 MiB". */
#include "base/bytes.h"

#include <stdio.h>

char *bytes_text(uint64_t n, char out[16])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)n;
    size_t i = 0;
    for (; v >= 1024 && i + 1 < countof(unit); i++)
        v /= 1024;
    snprintf(out, 16, i ? "%.1f %s" : "%.0f %s", v, unit[i]);
    return out;
}
