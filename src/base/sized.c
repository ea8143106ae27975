/* sized.c - copies structs with a size in and out of the library. */
#include "base/sized.h"

#include <string.h>

enum { MOST = 1 << 16 }; /* bytes; no struct of this interface will be larger */

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

int sized_check(const void *given, const char *name)
{
    size_t size = size_of(given);
    if (size > sizeof size && size <= MOST) return 0;
    return ERR(ARG, "%s.size is %zu: set it to sizeof(%s) before the call", name, size, name);
}

int sized_in(void *full, size_t known, const void *given, const char *name)
{
    const unsigned char *from = given;
    TRY(sized_check(given, name));
    size_t size = size_of(given);
    for (size_t i = known; i < size; i++)
        if (from[i])
            return ERR(UNSUPPORTED,
                       "%s: a field at byte %zu is set, but this library knows %zu bytes; the "
                       "program was compiled with a newer kvik.h",
                       name, i, known);
    memcpy(full, given, MIN(size, known));
    memcpy(full, &known, sizeof known);
    return 0;
}

int sized_nth(void *full, size_t known, const void *array, size_t i, const char *name)
{
    TRY(sized_check(array, name));
    size_t stride = size_of(array);
    const char *given = (const char *)array + i * stride;
    if (size_of(given) != stride)
        return ERR(ARG, "%s %zu has size %zu, the first one %zu; set the size of every element",
                   name, i, size_of(given), stride);
    return sized_in(full, known, given, name);
}

int sized_out(void *given, const void *full, size_t known, const char *name)
{
    TRY(sized_check(given, name));
    size_t size = size_of(given), fields = sizeof size;
    memcpy((char *)given + fields, (const char *)full + fields, MIN(size, known) - fields);
    if (size > known) memset((char *)given + known, 0, size - known);
    return 0;
}
