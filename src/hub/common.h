/* common.h - contents that several repositories share.  The hub's own library keeps large files once for the whole cache:
 *
 *     blobs/.huggingface-shared-blobs      marks the layout, "1"
 *     blobs/AB/ABC...                      contents, named by 64 digits; the folder is the first two
 *     blobs/AB/ABC....refs                 paths of the links that lead there, one a line, which may be gone
 *     models--org--name/blobs/SHA          a link ../../blobs/AB/ABC...
 */
#pragma once
#include "hub/hub.h"

/* True if a link in the folder blobs of a repository leads to such contents. */
bool common_is_link(const char *target);
/* Removes the contents that a link led to, if no other link leads there.  blobs: the folder of the link.  Returns the bytes
 * that are free; 0 if the contents stay, as they do whenever it is not sure that nobody needs them. */
uint64_t common_sweep(int blobs, const char *target);
