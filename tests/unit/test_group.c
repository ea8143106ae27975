/* test_group.c - the kernels that quantize a group of values (dev/group.h): every instruction set gives the bits of the
 * scalar reference, for groups of all lengths and for values that are zero, tiny, huge or not finite; and what a round of
 * hqq subtracts is that of the C library's power to 2^-22. */
#include "base/base.h"
#include "dev/group.h"
#include "dev/row.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 96, ROUNDS = 400 };

static uint32_t state_of_draw = 1;
static uint32_t draw(uint32_t n)
{
    state_of_draw = state_of_draw * 1664525u + 1013904223u;
    return (state_of_draw >> 8) % n;
}
static float uniform(void)
{
    return (float)draw(1u << 24) * 0x1p-23f - 1.0f;
}

struct group {
    float x[MOST], lo, hi;
    uint32_t n;
    enum dtype t;
};

/* Draws a group; kind: 0 ordinary values, 1 with outliers, 2 with zeros, 3 of one sign, 4 with values that are odd. */
static void make(struct group *g, uint32_t kind)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    static const float odd[] = {NAN, -INFINITY, INFINITY, 6e4f, -0.0f, 0x1p-24f, -0x1p-20f};
    g->n = 1 + draw(80);
    g->t = types[draw(3)];
    float size = ldexpf(1, (int)draw(12) - 6);
    for (uint32_t i = 0; i < g->n; i++) {
        float v = uniform() * size;
        if (kind == 1 && draw(8) == 0) v *= 40;
        if (kind == 2 && draw(3) == 0) v = draw(2) ? 0.0f : -0.0f;
        if (kind == 3) v = draw(6) ? fabsf(v) : 0.0f;
        if (kind == 4 && draw(12) == 0) v = odd[draw(countof(odd))];
        g->x[i] = kv_row_round(g->t, v);
    }
    for (uint32_t i = g->n; i < MOST; i++)
        g->x[i] = i < (g->n + 15) / 16 * 16 ? g->x[g->n - 1] : 1e30f;
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, 4) == 0 || (isnan(a) && isnan(b));
}

static void compare(const struct group *g, const struct group_kernels *k, const char *isa)
{
    const struct group_kernels *ref = group_kernels[DEV_REF];
    uint8_t want[MOST] = {0}, got[MOST] = {0};
    float lo, hi, lo2, hi2, z[MOST], z2[MOST], d[MOST];
    const float top = (float)((1u << (draw(2) ? 4 : draw(2) ? 2 : 8)) - 1);
    ref->span(g->x, g->n, &lo, &hi);
    k->span(g->x, g->n, &lo2, &hi2);
    if (!same(lo, lo2) || !same(hi, hi2))
        fail_msg("%s: span [%a, %a], wants [%a, %a]", isa, (double)lo2, (double)hi2, (double)lo,
                 (double)hi);
    float scale = kv_row_round(g->t, kv_row_round(g->t, hi - lo) / top);
    ref->ranges(g->t, g->x, g->n, -lo, scale, top, want);
    k->ranges(g->t, g->x, g->n, -lo, scale, top, got);
    assert_memory_equal(want, got, g->n);
    float step = hi - lo <= 1e-4f ? 1.0f : 1 / (hi - lo) * top, zero = -lo * step + uniform();
    ref->steps(g->x, g->n, step, zero, top, want);
    k->steps(g->x, g->n, step, zero, top, got);
    assert_memory_equal(want, got, g->n);
    const struct group_round r = {
        g->t, step, zero, top, kv_row_round(g->t, zero), kv_row_round(g->t, 1 / step)};
    float e = ref->round(&r, g->x, g->n, z, d), e2 = k->round(&r, g->x, g->n, z2, d);
    if (!same(e, e2)) fail_msg("%s: error %a, wants %a", isa, (double)e2, (double)e);
    for (uint32_t i = 0; i < g->n; i++)
        if (!same(z[i], z2[i]))
            fail_msg("%s: %a at %u of %u, wants %a", isa, (double)z2[i], i, g->n, (double)z[i]);
}

static void test_siblings(void **state)
{
    (void)state;
    uint32_t tried = 0;
    for (int isa = DEV_REF + 1; isa < DEV_ISAS; isa++) {
        if (!group_kernels[isa] || !dev_isa_supported((enum dev_isa)isa)) continue;
        for (uint32_t i = 0; i < ROUNDS; i++) {
            struct group g;
            make(&g, i % 5);
            compare(&g, group_kernels[isa], dev_isa_names()[isa]);
        }
        tried++;
    }
    assert_true(tried > 0 || group_here() == group_kernels[DEV_REF]);
}

/* With step 1, zero 0 and top 0, d is x, and z is what is left of d minus x. */
static void test_power(void **state)
{
    (void)state;
    const struct group_round r = {DT_F32, 1, 0, 0, 0, 1};
    for (double size = 1e-3; size < 1e5; size *= 1.0007) {
        float x = (float)size, z, d;
        group_kernels[DEV_REF]->round(&r, &x, 1, &z, &d);
        double left = (double)x + (double)z, wants = (double)x - 0.1 * pow((double)x, -0.3);
        double off = fabs(left - (wants > 0 ? wants : 0));
        if (off > (double)x * 0x1p-22) fail_msg("%a: off by %g", (double)x, off);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_siblings),
                                       cmocka_unit_test(test_power)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
