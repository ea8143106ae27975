/* start.c - how long a model takes until it is ready: medians over processes of their own, each of which opens the model with its
 * tokenizer, and a cache.
 *
 *     bench_start MODEL [RUNS]
 *
 * The first process builds what the user's cache directory keeps, the others find it there.  Without a cache directory
 * (XDG_CACHE_HOME=none) all of them build.  MODEL may be a directory with a tokenizer alone. */
#include "base/base.h"
#include "kvik.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 99 };

/* Milliseconds until the tokenizer alone is open; until the model with its tokenizer is; until a cache is, too.  Negative: that
 * cannot be opened. */
struct times {
    double tokenizer, model, cache;
};

static struct times run(const char *path)
{
    struct times t = {-1, -1, -1};
    kvik_tokenizer *tok;
    kvik_model *m;
    kvik_cache *c;
    double begun = now_seconds();
    if (kvik_model_open(path, &m) < 0) {
        if (kvik_tokenizer_open(path, &tok) >= 0) t.tokenizer = (now_seconds() - begun) * 1e3;
        return t;
    }
    t.model = (now_seconds() - begun) * 1e3;
    const kvik_cache_config config = {.size = sizeof config, .threads = 2};
    if (kvik_cache_open(m, &config, &c) >= 0) t.cache = (now_seconds() - begun) * 1e3;
    return t;
}

/* Runs in a process of its own, so that nothing of an earlier run is in memory. */
static bool run_apart(const char *path, struct times *out)
{
    int ends[2];
    if (pipe(ends) < 0) return false;
    pid_t child = fork();
    if (child == 0) {
        struct times t = run(path);
        _exit(write(ends[1], &t, sizeof t) != sizeof t);
    }
    close(ends[1]);
    bool got = child > 0 && read(ends[0], out, sizeof *out) == sizeof *out;
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return got;
}

static void show(const char *what, double first, double *v, size_t n)
{
    if (first < 0) return;
    double middle = median_of(v, n);
    printf("%s,%.1f,%.1f,%.1f,%.1f\n", what, first, middle, v[0], v[n - 1]);
}

int main(int argc, char **argv)
{
    double tokenizer[MOST], model[MOST], cache[MOST];
    struct times first, t;
    size_t runs = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 7;
    if (argc < 2 || runs < 1 || runs > MOST || !run_apart(argv[1], &first)) {
        fprintf(stderr, "usage: bench_start MODEL [RUNS]\n");
        return 2;
    }
    for (size_t i = 0; i < runs; i++) {
        if (!run_apart(argv[1], &t)) return 1;
        tokenizer[i] = t.tokenizer;
        model[i] = t.model;
        cache[i] = t.cache;
    }
    printf("ready,first ms,median ms,least ms,most ms\n");
    show("tokenizer", first.tokenizer, tokenizer, runs);
    show("model", first.model, model, runs);
    show("model and cache", first.cache, cache, runs);
    return 0;
}
