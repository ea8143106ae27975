/* head.h - the head of a request, as far as it is read before its body is: who asks for which path. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct head {
    /* Parts of the text that was read, each with its own NUL.  The path has no query; the others are values of headers, or NULL. */
    const char *path, *authorization, *key, *length, *coding;
};
/* Returns how long the head is that a text begins with, its empty line included; 0: it is not whole yet.  `from`: how much
 * of it was looked at before. */
size_t head_length(const char *text, size_t n, size_t from);
/* True if lines end with \r\n or \n, and there is no other CR and no NUL: libevent cuts a value at a NUL. */
bool head_plain(const char *text, size_t n);
/* Reads a whole head, in which it writes NULs.  What is no HTTP is read as well as it goes: libevent judges it. */
void head_read(char *text, size_t n, struct head *out);
