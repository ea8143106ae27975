/* test_float8.c - the codec fp8 against torch and the fp8 layer of Transformers (tests/fixtures/codec/make_float8.py): every code, the
 * numbers around every middle, whole tensors; then kernels against the scalar reference, tiles that do not touch each other, and
 * what it refuses. */
#include "dev/float8.h"
#include "dev/reader.h"
#include "fmt/fmt.h"
#include "test_codec.h"

#include <float.h>
#include <math.h>

#define FIXTURE "tests/fixtures/codec/float8.safetensors"
static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};

static const void *stored(const struct safetensors *f, const char *name, size_t n)
{
    const struct tensor *t = safetensors_find(f, name);
    if (!t || t->dim[0] != n) fail_msg("%s: %s is missing or of another size", FIXTURE, name);
    return t->data;
}

static struct kv_codec *opened(const struct kv_shape *s, uint32_t tile)
{
    struct kv_codec_options o;
    struct kv_codec *c = NULL;
    assert_int_equal(kv_codec_usual("fp8", &o), 0);
    assert_int_equal(kv_codec_open(&o, s, s->layout == KV_STRIPS, tile, &c), 0);
    return c;
}

static void same(float got, float want, const char *what, size_t i)
{
    if (isnan(want) ? isnan(got) : memcmp(&got, &want, 4) == 0) return;
    fail_msg("%s %zu is %a, torch has %a", what, i, (double)got, (double)want);
}

static void test_numbers(void **state)
{
    (void)state;
    struct safetensors *f;
    assert_int_equal(safetensors_open(FIXTURE, &f), 0);
    const float *value = stored(f, "values", 256);
    for (uint32_t i = 0; i < 256; i++) {
        same(float8_value((uint8_t)i), value[i], "value", i);
        if (!isnan(value[i])) assert_int_equal(float8_code(value[i]), i);
    }
    const struct tensor *x = safetensors_find(f, "inputs");
    const uint8_t *code = stored(f, "codes", x->dim[0]);
    assert_true(x->dim[0] > 1000);
    for (size_t i = 0; i < x->dim[0]; i++) {
        float in = ((const float *)x->data)[i];
        if (float8_code(in) != code[i])
            fail_msg("%a has code %#x, torch has %#x", (double)in, float8_code(in), code[i]);
    }
    safetensors_close(f);
}

/* A first update of 16 rows of one head has one scale in both, so all bits are equal. */
static void test_tensors(void **state)
{
    (void)state;
    enum { ROWS = 16, DIM = 48, N = ROWS * DIM };
    struct safetensors *f;
    assert_int_equal(safetensors_open(FIXTURE, &f), 0);
    for (int mix = 0; mix < 6; mix++) {
        enum dtype t = types[mix % 3];
        static const char *const name[] = {"F32", "F16", "BF16"};
        char key[32];
        struct kv_shape s = {1, DIM, t, mix / 3 ? KV_ROWMAJOR : KV_STRIPS};
        struct kv_codec *c = opened(&s, 0);
        float x[N], y[N], scale;
        unsigned char tile[4 + N], raw[4 * N];
        snprintf(key, sizeof key, "%s.x", name[mix % 3]);
        const void *in = stored(f, key, N), *block = raw;
        for (uint32_t i = 0; i < N; i++) {
            x[i] = kv_row_get(t, in, i);
            put(t, raw, at_of(&s, ROWS, 0, i / DIM, i % DIM), x[i]);
        }
        assert_int_equal(c->bytes(c, &s), sizeof tile);
        kv_tile_encode(c, &s, tile, &block, ROWS, 0, 0);
        snprintf(key, sizeof key, "%s.scale", name[mix % 3]);
        memcpy(&scale, tile, 4);
        same(scale, *(const float *)stored(f, key, 1), "scale", 0);
        snprintf(key, sizeof key, "%s.codes", name[mix % 3]);
        const uint8_t *code = stored(f, key, N);
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(tile[4 + at_of(&s, ROWS, 0, i / DIM, i % DIM)], code[i]);
        through(c, &s, x, 0, y);
        snprintf(key, sizeof key, "%s.y", name[mix % 3]);
        const void *want = stored(f, key, N);
        for (uint32_t i = 0; i < N; i++)
            same(y[i], kv_row_get(t, want, i), "value", i);
        kv_codec_close(c);
    }
    safetensors_close(f);
}

/* All codes with scales of all sizes, on a hand-made tile: every kernel has the scalar reference's bits, and so has decode. */
static void test_kernels(void **state)
{
    (void)state;
    static const float scales[] = {1, 0.01f, 0x1.fffffep-100f, FLT_MIN, 0x1.fp118f, 0, NAN};
    for (size_t n = 0; n < countof(scales) * 6; n++) {
        enum dtype t = types[n % 3];
        struct kv_shape s = {2, 20, t, n / 3 % 2 ? KV_ROWMAJOR : KV_STRIPS};
        struct kv_codec *c = opened(&s, 48);
        size_t bytes = c->bytes(c, &s), size = dtype_size(t), strip = (size_t)16 * s.dim * size;
        unsigned char *tile = malloc(bytes), *want = malloc(3 * strip), *got = malloc(3 * strip);
        for (size_t i = 0; i < bytes; i++)
            tile[i] = (unsigned char)(i * 7 + i / 256);
        for (uint32_t u = 0; u < 6; u++)
            memcpy(tile + 4 * u, &scales[(n / 6 + u) % countof(scales)], 4);
        c->decode(c, &s, 1, want, 0, tile);
        for (int isa = DEV_REF; isa < DEV_ISAS; isa++) {
            if (!dev_isa_supported((enum dev_isa)isa)) continue;
            struct kv_reading by = kv_reading(c, &s, (enum dev_isa)isa);
            struct kv_piece p = {.tile = {tile}, .head = 1, .r0 = 5, .r1 = 48};
            memset(got, 0x55, 3 * strip);
            assert_ptr_equal(by.reader->strips(&by, &p, got), got);
            for (size_t i = 0; i < 3 * strip / size; i++) {
                float a = kv_row_get(t, got, i), b = kv_row_get(t, want, i);
                if (memcmp(got + i * size, want + i * size, size) && !(isnan(a) && isnan(b)))
                    fail_msg("isa %d, case %zu: value %zu is %a, wants %a", isa, n, i, (double)a,
                             (double)b);
            }
        }
        free(tile);
        free(want);
        free(got);
        kv_codec_close(c);
    }
}

/* 16 rows of a head share a scale with nothing else: not with rows that stay raw, other heads or other rows. */
static void test_apart(void **state)
{
    (void)state;
    enum { DIM = 24, TILE = 32, N = TILE * DIM, LEAD = 5 };
    for (int mix = 0; mix < 6; mix++) {
        struct kv_shape s = {2, DIM, types[mix % 3], mix / 3 ? KV_ROWMAJOR : KV_STRIPS};
        struct kv_codec *c = opened(&s, TILE);
        float x[2 * N], y[2 * N], z[2 * N];
        static const float bad[] = {NAN, INFINITY, -INFINITY, 3e4f};
        for (uint32_t i = 0; i < 2 * N; i++)
            x[i] = uniform();
        through(c, &s, x, 0, y);
        for (uint32_t i = 0; i < 2 * N; i++)
            assert_true(fabsf(y[i] - x[i]) <= fabsf(x[i]) / 16 + 0.005f);
        for (size_t b = 0; b < countof(bad); b++) {
            uint32_t at = N + 20 * DIM + 3, other = 0; /* the second unit of the second head */
            float was = x[at];
            x[at] = bad[b];
            through(c, &s, x, 0, z);
            x[at] = was;
            for (uint32_t i = 0; i < 2 * N; i++)
                if (i < N + 16 * DIM)
                    assert_memory_equal(&y[i], &z[i], 4);
                else
                    other += isnan(z[i]);
            assert_int_equal(other, b < 3 ? 16 * DIM : 0);
        }
        through(c, &s, x, LEAD, y);
        for (uint32_t i = 0; i < 2 * N; i++)
            if (i % N / DIM < LEAD) x[i] = i & 1 ? NAN : 3e4f;
        through(c, &s, x, LEAD, z);
        for (uint32_t i = 0; i < 2 * N; i++)
            if (i % N / DIM >= LEAD) assert_memory_equal(&y[i], &z[i], 4);
        kv_codec_close(c);
    }
}

/* It seals whatever an update has; with a codec for the other plane that gathers rows, that one's length holds. */
static void test_schedule(void **state)
{
    (void)state;
    const struct kv_shape k = {1, 64, DT_F32, KV_STRIPS}, v = {1, 64, DT_F32, KV_ROWMAJOR};
    static const struct {
        const char *of[2];
        uint32_t resid;
    } cases[] = {
        {{"fp8", "fp8"}, 1}, {{"fp8", NULL}, 1}, {{"fp8", "kvik"}, 1}, {{"quanto", "fp8"}, 40}};
    for (size_t i = 0; i < countof(cases); i++) {
        struct kv_codec_pair o = {.residual_length = 40};
        struct kv_codec *kc, *vc;
        struct kv_seal seal;
        for (int p = 0; p < 2; p++)
            if (cases[i].of[p]) assert_int_equal(kv_codec_usual(cases[i].of[p], &o.plane[p]), 0);
        assert_int_equal(kv_codec_pair_open(&o, &k, &v, &kc, &vc, &seal), 0);
        assert_int_equal(seal.resid, cases[i].resid);
        kv_codec_close(kc);
        kv_codec_close(vc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_kernels),  cmocka_unit_test(test_apart),
        cmocka_unit_test(test_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
