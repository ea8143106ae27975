/* test_shared.c - prefixes that caches share through a store: a cache that reads what another has computed goes on with the bits
 * of computing, in every strategy; other salts and other tokens find nothing; damaged values are removed, and never used.
 *
 * The store is a directory here; tests/serve/store.py has a Redis. */
#include "base/file.h"
#include "copied_model.h"
#include "kvik_shared.h"
#include "session/shared_prefix.h"
#include "shared/lookup.h"
#include "testing.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MODELS "tests/golden/models/"
enum { PROMPT = 300, WHOLE = 256, MOST = 400 };

static const struct line {
    const char *model, *name, *config;
} rows[] = {{"llama-mha", NULL, NULL},
            {"llama-bf16-long", "static", NULL},
            {"llama-gqa-l3", "offloaded", NULL},
            {"llama-d64", "quantized", "{\"backend\": \"kvik\", \"nbits\": 4}"},
            {"llama-d64", "quantized", "{\"backend\": \"kvik\", \"nbits\": 2}"},
            {"llama-d128", "quantized", "{\"backend\": \"kvik\", \"nbits\": 8}"},
            {"phi3", NULL, NULL},
            {"mamba", NULL, NULL},
            {"mamba2", NULL, NULL},
            {"jamba", NULL, NULL},
            {"qwen3-next", NULL, NULL},
            {"mistral", NULL, NULL},
            {"gemma3", NULL, NULL},
            {"gpt-oss", NULL, NULL},
            {"llama4", NULL, NULL},
            {"llama-gqa-l3", "sink", "{\"window_length\": 40, \"num_sink_tokens\": 4}"},
            {"mistral", "quantized", "{\"backend\": \"kvik\", \"nbits\": 4}"}};

static int32_t ids[MOST];
static float want[1 << 16], got[1 << 16];
static char dir[] = "/tmp/kvik-shared-XXXXXX", store[128], address[160];

static int64_t need(int64_t e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
    return e;
}

static kvik_cache *cache_of(kvik_model *m, const struct line *r)
{
    kvik_cache *c;
    const kvik_cache_config k = {.size = sizeof k,
                                 .cache_implementation = r->name,
                                 .cache_config = r->config,
                                 .max_cache_len = 512,
                                 .max_sequences = 3,
                                 .threads = 1};
    need(kvik_cache_open(m, &k, &c));
    return c;
}

static kvik_model *model_of(const struct line *r)
{
    char path[128];
    kvik_model *m;
    snprintf(path, sizeof path, MODELS "%s", r->model);
    need(kvik_model_open(path, &m));
    for (uint32_t i = 0, x = 7; i < MOST; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(4 + (x >> 8) % (kvik_model_vocab(m) - 4));
    }
    return m;
}

static void feed(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t to, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + from, .n = to - from};
    need(kvik_forward(c, &span, 1, false, logits));
}

static kvik_shared *open_store(kvik_cache *c)
{
    kvik_shared *s;
    need(kvik_shared_open(c, address, &s));
    return s;
}

/* Computes the prompt and puts it into the store; the logits of its last token are in `want`. */
static void compute(kvik_model *m, const struct line *r)
{
    kvik_cache *c = cache_of(m, r);
    kvik_shared *s = open_store(c);
    kvik_seq seq;
    need(kvik_cache_new(c, &seq));
    feed(c, seq, 0, PROMPT, want);
    while (need(kvik_shared_put(s, seq)) > 0)
        assert_int_equal(kvik_shared_flush(s, 60000), 1);
    assert_int_equal(kvik_shared_flush(s, 60000), 1);
    kvik_shared_state st = {.size = sizeof st};
    need(kvik_shared_look(s, &st));
    assert_true(st.writes > 0 && !st.waiting && !st.failures);
    kvik_shared_close(s);
    kvik_cache_close(c);
}

/* Reads the first n tokens; returns how many came, and their sequence. */
static int64_t fetch(kvik_shared *s, const char *salt, uint32_t n, kvik_seq *seq)
{
    kvik_fetch *f;
    kvik_fetched st = {.size = sizeof st};
    need(kvik_shared_seek(s, ids, n, salt, 0, &f));
    do {
        need(kvik_fetch_look(f, &st));
        usleep(500);
    } while (!st.over);
    int64_t n_got = need(kvik_fetch_take(f, seq));
    assert_true((uint64_t)n_got <= st.tokens);
    kvik_fetch_free(f);
    return n_got;
}

static void remove_all(void)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", store);
    assert_int_equal(system(command), 0);
}

static void test_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        const struct line *r = &rows[i];
        kvik_model *m = model_of(r);
        size_t bytes = kvik_model_vocab(m) * sizeof *want;
        remove_all();
        compute(m, r);
        kvik_cache *c = cache_of(m, r);
        kvik_shared *s = open_store(c);
        kvik_seq seq;
        if (fetch(s, NULL, PROMPT, &seq) != WHOLE)
            fail_msg("%s %s: the prompt did not come", r->model, r->name ? r->name : "");
        assert_int_equal(kvik_cache_length(c, seq), WHOLE);
        feed(c, seq, WHOLE, PROMPT, got);
        if (memcmp(got, want, bytes) != 0)
            fail_msg("%s %s: other bits", r->model, r->name ? r->name : "");
        need(kvik_cache_drop(c, seq));
        /* another text finds what it has in common, where all rows are kept */
        int32_t was = ids[200];
        ids[200] ^= 1;
        int64_t n = fetch(s, NULL, PROMPT, &seq);
        assert_true(n == 0 || n == 128);
        if (n) need(kvik_cache_drop(c, seq));
        ids[200] = was;
        assert_int_equal(fetch(s, "ann", PROMPT, &seq), 0);
        kvik_shared_close(s);
        kvik_cache_close(c);
        /* another strategy has other rows */
        const struct line other = {r->model, "quantized", "{\"backend\": \"kvik\", \"nbits\": 3}"};
        if (i < 3) {
            c = cache_of(m, &other);
            s = open_store(c);
            assert_int_equal(fetch(s, NULL, PROMPT, &seq), 0);
            kvik_shared_close(s);
            kvik_cache_close(c);
        }
        kvik_model_close(m);
    }
}

/* Rows that were put with a salt come to the same salt alone. */
static void test_salts(void **state)
{
    (void)state;
    kvik_model *m = model_of(&rows[0]);
    kvik_cache *c = cache_of(m, &rows[0]);
    kvik_shared *s;
    kvik_generation g;
    kvik_result *res;
    kvik_seq seq;
    remove_all();
    s = open_store(c);
    need(kvik_generation_init(&g, m));
    g.max_new_tokens = 1;
    g.return_dict_in_generate = true;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = PROMPT, .cache_salt = "ann"};
    need(kvik_generate(c, &g, &p, 1, NULL, &res));
    while (need(kvik_shared_put(s, res->row[0]->seq)) > 0)
        need(kvik_shared_flush(s, 60000));
    assert_int_equal(kvik_shared_flush(s, 60000), 1);
    kvik_result_free(res);
    kvik_generation_done(&g);
    kvik_shared_close(s);
    kvik_cache_close(c);
    c = cache_of(m, &rows[0]);
    s = open_store(c);
    assert_int_equal(fetch(s, NULL, PROMPT, &seq), 0);
    assert_int_equal(fetch(s, "bob", PROMPT, &seq), 0);
    assert_int_equal(fetch(s, "ann", PROMPT, &seq), WHOLE);
    kvik_shared_close(s);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* Returns how many tokens of the prompt come to a cache of this model that computes in this way. */
static int64_t comes_to(const char *path, const char *compute)
{
    const kvik_cache_config k = {
        .size = sizeof k, .max_cache_len = 512, .threads = 1, .compute = compute};
    kvik_model *m;
    kvik_cache *c;
    kvik_seq seq;
    need(kvik_model_open(path, &m));
    need(kvik_cache_open(m, &k, &c));
    kvik_shared *s = open_store(c);
    int64_t n = fetch(s, NULL, PROMPT, &seq);
    kvik_shared_close(s);
    kvik_cache_close(c);
    kvik_model_close(m);
    return n;
}

/* Rows belong to every byte of the weights, also to those that no fingerprint looks at, and to the way of computing. */
static void test_other_models(void **state)
{
    (void)state;
    char path[200];
    kvik_model *m = model_of(&rows[0]);
    snprintf(path, sizeof path, "%s/model", dir);
    remove_all();
    compute(m, &rows[0]);
    kvik_model_close(m);
    copy_model(MODELS "llama-mha", path, 0);
    assert_int_equal(comes_to(path, NULL), WHOLE);
    assert_int_equal(comes_to(path, "exact"), WHOLE);
    assert_int_equal(comes_to(path, "fast"), 0);
    copy_model(MODELS "llama-mha", path, 3000);
    assert_int_equal(comes_to(path, NULL), 0);
}

/* Calls fn for each file of the store. */
static uint32_t each_file(void (*fn)(const char *path, void *ctx), void *ctx)
{
    DIR *d = opendir(store);
    struct dirent *e;
    uint32_t n = 0;
    char path[512];
    while (d && (e = readdir(d)))
        if (*e->d_name != '.') {
            snprintf(path, sizeof path, "%s/%s", store, e->d_name);
            if (fn) fn(path, ctx);
            n++;
        }
    if (d) closedir(d);
    return n;
}

struct harm {
    uint32_t how, x;
};
static void harm_file(const char *path, void *ctx)
{
    struct harm *h = ctx;
    unsigned char b;
    int fd = open(path, O_RDWR);
    off_t n = lseek(fd, 0, SEEK_END);
    h->x = h->x * 1664525u + 1013904223u;
    off_t at = (off_t)((h->x >> 8) % (uint32_t)n);
    if (h->how == 0) at = at % 64; /* the head */
    if (h->how == 3) at = n - 1 - at % 300;
    if (h->how == 2) {
        assert_int_equal(ftruncate(fd, at), 0);
    } else {
        assert_int_equal(pread(fd, &b, 1, at), 1);
        b ^= (unsigned char)(1u << (h->x >> 29));
        assert_int_equal(pwrite(fd, &b, 1, at), 1);
    }
    close(fd);
}

/* Every value is harmed: nothing comes, and the values are gone, so that others can take their place. */
static void test_damage(void **state)
{
    (void)state;
    static const size_t of[] = {0, 3, 9, 12};
    for (size_t i = 0; i < countof(of); i++)
        for (uint32_t how = 0; how < 4; how++) {
            const struct line *r = &rows[of[i]];
            struct harm h = {how, 77 + how};
            kvik_model *m = model_of(r);
            remove_all();
            compute(m, r);
            uint32_t files = each_file(harm_file, &h);
            assert_true(files > 0);
            kvik_cache *c = cache_of(m, r);
            kvik_shared *s = open_store(c);
            kvik_seq seq;
            kvik_shared_state st = {.size = sizeof st};
            assert_int_equal(fetch(s, NULL, PROMPT, &seq), 0);
            need(kvik_shared_look(s, &st));
            assert_true(st.damaged > 0 && !st.failures);
            assert_true(each_file(NULL, NULL) < files);
            kvik_shared_close(s);
            kvik_cache_close(c);
            kvik_model_close(m);
        }
}

/* A value under another key, as a store that mixes them up would give it. */
static void move_file(const char *path, void *ctx)
{
    char *first = ctx, beside[600];
    if (!*first) {
        snprintf(first, 512, "%s", path);
        return;
    }
    snprintf(beside, sizeof beside, "%s.x", path);
    assert_int_equal(rename(path, beside), 0);
    assert_int_equal(rename(first, path), 0);
    assert_int_equal(rename(beside, first), 0);
    *first = 0;
}

static void test_mixed_up(void **state)
{
    (void)state;
    char first[512] = "";
    kvik_model *m = model_of(&rows[0]);
    kvik_seq seq;
    remove_all();
    compute(m, &rows[0]);
    assert_int_equal(each_file(move_file, first), 2);
    kvik_cache *c = cache_of(m, &rows[0]);
    kvik_shared *s = open_store(c);
    assert_int_equal(fetch(s, NULL, PROMPT, &seq), 0);
    kvik_shared_close(s);
    kvik_cache_close(c);
    /* the same rows of another text */
    const struct kv_salt none = {0};
    uint8_t root[DIGEST_BYTES], key[2][DIGEST_BYTES];
    char hex[2][KEEPER_HEX], path[2][200];
    remove_all();
    for (int i = 0; i < 2; i++) {
        ids[3] ^= 1;
        compute(m, &rows[0]);
    }
    c = cache_of(m, &rows[0]);
    s = open_store(c);
    shared_root(s, &none, root);
    for (int i = 0; i < 2; i++) {
        ids[3] ^= 1;
        block_key(root, ids, s->tokens, key[i]);
        digest_hex(key[i], hex[i]);
        snprintf(path[i], sizeof path[i], "%s/%s.rows", store, hex[i]);
    }
    assert_int_equal(rename(path[0], path[1]), 0);
    assert_int_equal(fetch(s, NULL, PROMPT, &seq), 0);
    assert_int_equal(access(path[1], F_OK), -1);
    kvik_shared_close(s);
    kvik_cache_close(c);
    kvik_model_close(m);
}

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *port, *path, *user, *password;
        uint32_t database;
        bool tls;
    } good[] = {{"redis://h", "h", "6379", NULL, NULL, NULL, 0, false},
                {"redis://h/", "h", "6379", NULL, NULL, NULL, 0, false},
                {"rediss://u:p@h:1/2", "h", "1", NULL, "u", "p", 2, true},
                {"redis://:a%40b%2f@[::1]:99/3?ttl=60", "::1", "99", NULL, NULL, "a@b/", 3, false},
                {"unix:///run/r.sock?db=4", NULL, NULL, "/run/r.sock", NULL, NULL, 4, false},
                {"unix://:pw@/run/r.sock", NULL, NULL, "/run/r.sock", NULL, "pw", 0, false},
                {"file:///a%20b", NULL, NULL, "/a b", NULL, NULL, 0, false},
                {"file:///d?size=8G", NULL, NULL, "/d", NULL, NULL, 0, false}};
    static const char *const bad[] = {"",
                                      "h",
                                      "redis:/h",
                                      "redis://",
                                      "redis://h:",
                                      "redis://h:x",
                                      "redis://h:99999",
                                      "redis://h/x",
                                      "redis://h?x=1",
                                      "redis://h?ttl",
                                      "redis://h?ttl=",
                                      "redis://%zz@h",
                                      "redis://%0@h",
                                      "redis://a%00@h",
                                      "file://a",
                                      "unix://",
                                      "http://h",
                                      "redis://[::1",
                                      "redis://h?password_file=/none",
                                      "redis://h?ssl_ca_certs=/secret",
                                      "unix:///s?ssl_keyfile=/secret",
                                      "file:///d?ttl=60",
                                      "file:///d?size=",
                                      "file:///d?size=G",
                                      "file:///d?size=1K",
                                      "file:///d?size=8GG",
                                      "file:///d?size=2000000T",
                                      "redis://h?size=8G",
                                      "redis://:secret@h:secret",
                                      "redis://secret?secret"};
    struct address a;
    unsetenv("REDISCLI_AUTH");
    for (size_t i = 0; i < countof(good); i++) {
        need(address_read(good[i].text, &a));
        const char *const have[] = {a.host, a.port, a.path, a.user, a.password},
                          *const wanted[] = {good[i].host, good[i].port, good[i].path, good[i].user,
                                             good[i].password};
        for (size_t k = 0; k < countof(have); k++)
            if (wanted[k] ? !have[k] || strcmp(have[k], wanted[k]) != 0 : have[k] != NULL)
                fail_msg("%s: part %zu is %s", good[i].text, k, have[k] ? have[k] : "NULL");
        assert_true(a.database == good[i].database && a.tls == good[i].tls);
        if (a.password) assert_null(strstr(a.shown, a.password));
        address_done(&a);
    }
    for (size_t i = 0; i < countof(bad); i++) {
        if (address_read(bad[i], &a) >= 0) fail_msg("%s is an address", bad[i]);
        assert_null(strstr(kvik_last_error(), "secret"));
    }
    need(address_read("file:///d?size=8G", &a));
    assert_true(a.limit == (uint64_t)8 << 30);
    address_done(&a);
    setenv("REDISCLI_AUTH", "of the environment", 1);
    need(address_read("redis://h", &a));
    assert_string_equal(a.password, "of the environment");
    address_done(&a);
    unsetenv("REDISCLI_AUTH");
}

/* What cannot be shared is refused with a sentence. */
static void test_refused(void **state)
{
    (void)state;
    static const struct line quanto = {"llama-d64", "quantized", "{\"backend\": \"quanto\"}"};
    kvik_model *m = model_of(&quanto);
    kvik_cache *c = cache_of(m, &quanto);
    kvik_shared *s;
    assert_int_equal(kvik_shared_open(c, address, &s), KVIK_UNSUPPORTED);
    assert_non_null(strstr(kvik_last_error(), "turns"));
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* Keys of one text that have one place in the table of what the store has: putting it ends all the same. */
static void test_one_place(void **state)
{
    (void)state;
    const struct line *r = &rows[12];
    const struct kv_salt none = {0};
    uint8_t root[DIGEST_BYTES], row[2][DIGEST_BYTES], end[DIGEST_BYTES];
    uint64_t a, b;
    kvik_seq seq;
    remove_all();
    kvik_model *m = model_of(r);
    kvik_cache *c = cache_of(m, r);
    kvik_shared *s = open_store(c);
    shared_root(s, &none, root);
    block_key(root, ids, s->tokens, row[0]);
    memcpy(&a, row[0], sizeof a);
    uint32_t vocab = kvik_model_vocab(m), x = 0;
    do {
        uint32_t v = x++;
        for (uint32_t i = s->tokens; i < s->tokens + 4; i++, v /= vocab)
            ids[i] = (int32_t)(v % vocab);
        block_key(row[0], ids + s->tokens, s->tokens, row[1]);
        block_end_key(row[1], end);
        memcpy(&b, end, sizeof b);
    } while (a % SHARED_KNOWN != b % SHARED_KNOWN);
    need(kvik_cache_new(c, &seq));
    feed(c, seq, 0, PROMPT, got);
    for (int i = 0; need(kvik_shared_put(s, seq)) > 0; i++) {
        if (i == 50) fail_msg("a text is put again and again");
        assert_int_equal(kvik_shared_flush(s, 60000), 1);
    }
    kvik_shared_close(s);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* Answers one command as a server does that has no AUTH, and so tells what it was sent. */
static void *answer_once(void *listener)
{
    static const char says[] =
        "-ERR unknown command 'AUTH', with args beginning with: 'ann' 'secret' \r\n";
    char command[256];
    int fd = accept(*(int *)listener, NULL, NULL);
    if (recv(fd, command, sizeof command, 0) > 0) (void)send(fd, says, sizeof says - 1, 0);
    close(fd);
    return NULL;
}

/* A server at a socket of this machine, which answers one connection, and a keeper for it. */
struct listening {
    atomic_bool stop;
    struct address a;
    struct keeper *k;
    pthread_t thread;
    int fd;
};

static void listen_at(struct listening *l, void *(*answer)(void *))
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char text[200];
    atomic_store(&l->stop, false);
    snprintf(to.sun_path, sizeof to.sun_path, "%s/socket", dir);
    snprintf(text, sizeof text, "unix://ann:secret@%s", to.sun_path);
    need(address_read(text, &l->a));
    if (keeper_open(&l->a, &l->stop, &l->k) == ERR_UNSUPPORTED) {
        address_done(&l->a);
        skip();
    }
    (void)unlink(to.sun_path);
    l->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(l->fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(l->fd, 1), 0);
    assert_int_equal(pthread_create(&l->thread, NULL, answer, &l->fd), 0);
}

static void listen_end(struct listening *l)
{
    pthread_join(l->thread, NULL);
    l->k->close(l->k);
    close(l->fd);
    address_done(&l->a);
}

static void test_password_untold(void **state)
{
    (void)state;
    const uint8_t key[KEEPER_KEY] = {0};
    struct listening l;
    listen_at(&l, answer_once);
    assert_int_equal(l.k->exists(l.k, key, now_seconds() + 60), ERR_ARG);
    if (strstr(kvik_last_error(), "secret")) fail_msg("%s", kvik_last_error());
    listen_end(&l);
}

/* Accepts any password, and gives a value that has no end. */
static void *answer_endless(void *listener)
{
    static const char welcome[] = "+OK\r\n", head[] = "$536870911\r\n";
    static char part[1 << 16];
    char command[256];
    int fd = accept(*(int *)listener, NULL, NULL);
    if (recv(fd, command, sizeof command, 0) > 0)
        (void)send(fd, welcome, sizeof welcome - 1, MSG_NOSIGNAL);
    if (recv(fd, command, sizeof command, 0) > 0)
        (void)send(fd, head, sizeof head - 1, MSG_NOSIGNAL);
    for (uint32_t i = 0; i < 4000 && send(fd, part, sizeof part, MSG_NOSIGNAL) > 0; i++) {
    }
    close(fd);
    return NULL;
}

static void test_endless(void **state)
{
    (void)state;
    const uint8_t key[KEEPER_KEY] = {0};
    struct listening l;
    void *data = NULL;
    size_t n;
    listen_at(&l, answer_endless);
    assert_int_equal(l.k->get(l.k, key, 1000, &data, &n, now_seconds() + 60), ERR_LIMIT);
    listen_end(&l);
}

/* A store that fails rests: it is not asked again with every prompt. */
static void test_rests(void **state)
{
    (void)state;
    kvik_model *m = model_of(&rows[0]);
    kvik_cache *c = cache_of(m, &rows[0]);
    kvik_shared *s = NULL;
    kvik_shared_state st = {.size = sizeof st};
    kvik_seq seq;
    char nobody[200];
    snprintf(nobody, sizeof nobody, "unix://%s/nobody", dir);
    int e = kvik_shared_open(c, nobody, &s);
    if (e == KVIK_UNSUPPORTED) {
        kvik_cache_close(c);
        kvik_model_close(m);
        skip();
    }
    need(e);
    const double begun = now_seconds();
    for (int i = 0; i < 20; i++)
        assert_int_equal(fetch(s, NULL, PROMPT, &seq), 0);
    need(kvik_shared_look(s, &st));
    /* the pauses are half a second, one, two and so on, however long the machine took */
    double most = 1;
    for (double pause = 0.5, sum = 0; (sum += pause) < now_seconds() - begun; pause *= 2)
        most++;
    if (!st.failures || (double)st.failures > most)
        fail_msg("%llu failures, at most %g", (unsigned long long)st.failures, most);
    assert_true(st.reads_fail && !st.writes_fail);
    kvik_shared_close(s);
    kvik_cache_close(c);
    kvik_model_close(m);
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(store, sizeof store, "%s/store", dir);
    snprintf(address, sizeof address, "file://%s", store);
    setenv("XDG_CACHE_HOME", dir, 1);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* --- Names that are not found in time. */

static atomic_bool release_names;
static atomic_uint asked, answered;

/* In the place of the system's: names that end with .slow take as long as the test wants, and nobody has "none". */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    if (!strcmp(node, "none")) return EAI_NONAME;
    static const char slow[] = ".slow";
    size_t n = strlen(node);
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)(void *)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (hints->ai_flags & AI_NUMERICHOST || n < strlen(slow) ||
        strcmp(node + n - strlen(slow), slow) != 0)
        return real(node, service, hints, out);
    atomic_fetch_add(&asked, 1);
    while (!atomic_load(&release_names))
        usleep(500);
    int e = real("localhost", service, hints, out);
    atomic_fetch_add(&answered, 1);
    return e;
}

static int look_up(const char *host, double seconds, bool stopped, struct addrinfo **out)
{
    atomic_bool stop = stopped;
    return lookup(host, "6379", "redis://shown", &stop, now_seconds() + seconds, out);
}

static void test_names(void **state)
{
    (void)state;
    struct addrinfo *list = NULL;
    int e = 0;
    need(look_up("127.0.0.1", 0, true, &list)); /* an address is no name */
    freeaddrinfo(list);
    need(look_up("localhost", 60, false, &list));
    freeaddrinfo(list);
    assert_int_equal(look_up("none", 60, false, &list), ERR_IO);
    assert_non_null(strstr(kvik_last_error(), "redis://shown: "));
    assert_int_equal(look_up("a.slow", 0.02, false, &list), ERR_BUSY);
    assert_non_null(strstr(kvik_last_error(), "not found in time"));
    assert_int_equal(look_up("a.slow", 60, true, &list), ERR_BUSY); /* stop */
    for (int i = 0; i < 20 && !e; i++) {
        e = look_up("a.slow", 0, false, &list);
        if (!strstr(kvik_last_error(), "earlier lookups")) e = 0;
    }
    assert_int_equal(e, ERR_BUSY); /* threads have a limit */
    assert_true(atomic_load(&asked) <= 8);
    atomic_store(&release_names, true);
    while (atomic_load(&answered) < atomic_load(&asked))
        usleep(500);
    do
        e = look_up("a.slow", 60, false, &list); /* when the threads before have ended */
    while (e == ERR_BUSY);
    need(e);
    assert_int_equal(ntohs(((struct sockaddr_in *)(void *)list->ai_addr)->sin_port), 6379);
    freeaddrinfo(list);
}

/* A store whose name is not found delays neither a look nor the end. */
static void test_slow_name(void **state)
{
    (void)state;
    kvik_model *m = model_of(&rows[0]);
    kvik_cache *c = cache_of(m, &rows[0]);
    kvik_shared *s = NULL;
    kvik_fetch *f;
    kvik_fetched st = {.size = sizeof st};
    int e = kvik_shared_open(c, "redis://store.slow", &s);
    unsigned before = atomic_load(&asked);
    atomic_store(&release_names, false);
    if (e == KVIK_UNSUPPORTED) {
        kvik_cache_close(c);
        kvik_model_close(m);
        skip();
    }
    need(e);
    need(kvik_shared_seek(s, ids, PROMPT, NULL, 0, &f));
    while (atomic_load(&asked) == before)
        usleep(500);
    need(kvik_fetch_look(f, &st));
    assert_int_equal(st.tokens, 0);
    kvik_fetch_free(f);
    kvik_shared_close(s); /* the name is not found yet */
    assert_true(atomic_load(&answered) <= before);
    atomic_store(&release_names, true);
    while (atomic_load(&answered) <= before)
        usleep(500);
    kvik_cache_close(c);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),         cmocka_unit_test(test_salts),
        cmocka_unit_test(test_damage),       cmocka_unit_test(test_mixed_up),
        cmocka_unit_test(test_addresses),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_names),        cmocka_unit_test(test_slow_name),
        cmocka_unit_test(test_one_place),    cmocka_unit_test(test_password_untold),
        cmocka_unit_test(test_other_models), cmocka_unit_test(test_endless),
        cmocka_unit_test(test_rests),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
