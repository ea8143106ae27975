/* pull.h - a whole download: the files of a repository that kvik reads, into the hub's cache. */
#pragma once
#include "hub/listing.h"

struct pulled {
    /* All files of the repository; the model consists of those that are `wanted`.  Empty if the network is
     * forbidden. */
    struct listing list;
    char commit[HUB_COMMIT];
    char path[HUB_PATH]; /* path of the model: a .gguf file or the directory of a snapshot */
    char from[512];      /* the hub's address */
    uint32_t files;      /* number of wanted files */
    uint32_t missing;    /* how many of them are not in the cache */
    uint64_t bytes, missing_bytes;
};
struct pull {
    const struct hub_name *name;
    const struct hub_watch *watch; /* or NULL */
    bool dry;                      /* the call returns before it downloads a file */
    /* NULL, or a function that is called before the first file is downloaded, with the watch's ctx, and again if the
     * index of weights makes the download larger.  If it returns an error, the call ends with that error. */
    int (*agrees)(void *ctx, const struct pulled *p);
};
/* Returns 0, or an error code; then *out holds nothing.  If HF_HUB_OFFLINE is set, no socket is opened, and only a
 * model in the cache is found. */
int hub_pull(const struct pull *how, struct pulled *out);
void pulled_done(struct pulled *p);
