/* test_jinja.c - small templates against Jinja2 as transformers sets it up: every operator, filter,
 * test, method and tag, the errors with their lines, and the refusal of everything else by name.  The
 * cases and the script that made them are in tests/golden/chat. */
#include "testing.h"

#include "base/file.h"
#include "chat/prompt.h"

static json_t *vars;

/* Phrases of our error messages where the messages of Jinja2 use other words. */
static const struct {
    const char *theirs, *ours;
} words[] = {
    {"No filter named ", "unknown filter"},
    {"No test named ", "unknown test"},
    {"integer modulo by zero", "modulo by zero"},
    {"tuple index out of range", "Replacement index 0 out of range"},
    {"at index ", "unsupported format character"},
    {"get expected at least 1", "get() needs at least 1 argument"},
    {"can't assign to", "can't assign to"},
    {"expected token ':', got '}'", "unexpected '}'"},
    {"You probably made a nesting mistake", "Jinja was looking for the following tags"},
    {"<template>, line", "outside loop"},
    {"Can only get item pairs", "Can only get item pairs"},
    {"'>' not supported", "not supported between instances of"},
};

static bool message_matches(const char *want)
{
    if (strstr(err_last(), want)) return true;
    for (size_t i = 0; i < countof(words); i++)
        if (strstr(want, words[i].theirs)) return strstr(err_last(), words[i].ours) != NULL;
    return false;
}

static bool line_matches(const json_t *raises)
{
    char want[32];
    const json_t *line = json_object_get(raises, "line");
    if (strncmp(err_last(), "line ", 5) != 0) return false;
    if (!line || strcmp(json_string_value(json_object_get(raises, "type")), "SyntaxError") == 0)
        return true;
    snprintf(want, sizeof want, "line %d: ", (int)json_integer_value(line));
    return strncmp(err_last(), want, strlen(want)) == 0;
}

static int render(const char *source, size_t n, struct buf *out)
{
    struct jinja *j;
    TRY(jinja_compile(source, n, &j));
    struct rendered marks = {0};
    int e = jinja_run(j, vars, NULL, NULL, out, &marks);
    rendered_done(&marks);
    jinja_drop(j);
    return e;
}

static bool run_case(const json_t *c, bool strict)
{
    const json_t *source = json_object_get(c, "template"), *raises = json_object_get(c, "raises");
    const json_t *want = json_object_get(c, "rendered"), *refused = json_object_get(c, "refused");
    struct buf out;
    buf_init(&out, 1 << 20);
    int e = render(json_string_value(source), json_string_length(source), &out);
    bool ok;
    if (refused && strict) /* refused by name and with a line number */
        ok = e == ERR_UNSUPPORTED && strncmp(err_last(), "line ", 5) == 0 &&
             strstr(err_last(), json_string_value(refused));
    else if (raises)
        ok = e < 0 && (!strict || line_matches(raises)) &&
             (!strict || message_matches(json_string_value(json_object_get(raises, "message"))));
    else
        ok = e == 0 && out.len == json_string_length(want) &&
             (!out.len || memcmp(out.data, json_string_value(want), out.len) == 0);
    if (!ok)
        printf("%s\n  want %s\n  got  %s\n", json_string_value(source),
               json_string_value(refused  ? refused
                                 : raises ? json_object_get(raises, "message")
                                          : want),
               e < 0      ? err_last()
               : out.data ? out.data
                          : "");
    buf_done(&out);
    return ok;
}

static void run_lines(const char *path, bool strict, size_t *ran, size_t *failed)
{
    char *text, *line, *save = NULL;
    size_t n;
    assert_int_equal(file_read(path, 64 << 20, &text, &n), 0);
    for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *c;
        assert_int_equal(json_parse(line, strlen(line), path, &c), 0);
        ++*ran;
        *failed += !run_case(c, strict);
        json_decref(c);
    }
    mem_free(text);
}

static void engine_cases(void **state)
{
    (void)state;
    size_t ran = 0, failed = 0;
    run_lines("tests/golden/chat/engine.jsonl", true, &ran, &failed);
    if (getenv("KVIK_JINJA_CASES")) run_lines(getenv("KVIK_JINJA_CASES"), false, &ran, &failed);
    printf("jinja: %zu cases, %zu failed\n", ran, failed);
    assert_true(ran > 700);
    assert_int_equal(failed, 0);
}

/* Python's datetime.strftime of the same moments, including ISO weeks around new year. */
static void moments(void **state)
{
    (void)state;
    static const char src[] =
        "{{ strftime_now('%a %A %d %-d %e %b %B %h %m %-m %y %Y %C %H %-H %I %-I %p %M %S %j %U %W %w %u %V %G %c|%x|%X|%D|%F|%T|%R|%r|%f|%z|%Z|%%|%n%t|%k|%l') }}";
    static const struct {
        struct jinja_now now;
        const char *want;
    } row
        [] =
            {
                {{2025, 3, 7, 14, 5, 9, true},
                 "Fri Friday 07 7  7 Mar March Mar 03 3 25 2025 20 14 14 02 2 PM 05 09 066 09 09 5 5 10 2025 Fri Mar  7 14:05:09 2025|03/07/25|14:05:09|03/07/25|2025-03-07|14:05:09|14:05|02:05:09 PM|000000|||%|\n\t|14| 2"},
                {{2024, 2, 29, 0, 0, 0, true},
                 "Thu Thursday 29 29 29 Feb February Feb 02 2 24 2024 20 00 0 12 12 AM 00 00 060 08 09 4 4 09 2024 Thu Feb 29 00:00:00 2024|02/29/24|00:00:00|02/29/24|2024-02-29|00:00:00|00:00|12:00:00 AM|000000|||%|\n\t| 0|12"},
                {{2024, 12, 30, 23, 59, 59, true},
                 "Mon Monday 30 30 30 Dec December Dec 12 12 24 2024 20 23 23 11 11 PM 59 59 365 52 53 1 1 01 2025 Mon Dec 30 23:59:59 2024|12/30/24|23:59:59|12/30/24|2024-12-30|23:59:59|23:59|11:59:59 PM|000000|||%|\n\t|23|11"},
                {{2024, 12, 29, 12, 30, 1, true},
                 "Sun Sunday 29 29 29 Dec December Dec 12 12 24 2024 20 12 12 12 12 PM 30 01 364 52 52 0 7 52 2024 Sun Dec 29 12:30:01 2024|12/29/24|12:30:01|12/29/24|2024-12-29|12:30:01|12:30|12:30:01 PM|000000|||%|\n\t|12|12"},
                {{2023, 1, 1, 1, 2, 3, true},
                 "Sun Sunday 01 1  1 Jan January Jan 01 1 23 2023 20 01 1 01 1 AM 02 03 001 01 00 0 7 52 2022 Sun Jan  1 01:02:03 2023|01/01/23|01:02:03|01/01/23|2023-01-01|01:02:03|01:02|01:02:03 AM|000000|||%|\n\t| 1| 1"},
                {{2021, 1, 3, 13, 0, 0, true},
                 "Sun Sunday 03 3  3 Jan January Jan 01 1 21 2021 20 13 13 01 1 PM 00 00 003 01 00 0 7 53 2020 Sun Jan  3 13:00:00 2021|01/03/21|13:00:00|01/03/21|2021-01-03|13:00:00|13:00|01:00:00 PM|000000|||%|\n\t|13| 1"},
                {{2020, 12, 31, 6, 7, 8, true},
                 "Thu Thursday 31 31 31 Dec December Dec 12 12 20 2020 20 06 6 06 6 AM 07 08 366 52 52 4 4 53 2020 Thu Dec 31 06:07:08 2020|12/31/20|06:07:08|12/31/20|2020-12-31|06:07:08|06:07|06:07:08 AM|000000|||%|\n\t| 6| 6"},
                {{2016, 1, 1, 12, 0, 0, true},
                 "Fri Friday 01 1  1 Jan January Jan 01 1 16 2016 20 12 12 12 12 PM 00 00 001 00 00 5 5 53 2015 Fri Jan  1 12:00:00 2016|01/01/16|12:00:00|01/01/16|2016-01-01|12:00:00|12:00|12:00:00 PM|000000|||%|\n\t|12|12"},
                {{2015, 12, 31, 0, 1, 0, true},
                 "Thu Thursday 31 31 31 Dec December Dec 12 12 15 2015 20 00 0 12 12 AM 01 00 365 52 52 4 4 53 2015 Thu Dec 31 00:01:00 2015|12/31/15|00:01:00|12/31/15|2015-12-31|00:01:00|00:01|12:01:00 AM|000000|||%|\n\t| 0|12"},
                {{2010, 1, 4, 11, 59, 0, true},
                 "Mon Monday 04 4  4 Jan January Jan 01 1 10 2010 20 11 11 11 11 AM 59 00 004 01 01 1 1 01 2010 Mon Jan  4 11:59:00 2010|01/04/10|11:59:00|01/04/10|2010-01-04|11:59:00|11:59|11:59:00 AM|000000|||%|\n\t|11|11"},
                {{2000, 1, 1, 0, 0, 0, true},
                 "Sat Saturday 01 1  1 Jan January Jan 01 1 00 2000 20 00 0 12 12 AM 00 00 001 00 00 6 6 52 1999 Sat Jan  1 00:00:00 2000|01/01/00|00:00:00|01/01/00|2000-01-01|00:00:00|00:00|12:00:00 AM|000000|||%|\n\t| 0|12"},
                {{1999, 12, 31, 23, 0, 0, true}, "Fri Friday 31 31 31 Dec December Dec 12 12 99 1999 19 23 23 11 11 PM 00 00 365 52 52 5 5 52 1999 Fri Dec 31 23:00:00 1999|12/31/99|23:00:00|12/31/99|1999-12-31|23:00:00|23:00|11:00:00 PM|000000|||%|\n\t|23|11"},
                {{1970, 1, 1, 0, 0, 0, true},
                 "Thu Thursday 01 1  1 Jan January Jan 01 1 70 1970 19 00 0 12 12 AM 00 00 001 00 00 4 4 01 1970 Thu Jan  1 00:00:00 1970|01/01/70|00:00:00|01/01/70|1970-01-01|00:00:00|00:00|12:00:00 AM|000000|||%|\n\t| 0|12"},
                {{1969, 12, 31, 23, 59, 59, true},
                 "Wed Wednesday 31 31 31 Dec December Dec 12 12 69 1969 19 23 23 11 11 PM 59 59 365 52 52 3 3 01 1970 Wed Dec 31 23:59:59 1969|12/31/69|23:59:59|12/31/69|1969-12-31|23:59:59|23:59|11:59:59 PM|000000|||%|\n\t|23|11"},
                {{2026, 1, 1, 9, 9, 9, true},
                 "Thu Thursday 01 1  1 Jan January Jan 01 1 26 2026 20 09 9 09 9 AM 09 09 001 00 00 4 4 01 2026 Thu Jan  1 09:09:09 2026|01/01/26|09:09:09|01/01/26|2026-01-01|09:09:09|09:09|09:09:09 AM|000000|||%|\n\t| 9| 9"},
                {{2027, 1, 3, 20, 20, 20, true},
                 "Sun Sunday 03 3  3 Jan January Jan 01 1 27 2027 20 20 20 08 8 PM 20 20 003 01 00 0 7 53 2026 Sun Jan  3 20:20:20 2027|01/03/27|20:20:20|01/03/27|2027-01-03|20:20:20|20:20|08:20:20 PM|000000|||%|\n\t|20| 8"},
                {{2032, 12, 31, 5, 5, 5, true},
                 "Fri Friday 31 31 31 Dec December Dec 12 12 32 2032 20 05 5 05 5 AM 05 05 366 52 52 5 5 53 2032 Fri Dec 31 05:05:05 2032|12/31/32|05:05:05|12/31/32|2032-12-31|05:05:05|05:05|05:05:05 AM|000000|||%|\n\t| 5| 5"},
                {{2100, 2, 28, 15, 4, 3, true},
                 "Sun Sunday 28 28 28 Feb February Feb 02 2 00 2100 21 15 15 03 3 PM 04 03 059 09 08 0 7 08 2100 Sun Feb 28 15:04:03 2100|02/28/00|15:04:03|02/28/00|2100-02-28|15:04:03|15:04|03:04:03 PM|000000|||%|\n\t|15| 3"},
            };
    struct jinja *j;
    struct rendered marks;
    assert_int_equal(jinja_compile(src, sizeof src - 1, &j), 0);
    for (size_t i = 0; i < countof(row); i++) {
        struct buf out;
        buf_init(&out, 4096);
        assert_int_equal(jinja_run(j, vars, NULL, &row[i].now, &out, &marks), 0);
        rendered_done(&marks);
        assert_string_equal(out.data, row[i].want);
        buf_done(&out);
    }
    struct buf out;
    buf_init(&out, 4096);
    /* Without a given time the clock is used. */
    assert_int_equal(jinja_run(j, vars, NULL, NULL, &out, &marks), 0);
    rendered_done(&marks);
    assert_true(out.len > 100);
    buf_done(&out);
    jinja_drop(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_cases),
        cmocka_unit_test(moments),
    };
    if (json_read("tests/golden/chat/engine-vars.json", 1 << 20, &vars) < 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(vars);
    return failed;
}
