/* test_tok_compiled.c - compiled vocabularies: the same ids and texts as the parsed file for every line of the golden
 * tokenizers, entries that are damaged, stale or somebody else's, and bytes that were changed behind every checksum. */
#include "base/map.h"
#include "cache_folder.h"
#include "fmt/fmt.h"
#include "test_tok.h"
#include "tok/tok_int.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/kvik-compiled-XXXXXX";
static const char *smol; /* $KVIK_TEST_MODEL */

static int setup(void **state)
{
    (void)state;
    cache_fresh(dir, "vocabularies", 32);
    return 0;
}

static unsigned entries(char path[2 * PATH + 64])
{
    return count_entries(folder, path, 2 * PATH + 64);
}

static void write_text(const char *name, const char *data, size_t n)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (file_write(path, data, n) < 0) fail_msg("%s", err_last());
}

/* Makes the directory hold a tokenizer.json, and lets its clock go on. */
static void put_model(const char *json, size_t n)
{
    write_text("tokenizer.json", json, n);
    usleep(20000);
}

static struct tok *open_dir(bool compiled)
{
    struct tok *t = NULL;
    if (tok_open_dir(dir, &t) < 0) fail_msg("%s", err_last());
    assert_int_equal(t->compiled, compiled);
    return t;
}

static void same_decode(const struct tok *a, const struct tok *b, const struct ids *v, bool skip)
{
    struct buf x, y;
    buf_init(&x, 1 << 24);
    buf_init(&y, 1 << 24);
    assert_int_equal(tok_decode(a, v->id, v->n, skip, &x), 0);
    assert_int_equal(tok_decode(b, v->id, v->n, skip, &y), 0);
    assert_int_equal(x.len, y.len);
    if (x.len) assert_memory_equal(x.data, y.data, x.len);
    buf_done(&x);
    buf_done(&y);
}

/* Every way to encode and decode a text gives the same with both tokenizers. */
static void same_text(const struct tok *a, const struct tok *b, const char *s, size_t n)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        struct ids x = {0}, y = {0};
        int e = tok_encode(a, s, n, flags, NULL, 0, &x);
        assert_int_equal(tok_encode(b, s, n, flags, NULL, 0, &y), e);
        assert_int_equal(x.n, y.n);
        if (x.n) assert_memory_equal(x.id, y.id, x.n * sizeof *x.id);
        same_decode(a, b, &x, flags & 1);
        ids_done(&x);
        ids_done(&y);
    }
}

static void same_tables(const struct tok *a, const struct tok *b)
{
    assert_int_equal(tok_size(a), tok_size(b));
    assert_int_equal(tok_n_added(a), tok_n_added(b));
    assert_string_equal(tok_kind(a), tok_kind(b));
    for (uint32_t i = 0; i < tok_n_added(a); i++) {
        size_t n, m;
        int32_t x, y;
        bool p, q;
        const char *s = tok_added(a, i, &n, &x, &p), *t = tok_added(b, i, &m, &y, &q);
        assert_true(n == m && x == y && p == q && memcmp(s, t, n) == 0);
    }
    for (int32_t id = 0; id < (int32_t)tok_size(a); id++) {
        size_t n, m;
        const char *s = tok_piece(a, id, &n), *t = tok_piece(b, id, &m);
        assert_int_equal(s == NULL, t == NULL);
        if (s) assert_true(n == m && memcmp(s, t, n) == 0);
        assert_int_equal(tok_is_special(a, id), tok_is_special(b, id));
    }
    for (const char *const *k = (const char *const[]){"bos_token", "eos_token", "unk_token", NULL};
         *k; k++)
        assert_int_equal(tok_special_id(a, *k), tok_special_id(b, *k));
}

static void same_lines(const struct tok *a, const struct tok *b, const char *path)
{
    char *line = NULL;
    size_t cap = 0, n_lines = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (ssize_t n; (n = getline(&line, &cap, f)) > 0; n_lines++) {
        json_t *o;
        assert_int_equal(json_parse(line, (size_t)n, path, &o), 0);
        const json_t *text = json_object_get(o, "text");
        if (text) same_text(a, b, json_string_value(text), json_string_length(text));
        json_decref(o);
    }
    free(line);
    fclose(f);
    assert_true(n_lines > 400);
}

static void golden(const char *name)
{
    char path[PATH];
    size_t n, n_config;
    char *config;
    snprintf(path, sizeof path, TOK_DIR "%s/tokenizer.json.xz", name);
    char *json = unpack(path, &n);
    snprintf(path, sizeof path, TOK_DIR "%s/tokenizer_config.json", name);
    assert_int_equal(file_read(path, 1 << 20, &config, &n_config), 0);
    write_text("tokenizer_config.json", config, n_config);
    put_model(json, n);
    struct tok *parsed = open_dir(false), *kept = open_dir(true);
    same_tables(parsed, kept);
    snprintf(path, sizeof path, TOK_DIR "%s.jsonl", name);
    same_lines(parsed, kept, path);
    tok_close(parsed);
    tok_close(kept);
    mem_free(json);
    mem_free(config);
}

static void test_llama2(void **state)
{
    (void)state;
    golden("llama2");
}

static void test_qwen3(void **state)
{
    (void)state;
    golden("qwen3");
    char path[PATH];
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    unlink(path);
}

/* Every Unigram tokenizer of the fixtures, with the lines that follow it. */
static void test_unigram(void **state)
{
    (void)state;
    size_t n, len, lines = 0;
    char *text = unpack("tests/fixtures/tok/unigram.jsonl.xz", &n);
    struct tok *a = NULL, *b = NULL;
    for (const char *s = text; s < text + n; s += len + 1) {
        len = strcspn(s, "\n");
        if (strncmp(s, "{\"version\"", 10) != 0) {
            same_text(a, b, s, len);
            lines++;
            continue;
        }
        tok_close(a);
        tok_close(b);
        put_model(s, len);
        a = open_dir(false);
        b = open_dir(true);
        same_tables(a, b);
    }
    tok_close(a);
    tok_close(b);
    mem_free(text);
    assert_true(lines > 100);
}

/* The vocabulary of a GGUF file is kept as well. */
static void test_gguf(void **state)
{
    (void)state;
    struct gguf *g;
    struct tok *t[2];
    if (!smol || access(smol, R_OK) < 0) skip();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gguf_open(smol, &g), 0);
        if (tok_open_gguf(g, &t[i]) < 0) fail_msg("%s", err_last());
        gguf_close(g);
        assert_int_equal(t[i]->compiled, i);
    }
    same_tables(t[0], t[1]);
    same_text(t[0], t[1], "The sea is wide, <|im_start|>and 1234 boats.", 44);
    tok_close(t[0]);
    tok_close(t[1]);
}

/* --- Entries ---------------------------------------------------------------------------------- */

static const char *const sample[] = {
    "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<u>\",\"vocab\":{\"<u>\":0,\"a\":1,\"b\":2,\"ab\":3,\" \":4,"
    "\" a\":5,\"<0x41>\":6,\"abab\":7},\"merges\":[\"a b\",[\" \",\"a\"],\"ab ab\"]},\"normalizer\":{\"type\":"
    "\"Lowercase\"},\"added_tokens\":[{\"id\":8,\"content\":\"<X>\",\"special\":true},{\"id\":9,\"content\":"
    "\"BA\",\"normalized\":true,\"lstrip\":true},{\"id\":2,\"content\":\"b\",\"single_word\":true}]}",
    "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<u>\",0],[\"a\",-1],"
    "[\"ab\",-1.5],[\"b\",-2],[\"<0x41>\",-3]]},\"added_tokens\":[{\"id\":5,\"content\":\"<s>\",\"special\":true}]}",
};
static const char text[] = "abab <X> ba BA a b A\xC3\xA9 <s>ab";

static void flip(const char *path, size_t at)
{
    uint8_t b;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &b, 1, (off_t)at) == 1);
    b ^= 0x21;
    assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
    close(fd);
}

/* A damaged entry is built again, and the tokenizer is right in any case. */
static void test_damaged(void **state)
{
    (void)state;
    char path[2 * PATH + 64];
    struct stat st;
    put_model(sample[0], strlen(sample[0]));
    struct tok *a = open_dir(false);
    assert_int_equal(entries(path), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    for (off_t at = 0; at < st.st_size; at += 331) {
        if (at % 2)
            flip(path, (size_t)at);
        else
            assert_int_equal(truncate(path, at), 0);
        struct tok *b = open_dir(false), *c = open_dir(true);
        same_tables(a, b);
        same_text(a, b, text, sizeof text - 1);
        same_text(a, c, text, sizeof text - 1);
        tok_close(b);
        tok_close(c);
    }
    tok_close(a);
}

/* A file that changed has another vocabulary, in the same entry. */
static void test_stale(void **state)
{
    (void)state;
    put_model(sample[0], strlen(sample[0]));
    tok_close(open_dir(false));
    tok_close(open_dir(true));
    put_model(sample[1], strlen(sample[1]));
    struct tok *t = open_dir(false);
    assert_string_equal(tok_kind(t), "Unigram (byte fallback)");
    tok_close(t);
    tok_close(open_dir(true));
    assert_int_equal(entries(NULL), 1);
}

static void test_others(void **state)
{
    (void)state;
    char path[2 * PATH + 64], real[PATH];
    put_model(sample[0], strlen(sample[0]));
    for (int i = 0; i < 4; i++) {
        setup(NULL);
        tok_close(open_dir(false));
        tok_close(open_dir(true));
        assert_int_equal(entries(path), 1);
        snprintf(real, sizeof real, "%s/elsewhere", dir);
        if (i == 0) assert_int_equal(chmod(path, 0622), 0);
        if (i == 1) assert_int_equal(chmod(folder, 0777), 0);
        if (i == 2) assert_int_equal(rename(path, real) | symlink(real, path), 0);
        if (i == 3 && chown(path, geteuid() + 1, (gid_t)-1) < 0) continue; /* needs root */
        tok_close(open_dir(false));
    }
}

/* Without a directory every run parses, and no call fails. */
static void test_no_directory(void **state)
{
    (void)state;
    put_model(sample[0], strlen(sample[0]));
    for (int i = 0; i < 3; i++) {
        if (i == 0) assert_int_equal(file_write(cache_dir, "", 0), 0);
        if (i == 1) setenv("XDG_CACHE_HOME", "not/absolute", 1);
        if (i == 1) setenv("HOME", "", 1);
        if (i == 2) setenv("XDG_CACHE_HOME", "/proc/self", 1);
        tok_close(open_dir(false));
        tok_close(open_dir(false));
    }
    unlink(cache_dir);
}

/* --- Bytes behind the checksum ------------------------------------------------------------------ */

static int collect(void *ctx, const void *data, size_t n)
{
    return buf_append(ctx, data, n);
}

/* Compiles a tokenizer.json to memory whose bytes the caller may change (mem_free). */
static uint8_t *compile(const char *json, size_t *n)
{
    struct tok_lists lists;
    struct buf rest, out;
    struct tok *t = open_text(json);
    assert_int_equal(tok_lists_find(json, strlen(json), &lists, &rest), 0);
    buf_init(&out, 1 << 24);
    assert_int_equal(tok_compile(t, rest.data, rest.len, collect, &out), 0);
    uint8_t *copy = mem_aligned(out.len);
    memcpy(copy, out.data, out.len);
    *n = out.len;
    buf_done(&rest);
    buf_done(&out);
    tok_close(t);
    return copy;
}

static void use(const uint8_t *data, size_t n)
{
    struct tok *t = NULL;
    struct buf out;
    struct ids v = {0};
    if (tok_open_compiled(data, n, &t) < 0) {
        assert_true(err_last()[0]);
        return;
    }
    buf_init(&out, 1 << 24);
    for (unsigned flags = 0; flags < 4; flags++)
        (void)tok_encode(t, text, sizeof text - 1, flags, NULL, 0, &v);
    for (int32_t id = 0; id < (int32_t)tok_size(t) && id < 64; id++)
        assert_int_equal(ids_push(&v, id), 0);
    (void)tok_decode(t, v.id, v.n, false, &out);
    ids_done(&v);
    buf_done(&out);
    tok_close(t);
}

/* Whatever the bytes are, opening fails with a message or every call ends. */
static void test_hostile(void **state)
{
    (void)state;
    static const uint32_t odd[] = {0, 1, 0x7fffffff, 0x80000000, UINT32_MAX, 4096};
    for (size_t k = 0; k < countof(sample); k++) {
        size_t n;
        uint8_t *data = compile(sample[k], &n), *copy = mem_aligned(n);
        use(data, n);
        for (size_t at = 0; at + 4 <= n; at += at < 4096 ? 4 : 28) {
            for (size_t i = 0; i < countof(odd); i++) {
                memcpy(copy, data, n);
                memcpy(copy + at, &odd[i], 4);
                use(copy, n);
            }
        }
        for (size_t cut = 0; cut < n; cut += 61)
            use(data, cut);
        mem_free(copy);
        mem_free(data);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_llama2, setup),
        cmocka_unit_test_setup(test_qwen3, setup),
        cmocka_unit_test_setup(test_unigram, setup),
        cmocka_unit_test_setup(test_gguf, setup),
        cmocka_unit_test_setup(test_damaged, setup),
        cmocka_unit_test_setup(test_stale, setup),
        cmocka_unit_test_setup(test_others, setup),
        cmocka_unit_test_setup(test_no_directory, setup),
        cmocka_unit_test(test_hostile),
    };
    for (int i = 1; i < argc && i <= (int)countof(sample); i++) { /* seeds of the fuzzer's corpus */
        size_t n;
        uint8_t *data = compile(sample[i - 1], &n);
        if (file_write(argv[i], data, n) < 0) return 1;
        mem_free(data);
    }
    if (argc > 1) return 0;
    smol = getenv("KVIK_TEST_MODEL");
    if (!mkdtemp(dir)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_tree(dir);
    return failed;
}
