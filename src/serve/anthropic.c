/* anthropic.c - Anthropic's messages, whole and as streams, and the count of a prompt's tokens. */
#include "serve/anthropic.h"

#include <string.h>

static const char *type_of(const struct fault *f)
{
    switch (f->status) {
    case 401:
        return "authentication_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 503:
        return "overloaded_error";
    default:
        return f->status < 500 ? "invalid_request_error" : "api_error";
    }
}

/* Anthropic's clients recognise this sentence: it tells them to shorten the conversation. */
static json_t *error(const struct fault *f)
{
    char sentence[96];
    snprintf(sentence, sizeof sentence, "prompt is too long: %llu tokens > %llu maximum",
             (unsigned long long)f->n_prompt, (unsigned long long)f->n_ctx);
    return json_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type", type_of(f), "message",
                     f->n_ctx ? sentence : f->sentence);
}

static void event(struct answer *a, const char *name, json_t *o)
{
    json_object_set_new(o, "type", json_string(name));
    answer_event(a, name, o);
}

static json_t *usage(const struct answer *a)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens",
                     (json_int_t)(a->prompt_tokens - a->reused), "cache_creation_input_tokens",
                     (json_int_t)0, "cache_read_input_tokens", (json_int_t)a->reused,
                     "output_tokens", (json_int_t)a->choice[0].new_tokens);
}

static const char *stop_reason(const struct choice *c)
{
    if (!c->over) return NULL;
    if (c->finish == KVIK_FINISH_LENGTH) return "max_tokens";
    if (c->n_calls) return "tool_use";
    return c->stop ? "stop_sequence" : "end_turn";
}

static json_t *message(const struct answer *a, json_t *content)
{
    const struct choice *c = &a->choice[0];
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o}", "id", a->id, "type", "message",
                     "role", "assistant", "model", a->server->o.name, "content", content,
                     "stop_reason", stop_reason(c), "stop_sequence", c->over ? c->stop : NULL,
                     "usage", usage(a));
}

static json_t *thinking(const char *text, size_t n)
{
    return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", answer_text(text, n),
                     "signature", n ? "kvik" : "");
}

static json_t *use(const struct call *k, const char *arguments)
{
    json_t *input = NULL;
    (void)json_parse(arguments, strlen(arguments), "arguments", &input);
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", k->id, "name", k->name,
                     "input", input ? input : json_object());
}

/* --- Streams: a message has blocks, one after another. */

enum { OPEN_NONE, OPEN_TEXT, OPEN_THINKING, OPEN_CALL };

static void stream_begin(struct answer *a)
{
    event(a, "message_start", json_pack("{s:o}", "message", message(a, json_array())));
    event(a, "ping", json_object());
}

static void delta(struct answer *a, const struct choice *c, json_t *d)
{
    event(a, "content_block_delta",
          json_pack("{s:i, s:o}", "index", (int)c->parts - 1, "delta", d));
}

static void block_stop(struct answer *a, struct choice *c)
{
    if (c->part == OPEN_THINKING)
        delta(a, c, json_pack("{s:s, s:s}", "type", "signature_delta", "signature", "kvik"));
    if (c->part != OPEN_NONE)
        event(a, "content_block_stop", json_pack("{s:i}", "index", (int)c->parts - 1));
    c->part = OPEN_NONE;
}

static void block_start(struct answer *a, struct choice *c, int part, json_t *block)
{
    block_stop(a, c);
    event(a, "content_block_start",
          json_pack("{s:i, s:o}", "index", (int)c->parts++, "content_block", block));
    c->part = part;
}

static void stream_piece(struct answer *a, struct choice *c, enum piece kind, const char *text)
{
    bool thinks = kind == PIECE_REASONING;
    int part = thinks ? OPEN_THINKING : OPEN_TEXT;
    if (c->part != part)
        block_start(a, c, part,
                    thinks ? thinking("", 0) : json_pack("{s:s, s:s}", "type", "text", "text", ""));
    delta(a, c,
          json_pack("{s:s, s:o}", "type", thinks ? "thinking_delta" : "text_delta",
                    thinks ? "thinking" : "text", answer_text(text, strlen(text))));
}

static void stream_call(struct answer *a, struct choice *c)
{
    block_start(a, c, OPEN_CALL, use(&c->call[c->n_calls - 1], "{}"));
}

static void stream_arguments(struct answer *a, struct choice *c, const char *text)
{
    delta(a, c, json_pack("{s:s, s:s}", "type", "input_json_delta", "partial_json", text));
}

static void stream_done(struct answer *a)
{
    struct choice *c = &a->choice[0];
    block_stop(a, c);
    event(a, "message_delta",
          json_pack("{s:{s:s?, s:s?}, s:o, s:o}", "delta", "stop_reason", stop_reason(c),
                    "stop_sequence", c->stop, "usage", usage(a), "kvik", answer_kvik(a)));
    event(a, "message_stop", json_object());
}

static void broken(struct answer *a, const struct fault *f)
{
    answer_event(a, "error", error(f));
}

static json_t *whole(struct answer *a)
{
    const struct choice *c = &a->choice[0];
    json_t *content = json_array();
    if (c->reason.len) json_array_append_new(content, thinking(c->reason.data, c->reason.len));
    if (c->text.len)
        json_array_append_new(content, json_pack("{s:s, s:o}", "type", "text", "text",
                                                 answer_text(c->text.data, c->text.len)));
    for (uint32_t i = 0; i < c->n_calls; i++)
        json_array_append_new(content, use(&c->call[i], call_arguments(&c->call[i])));
    json_t *o = message(a, content);
    json_object_set_new(o, "kvik", answer_kvik(a));
    return o;
}

static const struct protocol messages_protocol = {.name = "anthropic.messages",
                                                  .prefix = "msg_",
                                                  .call_prefix = "toolu_",
                                                  .stream = "text/event-stream",
                                                  .comments = true,
                                                  .error = error,
                                                  .begin = stream_begin,
                                                  .piece = stream_piece,
                                                  .calls = true,
                                                  .call = stream_call,
                                                  .arguments = stream_arguments,
                                                  .called = block_stop,
                                                  .done = stream_done,
                                                  .broken = broken,
                                                  .whole = whole};

/* --- Requests. */

static int read_messages(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    return anthropic_read(s, x, k, body, false);
}

static int read_counted(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    return anthropic_read(s, x, k, body, true);
}

static int messages(struct server *s, struct exchange *x)
{
    return ask_serve(s, x, &messages_protocol, read_messages);
}

static int count_tokens(struct server *s, struct exchange *x)
{
    struct ask k;
    int e = ask_read(s, x, read_counted, &k);
    if (e >= 0) exchange_json(x, 200, json_pack("{s:I}", "input_tokens", (json_int_t)k.n));
    ask_done(&k);
    return e;
}

static const struct route anthropic_routes[] = {
    {"/v1/messages", EXCHANGE_POST, .protocol = &messages_protocol, .answer = messages},
    {"/v1/messages/count_tokens", EXCHANGE_POST, .protocol = &messages_protocol,
     .answer = count_tokens},
};
ROUTES(anthropic_routes);
