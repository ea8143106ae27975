/* test_tok_open.c - a tokenizer from a directory: which files count and in which order, which
 * message names a missing or broken file; and one tokenizer used by several threads. */
#include "test_tok.h"

#include <pthread.h>
#include <unistd.h>

#define JSON                                                                                        \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"<s>\":2,\"</s>\":3},\"merges\":[]}," \
    "\"added_tokens\":[{\"content\":\"<s>\",\"special\":true},{\"content\":\"</s>\",\"special\":true}]}"

static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                    "special_tokens_map.json", "chat_template.json",
                                    "chat_template.jinja"};
static char dir[] = "/tmp/kvik-tok-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!text)
        unlink(path);
    else
        assert_int_equal(file_write(path, text, strlen(text)), 0);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(files); i++)
        put(files[i], NULL);
    return rmdir(dir);
}

static struct tok *open_now(void)
{
    struct tok *t = NULL;
    if (tok_open_dir(dir, &t) < 0) fail_msg("%s", err_last());
    return t;
}

static void test_files(void **state)
{
    (void)state;
    struct tok *t = NULL;
    assert_int_equal(tok_open_dir(dir, &t), ERR_NOTFOUND);
    assert_non_null(strstr(err_last(), "tokenizer.json"));
    assert_null(t);
    put("tokenizer.json", JSON);
    t = open_now();
    assert_null(tok_chat_template(t));
    assert_int_equal(tok_special_id(t, "bos_token"), -1);
    assert_string_equal(tok_kind(t), "BPE (characters)");
    tok_close(t);

    put("special_tokens_map.json", "{\"bos_token\":{\"content\":\"</s>\"},\"eos_token\":\"</s>\"}");
    put("chat_template.json", "{\"chat_template\":\"from json\"}");
    t = open_now();
    assert_int_equal(tok_special_id(t, "eos_token"), 3);
    assert_string_equal(tok_chat_template(t), "from json");
    tok_close(t);

    put("tokenizer_config.json", "{\"bos_token\":\"<s>\",\"chat_template\":\"from config\"}");
    t = open_now(); /* The config wins over the older files. */
    assert_int_equal(tok_special_id(t, "bos_token"), 2);
    assert_int_equal(tok_special_id(t, "eos_token"), 3);
    assert_string_equal(tok_special_text(t, "bos_token"), "<s>");
    assert_string_equal(tok_chat_template(t), "from config");
    tok_close(t);

    put("chat_template.jinja", "from jinja");
    t = open_now(); /* The template file wins over the config. */
    assert_string_equal(tok_chat_template(t), "from jinja");
    tok_close(t);
}

static void test_broken(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "{", "[]", "\"x\""};
    struct tok *t = NULL;
    put("tokenizer.json", JSON);
    for (size_t f = 0; f < 3; f++)
        for (size_t i = 0; i < countof(bad); i++) {
            if (f == 2 && i >= 2) continue; /* a map without names has no template */
            put(files[f], bad[i]);
            assert_true(tok_open_dir(dir, &t) < 0);
            assert_non_null(strstr(err_last(), dir)); /* the message names the model */
            assert_null(t);
            put(files[f], f ? NULL : JSON);
        }
    put("chat_template.json", "{\"chat_template\":7}");
    put("chat_template.jinja", NULL);
    t = open_now();
    assert_null(tok_chat_template(t));
    tok_close(t);
    char deep[5000];
    memset(deep, 'd', sizeof deep);
    deep[sizeof deep - 1] = 0;
    t = NULL;
    assert_int_equal(tok_open_dir(deep, &t), ERR_ARG);
}

/* --- threads */
struct job {
    const struct tok *t;
    const struct ids *want;
    const char *text;
    size_t n;
    bool good;
};

static void *encode_often(void *p)
{
    struct job *j = p;
    j->good = true;
    for (int i = 0; i < 20; i++) {
        struct ids v = {0};
        struct buf b;
        buf_init(&b, 1 << 20);
        j->good &= tok_encode(j->t, j->text, j->n, 0, NULL, 0, &v) == 0 && v.n == j->want->n &&
                   memcmp(v.id, j->want->id, v.n * sizeof *v.id) == 0 &&
                   tok_decode(j->t, v.id, v.n, false, &b) == 0 && b.len == j->n;
        ids_done(&v);
        buf_done(&b);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct tok *t = open_golden("qwen3");
    struct ids want = {0};
    char *text = mem_alloc(20000);
    size_t n = 0;
    while (n < 19900)
        n += (size_t)snprintf(text + n, 20000 - n,
                              "It's %zu o'clock, <|im_end|> \xE5\xA5\xBD\xF0\x9F\x98\x80 ", n);
    assert_int_equal(tok_encode(t, text, n, 0, NULL, 0, &want), 0);
    struct job job[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        job[i] = (struct job){t, &want, text, n, false};
        assert_int_equal(pthread_create(&thread[i], NULL, encode_often, &job[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_true(job[i].good);
    }
    ids_done(&want);
    mem_free(text);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
