/* splice.c - make bench: ten documents in a new order, read where they were computed (kvik_cache_splice).
 *
 * A prompt is a header, ten documents of about 200 tokens of a text and a tail.  It was computed in one order and comes in
 * another.  For each number of tokens that is computed again: the time to the first token, next to computing the prompt,
 * to the prefix index alone, and to the same prompt again; and the Kullback-Leibler divergence of the predictions over the
 * tail (which goes on with the last document's text) from those of computing, in nats, in double, over the whole vocabulary.
 *
 *     splice,way,tokens computed,seconds to the first token,mean KLD,99 % of KLD,same top token %
 *
 *     build/release/bench_splice MODEL [THREADS [ROUNDS [CONFIG]]]        CONFIG: more keys of cache_config */
#include "base/base.h"
#include "kvik_loop.h"
#include "steady.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOCS = 10, LONG = 200, HEAD = 24, TAIL = 128, ROUNDS = 9, TEXT = HEAD + DOCS * LONG + TAIL };
static const uint32_t order[DOCS] = {6, 2, 9, 0, 4, 8, 1, 5, 7, 3};
static int32_t first[TEXT], text[TEXT];
static uint32_t threads, vocab;
static const char *more;

static void check(int64_t e)
{
    if (e >= 0) return;
    fprintf(stderr, "bench_splice: %s\n", kvik_last_error());
    exit(1);
}

static kvik_cache *open_cache(kvik_model *m)
{
    char keys[300];
    snprintf(keys, sizeof keys, "{\"moved_chunks\": 16%s%s}", more ? ", " : "", more ? more : "");
    const kvik_cache_config k = {
        .size = sizeof k, .max_sequences = 2, .threads = threads, .cache_config = keys};
    kvik_cache *c;
    check(kvik_cache_open(m, &k, &c));
    return c;
}

/* The two orders: documents are neighbouring parts of one text. */
static void read_text(kvik_model *m)
{
    FILE *f = fopen("examples/text/nowhere.txt", "r");
    static char all[40000];
    size_t n = f ? fread(all, 1, sizeof all - 1, f) : 0, tokens;
    int32_t *ids;
    if (f) fclose(f);
    if (!n) exit((fprintf(stderr, "bench_splice: run it from the root of the tree\n"), 1));
    check(kvik_tokenizer_encode(kvik_model_tokenizer(m), all, n, false, &ids, &tokens));
    if (tokens < TEXT)
        exit((fprintf(stderr, "bench_splice: the text has %zu tokens\n", tokens), 1));
    memcpy(first, ids, sizeof first);
    memcpy(text, ids, HEAD * sizeof *text);
    for (uint32_t i = 0; i < DOCS; i++)
        memcpy(text + HEAD + i * LONG, ids + HEAD + order[i] * LONG, LONG * sizeof *text);
    memcpy(text + HEAD + DOCS * LONG, ids + HEAD + (order[DOCS - 1] + 1) * LONG,
           TAIL * sizeof *text);
    kvik_free(ids);
}

static void feed(kvik_cache *c, kvik_seq s, const int32_t *ids, uint32_t n, bool all, float *logits)
{
    const kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    check(kvik_forward(c, &span, 1, all, logits));
}

struct way {
    const char *name;
    uint64_t again;
    double fraction;
    bool computes; /* without the call */
    bool same;     /* the prompt is the one before */
};

/* Computes a prompt in an empty sequence; returns the seconds to its first token.  all: [TAIL][vocab], to fill with the logits of
 * the tail, or NULL. */
static double prompt(kvik_cache *c, kvik_seq s, const struct way *w, uint64_t *computed, float *all)
{
    static float logits[1 << 18];
    kvik_chunk list[DOCS + 1] = {{sizeof *list, text, HEAD, 0}};
    kvik_splice how = {.size = sizeof how, .recompute = w->again, .fraction = w->fraction};
    kvik_sync report = {.size = sizeof report};
    for (uint32_t i = 0; i < DOCS; i++)
        list[1 + i] = (kvik_chunk){sizeof *list, text + HEAD + i * LONG, LONG, 0};
    /* prompts leave their rows in the prefix index, so that each that is timed ends its header in a token of its own */
    static int32_t number = 1000;
    int32_t end = text[HEAD - 1];
    if (!w->same && !all) text[HEAD - 1] = number++;
    check(kvik_cache_reset(c, s));
    double begun = now_seconds();
    if (w->computes && !all) {
        check(kvik_cache_sync(c, s, text, TEXT, logits, &report));
        *computed = report.computed;
        kvik_sync_done(&report);
        text[HEAD - 1] = end;
        return now_seconds() - begun;
    }
    if (w->computes)
        feed(c, s, text, TEXT - TAIL, false, logits);
    else
        check(kvik_cache_splice(c, s, list, DOCS + 1, &how));
    feed(c, s, text + TEXT - TAIL, TAIL, all != NULL, all ? all : logits);
    *computed = how.computed + TAIL;
    text[HEAD - 1] = end;
    return now_seconds() - begun;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double divergence(const float *p, const float *q, bool *same)
{
    double mp = -INFINITY, mq = -INFINITY, sp = 0, sq = 0, d = 0;
    uint32_t ip = 0, iq = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        if (p[i] > mp) mp = p[ip = i];
        if (q[i] > mq) mq = q[iq = i];
    }
    for (uint32_t i = 0; i < vocab; i++) {
        sp += exp(p[i] - mp);
        sq += exp(q[i] - mq);
    }
    for (uint32_t i = 0; i < vocab; i++)
        d += exp(p[i] - mp) / sp * ((p[i] - mp - log(sp)) - (q[i] - mq - log(sq)));
    *same = ip == iq;
    return d;
}

static void report(kvik_cache *c, const struct way *w, const float *want, uint32_t rounds)
{
    double seconds[ROUNDS], kld[TAIL], sum = 0;
    uint64_t computed, again;
    uint32_t equal = 0;
    kvik_seq s;
    float *got = malloc((size_t)TAIL * vocab * sizeof *got);
    check(kvik_cache_new(c, &s));
    for (uint32_t r = 0; r < rounds; r++)
        seconds[r] = prompt(c, s, w, &computed, NULL);
    prompt(c, s, w, &again, got);
    for (uint32_t i = 0; i < TAIL; i++) {
        bool same;
        kld[i] = divergence(want + (size_t)i * vocab, got + (size_t)i * vocab, &same);
        sum += kld[i];
        equal += same;
    }
    check(kvik_cache_reset(c, s));
    check(kvik_cache_drop(c, s));
    free(got);
    qsort(seconds, rounds, sizeof *seconds, ascending);
    qsort(kld, TAIL, sizeof *kld, ascending);
    printf("%ssplice,%s,%llu,%.3f,%.5f,%.3f,%.1f\n", line_mark(scatters(seconds, rounds)), w->name,
           (unsigned long long)computed, seconds[rounds / 2], sum / TAIL, kld[TAIL - 2],
           100.0 * equal / TAIL);
    fflush(stdout);
}

/* Opens a cache in which a text is computed; NULL: none. */
static kvik_cache *open_after(kvik_model *m, const int32_t *was)
{
    kvik_cache *c = open_cache(m);
    kvik_seq d;
    check(kvik_cache_new(c, &d));
    if (was) feed(c, d, was, TEXT, false, NULL);
    return c;
}

int main(int argc, char **argv)
{
    static const struct way ways[] = {
        {.name = "moved with 0 again"},
        {.name = "moved with 8 again", .again = 8},
        {.name = "moved with 32 again", .again = 32},
        {.name = "moved with 15 % again", .fraction = 0.15},
        {.name = "moved with half again", .fraction = 0.5},
        {.name = "moved with all again",
         .fraction = 1}, /* what is computed comes last: it is kept */
        {.name = "the prefix index alone", .computes = true},
    };
    const struct way computing = {.name = "compute all", .computes = true},
                     same = {.name = "the same prompt again", .computes = true, .same = true};
    kvik_model *m;
    uint64_t computed;
    kvik_seq s;
    uint32_t rounds = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 3;
    if (argc < 2 || !rounds || rounds > ROUNDS) {
        fprintf(stderr, "usage: bench_splice MODEL [THREADS [ROUNDS [CONFIG]]]\n");
        return 2;
    }
    threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    more = argc > 4 ? argv[4] : NULL;
    check(kvik_model_open(argv[1], &m));
    vocab = kvik_model_vocab(m);
    if (vocab > 1 << 18) return 2;
    read_text(m);
    float *want = malloc((size_t)TAIL * vocab * sizeof *want);
    kvik_cache *c = open_after(m, NULL);
    check(kvik_cache_new(c, &s));
    prompt(c, s, &computing, &computed, want);
    check(kvik_cache_reset(c, s));
    printf(
        "splice,way,tokens computed,seconds to the first token,mean KLD,99 %% of KLD,same top token "
        "%%\n");
    report(c, &computing, want, rounds);
    kvik_cache_close(c);
    c = open_after(m, first);
    for (size_t i = 0; i < countof(ways); i++)
        report(c, &ways[i], want, rounds);
    kvik_cache_close(c);
    c = open_after(m, text);
    report(c, &same, want, rounds);
    kvik_cache_close(c);
    free(want);
    kvik_model_close(m);
    return 0;
}
