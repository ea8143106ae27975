/* mxfp4.c - four-bit experts of a Hugging Face file, as gpt-oss has them: "<name>_blocks", U8
 * [n][rows][cols/32][16], and "<name>_scales", U8 [n][rows][cols/32].  Their values are those of GGUF's MXFP4 in
 * another order: the two nibbles of a byte are neighbours, while in GGUF they are half a block apart, and the
 * scales are a separate tensor.  Opening the model copies them into GGUF's order, so no extra kernels are needed. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 32, CODES = 16, BYTES = 1 + CODES };

/* Moves nibble i of x to byte i. */
static uint64_t spread_nibbles(uint64_t x)
{
    x = (x | x << 16) & 0x0000ffff0000ffffu;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

void mxfp4_repack(const unsigned char *codes, const unsigned char *scales, size_t n_blocks,
                  unsigned char *out)
{
    for (size_t i = 0; i < n_blocks; i++, codes += CODES, out += BYTES) {
        uint64_t low, high; /* values 0..15, 16..31; little endian */
        memcpy(&low, codes, 8);
        memcpy(&high, codes + 8, 8);
        uint64_t a = spread_nibbles((uint32_t)low) | spread_nibbles((uint32_t)high) << 4;
        uint64_t b = spread_nibbles(low >> 32) | spread_nibbles(high >> 32) << 4;
        out[0] = scales[i];
        memcpy(out + 1, &a, 8);
        memcpy(out + 9, &b, 8);
    }
}

static int check_shape(const struct model *m, const struct tensor *t, const char *name,
                       uint32_t n_dims, const uint64_t *dim)
{
    char want[96] = "";
    bool good = t && t->dtype == DT_U8 && t->n_dims == n_dims;
    for (uint32_t i = 0, k = 0; i < n_dims; i++) {
        good = good && t->dim[i] == dim[i];
        k += (uint32_t)snprintf(want + k, sizeof want - k, i ? ", %llu" : "%llu",
                                (unsigned long long)dim[i]);
    }
    if (!t) return ERR(FORMAT, "%s: tensor %s is missing", m->what, name);
    if (good) return 0;
    return ERR(FORMAT, "%s: tensor %s holds MXFP4 values and must be u8 of shape [%s]", m->what,
               name, want);
}

int model_mxfp4(struct model *m, const char *hf, uint32_t layer, uint32_t n, uint32_t rows,
                uint32_t cols, uint32_t first, uint32_t step, struct dev_weight *out)
{
    char name[2][160];
    const struct tensor *t[2];
    uint64_t dim[4] = {n, (uint64_t)rows * step, cols / BLOCK, CODES};
    if (model_is_gguf(m)) return 0;
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof name[i], "%s_%s", hf, i ? "scales" : "blocks");
        t[i] = model_find(m, name[i], NULL, layer);
    }
    if (!t[0] && !t[1]) return 0;
    if (cols % BLOCK)
        return ERR(UNSUPPORTED, "%s: tensor %s has rows of %u values; MXFP4 needs a multiple of %u",
                   m->what, t[t[0] ? 0 : 1]->name, cols, BLOCK);
    TRY(check_shape(m, t[0], name[0], 4, dim));
    TRY(check_shape(m, t[1], name[1], 3, dim));
    uint32_t blocks = cols / BLOCK; /* of one row */
    size_t total;
    if (!ck_mul((size_t)n * rows, (size_t)blocks * BYTES, &total)) return ERR_NOMEM;
    unsigned char *to = model_own(m, total, 1);
    if (!to) return ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (struct dev_weight){to, rows, cols, DT_MXFP4};
        for (uint32_t r = 0; r < rows; r++, to += (size_t)blocks * BYTES) {
            size_t at = ((size_t)i * rows * step + first + (size_t)r * step) * blocks;
            mxfp4_repack((const unsigned char *)t[0]->data + at * CODES,
                         (const unsigned char *)t[1]->data + at, blocks, to);
        }
    }
    return 1;
}
