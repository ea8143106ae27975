/* test_codec_kernels.c - codecs whose attention computes over tiles as they are stored, without naming any: every
 * registered codec with a reader that sums. Its instruction sets, threads, prefill and decoding give the same bits, its
 * functions are called and nothing is decoded, and the answer is that of decoded rows up to rounding. The same of every
 * codec in a rotation. Unsound readers are refused. */
#include "codecs.h"
#include "dev/cpu/tiles.h"
#include "dev/reader.h"
#include "kv/codec_rotated.h"
#include "share.h"
#include "test_dev_attn_toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { HEADS = 6, KV_HEADS = 2, LEN = 720, LANES = 4 };
static struct dev_queue *devices[DEV_ISAS][4]; /* [isa][threads] */

static struct dev_queue *device(enum dev_isa isa, uint32_t threads)
{
    struct dev_queue **d = &devices[isa][threads];
    assert_int_equal(toy_device(d, isa, threads, HEADS, 128), 0);
    return *d;
}

/* How attention runs over a toy store. */
struct run {
    struct toy t;
    struct kv_codec *c[2];
    bool turned;
    size_t ld;
    float *probe;
};

static const struct {
    const char *name;
    uint32_t sinks, lead, window, chunk;
} reaches[] = {{"full", 0, 0, 0, 0},
               {"window 90, lead 5", 0, 5, 90, 0},
               {"sinks 3, window 300", 3, 3, 300, 0},
               {"chunk 100, lead 40", 0, 40, 0, 100}};

/* Makes a store whose planes have the codecs of the pair, and a step with lanes that decode and prefill. turned: a
 * rotation stands around each codec. */
static void run_open(struct run *r, const struct kv_codec_pair *o, bool turned, uint32_t reach,
                     uint32_t dim, enum dtype t)
{
    struct kv_shape s[2] = {{KV_HEADS, dim, t, KV_STRIPS}, {KV_HEADS, dim, t, KV_ROWMAJOR}};
    struct kv_seal seal;
    assert_int_equal(kv_codec_pair_open(o, &s[0], &s[1], &r->c[0], &r->c[1], &seal), 0);
    r->turned = turned;
    for (uint32_t p = 0; turned && p < 2; p++)
        assert_int_equal(rotated_open(r->c[p], 3, &s[p], &r->c[p]), 0);
    size_t a = r->c[0]->bytes(r->c[0], &s[0]), b = r->c[1]->bytes(r->c[1], &s[1]);
    const struct toy_config c = {.n_lanes = LANES,
                                 .n_heads = HEADS,
                                 .n_kv = KV_HEADS,
                                 .dim = dim,
                                 .dtype = t,
                                 .rows = 16,
                                 .codec =
                                     a > b ? r->c[0] : r->c[1], /* whose tiles take more room */
                                 .sinks = reaches[reach].sinks,
                                 .lead = MAX(reaches[reach].lead, seal.lead),
                                 .window = reaches[reach].window,
                                 .chunk = reaches[reach].chunk,
                                 .max_len = LEN};
    toy_open(&r->t, &c);
    r->t.view.codec[0] = r->c[0];
    r->t.view.codec[1] = r->c[1];
    r->ld = (size_t)HEADS * dim;
    r->probe = toy_alloc((size_t)HEADS * LEN * sizeof(float));
}

static void run_close(struct run *r)
{
    toy_close(&r->t);
    free(r->probe);
    for (int p = 0; p < 2; p++) {
        if (r->turned)
            rotated_close(r->c[p]); /* what it stands around: it has no kind that would */
        kv_codec_close(r->c[p]);
    }
}

static struct dev_attn call_of(struct run *r)
{
    struct toy *t = &r->t;
    memset(t->out, 0xff, TOY_TOKENS * r->ld * sizeof(float));
    return (struct dev_attn){.q = t->q,
                             .ldq = r->ld,
                             .out = t->out,
                             .ldo = r->ld,
                             .n_heads = HEADS,
                             .scale = 1 / sqrtf((float)t->c.dim)};
}

/* Runs the step of the toy; also the probabilities of lane 0, of one token. */
static void attend(struct run *r, struct dev_queue *d)
{
    struct dev_attn call = call_of(r);
    struct dev_probe probe[TOY_LANES] = {{r->probe, LEN, LEN}};
    uint64_t calls = mem_calls();
    dev_attention(d, &r->t.view, &call);
    dev_attention_probe(d, &r->t.view, &call, probe);
    assert_int_equal(mem_calls(), calls);
}

/* Counts calls for test_used; kernels run on one thread there. */
static uint32_t n_query, n_score, n_add, n_decode;
static const struct kv_reader *counted;

static void count_query(const struct kv_reading *r, const float *q, float *out)
{
    n_query++;
    counted->query(r, q, out);
}
static void one_tile(const struct kv_reading *r, const struct kv_piece *at, uint32_t n)
{
    assert_true(at->r0 < at->r1 && at->r1 <= r->codec->tile && at->head < r->shape->heads && n > 0);
}
static void count_score(const struct kv_reading *r, const struct kv_piece *at, const float *q,
                        uint32_t n, float scale, float *p, size_t ldp)
{
    n_score++;
    one_tile(r, at, n);
    counted->score(r, at, q, n, scale, p, ldp);
}
static void count_add(const struct kv_reading *r, const struct kv_piece *at, const float *p,
                      size_t ldp, uint32_t n, float *o, size_t ldo)
{
    n_add++;
    one_tile(r, at, n);
    counted->add(r, at, p, ldp, n, o, ldo);
}
static void count_end(const struct kv_reading *r, float *o)
{
    if (counted->end) counted->end(r, o);
}
static void (*decode_of)(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, uint32_t first, const void *src);
static void count_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, uint32_t first, const void *src)
{
    n_decode++;
    decode_of(c, s, head, dst, first, src);
}

static bool sums(const struct kv_codec *c)
{
    return c->reader && (c->reader[DEV_REF]->score || c->reader[DEV_REF]->add);
}

/* Makes the next variant of codecs.h with a reader that sums for keys or values, for heads of *dim values; false:
 * all variants have been made. */
static bool next_variant(uint32_t *i, uint32_t *dim, struct codec_variant *v)
{
    while (++*i < codec_variants()) {
        *dim = codec_dim(*i, 64, v);
        struct kv_shape s[2] = {{1, *dim, DT_F32, KV_STRIPS}, {1, *dim, DT_F32, KV_ROWMAJOR}};
        struct kv_codec *c[2];
        struct kv_seal seal;
        assert_int_equal(kv_codec_pair_open(&v->pair, &s[0], &s[1], &c[0], &c[1], &seal), 0);
        bool own = sums(c[0]) || sums(c[1]);
        kv_codec_close(c[0]);
        kv_codec_close(c[1]);
        if (own) return true;
    }
    return false;
}

static void feed(struct toy *t, bool prefill)
{
    toy_begin(t);
    toy_feed(t, 0, 655, 1);
    toy_feed(t, 1, prefill ? 230 : 291, prefill ? 62 : 1);
    toy_idle(t, 3);
    toy_feed(t, 2, 130, prefill ? 33 : 1);
}

/* One step that prefills and decodes: every instruction set and number of threads. Then the last token of each
 * prefill alone: the bits of the block. */
static void one_answer(struct run *r, const char *what)
{
    struct toy *t = &r->t;
    feed(t, true);
    size_t bytes = t->counts[1] * r->ld * sizeof(float), row = r->ld * sizeof(float);
    float *want = toy_alloc(bytes), *seen = toy_alloc((size_t)HEADS * LEN * sizeof(float));
    uint32_t last = 62; /* token of the step: lane 1's last */
#if defined(__x86_64__)
    bool tiles_are = tiles_here();
#endif
    for (int isa = 0; isa < DEV_AVX512BF16; isa++)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct dev_queue *d = device((enum dev_isa)isa, threads);
            if (!d || (isa == DEV_REF ? threads > 1 : threads != 2 && test_share() > 1))
                continue; /* slow, and its threads walk the rows as those of the others do */
            attend(r, d);
            if (isa == 0 && threads == 1) {
                memcpy(want, t->out, bytes);
                memcpy(seen, r->probe, (size_t)HEADS * LEN * sizeof(float));
                for (size_t i = 0; i < bytes / sizeof(float); i++)
                    assert_true(isfinite(want[i]));
            }
            if (memcmp(want, t->out, bytes))
                fail_msg("%s: %s with %u threads gives other bits", what, dev_isa_name(d), threads);
            if (memcmp(seen, r->probe, (size_t)HEADS * LEN * sizeof(float)))
                fail_msg("%s: %s: other probabilities", what, dev_isa_name(d));
        }
#if defined(__x86_64__)
    tiles_hidden = true;
    if (tiles_are && device(DEV_AVX512, 2)) {
        attend(r, device(DEV_AVX512, 2));
        if (memcmp(want, t->out, bytes)) fail_msg("%s: without tiles: other bits", what);
    }
    tiles_hidden = false;
#endif
    toy_begin(t);
    toy_feed(t, 1, t->pos[last], 1);
    attend(r, device(DEV_REF, 1));
    if (memcmp(want + last * r->ld, t->out, row))
        fail_msg("%s: a token alone has other bits than in a block", what);
    free(want);
    free(seen);
}

/* Forks meet tiles that they share together, and have the bits that each has alone. */
static void forks_answer(struct run *r, const char *what)
{
    struct toy *t = &r->t;
    static const uint32_t parted[] = {512, 512, 256};
    size_t row = r->ld * sizeof(float);
    float *want = toy_alloc(LANES * row);
    for (uint32_t lane = 1; lane < LANES; lane++)
        toy_fork(t, 0, lane, parted[lane - 1]);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        toy_begin(t);
        toy_feed(t, lane, 655, 1);
        attend(r, device(DEV_REF, 1));
        memcpy(want + lane * r->ld, t->out, row);
    }
    toy_begin(t);
    for (uint32_t lane = 0; lane < LANES; lane++)
        toy_feed(t, lane, 655, 1);
    for (int isa = 0; isa < DEV_AVX512BF16; isa++)
        for (uint32_t threads = 1; threads <= 2; threads++) {
            struct dev_queue *d = device((enum dev_isa)isa, threads);
            if (!d || (isa == DEV_REF && threads > 1))
                continue; /* slow, and its threads walk the rows as those of the others do */
            attend(r, d);
            if (memcmp(want, t->out, LANES * row))
                fail_msg("%s: forks with %s have other bits together", what, dev_isa_name(d));
        }
    free(want);
}

static void test_one_answer(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F16, DT_F32, DT_BF16};
    struct codec_variant v;
    uint32_t n = 0, dim;
    for (uint32_t i = 0; next_variant(&i, &dim, &v); n++)
        for (uint32_t k = 0; k < countof(reaches); k++) {
            char what[200];
            struct run r;
            if ((n + k) % test_share())
                continue; /* a sanitizer takes each variant and each reach, not each pair */
            snprintf(what, sizeof what, "%s, %s", v.name, reaches[k].name);
            run_open(&r, &v.pair, false, k, dim, types[(n + k) % 3]);
            one_answer(&r, what);
            if (k % 2 == 0) forks_answer(&r, what);
            run_close(&r);
        }
    assert_true(n >= 3); /* a codec of tests/codec has kernels */
}

/* The kernels serve attention and nothing is decoded; without them rows are decoded, and the answer is nearly the
 * same. */
static void test_used(void **state)
{
    (void)state;
    struct codec_variant v;
    uint32_t n_used = 0, n = 0, dim;
    for (uint32_t i = 0; next_variant(&i, &dim, &v); n++)
        for (uint32_t prefill = 0; prefill < 2; prefill++) {
            if ((n / 2 + prefill) % ((test_share() + 1) / 2)) continue;
            struct kv_codec same[2];
            struct kv_reader count = {
                .query = count_query, .score = count_score, .add = count_add, .end = count_end};
            const struct kv_reader *table[DEV_ISAS] = {&count};
            struct run r;
            double worst = 0;
            run_open(&r, &v.pair, false, 0, dim, DT_F16);
            feed(&r.t, prefill);
            size_t values = r.t.counts[1] * r.ld;
            float *want = toy_alloc(values * sizeof *want);
            attend(&r, device(DEV_REF, 1));
            memcpy(want, r.t.out, values * sizeof *want);
            n_query = n_score = n_add = n_decode = 0;
            for (int p = 0; p < 2; p++) {
                same[p] = *r.c[p];
                if (!sums(&same[p])) continue;
                counted = same[p].reader[DEV_REF];
                if (!counted->query) count.query = NULL;
                decode_of = same[p].decode;
                same[p].reader = table;
                same[p].decode = count_decode;
                r.t.view.codec[p] = &same[p];
            }
            if (sums(r.c[0]) && sums(r.c[1]) && r.c[0]->reader != r.c[1]->reader) {
                free(want); /* two readers: counted as one here */
                run_close(&r);
                continue;
            }
            attend(&r, device(DEV_REF, 1));
            assert_memory_equal(want, r.t.out, values * sizeof *want);
            assert_true((n_score > 0) == sums(r.c[0]));
            assert_true((n_add > 0) == sums(r.c[1]));
            assert_int_equal(n_decode, 0);
            for (int p = 0; p < 2; p++)
                if (same[p].reader == table) same[p].reader = NULL;
            attend(&r, device(DEV_REF, 1));
            assert_true(n_decode > 0);
            for (size_t k = 0; k < values; k++)
                worst = fmax(worst, fabs((double)want[k] - (double)r.t.out[k]));
            if (!(worst < 0.05)) fail_msg("%s: off by %g from decoded rows", v.name, worst);
            if (!(worst > 0)) fail_msg("%s: the bits of decoded rows", v.name);
            free(want);
            run_close(&r);
            n_used++;
        }
    assert_true(n_used * test_share() >= 2 * 3);
}

/* Answers a step with turned rows, then with rows that are turned back: nearly the same. */
static void nearly_decoded(struct run *r, const char *what)
{
    double worst = 0;
    feed(&r->t, true);
    size_t n = r->t.counts[1] * r->ld;
    float *want = toy_alloc(n * sizeof *want);
    attend(r, device(DEV_REF, 1));
    memcpy(want, r->t.out, n * sizeof *want);
    r->c[0]->reader = r->c[1]->reader = NULL;
    attend(r, device(DEV_REF, 1));
    for (size_t k = 0; k < n; k++)
        worst = fmax(worst, fabs((double)want[k] - (double)r->t.out[k]));
    if (!(worst < 0.05)) fail_msg("%s: off by %g from decoded rows", what, worst);
    if (!(worst > 0)) fail_msg("%s: the bits of decoded rows", what);
    free(want);
}

/* A rotation stands around every codec, whatever its reader: rows in place, strips, sums, another rotation. */
static void test_rotation(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F16, DT_F32, DT_BF16};
    const struct kv_codec_kind *kind;
    uint32_t n = 0;
    for (uint32_t i = 0; (kind = kv_codec_at(i)); i++) {
        struct kv_codec_pair o = {.residual_length = 1};
        char what[64];
        struct run r;
        uint32_t reach = i % countof(reaches);
        if (!codec_fit(kind, false, 0, 32, &o.plane[0]) ||
            !codec_fit(kind, false, 1, 32, &o.plane[1]))
            continue;
        snprintf(what, sizeof what, "turned %s, %s", kind->name, reaches[reach].name);
        run_open(&r, &o, true, reach, 32, types[i % 3]);
        one_answer(&r, what);
        nearly_decoded(&r, what);
        run_close(&r);
        n++;
    }
    assert_true(n >= 7);
}

/* A kind of which `change` spoils the instance. */
static void (*change)(struct kv_codec *c);
static const struct kv_codec_kind *changed;
static int changed_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                        uint32_t tile, struct kv_codec **out)
{
    TRY(changed->open(o, s, key, tile, out));
    change(*out);
    return 0;
}
static void no_reference(struct kv_codec *c)
{
    static const struct kv_reader *const none[DEV_ISAS];
    c->reader = none;
}
static void no_score(struct kv_codec *c)
{
    static struct kv_reader half;
    static const struct kv_reader *const table[DEV_ISAS] = {&half};
    half = *c->reader[DEV_REF];
    half.score = NULL;
    c->reader = table;
}
static void both(struct kv_codec *c)
{
    static struct kv_reader two;
    static const struct kv_reader *const table[DEV_ISAS] = {&two};
    two = *c->reader[DEV_REF];
    two.strips = kv_read_decoded[DEV_REF]->strips;
    c->reader = table;
}
static void parts(struct kv_codec *c)
{
    c->reader = kv_read_in_place;
    c->tile = 8;
}
static void lossless(struct kv_codec *c)
{
    c->lossless = true;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct kv_codec *c);
        const char *says;
    } cases[] = {{no_reference, "scalar reference"},
                 {no_score, "lacks score, which keys need"},
                 {both, "makes strips or sums"},
                 {parts, "whole strips"},
                 {lossless, "summed as raw rows"}};
    struct codec_variant v;
    uint32_t first = 0, dim;
    struct kv_codec *c = NULL;
    assert_true(next_variant(&first, &dim, &v));
    struct kv_shape s = {1, dim, DT_F32, KV_STRIPS};
    struct kv_codec_kind kind = *v.pair.plane[0].kind;
    changed = v.pair.plane[0].kind;
    kind.open = changed_open;
    v.pair.plane[0].kind = &kind;
    for (size_t i = 0; i < countof(cases); i++) {
        change = cases[i].change;
        assert_int_equal(kv_codec_open(&v.pair.plane[0], &s, true, 0, &c), ERR_ARG);
        assert_null(c);
        if (!strstr(err_last(), cases[i].says)) fail_msg("%s", err_last());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_answer),
        cmocka_unit_test(test_used),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
