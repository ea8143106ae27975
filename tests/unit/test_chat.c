/* test_chat.c - rendered prompts against Transformers' apply_chat_template: the cases of this
 * repository, and the templates that model authors published where the shared data is present. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "chat/prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static json_t *special_of(const json_t *c)
{
    return json_object_get(c, "special_tokens");
}

static void moment(const json_t *c, struct jinja_now *now)
{
    const char *s = json_string_value(json_object_get(c, "now"));
    *now = (struct jinja_now){0};
    if (!s) return;
    assert_int_equal(sscanf(s, "%d-%d-%dT%d:%d:%d", &now->year, &now->month, &now->day, &now->hour,
                            &now->minute, &now->second),
                     6);
    now->set = true;
}

/* Counts characters, because Transformers gives its spans in characters. */
static size_t chars_before(const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k += ((unsigned char)s[i] & 0xC0) != 0x80;
    return k;
}

static bool spans_match(const json_t *want, const struct rendered *m, const char *s)
{
    const struct jinja_span *span = m->span;
    size_t n = m->n_span;
    if (!want) return true;
    if (json_array_size(want) != n) return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *w = json_array_get(want, i);
        if ((json_int_t)chars_before(s, span[i].from) != json_integer_value(json_array_get(w, 0)) ||
            (json_int_t)chars_before(s, span[i].to) != json_integer_value(json_array_get(w, 1)))
            return false;
    }
    return true;
}

static bool error_matches(const json_t *raises)
{
    const char *type = json_string_value(json_object_get(raises, "type"));
    const char *message = json_string_value(json_object_get(raises, "message"));
    char head[600];
    snprintf(head, sizeof head, "%s", message);
    if (strcmp(type, "ValueError") == 0) { /* the message ends with the rendered chat */
        char *cut = strstr(head, "Final message to");
        if (cut) *cut = 0;
    }
    bool line = strstr(err_last(), "line ") != NULL || strcmp(type, "ValueError") == 0;
    return line && strstr(err_last(), head) != NULL;
}

/* Runs one case. Prints and returns false on a difference. */
static bool run_case(const char *dir, const json_t *c)
{
    char path[1024], *text;
    const char *id = json_string_value(json_object_get(c, "id"));
    const json_t *kw = json_object_get(c, "kwargs"), *raises = json_object_get(c, "raises");
    snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(c, "template")));
    size_t n;
    assert_int_equal(file_read(path, 1 << 20, &text, &n), 0);
    json_t *kwargs = json_copy((json_t *)kw);
    json_object_del(kwargs, "continue_final_message");
    json_object_del(kwargs, "add_generation_prompt");
    struct jinja_now now;
    moment(c, &now);
    struct chat_options o = {
        .kwargs = kwargs,
        .add_generation_prompt = json_is_true(json_object_get(kw, "add_generation_prompt")),
        .continue_final_message = json_is_true(json_object_get(kw, "continue_final_message")),
        .now = &now,
    };
    struct buf out;
    struct rendered marks = {0};
    buf_init(&out, 8 << 20);
    int e = prompt_render(text, special_of(c), json_object_get(c, "messages"), &o, &out, &marks);
    const char *got = out.data ? out.data : "",
               *want = json_string_value(json_object_get(c, "rendered"));
    bool ok;
    if (raises) {
        ok = e < 0 && error_matches(raises);
        if (!ok)
            printf("%s: want error \"%s\", got %d \"%s\"\n", id,
                   json_string_value(json_object_get(raises, "message")), e,
                   e < 0 ? err_last() : got);
    } else {
        ok = e == 0 && strcmp(got, want) == 0 &&
             spans_match(json_object_get(c, "generation_spans"), &marks, got);
        if (!ok) printf("%s:\n want %s\n got  %d %s\n", id, want, e, e < 0 ? err_last() : got);
    }
    rendered_done(&marks);
    buf_done(&out);
    mem_free(text);
    json_decref(kwargs);
    return ok;
}

static void run_file(const char *cases, const char *dir, size_t *ran, size_t *failed)
{
    char *text, *line, *save = NULL;
    size_t n;
    assert_int_equal(file_read(cases, 64 << 20, &text, &n), 0);
    for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *c;
        assert_int_equal(json_parse(line, strlen(line), cases, &c), 0);
        ++*ran;
        *failed += !run_case(dir, c);
        json_decref(c);
    }
    mem_free(text);
}

static void own_cases(void **state)
{
    (void)state;
    size_t ran = 0, failed = 0;
    run_file("tests/golden/chat/cases.jsonl", "tests/golden/chat/templates", &ran, &failed);
    printf("chat: %zu own cases, %zu failed\n", ran, failed);
    assert_int_equal(ran, 456);
    assert_int_equal(failed, 0);
}

static void published_cases(void **state)
{
    (void)state;
    const char *shared = getenv("KVIK_SHARED");
    char cases[512], dir[512];
    size_t ran = 0, failed = 0;
    if (!shared) shared = "../shared";
    snprintf(cases, sizeof cases, "%s/golden/chat/cases-published.jsonl", shared);
    snprintf(dir, sizeof dir, "%s/golden/chat/published", shared);
    if (!file_exists(cases)) {
        printf("chat: published templates not present, 0 cases ran\n");
        skip();
    }
    run_file(cases, dir, &ran, &failed);
    printf("chat: %zu published cases, %zu failed\n", ran, failed);
    assert_int_equal(failed, 0);
    assert_true(ran > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_cases),
        cmocka_unit_test(published_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
