/* test_draft_length.c - drafts of prompt lookup adapt: texts where draft tokens are right by chance, in
 * bursts, or never. With what steps cost, no text may be slower than 0.97 of plain decoding, and a text
 * that repeats itself soon has the longest drafts. */
#include "generate/draft_length.h"
#include "testing.h"

enum { MOST = 10, LONGEST = 4000 };

/* What a step with k draft tokens costs, in steps of one token (bench_steps, bench_speculate). */
static double cost(uint32_t k)
{
    return k ? 1.1 + 0.2 * k : 1;
}

/* Decodes n tokens, of which token i is what lookup says if right[i]. Returns the speed in plain decoding's. */
static double decode(const bool *right, uint32_t n, uint32_t *longest)
{
    static int32_t ids[LONGEST + MOST];
    struct draft_length *l;
    double spent = 0;
    *longest = 0;
    assert_int_equal(draft_length_open(2, &l), 0);
    for (uint32_t at = 0; at < n;) {
        struct draft_row w = {.row = 1, .ids = ids, .n = at};
        draft_length_learn(l, 1, ids, at);
        uint32_t ask = draft_length_ask(l, 1, MOST), good = 0;
        assert_in_range(ask, 1, MOST);
        for (w.got = 0; w.got < ask; w.got++)
            ids[at + w.got] = at + w.got < n && right[at + w.got] ? 7 : 3;
        uint32_t k = draft_length_take(l, &w);
        assert_true(k == 0 || k == w.got);
        while (good < k && ids[at + good] == 7)
            good++;
        spent += cost(k);
        *longest = MAX(*longest, k);
        for (uint32_t end = MIN(at + good + 1, n); at < end; at++)
            ids[at] = 7;
    }
    draft_length_close(l);
    return n / spent;
}

static void never_slower(void **state)
{
    (void)state;
    static bool right[LONGEST];
    static const uint32_t length[] = {100, 1000, LONGEST};
    double worst = 9;
    for (uint32_t burst = 1; burst <= 8; burst++)
        for (uint32_t percent = 0; percent <= 100; percent += 5)
            for (size_t i = 0; i < countof(length); i++) {
                uint32_t longest, x = 1 + percent + 101 * burst;
                for (uint32_t t = 0; t < LONGEST; t++) {
                    if (t % burst == 0) x = x * 1664525u + 1013904223u;
                    right[t] = (x >> 8) % 100 < percent;
                }
                double speed = decode(right, length[i], &longest);
                if (speed < 0.97)
                    fail_msg("%u %% right in bursts of %u, %u tokens: %.3f of plain decoding",
                             percent, burst, length[i], speed);
                worst = speed < worst ? speed : worst;
                if (percent == 0) assert_int_equal(longest, 0);
            }
    print_message("the slowest text: %.3f of plain decoding\n", worst);
}

static void repetition(void **state)
{
    (void)state;
    static bool right[LONGEST];
    uint32_t longest;
    memset(right, true, sizeof right);
    assert_true(decode(right, 100, &longest) > 2);
    assert_int_equal(longest, MOST);
    assert_true(decode(right, LONGEST, &longest) > 3.3); /* 11 tokens for 3.1 steps are 3.5 */
}

/* A text stops repeating itself, and drafts stop with it; a text begins to, and drafts come back. */
static void changes(void **state)
{
    (void)state;
    static bool right[LONGEST];
    uint32_t longest;
    for (uint32_t t = 0; t < 2000; t++)
        right[t] = t < 1000;
    double half = decode(right, 2000, &longest);
    assert_true(half > 1.45); /* 1000 tokens for 290 steps, and 1000 for 1000 */
    for (uint32_t t = 0; t < 2000; t++)
        right[t] = t >= 1000;
    assert_true(decode(right, 2000, &longest) > 1.45);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_slower),
        cmocka_unit_test(repetition),
        cmocka_unit_test(changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
