/* mm.c - matrix products. A one-token product over weights larger than any cache is in bytes per
 * second, next to what the same threads reach by only reading memory. A prompt is in multiply-adds
 * per second.
 *
 *     build/release/bench_mm [--isa NAME] [--type NAME] [--k K] [--rows R] [--tokens N] [--threads T]
 *                            [--rate MILLISECONDS]
 *
 * R and K are the shape of the prompt's product. The one-token product repeats that shape until its
 * weights fill MEGABYTES.  With --rate only the prompt's product of one type is measured, for so
 * long, and its rate alone is printed; products.py runs this for types in turn. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEGABYTES 128

/* With one thread the clock is that thread's own processor time, which other load disturbs less. */
static clockid_t clock_id = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct options {
    const char *isa, *type;
    uint32_t k, rows, tokens, threads;
    uint32_t rate; /* milliseconds; 0: all is measured */
};

static unsigned char *memory; /* MEGABYTES of random bytes; read as f16, all are finite and small */

static void fill_memory(void)
{
    uint64_t s = 88172645463325252ull;
    for (size_t i = 0; i < (size_t)MEGABYTES << 20; i += 2) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        uint16_t h = (uint16_t)((s >> 20 & 0x83ff) | 0x2c00 | (s >> 40 & 0x0c00));
        memcpy(memory + i, &h, 2);
    }
}

static uint64_t sink[64];
static void read_task(void *ctx, uint32_t task, uint32_t thread)
{
    (void)ctx;
    const uint64_t *p = (const uint64_t *)(memory + ((size_t)task << 18));
    uint64_t s[8] = {0};
    for (size_t i = 0; i < (1u << 18) / 8; i += 8)
        for (int l = 0; l < 8; l++)
            s[l] += p[i + (size_t)l];
    for (int l = 0; l < 8; l++)
        sink[thread % 64] += s[l];
}

/* Returns the best GB/s of several passes over the whole memory. */
static double read_bandwidth(struct dev_queue *d)
{
    double best = 0;
    for (int i = 0; i < 8; i++) {
        double t = now();
        pool_run(d->pool, MEGABYTES * 4, read_task, NULL);
        t = now() - t;
        double gbs = (double)MEGABYTES * 1.048576e-3 / t;
        best = gbs > best ? gbs : best;
    }
    return best;
}

static double decode_rate(struct dev_queue *d, enum dtype t, enum dev_compute mode,
                          const struct options *o, const float *x, float *y)
{
    size_t row_bytes = 0;
    dtype_bytes(t, o->k, &row_bytes);
    uint32_t rows = (uint32_t)(((size_t)MEGABYTES << 20) / row_bytes);
    struct dev_weight w = {memory, rows, o->k, t};
    struct dev_mm mm = {&w, NULL, y, rows};
    double best = 0;
    for (int i = 0; i < 4; i++) {
        double s = now();
        dev_matmul(d, mode, x, o->k, 1, &mm, 1);
        s = now() - s;
        double gbs = (double)rows * (double)row_bytes * 1e-9 / s;
        best = gbs > best ? gbs : best;
    }
    return best;
}

static double prompt_rate(struct dev_queue *d, enum dtype t, enum dev_compute mode,
                          const struct options *o, uint32_t n, const float *x, float *y)
{
    struct dev_weight w = {memory, o->rows, o->k, t};
    struct dev_mm mm = {&w, NULL, y, o->rows};
    double best = 0, spent = 0;
    for (int i = 0; i < 50 && (i < 3 || spent < 0.15); i++) {
        double s = now();
        dev_matmul(d, mode, x, o->k, n, &mm, 1);
        s = now() - s;
        spent += s;
        double rate = (double)n * o->rows * o->k * 1e-9 / s;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Prints the median rate of the prompt's product over o->rate milliseconds, and the instruction set. */
static int rate_only(const struct options *o, const float *x, float *y)
{
    enum { MOST = 4096 };
    static double rate[MOST];
    struct dev_queue *d;
    enum dtype t = 0;
    size_t n = 0;
    while (t < DT_COUNT && (!dev_weight_supported(t) || !o->type || strcmp(o->type, dtype_name(t))))
        t++;
    if (t == DT_COUNT || o->k % dtype_block(t)) {
        fprintf(stderr,
                "bench_mm: --rate needs --type, one that has products, and a K of whole blocks\n");
        return 2;
    }
    if (dev_queue_open(&dev_host, &(struct dev_config){o->threads, o->isa}, &d) < 0) return 1;
    if (dev_reserve(d, &(struct dev_limits){.tokens = o->tokens, .k = o->k}) < 0) return 1;
    struct dev_weight w = {memory, o->rows, o->k, t};
    struct dev_mm mm = {&w, NULL, y, o->rows};
    for (double end = now() + 1e-3 * o->rate; n < 3 || (now() < end && n < MOST); n++) {
        double s = now();
        dev_matmul(d, DEV_FAST, x, o->k, o->tokens, &mm, 1);
        rate[n] = (double)o->tokens * o->rows * o->k * 1e-9 / (now() - s);
    }
    printf("%.1f %s\n", median_of(rate, n), dev_isa_name(d));
    dev_queue_close(d);
    return 0;
}

static void bench_isa(enum dev_isa isa, const struct options *o, const float *x, float *y)
{
    struct dev_queue *d;
    if (dev_queue_open(&dev_host, &(struct dev_config){o->threads, dev_isa_names()[isa]}, &d) < 0)
        return;
    if (dev_reserve(d, &(struct dev_limits){.tokens = o->tokens, .k = o->k}) < 0) return;
    double floor = read_bandwidth(d);
    printf("\n%s, %u threads, K %u: memory read %.1f GB/s\n", dev_isa_name(d), dev_threads(d), o->k,
           floor);
    printf("%-6s | fast: GB/s  of mem  GMAC/s(n=%u)  (n=8)  (n=4)  (n=1) | exact: GB/s  GMAC/s\n",
           "type", o->tokens);
    for (int t = 0; t < DT_COUNT; t++) {
        if (!dev_weight_supported((enum dtype)t) || o->k % dtype_block((enum dtype)t)) continue;
        if (o->type && strcmp(o->type, dtype_name((enum dtype)t)) != 0) continue;
        double gbs = decode_rate(d, (enum dtype)t, DEV_FAST, o, x, y);
        double fast = prompt_rate(d, (enum dtype)t, DEV_FAST, o, o->tokens, x, y);
        double few = prompt_rate(d, (enum dtype)t, DEV_FAST, o, 8, x, y);
        double four = prompt_rate(d, (enum dtype)t, DEV_FAST, o, 4, x, y);
        double one = prompt_rate(d, (enum dtype)t, DEV_FAST, o, 1, x, y);
        double xgbs = decode_rate(d, (enum dtype)t, DEV_EXACT, o, x, y);
        double exact = prompt_rate(d, (enum dtype)t, DEV_EXACT, o, o->tokens, x, y);
        printf("%-6s | %10.1f  %5.0f%%  %13.1f  %5.1f  %5.1f  %5.1f | %11.1f  %6.1f\n",
               dtype_name((enum dtype)t), gbs, 100 * gbs / floor, fast, few, four, one, xgbs,
               exact);
        fflush(stdout);
    }
    dev_queue_close(d);
}

int main(int argc, char **argv)
{
    struct options o = {NULL, NULL, 1536, 576, 512, 0, 0};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--isa")) o.isa = argv[i + 1];
        if (!strcmp(argv[i], "--type")) o.type = argv[i + 1];
        if (!strcmp(argv[i], "--k")) o.k = (uint32_t)atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--rows")) o.rows = (uint32_t)atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--tokens")) o.tokens = (uint32_t)atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--rate")) o.rate = (uint32_t)atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--threads")) o.threads = (uint32_t)atoi(argv[i + 1]);
    }
    if (o.threads == 1) clock_id = CLOCK_THREAD_CPUTIME_ID;
    if (o.tokens < 8) o.tokens = 8;
    memory = aligned_alloc(64, (size_t)MEGABYTES << 20);
    size_t outs = (size_t)o.tokens * o.rows, rows = ((size_t)MEGABYTES << 20) / (o.k / 4 + 1);
    float *x = malloc((size_t)o.tokens * o.k * 4), *y = malloc((outs > rows ? outs : rows) * 4);
    if (!memory || !x || !y) return 1;
    fill_memory();
    for (size_t i = 0; i < (size_t)o.tokens * o.k; i++)
        x[i] = (float)((int)(i * 7919 % 2001) - 1000) * 1e-3f;
    int status = o.rate ? rate_only(&o, x, y) : 0;
    for (int i = DEV_ISAS - 1; i >= 0 && !o.rate; i--)
        if (dev_isa_supported((enum dev_isa)i) &&
            (o.isa ? !strcmp(o.isa, dev_isa_names()[i]) : i != 0))
            bench_isa((enum dev_isa)i, &o, x, y);
    free(memory);
    free(x);
    free(y);
    return status;
}
