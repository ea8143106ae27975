/* repository.c - writes the hub's cache.  A name is made after the thing that it names is complete: first contents,
 * by a rename, then links, then refs.  So the cache is valid whenever the process ends. */
#include "hub/repository.h"
#include "base/descriptor.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static int too_long(const char *cache)
{
    return ERR(LIMIT,
               "%.100s...: the path of the cache has %zu bytes; at most about %d are possible",
               cache, strlen(cache), HUB_PATH - 1600);
}

int store_name(const char *cache, const char *repo, struct store *out)
{
    char folder[HUB_PATH];
    if (!hub_folder(cache, repo, folder)) return too_long(cache);
    const char *name = strrchr(folder, '/');
    int n = snprintf(out->locks, HUB_PATH, "%s/.locks%s", cache, name);
    if (n >= HUB_PATH - 1500)
        return too_long(cache); /* there must be room for a snapshot and the longest path in it */
    snprintf(out->cache, HUB_PATH, "%s", cache);
    memcpy(out->folder, folder, sizeof folder);
    return 0;
}

/* Makes a directory and its parents behind the first `kept` bytes. */
static int make_dirs(const char *path, size_t kept)
{
    char at[HUB_PATH];
    snprintf(at, sizeof at, "%s", path);
    for (char *s = at + kept + 1;; s++) {
        char c = *s;
        if (c && c != '/') continue;
        *s = 0;
        int why = mkdir(at, 0777) < 0 ? errno : 0;
        if (why && !dir_exists(at)) return ERR(IO, "%s: %s", at, strerror(why));
        *s = c;
        if (!c) return 0;
    }
}

/* Marks the cache for programs that make backups, as the hub's own library does (https://bford.info/cachedir/). */
static void put_tag(const char *cache)
{
    static const char tag[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                              "# Models of the Hugging Face hub, which can be downloaded again.\n";
    char path[HUB_PATH];
    if (snprintf(path, sizeof path, "%s/CACHEDIR.TAG", cache) >= HUB_PATH) return;
    int fd = fd_open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0) return;
    (void)!write(fd, tag, sizeof tag - 1);
    close(fd);
}

int store_make(const struct store *s)
{
    static const char *const part[] = {"blobs", "refs", "snapshots"};
    const char *home = getenv("HOME");
    char path[HUB_PATH];
    size_t kept = home ? strlen(home) : 0;
    if (kept && (strncmp(s->cache, home, kept) != 0 || s->cache[kept] != '/')) kept = 0;
    if (kept && !dir_exists(home))
        return ERR(NOTFOUND, "%s: HOME does not exist, and kvik does not make it", home);
    for (size_t i = 0; i < countof(part); i++) {
        snprintf(path, sizeof path, "%.*s/%s", HUB_PATH - 16, s->folder, part[i]);
        TRY(make_dirs(path, kept));
    }
    put_tag(s->cache);
    return make_dirs(s->locks, kept);
}

int store_room(const struct store *s, uint64_t *out)
{
    struct statvfs fs;
    if (statvfs(s->folder, &fs) < 0) return ERR(IO, "%s: %s", s->folder, strerror(errno));
    *out = (uint64_t)fs.f_bavail * fs.f_frsize;
    return 0;
}

/* True if the path still leads to the file `fd`.  Another program may remove a lock file when it releases the lock. */
static bool is_named(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

int store_lock(const struct store *s, const char *blob, const struct hub_watch *watch, int *fd)
{
    char path[HUB_PATH + 128];
    bool said = false;
    snprintf(path, sizeof path, "%s/%s.lock", s->locks, blob);
    for (*fd = -1;;) {
        *fd = fd_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0664);
        if (*fd < 0) return ERR(IO, "%s: %s", path, strerror(errno));
        int why = flock(*fd, LOCK_EX | LOCK_NB) < 0 ? errno : 0;
        if (!why && is_named(*fd, path)) return 0;
        close(*fd);
        *fd = -1;
        if (why == ENOSYS || why == EOPNOTSUPP || why == ENOLCK) return 0;
        if (why && why != EWOULDBLOCK && why != EINTR && path_exists(path))
            return ERR(IO, "%s: %s", path, strerror(why));
        if (watch && watch->stops && watch->stops(watch->ctx)) return ERR(CANCELLED, "stopped");
        if (!said && why == EWOULDBLOCK && watch && watch->says)
            watch->says(watch->ctx, "another process downloads this file; waiting for it");
        said |= why == EWOULDBLOCK;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}

int store_lock_names(const struct store *s, const struct hub_watch *watch, int *fd)
{
    struct hub_watch quiet = watch ? *watch : (struct hub_watch){0};
    quiet.says = NULL; /* it is held for moments */
    *fd = -1;
    for (int tries = 0;; tries++) { /* a removal that ends takes the folder of the locks with it */
        TRY(make_dirs(s->locks, strlen(s->cache)));
        int e = store_lock(s, STORE_NAMES, &quiet, fd);
        if (e != ERR_IO || tries == 8 || dir_exists(s->locks)) return e;
    }
}

static bool has_size(const char *path, uint64_t size)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size;
}

bool store_has_blob(const struct store *s, const char *blob, uint64_t size)
{
    char path[HUB_PATH + 128];
    snprintf(path, sizeof path, "%s/blobs", s->folder);
    int dir = fd_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (dir >= 0) close(dir);
    snprintf(path, sizeof path, "%s/blobs/%s", s->folder, blob);
    return has_size(path, size);
}

/* Writes the path of a file of a snapshot. */
static void file_of(const struct store *s, const char *commit, const char *path,
                    char out[2 * HUB_PATH])
{
    snprintf(out, 2 * HUB_PATH, "%s/snapshots/%s/%s", s->folder, commit, path);
}

bool store_has_file(const struct store *s, const char *commit, const char *path, uint64_t size)
{
    char at[2 * HUB_PATH];
    file_of(s, commit, path, at);
    return has_size(at, size);
}

/* Moves the contents to the place of a link, for file systems without links. */
static int move_there(const struct store *s, const char *blob, const char *at)
{
    char from[HUB_PATH + 128];
    snprintf(from, sizeof from, "%s/blobs/%s", s->folder, blob);
    if (link(from, at) == 0 || rename(from, at) == 0) return 0;
    return ERR(IO, "%s: %s", at, strerror(errno));
}

int store_link(const struct store *s, const char *commit, const char *path, const char *blob)
{
    char at[2 * HUB_PATH], temporary[2 * HUB_PATH + 32], to[HUB_PATH] = "";
    size_t n = 0;
    file_of(s, commit, path, at);
    char *slash = strrchr(at, '/');
    *slash = 0;
    TRY(make_dirs(at, strlen(s->folder)));
    *slash = '/';
    for (const char *c = path; *c; c++)
        if (*c == '/') n += (size_t)snprintf(to + n, sizeof to - n, "../");
    snprintf(to + n, sizeof to - n, "../../blobs/%s", blob);
    snprintf(temporary, sizeof temporary, "%.*s/.%s.%ld", (int)(slash - at), at, blob,
             (long)getpid());
    (void)unlink(temporary);
    if (symlink(to, temporary) < 0) {
        if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)
            return move_there(s, blob, at);
        return ERR(IO, "%s: %s", at, strerror(errno));
    }
    if (rename(temporary, at) == 0) return 0;
    int e = ERR(IO, "%s: %s", at, strerror(errno));
    (void)unlink(temporary);
    return e;
}

int store_ref(const struct store *s, const char *revision, const char *commit)
{
    char path[HUB_PATH + HUB_REVISION + 16];
    struct stat st;
    snprintf(path, sizeof path, "%s/refs/%s", s->folder, revision);
    char *slash = strrchr(path, '/');
    *slash = 0;
    TRY(make_dirs(path, strlen(s->folder)));
    *slash = '/';
    /* file_write follows links, and a link that somebody else has put into the cache can lead to any file */
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) (void)unlink(path);
    return file_write(path, commit, 40);
}
