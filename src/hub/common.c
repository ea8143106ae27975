/* common.c - removes contents that repositories have shared; see common.h.  The file of references only says where to
 * look: each of its links is looked at.  A process that makes a link holds the lock, and writes the reference first. */
#include "hub/common.h"
#include "base/descriptor.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define UP    "../../blobs/"
#define MARK  ".huggingface-shared-blobs"
#define DIGIT "0123456789abcdef"
enum { HEX = 64, REFS_MOST = 1 << 20, NAME = HEX + 8 };

bool common_is_link(const char *target)
{
    const size_t up = strlen(UP);
    return !strncmp(target, UP, up) && strspn(target + up, DIGIT) == 2 && target[up + 2] == '/' &&
           strlen(target + up + 3) == HEX && strspn(target + up + 3, DIGIT) == HEX &&
           !memcmp(target + up, target + up + 3, 2);
}

/* Reads a whole file of less than `room` bytes as a text. */
static bool read_text(int dir, const char *name, char *out, size_t room)
{
    struct stat st;
    int fd = fd_open_at(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    bool good =
        fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size < room;
    ssize_t n = good ? pread(fd, out, room - 1, 0) : -1;
    if (fd >= 0) close(fd);
    out[MAX(n, 0)] = 0;
    return n >= 0 && n == (ssize_t)st.st_size;
}

/* True if one of the references leads to the contents. */
static bool is_used(int cache, char *refs, const char *target)
{
    char to[HUB_PATH], *rest = refs;
    for (const char *path; (path = strsep(&rest, "\n"));) {
        if (*path == '/' || strstr(path, "..")) continue;
        ssize_t n = readlinkat(cache, path, to, sizeof to - 1);
        to[MAX(n, 0)] = 0;
        if (n > 0 && !strcmp(to, target)) return true;
    }
    return false;
}

/* Removes the contents and their references, with the lock held. */
static uint64_t remove_unused(int cache, int dir, const char *hash, const char *target)
{
    struct stat st;
    char name[NAME], *refs = mem_alloc(REFS_MOST);
    snprintf(name, sizeof name, "%s.refs", hash);
    bool gone = refs && read_text(dir, name, refs, REFS_MOST) && !is_used(cache, refs, target) &&
                fstatat(dir, hash, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
                unlinkat(dir, hash, 0) == 0;
    if (gone) (void)unlinkat(dir, name, 0);
    mem_free(refs);
    return gone ? (uint64_t)st.st_size : 0;
}

uint64_t common_sweep(int blobs, const char *target)
{
    char at[] = UP "00", mark[8], lock[NAME];
    const char *hash = target + strlen(UP) + 3;
    uint64_t bytes = 0;
    memcpy(at, target, sizeof at - 1);
    int cache = fd_open_at(blobs, "../..", O_RDONLY | O_DIRECTORY, 0);
    int dir = fd_open_at(blobs, at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    bool known = cache >= 0 && dir >= 0 && read_text(cache, "blobs/" MARK, mark, sizeof mark) &&
                 !strcmp(mark, "1\n");
    snprintf(lock, sizeof lock, "%.64s.lock", hash);
    int fd = known ? fd_open_at(dir, lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666) : -1;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        bytes = remove_unused(cache, dir, hash, target);
    if (fd >= 0) close(fd);
    if (dir >= 0) close(dir);
    if (cache >= 0) close(cache);
    return bytes;
}
