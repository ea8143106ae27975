/* weights_entry.c - remembers the digest of the weights of a model in the user's cache directory, so that only the first
 * session of a model reads all of its weights.
 *
 *     $XDG_CACHE_HOME/kvik/digests/NAME, or ~/.cache/kvik/digests/NAME    directory 0700, file 0600
 *         kvik weights 1
 *         files    SHA-256 of what identifies the files: path, device, inode, size and two times of each
 *         weights  SHA-256 of the weights
 *         check    SHA-256 of the lines above
 *
 * NAME is made of the paths of the files, so a model has one entry.  An entry that others can write, a damaged one, and a
 * directory that cannot be written are no errors: the weights are hashed again.
 *
 * A file can change twice within one tick of its clock.  So nothing is remembered of files that changed less than two
 * seconds before they were hashed: every later change gives such a file another time.
 *
 * A small model is hashed faster than an entry is written, and has none. */
#include "base/beside.h"
#include "base/descriptor.h"
#include "base/durable.h"
#include "base/map.h"
#include "base/utf8.h"
#include "model/weights_digest.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK "kvik weights 1\n"

enum {
    HEX = 2 * DIGEST_BYTES + 1,
    NAME_HEX = 32,
    PATH_BYTES = 4096,
    ENTRY_BYTES = (int)sizeof MARK - 1 + 3 * (9 + HEX) /* three lines of a word and a digest */
};

#define USUAL                                                                                      \
    {                                                                                              \
        .margin = 2000000000, .least = (size_t)4 << 20, .most = 256                                \
    }
static const struct weights_limits usual = USUAL;
static struct weights_limits limits = USUAL; /* clang takes no other object as an initializer */

void weights_limits_set(const struct weights_limits *l)
{
    limits = l ? *l : usual;
}

/* --- The files of a checkpoint ---------------------------------------------------------------- */

static void add_stamp(struct digest *d, const struct stamp *s)
{
    digest_u64(d, s->dev);
    digest_u64(d, s->inode);
    digest_u64(d, s->size);
    digest_u64(d, (uint64_t)s->mtime);
    digest_u64(d, (uint64_t)s->ctime);
}

void weights_files(const struct checkpoint *ck, struct weights_files *out)
{
    struct digest name, opened, current;
    *out = (struct weights_files){.newest = INT64_MIN};
    digest_begin(&name);
    digest_begin(&opened);
    digest_begin(&current);
    for (uint32_t i = 0; i < checkpoint_n_files(ck); i++) {
        const char *path;
        char real[PATH_MAX];
        const struct map *m = checkpoint_file_at(ck, i, &path);
        const struct stamp was = m->stamp;
        struct stamp now;
        if (!map_now(m, path, &now)) now = was;
        if (realpath(path, real)) path = real;
        digest_text(&name, path);
        digest_text(&opened, path);
        digest_text(&current, path);
        add_stamp(&opened, &was);
        add_stamp(&current, &now);
        if (now.size != was.size || now.mtime != was.mtime)
            out->change = FILES_WRITTEN;
        else if (now.ctime != was.ctime)
            out->change = MAX(out->change, FILES_TOUCHED);
        out->newest = MAX(out->newest, MAX(now.mtime, now.ctime));
    }
    digest_end(&name, out->name);
    digest_end(&opened, out->opened);
    digest_end(&current, out->now);
}

/* --- The directory ---------------------------------------------------------------------------- */

/* Writes the path of the directory.  False if the environment names no place. */
static bool find_dir(char out[PATH_BYTES])
{
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n = -1;
    if (cache && *cache == '/')
        n = snprintf(out, PATH_BYTES, "%s/kvik/digests", cache);
    else if (home && *home == '/')
        n = snprintf(out, PATH_BYTES, "%s/.cache/kvik/digests", home);
    return n > 0 && n < PATH_BYTES - NAME_HEX - 1;
}

static bool is_private_dir(const char *dir)
{
    struct stat st;
    return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && fd_private(&st);
}

/* Writes the path of the entry behind that of the directory. */
static void add_name(const struct weights_files *f, char dir[PATH_BYTES])
{
    char hex[HEX];
    digest_hex(f->name, hex);
    size_t n = strlen(dir);
    snprintf(dir + n, PATH_BYTES - n, "/%.*s", NAME_HEX, hex);
}

/* Removes the oldest files while the directory has more than the most entries.  Files of other names and temporary files
 * of killed processes count: the directory is kvik's. */
static void bound_dir(const char *dir)
{
    for (int again = 0; again < 16; again++) {
        char oldest[256] = "";
        int64_t when = INT64_MAX;
        uint32_t n = 0;
        const struct dirent *e;
        DIR *d = fd_list(dir);
        while (d && (e = readdir(d))) {
            struct stat st;
            if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
                continue;
            n++;
            int64_t at = nanoseconds(&st.st_mtim);
            if (at >= when) continue;
            when = at;
            snprintf(oldest, sizeof oldest, "%s", e->d_name);
        }
        bool more = n > limits.most && unlinkat(dirfd(d), oldest, 0) == 0;
        if (d) closedir(d);
        if (!more) return;
    }
}

/* --- Entries ---------------------------------------------------------------------------------- */

static void put_line(char text[ENTRY_BYTES + 1], size_t *n, const char *word,
                     const uint8_t digest[DIGEST_BYTES])
{
    char hex[HEX];
    digest_hex(digest, hex);
    *n += (size_t)snprintf(text + *n, ENTRY_BYTES + 1 - *n, "%-8s %s\n", word, hex);
}

static void write_text(const struct weights_files *f, const uint8_t digest[DIGEST_BYTES],
                       char text[ENTRY_BYTES + 1])
{
    uint8_t check[DIGEST_BYTES];
    size_t n = (size_t)snprintf(text, ENTRY_BYTES + 1, MARK);
    put_line(text, &n, "files", f->opened);
    put_line(text, &n, "weights", digest);
    digest_of(text, n, check);
    put_line(text, &n, "check", check);
}

/* Reads the digest of the weights, and accepts the text only if it is what these files and that digest make. */
static bool read_text(const struct weights_files *f, const char text[ENTRY_BYTES],
                      uint8_t out[DIGEST_BYTES])
{
    const char *hex = text + sizeof MARK - 1 + 9 + HEX + 9;
    char again[ENTRY_BYTES + 1];
    uint8_t digest[DIGEST_BYTES];
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);
        if (hi < 0 || lo < 0) return false;
        digest[i] = (uint8_t)(hi << 4 | lo);
    }
    write_text(f, digest, again);
    if (memcmp(text, again, ENTRY_BYTES) != 0) return false;
    memcpy(out, digest, DIGEST_BYTES);
    return true;
}

bool weights_recall(const struct weights_files *f, uint8_t out[DIGEST_BYTES])
{
    char path[PATH_BYTES], text[ENTRY_BYTES];
    struct durable file;
    struct stat st;
    if (!find_dir(path) || !is_private_dir(path)) return false;
    add_name(f, path);
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || durable_open(&file, path, false) < 0)
        return false;
    bool good = fstat(file.fd, &st) == 0 && fd_private(&st) && file.size == ENTRY_BYTES &&
                durable_read(&file, 0, text, sizeof text) >= 0 && read_text(f, text, out);
    durable_close(&file);
    return good;
}

void weights_remember(const struct checkpoint *ck, const struct weights_files *f, int64_t begun,
                      const uint8_t digest[DIGEST_BYTES])
{
    char path[PATH_BYTES], text[ENTRY_BYTES + 1];
    struct weights_files after;
    struct durable file;
    weights_files(ck, &after);
    bool settled = after.change == FILES_SAME && after.newest < begun - limits.margin;
    if (!settled || checkpoint_bytes(ck) < limits.least || !find_dir(path)) return;
    path_make_dirs(path);
    if (!is_private_dir(path)) return;
    size_t n = strlen(path);
    add_name(f, path);
    write_text(f, digest, text);
    int e = durable_create(&file, path, MARK);
    if (e >= 0) e = durable_write(&file, 0, text, ENTRY_BYTES);
    if (e >= 0) (void)durable_replace(&file);
    durable_close(&file);
    path[n] = 0;
    bound_dir(path);
}

void weights_forget(const struct weights_files *f)
{
    char path[PATH_BYTES];
    if (!find_dir(path) || !is_private_dir(path)) return;
    add_name(f, path);
    (void)unlink(path);
}
