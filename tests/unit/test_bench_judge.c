/* test_bench_judge.c - what kvik bench marks, repeats, leaves out and says, for measurements that are given here. */
#include "testing.h"

#include "../../bench/steady.h"
#include "cli/bench.h"

#include <string.h>

/* Two strategies at one depth of 2048 tokens, three runs each: dynamic, and a smaller one at the given speeds. */
struct two {
    struct bench b;
    struct bench_row row[2];
};

static void set_speeds(struct bench_row *r, const double *speed, uint32_t n)
{
    r->runs = n;
    memcpy(r->at[0].decode, speed, n * sizeof *speed);
    for (uint32_t i = 0; i < n; i++)
        r->at[0].prefill[i] = 1000;
}

static void setup(struct two *t, double a, double b, double c)
{
    *t = (struct two){.b = {.n_rows = 2,
                            .n_depths = 1,
                            .depth = {2048},
                            .runs = 3,
                            .weight_bytes = 100000000,
                            .bandwidth = 30e9}};
    t->b.row = t->row;
    strcpy(t->b.machine.model, "m");
    strcpy(t->row[0].s.name, "dynamic");
    strcpy(t->row[1].s.name, "small");
    t->row[0].prompt.held = 40 << 20;
    t->row[1].prompt.held = 10 << 20;
    set_speeds(&t->row[0], (double[]){200, 202, 198}, 3);
    set_speeds(&t->row[1], (double[]){a, b, c}, 3);
}

static const char *headline(const struct two *t)
{
    static char text[256];
    struct buf out;
    buf_init(&out, 256);
    bench_headline(&t->b, &out);
    snprintf(text, sizeof text, "%s", out.data);
    buf_done(&out);
    return text;
}

static void test_spread(void **state)
{
    (void)state;
    assert_true(bench_spread((double[]){100}, 1) == 0);
    assert_true(bench_spread((double[]){80, 100, 120}, 3) == 0.2);
    /* One bad moment of eight does not count, two bad ones at the same end of eight do not either, three do. */
    assert_true(bench_spread((double[]){100, 1, 100, 100, 100, 100, 900, 100}, 8) == 0);
    assert_true(bench_spread((double[]){100, 1, 100, 2, 100, 100, 100, 100}, 8) == 0);
    assert_true(bench_spread((double[]){100, 1, 100, 2, 100, 3, 100, 100}, 8) > 0.4);
}

/* The other benchmarks judge by the rule of the command. */
static void test_steady_header(void **state)
{
    (void)state;
    double v[][8] = {{80, 100, 120},
                     {60, 100, 140},
                     {1, 98, 99, 100, 101, 102, 103, 900},
                     {1, 2, 3, 100, 100, 100, 100, 100}};
    for (size_t i = 0; i < countof(v); i++) {
        uint32_t n = i < 2 ? 3 : 8;
        assert_int_equal(scatters(v[i], n), bench_spread(v[i], n) > MOST_SPREAD);
        assert_int_equal(scatters(v[i], n), i % 2);
    }
    assert_string_equal(text_mark(true, 2), ", scatters");
    assert_string_equal(text_mark(false, 1.06), ", above floor");
    assert_string_equal(text_mark(false, 1.04), "");
    assert_string_equal(line_mark(true), "scatters,");
    assert_string_equal(line_mark(false), "");
}

static void test_steady(void **state)
{
    (void)state;
    struct two t;
    setup(&t, 180, 181, 179);
    assert_int_equal(bench_marks_all(&t.b), 0);
    assert_false(bench_again(&t.b, &t.row[0]));
    assert_false(bench_again(&t.b, &t.row[1]));
    assert_string_equal(headline(&t),
                        "2048 tokens in 10.0 MiB instead of 40.0 MiB, at 90 % of the speed");
}

static void test_scatter(void **state)
{
    (void)state;
    struct two t;
    char text[48];
    setup(&t, 70, 250, 260);
    assert_int_equal(bench_marks(&t.b, &t.row[0], 0), 0);
    assert_int_equal(bench_marks(&t.b, &t.row[1], 0), BENCH_SCATTERS);
    assert_string_equal(bench_marks_text(BENCH_SCATTERS | BENCH_ABOVE, text),
                        "scatters, above floor");
    assert_false(bench_again(&t.b, &t.row[0]));
    assert_true(bench_again(&t.b, &t.row[1]));
    assert_string_equal(
        headline(&t),
        "2048 tokens in 10.0 MiB instead of 40.0 MiB (speeds were too unsteady to compare)");
    /* Repetitions that agree take the mark away; ones that do not end at three times the runs. */
    set_speeds(&t.row[1], (double[]){70, 250, 260, 255, 252}, 5);
    assert_false(bench_again(&t.b, &t.row[1]));
    assert_non_null(strstr(headline(&t), "at 126 % of the speed"));
    set_speeds(&t.row[1], (double[]){70, 250, 260, 71, 72, 255, 73, 253, 250}, 9);
    assert_int_equal(bench_marks(&t.b, &t.row[1], 0), BENCH_SCATTERS);
    assert_false(bench_again(&t.b, &t.row[1]));
    /* Runs that spread without scattering give a range, and dynamic's own spread does not count if both took turns. */
    setup(&t, 180, 200, 220);
    assert_non_null(strstr(headline(&t), "at 89 to 111 % of the speed"));
    t.b.in_turn = true;
    assert_non_null(strstr(headline(&t), "at 90 to 110 % of the speed"));
    /* The measure itself scatters. */
    setup(&t, 180, 181, 179);
    set_speeds(&t.row[0], (double[]){100, 200, 290}, 3);
    assert_false(bench_comparable(&t.b, &t.row[1]));
    assert_true(bench_again(&t.b, &t.row[0]));
    /* One run that was asked for stays one. */
    setup(&t, 70, 250, 260);
    t.b.runs = 1;
    assert_false(bench_again(&t.b, &t.row[1]));
    setup(&t, 180, 181, 179);
    t.row[1].at[0].prefill[1] = 100;
    t.row[1].at[0].prefill[2] = 2000;
    assert_int_equal(bench_marks(&t.b, &t.row[1], 0), BENCH_PREFILL);
    assert_true(bench_again(&t.b, &t.row[1]));
    assert_true(bench_comparable(&t.b, &t.row[1]));
}

static void test_above_floor(void **state)
{
    (void)state;
    struct two t;
    setup(&t, 630, 631, 629); /* 300 a second read the weights at this bandwidth */
    assert_int_equal(bench_marks(&t.b, &t.row[1], 0), BENCH_ABOVE);
    assert_true(bench_again(&t.b, &t.row[1]));
    assert_non_null(strstr(headline(&t), "too unsteady"));
    /* Weights in the processor's cache: both are above, their ratio holds, and repetitions would change nothing. */
    t.b.bandwidth = 10e9;
    assert_int_equal(bench_marks(&t.b, &t.row[0], 0), BENCH_ABOVE);
    assert_false(bench_again(&t.b, &t.row[1]));
    assert_non_null(strstr(headline(&t), "at 315 % of the speed"));
    /* Five percent are the doubt of the measurement of memory itself. */
    setup(&t, 310, 310, 310);
    assert_int_equal(bench_marks(&t.b, &t.row[1], 0), 0);
    t.b.bandwidth = 0;
    assert_int_equal(bench_marks_all(&t.b), 0);
}

static void left_out(const struct two *t, const char *want)
{
    struct buf out;
    buf_init(&out, 256);
    bench_left_out(&t->b, &out);
    assert_string_equal(out.len ? out.data : "", want);
    buf_done(&out);
}

static void test_limit(void **state)
{
    (void)state;
    struct two t;
    setup(&t, 180, 181, 179);
    assert_true(bench_limit(400, 0) == 600);
    assert_true(bench_limit(10, 0) == 60);
    assert_true(bench_limit(400, 30) == 30);
    assert_true(bench_limit(0, 0) == 0);
    assert_true(bench_fits(&t.b, 1e9, 1e9));
    t.b.limit = 60;
    assert_true(bench_fits(&t.b, 50, 10));
    assert_false(bench_fits(&t.b, 50, 11));
    left_out(&t, "");
    t.row[1].runs = 2;
    left_out(&t, "The limit of 60 s was reached: 1 measured fewer than 3 times (at least 2).");
    t.row[1].refused = (char[]){"late"};
    t.row[1].late = true;
    left_out(&t, "The limit of 60 s was reached: 1 of 2 strategies not measured.");
    assert_string_equal(headline(&t), "2048 tokens in 40.0 MiB");
}

static void test_load(void **state)
{
    (void)state;
    struct bench_load a = {true, 0, 0, 0}, b;
    assert_true(bench_load_parse("cpu  1000 200 300 5000 400 50 30 20 7 7\n", 100, &b));
    assert_true(b.used == 16 && b.idle == 54);
    b.known = true;
    b.own = 9;
    assert_true(bench_load_others(&a, &b) == 0.1);
    b.own = 20; /* clocks of different grain */
    assert_true(bench_load_others(&a, &b) == 0);
    b.known = false;
    assert_true(bench_load_others(&a, &b) == -1);
    b.known = true;
    assert_true(bench_load_others(&b, &b) == -1);
    assert_false(bench_load_parse("cpu  0 0 0 0 0 0 0 0 0 0\n", 100, &b));
    assert_false(bench_load_parse("cpu0 1 2 3 4 5 6 7 8\n", 100, &b));
    assert_false(bench_load_parse("cpu  1 2 3\n", 100, &b));
    assert_false(bench_load_parse("", 100, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_steady_header), cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_above_floor),   cmocka_unit_test(test_limit),
        cmocka_unit_test(test_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
