/* compile.c - makes the nodes of a schema, beginning with the root, until every node that is referred to exists.
 * Equal conjunctions are one node, so recursion in a schema ends. */
#include "schema/compile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 1 << 16, BASICS = 1 << 17, PATHS = 1 << 20 };

bool same_item(const struct item *a, const struct item *b)
{
    if (a->v != b->v || a->role != b->role || !a->key != !b->key) return false;
    return !a->key || !strcmp(a->key, b->key);
}

int items_put(struct items *list, struct item it)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (same_item(&list->v[i], &it)) return 0;
    if (list->n == list->cap) {
        uint32_t cap = list->cap ? list->cap * 2 : 4;
        struct item *v = mem_grow(list->v, cap, sizeof *v);
        if (!v) return ERR_NOMEM;
        list->v = v;
        list->cap = cap;
    }
    list->v[list->n++] = it;
    return 0;
}

void items_done(struct items *list)
{
    mem_free(list->v);
    *list = (struct items){0};
}

static const char *keep_path(struct compiler *c, struct buf *b)
{
    char *text = buf_take(b);
    if (!text) return NULL;
    if (c->n_path == c->cap_path) {
        size_t cap = c->cap_path ? c->cap_path * 2 : 64;
        char **path = c->n_path < PATHS ? mem_grow(c->path, cap, sizeof *path) : NULL;
        if (!path) {
            if (c->n_path >= PATHS)
                (void)ERR(LIMIT, "%s: the schema has more parts than the limit of %d", c->what,
                          PATHS);
            mem_free(text);
            return NULL;
        }
        c->path = path;
        c->cap_path = cap;
    }
    return c->path[c->n_path++] = text;
}

const char *path_below(struct compiler *c, const char *parent, const char *key)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    /* in deep schemas the end of a path tells more than its beginning */
    int e = buf_printf(&b, "%.300s/%.80s", parent, key);
    if (e >= 0) return keep_path(c, &b);
    buf_done(&b);
    return NULL;
}

const char *path_at(struct compiler *c, const char *parent, const char *key, size_t i)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    int e = buf_printf(&b, "%.300s/%.80s/%zu", parent, key, i);
    if (e >= 0) return keep_path(c, &b);
    buf_done(&b);
    return NULL;
}

int bad_keyword(const struct compiler *c, int code, const char *path, const char *keyword,
                const char *why, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, why);
    vsnprintf(text, sizeof text, why, ap);
    va_end(ap);
    return err_set(code, "%s: %s: %s %s", c->what, path, keyword, text);
}

static int by_item(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->v != y->v) return (uintptr_t)x->v < (uintptr_t)y->v ? -1 : 1;
    if (x->role != y->role) return (int)x->role - (int)y->role;
    return strcmp(x->key ? x->key : "", y->key ? y->key : "");
}

static uint32_t hash_items(const struct items *l)
{
    uint64_t h = l->n;
    for (uint32_t i = 0; i < l->n; i++) {
        h = (h ^ (uintptr_t)l->v[i].v ^ l->v[i].role) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool same_items(const struct items *a, const struct items *b)
{
    if (a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!same_item(&a->v[i], &b->v[i])) return false;
    return true;
}

static int grow_nodes(struct compiler *c)
{
    struct schema *s = c->s;
    uint32_t cap = s->cap_node ? s->cap_node * 2 : 64;
    if (s->n_node >= NODES)
        return ERR(LIMIT, "%s: the schema has more than %d parts", c->what, NODES);
    struct value_node *node = mem_grow(s->node, cap, sizeof *node);
    if (!node) return ERR_NOMEM;
    s->node = node;
    struct items *conj = mem_grow(c->conj, cap, sizeof *conj);
    if (!conj) return ERR_NOMEM;
    c->conj = conj;
    s->cap_node = cap;
    TRY(places_clear(&c->places, cap));
    for (uint32_t i = 0; i < s->n_node; i++)
        places_add(&c->places, hash_items(&conj[i]), i);
    return 0;
}

int node_of(struct compiler *c, struct items *list, uint32_t *out)
{
    struct schema *s = c->s;
    int e = s->n_node == s->cap_node ? grow_nodes(c) : 0;
    if (e < 0) {
        items_done(list);
        return e;
    }
    if (list->n) qsort(list->v, list->n, sizeof *list->v, by_item);
    const struct places *p = &c->places;
    uint32_t at = hash_items(list) & p->mask;
    for (; p->entry[at]; at = (at + 1) & p->mask)
        if (same_items(&c->conj[p->entry[at] - 1], list)) {
            *out = p->entry[at] - 1;
            items_done(list);
            return 0;
        }
    s->node[s->n_node] = (struct value_node){0};
    c->conj[s->n_node] = *list;
    *list = (struct items){0};
    *out = s->n_node++;
    p->entry[at] = s->n_node;
    return 0;
}

static void compiler_done(struct compiler *c)
{
    for (uint32_t i = 0; c->conj && i < c->s->n_node; i++)
        items_done(&c->conj[i]);
    for (size_t i = 0; i < c->n_path; i++)
        mem_free(c->path[i]);
    void *own[] = {c->conj, c->places.entry, c->path, c->apart};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
}

/* Checks that branches of oneOf exclude each other: no value may be valid under two of them. */
static int check_apart(const struct compiler *c)
{
    for (uint32_t i = 0; i < c->n_apart; i++)
        if (c->s->node[c->apart[i].node].live)
            return bad_keyword(
                c, ERR_UNSUPPORTED, c->apart[i].path, "oneOf",
                "is supported where no value fits two of its branches; these may meet: use anyOf");
    return 0;
}

/* Removes nodes without values.  An object whose minProperties is not supported is an error that names its place. */
static int settle_schema(const struct compiler *c)
{
    uint32_t bad = 0, i = 0;
    int e = schema_settle(c->s, &bad);
    if (e != ERR_UNSUPPORTED) return e;
    while (bad - c->s->node[i].first >= c->s->node[i].n)
        i++;
    return bad_keyword(c, e, c->conj[i].n ? c->conj[i].v[0].path : "#", "minProperties",
                       "above 1, beside names that properties does not list, is not supported");
}

static int compile_all(struct compiler *c, const json_t *json)
{
    struct items list = {0};
    const json_t *version = json_object_get(json, "$schema");
    c->old = json_is_string(version) && strstr(json_string_value(version), "draft-0");
    TRY(items_put(&list, (struct item){.v = json, .path = "#"}));
    TRY(node_of(c, &list, &c->s->root));
    for (uint32_t i = 0; i < c->s->n_node; i++) {
        TRY(expand_node(c, i));
        if (c->s->n_basic > BASICS)
            return ERR(LIMIT, "%s: the schema has %u alternatives, the limit is %d", c->what,
                       c->s->n_basic, BASICS);
    }
    TRY(settle_schema(c));
    TRY(check_apart(c));
    if (!c->s->node[c->s->root].live)
        return ERR(ARG, "%s: no value is valid under this schema", c->what);
    return 0;
}

static int compile_root(const json_t *json, const char *what, bool exact, struct schema **out)
{
    struct compiler c = {.root = json, .what = what, .exact = exact};
    dfa_budget();
    if (!(c.s = mem_alloc(sizeof *c.s))) return ERR_NOMEM;
    int e = compile_all(&c, json);
    compiler_done(&c);
    if (e < 0)
        schema_free(c.s);
    else
        *out = c.s;
    return e;
}

int schema_compile(const json_t *json, const char *what, struct schema **out)
{
    char said[1024];
    int e = compile_root(json, what, false, out);
    if (e != ERR_UNSUPPORTED || !strstr(err_last(), "oneOf is supported")) return e;
    snprintf(said, sizeof said, "%s", err_last());
    int exact = compile_root(json, what, true, out);
    if (exact != ERR_UNSUPPORTED) return exact;
    return err_set(e, "%s", said);
}

int schema_compile_text(const char *text, const char *what, struct schema **out)
{
    json_t *json = NULL;
    if (!strcmp(text, "json_object")) text = "{\"type\": \"object\"}";
    TRY(json_parse(text, strlen(text), what, &json));
    int e = schema_compile(json, what, out);
    json_decref(json);
    return e;
}

void schema_free(struct schema *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->n_basic; i++) {
        struct basic *b = &s->basic[i];
        dfa_drop(b->dfa);
        void *own[] = {b->prefix, b->value, b->required, b->usable, b->reach, b->open};
        for (size_t k = 0; k < countof(own); k++)
            mem_free(own[k]);
    }
    mem_free(s->basic);
    mem_free(s->node);
    mem_free(s->text);
    mem_free(s);
}
