/* test_fmt_checkpoint.c - model directories and .gguf files through one interface: which files are
 * found, which are preferred, and which are refused with which message. */
#include "base/map.h"
#include "fmt/fmt_int.h"
#include "test_fmt_gguf.h"

#include <sys/mman.h>

static int open_close(const char *path)
{
    struct checkpoint *c = (void *)16;
    int e = checkpoint_open(path, &c);
    if (e == 0)
        checkpoint_close(c);
    else
        assert_ptr_equal(c, (void *)16); /* a failure leaves the results untouched */
    return e;
}

static struct checkpoint *must_open(const char *path)
{
    struct checkpoint *c = NULL;
    if (checkpoint_open(path, &c) < 0) print_error("%s\n", err_last());
    assert_non_null(c);
    assert_string_equal(checkpoint_path(c), path);
    return c;
}

static void test_golden_models(void **state)
{
    static const struct {
        const char *dir;
        uint32_t n;
        enum dtype dtype;
        size_t bytes;
    } rows[] = {{"tests/golden/models/llama-mha", 30, DT_F32, 616192},
                {"tests/golden/models/llama-gqa-l3", 29, DT_F32, 360768},
                {"tests/golden/models/llama-v5fmt", 29, DT_F32, 278592},
                {"tests/golden/models/llama-bf16", 21, DT_BF16, 209536}};
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct checkpoint *c = must_open(rows[i].dir);
        const char *type = NULL;
        assert_int_equal(checkpoint_n_tensors(c), rows[i].n);
        assert_int_equal(checkpoint_bytes(c), rows[i].bytes);
        assert_false(checkpoint_is_gguf(c));
        assert_null(checkpoint_gguf(c));
        assert_int_equal(json_get_str(checkpoint_config(c), "config", "model_type", &type), 1);
        assert_string_equal(type, "llama");
        assert_non_null(json_object_get(checkpoint_generation_config(c), "eos_token_id"));
        const struct tensor *t = checkpoint_find(c, "model.embed_tokens.weight");
        assert_non_null(t);
        assert_int_equal(t->dtype, rows[i].dtype);
        assert_int_equal(t->n_dims, 2);
        assert_null(checkpoint_find(c, "model.embed_tokens"));
        for (uint32_t k = 0; k < rows[i].n; k++) {
            t = checkpoint_tensor_at(c, k);
            assert_ptr_equal(checkpoint_find(c, t->name), t);
            walk_bytes(t->data, t->bytes);
        }
        assert_null(checkpoint_tensor_at(c, rows[i].n));
        assert_int_equal(checkpoint_recheck(c), 0);
        checkpoint_close(c);
    }
    checkpoint_close(NULL);
}

/* --- Sharded checkpoints. Shard 1 holds a and b; shard 2 holds c and an extra tensor d. */
static const float numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static void make_shards(struct dir *d, const char *index)
{
    struct tensor t[4];
    static const char *const name[4] = {"a", "b", "c", "d"};
    for (uint32_t i = 0; i < 4; i++)
        t[i] = (struct tensor){.name = name[i],
                               .dtype = DT_F32,
                               .n_dims = 1,
                               .dim = {2},
                               .data = numbers + 2 * i,
                               .bytes = 8};
    dir_make(d);
    assert_int_equal(safetensors_write(dir_file(d, "m-1.safetensors"), t, 2), 0);
    assert_int_equal(safetensors_write(dir_file(d, "m-2.safetensors"), t + 2, 2), 0);
    dir_text(d, "config.json", "{\"model_type\":\"llama\"}");
    dir_text(d, "model.safetensors.index.json", index);
}

static const char good_index[] =
    "{\"metadata\":{\"total_size\":24},\"weight_map\":{\"c\":\"m-2."
    "safetensors\",\"a\":\"m-1.safetensors\",\"b\":\"m-1.safetensors\"}}";

static void test_sharded(void **state)
{
    (void)state;
    struct dir d;
    make_shards(&d, good_index);
    struct checkpoint *c = must_open(d.path);
    assert_int_equal(checkpoint_n_tensors(c), 3); /* the index does not list d */
    assert_int_equal(checkpoint_bytes(c), 24);
    for (uint32_t i = 0; i < 3; i++) {
        const struct tensor *t = checkpoint_find(c, &"a\0b\0c"[2 * i]);
        assert_non_null(t);
        assert_memory_equal(t->data, numbers + 2 * i, 8);
    }
    assert_null(checkpoint_find(c, "d"));
    checkpoint_close(c);

    /* A single whole file wins over the index, even if that file is broken. */
    const struct tensor one = {
        .name = "x", .dtype = DT_F32, .n_dims = 1, .dim = {2}, .data = numbers, .bytes = 8};
    assert_int_equal(safetensors_write(dir_file(&d, "model.safetensors"), &one, 1), 0);
    dir_text(&d, "model.safetensors.index.json", "{");
    c = must_open(d.path);
    assert_int_equal(checkpoint_n_tensors(c), 1);
    checkpoint_close(c);
    dir_remove(&d);
}

/* Hub caches keep snapshots of symbolic links into a folder of blobs. */
static void test_symlinked_shards(void **state)
{
    (void)state;
    struct dir blobs, d;
    make_shards(&blobs, good_index);
    dir_make(&d);
    static const char *const names[] = {"m-1.safetensors", "m-2.safetensors", "config.json",
                                        "model.safetensors.index.json"};
    for (size_t i = 0; i < countof(names); i++)
        assert_int_equal(symlink(dir_file(&blobs, names[i]), dir_file(&d, names[i])), 0);
    struct checkpoint *c = must_open(d.path);
    assert_int_equal(checkpoint_n_tensors(c), 3);
    checkpoint_close(c);
    dir_remove(&d);
    dir_remove(&blobs);
}

#define MAP(file) "{\"weight_map\":{\"a\":" file "}}"
static const struct {
    const char *index;
    int want;
    const char *part;
} indexes[] = {
    {MAP("\"m-1.safetensors\""), 0, ""},
    {MAP("\"../m-1.safetensors\""), ERR_FORMAT, "plain name"},
    {MAP("\"/etc/m-1.safetensors\""), ERR_FORMAT, "plain name"},
    {MAP("\"./m-1.safetensors\""), ERR_FORMAT, "plain name"},
    {MAP("\"x/m-1.safetensors\""), ERR_FORMAT, "plain name"},
    {MAP("\"x/../m-1.safetensors\""), ERR_FORMAT, "plain name"},
    {MAP("\"..\\\\m-1.safetensors\""), ERR_FORMAT, "plain name"},
    {MAP("\"C:\\\\m-1.safetensors\""), ERR_FORMAT, "plain name"},
    {MAP("\".hidden.safetensors\""), ERR_FORMAT, "plain name"},
    {MAP("\".safetensors\""), ERR_FORMAT, "plain name"},
    {MAP("\"..\""), ERR_FORMAT, "plain name"},
    {MAP("\"\""), ERR_FORMAT, "plain name"},
    {MAP("\"con\""), ERR_FORMAT, "plain name"},
    {MAP("\"pytorch_model.bin\""), ERR_FORMAT, "plain name"},
    {MAP("\"config.json\""), ERR_FORMAT, "plain name"},
    {MAP("\"m-1.safetensors\\u0000.safetensors\""), ERR_FORMAT, "NUL in a string"},
    {MAP("\"m\\n1.safetensors\""), ERR_FORMAT, "plain name"},
    /* This is an ordinary file name. */
    {MAP("\"%2e%2e%2fm-1.safetensors\""), ERR_NOTFOUND, "missing"},
    {MAP("\"\\u2024\\u2024\\u2215m-1.safetensors\""), ERR_NOTFOUND, "missing"},
    {MAP("\"m-9.safetensors\""), ERR_NOTFOUND, "m-9.safetensors"},
    {MAP("1"), ERR_FORMAT, "must hold file names"},
    {MAP("null"), ERR_FORMAT, "must hold file names"},
    {MAP("[\"m-1.safetensors\"]"), ERR_FORMAT, "must hold file names"},
    {MAP("\"m-2.safetensors\""), ERR_FORMAT, "does not hold it"},
    {"{\"weight_map\":{\"nobody\":\"m-1.safetensors\"}}", ERR_FORMAT, "does not hold it"},
    {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"a\":\"m-1.safetensors\"}}", ERR_FORMAT,
     "occurs twice"},
    {"{\"weight_map\":{\"a\":\"m-1.safetensors\"},\"weight_map\":{}}", ERR_FORMAT, "occurs twice"},
    {"{\"weight_map\":{\"a\":\"m-1.safetensors\"}} x", ERR_FORMAT, "text after the end"},
    {"{\"weight_map\":{}}", ERR_FORMAT, "weight_map"},
    {"{\"weight_map\":[]}", ERR_FORMAT, "weight_map"},
    {"{\"weight_map\":null}", ERR_FORMAT, "weight_map"},
    {"{}", ERR_FORMAT, "weight_map"},
    {"[]", ERR_FORMAT, "expected '{'"},
    {"", ERR_FORMAT, "index.json"},
};

static void test_indexes(void **state)
{
    (void)state;
    struct dir d;
    make_shards(&d, good_index);
    for (size_t i = 0; i < countof(indexes); i++) {
        dir_text(&d, "model.safetensors.index.json", indexes[i].index);
        assert_error(open_close(d.path), indexes[i].want, indexes[i].part, indexes[i].index);
    }
    /* A file name of 4 KiB, and more files than any checkpoint has. */
    char *text = malloc(400000);
    memset(text, 'x', 5000);
    memcpy(text, "{\"weight_map\":{\"a\":\"", 20);
    memcpy(text + 4096, ".safetensors\"}}", 16);
    dir_text(&d, "model.safetensors.index.json", text);
    assert_error(open_close(d.path), ERR_FORMAT, "plain name", "4 KiB");
    size_t n = (size_t)sprintf(text, "{\"weight_map\":{");
    for (int i = 0; i < 4097; i++)
        n += (size_t)sprintf(text + n, "%s\"t%d\":\"m-%d.safetensors\"", i ? "," : "", i, i);
    memcpy(text + n, "}}", 3);
    dir_text(&d, "model.safetensors.index.json", text);
    assert_error(open_close(d.path), ERR_LIMIT, "4096 files", "many files");
    n = (size_t)sprintf(text, "{\"weight_map\":{");
    for (int i = 0; i < 5000; i++) /* many tensors in few files */
        n += (size_t)sprintf(text + n, "%s\"t%d\":\"m-%d.safetensors\"", i ? "," : "", i, i % 3);
    memcpy(text + n, "}}", 3);
    struct shards s;
    assert_int_equal(shards_parse(text, strlen(text), "t", &s), 0);
    assert_int_equal(s.n, 5000);
    assert_int_equal(s.n_files, 3);
    for (uint32_t i = 0; i < s.n; i++)
        assert_int_equal(s.file[s.entry[i].number][2], '0' + i % 3);
    shards_done(&s);
    free(text);
    dir_remove(&d);
}

/* The index truncated at every length, and a shard truncated at every length. */
/* class: CVE-2024-39720 */
static void test_sharded_truncated(void **state)
{
    (void)state;
    struct dir d;
    struct stat st;
    make_shards(&d, good_index);
    static const char *const names[] = {"m-2.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < countof(names); i++) {
        assert_int_equal(stat(dir_file(&d, names[i]), &st), 0);
        assert_int_equal(open_close(d.path), i == 0 ? 0 : ERR_FORMAT);
        for (off_t n = st.st_size - 1; n >= 0; n--) {
            assert_int_equal(truncate(dir_file(&d, names[i]), n), 0);
            assert_int_equal(open_close(d.path), ERR_FORMAT);
        }
    }
    dir_remove(&d);
}

/* --- Which paths are allowed. */
static void test_paths(void **state)
{
    (void)state;
    struct dir d;
    assert_error(open_close("/no/such/model"), ERR_NOTFOUND, "/no/such/model: no such file",
                 "missing");
    assert_non_null(strstr(err_last(), ".gguf"));
    dir_make(&d);
    assert_error(open_close(d.path), ERR_NOTFOUND, "config.json, model.safetensors",
                 "empty directory");
    dir_text(&d, "notes.txt", "hello");
    assert_error(open_close(d.path), ERR_NOTFOUND, "not a model", "directory of something else");
    assert_error(open_close(dir_file(&d, "notes.txt")), ERR_FORMAT, "not a GGUF file", "text file");
    dir_text(&d, "lfs", "version https://git-lfs.github.com/spec/v1\n");
    assert_error(open_close(dir_file(&d, "lfs")), ERR_FORMAT, "git lfs pull", "LFS pointer");
    dir_text(&d, "tokenizer.json", "{}");
    struct checkpoint *c = must_open(d.path); /* tokenizer tools need no weights */
    assert_int_equal(checkpoint_n_tensors(c), 0);
    assert_int_equal(checkpoint_bytes(c), 0);
    assert_null(checkpoint_config(c));
    assert_null(checkpoint_generation_config(c));
    assert_null(checkpoint_find(c, "a"));
    checkpoint_close(c);
    dir_text(&d, "config.json", "{\"a\":1}");
    assert_int_equal(open_close(d.path), 0);
    assert_error(open_close(dir_file(&d, "config.json")), ERR_ARG, "give the directory",
                 "config.json");
    assert_error(open_close(dir_file(&d, "model.safetensors")), ERR_ARG, "give the directory",
                 "model.safetensors");
    assert_int_equal(mkfifo(dir_file(&d, "fifo.gguf"), 0600), 0);
    assert_int_equal(open_close(d.file), ERR_IO);
    dir_remove(&d);
}

/* --- config.json */
static void test_config_truncated(void **state)
{
    (void)state;
    struct dir d;
    char *text;
    size_t n;
    dir_make(&d);
    assert_int_equal(file_read("tests/golden/models/llama-gqa-l3/config.json", 1 << 20, &text, &n),
                     0);
    dir_text(&d, "tokenizer.json", "{}");
    dir_write(&d, "config.json", text, n);
    assert_int_equal(open_close(d.path), 0);
    while (text[n - 1] != '}') /* the file is valid without the final line feed */
        n--;
    assert_int_equal(truncate(dir_file(&d, "config.json"), (off_t)n), 0);
    assert_int_equal(open_close(d.path), 0);
    while (n-- > 0) {
        assert_int_equal(truncate(dir_file(&d, "config.json"), (off_t)n), 0);
        assert_error(open_close(d.path), ERR_FORMAT, "config.json", "cut config.json");
        json_t *j = NULL;
        uint8_t *q = exact(text, n);
        assert_int_equal(config_parse((char *)q, n, "t", &j), ERR_FORMAT);
        assert_null(j);
        free(q);
    }
    mem_free(text);
    dir_remove(&d);
}

static void test_config_flipped(void **state)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xFF};
    (void)state;
    char *text;
    size_t n;
    assert_int_equal(file_read("tests/golden/models/llama-gqa-l3/config.json", 1 << 20, &text, &n),
                     0);
    for (size_t i = 0; i < n; i++)
        for (size_t m = 0; m < countof(masks); m++) {
            json_t *j = NULL;
            uint8_t *q = exact(text, n);
            q[i] ^= masks[m];
            int e = config_parse((char *)q, n, "t", &j);
            assert_true(e == 0 ? json_is_object(j) : e == ERR_FORMAT && !j);
            json_decref(j);
            free(q);
        }
    mem_free(text);
}

static void test_configs(void **state)
{
    static const struct {
        const char *text;
        int want;
        const char *part;
    } rows[] = {
        {"{}", 0, ""},
        {" {\"a\": [1, 2]} \n", 0, ""},
        {"{\"a\": Infinity, \"b\": [-Infinity, NaN]}", 0, ""},
        {"", ERR_FORMAT, "line 1"},
        {"[]", ERR_FORMAT, "must be a JSON object"},
        {"1", ERR_FORMAT, "must be a JSON object"},
        {"null", ERR_FORMAT, "must be a JSON object"},
        {"{\"a\":1,\n\"a\":2}", ERR_FORMAT, "line 2: duplicate"},
        {"{\"a\":{\"b\":1,\"b\":2}}", ERR_FORMAT, "duplicate"},
        {"{\"a\":1e999}", ERR_FORMAT, "overflow"},
        {"{\"a\":Inf}", ERR_FORMAT, "line 1"},
        {"{\"a\":Infinit", ERR_FORMAT, "line 1"},
        {"{\"a\":\"x", ERR_FORMAT, "line 1"},
        {"{\"a\":\"x\\", ERR_FORMAT, "line 1"},
        {"{\"\xff\":1}", ERR_FORMAT, "line 1"},
        {"{} x", ERR_FORMAT, "line 1"},
    };
    (void)state;
    struct dir d;
    dir_make(&d);
    for (size_t i = 0; i < countof(rows); i++) {
        dir_text(&d, "config.json", rows[i].text);
        assert_error(open_close(d.path), rows[i].want, rows[i].part, rows[i].text);
    }
    dir_text(&d, "config.json", "{}");
    dir_text(&d, "generation_config.json", "{");
    assert_error(open_close(d.path), ERR_FORMAT, "generation_config.json",
                 "generation_config.json");
    unlink(d.file);
    char *text = malloc((4u << 20) + 2);
    memset(text, '[', (4u << 20) + 1);
    memcpy(text, "{\"a\":", 5);
    dir_write(&d, "config.json", text, 4u << 20);
    assert_error(open_close(d.path), ERR_FORMAT, "nested deeper than 2048", "nesting");
    dir_write(&d, "config.json", text, (4u << 20) + 1);
    assert_error(open_close(d.path), ERR_LIMIT, "config.json", "4 MiB and a byte");
    free(text);
    dir_remove(&d);
}

/* Python writes words that JSON does not have, such as NaN; inside strings they are text. */
static void test_python_words(void **state)
{
    static const char text[] =
        "{\"Infinity\":\"NaN \\\"Infinity\",\"a\":[0.0,Infinity],\"b\":-Infinity,"
        "\"c\":NaN}";
    (void)state;
    json_t *j;
    assert_int_equal(config_parse(text, sizeof text - 1, "t", &j), 0);
    assert_string_equal(json_string_value(json_object_get(j, "Infinity")), "NaN \"Infinity");
    assert_true(json_real_value(json_array_get(json_object_get(j, "a"), 1)) ==
                1.7976931348623157e308);
    assert_true(json_real_value(json_object_get(j, "b")) == -1.7976931348623157e308);
    /* no number, and not null, which would be a default */
    assert_string_equal(json_string_value(json_object_get(j, "c")), "NaN");
    json_decref(j);
}

/* --- GGUF */
static void test_gguf_checkpoint(void **state)
{
    (void)state;
    struct checkpoint *c = must_open("tests/fixtures/fmt/all_types.gguf");
    const json_t *config = checkpoint_config(c);
    assert_true(checkpoint_is_gguf(c));
    assert_non_null(checkpoint_gguf(c));
    assert_int_equal(checkpoint_n_tensors(c), 18);
    assert_null(checkpoint_generation_config(c));
    assert_int_equal(json_integer_value(json_object_get(config, "v.u16")), 60000);
    assert_int_equal(json_array_size(json_object_get(config, "v.array.i32")), 3);
    assert_null(json_object_get(config, "v.array.long")); /* the array has 65 items */
    /* Tokenizer arrays are never shown. */
    assert_null(json_object_get(config, "tokenizer.ggml.tokens"));
    size_t bytes = 0;
    for (uint32_t i = 0; i < 18; i++) {
        const struct tensor *t = checkpoint_tensor_at(c, i);
        assert_ptr_equal(checkpoint_find(c, t->name), t);
        bytes += t->bytes;
    }
    assert_int_equal(checkpoint_bytes(c), bytes);
    checkpoint_close(c);
}

/* Writes a file without tensors that says which part it is; a negative number leaves a key out. */
static const char *write_part(struct dir *d, const char *name, long no, long count, uint32_t type)
{
    static struct file f;
    gguf_begin(&f, 3, 0, (uint64_t)(no >= 0) + (count >= 0));
    if (no >= 0) {
        gguf_key(&f, "split.no", GGUF_U16);
        put_le(&f, (uint64_t)no, 2);
    }
    if (count >= 0) {
        gguf_key(&f, "split.count", type);
        put_le(&f, (uint64_t)count, type == GGUF_U16 ? 2 : 4);
    }
    dir_write(d, name, f.b, f.n);
    return dir_file(d, name);
}

/* Parts whose numbers cannot be (whole models in parts: tests/cli/parts.sh). */
static void test_gguf_parts(void **state)
{
    static const struct {
        const char *name;
        long no, count;
        uint32_t type;
        int want;
        const char *says;
    } rows[] = {
        {"m-00001-of-00001.gguf", 0, 1, GGUF_U16, 0, NULL},
        {"m-00001-of-00002.gguf", -1, 0, GGUF_U16, 0, NULL},
        {"m-00001-of-00002.gguf", 0, 2, GGUF_F32, ERR_FORMAT, "split.count"},
        {"m-00001-of-00002.gguf", -1, 2, GGUF_U16, ERR_FORMAT, "split.no is missing"},
        {"m-00001-of-00002.gguf", 2, 2, GGUF_U16, ERR_FORMAT, "split.no"},
        {"m-00001-of-00002.gguf", 0, 3, GGUF_U16, ERR_ARG, "must end with -00001-of-00003.gguf"},
        {"m-00002-of-00002.gguf", 0, 2, GGUF_U16, ERR_ARG, "must end with -00001-of-00002.gguf"},
        {"m-00001-of-04096.gguf", 0, 4096, GGUF_U32, ERR_NOTFOUND, "-00002-of-04096.gguf"},
        {"m-00001-of-04097.gguf", 0, 4097, GGUF_U32, ERR_LIMIT, "the limit is 4096"},
        {"m-00001-of-00002.gguf", 0, INT32_MAX, GGUF_U32, ERR_LIMIT, "the limit is 4096"},
        {"m.gguf", 0, 2, GGUF_U16, ERR_ARG, "m.gguf: part 1 of 2, whose name must end"},
        {"m-00002-of-00002.gguf", 1, 2, GGUF_U16, ERR_ARG, "m-00001-of-00002.gguf"},
    };
    (void)state;
    struct dir d;
    dir_make(&d);
    for (size_t i = 0; i < countof(rows); i++) {
        const char *path = write_part(&d, rows[i].name, rows[i].no, rows[i].count, rows[i].type);
        if (rows[i].want)
            assert_error(open_close(path), rows[i].want, rows[i].says, rows[i].name);
        else
            assert_int_equal(open_close(path), 0);
        assert_int_equal(unlink(path), 0);
    }
    dir_remove(&d);
}

/* Returns the mappings of this process that are of the large file or reserve addresses alone: those of memory come and go,
 * also by themselves under TSan.  *asked: huge pages are wanted for the one that begins at `at`. */
static int mappings(const void *at, bool *asked)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    size_t lo = 0, a, b;
    int n = 0;
    assert_non_null(f);
    *asked = false;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%zx-%zx ", &a, &b) == 2)
            lo = a, n += strstr(line, "/large\n") || strstr(line, " ---p ");
        if (lo == (size_t)at && strncmp(line, "VmFlags:", 8) == 0) *asked = strstr(line, " hg");
    }
    fclose(f);
    return n;
}

/* True if the kernel takes the wish for huge pages.  What is mounted under /sys does not matter. */
static bool huge_pages(void)
{
    const size_t n = (size_t)4 << 20;
    bool asked = false;
    void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    if (madvise(p, n, MADV_HUGEPAGE) == 0) (void)mappings(p, &asked);
    munmap(p, n);
    return asked;
}

/* A large file begins at a huge page, asks for huge ones where the system has them, and leaves nothing behind. */
static void test_large_file(void **state)
{
    (void)state;
    const size_t n = ((size_t)5 << 20) + 1234, huge = (size_t)2 << 20;
    struct dir d;
    struct map m;
    bool asked;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(i * 7 + i / 4096);
    dir_make(&d);
    dir_write(&d, "large", text, n);
    int before = mappings(NULL, &asked);
    assert_int_equal(map_open(&m, dir_file(&d, "large")), 0);
    assert_int_equal(m.size, n);
    assert_memory_equal(m.data, text, n);
    assert_int_equal((size_t)m.data % huge, 0);
    assert_int_equal(mappings(m.data, &asked), before + 1);
    assert_int_equal(asked, huge_pages());
    map_close(&m);
    assert_int_equal(mappings(NULL, &asked), before);
    free(text);
    dir_remove(&d);
}

/* A file that shrinks while it is mapped is noticed before its lost pages are read. A file that is
 * replaced by a new one is not disturbed. class: mmap-sigbus */
static void test_shrinking_file(void **state)
{
    (void)state;
    struct dir d;
    struct map m;
    make_shards(&d, good_index);
    struct checkpoint *c = must_open(d.path);
    assert_int_equal(checkpoint_recheck(c), 0);
    /* The new file comes by a rename, so the old file stays mapped. */
    dir_text(&d, "m-1.safetensors", "short");
    assert_int_equal(checkpoint_recheck(c), 0);
    assert_memory_equal(checkpoint_find(c, "b")->data, numbers + 2, 8);
    assert_int_equal(truncate(dir_file(&d, "m-2.safetensors"), 10), 0);
    assert_error(checkpoint_recheck(c), ERR_IO, "m-2.safetensors: the file shrank", "shard");
    checkpoint_close(c);
    assert_int_equal(map_open(&m, "tests/fixtures/fmt/all_types.gguf"), 0);
    dir_write(&d, "m.gguf", m.data, m.size);
    map_close(&m);
    c = must_open(dir_file(&d, "m.gguf"));
    assert_int_equal(truncate(d.file, 1000), 0);
    assert_error(checkpoint_recheck(c), ERR_IO, "shrank from 3", "gguf");
    checkpoint_close(c);
    dir_remove(&d);
}

/* Every allocation of an open fails once, and then all allocations from there on: ERR_NOMEM, and
 * nothing leaks (ASan). */
/* class: CVE-2024-32878 */
static void sweep(const char *path)
{
    for (int persistent = 0; persistent < 2; persistent++) {
        int k, e = ERR_NOMEM;
        for (k = 0; e < 0; k++) {
            mem_fail_at(k, persistent);
            e = open_close(path);
            mem_fail_at(-1, false);
            assert_true(e == 0 || e == ERR_NOMEM);
        }
        assert_in_range(k, 10, 300);
        if (persistent) print_message("%s: %d allocations, each failed\n", path, k - 1);
    }
}

static void test_faults(void **state)
{
    (void)state;
    struct dir d;
    make_shards(&d, good_index);
    sweep(d.path);
    sweep("tests/golden/models/llama-bf16");
    sweep("tests/fixtures/fmt/all_types.gguf");
    dir_remove(&d);
}

/* JSON text is complete or not written, whichever allocation fails. */
static void test_json_text_faults(void **state)
{
    (void)state;
    static const char want[] =
        "{\"a long key, longer than the first buffer of sixty-four bytes\":"
        "[1,2.5,\"text\"],\"another one that makes the buffer grow again, to "
        "a hundred and then some bytes\":null}";
    json_t *j;
    assert_int_equal(json_parse(want, sizeof want - 1, "t", &j), 0);
    int k, e = ERR_NOMEM;
    for (k = 0; e < 0; k++) {
        char *text = NULL;
        mem_fail_at(k, false);
        e = json_text(j, &text);
        mem_fail_at(-1, false);
        assert_true(e == 0 || e == ERR_NOMEM);
        if (e == 0) assert_string_equal(text, want);
        mem_free(text);
    }
    assert_in_range(k, 3, 100);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_models),
        cmocka_unit_test(test_sharded),
        cmocka_unit_test(test_symlinked_shards),
        cmocka_unit_test(test_indexes),
        cmocka_unit_test(test_sharded_truncated),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_config_truncated),
        cmocka_unit_test(test_config_flipped),
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_python_words),
        cmocka_unit_test(test_gguf_checkpoint),
        cmocka_unit_test(test_gguf_parts),
        cmocka_unit_test(test_shrinking_file),
        cmocka_unit_test(test_large_file),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_json_text_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
