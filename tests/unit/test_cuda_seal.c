/* test_cuda_seal.c - tiles that kernels of src/dev/cuda encode are those of the codecs, byte by byte, on the emulated device: over
 * types, layouts, sizes of blocks, leading rows, and rows with values that are huge, tiny, equal or not finite. */
#include "codecs.h"
#include "dev/dev.h"
#include "dev/reader.h"
#include "dev/row.h"
#include "emulated_library.h"
#include "kv/codec.h"

#include <math.h>

enum { HEADS = 2, LANES = 2, TILES = 2 };
static struct dev *dev;
static struct dev_queue *ref, *gpu;
static struct emulated_counts *counted; /* NULL: on a GPU */

struct spec {
    const char *codec;
    int32_t nbits, axis, group; /* -2: the codec has no such option */
    uint32_t dim, tile;         /* tile 0: the codec chooses */
    enum dtype type;
    bool key;
    uint32_t block, lead; /* rows of a raw block */
    uint32_t again;       /* the list of tiles comes so often more */
};

static uint32_t drawn = 1;
static float value(uint32_t row)
{
    static const float kind[] = {1, 1, 1, 1e-3f, 1e30f, 1e-30f, 0, 60000};
    drawn = drawn * 1664525u + 1013904223u;
    float x = (float)(int32_t)(drawn >> 8 & 0xffffu) / 8192.0f - 4.0f;
    if (row % 13 == 5 && drawn >> 28 == 3) return row % 2 ? NAN : -INFINITY;
    if (row % 29 == 8) return 0.75f; /* all values are equal */
    return x * kind[row / 3 % 8];
}

static struct kv_codec *codec_of(const struct spec *c, const struct kv_shape *s)
{
    struct kv_codec_options o;
    struct kv_codec *codec;
    assert_int_equal(kv_codec_usual(c->codec, &o), 0);
    const struct {
        const char *name;
        int32_t value;
    } set[] = {{"nbits", c->nbits}, {"axis", c->axis}, {"q_group_size", c->group}};
    for (size_t i = 0; i < countof(set); i++)
        if (set[i].value != -2) assert_int_equal(kv_codec_set(&o, set[i].name, set[i].value), 0);
    if (kv_codec_open(&o, s, c->key, c->tile, &codec) < 0) fail_msg("%s", err_last());
    return codec;
}

/* What both sides have: a view whose pages and arrays lie in one block each. */
struct world {
    struct kv_view v;
    uint32_t arrays[3 + LANES], table[2][LANES * 64];
    uint32_t *enc; /* [n_enc] pairs */
    size_t n_enc;
    unsigned char *raw, *sealed;
    size_t n_raw, n_sealed;
};

static void make(struct world *w, const struct spec *c, const struct kv_codec *codec,
                 const struct kv_shape *s)
{
    memset(w, 0, sizeof *w);
    struct kv_view *v = &w->v;
    uint32_t rows = codec->tile * TILES, pages = (rows + c->block - 1) / c->block;
    v->n_planes = 1;
    v->shape[0] = *s;
    v->codec[0] = codec;
    v->first = v->last = true;
    v->lead = c->lead;
    v->raw =
        (struct kv_form){.grain = (size_t)c->block * HEADS * c->dim * dtype_size(s->dtype) + 64,
                         .rows = c->block,
                         .stride = pages,
                         .table = w->table[0],
                         .offset = {32}};
    v->sealed = (struct kv_form){.grain = codec->bytes(codec, s) + 128,
                                 .rows = codec->tile,
                                 .stride = TILES,
                                 .table = w->table[1],
                                 .offset = {64}};
    for (uint32_t i = 0; i < LANES * pages; i++)
        w->table[0][i] = LANES * pages - i;
    for (uint32_t i = 0; i < LANES * TILES; i++)
        w->table[1][i] = 1 + (i + 1) % (LANES * TILES);
    w->arrays[0] = LANES;
    w->n_enc = (size_t)LANES * TILES * (c->again + 1);
    w->enc = malloc(w->n_enc * 2 * sizeof *w->enc);
    w->arrays[2] = (uint32_t)w->n_enc - (c->again ? 0 : 1); /* one tile is not sealed */
    v->counts = w->arrays;
    v->slot = w->arrays + 3;
    v->enc = w->enc;
    for (uint32_t i = 0; i < LANES; i++)
        w->arrays[3 + i] = LANES - 1 - i;
    for (uint32_t i = 0; i < w->n_enc; i++) { /* the last tile comes at the end only */
        uint32_t tile = i + LANES * TILES < w->n_enc ? 0 : i % (LANES * TILES);
        w->enc[2 * i] = tile % LANES;
        w->enc[2 * i + 1] = tile / LANES;
    }
    w->n_raw = (size_t)(LANES * pages + 1) * v->raw.grain;
    w->n_sealed = (size_t)(LANES * TILES + 1) * v->sealed.grain;
    w->raw = aligned_alloc(64, (w->n_raw + 63) / 64 * 64);
    w->sealed = aligned_alloc(64, (w->n_sealed + 63) / 64 * 64);
    memset(w->sealed, 0x5a, w->n_sealed);
    v->raw.base = w->raw;
    v->sealed.base = w->sealed;
    for (uint32_t page = 0; page <= LANES * pages; page++)
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t r = 0; r < c->block; r++)
                for (uint32_t d = 0; d < c->dim; d++)
                    kv_row_put(s->dtype,
                               w->raw + page * v->raw.grain + 32 +
                                   (size_t)h * c->block * c->dim * dtype_size(s->dtype),
                               kv_row_place(s, r, d), value(r + page));
}

static void *up(const void *host, size_t n)
{
    void *at = dev_mirror(gpu, host, n);
    assert_non_null(at);
    dev_put(gpu, at, host, n);
    return at;
}

/* Tiles of the two sides.  Which NaN a number is, is not part of the order (dev.h): those of type t are made one. */
static void one_nan(enum dtype t, unsigned char *p, size_t n)
{
    size_t size = dtype_size(t);
    for (size_t i = 0; i + size <= n; i += size)
        if (isnan(kv_row_get(t, p + i, 0))) memset(p + i, 0xff, size);
}

static void check(const struct spec *c)
{
    struct kv_shape s = {HEADS, c->dim, c->type, c->key ? KV_STRIPS : KV_ROWMAJOR};
    struct kv_codec *codec = codec_of(c, &s);
    struct world w;
    make(&w, c, codec, &s);
    struct kv_view there = w.v;
    there.raw.base = up(w.raw, w.n_raw);
    there.sealed.base = up(w.sealed, w.n_sealed);
    const struct {
        const uint32_t *host;
        size_t n;
    } block[] = {{w.arrays, countof(w.arrays)},
                 {w.table[0], LANES * 64},
                 {w.table[1], LANES * 64},
                 {w.enc, w.n_enc * 2}};
    for (size_t i = 0; i < countof(block); i++)
        there.block[i] = (struct kv_block){
            block[i].host, up(block[i].host, block[i].n * sizeof(uint32_t)), block[i].n};
    uint64_t waits = counted ? counted->waits : 0;
    dev_kv_seal(gpu, &there);
    if (counted) assert_int_equal(counted->waits, waits); /* the host has no part in it */
    unsigned char *got = malloc(w.n_sealed);
    dev_get(gpu, got, there.sealed.base, w.n_sealed);
    assert_int_equal(dev_finish(gpu), 0);
    dev_kv_seal(ref, &w.v);
    if (codec->reader == kv_read_affine) { /* ranges of groups with a NaN */
        one_nan(c->type, got, w.n_sealed);
        one_nan(c->type, w.sealed, w.n_sealed);
    }
    for (size_t i = 0; i < w.n_sealed; i++)
        if (got[i] != w.sealed[i])
            fail_msg(
                "%s, %d bits, axis %d, group %d, heads of %u, blocks of %u, lead %u, type %d: byte %zu of "
                "page %zu is %d, and the codec has %d",
                c->codec, c->nbits, c->axis, c->group, c->dim, c->block, c->lead, (int)c->type,
                i % w.v.sealed.grain, i / w.v.sealed.grain, got[i], w.sealed[i]);
    free(got);
    free(w.enc);
    free(w.raw);
    free(w.sealed);
    dev_mirror_close(gpu, there.raw.base, 0);
    dev_mirror_close(gpu, there.sealed.base, 0);
    for (size_t i = 0; i < countof(block); i++)
        dev_mirror_close(gpu, there.block[i].at, 0);
    kv_codec_close(codec);
}

static void test_groups(void **state)
{
    (void)state;
    for (int type = DT_F32; type <= DT_BF16; type++)
        for (int key = 0; key < 2; key++) {
            enum dtype t = (enum dtype)type;
            check(&(struct spec){"quanto", 4, 0, 64, 64, 0, t, key, 16, 0, 0});
            check(&(struct spec){"quanto", 2, 0, 16, 48, 16, t, key, 32, 0, 0});
            check(&(struct spec){"quanto", 4, 0, 20, 20, 0, t, key, 16, 1, 0});
            check(
                &(struct spec){"quanto", 2, 0, 144, 36, 0, t, key, 16, 3, 0}); /* a group is rows */
            check(&(struct spec){"quanto", 4, -1, 32, 24, 64, t, key, 16, 5,
                                 0}); /* a group is a channel */
            check(&(struct spec){"quanto", 2, -1, 8, 80, 0, t, key, 64, 4, 0});
            check(&(struct spec){"none", -2, -2, -2, 24, 64, t, key, 16, 4, 0});
            check(&(struct spec){"none", -2, -2, -2, 9, 16, t, key, 128, 0, 0});
        }
    /* more tiles than a grid has rows of blocks */
    check(&(struct spec){"quanto", 4, 0, 8, 8, 0, DT_F16, true, 16, 0, 70000 / (LANES * TILES)});
}

static void test_float8(void **state)
{
    (void)state;
    for (int type = DT_F32; type <= DT_BF16; type++)
        for (int key = 0; key < 2; key++) {
            enum dtype t = (enum dtype)type;
            check(&(struct spec){"fp8", -2, -2, -2, 64, 0, t, key, 16, 0, 0});
            check(&(struct spec){"fp8", -2, -2, -2, 9, 48, t, key, 16, 17, 0});
            check(&(struct spec){"fp8", -2, -2, -2, 20, 16, t, key, 32, 5, 0});
        }
}

static void test_levels(void **state)
{
    static const int32_t bits[] = {2, 3, 4, 8};
    static const uint32_t dims[] = {8, 27, 64, 80};
    (void)state;
    for (size_t b = 0; b < countof(bits); b++)
        for (int key = 0; key < 2; key++)
            for (size_t i = 0; i < countof(dims); i++) {
                enum dtype t = (enum dtype)(DT_F32 + (b + i) % 3);
                uint32_t block = i % 2 ? 16 : 256, lead = i == 3 ? 131 : i == 2 ? 4 : 0;
                check(&(struct spec){"kvik", bits[b], -2, -2, dims[i], i == 1 ? 256 : 0, t, key,
                                     block, lead, 0});
            }
    check(&(struct spec){"kvik", 4, -2, -2, 512, 0, DT_F16, true, 16, 4, 0});
}

static int open_all(void **state)
{
    (void)state;
    const struct dev_config c = {1, "ref"};
    struct dev_limits lim = {40, 512, 512, HEADS, 512, 512, 512};
    if (dev_queue_open(&dev_host, &c, &ref) < 0 || dev_reserve(ref, &lim) < 0) return -1;
    counted = emulated_counted();
    if (dev_open("cuda", &dev) < 0 || dev_queue_open(dev, &c, &gpu) < 0) {
        fprintf(stderr, "%s\n", err_last());
        exit(1); /* there is nothing to tear down */
    }
    return dev_reserve(gpu, &lim);
}

static int close_all(void **state)
{
    (void)state;
    dev_queue_close(gpu);
    dev_close(dev);
    dev_queue_close(ref);
    return 0;
}

static int run(const char *how)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups), cmocka_unit_test(test_float8),
                                       cmocka_unit_test(test_levels)};
    setenv("KVIK_EMULATED", how, 1);
    return cmocka_run_group_tests_name(how, tests, open_all, close_all);
}

/* "real": on the GPU of $KVIK_CUDA_LIBRARY. */
int main(int argc, char **argv)
{
    bool real = argc > 1 && strcmp(argv[1], "real") == 0;
    if (!real) emulated_choose(argc ? argv[0] : "");
    return run("late") + (real ? 0 : run("backwards"));
}
