/* anthropic_fields.c - the messages, tools and options of Anthropic's protocol, as the chat template takes them. */
#include "base/buf.h"
#include "serve/anthropic.h"
#include "serve/replay.h"
#include "serve/rules.h"

#include <string.h>

static const char *type_of(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    return type ? type : "?";
}

static bool is(const json_t *block, const char *type)
{
    return !strcmp(type_of(block), type);
}

static int put(json_t *object, const char *key, json_t *v)
{
    return v && json_object_set_new(object, key, v) == 0 ? 0 : ERR(NOMEM, "out of memory");
}

/* Adds a text behind others, with `between` between two. */
static int add_text(struct buf *b, const char *text, size_t n, const char *between)
{
    if (b->len && n) TRY(buf_puts(b, between));
    return buf_append(b, text, n);
}

/* Adds a string of JSON, which may have a NUL. */
static int add_string(struct buf *b, const json_t *text, const char *between)
{
    return add_text(b, json_string_value(text), json_string_length(text), between);
}

static json_t *text_of(const struct buf *b)
{
    return json_stringn(b->data ? b->data : "", b->len);
}

/* Adds the text of a block, or of a document that is text. */
static int add_block(struct buf *b, const json_t *block, size_t at, const char *between)
{
    const json_t *source = json_object_get(block, "source"), *text = json_object_get(block, "text");
    if (is(block, "document") && is(source, "text")) text = json_object_get(source, "data");
    if (text && !json_is_null(text) && !json_is_string(text))
        return ERR(ARG, "messages.%zu.content: the text of a block must be a string, not %s", at,
                   JSON_QUOTE(text));
    if (!json_is_string(text))
        return ERR(UNSUPPORTED,
                   "messages.%zu.content: a block of type \"%.40s\"; this model reads text", at,
                   type_of(block));
    return add_string(b, text, between);
}

/* --- System. */

static int read_system(const struct server *s, json_t *messages, const json_t *given)
{
    const json_t *block;
    struct buf b;
    size_t i;
    int e = 0;
    buf_init(&b, SIZE_MAX);
    if (json_is_string(given)) e = add_string(&b, given, "");
    json_array_foreach(given, i, block)
    {
        const json_t *text = json_object_get(block, "text");
        const char *t = json_string_value(text);
        size_t n = json_string_length(text), skip = t && !s->o.no_rules ? rules_skip(t, n) : 0;
        if (!t && e >= 0)
            e = ERR(ARG, "system.%zu: a block of text is expected, not %s", i, JSON_QUOTE(block));
        if (t && e >= 0) e = add_text(&b, t + skip, n - skip, "\n\n");
    }
    if (given && !json_is_null(given) && !json_is_string(given) && !json_is_array(given))
        e = ERR(ARG, "system: a string or an array of blocks is expected, not %s",
                JSON_QUOTE(given));
    if (e >= 0 && b.len)
        json_array_append_new(messages,
                              json_pack("{s:s, s:o}", "role", "system", "content", text_of(&b)));
    buf_done(&b);
    return e;
}

/* --- Messages. */

/* Ends a message of the user, because a tool's result follows or the message is over. */
static int flush(json_t *messages, const char *role, struct buf *b)
{
    if (!b->len) return 0;
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", text_of(b));
    buf_clear(b);
    return m && json_array_append_new(messages, m) == 0 ? 0 : ERR(NOMEM, "out of memory");
}

static int add_result(json_t *messages, const json_t *block, size_t at)
{
    const json_t *content = json_object_get(block, "content"), *part,
                 *id = json_object_get(block, "tool_use_id");
    struct buf b;
    size_t i;
    int e = 0;
    if (!json_is_string(id))
        return ERR(
            ARG,
            "messages.%zu.content: a tool_result has a tool_use_id, which must be a string, not %s",
            at, JSON_QUOTE(id));
    buf_init(&b, SIZE_MAX);
    if (json_is_string(content)) e = add_string(&b, content, "");
    json_array_foreach(content, i, part)
    {
        if (e >= 0) e = add_block(&b, part, at, "\n");
    }
    if (e >= 0 &&
        json_array_append_new(messages, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
                                                  id, "content", text_of(&b))) < 0)
        e = ERR(NOMEM, "out of memory");
    buf_done(&b);
    return e;
}

static int read_user(json_t *messages, const char *role, const json_t *content, size_t at)
{
    const json_t *block;
    struct buf b;
    size_t i, before = json_array_size(messages);
    int e = 0;
    buf_init(&b, SIZE_MAX);
    if (json_is_string(content)) e = add_string(&b, content, "");
    json_array_foreach(content, i, block)
    {
        if (e < 0) break;
        if (is(block, "tool_result")) {
            e = flush(messages, role, &b);
            if (e >= 0) e = add_result(messages, block, at);
        } else
            e = add_block(&b, block, at, "\n");
    }
    if (e >= 0) e = flush(messages, role, &b);
    if (e >= 0 && json_array_size(messages) == before)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", role, "content", ""));
    buf_done(&b);
    return e;
}

static int add_use(json_t *calls, const json_t *block, size_t at)
{
    const json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
                 *input = json_object_get(block, "input");
    if (!json_is_string(name) || !json_is_string(id) || (input && !json_is_object(input)))
        return ERR(
            ARG,
            "messages.%zu.content: a tool_use has an id and a name, which are strings, and an input, which is an object; not %s, %s and %s",
            at, JSON_QUOTE(id), JSON_QUOTE(name), JSON_QUOTE(input));
    json_t *f = json_pack("{s:O, s:o}", "name", name, "arguments",
                          input ? json_incref((json_t *)(uintptr_t)input) : json_object());
    json_t *call = json_pack("{s:O, s:s, s:o}", "id", id, "type", "function", "function", f);
    return call && json_array_append_new(calls, call) == 0 ? 0 : ERR(NOMEM, "out of memory");
}

static int read_assistant(json_t *messages, const json_t *content, size_t at)
{
    json_t *m = json_pack("{s:s}", "role", "assistant"), *calls = json_array();
    const json_t *block;
    struct buf text, thought;
    size_t i;
    int e = m && calls ? 0 : ERR(NOMEM, "out of memory");
    buf_init(&text, SIZE_MAX);
    buf_init(&thought, SIZE_MAX);
    if (e >= 0 && json_is_string(content)) e = add_string(&text, content, "");
    json_array_foreach(content, i, block)
    {
        const json_t *thinking = json_object_get(block, "thinking");
        if (e < 0) break;
        if (is(block, "tool_use"))
            e = add_use(calls, block, at);
        else if (is(block, "thinking") && json_is_string(thinking))
            e = add_string(&thought, thinking, "\n");
        else if (is(block, "text"))
            e = add_block(&text, block, at, "");
        else if (!is(block, "redacted_thinking"))
            e = add_block(&text, block, at, ""); /* this call reports the error */
    }
    if (e >= 0) e = put(m, "content", text_of(&text));
    if (e >= 0 && thought.len) e = put(m, "reasoning_content", text_of(&thought));
    if (e >= 0 && json_array_size(calls)) json_object_set(m, "tool_calls", calls);
    if (e >= 0) json_array_append(messages, m);
    json_decref(m);
    json_decref(calls);
    buf_done(&text);
    buf_done(&thought);
    return e;
}

static int read_messages(struct ask *k, json_t *messages, const json_t *given)
{
    const json_t *m;
    size_t i;
    if (!json_is_array(given) || !json_array_size(given))
        return ERR(ARG,
                   "messages: an array of messages is expected, and not an empty one; it is %s",
                   JSON_QUOTE(given));
    json_array_foreach(given, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        const json_t *content = json_object_get(m, "content");
        if (!json_is_string(content) && !json_is_array(content))
            return ERR(ARG,
                       "messages.%zu.content: a string or an array of blocks is expected, not %s",
                       i, JSON_QUOTE(content));
        TRY(documents_note(&k->documents, content));
        if (role && !strcmp(role, "assistant"))
            TRY(read_assistant(messages, content, i));
        else if (role && (!strcmp(role, "user") || !strcmp(role, "system")))
            TRY(read_user(messages, role, content, i));
        else
            return ERR(ARG, "messages.%zu.role: \"user\" or \"assistant\" is expected, not %s", i,
                       JSON_QUOTE(json_object_get(m, "role")));
    }
    return 0;
}

/* --- Tools and options. */

/* Reads the tools.  Tools that Anthropic's own server runs have no schema; they are left out. */
static int read_tools(json_t *chat, const json_t *given)
{
    const json_t *tool;
    json_t *tools = json_array();
    size_t i;
    json_array_foreach(given, i, tool)
    {
        const json_t *name = json_object_get(tool, "name"),
                     *schema = json_object_get(tool, "input_schema"),
                     *about = json_object_get(tool, "description");
        if (!json_is_object(schema) && json_object_get(tool, "type")) continue;
        if (!json_is_string(name) || !json_is_object(schema)) {
            json_decref(tools);
            return ERR(
                ARG,
                "tools.%zu: a name, which is a string, and an input_schema, which is an object, are expected, not %s and %s",
                i, JSON_QUOTE(name), JSON_QUOTE(schema));
        }
        json_t *f = json_pack("{s:O}", "name", name);
        if (json_is_string(about)) json_object_set(f, "description", (json_t *)(uintptr_t)about);
        json_object_set(f, "parameters", (json_t *)(uintptr_t)schema);
        json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function", "function", f));
    }
    return put(chat, "tools", tools);
}

static int read_choice(json_t *chat, const json_t *choice)
{
    const char *type = type_of(choice);
    if (!choice || json_is_null(choice) || !strcmp(type, "auto")) return 0;
    if (!strcmp(type, "none")) return put(chat, "tool_choice", json_string("none"));
    if (!strcmp(type, "any")) return put(chat, "tool_choice", json_string("required"));
    const json_t *name = json_object_get(choice, "name");
    if (strcmp(type, "tool") != 0 || !json_is_string(name))
        return ERR(
            ARG,
            "tool_choice: a type is expected: auto, any, tool with a name, or none; the type is %s and the name %s",
            JSON_QUOTE(json_object_get(choice, "type")), JSON_QUOTE(name));
    return put(chat, "tool_choice",
               json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
}

/* Reads `thinking`, which becomes a switch of the chat template. */
static int read_thinking(json_t *chat, const json_t *body)
{
    const json_t *thinking = json_object_get(body, "thinking"),
                 *effort = json_object_get(json_object_get(body, "output_config"), "effort"),
                 *given = json_object_get(body, "chat_template_kwargs");
    json_t *kwargs = json_is_object(given) ? json_copy((json_t *)(uintptr_t)given) : json_object();
    if (json_is_object(thinking))
        json_object_set_new(kwargs, "enable_thinking", json_boolean(!is(thinking, "disabled")));
    if (json_is_string(effort))
        json_object_set(kwargs, "reasoning_effort", (json_t *)(uintptr_t)effort);
    return put(chat, "chat_template_kwargs", kwargs);
}

static int read_options(struct ask *k, const struct server *s, const json_t *body, bool counts)
{
    static const struct field_type types[] = {{"tools", FIELD_LIST},
                                              {"thinking", FIELD_OBJECT},
                                              {"output_config", FIELD_OBJECT},
                                              {"stop_sequences", FIELD_LIST},
                                              {"chat_template_kwargs", FIELD_OBJECT}},
                                   effort = {"effort", FIELD_TEXT};
    TRY(ask_types(body, types, countof(types)));
    TRY(ask_types(json_object_get(body, "output_config"), &effort, 1));
    static const char *const same[] = {"temperature", "top_p",  "max_tokens", "seed",
                                       "min_p",       "stream", "priority"};
    json_t *o = json_object(), *stop = json_object_get(body, "stop_sequences"),
           *top_k = json_object_get(body, "top_k");
    if (!o) return ERR(NOMEM, "out of memory");
    for (size_t i = 0; i < countof(same); i++)
        json_object_set(o, same[i], json_object_get(body, same[i]));
    if (stop) json_object_set(o, "stop", stop);
    if (json_integer_value(top_k) != -1) json_object_set(o, "top_k", top_k);
    int e = 0;
    if (!counts && !json_object_get(body, "max_tokens")) e = ERR(ARG, "max_tokens: field required");
    if (e >= 0) e = ask_sampling(k, s, o);
    json_decref(o);
    return e;
}

int anthropic_read(const struct server *s, const struct exchange *x, struct ask *k,
                   const json_t *body, bool counts)
{
    json_t *chat = json_object(), *messages = json_array();
    int e = chat && messages ? read_options(k, s, body, counts) : ERR(NOMEM, "out of memory");
    const json_t *system = json_object_get(body, "system");
    if (e >= 0) e = ask_moved_chunks(&k->documents, body);
    if (e >= 0) e = documents_note(&k->documents, system);
    if (e >= 0) e = read_system(s, messages, system);
    if (e >= 0) e = read_messages(k, messages, json_object_get(body, "messages"));
    if (e >= 0) e = read_tools(chat, json_object_get(body, "tools"));
    if (e >= 0) e = read_choice(chat, json_object_get(body, "tool_choice"));
    if (e >= 0) e = read_thinking(chat, body);
    const json_t *format = json_object_get(json_object_get(body, "output_config"), "format");
    if (e >= 0) e = ask_format(k, format, "output_config.format");
    if (e >= 0) e = ask_messages(k, s, messages);
    if (e >= 0) e = ask_kwargs(k, s, chat);
    if (e >= 0) e = replay_render(k, s, x->client);
    if (e >= 0) e = documents_find(&k->documents, s->tokenizer, k->ids, k->n);
    json_decref(chat);
    json_decref(messages);
    return e;
}
