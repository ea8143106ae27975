/* chat_file.c - saves and loads conversations as session files: all branches with their blocks, and the messages in the
 * note of the session.
 *
 * The note is {"kvik_chat": 1, "at": NAME, "draws": N, "branches": [{"name", "messages"}]}, with one branch for each
 * sequence, in the order of the sequences. */
#include "base/file.h"
#include "cli/cmd_chat.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_note(struct chat *c, char **text)
{
    json_t *branches = json_array(),
           *o = json_pack("{s:i, s:s, s:I, s:o}", "kvik_chat", 1, "at", chat_here(c)->name, "draws",
                          (json_int_t)c->draws, "branches", branches);
    for (uint32_t i = 0; o && i < c->n; i++)
        json_array_append_new(branches, json_pack("{s:s, s:O}", "name", c->branch[i].name,
                                                  "messages", c->branch[i].messages));
    int e =
        o && json_array_size(branches) == c->n ? json_text(o, text) : ERR(NOMEM, "out of memory");
    json_decref(o);
    return e;
}

int chat_save(struct chat *c, const char *path)
{
    kvik_seq seq[CHAT_BRANCHES];
    char *note;
    TRY(write_note(c, &note));
    for (uint32_t i = 0; i < c->n; i++)
        seq[i] = c->branch[i].seq;
    int e = stored_save(c->s.cache, path, seq, c->n, note);
    mem_free(note);
    if (e != KVIK_BUSY) return e;
    char why[1024];
    snprintf(why, sizeof why, "%s", kvik_last_error());
    return err_set(e, "%s: /save NAME", why);
}

int chat_save_as(struct chat *c, const char *path)
{
    TRY(chat_save(c, path));
    fprintf(stderr, "saved %u branch%s to %s\n", c->n, c->n == 1 ? "" : "es", path);
    if (!c->lost) return 0;
    char *moved = mem_strdup(path);
    if (!moved) return ERR_NOMEM;
    mem_free(c->moved);
    c->moved = moved;
    c->lost = c->changed = false;
    fprintf(stderr, "this chat is saved in %s from now on\n", path);
    return 0;
}

static bool is_message(const json_t *m)
{
    return json_is_string(json_object_get(m, "role")) &&
           json_is_string(json_object_get(m, "content"));
}

/* Reads one branch of the note; the caller fills in its sequence. */
static bool read_branch(const json_t *o, struct branch *b)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    json_t *messages = json_object_get(o, "messages");
    const json_t *m;
    size_t i;
    if (!name || !*name || strlen(name) >= CHAT_NAME || !json_is_array(messages)) return false;
    json_array_foreach(messages, i, m) if (!is_message(m)) return false;
    snprintf(b->name, CHAT_NAME, "%s", name);
    b->messages = json_incref(messages);
    return true;
}

/* Reads the n branches of a note.  *at: index of the branch that was current. */
static int read_note(const char *path, const char *text, uint32_t n, struct branch *b, uint32_t *at,
                     uint64_t *draws)
{
    json_t *o = NULL;
    if (!*text || json_parse(text, strlen(text), path, &o) < 0 ||
        json_integer_value(json_object_get(o, "kvik_chat")) != 1) {
        json_decref(o);
        return ERR(FORMAT, "%s is a session, but kvik chat did not save it", path);
    }
    const json_t *branches = json_object_get(o, "branches");
    const char *here = json_string_value(json_object_get(o, "at"));
    bool good = n && json_array_size(branches) == n;
    for (uint32_t i = 0; good && i < n; i++) {
        good = read_branch(json_array_get(branches, i), &b[i]);
        if (good && here && !strcmp(here, b[i].name)) *at = i;
    }
    *draws = (uint64_t)json_integer_value(json_object_get(o, "draws"));
    json_decref(o);
    return good ? 0
                : ERR(FORMAT, "%s: the note of this session does not match its %u sequences", path,
                      n);
}

int chat_load(struct chat *c, const char *path)
{
    kvik_seq seq[CHAT_BRANCHES];
    struct branch b[CHAT_BRANCHES] = {0};
    uint32_t at = 0;
    uint64_t draws = 0;
    char *note = NULL;
    int n = stored_load(c->s.cache, path, CHAT_BRANCHES, seq, &note);
    if (n < 0) return n;
    int e = read_note(path, note, (uint32_t)n, b, &at, &draws);
    kvik_free(note);
    if (e < 0) {
        for (int i = 0; i < n; i++) {
            kvik_cache_drop(c->s.cache, seq[i]);
            json_decref(b[i].messages);
        }
        return e;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        kvik_cache_drop(c->s.cache, c->branch[i].seq);
        json_decref(c->branch[i].messages);
    }
    for (int i = 0; i < n; i++)
        b[i].seq = seq[i];
    memcpy(c->branch, b, sizeof b);
    c->n = (uint32_t)n;
    c->at = at;
    c->draws = draws;
    c->changed = true;
    return 0;
}

void chat_loaded(struct chat *c, const char *path)
{
    char last[CHAT_PREVIEW];
    const struct branch *b = chat_here(c);
    size_t n = json_array_size(b->messages);
    fprintf(stderr, "%s: %u branch%s, on %s with %lld tokens%s%s\n", path, c->n,
            c->n == 1 ? "" : "es", b->name, (long long)kvik_cache_length(c->s.cache, b->seq),
            n ? ", after: " : "", n ? chat_preview(b->messages, n - 1, last) : "");
}

int chat_session_check(const char *path)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    char dir[4096];
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) return ERR(ARG, "--session %s is a directory; name a file", path);
        if (!S_ISREG(st.st_mode))
            return ERR(ARG, "--session %s is not a regular file; name another one", path);
        if (access(path, R_OK | W_OK) == 0) return 0;
        return ERR(IO, "--session %s cannot be read and written: %s", path, strerror(errno));
    }
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (slash == path) snprintf(dir, sizeof dir, "/");
    if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return ERR(NOTFOUND, "--session %s cannot be made: there is no directory %s", path, dir);
    if (access(dir, W_OK | X_OK) < 0)
        return ERR(IO, "--session %s cannot be made: %s: %s", path, dir, strerror(errno));
    return 0;
}

/* Replaces the system message of a saved conversation if --system was given. */
static int apply_system(struct chat *c)
{
    const json_t *first = json_array_get(chat_here(c)->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role")),
               *now = json_string_value(json_object_get(first, "content"));
    bool has = role && !strcmp(role, "system");
    if (!c->o->system || (has && !strcmp(now, c->o->system))) return 0;
    TRY(chat_system_set(c, c->o->system));
    fprintf(stderr, "%s: --system %s the system message%s%s\n", c->o->session,
            has ? "replaces" : "adds", c->n > 1 ? " of branch " : "",
            c->n > 1 ? chat_here(c)->name : "");
    return 0;
}

int chat_session_open(struct chat *c)
{
    if (!c->o->session || !file_exists(c->o->session)) return 0;
    TRY(chat_load(c, c->o->session));
    c->changed = false;
    if (line_is_terminal(c->editor)) chat_loaded(c, c->o->session);
    return apply_system(c);
}

int chat_session_save(struct chat *c)
{
    if (!c->o->session || !c->changed) return 0;
    int e = chat_save(c, c->moved ? c->moved : c->o->session);
    c->lost = e == KVIK_BUSY;
    if (e >= 0) c->changed = false;
    return MIN(e, 0);
}
