/* sized.h - structs that callers allocate begin with their size, so that both sides may have another kvik.h. */
#pragma once
#include "base/base.h"

/* Copies a caller's struct over `full`, which has `known` bytes and holds the defaults.  Fields beyond given->size keep
 * them.  Fails with ERR_ARG if the size is impossible, with ERR_UNSUPPORTED if fields beyond `known` are set. */
int sized_in(void *full, size_t known, const void *given, const char *name);
/* Does the same with element i of a caller's array, whose first element has the size of all. */
int sized_nth(void *full, size_t known, const void *array, size_t i, const char *name);
/* Fails if the size of a struct that sized_out is to fill is impossible. */
int sized_check(const void *given, const char *name);
/* Copies `full` into a caller's struct as far as it reaches; fields that this library does not know become 0. */
int sized_out(void *given, const void *full, size_t known, const char *name);

#define SIZED_IN(full, given, type)     sized_in((full), sizeof(type), (given), #type)
#define SIZED_NTH(full, array, i, type) sized_nth((full), sizeof(type), (array), (i), #type)
#define SIZED_CHECK(given, type)        sized_check((given), #type)
#define SIZED_OUT(given, full, type)    sized_out((given), (full), sizeof(type), #type)
