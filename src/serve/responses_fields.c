/* responses_fields.c - the items, tools and options of OpenAI's responses, as the chat template takes them.
 *
 * Responses have separate items for reasoning, messages and calls.  The items of one answer become one message of the assistant. */
#include "base/buf.h"
#include "serve/replay.h"
#include "serve/responses.h"

#include <string.h>

/* The messages that are being built. */
struct chat_build {
    json_t *messages;
    /* Owned: the assistant's message to which more items may belong, or NULL. */
    json_t *said;
    /* The text of the system message, which several items can add to: templates take one, in first place. */
    struct buf system;
    struct documents *documents;
};

static const char *text_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static bool is(const json_t *o, const char *type)
{
    const char *own = text_at(o, "type");
    return own && !strcmp(own, type);
}

static int no_memory(void)
{
    return ERR(NOMEM, "out of memory");
}

static int end_said(struct chat_build *b)
{
    if (!b->said) return 0;
    int e = json_array_append(b->messages, b->said) < 0 ? no_memory() : 0;
    json_decref(b->said);
    b->said = NULL;
    return e;
}

/* Returns the assistant's message that an item belongs to.  Begins a new one if the old one already has `key` or a
 * later part. */
static json_t *said(struct chat_build *b, const char *key)
{
    static const char *const order[] = {"reasoning_content", "content", "tool_calls"};
    bool behind = false;
    for (size_t i = 0; b->said && i < countof(order); i++) {
        if (!strcmp(order[i], key)) behind = true;
        if (behind && json_object_get(b->said, order[i]) && end_said(b) < 0) return NULL;
    }
    if (!b->said) b->said = json_pack("{s:s}", "role", "assistant");
    return b->said;
}

/* --- Items. */

static int put_text(struct chat_build *b, json_t *message, const char *key, const json_t *content,
                    size_t at)
{
    json_t *text = NULL;
    TRY(documents_note(b->documents, content));
    TRY(ask_join(content, "input", at, &text));
    return message && json_object_set_new(message, key, text) == 0 ? 0 : no_memory();
}

static int add_string(struct buf *b, const json_t *text)
{
    return buf_append(b, json_string_value(text), json_string_length(text));
}

static int add_message(struct chat_build *b, const json_t *item, const char *role, size_t at)
{
    const json_t *content = json_object_get(item, "content");
    if (!strcmp(role, "assistant")) return put_text(b, said(b, "content"), "content", content, at);
    TRY(end_said(b));
    json_t *m = json_pack("{s:s}", "role", !strcmp(role, "developer") ? "system" : role);
    int e = put_text(b, m, "content", content, at);
    const json_t *first = json_array_get(b->messages, 0), *text = json_object_get(m, "content");
    if (e >= 0 && json_array_size(b->messages) == 1 && !strcmp(text_at(m, "role"), "system") &&
        !strcmp(text_at(first, "role"), "system")) {
        e = b->system.len ? 0 : add_string(&b->system, json_object_get(first, "content"));
        if (e >= 0) e = buf_puts(&b->system, "\n\n");
        if (e >= 0) e = add_string(&b->system, text);
    } else if (e >= 0)
        e = json_array_append(b->messages, m) < 0 ? no_memory() : 0;
    json_decref(m);
    return e;
}

static int add_reasoning(struct chat_build *b, const json_t *item, size_t at)
{
    const json_t *content = json_object_get(item, "content"),
                 *summary = json_object_get(item, "summary");
    if (!json_array_size(content)) content = summary;
    if (!json_array_size(content)) return 0;
    return put_text(b, said(b, "reasoning_content"), "reasoning_content", content, at);
}

static int add_call(struct chat_build *b, const json_t *item, const char *input, size_t at)
{
    const char *id = text_at(item, "call_id"), *name = text_at(item, "name");
    json_t *arguments = json_object_get(item, input);
    if (!id || !name || !json_is_string(arguments))
        return ERR(
            ARG,
            "field \"input[%zu]\": a call has a call_id, a name and %s, which are strings, not %s, %s and %s",
            at, input, JSON_QUOTE(json_object_get(item, "call_id")),
            JSON_QUOTE(json_object_get(item, "name")), JSON_QUOTE(arguments));
    json_t *list = json_object_get(b->said, "tool_calls"), *m = b->said;
    if (!list) {
        m = said(b, "tool_calls");
        list = json_array();
        if (!m || json_object_set_new(m, "tool_calls", list) < 0) return no_memory();
    }
    json_t *given = strcmp(input, "input") != 0 ? json_incref(arguments)
                                                : json_pack("{s:O}", "input", arguments);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", given);
    return call && json_array_append_new(list, call) == 0 ? 0 : no_memory();
}

static int add_output(struct chat_build *b, const json_t *item, size_t at)
{
    const char *id = text_at(item, "call_id");
    if (!id)
        return ERR(ARG,
                   "field \"input[%zu]\": an output has the call_id of its call, a string, not %s",
                   at, JSON_QUOTE(json_object_get(item, "call_id")));
    TRY(end_said(b));
    json_t *m = json_pack("{s:s, s:s}", "role", "tool", "tool_call_id", id);
    int e = put_text(b, m, "content", json_object_get(item, "output"), at);
    if (e >= 0) json_array_append(b->messages, m);
    json_decref(m);
    return e;
}

/* Adds an item.  Items of other types report work of other servers; they are left out. */
static int add_item(struct chat_build *b, const json_t *item, size_t at)
{
    const char *role = text_at(item, "role");
    if (!json_is_object(item))
        return ERR(ARG, "field \"input[%zu]\" must be an object, not %s", at, JSON_QUOTE(item));
    if (is(item, "message") || (role && !text_at(item, "type")))
        return role ? add_message(b, item, role, at)
                    : ERR(ARG, "field \"input[%zu].role\" must be a string, not %s", at,
                          JSON_QUOTE(json_object_get(item, "role")));
    if (is(item, "reasoning")) return add_reasoning(b, item, at);
    if (is(item, "function_call")) return add_call(b, item, "arguments", at);
    if (is(item, "custom_tool_call")) return add_call(b, item, "input", at);
    if (is(item, "function_call_output") || is(item, "custom_tool_call_output"))
        return add_output(b, item, at);
    if (is(item, "item_reference"))
        return ERR(UNSUPPORTED, "field \"input[%zu]\": items are not kept; send the item itself",
                   at);
    return 0;
}

static int read_input(struct chat_build *b, const json_t *body)
{
    const json_t *input = json_object_get(body, "input"), *item,
                 *instructions = json_object_get(body, "instructions");
    size_t i;
    if (json_string_length(instructions))
        json_array_append_new(b->messages,
                              json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    if (json_is_string(input))
        json_array_append_new(b->messages,
                              json_pack("{s:s, s:O}", "role", "user", "content", input));
    else if (!json_is_array(input))
        return ERR(ARG, "field \"input\" must be a string or an array of items, not %s",
                   JSON_QUOTE(input));
    json_array_foreach(input, i, item)
    {
        TRY(add_item(b, item, i));
    }
    if (b->system.len && json_object_set_new(json_array_get(b->messages, 0), "content",
                                             json_stringn(b->system.data, b->system.len)) < 0)
        return no_memory();
    return end_said(b);
}

/* --- Tools and options. */

static int read_tools(json_t *chat, const json_t *given)
{
    static const char *const keys[] = {"name", "description", "parameters"};
    const json_t *tool;
    json_t *tools = json_array();
    size_t i;
    if (!tools) return no_memory();
    json_array_foreach(given, i, tool)
    {
        json_t *f = json_object();
        if (!is(tool, "function")) {
            json_decref(f);
            continue;
        }
        for (size_t k = 0; k < countof(keys); k++)
            if (json_object_get(tool, keys[k]))
                json_object_set(f, keys[k], json_object_get(tool, keys[k]));
        json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function", "function", f));
    }
    json_object_set_new(chat, "tools", tools);
    return 0;
}

static void read_choice(json_t *chat, json_t *choice)
{
    const char *name = text_at(choice, "name");
    if (json_is_string(choice)) json_object_set(chat, "tool_choice", choice);
    if (is(choice, "function") && name)
        json_object_set_new(
            chat, "tool_choice",
            json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name));
    if (is(choice, "allowed_tools"))
        json_object_set(chat, "tool_choice", json_object_get(choice, "mode"));
}

static int refuse(const json_t *body)
{
    static const struct {
        const char *field, *why;
    } no[] = {{"previous_response_id", "responses are not kept; send the whole conversation"},
              {"conversation", "conversations are not kept; send the whole conversation"},
              {"prompt", "there are no stored prompts"}};
    bool background = false;
    for (size_t i = 0; i < countof(no); i++) {
        const json_t *v = json_object_get(body, no[i].field);
        if (v && !json_is_null(v))
            return ERR(UNSUPPORTED, "field \"%s\": %s", no[i].field, no[i].why);
    }
    TRY(json_get_bool(body, "the request", "background", &background));
    return background ? ERR(UNSUPPORTED, "field \"background\": answers are not kept") : 0;
}

/* Refuses values of a wrong type, where the field has another name or place in the chat that is made of the body. */
static int check_types(const json_t *body)
{
    static const struct field_type types[] = {{"tools", FIELD_LIST},
                                              {"tool_choice", FIELD_TEXT | FIELD_OBJECT},
                                              {"text", FIELD_OBJECT},
                                              {"reasoning", FIELD_OBJECT},
                                              {"instructions", FIELD_TEXT}};
    uint32_t most;
    TRY(ask_types(body, types, countof(types)));
    return json_get_u32(body, "the request", "max_output_tokens", 1, UINT32_MAX, &most);
}

static int read_options(struct ask *k, const struct server *s, json_t *chat, const json_t *body)
{
    static const char *const same[] = {"temperature",    "top_p",    "stream",
                                       "seed",           "priority", "timings_per_token",
                                       "return_progress"};
    const json_t *reasoning = json_object_get(body, "reasoning");
    json_t *o = json_object();
    if (!o) return no_memory();
    for (size_t i = 0; i < countof(same); i++)
        json_object_set(o, same[i], json_object_get(body, same[i]));
    json_object_set(o, "max_tokens", json_object_get(body, "max_output_tokens"));
    json_object_set(chat, "reasoning_effort", json_object_get(reasoning, "effort"));
    json_object_set(chat, "chat_template_kwargs", json_object_get(body, "chat_template_kwargs"));
    int e = ask_sampling(k, s, o);
    json_decref(o);
    return e;
}

int responses_read(const struct server *s, const struct exchange *x, struct ask *k,
                   const json_t *body)
{
    const json_t *input = json_object_get(body, "input");
    struct chat_build b = {.messages = json_array(), .documents = &k->documents};
    buf_init(&b.system, SIZE_MAX);
    json_t *chat = json_object();
    int e = chat && b.messages ? refuse(body) : no_memory();
    if (e >= 0) e = check_types(body);
    const json_t *format = json_object_get(json_object_get(body, "text"), "format");
    if (e >= 0) e = ask_format(k, format, "text.format");
    if (e >= 0) e = read_options(k, s, chat, body);
    if (e >= 0) e = ask_moved_chunks(&k->documents, body);
    bool empty = !input || json_is_null(input) ||
                 (json_is_string(input) && !json_string_length(input)) ||
                 (json_is_array(input) && !json_array_size(input));
    if (e >= 0 && empty) {
        e = 1;
    } else if (e >= 0) {
        e = read_input(&b, body);
        if (e >= 0) e = read_tools(chat, json_object_get(body, "tools"));
        if (e >= 0) read_choice(chat, json_object_get(body, "tool_choice"));
        if (e >= 0) e = ask_messages(k, s, b.messages);
        if (e >= 0) e = ask_kwargs(k, s, chat);
        if (e >= 0) e = replay_render(k, s, x->client);
        if (e >= 0) e = documents_find(&k->documents, s->tokenizer, k->ids, k->n);
    }
    json_decref(b.said);
    json_decref(b.messages);
    buf_done(&b.system);
    json_decref(chat);
    return e;
}
