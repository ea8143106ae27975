/* tok_open.c - opens a tokenizer: tokenizer.json, tokenizer_config.json and the files beside them, or the compiled vocabulary that an
 * earlier run kept in the user's cache directory. */
#include "base/file.h"
#include "tok/tok_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_NAME TOK_JSON
/* The reference ignores clean_up_tokenization_spaces for BPE unless this key is true as well. */
#define CLEAN_BPE "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"

/* --- tokenizer_config.json and its companions */
static int load_named(struct tok *t, const json_t *config)
{
    void *i = json_object_iter((json_t *)config);
    for (; i; i = json_object_iter_next((json_t *)config, i)) {
        const char *key = json_object_iter_key(i);
        const json_t *v = json_object_iter_value(i);
        size_t n = strlen(key);
        if (n < 6 || strcmp(key + n - 6, "_token") != 0) continue;
        if (json_is_object(v)) v = json_object_get(v, "content");
        if (!json_is_string(v)) continue; /* flags such as add_bos_token, and nulls */
        TRY(tok_add_named(t, key, json_string_value(v), json_string_length(v)));
    }
    return 0;
}

static int set_template(struct tok *t, const char *s, size_t n)
{
    if (t->chat_template) return 0;
    t->chat_template = mem_strndup(s, n);
    return t->chat_template ? 0 : ERR_NOMEM;
}

/* Reads a string, or a list of {"name", "template"} and takes its "default". */
static int load_template(struct tok *t, const json_t *config)
{
    const json_t *v = json_object_get(config, "chat_template"), *one, *found = NULL;
    size_t i;
    if (json_is_string(v)) found = v;
    if (json_is_array(v)) json_array_foreach(v, i, one)
        {
            const char *name = json_string_value(json_object_get(one, "name"));
            const json_t *text = json_object_get(one, "template");
            if (json_is_string(text) && (!found || (name && strcmp(name, "default") == 0)))
                found = text;
        }
    return found ? set_template(t, json_string_value(found), json_string_length(found)) : 0;
}

static int load_config(struct tok *t, const json_t *config)
{
    bool clean = false, forced = false;
    if (!json_is_object(config)) return ERR(FORMAT, "tokenizer_config.json is not an object");
    TRY(json_get_bool(config, "tokenizer_config.json", "clean_up_tokenization_spaces", &clean));
    TRY(json_get_bool(config, "tokenizer_config.json", CLEAN_BPE, &forced));
    if (clean && (forced || t->uni.on)) TRY(tok_clean_up(t));
    TRY(load_named(t, config));
    return load_template(t, config);
}

/* Loads the steps from the file without its lists, the lists, and the configuration. */
static int load_text(struct tok *t, const char *rest, size_t n, const struct tok_lists *lists,
                     const char *config, size_t n_config)
{
    json_t *root = NULL, *cfg = NULL;
    int e = json_parse(rest, n, FILE_NAME, &root);
    if (e >= 0 && config) e = json_parse(config, n_config, "tokenizer_config.json", &cfg);
    if (e >= 0) e = tok_load_json(t, root, lists);
    if (e >= 0 && config) e = load_config(t, cfg);
    json_decref(root);
    json_decref(cfg);
    return e < 0 ? e : tok_finish(t);
}

/* Loads the whole file.  *rest becomes the file without its lists (buf_done). */
static int load_file(struct tok *t, const char *json, size_t n, const char *config, size_t n_config,
                     struct buf *rest)
{
    struct tok_lists lists;
    buf_init(rest, 0);
    if (n > TOK_MAX_FILE)
        return ERR(LIMIT, FILE_NAME ": %zu bytes, the limit is %zu", n, (size_t)TOK_MAX_FILE);
    TRY(tok_lists_find(json, n, &lists, rest));
    return load_text(t, rest->data, rest->len, &lists, config, n_config);
}

int tok_open_json(const char *json, size_t n, const char *config, size_t n_config, struct tok **out)
{
    struct tok *t = tok_new();
    struct buf rest;
    if (!t) return ERR_NOMEM;
    int e = load_file(t, json, n, config, n_config, &rest);
    buf_done(&rest);
    if (e < 0) {
        tok_close(t);
        return e;
    }
    *out = t;
    return 0;
}

int tok_open_compiled(const void *data, size_t n, struct tok **out)
{
    struct tok *t = tok_new();
    if (!t) return ERR_NOMEM;
    int e = compiled_take(t, data, n);
    if (e >= 0) e = load_text(t, t->rest.s, t->rest.n, NULL, NULL, 0);
    if (e < 0) {
        tok_close(t);
        return e;
    }
    *out = t;
    return 0;
}

static int read_optional(const char *dir, const char *name, size_t max, char **text, size_t *n)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return ERR(ARG, "%s/%s: the path has more than %zu bytes; move the model", dir, name,
                   sizeof path - 1);
    *text = NULL;
    int e = path_exists(path) ? file_read(path, max, text, n) : 0;
    return e == ERR_NOTFOUND ? 0 : e; /* the file was removed after the test */
}

/* Loads a JSON file, if it is there. */
static int load_optional(struct tok *t, const char *dir, const char *name, size_t max,
                         int (*load)(struct tok *t, const json_t *root))
{
    char *text;
    size_t n;
    json_t *root;
    TRY(read_optional(dir, name, max, &text, &n));
    if (!text) return 0;
    int e = json_parse(text, n, name, &root);
    mem_free(text);
    TRY(e);
    e = load(t, root);
    json_decref(root);
    return e;
}

static int load_beside(struct tok *t, const char *dir)
{
    char *text;
    size_t n;
    TRY(load_optional(t, dir, "special_tokens_map.json", 1u << 20, load_named));
    TRY(load_optional(t, dir, "chat_template.json", 8u << 20, load_template));
    TRY(read_optional(dir, "chat_template.jinja", 8u << 20, &text, &n));
    if (text) { /* this newer form has precedence over the configuration's */
        mem_free(t->chat_template);
        t->chat_template = text;
    }
    return 0;
}

/* Writes the stamp of a regular file.  False if there is none. */
static bool stamp_at(const char *path, struct stamp *out)
{
    struct stat st;
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode)) return false;
    *out = stamp_of(&st);
    return true;
}

/* Opens a tokenizer.json from tables of an earlier run, else from its text; the tables are then kept. */
static int open_kept(const char *dir, const char *config, size_t n_config, struct tok **out)
{
    char path[4096], *json = NULL;
    size_t n = 0;
    struct buf rest;
    struct tok_source source;
    struct stamp before, after;
    struct tok *t = tok_new();
    if (!t) return ERR_NOMEM;
    bool there = snprintf(path, sizeof path, "%s/" FILE_NAME, dir) < (int)sizeof path &&
                 stamp_at(path, &before);
    if (there) compiled_source(path, &before, &source);
    int found = there ? compiled_find(t, &source) : 0, e = found;
    if (found > 0) e = load_text(t, t->rest.s, t->rest.n, NULL, config, n_config);
    if (e < 0 && e != ERR_NOMEM) { /* the kept tables do not belong to this file */
        tok_close(t);
        found = e = 0;
        if (!(t = tok_new())) return ERR_NOMEM;
    }
    buf_init(&rest, 0);
    if (!found && e >= 0) e = read_optional(dir, FILE_NAME, TOK_MAX_FILE, &json, &n);
    if (!found && e >= 0 && !json)
        e = ERR(NOTFOUND, "%s: no tokenizer.json; kvik needs the \"fast\" tokenizer file", dir);
    if (!found && e >= 0) e = load_file(t, json, n, config, n_config, &rest);
    mem_free(json);
    if (!found && e >= 0 && there && stamp_at(path, &after) &&
        memcmp(&before, &after, sizeof before) == 0)
        compiled_keep(t, &source, rest.data, rest.len);
    buf_done(&rest);
    if (e < 0) {
        tok_close(t);
        return e;
    }
    *out = t;
    return 0;
}

int tok_open_dir(const char *dir, struct tok **out)
{
    char *config = NULL;
    size_t n_config = 0;
    struct tok *t = NULL;
    int e = read_optional(dir, "tokenizer_config.json", 16u << 20, &config, &n_config);
    if (e >= 0) e = open_kept(dir, config, n_config, &t);
    mem_free(config);
    if (e == ERR_NOTFOUND) return e;
    if (e >= 0) e = load_beside(t, dir);
    if (e >= 0) tok_resolve_named(t);
    if (e < 0) {
        tok_close(t);
        return err_prefix(e, "%s", dir);
    }
    *out = t;
    return 0;
}
