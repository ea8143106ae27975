/* test_kv_policy.c - the pure parts of the store: reach, edge, and the codec that only moves bytes. */
#include "../codec/shuffle.h"
#include "dev/row.h"
#include "kv/kv_int.h"
#include "model/preset.h"
#include "testing.h"

static void test_reach(void **state)
{
    (void)state;
    static const struct {
        struct kv_policy p;
        uint32_t pos, rows;
        struct kv_reach want;
    } row[] = {
        {{.kind = KV_ROWS}, 0, 0, {0, 0, 1}},
        {{.kind = KV_ROWS}, 9000, 0, {0, 0, 9001}},
        {{.kind = KV_ROWS, .window = 1}, 7, 0, {0, 7, 8}},
        {{.kind = KV_ROWS, .window = 64}, 63, 0, {0, 0, 64}},
        {{.kind = KV_ROWS, .window = 64}, 64, 0, {0, 1, 65}},
        {{.kind = KV_ROWS, .chunk = 8}, 7, 0, {0, 0, 8}},
        {{.kind = KV_ROWS, .chunk = 8}, 8, 0, {0, 8, 9}},
        {{.kind = KV_ROWS, .chunk = 8, .window = 3}, 15, 0, {0, 13, 16}},
        {{.kind = KV_ROWS, .window = 8, .sinks = 4},
         11,
         0,
         {0, 0, 12}}, /* sinks touch the window */
        {{.kind = KV_ROWS, .window = 8, .sinks = 4}, 12, 0, {4, 5, 13}},
        {{.kind = KV_ROWS, .window = 8, .sinks = 4}, 2, 0, {0, 0, 3}},
        {{.kind = KV_ROWS, .window = UINT32_MAX}, 100, 0, {0, 0, 101}},
        {{.kind = KV_FROZEN}, 3, 1500, {0, 0, 1500}},
        {{.kind = KV_STATE}, 3, 0, {0, 0, 0}},
    };
    for (size_t i = 0; i < countof(row); i++) {
        struct kv_reach r = kv_reach(&row[i].p, row[i].pos, row[i].rows);
        assert_int_equal(r.sinks, row[i].want.sinks);
        assert_int_equal(r.lo, row[i].want.lo);
        assert_int_equal(r.hi, row[i].want.hi);
    }
}

/* resid_length R as the quantized cache of Transformers has it: the first update is quantized
 * whole, and later rows gather until there are R. */
static void test_edge_by_hand(void **state)
{
    (void)state;
    struct kv_turn turn[] = {{0, 100}, {150, 20}};
    struct kv_seal s = {.tile = 1, .resid = 64};
    static const struct {
        uint32_t pos, want;
    } row[] = {
        {0, 0},     {99, 0},    {100, 100}, {101, 100},
        {149, 100}, {150, 100}, {169, 100}, {170, 170}, /* 50 tokens and a turn of 20 make 70 */
        {233, 170}, {234, 234}, {298, 298},
    };
    for (size_t i = 0; i < countof(row); i++)
        assert_int_equal(kv_edge(&s, turn, 2, row[i].pos), row[i].want);
    s.tile = 16;
    assert_int_equal(kv_edge(&s, turn, 2, 170), 160);
    s.resid = 0;
    assert_int_equal(kv_edge(&s, turn, 2, 169), 160);
    s.tile = 0;
    assert_int_equal(kv_edge(&s, turn, 2, 169), 0);
    assert_int_equal(kv_edge(&(struct kv_seal){.tile = 1, .resid = 64}, NULL, 0, 500), 1 + 64 * 7);
    assert_int_equal(kv_edge(&(struct kv_seal){.tile = 1, .resid = 1}, NULL, 0, 500), 500);
}

/* Computes the edge as QuantizedLayer of Transformers does, update after update. */
static uint32_t edge_slowly(uint32_t resid, uint32_t tile, const struct kv_turn *turn, uint32_t n,
                            uint32_t pos)
{
    uint32_t edge = 0, held = 0, at = 0, i = 0;
    for (bool first = true; at < pos; first = false) {
        uint32_t k = 1;
        while (i < n && turn[i].pos < at)
            i++;
        if (i < n && turn[i].pos == at) k = turn[i].n;
        if (at + k > pos) break;
        at += k;
        if (first || held + k >= resid) {
            edge = at;
            held = 0;
        } else {
            held += k;
        }
    }
    return edge - edge % tile;
}

static void test_edge_random(void **state)
{
    (void)state;
    srand(11);
    for (int round = 0; round < 3000; round++) {
        struct kv_turn turn[16];
        uint32_t n = (uint32_t)rand() % 16, at = 0, tile = 1u << rand() % 6;
        for (uint32_t i = 0; i < n; i++) {
            turn[i].pos = at + (uint32_t)(rand() % 3 ? rand() % 90 : 0);
            turn[i].n = 2 + (uint32_t)rand() % 60;
            at = turn[i].pos + turn[i].n;
        }
        struct kv_seal s = {.tile = tile, .resid = 1 + (uint32_t)rand() % 100};
        uint32_t before = 0;
        for (uint32_t pos = 0; pos < at + 150; pos += 1 + (uint32_t)rand() % 7) {
            uint32_t e = kv_edge(&s, turn, n, pos);
            assert_int_equal(e, edge_slowly(s.resid, tile, turn, n, pos));
            assert_true(e >= before && e <= pos);
            before = e;
        }
    }
}

static void test_shuffle(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    static const enum kv_layout layouts[] = {KV_STRIPS, KV_ROWMAJOR};
    const struct kv_codec *c = &kv_codec_shuffle;
    for (int round = 0; round < 30; round++) {
        struct kv_shape s = {1 + (uint32_t)round % 3, 1 + (uint32_t)round % 7, types[round % 3],
                             layouts[round % 2]};
        uint32_t rows = 16u << round % 5, n = MAX(128 / rows, 1u), size = dtype_size(s.dtype);
        size_t block = (size_t)rows * s.heads * s.dim * size;
        unsigned char *raw = malloc(n * block), *tile = malloc(c->bytes(c, &s)),
                      *back = malloc(block * 8);
        const void *part[8];
        assert_true(raw && tile && back);
        for (size_t i = 0; i < n * block; i++)
            raw[i] = (unsigned char)(i * 131 + i / 251);
        for (uint32_t i = 0; i < n; i++)
            part[i] = raw + i * block;
        for (uint32_t first = 0; first < MAX(rows, 128u); first += 128) {
            kv_tile_encode(c, &s, tile, part, rows, first, 0);
            for (uint32_t h = 0; h < s.heads; h++) {
                c->decode(c, &s, h, back, 0, tile);
                for (uint32_t r = 0; r < 128; r++)
                    for (uint32_t d = 0; d < s.dim; d++) {
                        uint32_t row = first + r, at = row % rows;
                        size_t in_block = (size_t)h * rows * s.dim, in_tile;
                        if (s.layout == KV_STRIPS) {
                            in_block += ((size_t)(at / 16) * s.dim + d) * 16 + at % 16;
                            in_tile = ((size_t)(r / 16) * s.dim + d) * 16 + r % 16;
                        } else {
                            in_block += (size_t)at * s.dim + d;
                            in_tile = (size_t)r * s.dim + d;
                        }
                        const unsigned char *want = (const unsigned char *)part[row / rows];
                        assert_memory_equal(back + in_tile * size, want + in_block * size, size);
                    }
            }
        }
        /* The codec does move rows. */
        assert_memory_not_equal(tile, raw, MIN(c->bytes(c, &s), block));
        free(raw);
        free(tile);
        free(back);
    }
}

/* Presets are sets of fields. Sites of one kind share a group, whatever their order in the model. */
static void test_presets(void **state)
{
    (void)state;
    assert_non_null(preset_find("dynamic"));
    assert_true(preset_find("static")->reserve && !preset_find("dynamic")->reserve);
    assert_null(preset_find("Dynamic"));
    uint32_t n = 0;
    while (preset_at(n))
        assert_ptr_equal(preset_find(preset_at(n)->name), preset_at(n)), n++;
    assert_true(n >= 2);
    struct kv_site of[7];
    for (uint32_t i = 0; i < 6; i++)
        of[i] = kv_site_rows(2, 8, 8), of[i].window = i % 2 ? 0 : 32;
    of[6] = (struct kv_site){
        .kind = KV_STATE, .n_planes = 2, .plane = {{"conv", 1, 30}, {"ssm", 3, 7}}};
    struct preset_options o = {.dtype = DT_F16};
    for (int i = 0; i < 2; i++)
        assert_int_equal(kv_codec_usual("shuffle", &o.quant.plane[i]), 0);
    struct kv_group g[7];
    uint32_t site[7];
    assert_int_equal(preset_groups(of, 7, &o, g, site), 3);
    static const uint32_t want[7] = {0, 3, 1, 4, 2, 5, 6};
    assert_memory_equal(site, want, sizeof want);
    assert_int_equal(g[0].policy.window, 32);
    assert_int_equal(g[1].policy.window, 0);
    assert_int_equal(g[1].seal.tile, 128);
    assert_true(g[2].policy.kind == KV_STATE && !g[2].seal.tile && !g[2].plane[1].codec);
    assert_true(g[2].plane[1].shape.dtype == DT_F32 && g[2].plane[1].shape.layout == KV_FLAT);
    assert_int_equal(kv_site_bytes(&of[0], DT_F16), 2 * 2 * 8 * 2);
    assert_int_equal(kv_site_bytes(&of[6], DT_F16), (30 + 21) * 4);
    struct kv_config c = {.group = g,
                          .n_groups = 3,
                          .max_seqs = 1,
                          .max_tokens = 8,
                          .max_len = 256,
                          .pool_bytes = 1 << 20};
    struct kv *kv;
    assert_int_equal(kv_open(&kv, &c), 0);
    kv_close(kv);
    preset_close(g, 3);
    o.block_rows = 8;
    assert_int_equal(preset_groups(of, 7, &o, g, site), ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reach),       cmocka_unit_test(test_edge_by_hand),
        cmocka_unit_test(test_edge_random), cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_presets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
