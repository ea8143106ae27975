/* beside.h - paths around a file: the file that a link leads to, the names of temporary files, and its directory. */
#pragma once
#include "base/base.h"

#include <limits.h>

/* Follows the links of a path, also to a file that does not exist, so that a new file replaces no link.  A link that cannot be
 * followed, as one of a circle, is an error. */
int path_real(const char *path, char out[PATH_MAX]);
/* Writes the path of the directory that the file lies in. */
int path_dir(const char *path, char out[PATH_MAX]);
/* Makes a directory and those above it, for this user alone.  What is there already stays as it is.  The directory that the
 * first `kept` bytes name is not made: a home that does not exist is a mistake, or means that nothing shall be kept.  Errors
 * are not reported: the file that is made in the directory fails. */
void path_make_dirs(const char *dir, size_t kept);
/* Writes the name of the n-th temporary file beside a file: hidden, and with an ending that only kvik uses. */
int path_beside(const char *path, unsigned n, char out[PATH_MAX]);

#define PATH_BESIDE ".kvik-tmp" /* what the names of temporary files end in, before their number */
