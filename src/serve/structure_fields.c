/* structure_fields.c - demands of the answer: JSON, JSON of a schema, or a call of a tool. */
#include "serve/protocol.h"
#include "serve/tool_schema.h"

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
                   "field \"%s\": types are \"text\", \"json_object\" and \"json_schema\", not %s",
                   field, JSON_QUOTE(json_object_get(format, "type")));
    schema = json_object_get(schema ? schema : format, "schema"); /* in an object, or beside type */
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return ERR(ARG, "field \"%s\" must have a schema, which is an object or a boolean, not %s",
                   field, JSON_QUOTE(schema));
    return ask_schema(k, json_incref((json_t *)(uintptr_t)schema));
}

/* --- Calls that are demanded. */

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
            "field \"tool_choice\" must be \"auto\", \"none\", \"required\" or a function by name, not %s",
            JSON_QUOTE(choice));
    json_t *any = json_array();
    json_array_foreach(tools, i, tool)
    {
        const char *own = function_name(tool);
        json_t *schema = !named || (own && !strcmp(own, named))
                             ? tool_call_schema(tool, llama ? "parameters" : "arguments")
                             : NULL;
        if (schema) json_array_append_new(any, schema);
    }
    if (!json_array_size(any)) {
        json_decref(any);
        return ERR(ARG, "field \"tool_choice\": there is no tool %.80s", named ? named : "at all");
    }
    int e = 0;
    json_t *call;
    json_array_foreach(any, i, call)
    {
        if (e >= 0)
            e = tool_call_settle(call, llama ? "parameters" : "arguments",
                                 json_array_size(any) == 1, i);
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
