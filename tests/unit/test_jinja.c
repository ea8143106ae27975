/* test_jinja.c - small templates against Jinja2 as transformers sets it up: every operator, filter,
 * test, method and tag, and the errors with their lines.  The cases and the script that made them
 * are in tests/golden/chat. */
#include "testing.h"

#include "base/map.h"
#include "chat/chat.h"

static json_t *vars;

/* What our sentences say where the reference's are in other words. */
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
    int e = jinja_render(j, vars, NULL, out, NULL, NULL);
    jinja_drop(j);
    return e;
}

static bool run_case(const json_t *c, bool strict)
{
    const json_t *source = json_object_get(c, "template"), *raises = json_object_get(c, "raises");
    const json_t *want = json_object_get(c, "rendered");
    struct buf out;
    buf_init(&out, 1 << 20);
    int e = render(json_string_value(source), json_string_length(source), &out);
    bool ok;
    if (raises)
        ok = e < 0 && (!strict || line_matches(raises)) &&
             (!strict || message_matches(json_string_value(json_object_get(raises, "message"))));
    else
        ok = e == 0 && out.len == json_string_length(want) &&
             (!out.len || memcmp(out.data, json_string_value(want), out.len) == 0);
    if (!ok)
        printf("%s\n  want %s\n  got  %s\n", json_string_value(source),
               json_string_value(raises ? json_object_get(raises, "message") : want),
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_cases),
    };
    if (json_read("tests/golden/chat/engine-vars.json", 1 << 20, &vars) < 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(vars);
    return failed;
}
