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

#include "base/base.h"
#include "kvik_compat.h"
#include "toy_tokenizer.h"

static char dir[] = "/tmp/kvik-api-XXXXXX";

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    toy_tokenizer(dir, 260);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    toy_remove(dir);
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
    uint32_t kind, *places;
    assert_memory_equal(kvik_tokenizer_piece(t, 3, &len, &kind), "<bot>", 5);
    assert_int_equal(len, 5);
    assert_int_equal(kind & (KVIK_PIECE_ADDED | KVIK_PIECE_SPECIAL),
                     KVIK_PIECE_ADDED | KVIK_PIECE_SPECIAL);
    assert_memory_equal(kvik_tokenizer_piece(t, 'a' + 4, &len, &kind), "a", 1);
    assert_int_equal(kind, KVIK_PIECE_MODEL);
    assert_null(kvik_tokenizer_piece(t, -1, &len, NULL));
    assert_null(kvik_tokenizer_piece(t, 1 << 20, &len, NULL));
    /* Every byte is a token here: those of one character have its place. */
    assert_int_equal(kvik_tokenizer_encode_placed(t, "a\xC3\xA9<bot>b", 9, true, &ids, &places), 6);
    static const uint32_t want[][3] = {{0, 0, UINT32_MAX}, {0, 1, 0}, {1, 3, 0},
                                       {1, 3, 0},          {3, 8, 1}, {8, 9, 2}};
    assert_memory_equal(places, want, sizeof want);
    kvik_free(ids);
    kvik_free(places);
    /* Without special tokens every byte of <bot> is a token, of one word. */
    assert_int_equal(kvik_tokenizer_encode_plain(t, "a<bot>", 6, &ids, NULL), 6);
    assert_int_equal(ids[1], '<' + 4);
    kvik_free(ids);
    assert_int_equal(kvik_tokenizer_encode_plain(t, "a<bot>", 6, &ids, &places), 6);
    assert_int_equal(places[3], 1);
    assert_int_equal(places[4], 2);
    kvik_free(ids);
    kvik_free(places);
    assert_true(kvik_tokenizer_encode_plain(t, "\xFF", 1, &ids, NULL) < 0);
    /* The toy's template has no "pair". */
    assert_int_equal(kvik_tokenizer_layout(t, false, &ids), 2);
    assert_memory_equal(ids, ((int32_t[]){0, 0, -1, 0}), 4 * sizeof *ids);
    kvik_free(ids);
    ids = (int32_t *)(uintptr_t)1;
    assert_int_equal(kvik_tokenizer_layout(t, true, &ids), KVIK_UNSUPPORTED);
    assert_true(kvik_tokenizer_encode(t, "\xFF", 1, false, &ids, &n) < 0);
    assert_true(kvik_tokenizer_encode_placed(t, "\xFF", 1, false, &ids, &places) < 0);
    /* An id without a token is empty text, as in Transformers. */
    assert_int_equal(kvik_tokenizer_decode(t, (int32_t[]){100000}, 1, false, &text, NULL), 0);
    assert_string_equal(text, "");
    kvik_free(text);
    assert_true(kvik_tokenizer_decode(t, (int32_t[]){-1}, 1, false, &text, NULL) < 0);
    assert_ptr_equal(ids, (int32_t *)(uintptr_t)1); /* a failure leaves the results untouched */
    kvik_tokenizer_close(t);
}

#define CHAT(...) ((kvik_chat){.size = sizeof(kvik_chat), __VA_ARGS__})

static void test_chat(void **state)
{
    (void)state;
    kvik_tokenizer *t = open_one();
    const char *messages = "[{\"role\": \"user\", \"content\": \"<bot>x\"}]";
    char *text;
    int32_t *ids;
    size_t n;
    assert_int_equal(
        kvik_chat_render(
            t,
            &CHAT(.json = messages, .kwargs = "{\"add_generation_prompt\": true, \"mood\": \"!\"}"),
            &text),
        0);
    assert_string_equal(text, "<s><user><bot>x<bot>!");
    kvik_free(text);
    assert_int_equal(
        kvik_chat_encode(t, &CHAT(.json = messages, .kwargs = "{\"add_generation_prompt\": true}"),
                         &ids, &n, NULL),
        0);
    assert_int_equal(n, 2 + 5 + 1 + 1); /* the <bot> that a user typed is five bytes of text */
    assert_int_equal(ids[n - 1], 3);
    kvik_free(ids);
    assert_int_equal(
        kvik_chat_encode(
            t,
            &CHAT(.json = messages,
                  .kwargs = "{\"add_generation_prompt\": true, \"allow_special_tokens\": true}"),
            &ids, &n, NULL),
        0);
    assert_int_equal(n, 2 + 1 + 1 + 1);
    kvik_free(ids);
    kvik_tokenizer_close(t);
}

enum { MESSAGES = 4 };
static const kvik_message talk[MESSAGES] = {
    {.size = sizeof *talk, .role = "system", .content = "be \"kind\"\n"},
    {.size = sizeof *talk,
     .role = "user",
     .content = "h\xC3\xA9 <bot>",
     .more = "{\"name\": \"Ann\"}"},
    {.size = sizeof *talk, .role = "assistant", .more = "{\"tool_calls\": [{\"id\": 1}]}"},
    {.size = sizeof *talk, .role = "tool", .content = ""},
};
static const char talk_json[] =
    "[{\"role\": \"system\", \"content\": \"be \\\"kind\\\"\\n\"},"
    " {\"role\": \"user\", \"content\": \"h\\u00e9 <bot>\", \"name\": \"Ann\"},"
    " {\"role\": \"assistant\", \"tool_calls\": [{\"id\": 1}]}, {\"role\": \"tool\", \"content\": \"\"}]";

/* Messages as structs and as JSON give the same text and the same ids. */
static void test_messages(void **state)
{
    (void)state;
    static const char *const kwargs[] = {NULL, "{\"add_generation_prompt\": true, \"mood\": \"!\"}",
                                         "{\"allow_special_tokens\": true}"};
    kvik_tokenizer *t = open_one();
    for (size_t i = 0; i < countof(kwargs); i++)
        for (size_t n = 0; n <= MESSAGES; n += MESSAGES) {
            char *a, *b;
            int32_t *x, *y;
            size_t n_x, n_y;
            const char *json = n ? talk_json : "[]";
            assert_int_equal(kvik_chat_render(t, &CHAT(.json = json, .kwargs = kwargs[i]), &a), 0);
            assert_int_equal(
                kvik_chat_render(t, &CHAT(.message = talk, .n = n, .kwargs = kwargs[i]), &b), 0);
            assert_string_equal(a, b);
            assert_int_equal(
                kvik_chat_encode(t, &CHAT(.json = json, .kwargs = kwargs[i]), &x, &n_x, NULL), 0);
            assert_int_equal(kvik_chat_encode(t,
                                              &CHAT(.message = talk, .n = n, .kwargs = kwargs[i]),
                                              &y, &n_y, NULL),
                             0);
            assert_int_equal(n_x, n_y);
            assert_memory_equal(x, y, n_x * sizeof *x);
            kvik_free(a);
            kvik_free(b);
            kvik_free(x);
            kvik_free(y);
        }
    char *text;
    const kvik_chat four = CHAT(.message = talk, .n = MESSAGES);
    kvik_chat own = four;
    own.template_text = "{{ messages[1].name }}{{ messages[2].content is defined }}"
                        "{{ messages[2].tool_calls[0].id }}";
    assert_int_equal(kvik_chat_render(t, &four, &text), 0);
    assert_string_equal(text, "<s><user>be \"kind\"\n<user>h\xC3\xA9 <bot><user><user>");
    kvik_free(text);
    assert_int_equal(kvik_chat_render(NULL, &own, &text), 0);
    assert_string_equal(text, "AnnFalse1");
    kvik_free(text);
    kvik_tokenizer_close(t);
}

static void test_bad_messages(void **state)
{
    (void)state;
    enum { S = sizeof(kvik_message) };
    static const struct {
        kvik_message m;
        int code;
        const char *says;
    } rows[] = {
        {{.size = S, .content = "x"}, KVIK_ARG, "message 1 has no role"},
        {{.size = S, .role = "\xFF", .content = "x"},
         KVIK_FORMAT,
         "message 1: its role is not valid UTF-8"},
        {{.size = S, .role = "user", .content = "a\xC3"},
         KVIK_FORMAT,
         "message 1: its content is not"},
        {{.size = S, .role = "user", .more = "{"}, KVIK_FORMAT, "message 1, more"},
        {{.size = S, .role = "user", .more = "[1]"}, KVIK_ARG, "must be a JSON object"},
        {{.size = S, .role = "user", .more = "{\"role\": \"x\"}"}, KVIK_ARG, "\"role\" is a field"},
        {{.size = S, .role = "user", .content = "a", .more = "{\"content\": []}"},
         KVIK_ARG,
         "\"content\" is a field"},
        {{.size = 0, .role = "user"}, KVIK_ARG, "kvik_message 1 has size 0"},
        {{.size = S - 8, .role = "user"}, KVIK_ARG, "the first one"},
    };
    kvik_tokenizer *t = open_one();
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n;
    for (size_t i = 0; i < countof(rows); i++) {
        const kvik_message two[2] = {{.size = S, .role = "user", .content = "x"}, rows[i].m};
        const kvik_chat chat = CHAT(.message = two, .n = 2);
        assert_int_equal(kvik_chat_render(t, &chat, &text), rows[i].code);
        assert_int_equal(kvik_chat_encode(t, &chat, &ids, &n, NULL), rows[i].code);
        if (!strstr(kvik_last_error(), rows[i].says)) fail_msg("row %zu: %s", i, kvik_last_error());
    }
    const kvik_message huge = {.size = SIZE_MAX, .role = "user"};
    const kvik_chat one = CHAT(.message = talk, .n = 1);
    const struct {
        kvik_chat chat;
        const char *says;
    } wrong[] = {
        {CHAT(.message = &huge, .n = 1), "kvik_message.size"},
        {CHAT(.n = 1), "needs messages"},
        {CHAT(.kwargs = "{}"), "needs messages"},
        {CHAT(.message = talk, .n = 1, .json = "[]"), "given twice"},
        {CHAT(.n = 1, .json = "[]"), "given twice"},
        {CHAT(.message = talk, .n = 1, .kwargs = "[]"), "kwargs must be"},
        {CHAT(.message = talk, .n = 1, .special_tokens = "[]"), "special_tokens must be"},
        {CHAT(.message = talk, .n = 1, .now = "noon"), "must be a time"},
        {{.size = 3, .message = talk, .n = 1}, "kvik_chat.size"},
    };
    for (size_t i = 0; i < countof(wrong); i++) {
        assert_int_equal(kvik_chat_render(t, &wrong[i].chat, &text), KVIK_ARG);
        assert_int_equal(kvik_chat_encode(t, &wrong[i].chat, &ids, &n, NULL), KVIK_ARG);
        if (!strstr(kvik_last_error(), wrong[i].says))
            fail_msg("wrong %zu: %s", i, kvik_last_error());
    }
    assert_int_equal(kvik_chat_render(NULL, &one, &text), KVIK_ARG);
    assert_int_equal(kvik_chat_render(t, NULL, &text), KVIK_ARG);
    assert_int_equal(kvik_chat_render(t, &one, NULL), KVIK_ARG);
    assert_int_equal(kvik_chat_encode(NULL, &one, &ids, &n, NULL), KVIK_ARG);
    assert_int_equal(kvik_chat_encode(t, NULL, &ids, &n, NULL), KVIK_ARG);
    assert_int_equal(kvik_chat_encode(t, &one, NULL, &n, NULL), KVIK_ARG);
    assert_int_equal(kvik_chat_encode(t, &one, &ids, NULL, NULL), KVIK_ARG);
    assert_null(text);
    assert_null(ids);
    kvik_tokenizer_close(t);
}

/* A struct of an older header, without `more`, in an array. */
static void test_older_messages(void **state)
{
    (void)state;
    enum { OLD = offsetof(kvik_message, more) };
    unsigned char old[2 * OLD];
    kvik_tokenizer *t = open_one();
    char *text;
    for (size_t i = 0; i < 2; i++) {
        kvik_message m = {.size = OLD, .role = "user", .content = i ? "b" : "a"};
        memcpy(old + i * OLD, &m, OLD);
    }
    assert_int_equal(
        kvik_chat_render(t, &CHAT(.message = (const kvik_message *)(const void *)old, .n = 2),
                         &text),
        0);
    assert_string_equal(text, "<s><user>a<user>b");
    kvik_free(text);
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
        int e =
            kvik_chat_render(t, &CHAT(.json = rows[i].messages, .kwargs = rows[i].kwargs), &text);
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
    assert_int_equal(kvik_chat_render(NULL, &CHAT(.json = "[]"), &text), KVIK_ARG);
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
        char *text = NULL;
        const kvik_chat chat = CHAT(.json = "[]", .now = rows[i].now,
                                    .template_text = "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}");
        int e = kvik_chat_render(NULL, &chat, &text);
        if (rows[i].want) {
            assert_int_equal(e, 0);
            assert_string_equal(text, rows[i].want);
        } else if (e >= 0) {
            fail_msg("\"%s\" was taken", rows[i].now);
        }
        kvik_free(text);
    }
    char *text;
    assert_int_equal(kvik_chat_render(NULL,
                                      &CHAT(.json = "[]", .template_text = "{{ a }}{{ b }}",
                                            .special_tokens = "{\"a\": \"1\", \"b\": \"2\"}",
                                            .kwargs = "{\"b\": \"3\"}"),
                                      &text),
                     0);
    assert_string_equal(text, "13"); /* the keyword arguments win, as in Transformers */
    kvik_free(text);
    assert_true(kvik_chat_render(NULL, &CHAT(.json = "3", .template_text = "x"), &text) < 0);
    assert_true(kvik_chat_render(NULL, &CHAT(.json = "[]", .template_text = "{% if %}"), &text) <
                0);
}

/* Text of {% generation %} blocks is marked byte by byte, with the special tokens that the template writes inside; a template
 * and special tokens of the request replace those of the tokenizer. */
static void test_assistant(void **state)
{
    (void)state;
    static const char template[] =
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}"
        "{% else %}{% generation %}{{ m.content }}<bot>{% endgeneration %}{% endif %}{% endfor %}";
    kvik_chat chat = CHAT(.json = "[{\"role\": \"user\", \"content\": \"h\\u00e9<bot>\"},"
                                  " {\"role\": \"assistant\", \"content\": \"o\\u00e9\"},"
                                  " {\"role\": \"user\", \"content\": \"x\"}]",
                          .kwargs = "{\"mood\": \"!\"}", .template_text = template,
                          .special_tokens = "{\"bos_token\": \"</s>\"}");
    kvik_tokenizer *t = open_one();
    int32_t *ids, *same;
    bool *mark;
    size_t n, n_same;
    assert_int_equal(kvik_chat_encode(t, &chat, &ids, &n, &mark), 0);
    /* </s>, h, two bytes, the five of a <bot> that a user typed; o, two bytes, the <bot> of the template; x */
    assert_int_equal(n, 1 + 3 + 5 + 3 + 1 + 1);
    assert_int_equal(ids[0], kvik_tokenizer_find(t, "</s>"));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(mark[i], i >= 9 && i < 13);
    assert_int_equal(ids[12], kvik_tokenizer_find(t, "<bot>"));
    assert_int_equal(kvik_chat_encode(t, &chat, &same, &n_same, NULL), 0);
    assert_int_equal(n_same, n);
    assert_memory_equal(same, ids, n * sizeof *ids);
    kvik_free(ids);
    kvik_free(mark);
    kvik_free(same);
    /* Without a template, that of the tokenizer, which marks nothing. */
    chat.template_text = NULL;
    assert_int_equal(kvik_chat_encode(t, &chat, &ids, &n, &mark), 0);
    for (size_t i = 0; i < n; i++)
        assert_false(mark[i]);
    kvik_free(ids);
    kvik_free(mark);
    chat.template_text = "{% if %}";
    assert_true(kvik_chat_encode(t, &chat, &ids, &n, &mark) < 0);
    chat.template_text = template;
    int failures = 0;
    for (int k = 0;; k++) {
        mem_fail_at(k, false);
        int e = kvik_chat_encode(t, &chat, &ids, &n, &mark);
        mem_fail_at(-1, false);
        if (e >= 0) break;
        failures++;
        assert_true(k < 100000);
    }
    assert_true(failures > 5);
    kvik_free(ids);
    kvik_free(mark);
    kvik_tokenizer_close(t);
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
        int e = kvik_chat_encode(
            t, &CHAT(.json = messages, .kwargs = "{\"add_generation_prompt\": true}"), &ids, &n,
            NULL);
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
        char *text;
        mem_fail_at(k, false);
        int e = kvik_chat_render(t, &CHAT(.message = talk, .n = MESSAGES), &text);
        mem_fail_at(-1, false);
        if (e >= 0) {
            kvik_free(text);
            break;
        }
        assert_true(k < 100000);
    }
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

/* A vocabulary of SentencePiece that has the character by which byte-level BPE spells a space. */
static const char pieces[] =
    "{\"added_tokens\":[{\"id\":5,\"content\":\"</s>\",\"special\":true}],"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[],\"vocab\":{\"a\":0,\"\xC4\xA0\":1,"
    "\"\xC3\xA9\":2,\"<0xC3>\":3,\"\xE2\x96\x81\":4,\"</s>\":5}}}";

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        int32_t id;
        const char *bytes;
    } want[] = {{0, "a"}, {1, "\xC4\xA0"}, {2, "\xC3\xA9"}, {3, "\xC3"},
                {4, " "}, {5, ""},         {6, ""}};
    char own[] = "/tmp/kvik-api-XXXXXX", path[64], *bytes;
    size_t n;
    kvik_tokenizer *t;
    assert_non_null(mkdtemp(own));
    snprintf(path, sizeof path, "%s/tokenizer.json", own);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(pieces, f);
    fclose(f);
    if (kvik_tokenizer_open(own, &t) < 0) fail_msg("%s", kvik_last_error());
    for (size_t i = 0; i < countof(want); i++) {
        assert_int_equal(kvik_tokenizer_bytes(t, want[i].id, &bytes, &n), 0);
        assert_int_equal(n, strlen(want[i].bytes));
        assert_memory_equal(bytes, want[i].bytes, n);
        kvik_free(bytes);
    }
    assert_int_equal(kvik_tokenizer_bytes(t, 0, NULL, &n), KVIK_ARG);
    kvik_tokenizer_close(t);
    unlink(path);
    rmdir(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),         cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_chat),         cmocka_unit_test(test_messages),
        cmocka_unit_test(test_bad_messages), cmocka_unit_test(test_older_messages),
        cmocka_unit_test(test_bad_requests), cmocka_unit_test(test_template),
        cmocka_unit_test(test_assistant),    cmocka_unit_test(test_every_allocation),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
