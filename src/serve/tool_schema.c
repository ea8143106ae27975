/* tool_schema.c - the JSON schema of a demanded call; see tool_schema.h.
 *
 * JSON Schema lets an object have further properties unless additionalProperties is false, and most tools leave that
 * keyword out.  A model that may invent properties often does, and the tool has no use for them.  So an object of a
 * tool's parameters gets additionalProperties false if the schema says nothing about it.  Every call is then still
 * valid under the tool's own schema.  That is certain only where a schema alone decides about its object, or where the
 * others only require some of its properties.  Where several schemas decide together (allOf, oneOf, if and others), or
 * where a keyword needs properties without a name in the schema, the object stays as it is. */
#include "serve/tool_schema.h"

#include <string.h>

/* Keywords whose values are no schemas, and keywords whose values are maps from names to schemas. */
static const char *const data[] = {"const", "enum", "default", "examples"}, *const maps[] = {
                                                                                "properties",
                                                                                "patternProperties",
                                                                                "$defs",
                                                                                "definitions",
                                                                                "dependentSchemas"};

static bool is_one_of(const char *key, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, names[i])) return true;
    return false;
}

/* Lets the references of a schema lead to the place `where` it stands inside another one: "#/$defs/a" becomes
 * "#/properties/arguments/$defs/a".  names: the keys of v are names that the schema's author chose. */
static int move_refs(json_t *v, const char *where, bool names)
{
    const char *key;
    json_t *one;
    size_t i;
    json_array_foreach(v, i, one)
    {
        TRY(move_refs(one, where, false));
    }
    json_object_foreach(v, key, one)
    {
        const char *ref = json_string_value(one);
        if (!names && ref && *ref == '#' && !strcmp(key, "$ref")) {
            json_t *moved = json_pack("s++", where, ref + 1, "");
            if (!moved || json_object_set_new(v, key, moved) < 0)
                return ERR(NOMEM, "out of memory");
        } else if (names || !is_one_of(key, data, countof(data)))
            TRY(move_refs(one, where, !names && is_one_of(key, maps, countof(maps))));
    }
    return 0;
}

static bool has_any(const json_t *v, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_object_get(v, keys[i])) return true;
    return false;
}

/* True if all names of a list are those of properties. */
static bool names_known(const json_t *required, const json_t *properties)
{
    const json_t *name;
    size_t i;
    json_array_foreach(required, i, name)
    {
        const char *key = json_string_value(name);
        if (!key || !json_object_get(properties, key)) return false;
    }
    return true;
}

/* True if the object has properties that the schema names, and needs no others. */
static bool names_all(const json_t *v)
{
    static const char *const others[] = {"additionalProperties", "minProperties",
                                         "dependentRequired"};
    const json_t *properties = json_object_get(v, "properties");
    return json_is_object(properties) && !has_any(v, others, countof(others)) &&
           names_known(json_object_get(v, "required"), properties);
}

/* True if the branches of a keyword, anyOf or oneOf, say nothing but which of the object's properties are required. */
static bool only_requires(const json_t *v, const char *keyword)
{
    static const char *const silent[] = {"title", "description", "$comment"};
    const json_t *properties = json_object_get(v, "properties"), *branch;
    const char *key;
    json_t *said;
    size_t i;
    json_array_foreach(json_object_get(v, keyword), i, branch)
    {
        if (!json_is_object(branch) ||
            !names_known(json_object_get(branch, "required"), properties))
            return false;
        json_object_foreach((json_t *)(uintptr_t)branch, key, said)
        {
            if (strcmp(key, "required") != 0 && !is_one_of(key, silent, countof(silent)))
                return false;
        }
    }
    return json_is_object(properties);
}

static size_t close_objects(json_t *v, bool change);

static size_t close_members(json_t *map, bool change)
{
    size_t refs = 0;
    const char *key;
    json_t *one;
    json_object_foreach(map, key, one)
    {
        refs += close_objects(one, change);
    }
    return refs;
}

/* Visits the schemas that alone decide about their values, from v on, and closes their objects (if `change`).
 * Returns how many references it has met. */
static size_t close_objects(json_t *v, bool change)
{
    static const char *const together[] = {"const",
                                           "enum",
                                           "allOf",
                                           "not",
                                           "if",
                                           "contains",
                                           "dependencies",
                                           "$dynamicRef",
                                           "patternProperties",
                                           "propertyNames",
                                           "dependentSchemas",
                                           "unevaluatedItems",
                                           "unevaluatedProperties"};
    static const char *const own[] = {"$ref",     "properties",    "additionalProperties",
                                      "required", "minProperties", "dependentRequired",
                                      "items",    "prefixItems",   "additionalItems"};
    static const char *const inner[] = {"properties", "$defs", "definitions"},
                             *const lists[] = {"anyOf", "prefixItems", "items"},
                             *const single[] = {"items", "additionalProperties"};
    json_t *one;
    size_t refs = 0, i;
    if (!json_is_object(v) || has_any(v, together, countof(together)) ||
        (json_object_get(v, "oneOf") && !only_requires(v, "oneOf")) ||
        (json_object_get(v, "anyOf") && has_any(v, own, countof(own)) &&
         !only_requires(v, "anyOf")) ||
        (json_object_get(v, "$ref") && has_any(v, own + 1, countof(own) - 1)))
        return 0;
    refs += json_is_string(json_object_get(v, "$ref"));
    for (size_t k = 0; k < countof(inner); k++)
        refs += close_members(json_object_get(v, inner[k]), change);
    for (size_t k = 0; k < countof(lists); k++)
        json_array_foreach(json_object_get(v, lists[k]), i, one)
        {
            refs += close_objects(one, change);
        }
    for (size_t k = 0; k < countof(single); k++)
        refs += close_objects(json_object_get(v, single[k]), change);
    if (change && names_all(v)) json_object_set_new(v, "additionalProperties", json_false());
    return refs;
}

/* Counts the references of a schema.  names: the keys of v are names that the schema's author chose. */
static size_t count_refs(const json_t *v, bool names)
{
    const char *key;
    json_t *one;
    size_t refs = 0, i;
    json_array_foreach(v, i, one)
    {
        refs += count_refs(one, false);
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, one)
    {
        if (!names && json_is_string(one) && !strcmp(key, "$ref"))
            refs++;
        else if (names || !is_one_of(key, data, countof(data)))
            refs += count_refs(one, !names && is_one_of(key, maps, countof(maps)));
    }
    return refs;
}

/* A reference from a place where several schemas decide together could
 * lead to an object that is closed, so then all objects stay as they are. */
void tool_schema_close(json_t *schema)
{
    if (close_objects(schema, false) == count_refs(schema, false))
        (void)close_objects(schema, true);
}

int tool_call_settle(json_t *call, const char *arguments, bool alone, size_t i)
{
    char where[64];
    json_t *properties = json_object_get(call, "properties"),
           *own = json_deep_copy(json_object_get(properties, arguments));
    if (alone)
        snprintf(where, sizeof where, "#/properties/%s", arguments);
    else
        snprintf(where, sizeof where, "#/anyOf/%zu/properties/%s", i, arguments);
    json_object_del(own, "$id"); /* the whole is not what it names */
    tool_schema_close(own);
    int e = own ? move_refs(own, where, false) : ERR(NOMEM, "out of memory");
    if (e >= 0 && json_object_set_new(properties, arguments, own) < 0) return ERR_NOMEM;
    if (e < 0) json_decref(own);
    return e;
}

json_t *tool_call_schema(const json_t *tool, const char *arguments)
{
    const json_t *f = json_object_get(tool, "function"), *name, *parameters;
    f = f ? f : tool;
    name = json_object_get(f, "name");
    parameters = json_object_get(f, "parameters");
    if (!json_is_string(name)) return NULL;
    /* A tool without parameters takes none. */
    json_t *values = json_is_object(parameters)
                         ? json_incref((json_t *)(uintptr_t)parameters)
                         : json_pack("{s:s, s:{}}", "type", "object", "properties");
    return json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s, s], s:b}", "type", "object", "properties",
                     "name", "const", name, arguments, values, "required", "name", arguments,
                     "additionalProperties", 0);
}
