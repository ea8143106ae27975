/* random_model.c - writes a model of a known shape with random weights, for benchmarks where no model can be fetched: a GGUF file
 * of Llama's architecture without a tokenizer.
 *
 *     build/release/bench_random_model FILE 1b|7b|tiny bf16|q4_k
 *
 * The values of every matrix are those of one pool, over and over: no device is faster for it, and 14 GB are written as fast
 * as the disk takes them. */
#include "dev/dev.h"
#include "fmt/fmt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOL = 1 << 20, ALIGN = 32 };
struct shape {
    const char *name;
    uint32_t hidden, layers, heads, kv_heads, ffn, vocab, context;
    bool tied;
};
static const struct shape shapes[] = {
    {"1b", 2048, 16, 32, 8, 8192, 128256, 131072, true},  /* as Llama 3.2 1B */
    {"7b", 4096, 32, 32, 8, 14336, 32000, 131072, false}, /* as Mistral 7B */
    {"tiny", 256, 2, 4, 2, 256, 64, 4096, false},
};
struct out {
    FILE *f;
    const struct shape *s;
    enum dtype dtype;
    uint32_t gguf;       /* number of the dtype in the file */
    unsigned char *pool; /* [n_pool] values of the dtype */
    size_t n_pool;
    bool data;   /* the tensors themselves are written, else what is said of them */
    uint64_t at; /* of the next tensor behind the header */
    uint32_t n;  /* tensors */
};

static void put(const struct out *o, const void *p, size_t n)
{
    if (fwrite(p, 1, n, o->f) == n) return;
    perror("bench_random_model");
    exit(1);
}

static void put_u32(const struct out *o, uint32_t v)
{
    put(o, &v, sizeof v);
}

static void put_u64(const struct out *o, uint64_t v)
{
    put(o, &v, sizeof v);
}

static void put_text(const struct out *o, const char *s)
{
    put_u64(o, strlen(s));
    put(o, s, strlen(s));
}

static void key_u32(const struct out *o, const char *key, uint32_t v)
{
    put_text(o, key);
    put_u32(o, GGUF_U32);
    put_u32(o, v);
}

static void key_f32(const struct out *o, const char *key, float v)
{
    put_text(o, key);
    put_u32(o, GGUF_F32);
    put(o, &v, sizeof v);
}

static void header(const struct out *o)
{
    const struct shape *s = o->s;
    put(o, "GGUF", 4);
    put_u32(o, 3);
    put_u64(o, o->n);
    put_u64(o, 10);
    put_text(o, "general.architecture");
    put_u32(o, GGUF_STRING);
    put_text(o, "llama");
    key_u32(o, "llama.context_length", s->context);
    key_u32(o, "llama.embedding_length", s->hidden);
    key_u32(o, "llama.block_count", s->layers);
    key_u32(o, "llama.feed_forward_length", s->ffn);
    key_u32(o, "llama.attention.head_count", s->heads);
    key_u32(o, "llama.attention.head_count_kv", s->kv_heads);
    key_u32(o, "llama.vocab_size", s->vocab);
    key_f32(o, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    key_f32(o, "llama.rope.freq_base", 500000.0f);
}

static void pad(const struct out *o)
{
    static const unsigned char zeros[ALIGN];
    long at = ftell(o->f);
    if (at % ALIGN) put(o, zeros, (size_t)(ALIGN - at % ALIGN));
}

/* A matrix; rows 0: a norm of `cols` ones. */
static void tensor(struct out *o, const char *name, uint32_t rows, uint32_t cols)
{
    size_t row = cols * sizeof(float), bytes;
    if (rows) dtype_bytes(o->dtype, cols, &row);
    bytes = row * MAX(rows, 1u);
    o->n++;
    if (!o->data) {
        put_text(o, name);
        put_u32(o, rows ? 2 : 1);
        put_u64(o, cols);
        if (rows) put_u64(o, rows);
        put_u32(o, rows ? o->gguf : 0);
        put_u64(o, o->at);
        o->at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
        return;
    }
    for (uint32_t i = 0; !rows && i < cols; i++)
        put(o, &(float){1}, sizeof(float));
    for (size_t done = 0; rows && done < bytes; done += MIN(bytes - done, o->n_pool))
        put(o, o->pool, MIN(bytes - done, o->n_pool));
    pad(o);
}

static void tensors(struct out *o)
{
    const struct shape *s = o->s;
    uint32_t d = s->hidden, kv = d / s->heads * s->kv_heads;
    const struct {
        const char *name;
        uint32_t rows, cols;
    } part[] = {{"attn_norm", 0, d},     {"attn_q", d, d},      {"attn_k", kv, d},
                {"attn_v", kv, d},       {"attn_output", d, d}, {"ffn_norm", 0, d},
                {"ffn_gate", s->ffn, d}, {"ffn_up", s->ffn, d}, {"ffn_down", d, s->ffn}};
    char name[64];
    o->n = 0;
    tensor(o, "token_embd.weight", s->vocab, d);
    for (uint32_t l = 0; l < s->layers; l++)
        for (size_t i = 0; i < countof(part); i++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", l, part[i].name);
            tensor(o, name, part[i].rows, part[i].cols);
        }
    tensor(o, "output_norm.weight", 0, d);
    if (!s->tied) tensor(o, "output.weight", s->vocab, d);
}

/* Makes the pool: values up to 0.03 on both sides of 0. */
static bool draw(struct out *o)
{
    float *x = malloc(POOL * sizeof *x);
    if (!x || !dtype_bytes(o->dtype, POOL, &o->n_pool) || !(o->pool = malloc(o->n_pool)))
        return false;
    for (uint32_t i = 0, r = 1; i < POOL; i++) {
        r = r * 1664525u + 1013904223u;
        x[i] = ((float)(r >> 8) / (1 << 23) - 1) * 0.03f;
    }
    bool made = o->dtype == DT_BF16 || dev_encode(o->dtype, x, o->pool, POOL);
    for (size_t i = 0; o->dtype == DT_BF16 && i < POOL; i++)
        memcpy(o->pool + 2 * i, (const unsigned char *)&x[i] + 2, 2);
    free(x);
    return made;
}

int main(int argc, char **argv)
{
    struct out o = {.dtype = DT_COUNT};
    for (size_t i = 0; argc == 4 && i < countof(shapes); i++)
        if (!strcmp(argv[2], shapes[i].name)) o.s = &shapes[i];
    if (argc == 4 && !strcmp(argv[3], "bf16")) o.dtype = DT_BF16;
    if (argc == 4 && !strcmp(argv[3], "q4_k")) o.dtype = DT_Q4_K;
    if (!o.s || o.dtype == DT_COUNT) {
        fprintf(stderr, "usage: bench_random_model FILE 1b|7b|tiny bf16|q4_k\n");
        return 2;
    }
    while (dtype_from_gguf(o.gguf) != (int)o.dtype)
        o.gguf++;
    o.n = o.s->layers * 9 + 2 + !o.s->tied;
    if (!draw(&o) || !(o.f = fopen(argv[1], "wb"))) {
        perror(argv[1]);
        return 1;
    }
    header(&o);
    tensors(&o);
    pad(&o);
    o.data = true;
    tensors(&o);
    free(o.pool);
    if (fclose(o.f) == 0) return 0;
    perror(argv[1]);
    return 1;
}
