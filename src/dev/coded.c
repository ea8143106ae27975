/* coded.c - writes codes into the layout of coded.h group by group, and reads them row by row. */
#include "dev/coded.h"

#include <string.h>

/* Returns the place of a code of `bits` bits in a block's part: its byte, and *shift in that byte. */
static inline size_t code_byte(uint32_t bits, uint32_t lane, uint32_t at, uint32_t *shift)
{
    uint32_t per = 8 / bits, group = at / 4;
    *shift = group % per * bits;
    return (size_t)group / per * 64 + lane * 4 + at % 4;
}

struct spot {
    uint32_t block, lane, at;
};

static inline struct spot spot_of(const struct kv_coded *f, uint32_t r, uint32_t d)
{
    uint32_t lane = f->key ? r : d;
    return (struct spot){lane / 16, lane % 16, f->key ? d : r};
}

/* Packs group e of a block as 64 bytes.  The four neighbours of a lane lie in a row for keys and in a column for
 * values. */
static void group_of(const struct kv_coded *f, uint32_t dim, const uint8_t *q, uint32_t block,
                     uint32_t e, uint64_t *group)
{
    uint8_t *g = (uint8_t *)group;
    uint32_t lanes = f->key ? 16 : MIN(16, dim - block * 16), n = f->key ? MIN(4, dim - 4 * e) : 4;
    memset(g, 0, 64);
    for (uint32_t l = 0; l < lanes; l++)
        if (f->key)
            memcpy(g + 4 * l, q + (size_t)(16 * block + l) * dim + 4 * e, n);
        else
            for (uint32_t k = 0; k < 4; k++)
                g[4 * l + k] = q[(size_t)(4 * e + k) * dim + 16 * block + l];
}

/* Writes some bits of each byte of a group, from bit `low` up, into a part with codes of `bits` bits. */
static void put_group(unsigned char *part, uint32_t bits, uint32_t e, const uint64_t *group,
                      uint32_t low)
{
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    uint32_t per = 8 / bits, shift = e % per * bits;
    uint64_t to[8];
    part += (size_t)e / per * 64;
    memcpy(to, part, 64);
    for (int i = 0; i < 8; i++)
        to[i] |= (group[i] >> low & mask) << shift;
    memcpy(part, to, 64);
}

void coded_pack(const struct kv_coded *f, uint32_t dim, unsigned char *unit, const uint8_t *q)
{
    unsigned char *block = unit + coded_head_bytes(f, dim);
    uint32_t depth = coded_depth(f, dim), bits = f->bits == 3 ? 2 : f->bits;
    memset(block, 0, coded_unit_bytes(f, dim) - coded_head_bytes(f, dim));
    for (uint32_t b = 0; b < coded_blocks(f, dim); b++, block += coded_block_bytes(f, dim))
        for (uint32_t e = 0; e < depth; e++) {
            uint64_t group[8];
            group_of(f, dim, q, b, e, group);
            for (int i = 0; bits == 8 && f->key && i < 8; i++)
                group[i] ^= 0x8080808080808080u;
            put_group(block, bits, e, group, 0);
            if (f->bits == 3) put_group(block + coded_part_bytes(2, depth), 1, e, group, 2);
        }
}

void coded_get(const struct kv_coded *f, uint32_t dim, const unsigned char *unit, uint32_t r,
               int8_t *out)
{
    const unsigned char *codes = unit + coded_head_bytes(f, dim);
    uint32_t size = coded_block_bytes(f, dim), shift, bits = f->bits == 3 ? 2 : f->bits;
    for (uint32_t d = 0; d < dim; d++) {
        struct spot s = spot_of(f, r, d);
        const unsigned char *block = codes + (size_t)s.block * size;
        size_t i = code_byte(bits, s.lane, s.at, &shift);
        uint32_t q = (uint32_t)block[i] >> shift & ((1u << bits) - 1);
        if (bits == 8) {
            out[d] = (int8_t)(f->key ? q ^ 0x80 : q);
            continue;
        }
        if (f->bits == 3) {
            i = code_byte(1, s.lane, s.at, &shift);
            q |= (block[coded_part_bytes(2, coded_depth(f, dim)) + i] >> shift & 1u) << 2;
        }
        out[d] = f->level[q];
    }
}
