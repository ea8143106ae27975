/* dialect.c - the table of formats, and how the one of a model is found; see dialect.h. */
#include "serve/dialect.h"

#include <stdio.h>
#include <string.h>

#define THINKS                                                                                     \
    {SAID_CONTENT, "<think>", SAID_REASONING},                                                     \
    {                                                                                              \
        SAID_REASONING, "</think>", SAID_CONTENT                                                   \
    }

static const struct dialect table[] = {
    /* gpt-oss: each message has a head, which names a channel or a function. */
    {"harmony", "<|channel|>",
     .mark = {{SAID_CONTENT, "<|start|>", SAID_HEAD},
              {SAID_CONTENT, "<|channel|>", SAID_HEAD},
              {SAID_HEAD, "<|channel|>", SAID_HEAD},
              {SAID_HEAD, "<|message|>", SAID_CONTENT},
              {SAID_REASONING, "<|end|>", SAID_CONTENT},
              {SAID_CONTENT, "<|end|>", SAID_CONTENT},
              {SAID_CALL, "<|call|>", SAID_CONTENT},
              {SAID_CALL, "<|end|>", SAID_CONTENT}}},
    {"deepseek", "<｜tool▁calls▁begin｜>",
     .mark = {THINKS,
              {SAID_CONTENT, "<｜tool▁calls▁begin｜>", SAID_CONTENT, .tools = true},
              {SAID_CONTENT, "<｜tool▁call▁begin｜>", SAID_CALL},
              {SAID_CALL, "<｜tool▁call▁end｜>", SAID_CONTENT},
              {SAID_CONTENT, "<｜tool▁calls▁end｜>", SAID_CONTENT, .tools = true},
              {SAID_CALL, "<｜tool▁sep｜>", SAID_CALL, .kept = true}}},
    {"kimi", "<|tool_calls_section_begin|>",
     .mark = {THINKS,
              {SAID_CONTENT, "<|tool_calls_section_begin|>", SAID_CONTENT, .tools = true},
              {SAID_CONTENT, "<|tool_call_begin|>", SAID_CALL},
              {SAID_CALL, "<|tool_call_argument_begin|>", SAID_CALL, .kept = true},
              {SAID_CALL, "<|tool_call_end|>", SAID_CONTENT},
              {SAID_CONTENT, "<|tool_calls_section_end|>", SAID_CONTENT, .tools = true}}},
    {"mistral", "[TOOL_CALLS]",
     .mark = {{SAID_CONTENT, "[THINK]", SAID_REASONING},
              {SAID_REASONING, "[/THINK]", SAID_CONTENT},
              {SAID_CONTENT, "[TOOL_CALLS]", SAID_CALL},
              {SAID_CALL, "[TOOL_CALLS]", SAID_CALL},
              {SAID_CALL, "[CALL_ID]", SAID_CALL, .kept = true},
              {SAID_CALL, "[ARGS]", SAID_CALL, .kept = true}}},
    {"cohere", "<|START_ACTION|>",
     .mark = {{SAID_CONTENT, "<|START_THINKING|>", SAID_REASONING},
              {SAID_REASONING, "<|END_THINKING|>", SAID_CONTENT},
              {SAID_CONTENT, "<|START_RESPONSE|>", SAID_CONTENT},
              {SAID_CONTENT, "<|END_RESPONSE|>", SAID_CONTENT},
              {SAID_CONTENT, "<|START_TEXT|>", SAID_CONTENT},
              {SAID_CONTENT, "<|END_TEXT|>", SAID_CONTENT},
              {SAID_CONTENT, "<|START_ACTION|>", SAID_CALL},
              {SAID_CALL, "<|END_ACTION|>", SAID_CONTENT}}},
    {"gemma", "<|tool_call>", .objects = true,
     .mark = {{SAID_CONTENT, "<|channel>thought", SAID_REASONING},
              {SAID_REASONING, "<channel|>", SAID_CONTENT},
              {SAID_CONTENT, "<|tool_call>", SAID_CALL},
              {SAID_CALL, "<|\"|>", SAID_CALL, .kept = true},
              {SAID_CALL, "<tool_call|>", SAID_CONTENT}}},
    {"lfm", "<|tool_call_start|>",
     .mark = {THINKS,
              {SAID_CONTENT, "<|tool_call_start|>", SAID_CALL},
              {SAID_CALL, "<|tool_call_end|>", SAID_CONTENT}}},
    {"gigachat", "<|role_sep|>",
     .mark = {{SAID_CONTENT, "<|message_sep|>", SAID_CONTENT, .tools = true},
              {SAID_CONTENT, "function call<|role_sep|>", SAID_CALL},
              {SAID_CALL, "<|message_sep|>", SAID_CONTENT}}},
    {"apertus", "<|tools_prefix|>",
     .mark = {{SAID_CONTENT, "<|tools_prefix|>", SAID_CALL},
              {SAID_CALL, "<|tools_suffix|>", SAID_CONTENT}}},
    /* Qwen, Hermes, GLM and many others.  Qwen3-Coder sometimes omits the outer mark. */
    {"hermes", "<tool_call>",
     .mark = {THINKS,
              {SAID_CONTENT, "<tool_call>", SAID_CALL},
              {SAID_CALL, "</tool_call>", SAID_CONTENT},
              {SAID_CONTENT, "</tool_call>", SAID_CONTENT, .tools = true},
              {SAID_CONTENT, "<function=", SAID_FUNCTION, .kept = true},
              {SAID_FUNCTION, "</function>", SAID_CONTENT, .kept = true}}},
    {"function", "<function=",
     .mark = {THINKS,
              {SAID_CONTENT, "<function=", SAID_FUNCTION, .kept = true},
              {SAID_FUNCTION, "</function>", SAID_CONTENT, .kept = true}}},
    {"llama", "<|python_tag|>", .bare = true,
     .mark = {THINKS, {SAID_CONTENT, "<|python_tag|>", SAID_CALL}}},
    {"thinking", "</think>", .mark = {THINKS}},
};

bool dialect_calls(const struct dialect_mark *m)
{
    return m->tools || m->from == SAID_CALL || m->from == SAID_FUNCTION || m->to == SAID_CALL ||
           m->to == SAID_FUNCTION;
}

/* Returns the id of a text that is a single token, or -1. */
static int32_t one_token(const kvik_tokenizer *t, const char *text)
{
    int32_t *ids = NULL, id = -1;
    size_t n = 0;
    if (kvik_tokenizer_encode(t, text, strlen(text), false, &ids, &n) >= 0 && n == 1) id = ids[0];
    kvik_free(ids);
    return id;
}

static bool is_special(const kvik_tokenizer *t, int32_t id)
{
    char *text = NULL;
    size_t n = 1;
    if (kvik_tokenizer_decode(t, &id, 1, true, &text, &n) < 0) n = 1;
    kvik_free(text);
    return n == 0;
}

static void show(const kvik_tokenizer *t, struct dialect_use *u, const char *mark)
{
    int32_t id = one_token(t, mark);
    if (id < 0 || u->n_all == DIALECT_SHOWN || !is_special(t, id)) return;
    for (size_t i = 0; i < u->n_all; i++)
        if (u->shown[i] == id) return;
    u->shown[u->n_all++] = id;
}

static void find_shown(const kvik_tokenizer *t, struct dialect_use *u)
{
    for (int calls = 0; calls < 2; calls++) {
        for (const struct dialect_mark *m = u->dialect->mark;
             m < u->dialect->mark + countof(u->dialect->mark) && m->text; m++)
            if (dialect_calls(m) == calls) show(t, u, m->text);
        if (!calls) u->n_plain = u->n_all;
    }
}

/* Renders a call whose arguments are an object, or the text of one.  True if the template then wrote the call as
 * models do. */
static bool renders(const kvik_tokenizer *t, const char *arguments)
{
    char request[512], *text = NULL;
    snprintf(
        request, sizeof request,
        "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": "
        "[{\"id\": \"abcdefghi\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": %s}}]}]",
        arguments);
    const kvik_chat chat = {.size = sizeof chat, .json = request};
    bool good = kvik_chat_render(t, &chat, &text) >= 0 && strstr(text, "{\"city\": \"Paris\"}");
    kvik_free(text);
    return good;
}

void dialect_find(const kvik_tokenizer *t, struct dialect_use *out)
{
    const char *template = kvik_tokenizer_template(t);
    *out = (struct dialect_use){0};
    if (!template) return;
    const size_t with_calls = countof(table) - 1;
    for (size_t i = 0; i < with_calls && !out->dialect; i++)
        if (strstr(template, table[i].sign)) out->dialect = &table[i];
    for (size_t i = 0; i < with_calls && !out->dialect; i++)
        if (one_token(t, table[i].sign) >= 0) out->dialect = &table[i];
    const struct dialect *thinking = &table[with_calls];
    if (!out->dialect && (strstr(template, thinking->sign) || one_token(t, thinking->sign) >= 0))
        out->dialect = thinking;
    if (out->dialect) find_shown(t, out);
    bool objects = out->dialect && out->dialect->objects;
    out->objects = objects || !renders(t, "\"{\\\"city\\\": \\\"Paris\\\"}\"");
    out->short_ids = strstr(template, "length != 9") != NULL;
}
