/* test_dev_attn.c - attention against the essay of dev.h (bit for bit), against softmax in double,
 * and against itself: instruction sets, threads, block rows, lossless tiles, batches, chunks,
 * pieces. */
#include "codecs.h"
#include "dev/affine.h"
#include "kv/codec.h"
#include "share.h"
#include "test_dev_attn_toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct dev_queue *devices[DEV_ISAS][4]; /* [isa][threads] */

static struct dev_queue *device(enum dev_isa isa, uint32_t threads)
{
    struct dev_queue **d = &devices[isa][threads];
    assert_int_equal(toy_device(d, isa, threads, 36, 512), 0);
    return *d;
}

static struct dev_attn call_of(struct toy *t, float softcap)
{
    size_t ld = (size_t)t->c.n_heads * t->c.dim;
    float scale = 1 / sqrtf((float)t->c.dim);
    memset(t->out, 0xff, TOY_TOKENS * ld * sizeof(float));
    return (struct dev_attn){t->q,    ld,        t->out,   ld,   t->c.n_heads, scale,
                             softcap, t->q_sink, t->logit, NULL, NULL};
}

static size_t out_bytes(const struct toy *t)
{
    return (size_t)t->counts[1] * t->c.n_heads * t->c.dim * sizeof(float);
}

/* A short form takes the stores of all tests in turn: true if it leaves out the next, which is then not even filled. */
static bool left_out(void)
{
    static unsigned turn;
    return turn++ % test_share() != 0;
}

/* Compares every token and head with the essay once, bit for bit; then compares all devices with
 * that result. */
static void check_step(struct toy *t, float softcap, const char *what)
{
    size_t ld = (size_t)t->c.n_heads * t->c.dim, bytes = out_bytes(t);
    float *want = toy_alloc(bytes);
    struct dev_attn call = call_of(t, softcap);
    for (uint32_t i = 0; i < t->counts[1]; i++)
        for (uint32_t h = 0; h < t->c.n_heads; h++) {
            float *w = want + i * ld + (size_t)h * t->c.dim;
            double exact[512];
            toy_essay(t, i, h, call.scale, softcap, w);
            toy_softmax(t, i, h, (double)call.scale, (double)softcap, exact);
            for (uint32_t d = 0; d < t->c.dim; d++)
                if (!(fabs((double)w[d] - exact[d]) < 2e-5))
                    fail_msg("%s: token %u head %u dim %u: %g, softmax gives %g", what, i, h, d,
                             (double)w[d], exact[d]);
        }
    for (int isa = 0; isa < DEV_AVX512BF16; isa++)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct dev_queue *d = device((enum dev_isa)isa, threads);
            if (!d || (isa == DEV_REF && threads != 2))
                continue; /* slow, and it walks the rows as the others do */
            call = call_of(t, softcap);
            uint64_t calls = mem_calls();
            dev_attention(d, &t->view, &call);
            assert_int_equal(mem_calls(), calls);
            for (size_t i = 0; i < bytes / sizeof(float); i++)
                if (memcmp(&want[i], &t->out[i], sizeof(float)))
                    fail_msg(
                        "%s: %s, %u threads: token %zu (row %u) head %zu dim %zu: %a, wants %a",
                        what, dev_isa_name(d), threads, i / ld, t->pos[i / ld], i % ld / t->c.dim,
                        i % t->c.dim, (double)t->out[i], (double)want[i]);
        }
    free(want);
}

struct shape {
    uint32_t n_heads, n_kv, dim;
    enum dtype dtype;
};
static const struct shape shapes[] = {
    {9, 3, 64, DT_F16},  {1, 1, 12, DT_F32},  {4, 2, 16, DT_BF16},  {8, 2, 20, DT_F16},
    {5, 1, 64, DT_F32},  {12, 2, 80, DT_F16}, {7, 1, 128, DT_BF16}, {9, 1, 256, DT_F16},
    {4, 4, 64, DT_BF16}, {16, 2, 12, DT_F16}, {3, 1, 36, DT_F32},
};
struct policy {
    const char *name;
    const struct kv_codec *codec;
    uint32_t sinks, lead, window, chunk;
};
static const struct policy policies[] = {
    {"full", NULL, 0, 0, 0, 0},
    {"window 64", NULL, 0, 0, 64, 0},
    {"window 300", NULL, 0, 0, 300, 0},
    {"chunk 100", NULL, 0, 0, 0, 100},
    {"sinks 4, window 60", NULL, 4, 0, 60, 0},
    {"sinks 270, window 33", NULL, 270, 0, 33, 0},
    {"lossless", &toy_lossless, 0, 0, 0, 0},
    {"lossless, lead 20, sinks 4, window 200", &toy_lossless, 4, 20, 200, 0},
    {"lossy", &toy_lossy, 0, 0, 0, 0},
    {"lossy, lead 4", &toy_lossy, 0, 4, 0, 0},
    {"lossy, lead 150, sinks 4, window 290", &toy_lossy, 4, 150, 290, 0},
    {"lossy, lead 4, chunk 160", &toy_lossy, 0, 4, 0, 160},
    {"lossy, tile 48", &toy_lossy48, 0, 4, 0, 0},
    {"lossy, tile 16", &toy_lossy16, 0, 0, 90, 0},
    {"lossy, tile 1", &toy_lossy1, 0, 0, 0, 0},
    {"lossy, tile 1, lead 4, sinks 3, window 90", &toy_lossy1, 3, 4, 90, 0},
    {"lossy, tile 4, lead 5, chunk 70", &toy_lossy4, 0, 5, 0, 70},
    {"lossy, tile 512", &toy_lossy512, 0, 33, 0, 0},
};

static struct toy_config config_of(const struct shape *s, const struct policy *p, uint32_t rows)
{
    return (struct toy_config){
        .n_lanes = 4,
        .n_heads = s->n_heads,
        .n_kv = s->n_kv,
        .dim = s->dim,
        .dtype = s->dtype,
        .rows = rows,
        .codec = p->codec,
        .sinks = p->sinks,
        .lead = p->lead,
        .window = p->window,
        .chunk = p->chunk,
        .max_len = 720,
    };
}

/* Builds a ragged step: a long lane that decodes, a short one, an idle one and one that prefills. */
static void ragged(struct toy *t)
{
    toy_begin(t);
    toy_feed(t, 1, 600 + toy_random() % 100, 1);
    toy_feed(t, 0, toy_random() % 40, 1);
    toy_idle(t, 3);
    toy_feed(t, 2, 230 + toy_random() % 60, 7 + toy_random() % 30);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(shapes); i++)
        for (uint32_t rows = 16; rows <= 256; rows *= 16) {
            char what[64];
            if (left_out()) continue;
            snprintf(what, sizeof what, "shape %zu, block rows %u", i, rows);
            struct toy_config c = config_of(&shapes[i], &policies[0], rows);
            struct toy t;
            toy_open(&t, &c);
            ragged(&t);
            check_step(&t, 0, what);
            toy_close(&t);
        }
}

/* Tests head dims that are odd multiples of a vector or smaller than one, and every size of a
 * group. */
static void test_dims(void **state)
{
    (void)state;
    static const uint32_t dims[] = {8, 24, 40, 56, 72, 80, 96, 112, 160, 192, 256, 512};
    for (uint32_t i = 0; i < 17; i++) {
        uint32_t dim = i < 16 ? dims[i % countof(dims)] : 24, n_kv = 1 + i % 2;
        uint32_t group = i < 16 ? i + 1 : 18; /* more heads than a block of prefill takes */
        if (dim > 200) group = 2;
        if (left_out()) continue;
        const struct shape s = {group * n_kv, n_kv, dim, (enum dtype)(i % 3)};
        struct toy_config c = config_of(&s, &policies[i % 2 ? 4 : 10], 16);
        struct toy t;
        char what[64];
        snprintf(what, sizeof what, "dim %u, %u heads for each of %u", dim, group, n_kv);
        c.turned = c.logits = true;
        toy_open(&t, &c);
        ragged(&t);
        check_step(&t, 0, what);
        toy_close(&t);
    }
}

static void test_policies(void **state)
{
    (void)state;
    static const struct shape small[] = {{4, 2, 20, DT_F16}, {3, 1, 16, DT_F32}};
    for (size_t i = 0; i < countof(policies); i++)
        for (uint32_t rows = 16; rows <= 256; rows *= 4) {
            if (policies[i].codec && policies[i].codec->tile == 48 && rows != 16) continue;
            if (left_out()) continue;
            struct toy_config c = config_of(&small[i % 2], &policies[i], rows);
            struct toy t;
            c.turned = c.sinks != 0;
            c.logits = i % 2;
            toy_open(&t, &c);
            for (int n = 0; n < 3; n++) {
                ragged(&t);
                check_step(&t, n == 1 ? 5.0f : 0, policies[i].name);
            }
            toy_close(&t);
        }
}

/* Computes rows 0..len of a lane in chunks. The output of a row must not depend on its chunk. */
static void prefill(struct dev_queue *d, struct toy *t, uint32_t len, uint32_t chunk, float *out)
{
    size_t ld = (size_t)t->c.n_heads * t->c.dim;
    for (uint32_t at = 0; at < len; at += chunk) {
        uint32_t n = MIN(chunk, len - at);
        toy_begin(t);
        toy_feed(t, 0, at, n);
        struct dev_attn call = call_of(t, 0);
        dev_attention(d, &t->view, &call);
        memcpy(out + at * ld, t->out, n * ld * sizeof(float));
    }
}

static void test_chunks(void **state)
{
    (void)state;
    static const struct shape small = {3, 1, 16, DT_F16};
    static const uint32_t chunks[] = {1, 7, 64};
    static const size_t which[] = {0, 4, 6, 10};
    const uint32_t len = 540;
    for (size_t i = 0; i < countof(which); i++) {
        struct toy_config c = config_of(&small, &policies[which[i]], 16);
        c.n_lanes = 1;
        c.turned = c.logits = true;
        struct toy t;
        toy_open(&t, &c);
        size_t bytes = len * 3 * 16 * sizeof(float);
        float *want = toy_alloc(bytes), *got = toy_alloc(bytes);
        struct dev_queue *d = device(dev_isa_supported(DEV_AVX2)   ? DEV_AVX2
                                     : dev_isa_supported(DEV_NEON) ? DEV_NEON
                                                                   : DEV_REF,
                                     2);
        prefill(d, &t, len, len, want);
        for (size_t k = 0; k < countof(chunks); k++) {
            if (chunks[k] == 1 && (i + 1) % test_share()) continue; /* fills all rows so often */
            prefill(d, &t, len, chunks[k], got);
            assert_memory_equal(got, want, bytes);
        }
        if (dev_isa_supported(DEV_AVX512)) {
            prefill(device(DEV_AVX512, 3), &t, len, 33, got);
            assert_memory_equal(got, want, bytes);
        }
        free(want);
        free(got);
        toy_close(&t);
    }
}

/* Tests a batch of lanes, then each lane alone: the same bits. Lossless tiles give the same bits as
 * no tiles. */
static void test_mates(void **state)
{
    (void)state;
    static const uint32_t pos[4] = {5, 700, 255, 256}, n[4] = {1, 1, 40, 3};
    struct toy t[2];
    float *got[2];
    for (int k = 0; k < 2; k++) {
        struct toy_config c = config_of(&shapes[0], &policies[k ? 6 : 0], k ? 256 : 16);
        toy_state = 77;
        toy_open(&t[k], &c);
        size_t ld = (size_t)c.n_heads * c.dim;
        got[k] = toy_alloc(45 * ld * sizeof(float));
        toy_begin(&t[k]);
        for (uint32_t i = 0; i < 4; i++)
            toy_feed(&t[k], i, pos[i], n[i]);
        struct dev_attn call = call_of(&t[k], 0);
        dev_attention(device(DEV_REF, 3), &t[k].view, &call);
        memcpy(got[k], t[k].out, 45 * ld * sizeof(float));
        for (uint32_t i = 0, at = 0; i < 4; at += n[i++]) {
            toy_begin(&t[k]);
            toy_feed(&t[k], i, pos[i], n[i]);
            call = call_of(&t[k], 0);
            dev_attention(device(DEV_REF, 2), &t[k].view, &call);
            assert_memory_equal(t[k].out, got[k] + at * ld, n[i] * ld * sizeof(float));
        }
    }
    assert_memory_equal(got[0], got[1], 45 * (size_t)9 * 64 * sizeof(float));
    for (int k = 0; k < 2; k++) {
        free(got[k]);
        toy_close(&t[k]);
    }
}

/* Tests a site that arrives in pieces of whole atoms, with more decoding atoms than a wave holds.
 * Under a lossy codec pieces of sealed rows come first. The raw rows come with the last sealed
 * piece, with the first raw piece, or in pieces too. */
static void test_pieces(void **state)
{
    (void)state;
    static const uint32_t whole[][4] = {
        {0, 256, 0, 256}, {256, 512, 256, 512}, {512, 768, 512, 768}, {0}};
    static const uint32_t sealed[][4] = {{0, 256, 0, 0}, {256, 512, 0, 0}, {512, 768, 0, 768}, {0}};
    static const uint32_t raw[][4] = {
        {0, 768, 0, 256}, {0, 0, 256, 512}, {0, 0, 512, UINT32_MAX}, {0}};
    static const uint32_t both[][4] = {{0, 512, 0, 0},   {512, UINT32_MAX, 0, 0}, {0, 0, 0, 256},
                                       {0, 0, 256, 512}, {0, 0, 512, UINT32_MAX}, {0}};
    static const size_t which[] = {0, 4, 5, 6, 8, 10, 11, 12, 15, 16, 17};
    static const struct shape small = {4, 2, 16, DT_BF16};
    for (size_t i = 0; i < countof(which) * 3; i++) {
        struct toy_config c = config_of(&small, &policies[which[i / 3]], 16);
        const uint32_t(*piece)[4] = i % 3 == 0 ? sealed : i % 3 == 1 ? raw : both;
        struct toy t;
        if (i % test_share()) continue;
        if (!c.codec || c.codec->lossless) piece = whole;
        c.turned = c.logits = true;
        toy_open(&t, &c);
        ragged(&t);
        size_t bytes = out_bytes(&t);
        float *want = toy_alloc(bytes);
        struct dev_queue *d = device(DEV_REF, 2);
        struct dev_attn call = call_of(&t, 0);
        dev_attention(d, &t.view, &call);
        memcpy(want, t.out, bytes);
        call = call_of(&t, 0);
        for (uint32_t k = 0; piece[k][1] | piece[k][3]; k++) {
            t.view.row0 = piece[k][0];
            t.view.row1 = piece[k][1];
            t.view.raw0 = piece[k][2];
            t.view.raw1 = piece[k][3];
            t.view.first = k == 0;
            t.view.last = !(piece[k + 1][1] | piece[k + 1][3]);
            dev_attention(d, &t.view, &call);
        }
        if (memcmp(t.out, want, bytes) != 0)
            fail_msg("%s: pieces %zu differ from all rows at once", policies[which[i / 3]].name,
                     i % 3);
        free(want);
        toy_close(&t);
    }
}

static void test_waves(void **state)
{
    (void)state;
    struct toy_config c = {.n_lanes = 8,
                           .n_heads = 2,
                           .n_kv = 1,
                           .dim = 12,
                           .dtype = DT_F16,
                           .rows = 16,
                           .codec = &toy_lossy16,
                           .max_len = TOY_ROWS,
                           .window = 0,
                           .lead = 4};
    struct toy t;
    toy_open(&t, &c);
    toy_begin(&t);
    for (uint32_t i = 0; i < 8; i++)
        toy_feed(&t, i, i * 290, 1); /* 40 sealed atoms, 8 raw atoms, and raw lead rows */
    check_step(&t, 0, "eight lanes");
    toy_close(&t);
    c.codec = NULL;
    c.n_lanes = 8;
    toy_open(&t, &c);
    toy_begin(&t);
    for (uint32_t i = 0; i < 8; i++)
        toy_feed(&t, i, TOY_ROWS - 1 - 8 * i, 1); /* 64 atoms: exactly a wave */
    toy_idle(&t, 3);
    check_step(&t, 0, "a wave");
    for (uint32_t i = 0; i < 8; i++)
        toy_idle(&t, 7);
    check_step(&t, 0, "a wave and a run of idle tokens");
    toy_close(&t);
}

/* Forks share pages, and the pages before their divergence are read once. An unrelated lane at the
 * same rows shares nothing, nor does a fork with another edge. */
static void test_forks(void **state)
{
    (void)state;
    static const size_t which[] = {0, 4, 6, 7, 8, 10};
    static const uint32_t pos[8] = {600, 600, 600, 600, 600, 600, 512, 511};
    for (size_t i = 0; i < countof(which); i++)
        for (int n = 0; n < 2; n++) {
            struct toy_config c = config_of(&shapes[n ? 3 : 0], &policies[which[i]], n ? 256 : 16);
            struct toy t;
            if (left_out()) continue;
            c.n_lanes = 8;
            c.turned = c.logits = n;
            toy_open(&t, &c);
            toy_fork(&t, 0, 1, 512);
            toy_fork(&t, 0, 2, 256);
            toy_fork(&t, 0, 3, 512);
            toy_fork(&t, 4, 5, 512);
            toy_begin(&t);
            for (uint32_t lane = 0; lane < 8; lane++)
                toy_feed(&t, lane, pos[lane], 1);
            check_step(&t, 0, policies[which[i]].name);
            toy_close(&t);
        }
}

/* Forks that part inside an atom, at different lengths, and a few tokens of one lane on both sides of an atom's end: the
 * rows that they have in common are read once, the others one by one. */
static void test_partings(void **state)
{
    (void)state;
    static const size_t which[] = {0, 1, 4, 6, 8};
    static const uint32_t parted[] = {496, 400, 336, 272, 144};
    for (size_t i = 0; i < countof(which); i++)
        for (uint32_t n = 2; n < 9; n += 3) {
            struct toy_config c = config_of(&shapes[n == 2 ? 3 : 0], &policies[which[i]], 16);
            struct toy t;
            if (left_out()) continue;
            c.n_lanes = 8;
            c.turned = c.logits = n == 5;
            toy_open(&t, &c);
            for (uint32_t lane = 1; lane <= countof(parted); lane++)
                toy_fork(&t, 0, lane, parted[lane - 1]);
            toy_begin(&t);
            for (uint32_t lane = 0; lane < 6; lane++)
                toy_feed(&t, lane, lane % 2 ? 500 : 505, 1);
            toy_feed(&t, 6, 253, n);
            toy_feed(&t, 7, 8, n);
            check_step(&t, 0, policies[which[i]].name);
            toy_close(&t);
        }
}

/* Tiles of K only: the rows of V are read raw, and the atoms are cut as for any lossy codec. */
static void decode_whole(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, uint32_t first, const void *src)
{
    affine_decode(c->param, s, c->tile, head, src, 0, c->tile, dst, first);
}

/* Codes that are read one strip at a time give the bits of tiles dequantized as a whole, one after
 * another. */
static void test_codes(void **state)
{
    (void)state;
    static const struct affine_choice options[] = {
        {"quanto", 4, 0, 0, 64, 1},  {"quanto", 2, 0, 0, 128, 1}, {"quanto", 4, -1, -1, 16, 1},
        {"quanto", 4, -1, -1, 8, 1}, {"hqq", 8, 1, 1, 32, 1},     {"hqq", 3, 0, 0, 32, 1},
    };
    static const struct shape of[] = {{9, 3, 64, DT_F16}, {4, 2, 128, DT_BF16}, {4, 2, 64, DT_F32}};
    static const struct policy how[] = {
        {"full", NULL, 0, 0, 0, 0}, {"window", NULL, 3, 5, 90, 0}, {"chunk", NULL, 0, 7, 0, 70}};
    for (size_t i = 0; i < countof(options) * countof(of); i++) {
        struct kv_codec_pair pair;
        const struct shape *s = &of[i / countof(options)];
        struct kv_shape k = {s->n_kv, s->dim, s->dtype, KV_STRIPS};
        struct kv_codec *c = NULL, whole;
        struct toy t;
        if ((i + i / countof(options)) % ((test_share() + 1) / 2)) continue;
        assert_int_equal(pair_of(&options[i % countof(options)], &pair), 0);
        assert_int_equal(kv_codec_open(&pair.plane[0], &k, true, 0, &c), 0);
        struct toy_config config =
            config_of(s, &how[(i + i / countof(options)) % countof(how)], 16);
        config.codec = c;
        toy_open(&t, &config);
        ragged(&t);
        size_t bytes = out_bytes(&t);
        float *want = toy_alloc(bytes);
        whole = *c;
        whole.reader = NULL;
        whole.decode = decode_whole;
        t.view.codec[0] = t.view.codec[1] = &whole;
        struct dev_attn call = call_of(&t, 0);
        dev_attention(device(DEV_REF, 2), &t.view, &call);
        memcpy(want, t.out, bytes);
        t.view.codec[0] = t.view.codec[1] = c;
        for (int isa = 0; isa < DEV_AVX512BF16; isa++)
            for (uint32_t threads = 1; threads <= 3; threads++) {
                struct dev_queue *d = device((enum dev_isa)isa, threads);
                bool again =
                    isa == DEV_REF || test_share() > 1; /* one number of threads is enough */
                if (!d || (again && threads != 2)) continue;
                call = call_of(&t, 0);
                dev_attention(d, &t.view, &call);
                if (memcmp(want, t.out, bytes))
                    fail_msg("case %zu: %s, %u threads differs", i, dev_isa_name(d), threads);
            }
        for (size_t n = 0; n < bytes / sizeof(float); n++)
            assert_true(isfinite(want[n]) || !t.len[t.lane[n / call.ldo]]);
        free(want);
        toy_close(&t);
        kv_codec_close(c);
    }
}

static void test_keys_only(void **state)
{
    (void)state;
    for (uint32_t rows = 16; rows <= 256; rows *= 16) {
        struct toy_config c = config_of(&shapes[3], &policies[9], rows);
        struct toy t;
        if (rows > 16 && test_share() > 1) continue;
        c.keys_only = true;
        toy_open(&t, &c);
        ragged(&t);
        check_step(&t, 0, "tiles of K only");
        toy_close(&t);
    }
}

/* Tests reaches that no policy asks for: any lo <= hi, with unrelated tokens in one lane. */
static void test_random_reach(void **state)
{
    (void)state;
    static const size_t which[] = {0, 4, 6, 8, 10};
    for (int n = 0; n < 40; n++) {
        const struct shape s = {1 + toy_random() % 9, 1, 4 * (1 + toy_random() % 10),
                                (enum dtype)(toy_random() % 3)};
        struct toy_config c = config_of(&s, &policies[which[n % countof(which)]], 16);
        struct toy t;
        if (left_out()) continue;
        c.n_lanes = 2;
        c.turned = n % 2;
        c.logits = n % 4 > 1;
        toy_open(&t, &c);
        for (uint32_t lane = 0; lane < 2; lane++)
            toy_fill(&t, lane, 0, 0, 720);
        toy_begin(&t);
        for (uint32_t i = 0; i < 30; i++) {
            uint32_t hi = toy_random() % 720, lo = toy_random() % (hi + 1);
            uint32_t edge = toy_random() % 640 / 128 * 128;
            toy_token(&t, i / 9 % 2, i, lo, hi, c.codec ? edge : 0);
        }
        check_step(&t, n % 3 ? 0 : 2.5f, "random reach");
        toy_close(&t);
    }
}

static int close_devices(void **state)
{
    (void)state;
    for (int i = 0; i < DEV_ISAS; i++)
        for (int k = 0; k < 4; k++)
            if (devices[i][k]) dev_queue_close(devices[i][k]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_policies),
        cmocka_unit_test(test_chunks),       cmocka_unit_test(test_mates),
        cmocka_unit_test(test_pieces),       cmocka_unit_test(test_waves),
        cmocka_unit_test(test_forks),        cmocka_unit_test(test_partings),
        cmocka_unit_test(test_keys_only),    cmocka_unit_test(test_codes),
        cmocka_unit_test(test_random_reach), cmocka_unit_test(test_dims),
    };
    return cmocka_run_group_tests(tests, NULL, close_devices);
}
