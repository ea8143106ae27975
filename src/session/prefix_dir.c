/* prefix_dir.c - a directory of session files as a cache of prompts.
 *
 * A search ignores file names.  It reads the manifest of each file and takes the file that shares the longest prefix with
 * the prompt, so files may be copied, renamed and removed at any time.  A file that does not fit or has vanished is a
 * miss, never an error.  kvik changes and removes only files whose names it chose, because people may keep conversations
 * of their own in the directory.
 *
 * A loaded prefix must have the rows that prefill would compute.  So nothing is found where rows depend on turns (dynamic
 * NTK, codecs that seal by turns) or were computed behind padding. */
#include "session/session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX     ".kvik"
#define NAME_HEX   32u
#define LEAST      16u /* least common tokens that are worth a load */
#define MOST_BYTES ((uint64_t)1 << 30)
#define PATH_BYTES 4096

struct found {
    char path[PATH_BYTES]; /* "": none */
    uint32_t common, len;
};
struct search {
    const json_t *meta;
    const int32_t *ids;
    size_t n;
    struct found best;    /* shares the longest prefix with ids */
    struct found covers;  /* begins with all of ids */
    struct found extends; /* the longest file that is a prefix of ids */
};

static bool is_session(const char *name)
{
    size_t n = strlen(name), k = strlen(SUFFIX);
    return name[0] != '.' && n > k && strcmp(name + n - k, SUFFIX) == 0;
}

/* True if the name has the form that name_of makes. */
static bool is_ours(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strlen(name) == NAME_HEX + strlen(SUFFIX) &&
           strspn(name, "0123456789abcdef") == NAME_HEX;
}

static void look(struct search *s, const char *path)
{
    struct durable f;
    struct session file;
    if (session_open_file(path, &f, &file) < 0) return;
    bool fits = session_agree(s->meta, file.meta, path) >= 0 && file.n_seqs == 1;
    if (fits && !file.seq[0].im.foreign && !file.seq[0].im.salt.pad) {
        const struct session_seq *q = &file.seq[0];
        struct found now = {.len = q->im.len};
        snprintf(now.path, sizeof now.path, "%s", path);
        while (now.common < q->im.len && now.common < s->n &&
               q->tok[now.common] == s->ids[now.common] && s->ids[now.common] >= 0)
            now.common++;
        if (now.common > s->best.common) s->best = now;
        if (now.common == s->n) s->covers = now;
        if (now.common == now.len && now.len > s->extends.len && is_ours(path)) s->extends = now;
    }
    session_done(&file);
    durable_close(&f);
}

static int each(const char *dir, void (*fn)(void *ctx, const char *path), void *ctx)
{
    char path[PATH_BYTES];
    struct dirent *e;
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT) return 0;
    if (!d) return ERR(IO, "%s: %s", dir, strerror(errno));
    while ((e = readdir(d)))
        if (is_session(e->d_name) &&
            (size_t)snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < sizeof path)
            fn(ctx, path);
    closedir(d);
    return 0;
}

static void on_look(void *ctx, const char *path)
{
    look(ctx, path);
}

static int search(kvik_cache *c, const char *dir, struct search *s)
{
    json_t *meta;
    TRY(session_meta(c, &meta));
    s->meta = meta;
    int e = each(dir, on_look, s);
    s->meta = NULL;
    json_decref(meta);
    return e;
}

/* Loads the first `len` rows; if that fails, those in whole tiles.  Returns how many, or -1. */
static int load_cut(kvik_cache *c, const char *path, uint32_t len, kvik_seq *out)
{
    struct durable f;
    struct session s;
    uint32_t tile = 1, want[2];
    for (uint32_t i = 0; i < c->x->n_groups; i++)
        tile = MAX(tile, c->x->group[i].seal.tile);
    want[0] = len;
    want[1] = len - len % tile;
    for (int i = 0; i < 2; i++) {
        if (want[i] < LEAST || (i && want[1] == want[0])) continue;
        TRY(session_open_file(path, &f, &s));
        session_cut(&s.seq[0], s.n_groups, want[i]);
        int e = session_load(c, &f, &s, 1, out, NULL);
        session_done(&s);
        durable_close(&f);
        if (e >= 0) return (int)want[i];
    }
    return -1;
}

/* Removes a file whose manifest is right and whose rows are damaged: every search would choose it again. */
static void discard(const char *path)
{
    char *json = NULL;
    if (kvik_session_describe(path, &json) == ERR_FORMAT) (void)unlink(path);
    mem_free(json);
}

KVIK_API int64_t kvik_prefix_load(kvik_cache *c, const char *dir, const int32_t *ids, size_t n,
                                  kvik_seq *out)
{
    kvik_seq s;
    TRY(cache_bound(c));
    if (!dir || !ids || !out) return ERR(ARG, "a prefix is searched by a directory and token ids");
    if (kv_by_turns(c->x->kv)) return 0;
    struct search *f = mem_alloc(sizeof *f);
    if (!f) return ERR_NOMEM;
    f->ids = ids;
    f->n = n;
    int64_t e = search(c, dir, f);
    uint32_t common = f->best.common, len = f->best.len;
    if (e >= 0 && common >= LEAST) {
        int have = load_cut(c, f->best.path, common, &s);
        if (have < 0 && len > common && len - common <= common && len <= c->x->max_len &&
            kvik_cache_load(c, f->best.path, 1, &s, NULL) == 1)
            have =
                (int)common; /* layers with a window cannot be cut; a crop recomputes their rows */
        if (have <= 0 && is_ours(f->best.path)) discard(f->best.path);
        if (have > 0) {
            (void)utimensat(AT_FDCWD, f->best.path, NULL, 0);
            *out = s;
            e = have;
        }
    }
    mem_free(f);
    return e;
}

/* --- Saving ----------------------------------------------------------------------------------- */

struct oldest {
    char path[PATH_BYTES];
    struct timespec when;
    uint64_t sum;
};

static void on_size(void *ctx, const char *path)
{
    struct oldest *o = ctx;
    struct stat st;
    if (!is_ours(path) || lstat(path, &st) < 0 || !S_ISREG(st.st_mode)) return;
    o->sum += (uint64_t)st.st_size;
    if (o->path[0] &&
        (st.st_mtim.tv_sec > o->when.tv_sec ||
         (st.st_mtim.tv_sec == o->when.tv_sec && st.st_mtim.tv_nsec >= o->when.tv_nsec)))
        return;
    o->when = st.st_mtim;
    snprintf(o->path, sizeof o->path, "%s", path);
}

static int shrink(const char *dir, uint64_t max)
{
    struct oldest *o = mem_alloc(sizeof *o);
    int e = o ? 0 : ERR_NOMEM;
    while (e >= 0) {
        *o = (struct oldest){0};
        e = each(dir, on_size, o);
        if (e < 0 || o->sum <= max || !o->path[0]) break;
        if (unlink(o->path) < 0 && errno != ENOENT) break;
    }
    mem_free(o);
    return e;
}

static void name_of(const kvik_cache *c, const struct search *s, const char *dir,
                    char out[PATH_BYTES])
{
    struct digest d;
    uint8_t sum[DIGEST_BYTES];
    char hex[2 * DIGEST_BYTES + 1], group[KV_GROUP_TEXT];
    digest_begin(&d);
    digest_text(&d, c->fingerprint);
    digest_u64(&d, c->x->compute);
    for (uint32_t i = 0; i < kv_n_groups(c->x->kv); i++) {
        kv_group_text(c->x->kv, i, group);
        digest_text(&d, group);
    }
    for (size_t i = 0; i < s->n; i++)
        digest_u64(&d, (uint32_t)s->ids[i]);
    digest_end(&d, sum);
    digest_hex(sum, hex);
    snprintf(out, PATH_BYTES, "%s/%.*s" SUFFIX, dir, (int)NAME_HEX, hex);
}

KVIK_API int kvik_prefix_save(kvik_cache *c, const char *dir, kvik_seq s, uint64_t max_bytes)
{
    char path[PATH_BYTES];
    TRY(cache_bound(c));
    if (!dir) return ERR(ARG, "saving a prefix needs a directory");
    if (!kv_tokens(c->x->kv, s)) return ERR(STALE, "the sequence was dropped");
    if (strlen(dir) + 64 > sizeof path) return ERR(ARG, "%.100s...: the path is too long", dir);
    struct search *f = mem_alloc(sizeof *f);
    if (!f) return ERR_NOMEM;
    f->ids = kv_tokens(c->x->kv, s);
    f->n = kv_len(c->x->kv, s);
    bool known = f->n >= LEAST && !kv_foreign(c->x->kv, s) && !kv_by_turns(c->x->kv) &&
                 !kv_salt(c->x->kv, s).pad;
    for (size_t i = 0; i < f->n; i++)
        known &= f->ids[i] >= 0;
    int e = 0;
    if (known && mkdir(dir, 0700) < 0 && errno != EEXIST)
        e = ERR(IO, "%s: %s", dir, strerror(errno));
    if (e >= 0 && known) e = search(c, dir, f);
    if (e >= 0 && known && f->covers.path[0]) {
        (void)utimensat(AT_FDCWD, f->covers.path, NULL, 0);
    } else if (e >= 0 && known) {
        name_of(c, f, dir, path);
        if (f->extends.path[0]) (void)rename(f->extends.path, path);
        e = kvik_cache_save(c, path, &s, 1, NULL);
        if (e == ERR_BUSY) e = 0;
        if (e >= 0) e = shrink(dir, max_bytes ? max_bytes : MOST_BYTES);
    }
    mem_free(f);
    return e;
}
