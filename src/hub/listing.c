/* listing.c - reads the JSON of the hub.  If a path, a hash or a size cannot be right, the whole answer is refused,
 * because its server is broken or hostile. */
#include "hub/listing.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MOST ((json_int_t)1 << 50)

/* Parses an answer.  An HTML page, which a proxy or a sign-in page sends, gets an error of its own. */
static int parse_list(const char *text, size_t n, const char *what, json_t **out)
{
    size_t at = 0;
    while (at < n && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    if (at < n && text[at] == '<')
        return ERR(FORMAT,
                   "%s is a page of HTML, and not JSON: something between here and the hub "
                   "(a proxy, a sign-in page) answers in its place",
                   what);
    return json_parse(text, n, what, out);
}

static bool is_hex(const char *s, size_t n)
{
    return s && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

/* Reads the hash and the size of a file. */
static int read_contents(const json_t *o, struct listed *f)
{
    const json_t *lfs = json_object_get(o, "lfs"), *size = json_object_get(o, "size");
    f->large = json_is_object(lfs);
    const char *sha = json_string_value(json_object_get(f->large ? lfs : o, "oid"));
    if (!is_hex(sha, f->large ? 64 : 40))
        return ERR(FORMAT, "the hub's list of files: %.200s has no %s of %d hex digits", f->path,
                   f->large ? "SHA-256" : "git hash", f->large ? 64 : 40);
    memcpy(f->blob, sha, strlen(sha) + 1);
    if (!json_is_integer(size) || json_integer_value(size) < 0 ||
        json_integer_value(size) > SIZE_MOST)
        return ERR(FORMAT, "the hub's list of files: %.200s has no size that a file can have",
                   f->path);
    f->size = (uint64_t)json_integer_value(size);
    const json_t *again = json_object_get(lfs, "size");
    if (f->large && again &&
        (!json_is_integer(again) || (uint64_t)json_integer_value(again) != f->size))
        return ERR(FORMAT, "the hub's list of files: %.200s has two sizes", f->path);
    return 0;
}

static int add_file(struct listing *l, const json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));
    const json_t *path = json_object_get(o, "path");
    const char *s = json_string_value(path);
    if (!type || !s || strlen(s) != json_string_length(path) || !hub_is_path(s))
        return ERR(FORMAT,
                   "the hub's list of files has %s%.200s%s, which no file here may be named",
                   s ? "\"" : "an entry without a path", s ? s : "", s ? "\"" : "");
    if (!strcmp(type, "directory")) return 0;
    if (strcmp(type, "file") != 0)
        return ERR(FORMAT, "the hub's list of files: %.200s is neither a file nor a directory", s);
    if (l->n == LISTING_MOST) return ERR(LIMIT, "the repository has over %d files", LISTING_MOST);
    if (!(l->n & (l->n - 1))) { /* the array is full at every power of two */
        struct listed *grown = mem_grow(l->file, MAX(2 * l->n, 1), sizeof *grown);
        if (!grown) return ERR_NOMEM;
        l->file = grown;
    }
    struct listed f = {.path = mem_strdup(s)};
    if (!f.path) return ERR_NOMEM;
    int e = read_contents(o, &f);
    if (e < 0) {
        mem_free(f.path);
        return e;
    }
    l->file[l->n++] = f;
    return 0;
}

int listing_add(struct listing *l, const char *text, size_t n)
{
    json_t *list = NULL, *o;
    size_t i;
    int e = 0;
    TRY(parse_list(text, n, "the hub's list of files", &list));
    if (!json_is_array(list)) e = ERR(FORMAT, "the hub's list of files is no list");
    if (e >= 0) json_array_foreach(list, i, o) if (e >= 0) e = add_file(l, o);
    json_decref(list);
    return e;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct listed *)a)->path, ((const struct listed *)b)->path);
}

int listing_end(struct listing *l)
{
    json_int_t sum = 0;
    /* bounds the sum, so that later sums of sizes cannot overflow */
    for (size_t i = 0; i < l->n; i++)
        if ((sum += (json_int_t)l->file[i].size) > SIZE_MOST)
            return ERR(FORMAT, "the hub's list of files: together they have over a million GB");
    if (l->n) qsort(l->file, l->n, sizeof *l->file, by_path);
    for (size_t i = 1; i < l->n; i++)
        if (!strcmp(l->file[i - 1].path, l->file[i].path))
            return ERR(FORMAT, "the hub's list of files has %.200s twice", l->file[i].path);
    return 0;
}

void listing_done(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->file[i].path);
    mem_free(l->file);
    *l = (struct listing){0};
}

struct listed *listing_find(const struct listing *l, const char *path)
{
    struct listed key = {.path = (char *)(uintptr_t)path};
    return l->n ? bsearch(&key, l->file, l->n, sizeof key, by_path) : NULL;
}

int listing_commit(const char *text, size_t n, char commit[HUB_COMMIT])
{
    json_t *o = NULL;
    TRY(parse_list(text, n, "the hub's answer about the revision", &o));
    const char *sha = json_string_value(json_object_get(o, "sha"));
    bool good = is_hex(sha, 40);
    if (good) memcpy(commit, sha, HUB_COMMIT);
    json_decref(o);
    return good ? 0
                : ERR(FORMAT,
                      "the hub's answer about the revision has no commit of 40 hex digits (sha)");
}

int listing_refs(const char *text, size_t n, char *out, size_t room)
{
    static const char *const kind[] = {"branches", "tags"};
    json_t *all = NULL, *o;
    size_t i, at = 0;
    *out = 0;
    TRY(parse_list(text, n, "the hub's list of branches", &all));
    for (size_t k = 0; k < countof(kind); k++)
        json_array_foreach(json_object_get(all, kind[k]), i, o)
        {
            const char *name = json_string_value(json_object_get(o, "name"));
            if (!name || !hub_is_path(name) || at + strlen(name) + 3 > room) continue;
            at += (size_t)snprintf(out + at, room - at, "%s%s", at ? ", " : "", name);
        }
    json_decref(all);
    return 0;
}
