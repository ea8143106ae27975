/* prefix_dir.c - a directory of session files as a cache of prompts.
 *
 * A search ignores file names.  It reads the manifest of each file and takes the sequence that shares the longest
 * prefix with the prompt, so files may be copied, renamed and removed at any time.  A file that does not fit or
 * has vanished is a miss, never an error.  kvik changes and removes only files whose names it chose, because
 * people may keep conversations of their own in the directory.
 *
 * Common rows of prompts are stored once: a prompt becomes a branch in the file that shares the longest prefix
 * with it.  Files are removed as a whole.  So a file takes branches only until it has an eighth of the directory's
 * limit, or twice the bytes of the prompt.
 *
 * Rows of a file become part of a text without being computed.  So a file is believed only if nobody but the user
 * and root can have written it.  The same holds for the directory.  The directory is opened once, and every name
 * is looked up in the open directory; a directory that takes its place after the check has no effect.
 *
 * A loaded prefix must have the rows that prefill would compute.  So nothing is found where rows depend on turns
 * (dynamic NTK, codecs that quantize by turns), or for rows that were computed behind padding. */
#include "session/prefix_dir.h"
#include "base/beside.h"
#include "base/descriptor.h"
#include "generate/prompts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX        ".kvik"
#define NAME_HEX      32u
#define LEAST         16u /* fewer common tokens are not worth a load */
#define MOST_BYTES    ((uint64_t)1 << 30)
#define MOST_SEQS     1024u /* most sequences of a file that is searched */
#define MOST_BRANCHES 64u   /* most branches of one file, because every search reads its manifest */

/* True if the name is 32 hexadecimal digits and the suffix, like the names that kvik chooses. */
static bool is_ours(const char *name, const char *suffix)
{
    return strspn(name, "0123456789abcdef") == NAME_HEX && strcmp(name + NAME_HEX, suffix) == 0;
}

/* True if the name is that of a temporary file of such a file.  Older versions of kvik chose other names. */
static bool is_temporary(const char *name)
{
    size_t n = strlen(SUFFIX PATH_BESIDE);
    if (is_ours(name, SUFFIX ".tmp")) return true;
    return name[0] == '.' && strspn(name + 1, "0123456789abcdef") == NAME_HEX &&
           strncmp(name + 1 + NAME_HEX, SUFFIX PATH_BESIDE, n) == 0 &&
           !name[1 + NAME_HEX + n + strspn(name + 1 + NAME_HEX + n, "0123456789")];
}

static int look_at(const struct prefix_dir *p, const char *name, struct stat *st)
{
    return fstatat(p->fd, name, st, AT_SYMLINK_NOFOLLOW);
}

/* Writes the path of a file, for errors. */
static void path_of(const struct prefix_dir *p, const char *name, char out[PREFIX_PATH_BYTES])
{
    snprintf(out, PREFIX_PATH_BYTES, "%s/%s", p->path, name);
}

/* True if the file has only this name and only this user can write it.  Any other file may also be somebody
 * else's: it is only read, if at all. */
static bool is_alone(const struct prefix_dir *p, const char *name)
{
    struct stat st;
    return look_at(p, name, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && fd_private(&st);
}

/* Tells the user, once, that a file or directory is ignored because others can write it. */
static void tell_private(kvik_cache *c, const char *what, const char *path)
{
    char line[PREFIX_PATH_BYTES + 256];
    if (c->told_private || !c->on_notice) return;
    c->told_private = true;
    snprintf(
        line, sizeof line,
        "--prefix-cache: the %s %s is not used, because another user owns it or can write to it; if it is "
        "yours, chmod go-w makes it private",
        what, path);
    c->on_notice(c->notice_ctx, line);
}

/* True if the open file is the user's alone; see fd_private.  Else notes its path, for prefix_tell. */
static bool is_trusted(void *ctx, const struct durable *f)
{
    struct prefix_search *s = ctx;
    struct stat st;
    if (fstat(f->fd, &st) == 0 && fd_private(&st)) return true;
    if (!s->strange[0]) snprintf(s->strange, sizeof s->strange, "%s", f->path);
    return false;
}

void prefix_tell(kvik_cache *c, const struct prefix_search *s)
{
    if (s->strange[0]) tell_private(c, "file", s->strange);
}

/* Returns what a search can use: texts up to the length of the model's context.  A load cuts them to the room in
 * the cache. */
static struct session_need need_of(const kvik_cache *c)
{
    struct session_need n = session_need(c, MOST_SEQS);
    n.len = MAX(n.len, c->model->m->context);
    return n;
}

static bool is_session(const char *name)
{
    size_t n = strlen(name), k = strlen(SUFFIX);
    return name[0] != '.' && n > k && strcmp(name + n - k, SUFFIX) == 0;
}

static uint32_t common_prefix(const struct session_seq *q, const int32_t *ids, size_t n)
{
    uint32_t i = 0;
    while (i < q->im.len && i < n && q->tok[i] == ids[i] && ids[i] >= 0)
        i++;
    return i;
}

/* Finds the sequence of a file with the longest usable prefix of ids; of equal ones that with the longest prefix.
 * NULL: none shares a prefix. */
static struct session_seq *nearest_seq(const kvik_cache *c, const struct session *file,
                                       const struct prefix_search *s, uint32_t *common,
                                       uint32_t *usable)
{
    struct session_seq *best = NULL;
    *common = *usable = 0;
    for (uint32_t i = 0; i < file->n_seqs; i++) {
        struct session_seq *q = &file->seq[i];
        bool strange = q->im.foreign || q->im.salt.pad ||
                       memcmp(q->im.salt.owner, s->salt.owner, KV_DIGEST) != 0;
        uint32_t k = strange ? 0 : common_prefix(q, s->ids, s->n);
        uint32_t use = k ? session_usable(c, q, k) : 0;
        if (use < *usable || (use == *usable && k <= *common)) continue;
        *common = k;
        *usable = use;
        best = q;
    }
    return best;
}

/* True if a file has room for the tokens that it does not have yet. */
static bool has_room(const struct prefix_search *s, const struct session *file,
                     const struct session_seq *q, uint32_t common)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < q->n_parts; i++)
        bytes += q->part[i].bytes;
    uint64_t token = bytes / MAX(q->im.len, 1);
    return file->n_seqs < MOST_BRANCHES &&
           file->live + token * (s->n - common) <= MAX(s->max / 8, 2 * token * s->n);
}

static void on_look(void *ctx, const struct prefix_dir *p, const char *name)
{
    struct prefix_search *s = ctx;
    struct durable f;
    struct session file;
    char path[PREFIX_PATH_BYTES];
    uint32_t common = 0, usable = 0;
    path_of(p, name, path);
    if (!is_session(name) || (s->stop && atomic_load(s->stop)) ||
        session_open_file(p->fd, path, &s->need, is_trusted, s, &f, &file) < 0)
        return;
    bool fits = session_agree(s->meta, file.meta, path) >= 0;
    fits = fits && file.n_groups == s->cache->x->n_groups;
    struct session_seq *q = fits ? nearest_seq(s->cache, &file, s, &common, &usable) : NULL;
    if (q && (usable > s->usable || (usable == s->usable && common > s->common))) {
        snprintf(s->best, sizeof s->best, "%s", name);
        s->common = common;
        s->usable = usable;
    }
    if (q && common == s->n && usable + 1 >= s->n && kv_salt_same(&q->im.salt, &s->salt))
        snprintf(s->cover, sizeof s->cover, "%s", name);
    if (q && common >= LEAST && common > s->home_common && is_ours(name, SUFFIX) &&
        is_alone(p, name) && has_room(s, &file, q, common)) {
        snprintf(s->home, sizeof s->home, "%s", name);
        s->home_common = common;
    }
    session_done(&file);
    durable_close(&f);
}

/* Opens a directory.  Returns 0, with nothing open, if there is none or others can write it. */
static int place_open(kvik_cache *c, const char *dir, struct prefix_dir *p)
{
    struct stat st;
    DIR *d = fd_list(dir);
    *p = (struct prefix_dir){.fd = -1, .path = dir};
    if (!d && errno == ENOENT) return 0;
    if (!d) return err_set(errno == ENOMEM ? ERR_NOMEM : ERR_IO, "%s: %s", dir, strerror(errno));
    if (fstat(dirfd(d), &st) == 0 && fd_private(&st)) {
        p->list = d;
        p->fd = dirfd(d);
        return 1;
    }
    closedir(d);
    tell_private(c, "directory", dir);
    return 0;
}

void prefix_place_close(struct prefix_dir *p)
{
    if (p->list) closedir(p->list);
}

/* Calls fn for every session and every temporary file of kvik in the directory. */
static void each_file(const struct prefix_dir *p,
                      void (*fn)(void *ctx, const struct prefix_dir *p, const char *name),
                      void *ctx)
{
    struct dirent *e;
    rewinddir(p->list);
    while ((e = readdir(p->list)))
        if (is_session(e->d_name) || is_temporary(e->d_name)) fn(ctx, p, e->d_name);
}

int prefix_search_begin(kvik_cache *c, const struct prefix_dir *p, struct prefix_search *s)
{
    s->cache = c;
    s->place = p;
    s->need = need_of(c);
    return session_meta(c, &s->meta);
}

void prefix_search_run(struct prefix_search *s, const atomic_bool *stop)
{
    s->stop = stop;
    each_file(s->place, on_look, s);
    s->stop = NULL;
}

void prefix_search_end(struct prefix_search *s)
{
    json_decref(s->meta);
    s->meta = NULL;
}

static int search_dir(kvik_cache *c, const struct prefix_dir *p, struct prefix_search *s)
{
    TRY(prefix_search_begin(c, p, s));
    prefix_search_run(s, NULL);
    prefix_tell(c, s);
    prefix_search_end(s);
    return 0;
}

/* --- Loading ---------------------------------------------------------------------------------- */

/* Trims a loaded sequence to the longest length up to *have that every layer can resume from.  If that is too
 * short to be useful, drops the sequence and returns ERR_NOTFOUND. */
static int trim(kvik_cache *c, kvik_seq s, uint32_t *have)
{
    int e = kv_trim(c->x->kv, s, *have, have);
    if (e >= 0 && *have < LEAST) e = ERR_NOTFOUND;
    if (e < 0) (void)kv_drop(c->x->kv, s);
    return e;
}

bool prefix_open(struct prefix_search *found, struct prefix_file *out)
{
    char path[PREFIX_PATH_BYTES];
    path_of(found->place, found->best, path);
    *out = (struct prefix_file){0};
    if (session_open_file(found->place->fd, path, &found->need, is_trusted, found, &out->f,
                          &out->s) < 0)
        return false;
    if (out->s.n_groups == found->cache->x->n_groups)
        out->q = nearest_seq(found->cache, &out->s, found, &out->common, &out->usable);
    if (!out->q) prefix_close(out);
    return out->q != NULL;
}

void prefix_close(struct prefix_file *file)
{
    session_done(&file->s);
    durable_close(&file->f);
    file->q = NULL;
}

/* Loads the sequence of a file in one of three ways: only the usable rows, up to a snapshot if layers drop rows; only
 * rows in whole tiles; or the whole sequence, trimmed to a length that all layers can resume from.  Returns the number
 * of tokens of the sequence; -1: this way does not work. */
static int load_way(kvik_cache *c, struct prefix_file *file, int way, kvik_seq *out)
{
    const struct session_seq *q = file->q;
    uint32_t tile = prefix_tile(c), common = file->common, usable = file->usable;
    uint32_t have = way == 2 ? common : way == 1 ? usable - usable % tile : usable;
    bool worth = have >= LEAST && (way != 1 || have < usable);
    if (way == 2) worth = worth && q->im.len > common && q->im.len - common <= common;
    if (!worth) return -1;
    kvik_seq got;
    int e = session_load_cut(c, &file->f, &file->s, q, way == 2 ? q->im.len : have, &got);
    if (e >= 0 && way == 2) e = trim(c, got, &have);
    if (e < 0) return -1;
    *out = got;
    return (int)have;
}

uint32_t prefix_tile(const kvik_cache *c)
{
    uint32_t tile = 1;
    for (uint32_t i = 0; i < c->x->n_groups; i++)
        tile = MAX(tile, kv_group_now(c->x->kv, i)->seal.tile);
    return tile;
}

int prefix_load(kvik_cache *c, struct prefix_file *file, kvik_seq *out)
{
    int have = -1;
    for (int way = 0; way < 3 && have < 0; way++)
        have = load_way(c, file, way, out);
    return have;
}

void prefix_used(const struct prefix_search *s)
{
    (void)utimensat(s->place->fd, s->best, NULL, 0);
}

/* Removes a file unless another process is writing it. */
static bool remove_idle(const struct prefix_dir *p, const char *name)
{
    int fd = fd_lockable_at(p->fd, name);
    bool idle = fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
    idle = idle && unlinkat(p->fd, name, 0) == 0;
    if (fd >= 0) close(fd);
    return idle;
}

void prefix_discard(const struct prefix_search *found)
{
    const struct prefix_dir *p = found->place;
    const char *name = found->best;
    struct durable f;
    struct session s;
    char path[PREFIX_PATH_BYTES];
    if (!is_ours(name, SUFFIX)) return;
    path_of(p, name, path);
    int e = session_open_file(p->fd, path, NULL, NULL, NULL, &f, &s);
    if (e >= 0) {
        e = session_check(&f, &s);
        session_done(&s);
        durable_close(&f);
    }
    if (e == ERR_FORMAT) (void)remove_idle(p, name);
}

/* Refuses models with an encoder: prefixes are found by their tokens alone. */
static int no_encoder(const kvik_cache *c)
{
    return !c->x->encode ? 0
                         : ERR(UNSUPPORTED, "a directory of prompts is for models without an "
                                            "encoder; save sessions instead");
}

KVIK_API int64_t kvik_prefix_load(kvik_cache *c, const char *dir, const int32_t *ids, size_t n,
                                  kvik_seq *out)
{
    return kvik_prefix_load_salted(c, dir, ids, n, NULL, out);
}

KVIK_API int64_t kvik_prefix_load_salted(kvik_cache *c, const char *dir, const int32_t *ids,
                                         size_t n, const char *cache_salt, kvik_seq *out)
{
    USE_CACHE(c);
    TRY(exec_idle(c->x));
    if (!dir || (n && !ids) || !out)
        return ERR(ARG,
                   "loading a prefix needs a directory, token ids and a pointer for the sequence");
    struct prefix_search f = {.ids = ids, .n = n};
    struct prefix_file file;
    struct prefix_dir p;
    gen_owner(cache_salt, f.salt.owner);
    int64_t e = prefix_find_begin(c, dir, &p);
    if (e <= 0) return e;
    e = search_dir(c, &p, &f);
    if (e >= 0 && prefix_found(&f)) {
        int have = -1;
        if (prefix_open(&f, &file)) {
            have = prefix_load(c, &file, out);
            prefix_close(&file);
        }
        if (have < 0) prefix_discard(&f);
        if (have > 0) {
            prefix_used(&f);
            e = have;
        }
    }
    prefix_place_close(&p);
    return e;
}

bool prefix_found(const struct prefix_search *s)
{
    return s->common >= LEAST;
}

int prefix_find_begin(kvik_cache *c, const char *dir, struct prefix_dir *p)
{
    TRY(no_encoder(c));
    return kv_by_turns(c->x->kv) ? 0 : place_open(c, dir, p);
}

/* --- Saving ----------------------------------------------------------------------------------- */

struct oldest {
    char name[PREFIX_NAME_BYTES];
    int64_t when; /* nanoseconds since 1970 */
    uint64_t sum;
};

/* Adds up the bytes of kvik's files.  Removes a temporary file that nobody is writing, since a killed process has
 * left it. */
static void on_size(void *ctx, const struct prefix_dir *p, const char *name)
{
    struct oldest *o = ctx;
    struct stat st;
    bool tmp = is_temporary(name);
    if ((!tmp && !is_ours(name, SUFFIX)) || look_at(p, name, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    if (tmp && remove_idle(p, name)) return;
    o->sum += (uint64_t)st.st_size;
    int64_t when = nanoseconds(&st.st_mtim);
    if (tmp || (o->name[0] && when >= o->when)) return;
    o->when = when;
    snprintf(o->name, sizeof o->name, "%s", name);
}

static void shrink(const struct prefix_dir *p, uint64_t max)
{
    for (;;) {
        struct oldest o = {0};
        each_file(p, on_size, &o);
        if (o.sum <= max || !o.name[0]) break;
        if (!remove_idle(p, o.name) && errno != ENOENT) break;
    }
}

static void choose_name(const kvik_cache *c, const struct prefix_search *s,
                        char out[PREFIX_NAME_BYTES])
{
    struct digest d;
    uint8_t sum[DIGEST_BYTES];
    char hex[2 * DIGEST_BYTES + 1], group[KV_GROUP_TEXT];
    digest_begin(&d);
    digest_text(&d, c->digests.fingerprint);
    digest_text(&d, c->digests.weights);
    digest_u64(&d, c->x->compute);
    for (uint32_t i = 0; i < kv_n_groups(c->x->kv); i++) {
        kv_group_text(c->x->kv, i, group);
        digest_text(&d, group);
    }
    for (size_t i = 0; i < s->n; i++)
        digest_u64(&d, (uint32_t)s->ids[i]);
    digest_add(&d, s->salt.owner, KV_DIGEST);
    digest_end(&d, sum);
    digest_hex(sum, hex);
    snprintf(out, PREFIX_NAME_BYTES, "%.*s" SUFFIX, (int)NAME_HEX, hex);
}

/* Saves the sequence as a branch of its home.  If it has none, or another process is writing it, saves the
 * sequence in a new file. */
static int save_branch(kvik_cache *c, const struct prefix_search *f, kvik_seq s)
{
    const struct prefix_dir *p = f->place;
    char own[PREFIX_NAME_BYTES], path[PREFIX_PATH_BYTES];
    struct stat st;
    choose_name(c, f, own);
    bool taken = look_at(p, own, &st) == 0 && !is_alone(p, own);
    if (taken && !f->home[0]) return 0;
    path_of(p, f->home[0] ? f->home : own, path);
    int e = session_save_branch(c, p->fd, path, s);
    if (e == ERR_BUSY && f->home[0] && !taken) {
        path_of(p, own, path);
        e = session_save_branch(c, p->fd, path, s);
    }
    return e == ERR_BUSY ? 0 : e;
}

/* Seconds that a save waits for other processes.  Without waiting, a save may at worst store a duplicate. */
static double patience = 2;

void prefix_dir_patience(double seconds)
{
    patience = seconds;
}

/* Locks the directory, so that processes that save at the same time find each other's files.  The lock ends when
 * the place is closed.  It is not taken if another process keeps it too long, a signal arrives, or the file system
 * has no locks, or, as NFS, only locks of files that are open for writing.  Two saves then write what their texts have
 * in common twice: the same text has one name, which the first one takes, and a file that is a home has its own lock. */
static void lock_place(const struct prefix_dir *p)
{
    const struct timespec tick = {.tv_nsec = 20000000};
    const double end = now_seconds() + patience;
    while (flock(p->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK && now_seconds() < end)
        if (nanosleep(&tick, NULL) < 0) break; /* a signal such as Ctrl-C ends the wait */
}

/* Adds the sequence of f to the directory, unless a file has it already. */
static int save_new(kvik_cache *c, const struct prefix_dir *p, struct prefix_search *f, kvik_seq s)
{
    lock_place(p);
    TRY(search_dir(c, p, f));
    if (f->cover[0]) {
        (void)utimensat(p->fd, f->cover, NULL, 0);
        return 0;
    }
    TRY(save_branch(c, f, s));
    shrink(p, f->max);
    return 0;
}

KVIK_API int kvik_prefix_save(kvik_cache *c, const char *dir, kvik_seq s, uint64_t max_bytes)
{
    USE_CACHE(c);
    if (!dir) return ERR(ARG, "saving a prefix needs a directory");
    TRY(no_encoder(c));
    if (!kv_tokens(c->x->kv, s)) return ERR(STALE, "the sequence was dropped");
    if (strlen(dir) + 64 > PREFIX_DIR_BYTES)
        return ERR(
            ARG,
            "%.100s...: the path of the directory has %zu bytes, the limit is %d; use a shorter one",
            dir, strlen(dir), PREFIX_DIR_BYTES - 64);
    struct prefix_search f = {.ids = kv_tokens(c->x->kv, s),
                              .n = kv_len(c->x->kv, s),
                              .salt = kv_salt(c->x->kv, s),
                              .max = max_bytes ? max_bytes : MOST_BYTES};
    struct prefix_dir p;
    bool known = f.n >= LEAST && !kv_foreign(c->x->kv, s) && !kv_by_turns(c->x->kv) && !f.salt.pad;
    for (size_t i = 0; i < f.n; i++)
        known &= f.ids[i] >= 0;
    if (!known) return 0;
    if (path_make_dir(dir) < 0) return ERR(IO, "%s: %s", dir, strerror(errno));
    int e = place_open(c, dir, &p);
    if (e <= 0) return e;
    e = save_new(c, &p, &f, s);
    prefix_place_close(&p);
    return e;
}

/* --- Checking --------------------------------------------------------------------------------- */

KVIK_API int kvik_prefix_check(kvik_cache *c, const char *dir)
{
    struct stat st;
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;
    if (c) TRY(cache_enter(c, &in_use));
    if (!dir) return ERR(ARG, "checking a directory of prompts needs its path");
    if (c) TRY(no_encoder(c));
    if (strlen(dir) + 64 > PREFIX_DIR_BYTES)
        return ERR(
            ARG,
            "%.100s...: the path of the directory has %zu bytes, the limit is %d; use a shorter one",
            dir, strlen(dir), PREFIX_DIR_BYTES - 64);
    if (path_make_dir(dir) < 0)
        return ERR(IO, "%s: cannot make the directory: %s", dir, strerror(errno));
    if (stat(dir, &st) < 0) return ERR(IO, "%s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return ERR(IO, "%s: not a directory", dir);
    if (access(dir, R_OK | W_OK | X_OK) < 0)
        return ERR(IO, "%s: cannot write to the directory: %s", dir, strerror(errno));
    return !c || !kv_by_turns(c->x->kv);
}
