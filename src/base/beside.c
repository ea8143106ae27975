/* beside.c - works on the text of paths.  Only path_real asks the system, and only path_make_dirs changes
 * something. */
#include "base/beside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LINKS = 40,
    NAME_KEPT = 200
}; /* the limit of Linux; a name of 255 bytes must have room for the ending */

static int too_long(const char *path)
{
    return ERR(LIMIT,
               "%.200s...: the path has %zu bytes, and the system allows %d; use a shorter one",
               path, strlen(path), PATH_MAX - 1);
}

int path_dir(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (n >= PATH_MAX) return too_long(path);
    memcpy(out, n ? path : ".", MAX(n, 1));
    out[MAX(n, 1)] = '\0';
    return 0;
}

void path_make_dirs(const char *dir, size_t kept)
{
    char at[PATH_MAX];
    if (strlen(dir) <= kept || snprintf(at, sizeof at, "%s", dir) >= PATH_MAX) return;
    for (char *s = strchr(at + kept + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = 0;
        (void)mkdir(at, 0700);
        *s = '/';
    }
    (void)mkdir(at, 0700);
}

int path_make_dir(const char *dir)
{
    if (mkdir(dir, 0700) == 0 || errno == EEXIST) return 0;
    if (errno != ENOENT) return -1;
    path_make_dirs(dir, 0);
    return mkdir(dir, 0700) == 0 || errno == EEXIST ? 0 : -1;
}

/* Writes the path of `name` in the directory of `path`. */
static int in_same_dir(const char *path, const char *name, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash + 1 - path) : 0;
    return snprintf(out, PATH_MAX, "%.*s%s", n, path, name) < PATH_MAX ? 0 : too_long(path);
}

int path_real(const char *path, char out[PATH_MAX])
{
    char at[PATH_MAX], to[PATH_MAX];
    if (snprintf(at, sizeof at, "%s", path) >= PATH_MAX) return too_long(path);
    for (int i = 0; i < LINKS && !realpath(at, out); i++) {
        ssize_t n = errno == ENOENT ? readlink(at, to, sizeof to - 1) : -1;
        if (n < 0) break;
        to[n] = '\0';
        if (*to == '/')
            memcpy(out, to, (size_t)n + 1);
        else
            TRY(in_same_dir(at, to, out));
        memcpy(at, out, strlen(out) + 1);
    }
    if (realpath(at, out)) return 0;
    int e = errno;
    if (readlink(at, to, sizeof to) >= 0) return ERR(IO, "%s: %s", path, strerror(e));
    memcpy(out, at, strlen(at) + 1);
    return 0;
}

int path_beside(const char *path, unsigned n, char out[PATH_MAX])
{
    char name[NAME_MAX + 1], number[16] = "";
    const char *slash = strrchr(path, '/');
    if (n) snprintf(number, sizeof number, "%u", n + 1);
    snprintf(name, sizeof name, ".%.*s" PATH_BESIDE "%s", NAME_KEPT, slash ? slash + 1 : path,
             number);
    return in_same_dir(path, name, out);
}
