/* test_fmt_gguf.h - GGUF files under construction; correct unless a test asks for a defect. */
#pragma once
#include "test_fmt.h"

static inline void gguf_begin(struct file *f, uint32_t version, uint64_t n_tensors,
                              uint64_t n_values)
{
    f->n = 0;
    put(f, "GGUF", 4);
    put_u32(f, version);
    put_u64(f, n_tensors);
    put_u64(f, n_values);
}

static inline void gguf_key(struct file *f, const char *key, uint32_t type)
{
    put_str(f, key);
    put_u32(f, type);
}

static inline void gguf_array(struct file *f, const char *key, uint32_t item, uint64_t n)
{
    gguf_key(f, key, GGUF_ARRAY);
    put_u32(f, item);
    put_u64(f, n);
}

static inline void gguf_info(struct file *f, const char *name, uint32_t n_dims, const uint64_t *dim,
                             uint32_t type, uint64_t offset)
{
    put_str(f, name);
    put_u32(f, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        put_u64(f, dim[i]); /* innermost first */
    put_u32(f, type);
    put_u64(f, offset);
}

/* Writes eight values of all kinds and three tensors. Returns the offset of the data. No byte
 * follows the last tensor, so every prefix is a broken file. */
static inline size_t gguf_small(struct file *f)
{
    gguf_begin(f, 3, 3, 8);
    gguf_key(f, "general.architecture", GGUF_STRING);
    put_str(f, "llama");
    gguf_key(f, "general.alignment", GGUF_U32);
    put_u32(f, 16);
    gguf_key(f, "llama.block_count", GGUF_U32);
    put_u32(f, 2);
    gguf_key(f, "llama.rope.freq_base", GGUF_F32);
    put_u32(f, 0x461c4000); /* 10000 */
    gguf_key(f, "add_bos", GGUF_BOOL);
    put_le(f, 1, 1);
    gguf_array(f, "tokens", GGUF_STRING, 3);
    put_str(f, "<s>");
    put_str(f, "");
    put_str(f, "hello");
    gguf_array(f, "types", GGUF_I32, 3);
    put_u32(f, 3);
    put_u32(f, 1);
    put_u32(f, (uint32_t)-1);
    gguf_key(f, "big", GGUF_U64);
    put_u64(f, 1ull << 40);
    gguf_info(f, "a.weight", 2, (uint64_t[]){4, 2}, 0, 0);   /* F32, 32 bytes */
    gguf_info(f, "b.weight", 2, (uint64_t[]){32, 1}, 2, 32); /* Q4_0, 18 bytes */
    gguf_info(f, "c.weight", 1, (uint64_t[]){3}, 1, 64);     /* F16, 6 bytes */
    put_pad(f, 16);
    size_t start = f->n;
    put_fill(f, 64 + 6);
    return start;
}

/* Makes and parses a file of one value and no tensors. */
static inline int gguf_with(struct file *f, const char *key, uint32_t type, const void *p, size_t n)
{
    gguf_begin(f, 3, 0, 1);
    gguf_key(f, key, type);
    put(f, p, n);
    return parse_gguf(f->b, f->n);
}

/* Makes and parses a file of one tensor with `data` bytes behind the header. */
static inline int gguf_with_tensor(struct file *f, uint32_t n_dims, const uint64_t *dim,
                                   uint32_t type, uint64_t offset, size_t data)
{
    gguf_begin(f, 3, 1, 0);
    gguf_info(f, "t", n_dims, dim, type, offset);
    put_pad(f, 32);
    put_fill(f, data);
    return parse_gguf(f->b, f->n);
}
