/* map.c - maps a file, and tells whether a file has changed. */
#include "base/map.h"
#include "base/file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)

struct stamp stamp_of(const struct stat *st)
{
    return (struct stamp){.size = (uint64_t)st->st_size,
                          .dev = st->st_dev,
                          .inode = st->st_ino,
                          .mtime = nanoseconds(&st->st_mtim),
                          .ctime = nanoseconds(&st->st_ctim)};
}

/* Returns an address with room for `size` bytes that begins at a huge page, or NULL.  The address is only a hint
 * for mmap, because nothing is reserved there.  MAP_FIXED would not do: if it fails, it can leave a hole, where
 * another thread's mapping would then be taken away by the cleanup.  A mapping that lands elsewhere has small
 * pages. */
static void *huge_place(size_t size)
{
    if (size < HUGE_BYTES || size > SIZE_MAX / 2) return NULL;
    void *room = mmap(NULL, size + HUGE_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return NULL;
    munmap(room, size + HUGE_BYTES);
    return (void *)(((uintptr_t)room + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
}

int map_file(struct map *m, int fd, const struct stat *st, const char *path)
{
    size_t size = (size_t)st->st_size;
    if (size == 0) {
        *m = (struct map){.data = (const uint8_t *)""};
        return 0;
    }
    void *place = huge_place(size), *p = mmap(place, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return err_set(errno == ENOMEM ? ERR_NOMEM : ERR_IO, "%s: cannot map %zu bytes: %s", path,
                       size, strerror(errno));
    /* Pages read from storage from now on are huge pages, in the memory that all processes share.  Pages that are
     * in memory already stay small.  A system without such huge pages maps the file as usual. */
    if (place) (void)madvise(p, size, MADV_HUGEPAGE);
    *m = (struct map){.data = p, .size = size, .mapped = true, .stamp = stamp_of(st)};
    return 0;
}

int map_open(struct map *m, const char *path)
{
    struct stat st;
    int fd = file_open(path, &st);
    if (fd < 0) return fd;
    int e = map_file(m, fd, &st, path);
    close(fd);
    return e;
}

void map_close(struct map *m)
{
    if (m->mapped) munmap((void *)(uintptr_t)m->data, m->size);
    *m = (struct map){0};
}

int map_check(const struct map *m, const char *path)
{
    struct stamp now;
    if (!map_now(m, path, &now) || now.size >= m->stamp.size) return 0;
    return ERR(IO, "%s: the file shrank from %zu to %llu bytes while it was in use", path, m->size,
               (unsigned long long)now.size);
}

bool map_now(const struct map *m, const char *path, struct stamp *now)
{
    struct stat st;
    if (!m->mapped || stat(path, &st) < 0) return false;
    *now = stamp_of(&st);
    return now->dev == m->stamp.dev && now->inode == m->stamp.inode;
}

void map_forget(const void *data, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)data, to = from + n;
    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (from < to) (void)madvise((void *)from, to - from, MADV_DONTNEED);
}
