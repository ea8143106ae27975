/* sized.h - structs that callers allocate begin with their size, so a program and the library may be compiled with
 * different versions of kvik.h. */
#pragma once
#include "base/base.h"

/* Describes a struct of the public interface. */
struct sized {
    const char *name;
    size_t known; /* bytes, in this library */
    size_t least; /* bytes, in the first version of the struct */
};

/* Copies the caller's struct over `full`, which holds the defaults and has `known` bytes.  Fields that the
 * caller's version lacks keep their defaults.  ERR_ARG if no version of the struct has this size; ERR_UNSUPPORTED
 * if a field that this library does not know is set. */
int sized_in(void *full, const struct sized *type, const void *given);
/* Does the same with element i of a caller's array, whose first element has the size of all. */
int sized_nth(void *full, const struct sized *type, const void *array, size_t i);
/* Checks the size of a struct that sized_out is to fill: ERR_ARG if no version of the struct has it. */
int sized_check(const void *given, const struct sized *type);
/* Copies `full` into the caller's struct, as many bytes as that has.  Fields that this library does not know
 * become 0. */
int sized_out(void *given, const void *full, const struct sized *type);

/* Each floor that uses SIZED(TYPE) defines least_TYPE: the bytes of the first version of the struct. */
#define SIZED(type)                     (&(const struct sized){#type, sizeof(type), least_##type})
#define SIZED_IN(full, given, type)     sized_in((full), SIZED(type), (given))
#define SIZED_NTH(full, array, i, type) sized_nth((full), SIZED(type), (array), (i))
#define SIZED_CHECK(given, type)        sized_check((given), SIZED(type))
#define SIZED_OUT(given, full, type)    sized_out((given), (full), SIZED(type))
