/* test_dev_gather.c - rows and columns of activations from place to place: copies of columns, rows picked in place, the inputs
 * of a convolution against loops by the definition; the choice of experts with ties and NaN. */
#include "dev/dev.h"
#include "testing.h"

#include <math.h>

static struct dev_queue *dev;
static float x[24], out[64];

static int start(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(x); i++)
        x[i] = (float)i + 1;
    return dev_queue_open(&dev_host, &(struct dev_config){.n_threads = 1}, &dev);
}

static int stop(void **state)
{
    (void)state;
    dev_queue_close(dev);
    return 0;
}

/* Two tokens of 12 values: of each of 3 parts, 4 apart, the last 2 values go to rows of 7 values. */
static void cut(void **state)
{
    (void)state;
    memset(out, 0, sizeof out);
    dev_cut(dev, &(struct dev_cut){x + 2, 12, 3, 4, 2, out, 7}, 2);
    for (size_t t = 0; t < 2; t++)
        for (size_t c = 0; c < 7; c++) {
            float want = c < 6 ? x[t * 12 + c / 2 * 4 + 2 + c % 2] : 0;
            assert_float_equal(out[t * 7 + c], want, 0);
        }
}

static void rows(void **state)
{
    (void)state;
    static const uint32_t id[] = {0, 2, 3, 7};
    float in_place[24];
    memcpy(in_place, x, sizeof x);
    dev_rows(dev, in_place, id, 4, 3, in_place);
    dev_rows(dev, x, id, 4, 3, out);
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(out + 3 * i, x + (size_t)3 * id[i], 3 * sizeof *x);
    assert_memory_equal(in_place, out, 12 * sizeof *x);
    assert_memory_equal(in_place + 12, x + 12, 12 * sizeof *x); /* rows behind them stay */
}

static void unfold(void **state)
{
    (void)state;
    for (uint32_t step = 1; step <= 2; step++) {
        uint32_t n = 6 / step;
        dev_unfold(dev, x, 6, 2, 3, step, n, out);
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t c = 0; c < 2; c++)
                for (uint32_t j = 0; j < 3; j++) {
                    int row = (int)(step * r + j) - 1;
                    float want = row >= 0 && row < 6 ? x[2 * row + (int)c] : 0;
                    assert_float_equal(out[(r * 2 + c) * 3 + j], want, 0);
                }
    }
}

static void choose(void **state)
{
    (void)state;
    const float score[] = {0.5f, 0.25f, 0.5f, 0.125f, NAN, 1, 0, 2};
    uint32_t chosen[4];
    float weight[4];
    dev_choose(dev, score, 2, 4, 2, false, chosen, weight);
    assert_int_equal(chosen[0], 0); /* of equal scores the lowest index */
    assert_int_equal(chosen[1], 2);
    assert_int_equal(chosen[2], 0); /* nothing is larger than a NaN that comes first */
    assert_int_equal(chosen[3], 3);
    assert_float_equal(weight[1], 0.5f, 0);
    dev_choose(dev, score + 5, 1, 3, 2, true, chosen, weight);
    assert_int_equal(chosen[0], 2);
    assert_int_equal(chosen[1], 0);
    assert_float_equal(weight[0], 2.0f / 3.0f, 0);
    assert_float_equal(weight[1], 1.0f / 3.0f, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut),
        cmocka_unit_test(rows),
        cmocka_unit_test(unfold),
        cmocka_unit_test(choose),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
