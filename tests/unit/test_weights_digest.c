/* test_weights_digest.c - the digest of all weights: every local change of a model is refused by its sessions; the entries in
 * the user's cache directory are believed only if they are right; a file that changes while it is mapped. */
#include "base/durable.h"
#include "base/file.h"
#include "cache_folder.h"
#include "fmt/fmt.h"
#include "generate/handle.h"
#include "kvik_compat.h"
#include "model/weights_digest.h"
#include "session/session_file.h"
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define MODEL "tests/golden/models/llama-mha"
enum { N = 40, PIECE = 1 << 20, ENTRY = 512 };

static char dir[] = "/tmp/kvik-weights-XXXXXX", model[PATH], weights[PATH], file[PATH];

static void write_file(const char *path, const void *data, size_t n)
{
    if (file_write(path, data, n) < 0) fail_msg("%s", kvik_last_error());
}

static void copy_file(const char *from, const char *to)
{
    char *data;
    size_t n;
    if (file_read(from, 64u << 20, &data, &n) < 0) fail_msg("%s", kvik_last_error());
    write_file(to, data, n);
    mem_free(data);
}

/* Changes a byte of a file in place. */
static void flip(const char *path, size_t at)
{
    uint8_t b;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &b, 1, (off_t)at) == 1);
    b ^= 0x10;
    assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
    close(fd);
}

/* Waits until the clock of the file system shows another time than that of the newest change. */
static void tick(void)
{
    usleep(20000);
}

static kvik_model *open_model(const char *path)
{
    kvik_model *m = NULL;
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    return m;
}

static kvik_cache *open_cache(kvik_model *m)
{
    kvik_cache_config k = {
        .size = sizeof k, .max_cache_len = 2 * N, .max_sequences = 2, .threads = 1};
    kvik_cache *c = NULL;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

/* Saves a sequence of the model under `path`.  Returns the result of the save.  A session that is there is loaded first,
 * because a cache replaces none that it does not know, or removed if it cannot be loaded. */
static int save(kvik_model *m, const char *path)
{
    kvik_cache *c = open_cache(m);
    int32_t ids[N];
    kvik_seq s;
    if (kvik_cache_load(c, path, 1, &s, NULL) > 0) kvik_cache_drop(c, s);
    for (int i = 0; i < N; i++)
        ids[i] = 5 + i;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = N};
    if (kvik_forward(c, &span, 1, false, NULL) < 0) fail_msg("%s", kvik_last_error());
    int e = kvik_cache_save(c, path, &s, 1, NULL);
    if (e == KVIK_BUSY && unlink(path) == 0) e = kvik_cache_save(c, path, &s, 1, NULL);
    kvik_cache_close(c);
    return e;
}

/* Returns the result of loading the session with the model at `path`. */
static int load(const char *path, const char *session)
{
    kvik_model *m = open_model(path);
    kvik_cache *c = open_cache(m);
    kvik_seq s;
    int e = kvik_cache_load(c, session, 1, &s, NULL);
    kvik_cache_close(c);
    kvik_model_close(m);
    return e;
}

/* Returns model_weights of a model that is opened for it. */
static int digest_once(const char *path, uint8_t out[DIGEST_BYTES])
{
    kvik_model *m = open_model(path);
    int e = model_weights(m->m, 1, out);
    kvik_model_close(m);
    return e;
}

static int verify_once(const char *path)
{
    kvik_model *m = open_model(path);
    int e = model_weights_again(m->m, 1);
    kvik_model_close(m);
    return e;
}

static size_t data_begins(const char *path)
{
    uint64_t n;
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &n, 8, 0), 8);
    close(fd);
    return 8 + (size_t)n;
}

static size_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

static unsigned entries(char path[ENTRY])
{
    return count_entries(folder, path, ENTRY);
}

/* A copy of the model, and no entries. */
static int setup(void **state)
{
    char to[PATH + 32];
    (void)state;
    snprintf(model, sizeof model, "%s/model", dir);
    snprintf(weights, sizeof weights, "%s/model/model.safetensors", dir);
    snprintf(file, sizeof file, "%s/a.session", dir);
    remove_tree(model);
    cache_fresh(dir, "digests", 256);
    unlink(file);
    assert_int_equal(mkdir(model, 0700), 0);
    copy_file(MODEL "/model.safetensors", weights);
    snprintf(to, sizeof to, "%s/config.json", model);
    copy_file(MODEL "/config.json", to);
    tick();
    return 0;
}

/* --- What a session belongs to ---------------------------------------------------------------- */

static void test_local_changes(void **state)
{
    (void)state;
    kvik_model *m = open_model(model);
    assert_int_equal(save(m, file), 0);
    kvik_model_close(m);
    assert_int_equal(load(model, file), 1);
    size_t begin = data_begins(weights), n = size_of(weights) - begin;
    uint64_t seed = 1;
    for (int i = 0; i < 30; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t at = begin + (size_t)((seed >> 20) % n);
        flip(weights, at);
        assert_int_equal(load(model, file), KVIK_ARG);
        if (!strstr(kvik_last_error(), "weights") && !strstr(kvik_last_error(), "another model"))
            fail_msg("byte %zu: %s", at, kvik_last_error());
        flip(weights, at);
        assert_int_equal(load(model, file), 1);
    }
}

/* The keys and values of the legacy form are compared in the same way. */
static void test_legacy(void **state)
{
    (void)state;
    char path[PATH];
    float cell[2] = {0};
    kvik_legacy_layer layer = {
        .heads = 1, .tokens = 1, .dim_k = 1, .dim_v = 1, .keys = &cell[0], .values = &cell[1]};
    kvik_legacy l = {.size = sizeof l, .batch = 1, .length = 1, .n_layers = 1, .layer = &layer},
                *back;
    snprintf(path, sizeof path, "%s/legacy.safetensors", dir);
    kvik_model *m = open_model(model);
    if (kvik_legacy_save(&l, m, path) < 0) fail_msg("%s", kvik_last_error());
    kvik_model_close(m);
    flip(weights, size_of(weights) - 5000);
    m = open_model(model);
    assert_int_equal(kvik_legacy_load(path, m, &back), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "other weights"));
    assert_int_equal(kvik_legacy_load(path, NULL, &back), 0);
    kvik_legacy_free(back);
    kvik_model_close(m);
}

/* Renames the key of the digest in a session's manifest, as if a version without it had written the file. */
static void make_old(const char *path)
{
    char *data;
    size_t n;
    assert_int_equal(file_read(path, 64u << 20, &data, &n), 0);
    uint64_t at, bytes;
    memcpy(&at, data + SESSION_SLOT_AT + 8, 8);
    memcpy(&bytes, data + SESSION_SLOT_AT + 16, 8);
    char *key = memmem(data + at, (size_t)bytes, "\"weights\"", 9);
    assert_non_null(key);
    memcpy(key, "\"nothing\"", 9);
    for (size_t i = 0; i < 2; i++) {
        uint8_t *slot = (uint8_t *)data + SESSION_SLOT_AT + i * SESSION_SLOT_STEP;
        digest_of(data + at, (size_t)bytes, slot + 32);
        digest_of(slot, 96, slot + 96);
    }
    write_file(path, data, n);
    mem_free(data);
}

/* A session of an earlier version has the fingerprint alone and is still loaded.  The next save adds the digest. */
static void test_old_session(void **state)
{
    (void)state;
    kvik_model *m = open_model(model);
    assert_int_equal(save(m, file), 0);
    make_old(file);
    assert_int_equal(load(model, file), 1);
    assert_int_equal(save(m, file), 0);
    kvik_model_close(m);
    assert_int_equal(load(model, file), 1);
    flip(weights, size_of(weights) - 5000);
    assert_int_equal(load(model, file), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "other weights of this model"));
    flip(weights, data_begins(weights)); /* in a window of the fingerprint */
    make_old(file);
    assert_int_equal(load(model, file), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "another model"));
}

/* --- Hashing ---------------------------------------------------------------------------------- */

static void hash_dir(const char *path, uint32_t threads, uint8_t out[DIGEST_BYTES])
{
    struct checkpoint *ck;
    if (checkpoint_open(path, &ck) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(weights_hash(ck, threads, out), 0);
    checkpoint_close(ck);
}

/* The digest covers the edges of all pieces, and does not depend on threads. */
static void test_pieces(void **state)
{
    (void)state;
    size_t n = 3 * (size_t)PIECE + 5;
    uint8_t *data = mem_alloc(n), want[DIGEST_BYTES], got[DIGEST_BYTES];
    const struct tensor t[] = {
        {.name = "a", .dtype = DT_U8, .n_dims = 1, .dim = {n}, .data = data, .bytes = n},
        {.name = "b", .dtype = DT_U8, .n_dims = 1, .dim = {0}, .data = data, .bytes = 0},
        {.name = "c", .dtype = DT_U8, .n_dims = 1, .dim = {PIECE}, .data = data, .bytes = PIECE}};
    assert_int_equal(safetensors_write(weights, t, countof(t)), 0);
    hash_dir(model, 1, want);
    for (uint32_t threads = 0; threads < 8; threads += 2) {
        hash_dir(model, threads, got);
        assert_memory_equal(got, want, sizeof want);
    }
    const size_t at[] = {0, PIECE - 1, PIECE, 2 * PIECE, n - 1, n, n + PIECE - 1};
    for (size_t i = 0; i < countof(at); i++) {
        flip(weights, data_begins(weights) + at[i]);
        hash_dir(model, 2, got);
        assert_memory_not_equal(got, want, sizeof want);
        flip(weights, data_begins(weights) + at[i]);
    }
    mem_free(data);
}

/* A model whose tensors lie in two files has the digest of the same model in one file. */
static void test_shards(void **state)
{
    (void)state;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    char path[PATH + 64], index[1 << 16] = "{\"weight_map\": {";
    struct safetensors *s;
    assert_int_equal(digest_once(model, want), 0);
    assert_int_equal(safetensors_open(weights, &s), 0);
    uint32_t n = safetensors_count(s);
    for (uint32_t half = 0; half < 2; half++) {
        struct tensor t[256];
        uint32_t k = 0;
        for (uint32_t i = half ? n / 2 : 0; i < (half ? n : n / 2); i++) {
            t[k++] = *safetensors_at(s, i);
            size_t at = strlen(index);
            snprintf(index + at, sizeof index - at, "%s\"%s\": \"part-%u.safetensors\"",
                     i ? ", " : "", t[k - 1].name, half);
        }
        snprintf(path, sizeof path, "%s/part-%u.safetensors", model, half);
        assert_int_equal(safetensors_write(path, t, k), 0);
    }
    safetensors_close(s);
    strcat(index, "}}");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", model);
    write_file(path, index, strlen(index));
    unlink(weights);
    tick();
    assert_int_equal(digest_once(model, got), 0);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(digest_once(model, got), 1); /* from an entry */
    snprintf(path, sizeof path, "%s/part-1.safetensors", model);
    flip(path, size_of(path) - 5000);
    assert_int_equal(digest_once(model, got), 0);
    assert_memory_not_equal(got, want, sizeof want);
}

/* --- Entries ---------------------------------------------------------------------------------- */

static void test_entry(void **state)
{
    (void)state;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    char entry[ENTRY];
    struct stat st;
    assert_int_equal(digest_once(model, want), 0);
    assert_int_equal(entries(entry), 1);
    assert_int_equal(stat(entry, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(digest_once(model, got), 1);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(verify_once(model), 1); /* --verify */
    flip(weights, size_of(weights) - 5000);  /* the entry is stale */
    tick();
    assert_int_equal(verify_once(model), 0);
    assert_int_equal(entries(NULL), 1); /* replaced */
    assert_int_equal(digest_once(model, got), 1);
    assert_memory_not_equal(got, want, sizeof want);
}

/* Gives the entry another digest of the weights, with a right checksum. */
static void forge(const char *entry)
{
    char *text, hex[2 * DIGEST_BYTES + 1];
    uint8_t check[DIGEST_BYTES];
    size_t n;
    assert_int_equal(file_read(entry, 4096, &text, &n), 0);
    char *line = strstr(text, "weights  "), *last = strstr(text, "check    ");
    line[9] = line[9] == '0' ? '1' : '0';
    digest_of(text, (size_t)(last - text), check);
    digest_hex(check, hex);
    memcpy(last + 9, hex, 2 * DIGEST_BYTES);
    int fd = open(entry, O_WRONLY);
    assert_int_equal(pwrite(fd, text, n, 0), n);
    close(fd);
    mem_free(text);
}

/* A change that leaves size and times as they were passes as long as the entry is believed.  --verify finds it. */
static void test_verify(void **state)
{
    (void)state;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    char entry[ENTRY];
    assert_int_equal(digest_once(model, want), 0);
    entries(entry);
    forge(entry);
    assert_int_equal(digest_once(model, got), 1);
    assert_memory_not_equal(got, want, sizeof want);
    kvik_model *m = open_model(model);
    assert_int_equal(kvik_model_verify(m, 1), KVIK_IO);
    assert_non_null(strstr(kvik_last_error(), "an earlier run has hashed"));
    assert_int_equal(entries(NULL), 0); /* no later run believes it */
    assert_int_equal(kvik_model_verify(m, 1), 0);
    assert_int_equal(kvik_model_verify(m, 1), 1);
    kvik_model_close(m);
    assert_int_equal(kvik_model_verify(NULL, 1), KVIK_ARG);
}

static void test_damaged_entry(void **state)
{
    (void)state;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    char entry[ENTRY];
    assert_int_equal(digest_once(model, want), 0);
    entries(entry);
    size_t n = size_of(entry);
    for (size_t i = 0; i < n; i += 9) {
        flip(entry, i);
        assert_int_equal(digest_once(model, got), 0); /* hashed, and the entry written anew */
        assert_memory_equal(got, want, sizeof want);
        assert_int_equal(digest_once(model, got), 1);
    }
    for (size_t i = 0; i < n; i += 40) {
        assert_int_equal(truncate(entry, (off_t)i), 0);
        assert_int_equal(digest_once(model, got), 0);
        assert_memory_equal(got, want, sizeof want);
    }
}

/* Entries that others could have written are not believed. */
static void test_entry_of_others(void **state)
{
    (void)state;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    char entry[ENTRY], real[PATH];
    assert_int_equal(digest_once(model, want), 0);
    entries(entry);
    forge(entry);
    assert_int_equal(digest_once(model, got), 1);
    for (int i = 0; i < 4; i++) {
        if (i == 0) assert_int_equal(chmod(entry, 0622), 0);
        if (i == 1) assert_int_equal(chmod(folder, 0777), 0);
        if (i == 2) {
            snprintf(real, sizeof real, "%s/elsewhere", dir);
            assert_int_equal(rename(entry, real), 0);
            assert_int_equal(symlink(real, entry), 0);
        }
        if (i == 3 && chown(entry, geteuid() + 1, (gid_t)-1) < 0) continue; /* needs root */
        kvik_model *m = open_model(model);
        struct weights_files f;
        weights_files(m->m->ck, &f);
        assert_false(weights_recall(&f, got));
        kvik_model_close(m);
        if (i == 0) assert_int_equal(chmod(entry, 0600), 0);
        if (i == 1) assert_int_equal(chmod(folder, 0700), 0);
        if (i == 2) assert_int_equal(rename(real, entry), 0);
    }
    assert_int_equal(chmod(entry, 0622), 0);
    assert_int_equal(digest_once(model, got), 0);
    assert_memory_equal(got, want, sizeof want);
}

/* Without a directory that can be written every run hashes, and no call fails. */
static void test_no_directory(void **state)
{
    (void)state;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    assert_int_equal(digest_once(model, want), 0);
    remove_tree(cache_dir);
    write_file(cache_dir, "", 0); /* a file, where the directory should be */
    for (int i = 0; i < 3; i++) {
        if (i == 1) setenv("XDG_CACHE_HOME", "not/absolute", 1);
        if (i == 1) setenv("HOME", "", 1);
        if (i == 2) { /* a directory that cannot be written, unless root asks */
            unlink(cache_dir);
            setenv("XDG_CACHE_HOME", cache_dir, 1);
            assert_int_equal(mkdir(cache_dir, 0500), 0);
            if (geteuid() == 0) break;
        }
        for (int k = 0; k < 2; k++) {
            assert_int_equal(digest_once(model, got), 0);
            assert_memory_equal(got, want, sizeof want);
            assert_int_equal(verify_once(model), 0);
        }
        kvik_model *m = open_model(model);
        assert_int_equal(save(m, file), 0);
        kvik_model_close(m);
        assert_int_equal(load(model, file), 1);
    }
    unlink(cache_dir);
}

/* A file that changed just before may change again within the tick of its clock, so nothing is remembered of it. */
static void test_new_file(void **state)
{
    (void)state;
    uint8_t got[DIGEST_BYTES];
    const struct cache_limits careful = {.margin = INT64_C(3600000000000), .least = 0, .most = 256};
    cache_limits_set(&careful);
    assert_int_equal(digest_once(model, got), 0);
    assert_int_equal(entries(NULL), 0);
    assert_int_equal(digest_once(model, got), 0);
    cache_limits_set(NULL); /* this model is too small for an entry */
    assert_int_equal(digest_once(model, got), 0);
    assert_int_equal(entries(NULL), 0);
}

static void test_bounded(void **state)
{
    (void)state;
    uint8_t got[DIGEST_BYTES];
    char to[PATH], left[2 * PATH], own[2 * PATH];
    const struct cache_limits few = {.margin = 0, .least = 0, .most = 3};
    cache_limits_set(&few);
    for (int i = 0; i < 6; i++) {
        snprintf(to, sizeof to, "%s/model-%d", dir, i);
        assert_int_equal(rename(model, to), 0);
        tick();
        assert_int_equal(digest_once(to, got), 0);
        assert_int_equal(digest_once(to, got), 1); /* the newest entry stays */
        assert_int_equal(entries(NULL), MIN(i + 1, 3));
        assert_int_equal(rename(to, model), 0);
        tick();
    }
    snprintf(left, sizeof left, "%s/.%032d.0", folder, 7); /* by a run that was killed */
    snprintf(own, sizeof own, "%s/mine.gguf", folder);     /* the user's */
    const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    write_file(left, "", 0);
    write_file(own, "", 0);
    assert_int_equal(utimensat(AT_FDCWD, left, old, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, own, old, 0), 0);
    flip(weights, size_of(weights) - 1);
    tick();
    assert_int_equal(digest_once(model, got), 0);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(access(own, F_OK), 0);
    assert_int_equal(unlink(own), 0);
}

/* No failure of a system call or allocation changes the digest. */
static void test_faults(void **state)
{
    (void)state;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    char entry[ENTRY];
    assert_int_equal(digest_once(model, want), 0);
    uint64_t calls = 1;
    for (uint64_t at = 0; at <= calls; at++) { /* the first round counts the calls */
        struct durable_fault f = {.at = at, .error = at % 2 ? ENOSPC : EIO, .half = at % 3 == 0};
        if (entries(entry)) unlink(entry);
        durable_fault_set(&f);
        int e = digest_once(model, got);
        if (!at) calls = durable_fault_calls();
        durable_fault_set(NULL);
        assert_int_equal(e, 0);
        assert_true(calls >= 4);
        assert_memory_equal(got, want, sizeof want);
        assert_true(digest_once(model, got) >= 0);
        assert_memory_equal(got, want, sizeof want);
    }
    for (int64_t k = 0;; k++) {
        kvik_model *m = open_model(model);
        if (entries(entry)) unlink(entry);
        mem_fail_at(k, true);
        int e = model_weights(m->m, 2, got);
        mem_fail_at(-1, false);
        kvik_model_close(m);
        if (e >= 0) assert_memory_equal(got, want, sizeof want);
        if (e >= 0 && entries(NULL)) break;
        assert_true(e == ERR_NOMEM || e == 0);
    }
}

/* --- Files that change while a model is open --------------------------------------------------- */

static void test_written_while_open(void **state)
{
    (void)state;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    kvik_model *m = open_model(model);
    assert_int_equal(save(m, file), 0);
    assert_int_equal(model_weights(m->m, 1, want), 1);
    size_t at = size_of(weights) - 5000;
    flip(weights, at);
    assert_int_equal(save(m, file), KVIK_IO);
    assert_non_null(strstr(kvik_last_error(), "written to while the model was open"));
    assert_int_equal(kvik_model_verify(m, 1), KVIK_IO);
    flip(weights, at); /* the old contents, at a new time */
    assert_int_equal(save(m, file), 0);
    assert_int_equal(model_weights(m->m, 1, got), 1);
    assert_memory_equal(got, want, sizeof want);
    kvik_model_close(m);
    assert_int_equal(load(model, file), 1);

    /* A change before the first digest: nobody knows which rows are of which weights. */
    remove_tree(cache_dir);
    m = open_model(model);
    tick();
    flip(weights, at);
    assert_int_equal(save(m, file), KVIK_IO);
    kvik_model_close(m);
    flip(weights, at);
    assert_int_equal(load(model, file), 1);
}

/* A file that is replaced stays mapped: the digest is that of the mapped weights. */
static void test_replaced_while_open(void **state)
{
    (void)state;
    uint8_t want[DIGEST_BYTES], got[DIGEST_BYTES];
    char other[PATH + 8];
    for (int known = 0; known < 2; known++) {
        kvik_model *m = open_model(model);
        if (known) assert_true(model_weights(m->m, 1, want) >= 0);
        snprintf(other, sizeof other, "%s.new", weights);
        copy_file(weights, other);
        flip(other, size_of(other) - 5000);
        assert_int_equal(rename(other, weights), 0);
        if (!known) hash_dir(MODEL, 1, want);
        assert_true(model_weights(m->m, 1, got) >= 0);
        assert_memory_equal(got, want, sizeof want);
        assert_int_equal(save(m, file), 0);
        kvik_model_close(m);
        assert_int_equal(load(model, file), KVIK_ARG);
        assert_int_equal(digest_once(model, got) >= 0, 1);
        assert_memory_not_equal(got, want, sizeof want);
        flip(weights, size_of(weights) - 5000);
        tick();
        assert_int_equal(load(model, file), 1);
    }
}

/* A file that has become shorter is an error of each call that would read it, and changes nothing.  class: mmap-sigbus */
static void test_shrunk_while_open(void **state)
{
    (void)state;
    kvik_model *m = open_model(model);
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = "sliding_window",
                           .cache_config = "{\"sliding_window\": 9}",
                           .max_cache_len = 2 * N,
                           .max_sequences = 4,
                           .threads = 1};
    kvik_cache *c = NULL;
    kvik_seq s, fork;
    int32_t ids[N];
    float *row = mem_array(kvik_model_hidden(m), sizeof *row);
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    for (int i = 0; i < N; i++)
        ids[i] = 5 + i;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = N};
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    assert_int_equal(kvik_cache_fork(c, s, &fork), 0);
    assert_int_equal(kvik_cache_crop(c, fork, N / 2), 0); /* rows of the window are recomputed */
    assert_int_equal(kvik_model_embed(m, ids, 1, row), 0);
    assert_int_equal(truncate(weights, 10), 0);
    assert_int_equal(kvik_model_embed(m, ids, 1, row), KVIK_IO);
    assert_int_equal(kvik_cache_crop(c, s, N / 2), KVIK_IO);
    assert_non_null(strstr(kvik_last_error(), "shrank"));
    assert_int_equal(kvik_cache_length(c, s), N);
    span.n = 1;
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), KVIK_IO);
    assert_int_equal(kvik_cache_crop(c, s, N - 1), 0); /* needs no weights */
    mem_free(row);
    kvik_cache_close(c);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_local_changes, setup),
        cmocka_unit_test_setup(test_legacy, setup),
        cmocka_unit_test_setup(test_old_session, setup),
        cmocka_unit_test_setup(test_pieces, setup),
        cmocka_unit_test_setup(test_shards, setup),
        cmocka_unit_test_setup(test_entry, setup),
        cmocka_unit_test_setup(test_verify, setup),
        cmocka_unit_test_setup(test_damaged_entry, setup),
        cmocka_unit_test_setup(test_entry_of_others, setup),
        cmocka_unit_test_setup(test_no_directory, setup),
        cmocka_unit_test_setup(test_new_file, setup),
        cmocka_unit_test_setup(test_bounded, setup),
        cmocka_unit_test_setup(test_faults, setup),
        cmocka_unit_test_setup(test_written_while_open, setup),
        cmocka_unit_test_setup(test_replaced_while_open, setup),
        cmocka_unit_test_setup(test_shrunk_while_open, setup),
    };
    if (!mkdtemp(dir)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_tree(dir);
    return failed;
}
