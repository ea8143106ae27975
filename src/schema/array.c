/* array.c - makes the basic of an array: the nodes of its items, and their least and greatest number. */
#include "schema/compile.h"

#include <string.h>

enum { PREFIX = 65536 };

/* Returns the schemas of the first items: prefixItems, or a list in `items` in drafts before 2020-12; NULL: none. */
static const json_t *prefix_of(const struct item *it)
{
    const json_t *v = keyword(it, "prefixItems"), *old = keyword(it, "items");
    return v ? v : json_is_array(old) ? old : NULL;
}

static const json_t *rest_of(const struct item *it)
{
    const json_t *v = keyword(it, "items");
    return json_is_array(v) ? keyword(it, "additionalItems") : v;
}

/* Adds to `list` what an atom demands of item i; UINT32_MAX stands for the items behind all prefixes. */
static int add_item(struct compiler *c, const struct item *it, uint32_t i, struct items *list)
{
    if (it->role == ROLE_VALUE) {
        const json_t *v = json_array_get(it->v, i);
        return items_put(
            list, v ? (struct item){.v = v, .path = it->path, .role = ROLE_VALUE}
                    : (struct item){.v = json_false(), .path = it->path, .role = ROLE_SCHEMA});
    }
    const json_t *prefix = prefix_of(it), *rest = rest_of(it);
    bool first = i < json_array_size(prefix);
    const json_t *v = first ? json_array_get(prefix, i) : rest;
    if (!v) return 0;
    const char *path =
        first ? path_at(c, it->path, "prefixItems", i) : path_below(c, it->path, "items");
    return path ? items_put(list, (struct item){.v = v, .path = path, .role = ROLE_SCHEMA})
                : ERR_NOMEM;
}

static int item_node(struct compiler *c, const struct items *atoms, uint32_t i, uint32_t *out)
{
    struct items list = {0};
    int e = 0;
    for (uint32_t k = 0; e >= 0 && k < atoms->n; k++)
        e = add_item(c, &atoms->v[k], i, &list);
    if (e >= 0) return node_of(c, &list, out);
    items_done(&list);
    return e;
}

int make_array(struct compiler *c, const struct items *atoms, struct basic *b)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < atoms->n; i++) {
        const struct item *it = &atoms->v[i];
        uint32_t size = (uint32_t)json_array_size(it->v);
        TRY(narrow_counts(c, it, "minItems", "maxItems", &b->min, &b->max));
        if (it->role == ROLE_VALUE) {
            b->min = MAX(b->min, size);
            b->max = MIN(b->max, size);
        }
        longest = MAX(longest, json_array_size(it->role == ROLE_VALUE ? it->v : prefix_of(it)));
    }
    if (longest > PREFIX)
        return ERR(LIMIT, "%s: an array with %zu different items; at most %d are possible", c->what,
                   longest, PREFIX);
    b->prefix = mem_array(MAX(longest, 1), sizeof *b->prefix);
    if (!b->prefix) return ERR_NOMEM;
    for (b->n_prefix = 0; b->n_prefix < longest; b->n_prefix++)
        TRY(item_node(c, atoms, b->n_prefix, &b->prefix[b->n_prefix]));
    return item_node(c, atoms, UINT32_MAX, &b->items);
}
