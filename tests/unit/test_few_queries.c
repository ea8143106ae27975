/* test_few_queries.c - attention of few queries over quantized tiles without strips (kv_reader: score_few, add_few) has the bits of
 * the scalar reference, which makes strips: for every number of bits, size of groups and of heads, type of rows, number of
 * queries of a head, and first and last row of a strip.  The functions are called, and refuse what they do not read. */
#include "codecs.h"
#include "dev/affine.h"
#include "dev/cpu/half.h"
#include "dev/reader.h"
#include "share.h"
#include "test_dev_attn_toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { KV_HEADS = 2, MOST_HEADS = 5 * KV_HEADS, LEN = 400, LANES = 2, MOST_DIM = 192 };
static struct dev_queue *devices[DEV_ISAS];

static struct dev_queue *device(int isa)
{
    struct dev_queue **d = &devices[isa];
    assert_int_equal(toy_device(d, (enum dev_isa)isa, 2, MOST_HEADS, MOST_DIM), 0);
    return *d;
}

struct run {
    struct toy t;
    struct kv_codec *c[2];
    size_t values;
};

/* Opens a store of a codec, and a step of two lanes, of `tokens` each: one decodes, and the last of 49 is a block of prefill alone.  Their last rows lie at different places of a strip. */
/* False: the codecs do not make a pair. */
static bool run_open(struct run *r, const struct affine_choice choice[2], uint32_t dim,
                     enum dtype t, uint32_t group, uint32_t window, uint32_t tokens)
{
    struct kv_shape s[2] = {{KV_HEADS, dim, t, KV_STRIPS}, {KV_HEADS, dim, t, KV_ROWMAJOR}};
    static const uint32_t last[LANES] = {333, 130};
    struct kv_codec_pair o, v;
    struct kv_seal seal;
    assert_int_equal(pair_of(&choice[0], &o), 0);
    assert_int_equal(pair_of(&choice[1], &v), 0);
    o.plane[1] = v.plane[1];
    if (kv_codec_pair_open(&o, &s[0], &s[1], &r->c[0], &r->c[1], &seal) < 0) return false;
    size_t a = r->c[0]->bytes(r->c[0], &s[0]), b = r->c[1]->bytes(r->c[1], &s[1]);
    const struct toy_config c = {.n_lanes = LANES,
                                 .n_heads = group * KV_HEADS,
                                 .n_kv = KV_HEADS,
                                 .dim = dim,
                                 .dtype = t,
                                 .rows = 16,
                                 .codec =
                                     a > b ? r->c[0] : r->c[1], /* whose tiles take more room */
                                 .lead = seal.lead,
                                 .window = window,
                                 .max_len = LEN};
    toy_open(&r->t, &c);
    r->t.view.codec[0] = r->c[0];
    r->t.view.codec[1] = r->c[1];
    toy_begin(&r->t);
    for (uint32_t lane = 0; lane < LANES; lane++)
        toy_feed(&r->t, lane, last[lane] - tokens + 1, tokens);
    r->values = (size_t)LANES * tokens * group * KV_HEADS * dim;
    return true;
}

static void run_close(struct run *r)
{
    toy_close(&r->t);
    kv_codec_close(r->c[0]);
    kv_codec_close(r->c[1]);
}

static void attend(struct run *r, struct dev_queue *d)
{
    uint32_t heads = r->t.c.n_heads, dim = r->t.c.dim;
    struct dev_attn a = {.q = r->t.q,
                         .ldq = (size_t)heads * dim,
                         .out = r->t.out,
                         .ldo = (size_t)heads * dim,
                         .n_heads = heads,
                         .scale = 1 / sqrtf((float)dim)};
    memset(r->t.out, 0xff, r->values * sizeof(float));
    dev_attention(d, &r->t.view, &a);
}

static const enum dtype types[] = {DT_F16, DT_BF16, DT_F32};

/* Compares all instruction sets with the reference.  False: the codecs do not make a pair for such heads. */
static bool same_bits(const struct affine_choice choice[2], uint32_t dim, enum dtype t,
                      uint32_t group, uint32_t window, uint32_t tokens)
{
    struct kv_codec_pair o, v;
    struct run r;
    assert_int_equal(pair_of(&choice[0], &o), 0);
    assert_int_equal(pair_of(&choice[1], &v), 0);
    if (!codec_opens(&o.plane[0], 0, dim) || !codec_opens(&v.plane[1], 1, dim)) return false;
    if (!run_open(&r, choice, dim, t, group, window, tokens)) return false;
    float *want = toy_alloc(r.values * sizeof *want);
    attend(&r, device(DEV_REF));
    memcpy(want, r.t.out, r.values * sizeof *want);
    for (size_t j = 0; j < r.values; j++)
        assert_true(isfinite(want[j]));
    for (int isa = DEV_REF + 1; isa < DEV_AVX512BF16; isa++) {
        if (!device(isa)) continue;
        attend(&r, device(isa));
        if (memcmp(want, r.t.out, r.values * sizeof *want))
            fail_msg(
                "%s, %d bits, groups of %d, %u channels, type %d, %u queries: other bits with %s",
                choice[0].backend, choice[0].nbits, choice[0].q_group_size, dim, t, group,
                dev_isa_names()[isa]);
    }
    free(want);
    run_close(&r);
    return true;
}

static void test_bits(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (uint32_t k = 0; k < 6 * 4 * 3; k++) {
        static const int32_t bits[] = {4, 2, 8}, groups[] = {64, 32, 16, 128};
        static const uint32_t dims[] = {64, 128, MOST_DIM, 32, 80};
        const bool quanto = k % 2 == 0;
        if (k / 2 % test_share()) continue;
        const int32_t axis = quanto ? -(int32_t)(k / 4 % 2) : (int32_t)(k / 4 % 2);
        struct affine_choice choice[2] = {{quanto ? "quanto" : "hqq",
                                           bits[k / 2 % (quanto ? 2 : 3)], axis, axis,
                                           groups[k / 6 % 4], 1}};
        choice[1] = choice[0];
        if (k / 2 % 3 == 1) choice[1].q_group_size = groups[(k / 6 + 1) % 4];
        if (k / 2 % 5 == 1) choice[1].axis_value = quanto ? -1 - axis : 1 - axis;
        const uint32_t other = k / 2 % countof(dims);
        for (uint32_t i = 0; i <= other; i += MAX(other, 1)) {
            uint32_t group = 1 + (k + i) % 5, dim = dims[i];
            enum dtype t = types[(k + i) % 3];
            n += same_bits(choice, dim, t, group, k / 2 % 4 ? 0 : 75 + k, k % 7 == 3 ? 49 : 1);
        }
    }
    assert_true(n * test_share() > 60);
    /* Rows of 8 bits that begin inside a strip. */
    const struct affine_choice eight = {"hqq", 8, 1, 1, 64, 1}, both[2] = {eight, eight};
    assert_true(same_bits(both, 64, DT_F16, 3, 92, 1));
}

/* Counts the calls of both functions, and those that they refused. */
static uint32_t n_calls, n_refused;
static const struct kv_reader *counted;

static bool count_score(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                        struct kv_next *next, const float *q, uint32_t nq, float scale, float *p,
                        size_t ldp)
{
    bool done = counted->score_few(r, at, n, next, q, nq, scale, p, ldp);
    __atomic_fetch_add(done ? &n_calls : &n_refused, 1, __ATOMIC_RELAXED);
    return done;
}
static bool count_add(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                      struct kv_next *next, const float *p, size_t ldp, uint32_t nq, bool fresh,
                      float *o, size_t ldo)
{
    bool done = counted->add_few(r, at, n, next, p, ldp, nq, fresh, o, ldo);
    __atomic_fetch_add(done ? &n_calls : &n_refused, 1, __ATOMIC_RELAXED);
    return done;
}

static void called_by(enum dev_isa isa)
{
    static const struct {
        struct affine_choice choice;
        uint32_t dim, group;
        enum dtype t;
        bool read;
    } cases[] = {
        {{"quanto", 4, 0, 0, 64, 1}, 64, 3, DT_F16, true},
        {{"quanto", 2, 0, 0, 64, 1}, 128, 4, DT_BF16, true},
        {{"hqq", 4, 1, 1, 64, 1}, 64, 1, DT_F16, true},
        {{"hqq", 4, 0, 0, 64, 1}, 64, 3, DT_F16, true},
        {{"quanto", 2, -1, -1, 32, 1}, 128, 2, DT_BF16, true},
        {{"hqq", 8, 1, 1, 64, 1}, 64, 4, DT_F16, true},
        {{"hqq", 8, 1, 1, 64, 1}, 128, 4, DT_F16, true},
        {{"hqq", 8, 0, 0, 64, 1}, 64, 1, DT_BF16, true},
        {{"quanto", 4, 0, 0, 64, 1}, 64, 5, DT_F16, false}, /* five queries */
        {{"quanto", 4, 0, 0, 64, 1}, 64, 3, DT_F32, false},
        {{"quanto", 4, 0, 0, 32, 1}, 64, 3, DT_F16, false}, /* two groups in 64 channels */
    };
    struct kv_reader count;
    const struct kv_reader *table[DEV_ISAS] = {0};
    for (size_t i = 0; i < countof(cases); i++) {
        struct run r;
        struct kv_codec same[2];
        const struct affine_choice both[2] = {cases[i].choice, cases[i].choice};
        assert_true(run_open(&r, both, cases[i].dim, cases[i].t, cases[i].group, 0, 1));
        counted = r.c[0]->reader[isa];
        count = *counted;
        count.score_few = count_score;
        count.add_few = count_add;
        table[DEV_REF] = r.c[0]->reader[DEV_REF];
        table[isa] = &count;
        for (int p = 0; p < 2; p++) {
            same[p] = *r.c[p];
            same[p].reader = table;
            r.t.view.codec[p] = &same[p];
        }
        n_calls = n_refused = 0;
        attend(&r, device(isa));
        assert_true(cases[i].read ? n_calls > 20 && n_refused == 0
                                  : n_calls == 0 && n_refused > 20);
        run_close(&r);
    }
}

static void test_called(void **state)
{
    (void)state;
    if (!device(DEV_AVX2)) skip();
    called_by(DEV_AVX2);
    if (device(DEV_AVX512)) called_by(DEV_AVX512);
}

enum { ROWS = 3 * KV_STRIP, FIRST = 5, LAST = ROWS - 7, FEW = 4 };
/* Two kv heads of rows of one plane with any bytes, and what reads them. */
struct bytes {
    struct kv_affine f;
    struct kv_shape s;
    struct kv_codec c;
    unsigned char *tile;
    struct kv_piece at[3];
    uint32_t n;
};

static uint32_t any(void)
{
    static uint32_t r = 1;
    r = r * 1664525u + 1013904223u;
    return r >> 8;
}

/* Numbers of 16 bits: usual ones; in a second kind of planes one of eight is any: not finite, small or large; and in a third even codes
 * times a are just finite, or not, and the other number makes them so. */
static void bytes_open(struct bytes *b, uint32_t kind)
{
    static const uint16_t edge[] = {0,      0x8000, 1,      0x3ff,  0x400,  0x7bff, 0x7c00,
                                    0xfc00, 0x7e00, 0x6c00, 0x6c01, 0x6c44, 0x6c45, 0xec45};
    static const uint32_t bits[] = {4, 2, 8};
    const bool rows = kind / 2 % 2, zero = kind % 2;
    b->f = (struct kv_affine){bits[kind / 4 % 3], rows ? 1 : ROWS, rows ? 64 : 0, zero};
    b->s = (struct kv_shape){KV_HEADS, kind / 12 % 2 ? 128 : 64, kind / 24 % 2 ? DT_BF16 : DT_F16,
                             kind / 48 % 2 ? KV_ROWMAJOR : KV_STRIPS};
    b->c = (struct kv_codec){.tile = b->f.unit, .param = &b->f};
    const size_t size = affine_bytes(&b->f, &b->s, b->c.tile), tiles = ROWS / b->c.tile;
    const uint32_t pairs = affine_pairs(&b->f, b->s.dim);
    b->tile = toy_alloc(size * tiles);
    for (size_t i = 0; i < size * tiles; i++)
        b->tile[i] = (unsigned char)(any() & (kind / 96 == 2 ? 0xee : 0xff));
    for (uint32_t t = 0; t < tiles; t++)
        for (uint32_t i = 0; i < KV_HEADS * 2 * pairs; i++) {
            uint16_t usual = (uint16_t)((any() & 0x87ff) | 0x3000), odd = edge[any() % 14];
            uint16_t x = kind / 96 ? (any() % 8 ? usual : odd) : usual;
            if (kind / 96 == 2) x = i / pairs % 2 ? 0x7bff : 0x6c80 + any() % 96;
            memcpy(b->tile + t * size + affine_unit_at(&b->f, &b->s, b->c.tile, i / pairs / 2, 0) +
                       i % (2 * pairs) * 2,
                   &x, 2);
        }
    b->n = rows ? ROWS / KV_STRIP : 1;
    for (uint32_t i = 0; i < b->n; i++) {
        for (uint32_t j = 0; j < KV_STRIP; j++)
            b->at[i].tile[j] = b->tile + (rows ? i * KV_STRIP + j : 0) * size;
        b->at[i].head = 1;
        b->at[i].r0 = i ? 0 : FIRST;
        b->at[i].r1 = i + 1 < b->n ? KV_STRIP : LAST - i * KV_STRIP;
    }
}

/* The value of a row, as the scalar reference has decoded it. */
static float value_at(const struct bytes *b, const uint16_t *raw, uint32_t row, uint32_t d)
{
    const uint32_t dim = b->s.dim;
    uint16_t x = b->s.layout == KV_STRIPS
                     ? raw[(row / KV_STRIP * dim + d) * KV_STRIP + row % KV_STRIP]
                     : raw[row * dim + d];
    return b->s.dtype == DT_F16 ? half_f16_to_f32(x) : half_bf16_to_f32(x);
}

static void assert_same(float want, float got, const struct bytes *b, uint32_t nq, int isa)
{
    if (isnan(want) ? !isnan(got) : memcmp(&want, &got, sizeof got) != 0)
        fail_msg("%s, %u bits, unit of %u, zero_first %d, %u queries: %a and not %a",
                 dev_isa_names()[isa], b->f.bits, b->f.unit, b->f.zero_first, nq, got, want);
}

/* Reads random tiles with all instruction sets.  Returns how many of the two functions read them. */
static uint32_t read_bytes(const struct bytes *b, const uint16_t *raw, uint32_t nq, int isa)
{
    const uint32_t dim = b->s.dim;
    const struct kv_reading r = {&b->c, &b->s, (enum dev_isa)isa, kv_read_affine[isa]};
    float q[FEW * 128], p[FEW * KV_ATOM], o[FEW * 128], want;
    struct kv_next next = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < FEW * 128; i++)
        q[i] = (float)(int)any() * 0x1p-23f - 1, o[i] = q[i] * 3;
    for (uint32_t i = 0; i < FEW * KV_ATOM; i++)
        p[i] = (float)any() * 0x1p-24f;
    const bool keys = b->s.layout == KV_STRIPS;
    if (keys && r.reader->score_few(&r, b->at, b->n, &next, q, nq, 0.3f, p, KV_ATOM)) {
        n++;
        for (uint32_t i = 0; i < nq; i++)
            for (uint32_t j = FIRST; j < LAST; j++) {
                want = 0;
                for (uint32_t d = 0; d < dim; d++)
                    want = fmaf(q[d * nq + i], value_at(b, raw, j, d), want);
                assert_same(want * 0.3f, p[i * KV_ATOM + j], b, nq, isa);
            }
    }
    if (!keys && r.reader->add_few(&r, b->at, b->n, &next, p, KV_ATOM, nq, nq == 2, o, 128)) {
        n++;
        for (uint32_t i = 0; i < nq; i++)
            for (uint32_t d = 0; d < dim; d++) {
                want = nq == 2 ? 0 : q[i * 128 + d] * 3;
                for (uint32_t j = FIRST; j < LAST; j++)
                    want = fmaf(p[i * KV_ATOM + j], value_at(b, raw, j, d), want);
                assert_same(want, o[i * 128 + d], b, nq, isa);
            }
    }
    return n;
}

static void test_any_numbers(void **state)
{
    (void)state;
    uint32_t n = 0, may = 0;
    for (uint32_t kind = 0; kind < 3 * 96; kind++) {
        struct bytes b;
        bytes_open(&b, kind);
        const size_t size = affine_bytes(&b.f, &b.s, b.c.tile);
        uint16_t *raw = toy_alloc(ROWS * b.s.dim * sizeof *raw);
        for (uint32_t i = 0; i < ROWS / b.c.tile; i++)
            affine_decode(&b.f, &b.s, b.c.tile, 1, b.tile + i * size, 0, b.c.tile, raw,
                          i * b.c.tile);
        for (int isa = DEV_REF + 1; isa < DEV_AVX512BF16; isa++) {
            if (!device(isa) || !kv_read_affine[isa] || !kv_read_affine[isa]->score_few) continue;
            const bool read = b.f.bits < 8 || b.f.zero_first;
            for (uint32_t nq = 1; nq <= FEW; nq++) {
                n += read_bytes(&b, raw, nq, isa);
                may += read;
            }
        }
        free(raw);
        free(b.tile);
    }
    assert_int_equal(n, may);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_any_numbers),
        cmocka_unit_test(test_called),
    };
    int rc = cmocka_run_group_tests_name("few_queries", tests, NULL, NULL);
    for (int i = 0; i < DEV_ISAS; i++)
        if (devices[i]) dev_queue_close(devices[i]);
    return rc;
}
