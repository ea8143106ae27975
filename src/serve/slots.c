/* slots.c - GET /slots, and POST /slots/N?action=save, restore or erase; see slots.h.
 *
 * A file of a slot is a session of kvik (kvik_cache_save) whose note has the tokens.  Saving and loading need the cache,
 * so the thread of the scheduler does both, between two steps. */
#include "serve/slots.h"
#include "serve/protocol.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct slot {
    int32_t *ids; /* [n] owned, NULL: empty */
    size_t n;
    uint64_t used; /* when it was used last: a count */
    bool shared;   /* of the cache that all have, without a salt */
};

struct slots {
    pthread_mutex_t lock;
    uint64_t uses;
    uint32_t n;
    struct slot slot[];
};

int slots_open(uint32_t n, struct slots **out)
{
    struct slots *s = mem_alloc(sizeof *s + n * sizeof *s->slot);
    if (!s) return ERR_NOMEM;
    pthread_mutex_init(&s->lock, NULL);
    s->n = n;
    *out = s;
    return 0;
}

void slots_close(struct slots *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->n; i++)
        mem_free(s->slot[i].ids);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* True if a text begins with the tokens of a slot. */
static bool continues(const struct slot *t, const int32_t *ids, size_t n)
{
    return t->ids && t->n <= n && !memcmp(t->ids, ids, t->n * sizeof *ids);
}

static uint32_t choose(const struct slots *s, const int32_t *ids, size_t n)
{
    uint32_t best = s->n;
    for (uint32_t i = 0; i < s->n; i++)
        if (continues(&s->slot[i], ids, n) && (best == s->n || s->slot[i].n > s->slot[best].n))
            best = i;
    if (best < s->n) return best;
    best = 0;
    for (uint32_t i = 1; i < s->n; i++)
        if (s->slot[i].used < s->slot[best].used) best = i;
    return best;
}

int slots_put(struct slots *s, int wish, const int32_t *ids, size_t n, bool shared)
{
    int32_t *copy = mem_array(n ? n : 1, sizeof *copy);
    if (!copy) return -1;
    if (n) memcpy(copy, ids, n * sizeof *ids);
    pthread_mutex_lock(&s->lock);
    uint32_t i = wish >= 0 && (uint32_t)wish < s->n ? (uint32_t)wish : choose(s, ids, n);
    mem_free(s->slot[i].ids);
    s->slot[i] = (struct slot){.ids = copy, .n = n, .used = ++s->uses, .shared = shared};
    pthread_mutex_unlock(&s->lock);
    return (int)i;
}

/* Copies the text of a slot that is to be saved. */
static int slots_get(struct slots *s, uint32_t i, struct ask_text *out)
{
    pthread_mutex_lock(&s->lock);
    const struct slot *t = &s->slot[i];
    bool empty = !t->n, shared = t->shared;
    *out = (struct ask_text){.n = t->n, .ids = mem_array(t->n + 1, sizeof *out->ids)};
    if (out->ids && t->n) memcpy(out->ids, t->ids, t->n * sizeof *t->ids);
    pthread_mutex_unlock(&s->lock);
    if (empty) return ERR(ARG, "slot %u has no text", i);
    if (!shared)
        return ERR(
            UNSUPPORTED,
            "the text of slot %u is not saved: it has a key, a cache_salt or a cache_implementation of its own, and a file "
            "would give its rows to others",
            i);
    return out->ids ? 0 : ERR_NOMEM;
}

static size_t slots_erase(struct slots *s, uint32_t i)
{
    pthread_mutex_lock(&s->lock);
    size_t n = s->slot[i].n;
    mem_free(s->slot[i].ids);
    s->slot[i] = (struct slot){0};
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* --- Files. */

struct filing {
    kvik_cache *cache;
    const char *dir, *name;
    char path[4096];
    struct ask_text text; /* owned */
    int64_t tokens, bytes;
    double seconds;
    int error;
    char sentence[ROUTE_SENTENCE];
};

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* The tokens as a note: {"slot": [1, 2, 3]}. */
static int write_note(const struct ask_text *t, char **note)
{
    json_t *list = json_array(), *o = json_pack("{s:o}", "slot", list);
    for (size_t i = 0; o && i < t->n; i++)
        json_array_append_new(list, json_integer(t->ids[i]));
    int e = o ? json_text(o, note) : ERR_NOMEM;
    json_decref(o);
    return e;
}

static int read_note(const char *path, const char *note, struct ask_text *out)
{
    json_t *o = NULL, *v;
    size_t i;
    if (json_parse(note, strlen(note), "the note of a slot", &o) < 0 ||
        !json_is_array(json_object_get(o, "slot"))) {
        json_decref(o);
        return ERR(FORMAT, "%s is a session, but not one of a slot", path);
    }
    const json_t *list = json_object_get(o, "slot");
    bool good = json_array_size(list) > 0;
    *out = (struct ask_text){.ids = mem_array(json_array_size(list) + 1, sizeof *out->ids)};
    json_array_foreach(list, i, v)
    {
        good &=
            json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX;
        if (out->ids) out->ids[out->n++] = (int32_t)json_integer_value(v);
    }
    json_decref(o);
    if (!good) return ERR(FORMAT, "%s: the tokens of its note are wrong", path);
    return out->ids ? 0 : ERR_NOMEM;
}

/* Writes beside the file and renames: the file has its old contents or all new ones. */
static int save(struct filing *w)
{
    char beside[4096 + 8], *note = NULL;
    kvik_seq seq;
    /* A client cannot name this file, since its name begins with a dot. */
    snprintf(beside, sizeof beside, "%s/.%s.new", w->dir, w->name);
    TRY(write_note(&w->text, &note));
    int e = kvik_cache_new(w->cache, &seq);
    if (e >= 0) {
        e = kvik_cache_sync(w->cache, seq, w->text.ids, w->text.n, NULL, NULL);
        if (e >= 0) w->tokens = kvik_cache_length(w->cache, seq);
        (void)unlink(beside);
        if (e >= 0) e = kvik_cache_save(w->cache, beside, &seq, 1, note);
        kvik_cache_drop(w->cache, seq); /* its rows stay, to be reused */
    }
    mem_free(note);
    if (e >= 0 && rename(beside, w->path) < 0)
        e = ERR(IO, "%s cannot be renamed to %s", beside, w->path);
    if (e < 0) (void)unlink(beside);
    return e;
}

static int restore(struct filing *w)
{
    char *note = NULL;
    kvik_seq seq;
    int n = kvik_cache_load(w->cache, w->path, 1, &seq, &note);
    if (n < 0) return n;
    if (n != 1) {
        kvik_free(note);
        return ERR(FORMAT, "%s is a session, but not one of a slot", w->path);
    }
    w->tokens = kvik_cache_length(w->cache, seq);
    int e = read_note(w->path, note, &w->text);
    if (e >= 0 && (int64_t)w->text.n != w->tokens && (int64_t)w->text.n != w->tokens + 1)
        e = ERR(FORMAT, "%s: its note has %zu tokens, and its rows are those of %lld", w->path,
                w->text.n, (long long)w->tokens);
    kvik_cache_drop(w->cache, seq);
    kvik_free(note);
    return e;
}

static void do_filing(struct filing *w, int (*fn)(struct filing *w))
{
    double begun = now_seconds();
    w->error = fn(w);
    w->seconds = now_seconds() - begun;
    w->bytes = size_of(w->path);
    if (w->error < 0) snprintf(w->sentence, sizeof w->sentence, "%s", kvik_last_error());
}

static void do_save(void *ctx)
{
    do_filing(ctx, save);
}

static void do_restore(void *ctx)
{
    do_filing(ctx, restore);
}

/* A name without a directory, which does not begin with a dot. */
static int name_file(struct filing *w, const json_t *body)
{
    const json_t *v = json_object_get(body, "filename");
    const char *s = json_string_value(v);
    if (!s) return ERR(ARG, "field \"filename\" must be a string");
    if (!*s || *s == '.' || strchr(s, '/') || strlen(s) > 200 || strlen(s) != json_string_length(v))
        return ERR(ARG,
                   "field \"filename\" must be the name of a file in --slot-save-path, not a path");
    w->name = s;
    if ((size_t)snprintf(w->path, sizeof w->path, "%s/%s", w->dir, s) >= sizeof w->path)
        return ERR(LIMIT, "the path of --slot-save-path is too long");
    return 0;
}

/* --- Requests. */

static int answer_file(struct server *s, struct exchange *x, uint32_t i, bool saves)
{
    json_t *body;
    struct filing w = {.cache = s->caches.use[0].o.cache, .dir = s->o.slot_dir};
    TRY(body_read(x, &body));
    int e = name_file(&w, body);
    if (e >= 0 && saves) e = slots_get(s->slots, i, &w.text);
    if (e >= 0 && !saves && s->keys)
        e = ERR(UNSUPPORTED,
                "slots are not restored where requests have keys, which share no rows");
    if (e >= 0) {
        scheduler_call(s->scheduler, saves ? do_save : do_restore, &w);
        if ((e = w.error) < 0) (void)err_set(e, "%s", w.sentence);
    }
    if (e >= 0 && !saves) (void)slots_put(s->slots, (int)i, w.text.ids, w.text.n, true);
    if (e >= 0)
        exchange_json(x, 200,
                      json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", (int)i, "filename",
                                w.name, saves ? "n_saved" : "n_restored", (json_int_t)w.tokens,
                                saves ? "n_written" : "n_read", (json_int_t)w.bytes, "timings",
                                saves ? "save_ms" : "restore_ms", w.seconds * 1e3));
    mem_free(w.text.ids);
    json_decref(body);
    return e;
}

static int act(struct server *s, struct exchange *x)
{
    const char *at = x->path + strlen("/slots/"), *query = x->query ? x->query : "";
    char *end;
    unsigned long i = strtoul(at, &end, 10);
    if (end == at || *end || i >= s->o.parallel)
        return ERR(ARG, "there is no slot %.20s; slots are 0 to %u", at, s->o.parallel - 1);
    if (!s->o.slot_dir)
        return ERR(UNSUPPORTED,
                   "slots are not saved here; --slot-save-path gives them a directory");
    if (!strcmp(query, "action=save")) return answer_file(s, x, (uint32_t)i, true);
    if (!strcmp(query, "action=restore")) return answer_file(s, x, (uint32_t)i, false);
    if (strcmp(query, "action=erase") != 0)
        return ERR(
            ARG, "a slot has the actions save, restore and erase: POST /slots/%lu?action=save", i);
    exchange_json(x, 200,
                  json_pack("{s:i, s:I}", "id_slot", (int)i, "n_erased",
                            (json_int_t)slots_erase(s->slots, (uint32_t)i)));
    return 0;
}

static int list(struct server *s, struct exchange *x)
{
    struct scheduler_state t;
    scheduler_look(s->scheduler, &t);
    json_t *all = json_array();
    for (uint32_t i = 0; all && i < s->o.parallel; i++)
        json_array_append_new(all, json_pack("{s:i, s:I, s:b}", "id", (int)i, "n_ctx",
                                             (json_int_t)server_capacity(s), "is_processing",
                                             i < t.running));
    exchange_json(x, 200, all);
    return 0;
}

static const struct route slot_routes[] = {
    {"/slots", EXCHANGE_GET, .light = true, .protocol = &protocol_openai, .answer = list},
    {"/slots/", EXCHANGE_POST, .below = true, .protocol = &protocol_openai, .answer = act},
};
ROUTES(slot_routes);
