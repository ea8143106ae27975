/* against.c - the opposite of a schema, for `not`: the values that are not valid under it.  Such a value breaks at
 * least one keyword of the schema, so each keyword gives one alternative.  Some keywords have an opposite that
 * this version cannot express, such as "at least one item is not valid".  They are refused by name. */
#include "schema/compile.h"

#include <stdio.h>

typedef int (*brancher)(struct compiler *c, const void *x, const struct item *it, size_t n);

static const struct {
    const char *name;
    unsigned types;
} opposite[] = {
    {"minLength", T_STRING},
    {"maxLength", T_STRING},
    {"pattern", T_STRING},
    {"format", T_STRING},
    {"minimum", T_INT | T_FRACTION},
    {"maximum", T_INT | T_FRACTION},
    {"exclusiveMinimum", T_INT | T_FRACTION},
    {"exclusiveMaximum", T_INT | T_FRACTION},
    {"multipleOf", T_INT | T_FRACTION},
    {"minItems", T_ARRAY},
    {"maxItems", T_ARRAY},
    {"minProperties", T_OBJECT},
    {"maxProperties", T_OBJECT},
};
static const char *const beyond[] = {
    "items",           "prefixItems",       "additionalItems", "additionalProperties",
    "propertyNames",   "patternProperties", "dependencies",    "dependentRequired",
    "dependentSchemas"};

unsigned types_against(const struct compiler *c, const struct item *it)
{
    unsigned named = 0;
    if (it->role == ROLE_LACKS || it->role == ROLE_HAS_NOT) return T_OBJECT;
    if (it->role != ROLE_AGAINST) return T_ALL;
    struct item whole = {.v = it->v, .path = it->path, .role = ROLE_SCHEMA};
    if (!strcmp(it->key, "type")) return types_named(c, &whole, &named) < 0 ? 0 : T_ALL & ~named;
    for (size_t i = 0; i < countof(opposite); i++)
        if (!strcmp(it->key, opposite[i].name)) return opposite[i].types;
    return T_ALL;
}

bool forbidden(const struct item *it, struct item *list)
{
    const json_t *some = against(it, "enum"), *one = against(it, "const");
    *list = (struct item){
        .v = some ? some : one, .path = it->path, .role = some ? ROLE_SCALARS : ROLE_VALUE};
    return list->v != NULL;
}

static int each_opposite(struct compiler *c, const struct item *it, const char *name,
                         brancher branch, const void *x)
{
    const json_t *v = json_object_get(it->v, name);
    for (size_t i = 0; i < json_array_size(v); i++) {
        struct item one = {.v = json_array_get(v, i), .path = it->path, .role = ROLE_NOT};
        TRY(branch(c, x, &one, 1));
    }
    return 0;
}

/* Makes the opposite of a list: no branch of it is valid.  For oneOf, a value that is valid under two branches is
 * another alternative. */
static int none(struct compiler *c, const struct item *it, const char *name, bool one,
                brancher branch, const void *x)
{
    const json_t *v = json_object_get(it->v, name);
    struct item part[64];
    size_t n = json_array_size(v);
    if (!v) return 0;
    if (n > countof(part))
        return bad_keyword(c, ERR_LIMIT, it->path, name,
                           "in not has %zu branches; at most 64 are possible", n);
    for (size_t i = 0; i < n; i++)
        part[i] = (struct item){.v = json_array_get(v, i), .path = it->path, .role = ROLE_NOT};
    TRY(branch(c, x, part, n));
    for (size_t i = 0; one && i < n; i++)
        for (size_t k = 0; k < i; k++) {
            struct item two[2] = {part[i], part[k]};
            two[0].role = two[1].role = ROLE_SCHEMA;
            TRY(branch(c, x, two, 2));
        }
    return 0;
}

static int conditions(struct compiler *c, const struct item *it, brancher branch, const void *x)
{
    static const char *const name[] = {"then", "else"};
    const json_t *v = json_object_get(it->v, "if");
    for (int i = 0; v && i < 2; i++) {
        struct item two[2] = {
            {.v = v, .path = it->path, .role = i ? ROLE_NOT : ROLE_SCHEMA},
            {.v = json_object_get(it->v, name[i]), .path = it->path, .role = ROLE_NOT}};
        if (two[1].v) TRY(branch(c, x, two, 2));
    }
    v = json_object_get(it->v, "not");
    struct item inner = {.v = v, .path = it->path, .role = ROLE_SCHEMA};
    return v ? branch(c, x, &inner, 1) : 0;
}

static int members(struct compiler *c, const struct item *it, brancher branch, const void *x)
{
    const json_t *v = json_object_get(it->v, "required");
    const char *key;
    json_t *e;
    for (size_t i = 0; i < json_array_size(v); i++) {
        struct item one = {.v = it->v,
                           .path = it->path,
                           .role = ROLE_LACKS,
                           .key = json_string_value(json_array_get(v, i))};
        TRY(branch(c, x, &one, 1));
    }
    json_object_foreach(json_object_get(it->v, "properties"), key, e)
    {
        struct item one = {.v = e, .path = it->path, .role = ROLE_HAS_NOT, .key = key};
        if (!json_is_true(e)) TRY(branch(c, x, &one, 1));
    }
    return 0;
}

/* Makes the opposite of enum or const: a value that is not in the list.  Lists with arrays or objects have no
 * opposite here. */
static int values(struct compiler *c, const struct item *it, const char *name, brancher branch,
                  const void *x)
{
    struct item list, one = {.v = it->v, .path = it->path, .role = ROLE_AGAINST, .key = name};
    if (!json_object_get(it->v, name)) return 0;
    (void)forbidden(&one, &list);
    for (size_t i = 0; i < n_scalars(&list); i++)
        if (json_is_array(scalar(&list, i)) || json_is_object(scalar(&list, i)))
            return bad_keyword(c, ERR_UNSUPPORTED, it->path, name,
                               "with an array or an object is not supported in not");
    return branch(c, x, &one, 1);
}

int expand_not(struct compiler *c, const struct item *it, brancher branch, const void *x)
{
    const json_t *ref = json_object_get(it->v, "$ref");
    struct item one = {.v = it->v, .path = it->path, .role = ROLE_AGAINST};
    if (json_is_string(ref)) {
        struct item target;
        TRY(resolve_ref(c, it, json_string_value(ref), &target));
        target.role = ROLE_NOT;
        TRY(branch(c, x, &target, 1));
        if (c->old) return 0;
    }
    TRY(check_keywords(c, it));
    for (size_t i = 0; i < countof(beyond); i++) {
        const json_t *v = json_object_get(it->v, beyond[i]);
        if (v && !json_is_true(v))
            return bad_keyword(c, ERR_UNSUPPORTED, it->path, beyond[i], "is not supported in not");
    }
    TRY(each_opposite(c, it, "allOf", branch, x));
    TRY(none(c, it, "anyOf", false, branch, x));
    TRY(none(c, it, "oneOf", true, branch, x));
    TRY(conditions(c, it, branch, x));
    TRY(members(c, it, branch, x));
    TRY(values(c, it, "enum", branch, x));
    TRY(values(c, it, "const", branch, x));
    one.key = "type";
    if (json_object_get(it->v, "type")) TRY(branch(c, x, &one, 1));
    for (size_t i = 0; i < countof(opposite); i++) {
        one.key = opposite[i].name;
        if (json_is_boolean(json_object_get(it->v, one.key)))
            return bad_keyword(c, ERR_UNSUPPORTED, it->path, one.key,
                               "of draft 4 is not supported in not");
        if (json_object_get(it->v, one.key)) TRY(branch(c, x, &one, 1));
    }
    return 0;
}
