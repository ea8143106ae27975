/* sized.h - structs that callers allocate begin with their size, so that both sides may have another kvik.h. */
#pragma once
#include "base/base.h"

/* A struct of the interface. */
struct sized {
    const char *name;
    size_t known; /* bytes, in this library */
    size_t least; /* bytes, in the first version of the struct */
};

/* Copies a caller's struct over `full`, which has `known` bytes and holds the defaults.  Fields beyond given->size keep
 * them.  Fails with ERR_ARG if no version of the struct has the size, with ERR_UNSUPPORTED if fields beyond `known` are
 * set. */
int sized_in(void *full, const struct sized *type, const void *given);
/* Does the same with element i of a caller's array, whose first element has the size of all. */
int sized_nth(void *full, const struct sized *type, const void *array, size_t i);
/* Fails if no version of a struct that sized_out is to fill has its size. */
int sized_check(const void *given, const struct sized *type);
/* Copies `full` into a caller's struct as far as it reaches; fields that this library does not know become 0. */
int sized_out(void *given, const void *full, const struct sized *type);

/* The floor above says in least_TYPE how many bytes the first version of a struct had. */
#define SIZED(type)                     (&(const struct sized){#type, sizeof(type), least_##type})
#define SIZED_IN(full, given, type)     sized_in((full), SIZED(type), (given))
#define SIZED_NTH(full, array, i, type) sized_nth((full), SIZED(type), (array), (i))
#define SIZED_CHECK(given, type)        sized_check((given), SIZED(type))
#define SIZED_OUT(given, full, type)    sized_out((given), (full), SIZED(type))
