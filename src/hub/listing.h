/* listing.h - what the hub's interface says of a repository, as JSON: its files, the commit of a revision, its branches. */
#pragma once
#include "base/base.h"
#include "hub/hub.h"

enum { LISTING_MOST = 100000, LISTING_BLOB = 65 };

struct listed {
    char *path; /* owned; hub_is_path */
    uint64_t size;
    char blob
        [LISTING_BLOB]; /* SHA-256 of the contents if `large`, else git's SHA-1: the name in blobs */
    bool large;         /* kept outside of git (LFS or Xet) */
    bool wanted;        /* set by choice.h */
};
struct listing {
    struct listed *file; /* [n], owned; sorted after listing_end */
    size_t n;
};
/* Adds the files of a page of /api/models/ID/tree/COMMIT. */
int listing_add(struct listing *l, const char *text, size_t n);
/* Sorts the files.  Fails if two files have the same path, or if the sum of the sizes exceeds SIZE_MOST. */
int listing_end(struct listing *l);
void listing_done(struct listing *l);
struct listed *listing_find(const struct listing *l, const char *path);
/* Reads the commit from an answer of /api/models/ID/revision/REVISION. */
int listing_commit(const char *text, size_t n, char commit[HUB_COMMIT]);
/* Writes the names of branches and tags from an answer of /api/models/ID/refs, with commas between them, as many as fit. */
int listing_refs(const char *text, size_t n, char *out, size_t room);
