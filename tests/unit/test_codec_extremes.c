/* test_codec_extremes.c - readers that sum, with rows and queries that no model has in its ordinary hours: zeros, the
 * smallest and the largest values, single channels, infinities and NaN; heads of odd sizes; pieces that begin and end
 * anywhere. Every instruction set gives the bits of the scalar reference and writes nothing else. Under `kvik` a row
 * that is not finite shows in its own scores alone. */
#include "dev/reader.h"
#include "test_codec.h"

#include <math.h>

enum { QUERIES = 53 }; /* more than kernels take at once */

static float top_of(enum dtype t)
{
    return t == DT_F16 ? 65504.0f : 0x1p100f; /* of which sums are finite */
}

static float value_of(enum dtype t, uint32_t r, uint32_t d)
{
    switch (r % 19) {
    case 0:
        return 0;
    case 1:
        return d % 3 ? 6e-8f : -6e-8f;
    case 2:
        return 1e-30f * uniform();
    case 3:
        return d == 3 ? top_of(t) : 0;
    case 4:
        return d % 2 ? 240.0f : -240.0f;
    case 5:
        return 1;
    case 6:
        return 30000 * uniform();
    case 7:
        return d == 1 ? 1e-5f : 0;
    default:
        return uniform();
    }
}

/* A tile of 64-byte lines and no byte more. */
static unsigned char *tile_of(const struct kv_codec *c, const struct kv_shape *s, bool bad)
{
    size_t bytes = c->bytes(c, s), n = (size_t)c->tile * s->dim;
    unsigned char *tile = aligned_alloc(64, (bytes + 63) / 64 * 64);
    void *raw = calloc(n, dtype_size(s->dtype));
    const void *blocks = raw;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = i / s->dim, d = i % s->dim;
        float x = value_of(s->dtype, r, d);
        if (bad && r == 37 && d == 2) x = NAN;
        if (bad && r == 70 && d == 5) x = -INFINITY;
        put(s->dtype, raw, at_of(s, c->tile, 0, r, d), x);
    }
    kv_tile_encode(c, s, tile, &blocks, c->tile, 0, c->lead);
    free(raw);
    return tile;
}

static float query_of(uint32_t i, uint32_t d)
{
    static const float size[] = {1, 0, 1e30f, 1e-38f, 300, 1e-20f};
    float x = uniform();
    if (i == 7 && d == 3) return NAN;
    if (i == 8 && d == 4) return INFINITY;
    if (i == 9) return d == 5 ? 1e4f : 0;
    return x * size[i < 6 ? i : 0];
}

static void same_floats(const float *want, const float *got, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(want + i, got + i, 4) != 0 && !(isnan(want[i]) && isnan(got[i])))
            fail_msg("%s: value %zu is %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
}

/* Scores of a piece by one instruction set; p: [QUERIES][tile + 1]. */
static void score_with(const struct kv_reading *r, const struct kv_piece *at, const float *q,
                       uint32_t n, float *p)
{
    uint32_t dim = r->shape->dim, ld = r->codec->tile + 1;
    float *room = malloc(n * dim * sizeof *room);
    memset(p, 0, (size_t)QUERIES * ld * sizeof *p);
    for (uint32_t i = 0; i < n; i++)
        if (r->reader->query)
            r->reader->query(r, q + i * dim, room + i * dim);
        else
            memcpy(room + i * dim, q + i * dim, dim * sizeof *room);
    r->reader->score(r, at, room, n, 0.125f, p, ld);
    free(room);
}

static void check_scores(const struct kv_reading *ref, const struct kv_reading *by,
                         const struct kv_piece *at, bool bad, bool alone, const char *what)
{
    uint32_t dim = ref->shape->dim, ld = ref->codec->tile + 1;
    float *q = malloc(QUERIES * dim * sizeof *q);
    float *want = malloc(QUERIES * ld * sizeof *want), *got = malloc(QUERIES * ld * sizeof *got);
    for (uint32_t i = 0; i < QUERIES * dim; i++)
        q[i] = query_of(i / dim, i % dim);
    score_with(ref, at, q, QUERIES, want);
    score_with(by, at, q, QUERIES, got);
    same_floats(want, got, QUERIES * ld, what);
    for (uint32_t j = at->r0; alone && j < at->r1; j++) /* of an ordinary query */
        if (isnan(want[j - at->r0]) != (bad && (j == 37 || j == 70)))
            fail_msg("%s: row %u has a score of %g", what, j, (double)want[j - at->r0]);
    score_with(by, at, q + (QUERIES - 1) * dim, 1, got);
    same_floats(want + (QUERIES - 1) * ld, got, at->r1 - at->r0, what);
    free(q);
    free(want);
    free(got);
}

/* Sums of a piece by one instruction set. */
static void add_with(const struct kv_reading *r, const struct kv_piece *at, const float *p,
                     uint32_t n, float *o)
{
    uint32_t dim = r->shape->dim;
    for (uint32_t i = 0; i < n * dim; i++)
        o[i] = (float)(i % dim % 7) - 3;
    r->reader->add(r, at, p, r->codec->tile, n, o, dim);
    for (uint32_t i = 0; r->reader->end && i < n; i++)
        r->reader->end(r, o + i * dim);
}

static void check_sums(const struct kv_reading *ref, const struct kv_reading *by,
                       const struct kv_piece *at, bool bad, bool alone, const char *what)
{
    uint32_t dim = ref->shape->dim, tile = ref->codec->tile;
    float *p = malloc(QUERIES * tile * sizeof *p);
    float *want = malloc(QUERIES * dim * sizeof *want), *got = malloc(QUERIES * dim * sizeof *got);
    for (uint32_t i = 0; i < QUERIES * tile; i++)
        p[i] = i / tile == 1 ? 1 : i / tile == 2 ? 0 : i % 5 ? fabsf(uniform()) : 1e-9f;
    bool shown = bad && ((at->r0 <= 37 && at->r1 > 37) || (at->r0 <= 70 && at->r1 > 70));
    add_with(ref, at, p, QUERIES, want);
    add_with(by, at, p, QUERIES, got);
    same_floats(want, got, QUERIES * dim, what);
    for (uint32_t d = 0; alone && d < dim; d++)
        if (isnan(want[d]) != shown)
            fail_msg("%s: a sum of %g, with a NaN %s", what, (double)want[d],
                     shown ? "in sight" : "out of sight");
    add_with(by, at, p + (QUERIES - 1) * tile, 1, got);
    same_floats(want + (QUERIES - 1) * dim, got, dim, what);
    free(p);
    free(want);
    free(got);
}

static void check_plane(const struct kv_codec *c, const struct kv_shape *s, uint32_t plane,
                        bool bad, const char *what)
{
    const uint32_t t = c->tile, lead = c->lead;
    const uint32_t piece[][2] = {{lead, t}, {t / 3, t / 3 + 1}, {t - 1, t}, {17, t - 7}, {36, 39}};
    const bool alone = !strcmp(c->name, "kvik");
    unsigned char *tile = tile_of(c, s, bad);
    struct kv_reading ref = kv_reading(c, s, DEV_REF);
    for (int isa = 0; isa < DEV_ISAS; isa++) {
        char name[300];
        struct kv_reading by = kv_reading(c, s, (enum dev_isa)isa);
        if (!dev_isa_supported((enum dev_isa)isa) || by.reader == ref.reader ||
            by.reader == kv_reading(c, s, (enum dev_isa)(isa - 1)).reader)
            continue;
        for (uint32_t i = 0; i < countof(piece); i++) {
            if (piece[i][0] < lead || piece[i][0] >= piece[i][1] || piece[i][1] > t) continue;
            struct kv_piece at = {.tile = {tile}, .r0 = piece[i][0], .r1 = piece[i][1]};
            snprintf(name, sizeof name, "%s, %s, rows %u to %u of %u%s", what, dev_isa_names()[isa],
                     at.r0, at.r1, t, bad ? " with NaN" : "");
            if (plane)
                check_sums(&ref, &by, &at, bad, alone, name);
            else
                check_scores(&ref, &by, &at, bad, alone, name);
        }
    }
    free(tile);
}

static bool sums(const struct kv_codec *c, uint32_t plane)
{
    return c->reader &&
           (plane ? c->reader[DEV_REF]->add != NULL : c->reader[DEV_REF]->score != NULL);
}

static uint32_t check_kind(const struct kv_codec_kind *kind, uint32_t dim, enum dtype t)
{
    int at = kv_codec_option_at(kind, "nbits");
    uint32_t n = 0;
    for (uint32_t plane = 0; plane < 2; plane++)
        for (int32_t bits = 1; bits <= (at < 0 ? 1 : 8); bits++) { /* once without the option */
            struct kv_codec_options o;
            struct kv_codec *c;
            char what[100];
            const struct kv_shape s = {1, dim, t, plane ? KV_ROWMAJOR : KV_STRIPS};
            assert_int_equal(kv_codec_usual(kind->name, &o), 0);
            if (at >= 0 && (bits < kind->option[at].min || bits > kind->option[at].max)) continue;
            if (at >= 0) o.value[at] = bits;
            if (!codec_opens(&o, (int)plane, dim)) continue;
            assert_int_equal(kv_codec_open(&o, &s, !plane, 0, &c), 0);
            snprintf(what, sizeof what, "%s %d bits, dim %u, %s of %s", kind->name, (int)bits, dim,
                     plane ? "values" : "keys", dtype_name(t));
            for (int bad = 0; bad < 2 && sums(c, plane); bad++, n++)
                check_plane(c, &s, plane, bad, what);
            kv_codec_close(c);
        }
    return n;
}

static void test_extremes(void **state)
{
    (void)state;
    static const uint32_t dims[] = {8, 33, 100, 10, 512, 12, 64, 72, 128, 500};
    const size_t n_dims = test_share() > 1 ? 3 : getenv("KVIK_TEST_LONG") ? countof(dims) : 5;
    static const enum dtype types[] = {DT_F16, DT_F32, DT_BF16};
    const struct kv_codec_kind *kind;
    uint32_t n = 0;
    for (uint32_t i = 0; (kind = kv_codec_at(i)); i++)
        for (uint32_t k = 0; k < n_dims; k++)
            n += check_kind(kind, dims[k], types[(i + k) % 3]);
    assert_true(n >= n_dims * 2);
}

/* Rows of one size each, from the smallest to the largest that a float holds, come back nearly as they were, and as long. */
static void test_sizes(void **state)
{
    (void)state;
    enum { DIM = 64, ROWS = 128 };
    static float x[ROWS * DIM], y[ROWS * DIM];
    const struct kv_shape s = {1, DIM, DT_F32, KV_ROWMAJOR};
    for (int32_t bits = 2; bits <= 8; bits++) {
        struct kv_codec_options o;
        struct kv_codec *c;
        assert_int_equal(kv_codec_usual("kvik", &o), 0);
        assert_int_equal(kv_codec_set(&o, "nbits", bits), 0);
        if (!codec_opens(&o, 1, DIM)) continue;
        assert_int_equal(kv_codec_open(&o, &s, false, 0, &c), 0);
        assert_int_equal(c->tile, ROWS);
        for (uint32_t i = 0; i < ROWS * DIM; i++)
            x[i] = ldexpf(uniform(), (int)(i / DIM) * 2 - 132); /* 2^-132 to 2^122 */
        through(c, &s, x, c->lead, y);
        for (uint32_t r = c->lead; r < ROWS; r++) {
            double off = 0, all = 0, got = 0;
            for (uint32_t i = r * DIM; i < (r + 1) * DIM; i++) {
                got += (double)y[i] * (double)y[i];
                off += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
                all += (double)x[i] * (double)x[i];
            }
            bool lost = r < 24; /* below 2^-84, where nothing counts */
            if (!lost && off > 0.25 * all)
                fail_msg("%d bits, row %u: off by %.2f of its length", (int)bits, r,
                         sqrt(off / all));
            if (!lost && fabs(sqrt(got / all) - 1) > 0.01) /* bf16 rounds the scale by 0.4 % */
                fail_msg("%d bits, row %u: %.3f times as long", (int)bits, r, sqrt(got / all));
        }
        kv_codec_close(c);
    }
}

/* A value row that is far larger than its neighbours takes nothing from their sum, whether a query attends to it or not. */
static void test_outlier(void **state)
{
    (void)state;
    enum { DIM = 64, ROWS = 128, HUGE_ROW = 50, TINY_ROW = 90 };
    static const float sizes[] = {1, 10, 100, 1e3f, 1e6f, 1e15f};
    static float x[ROWS * DIM], y[ROWS * DIM];
    const struct kv_shape s = {1, DIM, DT_F32, KV_ROWMAJOR};
    for (uint32_t k = 0; k < countof(sizes); k++) {
        struct kv_codec_options o;
        struct kv_codec *c;
        float p[ROWS], out[DIM] = {0};
        double off = 0, all = 0;
        assert_int_equal(kv_codec_usual("kvik", &o), 0);
        assert_int_equal(kv_codec_set(&o, "nbits", 8), 0);
        assert_int_equal(kv_codec_open(&o, &s, false, 0, &c), 0);
        for (uint32_t i = 0; i < ROWS * DIM; i++)
            x[i] = uniform() * (i / DIM == HUGE_ROW   ? sizes[k]
                                : i / DIM == TINY_ROW ? 1 / sizes[k]
                                                      : 1);
        through(c, &s, x, 0, y);
        unsigned char *tile = aligned_alloc(64, (c->bytes(c, &s) + 63) / 64 * 64);
        const void *blocks = x;
        kv_tile_encode(c, &s, tile, &blocks, ROWS, 0, 0);
        for (uint32_t r = 0; r < ROWS; r++)
            p[r] = r == HUGE_ROW ? 0 : fabsf(uniform());
        struct kv_reading by = kv_reading(c, &s, DEV_REF);
        struct kv_piece at = {.tile = {tile}, .r1 = ROWS};
        by.reader->add(&by, &at, p, ROWS, 1, out, DIM);
        by.reader->end(&by, out);
        for (uint32_t d = 0; d < DIM; d++) {
            double want = 0;
            for (uint32_t r = 0; r < ROWS; r++)
                want += (double)p[r] * (double)y[r * DIM + d];
            off += (out[d] - want) * (out[d] - want);
            all += want * want;
        }
        if (!(off < 1e-6 * all))
            fail_msg("a row %g times its neighbours: their sum is off by %.2g of its length",
                     (double)sizes[k], sqrt(off / all));
        free(tile);
        kv_codec_close(c);
    }
}

/* Restores keys x[rows][dim] by codec kvik, and returns the largest error of a row in the length of its part that differs from
 * `common`.  Rows that are not finite must come back so and do not count. */
static double worst_of(const float *x, float common, uint32_t dim, int32_t bits)
{
    const struct kv_shape s = {1, dim, DT_F32, KV_STRIPS};
    struct kv_codec_options o;
    struct kv_codec *c;
    double worst = 0;
    assert_int_equal(kv_codec_usual("kvik", &o), 0);
    assert_int_equal(kv_codec_set(&o, "nbits", bits), 0);
    assert_int_equal(kv_codec_open(&o, &s, true, 0, &c), 0);
    float *y = malloc((size_t)c->tile * dim * sizeof *y);
    through(c, &s, x, c->lead, y);
    for (uint32_t r = c->lead; r < c->tile; r++) {
        double off = 0, own = 0;
        for (uint32_t i = r * dim; i < (r + 1) * dim; i++) {
            off += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
            own += ((double)x[i] - (double)common) * ((double)x[i] - (double)common);
        }
        if (isfinite(own))
            worst = isfinite(off) ? fmax(worst, sqrt(off / own)) : INFINITY;
        else
            assert_false(isfinite(off));
    }
    free(y);
    kv_codec_close(c);
    return worst;
}

/* Keys lose what all of them share, even where some rows are not finite.  Rows whose sum overflows have no mean, and are
 * stored without it. */
static void test_mean(void **state)
{
    (void)state;
    enum { DIM = 64, ROWS = 128 };
    static const int32_t bits[] = {2, 3, 4, 8};
    static float x[ROWS * DIM];
    for (uint32_t i = 0; i < countof(bits); i++) {
        for (uint32_t k = 0; k < ROWS * DIM; k++)
            x[k] = 100 + uniform();
        x[37 * DIM + 2] = NAN;
        x[70 * DIM + 5] = INFINITY;
        double worst = worst_of(x, 100, DIM, bits[i]);
        if (worst > 0.6) fail_msg("%d bits: off by %.2f of a row", (int)bits[i], worst);
        for (uint32_t k = 0; k < ROWS * DIM; k++)
            x[k] = ldexpf(1 + uniform(), 122);
        worst = worst_of(x, 0, DIM, bits[i]);
        if (worst > 0.6) fail_msg("%d bits, large: off by %.2f of a row", (int)bits[i], worst);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_sizes), cmocka_unit_test(test_outlier),
                                       cmocka_unit_test(test_mean)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
