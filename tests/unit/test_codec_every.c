/* test_codec_every.c - the requirements on every registered codec, in src/kv or in tests/codec,
 * without naming any: it describes itself completely, and its tiles are functions of their rows. */
#include "../codec/shuffle.h"
#include "dev/reader.h"
#include "kv/codec_affine.h"
#include "kv/image.h"
#include "test_codec.h"

#include <glob.h>
#include <math.h>

/* Describes a codec of the name "step" without its parameter. */
static int step_describe(const struct kv_codec *c, char *out, size_t n)
{
    return snprintf(out, n, "steps of %u", *(const uint32_t *)c->param);
}

static int endless(const struct kv_codec *c, char *out, size_t n)
{
    (void)c;
    return snprintf(out, n, "%*d", (int)KV_CODEC_TEXT, 7);
}

/* Returns the text of a group of these planes, which files compare. */
static int open_pair_text(const struct kv_codec *k, const struct kv_codec *v, struct kv_seal seal,
                          uint32_t dim, char text[KV_GROUP_TEXT])
{
    struct kv_group g = {
        .n_sites = 1,
        .rows = 16,
        .n_planes = 2,
        .seal = seal,
        .plane = {{"k", {1, dim, DT_F32, KV_STRIPS}, k}, {"v", {1, dim, DT_F32, KV_ROWMAJOR}, v}}};
    struct kv_config config = {.group = &g,
                               .n_groups = 1,
                               .max_seqs = 1,
                               .max_tokens = 16,
                               .max_len = 256,
                               .pool_bytes = 1 << 20};
    struct kv *kv;
    int e = kv_open(&kv, &config);
    if (e < 0) return e;
    kv_group_text(kv, 0, text);
    kv_close(kv);
    return 0;
}

static int open_with(const struct kv_codec *c, char text[KV_GROUP_TEXT])
{
    return open_pair_text(c, c, (struct kv_seal){.tile = c->tile}, 32, text);
}

/* Everything that decides bytes is part of the text that files compare; a codec that leaves
 * something out is refused. */
static void test_described(void **state)
{
    (void)state;
    static const uint32_t eight = 8, two = 2;
    char a[KV_GROUP_TEXT], b[KV_GROUP_TEXT];
    struct kv_codec c = kv_codec_shuffle;
    c.name = "step";
    assert_true(open_with(&c, a) >= 0);
    c.describe = NULL;
    assert_int_equal(open_with(&c, a), ERR_ARG);
    assert_non_null(strstr(err_last(), "step does not describe its parameters"));
    c.describe = endless;
    assert_int_equal(open_with(&c, a), ERR_ARG);
    c.describe = step_describe;
    c.param = &eight;
    assert_int_equal(open_with(&c, a), 0);
    c.param = &two;
    assert_int_equal(open_with(&c, b), 0);
    assert_string_not_equal(a, b);
    assert_non_null(strstr(b, "step steps of 2"));
}

/* Lists texts of one codec with every value of option i that one plane of heads of dim values can be opened with: all
 * differ. */
static uint32_t texts_of(const struct kv_codec_kind *kind, uint32_t i, int plane, uint32_t dim)
{
    static char seen[80][KV_GROUP_TEXT];
    const struct kv_codec_option *t = &kind->option[i];
    const struct kv_shape s[2] = {{1, dim, DT_F32, KV_STRIPS}, {1, dim, DT_F32, KV_ROWMAJOR}};
    uint32_t n = 0;
    for (int64_t x = t->min; x <= t->max && n < countof(seen);
         x = t->max - t->min <= 64 || x < 1 ? x + 1 : 2 * x) {
        struct kv_codec_pair o = {.residual_length = 8};
        struct kv_codec *k, *v;
        struct kv_seal seal;
        assert_int_equal(kv_codec_usual(kind->name, &o.plane[plane]), 0);
        assert_int_equal(kv_codec_set(&o.plane[plane], t->name, x), 0);
        if (kv_codec_pair_open(&o, &s[0], &s[1], &k, &v, &seal) < 0) continue;
        if (open_pair_text(k, v, seal, dim, seen[n]) < 0)
            fail_msg("%s: %s", kind->name, err_last());
        for (uint32_t j = 0; j < n; j++)
            if (strcmp(seen[j], seen[n]) == 0)
                fail_msg("%s: two values of %s make one text: %s", kind->name, t->name, seen[n]);
        n++;
        kv_codec_close(k);
        kv_codec_close(v);
    }
    return n;
}

/* Returns a size of heads that the codec stores with its usual values: 32, or another if it refuses that. */
static uint32_t dim_of(const struct kv_codec_kind *kind, int plane)
{
    static const uint32_t dims[] = {32, 64, 128, 16, 80, 96, CODEC_DIM_MOST};
    struct kv_codec_options o;
    for (size_t i = 0; i < countof(dims); i++)
        if (codec_fit(kind, false, plane, dims[i], &o)) return dims[i];
    fail_msg("%s: no size of heads from 16 to %d fits", kind->name, CODEC_DIM_MOST);
    return 0;
}

/* Every option of every registered codec is part of its description. */
static void test_options_described(void **state)
{
    (void)state;
    const struct kv_codec_kind *kind;
    for (uint32_t at = 0; (kind = kv_codec_at(at)); at++)
        for (uint32_t i = 0; i < kind->n_options; i++)
            for (int plane = 0; plane < 2; plane++)
                if (texts_of(kind, i, plane, dim_of(kind, plane)) < 2)
                    fail_msg("%s: option %s has one value only", kind->name, kind->option[i].name);
}

/* Quantizes one tile from one block or from several, into memory with other previous contents. */
static void encode_twice(const struct kv_codec *c, const struct kv_shape *s, const char *what)
{
    uint32_t block = MAX(c->tile, 16u), parts = block / 16;
    size_t size = dtype_size(s->dtype), head = (size_t)16 * s->dim * size, n = c->bytes(c, s);
    unsigned char *whole = malloc(parts * s->heads * head), *cut = malloc(parts * s->heads * head);
    unsigned char *a = malloc(n), *b = malloc(n);
    const void *one = whole, *many[AFFINE_MOST / 16];
    for (size_t i = 0; i < parts * s->heads * head / size; i++)
        put(s->dtype, whole, i, uniform());
    for (uint32_t p = 0; p < parts; p++) {
        many[p] = cut + p * s->heads * head;
        for (uint32_t h = 0; h < s->heads; h++)
            memcpy(cut + (p * s->heads + h) * head, whole + (h * parts + p) * head, head);
    }
    memset(a, 0x00, n);
    memset(b, 0xff, n);
    kv_tile_encode(c, s, a, &one, block, 0, 0);
    kv_tile_encode(c, s, b, many, 16, 0, 0);
    if (memcmp(a, b, n)) fail_msg("%s: a tile depends on blocks or on what was there", what);
    free(whole);
    free(cut);
    free(a);
    free(b);
}

/* A tile is a function of its rows from `lead` on. Dequantizing writes only its own rows, and
 * exactly if the codec says so. */
static void tile_contract(const struct kv_codec *c, const struct kv_shape *s, const char *what)
{
    uint32_t n = c->tile * s->dim, all = s->heads * n, lead = c->tile / 2;
    size_t row = s->dim * dtype_size(s->dtype), rows = 3 * (size_t)MAX(c->tile, 16u);
    float *x = calloc(all, 4), *y = calloc(all, 4), *z = calloc(all, 4);
    for (uint32_t i = 0; i < all; i++) {
        uint16_t h = half_f32_to_bf16(uniform());
        x[i] = half_bf16_to_f32(h & 0xfff0); /* the value is exact in every type */
    }
    through(c, s, x, 0, y);
    if (c->lossless) assert_memory_equal(x, y, all * sizeof *x);
    through(c, s, x, lead, y);
    for (uint32_t i = 0; i < all; i++)
        if (i % n / s->dim < lead) x[i] = i & 1 ? NAN : 3e4f;
    through(c, s, x, lead, z);
    for (uint32_t i = 0; i < all; i++)
        if (i % n / s->dim >= lead && memcmp(&y[i], &z[i], 4))
            fail_msg("%s: row %u depends on leading rows", what, i % n / s->dim);
    unsigned char *tile = calloc(1, c->bytes(c, s)), *to = malloc(rows * row);
    memset(to, 0x55, rows * row);
    uint32_t first = MAX(c->tile, 16u);
    c->decode(c, s, s->heads - 1, to, first, tile);
    for (size_t r = 0; r < rows; r++)
        for (uint32_t d = 0; d < s->dim; d++) {
            size_t size = dtype_size(s->dtype), at = at_of(s, (uint32_t)rows, 0, (uint32_t)r, d);
            bool mine = r >= first && r < first + c->tile;
            if (!mine && (to[at * size] != 0x55 || to[at * size + size - 1] != 0x55))
                fail_msg("%s: decoding rows from %u wrote row %zu", what, first, r);
        }
    free(tile);
    free(to);
    free(x);
    free(y);
    free(z);
}

/* A row with a NaN has one after it was stored, wherever in the tile it lies. */
static void nan_shows(const struct kv_codec *c, const struct kv_shape *s, const char *what)
{
    uint32_t dim = s->dim, all = s->heads * c->tile * dim;
    float *x = calloc(all, 4), *y = calloc(all, 4);
    for (uint32_t i = 0; i < all; i++)
        x[i] = uniform();
    for (uint32_t r = 0; r < c->tile; r += 1 + c->tile / 16) {
        float *row = x + (size_t)r * dim, before = row[r % dim];
        bool shows = false;
        row[r % dim] = NAN;
        through(c, s, x, 0, y);
        for (uint32_t d = 0; d < dim; d++)
            shows |= isnan(y[(size_t)r * dim + d]);
        if (!shows) fail_msg("%s: row %u of %u had a NaN, and has none", what, r, c->tile);
        row[r % dim] = before;
    }
    free(x);
    free(y);
}

/* Runs all requirements on one variant with heads of dim values of one type. A codec may refuse the type; returns
 * false then. */
static bool every_requirement(const struct codec_variant *v, uint32_t dim, enum dtype type)
{
    struct kv_shape s[2] = {{3, dim, type, KV_STRIPS}, {3, dim, type, KV_ROWMAJOR}};
    struct kv_codec *c[2];
    struct kv_seal seal;
    int e = kv_codec_pair_open(&v->pair, &s[0], &s[1], &c[0], &c[1], &seal);
    if (e == ERR_ARG && type != DT_F32) return false;
    if (e < 0) fail_msg("%s: %s", v->name, err_last());
    for (int p = 0; p < 2; p++) {
        assert_int_equal(c[p]->tile, seal.tile);
        assert_true(seal.lead >= c[p]->lead &&
                    (c[p]->reader != kv_read_in_place || c[p]->tile % 16 == 0));
        encode_twice(c[p], &s[p], v->name);
        tile_contract(c[p], &s[p], v->name);
        nan_shows(c[p], &s[p], v->name);
        kv_codec_close(c[p]);
    }
    return true;
}

/* Runs all requirements on every registered codec, with every variant of its options. */
static void test_every_codec(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    struct codec_variant v;
    uint32_t variants = codec_variants(), ran = 0, refused = 0, kinds = 0;
    for (uint32_t i = 1; i < variants; i++) {
        uint32_t dim = codec_dim(i, 32, &v);
        for (int t = 0; t < 3; t++)
            *(every_requirement(&v, dim, types[t]) ? &ran : &refused) += 1;
    }
    while (kv_codec_at(kinds))
        kinds++;
    assert_true(kinds >= 5);
    assert_int_equal(ran + refused,
                     3 * 5 * (kinds - 1)); /* every codec but "none": five variants */
    assert_true(ran >= 5 * (kinds - 1));
    printf("%u variants of %u codecs; %u row types run, %u refused\n", variants - 1, kinds - 1, ran,
           refused);
}

/* Returns the number of lines of the files that register a codec. */
static uint32_t registrations(const char *pattern)
{
    char line[512];
    uint32_t n = 0;
    glob_t g;
    assert_int_equal(glob(pattern, GLOB_ERR, NULL, &g), 0);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        FILE *f = fopen(g.gl_pathv[i], "r");
        assert_non_null(f);
        while (fgets(line, sizeof line, f))
            n += strncmp(line, "KV_CODEC(", 9) == 0;
        fclose(f);
    }
    globfree(&g);
    return n;
}

/* The registry has every codec that a source file registers. */
static void test_registry(void **state)
{
    (void)state;
    uint32_t n = 0;
    while (kv_codec_at(n))
        n++;
    assert_int_equal(n, registrations("src/kv/*.c") + registrations("tests/codec/*.c"));
}

/* Appends a line without blanks and comments; *in: inside a comment. */
static void squeeze(char *to, size_t *n, size_t room, const char *line, bool *in)
{
    for (; *line && *n + 1 < room; line++) {
        if (strncmp(line, *in ? "*/" : "/*", 2) == 0) {
            *in = !*in;
            line++;
        } else if (!*in && !strchr(" \t\r\n", *line)) {
            to[(*n)++] = *line;
        }
    }
    to[*n] = '\0';
}

/* Reads a file of C without blanks and comments. */
static void source(const char *path, char *to, size_t room)
{
    char line[512];
    size_t n = 0;
    bool in = false;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        squeeze(to, &n, room, line, &in);
    fclose(f);
    assert_true(n + 1 < room);
}

static bool in_tests(const char *block)
{
    static char all[1 << 15];
    glob_t g;
    bool found = false;
    assert_int_equal(glob("tests/codec/*.c", GLOB_ERR, NULL, &g), 0);
    for (size_t i = 0; i < g.gl_pathc && !found; i++) {
        source(g.gl_pathv[i], all, sizeof all);
        found = strstr(all, block) != NULL;
    }
    globfree(&g);
    return found;
}

/* The code of the guide is that of files that compile: each paragraph of it stands in one of tests/codec. */
static void test_guide(void **state)
{
    (void)state;
    char line[512], block[4096] = "";
    size_t n = 0, blocks = 0;
    bool in = false;
    FILE *f = fopen("docs/ADDING-A-CODEC.md", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "    ", 4) == 0) {
            squeeze(block, &n, sizeof block, line, &in);
            continue;
        }
        if (n && !in_tests(block)) fail_msg("docs/ADDING-A-CODEC.md has its own code: %s", block);
        blocks += n > 0;
        n = 0;
        block[0] = '\0';
    }
    fclose(f);
    assert_true(blocks >= 4);
}

static void zeros(struct affine_group *g)
{
    memset(g->q, 0, g->n);
    g->a = g->b = 0;
}

/* A codec with an option for bits cannot store codes that the layout of tiles lacks. */
static void test_bits(void **state)
{
    (void)state;
    const struct kv_shape s = {1, 32, DT_F32, KV_ROWMAJOR};
    for (uint32_t bits = 0; bits <= 32; bits++) {
        const struct affine_spec spec = {
            .name = "some", .bits = bits, .group = 16, .axis = "keys", .quantize = zeros};
        struct kv_codec *c = NULL;
        int e = affine_open(&spec, &s, 0, &c);
        bool has = bits == 1 || bits == 2 || bits == 3 || bits == 4 || bits == 8;
        if (e != (has ? 0 : ERR_ARG)) fail_msg("%u bits: %d", bits, e);
        if (has) kv_codec_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_described),   cmocka_unit_test(test_options_described),
        cmocka_unit_test(test_every_codec), cmocka_unit_test(test_registry),
        cmocka_unit_test(test_bits),        cmocka_unit_test(test_guide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
