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

/* Checks the size that a caller has set.  Every struct begins with a size_t, so its size is a multiple of that of a size_t. */
int sized_check(const void *given, const struct sized *type)
{
    size_t size = size_of(given);
    if (size >= type->least && size <= MOST && size % sizeof size == 0) return 0;
    return ERR(ARG, "%s.size is %zu, which no version has: set it to sizeof(%s), %zu here",
               type->name, size, type->name, type->known);
}

int sized_in(void *full, const struct sized *type, const void *given)
{
    const unsigned char *from = given;
    TRY(sized_check(given, type));
    size_t size = size_of(given), known = type->known;
    for (size_t i = known; i < size; i++)
        if (from[i])
            return ERR(UNSUPPORTED,
                       "%s: a field at byte %zu is set, but this library knows %zu bytes; the "
                       "program was compiled with a newer kvik.h",
                       type->name, i, known);
    memcpy(full, given, MIN(size, known));
    memcpy(full, &known, sizeof known);
    return 0;
}

int sized_nth(void *full, const struct sized *type, const void *array, size_t i)
{
    TRY(sized_check(array, type));
    size_t stride = size_of(array);
    const char *given = (const char *)array + i * stride;
    if (size_of(given) != stride)
        return ERR(ARG, "%s %zu has size %zu, the first one %zu; set the size of every element",
                   type->name, i, size_of(given), stride);
    return sized_in(full, type, given);
}

int sized_out(void *given, const void *full, const struct sized *type)
{
    TRY(sized_check(given, type));
    size_t size = size_of(given), known = type->known, fields = sizeof size;
    memcpy((char *)given + fields, (const char *)full + fields, MIN(size, known) - fields);
    if (size > known) memset((char *)given + known, 0, size - known);
    return 0;
}
