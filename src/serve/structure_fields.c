/* structure_fields.c - demands of the answer: JSON, JSON of a schema, or a call of a tool. */
#include "serve/protocol.h"

#include <string.h>

int ask_schema(struct ask *k, json_t *schema)
{
    k->constrained = true;
    return ask_set(k, "json_schema", schema);
}

int ask_format(struct ask *k, const json_t *format, const char *field)
{
    const json_t *schema = json_object_get(format, "json_schema");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!format || json_is_null(format) || (type && !strcmp(type, "text"))) return 0;
    if (type && !strcmp(type, "json_object") && !json_object_get(format, "schema"))
        return ask_schema(k, json_string("json_object"));
    if (!type || (strcmp(type, "json_schema") != 0 && strcmp(type, "json_object") != 0))
        return ERR(UNSUPPORTED,
                   "field \"%s\": types are \"text\", \"json_object\" and \"json_schema\"", field);
    schema = json_object_get(schema ? schema : format, "schema"); /* in an object, or beside type */
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return ERR(ARG, "field \"%s\" has no schema", field);
    return ask_schema(k, json_incref((json_t *)(uintptr_t)schema));
}

/* --- Calls that are demanded. */

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
    static const char *const data[] = {"const", "enum", "default", "examples"},
                             *const maps[] = {"properties", "patternProperties", "$defs",
                                              "definitions", "dependentSchemas"};
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

/* The schema of a call stands alone, or is number i of several.  Its parameters may refer to parts of themselves. */
static int root_refs(json_t *call, const char *arguments, bool alone, size_t i)
{
    char where[64];
    json_t *properties = json_object_get(call, "properties"),
           *own = json_deep_copy(json_object_get(properties, arguments));
    if (alone)
        snprintf(where, sizeof where, "#/properties/%s", arguments);
    else
        snprintf(where, sizeof where, "#/anyOf/%zu/properties/%s", i, arguments);
    json_object_del(own, "$id"); /* the whole is not what it names */
    int e = own ? move_refs(own, where, false) : ERR(NOMEM, "out of memory");
    if (e >= 0 && json_object_set_new(properties, arguments, own) < 0) return ERR_NOMEM;
    if (e < 0) json_decref(own);
    return e;
}

/* The schema of a call of one tool; `arguments` is what the model calls them. */
static json_t *call_schema(const json_t *tool, const char *arguments)
{
    const json_t *f = json_object_get(tool, "function"), *name, *parameters;
    f = f ? f : tool;
    name = json_object_get(f, "name");
    parameters = json_object_get(f, "parameters");
    if (!json_is_string(name)) return NULL;
    json_t *values = json_is_object(parameters) ? json_incref((json_t *)(uintptr_t)parameters)
                                                : json_pack("{s:s}", "type", "object");
    return json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s, s], s:b}", "type", "object", "properties",
                     "name", "const", name, arguments, values, "required", "name", arguments,
                     "additionalProperties", 0);
}

static const char *function_name(const json_t *tool)
{
    const json_t *f = json_object_get(tool, "function");
    return json_string_value(json_object_get(f ? f : tool, "name"));
}

int ask_choice(struct ask *k, const struct server *s, const json_t *body)
{
    const json_t *choice = json_object_get(body, "tool_choice"), *tools = ask_tools(k), *tool;
    const char *word = json_string_value(choice),
               *named = json_is_object(choice) ? function_name(choice) : NULL;
    bool llama = s->dialect.dialect && s->dialect.dialect->bare;
    size_t i;
    if (!choice || json_is_null(choice) ||
        (word && (!strcmp(word, "auto") || !strcmp(word, "none"))))
        return 0;
    if (!named && !(word && !strcmp(word, "required")))
        return ERR(
            ARG,
            "field \"tool_choice\" must be \"auto\", \"none\", \"required\" or a function by name");
    json_t *any = json_array();
    json_array_foreach(tools, i, tool)
    {
        const char *own = function_name(tool);
        json_t *schema = !named || (own && !strcmp(own, named))
                             ? call_schema(tool, llama ? "parameters" : "arguments")
                             : NULL;
        if (schema) json_array_append_new(any, schema);
    }
    if (!json_array_size(any)) {
        json_decref(any);
        return ERR(ARG, "field \"tool_choice\": there is no tool %s", named ? named : "at all");
    }
    int e = 0;
    json_t *call;
    json_array_foreach(any, i, call)
    {
        if (e >= 0)
            e = root_refs(call, llama ? "parameters" : "arguments", json_array_size(any) == 1, i);
    }
    if (e < 0) {
        json_decref(any);
        return e;
    }
    k->demanded = true;
    if (json_array_size(any) > 1) return ask_schema(k, json_pack("{s:o}", "anyOf", any));
    json_t *one = json_incref(json_array_get(any, 0));
    json_decref(any);
    return ask_schema(k, one);
}
