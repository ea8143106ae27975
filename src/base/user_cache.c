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
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    HEX = 2 * DIGEST_BYTES + 1,
    NAME_HEX = 32,
    PATH_BYTES = 4096,
    LINE = 9 + HEX,
    TAIL = 2 * LINE /* two lines of a word and a digest */
};

static const struct cache_kind notes = {
    .folder = "checked", .mark = "kvik", .suffix = "", .most = 256};

static const struct cache_limits usual = {.margin = 2000000000};
static struct cache_limits limits = {.margin = 2000000000};
static bool limited; /* by a test: least and most are those of `limits` */

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

/* Writes the path of the folder.  False if the environment names no place. */
static bool find_dir(const struct cache_kind *kind, char out[PATH_BYTES])
{
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n = -1;
    if (cache && *cache == '/')
        n = snprintf(out, PATH_BYTES, "%s/kvik/%s", cache, kind->folder);
    else if (home && *home == '/')
        n = snprintf(out, PATH_BYTES, "%s/.cache/kvik/%s", home, kind->folder);
    return n > 0 && n < PATH_BYTES - NAME_HEX - 16;
}

static bool is_private_dir(const char *dir)
{
    struct stat st;
    return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && fd_private(&st);
}

/* Writes the path of the entry behind that of the directory. */
static void add_name(const struct cache_kind *kind, const struct cache_key *key,
                     char dir[PATH_BYTES])
{
    char hex[HEX];
    digest_hex(key->name, hex);
    size_t n = strlen(dir);
    snprintf(dir + n, PATH_BYTES - n, "/%.*s%s", NAME_HEX, hex, kind->suffix);
}

/* Whether a name is that of an entry, or of its temporary file, which begins alike after a point. */
static bool is_ours(const char *name)
{
    return strspn(name + (*name == '.'), "0123456789abcdef") >= NAME_HEX;
}

/* Removes the oldest files while the directory has more than the most entries.  Temporary files of killed processes count;
 * files of other names are the user's. */
static void bound_dir(const struct cache_kind *kind, const char *dir)
{
    for (int again = 0; again < 16; again++) {
        char oldest[256] = "";
        int64_t when = INT64_MAX;
        uint32_t n = 0;
        const struct dirent *e;
        DIR *d = fd_list(dir);
        while (d && (e = readdir(d))) {
            struct stat st;
            if (!is_ours(e->d_name) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                !S_ISREG(st.st_mode))
                continue;
            n++;
            int64_t at = nanoseconds(&st.st_mtim);
            if (at >= when) continue;
            when = at;
            snprintf(oldest, sizeof oldest, "%s", e->d_name);
        }
        bool more = n > (limited ? limits.most : kind->most) && unlinkat(dirfd(d), oldest, 0) == 0;
        if (d) closedir(d);
        if (!more) return;
    }
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

/* True if a note says that the file with this stamp has its last lines rightly. */
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

/* True if the last lines are those of the sources, and of the bytes before them. */
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
    if (!find_dir(kind, path) || !is_private_dir(path)) return false;
    add_name(kind, key, path);
    int fd = fd_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
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
    if (!find_dir(kind, path) || !is_private_dir(path)) return;
    add_name(kind, key, path);
    (void)unlink(path);
}

/* --- Writing ---------------------------------------------------------------------------------- */

struct cache_writer {
    const struct cache_kind *kind;
    struct cache_key key;
    struct durable file;
    struct digest sum;
    uint64_t at;
    char dir[PATH_BYTES];
};

static int open_place(struct cache_writer *w, uint64_t room)
{
    char path[PATH_BYTES];
    struct statvfs fs;
    if (!find_dir(w->kind, path))
        return ERR(NOTFOUND, "neither XDG_CACHE_HOME nor HOME names a cache directory");
    path_make_dirs(path);
    if (!is_private_dir(path))
        return ERR(IO, "%s: not a directory that only this user can write", path);
    if (statvfs(path, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize / 2 < room)
        return ERR(IO, "%s: the disk has too little room for %.1f MiB", path,
                   (double)room / (1 << 20));
    memcpy(w->dir, path, sizeof path);
    add_name(w->kind, &w->key, path);
    return durable_create(&w->file, path, w->kind->mark);
}

int cache_write_begin(const struct cache_kind *kind, const struct cache_key *key, uint64_t room,
                      struct cache_writer **out)
{
    struct cache_writer *w = mem_alloc(sizeof *w);
    if (!w) return ERR_NOMEM;
    *w = (struct cache_writer){.kind = kind, .key = *key, .file.fd = -1};
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

static int finish(struct cache_writer *w)
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
    int e = finish(w);
    if (e >= 0) bound_dir(w->kind, w->dir);
    cache_write_drop(w);
    return e;
}

void cache_write_drop(struct cache_writer *w)
{
    if (!w) return;
    durable_close(&w->file);
    mem_free(w);
}
