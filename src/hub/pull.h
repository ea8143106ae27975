/* pull.h - a whole download: the files of a repository that kvik reads, into the hub's cache. */
#pragma once
#include "hub/listing.h"

struct pulled {
    /* Files of the repository; those that are `wanted` count.  Empty if the network is forbidden. */
    struct listing list;
    char commit[HUB_COMMIT];
    char path[HUB_PATH]; /* the model: a .gguf file or the directory of the snapshot */
    char from[512];      /* the hub's address */
    uint32_t files;      /* that are wanted */
    uint32_t missing;    /* and are not here */
    uint64_t bytes, missing_bytes;
};
struct pull {
    const struct hub_name *name;
    const struct hub_watch *watch; /* or NULL */
    bool dry;                      /* ends before the first file */
    /* NULL, or is called before the first file, with the watch's ctx, and again if the index of weights makes the download
     * larger.  An error ends the call. */
    int (*agrees)(void *ctx, const struct pulled *p);
};
/* Returns 0; or an error code, and *out holds nothing.  With HF_HUB_OFFLINE no socket is opened: a model that is here is
 * found. */
int hub_pull(const struct pull *how, struct pulled *out);
void pulled_done(struct pulled *p);
