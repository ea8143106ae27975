/* conversation_fields.c - the messages and tools of a request, as the chat template takes them. */
#include "serve/protocol.h"

#include <string.h>

/* Joins the parts of a content, which must be texts. */
static int join_parts(const json_t *parts, size_t at, json_t **out)
{
    struct buf b;
    json_t *part;
    size_t i;
    int e = 0;
    buf_init(&b, SIZE_MAX);
    json_array_foreach(parts, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type")),
                   *text = json_string_value(json_object_get(part, "text"));
        if (json_is_string(part)) text = json_string_value(part);
        if (!text && e >= 0)
            e = ERR(
                UNSUPPORTED,
                "field \"messages[%zu].content[%zu]\" is of type \"%.40s\"; this model reads text",
                at, i, type ? type : "?");
        if (text && e >= 0) e = buf_puts(&b, text);
    }
    if (e >= 0 && !(*out = json_stringn(b.data ? b.data : "", b.len))) e = ERR_NOMEM;
    buf_done(&b);
    return e;
}

static int take_message(struct ask *k, const json_t *given, size_t at)
{
    const char *role = json_string_value(json_object_get(given, "role"));
    json_t *content = json_object_get(given, "content"), *text = NULL, *m;
    if (!json_is_object(given)) return ERR(ARG, "field \"messages[%zu]\" must be an object", at);
    if (!role) return ERR(ARG, "field \"messages[%zu].role\" must be a string", at);
    if (json_is_array(content))
        TRY(join_parts(content, at, &text));
    else if (content && !json_is_string(content) && !json_is_null(content))
        return ERR(ARG, "field \"messages[%zu].content\" must be a string or an array of parts",
                   at);
    if (!(m = json_copy((json_t *)(uintptr_t)given))) {
        json_decref(text);
        return ERR(NOMEM, "out of memory");
    }
    if (text) json_object_set_new(m, "content", text);
    if (!content || json_is_null(content)) json_object_set_new(m, "content", json_string(""));
    if (!strcmp(role, "developer")) json_object_set_new(m, "role", json_string("system"));
    return json_array_append_new(k->messages, m) < 0 ? ERR(NOMEM, "out of memory") : 0;
}

int ask_messages(struct ask *k, const json_t *given)
{
    const json_t *m;
    size_t i;
    if (!json_is_array(given) || !json_array_size(given))
        return ERR(ARG, "field \"messages\" must be an array of messages, and not empty");
    if (!(k->messages = json_array())) return ERR(NOMEM, "out of memory");
    json_array_foreach(given, i, m)
    {
        TRY(take_message(k, m, i));
    }
    return 0;
}

/* The last message of an assistant is continued; else the template opens an answer. */
int ask_kwargs(struct ask *k, const json_t *body)
{
    json_t *given = json_object_get(body, "chat_template_kwargs"),
           *tools = json_object_get(body, "tools"), *choice = json_object_get(body, "tool_choice"),
           *last = json_array_get(k->messages, json_array_size(k->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role")),
               *chosen = json_string_value(choice);
    bool ends = role && !strcmp(role, "assistant");
    if (given && !json_is_null(given) && !json_is_object(given))
        return ERR(ARG, "field \"chat_template_kwargs\" must be an object");
    if (tools && !json_is_null(tools) && !json_is_array(tools))
        return ERR(ARG, "field \"tools\" must be an array");
    if (!(k->kwargs = json_is_object(given) ? json_copy(given) : json_object()))
        return ERR(NOMEM, "out of memory");
    json_object_set_new(k->kwargs, ends ? "continue_final_message" : "add_generation_prompt",
                        json_true());
    if (json_array_size(tools) && !(chosen && !strcmp(chosen, "none")))
        json_object_set(k->kwargs, "tools", tools);
    return 0;
}
