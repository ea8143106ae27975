/* llama.c - what bench/rates.c measures, by the same plan (plan.h), of llama.cpp through its public C interface.
 * scripts/bench-peers.sh compiles it with the headers and libraries of a llama.cpp that it has built outside this repository,
 * and scripts/bench-quality.sh also, with IK_LLAMA defined, with those of ik_llama.cpp, a fork whose interface is older.
 *
 *     llama MODEL THREADS TYPE IDS [LOGITS [N]]
 *
 * TYPE: of the rows, as llama.cpp names it, such as f16 or q4_0.  llama.cpp rotates rows of quantized types by
 * itself; ik_llama.cpp does so where "rotated-" stands before the type. */
#include "../plan.h"

#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef IK_LLAMA
#define ROTATED                 "rotated-"
#define BATCH(at, n)            llama_batch_get_one(ids + (at), n, (llama_pos)(at), 0)
#define REMOVE(at)              llama_kv_cache_seq_rm(ctx, 0, (llama_pos)(at), -1)
#define BYTES()                 llama_state_seq_get_size(ctx, 0, 0)
#define llama_model_n_ctx_train llama_n_ctx_train
#define llama_model_free        llama_free_model
#else
#define BATCH(at, n) llama_batch_get_one(ids + (at), n)
#define REMOVE(at)   llama_memory_seq_rm(llama_get_memory(ctx), 0, (llama_pos)(at), -1)
#define BYTES()      llama_state_seq_get_size(ctx, 0)
#endif

static struct llama_context *ctx;

static void fail(const char *what)
{
    fprintf(stderr, "llama: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Appends tokens in batches of 512, the size of kvik's steps; the logits of the last are computed. */
static void feed(uint32_t from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += PROMPT) {
        int piece = n - i < PROMPT ? (int)(n - i) : PROMPT;
        if (llama_decode(ctx, BATCH(from + i, piece))) fail("llama_decode failed");
    }
    llama_synchronize(ctx);
}

static int ascending(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void rate(const char *what, uint32_t at, uint32_t n, uint32_t piece)
{
    double rates[MOST_RUNS], spent = 0;
    int runs = 0;
    while (runs < MOST_RUNS && spent < ENOUGH_SECONDS) {
        double t = now();
        for (uint32_t i = 0; i < n; i += piece)
            feed(at + i, piece);
        t = now() - t;
        if (!REMOVE(at)) fail("no tokens can be removed");
        rates[runs++] = n / t;
        spent += t;
    }
    qsort(rates, (size_t)runs, sizeof *rates, ascending);
    printf("%s at %u,%.2f\n", what, at, (rates[runs / 2] + rates[(runs - 1) / 2]) / 2);
    fflush(stdout);
}

static void speeds(uint32_t n)
{
    feed(0, PROMPT);
    REMOVE(0);
    for (uint32_t d = 0, at = 0; d < DEPTHS && depths[d] + PROMPT <= n; at = depths[d++]) {
        if (depths[d] > at) feed(at, depths[d] - at);
        rate("prefill 512", depths[d], PROMPT, PROMPT);
        rate("decode", depths[d], STEPS, 1);
    }
}

static void quality(const char *path, uint32_t n, uint32_t counted, size_t vocab)
{
    static double took[MOST];
    FILE *f = fopen(path, "wb");
    if (!f || !counted || n < QUALITY + counted) fail("no file for logits, or too few ids");
    feed(0, QUALITY);
    for (uint32_t i = 0; i < counted; i++) {
        double t = now();
        feed(QUALITY + i, 1);
        took[i] = now() - t;
        if (fwrite(llama_get_logits_ith(ctx, -1), sizeof(float), vocab, f) != vocab)
            fail("the logits cannot be written");
    }
    if (fclose(f) != 0) fail("the logits cannot be written");
    qsort(took, counted, sizeof *took, ascending);
    /* a saved sequence holds its rows, and some bytes for each token */
    printf("bytes,%.1f\ndecode,%.2f\n", (double)BYTES() / (QUALITY + counted),
           1 / took[counted / 2]);
}

/* Returns the type of this name. */
static enum ggml_type type_of(const char *name)
{
    for (int t = 0; t < GGML_TYPE_COUNT; t++)
        if (ggml_type_name((enum ggml_type)t) && !strcmp(ggml_type_name((enum ggml_type)t), name))
            return (enum ggml_type)t;
    fail("no such type of rows");
    return GGML_TYPE_COUNT;
}

static void quiet(enum ggml_log_level level, const char *text, void *unused)
{
    (void)unused;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char **argv)
{
    if (argc < 5) fail("usage: llama MODEL THREADS TYPE IDS [LOGITS [N]]");
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model *m = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!m) fail("the model cannot be read");
    uint32_t n = read_ids(argv[4]), context = (uint32_t)llama_model_n_ctx_train(m);
    if (n > context) n = context;
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = n;
    p.n_batch = p.n_ubatch = PROMPT;
    p.n_threads = p.n_threads_batch = atoi(argv[2]);
    const char *type = argv[3];
#ifdef IK_LLAMA
    p.flash_attn = true;
    if (!strncmp(type, ROTATED, strlen(ROTATED))) {
        p.k_cache_hadamard = p.v_cache_hadamard = true;
        type += strlen(ROTATED);
    }
#else
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
#endif
    p.type_k = p.type_v = type_of(type);
    ctx = llama_init_from_model(m, p);
    if (!ctx) fail("no context");
    if (argc > 5)
        quality(argv[5], n, argc > 6 ? (uint32_t)atoi(argv[6]) : COUNTED,
                (size_t)llama_vocab_n_tokens(llama_model_get_vocab(m)));
    else
        speeds(n);
    llama_free(ctx);
    llama_model_free(m);
    return 0;
}
