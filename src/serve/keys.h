/* keys.h - the API keys of a server. */
#pragma once
#include "base/base.h"

struct keys;
/* Reads a file with a key in each line; empty lines and those that begin with '#' are skipped. */
int keys_read(const char *path, struct keys **out);
/* True if the key is one of them.  The time depends on the length of `key` and the number of keys alone. */
bool keys_have(const struct keys *k, const char *key);
/* Returns the key that a request has sent in these two headers, each of which may be NULL; NULL: none. */
const char *keys_sent(const char *authorization, const char *x_api_key);
/* Makes the salt of a request.  Prompts share rows if they have the same key (NULL: none) and the same text[n] of
 * the request.  The salt is a digest, so that files with the salt do not reveal the key.  With neither key nor text
 * it is "". */
enum { KEYS_SALT = 65 };
void keys_salt(const char *key, const char *own, size_t n, char out[KEYS_SALT]);
void keys_free(struct keys *k);
