/* filing.c - saves the text of a slot as a file, and restores it; see filing.h.
 *
 * A file is a session of kvik (kvik_cache_save) whose note has the tokens.  Saving and restoring need the cache, so
 * both are jobs of the scheduler.  A save generates one token.  So rows that were evicted meanwhile are recomputed
 * like the rows of any prompt, beside the steps of other texts. */
#include "serve/filing.h"
#include "serve/protocol.h"
#include "serve/slots.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct filing {
    struct server *server;
    struct exchange *x; /* held */
    uint32_t slot;
    char name[256], path[4096];
    struct ask_text text; /* owned */
    int64_t tokens;
    double begun;
};

static void filing_free(struct filing *w)
{
    exchange_release(w->x);
    mem_free(w->text.ids);
    mem_free(w);
}

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* Writes the tokens as a note: {"slot": [1, 2, 3]}. */
static int write_note(const struct ask_text *t, char **note)
{
    json_t *list = json_array(), *o = json_pack("{s:o}", "slot", list);
    for (size_t i = 0; o && i < t->n; i++)
        json_array_append_new(list, json_integer(t->ids[i]));
    int e = o ? json_text(o, note) : ERR_NOMEM;
    json_decref(o);
    return e;
}

/* Reads the tokens of a note; all ids must be below `vocab`. */
static int read_note(const char *path, const char *note, int64_t vocab, struct ask_text *out)
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
        good &= json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < vocab;
        if (out->ids) out->ids[out->n++] = (int32_t)json_integer_value(v);
    }
    json_decref(o);
    if (!good) return ERR(FORMAT, "%s: the tokens of its note are wrong", path);
    return out->ids ? 0 : ERR_NOMEM;
}

/* Writes a new file beside the old one and renames it, so the file always has its old contents or all new ones. */
static int write_session(struct filing *w, kvik_seq seq)
{
    kvik_cache *cache = w->server->caches.use[0].o.cache;
    char beside[4096 + 8], *note = NULL;
    /* A client cannot name this file, since its name begins with a dot. */
    snprintf(beside, sizeof beside, "%s/.%s.new", w->server->o.slot_dir, w->name);
    TRY(write_note(&w->text, &note));
    w->tokens = kvik_cache_length(cache, seq);
    (void)unlink(beside);
    int e = kvik_cache_save(cache, beside, &seq, 1, note);
    mem_free(note);
    if (e >= 0 && rename(beside, w->path) < 0)
        e = ERR(IO, "%s cannot be renamed to %s", beside, w->path);
    if (e < 0) (void)unlink(beside);
    return e;
}

/* Takes over the sequence and the note of the file. */
static int take_session(struct filing *w, kvik_cache *cache, kvik_seq seq, const char *note)
{
    if (!note || !seq) return ERR(FORMAT, "%s is a session, but not one of a slot", w->path);
    w->tokens = kvik_cache_length(cache, seq);
    int e = read_note(w->path, note, kvik_model_vocab(w->server->o.model), &w->text);
    if (e >= 0 && (int64_t)w->text.n != w->tokens && (int64_t)w->text.n != w->tokens + 1)
        e = ERR(FORMAT, "%s: its note has %zu tokens, and its rows are those of %lld", w->path,
                w->text.n, (long long)w->tokens);
    return e;
}

/* --- Jobs. */

/* Copies a sentence without the directory of the files, which is none of a client's business. */
static void hide_directory(char out[ROUTE_SENTENCE], const char *sentence, const char *dir)
{
    size_t len = strlen(dir), n = 0;
    while (*sentence && n + 1 < ROUTE_SENTENCE) {
        bool here = !strncmp(sentence, dir, len) && sentence[len] == '/';
        if (!here)
            out[n++] = *sentence++;
        else
            sentence += len + strspn(sentence + len, "/");
    }
    out[n] = 0;
}

/* Answers the request, and frees the work. */
static void answer(struct filing *w, bool saves, int e, const char *sentence)
{
    char text[ROUTE_SENTENCE];
    if (e < 0) {
        hide_directory(text, sentence, w->server->o.slot_dir);
        route_refuse(exchange_hold(w->x), route_status(e), text);
    } else
        exchange_json(
            w->x, 200,
            json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", (int)w->slot, "filename", w->name,
                      saves ? "n_saved" : "n_restored", (json_int_t)w->tokens,
                      saves ? "n_written" : "n_read", (json_int_t)size_of(w->path), "timings",
                      saves ? "save_ms" : "restore_ms", (now_seconds() - w->begun) * 1e3));
    filing_free(w);
}

static bool no_text(struct job *j, int32_t id, const char *text, const kvik_logprob *token,
                    uint32_t n)
{
    (void)j, (void)id, (void)text, (void)token, (void)n;
    return true;
}

/* Saves the text.  All of its rows are there now, unless the client has left. */
static void on_rows(struct job *j, const kvik_row *row, int code, const char *sentence)
{
    struct filing *w = j->owner;
    if (row && (exchange_gone(j->x) || !row->seq)) {
        code = KVIK_CANCELLED;
        sentence = "the client has left, or memory is short";
    } else if (row && (code = write_session(w, row->seq)) < 0)
        sentence = kvik_last_error();
    answer(w, true, code, sentence);
    job_free(j);
}

static int begin_restore(struct job *j, kvik_cache *cache, kvik_reading **out)
{
    const struct filing *w = j->owner;
    return kvik_session_read(cache, w->path, out);
}

static int end_restore(struct job *j, kvik_cache *cache, kvik_seq seq, char *note)
{
    int e = take_session(j->owner, cache, seq, note);
    if (seq) kvik_cache_drop(cache, seq); /* its rows stay in the cache for reuse */
    kvik_free(note);
    return e;
}

static void on_restored(struct job *j, const kvik_row *row, int code, const char *sentence)
{
    struct filing *w = j->owner;
    (void)row;
    if (code >= 0)
        slots_put(w->server->slots, w->slot, &(struct slot_text){w->text.ids, w->text.n, "", true});
    answer(w, false, code, sentence);
    job_free(j);
}

static const struct job_calls saves = {.text = no_text, .over = on_rows};
static const struct job_calls restores = {
    .read = begin_restore, .have_read = end_restore, .over = on_restored};

/* Makes a job for the text of w, and takes w over.  If a text fills the context, its last token has no rows and
 * needs none. */
static int hand_over(struct filing *w, const struct job_calls *calls)
{
    struct server *s = w->server;
    struct job *j = mem_alloc(sizeof *j);
    if (!j) return ERR_NOMEM;
    *j = (struct job){.calls = calls, .owner = w, .keeps = true};
    j->n = (size_t)MIN(w->text.n, server_capacity(s) - 1);
    j->ids = mem_array(j->n + 1, sizeof *j->ids);
    int e = j->ids ? kvik_generation_init(&j->g, s->o.model) : ERR_NOMEM;
    if (e < 0) {
        mem_free(j->ids);
        mem_free(j);
        return e;
    }
    if (j->n) memcpy(j->ids, w->text.ids, j->n * sizeof *j->ids);
    j->g.do_sample = false;
    j->g.num_beams = j->g.max_new_tokens = 1;
    j->g.max_length = 0;
    j->x = exchange_hold(w->x);
    scheduler_add(s->scheduler, j);
    return 0;
}

/* --- Requests. */

/* Reads the file name: it has no directory and does not begin with a dot. */
static int name_file(struct filing *w, const json_t *body)
{
    const json_t *v = json_object_get(body, "filename");
    const char *s = json_string_value(v), *dir = w->server->o.slot_dir;
    if (!s) return ERR(ARG, "field \"filename\" must be a string, not %s", JSON_QUOTE(v));
    if (!*s || *s == '.' || strchr(s, '/') || strlen(s) > 200 || strlen(s) != json_string_length(v))
        return ERR(
            ARG,
            "field \"filename\" must be the name of a file in --slot-save-path, of 1 to 200 bytes, with no slash and no dot in front, not %s",
            JSON_QUOTE(v));
    snprintf(w->name, sizeof w->name, "%s", s);
    if ((size_t)snprintf(w->path, sizeof w->path, "%s/%s", dir, s) >= sizeof w->path)
        return ERR(LIMIT, "the path of --slot-save-path with this name has more than %zu bytes",
                   sizeof w->path - 1);
    return 0;
}

static int begin_job(struct server *s, struct exchange *x, uint32_t slot,
                     const struct job_calls *calls)
{
    json_t *body;
    TRY(body_read(x, &body));
    struct filing *w = mem_alloc(sizeof *w);
    if (!w) {
        json_decref(body);
        return ERR_NOMEM;
    }
    *w = (struct filing){.server = s, .x = exchange_hold(x), .slot = slot, .begun = now_seconds()};
    int e = name_file(w, body);
    json_decref(body);
    if (e >= 0 && calls == &saves) e = slots_get(s->slots, slot, &w->text);
    if (e >= 0 && !scheduler_room(s->scheduler, x->client, 1))
        e = ERR(BUSY, "%u generations wait already; try again later", s->o.max_waiting);
    if (e >= 0) e = hand_over(w, calls);
    if (e < 0) filing_free(w);
    return e;
}

int filing_save(struct server *s, struct exchange *x, uint32_t slot)
{
    return begin_job(s, x, slot, &saves);
}

int filing_restore(struct server *s, struct exchange *x, uint32_t slot)
{
    if (s->keys)
        return ERR(UNSUPPORTED,
                   "slots are not restored where requests have keys, which share no rows");
    return begin_job(s, x, slot, &restores);
}
