/* cache_folder.h - what the tests of the user's cache directory do with its folders. */
#pragma once
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* Returns the number of entries of a folder, and writes the path of one of them, `size` bytes at most; NULL: no path.
 * Temporary files begin with a point and do not count. */
static unsigned count_entries(const char *folder, char *path, size_t size)
{
    const struct dirent *e;
    unsigned n = 0;
    DIR *d = opendir(folder);
    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.') {
            n++;
            if (path) snprintf(path, size, "%s/%.200s", folder, e->d_name);
        }
    if (d) closedir(d);
    return n;
}
