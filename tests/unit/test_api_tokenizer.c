/* test_api_tokenizer.c - tokenizers and templates through the public header: arguments, errors,
 * ownership, and every allocation failing once. The results themselves are tested with the modules
 * and through the command. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/utf8.h"
#include "kvik.h"

static char dir[] = "/tmp/kvik-api-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(file_write(path, text, strlen(text)), 0);
}

/* Byte-level BPE without merges: ids 0..3 are special, the 256 bytes follow. */
static int setup(void **state)
{
    struct buf b;
    uint32_t extra = 0;
    (void)state;
    assert_non_null(mkdtemp(dir));
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"version\": \"1.0\", \"added_tokens\": [");
    const char *special[] = {"<s>", "</s>", "<user>", "<bot>"};
    for (int i = 0; i < 4; i++)
        buf_printf(
            &b,
            "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
            "\"normalized\": false, \"special\": true}",
            i ? "," : "", i, special[i]);
    buf_puts(
        &b,
        "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, \"use_regex\": true}, \"post_processor\": {\"type\": \"TemplateProcessing\", "
        "\"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
        "\"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [0], "
        "\"tokens\": [\"<s>\"]}}}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
        "\"vocab\": {\"<s>\": 0, \"</s>\": 1, \"<user>\": 2, \"<bot>\": 3");
    for (uint32_t c = 0; c < 256; c++) {
        bool plain = (c > 32 && c < 127) || (c > 160 && c != 173);
        char text[5] = {0};
        utf8_encode(plain ? c : 256 + extra++, text);
        buf_printf(&b, ", \"%s%s\": %u", c == '"' || c == '\\' ? "\\" : "", text, c + 4);
    }
    buf_puts(&b, "}, \"merges\": []}}");
    put("tokenizer.json", b.data);
    buf_done(&b);
    put("tokenizer_config.json",
        "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"chat_template\": "
        "\"{{ bos_token }}{% for m in messages %}<user>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<bot>{% endif %}{{ mood }}\"}");
    return 0;
}

static int teardown(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    unlink(path);
    return rmdir(dir);
}

static kvik_tokenizer *open_one(void)
{
    kvik_tokenizer *t;
    if (kvik_tokenizer_open(dir, &t) < 0) fail_msg("%s", kvik_last_error());
    return t;
}

static void test_text(void **state)
{
    (void)state;
    kvik_tokenizer *t = open_one();
    int32_t *ids;
    size_t n, len;
    char *text;
    assert_int_equal(kvik_tokenizer_encode(t, "ab\xC3\xA9", 4, true, &ids, &n), 0);
    assert_int_equal(n, 5);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 'a' + 4);
    assert_int_equal(kvik_tokenizer_decode(t, ids, n, true, &text, &len), 0);
    assert_int_equal(len, 4);
    assert_string_equal(text, "ab\xC3\xA9");
    kvik_free(ids);
    kvik_free(text);
    assert_int_equal(kvik_tokenizer_encode(t, NULL, 0, false, &ids, &n), 0);
    assert_int_equal(n, 0);
    assert_non_null(ids);
    kvik_free(ids);
    assert_int_equal(kvik_tokenizer_decode(t, NULL, 0, false, &text, NULL), 0);
    assert_string_equal(text, "");
    kvik_free(text);
    assert_int_equal(kvik_tokenizer_find(t, "<bot>"), 3);
    assert_int_equal(kvik_tokenizer_find(t, "no such"), -1);
    assert_string_equal(kvik_tokenizer_special(t, "eos_token"), "</s>");
    assert_null(kvik_tokenizer_special(t, "mask_token"));
    assert_non_null(strstr(kvik_tokenizer_template(t), "bos_token"));
    ids = (int32_t *)(uintptr_t)1;
    assert_true(kvik_tokenizer_encode(t, "\xFF", 1, false, &ids, &n) < 0);
    assert_true(kvik_tokenizer_decode(t, (int32_t[]){100000}, 1, false, &text, NULL) < 0);
    assert_true(kvik_tokenizer_decode(t, (int32_t[]){-1}, 1, false, &text, NULL) < 0);
    assert_ptr_equal(ids, (int32_t *)(uintptr_t)1); /* a failure leaves the results untouched */
    kvik_tokenizer_close(t);
}

static void test_chat(void **state)
{
    (void)state;
    kvik_tokenizer *t = open_one();
    const char *messages = "[{\"role\": \"user\", \"content\": \"<bot>x\"}]";
    char *text;
    int32_t *ids;
    size_t n;
    assert_int_equal(
        kvik_chat_render(t, messages, "{\"add_generation_prompt\": true, \"mood\": \"!\"}", &text),
        0);
    assert_string_equal(text, "<s><user><bot>x<bot>!");
    kvik_free(text);
    assert_int_equal(kvik_chat_encode(t, messages, "{\"add_generation_prompt\": true}", &ids, &n),
                     0);
    assert_int_equal(n, 2 + 5 + 1 + 1); /* the <bot> that a user typed is five bytes of text */
    assert_int_equal(ids[n - 1], 3);
    kvik_free(ids);
    assert_int_equal(
        kvik_chat_encode(t, messages,
                         "{\"add_generation_prompt\": true, \"allow_special_tokens\": true}", &ids,
                         &n),
        0);
    assert_int_equal(n, 2 + 1 + 1 + 1);
    kvik_free(ids);
    kvik_tokenizer_close(t);
}

static void test_bad_requests(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *kwargs, *says;
    } rows[] = {
        {"{}", NULL, "messages must be a JSON list"},
        {"[", NULL, "messages: line 1"},
        {"[]", "[]", "kwargs must be a JSON object"},
        {"[]", "{", "kwargs: line 1"},
        {"[]", "{\"tools\": 3}", "\"tools\" must be a list"},
        {"[]", "{\"documents\": \"x\"}", "\"documents\" must be a list"},
        {"[]", "{\"add_generation_prompt\": 1}", "must be true or false"},
        {"[]", "{\"add_generation_prompt\": true, \"continue_final_message\": true}",
         "exclude each other"},
    };
    kvik_tokenizer *t = open_one(), *none = NULL;
    char *text = NULL;
    for (size_t i = 0; i < countof(rows); i++) {
        int e = kvik_chat_render(t, rows[i].messages, rows[i].kwargs, &text);
        if (e >= 0 || !strstr(kvik_last_error(), rows[i].says))
            fail_msg("row %zu: %d %s", i, e, kvik_last_error());
    }
    assert_null(text);
    assert_int_equal(kvik_tokenizer_open("/nonexistent/model", &none), KVIK_NOTFOUND);
    assert_non_null(strstr(kvik_last_error(), "/nonexistent/model"));
    assert_true(kvik_tokenizer_open("/dev/null", &none) < 0);
    assert_true(kvik_tokenizer_open("/tmp", &none) < 0);
    assert_true(kvik_tokenizer_open(NULL, &none) < 0);
    assert_null(none);
    assert_int_equal(kvik_chat_render(NULL, "[]", NULL, &text), KVIK_ARG);
    assert_null(kvik_tokenizer_template(NULL));
    assert_null(kvik_tokenizer_special(NULL, "bos_token"));
    assert_int_equal(kvik_tokenizer_find(NULL, "a"), -1);
    kvik_tokenizer_close(NULL);
    kvik_tokenizer_close(t);
}

static void test_template(void **state)
{
    (void)state;
    static const struct {
        const char *now, *want; /* NULL: the date is refused */
    } rows[] = {
        {"2025-03-07T14:05:09", "2025-03-07 14:05:09"},
        {"2025-03-07 14:05:09.123456", "2025-03-07 14:05:09"},
        {"2025-03-07T14:05:09+02:00", "2025-03-07 14:05:09"},
        {"2025-03-07T14:05:09Z", "2025-03-07 14:05:09"},
        {"2025-03-07", "2025-03-07 00:00:00"},
        {"", NULL},
        {"2025", NULL},
        {"2025-3-7", NULL},
        {"2025-13-07", NULL},
        {"2025-03-32T00:00:00", NULL},
        {"2025-03-07T24:00:00", NULL},
        {"2025-03-07T14:05", NULL},
        {"2025-03-07Z", NULL},
        {"2025-03-07T14:05:09x", NULL},
        {"-025-03-07", NULL},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        char request[160], *text = NULL;
        snprintf(request, sizeof request, "{\"messages\": [], \"now\": \"%s\"}", rows[i].now);
        int e = kvik_template_render("{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", request, &text);
        if (rows[i].want) {
            assert_int_equal(e, 0);
            assert_string_equal(text, rows[i].want);
        } else if (e >= 0) {
            fail_msg("\"%s\" was taken", rows[i].now);
        }
        kvik_free(text);
    }
    char *text;
    assert_int_equal(
        kvik_template_render("{{ a }}{{ b }}",
                             "{\"messages\": [], \"special_tokens\": {\"a\": \"1\", \"b\": \"2\"}, "
                             "\"kwargs\": {\"b\": \"3\"}}",
                             &text),
        0);
    assert_string_equal(text, "13"); /* the keyword arguments win, as in Transformers */
    kvik_free(text);
    assert_true(kvik_template_render("x", "[]", &text) < 0);
    assert_true(kvik_template_render("x", "{\"messages\": 3}", &text) < 0);
    assert_true(kvik_template_render("x", "{\"messages\": [], \"now\": 3}", &text) < 0);
    assert_true(kvik_template_render("x", "{\"messages\": [], \"special_tokens\": 3}", &text) < 0);
    assert_true(kvik_template_render("{% if %}", "{\"messages\": []}", &text) < 0);
}

/* Lets each allocation fail once: the call reports an error and leaks nothing (ASan checks), and
 * the next call works. */
static void test_every_allocation(void **state)
{
    (void)state;
    kvik_tokenizer *t = open_one();
    const char *messages = "[{\"role\": \"user\", \"content\": \"hello <bot>\"}]";
    int failures = 0;
    for (int k = 0;; k++) {
        int32_t *ids;
        size_t n;
        mem_fail_at(k, false);
        int e = kvik_chat_encode(t, messages, "{\"add_generation_prompt\": true}", &ids, &n);
        mem_fail_at(-1, false);
        if (e >= 0) {
            kvik_free(ids);
            break;
        }
        failures++;
        assert_true(k < 100000);
    }
    assert_true(failures > 5);
    for (int k = 0;; k++) {
        kvik_tokenizer *again;
        mem_fail_at(k, false);
        int e = kvik_tokenizer_open(dir, &again);
        mem_fail_at(-1, false);
        if (e >= 0) {
            kvik_tokenizer_close(again);
            break;
        }
        assert_true(k < 100000);
    }
    kvik_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_template),
        cmocka_unit_test(test_every_allocation),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
