/* cache_folder.h - a cache directory for one test, and what tests do with its folders. */
#pragma once
#include "base/user_cache.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 256 };
/* the cache directory, and its folder for the tested kind of entries */
static char cache_dir[PATH], folder[PATH];

/* Removes a directory with all that is in it; a path that is absent is no error. */
static void remove_tree(const char *path)
{
    char name[512];
    const struct dirent *e;
    DIR *d = opendir(path);
    while (d && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(name, sizeof name, "%s/%.200s", path, e->d_name);
        if (unlink(name) < 0) remove_tree(name);
    }
    if (d) closedir(d);
    rmdir(path);
}

/* Gives the test an empty cache directory in `dir`.  Its folder keeps up to `most` entries, even for small and new
 * sources. */
static void cache_fresh(const char *dir, const char *kind_folder, uint32_t most)
{
    const struct cache_limits eager = {.margin = 0, .least = 0, .most = most};
    snprintf(cache_dir, sizeof cache_dir, "%s/cache", dir);
    snprintf(folder, sizeof folder, "%s/cache/kvik/%s", dir, kind_folder);
    (void)chmod(cache_dir, 0700); /* a test may have made it read-only */
    remove_tree(cache_dir);
    setenv("XDG_CACHE_HOME", cache_dir, 1);
    cache_limits_set(&eager);
}

/* Returns the number of entries in a folder; temporary files, which begin with a point, do not count.  Writes the
 * path of one entry, at most `size` bytes; NULL: no path. */
static unsigned count_entries(const char *at, char *path, size_t size)
{
    const struct dirent *e;
    unsigned n = 0;
    DIR *d = opendir(at);
    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.') {
            n++;
            if (path) snprintf(path, size, "%s/%.200s", at, e->d_name);
        }
    if (d) closedir(d);
    return n;
}
