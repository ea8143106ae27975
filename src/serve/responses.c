/* responses.c - OpenAI's responses, whole and as streams.  Nothing is kept: a request has the whole conversation. */
#include "serve/responses.h"

#include <string.h>
#include <time.h>

/* --- Items: reasoning, messages and calls. */

static void item_id(const struct answer *a, const char *kind, unsigned index, char out[64])
{
    snprintf(out, 64, "%s_%s_%u", kind, a->id + strlen(a->protocol->prefix), index);
}

static json_t *text_part(const char *type, const char *text, size_t n)
{
    json_t *part = json_pack("{s:s, s:o}", "type", type, "text", answer_text(text, n));
    if (!strcmp(type, "output_text")) {
        json_object_set_new(part, "annotations", json_array());
        json_object_set_new(part, "logprobs", json_array());
    }
    return part;
}

/* Makes an item with a message.  text NULL: the item only begins. */
static json_t *message_item(const char *id, const char *text, size_t n)
{
    json_t *content = json_array();
    if (text) json_array_append_new(content, text_part("output_text", text, n));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status",
                     text ? "completed" : "in_progress", "role", "assistant", "content", content);
}

static json_t *reasoning_item(const char *id, const char *text, size_t n)
{
    json_t *content = json_array();
    if (text) json_array_append_new(content, text_part("reasoning_text", text, n));
    return json_pack("{s:s, s:s, s:[], s:o, s:n}", "id", id, "type", "reasoning", "summary",
                     "content", content, "encrypted_content");
}

static json_t *call_item(const char *id, const struct call *k, const char *arguments,
                         const char *status)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", id, "type", "function_call", "status",
                     status, "call_id", k->id, "name", k->name, "arguments", arguments);
}

/* --- The response. */

static json_t *usage(const struct answer *a)
{
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens",
                     (json_int_t)a->prompt_tokens, "input_tokens_details", "cached_tokens",
                     (json_int_t)a->reused, "output_tokens", (json_int_t)a->choice[0].new_tokens,
                     "output_tokens_details", "reasoning_tokens",
                     (json_int_t)a->choice[0].reasoning_tokens, "total_tokens",
                     (json_int_t)a->prompt_tokens + (json_int_t)a->choice[0].new_tokens);
}

/* Adds the options of the request. */
static void add_options(const struct answer *a, json_t *o)
{
    static const char *const names[][2] = {{"max_output_tokens", "max_new_tokens"},
                                           {"temperature", "temperature"},
                                           {"top_p", "top_p"}};
    for (size_t i = 0; i < countof(names); i++) {
        json_t *v = json_object_get(a->ask.options, names[i][1]);
        json_object_set_new(o, names[i][0], v ? json_incref(v) : json_null());
    }
    if (json_is_false(json_object_get(a->ask.options, "do_sample"))) /* temperature 0 clears it */
        json_object_set_new(o, "temperature", json_integer(0));
}

/* Makes the response, and takes `output` over.  usage: adds the usage, since the response is over. */
static json_t *response(const struct answer *a, const char *status, json_t *output, json_t *used)
{
    bool cut = !strcmp(status, "incomplete");
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:n, s:s, s:o, s:o}", "id", a->id, "object",
                          "response", "created_at", (json_int_t)a->created, "status", status,
                          "error", "model", a->server->o.name, "output", output, "usage", used);
    json_object_set_new(o, "incomplete_details",
                        cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
    json_object_update_new(
        o, json_pack("{s:n, s:n, s:{}, s:b, s:n, s:{s:n, s:n}, s:b, s:{s:{s:s}}, s:s, s:[], s:s}",
                     "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", 1,
                     "previous_response_id", "reasoning", "effort", "summary", "store", 0, "text",
                     "format", "type", "text", "tool_choice", "auto", "tools", "truncation",
                     "disabled"));
    add_options(a, o);
    return o;
}

static const char *status_of(const struct choice *c)
{
    return c->finish == KVIK_FINISH_LENGTH ? "incomplete" : "completed";
}

/* --- Streams: numbered events, and items part by part. */

enum { OPEN_NONE, OPEN_TEXT, OPEN_REASONING };

static void event(struct answer *a, const char *name, json_t *o)
{
    if (a->choice[0].new_tokens) answer_add_timings(a, NULL, o);
    json_object_set_new(o, "type", json_string(name));
    json_object_set_new(o, "sequence_number", json_integer(a->events++));
    answer_event(a, name, o);
}

static void stream_begin(struct answer *a)
{
    a->choice[0].items = json_array();
    event(a, "response.created",
          json_pack("{s:o}", "response", response(a, "in_progress", json_array(), json_null())));
    event(a, "response.in_progress",
          json_pack("{s:o}", "response", response(a, "in_progress", json_array(), json_null())));
}

static void open_id(const struct answer *a, const struct choice *c, char out[64])
{
    item_id(a, c->part == OPEN_REASONING ? "rs" : "msg", c->parts, out);
}

/* Sends an event about a part of the open item. */
static void part_event(struct answer *a, const struct choice *c, const char *name, const char *key,
                       json_t *v)
{
    char id[64];
    open_id(a, c, id);
    event(a, name,
          json_pack("{s:s, s:i, s:i, s:o}", "item_id", id, "output_index", (int)c->parts,
                    "content_index", 0, key, v));
}

static void item_event(struct answer *a, const struct choice *c, const char *name, json_t *item)
{
    event(a, name, json_pack("{s:i, s:o}", "output_index", (int)c->parts, "item", item));
}

static void item_close(struct answer *a, struct choice *c, json_t *item)
{
    json_array_append(c->items, item);
    item_event(a, c, "response.output_item.done", item);
    c->parts++;
    c->part = OPEN_NONE;
}

static void close_text(struct answer *a, struct choice *c)
{
    char id[64];
    if (c->part == OPEN_NONE) return;
    bool thinks = c->part == OPEN_REASONING;
    const struct buf *b = thinks ? &c->reason : &c->text;
    const char *text = b->data + c->part_from;
    size_t n = b->len - c->part_from;
    open_id(a, c, id);
    part_event(a, c, thinks ? "response.reasoning_text.done" : "response.output_text.done", "text",
               answer_text(text, n));
    part_event(a, c, "response.content_part.done", "part",
               text_part(thinks ? "reasoning_text" : "output_text", text, n));
    item_close(a, c, thinks ? reasoning_item(id, text, n) : message_item(id, text, n));
}

static void stream_piece(struct answer *a, struct choice *c, enum piece kind, const char *text)
{
    bool thinks = kind == PIECE_REASONING;
    int part = thinks ? OPEN_REASONING : OPEN_TEXT;
    size_t n = strlen(text);
    char id[64];
    if (c->part != part) {
        close_text(a, c);
        c->part = part;
        c->part_from = (thinks ? c->reason.len : c->text.len) - n;
        open_id(a, c, id);
        item_event(a, c, "response.output_item.added",
                   thinks ? reasoning_item(id, NULL, 0) : message_item(id, NULL, 0));
        part_event(a, c, "response.content_part.added", "part",
                   text_part(thinks ? "reasoning_text" : "output_text", "", 0));
    }
    part_event(a, c, thinks ? "response.reasoning_text.delta" : "response.output_text.delta",
               "delta", answer_text(text, n));
}

static void stream_call(struct answer *a, struct choice *c)
{
    char id[64];
    close_text(a, c);
    item_id(a, "fc", c->parts, id);
    item_event(a, c, "response.output_item.added",
               call_item(id, &c->call[c->n_calls - 1], "", "in_progress"));
}

static void stream_arguments(struct answer *a, struct choice *c, const char *text)
{
    char id[64];
    item_id(a, "fc", c->parts, id);
    event(
        a, "response.function_call_arguments.delta",
        json_pack("{s:s, s:i, s:s}", "item_id", id, "output_index", (int)c->parts, "delta", text));
}

static void stream_called(struct answer *a, struct choice *c)
{
    const struct call *k = &c->call[c->n_calls - 1];
    char id[64];
    item_id(a, "fc", c->parts, id);
    event(a, "response.function_call_arguments.done",
          json_pack("{s:s, s:i, s:s, s:s}", "item_id", id, "output_index", (int)c->parts, "name",
                    k->name, "arguments", call_arguments(k)));
    item_close(a, c, call_item(id, k, call_arguments(k), "completed"));
}

static void stream_done(struct answer *a)
{
    struct choice *c = &a->choice[0];
    char name[32];
    close_text(a, c);
    snprintf(name, sizeof name, "response.%s", status_of(c));
    json_t *o = response(a, status_of(c), json_incref(c->items), usage(a));
    json_object_set_new(o, "kvik", answer_kvik(a));
    event(a, name, json_pack("{s:o}", "response", o));
}

static void stream_progress(struct answer *a, json_t *progress, json_t *times)
{
    json_t *o =
        json_pack("{s:o, s:o}", "response", response(a, "in_progress", json_array(), json_null()),
                  "prompt_progress", progress);
    if (times) json_object_set_new(o, "timings", times);
    event(a, "response.in_progress", o);
}

static void broken(struct answer *a, const struct fault *f)
{
    json_t *o = response(a, "failed", json_incref(a->choice[0].items), json_null());
    json_object_set_new(o, "error",
                        json_pack("{s:s, s:s}", "code", "server_error", "message", f->sentence));
    event(a, "response.failed", json_pack("{s:o}", "response", o));
}

static json_t *whole(struct answer *a)
{
    const struct choice *c = &a->choice[0];
    json_t *output = json_array();
    unsigned n = 0;
    char id[64];
    if (c->reason.len) {
        item_id(a, "rs", n++, id);
        json_array_append_new(output, reasoning_item(id, c->reason.data, c->reason.len));
    }
    if (c->text.len) {
        item_id(a, "msg", n++, id);
        json_array_append_new(output, message_item(id, c->text.data, c->text.len));
    }
    for (uint32_t i = 0; i < c->n_calls; i++) {
        item_id(a, "fc", n++, id);
        json_array_append_new(output,
                              call_item(id, &c->call[i], call_arguments(&c->call[i]), "completed"));
    }
    json_t *o = response(a, status_of(c), output, usage(a));
    json_object_set_new(o, "kvik", answer_kvik(a));
    return o;
}

static json_t *error(const struct fault *f)
{
    return protocol_openai.error(f);
}

static const struct protocol responses = {.name = "openai.responses",
                                          .prefix = "resp_",
                                          .call_prefix = "call_",
                                          .stream = "text/event-stream",
                                          .comments = true,
                                          .error = error,
                                          .begin = stream_begin,
                                          .piece = stream_piece,
                                          .calls = true,
                                          .call = stream_call,
                                          .arguments = stream_arguments,
                                          .called = stream_called,
                                          .done = stream_done,
                                          .progress = stream_progress,
                                          .broken = broken,
                                          .whole = whole};

/* --- Requests. */

/* Answers a request without input by an empty response. */
static void answer_probe(struct server *s, struct exchange *x, bool stream)
{
    struct choice c = {.finish = KVIK_FINISH_EOS, .over = true};
    struct answer a = {
        .server = s, .x = x, .protocol = &responses, .choice = &c, .created = (int64_t)time(NULL)};
    snprintf(a.id, sizeof a.id, "resp_%llx", (unsigned long long)x->id);
    if (!stream) {
        exchange_json(x, 200, whole(&a));
        return;
    }
    exchange_begin(x, responses.stream, responses.comments);
    stream_begin(&a);
    stream_done(&a);
    exchange_finish(x);
    json_decref(c.items);
}

static int read_or_probe(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    int e = responses_read(s, x, k, body);
    if (e == 1) answer_probe(s, x, k->stream);
    return e;
}

static int read_counted(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    return responses_read(s, x, k, body);
}

static int respond(struct server *s, struct exchange *x)
{
    return ask_serve(s, x, &responses, read_or_probe);
}

static int count_tokens(struct server *s, struct exchange *x)
{
    struct ask k;
    int e = ask_read(s, x, read_counted, &k);
    if (e >= 0)
        exchange_json(x, 200,
                      json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                                (json_int_t)k.n));
    ask_done(&k);
    return MIN(e, 0);
}

static const struct route responses_routes[] = {
    {"/v1/responses", EXCHANGE_POST, .protocol = &responses, .answer = respond},
    {"/responses", EXCHANGE_POST, .protocol = &responses, .answer = respond},
    {"/v1/responses/input_tokens", EXCHANGE_POST, .protocol = &responses, .answer = count_tokens},
};
ROUTES(responses_routes);
