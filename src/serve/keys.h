/* keys.h - the API keys of a server. */
#pragma once
#include "base/base.h"

struct keys;
/* Reads a file with a key in each line; empty lines and those that begin with '#' are skipped. */
int keys_read(const char *path, struct keys **out);
/* True if the key is one of them.  The time depends on the length of `key` and the number of keys alone. */
bool keys_have(const struct keys *k, const char *key);
void keys_free(struct keys *k);
