/* reuse.c - make bench: what a text costs that was computed before, next to computing it.
 *
 * A text of 4 000 tokens is computed, saved in a session, saved again with 20 more tokens, loaded and inspected.  Another of
 * 1 024 tokens comes again in an empty sequence, as a whole and with other tokens from the 1 001st on; the prefix index finds
 * its rows.  Figures are medians of ROUNDS; the files stay in the page cache.
 *
 *     reuse,what,milliseconds,of computing the text,KiB of the file or of what was written to it
 *
 *     build/release/bench_reuse MODEL [THREADS [ROUNDS]]         writes build/bench.session */
#include "base/base.h"
#include "kvik.h"
#include "steady.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "build/bench.session"
enum { LONG = 4000, MORE = 20, SHORT = 1024, PARTS = 1000, MOST = 9 };
enum { COMPUTE, SAVE, AGAIN, LOAD, INSPECT, PROMPT, SAME, PART, KINDS };
static const char *const name[KINDS] = {
    "compute 4000 tokens",          "first save, synced",
    "save after 20 more tokens",    "load, every block checked",
    "inspect, every block checked", "compute 1024 tokens",
    "the same 1024 tokens again",   "1024 tokens, other ones after 1000"};

static double seconds[KINDS][MOST];
static uint64_t written[KINDS];
static int32_t ids[LONG + MORE];
static uint32_t threads;

static void check(int64_t e)
{
    if (e >= 0) return;
    fprintf(stderr, "bench_reuse: %s\n", kvik_last_error());
    exit(1);
}

static kvik_cache *open_cache(kvik_model *m)
{
    const kvik_cache_config k = {.size = sizeof k, .max_sequences = 4, .threads = threads};
    kvik_cache *c;
    check(kvik_cache_open(m, &k, &c));
    return c;
}

static uint64_t file_bytes(void)
{
    struct stat st;
    return stat(FILE_NAME, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void feed(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t n)
{
    const kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + from, .n = n};
    check(kvik_forward(c, &span, 1, false, NULL));
}

static void session(kvik_model *m, uint32_t round)
{
    kvik_cache *c = open_cache(m);
    kvik_seq s;
    char *text;
    unlink(FILE_NAME);
    check(kvik_cache_new(c, &s));
    feed(c, s, 0, 16);
    check(kvik_cache_save(c, FILE_NAME, &s, 1, NULL)); /* the weights are hashed once */
    unlink(FILE_NAME);
    check(kvik_cache_crop(c, s, 0));
    double t[INSPECT + 2] = {now_seconds()};
    feed(c, s, 0, LONG);
    t[1] = now_seconds();
    check(kvik_cache_save(c, FILE_NAME, &s, 1, NULL));
    t[2] = now_seconds();
    written[SAVE] = file_bytes();
    feed(c, s, LONG, MORE);
    double again = now_seconds();
    check(kvik_cache_save(c, FILE_NAME, &s, 1, NULL));
    seconds[AGAIN][round] = now_seconds() - again;
    written[AGAIN] = file_bytes() - written[SAVE];
    kvik_cache_close(c);
    c = open_cache(m);
    t[3] = now_seconds();
    check(kvik_cache_load(c, FILE_NAME, 1, &s, NULL));
    t[4] = now_seconds();
    check(kvik_session_describe(FILE_NAME, &text));
    t[5] = now_seconds();
    kvik_free(text);
    written[LOAD] = written[INSPECT] = file_bytes();
    seconds[COMPUTE][round] = t[1] - t[0];
    seconds[SAVE][round] = t[2] - t[1];
    seconds[LOAD][round] = t[4] - t[3];
    seconds[INSPECT][round] = t[5] - t[4];
    kvik_cache_close(c);
    unlink(FILE_NAME);
}

static void prefix(kvik_model *m, uint32_t round)
{
    kvik_cache *c = open_cache(m);
    float *logits = malloc(kvik_model_vocab(m) * sizeof *logits);
    if (!logits) exit(1);
    for (int kind = PROMPT; kind < KINDS; kind++) {
        int32_t text[SHORT];
        kvik_seq s;
        for (int i = 0; i < SHORT; i++)
            text[i] = ids[kind == PART && i >= PARTS ? i + SHORT : i];
        check(kvik_cache_new(c, &s));
        double t = now_seconds();
        check(kvik_cache_sync(c, s, text, SHORT, logits, NULL));
        seconds[kind][round] = now_seconds() - t;
        check(kvik_cache_drop(c, s));
    }
    free(logits);
    kvik_cache_close(c);
}

int main(int argc, char **argv)
{
    kvik_model *m;
    uint32_t rounds = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 3;
    if (argc < 2 || rounds < 1 || rounds > MOST) {
        fprintf(stderr, "usage: bench_reuse MODEL [THREADS [ROUNDS]]\n");
        return 2;
    }
    threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    check(kvik_model_open(argv[1], &m));
    for (uint32_t i = 0, x = 1; i < countof(ids); i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % kvik_model_vocab(m));
    }
    if (kvik_model_context(m) < LONG + MORE) {
        fprintf(stderr, "bench_reuse: the model's context is below %d tokens\n", LONG + MORE);
        return 1;
    }
    for (uint32_t i = 0; i < rounds; i++) {
        session(m, i);
        prefix(m, i);
    }
    for (int k = 0; k < KINDS; k++) {
        double *whole = seconds[k < PROMPT ? COMPUTE : PROMPT], base = median_of(whole, rounds);
        double own = median_of(seconds[k], rounds);
        bool doubtful = scatters(whole, rounds) || scatters(seconds[k], rounds);
        printf("%sreuse,%s,%.1f,%.4f,%llu\n", line_mark(doubtful), name[k], 1e3 * own, own / base,
               (unsigned long long)written[k] >> 10);
    }
    kvik_model_close(m);
    return 0;
}
