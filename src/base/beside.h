/* beside.h - paths around a file: the file that a link leads to, the names of temporary files, and its directory. */
#pragma once
#include "base/base.h"

#include <limits.h>

/* Follows the links of a path, so that writing a new file does not replace a link.  The file that the last link
 * names need not exist.  Links that cannot be followed, such as links in a circle, are an error. */
int path_real(const char *path, char out[PATH_MAX]);
/* Writes the path of the directory that the file lies in. */
int path_dir(const char *path, char out[PATH_MAX]);
/* Makes a directory and its parents, with access for this user alone.  Directories that exist are not changed.
 * The directory named by the first `kept` bytes is never made: a home directory that does not exist is a mistake,
 * or means that nothing shall be kept.  Errors are not reported here, because creating a file in the directory
 * fails next. */
void path_make_dirs(const char *dir, size_t kept);
/* Makes a directory, and those above it that are missing.  Returns 0 if it is there, else -1 and sets errno. */
int path_make_dir(const char *dir);
/* Writes the name of the n-th temporary file beside a file: hidden, and with an ending that only kvik uses. */
int path_beside(const char *path, unsigned n, char out[PATH_MAX]);

#define PATH_BESIDE ".kvik-tmp" /* the end of the names of temporary files, before their number */
