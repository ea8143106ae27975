/* session_save.c - saves sequences: appends to a session that fits, or writes a new file that replaces the old
 * one.
 *
 * Chunks are found by their digests, so a save writes only chunks that the file does not have: the new rows of a
 * conversation, or the differing rows of a branch.
 *
 * Only the two slots of the head are ever overwritten.  First all new bytes are synced.  Then one slot is written
 * and synced, then the other, and then the file is cut to its end.  Until the first slot is written the file is
 * the old session; from then on it is the new one.  A file with more dead than live bytes is written anew. */
#include "session/seen.h"
#include "session/session.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static int read_at(struct session_io *io, uint64_t at, void *out, size_t n)
{
    return durable_read(((struct session_disk *)io)->f, at, out, n);
}

static uint64_t held_at(struct session_io *io, uint64_t at, uint64_t n)
{
    return durable_held(((struct session_disk *)io)->f, at, n);
}

void session_disk_init(struct session_disk *d, struct durable *f)
{
    *d = (struct session_disk){
        .io = {.read = read_at, .held = held_at, .size = f->size, .what = f->path}, .f = f};
}

/* --- The meaning of KV rows ----------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

int session_meta(kvik_cache *c, json_t **out)
{
    const struct model *m = c->model->m;
    const struct exec *x = c->x;
    char text[KV_GROUP_TEXT];
    TRY(model_digests(c->model->m, dev_threads(x->queue), &c->digests));
    JSON_SCOPE(scope);
    json_t *groups = json_array(), *name = json_string(base_name(m->what));
    if (!name) name = json_string("?"); /* not UTF-8 */
    for (uint32_t i = 0; groups && i < kv_n_groups(x->kv); i++) {
        kv_group_text(x->kv, i, text);
        json_array_append_new(groups, json_string(text));
    }
    json_t *o = json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "kvik",
                          KVIK_VERSION, "model", name, "architecture", m->arch_name, "fingerprint",
                          c->digests.fingerprint, "weights", c->digests.weights, "compute",
                          x->compute == DEV_EXACT ? "exact" : "fast", "isa", dev_isa_name(x->queue),
                          "rows", dtype_name(x->group[0].plane[0].shape.dtype),
                          "cache_implementation", c->preset->name, "groups", groups);
    int e = o ? json_whole(&scope) : ERR(NOMEM, "out of memory");
    if (e < 0) {
        json_decref(o);
        return e;
    }
    *out = o;
    return 0;
}

static const char *member_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

/* Returns the error that layers of a file and of a cache keep different rows.  It names the strategies, which
 * people chose; only if these are equal it describes the layers. */
static int unlike_layers(const json_t *mine, const json_t *theirs, const char *what,
                         const char *here, const char *there)
{
    const char *is = member_text(mine, "cache_implementation"),
               *was = member_text(theirs, "cache_implementation");
    if (strcmp(is, was) != 0)
        return ERR(
            ARG,
            "%s: saved with cache_implementation \"%s\"; this cache has \"%s\". Open it with "
            "\"%s\", or name another file",
            what, was, is, was);
    return ERR(ARG,
               "%s: saved with cache_implementation \"%s\" and another cache_config: the file has "
               "[%s], this cache has [%s]. Open it with the cache_config of the file, or name "
               "another file",
               what, was, there ? there : "fewer layers", here ? here : "fewer layers");
}

int session_agree(const json_t *mine, const json_t *theirs, const char *what)
{
    const json_t *a = json_object_get(mine, "groups"), *b = json_object_get(theirs, "groups");
    if (strcmp(member_text(mine, "fingerprint"), member_text(theirs, "fingerprint")) != 0)
        return ERR(
            ARG,
            "%s: saved with another model: %s (%s, fingerprint %.12s); this model is %s (%s, "
            "%.12s)",
            what, member_text(theirs, "model"), member_text(theirs, "architecture"),
            member_text(theirs, "fingerprint"), member_text(mine, "model"),
            member_text(mine, "architecture"), member_text(mine, "fingerprint"));
    if (json_object_get(theirs, "weights") &&
        strcmp(member_text(mine, "weights"), member_text(theirs, "weights")) != 0)
        return ERR(
            ARG,
            "%s: saved with other weights of this model: %s (weights %.12s); those of %s are "
            "%.12s. Open the model that the file was saved with, or name another file",
            what, member_text(theirs, "model"), member_text(theirs, "weights"),
            member_text(mine, "model"), member_text(mine, "weights"));
    if (strcmp(member_text(mine, "compute"), member_text(theirs, "compute")) != 0)
        return ERR(
            ARG,
            "%s: saved with compute \"%s\"; this cache has \"%s\". Open it with \"%s\", or name another "
            "file",
            what, member_text(theirs, "compute"), member_text(mine, "compute"),
            member_text(theirs, "compute"));
    for (size_t i = 0; i < MAX(json_array_size(a), json_array_size(b)); i++) {
        const char *x = json_string_value(json_array_get(a, i)),
                   *y = json_string_value(json_array_get(b, i));
        if (!x || !y || strcmp(x, y) != 0) return unlike_layers(mine, theirs, what, x, y);
    }
    return 0;
}

/* --- Chunks by their digests ---------------------------------------------------------------- */

struct digest_set {
    struct session_part *slot; /* [size] bytes 0: free; size is a power of two */
    size_t size, n;
};

static struct session_part *known_at(struct digest_set *k, const uint8_t *digest)
{
    uint64_t h;
    memcpy(&h, digest, sizeof h);
    size_t i = h & (k->size - 1);
    while (k->slot[i].bytes && memcmp(k->slot[i].digest, digest, DIGEST_BYTES) != 0)
        i = (i + 1) & (k->size - 1);
    return &k->slot[i];
}

static int known_add(struct digest_set *k, const struct session_part *p)
{
    if (2 * k->n >= k->size) {
        struct digest_set big = {.size = MAX(2 * k->size, 256)};
        if (!(big.slot = mem_array(big.size, sizeof *big.slot))) return ERR_NOMEM;
        for (size_t i = 0; i < k->size; i++)
            if (k->slot[i].bytes) *known_at(&big, k->slot[i].digest) = k->slot[i];
        big.n = k->n;
        mem_free(k->slot);
        *k = big;
    }
    struct session_part *at = known_at(k, p->digest);
    k->n += !at->bytes;
    *at = *p;
    return 0;
}

/* --- Saving --------------------------------------------------------------------------------- */

struct saver {
    struct kv_sink sink;
    struct durable file;
    /* The replaced file, open and locked, so that no other process appends to it. */
    struct durable replaced;
    int dir;                 /* as for durable_open_at */
    struct session old, new; /* old: the session of the file that is appended to */
    bool added;              /* the save appends, and is not committed yet */
    bool branch;             /* the sequences of `old` stay in the file */
    kvik_cache *cache;       /* cache whose sequences are saved */
    struct digest_set known;
    uint32_t *page; /* owned: page of every part so far, in order; 0: the part has several pages */
    size_t n_pages, cap_pages;
    uint32_t now; /* page of the next chunk */
};

static int on_image(struct kv_sink *sink, const struct kv_image *im)
{
    return session_add_seq(&((struct saver *)sink)->new, im);
}

static int add_part(struct saver *v, const struct session_part *p)
{
    if (v->n_pages == v->cap_pages) {
        size_t cap = MAX(2 * v->cap_pages, 256);
        uint32_t *page = mem_grow(v->page, cap, sizeof *page);
        if (!page) return ERR_NOMEM;
        v->page = page;
        v->cap_pages = cap;
    }
    v->page[v->n_pages++] = v->now;
    v->now = 0;
    return session_add_part(&v->new.seq[v->new.n_seqs - 1], p);
}

/* Uses the chunk of an earlier sequence that has the same page at the same rows: its bytes are the same. */
static int on_shared(struct kv_sink *sink, const struct kv_chunk *c, uint32_t page)
{
    struct saver *v = (struct saver *)sink;
    size_t first = 0;
    v->now = page;
    for (uint32_t i = 0; i + 1 < v->new.n_seqs; first += v->new.seq[i++].n_parts) {
        const struct session_seq *q = &v->new.seq[i];
        const struct session_part *p = session_find(q, c);
        if (!p || p->c.row != c->row || p->c.n != c->n ||
            v->page[first + (size_t)(p - q->part)] != page)
            continue;
        struct session_part copy = *p;
        int e = add_part(v, &copy);
        return e < 0 ? e : 1;
    }
    return 0;
}

/* True if the new file has the bytes of the part already; then sets the part's place. */
static bool is_known(struct saver *v, struct session_part *p)
{
    const struct session_part *old = v->known.size ? known_at(&v->known, p->digest) : NULL;
    if (!old || old->bytes != p->bytes) return false;
    p->at = old->at;
    return true;
}

static int write_part(struct saver *v, struct session_part *p, const void *data)
{
    p->at = v->new.end;
    TRY(durable_write(&v->file, p->at, data, (size_t)p->bytes));
    v->new.end += p->bytes;
    return known_add(&v->known, p);
}

static int on_chunk(struct kv_sink *sink, const struct kv_chunk *c, const void *data, size_t n)
{
    struct saver *v = (struct saver *)sink;
    struct session_part p = {.c = *c, .bytes = n};
    digest_of(data, n, p.digest);
    if (!is_known(v, &p)) TRY(write_part(v, &p, data));
    return add_part(v, &p);
}

/* --- The sequences of the old session ------------------------------------------------------- */

static int copy_piece(void *ctx, uint64_t at, const void *data, size_t n)
{
    struct saver *v = ctx;
    return durable_write(&v->file, v->new.end + at, data, n);
}

/* Copies a part from the replaced file, unless the new file has it.  A damaged part does not count: the next part
 * overwrites the copy. */
static int copy_part(struct saver *v, struct session_part *p)
{
    struct session_disk d;
    session_disk_init(&d, &v->replaced);
    TRY(session_part_each(&d.io, p, copy_piece, v));
    p->at = v->new.end;
    v->new.end += p->bytes;
    return known_add(&v->known, p);
}

static int keep_seq(struct saver *v, const struct session_seq *q)
{
    int e = session_add_seq(&v->new, &q->im);
    for (uint32_t i = 0; e >= 0 && i < q->n_parts; i++) {
        struct session_part p = q->part[i];
        if (!is_known(v, &p)) e = copy_part(v, &p);
        if (e >= 0) e = add_part(v, &p);
    }
    return e;
}

/* Keeps those sequences of the old session that s does not replace: s does not begin with them, or their prompt
 * could not resume from s.  Returns 1 if one of them begins with all of s and a prompt like s can resume from it. */
static int keep_old(kvik_cache *c, struct saver *v, kvik_seq s)
{
    const int32_t *ids = kv_tokens(c->x->kv, s);
    uint32_t n = kv_len(c->x->kv, s);
    struct kv_salt salt = kv_salt(c->x->kv, s);
    for (uint32_t i = 0; i < v->old.n_seqs; i++) {
        const struct session_seq *q = &v->old.seq[i];
        bool same = kv_salt_same(&q->im.salt, &salt) && !q->im.foreign &&
                    memcmp(q->tok, ids, MIN(n, q->im.len) * sizeof *ids) == 0;
        uint32_t have = n;
        if (same && q->im.len >= n && session_usable(c, q, n) + 1 >= n) return 1;
        if (same && q->im.len <= n) TRY(kv_resume(c->x->kv, s, q->im.len, &have));
        if (same && q->im.len <= n && have + 1 >= q->im.len) continue;
        size_t pages = v->n_pages;
        int e = keep_seq(v, q);
        if (e < 0 && e != ERR_FORMAT) return e;
        if (e >= 0) continue;
        session_drop_seq(&v->new); /* the rows of a damaged sequence are lost anyway */
        v->n_pages = pages;
    }
    return 0;
}

/* --- The file ------------------------------------------------------------------------------- */

/* Refuses to replace contents that another chat or program has saved.  The file is locked, so the answer holds
 * until the save is over. */
static int check_seen(const struct saver *v, const char *path)
{
    if (v->branch || session_seen(v->cache, v->old.digest)) return 0;
    return ERR(
        BUSY,
        "%s: the file holds a session that was not loaded here, or that another process has saved since (%u "
        "sequence%s, %llu save%s). The file is not replaced; to keep both, save under another name",
        path, v->old.n_seqs, v->old.n_seqs == 1 ? "" : "s", (unsigned long long)v->old.saves,
        v->old.saves == 1 ? "" : "s");
}

/* Opens the session to append to and returns 1; returns 0 if a new file must be made. */
static int open_old(struct saver *v, const char *path)
{
    struct session_disk d;
    int e = durable_open_at(&v->file, v->dir, path, true);
    if (e == ERR_NOTFOUND) return 0;
    if (e < 0) return e;
    session_disk_init(&d, &v->file);
    if (!d.io.size) {
        e = 0; /* an empty file, such as mktemp makes, is replaced */
    } else if ((e = session_is(&d.io)) <= 0) {
        if (!e)
            e = ERR(ARG, "%s is not a kvik session and is not overwritten; name another file",
                    path);
    } else if ((e = session_read(&d.io, &v->old)) == ERR_FORMAT) {
        e = 0; /* a damaged session is replaced */
    } else if (e >= 0 && (e = check_seen(v, path)) >= 0) {
        bool fits = session_agree(v->new.meta, v->old.meta, path) >= 0;
        fits = fits && v->old.n_groups == v->new.n_groups && v->old.version == SESSION_VERSION;
        e = fits && v->old.live >= v->old.end / 2;
        if (!fits) session_done(&v->old);
    }
    if (e > 0) return e;
    if (e < 0 || !v->branch) session_done(&v->old);
    v->replaced = v->file;
    v->file = (struct durable){.fd = -1, .dir = -1};
    return e;
}

/* Creates the new file in the directory of the file that it replaces. */
static int create(struct saver *v, const char *path)
{
    bool fresh = v->replaced.fd < 0;
    TRY(durable_create_at(&v->file, fresh ? v->dir : v->replaced.dir,
                          fresh ? path : v->replaced.path, SESSION_MAGIC));
    v->file.fresh = fresh;
    return 0;
}

static int open_save(struct saver *v, const char *path)
{
    uint8_t head[SESSION_DATA];
    int e = open_old(v, path);
    if (e < 0) return e;
    v->added = e;
    v->new.saves = v->old.saves + 1;
    v->new.end = v->added ? v->old.end : SESSION_DATA;
    for (uint32_t i = 0; v->added && i < v->old.n_seqs; i++)
        for (uint32_t j = 0; j < v->old.seq[i].n_parts; j++)
            TRY(known_add(&v->known, &v->old.seq[i].part[j]));
    if (v->added) return 0;
    TRY(create(v, path));
    session_head(head);
    return durable_write(&v->file, 0, head, sizeof head);
}

static int put_slot(struct saver *v, int i, const uint8_t *slot)
{
    return durable_write(&v->file, SESSION_SLOT_AT + (uint64_t)i * SESSION_SLOT_STEP, slot,
                         SESSION_SLOT);
}

/* Restores the old session in the file, if the system allows it. */
static void roll_back(struct saver *v, int slot, const uint8_t *was)
{
    bool same = put_slot(v, slot, was) >= 0 && durable_sync(&v->file) >= 0;
    if (same && v->old.both) (void)durable_truncate(&v->file, v->old.end);
}

/* Commits an append.  Until both slots are written, a byte behind the end tells readers that a torn slot belongs
 * to an unfinished save.  The slot that points to the old state is written last. */
static int commit_added(struct saver *v, const uint8_t *slot)
{
    uint8_t was[SESSION_SLOT];
    int first = v->old.both ? 0 : !v->old.slot;
    uint64_t at = SESSION_SLOT_AT + (uint64_t)first * SESSION_SLOT_STEP;
    int e = durable_write(&v->file, v->new.end, "", 1);
    if (e >= 0) e = durable_read(&v->file, at, was, sizeof was);
    if (e >= 0) e = durable_sync(&v->file);
    if (e < 0) return e;
    e = put_slot(v, first, slot);
    if (e >= 0) e = durable_sync(&v->file);
    if (e < 0) {
        char why[512];
        snprintf(why, sizeof why, "%s", err_last());
        roll_back(v, first, was);
        v->added = false;
        return err_set(e, "%s", why);
    }
    v->added = false; /* committed */
    TRY(put_slot(v, !first, slot));
    TRY(durable_sync(&v->file));
    return durable_truncate(&v->file, v->new.end);
}

static int commit(struct saver *v)
{
    uint8_t slot[SESSION_SLOT], digest[DIGEST_BYTES];
    char *data;
    size_t n;
    TRY(session_encode(&v->new, &data, &n));
    digest_of(data, n, digest);
    session_seen_add(v->cache,
                     digest); /* even if the commit fails the file may have these contents */
    v->new.manifest_at = v->new.end;
    v->new.manifest_bytes = n;
    v->new.end += n;
    session_slot(&v->new, digest, slot);
    int e = durable_write(&v->file, v->new.manifest_at, data, n);
    mem_free(data);
    if (e < 0) return e;
    if (v->added) return commit_added(v, slot);
    TRY(put_slot(v, 0, slot));
    TRY(put_slot(v, 1, slot));
    return durable_replace(&v->file);
}

static int save_seqs(kvik_cache *c, struct saver *v, const char *path, const kvik_seq *s,
                     uint32_t n, const char *note)
{
    v->sink = (struct kv_sink){.image = on_image, .chunk = on_chunk, .shared = on_shared};
    v->new.n_groups = kv_n_groups(c->x->kv);
    TRY(session_meta(c, &v->new.meta));
    v->new.n_note = note ? strlen(note) : 0;
    if (!(v->new.note = mem_strdup(note ? note : ""))) return ERR_NOMEM;
    TRY(open_save(v, path));
    int known = v->branch ? keep_old(c, v, *s) : 0;
    if (known) return known;
    for (uint32_t i = 0; i < n; i++)
        TRY(cache_step(kv_save(c->x->kv, s[i], &v->sink)));
    return commit(v);
}

static int save_file(kvik_cache *c, int dir, const char *path, const kvik_seq *s, uint32_t n,
                     const char *note, bool branch)
{
    struct saver v = {.file = {.fd = -1, .dir = -1},
                      .replaced = {.fd = -1, .dir = -1},
                      .dir = dir,
                      .branch = branch,
                      .cache = c};
    TRY(session_seen_open(c));
    int e = save_seqs(c, &v, path, s, n, note);
    if (e < 0 && v.added && v.old.both && v.file.fd >= 0) {
        char why[512];
        snprintf(why, sizeof why, "%s", err_last());
        (void)durable_truncate(&v.file, v.old.end);
        (void)err_set(e, "%s", why);
    }
    durable_close(&v.file);
    durable_close(&v.replaced);
    session_done(&v.old);
    session_done(&v.new);
    mem_free(v.known.slot);
    mem_free(v.page);
    return MIN(e, 0);
}

int session_save_branch(kvik_cache *c, int dir, const char *path, kvik_seq s)
{
    return save_file(c, dir, path, &s, 1, NULL, true);
}

KVIK_API int kvik_cache_save(kvik_cache *c, const char *path, const kvik_seq *s, uint32_t n,
                             const char *note)
{
    USE_CACHE(c);
    if (!path || (n && !s)) return ERR(ARG, "saving needs a path and sequences");
    for (uint32_t i = 0; i < n; i++)
        if (!kv_tokens(c->x->kv, s[i])) return ERR(STALE, "sequence %u was dropped", i);
    return save_file(c, AT_FDCWD, path, s, n, note, false);
}
