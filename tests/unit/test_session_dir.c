/* test_session_dir.c - session files while other people and processes use the directory: a file
 * that is replaced while it is being opened; temporary files of others; a directory of prompts that
 * also holds somebody's conversations; rows with bit rot; manifests with wrong places. */
#include "base/durable.h"
#include "base/file.h"
#include "kvik.h"
#include "session/session.h"
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL "tests/golden/models/llama-mha"
#define QUANTO                                                                                     \
    "{\"backend\":\"quanto\",\"nbits\":4,\"q_group_size\":8,\"residual_length\":8,\"axis_key\":0," \
    "\"axis_value\":0}"
enum { N = 64, VOCAB = 1024 };

static char dir[] = "/tmp/kvik-dir-XXXXXX", file[64], other[64], tmp[64], prompts[64];
static int32_t ids[2 * N];
static kvik_model *m;

static kvik_cache *open_cache(const char *impl, const char *config)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = impl,
                           .cache_config = config,
                           .max_cache_len = 2 * N,
                           .max_sequences = 4,
                           .no_prefix_cache = true,
                           .threads = 1};
    kvik_cache *c = NULL;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static kvik_seq feed(kvik_cache *c, const int32_t *t, uint32_t n)
{
    kvik_seq s;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = t, .n = n};
    if (kvik_forward(c, &span, 1, false, NULL) < 0) fail_msg("%s", kvik_last_error());
    return s;
}

static void save(kvik_cache *c, const char *path, kvik_seq s, const char *note)
{
    if (kvik_cache_save(c, path, &s, 1, note) < 0) fail_msg("%s", kvik_last_error());
}

/* Checks that the file is a session of n tokens with this note. */
static void assert_session(kvik_cache *c, const char *path, uint32_t n, const char *note)
{
    char *text;
    kvik_seq s;
    if (kvik_cache_load(c, path, 1, &s, &text) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_cache_length(c, s), n);
    assert_string_equal(text, note);
    kvik_free(text);
    kvik_cache_drop(c, s);
}

static int count(const char *path)
{
    int n = 0;
    struct dirent *e;
    DIR *d = opendir(path);
    while (d && (e = readdir(d)))
        n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void clear(const char *path)
{
    char name[600];
    struct dirent *e;
    DIR *d = opendir(path);
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        unlink(name);
    }
    if (d) closedir(d);
}

/* --- Other processes at the same file */

static void on_opened(const char *path) /* the save of another process ends just now */
{
    durable_opened = NULL;
    assert_int_equal(rename(other, path), 0);
}

/* If a save appended to a file that has lost its name, the data would be lost although the save
 * reported success. */
static void test_replaced(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic", NULL);
    kvik_seq a = feed(c, ids, 20), b = feed(c, ids, 30), d = feed(c, ids, 40);
    save(c, file, a, "a");
    save(c, other, b, "b");
    durable_opened = on_opened;
    save(c, file, d, "d");
    assert_null(durable_opened);
    assert_session(c, file, 40, "d");
    kvik_cache_close(c);
    clear(dir);
}

static kvik_cache *writer;
static kvik_seq more;

static void on_read(const char *path) /* another process appends to the file just now */
{
    durable_opened = NULL;
    save(writer, path, more, "more");
}

/* A reader holds no lock, so the manifest it finds may be newer than the file size it has seen. */
static void test_grows_while_read(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic", NULL);
    writer = c;
    save(c, file, feed(c, ids, 60), "a");
    more = feed(c, ids, 70);
    durable_opened = on_read;
    assert_session(c, file, 70, "more");
    kvik_cache_close(c);
    clear(dir);
}

static void test_temporary(void **state)
{
    (void)state;
    struct stat st;
    kvik_cache *c = open_cache("dynamic", NULL);
    kvik_seq s = feed(c, ids, 20);
    /* Left by a process that died; readable by all. */
    assert_int_equal(file_write(tmp, "KVIKSESS and more", 17), 0);
    assert_int_equal(chmod(tmp, 0666), 0);
    save(c, file, s, "private");
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_false(file_exists(tmp));
    clear(dir);
    kvik_cache_close(c);
}

static void assert_precious(const char *path)
{
    char *text;
    size_t n;
    assert_int_equal(file_read(path, 1 << 20, &text, &n), 0);
    assert_int_equal(n, 8);
    assert_memory_equal(text, "precious", 8);
    mem_free(text);
}

/* Files that other programs made keep their contents, under every name that a save might want. */
static void test_taken_names(void **state)
{
    (void)state;
    char plain[80];
    struct stat st;
    kvik_cache *c = open_cache("dynamic", NULL);
    kvik_seq s = feed(c, ids, 20);
    snprintf(plain, sizeof plain, "%s/s.kvik.tmp", dir);
    const char *name[] = {plain, tmp};
    for (size_t i = 0; i < countof(name); i++)
        for (int kind = 0; kind < 5; kind++) {
            assert_int_equal(file_write(other, "precious", 8), 0);
            if (kind == 0) assert_int_equal(file_write(name[i], "precious", 8), 0);
            if (kind == 1) assert_int_equal(link(other, name[i]), 0);
            if (kind == 2) assert_int_equal(symlink(other, name[i]), 0);
            if (kind == 3) assert_int_equal(symlink("nowhere", name[i]), 0);
            if (kind == 4) assert_int_equal(mkfifo(name[i], 0600), 0);
            assert_int_equal(lstat(name[i], &st), 0);
            ino_t ino = st.st_ino;
            save(c, file, s, "beside");
            assert_session(c, file, 20, "beside");
            assert_int_equal(lstat(name[i], &st), 0);
            assert_int_equal(st.st_ino, ino);
            assert_precious(other);
            if (kind < 3) assert_precious(name[i]);
            assert_int_equal(unlink(name[i]), 0);
            clear(dir);
        }
    kvik_cache_close(c);
}

/* A link to a file that does not exist yet stays a link. */
static void test_dangling(void **state)
{
    (void)state;
    struct stat st;
    kvik_cache *c = open_cache("dynamic", NULL);
    assert_int_equal(symlink("other", file), 0);
    save(c, file, feed(c, ids, 20), "far");
    assert_int_equal(lstat(file, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_session(c, other, 20, "far");
    kvik_cache_close(c);
    clear(dir);
}

static int64_t find(kvik_cache *c, const int32_t *t, uint32_t n)
{
    kvik_seq s;
    int64_t have = kvik_prefix_load(c, prompts, t, n, &s);
    if (have > 0) kvik_cache_drop(c, s);
    return have;
}

/* --- Two caches at one file */

/* A save that would drop what somebody else saved is refused, and both stay whole. */
static void test_two_writers(void **state)
{
    (void)state;
    kvik_seq s;
    kvik_cache *one = open_cache("dynamic", NULL), *two = open_cache("dynamic", NULL);
    kvik_seq a = feed(one, ids, 20), b = feed(two, ids, 30);
    save(one, file, a, "one");
    assert_int_equal(kvik_cache_save(two, file, &b, 1, "two"), KVIK_BUSY); /* never loaded there */
    assert_non_null(strstr(kvik_last_error(), "save under another name"));
    assert_session(one, file, 20, "one");
    assert_int_equal(kvik_cache_load(two, file, 1, &s, NULL), 1);
    save(two, file, b, "two"); /* adds to the file, whose inode stays */
    assert_int_equal(kvik_cache_save(one, file, &a, 1, "lost"), KVIK_BUSY);
    assert_session(two, file, 30, "two");
    save(one, other, a, "one");
    assert_session(two, other, 20, "one");
    assert_session(one, file, 30, "two"); /* loads the file, and so knows it */
    save(one, file, a, "one again");
    save(one, file, a, "and again");
    assert_int_equal(kvik_cache_save(two, file, &b, 1, "lost"), KVIK_BUSY);
    assert_int_equal(unlink(file), 0); /* nothing is left to lose */
    save(two, file, b, "new");
    assert_session(two, file, 30, "new");
    kvik_cache_close(one);
    kvik_cache_close(two);
    clear(dir);
}

/* Another cache makes the file while a new one is being written. */
static kvik_cache *racer;
static kvik_seq raced;

static void on_write(enum durable_call call, uint64_t at, const void *data, size_t n)
{
    (void)at;
    (void)data;
    (void)n;
    if (call != DURABLE_SYNC) return;
    durable_trace = NULL;
    save(racer, other, raced, "first");
    assert_int_equal(rename(other, file), 0);
}

static void test_first_writer(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic", NULL);
    kvik_seq s = feed(c, ids, 20);
    racer = open_cache("dynamic", NULL);
    raced = feed(racer, ids, 30);
    durable_trace = on_write;
    assert_int_equal(kvik_cache_save(c, file, &s, 1, "second"), KVIK_BUSY);
    assert_null(durable_trace);
    assert_session(c, file, 30, "first");
    kvik_cache_close(racer);
    kvik_cache_close(c);
    clear(dir);
}

/* --- Sizes that no session has */

/* Writes a sparse file of `size` bytes whose manifest is everything behind the head and begins with `data`. */
static void put_sparse(uint64_t size, const void *data, size_t n)
{
    uint8_t head[SESSION_DATA];
    struct session s = {.saves = 1, .manifest_at = SESSION_DATA, .end = size};
    s.manifest_bytes = size - SESSION_DATA;
    session_head(head);
    session_slot(&s, (const uint8_t[DIGEST_BYTES]){1}, head + SESSION_SLOT_AT);
    session_slot(&s, (const uint8_t[DIGEST_BYTES]){1}, head + SESSION_SLOT_AT + SESSION_SLOT_STEP);
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(pwrite(fd, head, sizeof head, 0), sizeof head);
    assert_int_equal(pwrite(fd, data, n, SESSION_DATA), n);
    close(fd);
}

/* Small files that claim to be large are refused with little memory, before their arrays are read. */
static void test_sparse(void **state)
{
    (void)state;
    enum { M = 1 << 20 };
    /* bytes of the description "{}" and of the note; groups; sequences; tokens of the first one */
    const struct {
        uint64_t size;
        uint32_t meta, note, groups, seqs, len;
        int error;
    } lie[] = {
        {(uint64_t)4 << 30, 0, 0, 0, 0, 0, KVIK_FORMAT},
        {250 * M, 0, 0, 0, 0, 0, KVIK_FORMAT},
        {250 * M, 200 * M, 0, 0, 0, 0, KVIK_FORMAT},
        {250 * M, 2, 200 * M, 0, 0, 0, KVIK_FORMAT},
        {250 * M, 2, 0, 1, 1, 50 * M, KVIK_FORMAT},
        {3 * M, 2, 0, 1, 2 * M, 0, KVIK_LIMIT},
        {3 * M, 2, 0, 1, 1, 50 * M, KVIK_LIMIT},
    };
    kvik_cache *c = open_cache("dynamic", NULL);
    char path[128], *json;
    struct rusage before, after;
    kvik_seq s;
    assert_int_equal(mkdir(prompts, 0700), 0);
    snprintf(path, sizeof path, "%s/0123456789abcdef0123456789abcdef.kvik", prompts);
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < countof(lie); i++) {
        const uint32_t tail[] = {lie[i].note, lie[i].groups, lie[i].seqs, lie[i].len};
        uint8_t data[6 + sizeof tail] = {0, 0, 0, 0, '{', '}'};
        memcpy(data, &lie[i].meta, 4);
        memcpy(data + 6, tail, sizeof tail);
        put_sparse(lie[i].size, data, sizeof data);
        assert_int_equal(link(file, path), 0);
        assert_int_equal(kvik_cache_load(c, file, 1, &s, NULL), lie[i].error);
        if (lie[i].error == KVIK_FORMAT)
            assert_int_equal(kvik_session_describe(file, &json), KVIK_FORMAT);
        assert_int_equal(find(c, ids, 50), 0);
        assert_int_equal(unlink(path) | unlink(file), 0);
    }
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 65536); /* KiB */
    kvik_cache_close(c);
    assert_int_equal(rmdir(prompts), 0);
}

/* Changes the session so that its first block claims to have `rows` rows, which lie in a hole of the file. */
static void claim_block(uint32_t rows)
{
    struct durable f;
    struct session_disk d;
    struct session s;
    uint8_t digest[DIGEST_BYTES], slot[SESSION_SLOT];
    char *data;
    size_t n;
    assert_int_equal(durable_open(&f, file, true), 0);
    session_disk_init(&d, &f);
    assert_int_equal(session_read(&d.io, &s), 0);
    struct session_part *p = &s.seq[0].part[0];
    assert_int_equal(p->c.n, KV_STRIP);
    p->bytes = p->bytes / p->c.n * rows;
    p->at = s.end;
    p->c.n = rows;
    s.manifest_at = p->at + p->bytes;
    assert_int_equal(session_encode(&s, &data, &n), 0);
    s.manifest_bytes = n;
    s.end = s.manifest_at + n;
    digest_of(data, n, digest);
    session_slot(&s, digest, slot);
    assert_int_equal(durable_write(&f, s.manifest_at, data, n), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            durable_write(&f, SESSION_SLOT_AT + i * (uint64_t)SESSION_SLOT_STEP, slot, sizeof slot),
            0);
    mem_free(data);
    session_done(&s);
    durable_close(&f);
}

/* A block that claims more rows than any block has is refused before memory is taken for it. */
static void test_sparse_block(void **state)
{
    (void)state;
    struct rusage before, after;
    kvik_seq s;
    kvik_cache *c = open_cache("dynamic", NULL);
    save(c, file, feed(c, ids, 40), NULL);
    claim_block(60000);
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(kvik_cache_load(c, file, 1, &s, NULL), KVIK_FORMAT);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16384); /* KiB */
    assert_int_equal(unlink(file), 0);
    kvik_cache_close(c);
}

/* --- A directory of prompts ------------------------------------------------------------------- */

/* A conversation that somebody keeps in the directory is found, and is neither renamed, nor written
 * to, nor removed. */
static void test_neighbours(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic", NULL);
    char chat[128];
    snprintf(chat, sizeof chat, "%s/chat.kvik", prompts);
    assert_true(mkdir(prompts, 0700) == 0);
    kvik_seq s = feed(c, ids, 20), t = feed(c, ids, 40);
    save(c, chat, s, "what was said");
    assert_int_equal(find(c, ids, 40), 20);
    assert_int_equal(kvik_prefix_save(c, prompts, t, 0), 0);
    assert_session(c, chat, 20, "what was said");
    assert_int_equal(count(prompts), 2);
    assert_int_equal(find(c, ids, 50), 40);
    assert_int_equal(kvik_prefix_save(c, prompts, feed(c, ids + 5, 40), 1), 0);
    assert_int_equal(count(prompts), 1);
    assert_session(c, chat, 20, "what was said");
    kvik_cache_close(c);
    clear(prompts);
}

/* A prompt is one turn. Where turns matter, rows of other turns are different rows. */
static void test_turns(void **state)
{
    (void)state;
    char chat[128];
    kvik_cache *c = open_cache("quantized", QUANTO);
    kvik_seq s = feed(c, ids, 40);
    assert_int_equal(kvik_prefix_save(c, prompts, s, 0), 0);
    assert_int_equal(count(prompts), 0);
    snprintf(chat, sizeof chat, "%s/chat.kvik", prompts);
    save(c, chat, s, "");
    assert_int_equal(find(c, ids, 50), 0);
    kvik_cache_close(c);
    clear(prompts);
}

/* Bit rot in rows: the file is removed, so that it does not hide other files from later look-ups. */
static void test_rot(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic", NULL);
    char *data, path[400];
    size_t n;
    struct dirent *e;
    assert_int_equal(kvik_prefix_save(c, prompts, feed(c, ids, 40), 0), 0);
    DIR *d = opendir(prompts);
    while ((e = readdir(d)))
        if (e->d_name[0] != '.') snprintf(path, sizeof path, "%s/%s", prompts, e->d_name);
    closedir(d);
    assert_int_equal(file_read(path, 1 << 24, &data, &n), 0);
    data[SESSION_DATA + 99] ^= 1;
    assert_int_equal(file_write(path, data, n), 0);
    mem_free(data);
    assert_int_equal(find(c, ids, 50), 0);
    assert_int_equal(count(prompts), 0);
    kvik_cache_close(c);
    clear(prompts);
}

/* --- Manifests with wrong contents */

struct bytes {
    struct session_io io;
    char *data;
};

static int read_at(struct session_io *io, uint64_t at, void *out, size_t n)
{
    struct bytes *b = (struct bytes *)io;
    if (at > io->size || n > io->size - at) return ERR(IO, "end");
    memcpy(out, b->data + at, n);
    return 0;
}

static void assert_lie(struct bytes *b, struct session *s, const char *word)
{
    uint8_t slot[SESSION_SLOT], digest[DIGEST_BYTES];
    struct session out;
    char *data;
    size_t n;
    assert_int_equal(session_encode(s, &data, &n), 0);
    assert_int_equal(n, s->manifest_bytes);
    memcpy(b->data + s->manifest_at, data, n);
    digest_of(data, n, digest);
    mem_free(data);
    session_slot(s, digest, slot);
    for (int i = 0; i < 2; i++)
        memcpy(b->data + SESSION_SLOT_AT + i * SESSION_SLOT_STEP, slot, sizeof slot);
    int e = session_read(&b->io, &out);
    if (!word) {
        assert_int_equal(e, 0);
        session_done(&out);
        return;
    }
    assert_int_equal(e, ERR_FORMAT);
    if (!strstr(err_last(), word)) fail_msg("%s", err_last());
}

/* Overlapping blocks would make a small file as expensive to check as a large one. */
static void test_places(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("dynamic", NULL);
    struct bytes b = {.io = {.read = read_at, .what = "x"}};
    struct session s;
    size_t n;
    save(c, file, feed(c, ids, 40), "");
    assert_int_equal(file_read(file, 1 << 24, &b.data, &n), 0);
    b.io.size = n;
    assert_int_equal(session_read(&b.io, &s), 0);
    assert_lie(&b, &s, NULL);
    struct session_part *p = s.seq[0].part, was = p[1];
    p[1].at = p[0].at + 1;
    assert_lie(&b, &s, "overlap");
    p[1] = was;
    p[1].at = p[0].at; /* the same place with other contents */
    assert_lie(&b, &s, "overlap");
    p[1] = was;
    p[1].at = s.manifest_at - 1;
    assert_lie(&b, &s, "outside");
    session_done(&s);
    mem_free(b.data);
    kvik_cache_close(c);
    clear(dir);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir) || kvik_model_open(MODEL, &m) < 0) return -1;
    snprintf(file, sizeof file, "%s/s.kvik", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    snprintf(tmp, sizeof tmp, "%s/.s.kvik.kvik-tmp", dir);
    snprintf(prompts, sizeof prompts, "%s/prompts", dir);
    for (uint32_t i = 0; i < 2 * N; i++)
        ids[i] = (int32_t)(5 + i * 37 % (kvik_model_vocab(m) - 5));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kvik_model_close(m);
    clear(prompts);
    rmdir(prompts);
    clear(dir);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replaced),     cmocka_unit_test(test_grows_while_read),
        cmocka_unit_test(test_temporary),    cmocka_unit_test(test_taken_names),
        cmocka_unit_test(test_dangling),     cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_first_writer), cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_sparse_block), cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_turns),        cmocka_unit_test(test_rot),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
