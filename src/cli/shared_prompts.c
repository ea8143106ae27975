/* shared_prompts.c - --prefix-store for commands that answer one prompt after another.  Before a prompt is computed,
 * the rows that the store has of it are read; after that its new rows are written to the store.
 *
 * A command cannot compute and read at the same time, as the server can.  So it waits only for a time that is short
 * beside computing: FIRST for the first rows, and EACH for every token of the prompt. */
#include "cli/cli.h"
#include "kvik_shared.h"

#include <time.h>

#define FIRST 0.1
#define EACH  0.0002
enum { MOST_FLUSHES = 50, FLUSH_MS = 100, LAST_FLUSHES = 10 };

int engine_store(struct engine *s, const char *address)
{
    if (!address) return 0;
    int e = kvik_shared_open(s->cache, address, &s->shared);
    return e < 0 ? err_prefix(e, "--prefix-store"), say_error(e) : 0;
}

/* Says that the store fails, once in a run: a wrong address would else be noticed by nobody.  Returns true if it fails. */
static bool tell_failure(struct engine *s)
{
    kvik_shared_state now = {.size = sizeof now};
    if (kvik_shared_look(s->shared, &now) < 0 || !(now.reads_fail || now.writes_fail)) return false;
    if (!s->told_shared) say_line("--prefix-store: %s; prompts are computed", now.error);
    s->told_shared = true;
    return true;
}

void engine_unshare(struct engine *s)
{
    int all = 0;
    if (!s->shared) return;
    for (int i = 0; i < LAST_FLUSHES && !all && !tell_failure(s); i++)
        all = kvik_shared_flush(s->shared, FLUSH_MS);
    if (!tell_failure(s) && !all)
        say_line("--prefix-store: the store has not taken all rows yet; what it does not take in "
                 "5 s more is not shared");
    kvik_shared_close(s->shared);
    s->shared = NULL;
}

/* Waits until the fetch is over, but no longer than FIRST and EACH allow. */
static void wait_for_fetch(kvik_fetch *f, size_t n)
{
    const struct timespec tick = {.tv_nsec = 1000000};
    const double begun = now_seconds(), most = FIRST + EACH * (double)n;
    kvik_fetched now = {.size = sizeof now};
    while (kvik_fetch_look(f, &now) >= 0 && !now.over) {
        double t = now_seconds() - begun;
        if (t > most || (t > FIRST && !now.bytes)) return;
        nanosleep(&tick, NULL);
    }
}

int64_t engine_fetch(struct engine *s, const int32_t *ids, size_t n, size_t have, kvik_seq *seq)
{
    kvik_fetch *f;
    kvik_fetched now = {.size = sizeof now};
    kvik_seq got;
    if (!s->shared || n < have + KVIK_SHARED_LEAST ||
        kvik_shared_seek(s->shared, ids, n, NULL, have, &f) < 0)
        return 0;
    wait_for_fetch(f, n);
    bool worth = kvik_fetch_look(f, &now) >= 0 && now.tokens >= have + KVIK_SHARED_LEAST;
    int64_t taken = worth ? kvik_fetch_take(f, &got) : 0;
    kvik_fetch_free(f);
    (void)tell_failure(s);
    if (taken <= 0) return 0; /* without room the rows are computed */
    *seq = got;
    return taken;
}

void engine_share(struct engine *s, kvik_seq seq)
{
    for (int i = 0; s->shared && i < MOST_FLUSHES && kvik_shared_put(s->shared, seq) > 0; i++)
        (void)kvik_shared_flush(s->shared, FLUSH_MS);
}
