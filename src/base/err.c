/* err.c - the thread-local error sentence. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char slot[1024];

int err_set(int code, const char *fmt, ...)
{
    char tmp[sizeof slot]; /* arguments may point into the slot */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(tmp, sizeof tmp, fmt, ap);
    va_end(ap);
    /* Names from files may hold control characters, which must not reach a terminal or a log. */
    for (char *p = tmp; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F) *p = '?';
    memcpy(slot, tmp, strlen(tmp) + 1);
    return code;
}

int err_prefix(int code, const char *fmt, ...)
{
    char old[sizeof slot], head[256];
    va_list ap;
    memcpy(old, slot, sizeof old);
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    size_t n = strlen(head);
    snprintf(slot, sizeof slot, "%s: %.*s", head, (int)(sizeof slot - n - 3), old);
    return code;
}

const char *err_last(void)
{
    return slot;
}

const char *err_name(int code)
{
    switch (code) {
#define ERR_CASE(n, v, s)                                                                          \
    case v:                                                                                        \
        return #n;
        ERR_MAP(ERR_CASE)
#undef ERR_CASE
    }
    return code >= 0 ? "OK" : "UNKNOWN";
}
