/* conversation_fields.c - the messages and tools of a request, as the chat template takes them. */
#include "serve/protocol.h"
#include "serve/rules.h"

#include <ctype.h>
#include <string.h>

int ask_join(const json_t *content, const char *list, size_t at, json_t **out)
{
    const json_t *part;
    struct buf b;
    size_t i;
    int e = 0;
    buf_init(&b, SIZE_MAX);
    if (json_is_string(content))
        e = buf_append(&b, json_string_value(content), json_string_length(content));
    else if (content && !json_is_null(content) && !json_is_array(content))
        e = ERR(ARG, "field \"%s[%zu].content\" must be a string or an array of parts, not %s",
                list, at, JSON_QUOTE(content));
    json_array_foreach(content, i, part)
    {
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (text && !json_is_null(text) && !json_is_string(text) && e >= 0)
            e = ERR(ARG, "field \"%s[%zu].content[%zu].text\" must be a string, not %s", list, at,
                    i, JSON_QUOTE(text));
        if (!json_is_string(text)) text = json_object_get(part, "refusal");
        if (!json_is_string(text) && e >= 0)
            e = ERR(UNSUPPORTED,
                    "field \"%s[%zu].content[%zu]\" is of type \"%.40s\"; this model reads text",
                    list, at, i, type ? type : "?");
        if (e >= 0) e = buf_append(&b, json_string_value(text), json_string_length(text));
    }
    if (e >= 0 && !(*out = json_stringn(b.data ? b.data : "", b.len)))
        e = ERR(NOMEM, "out of memory");
    buf_done(&b);
    return e;
}

const json_t *ask_tools(const struct ask *k)
{
    const json_t *tools = json_object_get(k->kwargs, "tools");
    return json_array_size(tools) ? tools : NULL;
}

/* Returns the last nine letters and digits of an id.  A call and its result have the same id, so both get the same
 * nine. */
static json_t *short_id(const char *id)
{
    char nine[10] = "000000000";
    size_t k = 9;
    for (size_t i = strlen(id); i-- && k;)
        if (isalnum((unsigned char)id[i])) nine[--k] = id[i];
    return json_string(nine);
}

/* Writes arguments as text, with spaces as templates write them. */
static int spell_arguments(json_t *function, const json_t *arguments)
{
    char *text = json_dumps(arguments, JSON_ENCODE_ANY);
    json_t *v = text ? json_string(text) : NULL;
    free(text); /* check-ok: memory of jansson, which is freed by free */
    if (!v) return ERR(NOMEM, "out of memory");
    json_object_set_new(function, "arguments", v);
    return 0;
}

/* Changes a call to what the template expects: arguments as an object or as text, and an id of nine letters. */
static int take_call(const struct server *s, json_t *call, size_t at)
{
    json_t *f = json_object_get(call, "function"), *given = json_object_get(f, "arguments"),
           *own = NULL;
    const char *id = json_string_value(json_object_get(call, "id"));
    if (!json_is_object(f) || !json_is_string(json_object_get(f, "name")))
        return ERR(
            ARG,
            "field \"messages[%zu].tool_calls\": a call has a function with a name, which is a string, not %s",
            at, JSON_QUOTE(json_is_object(f) ? json_object_get(f, "name") : f));
    if (s->dialect.objects && json_is_string(given))
        own = json_loadb(json_string_value(given), json_string_length(given), JSON_ALLOW_NUL, NULL);
    if (own) json_object_set_new(f, "arguments", own);
    if (!s->dialect.objects && json_is_object(given)) TRY(spell_arguments(f, given));
    if (s->dialect.short_ids && id) json_object_set_new(call, "id", short_id(id));
    return 0;
}

/* Changes the calls of a message to what the template expects.  A message without calls must not have the key,
 * because templates test for it. */
static int take_calls(const struct server *s, json_t *m, size_t at)
{
    json_t *given = json_object_get(m, "tool_calls"), *calls, *call;
    const char *id = json_string_value(json_object_get(m, "tool_call_id"));
    size_t i;
    if (s->dialect.short_ids && id) json_object_set_new(m, "tool_call_id", short_id(id));
    if (!given) return 0;
    if (json_is_null(given) || (json_is_array(given) && !json_array_size(given)))
        return json_object_del(m, "tool_calls");
    if (!json_is_array(given))
        return ERR(ARG, "field \"messages[%zu].tool_calls\" must be an array, not %s", at,
                   JSON_QUOTE(given));
    if (!(calls = json_deep_copy(given))) return ERR(NOMEM, "out of memory");
    json_object_set_new(m, "tool_calls", calls);
    json_array_foreach(calls, i, call)
    {
        TRY(take_call(s, call, at));
    }
    return 0;
}

static void apply_rules(const struct server *s, json_t *m)
{
    const json_t *content = json_object_get(m, "content");
    const char *text = json_string_value(content);
    size_t n = json_string_length(content), skip = s->o.no_rules ? 0 : rules_skip(text, n);
    if (skip) json_object_set_new(m, "content", json_stringn(text + skip, n - skip));
}

static int take_message(struct ask *k, const struct server *s, const json_t *given, size_t at)
{
    const char *role = json_string_value(json_object_get(given, "role"));
    json_t *content = json_object_get(given, "content"), *text = NULL, *m;
    if (!json_is_object(given))
        return ERR(ARG, "field \"messages[%zu]\" must be an object, not %s", at, JSON_QUOTE(given));
    if (!role)
        return ERR(ARG, "field \"messages[%zu].role\" must be a string, not %s", at,
                   JSON_QUOTE(json_object_get(given, "role")));
    TRY(documents_note(&k->documents, content));
    if (content && !json_is_null(content) && !json_is_string(content))
        TRY(ask_join(content, "messages", at, &text));
    if (!(m = json_copy((json_t *)(uintptr_t)given))) {
        json_decref(text);
        return ERR(NOMEM, "out of memory");
    }
    if (text) json_object_set_new(m, "content", text);
    if (!content || json_is_null(content)) json_object_set_new(m, "content", json_string(""));
    if (!strcmp(role, "developer")) json_object_set_new(m, "role", json_string("system"));
    if (!strcmp(role, "developer") || !strcmp(role, "system")) apply_rules(s, m);
    if (json_array_append_new(k->messages, m) < 0) return ERR(NOMEM, "out of memory");
    return take_calls(s, m, at);
}

int ask_messages(struct ask *k, const struct server *s, const json_t *given)
{
    const json_t *m;
    size_t i;
    if (!json_is_array(given) || !json_array_size(given))
        return ERR(ARG, "field \"messages\" must be an array of messages, and not empty; it is %s",
                   JSON_QUOTE(given));
    if (!(k->messages = json_array())) return ERR(NOMEM, "out of memory");
    json_array_foreach(given, i, m)
    {
        TRY(take_message(k, s, m, i));
    }
    return 0;
}

/* Reads what the template is told.  The last message of an assistant is continued unless it calls tools; otherwise
 * the template opens an answer. */
int ask_kwargs(struct ask *k, const struct server *s, const json_t *body)
{
    json_t *given = json_object_get(body, "chat_template_kwargs"),
           *tools = json_object_get(body, "tools"), *choice = json_object_get(body, "tool_choice"),
           *last = json_array_get(k->messages, json_array_size(k->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role")),
               *chosen = json_string_value(choice);
    const json_t *opens = json_object_get(body, "add_generation_prompt"),
                 *goes_on = json_object_get(body, "continue_final_message");
    static const struct field_type types[] = {{"chat_template_kwargs", FIELD_OBJECT},
                                              {"tools", FIELD_LIST},
                                              {"add_generation_prompt", FIELD_BOOL},
                                              {"continue_final_message", FIELD_BOOL}};
    TRY(ask_types(body, types, countof(types)));
    if (json_is_true(opens) && json_is_true(goes_on))
        return ERR(
            ARG,
            "fields \"add_generation_prompt\" and \"continue_final_message\" exclude one another");
    bool ends = role && !strcmp(role, "assistant") && !json_object_get(last, "tool_calls");
    if (json_is_false(goes_on) || json_is_true(opens)) ends = false;
    if (!(k->kwargs = json_is_object(given) ? json_copy(given) : json_object()))
        return ERR(NOMEM, "out of memory");
    if (ends || !json_is_false(opens))
        json_object_set_new(k->kwargs, ends ? "continue_final_message" : "add_generation_prompt",
                            json_true());
    const char *effort = NULL;
    TRY(json_get_str(body, "the request", "reasoning_effort", &effort));
    if (effort && !json_object_get(k->kwargs, "reasoning_effort"))
        json_object_set_new(k->kwargs, "reasoning_effort", json_string(effort));
    if (effort && !strcmp(effort, "none") && !json_object_get(k->kwargs, "enable_thinking"))
        json_object_set_new(k->kwargs, "enable_thinking", json_false());
    if (s->o.reasoning && !json_object_get(k->kwargs, "enable_thinking"))
        json_object_set_new(k->kwargs, "enable_thinking", json_boolean(s->o.reasoning > 0));
    if (json_array_size(tools) && !(chosen && !strcmp(chosen, "none")))
        json_object_set(k->kwargs, "tools", tools);
    TRY(ask_choice(k, s, body));
    if (k->constrained && !json_object_get(k->kwargs, "enable_thinking"))
        json_object_set_new(k->kwargs, "enable_thinking", json_false()); /* all text is JSON */
    return 0;
}
