/* test_power_cuts.c - the power fails at any call of a save, of a session file or into a directory of prompts.
 *
 * The shim records every change of a file and of the directory. The test then builds the directory as a disk may hold it
 * after a power cut before the n-th change, for every n. A change before a sync of its file (or of the directory, for
 * names) is on the disk. Of later changes any may be there, in any order: none, all, or a random choice of them, in which
 * writes are torn at 512 bytes. Each directory must load as before the save or as after it, bit for bit, and take the
 * save again. KVIK_TEST_LONG=1 tries more choices. */
#include "../shim/shim.h"
#include "base/base.h"
#include "kvik.h"
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { OLD = 24, NEW = 40, COMMON = 48, TAIL = 12, CONTEXT = 128, VOCAB = 384, SECTOR = 512 };
enum { MOST_FILES = 64, MOST_NAMES = 32 };
static const char golden[] = "tests/golden/models/llama-mha";
static char live[] = "/tmp/kvik-power-XXXXXX", cut[] = "/tmp/kvik-cut-XXXXXX";
static kvik_model *m;
static kvik_cache *c;
static int32_t ids[4 * CONTEXT];
static uint64_t seed = 1;

static uint32_t roll(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

/* --- A disk --------------------------------------------------------------------------------- */

struct content {
    char *data;
    size_t n;
};
struct entry {
    char name[64];
    int file; /* index in `file` */
};
struct disk {
    struct content file[MOST_FILES];
    struct entry entry[MOST_NAMES];
    int n_files, n_entries;
};
static struct disk before; /* when the recording began */
static uint64_t inode[MOST_FILES];

/* The record, with files by index: numbers of inodes are used again. */
static struct change {
    const struct shim_op *op;
    int file;
} change[4096];
static size_t n_changes;

static void put(struct content *f, uint64_t at, const char *data, size_t n)
{
    if (at + n > f->n) {
        f->data = realloc(f->data, at + n);
        assert_non_null(f->data);
        memset(f->data + f->n, 0, at + n - f->n);
        f->n = at + n;
    }
    memcpy(f->data + at, data, n);
}

static void resize(struct content *f, uint64_t size)
{
    if (size > f->n)
        put(f, size - 1, "", 1);
    else
        f->n = size;
}

static struct entry *find_name(struct disk *d, const char *name)
{
    for (int i = 0; i < d->n_entries; i++)
        if (strcmp(d->entry[i].name, name) == 0) return &d->entry[i];
    return NULL;
}

static void drop_name(struct disk *d, const char *name)
{
    struct entry *e = find_name(d, name);
    if (e) *e = d->entry[--d->n_entries];
}

static void set_name(struct disk *d, const char *name, int file)
{
    drop_name(d, name);
    assert_true(d->n_entries < MOST_NAMES);
    struct entry *e = &d->entry[d->n_entries++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->file = file;
}

static void free_disk(struct disk *d)
{
    for (int i = 0; i < d->n_files; i++)
        free(d->file[i].data);
    *d = (struct disk){0};
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Reads the directory. */
static void snapshot(struct disk *d)
{
    struct dirent *e;
    free_disk(d);
    DIR *list = opendir(live);
    assert_non_null(list);
    while ((e = readdir(list))) {
        char path[400];
        struct stat st;
        if (is_dots(e->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", live, e->d_name);
        assert_int_equal(stat(path, &st), 0);
        inode[d->n_files] = st.st_ino;
        struct content *f = &d->file[d->n_files];
        f->n = (size_t)st.st_size;
        f->data = malloc(f->n + 1);
        int fd = open(path, O_RDONLY);
        assert_int_equal(read(fd, f->data, f->n), st.st_size);
        close(fd);
        set_name(d, e->d_name, d->n_files++);
    }
    closedir(list);
}

static int file_of(const struct shim_op *op)
{
    for (int i = before.n_files; i-- > 0;)
        if (inode[i] == op->file && op->kind != SHIM_OPEN) return i;
    assert_true(before.n_files < MOST_FILES);
    inode[before.n_files] = op->file; /* a new file */
    return before.n_files++;
}

static void begin_record(void)
{
    snapshot(&before);
    shim_record(live);
}

static void end_record(void)
{
    const struct shim_op *op = shim_ops(&n_changes);
    assert_true(n_changes > 3 && n_changes < countof(change));
    for (size_t i = 0; i < n_changes; i++) {
        bool named = op[i].kind == SHIM_UNLINK || op[i].dir;
        change[i] = (struct change){&op[i], named ? -1 : file_of(&op[i])};
    }
}

/* How many of the changes that no sync has made durable are on the disk. */
enum loss { NOTHING, EVERYTHING, SOME, TORN, LOSSES };

static bool of_names(const struct shim_op *op)
{
    return op->kind == SHIM_OPEN || op->kind == SHIM_RENAME || op->kind == SHIM_UNLINK;
}

/* True if a sync before change `end` has made change i durable. */
static bool durable(size_t i, size_t end)
{
    for (size_t k = i + 1; k < end; k++) {
        const struct shim_op *s = change[k].op;
        if (s->kind != SHIM_SYNC) continue;
        if (of_names(change[i].op) ? s->dir : !s->dir && change[k].file == change[i].file)
            return true;
    }
    return false;
}

static void apply(struct disk *d, const struct change *x, bool torn)
{
    const struct shim_op *op = x->op;
    switch (op->kind) {
    case SHIM_OPEN:
        set_name(d, op->name, x->file);
        break;
    case SHIM_UNLINK:
        drop_name(d, op->name);
        break;
    case SHIM_RENAME:
        if (op->name[0] && !op->link) drop_name(d, op->name);
        set_name(d, op->to, x->file);
        break;
    case SHIM_TRUNCATE:
        resize(&d->file[x->file], op->at);
        break;
    case SHIM_WRITE:
        for (uint64_t at = op->at, end = op->at + op->n; at < end;) {
            uint64_t to = MIN((at / SECTOR + 1) * SECTOR, end);
            if (!torn || roll() & 1)
                put(&d->file[x->file], at, op->data + (at - op->at), (size_t)(to - at));
            at = to;
        }
        break;
    default:
        break;
    }
}

static void empty(const char *dir)
{
    struct dirent *e;
    DIR *list = opendir(dir);
    while (list && (e = readdir(list))) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (!is_dots(e->d_name)) unlink(path);
    }
    if (list) closedir(list);
}

/* Builds the directory `cut` as a disk may hold it after a power cut before change `end`. */
static void cut_power(size_t end, enum loss loss)
{
    struct disk d = {.n_files = before.n_files, .n_entries = before.n_entries};
    memcpy(d.entry, before.entry, sizeof d.entry);
    for (int i = 0; i < d.n_files; i++)
        if (before.file[i].n) put(&d.file[i], 0, before.file[i].data, before.file[i].n);
    for (size_t i = 0; i < end; i++) {
        bool sure = durable(i, end);
        if (sure || loss == EVERYTHING || (loss >= SOME && roll() % 3))
            apply(&d, &change[i], !sure && loss == TORN);
    }
    empty(cut);
    for (int i = 0; i < d.n_entries; i++) {
        char path[400];
        const struct content *f = &d.file[d.entry[i].file];
        snprintf(path, sizeof path, "%s/%s", cut, d.entry[i].name);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_true(fd >= 0 && write(fd, f->data, f->n) == (ssize_t)f->n);
        close(fd);
    }
    free_disk(&d);
}

/* Calls check for every cut of the record. Returns their number. */
static int every_cut(void (*check)(size_t end, bool late))
{
    int n = 0;
    /* The short forms look for memory errors and races: they take every seventh cut or fewer, and the last. */
    size_t step = 2 * test_share() - 1;
    int choices = getenv("KVIK_TEST_LONG") ? 40 : 2;
    end_record();
    for (size_t end = n_changes % step; end <= n_changes; end += step)
        for (int k = 0; k < 2 + 2 * choices; k++, n++) {
            cut_power(end, k < 2 ? (enum loss)k : k % 2 ? TORN : SOME);
            check(end, end == n_changes);
        }
    shim_record(NULL);
    free_disk(&before);
    return n;
}

/* --- Computing ------------------------------------------------------------------------------ */

static void forward(kvik_seq s, const int32_t *t, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = t, .n = n};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

static kvik_seq compute(const int32_t *t, uint32_t n)
{
    kvik_seq s;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    forward(s, t, n, NULL);
    return s;
}

/* True if a loaded sequence of n tokens gives the logits of one that is computed. Drops it. */
static bool same_bits(kvik_seq s, const int32_t *t, uint32_t n)
{
    static float want[CONTEXT][VOCAB], got[VOCAB];
    static const int32_t *known[CONTEXT];
    if (known[n] != t) {
        kvik_seq w = compute(t, n);
        forward(w, ids, 1, want[n]);
        kvik_cache_drop(c, w);
        known[n] = t;
    }
    forward(s, ids, 1, got);
    kvik_cache_drop(c, s);
    return memcmp(want[n], got, sizeof got) == 0;
}

/* --- Sessions ------------------------------------------------------------------------------- */

static bool existed; /* before the save */

static int save_in(const char *dir, uint32_t n, const char *note)
{
    char path[64];
    snprintf(path, sizeof path, "%s/s.kvik", dir);
    kvik_seq s = compute(ids, n);
    int e = kvik_cache_save(c, path, &s, 1, note);
    kvik_cache_drop(c, s);
    return e;
}

/* Returns the tokens of the session after the cut, or an error. */
static int64_t load_cut(void)
{
    char path[64], *note = NULL;
    kvik_seq s = 0;
    snprintf(path, sizeof path, "%s/s.kvik", cut);
    int e = kvik_cache_load(c, path, 1, &s, &note);
    if (e < 0) return e;
    int64_t n = kvik_cache_length(c, s);
    assert_string_equal(note, n == OLD ? "old" : "new");
    kvik_free(note);
    assert_true(same_bits(s, ids, (uint32_t)n));
    return n;
}

static void check_session(size_t end, bool late)
{
    int64_t n = load_cut();
    bool old = n == OLD || (!existed && n == KVIK_NOTFOUND);
    if (n != NEW && (late || !old))
        fail_msg("cut before change %zu of %zu: %lld, %s", end, n_changes, (long long)n,
                 kvik_last_error());
    if (roll() % 4) return;
    if (save_in(cut, NEW, "new") < 0) fail_msg("save after a cut: %s", kvik_last_error());
    assert_int_equal(load_cut(), NEW);
}

/* True if the next save writes the file anew, because most of it is superseded. */
static bool mostly_dead(const char *path)
{
    char *json;
    long long all = 0, part = 0;
    assert_int_equal(kvik_session_describe(path, &json), 0);
    assert_int_equal(sscanf(strstr(json, "\"bytes\":"), "\"bytes\":%lld", &all), 1);
    assert_int_equal(sscanf(strstr(json, "\"live_bytes\":"), "\"live_bytes\":%lld", &part), 1);
    kvik_free(json);
    return part < all / 2;
}

static void test_sessions(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "%s/s.kvik", live);
    for (int way = 0; way < 4;
         way++) { /* no file; append; after an interrupted save; written anew */
        empty(live);
        existed = way > 0;
        if (existed) assert_int_equal(save_in(live, OLD, "old"), 0);
        if (way == 2) {
            FILE *f = fopen(path, "ab");
            fputs("half of a block", f);
            fclose(f);
        }
        for (int i = 1; way == 3 && !mostly_dead(path); i++) {
            kvik_seq s = compute(ids + 8 * i, OLD);
            assert_int_equal(kvik_cache_save(c, path, &s, 1, "other"), 0);
            kvik_cache_drop(c, s);
            assert_int_equal(save_in(live, OLD, "old"), 0);
        }
        begin_record();
        int e = save_in(live, NEW, "new");
        if (e < 0) fail_msg("%s", kvik_last_error());
        int n = every_cut(check_session);
        print_message("sessions, way %d: %zu changes, %d cuts\n", way, n_changes, n);
    }
    empty(live);
    empty(cut);
}

/* --- Directories of prompts ----------------------------------------------------------------- */

static int32_t prompt[4][CONTEXT];

static int keep(const char *dir, int which, uint32_t n, uint64_t limit)
{
    kvik_seq s = compute(prompt[which], n);
    int e = kvik_prefix_save(c, dir, s, limit);
    kvik_cache_drop(c, s);
    return e;
}

/* Returns how many tokens of a prompt the directory has after a cut, whose rows must be right. */
static int64_t have(int which, uint32_t n)
{
    kvik_seq s = 0;
    int64_t k = kvik_prefix_load(c, cut, prompt[which], n, &s);
    if (k < 0) fail_msg("%s", kvik_last_error());
    if (k > 0 && !same_bits(s, prompt[which], (uint32_t)k))
        fail_msg("prompt %d: rows of other tokens", which);
    return k;
}

static bool evicts;
static uint32_t added; /* tokens of the prompt that the save adds */

static void check_prefixes(size_t end, bool late)
{
    int64_t one = have(1, COMMON + TAIL), two = have(2, COMMON + TAIL), new = have(3, added);
    if (!evicts && (one < COMMON + TAIL || two < COMMON + TAIL))
        fail_msg("cut before change %zu of %zu: %lld and %lld tokens are left", end, n_changes,
                 (long long)one, (long long)two);
    if (late && !evicts && new < added) fail_msg("a save that returned is lost");
    if (roll() % 4) return;
    if (keep(cut, 3, added, 0) < 0) fail_msg("save after a cut: %s", kvik_last_error());
    assert_int_equal(have(3, added), added);
}

static void test_prefixes(void **state)
{
    (void)state;
    for (int way = 0; way < 3;
         way++) { /* a branch; branches until the file is written anew; eviction */
        empty(live);
        evicts = way == 2;
        added = COMMON + TAIL;
        assert_int_equal(keep(live, 1, COMMON + TAIL, 0), 0);
        assert_int_equal(keep(live, 2, COMMON + TAIL, 0), 0);
        for (; way == 1 && added < COMMON + TAIL + 24; added += 3)
            assert_int_equal(keep(live, 3, added, 0), 0);
        begin_record();
        for (uint32_t more = 0; more < (way == 1 ? 16u : 1u); more++)
            if (keep(live, 3, added += way == 1, evicts ? 1 : 0) < 0)
                fail_msg("%s", kvik_last_error());
        int n = every_cut(check_prefixes);
        print_message("prompts, way %d: %zu changes, %d cuts\n", way, n_changes, n);
    }
    empty(live);
    empty(cut);
}

static int setup(void **state)
{
    (void)state;
    kvik_cache_config k = {.size = sizeof k,
                           .max_cache_len = CONTEXT,
                           .max_sequences = 4,
                           .no_prefix_cache = true,
                           .threads = 1};
    assert_non_null(mkdtemp(live));
    assert_non_null(mkdtemp(cut));
    for (int32_t i = 0; i < (int32_t)countof(ids); i++)
        ids[i] = 3 + i * 37 % (VOCAB - 5);
    for (int which = 1; which < 4; which++)
        for (int32_t i = 0; i < CONTEXT; i++)
            prompt[which][i] = i < COMMON ? ids[i] : 3 + (which * 131 + i * 17) % (VOCAB - 5);
    return kvik_model_open(golden, &m) < 0 || kvik_cache_open(m, &k, &c) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    kvik_cache_close(c);
    kvik_model_close(m);
    rmdir(live);
    return rmdir(cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sessions),
                                       cmocka_unit_test(test_prefixes)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
