/* attn.c - attention over a native view in SmolLM2's shape (9 query heads, 3 kv heads, dim 64, f16,
 * 30 sites), per instruction set.
 * Decode at several depths is in GB/s of K and V bytes. The floor is a plain read of the same
 * memory with the same threads. Causal prefill of 512 tokens is in GFLOP/s.
 *
 *     build/release/bench_attn [THREADS [BLOCK_ROWS [shuffle]]]
 *
 * With "shuffle", page ids are in random order instead of adjacent. */
#include "base/thread.h"
#include "dev/dev.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 9, KV_HEADS = 3, DIM = 64, SITES = 30, DEPTH = 7000, PREFILL = 512, RUNS = 9 };

struct setup {
    struct kv_view v;
    unsigned char *mem; /* [site][page] */
    size_t site;        /* bytes */
    uint32_t counts[3], zero[PREFILL], pos[PREFILL], hi[PREFILL];
    uint32_t table[DEPTH / 16 + 2];
    float *q, *out;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_attn: %s: %s\n", what, err_last());
    exit(1);
}

static void set_up(struct setup *s, uint32_t rows, bool shuffle)
{
    uint32_t pages = DEPTH / rows + 1;
    size_t plane = (size_t)rows * KV_HEADS * DIM * 2;
    memset(s, 0, sizeof *s);
    s->site = (pages + 1) * 2 * plane;
    s->mem = mem_aligned(SITES * s->site);
    s->q = mem_array((size_t)PREFILL * HEADS * DIM, sizeof(float));
    s->out = mem_array((size_t)PREFILL * HEADS * DIM, sizeof(float));
    if (!s->mem || !s->q || !s->out) die("memory");
    uint32_t r = 1;
    /* Random f16 values between about -2 and 2. */
    for (size_t i = 0; i < SITES * s->site / 2; i++) {
        r = r * 1664525u + 1013904223u;
        ((uint16_t *)s->mem)[i] = (uint16_t)((r >> 16 & 0x83ffu) | 0x3800u);
    }
    for (size_t i = 0; i < (size_t)PREFILL * HEADS * DIM; i++)
        s->q[i] = (float)(int)(r = r * 1664525u + 1013904223u) * 0x1p-31f;
    for (uint32_t i = 0; i < pages; i++) {
        uint32_t at = shuffle ? (r = r * 1664525u + 1013904223u) % (i + 1) : i;
        s->table[i] = s->table[at];
        s->table[at] = i + 1;
    }
    s->v = (struct kv_view){
        .raw = {s->mem, 2 * plane, rows, pages, s->table, {0, plane}},
        .n_planes = 2,
        .shape = {{KV_HEADS, DIM, DT_F16, KV_STRIPS}, {KV_HEADS, DIM, DT_F16, KV_ROWMAJOR}},
        .row1 = UINT32_MAX,
        .raw1 = UINT32_MAX,
        .first = true,
        .last = true,
        .counts = s->counts,
        .slot = s->zero,
        .len = s->zero,
        .lane = s->zero,
        .pos = s->pos,
        .lo = s->zero,
        .hi = s->hi,
        .edge = s->zero,
        .dst = s->zero,
    };
}

/* Returns the median seconds of one pass over all sites: n tokens from row pos on. */
static double pass(struct dev_queue *d, struct setup *s, uint32_t pos, uint32_t n)
{
    double t[RUNS];
    struct dev_attn a = {.q = s->q,
                         .ldq = HEADS * DIM,
                         .out = s->out,
                         .ldo = HEADS * DIM,
                         .n_heads = HEADS,
                         .scale = 0.125f};
    s->counts[0] = 1;
    s->counts[1] = n;
    for (uint32_t i = 0; i < n; i++)
        s->hi[i] = (s->pos[i] = pos + i) + 1;
    int runs = dev_isa_supported(DEV_AVX2) && !strcmp(dev_isa_name(d), "ref") ? 1 : RUNS;
    uint32_t sites = runs == 1 ? 1 : SITES;
    for (int run = 0; run < runs; run++) {
        double t0 = now_seconds();
        for (uint32_t site = 0; site < sites; site++) {
            s->v.raw.base = s->mem + site * s->site;
            dev_attention(d, &s->v, &a);
        }
        t[run] = (now_seconds() - t0) * SITES / sites;
    }
    return median_of(t, (size_t)runs);
}

typedef uint64_t vec __attribute__((vector_size(32)));
struct stream {
    const unsigned char *mem;
    size_t piece;
    vec sum[64];
};
static void read_piece(void *ctx, uint32_t task, uint32_t thread)
{
    struct stream *s = ctx;
    const vec *p = (const vec *)(s->mem + task * s->piece);
    vec a = {0}, b = {0}, c = {0}, e = {0};
    for (size_t i = 0; i + 4 <= s->piece / sizeof *p; i += 4) {
        a += p[i];
        b += p[i + 1];
        c += p[i + 2];
        e += p[i + 3];
    }
    s->sum[thread % 64] += a + b + c + e;
}

/* Returns the GB/s of reading the first `bytes` of every site, in pieces of the size of an atom. */
static double floor_of(struct setup *s, uint32_t threads, size_t bytes)
{
    struct pool *p;
    double t[RUNS];
    struct stream st = {.piece = (size_t)256 * KV_HEADS * DIM * 4};
    if (pool_open(&p, threads) < 0) die("threads");
    for (int run = 0; run < RUNS; run++) {
        double t0 = now_seconds();
        for (uint32_t site = 0; site < SITES; site++) {
            st.mem = s->mem + site * s->site;
            pool_run(p, (uint32_t)(bytes / st.piece), read_piece, &st);
        }
        t[run] = now_seconds() - t0;
    }
    pool_close(p);
    return (double)(bytes / st.piece * st.piece) * SITES / median_of(t, RUNS) * 1e-9;
}

int main(int argc, char **argv)
{
    static const uint32_t depths[] = {256, 2048, 7000};
    static struct setup s;
    struct dev_config c = {argc > 1 ? (uint32_t)atoi(argv[1]) : 2, NULL};
    uint32_t rows = argc > 2 ? (uint32_t)atoi(argv[2]) : 16;
    double floors[countof(depths)];
    set_up(&s, rows, argc > 3 && !strcmp(argv[3], "shuffle"));
    for (size_t i = 0; i < countof(depths); i++) {
        floors[i] = floor_of(&s, c.n_threads, (size_t)depths[i] * KV_HEADS * DIM * 4);
        printf("plain read   depth %4u  %6.2f GB/s\n", depths[i], floors[i]);
    }
    for (int isa = 0; isa < DEV_ISAS; isa++) {
        struct dev_queue *d;
        struct dev_limits lim = {PREFILL, DIM, DIM, HEADS, DIM, DEPTH, 0};
        c.isa = dev_isa_names()[isa];
        if (!dev_isa_supported((enum dev_isa)isa) || isa == DEV_AVX512BF16) continue;
        if (dev_queue_open(&dev_host, &c, &d) < 0 || dev_reserve(d, &lim) < 0) die(c.isa);
        for (size_t i = 0; i < countof(depths); i++) {
            double t = pass(d, &s, depths[i] - 1, 1);
            double rate = (double)depths[i] * KV_HEADS * DIM * 4 * SITES / t * 1e-9;
            printf("%-6s decode depth %4u  %6.2f GB/s  %3.0f %% of the read  %7.1f us per site\n",
                   c.isa, depths[i], rate, 100 * rate / floors[i], t / SITES * 1e6);
        }
        /* : The reference device takes minutes at the greater depth. */
        for (uint32_t at = 0; at <= (isa == DEV_REF ? 0u : 2048u); at += 2048) {
            double t = pass(d, &s, at, PREFILL),
                   pairs = (double)PREFILL * at + PREFILL * (PREFILL + 1) / 2;
            printf("%-6s prefill %u tokens at %4u  %6.1f GFLOP/s  %7.2f ms per site\n", c.isa,
                   PREFILL, at, pairs * 4 * DIM * HEADS * SITES / t * 1e-9, t / SITES * 1e3);
        }
        dev_queue_close(d);
    }
    mem_free(s.mem);
    mem_free(s.q);
    mem_free(s.out);
    return 0;
}
