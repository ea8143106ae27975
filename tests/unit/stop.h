/* stop.h - ends a test program whose own data is incomplete, such as a directory that cannot be read or a codec
 * that is not linked.  Otherwise such a test would run fewer cases and pass. */
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((format(printf, 1, 2), noreturn)) static inline void test_stop(const char *format,
                                                                             ...)
{
    va_list a;
    va_start(a, format);
    fprintf(stderr, "FAIL ");
    vfprintf(stderr, format, a);
    fprintf(stderr, "\n");
    va_end(a);
    exit(1);
}
