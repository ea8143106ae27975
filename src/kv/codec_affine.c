/* codec_affine.c - divides tiles into groups: which values make a group, and how many rows a tile needs so that its groups
 * are whole.
 *
 * Groups never straddle heads or tiles, so a group depends on the rows of its tile alone and is quantized once.  If a
 * group is part of a row, that is, the group divides the head dimension, a tile is one row.  If a group spans several rows,
 * a tile is these rows.  If a group is one channel, a tile has as many rows as a group has values.  Rows below `lead` are in
 * no group. */
#include "kv/codec_affine.h"
#include "dev/group.h"
#include "dev/reader.h"

#include <stdio.h>
#include <string.h>

struct affine_codec {
    struct kv_codec c;
    struct kv_affine form;
    struct affine_spec spec;
};

/* A job of quantizing one head of a tile. */
struct encode_job {
    const struct affine_codec *a;
    const struct kv_shape *s;
    const void *const *raw;
    uint32_t block_rows, first, lead;
    uint32_t row0; /* first row of the unit, counted in the tile */
    unsigned char *unit;
};

static size_t codec_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return affine_bytes(c->param, s, c->tile);
}

/* Part of a group: values of one row of the unit, from d on; or of channel d, from row r on. */
struct group_part {
    uint32_t r, d, n;
};

/* Returns how many parts a group has at the most. */
static uint32_t parts_of(const struct encode_job *j)
{
    const struct kv_affine *f = &j->a->form;
    return f->group > j->s->dim ? f->group / j->s->dim : 1;
}

/* Returns the k-th of `parts` parts of group i; n is 0 if the group has no such part.  Rows that stay raw are in no
 * part. */
static struct group_part part_at(const struct encode_job *j, uint32_t i, uint32_t parts, uint32_t k)
{
    const struct kv_affine *f = &j->a->form;
    uint32_t dim = j->s->dim, below = j->lead > j->row0 ? j->lead - j->row0 : 0;
    if (!f->group) {
        uint32_t r = MIN(below, f->unit);
        return (struct group_part){r, i, f->unit - r};
    }
    uint32_t at = i * f->group, first = at / dim, r = MAX(first, below) + k;
    return (struct group_part){r, at - first * dim, r < first + parts ? MIN(f->group, dim) : 0};
}

/* Reads the values of a part as floats.  In the raw layout these values are adjacent, 16 values apart, or one row
 * apart. */
static void load(const struct encode_job *j, struct group_part part, float *x)
{
    union {
        uint16_t half[AFFINE_MOST];
        uint32_t word[AFFINE_MOST];
    } raw;
    size_t size = dtype_size(j->s->dtype);
    bool channel = !j->a->form.group;
    size_t apart = j->s->layout == KV_STRIPS ? KV_STRIP * size : size;
    for (uint32_t k = 0; k < part.n; k += channel ? 1 : part.n) {
        uint32_t row = j->first + j->row0 + part.r + k;
        const unsigned char *at = (const unsigned char *)j->raw[row / j->block_rows] +
                                  kv_row_place(j->s, row % j->block_rows, part.d) * size;
        if (!channel && apart == size) {
            dev_to_f32(j->s->dtype, at, x, part.n);
            return;
        }
        for (uint32_t i = 0; i < (channel ? 1 : part.n); i++, at += apart)
            if (size == 2) {
                /* a copy straight into an element of `raw` would be a call of the checked memcpy */
                uint16_t value;
                memcpy(&value, at, sizeof value);
                raw.half[k + i] = value;
            } else {
                uint32_t value;
                memcpy(&value, at, sizeof value);
                raw.word[k + i] = value;
            }
    }
    dev_to_f32(j->s->dtype, &raw, x, part.n);
}

static void encode_group(const struct encode_job *j, uint32_t i)
{
    float x[AFFINE_MOST], work[2 * AFFINE_MOST];
    uint8_t q[AFFINE_MOST], *from = q;
    const struct kv_affine *f = &j->a->form;
    struct group_part part;
    struct affine_group g = {.dtype = j->s->dtype,
                             .max_q = (1u << f->bits) - 1,
                             .channel = j->a->spec.channel,
                             .setting = j->a->spec.setting,
                             .x = x,
                             .q = q,
                             .work = work};
    const uint32_t parts = parts_of(j);
    for (uint32_t k = 0; k < parts && (part = part_at(j, i, parts, k)).n; k++, g.n += part.n)
        load(j, part, x + g.n);
    if (!g.n) return;
    for (uint32_t k = g.n; k % GROUP_LANES; k++)
        x[k] = x[g.n - 1];
    j->a->spec.quantize(&g);
    affine_put_pair(f, j->s, j->unit, i, g.a, g.b);
    for (uint32_t k = 0; k < parts && (part = part_at(j, i, parts, k)).n; k++, from += part.n)
        if (f->group)
            affine_put_run(f, j->s, j->unit, part.r, part.d, part.n, from);
        else
            for (uint32_t r = 0; r < part.n; r++)
                affine_put_run(f, j->s, j->unit, part.r + r, part.d, 1, from + r);
}

static void codec_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                         uint32_t lead)
{
    const struct affine_codec *a = (const struct affine_codec *)c;
    struct encode_job j = {a, s, raw, block_rows, first, lead, 0, NULL};
    for (; j.row0 < c->tile; j.row0 += a->form.unit) {
        j.unit = (unsigned char *)dst +
                 affine_unit_at(&a->form, s, c->tile, head, j.row0 / a->form.unit);
        for (uint32_t i = 0; i < affine_pairs(&a->form, s->dim); i++)
            encode_group(&j, i);
    }
}

static void codec_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, uint32_t first, const void *src)
{
    affine_decode(c->param, s, c->tile, head, src, 0, c->tile, dst, first);
}

static int codec_describe(const struct kv_codec *c, char *out, size_t n)
{
    const struct kv_affine *f = c->param;
    const char *order = f->zero_first ? ", zero first" : "";
    int32_t setting = ((const struct affine_codec *)c)->spec.setting;
    char last[24] = "";
    if (setting) snprintf(last, sizeof last, ", setting %d", setting);
    if (!f->group)
        return snprintf(out, n, "%u-bit channels of %u%s%s", f->bits, f->unit, order, last);
    return snprintf(out, n, "%u-bit groups of %u, unit %u%s%s", f->bits, f->group, f->unit, order,
                    last);
}

static bool tile_fits(uint32_t rows)
{
    return rows == 1 || rows == 2 || rows == 4 || rows == 8 || (rows && rows % KV_STRIP == 0);
}

/* Computes the rows of the smallest tile that has whole groups. */
static int unit_rows(const struct affine_spec *p, const struct kv_shape *s, uint32_t *out)
{
    uint32_t g = p->group, dim = s->dim;
    if (g > AFFINE_MOST)
        return ERR(ARG, "q_group_size %u: at most %u values can make a group", g, AFFINE_MOST);
    if (p->channel) {
        if (!tile_fits(g))
            return ERR(ARG,
                       "q_group_size %u with %s: a group is one channel over %u rows, and rows are "
                       "taken 1, 2, 4, 8 or a multiple of 16 at a time; use %u or %u",
                       g, p->axis, g, MAX(g / 16 * 16, 8u), (g / 16 + 1) * 16);
        *out = g;
        return 0;
    }
    *out = dim % g == 0 ? 1 : g % dim == 0 ? g / dim : 0;
    if (tile_fits(*out)) return 0;
    uint32_t below = MIN(g, dim - (dim > 1)); /* the largest group that is part of a row */
    while (dim % below)
        below--;
    return ERR(ARG,
               "q_group_size %u with %s and heads of %u values: a group lies inside one head, as a "
               "part of a row or as 2, 4, 8 or a multiple of 16 whole rows; use %u, %u or %u",
               g, p->axis, dim, below, dim, 2 * dim);
}

int affine_open(const struct affine_spec *spec, const struct kv_shape *s, uint32_t tile,
                struct kv_codec **out)
{
    uint32_t unit = 0;
    if (!affine_bits(spec->bits))
        return ERR(ARG, "%s: %u bits; groups have codes of 1, 2, 3, 4 or 8 bits", spec->name,
                   spec->bits);
    TRY(unit_rows(spec, s, &unit));
    if (!tile) tile = unit;
    if (tile % unit || !tile_fits(tile) || tile > AFFINE_MOST)
        return ERR(ARG, "%s: groups of %u rows do not make a tile of %u", spec->name, unit, tile);
    struct affine_codec *a = mem_alloc(sizeof *a);
    if (!a) return ERR_NOMEM;
    a->spec = *spec;
    a->form = (struct kv_affine){.bits = spec->bits,
                                 .unit = unit,
                                 .group = spec->channel ? 0 : spec->group,
                                 .zero_first = spec->zero_first};
    a->c = (struct kv_codec){.name = spec->name,
                             .param = &a->form,
                             .tile = tile,
                             .describe = codec_describe,
                             .bytes = codec_bytes,
                             .encode = codec_encode,
                             .decode = codec_decode,
                             .reader = kv_read_affine,
                             .encoder = spec->encoder};
    *out = &a->c;
    return 0;
}

const struct kv_codec_option affine_options[AFFINE_OPTIONS] = {
    [AFFINE_NBITS] = {"nbits", 1, 8, 4},
    [AFFINE_AXIS] = {"axis", -1, 1, 0},
    [AFFINE_GROUP] = {"q_group_size", 1, 1 << 20, 64},
};

int affine_check_group(int32_t group)
{
    if (group < 1)
        return ERR(ARG, "q_group_size %d: a group has at least 1 value; 64 is usual", group);
    if (group > (int32_t)AFFINE_MOST)
        return ERR(ARG, "q_group_size %d: at most %u values can make a group", group, AFFINE_MOST);
    return 0;
}
