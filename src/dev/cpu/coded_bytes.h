/* coded_bytes.h - codes of coded tiles (dev/coded.h) as bytes that kernels multiply: levels, unsigned of keys and signed of
 * values.  Included by coded_vec.h. */

/* Prefetches the line `apart` bytes behind p; apart 0: no address is known. */
INLINE void ask(const unsigned char *p, ptrdiff_t apart)
{
    __builtin_prefetch(p + apart, 0, 2);
}

/* Looks up the levels of 64 codes. */
INLINE vb look_up(const struct kv_coded *f, vb codes)
{
    return vb_lookup(f->key ? f->level_byte : (const uint8_t *)f->level, codes);
}

/* Looks up the levels of 64 codes, which are some bits of each byte. */
INLINE vb levels_of(const struct kv_coded *f, vb x, int shift, uint8_t mask)
{
    return look_up(f, vb_and1(vb_shr(x, shift), mask));
}

INLINE void unpack4(const struct kv_coded *f, const unsigned char *src, uint32_t depth,
                    ptrdiff_t then, unsigned char *dst)
{
    for (uint32_t e = 0; e < depth; e += 2, src += 64, dst += 128) {
        vb x = vb_load(src);
        ask(src, then);
        vb_store(dst, levels_of(f, x, 0, 15));
        vb_store(dst + 64, levels_of(f, x, 4, 15));
    }
}

INLINE void unpack2(const struct kv_coded *f, const unsigned char *src, uint32_t depth,
                    ptrdiff_t then, unsigned char *dst)
{
    for (uint32_t e = 0; e < depth; e += 4, src += 64, dst += 256) {
        vb x = vb_load(src);
        ask(src, then);
        vb_store(dst, levels_of(f, x, 0, 3));
        vb_store(dst + 64, levels_of(f, x, 2, 3));
        vb_store(dst + 128, levels_of(f, x, 4, 3));
        vb_store(dst + 192, levels_of(f, x, 6, 3));
    }
}

/* Looks up the levels of a group with 3 bits: two of them at bit `low` of x, one at bit `high` of y. */
INLINE vb levels3(const struct kv_coded *f, vb x, int low, vb y, const int high)
{
    vb bit = vb_and1(y, (uint8_t)(1u << high));
    bit = high < 2 ? vb_shl(bit, 2 - high) : vb_shr(bit, high - 2);
    return look_up(f, vb_or(vb_and1(vb_shr(x, low), 3), bit));
}

INLINE void unpack3(const struct kv_coded *f, const unsigned char *src, uint32_t depth,
                    ptrdiff_t then, unsigned char *dst)
{
    const unsigned char *top = src + coded_part_bytes(2, depth);
    for (uint32_t e = 0; e < depth; e += 8, top += 64) {
        vb y = vb_load(top);
        vb x = vb_load(src);
        ask(top, then);
        ask(src, then);
        vb_store(dst, levels3(f, x, 0, y, 0));
        vb_store(dst + 64, levels3(f, x, 2, y, 1));
        vb_store(dst + 128, levels3(f, x, 4, y, 2));
        vb_store(dst + 192, levels3(f, x, 6, y, 3));
        if (e + 4 >= depth) return;
        x = vb_load(src + 64);
        ask(src + 64, then);
        vb_store(dst + 256, levels3(f, x, 0, y, 4));
        vb_store(dst + 320, levels3(f, x, 2, y, 5));
        vb_store(dst + 384, levels3(f, x, 4, y, 6));
        vb_store(dst + 448, levels3(f, x, 6, y, 7));
        src += 128;
        dst += 512;
    }
}

/* Returns the distance between blocks of bytes.  The functions above write groups in eights. */
INLINE size_t bytes_step(uint32_t depth)
{
    return (size_t)(depth + 7) / 8 * 512;
}

/* Unpacks n blocks to bytes; the codes have fewer than 8 bits. */
static void unpack(const struct kv_coded *f, const unsigned char *codes, uint32_t n, uint32_t depth,
                   size_t size, ptrdiff_t then, unsigned char *dst)
{
    for (uint32_t b = 0; b < n; b++, codes += size, dst += bytes_step(depth))
        if (f->bits == 4)
            unpack4(f, codes, depth, then, dst);
        else if (f->bits == 3)
            unpack3(f, codes, depth, then, dst);
        else
            unpack2(f, codes, depth, then, dst);
}

/* Some blocks of a unit, `step` bytes apart, with codes of `bits` bits. */
struct blocks {
    const unsigned char *at;
    size_t step;
    uint32_t bits;
};

/* Returns the blocks from block `block` on. */
INLINE struct blocks blocks_from(const struct blocks *x, uint32_t block)
{
    return (struct blocks){x->at + block * x->step, x->step, x->bits};
}

/* Returns n blocks of a unit.  The blocks stay in place if they are bytes, or if the kernel takes them packed and
 * few queries meet them.  Else they are unpacked to room. */
static struct blocks blocks_of(const struct kv_coded *f, const unsigned char *codes, uint32_t block,
                               uint32_t n, uint32_t depth, size_t size, ptrdiff_t then,
                               uint32_t queries, unsigned char *room)
{
    codes += block * size;
    if (f->bits == 8 || (CODED_FUSED && f->bits != 3 && queries <= CODED_AT_ONCE))
        return (struct blocks){codes, size, f->bits};
    unpack(f, codes, n, depth, size, then, room);
    return (struct blocks){room, bytes_step(depth), 8};
}

/* Returns all blocks of unit u of a piece as bytes; `at` is NULL if they are not all in one place. */
static struct blocks bytes_of(const struct kv_reading *r, const struct kv_piece *at, uint32_t u)
{
    const struct kv_coded *f = coded_of(r);
    uint32_t dim = r->shape->dim, depth = coded_depth(f, dim);
    if (f->bits == 8)
        return (struct blocks){coded_unit(r, at, u) + coded_head_bytes(f, dim),
                               coded_block_bytes(f, dim), 8};
    struct blocks x = {NULL, bytes_step(depth), 8};
    if (at->open) x.at = at->open + (u - at->open0 / CODED_ROWS) * coded_blocks(f, dim) * x.step;
    return x;
}

static const unsigned char *open_piece(const struct kv_reading *r, const struct kv_piece *at,
                                       void *room)
{
    const struct kv_coded *f = coded_of(r);
    uint32_t dim = r->shape->dim, depth = coded_depth(f, dim), n = coded_blocks(f, dim);
    unsigned char *to = room;
    if (f->bits == 8) return NULL;
    for (uint32_t u = at->r0 / CODED_ROWS; u * CODED_ROWS < at->r1;
         u++, to += n * bytes_step(depth))
        unpack(f, coded_unit(r, at, u) + coded_head_bytes(f, dim), n, depth,
               coded_block_bytes(f, dim), 0, to);
    return room;
}
