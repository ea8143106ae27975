/* head.h - reads the head of a request before its body is read: who asks, and for which path. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct head {
    /* Parts of the text that was read, each ended by a NUL.  The path has no query; the others are values of
     * headers, or NULL. */
    const char *path, *authorization, *key, *length, *coding;
};
/* Returns the length of the head that a text begins with, its empty line included; 0: the head is incomplete.  from:
 * bytes that an earlier call has looked at. */
size_t head_length(const char *text, size_t n, size_t from);
/* True if all lines end with \r\n or \n, and there is no other CR and no NUL.  (libevent would cut a value at a
 * NUL.) */
bool head_plain(const char *text, size_t n);
/* Reads a whole head, and writes NULs into it.  A head that is not HTTP is read as far as possible; libevent judges
 * it later. */
void head_read(char *text, size_t n, struct head *out);
