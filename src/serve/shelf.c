/* shelf.c - sequences that wait to be saved; see shelf.h.  All of it runs on the thread of the scheduler. */
#include "serve/shelf.h"
#include "base/base.h"

#include <string.h>

enum {
    WAITING = 8,     /* sequences whose rows are kept until they are saved */
    LEAST_GAIN = 64, /* tokens that are worth a read */
    DIR_BYTES = 0    /* of the directory: kvik_prefix_save's own limit */
};

struct shelf {
    kvik_cache *cache;
    char *dir;
    kvik_seq seq[WAITING];
    uint32_t n;
};

int shelf_open(kvik_cache *c, const char *dir, bool demanded, struct shelf **out)
{
    *out = NULL;
    if (!dir) return 0;
    int e = kvik_prefix_check(c, dir);
    if (e < 0) return e;
    if (e == 0 && !demanded) return 0;
    if (e == 0)
        return ERR(
            UNSUPPORTED,
            "--prefix-cache: with this cache strategy rows depend on turns, and no prompt can be found again");
    struct shelf *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    s->cache = c;
    if (!(s->dir = mem_strdup(dir))) {
        mem_free(s);
        return ERR_NOMEM;
    }
    *out = s;
    return 0;
}

size_t shelf_load(struct shelf *s, const int32_t *ids, size_t n, const char *salt, size_t have)
{
    kvik_seq seq;
    if (!s || n < have + LEAST_GAIN) return 0;
    int64_t got = kvik_prefix_load_salted(s->cache, s->dir, ids, n, salt, &seq);
    if (got <= 0) return 0;
    kvik_cache_drop(s->cache, seq); /* its rows stay in the index */
    return (size_t)got > have ? (size_t)got : 0;
}

static void remove_first(struct shelf *s)
{
    kvik_cache_drop(s->cache, s->seq[0]);
    memmove(s->seq, s->seq + 1, --s->n * sizeof *s->seq);
}

void shelf_put(struct shelf *s, kvik_seq seq)
{
    if (s->n == WAITING) remove_first(s);
    s->seq[s->n++] = seq;
}

bool shelf_waits(const struct shelf *s)
{
    return s && s->n;
}

bool shelf_save(struct shelf *s)
{
    if (!shelf_waits(s)) return false;
    (void)kvik_prefix_save(s->cache, s->dir, s->seq[0],
                           DIR_BYTES); /* a full disk costs the reuse, not the answer */
    remove_first(s);
    return true;
}

void shelf_drop(struct shelf *s)
{
    while (shelf_waits(s))
        remove_first(s);
}

void shelf_close(struct shelf *s)
{
    if (!s) return;
    while (shelf_save(s)) {
    }
    mem_free(s->dir);
    mem_free(s);
}
