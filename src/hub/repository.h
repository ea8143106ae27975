/* repository.h - writes the hub's cache: folders, links, refs and locks.  Modes are those of the user's umask, because a cache can
 * be shared. */
#pragma once
#include "hub/hub.h"

struct store {
    char cache[HUB_PATH], folder[HUB_PATH]; /* the cache, and the repository's folder in it */
    char locks[HUB_PATH];
};
/* Only fills the paths in. */
int store_name(const char *cache, const char *repo, struct store *out);
/* Makes the directories.  A home directory that does not exist is not made. */
int store_make(const struct store *s);
/* Returns the bytes that the disk of the cache has for this user. */
int store_room(const struct store *s, uint64_t *out);
/* Takes the lock of a file's contents, and waits while another process has it.  Returns a descriptor to close; or -1 where
 * the file system has no locks: the temporary file is written so that this cannot do harm. */
int store_lock(const struct store *s, const char *blob, const struct hub_watch *watch, int *fd);
/* True if the contents are in blobs with this size. */
bool store_has_blob(const struct store *s, const char *blob, uint64_t size);
/* True if the file is in the snapshot with this size. */
bool store_has_file(const struct store *s, const char *commit, const char *path, uint64_t size);
/* Links a file of a snapshot to its contents. */
int store_link(const struct store *s, const char *commit, const char *path, const char *blob);
/* Makes refs/REVISION name a commit. */
int store_ref(const struct store *s, const char *revision, const char *commit);
