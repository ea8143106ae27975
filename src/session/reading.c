/* reading.c - saved rows that are read beside other work; see kvik_shared.h.
 *
 * The thread does what only needs the file: it searches the directory, reads the manifest, and reads and checks the
 * rows.  They are then in the memory of the system, and the thread of the cache reads them from there, a part in each
 * call.  A part is a load of a longer beginning of the text, which shares the rows of the beginning before it. */
#include "base/thread.h"
#include "generate/prompts.h"
#include "kvik_shared.h"
#include "session/prefix_dir.h"
#include "session/seen.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct kvik_reading {
    struct refs refs;
    struct late_close close;
    kvik_cache *c; /* held */
    char *path;    /* owned: of the directory or the session */
    int32_t *ids;  /* [search.n] owned */
    bool searches; /* it reads a directory */
    pthread_t thread;
    bool started;
    atomic_bool stop, over;
    /* The thread's until `over`. */
    struct prefix_dir place;
    struct prefix_search search;
    struct prefix_file file; /* of a session, too: q is its only sequence */
    int error;               /* why the session cannot be read, with its sentence */
    char sentence[512];
    uint32_t have; /* tokens that are not read, because the cache has them */
    /* The cache's. */
    kvik_seq seq;   /* the beginning that was taken; 0: none */
    uint32_t taken; /* tokens of it */
    bool ended;
};

/* --- The thread. */

/* Reads the chunks of the first n tokens and checks their digests. */
static int check_rows(struct kvik_reading *r, uint32_t n)
{
    struct session_disk d;
    const struct session_seq *q = r->file.q;
    session_disk_init(&d, &r->file.f);
    for (uint32_t i = 0; i < q->n_parts && !atomic_load(&r->stop); i++)
        if (q->part[i].c.row < n && q->part[i].c.row + q->part[i].c.n > r->have)
            TRY(session_part_each(&d.io, &q->part[i], NULL, NULL));
    return 0;
}

static void find_prefix(struct kvik_reading *r)
{
    struct prefix_search *s = &r->search;
    prefix_search_run(s, &r->stop);
    if (atomic_load(&r->stop) || !prefix_found(s) || s->usable <= r->have ||
        !prefix_open(s, &r->file))
        return;
    int e = check_rows(r, r->file.usable);
    if (e >= 0) return;
    prefix_close(&r->file);
    if (e == ERR_FORMAT) prefix_discard(s);
}

static int open_session(struct kvik_reading *r)
{
    struct prefix_file *f = &r->file;
    TRY(session_open_file(AT_FDCWD, r->path, &r->search.need, NULL, NULL, &f->f, &f->s));
    f->q = f->s.seq;
    if (f->s.n_seqs == 1) return check_rows(r, UINT32_MAX);
    int e = ERR(FORMAT, "%s: the file has %u sequences, and a reading is for one", r->path,
                f->s.n_seqs);
    prefix_close(f);
    return e;
}

static void *thread_main(void *arg)
{
    struct kvik_reading *r = arg;
    if (r->searches)
        find_prefix(r);
    else if ((r->error = open_session(r)) < 0)
        snprintf(r->sentence, sizeof r->sentence, "%s", err_last());
    atomic_store(&r->over, true);
    return NULL;
}

/* --- The program's threads. */

static void end_reading(struct late_close *self)
{
    struct kvik_reading *r =
        (struct kvik_reading *)((char *)self - offsetof(struct kvik_reading, close));
    atomic_store(&r->stop, true);
    if (r->started) pthread_join(r->thread, NULL);
    if (r->seq) (void)kv_keep(r->c->x->kv, r->seq);
    if (r->file.q) prefix_close(&r->file);
    prefix_search_end(&r->search);
    prefix_place_close(&r->place);
    mem_free(r->path);
    mem_free(r->ids);
    cache_drop(r->c);
    mem_free(r);
}

static void reading_drop(struct kvik_reading *r)
{
    if (!refs_drop(&r->refs)) return;
    r->close.run = end_reading;
    cache_close_late(r->c, &r->close);
}

static int reading_enter(const kvik_reading *r, kvik_reading **used)
{
    if (!r) return ERR(ARG, "the reading is NULL");
    TRY(refs_check(&r->refs, "reading"));
    *used = (kvik_reading *)(uintptr_t)r;
    refs_take(&(*used)->refs);
    return 0;
}

static void reading_leave(kvik_reading **used)
{
    if (*used) reading_drop(*used);
}

#define USE_READING(r)                                                                             \
    kvik_reading *used_reading __attribute__((cleanup(reading_leave))) = NULL;                     \
    TRY(reading_enter(r, &used_reading));                                                          \
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;                               \
    TRY(cache_use(used_reading->c, &in_use))

static int reading_new(kvik_cache *c, const char *path, const int32_t *ids, size_t n,
                       struct kvik_reading **out)
{
    struct kvik_reading *r = mem_alloc(sizeof *r);
    if (!r) return ERR_NOMEM;
    refs_init(&r->refs);
    r->c = cache_hold(c);
    r->place.fd = -1;
    r->path = mem_strdup(path);
    r->ids = mem_array(MAX(n, (size_t)1), sizeof *r->ids);
    if (!r->path || !r->ids) {
        reading_drop(r);
        return ERR_NOMEM;
    }
    if (n) memcpy(r->ids, ids, n * sizeof *ids);
    r->search.ids = r->ids;
    r->search.n = n;
    *out = r;
    return 0;
}

/* Starts the thread, or ends the reading after the error e. */
static int start(struct kvik_reading *r, int e, kvik_reading **out)
{
    if (e > 0 && thread_start(&r->thread, NULL, thread_main, r) != 0)
        e = ERR(NOMEM, "a thread that reads cannot be started");
    r->started = e > 0;
    if (!r->started) atomic_store(&r->over, true);
    if (e < 0)
        reading_drop(r);
    else
        *out = r;
    return MIN(e, 0);
}

/* Opens the directory.  Returns 1, or 0 if nothing can be found there. */
static int begin_search(struct kvik_reading *r, const char *cache_salt)
{
    r->searches = true;
    gen_owner(cache_salt, r->search.salt.owner);
    int e = prefix_find_begin(r->c, r->path, &r->place);
    if (e <= 0) return e;
    TRY(prefix_search_begin(r->c, &r->place, &r->search));
    return 1;
}

KVIK_API int kvik_prefix_read(kvik_cache *c, const char *dir, const int32_t *ids, size_t n,
                              const char *cache_salt, size_t have, kvik_reading **out)
{
    struct kvik_reading *r;
    USE_CACHE(c);
    if (!dir || (n && !ids) || !out)
        return ERR(ARG,
                   "reading a prefix needs a directory, token ids and a pointer for the reading");
    TRY(reading_new(c, dir, ids, n, &r));
    r->have = r->taken = (uint32_t)MIN(have, n);
    return start(r, begin_search(r, cache_salt), out);
}

KVIK_API int kvik_session_read(kvik_cache *c, const char *path, kvik_reading **out)
{
    struct kvik_reading *r;
    USE_CACHE(c);
    if (!path || !out) return ERR(ARG, "reading needs a path and a pointer for the reading");
    TRY(session_seen_open(c));
    TRY(reading_new(c, path, NULL, 0, &r));
    r->search.need = session_need(c, 1);
    return start(r, 1, out);
}

static void drop_taken(struct kvik_reading *r)
{
    if (r->seq) (void)kv_keep(r->c->x->kv, r->seq);
    r->seq = 0;
}

/* Takes the next part, if another one follows it.  False: the last part is to be taken. */
static bool take_part(struct kvik_reading *r, uint32_t tokens)
{
    const struct session_seq *q = r->file.q;
    uint32_t goal = r->searches ? r->file.usable : q->im.len, tile = prefix_tile(r->c);
    uint64_t next = r->taken - r->taken % tile + (uint64_t)MAX(tokens / tile, 1u) * tile;
    kvik_seq got;
    if (!tokens || next >= goal || !session_cuts(r->c, q)) return false;
    if (session_load_cut(r->c, &r->file.f, &r->file.s, q, (uint32_t)next, &got) < 0) return false;
    drop_taken(r);
    r->seq = got;
    r->taken = (uint32_t)next;
    return true;
}

static int take_prefix(struct kvik_reading *r, kvik_seq *seq)
{
    prefix_tell(r->c, &r->search);
    if (r->file.q && prefix_load(r->c, &r->file, seq) > 0) prefix_used(&r->search);
    return 0;
}

static int take_session(struct kvik_reading *r, kvik_seq *seq, char **note)
{
    int e = session_load(r->c, &r->file.f, &r->file.s, 1, seq, note);
    if (e >= 0) session_seen_add(r->c, r->file.s.digest);
    return MIN(e, 0);
}

KVIK_API int kvik_reading_take(kvik_reading *reading, uint32_t tokens, kvik_seq *seq, char **note)
{
    USE_READING(reading);
    kvik_reading *r = used_reading;
    kvik_seq got = 0;
    char *text = NULL;
    TRY(exec_idle(r->c->x));
    if (!seq) return ERR(ARG, "taking what was read needs a pointer for the sequence");
    if (!atomic_load(&r->over)) return 2;
    if (r->error < 0) return err_set(r->error, "%s", r->sentence);
    if (r->file.q && take_part(r, tokens)) return 1;
    int e = 0;
    if (r->searches && !r->ended)
        e = take_prefix(r, &got);
    else if (r->file.q)
        e = take_session(r, &got, note ? &text : NULL);
    drop_taken(r);
    if (e < 0) return e; /* a call with more room may succeed */
    r->ended = true;
    if (r->file.q) prefix_close(&r->file);
    *seq = got;
    if (note) *note = text;
    return 0;
}

KVIK_API void kvik_reading_free(kvik_reading *r)
{
    if (!r || !refs_is_open(&r->refs) || guard_foreign(&r->c->guard) || !refs_close(&r->refs))
        return;
    atomic_store(&r->stop, true);
    reading_drop(r);
}
