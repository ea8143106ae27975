/* remove.h - removes models from the hub's cache. */
#pragma once
#include "hub/hub.h"

struct removed {
    uint64_t bytes;
    uint32_t files;
};
/* Removes what a name means: a repository with all its revisions; with a revision that one alone; with a file that file.
 * Contents that another revision uses stay.  ERR_BUSY if a file of the repository is being downloaded. */
int hub_remove(const struct hub_name *name, struct removed *out);
