/* k_seal_coded.cu - encodes tiles of levels (dev/coded.h) on the device, with the bytes that kv/codec_kvik.c writes.
 *
 * A block encodes a unit of a head, 128 rows.  Each thread encodes one row with the codec's own order of sums: four
 * chains over the values of the row.  A byte of a tile can have codes of several rows.  So codes gather in shared
 * memory first, four bits each, and then each thread makes bytes of the tile.  Codes of 8 bits go to the tile at
 * once. */
#include "dev/cuda/k_coded.h"
#include "dev/cuda/k_seal.h"

enum { HALF_ROW = CODED_DIM / 2 };

/* Returns the sum of x * y, in four chains. */
K_FN float dot4(const float *x, const float *y, uint32_t n)
{
    float s[4] = {0, 0, 0, 0}, last = 0;
    for (uint32_t d = 0; d < n; d++)
        if (d < n / 4 * 4)
            s[d % 4] += x[d] * y[d];
        else
            last += x[d] * y[d];
    return (s[0] + s[2]) + (s[1] + s[3]) + last;
}

K_FN uint32_t top_bits(const float *x, uint32_t n)
{
    uint32_t top = 0;
    for (uint32_t d = 0; d < n; d++)
        top = walk_max(top, half_bits(x[d]) & 0x7fffffffu);
    return top;
}

/* Returns the scale with which a row is stored: bf16, rounded up. */
K_FN float scale_up(float x)
{
    float y = k_round(2, x);
    return y < x ? k_round(2, x * (1 + 0x1p-7f)) : y;
}

K_FN void turn_row(const struct k_plane *p, float *x)
{
    for (uint32_t d = 0; d < p->dim; d++)
        x[d] *= hadamard_sign(p->levels.seed, d);
    for (uint32_t h = 1; h < p->levels.run; h *= 2)
        for (uint32_t i = 0; i < p->dim; i += 2 * h)
            for (uint32_t d = i; d < i + h; d++) {
                float x0 = x[d], x1 = x[d + h];
                x[d] = x0 + x1;
                x[d + h] = x0 - x1;
            }
    for (uint32_t d = 0; d < p->dim; d++)
        x[d] *= p->levels.turn;
}

/* Scales a row by a power of two so that its largest value is about 1.  Returns the exponent of its scale. */
K_FN int bring_near(float *x, uint32_t n)
{
    int e;
    (void)frexpf(half_from_bits(top_bits(x, n)), &e);
    for (uint32_t d = 0; d < n; d++)
        x[d] = ldexpf(x[d], -e);
    return e;
}

/* Writes codes of 8 bits to their places in the tile.  Returns the scale. */
K_FN float code_even(const struct k_plane *p, const float *x, unsigned char *block, uint32_t r)
{
    float top = scale_up(half_from_bits(top_bits(x, p->dim)) / 127);
    float by = top > 0x1p-100f && top < INFINITY ? 1 / top : 0;
    for (uint32_t d = 0; d < p->dim; d++) {
        uint32_t lane = p->levels.key ? r : d, at = p->levels.key ? d : r, shift;
        float y = x[d] * by;
        uint32_t q = (uint32_t)(int32_t)((y + 0x1.8p23f) - 0x1.8p23f) & 255;
        size_t i = (size_t)(lane / 16) * coded_block_bytes(p) + coded_place(8, lane % 16, at, &shift);
        block[i] = (unsigned char)(p->levels.key ? q ^ 0x80 : q);
    }
    return by > 0 ? top : 0;
}

/* Quantizes a row in units of 1 / by: the nearest levels, and their codes, two in a byte of q. */
K_FN void put_levels(const struct k_seal_levels_args *a, const float *x, float by, unsigned char *q, float *level)
{
    const struct k_levels *f = &a->s.p.levels;
    const uint32_t half = 1u << f->bits >> 1;
    for (uint32_t d = 0; d < a->s.p.dim; d++) {
        float v = x[d] * by;
        uint32_t c = 0;
        for (uint32_t i = 0; i + 1 < half; i++)
            c += fabsf(v) > a->edge[i];
        c = v <= 0 ? half - 1 - c : half + c;
        level[d] = f->level[c];
        q[d / 2] = (unsigned char)(d % 2 ? q[d / 2] | c << 4 : c);
    }
}

/* Writes codes of 2 to 4 bits, two in a byte of q.  Tries three units and takes the one whose levels have the
 * direction nearest to that of the row.  Returns the scale. */
K_FN float code_levels(const struct k_seal_levels_args *a, float *x, unsigned char *q)
{
    const uint32_t n = a->s.p.dim;
    const float tries[] = {0.9f, 1, 1.1f};
    float level[CODED_DIM], best = 0, scale = 0, best_by = 0;
    float squares = dot4(x, x, n), rms = sqrtf(squares / (float)n);
    int e = 0;
    if (!(rms > 0x1p-60f && rms < 0x1p60f)) {
        e = bring_near(x, n);
        squares = dot4(x, x, n);
        rms = sqrtf(squares / (float)n);
    }
    if (rms == 0) return 0;
    float unit = a->of_rms * rms + a->of_top * half_from_bits(top_bits(x, n)), length = sqrtf(squares);
    for (uint32_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        float by = 1 / (unit * tries[i]);
        put_levels(a, x, by, q, level);
        float size = sqrtf(dot4(level, level, n)), along = dot4(x, level, n) / size;
        if (!(along > best)) continue;
        best = along;
        best_by = by;
        scale = length / size;
    }
    put_levels(a, x, best_by, q, level);
    return ldexpf(scale, e);
}

/* Returns byte `at` of the blocks of a unit, for codes of fewer than 8 bits. */
K_FN unsigned char byte_of(const struct k_plane *p, const unsigned char *q, uint32_t at)
{
    uint32_t block = at / coded_block_bytes(p), depth = coded_depth(p), byte = 0;
    uint32_t bits = p->levels.bits == 3 ? 2 : p->levels.bits, from = 0;
    at %= coded_block_bytes(p);
    if (p->levels.bits == 3 && at >= coded_part_bytes(2, depth)) {
        at -= coded_part_bytes(2, depth);
        bits = 1;
        from = 2; /* the third bit */
    }
    uint32_t per = 8 / bits, lane = block * 16 + at % 64 / 4;
    for (uint32_t i = 0; i < per; i++) {
        /* index of a value in its row, or of a row */
        uint32_t k = (at / 64 * per + i) * 4 + at % 4;
        uint32_t r = p->levels.key ? lane : k, d = p->levels.key ? k : lane;
        if (r >= CODED_ROWS || d >= p->dim) continue;
        uint32_t code = q[r * HALF_ROW + d / 2] >> d % 2 * 4 & 15;
        byte |= (code >> from & ((1u << bits) - 1)) << i * bits;
    }
    return (unsigned char)byte;
}

KERNEL(k_seal_levels)
{
    const struct k_plane *p = &a.s.p;
    SHARED(unsigned char, q, CODED_ROWS *HALF_ROW);
    SHARED(float, mean, CODED_DIM);
    SHARED(uint32_t, top, K_THREADS);
    SHARED(unsigned char, whole, CODED_ROWS); /* 1 for rows that are finite and not leading rows */
    struct k_tile tile = tile_of(&a.s, BLOCK_Y);
    uint32_t units = p->sealed.rows / CODED_ROWS, head = BLOCK_X / units, dim = p->dim;
    uint32_t row0 = BLOCK_X % units * CODED_ROWS, codes = coded_blocks(p) * coded_block_bytes(p);
    uint32_t first = walk_min(tile.lead > row0 ? tile.lead - row0 : 0, CODED_ROWS);
    unsigned char *unit = coded_unit(p, tile.to, head, row0), *block = unit + coded_head_bytes(p);
    EACH_THREAD
    {
        bool even = p->levels.bits == 8 && p->levels.key && first < CODED_ROWS;
        for (uint32_t i = t; i < coded_head_bytes(p) + codes; i += K_THREADS)
            unit[i] = i >= coded_head_bytes(p) && even ? 0x80 : 0;
        for (uint32_t i = t; i < CODED_ROWS * HALF_ROW; i += K_THREADS)
            q[i] = 0;
    }
    if (first == CODED_ROWS) return;
    EACH_THREAD
    {
        uint32_t above = 0;
        for (uint32_t d = 0; t >= first && t < CODED_ROWS && d < dim; d++)
            above = walk_max(above, half_bits(raw_value(&a.s, &tile, head, row0 + t, d)) & 0x7fffffffu);
        if (t < CODED_ROWS) whole[t] = t >= first && above < 0x7f800000u;
    }
    EACH_THREAD
    {
        for (uint32_t d = t; d < dim; d += K_THREADS) {
            uint32_t n = 0;
            mean[d] = 0;
            for (uint32_t r = first; p->levels.mean && r < CODED_ROWS; r++)
                if (whole[r]) mean[d] += raw_value(&a.s, &tile, head, row0 + r, d), n++;
            mean[d] = n ? mean[d] / (float)n : 0;
        }
    }
    if (p->levels.mean) {
        if (p->levels.run) {
            EACH_THREAD
            {
                for (uint32_t d = t; d < dim; d += K_THREADS)
                    mean[d] *= hadamard_sign(p->levels.seed, d);
            }
            TRANSFORM(mean, dim, p->levels.run);
        }
        EACH_THREAD
        {
            top[t] = 0;
            for (uint32_t d = t; d < dim; d += K_THREADS) {
                mean[d] = k_round(2, p->levels.run ? mean[d] * p->levels.turn : mean[d]);
                top[t] = walk_max(top[t], half_bits(mean[d]) & 0x7fffffffu);
            }
        }
        LARGEST(top);
        EACH_THREAD
        {
            for (uint32_t d = t; d < dim; d += K_THREADS) {
                /* rows so large that their sum overflows have no mean */
                if (top[0] >= 0x7f800000u) mean[d] = 0;
                put_value(2, unit, CODED_ROWS + d, mean[d]);
            }
        }
    }
    EACH_THREAD
    {
        float x[CODED_DIM], scale = half_from_bits(0x7fc00000u);
        if (t >= first && t < CODED_ROWS) {
            for (uint32_t d = 0; d < dim; d++)
                x[d] = raw_value(&a.s, &tile, head, row0 + t, d);
            if (p->levels.run) turn_row(p, x);
            for (uint32_t d = 0; p->levels.mean && d < dim; d++)
                x[d] -= mean[d];
            if (top_bits(x, dim) < 0x7f800000u)
                scale = p->levels.bits == 8 ? code_even(p, x, block, t)
                                            : code_levels(&a, x, q + t * HALF_ROW);
            put_value(2, unit, t, scale);
        }
    }
    if (p->levels.bits == 8) return;
    EACH_THREAD
    {
        for (uint32_t i = t; i < codes; i += K_THREADS)
            block[i] = byte_of(p, q, i);
    }
}
