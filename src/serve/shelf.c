/* shelf.c - sequences that wait to be saved or shared; see shelf.h.  All functions run on the thread of the
 * scheduler. */
#include "serve/shelf.h"
#include "base/base.h"

#include <stdio.h>
#include <string.h>

#define TRY_AGAIN 30.0 /* seconds after which a store that was too slow is tried again */
#define BEHIND    ((uint64_t)64 << 20) /* bytes that may wait for the store's thread */
enum {
    WAITING = 8,     /* sequences that keep their rows until they are saved */
    LEAST_GAIN = 64, /* tokens of gain that are worth a read of the directory */
    DIR_BYTES = 0    /* limit of the directory; 0: kvik_prefix_save's own limit */
};

struct shelved {
    kvik_seq seq;
    bool shared; /* the store has it, or there is no store */
};
struct shelf {
    kvik_cache *cache;
    char *dir;           /* NULL: none */
    char dir_error[256]; /* why the last text was not saved; "": it was */
    kvik_shared *shared; /* NULL: none */
    double tried;        /* when a store that was slow was last read */
    struct shelved item[WAITING];
    uint32_t n;
};

/* Opens the directory.  Returns 1, or 0 if saved prompts could not be found again. */
static int open_dir(struct shelf *s, const char *dir, bool demanded)
{
    if (!dir) return 1;
    int e = kvik_prefix_check(s->cache, dir);
    if (e == 0 && demanded)
        return ERR(
            UNSUPPORTED,
            "--prefix-cache: with this cache strategy rows depend on turns, and no prompt can be found again");
    if (e > 0 && !(s->dir = mem_strdup(dir))) return ERR_NOMEM;
    return e;
}

/* Opens the store.  Returns 1, or 0 if shared prompts could not be found again. */
static int open_store(struct shelf *s, const char *address, bool demanded)
{
    if (!address) return 1;
    int e = kvik_shared_open(s->cache, address, &s->shared);
    if (e >= 0) return 1;
    if (e == KVIK_UNSUPPORTED && !demanded) return 0;
    return err_prefix(e, "--prefix-store");
}

int shelf_open(kvik_cache *c, const char *dir, const char *address, bool demanded,
               struct shelf **out)
{
    *out = NULL;
    if (!dir && !address) return 0;
    struct shelf *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    s->cache = c;
    int e = open_dir(s, dir, demanded);
    if (e > 0) e = open_store(s, address, demanded);
    if (e > 0)
        *out = s;
    else
        shelf_close(s);
    return MIN(e, 0);
}

bool shelf_reads(const struct shelf *s, size_t n, size_t have)
{
    return s && s->dir && n >= have + LEAST_GAIN;
}

bool shelf_read(struct shelf *s, const int32_t *ids, size_t n, const char *salt, size_t have,
                kvik_reading **out)
{
    return shelf_reads(s, n, have) &&
           kvik_prefix_read(s->cache, s->dir, ids, n, salt, have, out) >= 0;
}

bool shelf_state(const struct shelf *s, kvik_shared_state *out)
{
    *out = (kvik_shared_state){.size = sizeof *out};
    return s && s->shared && kvik_shared_look(s->shared, out) >= 0;
}

const char *shelf_dir_error(const struct shelf *s)
{
    return s ? s->dir_error : "";
}

kvik_fetch *shelf_seek(struct shelf *s, const int32_t *ids, size_t n, const char *salt, size_t have,
                       double token_seconds)
{
    kvik_shared_state now;
    kvik_fetch *f;
    if (n < have + KVIK_SHARED_LEAST || !shelf_state(s, &now) || now.reads_rest) return NULL;
    bool slow = token_seconds > 0 && now.token_seconds >= token_seconds;
    if (slow && now_seconds() < s->tried + TRY_AGAIN) return NULL;
    if (slow) s->tried = now_seconds();
    return kvik_shared_seek(s->shared, ids, n, salt, have, &f) >= 0 ? f : NULL;
}

static void remove_item(struct shelf *s, uint32_t i)
{
    kvik_cache_drop(s->cache, s->item[i].seq);
    memmove(s->item + i, s->item + i + 1, (--s->n - i) * sizeof *s->item);
}

void shelf_put(struct shelf *s, kvik_seq seq)
{
    if (s->n == WAITING) remove_item(s, 0);
    s->item[s->n++] = (struct shelved){seq, !s->shared};
}

bool shelf_waits(const struct shelf *s)
{
    return s && s->n;
}

bool shelf_share(struct shelf *s)
{
    kvik_shared_state now;
    uint32_t i = 0;
    while (s && i < s->n && s->item[i].shared)
        i++;
    if (!s || i == s->n || !shelf_state(s, &now) || now.waiting >= BEHIND) return false;
    s->item[i].shared = kvik_shared_put(s->shared, s->item[i].seq) <= 0;
    if (s->item[i].shared && !s->dir) remove_item(s, i);
    return true;
}

bool shelf_save(struct shelf *s)
{
    if (!shelf_waits(s)) return false;
    if (!s->item[0].shared) return shelf_share(s);
    if (s->dir) { /* if the disk is full, only the reuse is lost */
        bool saved = kvik_prefix_save(s->cache, s->dir, s->item[0].seq, DIR_BYTES) >= 0;
        snprintf(s->dir_error, sizeof s->dir_error, "%s", saved ? "" : kvik_last_error());
    }
    remove_item(s, 0);
    return true;
}

void shelf_drop(struct shelf *s)
{
    while (shelf_waits(s))
        remove_item(s, 0);
}

void shelf_close(struct shelf *s)
{
    if (!s) return;
    while (shelf_save(s)) {
    }
    shelf_drop(s);
    kvik_shared_close(s->shared);
    mem_free(s->dir);
    mem_free(s);
}
