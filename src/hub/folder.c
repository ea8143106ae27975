/* folder.c - lists the names in a directory.  They are sorted, so that the output of the command does not depend on
 * the file system. */
#include "hub/folder.h"
#include "base/descriptor.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

int folder_list(const char *path, const char *tail, struct folder *out)
{
    const struct dirent *d;
    *out = (struct folder){0};
    DIR *list = fd_list(path);
    if (!list)
        return errno == ENOENT || errno == ENOTDIR ? 0 : ERR(IO, "%s: %s", path, strerror(errno));
    int e = 0;
    while (e >= 0 && (d = readdir(list))) {
        if (d->d_name[0] == '.' || !ends_with(d->d_name, tail)) continue;
        char *copy = mem_strdup(d->d_name),
             **grown = mem_grow(out->name, out->n + 1, sizeof *grown);
        if (grown) out->name = grown;
        if (copy && grown)
            out->name[out->n++] = copy;
        else
            mem_free(copy), e = ERR_NOMEM;
    }
    closedir(list);
    if (e < 0) {
        folder_done(out);
        return e;
    }
    if (out->n) qsort(out->name, out->n, sizeof *out->name, by_name);
    return 0;
}

void folder_done(struct folder *f)
{
    for (size_t i = 0; i < f->n; i++)
        mem_free(f->name[i]);
    mem_free(f->name);
    *f = (struct folder){0};
}
