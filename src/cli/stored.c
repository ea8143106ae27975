/* stored.c - reads and writes sessions and directories of prompts, with a progress line.  The first of these calls
 * hashes all weights of the model, which takes seconds for gigabytes; reading and writing rows takes time, too. */
#include "cli/cli.h"

struct stored_call {
    kvik_cache *cache;
    const char *path;
    const int32_t *ids;
    size_t n;
    kvik_seq *seq;
    uint32_t n_seqs;
    const char *note;
    char **got;
    int64_t result;
};

static void load_rows(void *ctx)
{
    struct stored_call *c = ctx;
    c->result = kvik_cache_load(c->cache, c->path, c->n_seqs, c->seq, c->got);
}

static void save_rows(void *ctx)
{
    struct stored_call *c = ctx;
    c->result = kvik_cache_save(c->cache, c->path, c->seq, c->n_seqs, c->note);
}

static void prefix_load(void *ctx)
{
    struct stored_call *c = ctx;
    c->result = kvik_prefix_load(c->cache, c->path, c->ids, c->n, c->seq);
}

static void prefix_save(void *ctx)
{
    struct stored_call *c = ctx;
    c->result = kvik_prefix_save(c->cache, c->path, *c->seq, 0);
}

static int64_t run_with_progress(const char *what, void (*fn)(void *ctx), struct stored_call c)
{
    progress_during(what, fn, &c);
    return c.result;
}

int stored_load(kvik_cache *cache, const char *path, uint32_t most, kvik_seq *seq, char **note)
{
    struct stored_call c = {.cache = cache, .path = path, .seq = seq, .n_seqs = most, .got = note};
    return (int)run_with_progress("loading the session", load_rows, c);
}

int stored_save(kvik_cache *cache, const char *path, kvik_seq *seq, uint32_t n, const char *note)
{
    struct stored_call c = {.cache = cache, .path = path, .seq = seq, .n_seqs = n, .note = note};
    return (int)run_with_progress("saving the session", save_rows, c);
}

int64_t stored_prefix_load(kvik_cache *cache, const char *dir, const int32_t *ids, size_t n,
                           kvik_seq *seq)
{
    struct stored_call c = {.cache = cache, .path = dir, .ids = ids, .n = n, .seq = seq};
    return run_with_progress("looking for the prompt in --prefix-cache", prefix_load, c);
}

int stored_prefix_save(kvik_cache *cache, const char *dir, kvik_seq seq)
{
    struct stored_call c = {.cache = cache, .path = dir, .seq = &seq};
    return (int)run_with_progress("saving the prompt in --prefix-cache", prefix_save, c);
}
