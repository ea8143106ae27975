/* blob.c - downloads a file.  The bytes of a file go to blobs/SHA.6b76696b.incomplete.  The hub's own library ends
 * the names of its temporary files with eight random digits.  kvik's digits are always the same, so that the next
 * call finds the file and continues.
 *
 * Only one process at a time holds the lock of a file.  Where a file system does not really lock, two processes
 * write the same bytes to the same places, because SHA determines the bytes, so neither does harm to the other; one
 * of them finds that the other has renamed the file. */
#include "hub/blob.h"
#include "base/descriptor.h"
#include "base/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha1.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK     ".6b76696b.incomplete"
#define PROGRESS ((uint64_t)1 << 16) /* bytes of a try after which the count of tries begins anew */

struct fetch {
    const struct blob *b;
    int fd;
    uint64_t at; /* bytes that are written and hashed */
    struct sha256_ctx large;
    struct sha1_ctx small;
};

static void begin_hash(struct fetch *f)
{
    char head[32];
    f->at = 0;
    sha256_init(&f->large);
    sha1_init(&f->small);
    /* git hashes "blob SIZE" and a NUL before the contents */
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)f->b->file->size);
    sha1_update(&f->small, (size_t)n + 1, (const uint8_t *)head);
}

static void add_hash(struct fetch *f, const char *data, size_t n)
{
    if (f->b->file->large)
        sha256_update(&f->large, n, (const uint8_t *)data);
    else
        sha1_update(&f->small, n, (const uint8_t *)data);
    f->at += n;
}

static bool hash_is_right(struct fetch *f)
{
    uint8_t digest[DIGEST_BYTES] = {0};
    char hex[2 * DIGEST_BYTES + 1];
    bool large = f->b->file->large;
    if (large)
        sha256_digest(&f->large, DIGEST_BYTES, digest);
    else
        sha1_digest(&f->small, SHA1_DIGEST_SIZE, digest);
    digest_hex(digest, hex);
    return !strncmp(hex, f->b->file->blob, large ? 64 : 40);
}

static bool stops(const struct fetch *f)
{
    const struct hub_watch *w = f->b->watch;
    return w && w->stops && w->stops(w->ctx);
}

static void show_progress(const struct fetch *f)
{
    const struct hub_watch *w = f->b->watch;
    if (w && w->shows) w->shows(w->ctx, f->b->file->path, f->at, f->b->file->size);
}

static void temporary_of(const struct store *s, const struct listed *f, char out[HUB_PATH + 128])
{
    snprintf(out, HUB_PATH + 128, "%s/blobs/%s" MARK, s->folder, f->blob);
}

uint64_t blob_begun(const struct store *s, const struct listed *f)
{
    char path[HUB_PATH + 128];
    struct stat st;
    temporary_of(s, f, path);
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode)) return 0;
    return MIN((uint64_t)st.st_size, f->size);
}

/* Opens the temporary file and hashes the bytes that an earlier call has left in it. */
static int open_temporary(struct fetch *f, const char *path)
{
    char piece[1 << 16];
    struct stat st;
    f->fd = fd_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (f->fd < 0) return ERR(IO, "%s: %s", path, strerror(errno));
    if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return ERR(IO, "%s: not a regular file", path);
    begin_hash(f);
    while ((uint64_t)st.st_size <= f->b->file->size && f->at < (uint64_t)st.st_size) {
        ssize_t n = pread(f->fd, piece, sizeof piece, (off_t)f->at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        add_hash(f, piece, (size_t)n);
        show_progress(f);
        if (stops(f)) return ERR(CANCELLED, "stopped");
    }
    return 0;
}

/* Compares the answer's headers with the file's entry in the list, before the first byte is written. */
static int on_begin(void *ctx, const struct response *a)
{
    struct fetch *f = ctx;
    const struct listed *want = f->b->file;
    const char *name = want->path;
    size_t n = strlen(name);
    if (*a->commit && strcmp(a->commit, f->b->commit) != 0)
        return ERR(FORMAT, "%.200s: the hub sends the file of commit %.12s for that of %.12s", name,
                   a->commit, f->b->commit);
    if (want->large && *a->linked && strcmp(a->linked, want->blob) != 0)
        return ERR(FORMAT, "%.200s: the hub's list and its answer name different contents", name);
    if (a->has_linked_size && a->linked_size != want->size)
        return ERR(FORMAT, "%.200s: the hub's list says %llu bytes, and its answer %llu", name,
                   (unsigned long long)want->size, (unsigned long long)a->linked_size);
    if (!strncasecmp(a->type, "text/html", 9) && (n < 5 || strcasecmp(name + n - 5, ".html") != 0))
        return ERR(
            FORMAT,
            "%.200s: a page of HTML comes in place of the file: something between here and the hub "
            "(a proxy, a sign-in page) answers",
            name);
    if (a->status == 206 && (!a->has_range || a->from != f->at || a->total != want->size))
        return ERR(FORMAT,
                   "%.200s: the server was asked for the bytes from %llu on, and sends others",
                   name, (unsigned long long)f->at);
    if (a->status == 200 && a->has_length && a->length != want->size)
        return ERR(FORMAT, "%.200s: the server sends %llu bytes, and the file has %llu", name,
                   (unsigned long long)a->length, (unsigned long long)want->size);
    /* the server ignored the range and sends the whole file */
    if (a->status == 200 && f->at) begin_hash(f);
    return 0;
}

static int on_data(void *ctx, const char *data, size_t n)
{
    struct fetch *f = ctx;
    const struct listed *want = f->b->file;
    if (n > want->size - f->at)
        return ERR(FORMAT, "%.200s: the server sends more than the %llu bytes of the file",
                   want->path, (unsigned long long)want->size);
    int full = fd_room(f->fd, f->at + n);
    for (size_t done = 0; !full && done < n;) {
        ssize_t k = pwrite(f->fd, data + done, n - done, (off_t)(f->at + done));
        if (k < 0 && errno != EINTR) full = errno;
        if (k > 0) done += (size_t)k;
    }
    if (full)
        return ERR(IO,
                   "%.200s cannot be written: %s; what is here stays, and the same command goes on",
                   want->path, fd_error(full));
    add_hash(f, data, n);
    show_progress(f);
    return 0;
}

/* Gets the missing bytes.  A try that brings PROGRESS bytes begins the count of tries anew. */
static int get_rest(struct web *w, struct fetch *f, struct response *a)
{
    const struct web_sink sink = {.ctx = f, .begins = on_begin, .takes = on_data};
    bool renewed = false;
    for (unsigned tries = 1; f->at < f->b->file->size; tries++) {
        uint64_t before = f->at;
        int e = web_try(w, f->b->url, before, &sink, a), again;
        if (e < 0) return e;
        /* the range begins behind the end of the server's file */
        if (e && a->status == 416 && before && !renewed) {
            renewed = true;
            begin_hash(f);
            continue;
        }
        if (e && a->status != 200 && a->status != 206 && !response_is_passing(a)) return 1;
        if (f->at >= f->b->file->size) return 0;
        if (e && (a->status == 200 || a->status == 206))
            err_set(ERR_IO, "%.200s: the server ends after %llu of %llu bytes", f->b->file->path,
                    (unsigned long long)f->at, (unsigned long long)f->b->file->size);
        if (f->at >= before + PROGRESS) tries = 1;
        again = web_wait(w, a, tries);
        if (again < 0) return again;
        if (!again) return e && response_is_passing(a) ? 1 : ERR_IO;
    }
    return 0;
}

/* Renames the temporary file to the name of the contents. */
static int finish(struct fetch *f, const char *temporary)
{
    char path[HUB_PATH + 128];
    snprintf(path, sizeof path, "%s/blobs/%s", f->b->store->folder, f->b->file->blob);
    if (ftruncate(f->fd, (off_t)f->b->file->size) < 0 || fsync(f->fd) < 0)
        return ERR(IO, "%s: %s", temporary, strerror(errno));
    if (rename(temporary, path) < 0) {
        /* without locks another process may have done it */
        int why = errno;
        const struct blob *b = f->b;
        if (!store_has_blob(b->store, b->file->blob, b->file->size))
            return ERR(IO, "%s: %s", path, strerror(why));
    }
    *strrchr(path, '/') = 0;
    int dir = fd_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (dir >= 0) {
        (void)fsync(dir);
        close(dir);
    }
    return 0;
}

/* Does what blob_fetch does, with the lock held.  Returns 1 if the status of the answer is a refusal. */
static int fetch_locked(struct web *w, struct fetch *f, struct response *a)
{
    char temporary[HUB_PATH + 128];
    temporary_of(f->b->store, f->b->file, temporary);
    TRY(open_temporary(f, temporary));
    bool continued = f->at > 0;
    for (;;) {
        int e = get_rest(w, f, a);
        if (e) return e;
        if (hash_is_right(f)) return finish(f, temporary);
        (void)!ftruncate(f->fd, 0);
        if (!continued) break;
        continued =
            /* the bytes that an earlier call has left may be wrong, so all are downloaded once more */
            false;
        begin_hash(f);
    }
    (void)unlink(temporary);
    return ERR(
        FORMAT,
        "%.200s: the contents that came do not have the %s that the hub lists (%.12s...), and were removed",
        f->b->file->path, f->b->file->large ? "SHA-256" : "hash", f->b->file->blob);
}

int blob_fetch(struct web *w, const struct blob *b)
{
    struct fetch f = {.b = b, .fd = -1};
    struct response a = {0};
    int lock = -1, e = store_lock(b->store, b->file->blob, b->watch, &lock);
    if (e >= 0 && !store_has_blob(b->store, b->file->blob, b->file->size))
        e = fetch_locked(w, &f, &a);
    if (e > 0) e = web_refuse(w, &a);
    if (f.fd >= 0) close(f.fd);
    if (lock >= 0) close(lock);
    return e;
}
