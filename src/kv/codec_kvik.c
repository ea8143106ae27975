/* codec_kvik.c - kvik's own low-bit rows, made for speed: attention takes integer dot products of them (dev/coded.h).
 *
 * A Hadamard rotation turns each row of a head, which spreads the row's large channels.  Each value is then stored as a level
 * of 2, 3, 4 or 8 bits, and each row has one scale.  Keys lose the mean of their tile's rows first.  So no code is spent on
 * what all keys share, and the reader adds the mean's share of the scores once per tile.  Levels of 8 bits are even steps.
 * Fewer bits use the levels of Lloyd and Max for a normal distribution, since turned rows are nearly normal.  Nothing is
 * calibrated.  The first rows of a sequence stay raw, because attention weighs them most; the incomplete tile stays raw too. */
#include "dev/coded.h"
#include "dev/dev.h"
#include "dev/four.h"
#include "dev/reader.h"
#include "dev/row.h"
#include "kv/codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEAD = 4, SEED = 1 };
enum { NBITS, OPTIONS };
static const struct kv_codec_option options[OPTIONS] = {
    [NBITS] = {"nbits", 2, 8, 4, {"k_bits", "v_bits"}},
};

struct kvik {
    struct kv_codec c;
    struct kv_coded f; /* the codec's parameter, which readers know */
    uint32_t n;        /* number of levels */
};

/* The positive half of the levels of Lloyd and Max for a normal distribution of deviation 1. */
static const float lloyd2[] = {0.4528f, 1.5104f};
static const float lloyd3[] = {0.2451f, 0.7560f, 1.3439f, 2.1520f};
static const float lloyd4[] = {0.1284f, 0.3881f, 0.6568f, 0.9424f,
                               1.2562f, 1.6180f, 2.0690f, 2.7326f};

static const struct kv_coded *of(const struct kv_codec *c)
{
    return c->param;
}

static size_t kvik_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return (size_t)s->heads * (c->tile / CODED_ROWS) * coded_unit_bytes(of(c), s->dim);
}

/* A sum in four chains, to which the last values of a row that is no multiple of four are added alone. */
struct chains {
    four of;
    float last;
};

static inline float total(const struct chains *s)
{
    return (s->of[0] + s->of[2]) + (s->of[1] + s->of[3]) + s->last;
}

/* Adds the products of values d to d + 3, or of as many as the row has, to a sum. */
static inline void add_products(struct chains *s, four x, four y, uint32_t d, uint32_t n)
{
    if (d + 4 <= n)
        s->of += x * y;
    else
        for (uint32_t i = 0; d + i < n; i++)
            s->last += x[i] * y[i];
}

/* x has room for 3 more values. */
static float squares_of(const float *x, uint32_t n)
{
    struct chains s = {0};
    for (uint32_t d = 0; d < n; d += 4)
        add_products(&s, four_load(x + d), four_load(x + d), d, n);
    return total(&s);
}

/* Returns the largest magnitude of n values as the bits of a float; not finite if a value is not. */
static uint32_t top_bits(const float *x, uint32_t n)
{
    four_ints most = {0};
    uint32_t d = 0, top = 0;
    for (; d + 4 <= n; d += 4) {
        const four_ints size = (four_ints)four_load(x + d) & 0x7fffffff, more = size > most;
        most = (more & size) | (~more & most);
    }
    for (; d < n; d++) {
        uint32_t u;
        memcpy(&u, x + d, sizeof u);
        top = MAX(top, u & 0x7fffffffu);
    }
    for (int i = 0; i < 4; i++)
        top = MAX(top, (uint32_t)most[i]);
    return top;
}

static float top_of(const float *x, uint32_t n)
{
    uint32_t bits = top_bits(x, n);
    float top;
    memcpy(&top, &bits, sizeof top);
    return top;
}

static bool finite_row(const float *x, uint32_t n)
{
    return top_bits(x, n) < 0x7f800000u;
}

/* Rounds the scale of a row up to bf16, the type in which it is stored, so that no code leaves its range. */
static float scale_up(float x)
{
    float y = kv_row_round(DT_BF16, x);
    return y < x ? kv_row_round(DT_BF16, x * (1 + 0x1p-7f)) : y;
}

/* Writes four codes, or as many as the row has from d on. */
static inline void put_codes(uint8_t *q, uint32_t d, uint32_t n, four_ints c)
{
    const uint32_t all = (uint32_t)(c[0] & 255) | (uint32_t)(c[1] & 255) << 8 |
                         (uint32_t)(c[2] & 255) << 16 | (uint32_t)c[3] << 24;
    if (d + 4 <= n)
        __builtin_memcpy(q + d, &all, sizeof all);
    else
        memcpy(q + d, &all, n - d);
}

/* Writes codes of 8 bits, which are even steps, and returns their scale.  x has room for 3 more values. */
static float code8(const float *x, uint32_t n, uint8_t *q)
{
    float a = scale_up(top_of(x, n) / 127), by = a > 0x1p-100f && isfinite(a) ? 1 / a : 0;
    for (uint32_t d = 0; d < n; d += 4) {
        const four y = four_load(x + d) * by;
        put_codes(q, d, n, __builtin_convertvector((y + 0x1.8p23f) - 0x1.8p23f, four_ints));
    }
    return by > 0 ? a : 0;
}

/* Scales a row, whose squares would overflow or vanish, by a power of two so that its largest value is about 1.
 * Returns the exponent with which the caller multiplies the row's scale. */
static int bring_near(float *x, uint32_t n)
{
    int e;
    (void)frexpf(top_of(x, n), &e);
    for (uint32_t d = 0; d < n; d++)
        x[d] = ldexpf(x[d], -e);
    return e;
}

/* Returns the sum of the products of a row with the levels nearest to its values in units of 1 / by, and in *squares that of
 * the squares of these levels.  x has room for 3 more values.  Levels lie on both sides of zero alike.  A level's size is the
 * sum of the steps that the value passes: small whole numbers, which are exact. */
static inline float try_levels(const struct kvik *k, const uint32_t half, const float *x,
                               uint32_t n, float by, float *squares)
{
    const int8_t *above = k->f.level + half;
    struct chains along = {0}, own = {0};
    four step[CODED_LEVELS / 2], edge[CODED_LEVELS / 2];
    for (uint32_t i = 0; i + 1 < half; i++) {
        step[i] = four_all((float)(above[i + 1] - above[i]));
        edge[i] = four_all(k->f.edge[i]);
    }
    for (uint32_t d = 0; d < n; d += 4) {
        const four v = four_load(x + d) * by;
        const four_ints negative = v <= 0; /* a comparison that holds is -1 */
        const four size = four_pick(negative, -v, v);
        four l = four_all(above[0]);
        _Pragma("GCC unroll 8") for (uint32_t i = 0; i + 1 < half; i++) l +=
            (four)((size > edge[i]) & (four_ints)step[i]);
        add_products(&along, four_load(x + d), four_pick(negative, -l, l), d, n);
        add_products(&own, l, l, d, n);
    }
    *squares = total(&own);
    return total(&along);
}

/* As try_levels; each number of levels has a loop of its own. */
static float try_some(const struct kvik *k, const float *x, uint32_t n, float by, float *squares)
{
    if (k->f.bits == 4) return try_levels(k, 8, x, n, by, squares);
    if (k->f.bits == 3) return try_levels(k, 4, x, n, by, squares);
    return try_levels(k, 2, x, n, by, squares);
}

/* Writes the codes of these levels. */
static void put_levels(const struct kvik *k, const float *x, uint32_t n, float by, uint8_t *q)
{
    const int32_t half = (int32_t)k->n / 2;
    for (uint32_t d = 0; d < n; d += 4) {
        const four v = four_load(x + d) * by;
        const four_ints negative = v <= 0;
        const four size = four_pick(negative, -v, v);
        four_ints c = {0};
        for (int32_t i = 0; i + 1 < half; i++)
            c -= size > k->f.edge[i];
        put_codes(q, d, n, (c ^ negative) + half);
    }
}

/* Writes codes of 2 to 4 bits and returns their scale.  Tries three units near the row's own, and takes the one
 * whose levels have the direction nearest to that of the row.  The scale keeps the length of the row.  A scale of
 * least squared error would make rows shorter, which flattens the softmax. */
static float code_levels(const struct kvik *k, float *x, uint32_t n, uint8_t *q)
{
    static const float tries[] = {0.9f, 1, 1.1f}; /* multiples of the row's own unit */
    float best = 0, best_by = 0, scale = 0;
    float squares = squares_of(x, n), rms = sqrtf(squares / (float)n);
    int e = 0;
    if (!(rms > 0x1p-60f && rms < 0x1p60f)) {
        e = bring_near(x, n);
        squares = squares_of(x, n);
        rms = sqrtf(squares / (float)n);
    }
    if (rms == 0) return 0; /* a row of zeros has codes 0 */
    float unit = k->f.of_rms * rms + k->f.of_top * top_of(x, n), length = sqrtf(squares);
    for (uint32_t i = 0; i < countof(tries); i++) {
        float by = 1 / (unit * tries[i]), own, along = try_some(k, x, n, by, &own);
        float size = sqrtf(own);
        along /= size;
        if (!(along > best)) continue;
        best = along;
        best_by = by;
        scale = length / size;
    }
    if (best > 0) put_levels(k, x, n, best_by, q);
    return ldexpf(scale, e);
}

/* The raw rows of a tile being encoded. */
struct source {
    const struct kvik *k;
    const struct kv_shape *s;
    const void *const *raw;
    uint32_t block_rows;
};

/* Transposes four rows of four values. */
static inline void turn_four(const float *from, uint32_t apart, float *to, uint32_t to_apart)
{
    const four a = four_load(from), b = four_load(from + apart), c = four_load(from + 2 * apart),
               e = four_load(from + 3 * apart);
    const four ab = {a[0], b[0], a[1], b[1]}, AB = {a[2], b[2], a[3], b[3]};
    const four ce = {c[0], e[0], c[1], e[1]}, CE = {c[2], e[2], c[3], e[3]};
    four_store(to, (four){ab[0], ab[1], ce[0], ce[1]});
    four_store(to + to_apart, (four){ab[2], ab[3], ce[2], ce[3]});
    four_store(to + 2 * to_apart, (four){AB[0], AB[1], CE[0], CE[1]});
    four_store(to + 3 * to_apart, (four){AB[2], AB[3], CE[2], CE[3]});
}

/* Adds n values times `sign` to a sum.  The sign is 1 or -1, so the products are exact. */
static inline void add_row(float *sum, const float *x, uint32_t n, float sign)
{
    uint32_t d = 0;
    for (; d + 4 <= n; d += 4)
        four_store(sum + d, four_load(sum + d) + four_load(x + d) * sign);
    for (; d < n; d++)
        sum[d] += x[d] * sign;
}

/* Reads a strip of 16 rows as floats, beginning with row `row`. */
static void load_strip(const struct source *from, uint32_t row, float *x)
{
    uint32_t dim = from->s->dim;
    size_t size = dtype_size(from->s->dtype);
    const char *at =
        (const char *)from->raw[row / from->block_rows] + row % from->block_rows * dim * size;
    float lanes[KV_STRIP * CODED_DIM];
    bool strips = from->s->layout == KV_STRIPS;
    dev_to_f32(from->s->dtype, at, strips ? lanes : x, (size_t)KV_STRIP * dim);
    uint32_t d = 0;
    for (; strips && d + 4 <= dim; d += 4)
        for (uint32_t r = 0; r < KV_STRIP; r += 4)
            turn_four(lanes + d * KV_STRIP + r, KV_STRIP, x + r * dim + d, dim);
    for (; strips && d < dim; d++)
        for (uint32_t r = 0; r < KV_STRIP; r++)
            x[r * dim + d] = lanes[d * KV_STRIP + r];
}

/* Writes the mean of rows [a, b) of a unit, after the rotation.  Rows with a NaN or an infinity are left out. */
static void put_mean(const struct source *from, uint32_t row0, uint32_t a, uint32_t b,
                     unsigned char *unit, float *mean)
{
    uint32_t dim = from->s->dim, n = 0;
    float x[KV_STRIP * CODED_DIM];
    uint16_t *to = (uint16_t *)(uintptr_t)coded_means(unit);
    memset(mean, 0, dim * sizeof *mean);
    for (uint32_t r0 = 0; r0 < b; r0 += KV_STRIP) {
        load_strip(from, row0 + r0, x);
        for (uint32_t r = MAX(r0, a); r < r0 + KV_STRIP; r++) {
            const float *row = x + (size_t)(r - r0) * dim;
            if (!finite_row(row, dim)) continue;
            add_row(mean, row, dim, 1);
            n++;
        }
    }
    for (uint32_t d = 0; d < dim; d++)
        mean[d] = n ? mean[d] / (float)n : 0;
    if (from->k->f.turned) hadamard_turn(&from->k->f.turn, mean);
    for (uint32_t d = 0; d < dim; d++) {
        kv_row_put(DT_BF16, to, d, mean[d]);
        mean[d] = kv_row_get(DT_BF16, to, d);
    }
    if (finite_row(mean, dim)) return;
    memset(mean, 0, dim * sizeof *mean); /* rows so large that their sum overflows have no mean */
    memset(to, 0, dim * sizeof *to);
}

/* Encodes one row: writes its codes to q and its scale into the unit. */
static void put_row(const struct kvik *k, uint32_t dim, float *x, const float *mean,
                    unsigned char *unit, uint32_t r, uint8_t *q)
{
    float scale = NAN;
    if (k->f.turned) hadamard_turn(&k->f.turn, x);
    if (k->f.mean) add_row(x, mean, dim, -1);
    if (finite_row(x, dim)) scale = k->f.bits == 8 ? code8(x, dim, q) : code_levels(k, x, dim, q);
    kv_row_put(DT_BF16, unit, r, scale);
}

/* Encodes rows [a, 128) of a unit, whose first row is row0 of the raw blocks. */
static void put_unit(const struct source *from, uint32_t row0, uint32_t a, unsigned char *unit)
{
    uint32_t dim = from->s->dim;
    uint8_t q[CODED_ROWS * CODED_DIM];
    float x[KV_STRIP * CODED_DIM], mean[CODED_DIM], row[CODED_DIM + 3] = {0};
    memset(q, 0, (size_t)CODED_ROWS * dim);
    if (from->k->f.mean) put_mean(from, row0, a, CODED_ROWS, unit, mean);
    for (uint32_t r0 = a / KV_STRIP * KV_STRIP; r0 < CODED_ROWS; r0 += KV_STRIP) {
        load_strip(from, row0 + r0, x);
        for (uint32_t r = MAX(r0, a); r < r0 + KV_STRIP; r++) {
            memcpy(row, x + (size_t)(r - r0) * dim, dim * sizeof *row);
            put_row(from->k, dim, row, mean, unit, r, q + (size_t)r * dim);
        }
    }
    coded_pack(&from->k->f, dim, unit, q);
}

static void kvik_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                        void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                        uint32_t lead)
{
    const struct kvik *k = (const struct kvik *)c;
    const struct source from = {k, s, raw, block_rows};
    for (uint32_t u = 0; u < c->tile / CODED_ROWS; u++) {
        unsigned char *unit = (unsigned char *)dst + coded_unit_at(&k->f, s->dim, c->tile, head, u);
        uint32_t row0 = u * CODED_ROWS, a = MAX(row0, lead) - row0;
        if (a < CODED_ROWS) put_unit(&from, first + row0, a, unit);
    }
}

static void kvik_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                        void *dst, uint32_t first, const void *src)
{
    const struct kv_coded *f = of(c);
    int8_t level[CODED_DIM];
    float x[CODED_DIM];
    for (uint32_t r = 0; r < c->tile; r++) {
        const unsigned char *unit =
            (const unsigned char *)src + coded_unit_at(f, s->dim, c->tile, head, r / CODED_ROWS);
        float scale = kv_row_get(DT_BF16, coded_scales(unit), r % CODED_ROWS);
        coded_get(f, s->dim, unit, r % CODED_ROWS, level);
        for (uint32_t d = 0; d < s->dim; d++) {
            float mean = f->mean ? kv_row_get(DT_BF16, coded_means(unit), d) : 0;
            x[d] = fmaf((float)level[d], scale, mean);
        }
        if (f->turned) hadamard_back(&f->turn, x);
        kv_row_store(s, dst, first + r, x);
    }
}

static int kvik_describe(const struct kv_codec *c, char *out, size_t n)
{
    const struct kv_coded *f = of(c);
    return snprintf(out, n, "%u bits%s", f->bits, f->key ? " less the mean" : " in bands");
}

static int check(const struct kv_codec_options *o, bool key)
{
    int32_t bits = o->value[NBITS];
    if (bits == 2 || bits == 3 || bits == 4 || bits == 8) return 0;
    return ERR(ARG, "%s %d: backend \"kvik\" has 2, 3, 4 and 8 bits", key ? "k_bits" : "v_bits",
               bits);
}

/* Chooses how much a row's deviation and its largest value count in its unit.  The largest of 64 values is smaller
 * than that of a long row, so levels for a normal distribution reach too far for it.  Measured for 64 normal values
 * in 4 bits: the squared error is 0.0075 of the sum of squares, and 0.0088 with the deviation alone; in 3 bits
 * 0.0308 and 0.0325.  Long rows gain less, and 2 bits gain nothing. */
static void choose_unit(struct kvik *k, uint32_t dim)
{
    float most = k->f.bits == 4 ? 128 : k->f.bits == 3 ? 64 : 0;
    float share = fminf(1, most / (float)dim);
    k->f.of_top = share * (k->f.bits == 4 ? 0.333f : 0.304f);
    k->f.of_rms = 1 - share * (k->f.bits == 4 ? 0.946f : 0.79f);
}

static void choose_levels(struct kvik *k)
{
    const float *half = k->f.bits == 2 ? lloyd2 : k->f.bits == 3 ? lloyd3 : lloyd4;
    uint32_t n = 1u << k->f.bits;
    k->n = n;
    for (uint32_t i = 0; i < n; i++) {
        float at = i < n / 2 ? -half[n / 2 - 1 - i] : half[i - n / 2];
        k->f.level[i] = (int8_t)lrintf(at * (127 / half[n / 2 - 1]));
        k->f.level_byte[i] = (uint8_t)(k->f.level[i] + 128);
    }
    const int8_t *above = k->f.level + n / 2;
    for (uint32_t i = 0; i + 1 < n / 2; i++)
        k->f.edge[i] = (float)(above[i] + above[i + 1]) / 2 * (half[n / 2 - 1] / 127);
}

static int kvik_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                     uint32_t tile, struct kv_codec **out)
{
    if (s->dim < 8 || s->dim > CODED_DIM)
        return ERR(ARG, "backend \"kvik\": heads have 8 to %u values, not %u", CODED_DIM, s->dim);
    struct kvik *k = mem_alloc(sizeof *k);
    if (!k) return ERR_NOMEM;
    k->f = (struct kv_coded){
        .bits = (uint32_t)o->value[NBITS], .key = key, .mean = key, .turned = true};
    hadamard_choose(&k->f.turn, SEED, s->dim);
    if (k->f.bits < 8) {
        choose_levels(k);
        choose_unit(k, s->dim);
    }
    k->c = (struct kv_codec){.name = "kvik",
                             .param = &k->f,
                             .tile = tile ? tile : CODED_ROWS,
                             .lead = LEAD,
                             .describe = kvik_describe,
                             .bytes = kvik_bytes,
                             .encode = kvik_encode,
                             .decode = kvik_decode,
                             .reader = kv_read_coded,
                             .encoder = KV_BY_LEVEL};
    *out = &k->c;
    return 0;
}

static const struct kv_codec_kind kvik = {
    .name = "kvik",
    .option = options,
    .n_options = OPTIONS,
    .check = check,
    .open = kvik_open,
};
KV_CODEC(kvik, &kvik);
