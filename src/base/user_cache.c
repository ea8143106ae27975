/* user_cache.c - finds, checks, writes and bounds the entries of user_cache.h.
 *
 * A file has the contents first, so that an entry in a format of its own is a file of that format, and ends with
 *
 *     files    SHA-256 of what identifies the sources: purpose, path, device, inode, size and two times of each
 *     check    SHA-256 of all bytes above
 *
 * The digest of a large entry is compared once.  A note, which is an entry of its own, then says that the file with this stamp
 * has these last lines, so that later runs map gigabytes without reading them. */
#include "base/user_cache.h"
#include "base/beside.h"
#include "base/descriptor.h"
#include "base/durable.h"

#include <dirent.h>
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

enum {
    HEX = 2 * DIGEST_BYTES + 1,
    NAME_HEX = 32,
    PATH_BYTES = 4096,
    LEFT_SECONDS = 60,
    LINE = 9 + HEX,
    TAIL = 2 * LINE /* two lines of a word and a digest */
};

static const struct cache_kind notes = {
    .folder = "checked", .mark = "kvik", .suffix = "", .most = 256};

static const struct cache_limits usual = {.margin = 2000000000};
static struct cache_limits limits = {.margin = 2000000000};
static bool limited; /* set by tests: `limits` has the least and the most */

void cache_limits_set(const struct cache_limits *l)
{
    limits = l ? *l : usual;
    limited = l != NULL;
}

/* --- Sources ---------------------------------------------------------------------------------- */

void cache_sources_begin(struct cache_sources *s, const char *purpose)
{
    *s = (struct cache_sources){.newest = INT64_MIN};
    digest_begin(&s->name);
    digest_begin(&s->state);
    digest_text(&s->name, purpose);
    digest_text(&s->state, purpose);
}

void cache_sources_add(struct cache_sources *s, const char *path, const struct stamp *stamp)
{
    char real[PATH_MAX];
    if (realpath(path, real)) path = real;
    digest_text(&s->name, path);
    digest_text(&s->state, path);
    digest_u64(&s->state, stamp->dev);
    digest_u64(&s->state, stamp->inode);
    digest_u64(&s->state, stamp->size);
    digest_u64(&s->state, (uint64_t)stamp->mtime);
    digest_u64(&s->state, (uint64_t)stamp->ctime);
    s->newest = MAX(s->newest, MAX(stamp->mtime, stamp->ctime));
    s->bytes += stamp->size;
}

void cache_sources_end(struct cache_sources *s, struct cache_key *out)
{
    digest_end(&s->name, out->name);
    digest_end(&s->state, out->state);
}

bool cache_sources_settled(const struct cache_kind *kind, const struct cache_sources *s,
                           int64_t begun)
{
    return s->newest < begun - limits.margin && s->bytes >= (limited ? limits.least : kind->least);
}

/* --- The directory ---------------------------------------------------------------------------- */

/* Writes the path of the folder.  Returns the length of the part that kvik never makes, which is HOME, or -1 if the
 * environment names no place. */
static int find_dir(const struct cache_kind *kind, char out[PATH_BYTES])
{
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n = -1, kept = 0;
    if (cache && *cache == '/') {
        n = snprintf(out, PATH_BYTES, "%s/kvik/%s", cache, kind->folder);
    } else if (home && *home == '/') {
        n = snprintf(out, PATH_BYTES, "%s/.cache/kvik/%s", home, kind->folder);
        kept = (int)MIN(strlen(home), PATH_BYTES);
    }
    return n > 0 && n < PATH_BYTES - NAME_HEX - 16 ? kept : -1;
}

/* Opens the folder and writes its path.  make: creates the folder if it is absent.  All names are looked up in the
 * open directory afterwards, so a directory that takes its place meanwhile is neither read nor written.  On
 * failure returns -1 and sets errno: EPERM if other users can write the folder.  The path is empty if the
 * environment names no place. */
static int open_dir(const struct cache_kind *kind, bool make, char path[PATH_BYTES])
{
    const int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
    struct stat st;
    int kept = find_dir(kind, path);
    if (kept < 0) {
        *path = '\0';
        errno = ENOENT;
        return -1;
    }
    int fd = fd_open(path, how, 0);
    if (fd < 0 && errno == ENOENT && make) {
        path_make_dirs(path, (size_t)kept);
        fd = fd_open(path, how, 0);
    }
    if (fd < 0 || (fstat(fd, &st) == 0 && fd_private(&st))) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

static int no_dir(const char *path, int e)
{
    if (!*path) return ERR(NOTFOUND, "neither XDG_CACHE_HOME nor HOME names a cache directory");
    if (e == EPERM || e == ENOTDIR || e == ELOOP)
        return ERR(IO, "%s: not a directory that only this user can write", path);
    return ERR(IO, "%s: %s", path,
               e == ENOENT ? "HOME does not exist, and kvik does not make it" : strerror(e));
}

/* Appends the name of the entry to the directory's path, and returns the name. */
static const char *add_name(const struct cache_kind *kind, const struct cache_key *key,
                            char dir[PATH_BYTES])
{
    char hex[HEX];
    digest_hex(key->name, hex);
    size_t n = strlen(dir);
    snprintf(dir + n, PATH_BYTES - n, "/%.*s%s", NAME_HEX, hex, kind->suffix);
    return dir + n + 1;
}

/* True if the name is that of an entry or of its temporary file, which is the same behind a leading point. */
static bool is_ours(const char *name)
{
    return strspn(name + (*name == '.'), "0123456789abcdef") >= NAME_HEX;
}

/* Removes the oldest files until the directory has at most `most` entries.  Temporary files count.  Files with
 * other names are the user's and stay. */
static void bound_dir(const struct cache_kind *kind, int dir)
{
    for (int again = 0; again < 16; again++) {
        char oldest[256] = "";
        int64_t when = INT64_MAX;
        uint32_t n = 0;
        const struct dirent *e;
        DIR *d = fd_list_at(dir, ".");
        while (d && (e = readdir(d))) {
            struct stat st;
            if (!is_ours(e->d_name) || fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                !S_ISREG(st.st_mode))
                continue;
            n++;
            int64_t at = nanoseconds(&st.st_mtim);
            if (at >= when) continue;
            when = at;
            snprintf(oldest, sizeof oldest, "%s", e->d_name);
        }
        bool more = n > (limited ? limits.most : kind->most) && unlinkat(dir, oldest, 0) == 0;
        if (d) closedir(d);
        if (!more) return;
    }
}

/* True if a killed process has left this temporary file: nobody has written to it for a minute, and nobody holds
 * its lock. */
static bool is_left(int dir, const char *name)
{
    struct stat st;
    struct timespec now;
    int fd = fd_lockable_at(dir, name);
    if (fd < 0) return false;
    clock_gettime(CLOCK_REALTIME, &now);
    bool left = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                nanoseconds(&now) - nanoseconds(&st.st_mtim) > (int64_t)LEFT_SECONDS * 1000000000 &&
                flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return left;
}

/* Removes temporary files of killed processes: a file of quantized weights can be gigabytes. */
static void sweep(int dir)
{
    const struct dirent *e;
    DIR *d = fd_list_at(dir, ".");
    while (d && (e = readdir(d)))
        if (*e->d_name == '.' && is_ours(e->d_name) && strstr(e->d_name, PATH_BESIDE) &&
            is_left(dir, e->d_name))
            (void)unlinkat(dir, e->d_name, 0);
    if (d) closedir(d);
}

/* --- Reading ---------------------------------------------------------------------------------- */

static void put_line(char *out, const char *word, const uint8_t digest[DIGEST_BYTES])
{
    char hex[HEX];
    digest_hex(digest, hex);
    snprintf(out, LINE + 1, "%-8s %s\n", word, hex);
}

static void note_key(const struct cache_entry *e, struct cache_sources *s, struct cache_key *out)
{
    cache_sources_begin(s, "kvik checked 1");
    cache_sources_add(s, e->path, &e->map.stamp);
    cache_sources_end(s, out);
}

/* True if a note confirms the last lines of the file with this stamp. */
static bool is_noted(const struct cache_entry *e, const uint8_t *tail)
{
    struct cache_sources s;
    struct cache_key key;
    struct cache_entry note;
    note_key(e, &s, &key);
    if (!cache_find(&notes, &key, &note)) return false;
    bool same = note.size == 4 + TAIL && memcmp(note.map.data + 4, tail, TAIL) == 0;
    cache_entry_close(&note);
    return same;
}

static void make_note(const struct cache_entry *e, const uint8_t *tail, int64_t begun)
{
    struct cache_sources s;
    struct cache_key key;
    struct cache_writer *w;
    note_key(e, &s, &key);
    if (!cache_sources_settled(&notes, &s, begun)) return;
    if (cache_write_begin(&notes, &key, TAIL, &w) < 0) return;
    if (cache_write(w, "kvik", 4) < 0 || cache_write(w, tail, TAIL) < 0)
        cache_write_drop(w);
    else
        (void)cache_write_end(w);
}

/* True if the last lines agree with the sources and with the contents before these lines. */
static bool is_right(const struct cache_kind *kind, const struct cache_key *key,
                     const struct cache_entry *e)
{
    char line[LINE + 1];
    uint8_t sum[DIGEST_BYTES];
    struct timespec now;
    const uint8_t *tail = e->map.data + e->size;
    put_line(line, "files", key->state);
    if (memcmp(tail, line, LINE) != 0) return false;
    if (kind->large && is_noted(e, tail)) return true;
    clock_gettime(CLOCK_REALTIME, &now);
    digest_of(e->map.data, e->size + LINE, sum);
    put_line(line, "check", sum);
    bool right = memcmp(tail + LINE, line, LINE) == 0;
    if (right && kind->large) make_note(e, tail, nanoseconds(&now));
    return right;
}

bool cache_find(const struct cache_kind *kind, const struct cache_key *key, struct cache_entry *out)
{
    char path[PATH_BYTES];
    struct stat st;
    struct cache_entry e = {0};
    int dir = open_dir(kind, false, path);
    if (dir < 0) return false;
    int fd = fd_open_at(dir, add_name(kind, key, path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    close(dir);
    if (fd < 0) return false;
    bool good = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fd_private(&st) &&
                st.st_size >= TAIL && map_file(&e.map, fd, &st, path) >= 0;
    close(fd);
    if (!good) return false;
    e.size = e.map.size - TAIL;
    e.path = mem_strdup(path);
    if (e.path && is_right(kind, key, &e)) {
        *out = e;
        return true;
    }
    cache_entry_close(&e);
    return false;
}

void cache_entry_close(struct cache_entry *e)
{
    map_close(&e->map);
    mem_free(e->path);
    *e = (struct cache_entry){0};
}

void cache_forget(const struct cache_kind *kind, const struct cache_key *key)
{
    char path[PATH_BYTES];
    int dir = open_dir(kind, false, path);
    if (dir < 0) return;
    (void)unlinkat(dir, add_name(kind, key, path), 0);
    close(dir);
}

/* --- Writing ---------------------------------------------------------------------------------- */

struct cache_writer {
    const struct cache_kind *kind;
    struct cache_key key;
    struct durable file;
    struct digest sum;
    uint64_t at;
    int dir; /* owned; or -1 */
};

static int open_place(struct cache_writer *w, uint64_t room)
{
    char path[PATH_BYTES];
    struct statvfs fs;
    w->dir = open_dir(w->kind, true, path);
    if (w->dir < 0) return no_dir(path, errno);
    sweep(w->dir);
    if (fstatvfs(w->dir, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize / 2 < room)
        return ERR(
            IO, "%s: an entry of %.1f MiB needs twice as much room, and the disk has %.1f MiB",
            path, (double)room / (1 << 20), (double)fs.f_bavail * (double)fs.f_frsize / (1 << 20));
    (void)add_name(w->kind, &w->key, path);
    return durable_create_at(&w->file, w->dir, path, w->kind->mark);
}

int cache_write_begin(const struct cache_kind *kind, const struct cache_key *key, uint64_t room,
                      struct cache_writer **out)
{
    struct cache_writer *w = mem_alloc(sizeof *w);
    if (!w) return ERR_NOMEM;
    *w = (struct cache_writer){.kind = kind, .key = *key, .file.fd = -1, .file.dir = -1, .dir = -1};
    digest_begin(&w->sum);
    int e = open_place(w, room);
    if (e < 0) {
        cache_write_drop(w);
        return e;
    }
    *out = w;
    return 0;
}

int cache_write(struct cache_writer *w, const void *data, size_t n)
{
    TRY(durable_write(&w->file, w->at, data, n));
    digest_add(&w->sum, data, n);
    w->at += n;
    return 0;
}

static int finish_entry(struct cache_writer *w)
{
    char line[LINE + 1];
    uint8_t sum[DIGEST_BYTES];
    put_line(line, "files", w->key.state);
    TRY(cache_write(w, line, LINE));
    digest_end(&w->sum, sum);
    put_line(line, "check", sum);
    TRY(cache_write(w, line, LINE));
    return durable_replace(&w->file);
}

int cache_write_end(struct cache_writer *w)
{
    int e = finish_entry(w);
    if (e >= 0) bound_dir(w->kind, w->dir);
    cache_write_drop(w);
    return e;
}

void cache_write_drop(struct cache_writer *w)
{
    if (!w) return;
    durable_close(&w->file);
    if (w->dir >= 0) close(w->dir);
    mem_free(w);
}
