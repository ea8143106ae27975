/* repository.h - writes the hub's cache: folders, links, refs and locks.  The umask of the user sets the modes,
 * because several users may share a cache. */
#pragma once
#include "hub/hub.h"

struct store {
    char cache[HUB_PATH], folder[HUB_PATH]; /* the cache, and the repository's folder in it */
    char locks[HUB_PATH];
};
/* Fills in the paths, and makes nothing. */
int store_name(const char *cache, const char *repo, struct store *out);
/* Makes the directories.  A home directory that does not exist is not made. */
int store_make(const struct store *s);
/* Returns the bytes that the disk of the cache has for this user. */
int store_room(const struct store *s, uint64_t *out);
/* Takes the lock of a file's contents; waits while another process holds it.  Returns a descriptor that the caller
 * closes, or -1 where the file system has no locks.  Two processes may then write the temporary file at the same
 * time, which does no harm (blob.c). */
int store_lock(const struct store *s, const char *blob, const struct hub_watch *watch, int *fd);
/* Takes the lock of the repository's names, under which links and refs are made, and all is removed.  So no link is made to
 * contents that go at that moment.  Returns a descriptor in *fd, as store_lock does. */
#define STORE_NAMES "kvik"
int store_lock_names(const struct store *s, const struct hub_watch *watch, int *fd);
/* True if the contents are in blobs with this size.  Over NFS what another machine has just made is seen, since the
 * directory is opened anew. */
bool store_has_blob(const struct store *s, const char *blob, uint64_t size);
/* True if the file is in the snapshot with this size. */
bool store_has_file(const struct store *s, const char *commit, const char *path, uint64_t size);
/* Links a file of a snapshot to its contents. */
int store_link(const struct store *s, const char *commit, const char *path, const char *blob);
/* Makes refs/REVISION name a commit. */
int store_ref(const struct store *s, const char *revision, const char *commit);
