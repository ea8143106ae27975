/* test_codec.c - the quantized codecs against the packages they follow: codes, scales and values on
 * stored vectors; refusals; tiles, leading rows, NaN and infinities; kernels that read strips; and
 * the error of attention over them compared with the quantized caches of Transformers ("the
 * reference"). */
#include "test_codec.h"
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"
#include "fmt/fmt.h"

#include <math.h>

#define VECTORS "tests/fixtures/codec/vectors.safetensors"

static struct affine_choice options(const char *backend, int32_t nbits, int axis, int32_t g)
{
    return (struct affine_choice){backend, nbits, axis, axis, g, 128};
}

/* The case of one vector: a matrix [rows][dim] of one head whose tiles are the reference's groups. */
struct vector {
    char name[96];
    struct affine_choice o;
    enum dtype dtype;
    bool channel, flip; /* flip: the reference numbers groups as [channel][tile] (quanto axis -1) */
    uint32_t rows, dim;
    const float *x;
    const struct tensor *codes, *scale, *zero, *value;
};

static bool vector_at(const struct safetensors *f, uint32_t i, struct vector *v)
{
    const struct tensor *t = safetensors_at(f, i);
    const char *end = strstr(t->name, ".codes");
    char backend[16], input[16], type[16], key[128];
    if (!end) return false;
    memset(v, 0, sizeof *v);
    snprintf(v->name, sizeof v->name, "%.*s", (int)(end - t->name), t->name);
    int axis;
    assert_int_equal(sscanf(v->name, "%15[^.].%d.%d.%d.%15[^.].%15s", backend, &v->o.nbits, &axis,
                            &v->o.q_group_size, input, type),
                     6);
    bool quanto = strcmp(backend, "quanto") == 0;
    v->o = options(quanto ? "quanto" : "hqq", v->o.nbits, axis, v->o.q_group_size);
    v->dtype = strcmp(type, "f32") == 0 ? DT_F32 : strcmp(type, "f16") == 0 ? DT_F16 : DT_BF16;
    v->channel = quanto ? axis == -1 : axis == 0;
    v->flip = quanto && v->channel;
    const struct tensor *x = safetensors_find(f, input);
    uint32_t n = (uint32_t)x->dim[0], g = (uint32_t)v->o.q_group_size;
    v->x = x->data;
    v->codes = t;
    v->dim = strcmp(input, "x0") == 0 ? 16 : 32;
    if (v->channel && !quanto) v->dim = n / g; /* groups are columns of [g][n / g] */
    v->rows = n / v->dim;
    static const char *const what[] = {"scale", "shift", "zero", "dequantized"};
    const struct tensor **to[] = {&v->scale, &v->zero, &v->zero, &v->value};
    for (int k = 0; k < 4; k++) {
        snprintf(key, sizeof key, "%s.%s", v->name, what[k]);
        const struct tensor *found = safetensors_find(f, key);
        if (found) *to[k] = found;
    }
    return true;
}

static uint32_t open_pair(const struct affine_choice *o, const struct kv_shape *k,
                          const struct kv_shape *v, struct kv_codec **kc, struct kv_codec **vc)
{
    struct kv_codec_pair pair;
    struct kv_seal seal;
    assert_int_equal(pair_of(o, &pair), 0);
    assert_int_equal(kv_codec_pair_open(&pair, k, v, kc, vc, &seal), 0);
    return seal.resid;
}

struct result {
    /* Numbers of differences, by kind; the number of values. */
    uint32_t codes, scale, zero, value, n;
    /* Largest difference of a value; sums of squared errors against x. */
    double worst, error, reference;
};

static double sq(double x)
{
    return x * x;
}

/* Quantizes every tile of the matrix and compares codes, scale and zero pairs, and values. */
static void run_vector(const struct vector *v, enum kv_layout layout, struct result *out)
{
    struct kv_shape s = {1, v->dim, v->dtype, layout};
    struct kv_codec *c, *other;
    open_pair(&v->o, &s, &s, &c, &other);
    const struct kv_affine *f = c->param;
    uint32_t block = MAX(c->tile, 16u), pairs = affine_pairs(f, v->dim), tiles = v->rows / c->tile;
    size_t values = (size_t)block * v->dim;
    void *raw = malloc(values * 4), *dst = malloc(c->bytes(c, &s)), *back = malloc(values * 4);
    memset(out, 0, sizeof *out);
    for (uint32_t t = 0; t < tiles; t++) {
        uint32_t row0 = t * c->tile, first = c->tile < 16 ? row0 % 16 : 0;
        for (uint32_t i = 0; i < c->tile * v->dim; i++)
            put(v->dtype, raw, at_of(&s, block, 0, first + i / v->dim, i % v->dim),
                v->x[(size_t)row0 * v->dim + i]);
        const void *blocks = raw;
        kv_tile_encode(c, &s, dst, &blocks, block, first, 0);
        c->decode(c, &s, 0, back, first, dst);
        for (uint32_t i = 0; i < c->tile * v->dim; i++) {
            size_t at = (size_t)row0 * v->dim + i;
            uint32_t r = i / v->dim, d = i % v->dim;
            size_t code = v->flip ? r * (size_t)tiles * v->dim + (size_t)d * tiles + t : at;
            uint8_t q;
            affine_get_run(f, &s, dst, r, d, 1, &q);
            out->codes += q != ((const uint8_t *)v->codes->data)[code];
            float got = kv_row_get(v->dtype, back, at_of(&s, block, 0, first + r, d));
            float want = kv_row_get(v->dtype, v->value->data, at);
            float x = kv_row_get(v->dtype, raw, at_of(&s, block, 0, first + r, d));
            out->value += memcmp(&got, &want, 4) != 0 && !(isnan(got) && isnan(want));
            out->worst = fmax(out->worst, fabs((double)got - (double)want));
            out->error += sq((double)got - (double)x);
            out->reference += sq((double)want - (double)x);
            out->n++;
        }
        for (uint32_t i = 0; i < pairs; i++) {
            size_t g = v->flip ? (size_t)i * tiles + t : (size_t)t * pairs + i;
            float a = kv_row_get(v->dtype, dst, i), b = kv_row_get(v->dtype, dst, pairs + i);
            float wa = kv_row_get(v->dtype, v->scale->data, g),
                  wb = kv_row_get(v->dtype, v->zero->data, g);
            out->scale += a != wa;
            out->zero += b != wb;
        }
    }
    free(raw);
    free(dst);
    free(back);
    kv_codec_close(c);
    kv_codec_close(other);
}

/* quanto: every bit is equal. hqq: the reference ends the iterations of a whole tensor at once,
 * kvik ends them per group, so zeros may come from another iteration. Scales are equal bit for bit,
 * and so is the rest where the iteration is the same. The squared error is never above the
 * reference's. */
static void test_vectors(void **state)
{
    (void)state;
    struct safetensors *f;
    assert_int_equal(safetensors_open(VECTORS, &f), 0);
    uint32_t seen = 0, same = 0;
    for (uint32_t i = 0; i < safetensors_count(f); i++) {
        struct vector v;
        if (!vector_at(f, i, &v)) continue;
        for (int layout = 0; layout < 2; layout++) {
            struct result r;
            run_vector(&v, layout ? KV_ROWMAJOR : KV_STRIPS, &r);
            bool quanto = strcmp(v.o.backend, "quanto") == 0;
            if (r.scale || (quanto && (r.codes || r.zero || r.value)) ||
                r.error > r.reference * (1 + 1e-6))
                fail_msg("%s: differ: %u codes, %u scales, %u zeros, %u of %u values (by %g); "
                         "squared error %g, reference %g",
                         v.name, r.codes, r.scale, r.zero, r.value, r.n, r.worst, r.error,
                         r.reference);
            seen++;
            same += !quanto && !r.codes && !r.zero && !r.value;
        }
    }
    assert_true(seen >= 90 && same >= 12);
    safetensors_close(f);
}

struct choice {
    struct affine_choice o;
    uint32_t dim, tile; /* 0: refused */
    const char *says;
};
static const struct choice choices[] = {
    {{"quanto", 4, 0, 0, 64, 128}, 64, 1, ""},
    {{"quanto", 4, 0, 0, 64, 128}, 128, 1, ""},
    {{"quanto", 2, 0, 0, 64, 128}, 16, 4, ""},
    {{"quanto", 4, 0, 0, 64, 128}, 32, 2, ""},
    {{"quanto", 4, 0, 0, 64, 1}, 8, 8, ""},
    {{"quanto", 4, 0, 0, 64, 128}, 4, 16, ""},
    {{"quanto", 4, -1, 0, 32, 128}, 64, 32, ""},
    {{"quanto", 4, -1, -1, 4, 128}, 64, 4, ""},
    {{"hqq", 3, 0, 1, 48, 128}, 48, 48, ""},
    {{"hqq", 1, 1, 1, 64, 128}, 80, 0, "use 40, 80 or 160"},
    {{"hqq", 8, 0, 1, 48, 128}, 3, 48, ""},
    {{"hqq", 4, 0, 1, 64, 128}, 64, 64, ""},
    {{"quanto", 4, 0, 0, 64, 128}, 80, 0, "q_group_size 64 with axis_key 0 and heads of 80 values"},
    {{"quanto", 4, 0, 0, 96, 128}, 32, 0, "use 16, 32 or 64"},
    {{"quanto", 4, 0, -1, 24, 128}, 24, 0, "axis_value -1"},
    {{"quanto", 3, 0, 0, 64, 128}, 64, 0, "nbits 3: backend \"quanto\" has 2 and 4 bits"},
    {{"quanto", 8, 0, 0, 64, 128}, 64, 0, "nbits 8"},
    {{"quanto", 4, 1, 0, 64, 128}, 64, 0, "axis_key 1: backend \"quanto\" has axes 0 and -1"},
    {{"quanto", 4, 0, 2, 64, 128}, 64, 0, "axis_value 2"},
    {{"hqq", 5, 0, 0, 64, 128}, 64, 0, "nbits 5: backend \"hqq\" has 1, 2, 3, 4 and 8 bits"},
    {{"hqq", 0, 0, 0, 64, 128}, 64, 0, "nbits 0"},
    {{"hqq", 4, -1, 0, 64, 128}, 64, 0, "axis_key -1: backend \"hqq\" has axes 0 and 1"},
    {{"hqq", 4, 1, 1, 0, 128}, 64, 0, "q_group_size 0"},
    {{"hqq", 4, 1, 1, 64, 0}, 64, 1, ""}, /* as in the reference: no rows gather */
    {{"hqq", 4, 0, 0, 100000, 128}, 64, 0, "at most 4096"},
    {{"HQQ", 4, 0, 0, 64, 128}, 64, 0, "backend \"HQQ\" is not known; there are: "},
    {{"shuffle", 4, 0, 0, 64, 128}, 64, 128, ""},
};

static void test_choices(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(choices); i++) {
        const struct choice *c = &choices[i];
        struct kv_shape k = {3, c->dim, DT_F16, KV_STRIPS}, v = {3, c->dim, DT_F16, KV_ROWMAJOR};
        struct kv_codec *kc = NULL, *vc = NULL;
        struct kv_codec_pair pair;
        struct kv_seal seal = {.resid = 7};
        int e = pair_of(&c->o, &pair);
        if (e >= 0) e = kv_codec_pair_open(&pair, &k, &v, &kc, &vc, &seal);
        if (!c->tile) {
            if (e != ERR_ARG || !strstr(err_last(), c->says))
                fail_msg("choice %zu: %d \"%s\", wants \"%s\"", i, e, err_last(), c->says);
            assert_true(!kc && !vc && seal.resid == 7);
            continue;
        }
        if (e < 0) fail_msg("choice %zu: %s", i, err_last());
        assert_int_equal(kc->tile, c->tile);
        assert_int_equal(vc->tile, c->tile);
        assert_int_equal(seal.resid,
                         strcmp(c->o.backend, "shuffle") ? MAX(c->o.residual_length, 1) : 0);
        kv_codec_close(kc);
        kv_codec_close(vc);
    }
    assert_non_null(kv_codec_find("quanto"));
    assert_null(kv_codec_find("fp9"));
    uint32_t n = 0;
    while (kv_codec_at(n))
        n++;
    assert_true(n >= 3);
}

struct kind {
    const char *backend;
    int32_t nbits, g, axis;
};
static const struct kind every[] = {
    {"quanto", 4, 16, 0}, {"quanto", 2, 64, 0}, {"quanto", 4, 32, -1}, {"quanto", 2, 8, -1},
    {"hqq", 1, 16, 1},    {"hqq", 2, 64, 1},    {"hqq", 3, 32, 0},     {"hqq", 4, 16, 0},
    {"hqq", 8, 128, 1},   {"hqq", 3, 32, 1},
};

/* A constant group is restored exactly. A NaN or infinity affects its own group and no other. Rows
 * below lead do not affect groups of other rows; in a shared group they count as absent. */
static void test_groups_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(every); i++)
        for (int t = 0; t < 3; t++)
            for (int layout = 0; layout < 2; layout++) {
                static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
                struct kv_shape s = {2, 32, types[t], layout ? KV_ROWMAJOR : KV_STRIPS};
                const struct kind *k = &every[i];
                struct affine_choice o = options(k->backend, k->nbits, k->axis, k->g);
                struct kv_codec *c, *other;
                open_pair(&o, &s, &s, &c, &other);
                const struct kv_affine *f = c->param;
                uint32_t n = c->tile * s.dim, all = 2 * n, group = f->group;
                float *x = calloc(all, 4), *y = calloc(all, 4), *z = calloc(all, 4);
                for (uint32_t j = 0; j < all; j++)
                    x[j] = 0.625f;
                through(c, &s, x, 0, y);
                assert_memory_equal(x, y, all * 4);
                for (uint32_t j = 0; j < all; j++)
                    x[j] = uniform();
                through(c, &s, x, 0, y);
                static const float bad[] = {NAN, INFINITY, -INFINITY};
                for (int b = 0; b < 3; b++) {
                    uint32_t at = n + n / 2, ruined = 0;
                    float keep = x[at];
                    x[at] = bad[b];
                    through(c, &s, x, 0, z);
                    x[at] = keep;
                    for (uint32_t j = 0; j < all; j++) {
                        bool mine =
                            group ? j / group == at / group : j >= n && j % s.dim == at % s.dim;
                        if (mine)
                            ruined += !isfinite(z[j]);
                        else
                            assert_memory_equal(&y[j], &z[j], 4);
                    }
                    assert_true(ruined > 0);
                }
                if (c->tile > 1) {
                    uint32_t lead = c->tile / 2;
                    through(c, &s, x, lead, y);
                    for (uint32_t j = 0; j < all; j++)
                        if (j % n / s.dim < lead) x[j] = j & 1 ? NAN : 3e4f;
                    through(c, &s, x, lead, z);
                    for (uint32_t j = 0; j < all; j++)
                        if (j % n / s.dim >= lead) assert_memory_equal(&y[j], &z[j], 4);
                }
                free(x);
                free(y);
                free(z);
                kv_codec_close(c);
                kv_codec_close(other);
            }
}

struct geometry {
    struct kind kind;
    uint32_t dim, tile; /* tile: 0 the codec's own size, or a multiple */
};
static const struct geometry geometries[] = {
    {{"quanto", 4, 64, 0}, 64, 0},  {{"quanto", 4, 64, 0}, 128, 0}, {{"quanto", 4, 64, 0}, 32, 0},
    {{"quanto", 2, 64, 0}, 64, 0},  {{"quanto", 2, 16, 0}, 64, 16}, {{"quanto", 4, 32, 0}, 96, 0},
    {{"quanto", 4, 8, 0}, 64, 0},   {{"quanto", 4, 128, 0}, 32, 0}, {{"quanto", 4, 512, 0}, 32, 48},
    {{"quanto", 4, 8, 0}, 40, 0},   {{"quanto", 4, 64, -1}, 64, 0}, {{"quanto", 2, 16, -1}, 64, 32},
    {{"quanto", 4, 4, -1}, 64, 16}, {{"quanto", 4, 8, -1}, 32, 0},  {{"hqq", 4, 64, 1}, 64, 0},
    {{"hqq", 8, 64, 1}, 64, 0},     {{"hqq", 8, 16, 0}, 16, 0},     {{"hqq", 2, 64, 0}, 128, 0},
    {{"hqq", 3, 64, 0}, 64, 0},     {{"hqq", 3, 32, 1}, 64, 4},     {{"hqq", 1, 64, 1}, 64, 0},
    {{"hqq", 1, 64, 1}, 128, 0},    {{"hqq", 4, 64, 1}, 64, 64},    {{"hqq", 2, 8, 1}, 64, 0},
    {{"quanto", 4, 48, 0}, 96, 0},  {{"quanto", 2, 32, 0}, 64, 0},  {{"quanto", 2, 128, 0}, 64, 0},
    {{"hqq", 4, 256, 1}, 64, 16},   {{"hqq", 2, 64, 1}, 128, 0},
};

/* Every kernel gives the bits of the reference kernel for any part of a strip, and writes nothing
 * behind it. */
static void test_strips(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(geometries); i++)
        for (int mix = 0; mix < 6; mix++) {
            static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
            const struct geometry *g = &geometries[i];
            struct kv_shape s = {3, g->dim, types[mix % 3], mix / 3 ? KV_ROWMAJOR : KV_STRIPS};
            struct affine_choice o =
                options(g->kind.backend, g->kind.nbits, g->kind.axis, g->kind.g);
            struct kv_codec_pair pair;
            struct kv_codec *c = NULL;
            assert_int_equal(pair_of(&o, &pair), 0);
            if (kv_codec_open(&pair.plane[0], &s, true, g->tile, &c) < 0)
                fail_msg("geometry %zu: %s", i, err_last());
            uint32_t rows = MAX(c->tile, 16u), n = 16 / MIN(c->tile, 16u);
            size_t bytes = c->bytes(c, &s), strip = (size_t)16 * s.dim * dtype_size(s.dtype);
            unsigned char *raw = malloc((size_t)s.heads * rows * s.dim * 4), *tile[16];
            for (uint32_t k = 0; k < s.heads * rows * s.dim; k++)
                put(s.dtype, raw, k, uniform() * (k % 7 == 0 ? 50.0f : 1.0f) + 0.3f);
            const void *block = raw;
            for (uint32_t k = 0; k < n; k++) {
                tile[k] = malloc(bytes); /* exact size, so that a read past the end is seen */
                kv_tile_encode(c, &s, tile[k], &block, rows, k * c->tile, 0);
            }
            unsigned char *want = malloc(strip), *got = malloc(strip);
            for (int isa = 1; isa <= DEV_AVX512; isa++)
                for (uint32_t at = 0; at < rows; at += 16) {
                    if (!dev_isa_supported((enum dev_isa)isa)) continue;
                    const struct kv_reading by = kv_reading(c, &s, (enum dev_isa)isa),
                                            ref = kv_reading(c, &s, DEV_REF);
                    for (int part = 0; part < 4; part++) {
                        uint32_t r0 = part & 1 ? 3 : 0, r1 = part & 2 ? 13 : 16;
                        struct kv_piece p = {.head = 1, .r0 = at + r0, .r1 = at + r1};
                        /* Instead of missing tiles: another tile. */
                        for (uint32_t k = 0; k < n; k++)
                            p.tile[k] = tile[MIN(MAX(k, r0 / c->tile), (r1 - 1) / c->tile)];
                        if (n == 1) p.tile[0] = tile[0];
                        memset(want, 0x55, strip);
                        memset(got, 0x55, strip);
                        assert_ptr_equal(ref.reader->strips(&ref, &p, want), want);
                        assert_ptr_equal(by.reader->strips(&by, &p, got), got);
                        for (uint32_t k = r0 * s.dim; k < r1 * s.dim; k++) {
                            size_t w = at_of(&s, 16, 0, k / s.dim, k % s.dim),
                                   z = dtype_size(s.dtype);
                            if (memcmp(want + w * z, got + w * z, z))
                                fail_msg(
                                    "geometry %zu, mix %d, isa %d, rows [%u, %u): row %u value %u: %a, wants %a",
                                    i, mix, isa, r0, r1, k / s.dim, k % s.dim,
                                    (double)kv_row_get(s.dtype, got, w),
                                    (double)kv_row_get(s.dtype, want, w));
                        }
                    }
                }
            for (uint32_t k = 0; k < n; k++)
                free(tile[k]);
            free(raw);
            free(want);
            free(got);
            kv_codec_close(c);
        }
}

/* The error of attention against the reference. tests/fixtures/codec/make_attention.py has the same
 * cases and describes how they are made. */
#define ATTENTION "tests/fixtures/codec/attention.txt"
enum { HEADS = 2, ROWS = 128, DIM = 64 };

struct toy_case {
    uint32_t number, prompt, steps, dim;
    enum dtype dtype;
    struct affine_choice o;
    double reference;
};

static void make_values(uint32_t number, uint32_t what, uint32_t n, uint32_t dim, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t u = 0;
        for (uint32_t k = 0; k < 3; k++) {
            uint64_t x = 3 * (uint64_t)i + k + ((uint64_t)(number * 3 + what) << 32);
            x *= 0x9E3779B97F4A7C15u;
            x = (x ^ x >> 31) * 0xD6E8FEB86659FD93u;
            u += (int64_t)((x ^ x >> 32) >> 44);
        }
        double y = (double)(u - 3 * (1 << 19)) / (1 << 19);
        uint32_t c = i % dim;
        if (what == 0) y = y * (c % 5 == 0 ? 3.0 : 1.0) + (c % 7 == 0 ? 1.5 : 0.0);
        out[i] = (float)y;
    }
}

/* Makes the rows [head][row][dim] as they are read raw, and as they are read quantized. */
static void plane_of(const struct toy_case *c, const struct kv_codec *codec, enum kv_layout layout,
                     const float *x, float *raw, float *sealed)
{
    uint32_t rows = c->prompt + c->steps, block = MAX(codec->tile, 16u);
    struct kv_shape s = {HEADS, c->dim, c->dtype, layout};
    static unsigned char page[HEADS * ROWS * DIM * 4], tile[HEADS * ROWS * DIM * 4 + 4096],
        back[ROWS * DIM * 4];
    for (uint32_t row0 = 0; row0 < rows; row0 += block) {
        for (uint32_t i = 0; i < block * HEADS * c->dim; i++) {
            uint32_t r = row0 + i / (HEADS * c->dim), h = i / c->dim % HEADS, d = i % c->dim;
            size_t at = at_of(&s, block, h, r - row0, d);
            put(c->dtype, page, at, r < rows ? x[((size_t)r * HEADS + h) * c->dim + d] : 0);
            if (r < rows) raw[((size_t)h * ROWS + r) * c->dim + d] = kv_row_get(c->dtype, page, at);
        }
        for (uint32_t first = 0; first < block && row0 + first + codec->tile <= rows;
             first += codec->tile) {
            const void *blocks = page;
            kv_tile_encode(codec, &s, tile, &blocks, block, first, 0);
            for (uint32_t h = 0; h < HEADS; h++) {
                codec->decode(codec, &s, h, back, first, tile);
                for (uint32_t i = 0; i < codec->tile * c->dim; i++) {
                    uint32_t r = first + i / c->dim, d = i % c->dim;
                    sealed[((size_t)h * ROWS + row0 + r) * c->dim + d] =
                        kv_row_get(c->dtype, back, at_of(&s, block, 0, r, d));
                }
            }
        }
    }
}

/* Computes out = softmax(q . k) v of one head, with rows below edge from the quantized arrays. */
static void attend(const struct toy_case *c, const float *q, const float *const k[2],
                   const float *const v[2], uint32_t edge, uint32_t n, double *out)
{
    double p[ROWS], top = -INFINITY, sum = 0;
    for (uint32_t j = 0; j < n; j++) {
        const float *row = k[j < edge] + (size_t)j * c->dim;
        p[j] = 0;
        for (uint32_t d = 0; d < c->dim; d++)
            p[j] += (double)q[d] * (double)row[d];
        p[j] /= sqrt((double)c->dim);
        top = fmax(top, p[j]);
    }
    memset(out, 0, c->dim * sizeof *out);
    for (uint32_t j = 0; j < n; j++)
        sum += p[j] = exp(p[j] - top);
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t d = 0; d < c->dim; d++)
            out[d] += p[j] / sum * (double)v[j < edge][(size_t)j * c->dim + d];
}

static double lost(const struct toy_case *c)
{
    static float x[3][ROWS * HEADS * DIM], k[2][HEADS * ROWS * DIM], v[2][HEADS * ROWS * DIM];
    uint32_t rows = c->prompt + c->steps;
    struct kv_shape ks = {HEADS, c->dim, c->dtype, KV_STRIPS}, vs = ks;
    struct kv_codec *kc, *vc;
    double bad = 0, good = 0;
    vs.layout = KV_ROWMAJOR;
    assert_true(rows <= ROWS && c->dim <= DIM);
    uint32_t resid = open_pair(&c->o, &ks, &vs, &kc, &vc);
    for (uint32_t w = 0; w < 3; w++)
        make_values(c->number, w, rows * HEADS * c->dim, c->dim, x[w]);
    plane_of(c, kc, KV_STRIPS, x[0], k[0], k[1]);
    plane_of(c, vc, KV_ROWMAJOR, x[1], v[0], v[1]);
    struct kv_seal seal = {kc->tile, 0, resid};
    struct kv_turn turn = {0, c->prompt};
    for (uint32_t pos = c->prompt; pos < rows; pos++) {
        uint32_t edge = kv_edge(&seal, &turn, 1, pos);
        for (uint32_t h = 0; h < HEADS; h++) {
            const float *q = x[2] + ((size_t)pos * HEADS + h) * c->dim;
            size_t head = (size_t)h * ROWS * c->dim;
            const float *const kk[2] = {k[0] + head, k[1] + head}, *const vv[2] = {v[0] + head,
                                                                                   v[1] + head};
            double out[DIM], exact[DIM];
            attend(c, q, kk, vv, edge, pos + 1, out);
            attend(c, q, kk, vv, 0, pos + 1, exact);
            for (uint32_t d = 0; d < c->dim; d++) {
                bad += sq(out[d] - exact[d]);
                good += sq(exact[d]);
            }
        }
    }
    kv_codec_close(kc);
    kv_codec_close(vc);
    return sqrt(bad / good);
}

/* Criterion: for every codec the mean error over its 77 tensors is at most the reference's, within
 * one in ten thousand (quanto along rows rounds differently when it quantizes values again). No
 * tensor has more than 1.1 times the reference's error, and the total error is lower. */
static void test_attention(void **state)
{
    (void)state;
    enum { KINDS = 13 };
    struct toy_case c;
    char backend[16], type[8];
    uint32_t n = 0, above = 0, seen[KINDS] = {0};
    double ours[KINDS] = {0}, theirs[KINDS] = {0}, all = 0, reference = 0, worst = 0;
    int axis;
    FILE *f = fopen(ATTENTION, "r");
    assert_non_null(f);
    while (fscanf(f, "%u %15s %u %d %u %u %u %7s %u %u %lf", &c.number, backend, &c.o.nbits, &axis,
                  &c.o.q_group_size, &c.o.residual_length, &c.dim, type, &c.prompt, &c.steps,
                  &c.reference) == 11) {
        c.o.backend = strcmp(backend, "hqq") ? "quanto" : "hqq";
        c.o.axis_key = c.o.axis_value = axis;
        c.dtype = strcmp(type, "f32") == 0 ? DT_F32 : strcmp(type, "f16") == 0 ? DT_F16 : DT_BF16;
        double e = lost(&c);
        ours[c.number % KINDS] += e;
        theirs[c.number % KINDS] += c.reference;
        seen[c.number % KINDS]++;
        all += e;
        reference += c.reference;
        above += e > c.reference * 1.0001;
        worst = fmax(worst, e / c.reference);
        n++;
    }
    fclose(f);
    for (uint32_t k = 0; k < KINDS; k++)
        if (!seen[k] || ours[k] > theirs[k] * 1.0001)
            fail_msg("codec %u has error %g, the reference %g", k, ours[k] / seen[k],
                     theirs[k] / seen[k]);
    printf("%u tensors: mean loss %.5f, reference %.5f; above it by over 1e-4 of it in %u, at most "
           "%.3f times\n",
           n, all / n, reference / n, above, worst);
    assert_int_equal(n, 1000);
    assert_true(all < reference && worst < 1.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),      cmocka_unit_test(test_choices),
        cmocka_unit_test(test_groups_apart), cmocka_unit_test(test_strips),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
