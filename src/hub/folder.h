/* folder.h - the names in a directory that end with `tail`, sorted, without hidden ones. */
#pragma once
#include "base/base.h"

struct folder {
    char **name; /* [n], owned */
    size_t n;
};
/* Lists the names in a directory.  An absent directory has none. */
int folder_list(const char *path, const char *tail, struct folder *out);
void folder_done(struct folder *f);
