/* remove.c - removes models.  Refs are removed first, then links, then contents, so that no name is left whose
 * target is gone.  No link is followed, so nothing outside of the repository's folder is removed. */
#include "hub/remove.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "hub/choice.h"
#include "hub/common.h"
#include "hub/folder.h"
#include "hub/repository.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEPEST = 40 };

static int failed(const char *name)
{
    return ERR(IO, "%.200s cannot be removed: %s", name, strerror(errno));
}

/* Calls fn for every file and link below the directory parent/name, and for each directory after all that is in it. */
typedef int visit(void *ctx, int dir, const char *name, const struct stat *st);
static int walk_folder(int parent, const char *name, int depth, visit *fn, void *ctx)
{
    const struct dirent *d;
    struct stat st;
    if (!depth) return ERR(LIMIT, "%.200s: directories are nested over %d deep", name, DEEPEST);
    int fd = fd_open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0), e = 0;
    if (fd < 0) return errno == ENOENT ? 0 : failed(name);
    DIR *list = fd_list_at(fd, ".");
    if (!list) e = failed(name);
    while (e >= 0 && (d = readdir(list))) {
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
        /* it fails if another process has removed the file already */
        if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;
        if (S_ISDIR(st.st_mode)) e = walk_folder(fd, d->d_name, depth - 1, fn, ctx);
        if (e >= 0) e = fn(ctx, fd, d->d_name, &st);
    }
    if (list) closedir(list);
    close(fd);
    return e;
}

static int unlink_one(void *ctx, int dir, const char *name, const struct stat *st)
{
    struct removed *r = ctx;
    char to[HUB_PATH];
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(dir, name, to, sizeof to - 1) : 0;
    to[MAX(n, 0)] = 0;
    if (unlinkat(dir, name, S_ISDIR(st->st_mode) ? AT_REMOVEDIR : 0) < 0)
        return errno == ENOENT ? 0 : failed(name);
    if (common_is_link(to)) r->bytes += common_sweep(dir, to);
    if (S_ISREG(st->st_mode)) r->bytes += (uint64_t)st->st_size;
    if (!S_ISDIR(st->st_mode)) r->files++;
    return 0;
}

/* Opens a directory below another one.  No part of the path may be a link. */
static int open_below(int dir, const char *path)
{
    char part[HUB_PATH];
    int fd = fd_open_at(dir, ".", O_RDONLY | O_DIRECTORY, 0);
    while (fd >= 0 && *path) {
        size_t n = strcspn(path, "/");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        int next = fd_open_at(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0), why = errno;
        close(fd);
        errno = why;
        fd = next;
        path += n + (path[n] == '/');
    }
    return fd;
}

/* Removes a directory and all that is in it. */
static int remove_tree(int parent, const char *name, struct removed *r)
{
    TRY(walk_folder(parent, name, DEEPEST, unlink_one, r));
    return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : failed(name);
}

/* Names of contents that links lead to. */
static int note_target(void *ctx, int dir, const char *name, const struct stat *st)
{
    struct folder *f = ctx;
    char to[HUB_PATH];
    if (!S_ISLNK(st->st_mode)) return 0;
    ssize_t n = readlinkat(dir, name, to, sizeof to - 1);
    if (n <= 0) return 0;
    to[n] = 0;
    const char *slash = strrchr(to, '/');
    char *copy = mem_strdup(slash ? slash + 1 : to),
         **grown = mem_grow(f->name, f->n + 1, sizeof *grown);
    if (grown) f->name = grown;
    if (!copy || !grown) {
        mem_free(copy);
        return ERR_NOMEM;
    }
    f->name[f->n++] = copy;
    return 0;
}

static bool has(const struct folder *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->name[i], name)) return true;
    return false;
}

/* Removes those contents that no link of a snapshot leads to any more. */
static int remove_unused(int folder, const struct folder *once, struct removed *r)
{
    struct folder used = {0};
    struct stat st;
    int e = walk_folder(folder, "snapshots", DEEPEST, note_target, &used);
    int blobs = e < 0 ? -1 : fd_open_at(folder, "blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    for (size_t i = 0; e >= 0 && blobs >= 0 && i < once->n; i++) {
        if (has(&used, once->name[i]) || !hub_is_path(once->name[i])) continue;
        if (fstatat(blobs, once->name[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
            e = unlink_one(r, blobs, once->name[i], &st);
    }
    if (blobs >= 0) close(blobs);
    folder_done(&used);
    return e;
}

static int drop_ref(void *ctx, int dir, const char *name, const struct stat *st)
{
    const char *commit = ctx;
    char text[HUB_COMMIT] = "";
    if (!S_ISREG(st->st_mode)) return 0;
    int fd = fd_open_at(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0) return 0;
    bool same = read(fd, text, 40) == 40 && !strcmp(text, commit);
    close(fd);
    return !same || unlinkat(dir, name, 0) == 0 ? 0 : failed(name);
}

/* Removes a snapshot, the refs that name it, and the contents that no other snapshot uses. */
static int remove_snapshot(int folder, char *commit, struct removed *r)
{
    struct folder once = {0};
    struct removed links = {0};
    int all = open_below(folder, "snapshots");
    if (all < 0) return failed("snapshots");
    int e = walk_folder(all, commit, DEEPEST, note_target, &once);
    if (e >= 0) e = walk_folder(folder, "refs", DEEPEST, drop_ref, commit);
    if (e >= 0) e = remove_tree(all, commit, &links);
    close(all);
    r->bytes += links.bytes;
    if (e >= 0) e = remove_unused(folder, &once, r);
    folder_done(&once);
    return e;
}

/* Removes one file of a snapshot, if it is there.  at: its path from the repository's folder. */
static int remove_file(int folder, const char *at, struct removed *r)
{
    struct folder once = {0};
    struct stat st = {0};
    struct removed link = {0};
    char parent[HUB_PATH];
    const char *name = strrchr(at, '/') + 1;
    snprintf(parent, sizeof parent, "%.*s", (int)(name - at) - 1, at);
    int dir = open_below(folder, parent), e = 0;
    if (dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
        close(dir);
        return 0;
    }
    if (dir < 0 || !st.st_mode) e = failed(at);
    if (e >= 0) e = note_target(&once, dir, name, &st);
    if (e >= 0) e = unlink_one(&link, dir, name, &st);
    if (dir >= 0) close(dir);
    r->bytes += link.bytes;
    r->files += e >= 0 && !S_ISLNK(st.st_mode);
    if (e >= 0) e = remove_unused(folder, &once, r);
    folder_done(&once);
    return e;
}

/* Removes a file of a snapshot and its other parts.  The first part is removed last, because the others cannot be
 * found without it. */
static int remove_parts(int folder, char *at, struct removed *r)
{
    unsigned part, of = choice_parts(at, &part);
    for (unsigned i = of; i > 0; i--) {
        if (of > 1) choice_set_part(at, i);
        TRY(remove_file(folder, at, r));
    }
    return 0;
}

static int check_lock(void *ctx, int dir, const char *name, const struct stat *st)
{
    const char *repo = ctx;
    if (!S_ISREG(st->st_mode) || !strcmp(name, STORE_NAMES ".lock")) return 0;
    int fd = fd_lockable_at(dir, name);
    if (fd < 0) return 0;
    bool busy = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    close(fd);
    return busy ? ERR(BUSY, "a file of %s is being downloaded; try again when that has ended", repo)
                : 0;
}

/* Counts snapshots. */
static size_t snapshots(const char *folder)
{
    char path[HUB_PATH + 16];
    struct folder f;
    snprintf(path, sizeof path, "%s/snapshots", folder);
    if (folder_list(path, "", &f) < 0) return 0;
    size_t n = f.n;
    folder_done(&f);
    return n;
}

static int remove_repo(int cache, const struct store *s, struct removed *r)
{
    static const char *const order[] = {"refs", "snapshots", "blobs"};
    struct removed names = {0};
    const char *name = strrchr(s->folder, '/') + 1;
    int folder = fd_open_at(cache, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0), e = 0;
    if (folder < 0) return failed(s->folder);
    for (size_t i = 0; e >= 0 && i < countof(order); i++)
        e = remove_tree(folder, order[i], i < 2 ? &names : r);
    close(folder);
    r->bytes += names.bytes;
    if (e >= 0) e = remove_tree(cache, name, &names);
    int locks = fd_open_at(cache, ".locks", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (e >= 0 && locks >= 0) e = remove_tree(locks, name, &names);
    if (locks >= 0) close(locks);
    return e;
}

/* Removes the directories that are empty without a file, from its own up to the snapshot `at`.  Returns true if the
 * snapshot is gone. */
static bool remove_empty(const char *at, char *file)
{
    char *slash;
    bool empty = true;
    while (empty && (slash = strrchr(file, '/')) && slash >= file + strlen(at)) {
        *slash = 0;
        empty = rmdir(file) == 0;
    }
    return empty;
}

/* Removes a revision, or a file of one. */
static int remove_part(const struct store *s, const struct hub_name *name, struct removed *r)
{
    char at[HUB_PATH], found[HUB_PATH], text[1024];
    hub_name_text(name, text);
    if (hub_check_ref(name) < 0)
        return ERR(NOTFOUND, "%s: %s; kvik rm %s removes all of the repository", text, err_last(),
                   name->repo);
    if (!hub_snapshot(s->folder, name->revision, at))
        return ERR(NOTFOUND, "%s is not in %s", text, s->cache);
    int many = *name->pick ? hub_picked(at, name->pick, found) : 1;
    if (many < 0) return many;
    if (many != 1)
        return many ? ERR(ARG, "%s has several files for %s; give the whole name of one",
                          name->repo, name->pick)
                    : ERR(NOTFOUND, "%s is not in %s", text, s->cache);
    int folder = fd_open(s->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0), e;
    if (folder < 0) return failed(s->folder);
    char *commit = strrchr(at, '/') + 1;
    if (!*name->pick) {
        e = remove_snapshot(folder, commit, r);
    } else {
        e = remove_parts(folder, found + strlen(s->folder) + 1, r);
        if (e >= 0 && remove_empty(at, found))
            e = walk_folder(folder, "refs", DEEPEST, drop_ref, commit);
    }
    close(folder);
    return e;
}

int hub_remove(const struct hub_name *name, struct removed *out)
{
    struct store s;
    char cache[HUB_PATH], at[HUB_PATH];
    *out = (struct removed){0};
    if (!hub_dir(cache))
        return ERR(NOTFOUND, "neither HF_HUB_CACHE, HF_HOME nor HOME names a place for models");
    TRY(store_name(cache, name->repo, &s));
    if (!dir_exists(s.folder))
        return ERR(NOTFOUND, "%s is not in %s; kvik models lists what is there", name->repo, cache);
    int fd = fd_open(cache, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return failed(cache);
    snprintf(at, sizeof at, ".locks/%.1000s", strrchr(s.folder, '/') + 1);
    int lock;
    (void)store_lock_names(
        &s, NULL, &lock); /* what may be removed may lie beside locks that may not be taken */
    int e = walk_folder(fd, at, DEEPEST, check_lock, (void *)(uintptr_t)name->repo);
    bool last = *name->revision && !*name->pick && snapshots(s.folder) == 1 &&
                hub_snapshot(s.folder, name->revision, at);
    if (e >= 0)
        e = (*name->revision || *name->pick) && !last ? remove_part(&s, name, out)
                                                      : remove_repo(fd, &s, out);
    if (e >= 0 && *name->pick && !snapshots(s.folder)) e = remove_repo(fd, &s, out);
    if (lock >= 0) close(lock);
    close(fd);
    return e;
}
