/* cuda.c - make bench-cuda: a model of random weights on a GPU beside the floors of the GPU (bench_floors).
 *
 *     build/release/bench_cuda FLOORS MODEL WHAT [--dry]      FLOORS: what bench_floors printed; --dry: of tiny sizes
 *
 *     what,model,depth,batch,ms,tokens a second,amount,unit,floor,ms of the floor,share,holds
 *
 * decode    a step of a token for each of a batch of sequences at a depth: it reads all matrices once, and the rows of each
 *           sequence once.  The floor is the rate of memory.
 * offload   the same of one sequence of whose rows a quarter is in memory of the device.  The floor is the rate of copies from
 *           pinned memory for the bytes that were fetched.
 * prefill   4096 tokens, in steps of the default and all in one.  The floor is the rate of GEMM, for the products of the layers and
 *           of attention.  `batch` is the length of a step.
 * fork      on whatever device $KVIK_DEVICE names; its lines have other columns:
 *     fork,device,model,depth,us of a fork,rows copied,ms of a token,of the first token of a fork,of 8 beams,of 8 rows,share
 *
 * The rows at a depth are not computed: they are filled with one value (uncomputed.h).  What the device has no memory for is a
 * line that says so.  holds: "holds", "scatters" (steady.h), "above floor", or "no memory". */
#include "fmt/fmt.h"
#include "steady.h"
#include "uncomputed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 32, BEAMS = 8, SAMPLES = 21, FORKS = 64 };
static struct sizes {
    uint32_t depth[3], batch[3], offloaded, prefill, steps, new_tokens, prompt;
} sizes = {{0, 8192, 65536}, {1, 8, 32}, 65536, 4096, SAMPLES, 33, 64};
static const struct sizes dry = {{0, 64, 300}, {1, 2, 4}, 3000, 40, 3, 5, 8};

struct bench {
    const char *floors, *name;
    kvik_model *m;
    const struct model *in;
    double weights, row; /* bytes of a step, of a token's rows */
    float *logits;       /* [MOST][vocab] */
    kvik_cache *c;       /* that of the measurement under way */
    kvik_seq s[MOST];
};

/* --- Floors */

/* The rate of a floor, in bytes or operations a second; 0: it was not measured. */
static double floor_rate(const struct bench *b, const char *name)
{
    char line[256], is[32], unit[32];
    double rate, found = 0;
    FILE *f = fopen(b->floors, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%31[^,],%*[^,],%*[^,],%*[^,],%lf,%31s", is, &rate, unit) == 3 &&
            !strcmp(is, name))
            found = rate * (*unit == 'G' ? 1e9 : 1e12);
    if (f) fclose(f);
    return found;
}

static void show(const struct bench *b, const char *what, uint32_t depth, uint32_t batch, double *t,
                 uint32_t n, uint32_t tokens, double amount, const char *unit, const char *floor)
{
    double s = median_of(t, n), rate = floor_rate(b, floor), least = rate > 0 ? amount / rate : 0;
    const char *holds = scatters(t, n)              ? "scatters"
                        : least / s > MOST_OF_FLOOR ? "above floor"
                                                    : "holds";
    printf("%s,%s,%u,%u,%.3f,%.1f,%.4g,%s,%s,%.3f,%.3f,%s\n", what, b->name, depth, batch, 1e3 * s,
           tokens / s, amount / (*unit == 'G' ? 1e9 : 1e12), unit, floor, 1e3 * least, least / s,
           holds);
    fflush(stdout);
}

/* --- Caches */

/* memory 0: for all rows. */
static int cache_open(struct bench *b, uint32_t batch, uint32_t len, uint32_t step, uint64_t memory)
{
    const kvik_cache_config k = {
        .size = sizeof k,
        .max_cache_len = len,
        .step_tokens = step,
        .max_sequences = batch,
        .cache_implementation = memory ? "offloaded" : "dynamic",
        /* blocks are whole, and forks and beams have one of their own */
        .cache_memory =
            memory ? memory : (uint64_t)(b->row * batch * (len + 1024.0)) + (256u << 20),
        .no_prefix_cache = true};
    TRY(kvik_cache_open(b->m, &k, &b->c));
    for (uint32_t i = 0; i < batch; i++)
        TRY(kvik_cache_new(b->c, &b->s[i]));
    return 0;
}

static void cache_close(struct bench *b)
{
    kvik_cache_close(b->c);
    b->c = NULL;
}

/* A token for each of n sequences. */
static int step(struct bench *b, const kvik_seq *s, uint32_t n, double *seconds)
{
    static const int32_t id[] = {7, 11, 13, 17, 19, 23, 29};
    kvik_span span[MOST];
    for (uint32_t i = 0; i < n; i++)
        span[i] =
            (kvik_span){.size = sizeof *span, .seq = s[i], .ids = &id[i % countof(id)], .n = 1};
    double t = now_seconds();
    TRY(kvik_forward(b->c, span, n, false, b->logits));
    *seconds = now_seconds() - t;
    return 0;
}

/* Steps, the first three of which make graphs and are not counted. */
static int steps(struct bench *b, uint32_t batch, double *t)
{
    for (int i = -3; i < (int)sizes.steps; i++)
        TRY(step(b, b->s, batch, &t[MAX(i, 0)]));
    return 0;
}

/* --- What is measured */

static int decode_at(struct bench *b, uint32_t depth, uint32_t batch)
{
    double t[SAMPLES];
    TRY(cache_open(b, batch, depth + sizes.steps + 8, 0, 0));
    for (uint32_t i = 0; i < batch; i++)
        TRY(grow(b->c->x, b->s[i], depth, 512));
    TRY(steps(b, batch, t));
    double rows = batch * (depth + 3 + sizes.steps / 2.0);
    show(b, "decode", depth, batch, t, sizes.steps, batch, b->weights + rows * b->row, "GB", "hbm");
    return 0;
}

/* The device says it in its own words, which other errors have, too ("an illegal memory access"). */
static bool no_memory(int e)
{
    const char *why = kvik_last_error();
    return e == ERR_FULL || e == ERR_NOMEM ||
           (e == ERR_IO && (strstr(why, "no memory") || strstr(why, "out of memory")));
}

static int decode(struct bench *b)
{
    for (size_t d = 0; d < countof(sizes.depth); d++)
        for (size_t i = 0; i < countof(sizes.batch); i++) {
            uint32_t depth = sizes.depth[d], batch = sizes.batch[i];
            double bytes = b->weights + (double)batch * depth * b->row;
            int e = decode_at(b, depth, batch);
            cache_close(b);
            if (e < 0 && no_memory(e)) { /* the next ones may fit */
                fprintf(stderr, "decode at %u, batch %u: %s\n", depth, batch, kvik_last_error());
                printf("decode,%s,%u,%u,0,0,%.4g,GB,hbm,0,0,no memory\n", b->name, depth, batch,
                       bytes / 1e9);
            } else if (e < 0) {
                return e;
            }
        }
    return 0;
}

static int offload(struct bench *b)
{
    double t[SAMPLES];
    uint32_t depth = sizes.offloaded, len = depth + sizes.steps + 8;
    kvik_usage u = {.size = sizeof u};
    TRY(cache_open(b, 1, len, 0, 0));
    TRY(grow(b->c->x, b->s[0], depth, 512));
    TRY(kvik_cache_usage(b->c, &u));
    cache_close(b);
    TRY(cache_open(b, 1, len, 0, u.live / 4 + u.metadata));
    TRY(grow(b->c->x, b->s[0], depth, b->c->x->step_tokens));
    for (int i = -3; i < (int)sizes.steps; i++) {
        if (!i) TRY(kvik_cache_usage(b->c, &u));
        TRY(step(b, b->s, 1, &t[MAX(i, 0)]));
    }
    uint64_t before = u.tier_read;
    TRY(kvik_cache_usage(b->c, &u));
    if (u.tier_read == before) return ERR(ARG, "nothing was fetched: the budget holds all rows");
    show(b, "offload", depth, 1, t, sizes.steps, 1, (double)(u.tier_read - before) / sizes.steps,
         "GB", "to_device");
    return 0;
}

/* Multiplications and additions of n tokens in the layers: the matrices, and attention to the rows before each. */
static double operations(const struct model *m, double n)
{
    double heads = m->n_heads * (double)m->head_dim, kv = m->n_kv_heads * (double)m->head_dim;
    double matrices = m->hidden * (2 * heads + 2 * kv + 3.0 * m->ffn);
    return m->n_layers * (2 * n * matrices + 2 * n * n * heads);
}

static int prefill(struct bench *b)
{
    static int32_t ids[4096];
    const uint32_t in_a_step[] = {0, sizes.prefill};
    double t[5];
    for (uint32_t i = 0; i < sizes.prefill; i++)
        ids[i] = (int32_t)(i * 7919 % b->in->vocab);
    for (size_t k = 0; k < countof(in_a_step); k++) {
        TRY(cache_open(b, 1, sizes.prefill + 8, in_a_step[k], 0));
        const kvik_span span = {
            .size = sizeof span, .seq = b->s[0], .ids = ids, .n = sizes.prefill};
        for (int i = -1; i < (int)countof(t); i++) {
            double begin = now_seconds();
            TRY(kvik_forward(b->c, &span, 1, false, b->logits));
            t[MAX(i, 0)] = now_seconds() - begin;
            TRY(kvik_cache_crop(b->c, b->s[0], 0));
        }
        show(b, "prefill", 0, b->c->x->step_tokens, t, countof(t), sizes.prefill,
             operations(b->in, sizes.prefill), "TFLOP", "gemm");
        cache_close(b);
    }
    return 0;
}

/* --- Forks and beams */

/* Seconds of kvik_generate for n equal prompts, or one with beams. */
static int generate(struct bench *b, uint32_t n, uint32_t beams, uint32_t new_tokens,
                    double *seconds)
{
    static int32_t ids[64];
    kvik_prompt p[BEAMS];
    kvik_generation g;
    kvik_result *r;
    for (uint32_t i = 0; i < sizes.prompt; i++)
        ids[i] = (int32_t)(i * 7919 % b->in->vocab);
    for (uint32_t i = 0; i < n; i++)
        p[i] = (kvik_prompt){.size = sizeof *p, .ids = ids, .n = sizes.prompt};
    TRY(kvik_generation_init(&g, NULL));
    g.n_eos = 0;
    g.max_new_tokens = new_tokens;
    g.num_beams = beams;
    double t = now_seconds();
    int e = kvik_generate(b->c, &g, p, n, NULL, &r);
    *seconds = now_seconds() - t;
    kvik_generation_done(&g);
    if (e >= 0) kvik_result_free(r);
    return e;
}

/* Milliseconds of one more token, without the prompt. */
static int token_of(struct bench *b, uint32_t n, uint32_t beams, double *ms)
{
    double one[3], all[3];
    uint32_t rounds = sizes.steps < SAMPLES ? 1 : countof(one);
    for (int i = -1; i < (int)rounds; i++) {
        TRY(generate(b, n, beams, 1, &one[MAX(i, 0)]));
        TRY(generate(b, n, beams, sizes.new_tokens, &all[MAX(i, 0)]));
    }
    *ms = 1e3 * (median_of(all, rounds) - median_of(one, rounds)) / (sizes.new_tokens - 1);
    return 0;
}

static int fork_and_beams(struct bench *b)
{
    double fork[SAMPLES], first[SAMPLES], token[SAMPLES], beams, rows;
    uint32_t depth = sizes.depth[1];
    kvik_usage u = {.size = sizeof u};
    TRY(cache_open(b, MOST, depth + 64, 0, 0));
    TRY(grow(b->c->x, b->s[0], depth, 512));
    TRY(steps(b, 1, token));
    for (uint32_t i = 0; i < sizes.steps; i++) {
        kvik_seq f[FORKS / 2];
        double t = now_seconds();
        for (uint32_t k = 0; k < countof(f); k++)
            TRY(kvik_cache_fork(b->c, b->s[0], &f[k]));
        fork[i] = (now_seconds() - t) / countof(f);
        TRY(step(b, f, 1, &first[i]));
        for (uint32_t k = 0; k < countof(f); k++)
            TRY(kvik_cache_drop(b->c, f[k]));
    }
    TRY(kvik_cache_usage(b->c, &u));
    TRY(token_of(b, 1, BEAMS, &beams));
    TRY(token_of(b, BEAMS, 1, &rows));
    printf("fork,%s,%s,%u,%.2f,%.1f,%.3f,%.3f,%.3f,%.3f,%.3f\n", b->in->dev->kind->name, b->name,
           depth, 1e6 * median_of(fork, sizes.steps), (double)u.rows_copied / sizes.steps,
           1e3 * median_of(token, sizes.steps), 1e3 * median_of(first, sizes.steps), beams, rows,
           rows / beams);
    return 0;
}

static int run(struct bench *b, const char *path, const char *what)
{
    static const struct {
        const char *name;
        int (*run)(struct bench *b);
    } all[] = {
        {"decode", decode}, {"offload", offload}, {"prefill", prefill}, {"fork", fork_and_beams}};
    TRY(kvik_model_open(path, &b->m));
    b->in = b->m->m;
    size_t embed = 0, bytes = checkpoint_bytes(b->in->ck);
    if (!b->in->tied) /* rows of it alone are read */
        (void)dtype_bytes(b->in->embed.dtype, (uint64_t)b->in->embed.rows * b->in->embed.cols,
                          &embed);
    b->weights = (double)(bytes - embed);
    b->row = 4.0 * b->in->n_layers * b->in->n_kv_heads * b->in->head_dim; /* K and V of 16 bits */
    b->logits = malloc((size_t)MOST * b->in->vocab * sizeof *b->logits);
    if (!b->logits) return ERR(NOMEM, "out of memory");
    for (size_t i = 0; i < countof(all); i++)
        if (!strcmp(what, all[i].name)) return all[i].run(b);
    return ERR(ARG, "there is no \"%s\": decode, offload, prefill or fork", what);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    if (argc < 4) {
        fprintf(stderr, "usage: bench_cuda FLOORS MODEL decode|offload|prefill|fork [--dry]\n");
        return 2;
    }
    if (argc > 4 && !strcmp(argv[4], "--dry")) sizes = dry;
    const char *slash = strrchr(argv[2], '/');
    b.floors = argv[1];
    b.name = slash ? slash + 1 : argv[2];
    int e = run(&b, argv[2], argv[3]);
    if (e < 0) fprintf(stderr, "bench_cuda: %s: %s\n", argv[3], kvik_last_error());
    kvik_cache_close(b.c);
    kvik_model_close(b.m);
    free(b.logits);
    return e < 0;
}
