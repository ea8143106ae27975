/* blob.h - downloads the contents of one file into blobs. */
#pragma once
#include "hub/listing.h"
#include "hub/repository.h"
#include "hub/web.h"

struct blob {
    const struct store *store;
    const struct hub_watch *watch;
    const struct listed *file;
    const char *commit, *url;
};
/* Downloads the contents, or continues where an earlier call has stopped, and checks their hash.  A file appears in
 * blobs only if its hash is right.  Does nothing if the contents are there.  ERR_CANCELLED: the watch stopped the
 * download, and the next call continues it. */
int blob_fetch(struct web *w, const struct blob *b);
/* Returns the bytes that an earlier call has left. */
uint64_t blob_begun(const struct store *s, const struct listed *f);
